"""Clustering without choosing the number of clusters.

dpsearch finds the maximum a posteriori partition of a Dirichlet process mixture by search.
"""

from typing import TYPE_CHECKING, Any

from dpsearch._version import __version__

if TYPE_CHECKING:
    from dpsearch import datasets, families, priors
    from dpsearch.checks import check_family, check_prior
    from dpsearch.comparison import Comparison, compare
    from dpsearch.estimator import DPMixture, load
    from dpsearch.exact import Certificate, certify
    from dpsearch.explanation import Explanation
    from dpsearch.mean_field import VariationalMixture, variational
    from dpsearch.prefix_search.search import search
    from dpsearch.problem import Clustering, Problem, log_joint
    from dpsearch.refinement.consensus import consensus
    from dpsearch.refinement.refine import refine
    from dpsearch.samplers.concentration import alpha_profile, select_alpha
    from dpsearch.samplers.draws import Draws
    from dpsearch.samplers.particles import Particles, particle_filter
    from dpsearch.samplers.run import gibbs, metropolis, split_merge
    from dpsearch.tables import Triage, triage

__all__ = [
    "Certificate", "Clustering", "Comparison", "DPMixture", "Draws", "Explanation", "Particles",
    "Problem", "Triage", "VariationalMixture", "__version__", "alpha_profile", "certify",
    "check_family", "check_prior", "compare", "consensus", "datasets", "families", "gibbs", "load",
    "log_joint", "metropolis", "particle_filter", "priors", "refine", "search", "select_alpha",
    "split_merge", "triage", "variational",
]  # fmt: skip

# Where each name is: it is imported when it is first asked for, since all of them together take
# two seconds.  A module stands for itself.
_PLACES = {
    "checks": ("check_family", "check_prior"),
    "comparison": ("Comparison", "compare"),
    "datasets": (),
    "estimator": ("DPMixture", "load"),
    "exact": ("Certificate", "certify"),
    "explanation": ("Explanation",),
    "families": (),
    "mean_field": ("VariationalMixture", "variational"),
    "prefix_search.search": ("search",),
    "priors": (),
    "problem": ("Clustering", "Problem", "log_joint"),
    "refinement.refine": ("refine",),
    "refinement.consensus": ("consensus",),
    "samplers": (
        "Draws", "Particles", "alpha_profile", "gibbs", "metropolis", "particle_filter",
        "select_alpha", "split_merge",
    ),
    "tables": ("Triage", "triage"),
}  # fmt: skip
_PLACE = {name: place for place, names in _PLACES.items() for name in names or (place,)}


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module 'dpsearch' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"dpsearch.{_PLACE[name]}")
    value = module if _PLACE[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
