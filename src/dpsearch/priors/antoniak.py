"""The paper's p(c): Antoniak's probability of a vector of cluster-size counts, for reproduction.

    P(m) = N!/α^(N) · α^K / Π_i i^{m_i} m_i!        (the paper's Eq. 2; Antoniak 1974, Prop. 3)

m_i is the number of clusters of size i.  P(m) is the probability of the *shape* of a partition:
it adds up all partitions of that shape, so as a probability of one partition it does not sum to 1
and hardly penalises splitting.  `DirichletProcess` is the probability of one partition; this class
exists to repeat the paper's figures.

Written as a product it is log V(K) + Σ log W(n_k) − Σ_i log m_i! with V = N! α^K/α^(N) and
W(n) = 1/n.  The last term is why no solver but the prefix search takes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Vector
from dpsearch._validate import positive
from dpsearch.priors.base import Prior, check_sizes, log_gamma_ratio
from dpsearch.priors.dirichlet_process import DirichletProcess


@dataclass(frozen=True)
class AntoniakCounts(Prior):
    """P(m) of the paper's Eq. 2 with its greedy completion; not a distribution over partitions.

    Parameters
    ----------
    alpha
        Concentration, above 0.
    early_stop
        Whether the greedy completion stops as the paper says: once the largest cluster has grown
        and its next step beats a new cluster, it takes all that remains.

    Examples
    --------
    The paper's greedy completion is not always the best one:

    >>> prior = AntoniakCounts(1.0, early_stop=False)
    >>> greedy = prior.best_completion([1, 1, 1, 1, 4], 3)
    >>> bool(greedy < prior.log_probability([1, 1, 2, 3, 4]))
    True
    """

    alpha: float = 1.0
    early_stop: bool = True
    # Keyed by everything that the value depends on: the sizes as a multiset and the number left;
    # α and early_stop are the object's own.
    _cache: dict[tuple[tuple[int, ...], int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    name: ClassVar[str] = "antoniak_counts"
    product_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(self.alpha, "alpha")

    def log_v(self, n_points: int) -> Vector:
        clusters = np.arange(n_points + 1, dtype=np.float64)
        rising = float(log_gamma_ratio(self.alpha, n_points))
        out = (clusters - 1.0) * math.log(self.alpha) + math.lgamma(n_points + 1.0) - rising
        out[0] = 0.0
        return out

    def log_w(self, n_points: int) -> Vector:
        return np.asarray(-np.log(np.maximum(np.arange(n_points + 1), 1)))

    def best_completion(self, sizes: Sequence[int] | Ints, remaining: int) -> float:
        """Return the paper's greedy completion of P(m) (its section 3.1)."""
        sizes = check_sizes(sizes, empty=True)
        key = (tuple(sorted(int(size) for size in sizes)), remaining)
        if key not in self._cache:
            tables = self.tables(int(sizes.sum()) + remaining)
            room = completion_room(int(sizes.sum()) + remaining)
            self._cache[key] = float(
                greedy_completion(tables, sizes, remaining, self.early_stop, room)
            )
        return self._cache[key]

    def for_prediction(self) -> Prior:
        """P(m) is the law of shapes under the Dirichlet process, which weighs further points."""
        return DirichletProcess(self.alpha)

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "alpha": float(self.alpha), "early_stop": self.early_stop}


def completion_room(n_points: int) -> Ints:
    """Working space for `greedy_completion`: n points have at most √(2n) distinct cluster sizes."""
    return np.zeros((2, math.isqrt(2 * n_points) + 4), np.int64)


@inner
def greedy_completion(tables, sizes, remaining, early_stop, room):  # type: ignore[no-untyped-def]
    """Return log P(m) after placing the remaining points one by one where P(m) grows most.

    The change of log P(m) for a new cluster is log α − log(m_1 + 1), and for a cluster of size i
    it is log W(i + 1) − log W(i) + log m_i − log(m_{i+1} + 1)   (the paper's Eq. 3).
    """
    # Clusters of equal size are one entry: shape[j] is a size, count[j] how many have it.
    shape = room[0]
    count = room[1]
    used = 0
    for k in range(sizes.shape[0]):
        used = _shift(shape, count, used, sizes[k], 1)
    n_clusters = sizes.shape[0]
    while remaining > 0:
        singles = _count_of(shape, count, used, 1)
        best = tables.log_v[n_clusters + 1] - tables.log_v[n_clusters] - math.log(singles + 1.0)
        if n_clusters == 0:
            best = 0.0
        best_at = -1
        largest = 0
        for j in range(used):
            if count[j] == 0:
                continue
            largest = max(largest, shape[j])
            after = _count_of(shape, count, used, shape[j] + 1)
            gain = tables.log_w[shape[j] + 1] - tables.log_w[shape[j]]
            gain += math.log(count[j]) - math.log(after + 1.0)
            if gain > best:
                best = gain
                best_at = j
        if best_at < 0:
            n_clusters += 1
            used = _shift(shape, count, used, 1, 1)
            remaining -= 1
            continue
        grown = shape[best_at] + 1
        count[best_at] -= 1
        used = _shift(shape, count, used, grown, 1)
        remaining -= 1
        if early_stop and remaining > 0 and grown > largest:
            level = _count_of(shape, count, used, grown)
            again = tables.log_w[grown + 1] - tables.log_w[grown] + math.log(level)
            singles = _count_of(shape, count, used, 1)
            fresh = tables.log_v[2] - tables.log_v[1] - math.log(singles + 1.0)
            if again >= fresh:
                used = _shift(shape, count, used, grown, -1)
                used = _shift(shape, count, used, grown + remaining, 1)
                remaining = 0
    out = tables.log_v[n_clusters]
    for j in range(used):
        out += count[j] * tables.log_w[shape[j]] - math.lgamma(count[j] + 1.0)
    return out


@inner
def _count_of(shape, count, used, size):  # type: ignore[no-untyped-def]
    for j in range(used):
        if shape[j] == size:
            return count[j]
    return 0


@inner
def _shift(shape, count, used, size, by):  # type: ignore[no-untyped-def]
    """Add `by` to the number of clusters of a size; return the number of entries in use."""
    for j in range(used):
        if shape[j] == size:
            count[j] += by
            return used
    # An emptied entry is taken over, so that entries stay as few as there are distinct sizes.
    for j in range(used):
        if count[j] == 0:
            shape[j] = size
            count[j] = by
            return used
    shape[used] = size
    count[used] = by
    return used + 1
