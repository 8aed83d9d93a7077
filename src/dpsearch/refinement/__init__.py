"""Refinement: an anytime local search on top of the prefix search."""

from dpsearch.refinement.refine import refine, refine_problem

__all__ = ["refine", "refine_problem"]
