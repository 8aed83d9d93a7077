"""Rows with weights: how many times each was seen."""

from __future__ import annotations

import numpy as np

from dpsearch._types import ArrayLike, Ints
from dpsearch.errors import DataError

# Beyond, log-gamma functions of the counts lose the digits that decide.
_MOST_POINTS = 2**40
# Up to so many copies are made where rows must be repeated, or as many as there are rows.
_MOST_COPIES = 5000


def check_weights(weights: ArrayLike, n_rows: int, name: str = "sample_weight") -> Ints:
    """Return weights as whole numbers ≥ 0, one for each row and not all of them zero."""
    try:
        array = np.asarray(weights)
        numbers = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be one whole number ≥ 0 for each row: {error}") from error
    if array.shape != (n_rows,):
        raise DataError(f"{name} has shape {array.shape}, but X has {n_rows} rows")
    if array.dtype.kind not in "biufO":
        raise DataError(f"{name} must be whole numbers, got {array.dtype} values")
    bad = np.flatnonzero(~((numbers >= 0.0) & (numbers == np.floor(numbers)) & (numbers < np.inf)))
    if len(bad):
        raise DataError(
            f"{name}[{bad[0]}] is {numbers[bad[0]]:g}: a weight is how many times the row was seen,"
            " a whole number ≥ 0.  A partition divides points, and has no probability for parts of"
            " them"
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
