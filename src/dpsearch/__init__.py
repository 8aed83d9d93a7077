"""Clustering without choosing the number of clusters.

dpsearch finds the maximum a posteriori partition of a Dirichlet process mixture by search.
"""

from dpsearch import families, priors
from dpsearch.objective import Clustering, log_joint
from dpsearch.prefix_search import search

__version__ = "0.1.0"

__all__ = ["Clustering", "__version__", "families", "log_joint", "priors", "search"]
