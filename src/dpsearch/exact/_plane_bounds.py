"""Planes above log H in boxes of statistics, and the best set of points under each: kernels.

Let F(c) = f(n c) − n⟨g, c⟩ for a corner c of a box and a gradient g.  f is convex, so with a(n₁)
and a(n₂) the sums over terms of the largest F at the corners, every set C of n points of it has

    log w(C) − y(C) ≤ base(n) + a(n) + Σ_{i∈C} (⟨g, T(x_i)⟩ − y_i),

a(n) linear between n₁ and n₂, base(n) = λ + log W(n).  The sum is at most that of the n largest
values: one pass and a sort.  The bound is convex in g, with the subgradient T(C) − n c at the best
set and the corners where F is largest; a few steps along it (Polyak 1969) find a lower one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix, Vector

_EPSILON = 2.0**-52
_STEPS = 8


class Space(NamedTuple):
    """Points, and how the coordinates of a box are laid out by terms."""

    values: Matrix  # [value, point]
    masks: Matrix  # [term, point]: whether it has values
    n_values: Ints  # by term
    squares: Ints
    counted: Ints
    begin: Ints  # [term + 1]: first coordinate
    corners: Ints  # [term + 1]: first point of a region
    base: Vector  # [n]


class Boxes(NamedTuple):
    """Boxes that are to be bounded."""

    n_low: Ints
    n_high: Ints
    centre: Matrix  # [box, value]: m₀
    gradient: Matrix  # [box, coordinate]: g to begin with
    extent: Matrix  # [box, coordinate]
    corner: Matrix  # [box, point × coordinate of its term], term by term
    height: Any  # [box, 2, point]: f at both sizes


class Bounds(NamedTuple):
    """What is found of each box.

    bound
        No set of the box exceeds it.
    other
        No set of the box but the best one under the plane, `members`, exceeds it.
    score
        [box, coordinate]: how far the axis sticks out above the plane.
    """

    bound: Vector
    other: Vector
    members: Any  # int8 [box, point]
    score: Matrix


@kernel
def bound_boxes(space, y, boxes, out, threshold, begin, end):  # type: ignore[no-untyped-def]
    """Bound boxes, each until it is no more than `threshold` or further steps do not help."""
    n_points = space.values.shape[1]
    n_terms = space.n_values.shape[0]
    width = space.begin[n_terms]
    local = np.empty((width, n_points))
    g = np.empty(width)
    kept = np.empty(width)
    slope = np.empty(width)
    value = np.empty(n_points)
    size = np.empty(n_points)
    best_at = np.empty((2, n_terms), np.int64)
    for b in range(begin, end):
        n1 = boxes.n_low[b]
        n2 = boxes.n_high[b]
        _local_features(space, boxes.centre[b], local)
        g[:] = boxes.gradient[b]
        kept[:] = g
        best = np.inf
        out.bound[b] = np.inf
        out.other[b] = np.inf
        stalled = 0
        for _ in range(_STEPS):
            a1, a2, error = _heights(space, boxes, b, g, best_at)
            if a1 == np.inf or a2 == np.inf:
                break
            value[:] = -y
            size[:] = np.abs(y)
            for j in range(width):
                w = g[j]
                if w != 0.0:
                    for i in range(n_points):
                        step = w * local[j, i]
                        value[i] += step
                        size[i] += abs(step)
            order = np.argsort(-value)
            bound, other, k, error_of_sum = _best_set(
                space.base, value, size, order, n1, n2, a1, a2
            )
            error = (error + error_of_sum) * (n2 + width + 16) * _EPSILON
            now = bound + error
            if now < best:
                stalled = 0 if now < best - 0.1 * (best - threshold) else stalled + 1
                best = now
                out.bound[b] = now
                out.other[b] = other + error
                kept[:] = g
                for i in range(n_points):
                    out.members[b, order[i]] = 1 if i < k else 0
            else:
                stalled += 1
            if best <= threshold or stalled >= 3:
                break
            share = 0.0 if n2 == n1 else (k - n1) / (n2 - n1)
            norm = _subgradient(space, boxes, b, local, order, k, share, best_at, slope)
            if norm <= 0.0:
                break
            step = (bound - threshold) / norm
            for j in range(width):
                scale = max(k * boxes.extent[b, j], 1e-150)
                g[j] -= step * slope[j] / (scale * scale)
        _scores(space, boxes, b, kept, out.score[b])


@kernel
def _local_features(space, centre, local):  # type: ignore[no-untyped-def]
    """Features about the centre, 0 where a point has no values."""
    n_points = local.shape[1]
    at = 0
    for t in range(space.n_values.shape[0]):
        d = space.n_values[t]
        c = space.begin[t]
        if space.counted[t] == 1:
            for i in range(n_points):
                local[c, i] = space.masks[t, i]
            c += 1
        for k in range(d):
            for i in range(n_points):
                local[c + k, i] = space.masks[t, i] * (space.values[at + k, i] - centre[at + k])
        if space.squares[t] == 1:
            q = c + d
            for k in range(d):
                for m in range(k + 1):
                    for i in range(n_points):
                        local[q, i] = local[c + k, i] * local[c + m, i]
                    q += 1
        at += d


@kernel
def _heights(space, boxes, b, g, best_at):  # type: ignore[no-untyped-def]
    """The largest F at the corners for both sizes, summed over terms; and absolute values."""
    total = np.zeros(2)
    error = 0.0
    begin = 0
    for t in range(space.n_values.shape[0]):
        first = space.begin[t]
        width = space.begin[t + 1] - first
        best1 = -np.inf
        best2 = -np.inf
        largest = 0.0
        for p in range(space.corners[t], space.corners[t + 1]):
            dot = 0.0
            size = 0.0
            for j in range(width):
                term = g[first + j] * boxes.corner[b, begin + j]
                dot += term
                size += abs(term)
            begin += width
            f1 = boxes.height[b, 0, p] - boxes.n_low[b] * dot
            f2 = boxes.height[b, 1, p] - boxes.n_high[b] * dot
            if f1 > best1:
                best1 = f1
                best_at[0, t] = p
            if f2 > best2:
                best2 = f2
                best_at[1, t] = p
            largest = max(largest, boxes.n_high[b] * size)
        total[0] += best1
        total[1] += best2
        error += largest + abs(best1) + abs(best2)
    return total[0], total[1], error


@kernel
def _best_set(base, value, size, order, n1, n2, a1, a2):  # type: ignore[no-untyped-def]
    """The largest bound over sizes, that of every set but the best, its size; absolute values."""
    bound = -np.inf
    other = -np.inf
    best = n1
    total = 0.0
    error = 0.0
    slope = 0.0 if n2 == n1 else (a2 - a1) / (n2 - n1)
    for k in range(1, n2 + 1):
        i = order[k - 1]
        total += value[i]
        error += size[i]
        if k >= n1:
            now = base[k] + a1 + slope * (k - n1) + total
            if now > bound:
                other = max(other, bound)
                bound = now
                best = k
            else:
                other = max(other, now)
    if best < value.shape[0]:  # one point exchanged for the next best
        other = max(other, bound - (value[order[best - 1]] - value[order[best]]))
    return bound, other, best, error + abs(base[n1]) + abs(base[n2])


@kernel
def _subgradient(space, boxes, b, local, order, k, share, best_at, slope):  # type: ignore[no-untyped-def]
    """T(C) − n c, in the place of `slope`; return its square length relative to the box."""
    width = slope.shape[0]
    for j in range(width):
        total = 0.0
        for i in range(k):
            total += local[j, order[i]]
        slope[j] = total
    begin = 0
    for t in range(space.n_values.shape[0]):
        first = space.begin[t]
        last = space.begin[t + 1]
        for side in range(2):
            weight = (1.0 - share) * boxes.n_low[b] if side == 0 else share * boxes.n_high[b]
            at = begin + (best_at[side, t] - space.corners[t]) * (last - first)
            for j in range(first, last):
                slope[j] -= weight * boxes.corner[b, at + j - first]
        begin += (space.corners[t + 1] - space.corners[t]) * (last - first)
    norm = 0.0
    for j in range(width):
        relative = slope[j] / max(k * boxes.extent[b, j], 1e-150)
        norm += relative * relative
    return norm


@kernel
def _scores(space, boxes, b, g, score):  # type: ignore[no-untyped-def]
    """How far above the plane both ends of each axis lie on average, relative to the centre."""
    begin = 0
    for t in range(space.n_values.shape[0]):
        first = space.begin[t]
        width = space.begin[t + 1] - first
        p = space.corners[t]
        for j in range(width):
            rise = 0.0
            for side in range(2):
                n = boxes.n_low[b] if side == 0 else boxes.n_high[b]
                at = 1 + 2 * j
                heights = boxes.height[b, side, p + at] + boxes.height[b, side, p + at + 1]
                rise += 0.5 * heights - boxes.height[b, side, p]
                for q in range(width):
                    ends = boxes.corner[b, begin + at * width + q]
                    ends += boxes.corner[b, begin + (at + 1) * width + q]
                    rise -= n * g[first + q] * (0.5 * ends - boxes.corner[b, begin + q])
            score[first + j] = rise
        begin += (space.corners[t + 1] - space.corners[t]) * width
