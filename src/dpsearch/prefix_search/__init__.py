"""Search over clusterings of prefixes of the data: the paper's method."""

from dpsearch.prefix_search.search import search, search_problem

__all__ = ["search", "search_problem"]
