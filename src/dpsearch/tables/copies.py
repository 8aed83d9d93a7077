"""Columns that say the same as another: equal ones, and the same levels under other names."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from dpsearch._types import Vector

_LOOKED_AT = 10_000  # rows by which columns are compared first
_SOME = 20  # rows from which on columns are not alike by chance
_FEW = 0.05  # of the rows, in which columns that are nearly the same may differ
_GUESSED = 0.1  # of the mistakes that the most frequent level would make


def copies(
    vectors: Sequence[Vector], most_levels: int, parts: Set[int], cycles: Set[int]
) -> dict[int, int]:
    """Return which columns are copies, and of which others.

    A part of a date is the copy of a column of the table, wherever that stands.  Months, hours and
    weekdays are copies also if they agree in nearly all rows: two dates of one event do.  Other
    levels are not, as those of clear clusters agree too.
    """
    seen: dict[bytes, int] = {}
    out: dict[int, int] = {}
    for j in sorted(range(len(vectors)), key=lambda j: (j in parts, j)):
        own = vectors[j]
        if len(own) < _SOME:
            continue
        first = seen.setdefault(_key(own[:_LOOKED_AT], most_levels), j)
        if first != j and _key(vectors[first], most_levels) == _key(own, most_levels):
            out[j] = first
        elif j in cycles:
            kept = (k for k in seen.values() if k in cycles and k != j)
            first = next((k for k in kept if _nearly_same(vectors[k], own)), j)
            out |= {j: first} if first != j else {}
    return out


def _nearly_same(first: Vector, second: Vector) -> bool:
    """Whether either tells the other, but for few rows and few of those that are not alike."""
    rows, columns = (np.unique(v, return_inverse=True)[1] for v in (first, second))
    table = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    for both in (table, table.T):
        others = len(first) - both.max(axis=1).sum()
        if others > min(_FEW * len(first), _GUESSED * (len(first) - both.sum(axis=0).max())):
            return False
    return True


def _key(values: Vector, most_levels: int) -> bytes:
    """Return the same for columns that are equal, or equal but for the names of levels.

    The names do not matter where few of them repeat; any two columns are one to one in which no
    value does.
    """
    levels, first, codes = np.unique(values, return_index=True, return_inverse=True)
    if len(levels) > most_levels or 2 * len(levels) > len(values):
        return values.tobytes()
    rank = np.empty(len(levels), np.int64)
    rank[np.argsort(first)] = np.arange(len(levels))
    return rank[codes].astype(np.int8).tobytes()
