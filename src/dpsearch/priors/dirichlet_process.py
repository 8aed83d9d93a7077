"""The Dirichlet process, with its concentration α fixed or integrated out.

    p(c | α) = α^K Π Γ(n_k) / α^(N)        (Antoniak 1974; the Chinese restaurant process)

so V(K, N) = α^K / α^(N), with α^(N) = Γ(α + N)/Γ(α), and W(n) = Γ(n).  With a Gamma prior on α
(Escobar & West 1995) W is the same and V(K, N) = ∫ α^K / α^(N) p(α) dα, one-dimensional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaln

from dpsearch._types import Ints, Vector
from dpsearch._validate import positive
from dpsearch.errors import ParameterError
from dpsearch.priors.base import Prior, check_sizes, log_gamma_ratio


@dataclass(frozen=True)
class Gamma:
    """A Gamma distribution with mean shape / rate, as a prior on α."""

    shape: float = 1.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        for name in ("shape", "rate"):
            if not 1e-8 <= positive(getattr(self, name), name) <= 1e8:
                raise ParameterError(f"{name} must lie between 1e-8 and 1e8")

    def to_dict(self) -> dict[str, float]:
        return {"shape": float(self.shape), "rate": float(self.rate)}


@dataclass(frozen=True)
class DirichletProcess(Prior):
    """Dirichlet process with concentration `alpha`.

    Parameters
    ----------
    alpha
        A number above 0, or a `Gamma` prior under which α is integrated out.

    Examples
    --------
    >>> from dpsearch.priors import DirichletProcess, Gamma
    >>> round(DirichletProcess(1.0).log_probability([50, 50]), 1)
    -74.6
    >>> abs(DirichletProcess(Gamma(1.0, 1.0)).log_probability([1])) < 1e-12
    True
    """

    alpha: float | Gamma = 1.0

    name: ClassVar[str] = "dirichlet_process"

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, Gamma):
            positive(self.alpha, "alpha")

    def log_w(self, sizes: Ints) -> Vector:
        return np.asarray(gammaln(np.maximum(sizes, 1)), dtype=np.float64)

    def size_discount(self) -> float:
        return 0.0

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        most_clusters = n_points if most_clusters is None else most_clusters
        if isinstance(self.alpha, Gamma):
            return _integrated_log_v(self.alpha, n_points, most_clusters).copy()
        clusters = np.arange(most_clusters + 1, dtype=np.float64)
        # α^(N) = α Γ(α + N)/Γ(α + 1)
        rising = float(log_gamma_ratio(self.alpha, n_points))
        out = (clusters - 1.0) * math.log(self.alpha) - rising
        out[0] = 0.0
        return out

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Any) -> Self:
        alpha = fields.get("alpha")
        if isinstance(alpha, Mapping):
            return cls(Gamma(**alpha))
        return super().from_fields(fields, read)

    @property
    def alpha_prior(self) -> Gamma | None:
        return self.alpha if isinstance(self.alpha, Gamma) else None

    def mean_alpha(self, n_points: int, n_clusters: int) -> float:
        """E[α | K, N] = V(K + 1, N) / V(K, N) when α is integrated out."""
        if not isinstance(self.alpha, Gamma):
            return float(self.alpha)
        return _mean_alpha(self.alpha, n_points, n_clusters)

    def best_completion(self, sizes: Sequence[int] | Ints, remaining: int) -> float:
        """Closed form for fixed α: all to the largest cluster, or all alone, whichever is more.

        log Γ is convex, so a mixture of the two is never better than both.
        """
        if isinstance(self.alpha, Gamma) or len(sizes) == 0 or remaining < 0:
            return super().best_completion(sizes, remaining)
        sizes = check_sizes(sizes)
        n_points = int(sizes.sum()) + remaining
        largest = float(sizes.max())
        log_alpha = math.log(self.alpha)
        rising = float(log_gamma_ratio(self.alpha, n_points))
        placed = (len(sizes) - 1) * log_alpha + float(gammaln(sizes).sum()) - rising
        grown = math.lgamma(largest + remaining) - math.lgamma(largest)
        return placed + max(grown, remaining * log_alpha)


@lru_cache(maxsize=1024)  # every chain of a sampler asks for it
def _mean_alpha(gamma: Gamma, n_points: int, n_clusters: int) -> float:
    both = np.array([n_clusters, n_clusters + 1.0])
    low, high = _log_integral(gamma, n_points, both)
    return math.exp(high - low)


@lru_cache(maxsize=8)  # every mixture of a sampler's draws asks for the same
def _integrated_log_v(gamma: Gamma, n_points: int, most_clusters: int) -> Vector:
    """Return log ∫ α^K Γ(α)/Γ(α + N) Gamma(α; shape, rate) dα for K = 0 … most_clusters.

    Quadrature for every K up to 512 and on a geometric grid beyond, a cubic spline between: the
    function is smooth in K.
    """
    if most_clusters <= 512:
        knots = np.arange(1, most_clusters + 1, dtype=np.float64)
        values = _log_integral(gamma, n_points, knots)
    else:
        from scipy.interpolate import CubicSpline  # slow to import, and seldom needed

        grid = np.geomspace(512, most_clusters, 600).round()
        knots = np.unique(np.concatenate([np.arange(1.0, 513.0), grid]))
        values = _log_integral(gamma, n_points, knots)
        values = CubicSpline(knots, values)(np.arange(1.0, most_clusters + 1))
    return np.concatenate([[0.0], values])


def _log_integral(gamma: Gamma, n_points: int, clusters: Vector) -> Vector:
    """Return log V for some numbers of clusters; the few with long tails apart."""
    few = clusters <= 2.0
    out = np.empty(len(clusters))
    for chosen in (few, ~few):
        if chosen.any():
            out[chosen] = _trapezoid(gamma, n_points, clusters[chosen])
    return out


def _trapezoid(gamma: Gamma, n_points: int, clusters: Vector) -> Vector:
    """Trapezoidal rule in u = log α around the mode of each integrand.

    The integrand is analytic and falls off at least exponentially on both sides, so the rule
    converges faster than any power of its step.
    """
    shape, rate = float(gamma.shape), float(gamma.rate)
    constant = shape * math.log(rate) - math.lgamma(shape)
    power = (clusters + shape - 1.0)[:, None]

    # With Γ(α) = Γ(1 + α)/α, which is exact where e^u underflows.
    def log_integrand(u: Vector) -> Vector:
        alpha = np.exp(u)
        return np.asarray(power * u - log_gamma_ratio(alpha, n_points) - rate * alpha)

    def slope(u: Vector) -> Vector:
        alpha = np.exp(u)
        inner = digamma(1.0 + alpha) - digamma(alpha + n_points) - rate
        return np.asarray(power + alpha * inner)

    # Below u = −40 the integrand is e^(power·u)/Γ(N) to the last digit, and its integral known.
    edge = -40.0
    tail = power * edge - math.lgamma(n_points) - np.log(power)
    # Above, it is log-concave in u, so its slope has one zero: bisect for the mode, then for the
    # places on both sides where it has fallen by e^-60.
    low = np.full(power.shape, edge)
    high = np.full(power.shape, math.log(n_points + 1.0) + math.log1p((shape + 1.0) / rate) + 10.0)
    mode = _bisect(lambda u: slope(u) > 0.0, low, high)
    peak = log_integrand(mode)
    left = _bisect(lambda u: log_integrand(u) < peak - 60.0, low, mode)
    right = _bisect(lambda u: log_integrand(u) >= peak - 60.0, mode, high)
    # A long tail on the left and a fall of width about 1 on the right want many steps.
    steps = 400 if power.min() > 1.0 else 4000
    u = left + (right - left) * np.linspace(0.0, 1.0, steps + 1)
    weights = np.ones(steps + 1)
    weights[[0, -1]] = 0.5  # the integral need not begin where the integrand vanishes
    total = (np.exp(log_integrand(u) - peak) * weights).sum(axis=1, keepdims=True)
    inside = peak + np.log(total * (right - left) / steps)
    return np.asarray(constant + np.logaddexp(inside, tail))[:, 0]


def _bisect(below, low: Vector, high: Vector) -> Vector:  # type: ignore[no-untyped-def]
    """Return where `below` turns from true to false, between low and high."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_below = below(middle)
        low = np.where(is_below, middle, low)
        high = np.where(is_below, high, middle)
    return 0.5 * (low + high)
