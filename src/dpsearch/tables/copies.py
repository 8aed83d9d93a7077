"""Columns that say the same as another: equal ones, and the same levels under other names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsearch._types import Vector

_LOOKED_AT = 10_000  # rows by which columns are compared first
_SOME = 20  # rows from which on columns are not alike by chance


def copies(vectors: Sequence[Vector], most_levels: int) -> dict[int, int]:
    """Return which columns are copies, and of which before them."""
    seen: dict[bytes, int] = {}
    out = {}
    for j, own in enumerate(vectors):
        if len(own) < _SOME:
            continue
        first = seen.setdefault(_key(own[:_LOOKED_AT], most_levels), j)
        if first != j and _key(vectors[first], most_levels) == _key(own, most_levels):
            out[j] = first
    return out


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
