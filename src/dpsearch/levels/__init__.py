"""From components to clusters: a tree over the components, and a level where it is cut."""

from dpsearch.levels.levels import LevelOptions, Levels, find_levels
from dpsearch.levels.tree import Tree

__all__ = ["LevelOptions", "Levels", "Tree", "find_levels"]
