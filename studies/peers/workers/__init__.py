"""A file per peer, run by the Python of that peer's environment; nothing here needs dpsearch."""
