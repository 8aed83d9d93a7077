"""Counts of events and their logarithms, recognised by their values.

Values are counts if all are integer multiples of the smallest positive one, and that is the most
common of the positive values; in images and ratings it is not.  They are logarithms of counts if
this holds for exp(x) − 1, and logarithms of counts scaled to a common total if it holds for
exp(x) − 1 in each row by itself.  Gaps are counts that were not observed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsearch._threads import shared
from dpsearch._types import Matrix, Vector
from dpsearch.families import ProjectedGaussian
from dpsearch.families._columns import varies
from dpsearch.tables.checked import CheckedTable

_AT_ONCE = 1 << 18  # numbers
_SMALL = 1 << 16  # integers below this are counted without sorting
_WITH_ZERO = 0.75  # the least share of columns that have a 0
_MOST_LEVELS = 12  # answers and ratings have no more
_LARGEST_SHARE = 0.5  # of one column among all counts
_LARGEST_LOGARITHM = 30.0
_RARE = 0.5  # the mean count: words in documents are rarer
_ITERATIONS = 20  # of the expected sums of rows and columns
_NOTHING = 1e-10
_ROUNDING = 1e-3  # of multiples, relative: logarithms may be in single precision


def is_counts(values: Any) -> bool:
    """Whether all values are integers of at least 0."""
    flat = values.reshape(-1)
    parts = (flat[at : at + _AT_ONCE] for at in range(0, len(flat), _AT_ONCE))
    return all(bool((part >= 0).all() and (part == np.floor(part)).all()) for part in parts)


def are_documents(table: CheckedTable, wide: bool) -> bool:
    """Whether counts are like those of words in documents: most are 0, and most others 1.

    In a wide table with larger counts, of words or not, that vary more than a multinomial
    distribution allows, that family would make a cluster of nearly every row.
    """
    X = table.matrix
    mostly_zero = 0 < np.count_nonzero(X) <= 0.5 * X.size and _least_is_most_common(
        X, X.__getitem__
    )
    return mostly_zero and not (wide and X.mean() >= _RARE and counted(table) is not None)


def _blocks(X: Matrix) -> list[slice]:
    """Return blocks of rows, small enough to stay in the cache."""
    height = max(1, _AT_ONCE // X.shape[1])
    return [slice(at, at + height) for at in range(0, len(X), height)]


def _least_is_most_common(X: Matrix, integers: Callable[[slice], Matrix]) -> bool:
    """Whether the least positive integer is the most common one; `integers` returns a block."""

    def times(at: slice) -> tuple[Vector, Any]:
        block = integers(at)
        positive = block[block > 0.0]
        if positive.max(initial=0.0) >= _SMALL:
            return np.unique(positive, return_counts=True)
        counts = np.bincount(positive.astype(np.int64))
        found = np.flatnonzero(counts)
        return found.astype(np.float64), counts[found]

    values, counts = map(np.concatenate, zip(*shared(times, _blocks(X)), strict=True))
    which = np.unique(values, return_inverse=True)[1]
    return bool(np.bincount(which, counts).argmax() == 0)


class Counted(NamedTuple):
    """The counts of events that a table stands for, and how it represents them."""

    counts: Matrix
    unit: Matrix  # [rows or 1, 1]: the table holds the counts times this …
    logged: bool  # … or log(1 + x) of that
    words: str

    def family(self) -> ProjectedGaussian:
        """Return a family to start from for the table."""
        given = None
        if self.logged and len(self.unit) > 1:
            given = float(np.median(self.counts.sum(axis=1) * self.unit[:, 0]))
        found = ProjectedGaussian.of_counts(self.counts)
        return found.with_parameters(logged=self.logged, given_total=given)

    def held(self, counts: Matrix) -> Matrix:
        """Return other counts in the table's representation."""
        values = counts * self.unit
        return np.log1p(values) if self.logged else values


def counted(table: CheckedTable) -> Counted | None:
    """Return the `wide_counts` of a table, computed once."""
    return table.cached("wide counts", lambda: wide_counts(table.matrix))


def wide_counts(X: Any) -> Counted | None:
    """Return the counts that a wide table holds as they are or as logarithms; None if it does not.

    A column that has most of the counts holds another kind of number.
    """
    changing = varies(X)
    if (
        not changing.any()
        or np.nanmin(X) < 0.0
        or (X == 0.0).any(axis=0)[changing].mean() < _WITH_ZERO
    ):
        return None
    tries = [(False, False), (True, False), (True, True)]
    for logged, rowwise in tries if np.nanmax(X) < _LARGEST_LOGARITHM else tries[:1]:
        unit = _units(X, logged, rowwise)
        integers = partial(_integers, X, unit, logged)
        found = _sums(X, unit, logged)
        if found is None:
            continue
        by_column, most = found
        one_column = by_column.max() > _LARGEST_SHARE * by_column.sum()
        if one_column or most <= _MOST_LEVELS or not _least_is_most_common(X, integers):
            return None
        what = "logarithms of counts" if logged else "counts"
        what += " brought to a common total," if rowwise else ""
        words = f"{what} in {X.shape[1]} columns"
        return Counted(integers(slice(None)), unit, logged, words)
    return None


def _units(X: Matrix, logged: bool, rowwise: bool) -> Matrix:
    """Return the least positive number, of each row or of all."""

    def least(at: slice) -> Matrix:
        values = _values(X[at], logged)
        return np.asarray(np.where(values > 0.0, values, np.inf).min(axis=1, keepdims=True))

    units = np.concatenate(list(shared(least, _blocks(X))))
    return np.where(np.isinf(units), 1.0, units) if rowwise else units.min(keepdims=True)


def _values(X: Matrix, logged: bool) -> Matrix:
    return np.expm1(X) if logged else X


def _multiples(X: Matrix, unit: Matrix, logged: bool, at: slice) -> Matrix:
    return np.asarray(_values(X[at], logged) / (unit[at] if len(unit) > 1 else unit))


def _integers(X: Matrix, unit: Matrix, logged: bool, at: slice) -> Matrix:
    return np.round(_multiples(X, unit, logged, at))


def _sums(X: Matrix, unit: Matrix, logged: bool) -> tuple[Vector, float] | None:
    """Return the sums by column and the largest of all multiples; None if not all are integers."""

    def of_block(at: slice) -> tuple[Vector, float] | None:
        counts = _multiples(X, unit, logged, at)
        whole = np.round(counts)
        if (np.abs(counts - whole) > _ROUNDING * np.maximum(whole, 1.0)).any():
            return None
        return np.nansum(whole, axis=0), float(np.fmax.reduce(whole, axis=None))

    by_column, most = np.zeros(X.shape[1]), 0.0
    with closing(shared(of_block, _blocks(X))) as found:
        for one in found:
            if one is None:
                return None
            by_column += one[0]
            most = max(most, one[1])  # a block of gaps has none: NaN
    return by_column, most


def expected_counts(counts: Matrix) -> Matrix:
    """Return the expected counts of a table with gaps, products of effects of rows and columns.

    The effects are updated in turn from the known counts.  They converge to the maximum of the
    likelihood of independent Poisson variables.
    """
    known = ~np.isnan(counts)
    seen = np.where(known, counts, 0.0)
    rows, columns = seen.sum(axis=1), np.ones(counts.shape[1])
    for _ in range(_ITERATIONS):
        columns = seen.sum(axis=0) / np.maximum(rows @ known, _NOTHING)
        rows = seen.sum(axis=1) / np.maximum(known @ columns, _NOTHING)
    return np.asarray(rows[:, None] * columns)
