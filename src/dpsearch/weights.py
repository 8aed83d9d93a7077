"""Rows with weights: how many times each was seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import ArrayLike, Ints
from dpsearch.errors import DataError

# Beyond, log-gamma functions of the counts lose the digits that decide.
_MOST_POINTS = 2**40
# Copies that are made at most where rows must be repeated, unless there are more rows.
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
    """Return each row's number as often as its weight says; of very many, an even choice.

    >>> copies_of(np.array([1, 2])).tolist()
    [0, 1, 1]
    """
    total = int(weights.sum())
    size = min(total, max(_MOST_COPIES, len(weights)))
    # The middle of each of `size` equal parts of the copies, counted through all rows.
    copies = ((np.arange(size) + 0.5) * (total / size)).astype(np.int64)
    return np.searchsorted(np.cumsum(weights), copies, side="right")


def with_what_they_lack(copies: Ints, X: Any) -> Ints:
    """Return the copies, and once each some rows that hold what no copy does.

    Which family suits a table, and how many levels its columns have, a single row may decide: by a
    gap, by a number that is not whole, or by the least or the largest value.  Of each column one
    row is enough for each of these; of plain numbers, which the copies show to be such, none.
    """
    if sp.issparse(X):  # all columns are of one kind, and have no gaps
        stored = sp.coo_matrix(X)
        chosen = [] if not stored.nnz else _telling(stored.data, np.isin(stored.row, copies))
        rows = [stored.row[at] for at in chosen]
    else:
        among = np.zeros(X.shape[0], bool)
        among[copies] = True
        rows = [row for column in X.T for row in _telling(column, among)]
    return np.sort(np.append(copies, np.setdiff1d(rows, copies).astype(np.int64)))


def _telling(values: Any, among: Any) -> list[int]:
    """Places of values that tell what those among the copies do not."""
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
        broken = rest != np.floor(rest)
        news = [broken & whole.all(), rest < least, rest > most]
        order = [broken.argmax(), rest.argmin(), rest.argmax()]
        out += [int(seen[at]) for new, at in zip(news, order, strict=True) if new.any()]
    return out
