"""The functions of a linear regression with unknown coefficients and noise: `linear_regression.py`.

A data row is v = (u, y/√2): the encoded covariates with the intercept last, and the target.  The
formulas need only the lower Cholesky factor of M = I + Σvvᵀ, whose last pivot is √β.  With W its
inverse,

    |W_u u|² = uᵀΛ⁻¹u,   (W_y v)² = (y − uᵀm)²/2β,   |M| = |Λ| β

where W_u are the rows of the covariates and W_y = (−m/√2, 1)/√β is the last one.  Adding a point is
a rank-one update of W.  The sums Σvvᵀ are kept as well, to recompute W after a merge, or if
removing a point would lose digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsearch import _jit
from dpsearch._special import LOG_2PI
from dpsearch.families import layout
from dpsearch.families._cholesky import (
    add_outer,
    change,
    invert_above_identity,
    log_determinant,
    set_identity,
    squared_distance,
)
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, view, view_at
from dpsearch.items import copy_row, fill

_SAFE = 1e-3  # as for a full covariance: below this share of |M|, W is recomputed


class _Params(NamedTuple):
    size: layout.Number  # of a data row
    shape: layout.Number  # a₀
    log_gammas: layout.Numbers  # log Γ(a₀ + n/2), by n


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive, without q
    log_det: layout.Number  # log|M|
    log_rest: layout.Number  # log β
    inverse: layout.Triangle  # W
    products: layout.Triangle  # Σvvᵀ
    zeros: layout.Numbers  # this and the next are zero between calls
    scratch: layout.Numbers


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def _log_gamma(params, n):  # type: ignore[no-untyped-def]
    """Return log Γ(a₀ + n/2)."""
    if n < length(params, PARAMS.log_gammas):
        return entry(params, PARAMS.log_gammas, n)
    return math.lgamma(params[PARAMS.shape] + 0.5 * n)


@_jit.inner
def _constant(params, row, n):  # type: ignore[no-untyped-def]
    """Return the predictive's constant for n points, with the row's β."""
    step = _log_gamma(params, n + 1.0) - _log_gamma(params, n)
    return step - 0.5 * (LOG_2PI + row[ROW.log_rest])


@_jit.inner
def _finish(params, row):  # type: ignore[no-untyped-def]
    """Compute log β and the constant from n and W, and clear the working space."""
    size = int(params[PARAMS.size])
    inverse = view(row, ROW.inverse, size)
    row[ROW.log_rest] = -2.0 * math.log(inverse[inverse.shape[0] - 1])
    row[ROW.constant] = _constant(params, row, row[ROW.n])
    fill(view(row, ROW.zeros, size), 0.0)
    fill(view(row, ROW.scratch, size), 0.0)


@_jit.inner
def _build(params, row):  # type: ignore[no-untyped-def]
    """Compute W and log|M| from the sums."""
    size = int(params[PARAMS.size])
    inverse = view(row, ROW.inverse, size)
    copy_row(view(row, ROW.products, size), inverse)
    invert_above_identity(inverse, size)
    row[ROW.log_det] = log_determinant(inverse, size)
    _finish(params, row)


@_jit.inner
def _clear(params, row):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.size])
    fill(row, 0.0)
    set_identity(view(row, ROW.inverse, size), size)
    _finish(params, row)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.size])
    row[ROW.n] += weight
    if row[ROW.n] <= 0.0:
        _clear(params, row)
        return
    inverse, scaled = view(row, ROW.inverse, size), view(row, ROW.zeros, size)
    share = weight * squared_distance(inverse, values, scaled)
    add_outer(view(row, ROW.products, size), values, weight)
    if share <= _SAFE - 1.0:
        _build(params, row)
        return
    for j in range(size):
        scaled[j] = math.sqrt(abs(weight)) * values[j]
    sign = 1.0 if weight > 0.0 else -1.0
    row[ROW.log_det] += math.log(change(inverse, scaled, sign, view(row, ROW.scratch, size)))
    _finish(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.size])
    row[ROW.n] += sign * other[ROW.n]
    if row[ROW.n] <= 0.0:
        _clear(params, row)
        return
    products, more = view(row, ROW.products, size), view(other, ROW.products, size)
    for j in range(products.shape[0]):
        products[j] += sign * more[j]
    _build(params, row)


@_jit.inner
def _score(params, pool, s, values):  # type: ignore[no-untyped-def]
    """Return the score of a point under the row at s."""
    size = int(params[PARAMS.size])
    inverse, zeros = view_at(pool, s, ROW.inverse, size), view_at(pool, s, ROW.zeros, size)
    q = 1.0 + squared_distance(inverse, _jit.view(values, 0, size - 1), zeros)
    error, last = 0.0, inverse.shape[0] - size
    for j in range(size):
        error += inverse[last + j] * values[j]
    exponent = params[PARAMS.shape] + 0.5 * (pool[s + ROW.n] + 1.0)
    return pool[s + ROW.constant] - 0.5 * math.log(q) - exponent * math.log1p(error * error / q)


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        out[k] = _score(params, pool, starts[k], values)


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """With helpers the point may lie on the regression line, and q be 1; β never decreases."""
    if helpers == 0:
        return _score(params, row, 0, values)
    return _constant(params, row, row[ROW.n] + helpers)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n = row[ROW.n]
    out = _log_gamma(params, n) - _log_gamma(params, 0.0) - 0.5 * (n * LOG_2PI + row[ROW.log_det])
    return out - (params[PARAMS.shape] + 0.5 * (n - 1.0)) * row[ROW.log_rest]


FUNCTIONS = Functions(_update, _merge, _score_rows, _log_marginal, bound=_bound)
