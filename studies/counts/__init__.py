"""Wide tables of counts: what their rows become before they are clustered."""
