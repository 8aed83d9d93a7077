"""Prices by nearest neighbours, as a fallback where branch and bound does not get far.

Suppose that every cluster C of n points has

    log w(C) ≤ g(n) + Σ_{i∈C} ⟨r(n), x_i⟩ − c(n)/2n Σ_{i,j∈C} |x_i − x_j|²,   c ≥ 0.

Then these prices pay for every cluster, where s_i(n) is the sum of the n smallest squared distances
from point i, that to itself included:

    y_i = max over n of [ g(n)/n + ⟨r(n), x_i⟩ − c(n)/2n s_i(n) ].

*Normal points* with unit noise satisfy it with c = ½ and r = 0: the prior's effect on the mean only
lowers log w, and ½ Σ_i |x_i − x̄|² is 1/4n of the sum over pairs.

*Zeros and ones* satisfy it if log H is a sum over columns of convex functions f(n, s) of the number
s of ones: f lies below its chord from 0 to n, and n/(s(n − s)) times the distance between the two
has a least value c(n) over 0 < s < n; the smallest over columns is valid for all of them.  The
columns' s(n − s) add up to half the sum over pairs.
"""

from __future__ import annotations

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Matrix, Vector

_DISTANCES = 1_000_000  # distances computed between two checks of the time


def neighbour_prices(
    x: Matrix, g: Vector, c: Vector, r: Matrix | None = None, *, deadline: float
) -> Vector:
    """Return prices that pay for every cluster, as low as time allows.

    g, c and r have an entry for each size from 1 on.  Any vector that is nowhere below these prices
    pays too, such as the same with s = 0: points that are not reached in time get those prices.
    (The pointwise minimum of these and other prices that pay need not pay, as each kind shares out
    a cluster's weight in its own way.)
    """
    from scipy.spatial.distance import cdist

    n, sizes = len(x), np.arange(1, len(x) + 1)
    out: Vector = np.empty(n)
    blocks = [
        slice(at, at + max(1, _DISTANCES // n)) for at in range(0, n, max(1, _DISTANCES // n))
    ]
    in_time = True
    for block in blocks:
        worth = g / sizes + (0.0 if r is None else x[block] @ r.T)
        if in_time:
            squares = cdist(x[block], x, "sqeuclidean")  # of the point itself: 0
            squares.sort(axis=1)
            worth = worth - 0.5 * c / sizes * np.cumsum(squares, axis=1)
            in_time = clock() <= deadline
        out[block] = worth.max(axis=-1)
    return out
