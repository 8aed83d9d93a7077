"""Components and clusters on labelled tables and planted data: what the tree and its cut gain."""
