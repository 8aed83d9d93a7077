"""The concentration α of a prior, which is an optional capability, and a Gamma prior on α.

Given a partition of N points into K clusters under a Dirichlet process, and α ~ Gamma(shape, rate)
(Escobar & West 1995),

    p(α | K, N) ∝ α^(K + shape − 1) e^(−rate·α) Γ(α)/Γ(α + N),

whose integral is V(K, N).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from dpsearch._types import Rng, Vector
from dpsearch._validate import positive
from dpsearch.errors import ParameterError


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


class Concentration(ABC):
    """The distribution of the concentration α of a prior, given a partition."""

    # The prior on α, if V(K, N) is the integral of α^K/α^(N) over it; samplers can then draw α and
    # the partition in turn.
    gamma: Gamma | None = None

    @abstractmethod
    def mean(self, n_points: int, n_clusters: int) -> float:
        """Return E[α | K, N]."""

    @abstractmethod
    def draw(self, n_points: int, n_clusters: Any, rng: Rng) -> Vector:
        """Return independent draws from p(α | K, N), one for each given number of clusters."""


@dataclass(frozen=True)
class FixedConcentration(Concentration):
    """A fixed concentration."""

    alpha: float

    def mean(self, n_points: int, n_clusters: int) -> float:
        return float(self.alpha)

    def draw(self, n_points: int, n_clusters: Any, rng: Rng) -> Vector:
        return np.full(len(n_clusters), float(self.alpha))


@dataclass(frozen=True)
class IntegratedConcentration(Concentration):
    """The concentration of a Dirichlet process, with a Gamma prior."""

    gamma: Gamma

    def mean(self, n_points: int, n_clusters: int) -> float:
        """Return E[α | K, N] = V(K + 1, N) / V(K, N)."""
        return _mean(self.gamma, n_points, n_clusters)

    def draw(self, n_points: int, n_clusters: Any, rng: Rng) -> Vector:
        u = rng.random(len(n_clusters))
        out = np.empty(len(n_clusters))
        for k in np.unique(n_clusters):
            chosen = n_clusters == k
            log_alpha, below = _distribution(self.gamma, n_points, int(k))
            out[chosen] = np.exp(np.interp(u[chosen], below, log_alpha))
        return out


@lru_cache(maxsize=1024)  # every chain of a sampler needs it
def _mean(gamma: Gamma, n_points: int, n_clusters: int) -> float:
    low, high = log_integral(gamma, n_points, np.array([n_clusters, n_clusters + 1.0]))
    return math.exp(high - low)


@lru_cache(maxsize=1024)
def _distribution(gamma: Gamma, n_points: int, n_clusters: int) -> tuple[Vector, Vector]:
    """Return a fine grid of log α, and the distribution function at its values."""
    grid = np.linspace(-46.0, 30.0, 2001)
    for _ in range(2):  # first a coarse grid, then one where the mass is
        density = _log_density(gamma, n_points, n_clusters, grid)
        inside = np.flatnonzero(density > density.max() - 40.0)
        low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(grid) - 1)
        grid = np.linspace(grid[low], grid[high], 2001)
    density = _log_density(gamma, n_points, n_clusters, grid)
    weight = np.exp(density - density.max())
    below = np.concatenate([[0.0], np.cumsum(0.5 * (weight[1:] + weight[:-1]))])
    return grid, below / below[-1]


def _log_density(gamma: Gamma, n_points: int, n_clusters: int | Vector, u: Vector) -> Vector:
    """Return log p(u, K | N) of u = log α, up to a constant.

    Γ(α) is computed as Γ(1 + α)/α, which is exact even if e^u underflows.
    """
    alpha = np.exp(u)
    power = n_clusters + float(gamma.shape) - 1.0
    return np.asarray(power * u - log_gamma_ratio(alpha, n_points) - float(gamma.rate) * alpha)


def log_integral(gamma: Gamma, n_points: int, clusters: Vector) -> Vector:
    """Return log ∫ α^K Γ(α)/Γ(α + N) Gamma(α; shape, rate) dα for some numbers K of clusters."""
    few = clusters <= 2.0  # these have long tails, and so need more steps
    out = np.empty(len(clusters))
    for chosen in (few, ~few):
        if chosen.any():
            out[chosen] = _trapezoid(gamma, n_points, clusters[chosen])
    return out


def log_gamma_ratio(alpha: Any, n: int) -> Any:
    """Return log Γ(α + n) − log Γ(α + 1) for n ≥ 1, without cancellation for large α.

    For α above 10^4 it is the difference of Stirling's series, rearranged so that nothing cancels.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    near = np.minimum(alpha, 1e4)
    direct = gammaln(near + n) - gammaln(near + 1.0)
    a, b = alpha + 1.0, alpha + n
    far = (a - 0.5) * np.log1p((n - 1.0) / a) + (n - 1.0) * (np.log(b) - 1.0)
    far += (1.0 / b - 1.0 / a) / 12.0
    return np.where(alpha < 1e4, direct, far)


def _trapezoid(gamma: Gamma, n_points: int, clusters: Vector) -> Vector:
    """Return log integrals by the trapezoidal rule in u = log α around the mode of each integrand.

    The integrand is analytic and falls off at least exponentially on both sides, so the rule
    converges faster than any power of its step.
    """
    shape, rate = float(gamma.shape), float(gamma.rate)
    constant = shape * math.log(rate) - math.lgamma(shape)
    power = (clusters + shape - 1.0)[:, None]

    def log_integrand(u: Vector) -> Vector:
        return _log_density(gamma, n_points, clusters[:, None], u)

    def slope(u: Vector) -> Vector:
        alpha = np.exp(u)
        inner = digamma(1.0 + alpha) - digamma(alpha + n_points) - rate
        return np.asarray(power + alpha * inner)

    # Below u = −40 the integrand is e^(power·u)/Γ(N) in double precision, with a known integral.
    edge = -40.0
    tail = power * edge - math.lgamma(n_points) - np.log(power)
    # Above, it is log-concave in u, so its slope has one zero: bisect for the mode, then for the
    # points on both sides where it has fallen by e^-60.
    low = np.full(power.shape, edge)
    high = np.full(power.shape, math.log(n_points + 1.0) + math.log1p((shape + 1.0) / rate) + 10.0)
    mode, _ = _bisect(lambda u: slope(u) > 0.0, low, high, 50)
    peak = log_integrand(mode)
    left, _ = _bisect(lambda u: log_integrand(u) < peak - 60.0, low, mode, 12)
    _, right = _bisect(lambda u: log_integrand(u) >= peak - 60.0, mode, high, 12)
    # A long tail on the left with a fall over a unit length on the right needs many steps.
    steps = 400 if power.min() > 1.0 else 4000
    u = left + (right - left) * np.linspace(0.0, 1.0, steps + 1)
    weights = np.ones(steps + 1)
    weights[[0, -1]] = 0.5  # since the integrand need not vanish at the ends
    total = (np.exp(log_integrand(u) - peak) * weights).sum(axis=1, keepdims=True)
    inside = peak + np.log(total * (right - left) / steps)
    return np.asarray(constant + np.logaddexp(inside, tail))[:, 0]


def _bisect(  # type: ignore[no-untyped-def]
    below, low: Vector, high: Vector, steps: int
) -> tuple[Vector, Vector]:
    """Return an interval in which `below` changes from true to false."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        is_below = below(middle)
        low = np.where(is_below, middle, low)
        high = np.where(is_below, high, middle)
    return low, high
