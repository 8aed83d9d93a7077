"""The Poisson family's own form for data with gaps, several times faster than part by part.

The formulas are those of `poisson.py` with a count n_d of points for each column.
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
from dpsearch._special import log_gamma_table, log_rising
from dpsearch._types import Ints, Vector
from dpsearch.families.base import Family, Functions
from dpsearch.families.with_gaps import WithGaps, WithOwnRows

# params: D, size of the table, a[D], b[D], log Γ(a + j).  The table is empty unless a is the same
# in all columns.
# row: n, then for each column: n_d, s, (a + s) log (b + n_d + 1)/(b + n_d), log(b + n_d + 1)
# Data row: x[D] with −1 where missing.  Features: x[D] with 0 where missing, m[D].
_PARAMS = 2
_HEAD = 1
_COUNT, _SUM, _CONSTANT, _LOG = range(4)
_N_BLOCKS = 4
_LARGEST_TABLE = 1 << 22


@inner
def _log_rising(params, d, before, more):  # type: ignore[no-untyped-def]
    """Return log Γ(a + before + more)/Γ(a + before)."""
    table = _PARAMS + 2 * int(params[0])
    if before + more < params[1]:
        return params[table + int(before + more)] - params[table + int(before)]
    return log_rising(params[_PARAMS + d] + before, more)


@inner
def _change(params, row, d, weight, more):  # type: ignore[no-untyped-def]
    """Add points with a value in column d, and what their values add up to."""
    n_features = int(params[0])
    at = _HEAD + d
    row[at] += weight
    row[at + _SUM * n_features] += more
    rate = params[_PARAMS + n_features + d] + row[at]
    shape = params[_PARAMS + d] + row[at + _SUM * n_features]
    row[at + _CONSTANT * n_features] = shape * math.log1p(1.0 / rate)
    row[at + _LOG * n_features] = math.log(rate + 1.0)


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    for d in range(int(params[0])):
        _change(params, row, d, 0.0, 0.0)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for d in range(int(params[0])):
        if values[d] >= 0.0:
            _change(params, row, d, weight, weight * values[d])


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    row[0] += sign * other[0]
    for d in range(n_features):
        at = _HEAD + d
        _change(params, row, d, sign * other[at], sign * other[at + _SUM * n_features])


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    for k in range(starts.shape[0]):
        score = 0.0
        for d in range(n_features):
            if values[d] >= 0.0:
                at = starts[k] + _HEAD + d
                score += _log_rising(params, d, pool[at + _SUM * n_features], values[d])
                score -= pool[at + _CONSTANT * n_features]
                score -= values[d] * pool[at + _LOG * n_features]
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        shape, rate = params[_PARAMS + d], params[_PARAMS + n_features + d]
        n, total = row[_HEAD + d], row[_HEAD + d + _SUM * n_features]
        out += _log_rising(params, d, 0.0, total)
        out -= shape * math.log1p(n / rate) + total * math.log(rate + n)
    return out


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        if values[d] >= 0.0:
            rate = params[_PARAMS + n_features + d] + row[_HEAD + d] - 1.0
            rest = row[_HEAD + d + _SUM * n_features] - values[d]
            out += _log_rising(params, d, rest, values[d])
            out -= (params[_PARAMS + d] + rest) * math.log1p(1.0 / rate)
            out -= values[d] * math.log(rate + 1.0)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    for d in range(n_features):
        out[d] = max(values[d], 0.0)
        out[n_features + d] = 1.0 if values[d] >= 0.0 else 0.0


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """As in `poisson.py`, at the best number of helpers that have the column."""
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        if values[d] < 0.0:
            continue
        shape = params[_PARAMS + d] + row[_HEAD + d + _SUM * n_features]
        fewest = max(int(np.ceil(low[n_features + d])), 0)
        most = min(int(np.floor(high[n_features + d])), helpers)
        best_case = -np.inf
        for count in range(fewest, most + 1):
            rate = params[_PARAMS + n_features + d] + row[_HEAD + d] + count
            best = min(max(math.floor(values[d] * rate - shape) + 1.0, low[d]), high[d])
            value = log_rising(shape + best, values[d]) - values[d] * math.log(rate + 1.0)
            best_case = max(best_case, value - (shape + best) * math.log1p(1.0 / rate))
        out += best_case
    return out


class PoissonWithGaps(WithOwnRows):
    """`WithGaps` of a `Poisson`, in rows of its own."""

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
        shape, rate = family.prior(n_features)
        size = int(min(np.nansum(X, axis=0).max() + 2, _LARGEST_TABLE))
        table = log_gamma_table(shape[0], size) if (shape == shape[0]).all() else np.empty(0)
        return np.concatenate([[n_features, len(table)], shape, rate, table])

    def encode(self, X: Any) -> Any:
        return np.where(np.isnan(X), -1.0, X)

    def _sum_observed(self, X: Any, of_column: str) -> Vector:
        # A zero adds nothing, no more than a gap does.
        value: Vector = getattr(self.family, of_column)(np.where(np.isnan(X), 0.0, X))
        return value

    log_ceiling = WithGaps.log_ceiling  # of each column on its own

    def counts_in_row(self, n_features: int) -> Ints:
        return np.arange(_HEAD + 2 * n_features)

    def row_of_complete(self, n: float, sums: Vector) -> Vector:
        """The row of n points without gaps, for `merge` to complete."""
        n_features = len(sums)
        return np.concatenate([np.full(_HEAD + n_features, n), sums, np.zeros(2 * n_features)])

    def _pairs(self, row: Vector, n_features: int) -> list[tuple[Family, Vector]]:
        blocks = row[_HEAD:].reshape(_N_BLOCKS, n_features)
        return [
            (self.family.column(d, n_features), np.array([n, 0.0, total, 0.0, total]))
            for d, (n, total) in enumerate(zip(blocks[_COUNT], blocks[_SUM], strict=True))
        ]
