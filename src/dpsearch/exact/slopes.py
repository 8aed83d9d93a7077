"""Linear upper bounds for priors whose log V(K) is not linear in the number K of clusters.

With α integrated out, or under Pitman–Yor, log V is convex in K, so no tangent bounds it.  Over a
range of K, however, a line of any slope does if it is high enough:

    log V(K) ≤ λK + max over low ≤ k ≤ high of (log V(k) − λk)      for low ≤ K ≤ high,

which is tight at both ends for the chord's slope.  The ranges that cover 1 … N are bounded one by
one; they are narrow near the number of clusters of the best partition known, and wide far from it.
Each costs a few passes of pricing, and one that is too wide is halved.
"""

from __future__ import annotations

import numpy as np

from dpsearch._types import Vector

_NARROWEST = 4  # width of the ranges next to the best number known
_GROWTH = 8


def is_linear(log_v: Vector) -> bool:
    """Whether log V(K) is linear for K ≥ 1, up to rounding."""
    values = log_v[1:]
    if len(values) < 3:
        return True
    line = np.linspace(values[0], values[-1], len(values))
    return bool(np.abs(values - line).max() <= 1e-12 * max(1.0, float(np.abs(values).max())))


def is_convex(log_w: Vector) -> bool:
    """Whether log W is convex in the size of a cluster, from 1 on."""
    return bool((np.diff(log_w[1:], 2) > -1e-9).all())


def slope(log_v: Vector, low: int, high: int) -> float:
    """Return the slope of the chord; for a single K, of the chord over its neighbours."""
    if low == high:
        low, high = max(low - 1, 1), min(high + 1, len(log_v) - 1)
    return 0.0 if low == high else float(log_v[high] - log_v[low]) / (high - low)


def intercept(log_v: Vector, lam: float, low: int, high: int) -> float:
    """Return the least v₀ with log V(K) ≤ v₀ + λK over the range."""
    return float((log_v[low : high + 1] - lam * np.arange(low, high + 1)).max())


def ranges(log_v: Vector, n_clusters: int) -> list[tuple[int, int]]:
    """Cover 1 … N by ranges that widen away from `n_clusters`."""
    largest = len(log_v) - 1
    if is_linear(log_v):
        return [(1, largest)]
    out = []
    low, width = n_clusters, _NARROWEST
    while low <= largest:
        out.append((low, min(low + width, largest)))
        low, width = low + width + 1, _GROWTH * width
    high, width = n_clusters, _NARROWEST
    while high >= 1 and n_clusters > 1:
        out.append((max(high - width, 1), high))
        high, width = high - width - 1, _GROWTH * width
    return out
