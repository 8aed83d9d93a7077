"""Refinement: an anytime local search on top of the prefix search."""

from dpsearch.refinement.refine import halved, refine, refine_first, refine_rows, split_problem

__all__ = ["halved", "refine", "refine_first", "refine_rows", "split_problem"]
