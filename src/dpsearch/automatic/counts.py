"""Counts and their logarithms, recognised by their values.

Values are counts of events if all are whole multiples of the smallest above 0, which is the
commonest of them: in images and ratings it is not.  They are logarithms of counts if exp(x) − 1 is
such, and logarithms of counts that were brought to a common total if it is so row by row.

The columns of such a table share a unit: what varies more says more, and dividing each column by
its own deviation would raise the noise of rare events to the level of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch.families import ProjectedGaussian
from dpsearch.families._columns import varies

_AT_ONCE = 1 << 20  # numbers
_WITH_ZERO = 0.75  # the share of columns with a 0, at least
_MOST_LEVELS = 12  # answers and ratings have no more
_LARGEST_SHARE = 0.5  # of one column among all counts, at most
_LARGEST_LOGARITHM = 30.0
_ROUNDING = 1e-3  # of multiples, relative: logarithms may be in single precision


def is_counts(values: Any) -> bool:
    """Whether all values are whole numbers of at least 0."""
    flat = values.reshape(-1)
    parts = (flat[at : at + _AT_ONCE] for at in range(0, len(flat), _AT_ONCE))
    return all(bool((part >= 0).all() and (part == np.floor(part)).all()) for part in parts)


def is_mostly_zero(X: Any) -> bool:
    """Whether counts look like words in documents: rare, and seldom more than one."""
    return 0 < np.count_nonzero(X) <= 0.5 * X.size and _least_is_commonest(X)


def _least_is_commonest(X: Any) -> bool:
    times = np.unique(X[X > 0.0], return_counts=True)[1]
    return bool(times.argmax() == 0)


def wide_counts(X: Any) -> tuple[ProjectedGaussian, str] | None:
    """Return a family for a wide table of counts or their logarithms, and words; None for others.

    No column may have most of the counts: that would be another kind of number.
    """
    changing = varies(X)
    if (
        not changing.any()
        or X.min() < 0.0
        or (X[:, changing] == 0.0).any(axis=0).mean() < _WITH_ZERO
    ):
        return None
    width, small = X.shape[1], X.max() < _LARGEST_LOGARITHM
    tries = [(False, False), (True, False), (True, True)]
    for logged, rowwise in tries if small else tries[:1]:
        counts = np.expm1(X) if logged else X
        units = np.where(counts > 0.0, counts, np.inf).min(axis=1, keepdims=True)
        counts = counts / np.where(np.isinf(units), 1.0, units) if rowwise else counts / units.min()
        whole = np.round(counts)
        if (np.abs(counts - whole) > _ROUNDING * np.maximum(whole, 1.0)).any():
            continue
        by_column = whole.sum(axis=0)
        few = whole.max() <= _MOST_LEVELS or by_column.max() > _LARGEST_SHARE * by_column.sum()
        if few or not _least_is_commonest(whole):
            return None
        what = "logarithms of counts" if logged else "counts"
        what += " brought to a common total," if rowwise else ""
        words = f"{what} in {width} columns, as logarithms of shares of their row's total"
        total = float(np.median(whole.sum(axis=1)))
        found = ProjectedGaussian.of_one_unit(X, max(total, 1.0), logged)
        given = float(np.median(np.expm1(X).sum(axis=1))) if rowwise else None
        return found.with_parameters(given_total=given), words
    return None
