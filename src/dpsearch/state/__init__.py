"""A partition with its statistics kept up to date: what refinement and the samplers work on."""

from dpsearch.state.clusters import Clusters
from dpsearch.state.state import State

__all__ = ["Clusters", "State"]
