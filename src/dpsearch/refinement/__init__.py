"""Refinement: an anytime local search on top of the prefix search."""

from dpsearch.refinement.consensus import Consensus, consensus
from dpsearch.refinement.driver import halved, refine

__all__ = ["Consensus", "consensus", "halved", "refine"]
