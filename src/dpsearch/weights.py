"""Weights of rows: how many times each was observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import ArrayLike, Ints
from dpsearch.errors import DataError

# Log-gamma functions of larger counts lose the digits that decide.
_MOST_POINTS = 2**40
# The most copies where rows must be repeated, unless there are more rows.
_MOST_COPIES = 5000


def check_weights(
    weights: ArrayLike, n_rows: int, name: str = "sample_weight", least: int = 0
) -> Ints:
    """Return weights as integers ≥ `least`, one for each row and not all of them zero."""
    try:
        array = np.asarray(weights)
        numbers = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be one integer ≥ {least} for each row: {error}") from error
    if array.shape != (n_rows,):
        raise DataError(f"{name} has shape {array.shape}, but X has {n_rows} rows")
    if array.dtype.kind not in "biufO":
        raise DataError(f"{name} must be integers, got {array.dtype} values")
    counts = (numbers >= least) & (numbers == np.floor(numbers)) & (numbers < np.inf)
    bad = np.flatnonzero(~counts)
    if len(bad):
        raise DataError(
            f"{name}[{bad[0]}] is {numbers[bad[0]]:g}: a weight is how many times the row was seen,"
            f" an integer ≥ {least}.  A partition divides points, and has no probability for parts"
            " of them"
        )
    total = numbers.sum()
    if total == 0.0:
        raise DataError(f"{name} is zero for every row: at least one weight must be above zero")
    if total > _MOST_POINTS:
        raise DataError(
            f"{name} adds up to {total:.3g} points, above {_MOST_POINTS:.3g}: divide the weights by"
            " a common factor, or fit a sample"
        )
    return numbers.astype(np.int64)


def copies_of(weights: Ints) -> Ints:
    """Return each row's index as often as its weight says; of too many, an even choice.

    >>> copies_of(np.array([1, 2])).tolist()
    [0, 1, 1]
    """
    total = int(weights.sum())
    size = min(total, max(_MOST_COPIES, len(weights)))
    # The middle of each of `size` equal parts of the copies, counted through all rows.
    copies = ((np.arange(size) + 0.5) * (total / size)).astype(np.int64)
    return np.searchsorted(np.cumsum(weights), copies, side="right")


def with_decisive_rows(copies: Ints, X: Any) -> Ints:
    """Return the copies and, once each, the decisive rows that they lack.

    A single row may decide which family suits a table and how many levels a column has: by a gap, a
    number that is not an integer, or the least or largest value.  For each column one row with each
    of these is added; none if the copies already show that the column holds real numbers.
    """
    if sp.issparse(X):  # all columns are of one kind, and have no gaps
        stored = sp.coo_matrix(X)
        chosen = [] if not stored.nnz else _decisive(stored.data, np.isin(stored.row, copies))
        rows = [stored.row[at] for at in chosen]
    else:
        among = np.zeros(X.shape[0], bool)
        among[copies] = True
        rows = [row for column in X.T for row in _decisive(column, among)]
    return np.sort(np.append(copies, np.setdiff1d(rows, copies).astype(np.int64)))


def _decisive(values: Any, among: Any) -> list[int]:
    """Return the positions of values of a column that show what the copies do not."""
    missing = np.isnan(values)
    out = [int(missing.argmax())] if missing.any() and not missing[among].any() else []
    known = values[among & ~missing]
    whole = known == np.floor(known)
    if len(known) and known.min() < known.max() and not (whole & (known >= 0.0)).all():
        return out
    seen = np.flatnonzero(~missing)
    if len(seen):
        rest = values[seen]
        least, most = known.min(initial=np.inf), known.max(initial=-np.inf)
        fractional = rest != np.floor(rest)
        news = [fractional & whole.all(), rest < least, rest > most]
        order = [fractional.argmax(), rest.argmin(), rest.argmax()]
        out += [int(seen[at]) for new, at in zip(news, order, strict=True) if new.any()]
    return out
