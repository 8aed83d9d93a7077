"""Planes above log H in boxes of statistics, and the best set of points under each: kernels.

Let F(c) = f(n c) − n⟨g, c⟩ for a corner c of a box and a gradient g, and let a(n₁) and a(n₂) be the
sums over terms of the largest F at the corners.  As f is convex, every set C of n points has

    log w(C) − y(C) ≤ base(n) + a(n) + Σ_{i∈C} (⟨g, T(x_i)⟩ − y_i),

where a(n) is linear between n₁ and n₂, and base(n) = λ + log W(n).  The sum is largest for the
points that are in and the open ones of largest value, which one pass and a sort find.  The bound is
convex in g, with the subgradient T(C) − n c at the best set and the corners where F is largest; a
few subgradient steps (Polyak 1969) lower it.  Under each plane, an open point is fixed *in* if the
bound without it is not above the threshold, and *out* if the bound with it is not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Ints, Ints8, Matrix, Vector
from dpsearch.exact._box_limits import IN, OPEN, OUT

_EPSILON = 2.0**-52
_STEPS = 8


class Boxes(NamedTuple):
    """The boxes to bound."""

    n_low: Ints
    n_high: Ints
    frame: Matrix  # [box, values and slopes of terms]
    gradient: Matrix  # [box, coordinate]: the initial g
    extent: Matrix  # [box, coordinate]
    parts: Matrix  # [box, coordinate]: absolute values of the parts that a corner is the sum of
    corner: Matrix  # [box, point × coordinate of its term], term by term
    height: Any  # [box, 2, point]: f at both sizes
    cap: Any  # [box, 2, term]: another upper bound of f in the box, a constant


class Bounds(NamedTuple):
    """The result for each box.

    bound
        No set of the box exceeds it.
    other
        No set of the box but the best one under the plane, `members`, exceeds it.
    score
        [box, coordinate]: how far f rises above the plane along the axis.
    point
        The open point that changes the bound most when it is fixed, or −1.
    """

    bound: Vector
    other: Vector
    members: Ints8  # [box, point]
    score: Matrix
    point: Ints


class _Room(NamedTuple):
    """Working space for one box, by point."""

    local: Matrix  # [coordinate, place]: features of points that are not out, first those in
    parts: Matrix  # absolute values of the parts that they are sums of
    points: Ints  # [place]: the point
    value: Vector
    size: Vector  # sum of absolute values
    order: Ints  # of open places, best first
    bound: Vector  # [n]
    after: Vector  # [n]: the largest bound of this size and more
    swapped: Vector  # the same, with the best point left out in exchange for another


@kernel
def bound_boxes(space, y, boxes, status, out, threshold):  # type: ignore[no-untyped-def]
    """Bound each box until its bound is at most `threshold` or further steps do not help."""
    n_points = space.values.shape[1]
    n_terms = space.n_values.shape[0]
    width = space.begin[n_terms]
    room = _Room(
        np.empty((width, n_points)), np.empty((width, n_points)), np.empty(n_points, np.int64),
        np.empty(n_points),
        np.empty(n_points), np.empty(n_points, np.int64), np.empty(n_points + 2),
        np.empty(n_points + 2), np.empty(n_points + 2),
    )  # fmt: skip
    g = np.empty(width)
    kept = np.empty(width)
    slope = np.empty(width)
    best_at = np.empty((2, n_terms), np.int64)
    for b in range(boxes.n_low.shape[0]):
        out.bound[b] = np.inf
        out.other[b] = np.inf
        out.point[b] = -1
        n_in, n_all = _gather(space, boxes.frame[b], status[b], room)
        g[:] = boxes.gradient[b]
        kept[:] = g
        stalled = 0
        for _ in range(_STEPS):
            n1 = max(boxes.n_low[b], n_in)
            n2 = min(boxes.n_high[b], n_all)
            if n1 > n2:
                out.bound[b] = -np.inf
                break
            a1, a2, error = _heights(space, boxes, b, g, best_at)
            if a1 == np.inf or a2 == np.inf:
                break
            rise = 0.0
            if boxes.n_high[b] > boxes.n_low[b]:
                rise = (a2 - a1) / (boxes.n_high[b] - boxes.n_low[b])
            a1 += rise * (n1 - boxes.n_low[b])
            k, error = _best_set(space, y, g, n_in, n_all, n1, n2, a1, rise, error, room)
            bound = room.bound[k]
            now = bound + error
            if now <= threshold:
                out.bound[b] = now
                break
            scale = (n2 + width + 16) * _EPSILON
            other, point, fixed = _fix(
                n_in, n_all, n1, n2, k, threshold, error, scale, status[b], room
            )
            best = out.bound[b]
            if now < best:
                stalled = 0 if now < best - 0.1 * (best - threshold) else stalled + 1
                out.bound[b] = now
                out.other[b] = other + error
                out.point[b] = point
                kept[:] = g
                for i in range(n_points):
                    out.members[b, i] = 0
                for j in range(k):
                    out.members[b, room.points[j if j < n_in else room.order[j]]] = 1
            else:
                stalled += 1
            if stalled >= 3:
                break
            share = 0.0
            if boxes.n_high[b] > boxes.n_low[b]:
                share = (k - boxes.n_low[b]) / (boxes.n_high[b] - boxes.n_low[b])
            norm = _subgradient(space, boxes, b, n_in, k, share, best_at, slope, room)
            if norm <= 0.0:
                break
            step = (bound - threshold) / norm
            for j in range(width):
                reach = max(k * boxes.extent[b, j], 1e-150)
                g[j] -= step * slope[j] / (reach * reach)
            if fixed:
                n_in, n_all = _gather(space, boxes.frame[b], status[b], room)
        _scores(space, boxes, b, kept, out.score[b])


@inner
def _gather(space, frame, status, room):  # type: ignore[no-untyped-def]
    """Arrange the features of points that are not out; return how many are in, and all of them."""
    n_points = status.shape[0]
    n_in = 0
    for i in range(n_points):
        if status[i] == IN:
            room.points[n_in] = i
            n_in += 1
    n_all = n_in
    for i in range(n_points):
        if status[i] == OPEN:
            room.points[n_all] = i
            n_all += 1
    local, parts = room.local, room.parts
    at = 0
    for t in range(space.n_values.shape[0]):
        d = space.n_values[t]
        c = space.begin[t]
        mask = space.masks[t]
        if space.counted[t] == 1:
            for p in range(n_all):
                local[c, p] = mask[room.points[p]]
                parts[c, p] = mask[room.points[p]]
            c += 1
        for k in range(d):
            values = space.values[at + k]
            for p in range(n_all):
                i = room.points[p]
                local[c + k, p] = mask[i] * (values[i] - frame[at + t + k])
                parts[c + k, p] = abs(local[c + k, p])
        if space.squares[t] == 1:
            if d == 2:
                for p in range(n_all):
                    local[c + 1, p] -= frame[at + t + 2] * local[c, p]
                    parts[c + 1, p] += abs(frame[at + t + 2]) * parts[c, p]
            q = c + d
            for k in range(d):
                for m in range(k + 1):
                    for p in range(n_all):
                        local[q, p] = local[c + k, p] * local[c + m, p]
                        parts[q, p] = parts[c + k, p] * parts[c + m, p]
                    q += 1
        at += d
    return n_in, n_all


@inner
def _heights(space, boxes, b, g, best_at):  # type: ignore[no-untyped-def]
    """Return the sums of the largest F at the corners for both sizes, and of absolute values."""
    total1 = 0.0
    total2 = 0.0
    error = 0.0
    begin = 0
    for t in range(space.n_values.shape[0]):
        first = space.begin[t]
        width = space.begin[t + 1] - first
        flat1, flat2 = boxes.cap[b, 0, t], boxes.cap[b, 1, t]
        best1 = -np.inf
        best2 = -np.inf
        low1 = np.inf
        at1 = at2 = lowest = space.corners[t]
        largest = 0.0
        for p in range(space.corners[t], space.corners[t + 1]):
            dot = 0.0
            size = 0.0
            for j in range(width):
                term = g[first + j] * boxes.corner[b, begin + j]
                dot += term
                size += abs(term) + abs(g[first + j]) * boxes.parts[b, first + j]
            begin += width
            f1 = boxes.height[b, 0, p] - boxes.n_low[b] * dot
            f2 = boxes.height[b, 1, p] - boxes.n_high[b] * dot
            if f1 > best1:
                best1 = f1
                at1 = p
            if f2 > best2:
                best2 = f2
                at2 = p
            if dot < low1:
                low1 = dot
                lowest = p
            largest = max(largest, boxes.n_high[b] * size)
        low2 = flat2 - boxes.n_high[b] * low1
        low1 = flat1 - boxes.n_low[b] * low1
        if low1 + low2 < best1 + best2:
            best1, best2 = low1, low2
            at1 = at2 = lowest
        best_at[0, t] = at1
        best_at[1, t] = at2
        total1 += best1
        total2 += best2
        error += largest + abs(best1) + abs(best2)
    return total1, total2, error


@kernel
def _best_set(space, y, g, n_in, n_all, n1, n2, a1, rise, error, room):  # type: ignore[no-untyped-def]
    """Sort open points and bound each size; return the best size and the rounding error."""
    value, size = room.value, room.size
    for p in range(n_all):
        value[p] = -y[room.points[p]]
        size[p] = abs(value[p])
    width = g.shape[0]
    for j in range(width):
        w = g[j]
        if w != 0.0:
            for p in range(n_all):
                value[p] += w * room.local[j, p]
                size[p] += abs(w) * room.parts[j, p]
    room.order[n_in:n_all] = n_in + np.argsort(-value[n_in:n_all])
    total = 0.0
    for p in range(n_in):
        total += value[p]
        error += size[p]
    best = n1
    for k in range(n_in, n2 + 1):
        if k > n_in:
            p = room.order[k - 1]
            total += value[p]
            error += size[p]
        if k >= n1:
            room.bound[k] = space.base[k] + a1 + rise * (k - n1) + total
            if room.bound[k] > room.bound[best]:
                best = k
    error += abs(space.base[n1]) + abs(space.base[n2])
    return best, error * (n2 + width + 16) * _EPSILON


@inner
def _fix(n_in, n_all, n1, n2, best, threshold, error, scale, status, room):  # type: ignore[no-untyped-def]
    """Fix open points without which, or with which, no set is above the threshold.

    Return a bound on all sets except the best, the open point that changes the bound most, and
    whether any point was fixed.  Sets with the point of rank r are bounded by the largest bound of
    sizes from r on, and of smaller sizes with the point in exchange for the last one; sets without
    it by that of sizes below r, and of others with the next point in exchange for it.
    """
    value, order, bound = room.value, room.order, room.bound
    room.after[n2 + 1] = -np.inf
    room.swapped[n2 + 1] = -np.inf
    for k in range(n2, n1 - 1, -1):
        room.after[k] = max(room.after[k + 1], bound[k])
        following = value[order[k]] if k < n_all else -np.inf
        room.swapped[k] = max(room.swapped[k + 1], bound[k] + following)
    other = -np.inf
    for k in range(n1, n2 + 1):
        if k != best:
            other = max(other, bound[k])
    if n_in < best < n_all:  # one point exchanged for the next best
        other = max(other, bound[best] - value[order[best - 1]] + value[order[best]])
    before = -np.inf  # the largest bound of a smaller size
    less = -np.inf  # the same without the last point
    deepest = -np.inf
    point = -1
    fixed = False
    for r in range(n_in + 1, n_all + 1):
        p = order[r - 1]
        i = room.points[p]
        if r - 1 >= n1 and r - 1 <= n2:
            before = max(before, bound[r - 1])
            if r - 1 > n_in:
                less = max(less, bound[r - 1] - value[order[r - 2]])
        k = max(r, n1)
        has = room.after[k] if k <= n2 else -np.inf
        has = max(has, less + value[p])
        lacks = max(before, room.swapped[k] - value[p] if k <= n2 else -np.inf)
        off = error + scale * room.size[p]
        if has + off <= threshold:
            status[i] = OUT
            fixed = True
        elif lacks + off <= threshold:
            status[i] = IN
            fixed = True
        elif bound[best] - min(has, lacks) > deepest:
            deepest = bound[best] - min(has, lacks)
            point = i
    return other, point, fixed


@inner
def _subgradient(space, boxes, b, n_in, k, share, best_at, slope, room):  # type: ignore[no-untyped-def]
    """Set `slope` to T(C) − n c; return its squared length relative to the box."""
    width = slope.shape[0]
    for j in range(width):
        total = 0.0
        for p in range(n_in):
            total += room.local[j, p]
        for r in range(n_in, k):
            total += room.local[j, room.order[r]]
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


@inner
def _scores(space, boxes, b, g, score):  # type: ignore[no-untyped-def]
    """Set how far both ends of each axis lie above the plane on average, relative to the centre."""
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
