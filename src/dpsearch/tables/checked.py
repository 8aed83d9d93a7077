"""`CheckedTable`: a matrix of numbers that has been checked, so that it is checked only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dpsearch._types import ArrayLike, Ints
from dpsearch._validate import (
    column_names,
    has_gaps,
    read_matrix,
    readable,
    refuse_missing,
    refuse_sparse,
)

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CheckedTable:
    """A table of finite numbers and gaps, which `of` makes from an array or a frame.

    `Problem`, `Family.compile` and every function of rows of data accept it without another check.
    """

    matrix: Any  # float64 in which missing values are NaN, or a canonical CSR matrix
    names: tuple[str, ...] | None = None  # of the columns, if they have any
    complete: bool = False  # whether it is known that no value is missing
    # The matrix before values outside the model's support were taken as missing.
    observed: Any = None

    @classmethod
    def of(
        cls, X: ArrayLike | CheckedTable, *, accept_sparse: bool = True, gaps: bool = True
    ) -> CheckedTable:
        """Check X unless it is a checked table; the options allow sparse tables and gaps."""
        if not isinstance(X, CheckedTable):
            X = readable(X)
            matrix, complete = read_matrix(X, accept_sparse, gaps)
            names = column_names(X)
            return cls(matrix, None if names is None else tuple(names), complete)
        if X.sparse and not accept_sparse:
            refuse_sparse()
        if not gaps:
            X.require_complete()
        return X

    @cached_property
    def gaps(self) -> bool:
        """Whether values are missing."""
        return not self.complete and has_gaps(self.matrix)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        return {}

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return the result of `make`, which is called once for each key."""
        if key not in self._known:
            self._known[key] = make()
        found: T = self._known[key]
        return found

    @property
    def empty_rows(self) -> Any:
        """Which rows have no value at all."""
        if not self.gaps:
            return np.zeros(self.shape[0], bool)
        return np.isnan(self.matrix).all(axis=1)

    @property
    def sparse(self) -> bool:
        return bool(sp.issparse(self.matrix))

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_columns = self.matrix.shape
        return n_rows, n_columns

    @property
    def impossible(self) -> Any:
        """Which observed values are outside the model's support, and so taken as missing."""
        if self.observed is None:
            return np.zeros(self.shape, bool)
        return np.isnan(self.matrix) & ~np.isnan(self.observed)

    def require_complete(self) -> None:
        """Raise `DataError` if a value is missing."""
        if self.gaps:
            refuse_missing(self.matrix, None if self.names is None else list(self.names))

    def rows(self, which: Any) -> CheckedTable:
        """Return some rows, by index, slice or mask."""
        observed = None if self.observed is None else self.observed[which]
        return CheckedTable(self.matrix[which], self.names, not self.gaps, observed)

    def columns(self, which: Any) -> CheckedTable:
        """Return some columns, by index."""
        names = None if self.names is None else tuple(np.asarray(self.names, object)[which])
        return CheckedTable(self.matrix[:, which], names, not self.gaps)


def content_order(table: CheckedTable, weights: Ints | None = None) -> Ints:
    """Return the rows of a table in an order that depends on their content alone.

    The rows of a dense table are sorted by the first column, ties by the second, and so on, gaps
    last; this order does not depend on units.  Sparse rows are sorted by a random combination of
    their columns.  Equal rows are sorted by their weights, and then by position.
    """
    matrix = table.matrix
    if table.sparse:  # SciPy adds up each row by itself, so that equal rows have equal keys
        columns = [matrix @ np.random.default_rng(0).standard_normal(matrix.shape[1])]
    else:
        columns = list(matrix.T)
    if weights is not None:
        columns.append(weights)
    order = np.arange(table.shape[0])
    group = np.zeros(len(order), np.int64)  # where the rows begin that are equal so far, in order
    tied = order.copy()  # places in order whose rows are still tied with others
    for column in columns:
        if not len(tied):
            break
        rows = order[tied]
        values, first = column[rows], group[tied]
        by = np.lexsort((values, first))
        order[tied] = rows[by]
        here, before = values[by][1:], values[by][:-1]
        same = (here == before) | (np.isnan(here) & np.isnan(before))
        new = np.append(True, ~same | (first[1:] != first[:-1]))
        group[tied] = np.maximum.accumulate(np.where(new, tied, 0))
        tied = tied[~(new & np.append(new[1:], True))]
    return order
