"""The options of all samplers, and the partitions from which chains start."""

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
    """How chains are run; the options of every sampler.

    Parameters
    ----------
    draws
        Number of sweeps of each chain, burn-in included.
    burn_in
        Sweeps at the beginning that are not kept.
    thin
        After burn-in, one sweep in `thin` is kept.
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
        A function that is called from time to time with an `Event`, whose `done` counts the sweeps
        of all chains.
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
                " draws is the number of all sweeps, burn-in included"
            )
        seconds = self.checkpoint_seconds
        if not (isinstance(seconds, numbers.Real) and float(seconds) >= 0):
            raise ParameterError.must("checkpoint_seconds", "be ≥ 0", seconds)
        if self.resume and self.checkpoint is None:
            raise ParameterError.of("resume", "needs a checkpoint, the file to continue from")
        n_threads(self.n_jobs)  # raises if it is not a valid number of jobs

    @property
    def threads(self) -> int:
        return min(n_threads(self.n_jobs), self.chains)

    def kept(self) -> Any:
        """Return for each sweep whether its draw is kept."""
        sweeps = np.arange(1, self.draws + 1)
        return (sweeps > self.burn_in) & ((sweeps - self.burn_in) % self.thin == 0)

    def described(self) -> dict[str, Any]:
        """Return the options that change the chains, except for their length and seed."""
        start = self.start
        if not isinstance(start, str):
            labels = start.labels if isinstance(start, Clustering) else start
            text = repr(np.asarray(labels).tolist())
            start = "labels " + hashlib.sha256(text.encode()).hexdigest()[:16]
        counts = {"burn in": self.burn_in, "thin": self.thin, "chains": self.chains}
        return counts | {"start": start}


def starting_labels(problem: Problem, start: Any, chain: int, rng: Rng) -> Labels:
    """Return the first partition of a chain; see `RunOptions` for the starts."""
    n = problem.n_items
    if not isinstance(start, str):
        labels = labels_of(start, problem)
    elif start in ("search", "refined"):
        order = "ascending" if chain == 0 else "random"
        found = search(problem, beam_size=1, order=order, rng=rng)
        labels = (refine(problem, found.labels, rng=rng) if start == "refined" else found).labels
    elif start == "one":
        labels = np.zeros(n, np.int64)
    elif start == "all":
        labels = np.arange(n)
    elif start == "log":
        labels = rng.integers(max(1, round(math.log(n))), size=n)
    else:
        raise ParameterError(f"unknown start {start!r}: known are {', '.join(STARTS)}, or labels")
    n_clusters, most = int(labels.max()) + 1, problem.tables.most_clusters
    if n_clusters > most:
        raise ParameterError(
            f"a chain cannot start from {n_clusters} clusters: the prior allows at most {most}"
        )
    return labels
