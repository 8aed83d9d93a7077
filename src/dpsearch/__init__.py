"""Clustering without choosing the number of clusters.

dpsearch finds the maximum a posteriori partition of a Dirichlet process mixture by search.
"""

from dpsearch import datasets, families, priors
from dpsearch.estimator import DPMixture
from dpsearch.model_file import load
from dpsearch.objective import Clustering, log_joint
from dpsearch.prefix_search import search
from dpsearch.refinement import consensus, refine

__version__ = "0.1.0"

__all__ = [
    "Clustering",
    "DPMixture",
    "__version__",
    "consensus",
    "datasets",
    "families",
    "load",
    "log_joint",
    "priors",
    "refine",
    "search",
]
