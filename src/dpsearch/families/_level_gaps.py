"""Categories, or zeros and ones, with gaps: the form of `Categorical` and `Bernoulli` for them.

With c_l points of a cluster at level l of a column, n_d with any value there, and the counts of the
prior, a_l and A_d = Σ_l a_l:

    predictive   Σ_d log(a_x + c_x) − log(A_d + n_d)              over the columns d observed
    marginal     Σ_l log Γ(a_l + c_l)/Γ(a_l) − Σ_d log Γ(A_d + n_d)/Γ(A_d)

Levels and columns are counted alike: first all levels, column by column, then the columns.  The row
keeps the logarithms, so that a point costs one sum over its columns.
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
from dpsearch.families.with_gaps import WithOwnRows

# With V levels and D columns, C = V + D:
# params: D, V, size of each table, a[V] and A[D], where the tables of each begin [C]; then for each
# different a or A two tables: log(a + j), log Γ(a + j).
# row: n, c[V] and n_d[D], log(a + c)[V] and log(A + n_d)[D]
# Data row: for each column the number of its level, among all, or −1 where it is missing.
_PARAMS = 3
_HEAD = 1
_LARGEST_TABLE = 1 << 22


@inner
def _log(params, c, count):  # type: ignore[no-untyped-def]
    """Return log(a + count)."""
    n_counts = int(params[0] + params[1])
    if count < params[2]:
        return params[int(params[_PARAMS + n_counts + c]) + int(count)]
    return math.log(params[_PARAMS + c] + count)


@inner
def _log_rising(params, c, count):  # type: ignore[no-untyped-def]
    """Return log Γ(a + count)/Γ(a)."""
    n_counts, size = int(params[0] + params[1]), int(params[2])
    if count < size:
        table = int(params[_PARAMS + n_counts + c]) + size
        return params[table + int(count)] - params[table]
    return log_rising(params[_PARAMS + c], count)


@inner
def _change(params, row, c, weight):  # type: ignore[no-untyped-def]
    row[_HEAD + c] += weight
    row[_HEAD + int(params[0] + params[1]) + c] = _log(params, c, row[_HEAD + c])


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    for c in range(int(params[0] + params[1])):
        _change(params, row, c, 0.0)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for d in range(int(params[0])):
        if values[d] >= 0.0:
            _change(params, row, int(values[d]), weight)
            _change(params, row, int(params[1]) + d, weight)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for c in range(int(params[0] + params[1])):
        _change(params, row, c, sign * other[_HEAD + c])


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features, n_levels = int(params[0]), int(params[1])
    for k in range(starts.shape[0]):
        logs = starts[k] + _HEAD + n_features + n_levels
        score = 0.0
        for d in range(n_features):
            if values[d] >= 0.0:
                score += pool[logs + int(values[d])] - pool[logs + n_levels + d]
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features, n_levels = int(params[0]), int(params[1])
    out = 0.0
    for c in range(n_levels):
        out += _log_rising(params, c, row[_HEAD + c])
    for c in range(n_levels, n_levels + n_features):
        out -= _log_rising(params, c, row[_HEAD + c])
    return out


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_levels = int(params[1])
    out = 0.0
    for d in range(int(params[0])):
        if values[d] >= 0.0:
            level, column = int(values[d]), n_levels + d
            out += _log(params, level, row[_HEAD + level] - 1.0)
            out -= _log(params, column, row[_HEAD + column] - 1.0)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for d in range(int(params[0])):
        if values[d] >= 0.0:
            out[int(values[d])] = 1.0
            out[int(params[1]) + d] = 1.0


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column as many helpers at the point's level as there can be, and no others."""
    n_levels = int(params[1])
    out = 0.0
    for d in range(int(params[0])):
        if values[d] < 0.0:
            continue
        level, column = int(values[d]), n_levels + d
        fewest, most = max(low[column], 0.0), min(high[column], float(helpers))
        if fewest > most:
            return -np.inf
        there = min(max(high[level], fewest), most)
        out += math.log(params[_PARAMS + level] + row[_HEAD + level] + min(high[level], there))
        out -= math.log(params[_PARAMS + column] + row[_HEAD + column] + there)
    return out


class LevelsWithGaps(WithOwnRows):
    """`WithGaps` of a family of levels, in rows of its own.

    Such a family has `level_counts`, the number of levels of each column and what the prior counts
    for at each, and `row_of_levels`, its row for one column's counts.
    """

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

    def _level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        family: Any = self.family
        levels, counts = family.level_counts(n_features)
        return levels, counts

    def _starts(self, n_features: int) -> Ints:
        """The number of each column's first level."""
        levels, _ = self._level_counts(n_features)
        return np.cumsum(levels) - levels

    def width(self, n_features: int) -> int:
        return _HEAD + 2 * self.bound_width(n_features)

    def bound_width(self, n_features: int) -> int:
        return int(self._level_counts(n_features)[0].sum()) + n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        levels, counts = self._level_counts(n_features)
        counts = np.concatenate([counts, np.add.reduceat(counts, self._starts(n_features))])
        kinds, kind = np.unique(counts, return_inverse=True)
        size = min(X.shape[0] + 2, _LARGEST_TABLE // len(kinds))
        tables = [
            table
            for count in kinds
            for table in (np.log(count + np.arange(size)), log_gamma_table(count, size))
        ]
        begins = _PARAMS + 2 * len(counts) + 2 * size * kind
        return np.concatenate([[n_features, levels.sum(), size], counts, begins, *tables])

    def encode(self, X: Any) -> Any:
        return np.where(np.isnan(X), -1.0, X + self._starts(X.shape[1]))

    def log_base(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])

    def log_ceiling(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])

    def counts_in_row(self, n_features: int) -> Ints:
        return np.arange(_HEAD + self.bound_width(n_features))

    def row_of_complete(self, n: float, counts: Vector, n_features: int) -> Vector:
        """The row of n points without gaps and so many at each level, for `merge` to complete."""
        head = [np.array([n]), counts, np.full(n_features, n)]
        return np.concatenate([*head, np.zeros(len(counts) + n_features)])

    def _pairs(self, row: Vector, n_features: int) -> list[tuple[Family, Vector]]:
        family: Any = self.family
        starts = self._starts(n_features)
        n_levels = self.bound_width(n_features) - n_features
        counts = np.split(row[_HEAD : _HEAD + n_levels], starts[1:])
        return [
            (family.column(d, n_features), family.row_of_levels(own))
            for d, own in enumerate(counts)
        ]
