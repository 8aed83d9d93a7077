"""Search against samplers, particle filters and mean field on the same model."""
