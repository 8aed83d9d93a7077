"""How often two items share a cluster, over draws of the partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix


@kernel
def _share(labels, rows, columns, out):  # type: ignore[no-untyped-def]
    """Add to out[r, c] the number of draws in which rows[r] and columns[c] are together."""
    for d in range(labels.shape[0]):
        for r in range(rows.shape[0]):
            mine = labels[d, rows[r]]
            for c in range(columns.shape[0]):
                out[r, c] += labels[d, columns[c]] == mine


def coclustering(labels: Any, rows: Ints, columns: Ints) -> Matrix:
    """Return the fraction of draws [draws, N] in which each row shares a cluster with each column.

    >>> coclustering(np.array([[0, 0, 1], [0, 1, 1]]), np.arange(3), np.arange(3))[0]
    array([1. , 0.5, 0. ])
    """
    out = np.zeros((len(rows), len(columns)))
    _share(np.ascontiguousarray(labels, dtype=np.int32), rows, columns, out)
    return out / len(labels)


def coclustering_blocks(labels: Any, size: int) -> Iterator[tuple[Ints, Matrix]]:
    """Yield (row numbers, their lines of the N × N matrix), `size` lines at a time."""
    n = labels.shape[1]
    wide = np.ascontiguousarray(labels, dtype=np.int32)
    for begin in range(0, n, size):
        rows = np.arange(begin, min(n, begin + size))
        yield rows, coclustering(wide, rows, np.arange(n))
