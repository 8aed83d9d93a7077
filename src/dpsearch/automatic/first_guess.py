"""The class of the family for a table of one kind, by its values: the first step of the choice."""

from __future__ import annotations

import numpy as np

from dpsearch._numbers import count
from dpsearch.automatic.counts import are_documents, is_counts
from dpsearch.automatic.directions import n_dimensions
from dpsearch.errors import DataError
from dpsearch.families import (
    Bernoulli,
    DiagonalGaussian,
    FullGaussian,
    Multinomial,
    ProjectedGaussian,
    VonMisesFisher,
)
from dpsearch.families._columns import varies
from dpsearch.families.base import Family
from dpsearch.families.von_mises_fisher import are_directions
from dpsearch.tables import CheckedTable

WIDE = 32  # the most columns that are not projected
NARROW = 10  # the most columns that are taken as independent, not projected, if rows are few
_ROWS_A_COLUMN = 5  # that a full covariance needs
_ROUND = 0.7  # the least share of the dimensions that von Mises–Fisher clusters vary along
_FEW_ENTRIES = 0.1  # the largest share of values other than 0 in rows of words


def guess(table: CheckedTable) -> tuple[type[Family], str]:
    """Return the class of a family for a table, and the reason in words."""
    return table.cached("guess", lambda: _guess(table))


def of_length_1(table: CheckedTable) -> bool:
    return table.cached("directions", lambda: are_directions(table.matrix))


def _guess(table: CheckedTable) -> tuple[type[Family], str]:
    X, gaps = table.matrix, table.gaps
    if table.sparse:
        if not is_counts(X.data):
            if of_length_1(table):
                return VonMisesFisher, "a sparse table of rows of length 1"
            raise DataError(
                "X is sparse with values that are not counts, which families accept only if all"
                " rows have length 1: use sklearn.preprocessing.normalize(X) or X.toarray(), or"
                " reduce its columns first, for example with TruncatedSVD"
            )
        if X.nnz and X.data.max() <= 1.0:
            return Bernoulli, "a sparse table of zeros and ones"
        return Multinomial, "a sparse table of counts"
    seen = X[~np.isnan(X)] if gaps else X
    if seen.size and is_counts(seen) and X.shape[1] > 1:
        if seen.max() == 1.0:
            return Bernoulli, "all values are 0 or 1"
        if not gaps and are_documents(table, X.shape[1] > WIDE):
            return Multinomial, "counts, most of them 0 and most of the others 1"
    if gaps:
        return DiagonalGaussian, "numbers, with gaps that are skipped"
    return guess_gaussian(table)


def guess_gaussian(table: CheckedTable) -> tuple[type[Family], str]:
    """Return the class of a family for numbers without gaps, and the reason in words."""
    X = table.matrix
    n_rows, width = len(X), int(varies(X).sum())  # constant columns do not count
    if n_rows > 1 and of_length_1(table):
        reason = f"rows of length 1 in {X.shape[1]} columns"
        if np.count_nonzero(X) <= _FEW_ENTRIES * X.size:  # as for the same rows in a sparse table
            return VonMisesFisher, f"{reason}, most values 0"
        dimensions = n_dimensions(X) if width > WIDE else width
        if dimensions > _ROUND * width:
            return VonMisesFisher, reason
        return ProjectedGaussian, f"{reason}, which differ along {dimensions:.0f} dimensions"
    if rows_suffice(n_rows, width):
        return FullGaussian, f"numbers in {count(X.shape[1], 'column')}"
    if width == 1:
        return FullGaussian, "numbers in 1 column"
    reason = f"{width} columns are many" if width > WIDE else f"{n_rows} rows are few"
    kind = DiagonalGaussian if width <= NARROW else ProjectedGaussian
    return kind, f"numbers, and {reason} for a full covariance"


def rows_suffice(n_rows: int, width: int) -> bool:
    """Whether there are enough rows for a full covariance: as many as it has parameters."""
    needed = max(_ROWS_A_COLUMN * width, width * (width + 1) // 2)
    return width <= WIDE and n_rows >= needed
