"""An order of the rows of a table that depends on their content alone."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Ints
from dpsearch.tables.checked import CheckedTable


def content_order(table: CheckedTable, weights: Ints | None = None) -> Ints:
    """Return the rows of a table in an order that their content decides.

    The rows of a dense table are sorted by the first column, those that are equal there by the
    second, and so on, gaps last: an order that units do not change.  Sparse rows are sorted by a
    random combination of their columns.  Equal rows are sorted by their weights, and then by
    position.
    """
    matrix = table.matrix
    if table.sparse:  # SciPy adds up each row by itself, so that equal rows have equal keys
        columns = [matrix @ np.random.default_rng(0).standard_normal(matrix.shape[1])]
    else:
        columns = list(matrix.T)
    if weights is not None:
        columns.append(weights)
    order = np.arange(table.shape[0])
    group = np.zeros(len(order), np.int64)  # where rows that are equal so far begin, in order
    tied = order.copy()  # places in order whose rows are equal to others so far
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
