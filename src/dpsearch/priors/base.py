"""The base class of priors on partitions, and the two tables through which solvers see a prior.

A Gibbs-type prior (Gnedin & Pitman 2006; De Blasi et al. 2015) gives a partition of N points into
K clusters of sizes n_1 … n_K the probability

    p(c) = V(K, N) · W(n_1) · … · W(n_K).

`Tables` hold log V by number of clusters, up to the largest possible number, and log W by size, up
to a million; for larger sizes its formula is as fast as reading memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln

from dpsearch._jit import inner
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Vector
from dpsearch.errors import ParameterError
from dpsearch.priors.completion import Rule
from dpsearch.priors.concentration import Concentration
from dpsearch.registry import Described

_HALF_LOG_2PI = 0.5 * LOG_2PI
_MOST_SIZES = 2**20  # in a table of W
_EXCLUDED = 1e12  # nats that stand in log V for each cluster beyond those that the prior allows


class Tables(NamedTuple):
    """A prior as kernels see it."""

    log_v: Vector  # [K] for K = 0 … the most clusters; entry 0 is 0 (no data)
    log_w: Vector  # [n] for n = 0 … N or the largest size in the table; entry 0 is 0
    discount: float  # σ of the formula for larger sizes, W(n) = Γ(n − σ)/Γ(1 − σ)
    log_w_base: float  # log Γ(1 − σ)
    open_cost: float  # log prior factor of a second cluster, of one point
    multiplicity: bool  # p(c) has a further factor Π_i 1/m_i!, m_i = number of clusters of size i
    most_clusters: int  # the largest number of clusters that the prior does not exclude


class Prior(Described):
    """Base of all priors; a subclass is a frozen dataclass of hyperparameters.

    A prior must have `name`, `log_v` and `log_w`.  The other methods have defaults; `concentration`
    is an optional capability.
    """

    # Whether p(c) is V(K, N) Π W(n_k), as for all priors except AntoniakCounts.
    product_form: ClassVar[bool] = True
    # Whether p(c) of n points is the marginal of that of n + 1 points.
    consistent: ClassVar[bool] = False

    @abstractmethod
    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        """Return log V(K, n_points) for K = 0 … most_clusters (default: n_points), with 0 at 0.

        It is −∞ for a number of clusters that the prior excludes.
        """

    @abstractmethod
    def log_w(self, sizes: Ints) -> Vector:
        """Return log W(n) for each size n, with 0 at n = 0."""

    def size_discount(self) -> float | None:
        """Return σ if W(n) = Γ(n − σ)/Γ(1 − σ), as in consistent priors; None for another W."""
        return None

    def concentration(self) -> Concentration | None:
        """Return the distribution of the concentration α given a partition; None without an α."""
        return None

    def sticks(self, n: int) -> tuple[Vector, Vector] | None:
        """Return (a, b) of n sticks v_k ~ Beta(a_k, b_k) in size-biased order; None without sticks.

        The weight of component k is v_k Π_{j<k} (1 − v_j).
        """
        return None

    def completion_rule(self) -> Rule | None:
        """Return the rule by which search completes a P(m) of counts; None for a product form."""
        return None

    def for_prediction(self) -> Prior:
        """Return the prior whose tables weight the clusters of a new point."""
        return self

    def tables(self, n_points: int, most_clusters: int | None = None) -> Tables:
        """Return the tables for partitions of n_points points into up to `most_clusters` clusters.

        By default there may be one cluster for each point.
        """
        discount = self.size_discount()
        most_sizes = n_points if discount is None else min(n_points, _MOST_SIZES)
        log_v, log_w = self.log_v(n_points, most_clusters), self.log_w(np.arange(most_sizes + 1))
        wanted = 1 + (n_points if most_clusters is None else most_clusters)
        if len(log_v) != wanted or len(log_w) != most_sizes + 1:
            raise ParameterError(
                f"{self!r} must return {wanted} values of log V and {most_sizes + 1} of log W, got"
                f" {len(log_v)} and {len(log_w)}"
            )
        most_possible = len(log_v) - 1
        if not np.isfinite(log_v[-1]):
            most_possible = int(np.flatnonzero(np.isfinite(log_v))[-1])
        log_v = _with_finite_penalties(log_v)
        if not np.isfinite(log_w).all():
            size = int(np.flatnonzero(~np.isfinite(log_w))[0])
            raise ParameterError(
                f"{self!r} is out of the range of double precision: log W is {log_w[size]} at size"
                f" {size}, and must be finite"
            )
        if not np.isfinite(log_v).all():
            raise ParameterError(
                f"{self!r} is out of the range of double precision: log V must be finite for some"
                " number of clusters, and −∞ for those that are excluded"
            )
        ratio = log_v[2] - log_v[1] if len(log_v) > 2 else 0.0
        discount = discount or 0.0
        return Tables(
            log_v, log_w, discount, math.lgamma(1.0 - discount), float(ratio + log_w[1]),
            not self.product_form, most_possible,
        )  # fmt: skip

    def log_probability(self, sizes: Sequence[int] | Ints) -> float:
        """Return log p(c) of a partition with these cluster sizes."""
        sizes = check_sizes(sizes)
        n_points, n_clusters = int(sizes.sum()), len(sizes)
        if self.log_v(n_points, n_clusters)[n_clusters] == -math.inf:
            return -math.inf
        return log_prior(self.tables(n_points, n_clusters), sizes)

    def best_completion(self, sizes: Sequence[int] | Ints, remaining: int) -> float:
        """Return the largest log p(c) over all ways to place `remaining` further points.

        >>> from dpsearch.priors import DirichletProcess
        >>> prior = DirichletProcess(1.0)
        >>> abs(prior.best_completion([3, 1], 2) - prior.log_probability([5, 1])) < 1e-9
        True
        """
        sizes = check_sizes(sizes, empty=True)
        if remaining < 0:
            raise ParameterError.must("remaining", "be 0 or more", remaining)
        tables = self.tables(int(sizes.sum()) + remaining)
        placed = float(self.log_w(sizes).sum())
        if not has_convex_sizes(tables):
            return placed + _best_of_all_completions(tables, sizes, remaining)
        largest = int(sizes.max(initial=0))
        return placed + float(log_completion(tables, len(sizes), largest, remaining))


def _with_finite_penalties(log_v: Vector) -> Vector:
    """Replace −∞ by values so low that solvers move away from excluded numbers of clusters.

    A solver may start where V is 0, and differences of infinities are NaN.
    """
    if np.isfinite(log_v).all():
        return log_v
    possible = np.flatnonzero(np.isfinite(log_v))
    excluded = np.flatnonzero(np.isneginf(log_v))
    if len(excluded) == 0 or len(possible) < 2:  # entry 0 is always 0
        return log_v
    after = np.searchsorted(possible, excluded)
    above = possible[np.minimum(after, len(possible) - 1)]
    below = possible[np.maximum(after - 1, 1)]
    nearest = np.where(np.abs(above - excluded) < np.abs(excluded - below), above, below)
    out = log_v.copy()
    out[excluded] = log_v[nearest] - _EXCLUDED * np.abs(excluded - nearest)
    return out


def has_convex_sizes(tables: Tables) -> bool:
    """Whether log W is convex, so that W(n + 1)/W(n) never falls as n grows."""
    return bool((np.diff(tables.log_w[1:], 2) >= -1e-9).all())


def _best_of_all_completions(tables: Tables, sizes: Ints, remaining: int) -> float:
    """Return the largest log [V(K', N) · added W], for any W, by dynamic programming.

    gains[r] is the most that r points add to the clusters considered so far.
    """
    log_w = tables.log_w

    def with_cluster(gains: Vector, own: Vector) -> Vector:
        """Return the gains with one cluster more, to which j points add own[j]."""
        return np.array([(gains[: r + 1] + own[r::-1]).max() for r in range(remaining + 1)])

    gains = np.where(np.arange(remaining + 1) == 0, 0.0, -np.inf)
    for size in sizes:
        gains = with_cluster(gains, log_w[size : size + remaining + 1] - log_w[size])
    new = np.append(-np.inf, log_w[1 : remaining + 1])
    best = -math.inf
    for opened in range(remaining + 1):
        if len(sizes) + opened > 0:
            best = max(best, float(tables.log_v[len(sizes) + opened] + gains[remaining]))
        gains = with_cluster(gains, new)
    return best


def check_sizes(sizes: Sequence[int] | Ints, *, empty: bool = False) -> Ints:
    """Return cluster sizes as an array, or raise `ParameterError`; `empty` allows none."""
    out = np.asarray(sizes, dtype=np.int64).reshape(-1)
    if (out < 1).any() or (len(out) == 0 and not empty):
        raise ParameterError.must("sizes", "be one or more integers ≥ 1", list(sizes))
    return out


@inner
def size_weight(tables, n):  # type: ignore[no-untyped-def]
    """Return log W(n); beyond the table by Stirling's series, which has full precision there."""
    if n < tables.log_w.shape[0]:
        return tables.log_w[n]
    x = n - tables.discount
    series = (x - 0.5) * math.log(x) - x + _HALF_LOG_2PI + 1.0 / (12.0 * x)
    return series - tables.log_w_base


@inner
def size_step(tables, n):  # type: ignore[no-untyped-def]
    """Return log W(n + 1) − log W(n)."""
    if n + 1 < tables.log_w.shape[0]:
        return tables.log_w[n + 1] - tables.log_w[n]
    return math.log(n - tables.discount)


def size_weights(tables: Tables, sizes: Ints) -> Vector:
    """Return log W(n) for each size n."""
    beyond = np.flatnonzero(sizes >= len(tables.log_w))
    if not len(beyond):
        return tables.log_w[sizes]
    out: Vector = tables.log_w[np.minimum(sizes, len(tables.log_w) - 1)]
    for at in beyond:
        out[at] = size_weight.py_func(tables, sizes[at])  # type: ignore[attr-defined]
    return out


def size_steps(tables: Tables, sizes: Ints) -> Vector:
    """Return log W(n + 1) − log W(n) for each size n."""
    upto = np.minimum(sizes, len(tables.log_w) - 2)
    out: Vector = tables.log_w[upto + 1] - tables.log_w[upto]
    beyond = upto < sizes
    out[beyond] = np.log(sizes[beyond] - tables.discount)
    return out


def log_prior(tables: Tables, sizes: Ints) -> float:
    """Return log p(c) of a partition by its cluster sizes."""
    out = float(tables.log_v[len(sizes)] + size_weights(tables, sizes).sum())
    if tables.multiplicity:
        _, counts = np.unique(sizes, return_counts=True)
        out -= float(gammaln(counts + 1.0).sum())
    return out


@inner
def log_completion(tables, n_clusters, largest, remaining):  # type: ignore[no-untyped-def]
    """Return the largest log [V(K', N) · added W] over completions of a product-form prior.

    log W must be convex (`has_convex_sizes`).  The best completion with t new clusters then makes
    them single points and adds all others to the largest cluster, or to one of the new clusters if
    nothing is placed yet.  Every t is tried.
    """
    if remaining == 0:
        return tables.log_v[n_clusters]
    best = -np.inf
    for opened in range(remaining + 1):
        if n_clusters + opened == 0:
            continue
        value = tables.log_v[n_clusters + opened]
        if n_clusters > 0:
            grown = size_weight(tables, largest + remaining - opened)
            value += opened * tables.log_w[1] + grown - size_weight(tables, largest)
        else:
            value += (opened - 1) * tables.log_w[1] + size_weight(tables, remaining - opened + 1)
        best = max(best, value)
    return best
