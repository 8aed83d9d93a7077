"""Columns that are copies of others: equal values, or the same levels under other names."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from dpsearch._types import Vector

_SAMPLED = 10_000  # rows on which columns are compared first
_SOME = 20  # the fewest rows in which columns do not agree by chance
_FEW = 0.05  # the largest share of rows in which near copies differ …
_GUESSED = 0.1  # … and of the rows that differ from the most frequent level


def copies(
    vectors: Sequence[Vector], most_levels: int, parts: Set[int], cycles: Set[int]
) -> dict[int, int]:
    """Return which columns are copies, and of which others.

    A part of a date is a copy of a column of the table even if that comes later.  Months, hours and
    weekdays are also copies if they agree in nearly all rows, like two dates of one event.  Other
    levels are not, since they agree as well if clusters are clear.
    """
    seen: dict[bytes, int] = {}
    out: dict[int, int] = {}
    for j in sorted(range(len(vectors)), key=lambda j: (j in parts, j)):
        own = vectors[j]
        if len(own) < _SOME:
            continue
        first = seen.setdefault(_key(own[:_SAMPLED], most_levels), j)
        if first != j and _key(vectors[first], most_levels) == _key(own, most_levels):
            out[j] = first
        elif j in cycles:
            kept = (k for k in seen.values() if k in cycles and k != j)
            first = next((k for k in kept if _nearly_same(vectors[k], own)), j)
            out |= {j: first} if first != j else {}
    return out


def _nearly_same(first: Vector, second: Vector) -> bool:
    """Whether each column's level determines the other's in all but a few rows.

    These must also be few of the rows that do not have the most frequent level.
    """
    rows, columns = (np.unique(v, return_inverse=True)[1] for v in (first, second))
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    for both in (table, table.T):
        others = len(first) - both.max(axis=1).sum()
        if others > min(_FEW * len(first), _GUESSED * (len(first) - both.sum(axis=0).max())):
            return False
    return True


def _key(values: Vector, most_levels: int) -> bytes:
    """Return a key that is the same for columns that are equal up to the names of levels.

    If few levels repeat, the names count: two columns in which no value repeats are always in
    one-to-one correspondence.
    """
    levels, first, codes = np.unique(values, return_index=True, return_inverse=True)
    if len(levels) > most_levels or 2 * len(levels) > len(values):
        return values.tobytes()
    rank = np.empty(len(levels), np.int64)
    rank[np.argsort(first)] = np.arange(len(levels))
    return rank[codes].astype(np.int8).tobytes()
