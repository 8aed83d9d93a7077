"""The functions of a Gaussian with unknown mean and covariance matrix: see `full_gaussian.py`.

Adding w copies of a point changes Ψ to Ψ + κw/(κ + w) (z − m)(z − m)ᵀ, a rank-one update of the
inverse Cholesky factor W, by which quadratic forms are computed.  The scatter is kept as well, to
recompute W after a merge, or if removing a point would lose digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch.families import layout
from dpsearch.families._cholesky import (
    add_outer,
    change,
    distance_up_to,
    invert_above_identity,
    log_determinant,
    set_identity,
    squared_distance,
)
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, view, view_at
from dpsearch.items import copy_row, fill

LOG_PI = math.log(math.pi)
# Removing a point multiplies |Ψ| by a factor below 1.  If it is less than this, W is recomputed
# from the scatter, since rounding errors grow with the reciprocal and W could stop being valid.
_SAFE = 1e-3
_MARGIN = 1e-6  # nats: scores closer to each other are compared in full


class _Params(NamedTuple):
    n_features: layout.Number
    strength: layout.Number  # κ₀
    degrees: layout.Number  # ν₀
    steps: layout.Numbers  # the predictive's constant without |Ψ|, by n
    totals: layout.Numbers  # the marginal's


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive
    log_det: layout.Number  # log|Ψ|
    ratio: layout.Number  # κ/(κ + 1)
    mean: layout.Numbers  # m
    inverse: layout.Triangle  # W, the inverse of Ψ's lower Cholesky factor
    scatter: layout.Triangle  # S
    spare: layout.Numbers  # room for a vector; this and the next are zero between calls
    scratch: layout.Numbers


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def _step(params, n):  # type: ignore[no-untyped-def]
    """Return the predictive's constant for n points, without |Ψ|."""
    if n < length(params, PARAMS.steps):
        return entry(params, PARAMS.steps, n)
    n_features = params[PARAMS.n_features]
    half = 0.5 * (params[PARAMS.degrees] + n + 1.0)
    out = math.lgamma(half) - math.lgamma(half - 0.5 * n_features)
    ratio = math.log1p(1.0 / (params[PARAMS.strength] + n))
    return out - 0.5 * n_features * (LOG_PI + ratio)


@_jit.inner
def _total(params, n):  # type: ignore[no-untyped-def]
    """Return the marginal's constant for n points, without |Ψ|."""
    if n < length(params, PARAMS.totals):
        return entry(params, PARAMS.totals, n)
    n_features = params[PARAMS.n_features]
    out = -0.5 * n_features * (n * LOG_PI + math.log1p(n / params[PARAMS.strength]))
    for i in range(int(n_features)):
        half = 0.5 * (params[PARAMS.degrees] - i)
        out += math.lgamma(half + 0.5 * n) - math.lgamma(half)
    return out


@_jit.inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Compute everything that scoring needs from n and log|Ψ|, and clear the working space."""
    kappa = params[PARAMS.strength] + row[ROW.n]
    row[ROW.constant] = _step(params, row[ROW.n]) - 0.5 * row[ROW.log_det]
    row[ROW.ratio] = kappa / (kappa + 1.0)
    n_features = int(params[PARAMS.n_features])
    fill(view(row, ROW.spare, n_features), 0.0)
    fill(view(row, ROW.scratch, n_features), 0.0)


@_jit.inner
def _clear(params, row):  # type: ignore[no-untyped-def]
    n_features = int(params[PARAMS.n_features])
    fill(row, 0.0)
    set_identity(view(row, ROW.inverse, n_features), n_features)
    _constants(params, row)  # log|Ψ| = 0 is set already


@_jit.inner
def _build(params, row):  # type: ignore[no-untyped-def]
    """Compute W and log|Ψ| from n, m and S: first of I + S, then with the mean's share of Ψ."""
    n_features, strength = int(params[PARAMS.n_features]), params[PARAMS.strength]
    mean, inverse = view(row, ROW.mean, n_features), view(row, ROW.inverse, n_features)
    v = view(row, ROW.spare, n_features)
    copy_row(view(row, ROW.scatter, n_features), inverse)
    invert_above_identity(inverse, n_features)
    share = math.sqrt(strength * (strength + row[ROW.n]) / row[ROW.n])
    for d in range(n_features):
        v[d] = share * mean[d]
    change(inverse, v, 1.0, view(row, ROW.scratch, n_features))
    row[ROW.log_det] = log_determinant(inverse, n_features)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    n, kappa = row[ROW.n], params[PARAMS.strength] + row[ROW.n]
    total = n + weight
    if total <= 0.0:
        _clear(params, row)
        return
    mean, inverse = view(row, ROW.mean, n_features), view(row, ROW.inverse, n_features)
    scatter, v = view(row, ROW.scatter, n_features), view(row, ROW.spare, n_features)
    if n > 0.0:
        for d in range(n_features):
            v[d] = values[d] - mean[d] * kappa / n
        add_outer(scatter, v, weight * n / total)
    if total <= 1.0:
        fill(scatter, 0.0)  # exactly, for a single point
    share = kappa * abs(weight) / (kappa + weight)
    removable = weight > 0.0 or (
        total > 1.0 and share * squared_distance(inverse, values, mean) <= 1.0 - _SAFE
    )
    for d in range(n_features):
        v[d] = math.sqrt(share) * (values[d] - mean[d])
        mean[d] += weight / (kappa + weight) * (values[d] - mean[d])
    row[ROW.n] = total
    if removable:
        sign = 1.0 if weight > 0.0 else -1.0
        factor = change(inverse, v, sign, view(row, ROW.scratch, n_features))
        row[ROW.log_det] += math.log(factor)
    else:
        _build(params, row)
    _constants(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features, strength = int(params[PARAMS.n_features]), params[PARAMS.strength]
    n, more = row[ROW.n], other[ROW.n]
    added = sign * more
    total = n + added
    if total <= 0.0:
        _clear(params, row)
        return
    if added == 0.0:
        return
    centre, others = view(row, ROW.mean, n_features), view(other, ROW.mean, n_features)
    scatter, v = view(row, ROW.scatter, n_features), view(row, ROW.spare, n_features)
    for d in range(n_features):
        mean = centre[d] * (strength + n) / n if n > 0.0 else 0.0
        v[d] = others[d] * (strength + more) / more - mean
        centre[d] = (mean + added / total * v[d]) * total / (strength + total)
    others = view(other, ROW.scatter, n_features)
    for i in range(scatter.shape[0]):
        scatter[i] += sign * others[i]
    add_outer(scatter, v, added * n / total)
    if total <= 1.0:
        fill(scatter, 0.0)
    row[ROW.n] = total
    _build(params, row)
    _constants(params, row)


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    for k in range(starts.shape[0]):
        s = starts[k]
        mean = view_at(pool, s, ROW.mean, n_features)
        distance = squared_distance(view_at(pool, s, ROW.inverse, n_features), values, mean)
        exponent = 0.5 * (params[PARAMS.degrees] + pool[s + ROW.n] + 1.0)
        logs = math.log1p(pool[s + ROW.ratio] * distance)
        out[k] = pool[s + ROW.constant] - exponent * logs


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    """With Ψ⁻ without the point, |Ψ⁻| = |Ψ|(1 − h) and 1 + κ⁻/κ (z − m⁻)ᵀΨ⁻⁻¹(z − m⁻) = 1/(1 − h).

    Here h = κ/(κ − 1) (z − m)ᵀΨ⁻¹(z − m), by the rank-one formulas of Sherman and Morrison.
    """
    mean, inverse = view(row, ROW.mean, values.shape[0]), view(row, ROW.inverse, values.shape[0])
    kappa = params[PARAMS.strength] + row[ROW.n]
    share = squared_distance(inverse, values, mean) * kappa / (kappa - 1.0)
    if share > 1.0 - _SAFE:
        return math.nan  # too near to 1 for its distance from 1 to be exact
    out = _step(params, row[ROW.n] - 1.0) - 0.5 * row[ROW.log_det]
    return out + 0.5 * (params[PARAMS.degrees] + row[ROW.n] - 1.0) * math.log1p(-share)


@_jit.pointer("score_best")
def _score_best(params, pool, starts, offsets, skipped, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    best = -np.inf
    for k in range(starts.shape[0]):
        if k == skipped:
            continue
        s = starts[k]
        exponent = 0.5 * (params[PARAMS.degrees] + pool[s + ROW.n] + 1.0)
        nearest = pool[s + ROW.constant] + offsets[k]  # the score at distance 0
        # At a larger distance the score is below the best by more than rounding.
        above = nearest - best + _MARGIN
        above = above / exponent if above > 0.0 else 0.0
        # The limit is e^t − 1, or for t < 1 a cheap upper bound of it.
        limit = above * (1.0 + above) if above < 1.0 else math.expm1(above)
        limit /= pool[s + ROW.ratio]
        mean = view_at(pool, s, ROW.mean, n_features)
        inverse = view_at(pool, s, ROW.inverse, n_features)
        distance = distance_up_to(inverse, values, mean, limit)
        if nearest < best - _MARGIN or distance > limit:
            out[k] = -np.inf
        else:
            out[k] = nearest - exponent * math.log1p(pool[s + ROW.ratio] * distance)
            if out[k] > best:
                best = out[k]


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    half = 0.5 * (params[PARAMS.degrees] + row[ROW.n])
    return _total(params, row[ROW.n]) - half * row[ROW.log_det]


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """With helpers, |Ψ| is as small as it can be and the point at their mean.

    With Ψ⁺ for Ψ once the point is added, the predictive is, up to constants,
    ν/2 log|Ψ| − (ν + 1)/2 log|Ψ⁺| ≤ −½ log|Ψ⁺|, and |Ψ⁺| is least without helpers.
    """
    mean, inverse = view(row, ROW.mean, values.shape[0]), view(row, ROW.inverse, values.shape[0])
    distance = squared_distance(inverse, values, mean)
    exponent = 0.5 * (params[PARAMS.degrees] + row[ROW.n] + 1.0) if helpers == 0 else 0.5
    after = math.log1p(row[ROW.ratio] * distance)
    return _step(params, row[ROW.n] + helpers) - 0.5 * row[ROW.log_det] - exponent * after


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, score_best=_score_best,
    bound=_bound,
)  # fmt: skip
