"""Consensus: search and refine from several orders, and compare the partitions found.

It is a cheap way to see which points good partitions place differently, but not a substitute for
the posterior.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Vector
from dpsearch._validate import as_rng
from dpsearch.errors import ParameterError
from dpsearch.families.base import Family
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem, as_problem
from dpsearch.refinement.refine import refine


@dataclass(frozen=True)
class Consensus:
    """Partitions from several starts, the best first.

    Attributes
    ----------
    clusterings
        Sorted by log joint.
    disagreement
        For each point, how far its cluster in the best partition differs from its cluster in the
        others: one minus the Jaccard index of the two sets of points, averaged over the others.
        0 means that all partitions put it together with the same points.
    """

    clusterings: list[Clustering]
    disagreement: Vector

    @classmethod
    def of(cls, clusterings: Iterable[Clustering]) -> Consensus:
        """Compare partitions of the same points."""
        found = sorted(clusterings, key=lambda clustering: -clustering.log_joint)
        best = found[0].labels
        others = [_jaccard_distance(best, other.labels) for other in found[1:]]
        return cls(found, np.mean(others, axis=0) if others else np.zeros(len(best)))

    @property
    def best(self) -> Clustering:
        return self.clusterings[0]

    def together(self, rows: Ints) -> Matrix:
        """Return the share of the partitions that put each pair of these rows together."""
        out = np.zeros((len(rows), len(rows)))
        for clustering in self.clusterings:
            labels = clustering.labels[rows]
            out += labels[:, None] == labels[None, :]
        return out / len(self.clusterings)


def consensus(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    n_restarts: int = 5,
    seconds: float | None = None,
    rng: Any = None,
    n_jobs: int | None = None,
) -> Consensus:
    """Search and refine from `n_restarts` random orders, and compare the results.

    Parameters
    ----------
    data, family, prior
        As for `search`.
    seconds
        Time for each refinement; None: until it converges.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import consensus, families, priors
    >>> X = np.array([0.0, 0.1, 0.2, 9.0, 9.1, 9.2])[:, None]
    >>> view = consensus(X, families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0), rng=0)
    >>> float(view.disagreement.max())
    0.0
    """
    if n_restarts < 1:
        raise ParameterError(
            f"{{parameter}} must be at least 1, got {n_restarts!r}", parameter="n_restarts"
        )
    problem = as_problem(data, family, prior)
    found = []
    for stream in as_rng(rng).spawn(n_restarts):
        start = search(problem, beam_size=1, order="random", rng=stream)
        found.append(refine(problem, start.labels, seconds=seconds, rng=stream, n_jobs=n_jobs))
    return Consensus.of(found)


def _jaccard_distance(a: Labels, b: Labels) -> Vector:
    """Return 1 − |A ∩ B| / |A ∪ B| of each point's clusters A and B in two partitions."""
    width = int(b.max()) + 1
    pair = a * width + b
    _, inverse, overlap = np.unique(pair, return_inverse=True, return_counts=True)
    common = overlap[inverse.reshape(-1)]
    union = np.bincount(a)[a] + np.bincount(b)[b] - common
    return np.asarray(1.0 - common / union)
