"""From components to clusters: a tree over the components, cut at a level."""

from dpsearch.levels.levels import LevelOptions, Levels, find_levels
from dpsearch.levels.tree import Tree

__all__ = ["LevelOptions", "Levels", "Tree", "find_levels"]
