"""Cholesky factors that follow rank-one changes of their matrix, for kernels.

The lower triangle of a D × D matrix is stored column after column, D(D + 1)/2 numbers, so that
every inner loop runs over neighbours.  Vectors are overwritten.
"""

from __future__ import annotations

import math

from dpsearch._jit import kernel


@kernel
def add_outer(matrix, v, weight):  # type: ignore[no-untyped-def]
    """Add weight · vvᵀ to a positive semidefinite matrix, whose diagonal stays ≥ 0."""
    n_features = v.shape[0]
    at = 0
    for j in range(n_features):
        for i in range(j, n_features):
            matrix[at + i - j] += weight * v[i] * v[j]
        matrix[at] = max(matrix[at], 0.0)
        at += n_features - j


@kernel
def factorise_above_identity(factor, n_features):  # type: ignore[no-untyped-def]
    """Replace a positive semidefinite matrix S by the factor of I + S.

    What is left of I + S after eliminating columns is at least I, so pivots below 1 come from
    rounding and are set to 1: the factor always exists.
    """
    at = 0
    for j in range(n_features):
        pivot = math.sqrt(max(1.0 + factor[at], 1.0))
        factor[at] = pivot
        for i in range(1, n_features - j):
            factor[at + i] /= pivot
        below = at + n_features - j
        for k in range(1, n_features - j):
            for i in range(k, n_features - j):
                factor[below + i - k] -= factor[at + i] * factor[at + k]
            below += n_features - j - k
        at += n_features - j


@kernel
def squared_distance(factor, reciprocal, v):  # type: ignore[no-untyped-def]
    """Return vᵀ(LLᵀ)⁻¹v by forward substitution, given the reciprocals of L's diagonal."""
    n_features = v.shape[0]
    out = 0.0
    at = 0
    for j in range(n_features):
        y = v[j] * reciprocal[j]
        out += y * y
        for i in range(j + 1, n_features):
            v[i] -= factor[at + i - j] * y
        at += n_features - j
    return out


@kernel
def update(factor, v):  # type: ignore[no-untyped-def]
    """Turn the factor of A into that of A + vvᵀ by plane rotations."""
    n_features = v.shape[0]
    at = 0
    for j in range(n_features):
        norm = math.hypot(factor[at], v[j])
        cosine, sine = factor[at] / norm, v[j] / norm
        factor[at] = norm
        for i in range(j + 1, n_features):
            old = factor[at + i - j]
            factor[at + i - j] = cosine * old + sine * v[i]
            v[i] = cosine * v[i] - sine * old
        at += n_features - j


@kernel
def downdate(factor, v):  # type: ignore[no-untyped-def]
    """Turn the factor of A into that of A − vvᵀ by hyperbolic rotations.

    Golub & Van Loan 2013, section 6.5.4.  The caller makes sure that vᵀA⁻¹v is well below 1:
    rounding errors grow with 1/(1 − vᵀA⁻¹v), and at 1 the result would not be positive definite.
    """
    n_features = v.shape[0]
    at = 0
    for j in range(n_features):
        norm = math.sqrt((factor[at] - v[j]) * (factor[at] + v[j]))
        cosine, sine = norm / factor[at], v[j] / factor[at]
        factor[at] = norm
        for i in range(j + 1, n_features):
            factor[at + i - j] = (factor[at + i - j] - sine * v[i]) / cosine
            v[i] = cosine * v[i] - sine * factor[at + i - j]
        at += n_features - j
