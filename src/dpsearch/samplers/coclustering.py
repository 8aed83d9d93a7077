"""How often two items share a cluster, over draws of the partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix


@kernel
def _share(mine, labels, out):  # type: ignore[no-untyped-def]
    """Count in out[r, c] the draws in which row r, with labels mine[:, r], is with column c."""
    n = labels.shape[1]
    counts = np.empty(n, np.uint32)
    for r in range(mine.shape[1]):  # outermost: one line of counts stays in the cache
        counts[:] = 0
        for d in range(labels.shape[0]):
            own = mine[d, r]
            others = labels[d]
            for c in range(n):
                counts[c] += others[c] == own
        for c in range(n):
            out[r, c] = counts[c]


def coclustering(labels: Any, rows: Ints, columns: Ints | None = None) -> Matrix:
    """Return the fraction of draws [draws, N] in which each row shares a cluster with each column.

    >>> coclustering(np.array([[0, 0, 1], [0, 1, 1]], np.uint8), np.arange(3))[0]
    array([1. , 0.5, 0. ])
    """
    mine = np.ascontiguousarray(labels[:, rows])
    others = labels if columns is None else labels[:, columns]
    out = np.empty((len(rows), others.shape[1]))
    _share(mine, np.ascontiguousarray(others), out)
    return out / len(labels)


def coclustering_blocks(labels: Any, size: int) -> Iterator[tuple[Ints, Matrix]]:
    """Yield (row numbers, their lines of the N × N matrix), `size` lines at a time."""
    n = labels.shape[1]
    for begin in range(0, n, size):
        rows = np.arange(begin, min(n, begin + size))
        yield rows, coclustering(labels, rows)
