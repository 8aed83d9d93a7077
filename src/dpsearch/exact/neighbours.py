"""Prices from nearest neighbours: a bound for Gaussian data of any dimension, in N² log N.

With unit noise, log w(C) ≤ g(n) − ½ Σ_{i∈C} |x_i − x̄|² (see `_gaussian_boxes` for g; the prior's
pull on the mean only lowers it), and the scatter is a sum over pairs:

    ½ Σ_i |x_i − x̄|² = 1/(4n) Σ_i Σ_{j∈C} |x_i − x_j|² ≥ 1/(4n) Σ_i s_i(n),

s_i(n) the sum of the n − 1 smallest squared distances from point i.  So the prices

    y_i = max over n of [ g(n) − s_i(n)/4 ] / n

pay for every cluster.  So does any vector that is nowhere below these, such as the start, the same
with s = 0, of which as many prices are lowered as time allows.  (The smaller of two prices point by
point, with other prices that pay, would not: each kind shares out a cluster's weight in its way.)
"""

from __future__ import annotations

import time

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Matrix, Vector

_WORK = 20_000_000  # distances between two looks at the clock


def neighbour_prices(x: Matrix, g: Vector, deadline: float) -> Vector:
    """Return prices that pay for every cluster, as low as time allows."""
    n = len(x)
    out: Vector = np.full(n, float((g[1 : n + 1] / np.arange(1, n + 1)).max()))
    block = max(1, _WORK // (n * x.shape[1]))
    for begin in range(0, n, block):
        _lower(x, g, out, begin, min(begin + block, n))
        if time.perf_counter() > deadline:
            break
    return out


@kernel
def _lower(x, g, y, begin, end):  # type: ignore[no-untyped-def]
    n, n_columns = x.shape
    squares = np.empty(n)
    for i in range(begin, end):
        for j in range(n):
            square = 0.0
            for d in range(n_columns):
                off = x[i, d] - x[j, d]
                square += off * off
            squares[j] = square
        squares.sort()
        total = 0.0
        best = -np.inf
        for k in range(n):  # the point itself comes first, at distance 0
            total += squares[k]
            best = max(best, (g[k + 1] - 0.25 * total) / (k + 1))
        y[i] = best
