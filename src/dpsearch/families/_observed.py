"""Gaussian rows with gaps: the density of the observed entries, and imputation of the others.

For a row with observed entries o and missing entries m, under a location μ and scale matrix Λ:

    x_o ~ t(μ_o, Λ_oo, ν)                      the margin of a Student t (or a normal) distribution
    E[x_m | x_o] = μ_m + Λ_mo Λ_oo⁻¹ (x_o − μ_o)

A draw of x_m given x_o is x*_m + Λ_mo Λ_oo⁻¹ (x_o − x*_o) with x* a draw of the complete row
(Matheron's rule).
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Labels, Matrix, Vector


@inner
def _observed_factor(x, scale, seen, factor):  # type: ignore[no-untyped-def]
    """Write the Cholesky factor of Λ_oo and the columns o; return how many these are."""
    count = 0
    for d in range(x.shape[0]):
        if not math.isnan(x[d]):
            seen[count] = d
            count += 1
    for i in range(count):
        for j in range(i + 1):
            total = scale[seen[i], seen[j]]
            for h in range(j):
                total -= factor[i, h] * factor[j, h]
            factor[i, j] = math.sqrt(total) if i == j else total / factor[j, j]
    return count


@inner
def _solve_lower(factor, count, v):  # type: ignore[no-untyped-def]
    """Replace v by L⁻¹v; return its squared length."""
    square = 0.0
    for i in range(count):
        total = v[i]
        for h in range(i):
            total -= factor[i, h] * v[h]
        v[i] = total / factor[i, i]
        square += v[i] * v[i]
    return square


@inner
def _regress(x, scale, seen, factor, count, v, out):  # type: ignore[no-untyped-def]
    """Write Λ_mo Λ_oo⁻¹ r to the missing entries of `out`, given v = L⁻¹r."""
    for i in range(count - 1, -1, -1):
        total = v[i]
        for h in range(i + 1, count):
            total -= factor[h, i] * v[h]
        v[i] = total / factor[i, i]
    for d in range(x.shape[0]):
        if math.isnan(x[d]):
            out[d] = 0.0
            for i in range(count):
                out[d] += scale[d, seen[i]] * v[i]


@kernel
def log_densities(X: Matrix, means: Matrix, scales: Matrix, degrees: Vector) -> Matrix:
    """Return log t(x_o; μ_o, Λ_oo, ν) for every row and cluster; 0 if nothing was observed."""
    n_clusters, width = means.shape
    out = np.empty((X.shape[0], n_clusters))
    seen, factor, v = np.empty(width, np.int64), np.empty((width, width)), np.empty(width)
    for i in range(X.shape[0]):
        for k in range(n_clusters):
            count = _observed_factor(X[i], scales[k], seen, factor)
            logs = 0.0
            for a in range(count):
                v[a] = X[i, seen[a]] - means[k, seen[a]]
                logs += math.log(factor[a, a])
            square = _solve_lower(factor, count, v)
            nu = degrees[k]
            out[i, k] = (
                math.lgamma(0.5 * (nu + count))
                - math.lgamma(0.5 * nu)
                - 0.5 * count * math.log(nu * math.pi)
                - logs
                - 0.5 * (nu + count) * math.log1p(square / nu)
            )
    return out


@kernel
def expected(X: Matrix, weights: Matrix, means: Matrix, scales: Matrix) -> Matrix:
    """Return X with its gaps filled by Σ_k weight_k E[x_m | x_o, cluster k]."""
    n_clusters, width = means.shape
    out = X.copy()
    seen, factor, v = np.empty(width, np.int64), np.empty((width, width)), np.empty(width)
    shift = np.zeros(width)
    for i in range(X.shape[0]):
        for d in range(width):
            if math.isnan(X[i, d]):
                out[i, d] = 0.0
        for k in range(n_clusters):
            if weights[i, k] <= 0.0:
                continue
            count = _observed_factor(X[i], scales[k], seen, factor)
            if count == width:
                break
            for a in range(count):
                v[a] = X[i, seen[a]] - means[k, seen[a]]
            _solve_lower(factor, count, v)
            _regress(X[i], scales[k], seen, factor, count, v, shift)
            for d in range(width):
                if math.isnan(X[i, d]):
                    out[i, d] += weights[i, k] * (means[k, d] + shift[d])
    return out


def drawn(X: Matrix, labels: Labels, draws: Matrix, scales: Matrix) -> Matrix:
    """Return X with its gaps filled by draws given what was observed and the row's cluster.

    `draws` has a draw of each complete row from its cluster.
    """
    own = np.eye(len(scales))[labels]
    shifts = expected(X - draws, own, np.zeros((len(scales), X.shape[1])), scales)
    return np.where(np.isnan(X), draws + shifts, X)
