"""Search over clusterings of prefixes of the data: the paper's method."""

from dpsearch.prefix_search.search import search

__all__ = ["search"]
