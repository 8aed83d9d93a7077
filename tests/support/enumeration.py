"""The enumeration of all partitions, as an oracle for all searches."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dpsearch.items import log_marginals
from dpsearch.partition import all_partitions
from dpsearch.problem import Problem


@cache
def partitions(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (labels [B, n], blocks [B, n] as bit masks padded with 0) of all partitions."""
    labels = np.array(list(all_partitions(n)))
    blocks = np.zeros_like(labels)
    for k in range(n):
        blocks[:, k] = ((labels == k) * (1 << np.arange(n))).sum(axis=1)
    return labels, blocks


def log_joints(problem: Problem) -> np.ndarray:
    """Return the log joint of every partition, in the order of `partitions`."""
    n = problem.n_items
    _, blocks = partitions(n)
    sizes = np.array([mask.bit_count() for mask in range(1 << n)])
    block = np.zeros(1 << n)
    for mask in range(1, 1 << n):
        # Points outside the block share a second cluster, which is not looked at.
        labels = np.array([0 if mask >> i & 1 else 1 for i in range(n)])
        pool, _ = problem.model.rows(problem.items, labels, 2)
        block[mask] = log_marginals(problem.model.core, pool, 1)[0]
    tables = problem.tables
    value = block[blocks].sum(axis=1) + tables.log_w[sizes[blocks]].sum(axis=1)
    value += tables.log_v[(blocks > 0).sum(axis=1)] + problem.log_base
    if tables.multiplicity:
        for b, row in enumerate(blocks):
            _, counts = np.unique(sizes[row[row > 0]], return_counts=True)
            value[b] -= sum(np.log(np.arange(1, count + 1)).sum() for count in counts)
    return value


def best(problem: Problem) -> float:
    return float(log_joints(problem).max())


def seeds(every: range, quick: int) -> list:
    """Return random seeds as parameters of a test, those after the first `quick` marked slow."""
    return [*every[:quick], *(pytest.param(s, marks=pytest.mark.slow) for s in every[quick:])]
