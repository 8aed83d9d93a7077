"""Partitions: canonical labels, checks, and enumeration."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpsearch._types import ArrayLike, Labels
from dpsearch.errors import DataError


def by_size(labels: Labels) -> Labels:
    """Renumber clusters from the largest (0) to the smallest; ties are by first appearance.

    >>> by_size(np.array([7, 3, 3, 9]))
    array([1, 0, 0, 2])
    """
    dense = by_appearance(labels)
    order = np.argsort(-np.bincount(dense), kind="stable")
    return np.asarray(np.argsort(order)[dense])


def by_appearance(labels: ArrayLike) -> Labels:
    """Renumber clusters by first appearance: the restricted growth string of the partition.

    >>> by_appearance([5, 2, 5, 9])
    array([0, 1, 0, 2])
    """
    labels = np.asarray(labels)
    n = len(labels)
    if labels.dtype.kind in "iu" and n > 0 and labels.min() >= 0 and labels.max() < 2 * n:
        # Small labels need no sorting.  The last of several assignments to a label is kept.
        first = np.full(int(labels.max()) + 1, n)
        first[labels[::-1]] = np.arange(n - 1, -1, -1)
    else:
        _, first, labels = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first, kind="stable"))
    return np.asarray(rank[labels.reshape(-1)])


def check_labels(labels: ArrayLike, n_items: int) -> Labels:
    """Return labels as integers numbered by first appearance, or raise `DataError`."""
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise DataError(f"labels must be one integer or name for each row: {error}") from error
    if array.ndim != 1 or len(array) != n_items:
        raise DataError(f"labels have shape {array.shape}, but there are {n_items} rows of data")
    if array.dtype.kind == "O" and all(isinstance(name, str) for name in array):
        array = array.astype(str)  # pandas stores names as objects
    if array.dtype.kind not in "biufUS":
        raise DataError(f"labels must be integers or names, got {array.dtype} values")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"labels[{int(np.flatnonzero(~np.isfinite(array))[0])}] is not finite")
    return by_appearance(array)


def all_partitions(n: int) -> Iterator[Labels]:
    """Yield every partition of n points as a restricted growth string.

    >>> sum(1 for _ in all_partitions(5))
    52
    """
    labels = np.zeros(n, np.int64)
    largest = np.zeros(n, np.int64)  # largest label among the points before each one, plus 1
    if n == 0:
        return
    largest[1:] = 1
    while True:
        yield labels.copy()
        i = n - 1
        while i > 0 and labels[i] == largest[i]:
            i -= 1
        if i == 0:
            return
        labels[i] += 1
        labels[i + 1 :] = 0
        largest[i + 1 :] = max(largest[i], labels[i] + 1)
