"""Summaries of draws: co-clustering probabilities, and a point estimate of the partition.

The point estimate minimises the expected Binder loss or variation of information.  Both losses
between partitions a and b of N items are, up to a factor,

    L(a, b) = Σ_k f(|a_k|) + Σ_l f(|b_l|) − 2 Σ_kl f(|a_k ∩ b_l|)

with f(n) = n² for Binder's loss, the number of ordered pairs on which they disagree (Binder 1978;
Dahl 2006 calls its minimiser over the draws the least-squares clustering), and f(n) = n log₂ n
for N times the variation of information (Meilă 2007; Wade & Ghahramani 2018).  The expectation
over draws is computed exactly from contingency tables, without an N × N matrix.

The best of the draws is found first.  Then items move one by one to the cluster where the expected
loss falls most, until no move lowers it (as in Rastelli & Friel 2018; Dahl et al. 2022).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import ParameterError
from dpsearch.partition import by_size

LOSSES = ("binder", "vi")
_MOST_SWEEPS = 50
_MOST_NUMBERS = 100_000_000


def evenly_spaced(n: int, most: int) -> Ints:
    """Return the integers 0 … n − 1, or `most` of them, evenly spaced."""
    return np.linspace(0, n - 1, min(most, n)).round().astype(np.int64)


def coclustering(labels: Any, rows: Ints, columns: Ints) -> Matrix:
    """Return the fraction of draws [draws, N] in which each row shares a cluster with each column.

    >>> coclustering(np.array([[0, 0, 1], [0, 1, 1]], np.uint8), np.array([0]), np.arange(3))
    array([[1. , 0.5, 0. ]])
    """
    out = np.empty((len(rows), len(columns)))
    _share(np.ascontiguousarray(labels[:, rows]), np.ascontiguousarray(labels[:, columns]), out)
    return out / len(labels)


@kernel
def _share(mine, labels, out):  # type: ignore[no-untyped-def]
    """Count in out[r, c] the draws in which row r, with labels mine[:, r], is with column c."""
    n = labels.shape[1]
    counts = np.empty(n, np.uint32)
    for r in range(mine.shape[1]):  # the outer loop, so that one line of counts stays in the cache
        counts[:] = 0
        for d in range(labels.shape[0]):
            own = mine[d, r]
            others = labels[d]
            for c in range(n):
                counts[c] += others[c] == own
        for c in range(n):
            out[r, c] = counts[c]


def loss_function(loss: str, n: int) -> Vector:
    """Return f(0 … n)."""
    sizes = np.arange(n + 1, dtype=np.float64)
    if loss == "binder":
        return sizes**2
    if loss == "vi":
        return sizes * np.log2(np.maximum(sizes, 1.0))
    raise ParameterError(f"unknown loss {loss!r}: known are {', '.join(LOSSES)}")


def expected_loss(labels: Labels, draws: Any, loss: str) -> float:
    """Return the mean loss of a partition over draws: Binder's per pair, or VI in bits.

    >>> draws = np.array([[0, 0, 1, 1], [0, 0, 1, 1]])
    >>> expected_loss(np.array([1, 1, 0, 0]), draws, "vi")
    0.0
    >>> round(expected_loss(np.array([0, 0, 0, 0]), draws, "binder"), 3)
    0.667
    """
    n = draws.shape[1]
    wide = np.ascontiguousarray(draws, dtype=np.int64)
    total = _mean_loss(labels.astype(np.int64), wide, loss_function(loss, n))
    return float(total / (n if loss == "vi" else max(n * (n - 1), 1)))


def point_estimate(draws: Any, loss: str, most: int) -> Labels:
    """Return the best partition found, labelled by size, from at most `most` of the draws."""
    f = loss_function(loss, draws.shape[1])
    widest = int(draws.max()) + 2
    most = max(10, min(most, _MOST_NUMBERS // widest**2))  # contingency tables are kept
    wide = np.ascontiguousarray(draws[evenly_spaced(len(draws), most)], dtype=np.int64)
    candidates = np.unique(wide, axis=0)
    losses = [_mean_loss(candidate, wide, f) for candidate in candidates]
    best = candidates[int(np.argmin(losses))].copy()
    _descend(best, wide, f, _MOST_SWEEPS)
    return by_size(best)


@kernel
def _mean_loss(labels, draws, f):  # type: ignore[no-untyped-def]
    n = labels.shape[0]
    n_own = labels.max() + 1
    sizes = np.zeros(n_own, np.int64)
    for i in range(n):
        sizes[labels[i]] += 1
    own = 0.0
    for k in range(n_own):
        own += f[sizes[k]]
    total = 0.0
    for d in range(draws.shape[0]):
        theirs = draws[d]
        n_theirs = theirs.max() + 1
        table = np.zeros((n_own, n_theirs), np.int64)
        for i in range(n):
            table[labels[i], theirs[i]] += 1
        for k in range(n_own):
            for j in range(n_theirs):
                total -= 2.0 * f[table[k, j]]
        for j in range(n_theirs):
            total += f[table[:, j].sum()]
    return own + total / draws.shape[0]


@kernel
def _descend(labels, draws, f, most_sweeps):  # type: ignore[no-untyped-def]
    """Move items one by one while the expected loss falls; labels change in place."""
    n = labels.shape[0]
    n_draws = draws.shape[0]
    by_item = draws.T.copy()
    # Space for one cluster more than any draw has.
    capacity = max(labels.max(), draws.max()) + 2
    sizes = np.zeros(capacity, np.int64)
    tables = np.zeros((n_draws, draws.max() + 1, capacity), np.int32)
    for i in range(n):
        sizes[labels[i]] += 1
        for d in range(n_draws):
            tables[d, by_item[i, d], labels[i]] += 1
    gain = np.empty(capacity)
    for _ in range(most_sweeps):
        moved = False
        for i in range(n):
            old = labels[i]
            # Gain by joining each cluster after the item has been removed from its own.
            for k in range(capacity):
                m = sizes[k] - (k == old)
                gain[k] = f[m] - f[m + 1]
            for d in range(n_draws):
                row = tables[d, by_item[i, d]]
                for k in range(capacity):
                    m = row[k] - (k == old)
                    gain[k] += 2.0 * (f[m + 1] - f[m]) / n_draws
            best = old
            for k in range(capacity):
                if gain[k] > gain[best] + 1e-9:
                    best = k
            if best != old:
                moved = True
                labels[i] = best
                sizes[old] -= 1
                sizes[best] += 1
                for d in range(n_draws):
                    tables[d, by_item[i, d], old] -= 1
                    tables[d, by_item[i, d], best] += 1
        if not moved:
            return
