"""Methods whose partitions are compared with a proved optimum; part of `benchmarks.exact`."""

from __future__ import annotations

from collections.abc import Callable

from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.samplers import gibbs, split_merge

SAMPLER_SWEEPS = 1000

METHODS: dict[str, Callable[[Problem], float]] = {
    "greedy search": lambda p: search(p, beam_size=1).log_joint,
    "beam 10": lambda p: search(p, beam_size=10).log_joint,
    "beam 100": lambda p: search(p, beam_size=100).log_joint,
    "search and refinement": lambda p: refine(
        p, search(p, beam_size=1).labels, rng=0
    ).log_joint,
    f"Gibbs, best of {SAMPLER_SWEEPS} sweeps from one cluster": lambda p: float(
        gibbs(p, draws=SAMPLER_SWEEPS, start="one", rng=0).trace.log_joint.max()
    ),
    f"split-merge 3, best of {SAMPLER_SWEEPS} sweeps from one cluster": lambda p: float(
        split_merge(p, draws=SAMPLER_SWEEPS, start="one", rng=0).trace.log_joint.max()
    ),
}  # fmt: skip
