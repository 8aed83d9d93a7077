"""Search over clusterings of prefixes of the data, the paper's method."""
