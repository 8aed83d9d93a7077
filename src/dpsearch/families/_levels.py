"""Counts of levels with Dirichlet priors in every column: for `Categorical` and `Bernoulli`.

See `categorical.py` for the formulas.  Data are encoded as sparse indicators of the levels of all
columns, with a one at each of a point's levels.  The row keeps log(a + c_l), so that scoring a
point is one sum over its columns.

With gaps, a missing value of column d is one more level.  With its count m_d there are
n_d = n − m_d values in the column, and its logarithm is log(A + n_d), which cancels the column's
term of the constant.  The functions allow any prior counts a_l, which `Bernoulli` needs for data
with gaps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from dpsearch import _jit
from dpsearch._special import log_gamma_table, log_rising
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.families import layout
from dpsearch.families._totals import DirichletTotals
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Restated
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, table, view, view_at
from dpsearch.families.linear import LinearForm, columns_of, like, namespace
from dpsearch.families.terms import group_terms
from dpsearch.families.with_gaps import WithOwnRows

_LARGEST_TABLE = 1 << 20
_FEW = 4  # different prior counts


class _Params(NamedTuple):
    n_counts: layout.Number  # the levels of all columns, and with gaps one more for each column
    n_levels: layout.Number  # the levels of all columns
    size: layout.Number  # of each table
    prior: layout.Numbers  # a of each level, then A of each column
    begins: layout.Numbers  # where the table of each of these begins
    logs: layout.Numbers  # for each different a or A: log(a + j)
    log_gammas: layout.Numbers  # log Γ(a + j)
    sum_logs: layout.Numbers  # Σ_d log(A + j); with gaps this and the next are empty
    sum_log_gammas: layout.Numbers  # Σ_d log Γ(A + j)


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive
    counts: layout.Counts  # of each level
    logs: layout.Numbers  # log(a + c); for `Bernoulli` the differences between ones and zeros


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def _log(params, c, count):  # type: ignore[no-untyped-def]
    """Return log(a + count)."""
    if 0.0 <= count < params[PARAMS.size]:
        return entry(params, PARAMS.logs, entry(params, PARAMS.begins, c) + count)
    return math.log(entry(params, PARAMS.prior, c) + count)


@_jit.inner
def _log_rising(params, c, count):  # type: ignore[no-untyped-def]
    """Return log Γ(a + count)/Γ(a)."""
    if 0.0 <= count < params[PARAMS.size]:
        begin = entry(params, PARAMS.begins, c)
        log_gamma = entry(params, PARAMS.log_gammas, begin + count)
        return log_gamma - entry(params, PARAMS.log_gammas, begin)
    return log_rising(entry(params, PARAMS.prior, c), count)


@_jit.inner
def _set_constant(params, row):  # type: ignore[no-untyped-def]
    """Set −Σ_d log(A + n_d), and with gaps the logarithms themselves."""
    n_levels, n_counts = int(params[PARAMS.n_levels]), int(params[PARAMS.n_counts])
    n = row[ROW.n]
    if n < length(params, PARAMS.sum_logs):
        row[ROW.constant] = -entry(params, PARAMS.sum_logs, n)
        return
    counts, logs = view(row, ROW.counts, n_counts), view(row, ROW.logs, n_counts)
    constant = 0.0
    for c in range(n_levels, length(params, PARAMS.prior)):
        if c < n_counts:
            logs[c] = _log(params, c, n - counts[c])
            constant -= logs[c]
        else:
            constant -= _log(params, c, n)
    row[ROW.constant] = constant


@_jit.inner
def _set_all(params, row):  # type: ignore[no-untyped-def]
    n_counts = int(params[PARAMS.n_counts])
    counts, logs = view(row, ROW.counts, n_counts), view(row, ROW.logs, n_counts)
    for c in range(int(params[PARAMS.n_levels])):
        logs[c] = _log(params, c, counts[c])
    _set_constant(params, row)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_counts = int(params[PARAMS.n_counts])
    counts, logs = view(row, ROW.counts, n_counts), view(row, ROW.logs, n_counts)
    row[ROW.n] += weight
    for i in range(ids.shape[0]):
        c = ids[i]
        counts[c] += weight
        logs[c] = _log(params, c, counts[c])
    _set_constant(params, row)


@_jit.inner
def merge_counts(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_counts = int(params[PARAMS.n_counts])
    counts, more = view(row, ROW.counts, n_counts), view(other, ROW.counts, n_counts)
    row[ROW.n] += sign * other[ROW.n]
    for c in range(n_counts):
        counts[c] += sign * more[c]


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    merge_counts(params, row, other, sign)
    _set_all(params, row)


@_jit.pointer("score_rows")
def score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    """The values of sparse data are ones, and are not read."""
    n_counts = int(params[PARAMS.n_counts])
    for k in range(starts.shape[0]):
        logs = view_at(pool, starts[k], ROW.logs, n_counts)
        score = pool[starts[k] + ROW.constant]
        if ids.shape[0] > 0:
            for i in range(ids.shape[0]):
                score += logs[ids[i]]
        else:
            for i in range(values.shape[0]):
                score += logs[i] * values[i]
        out[k] = score


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_levels, n_counts = int(params[PARAMS.n_levels]), int(params[PARAMS.n_counts])
    counts = view(row, ROW.counts, n_counts)
    out = 0.0
    for d in range(ids.shape[0]):
        level, column = ids[d], n_levels + d
        if level < n_levels:
            there = row[ROW.n] - (counts[column] if column < n_counts else 0.0)
            out += _log(params, level, counts[level] - 1.0)
            out -= _log(params, column, there - 1.0)
    return out


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_levels, n_counts = int(params[PARAMS.n_levels]), int(params[PARAMS.n_counts])
    n, counts = row[ROW.n], view(row, ROW.counts, n_counts)
    out = 0.0
    for level in range(n_levels):
        out += _log_rising(params, level, counts[level])
    shared = table(params, PARAMS.sum_log_gammas)
    if n < shared.shape[0]:
        return out - (shared[int(n)] - shared[0])
    for column in range(n_levels, length(params, PARAMS.prior)):
        there = n - (counts[column] if column < n_counts else 0.0)
        out -= _log_rising(params, column, there)
    return out


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column as many helpers as possible are at the point's level, and no others."""
    n_levels, n_counts = int(params[PARAMS.n_levels]), int(params[PARAMS.n_counts])
    prior, counts = table(params, PARAMS.prior), view(row, ROW.counts, n_counts)
    out = 0.0
    for d in range(ids.shape[0]):
        level, column = ids[d], n_levels + d
        if level >= n_levels:
            continue
        fewest = most = float(helpers)  # that have a value in the column
        total = prior[column] + row[ROW.n]
        if column < n_counts:
            fewest, most = max(most - high[column], 0.0), min(most - low[column], most)
            total -= counts[column]
        if fewest > most:
            return -np.inf
        there = min(max(high[level], fewest), most)
        out += math.log(prior[level] + counts[level] + min(high[level], there))
        out -= math.log(total + there)
    return out


FUNCTIONS = Functions(
    _update, _merge, score_rows, _log_marginal, score_member=_score_member, bound=_bound
)


def level_parameters(levels: Ints, counts: Vector, n_rows: int, *, gaps: bool) -> Vector:
    """Return the parameters for columns with these numbers of levels and prior counts."""
    totals = np.add.reduceat(counts, np.cumsum(levels) - levels)
    prior = np.concatenate([counts, totals])
    kinds, kind = np.unique(prior, return_inverse=True)
    # With many different priors the tables would cost more than the logarithms of complete data.
    size = min(n_rows + 2, _LARGEST_TABLE // len(kinds)) if gaps or len(kinds) <= _FEW else 0
    arguments = np.add.outer(kinds, np.arange(size))
    total_kinds, columns = np.unique(totals, return_counts=True)
    sum_size = 0 if gaps else min(n_rows + 2, 4 * _LARGEST_TABLE // len(total_kinds))
    sum_logs, sum_log_gammas = np.zeros(sum_size), np.zeros(sum_size)
    for total, times in zip(total_kinds, columns, strict=True):
        sum_logs += times * np.log(total + np.arange(sum_size))
        sum_log_gammas += times * log_gamma_table(total, sum_size)
    n_levels = len(counts)
    return layout.make_params(
        PARAMS,
        n_levels=n_levels,
        n_counts=n_levels + gaps * len(levels),
        size=size,
        prior=prior,
        begins=kind * size,
        logs=np.log(arguments).reshape(-1),
        log_gammas=gammaln(arguments).reshape(-1),
        sum_logs=sum_logs,
        sum_log_gammas=sum_log_gammas,
    )


def encode_levels(X: Matrix, levels: Ints) -> Any:
    """Return indicators of the levels of all columns, followed by those of missing values."""
    missing = np.isnan(X)
    n_levels, n_features = int(levels.sum()), len(levels)
    codes = np.where(missing, 0.0, X).astype(np.int64) + np.cumsum(levels) - levels
    ids = np.where(missing, n_levels + np.arange(n_features), codes)
    indptr = np.arange(X.shape[0] + 1) * n_features
    shape = (X.shape[0], n_levels + n_features)
    return sp.csr_matrix((np.ones(X.size), ids.reshape(-1), indptr), shape=shape)


def linear_levels(levels: Ints, counts: Vector, width: int) -> LinearForm:
    """Return the linear form of indicators of the levels of all columns.

    A missing value has no indicator, so the totals of a column add up to n_d.
    """
    columns = np.repeat(np.arange(len(levels)), levels)
    codes = np.arange(len(columns)) - np.repeat(np.cumsum(levels) - levels, levels)

    def features(X: Any) -> Any:
        same = columns_of(X, columns) == like(X, codes)
        return namespace(X).where(same, like(X, 1.0), like(X, 0.0))

    def rows(sizes: Vector, totals: Matrix) -> Matrix:
        missing = sizes[:, None] - np.add.reduceat(totals, np.cumsum(levels) - levels, axis=1)
        out = np.hstack([totals, missing])[:, :width]
        return layout.make_rows(ROW, len(sizes), width, n=sizes, counts=out)

    closed = DirichletTotals(levels, counts)
    return LinearForm.of(closed, len(counts), features, rows, group_terms(closed))


class Levels(Family):
    """A family whose columns have levels; with gaps its functions are those above."""

    independent_columns: ClassVar[bool] = True

    @abstractmethod
    def level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        """Return the number of levels of each column, and the prior count of each level."""

    @abstractmethod
    def counts_of(self, row: Vector, n_features: int) -> Vector:
        """Return the counts of the levels of all columns in a row."""

    @abstractmethod
    def row_of_levels(self, counts: Vector) -> Vector:
        """Return the row of one column from the counts of its levels, without logarithms."""

    def row_layout(self) -> Any:
        return ROW

    def log_ceiling(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        return Restated(row)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        counts = np.concatenate([self.counts_of(row, n_features), np.zeros(n_features)])
        return layout.make(ROW, len(counts), n=row[ROW.n], counts=counts)


class LevelsWithGaps(WithOwnRows):
    """`WithGaps` of a family of levels."""

    family: Levels

    functions: ClassVar[Functions] = FUNCTIONS
    row_layout = Levels.row_layout
    log_base = Family.log_base
    log_ceiling, restated = Levels.log_ceiling, Levels.restated

    def row_size(self, n_features: int) -> int:
        return int(self.family.level_counts(n_features)[0].sum()) + n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        return level_parameters(*self.family.level_counts(n_features), X.shape[0], gaps=True)

    def encode(self, X: Any) -> Any:
        return encode_levels(X, self.family.level_counts(X.shape[1])[0])

    def linear(self, n_features: int) -> LinearForm:
        return linear_levels(*self.family.level_counts(n_features), self.row_size(n_features))

    def _rows(self, row: Vector, n_features: int) -> list[Vector]:
        levels, _ = self.family.level_counts(n_features)
        counts = layout.read(ROW, row, self.row_size(n_features)).counts[: levels.sum()]
        return [self.family.row_of_levels(own) for own in np.split(counts, np.cumsum(levels)[:-1])]
