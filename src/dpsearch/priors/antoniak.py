"""The paper's p(c): Antoniak's probability of a vector of cluster-size counts, for reproduction.

    P(m) = N!/α^(N) · α^K / Π_i i^{m_i} m_i!        (the paper's Eq. 2; Antoniak 1974, Prop. 3)

m_i is the number of clusters of size i.  P(m) is the probability of the *shape* of a partition:
it adds up all partitions of that shape, so as a probability of one partition it does not sum to 1
and hardly penalises splitting.  `DirichletProcess` is the probability of one partition; this class
exists to repeat the paper's figures.

Written as a product it is log V(K) + Σ log W(n_k) − Σ_i log m_i! with V = N! α^K/α^(N) and
W(n) = 1/n.  Because of the last term, no solver but the prefix search takes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Vector
from dpsearch._validate import positive
from dpsearch.priors.base import Prior, check_sizes
from dpsearch.priors.concentration import Concentration, FixedConcentration, log_gamma_ratio
from dpsearch.priors.dirichlet_process import DirichletProcess

_TIE = 1.0 + 1e-12  # factors nearer to each other than this are equal but for rounding


class Rule(NamedTuple):
    """How P(m) is completed, as kernels see it."""

    alpha: float
    early_stop: bool


@dataclass(frozen=True)
class AntoniakCounts(Prior):
    """P(m) of the paper's Eq. 2 with its greedy completion; not a distribution over partitions.

    Parameters
    ----------
    alpha
        Concentration, above 0.
    early_stop
        Whether the greedy completion stops as in the paper: once the largest cluster has grown and
        its next step beats a new cluster, it takes all the remaining points.

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

    name: ClassVar[str] = "antoniak_counts"
    product_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(self.alpha, "alpha")

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        most_clusters = n_points if most_clusters is None else most_clusters
        clusters = np.arange(most_clusters + 1, dtype=np.float64)
        rising = float(log_gamma_ratio(self.alpha, n_points))
        out = (clusters - 1.0) * math.log(self.alpha) + math.lgamma(n_points + 1.0) - rising
        out[0] = 0.0
        return out

    def log_w(self, sizes: Ints) -> Vector:
        return np.asarray(-np.log(np.maximum(sizes, 1)))

    def best_completion(self, sizes: Sequence[int] | Ints, remaining: int) -> float:
        """Return the paper's greedy completion of P(m) (its section 3.1)."""
        sizes = np.sort(check_sizes(sizes, empty=True))
        n_points = int(sizes.sum()) + remaining
        tables, room = self.tables(n_points), completion_room(n_points)
        return float(greedy_completion(tables, sizes, remaining, rule_of(self), room))

    def concentration(self) -> Concentration:
        return FixedConcentration(self.alpha)

    def for_prediction(self) -> Prior:
        """Return the Dirichlet process, whose law of shapes P(m) is."""
        return DirichletProcess(self.alpha)


def rule_of(prior: Prior) -> Rule:
    """Return the prior's rule, or a dummy for priors that kernels complete in another way."""
    if isinstance(prior, AntoniakCounts):
        return Rule(float(prior.alpha), prior.early_stop)
    return Rule(1.0, False)


def completion_room(n_points: int) -> Ints:
    """Return working space: n points have at most √(2n) distinct cluster sizes."""
    return np.zeros((4, math.isqrt(2 * n_points) + 4), np.int64)


@inner
def greedy_completion(tables, sizes, remaining, rule, room):  # type: ignore[no-untyped-def]
    """Return log P(m) after placing the remaining points one by one where P(m) grows most."""
    shape, count = room[0], room[1]
    used, value = tally(tables, sizes, shape, count)
    n_clusters = sizes.shape[0]
    return complete(tables, shape, count, used, n_clusters, value, remaining, rule)


@inner
def tally(tables, sizes, shape, count):  # type: ignore[no-untyped-def]
    """Write the distinct sizes in ascending order, and how many clusters have each.

    Returns the number of distinct sizes, and log P(m).
    """
    used = 0
    value = tables.log_v[sizes.shape[0]]
    for k in range(sizes.shape[0]):
        at = used
        while at > 0 and shape[at - 1] >= sizes[k]:
            at -= 1
        if at < used and shape[at] == sizes[k]:
            count[at] += 1
            value -= math.log(count[at])
        else:
            used = _insert(shape, count, used, at, sizes[k])
        value += tables.log_w[sizes[k]]
    return used, value


@inner
def complete(tables, shape, count, used, n_clusters, value, remaining, rule):  # type: ignore[no-untyped-def]
    """Return log P(m) of the greedy completion of a tally, which it overwrites.

    P(m) changes by a factor α/(m_1 + 1) for a new cluster, and for a cluster of size i by
    i m_i / ((i + 1)(m_{i+1} + 1))   (the paper's Eq. 3).
    """
    while remaining > 0:
        singles = count[0] if used > 0 and shape[0] == 1 else 0
        best = rule.alpha / (singles + 1.0) if n_clusters > 0 else math.inf
        at = -1
        for j in range(used):
            # One cluster alone of its size cannot beat a larger one.
            if count[j] > 1 or j == used - 1:
                size = shape[j]
                after = count[j + 1] if j + 1 < used and shape[j + 1] == size + 1 else 0
                factor = (size * count[j]) / ((size + 1.0) * (after + 1.0))
                if factor > best * _TIE:
                    best = factor
                    at = j
        remaining -= 1
        largest = shape[used - 1] if used > 0 else 0
        size = shape[at] if at >= 0 else 0
        used, gain = grow(tables, shape, count, used, n_clusters, size)
        value += gain
        if at < 0:
            n_clusters += 1
        elif rule.early_stop and remaining > 0 and size == largest:
            singles = count[0] if shape[0] == 1 else 0
            grown, level = size + 1, count[used - 1]
            if grown * level / (grown + 1.0) * _TIE >= rule.alpha / (singles + 1.0):
                # It takes all the remaining points.
                value += tables.log_w[grown + remaining] - tables.log_w[grown] + math.log(level)
                remaining = 0
    return value


@inner
def grow(tables, shape, count, used, n_clusters, size):  # type: ignore[no-untyped-def]
    """Add a point to a cluster of the given size, or to a new one if the size is 0.

    Returns the number of distinct sizes, and the change of log P(m).
    """
    at = 0  # where the entry of the next size is, or belongs
    gain = tables.log_w[size + 1]
    before = 1
    if size > 0:
        while shape[at] != size:
            at += 1
        before = count[at]
        gain -= tables.log_w[size]
        at += 1
    else:
        gain += tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]
    after = count[at] + 1 if at < used and shape[at] == size + 1 else 1
    if before != after:
        gain += math.log(before / after)
    if after > 1:
        count[at] = after
    if size > 0:
        if before > 1:
            count[at - 1] -= 1
        elif after > 1:
            for j in range(at, used):
                shape[j - 1] = shape[j]
                count[j - 1] = count[j]
            return used - 1, gain
        else:
            shape[at - 1] = size + 1
            return used, gain
    if after == 1:
        used = _insert(shape, count, used, at, size + 1)
    return used, gain


@inner
def _insert(shape, count, used, at, size):  # type: ignore[no-untyped-def]
    """Insert an entry for one cluster of this size."""
    for j in range(used, at, -1):
        shape[j] = shape[j - 1]
        count[j] = count[j - 1]
    shape[at] = size
    count[at] = 1
    return used + 1
