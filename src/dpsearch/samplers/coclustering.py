"""How often two items share a cluster, over draws of the partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix


@kernel
def _share(labels, rows, columns, out):  # type: ignore[no-untyped-def]
    """Count in out[r, c] the draws in which rows[r] and columns[c] are together."""
    counts = np.empty(columns.shape[0], np.uint32)
    for r in range(rows.shape[0]):  # outermost: one line of counts stays in the cache
        counts[:] = 0
        for d in range(labels.shape[0]):
            mine = labels[d, rows[r]]
            theirs = labels[d]
            for c in range(columns.shape[0]):
                counts[c] += theirs[columns[c]] == mine
        for c in range(columns.shape[0]):
            out[r, c] = counts[c]


@kernel
def _share_all(labels, rows, out):  # type: ignore[no-untyped-def]
    """The same with every item as a column, which the processor can take in strides."""
    n = labels.shape[1]
    counts = np.empty(n, np.uint32)
    for r in range(rows.shape[0]):
        counts[:] = 0
        for d in range(labels.shape[0]):
            mine = labels[d, rows[r]]
            theirs = labels[d]
            for c in range(n):
                counts[c] += theirs[c] == mine
        for c in range(n):
            out[r, c] = counts[c]


def coclustering(labels: Any, rows: Ints, columns: Ints | None = None) -> Matrix:
    """Return the fraction of draws [draws, N] in which each row shares a cluster with each column.

    >>> coclustering(np.array([[0, 0, 1], [0, 1, 1]], np.uint8), np.arange(3))[0]
    array([1. , 0.5, 0. ])
    """
    out = np.empty((len(rows), labels.shape[1] if columns is None else len(columns)))
    if columns is None:
        _share_all(labels, rows, out)
    else:
        _share(labels, rows, columns, out)
    return out / len(labels)


def coclustering_blocks(labels: Any, size: int) -> Iterator[tuple[Ints, Matrix]]:
    """Yield (row numbers, their lines of the N × N matrix), `size` lines at a time."""
    n = labels.shape[1]
    for begin in range(0, n, size):
        rows = np.arange(begin, min(n, begin + size))
        yield rows, coclustering(labels, rows)
