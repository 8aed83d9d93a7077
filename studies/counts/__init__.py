"""Wide tables of counts: transforms of their rows before clustering."""
