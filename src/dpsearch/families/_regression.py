"""The functions of a linear regression with unknown coefficients and noise: `linear_regression.py`.

A data row is u, the encoded covariates with the intercept last, and after them y.  Adding a point
changes Λ = I + Σuuᵀ by rank one, and with e = y − uᵀm and q = 1 + uᵀΛ⁻¹u the rest of squares by
β += ½ e²/q.  The sums Σuuᵀ, Σuy and Σy² are kept beside, to build all anew after a merge or where
taking a point out would cost digits.
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
    squared_distance,
)
from dpsearch.families.functions import Functions
from dpsearch.families.layout import at, entry, length, view, view_at
from dpsearch.items import copy_row, fill

_SAFE = 1e-3  # as for a full covariance: below this share of |Λ| all is built anew


class _Params(NamedTuple):
    n_terms: layout.Number  # coefficients with the intercept
    shape: layout.Number  # a₀
    log_gammas: layout.Numbers  # log Γ(a₀ + n/2), by n


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive, without q
    rest: layout.Number  # β
    log_det: layout.Number  # log|Λ|
    squares: layout.Number  # Σy²
    coefficients: layout.Numbers  # m
    cross: layout.Numbers  # Σuy
    inverse: layout.Triangle  # W, the inverse of Λ's lower Cholesky factor
    products: layout.Triangle  # Σuuᵀ
    zeros: layout.Numbers  # these two are zero between calls
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
def _refresh(params, row):  # type: ignore[no-untyped-def]
    """Compute m = WᵀW Σuy and the predictive's constant."""
    n_terms = int(params[PARAMS.n_terms])
    inverse, cross = view(row, ROW.inverse, n_terms), view(row, ROW.cross, n_terms)
    coefficients = view(row, ROW.coefficients, n_terms)
    fill(coefficients, 0.0)
    begin = 0
    for i in range(n_terms):
        product = 0.0
        for j in range(i + 1):
            product += inverse[begin + j] * cross[j]
        for j in range(i + 1):
            coefficients[j] += inverse[begin + j] * product
        begin += i + 1
    fill(view(row, ROW.zeros, n_terms), 0.0)
    fill(view(row, ROW.scratch, n_terms), 0.0)
    n = row[ROW.n]
    row[ROW.constant] = _log_gamma(params, n + 1.0) - _log_gamma(params, n)
    row[ROW.constant] -= 0.5 * (LOG_2PI + math.log(row[ROW.rest]))


@_jit.inner
def _build(params, row):  # type: ignore[no-untyped-def]
    """Compute W, log|Λ| and β from the sums: β = 1 + ½(Σy² − |W Σuy|²)."""
    n_terms = int(params[PARAMS.n_terms])
    inverse, cross = view(row, ROW.inverse, n_terms), view(row, ROW.cross, n_terms)
    copy_row(view(row, ROW.products, n_terms), inverse)
    invert_above_identity(inverse, n_terms)
    explained = 0.0
    begin = 0
    row[ROW.log_det] = 0.0
    for i in range(n_terms):
        product = 0.0
        for j in range(i + 1):
            product += inverse[begin + j] * cross[j]
        explained += product * product
        row[ROW.log_det] -= 2.0 * math.log(inverse[begin + i])
        begin += i + 1
    row[ROW.rest] = 1.0 + 0.5 * max(row[ROW.squares] - explained, 0.0)
    _refresh(params, row)


@_jit.inner
def _clear(params, row):  # type: ignore[no-untyped-def]
    n_terms = int(params[PARAMS.n_terms])
    fill(row, 0.0)
    diagonal = at(ROW.inverse, n_terms)
    for i in range(n_terms):
        row[diagonal + i] = 1.0
        diagonal += i + 1
    row[ROW.rest] = 1.0
    _refresh(params, row)


@_jit.inner
def _error(coefficients, values):  # type: ignore[no-untyped-def]
    """Return y − uᵀm."""
    out = values[values.shape[0] - 1]
    for j in range(coefficients.shape[0]):
        out -= coefficients[j] * values[j]
    return out


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_terms = int(params[PARAMS.n_terms])
    y = values[n_terms]
    row[ROW.n] += weight
    if row[ROW.n] <= 0.0:
        _clear(params, row)
        return
    inverse, cross = view(row, ROW.inverse, n_terms), view(row, ROW.cross, n_terms)
    u, scaled = _jit.view(values, 0, n_terms), view(row, ROW.zeros, n_terms)
    error = _error(view(row, ROW.coefficients, n_terms), values)
    spread = weight * squared_distance(inverse, u, scaled)
    add_outer(view(row, ROW.products, n_terms), u, weight)
    for j in range(n_terms):
        cross[j] += weight * y * u[j]
        scaled[j] = math.sqrt(abs(weight)) * u[j]
    row[ROW.squares] += weight * y * y
    if spread <= _SAFE - 1.0:
        _build(params, row)
        return
    sign = 1.0 if weight > 0.0 else -1.0
    factor = change(inverse, scaled, sign, view(row, ROW.scratch, n_terms))
    row[ROW.log_det] += math.log(factor)
    row[ROW.rest] = max(1.0, row[ROW.rest] + 0.5 * weight * error * error / (1.0 + spread))
    _refresh(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_terms = int(params[PARAMS.n_terms])
    row[ROW.n] += sign * other[ROW.n]
    if row[ROW.n] <= 0.0:
        _clear(params, row)
        return
    row[ROW.squares] += sign * other[ROW.squares]
    cross, products = view(row, ROW.cross, n_terms), view(row, ROW.products, n_terms)
    more, more_products = view(other, ROW.cross, n_terms), view(other, ROW.products, n_terms)
    for j in range(n_terms):
        cross[j] += sign * more[j]
    for j in range(products.shape[0]):
        products[j] += sign * more_products[j]
    _build(params, row)


@_jit.inner
def _score(params, pool, s, values):  # type: ignore[no-untyped-def]
    """Return the score of a point under the row at s."""
    n_terms = int(params[PARAMS.n_terms])
    error = _error(view_at(pool, s, ROW.coefficients, n_terms), values)
    inverse, zeros = view_at(pool, s, ROW.inverse, n_terms), view_at(pool, s, ROW.zeros, n_terms)
    q = 1.0 + squared_distance(inverse, _jit.view(values, 0, n_terms), zeros)
    exponent = params[PARAMS.shape] + 0.5 * (pool[s + ROW.n] + 1.0)
    ratio = math.log1p(0.5 * error * error / (q * pool[s + ROW.rest]))
    return pool[s + ROW.constant] - 0.5 * math.log(q) - exponent * ratio


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        out[k] = _score(params, pool, starts[k], values)


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """With helpers the point may lie on the line, where q is 1 at least; β never falls."""
    if helpers == 0:
        return _score(params, row, 0, values)
    n = row[ROW.n] + helpers
    step = _log_gamma(params, n + 1.0) - _log_gamma(params, n)
    return step - 0.5 * (LOG_2PI + math.log(row[ROW.rest]))


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n = row[ROW.n]
    out = _log_gamma(params, n) - _log_gamma(params, 0.0) - 0.5 * (n * LOG_2PI + row[ROW.log_det])
    return out - (params[PARAMS.shape] + 0.5 * n) * math.log(row[ROW.rest])


FUNCTIONS = Functions(_update, _merge, _score_rows, _log_marginal, bound=_bound)
