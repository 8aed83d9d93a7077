"""Clustering without choosing the number of clusters.

dpsearch finds the maximum a posteriori partition of a Dirichlet process mixture by search.
"""

from typing import TYPE_CHECKING, Any

from dpsearch import datasets, families, priors
from dpsearch._version import __version__
from dpsearch.prefix_search import search
from dpsearch.problem import Clustering, Problem, log_joint
from dpsearch.refinement import refine
from dpsearch.refinement.consensus import consensus

if TYPE_CHECKING:
    from dpsearch.checks import check_family, check_prior
    from dpsearch.comparison import Comparison, compare
    from dpsearch.estimator import DPMixture, load
    from dpsearch.exact import Certificate, certify
    from dpsearch.explanation import Explanation
    from dpsearch.mean_field import VariationalMixture, variational
    from dpsearch.samplers.concentration import alpha_profile, select_alpha
    from dpsearch.samplers.draws import Draws
    from dpsearch.samplers.particles import Particles, particle_filter
    from dpsearch.samplers.run import gibbs, metropolis, split_merge
    from dpsearch.tables import Triage, triage

__all__ = [
    "Certificate",
    "Clustering",
    "Comparison",
    "DPMixture",
    "Draws",
    "Explanation",
    "Particles",
    "Problem",
    "Triage",
    "VariationalMixture",
    "__version__",
    "alpha_profile",
    "certify",
    "check_family",
    "check_prior",
    "compare",
    "consensus",
    "datasets",
    "families",
    "gibbs",
    "load",
    "log_joint",
    "metropolis",
    "particle_filter",
    "priors",
    "refine",
    "search",
    "select_alpha",
    "split_merge",
    "triage",
    "variational",
]

# Imported when first asked for: scikit-learn takes a second, and only the first two need it.
_LAZY = {
    "DPMixture": "dpsearch.estimator",
    "Explanation": "dpsearch.explanation",
    "load": "dpsearch.estimator",
    **dict.fromkeys(("Triage", "triage"), "dpsearch.tables"),
    **dict.fromkeys(("Certificate", "certify"), "dpsearch.exact"),
    **dict.fromkeys(("VariationalMixture", "variational"), "dpsearch.mean_field"),
    **dict.fromkeys(("Comparison", "compare"), "dpsearch.comparison"),
    **dict.fromkeys(("check_family", "check_prior"), "dpsearch.checks"),
    **dict.fromkeys(
        (
            "Draws",
            "Particles",
            "alpha_profile",
            "gibbs",
            "metropolis",
            "particle_filter",
            "select_alpha",
            "split_merge",
        ),
        "dpsearch.samplers",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dpsearch' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
