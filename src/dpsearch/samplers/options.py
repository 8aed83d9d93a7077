"""How chains are run: the options that every sampler takes."""

from __future__ import annotations

import hashlib
import math
import numbers
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._types import Labels, Rng
from dpsearch._validate import n_threads, whole
from dpsearch.errors import ParameterError
from dpsearch.events import Callback
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem, labels_of
from dpsearch.refinement import refine

STARTS = ("search", "refined", "one", "all", "log")


@dataclass(frozen=True)
class RunOptions:
    """How chains are run, whatever moves they make.

    Parameters
    ----------
    draws
        Number of sweeps of each chain, burn-in included.
    burn_in
        Sweeps at the beginning that are not kept.
    thin
        Of the others, every `thin`-th is kept.
    chains
        Number of independent chains.
    start
        ``"search"`` (default): greedy search, in ascending order for the first chain and in
        random orders for the others, so that chains do not begin at one point; ``"refined"``: the
        same, refined until it converges; ``"one"`` cluster; ``"all"``: as many clusters as items;
        ``"log"``: log N random clusters; or labels, or a `Clustering`.
    n_jobs
        Threads, at most one for each chain; −1 for all cores.  The draws do not depend on it.
    rng
        Seed or Generator.
    callback
        A function that is called now and then with an `Event`, whose `done` counts the sweeps of
        all chains.
    checkpoint
        A file to which the chains are written every `checkpoint_seconds`, on Ctrl-C and at the
        end.
    resume
        Continue from the checkpoint if it exists: a run that was killed ends with the draws that
        it would have had, bit for bit.
    """

    draws: int
    burn_in: int = 0
    thin: int = 1
    chains: int = 1
    start: Any = "search"
    n_jobs: int | None = None
    rng: Any = None
    callback: Callback | None = None
    checkpoint: str | Path | None = None
    resume: bool = False
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, least in {"draws": 1, "burn_in": 0, "thin": 1, "chains": 1}.items():
            object.__setattr__(self, name, whole(getattr(self, name), name, least))
        if self.burn_in + self.thin > self.draws:
            raise ParameterError(
                f"burn_in {self.burn_in} and thin {self.thin} leave nothing of {self.draws} draws:"
                " draws counts all sweeps, burn-in included"
            )
        seconds = self.checkpoint_seconds
        if not (isinstance(seconds, numbers.Real) and float(seconds) >= 0):
            raise ParameterError(f"checkpoint_seconds must be ≥ 0, got {seconds!r}")
        n_threads(self.n_jobs)  # raises for a number of jobs that makes no sense

    @property
    def threads(self) -> int:
        return min(n_threads(self.n_jobs), self.chains)

    def kept(self) -> Any:
        """Which sweeps are kept: every `thin`-th after burn-in."""
        sweeps = np.arange(1, self.draws + 1)
        return (sweeps > self.burn_in) & ((sweeps - self.burn_in) % self.thin == 0)

    def described(self) -> dict[str, Any]:
        """Return what makes chains differ, but for their length and seed, in plain values."""
        start = self.start
        if not isinstance(start, str):
            labels = start.labels if isinstance(start, Clustering) else start
            text = repr(np.asarray(labels).tolist())
            start = "labels " + hashlib.sha256(text.encode()).hexdigest()[:16]
        return {
            "burn in": self.burn_in,
            "thin": self.thin,
            "chains": self.chains,
            "start": start,
        }


def starting_labels(problem: Problem, start: Any, chain: int, rng: Rng) -> Labels:
    """Return the first partition of a chain; see `RunOptions` for the starts."""
    labels = _labels_of_start(problem, start, chain, rng)
    n_clusters, most = int(labels.max()) + 1, problem.tables.most_clusters
    if n_clusters > most:
        raise ParameterError(
            f"a chain cannot start from {n_clusters} clusters: the prior allows at most {most}"
        )
    return labels


def _labels_of_start(problem: Problem, start: Any, chain: int, rng: Rng) -> Labels:
    n = problem.n_items
    if not isinstance(start, str):
        return labels_of(start, problem)
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
