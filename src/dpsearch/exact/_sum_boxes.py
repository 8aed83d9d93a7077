"""Branch and bound over sets of points, by boxes of the sums of their columns.

For a fixed size n the weight of a set C whose columns have the sums s is

    log w(C) = constant[n] + Σ_d f_d(n, s_d)

with every f_d convex in s_d, except that of a document's length, which is concave:

    BetaCounts         f = log (a)_s + log (b)_{n−s},   (a)_s = Γ(a + s)/Γ(a)
    GammaCounts        f = log (a)_s − s log(b + n)
    DirichletCounts    f = log (a)_s for each word, and −log (A)_S for the total S of all words
    LevelCounts        f = log (a)_s for each level

A node has a size n, a box low ≤ s ≤ high, and points that are in or out of the set.  Over the box,
f_d is at most its secant (the concave one: a tangent), so the weight of any set of the node is at
most that of the n best points under a linear function.  (Multipliers for the sides of the box would
lower this bound, but nodes would then be split in worse places, and there would be more of them.)

A node shrinks before it is split: the points that are in or free limit the sums, and a point is
fixed in (or out) if the bound without it (or with it) falls below the threshold.  A node is split
in the column whose secant and function differ most at the sums of the best set, or by a point if
none differ.  Nodes are disjoint, so all sets above a threshold can be listed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Ints8, Vector
from dpsearch.exact._sum_limits import BINARY, FREE, IN, OUT, limit, part
from dpsearch.exact.pricing import ALL, LARGEST

_FEW = 6  # with no more free points, sets are enumerated: they are fewer than the possible sums


class Nodes(NamedTuple):
    """Open nodes, a stack."""

    size: Ints
    low: Ints  # [node, column]
    high: Ints
    status: Ints8  # [node, point]
    bound: Vector


@inner
def _value(space, y, n, room):  # type: ignore[no-untyped-def]
    """Return log w(C) − y(C) of the chosen set, and set room.sums to its sums."""
    n_points, n_columns = space.x.shape
    out = space.constant[n]
    for d in range(n_columns):
        room.sums[d] = 0
    for i in range(n_points):
        if room.chosen[i] == 1:
            out -= y[i]
            for d in range(n_columns):
                room.sums[d] += space.x[i, d]
    for d in range(n_columns):
        out += part(space, d, n, room.sums[d])
    return out


@inner
def _choose(values, free, n_free, count):  # type: ignore[no-untyped-def]
    """Move the `count` free points of the largest values to the front (Hoare's selection)."""
    left = 0
    right = n_free - 1
    while left < right:
        pivot = values[free[(left + right) // 2]]
        i = left
        j = right
        while i <= j:
            while values[free[i]] > pivot:
                i += 1
            while values[free[j]] < pivot:
                j -= 1
            if i <= j:
                free[i], free[j] = free[j], free[i]
                i += 1
                j -= 1
        if count - 1 <= j:
            right = j
        elif count - 1 >= i:
            left = i
        else:
            break


@inner
def _draw_lines(space, n, room):  # type: ignore[no-untyped-def]
    """Set the slopes of the secants, and of the tangent in the middle for the concave column."""
    for d in range(space.x.shape[1]):
        low, high = room.low[d], room.high[d]
        if d == space.concave or low == high:
            # On integers any slope between those of the steps before and after is valid.
            middle = (low + high) // 2
            top = space.begin[d + 1] - space.begin[d] - 1
            if space.kind == BINARY:
                top = n
            before, after = max(middle - 1, 0), min(middle + 1, top)
            if after > before:
                rise = part(space, d, n, after) - part(space, d, n, before)
                room.lines[d] = rise / (after - before)
            else:
                room.lines[d] = 0.0
        else:
            rise = part(space, d, n, high) - part(space, d, n, low)
            room.lines[d] = rise / (high - low)


@inner
def _height(space, n, d, line, low, high):  # type: ignore[no-untyped-def]
    """Return max over s in the box of f_d(n, s) − line · s."""
    if d != space.concave:
        return max(part(space, d, n, low) - line * low, part(space, d, n, high) - line * high)
    # The steps of a concave function decrease, so bisect for where they pass the slope.
    while low < high:
        middle = (low + high) // 2
        if part(space, d, n, middle + 1) - part(space, d, n, middle) > line:
            low = middle + 1
        else:
            high = middle
    return part(space, d, n, low) - line * low


@inner
def _linear_bound(space, y, n, missing, room):  # type: ignore[no-untyped-def]
    """Choose the best points; return (bound, value of the last chosen, of the first left out)."""
    n_points, n_columns = space.x.shape
    bound = space.constant[n]
    for d in range(n_columns):
        bound += _height(space, n, d, room.lines[d], room.low[d], room.high[d])
    n_free = 0
    for i in range(n_points):
        room.chosen[i] = 0
        if room.status[i] == OUT:
            continue
        value = -y[i]
        for d in range(n_columns):
            value += room.lines[d] * space.real[i, d]
        room.values[i] = value
        if room.status[i] == IN:
            bound += value
            room.chosen[i] = 1
        else:
            room.free[n_free] = i
            n_free += 1
    last = np.inf
    if missing > 0:
        _choose(room.values, room.free, n_free, missing)
    for k in range(missing):
        i = room.free[k]
        bound += room.values[i]
        last = min(last, room.values[i])
        room.chosen[i] = 1
    following = -np.inf
    for k in range(missing, n_free):
        following = max(following, room.values[room.free[k]])
    return bound, last, following


@inner
def _fix_points(bound, threshold, missing, n_free, last, following, room):  # type: ignore[no-untyped-def]
    """Fix points without, or with, which the bound falls to the threshold; return if any are."""
    changed = False
    for k in range(n_free):
        i = room.free[k]
        if k < missing:
            if bound - (room.values[i] - following) <= threshold:
                room.status[i] = IN
                changed = True
        elif bound - (last - room.values[i]) <= threshold:
            room.status[i] = OUT
            changed = True
    return changed


@inner
def _shrink(space, y, n, threshold, room):  # type: ignore[no-untyped-def]
    """Shrink the node as far as possible; return its bound, −∞ if no set exceeds the threshold."""
    bound = np.inf
    while True:
        alive, n_in, n_free = limit(space, n, room)
        if not alive:
            return -np.inf
        missing = n - n_in
        _draw_lines(space, n, room)
        now, last, following = _linear_bound(space, y, n, missing, room)
        bound = min(bound, now)
        if now <= threshold:
            return -np.inf
        if not _fix_points(now, threshold, missing, n_free, last, following, room):
            return bound


@inner
def _split(space, n, bound, by_point, nodes, found, room):  # type: ignore[no-untyped-def]
    """Split a node that could not be closed in two; room.sums are those of its best set."""
    n_points, n_columns = space.x.shape
    column = -1
    widest = 1e-9
    for d in range(n_columns):
        low, high = room.low[d], room.high[d]
        if low == high or by_point:
            continue
        s = min(max(room.sums[d], low), high)
        line = room.lines[d]
        difference = _height(space, n, d, line, low, high) + line * s - part(space, d, n, s)
        if difference > widest:
            widest = difference
            column = d
    point = -1
    if column < 0:
        for i in range(n_points):
            may = room.status[i] == FREE and room.chosen[i] == 1
            if may and (point < 0 or room.values[i] > room.values[point]):
                point = i
    at = found.count[0]
    for side in range(2):
        nodes.size[at] = n
        nodes.bound[at] = bound
        for d in range(n_columns):
            nodes.low[at, d] = room.low[d]
            nodes.high[at, d] = room.high[d]
        for i in range(n_points):
            nodes.status[at, i] = room.status[i]
        if column >= 0:
            middle = min(max(room.sums[column], room.low[column]), room.high[column] - 1)
            # The half that contains the best set goes on top.
            upper = (side == 1) == (room.sums[column] > middle)
            if upper:
                nodes.low[at, column] = middle + 1
            else:
                nodes.high[at, column] = middle
        else:
            nodes.status[at, point] = IN if side == 1 else OUT
        at += 1
    found.count[0] = at


@inner
def _record(value, found, room):  # type: ignore[no-untyped-def]
    at = found.count[1]
    for i in range(room.chosen.shape[0]):
        found.members[at, i] = room.chosen[i]
    found.values[at] = value
    found.count[1] = at + 1


@inner
def _load(nodes, at, room):  # type: ignore[no-untyped-def]
    for d in range(room.low.shape[0]):
        room.low[d] = nodes.low[at, d]
        room.high[d] = nodes.high[at, d]
    for i in range(room.status.shape[0]):
        room.status[i] = nodes.status[at, i]


@inner
def bound_nodes(space, y, nodes, room, threshold, begin, end):  # type: ignore[no-untyped-def]
    """Bound nodes without opening them."""
    for at in range(begin, end):
        _load(nodes, at, room)
        nodes.bound[at] = _shrink(space, y, nodes.size[at], threshold, room)


@inner
def explore(space, y, nodes, room, found, run, most):  # type: ignore[no-untyped-def]
    """Close open nodes until none is left, `most` are visited or an array is full.

    Sets above the run's floor are recorded.
    """
    n_points = space.x.shape[0]
    visited = 0
    while found.count[0] > 0 and visited < most:
        if found.count[0] + 2 > nodes.bound.shape[0] or found.count[1] >= found.values.shape[0]:
            break
        visited += 1
        at = found.count[0] - 1
        found.count[0] = at
        threshold = found.level[0]
        if nodes.bound[at] <= threshold:
            continue
        n = nodes.size[at]
        before = nodes.bound[at]
        _load(nodes, at, room)
        bound = min(before, _shrink(space, y, n, threshold, room))
        if bound <= threshold:
            continue
        value = _value(space, y, n, room)
        n_free = 0
        for i in range(n_points):
            if room.status[i] == FREE:
                n_free += 1
        by_point = n_free <= _FEW
        if run.mode == ALL:
            if n_free == 0:
                if value >= run.floor:
                    _record(value, found, room)
                continue
            # No bound can close a node that contains a set to list.
            by_point = by_point or value >= run.floor
        elif value > run.floor:
            _record(value, found, room)
            if run.mode == LARGEST:
                found.level[0] = max(threshold, value + run.rounding)
            else:
                for i in range(n_points):
                    if room.chosen[i] == 1:
                        y[i] += value / n
        if n_free > 0:
            _split(space, n, bound, by_point, nodes, found, room)
