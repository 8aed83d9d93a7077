"""Cells of a k-d tree, whose rows share responsibilities (Kurihara, Welling & Vlassis 2006).

If all n_A rows of a cell A have the same r_A, the best is

    r_Ak ∝ exp( E[log π_k] + ⟨w_k, mean of T(x) over A⟩ + c_k ),

so that a cell acts as one row, its mean features, that counts n_A times.  This restricts q, so the
bound remains a lower bound on the evidence.  Dividing a cell raises the bound by an amount known in
advance: Σ n_B log Z_B over its halves B minus n_A log Z_A, where Z is the sum of exp(score).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.families.linear import LinearForm
from dpsearch.mean_field.tables import InMemory
from dpsearch.passes import chunk
from dpsearch.passes.chunk import Own, Seeds, Soft
from dpsearch.passes.rows import blocks
from dpsearch.problem import Problem

_ROUNDS = 3  # rounds in which cells are divided, beginning with 2^-3 of the final number


class CellRows:
    """Rows in cells, which are consecutive parts of an ordering of all rows."""

    def __init__(self, form: LinearForm, matrix: Any, most: int) -> None:
        self.form, self.matrix, self.n_rows = form, matrix, matrix.shape[0]
        self.most = min(most, self.n_rows)
        self._order = np.arange(self.n_rows)
        overall = _variances(matrix)
        self._scale = np.divide(1.0, overall, out=np.zeros_like(overall), where=overall > 0.0)
        self._begins, self._ends = np.zeros(1, np.int64), np.full(1, self.n_rows)
        self._sums = self._sum(0, self.n_rows)[None]
        while len(self._begins) < self.most >> _ROUNDS:
            largest = np.argsort(-self.counts, kind="stable")[: self._room(self.most >> _ROUNDS)]
            self._replace(largest, *self._halved(largest))
        self._made()

    @property
    def counts(self) -> Ints:
        """[cells]: number of rows."""
        return self._ends - self._begins

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        self._last = weights, constants
        counts = self.counts.astype(np.float64)
        return chunk.soften(self._means, weights, constants, own, self._labels, counts)

    def draw(self, counts: Ints, seed: int) -> Seeds:
        """Draw cells of each component, as their means."""
        return chunk.draw(self._means, self._labels, 0, counts, seed)

    def labels(self) -> Labels:
        out = np.empty(self.n_rows, np.int64)
        out[self._order] = np.repeat(self._labels, self.counts)
        return out

    def refine(self) -> bool:
        """Divide the cells by which the bound gains most, at most doubling their number."""
        many = np.flatnonzero(self.counts > 1)
        if not self._room(self.most) or not len(many):
            return False
        weights, constants = self._last
        middles, sums = self._halved(many)
        first = sums / (middles - self._begins[many])[:, None]
        second = (self._sums[many] - sums) / (self._ends[many] - middles)[:, None]

        def normaliser(means: Matrix) -> Vector:
            return np.asarray(logsumexp(means @ weights.T + constants, axis=1))

        gains = (middles - self._begins[many]) * normaliser(first)
        gains += (self._ends[many] - middles) * normaliser(second)
        gains -= self.counts[many] * normaliser(self._means[many])
        best = np.argsort(-gains, kind="stable")[: self._room(self.most)]
        self._replace(many[best], middles[best], sums[best])
        self._made()
        return True

    def _room(self, most: int) -> int:
        return min(len(self._begins), most - len(self._begins))

    def _made(self) -> None:
        by_place = np.argsort(self._begins)
        self._begins, self._ends = self._begins[by_place], self._ends[by_place]
        self._sums = self._sums[by_place]
        self._means = self._sums / self.counts[:, None]
        self._labels = np.zeros(len(self._begins), np.int32)

    def _halved(self, which: Ints) -> tuple[Ints, Matrix]:
        """Reorder the rows of cells so that halves are contiguous; return middles and sums.

        The halves are on the two sides of the median of the column with the largest variance,
        relative to that of all rows.
        """
        middles = (self._begins[which] + self._ends[which]) // 2
        for begin, middle, end in zip(self._begins[which], middles, self._ends[which], strict=True):
            rows = self._order[begin:end]
            part = self.matrix[rows]
            column = part[:, [int(np.argmax(_variances(part) * self._scale))]]
            values = column.toarray() if sp.issparse(column) else np.nan_to_num(column)
            self._order[begin:end] = rows[np.argpartition(values.reshape(-1), middle - begin)]
        sums = [self._sum(a, b) for a, b in zip(self._begins[which], middles, strict=True)]
        return middles, np.array(sums)

    def _replace(self, which: Ints, middles: Ints, sums: Matrix) -> None:
        """Replace cells by their halves."""
        ends, rest = self._ends[which], self._sums[which] - sums
        self._ends[which], self._sums[which] = middles, sums
        self._begins = np.concatenate([self._begins, middles])
        self._ends = np.concatenate([self._ends, ends])
        self._sums = np.concatenate([self._sums, rest])

    def _sum(self, begin: int, end: int) -> Vector:
        """Return the sum of the features of rows at these positions of the ordering."""
        parts = blocks(self.form, self.matrix[self._order[begin:end]])
        total = np.zeros(self.form.n_totals)
        for features, _ in parts:
            total += np.asarray(features.sum(axis=0)).reshape(-1)
        return total


class InCells(InMemory):
    """The rows of a problem in at most `most` cells."""

    def __init__(self, problem: Problem, start: Any, n_threads: int, most: int) -> None:
        super().__init__(problem, start, n_threads, None)
        self._cells = CellRows(self.form, self.model.matrix, most)
        self.rows = self._cells  # type: ignore[assignment]

    def refine(self) -> bool:
        return self._cells.refine()


def _variances(matrix: Any) -> Vector:
    """Return the variance of each column, with missing values taken as 0."""
    if sp.issparse(matrix):
        mean = np.asarray(matrix.mean(axis=0)).reshape(-1)
        squares = np.asarray(matrix.multiply(matrix).mean(axis=0)).reshape(-1)
        return np.asarray(squares - mean**2)
    return np.asarray(np.nan_to_num(matrix).var(axis=0))
