"""Prices around a solution of the master problem: a first guess, and its repair.

If a partition with clusters C_k is best and the set-partitioning LP has no gap, then some prices
with y(C_k) = log w(C_k) for every k prove it.  A first guess y⁰ shares out each cluster's weight by
how well its points fit.  The sets S that break it become *cuts*, and the repair solves

    min ½|y − y⁰|² + ½ρ Σ_S (m − slack_S)₊²     with y(C_k) = log w(C_k),  slack_S ≥ 0,

where slack_S = y(S) − log w(S).  The second term favours a margin m, so that the prices mostly pay
in advance for the next sets, which are neighbours of the known ones.  Prices that stay near the
first guess settle in few rounds, while extreme solutions of the LP jump from corner to corner and
take hundreds.

The equalities are projected out, and the dual is solved by coordinate ascent (Hildreth 1957).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._clock import clock
from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.exact.triples import membership

_STIFFNESS = 0.1  # ρ
_WORK = 300_000_000  # products in one call of the kernel


class Repair:
    """The cuts known so far, and the prices nearest to the first guess that pay for them."""

    def __init__(self, first: Vector, equal: list[Ints], weights: Vector) -> None:
        n = len(first)
        # Overlaps of sets are integers, exact in single precision.
        self._equal = _rows(equal, n)
        inverse = np.linalg.pinv(_overlaps(self._equal, self._equal).astype(np.float64))
        self._inverse: Matrix = np.asarray(inverse, dtype=np.float64)
        lack = weights - self._equal @ first
        self.first: Vector = first + (self._inverse @ lack) @ self._equal
        self._rows = np.zeros((0, n), np.float32)
        self._parts = np.zeros((0, len(equal)), np.float32)  # overlaps with the equal sets
        self._gram: Matrix = np.zeros((0, 0))
        self._excess: Vector = np.zeros(0)  # log w(S) − y⁰(S)
        self._hard: Vector = np.zeros(0)
        self._soft: Vector = np.zeros(0)

    def add(self, columns: list[Ints], weights: Vector) -> None:
        """Add cuts."""
        rows = _rows(columns, self._rows.shape[1])
        parts = _overlaps(rows, self._equal)
        self._rows = np.concatenate([self._rows, rows])
        self._parts = np.concatenate([self._parts, parts])
        self._excess = np.concatenate([self._excess, weights - rows @ self.first])
        self._hard = np.concatenate([self._hard, np.zeros(len(columns))])
        self._soft = np.concatenate([self._soft, np.zeros(len(columns))])
        overlap = _overlaps(self._rows, rows).astype(np.float64)
        overlap -= self._parts @ (self._inverse @ parts.T)
        old = len(self._gram)
        gram = np.empty((len(self._rows), len(self._rows)))
        gram[:old, :old] = self._gram
        gram[:, old:] = overlap
        gram[old:] = overlap.T
        self._gram = gram

    def solve(
        self, margin: float, *, sweeps: int, tolerance: float, deadline: float
    ) -> tuple[Vector, float]:
        """Return prices, and by how much the weight of the worst cut exceeds its price."""
        hard, soft = self._hard, self._soft
        at_a_time = max(1, _WORK // (len(hard) ** 2 + 1))
        short = np.inf
        while sweeps > 0 and short > tolerance:
            short = _hildreth(
                self._gram, self._excess, hard, soft, margin, _STIFFNESS, min(sweeps, at_a_time),
                tolerance,
            )  # fmt: skip
            sweeps -= at_a_time
            if clock() > deadline:
                break
        pull = hard + soft
        active = np.flatnonzero(pull)
        moved = pull[active] @ self._rows[active]
        moved -= (self._inverse @ (self._equal @ moved)) @ self._equal
        return self.first + moved, float(short)


def _rows(columns: list[Ints], n: int) -> Any:
    return np.ascontiguousarray(membership(columns, n).T, dtype=np.float32)


def _overlaps(rows: Any, others: Any) -> Any:
    """Return how many points each of these sets shares with each of the others.

    Products of zeros and ones cannot be invalid, but single-precision BLAS kernels have been seen
    to raise that floating-point flag on small matrices.
    """
    with np.errstate(invalid="ignore"):
        return rows @ others.T


@kernel
def _hildreth(gram, excess, hard, soft, margin, stiffness, sweeps, tolerance):  # type: ignore[no-untyped-def]
    """Ascend in the multipliers in place; return the largest violation of a cut."""
    n = excess.shape[0]
    paid = np.zeros(n)
    for s in range(n):
        pull = hard[s] + soft[s]
        if pull != 0.0:
            for k in range(n):
                paid[k] += pull * gram[s, k]
    short = np.inf
    for _ in range(sweeps):
        short = 0.0
        for s in range(n):
            own = gram[s, s]
            if own < 1e-9:  # a union of tight sets, whose price is fixed by the equalities
                short = max(short, excess[s])
                continue
            lack = excess[s] - paid[s]
            short = max(short, lack)
            step = max(-hard[s], lack / own)
            hard[s] += step
            lack += margin - soft[s] / stiffness - step * own
            give = max(-soft[s], lack / (own + 1.0 / stiffness))
            soft[s] += give
            change = step + give
            if change != 0.0:
                for k in range(n):
                    paid[k] += change * gram[s, k]
        if short <= tolerance:
            break
    return short
