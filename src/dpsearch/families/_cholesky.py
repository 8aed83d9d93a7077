"""Inverse Cholesky factors and their rank-one updates, for kernels.

For a positive definite A = LLᵀ, W = L⁻¹ gives |Wv|² = vᵀA⁻¹v by plain products.  Lower triangles
are stored row by row in D(D + 1)/2 numbers.  Nothing here allocates.
"""

from __future__ import annotations

import math

from dpsearch._jit import inner


@inner
def set_identity(inverse, n_features):  # type: ignore[no-untyped-def]
    """Make a cleared triangle the identity matrix."""
    at = 0
    for i in range(n_features):
        inverse[at + i] = 1.0
        at += i + 1


@inner
def log_determinant(inverse, n_features):  # type: ignore[no-untyped-def]
    """Return log|A|."""
    out = 0.0
    at = 0
    for i in range(n_features):
        out -= 2.0 * math.log(inverse[at + i])
        at += i + 1
    return out


@inner
def add_outer(matrix, v, weight):  # type: ignore[no-untyped-def]
    """Add weight · vvᵀ to a positive semidefinite matrix, whose diagonal stays ≥ 0."""
    at = 0
    for i in range(v.shape[0]):
        for j in range(i + 1):
            matrix[at + j] += weight * v[i] * v[j]
        at += i + 1
        if matrix[at - 1] < 0.0:
            matrix[at - 1] = 0.0


@inner
def distance_up_to(inverse, point, centre, limit):  # type: ignore[no-untyped-def]
    """Return vᵀA⁻¹v, or a partial sum of it as soon as that exceeds the limit."""
    out = 0.0
    at = 0
    for i in range(point.shape[0]):
        product = 0.0
        for j in range(i + 1):
            product += inverse[at + j] * (point[j] - centre[j])
        out += product * product
        if out > limit:
            return out
        at += i + 1
    return out


@inner
def squared_distance(inverse, point, centre):  # type: ignore[no-untyped-def]
    """Return vᵀA⁻¹v for v = point − centre."""
    return distance_up_to(inverse, point, centre, math.inf)


@inner
def change(inverse, v, sign, scratch):  # type: ignore[no-untyped-def]
    """Update the inverse factor of A to that of A ± vvᵀ; return |A ± vvᵀ|/|A|.

    Rotations that take [L v] to [L′ 0] take [W; 0] to [W′; ·] (Gill, Golub, Murray & Saunders
    1974).  With p = Wv and s_k = 1 ± Σ_{i≤k} p_i² this gives

        W′_k = √(s_{k−1}/s_k) (W_k ∓ p_k/s_{k−1} Σ_{i<k} p_i W_i).

    For A − vvᵀ the caller must ensure that |p|² is well below 1: rounding errors grow with
    1/(1 − |p|²), and at 1 the result would not be positive definite.
    """
    n_features = v.shape[0]
    for j in range(n_features):
        scratch[j] = 0.0
    before = 1.0
    at = 0
    for k in range(n_features):
        p = 0.0
        for j in range(k + 1):
            p += inverse[at + j] * v[j]
        after = before + sign * p * p
        outer = math.sqrt(before / after)
        # In this order no factor overflows when v is huge.
        mixed = sign * outer * (p / before)
        for j in range(k + 1):
            old = inverse[at + j]
            inverse[at + j] = outer * old - mixed * scratch[j]
            scratch[j] += p * old
        before = after
        at += k + 1
    return before


@inner
def invert_above_identity(matrix, n_features):  # type: ignore[no-untyped-def]
    """Replace a positive semidefinite S by the inverse factor of I + S.

    The remainder of I + S after eliminating columns is at least I.  So pivots below 1 are rounding
    errors and are set to 1, and the factor always exists.
    """
    at = 0
    for i in range(n_features):
        above = 0
        for j in range(i + 1):
            value = matrix[at + j] + (1.0 if i == j else 0.0)
            for k in range(j):
                value -= matrix[at + k] * matrix[above + k]
            above += j + 1
            if i == j:
                matrix[at + j] = math.sqrt(max(value, 1.0))
            else:
                matrix[at + j] = value / matrix[above - 1]
        at += i + 1
    at = 0
    for i in range(n_features):
        reciprocal = 1.0 / matrix[at + i]
        for j in range(i):
            product = 0.0
            below = j * (j + 1) // 2 + j  # W_jj, and on down its column
            for k in range(j, i):
                product += matrix[at + k] * matrix[below]
                below += k + 1
            matrix[at + j] = -product * reciprocal
        matrix[at + i] = reciprocal
        at += i + 1
