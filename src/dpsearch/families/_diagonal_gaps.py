"""The diagonal Gaussian's own form for data with gaps, several times faster than part by part.

The formulas are those of `diagonal_gaussian.py` with a count n_d for each column.  With m_d in
{0, 1} saying whether the point has a value z_d there,

    predictive   Σ_d m_d [ c_d − (a_d + ½) log(1 + q_d) ],    a_d = a₀ + n_d/2

where c_d is what the column's Student t has besides q, kept in the row.  Exponents differ between
columns, so each needs its logarithm, by a routine that compilers can vectorise.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_MEMBER,
    SCORE_ROWS,
    UPDATE,
    inner,
    pointer,
)
from dpsearch._special import LOG_2PI, vector_log
from dpsearch._types import Ints, Vector
from dpsearch.families.base import Family, Functions
from dpsearch.families.with_gaps import WithGaps, WithOwnRows, filled
from dpsearch.items import copy_row

# params: D, size of each table, κ₀[D], a₀[D], steps, totals: as in `diagonal_gaussian.py`, for one
# column; empty unless all columns have the same prior.
# row: n, then for each column: n_d, z̄, M, m, q/(z − m)², c, a + ½, and its log marginal.
# Data row: z[D] with 0 where missing, m[D].  Features: the same.
_PARAMS = 2
_HEAD = 1
_COUNT, _MEAN, _SQUARES, _CENTRE, _FACTOR, _CONSTANT, _POWER, _MARGINAL = range(8)
_N_BLOCKS = 8


@inner
def _step(params, d, n):  # type: ignore[no-untyped-def]
    """Return log Γ(a + ½)/Γ(a) − ½ log 2π(κ + 1)/κ for n values of column d."""
    n_features, size = int(params[0]), int(params[1])
    if n < size:
        return params[_PARAMS + 2 * n_features + int(n)]
    shape = params[_PARAMS + n_features + d] + 0.5 * n
    out = math.lgamma(shape + 0.5) - math.lgamma(shape)
    return out - 0.5 * (LOG_2PI + math.log1p(1.0 / (params[_PARAMS + d] + n)))


@inner
def _total(params, d, n):  # type: ignore[no-untyped-def]
    """Return log Γ(a)/Γ(a₀) − ½ log κ/κ₀ − n/2 log 2π for n values of column d."""
    n_features, size = int(params[0]), int(params[1])
    if n < size:
        return params[_PARAMS + 2 * n_features + size + int(n)]
    shape = params[_PARAMS + n_features + d]
    out = math.lgamma(shape + 0.5 * n) - math.lgamma(shape)
    return out - 0.5 * (n * LOG_2PI + math.log1p(n / params[_PARAMS + d]))


@inner
def _beta(params, d, n, mean, squares):  # type: ignore[no-untyped-def]
    """Return β of n values of column d."""
    strength = params[_PARAMS + d]
    return 1.0 + 0.5 * (squares + strength * n / (strength + n) * mean * mean)


@inner
def _constants(params, row, d):  # type: ignore[no-untyped-def]
    """Derive what scoring needs of column d from n_d, z̄ and M."""
    n_features = int(params[0])
    at = _HEAD + d
    n, mean = row[at], row[at + _MEAN * n_features]
    kappa = params[_PARAMS + d] + n
    shape = params[_PARAMS + n_features + d] + 0.5 * n
    squares = row[at + _SQUARES * n_features]
    beta = _beta(params, d, n, mean, squares)
    log_beta = math.log(beta)
    row[at + _CENTRE * n_features] = n * mean / kappa
    row[at + _FACTOR * n_features] = kappa / (2.0 * beta * (kappa + 1.0))
    row[at + _CONSTANT * n_features] = _step(params, d, n) - 0.5 * log_beta
    row[at + _POWER * n_features] = shape + 0.5
    row[at + _MARGINAL * n_features] = _total(params, d, n) - shape * log_beta


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    for d in range(int(params[0])):
        _constants(params, row, d)


@inner
def _change(params, row, d, weight, value, sign, squares):  # type: ignore[no-untyped-def]
    """Add (or take, if `weight` is below 0) values of column d: their number, mean and squares."""
    n_features = int(params[0])
    at = _HEAD + d
    n = row[at]
    total = n + weight
    mean, own = at + _MEAN * n_features, at + _SQUARES * n_features
    if total <= 0.0:
        row[at] = row[mean] = row[own] = 0.0
    else:
        difference = value - row[mean]
        row[at] = total
        row[mean] += weight / total * difference
        left = row[own] + sign * squares + weight * n / total * difference * difference
        row[own] = max(left, 0.0) if total > 1.0 else 0.0
    _constants(params, row, d)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    row[0] += weight
    for d in range(n_features):
        if values[n_features + d] != 0.0:
            _change(params, row, d, weight, values[d], 1.0, 0.0)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    row[0] += sign * other[0]
    for d in range(n_features):
        at = _HEAD + d
        if other[at] != 0.0:
            mean, squares = other[at + _MEAN * n_features], other[at + _SQUARES * n_features]
            _change(params, row, d, sign * other[at], mean, sign, squares)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    mask = values[n_features : 2 * n_features]
    for k in range(starts.shape[0]):
        s = starts[k] + _HEAD
        centre = pool[s + _CENTRE * n_features : s + (_CENTRE + 1) * n_features]
        factor = pool[s + _FACTOR * n_features : s + (_FACTOR + 1) * n_features]
        constant = pool[s + _CONSTANT * n_features : s + (_CONSTANT + 1) * n_features]
        power = pool[s + _POWER * n_features : s + (_POWER + 1) * n_features]
        score = 0.0
        for d in range(n_features):
            difference = values[d] - centre[d]
            log = vector_log(1.0 + factor[d] * difference * difference)
            score += mask[d] * (constant[d] - power[d] * log)
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        out += row[_HEAD + _MARGINAL * n_features + d]
    return out


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    """What each column's log marginal would lose with the point."""
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        if values[n_features + d] == 0.0:
            continue
        at = _HEAD + d
        out += row[at + _MARGINAL * n_features]
        rest = row[at] - 1.0
        if rest > 0.0:
            difference = values[d] - row[at + _MEAN * n_features]
            mean = row[at + _MEAN * n_features] - difference / rest
            squares = row[at + _SQUARES * n_features] - row[at] / rest * difference * difference
            squares = max(squares, 0.0) if rest > 1.0 else 0.0
            shape = params[_PARAMS + n_features + d] + 0.5 * rest
            out -= _total(params, d, rest) - shape * math.log(_beta(params, d, rest, mean, squares))
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    copy_row(values, out)


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """As in `diagonal_gaussian.py`, at the best number of helpers that have the column."""
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        if values[n_features + d] == 0.0:
            continue
        at = _HEAD + d
        prior = params[_PARAMS + d] + row[at]
        mean = row[at + _CENTRE * n_features]
        beta = prior / (2.0 * (prior + 1.0) * row[at + _FACTOR * n_features])
        alone = beta + 0.5 * prior / (prior + 1.0) * (values[d] - mean) ** 2
        fewest = max(int(np.ceil(low[n_features + d])), 0)
        most = min(int(np.floor(high[n_features + d])), helpers)
        best_case = -np.inf
        for count in range(fewest, most + 1):
            kappa = prior + count
            shape = params[_PARAMS + n_features + d] + 0.5 * (row[at] + count)
            nearest = min(
                max(values[d], (prior * mean + low[d]) / kappa), (prior * mean + high[d]) / kappa
            )
            apart = 0.5 * kappa / (kappa + 1.0) * (values[d] - nearest) ** 2
            best = beta if count == 0 else max(beta, alone - apart, 2.0 * shape * apart)
            value = _step(params, d, row[at] + count)
            value += shape * math.log(best) - (shape + 0.5) * math.log(best + apart)
            best_case = max(best_case, value)
        out += best_case
    return out


class DiagonalWithGaps(WithOwnRows):
    """`WithGaps` of a `DiagonalGaussian`, in rows of its own."""

    functions: ClassVar[Functions] = Functions(
        _init,
        _update,
        _merge,
        _score_rows,
        _log_marginal,
        score_member=_score_member,
        features=_features,
        bound=_bound,
    )

    def width(self, n_features: int) -> int:
        return _HEAD + _N_BLOCKS * n_features

    def bound_width(self, n_features: int) -> int:
        return 2 * n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        family: Any = self.family
        family.location_scale(n_features)  # for its checks
        priors = np.concatenate(family.strength_shape(n_features))
        even = bool((priors.reshape(2, -1) == priors.reshape(2, -1)[:, :1]).all())
        tables = family.column(0, n_features).parameters(1, X[:, :1])[5:] if even else np.empty(0)
        return np.concatenate([[n_features, len(tables) // 2], priors, tables])

    def encode(self, X: Any) -> Any:
        there = ~np.isnan(X)
        return np.hstack([np.where(there, self.family.encode(filled(X)), 0.0), there])

    log_ceiling = WithGaps.log_ceiling  # of each column on its own

    def log_base(self, X: Any) -> Vector:
        family: Any = self.family
        _, scale = family.location_scale(X.shape[1])
        return np.asarray(-(~np.isnan(X) @ np.log(scale)))

    def counts_in_row(self, n_features: int) -> Ints:
        return np.arange(_HEAD + n_features)

    def row_of_complete(self, row: Vector, n_features: int) -> Vector:
        """A row of the plain family as one of these, for `merge` to complete."""
        out = np.zeros(self.width(n_features))
        out[0] = row[0]
        out[_HEAD : _HEAD + n_features] = row[0]
        out[_HEAD + n_features : _HEAD + 3 * n_features] = row[4 : 4 + 2 * n_features]
        return out

    def _pairs(self, row: Vector, n_features: int) -> list[tuple[Family, Vector]]:
        blocks = row[_HEAD:].reshape(_N_BLOCKS, n_features)
        out = []
        for d in range(n_features):
            own = np.zeros(8)
            own[0] = blocks[_COUNT, d]
            own[4:] = blocks[[_MEAN, _SQUARES, _CENTRE, _FACTOR], d]
            out.append((self.family.column(d, n_features), own))
        return out
