"""Regions of statistics: where the totals of a cluster may lie, and the corners that enclose them.

A *box* has a range n₁ … n₂ of sizes and ranges of what a cluster's rows have on average: for each
term (`dpsearch.families.terms`) the share ρ of rows that have values if it is counted, the means m
of its D values, and if it has squares the variances and covariances V.

Let m = m₀ + δ, |δ_i| ≤ h_i.  In features about m₀, z − m₀ and their products, the averages of a
cluster are linear functions of its totals.  They are (δ, V + δδᵀ), and in each column i

    v₁ + δ² ≤ V'_ii ≤ v₂ + h²,

above a parabola, hence above its tangents at −h, 0 and h: six corners enclose the region.  Off the
diagonal V'_ij lies within h_i h_j of V_ij.  A share ρ and a size n stretch the region from the
origin: a cone, convex again, with the corners at both ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Matrix
from dpsearch.families.terms import Term


class Shape(NamedTuple):
    """The points of a region of one term: its centre, two on each axis, and its corners.

    A point has δ = h·`along`, V' = middle + half·`across` + h_i h_j·`curve`, and ρ = middle +
    half·`share`.
    """

    n_values: int
    squares: bool
    counted: bool
    along: Matrix  # [point, D]
    across: Matrix  # [point, D(D + 1)/2], or none
    curve: Matrix
    share: Matrix  # [point, 1] or none

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return int(self.along.shape[1] + self.across.shape[1] + self.share.shape[1])

    def points(self, low: Matrix, high: Matrix) -> tuple[Any, Any, Matrix]:
        """Return averages about m₀ and about 0 [box, point, coordinate], and m₀ [box, D].

        `low` and `high` are the sides of the boxes [box, coordinate].
        """
        c, d = int(self.counted), self.n_values
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        m, h = middle[:, c : c + d], half[:, c : c + d]
        near = [h[:, None] * self.along]
        far = [near[0] + m[:, None]]
        if self.squares:
            i, j = np.tril_indices(d)
            v, w, hh = middle[:, c + d :], half[:, c + d :], h[:, i] * h[:, j]
            near.append(v[:, None] + w[:, None] * self.across + hh[:, None] * self.curve)
            shift = far[0][:, :, i] * m[:, None, j] + m[:, None, i] * near[0][:, :, j]
            far.append(near[1] + shift)
        if self.counted:
            share = middle[:, None, :1] + half[:, None, :1] * self.share
            near = [share, *(share * one for one in near)]
            far = [share, *(share * one for one in far)]
        return np.concatenate(near, axis=2), np.concatenate(far, axis=2), m

    def extents(self, low: Matrix, high: Matrix) -> Matrix:
        """Return how far the averages about m₀ reach in each coordinate."""
        c, d = int(self.counted), self.n_values
        out = 0.5 * (high - low)
        if self.squares:
            i, j = np.tril_indices(d)
            h = out[:, c : c + d]
            out[:, c + d :] += h[:, i] * h[:, j]
        return out

    def outside(self, half: Matrix) -> Matrix:
        """Return how far corners may lie outside of the domain by the width of each coordinate."""
        c, d = int(self.counted), self.n_values
        out = np.where(np.arange(half.shape[1]) < c, 0.0, half)
        if self.squares:
            out[:, c : c + d] **= 2
            if d == 1:
                out[:, c + d :] = 0.0
        return np.asarray(out)

    def about(self, weights: Matrix, m: Matrix) -> Matrix:
        """Return a gradient by averages about 0 as one by averages about m₀."""
        c, d = int(self.counted), self.n_values
        out = weights.copy()
        if self.squares:
            i, j = np.tril_indices(d)
            for k, (a, b) in enumerate(zip(i, j, strict=True)):
                out[:, c + a] += weights[:, c + d + k] * m[:, b]
                out[:, c + b] += weights[:, c + d + k] * m[:, a]
                if c:
                    out[:, 0] += weights[:, c + d + k] * m[:, a] * m[:, b]
        if c:
            out[:, 0] += (weights[:, c : c + d] * m).sum(axis=1)
        return out


def shape_of(term: Term) -> Shape:
    """Return the points of a region of the term."""
    d = term.n_values
    i, j = np.tril_indices(d) if term.squares else (np.zeros(0, int), np.zeros(0, int))
    q = len(i)
    rows: list[tuple[Any, Any, Any, float]] = [(np.zeros(d), np.zeros(q), np.zeros(q), 0.0)]
    if term.counted:
        rows += [(np.zeros(d), np.zeros(q), np.zeros(q), side) for side in (-1.0, 1.0)]
    for k, side in itertools.product(range(d), (-1.0, 1.0)):
        on = (np.arange(d) == k).astype(float)
        rows.append((side * on, np.zeros(q), on[i] * on[j], 0.0))
    for k, side in itertools.product(range(q), (-1.0, 1.0)):
        rows.append((np.zeros(d), side * (np.arange(q) == k), np.zeros(q), 0.0))
    shares = (-1.0, 1.0) if term.counted else (0.0,)
    rows += [(*corner, side) for corner in _corners(term, i, j) for side in shares]
    along, across, curve, share = (np.array(one, dtype=float) for one in zip(*rows, strict=True))
    n = len(rows)
    return Shape(
        d, term.squares, term.counted, along, across.reshape(n, q), curve.reshape(n, q),
        share[:, None] if term.counted else np.zeros((n, 0)),
    )  # fmt: skip


def _corners(term: Term, i: Ints, j: Ints) -> Iterator[tuple[Any, Any, Any]]:
    """Yield `along`, `across` and `curve` of the corners."""
    if not term.squares:
        for along in itertools.product((-1.0, 1.0), repeat=term.n_values):
            yield np.array(along), np.zeros(0), np.zeros(0)
        return
    column = [(s, t, 1.0) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
    column += [(-0.5, -1.0, 0.0), (0.5, -1.0, 0.0)]
    for of_columns in itertools.product(column, repeat=term.n_values):
        along, across_own, curve_own = np.array(of_columns).T
        for signs in itertools.product((-1.0, 1.0), repeat=int((i != j).sum())):
            across, curve = np.zeros(len(i)), np.zeros(len(i))
            across[i == j], curve[i == j] = across_own, curve_own
            across[i != j] = curve[i != j] = signs
            yield along, across, curve


class Limits(NamedTuple):
    """What points allow: means between those of the n smallest and of the n largest values."""

    least: Matrix  # [n, value of a term]: the mean of the n smallest
    most: Matrix

    @classmethod
    def of(cls, values: Matrix) -> Limits:
        """Return the limits of values [point, value]; those of size 0 are not used."""
        n = np.arange(1, len(values) + 1)[:, None]
        up = np.sort(values, axis=0)
        least, most = np.cumsum(up, axis=0) / n, np.cumsum(up[::-1], axis=0) / n
        slack = 1e-12 * (1.0 + np.abs(values).max(axis=0))
        return cls(np.vstack([least[:1], least]) - slack, np.vstack([most[:1], most]) + slack)


def shrink(shape: Shape, limits: Limits, n_low: Ints, low: Matrix, high: Matrix, at: slice) -> Any:
    """Shrink boxes of one term, in place, to what sets of `n_low` points and more can have.

    Returns which boxes are not empty.  By Bhatia and Davis (2000) a variance is at most
    (largest − mean)(mean − smallest).
    """
    c, d = int(shape.counted), shape.n_values
    if shape.counted:  # any number of its rows may have values
        n_low = np.ones_like(n_low)
    m = slice(c, c + d)
    low[:, m] = np.maximum(low[:, m], limits.least[n_low, at])
    high[:, m] = np.minimum(high[:, m], limits.most[n_low, at])
    alive = (low[:, m] <= high[:, m]).all(axis=1)
    if shape.squares:
        first, last = limits.least[1, at], limits.most[1, at]
        best = np.clip(0.5 * (first + last), low[:, m], high[:, m])
        most = np.maximum((last - best) * (best - first), 0.0)
        i, j = np.tril_indices(d)
        covariance = np.sqrt(most[:, i] * most[:, j]) * (1.0 + 1e-12) + 1e-15
        v = slice(c + d, None)
        high[:, v] = np.minimum(high[:, v], covariance)
        low[:, v] = np.maximum(low[:, v], np.where(i == j, 0.0, -covariance))
        alive &= (low[:, v] <= high[:, v]).all(axis=1)
    return alive
