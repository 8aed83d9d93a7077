"""Where chains start."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from dpsearch._types import Labels, Rng
from dpsearch.errors import ParameterError
from dpsearch.partition import check_labels
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement import refine

STARTS = ("search", "refined", "one", "all", "log")


def name_of_start(start: Any) -> str:
    """A word for the start, by which a checkpoint tells one from another."""
    if isinstance(start, str):
        return start
    labels = start.labels if isinstance(start, Clustering) else start
    return "labels " + hashlib.sha256(repr(np.asarray(labels).tolist()).encode()).hexdigest()[:16]


def starting_labels(problem: Problem, start: Any, chain: int, rng: Rng) -> Labels:
    """Return the first partition of a chain.

    ``"search"``: greedy search, in ascending order for the first chain and in random orders for
    the others, so that chains do not begin at one point; ``"refined"``: the same, refined until it
    converges; ``"one"`` cluster; ``"all"``: as many clusters as items; ``"log"``: log N random
    clusters; or labels, or a `Clustering`.
    """
    n = problem.n_items
    if isinstance(start, Clustering):
        start = start.labels
    if not isinstance(start, str):
        return check_labels(start, n)
    if start in ("search", "refined"):
        order = "ascending" if chain == 0 else "random"
        found = search(problem, beam_size=1, order=order, rng=rng)
        if start == "refined":
            found = refine(problem, found.labels, rng=rng)
        return found.labels
    if start == "one":
        return np.zeros(n, np.int64)
    if start == "all":
        return np.arange(n)
    if start == "log":
        return rng.integers(max(1, round(math.log(n))), size=n)
    raise ParameterError(f"unknown start {start!r}: known are {', '.join(STARTS)}, or labels")
