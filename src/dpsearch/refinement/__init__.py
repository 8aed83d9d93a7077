"""Refinement: an anytime local search on top of the prefix search."""

from dpsearch.refinement.driver import halved, refine

__all__ = ["halved", "refine"]
