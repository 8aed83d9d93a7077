"""Regions of statistics: boxes for the totals of a cluster, and the corners that enclose them.

A *box* has a range n₁ … n₂ of sizes and ranges of averages over a cluster's rows: for each term
(`dpsearch.families.terms`) the share ρ of rows with values if the term is counted, the means m of
its D values, and, if it has squares of one value, the variance v; for squares of two values, with
a constant c > 0, the variance U = V₁₁ + c, the slope β = V₁₂/U and the rest v = V₂₂ − β²U ≥ 0.  In
these coordinates the determinant of a covariance matrix is a product, and boxes are aligned with
the curvature of log H.

Let m = m₀ + δ, |δ_i| ≤ h_i.  In features about m₀ the averages of a cluster are (δ, V + δδᵀ).  The
points (δ_i, δ_i²) lie on a parabola, hence in the polygon between its chord and its tangents at −h,
0 and h, which has four corners (p, q).  Each point is an average of corners; the products of the
weights of δ₁ and δ₂ are weights of the pairs of corners, whose average of (p₁, p₂, q₁, p₁p₂, q₂) is
(δ₁, δ₂, δ₁², δ₁δ₂, δ₂²), so that the pairs enclose it.  Likewise four corners enclose (β, β²), and
both ends enclose U; everything else is linear in these.  At the upper end of a variance only the
outer corners are needed.  The share ρ and the size n scale the region, which gives a cone: it is
convex again, with the corners at both ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Matrix, Vector
from dpsearch.families.terms import Term

_PARABOLA = ((-1.0, 1.0), (1.0, 1.0), (-0.5, 0.0), (0.5, 0.0))  # p and q for h = 1


class Points(NamedTuple):
    """Points of boxes of one term, as averages [box, point, coordinate].

    near
        About m₀, with β₀ times the first value subtracted from the second.
    far
        About 0.
    frame
        m₀ and β₀ [box, D + 1]; β₀ is 0 unless there are squares of two values.
    parts
        [box, coordinate]: the absolute values of the terms of `near`, where these cancel.
    """

    near: Any
    far: Any
    frame: Matrix
    parts: Matrix


class Shape(NamedTuple):
    """The points of a region of one term: its centre, two on each axis, and its corners.

    Each is given by its position in the box, from −1 to 1: `mean` and `square` are p and q of each
    value, `rest` the positions of the coordinates after the means, `slope` is q of β, and `share`
    the position of ρ.
    """

    n_values: int
    squares: bool
    counted: bool
    mean: Matrix  # [point, D]
    square: Matrix
    rest: Matrix  # [point, 0], [point, 1] or [point, 3]
    slope: Vector
    share: Vector
    least: float  # c

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return int(self.counted + self.n_values + self.rest.shape[1])

    @property
    def scales(self) -> Any:
        """Which coordinates are variances."""
        out = np.zeros(self.width, bool)
        if self.squares:
            out[[self.width - 1, self.width - 2 * self.n_values + 1]] = True
        return out

    def points(self, low: Matrix, high: Matrix) -> Points:
        """Return the points of boxes with these sides [box, coordinate]."""
        c, d = int(self.counted), self.n_values
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        m, h = middle[:, c : c + d], half[:, c : c + d]
        first = h[:, None] * self.mean
        slope: Vector = np.zeros(len(low))
        parts = np.zeros_like(low)
        near, far = [first], [first + m[:, None]]
        if self.squares:
            rest = middle[:, None, c + d :] + half[:, None, c + d :] * self.rest
            squares = h[:, None] ** 2 * self.square
            i, j = np.tril_indices(d)
            products = rest[:, :, :1] + squares
            if d == 2:
                slope, half_slope = middle[:, c + 3], half[:, c + 3]
                beta = half_slope[:, None] * self.rest[:, 1]  # about β₀
                power = half_slope[:, None] ** 2 * self.slope
                # In the frame: (δ₁, δ₂ − β₀δ₁), V₁₁, V₁₂ − β₀V₁₁ and V₂₂ − 2β₀V₁₂ + β₀²V₁₁.
                u, tilt = rest[:, :, 0], slope[:, None] * self.least
                p1, q1, q2 = first[:, :, 0], squares[:, :, 0], squares[:, :, 1]
                p12 = p1 * first[:, :, 1]
                b0 = slope[:, None]
                own = [u - self.least + q1, beta * u + tilt + p12 - b0 * q1]
                own.append(rest[:, :, 2] + power * u - b0 * tilt + q2 - b0 * (2 * p12 - b0 * q1))
                near[0] = np.stack([p1, first[:, :, 1] - b0 * p1], axis=2)
                cross = own[1] + b0 * own[0]
                outer = own[2] + b0 * (2.0 * own[1] + b0 * own[0])
                products = np.stack([own[0], cross, outer], axis=2)
                near.append(np.stack(own, axis=2))
                steep, widest = np.abs(slope), high[:, c + 2]
                reach = h[:, 1] + steep * h[:, 0]
                parts[:, c + 1] = reach
                parts[:, c + 3] = half_slope * widest + steep * self.least + reach * h[:, 0]
                parts[:, c + 4] = steep**2 * self.least + reach**2
            else:
                near.append(products)
            far.append(products + far[0][:, :, i] * m[:, None, j] + m[:, None, i] * first[:, :, j])
        if self.counted:
            share = middle[:, None, :1] + half[:, None, :1] * self.share[:, None]
            near = [share, *(share * one for one in near)]
            far = [share, *(share * one for one in far)]
        frame = np.column_stack([m, slope])
        return Points(np.concatenate(near, axis=2), np.concatenate(far, axis=2), frame, parts)

    def peak(self, low: Matrix, high: Matrix) -> Matrix:
        """Return averages [box, coordinate] at which a term with squares is largest in each box.

        For given variances it is largest at the means nearest to 0, and it decreases with the
        variances and the slope: a determinant |1 + nV| is (1 + nV₁₁)(1 + nv) + nβ²U(1 − nc), and a
        mean of two values only raises it.
        """
        c, d = int(self.counted), self.n_values
        nearest = np.clip(0.0, low, high)
        out = [nearest[:, c : c + d]]
        if d == 1:
            out.append(low[:, c + 1 :] + out[0] ** 2)
        else:
            u, beta, v = low[:, c + 2], nearest[:, c + 3], low[:, c + 4]
            out = [0.0 * out[0]]
            out.append(np.column_stack([u - self.least, beta * u, v + beta * beta * u]))
        if self.counted:
            share = high[:, :1]
            out = [share, *(share * one for one in out)]
        return np.hstack(out)

    def outside(self, low: Matrix, high: Matrix, sizes: Vector) -> Matrix:
        """Return the squared width of each coordinate relative to the variances of the box."""
        c, d = int(self.counted), self.n_values
        half, least = 0.5 * (high - low), 1.0 / sizes[:, None]
        out = np.zeros_like(half)
        out[:, c : c + d] = half[:, c : c + d]
        if not self.squares:
            return out
        scales = [c + d, c + d + 2][:d]
        small, large = low[:, scales] + least, high[:, scales] + least
        middle = np.sqrt(small * large)
        out[:, c : c + d] = half[:, c : c + d] ** 2 / middle
        if d == 2:
            out[:, c + 3] = half[:, c + 3] ** 2 * middle[:, 0] / middle[:, 1]
            slope = 0.5 * (low[:, c + 3] + high[:, c + 3])
            out[:, c] += (half[:, c] * slope) ** 2 / middle[:, 1]
        out[:, scales] = np.log(large / small)
        return out

    def about(self, weights: Matrix, frame: Matrix) -> Matrix:
        """Convert a gradient with respect to averages about 0 to one for averages in the frame."""
        c, d = int(self.counted), self.n_values
        out, m = weights.copy(), frame[:, :d]
        if self.squares:
            i, j = np.tril_indices(d)
            for k, (a, b) in enumerate(zip(i, j, strict=True)):
                out[:, c + a] += weights[:, c + d + k] * m[:, b]
                out[:, c + b] += weights[:, c + d + k] * m[:, a]
                if c:
                    out[:, 0] += weights[:, c + d + k] * m[:, a] * m[:, b]
        if c:
            out[:, 0] += (weights[:, c : c + d] * m).sum(axis=1)
        if self.squares and d == 2:
            slope = frame[:, 2]
            out[:, c] += slope * out[:, c + 1]
            out[:, c + 2] += slope * (out[:, c + 3] + slope * out[:, c + 4])
            out[:, c + 3] += 2.0 * slope * out[:, c + 4]
        return out


def shape_of(term: Term, n_points: int) -> Shape:
    """Return the points of a region of the term."""
    d = term.n_values
    if term.squares and d > 2:
        raise ValueError("squares of more than two values have too many corners")
    n_rest = (0, 1, 3)[d] if term.squares else 0
    zero = (np.zeros(d), np.zeros(d), np.zeros(n_rest), 0.0, 0.0)
    rows: list[tuple[Any, ...]] = [zero]
    sides = (-1.0, 1.0)
    if term.counted:
        rows += [(*zero[:4], side) for side in sides]
    for k, side in itertools.product(range(d), sides):
        on = (np.arange(d) == k).astype(float)
        rows.append((side * on, on, zero[2], 0.0, 0.0))
    for k, side in itertools.product(range(n_rest), sides):
        rows.append((zero[0], zero[1], side * (np.arange(n_rest) == k), float(k == 1), 0.0))
    shares = sides if term.counted else (0.0,)
    rows += [(*corner, side) for corner in _corners(term) for side in shares]
    mean, square, rest, slope, share = (
        np.array(one, dtype=float) for one in zip(*rows, strict=True)
    )
    return Shape(
        d, term.squares, term.counted, mean, square, rest, slope, share,
        0.25 / n_points if n_rest == 3 else 0.0,
    )  # fmt: skip


def _corners(term: Term) -> Iterator[tuple[Any, Any, Any, float]]:
    """Yield `mean`, `square`, `rest` and `slope` of the corners."""
    d, sides = term.n_values, (-1.0, 1.0)
    if not term.squares:
        for along in itertools.product(sides, repeat=d):
            yield np.array(along), np.zeros(d), np.zeros(0), 0.0
        return
    for columns in itertools.product(_PARABOLA, repeat=d):
        p, q = np.array(columns).T
        if d == 1:
            for v in sides:
                if v < 0.0 or q[0] > 0.0:
                    yield p, q, np.array([v]), 0.0
            continue
        for u, (b, power), v in itertools.product(sides, _PARABOLA, sides):
            if v < 0.0 or (q[1] > 0.0 and power > 0.0):
                yield p, q, np.array([u, b, v]), power
