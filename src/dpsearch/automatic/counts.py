"""Counts and their logarithms, recognised by their values.

Values are counts of events if all are whole multiples of the smallest above 0, which is the
commonest of them: in images and ratings it is not.  They are logarithms of counts if exp(x) − 1 is
such, and logarithms of counts that were brought to a common total if it is so row by row.

Gaps do not matter: they are counts that were not seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Matrix
from dpsearch.families import ProjectedGaussian
from dpsearch.families._columns import varies
from dpsearch.tables.checked import CheckedTable

_AT_ONCE = 1 << 20  # numbers
_WITH_ZERO = 0.75  # the share of columns with a 0, at least
_MOST_LEVELS = 12  # answers and ratings have no more
_LARGEST_SHARE = 0.5  # of one column among all counts, at most
_LARGEST_LOGARITHM = 30.0
_RARE = 0.5  # counts a cell, on average: words in documents are rarer
_TURNS = 20  # of rows and columns, by which gaps are expected
_NOTHING = 1e-10
_ROUNDING = 1e-3  # of multiples, relative: logarithms may be in single precision


def is_counts(values: Any) -> bool:
    """Whether all values are whole numbers of at least 0."""
    flat = values.reshape(-1)
    parts = (flat[at : at + _AT_ONCE] for at in range(0, len(flat), _AT_ONCE))
    return all(bool((part >= 0).all() and (part == np.floor(part)).all()) for part in parts)


def are_documents(table: CheckedTable, wide: bool) -> bool:
    """Whether counts look like words in documents: rare, and seldom more than one.

    In a wide table with more of them, words or not, a multinomial distribution gives most rows a
    cluster of their own where counts vary more than it says.
    """
    X = table.matrix
    mostly_zero = 0 < np.count_nonzero(X) <= 0.5 * X.size and _least_is_commonest(X)
    return mostly_zero and not (wide and X.mean() >= _RARE and counted(table) is not None)


def _least_is_commonest(X: Any) -> bool:
    times = np.unique(X[X > 0.0], return_counts=True)[1]
    return bool(times.argmax() == 0)


class Counted(NamedTuple):
    """The counts of events that a table holds, as whole numbers, and how it holds them."""

    counts: Matrix
    unit: Matrix  # [rows or 1, 1]: the table holds this many times the counts
    logged: bool  # whether it holds log(1 + x) of that
    words: str

    def family(self) -> ProjectedGaussian:
        """Return a family for the table, to start from."""
        given = None
        if self.logged and len(self.unit) > 1:
            given = float(np.median(self.counts.sum(axis=1) * self.unit[:, 0]))
        found = ProjectedGaussian.of_counts(self.counts)
        return found.with_parameters(logged=self.logged, given_total=given)

    def held(self, counts: Matrix) -> Matrix:
        """Return other counts as the table would hold them."""
        values = counts * self.unit
        return np.log1p(values) if self.logged else values


def counted(table: CheckedTable) -> Counted | None:
    """Return the `wide_counts` of a table, found once."""
    return table.once("wide counts", lambda: wide_counts(table.matrix))


def wide_counts(X: Any) -> Counted | None:
    """Return the counts that a wide table holds as they are or as logarithms; None for others.

    No column may have most of the counts: that would be another kind of number.
    """
    changing = varies(X)
    if (
        not changing.any()
        or np.nanmin(X) < 0.0
        or (X[:, changing] == 0.0).any(axis=0).mean() < _WITH_ZERO
    ):
        return None
    tries = [(False, False), (True, False), (True, True)]
    for logged, rowwise in tries if np.nanmax(X) < _LARGEST_LOGARITHM else tries[:1]:
        values = np.expm1(X) if logged else X
        units = np.where(values > 0.0, values, np.inf).min(axis=1, keepdims=True)
        units = np.where(np.isinf(units), 1.0, units) if rowwise else units.min(keepdims=True)
        counts = values / units
        whole = np.round(counts)
        if (np.abs(counts - whole) > _ROUNDING * np.maximum(whole, 1.0)).any():
            continue
        by_column = np.nansum(whole, axis=0)
        one_column = by_column.max() > _LARGEST_SHARE * by_column.sum()
        if one_column or np.nanmax(whole) <= _MOST_LEVELS or not _least_is_commonest(whole):
            return None
        what = "logarithms of counts" if logged else "counts"
        what += " brought to a common total," if rowwise else ""
        words = f"{what} in {X.shape[1]} columns"
        return Counted(whole, units, logged, words)
    return None


def expected_counts(counts: Matrix) -> Matrix:
    """Return what the sums of rows and columns let expect of counts with gaps.

    By turns, the sums of rows and of columns at a common total are what their known counts say: the
    maximum of the likelihood of independent Poisson variables.
    """
    known = ~np.isnan(counts)
    seen = np.where(known, counts, 0.0)
    rows, columns = seen.sum(axis=1), np.ones(counts.shape[1])
    for _ in range(_TURNS):
        columns = seen.sum(axis=0) / np.maximum(rows @ known, _NOTHING)
        rows = seen.sum(axis=1) / np.maximum(known @ columns, _NOTHING)
    return np.asarray(rows[:, None] * columns)
