"""Branch and bound over boxes of a cluster's centre: the kernels of `centre_pricing`.

With unit noise, prior precision τ and prior mean μ (column by column; see `NormalMeans`),

    log w(C) − y(C) = max over m of  g(n) − ½ Σ_d τ_d (m_d − μ_d)² + Σ_{i∈C} a_i(m),
    a_i(m) = −½ |x_i − m|² − y_i,
    g(n) = λ + log W(n) − nD/2 log 2π + ½ Σ_d log(τ_d/(n + τ_d)),

so that for a given m the best set of n points has those with the largest a_i.  A *node* is a box of
centres m = c + δ, |δ_d| ≤ h_d, with a range n₁ … n₂ of sizes.  Its bound follows from four facts.

1. Let s(n) = g(n + 1) − g(n).  At the best set for some m no point can leave or join with a gain.
   A point whose a_i stays below −max s(n) over n < n₂ in the whole box is therefore *out*, and one
   whose a_i stays above −min s(n) over n ≥ n₁ is *in*; the others are *open*.
2. The sum of the n largest a_i is at most n·t + Σ_i (a_i − t)⁺ for every t.  g(n) + n·t is convex
   in n where log W is, and then largest at n₁ or n₂.
3. a_i(c + δ) = a_i(c) + (x_i − c)·δ − ½|δ|².  In the linear part, with values between L and U over
   the box, (a − t)⁺ lies below its chord from L to U, which is linear in δ.  The bound is then a
   concave quadratic in δ, maximised column by column; it is exact when no point is open.  In large
   boxes the constant bound (U − t)⁺, with U by the distance to the box, can be better.
4. A set with two or three points of a triple pays a toll (`triples`), so that points are worth less
   than a_i.  The test for *out* remains valid; in that for *in*, all tolls of the point are
   subtracted.  With two points of a triple in, the toll is paid; with one in, each open point pays
   an equal share, which is at most what the set pays; with none in, nothing is known.

A node that is not settled is split where its bound is loosest: in n, in the box, or by a point that
is in or out.  The search is depth-first, so that the lists of open points share one arena.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.exact.pricing import ALL, LARGEST, RAISE

_POINT_BRANCH = 24  # with no more open points, sets are enumerated point by point
_TOLLS = 0.5  # branch on a point if this share of its tolls exceeds the looseness due to the box
_SMALLEST = 1e-12  # half width at which a box is not split any more
# The integers of a node: the range of sizes, its list of open points, the number of points in, a
# point to put in (action 1) or out (action 2), and how often prices had been raised.
N_LOW, N_HIGH, START, LENGTH, N_IN, POINT, ACTION, AGE = range(8)


class Space(NamedTuple):
    """Points and tables that do not change with the prices."""

    x: Matrix  # [N, D], noise 1, centred
    tau: Vector  # prior precision by column
    mu: Vector  # prior mean by column
    g: Vector  # [n] for n = 0 … N; entry 0 is not used
    step_high: Vector  # [n]: largest g(k + 1) − g(k) over 1 ≤ k ≤ n
    step_low: Vector  # [n]: smallest over k ≥ n
    triples: Any  # [T, 3] int64: the prices after those of the points are their tolls
    first: Ints  # [n + 1]: where the triples of a point are in
    which: Ints


class Nodes(NamedTuple):
    """The stack of nodes, and the lists of their points."""

    centre: Matrix
    half: Matrix
    sums: Matrix  # [node, D + 1]: of x and of −½|x|² − y over the points that are in
    integers: Ints  # [node, 8]
    bound: Vector  # of the parent
    arena: Ints  # lists of open points
    inside: Ints  # points that are in, along the current path


class Room(NamedTuple):
    """Working space for one node."""

    centre: Vector
    half: Vector
    total: Vector  # Σx over the points that are in
    trial: Vector  # Σx of a set that is tried
    slope: Vector  # of the bound by chords, at the centre; then the place where it is largest
    width: Vector  # [column]: spread of the points with chords
    value: Vector  # of each open point: a, e and U
    spread: Vector
    far: Vector
    share: Vector  # of each open point: its share of tolls
    chosen: Ints  # open points of the set that is tried
    inside: Ints  # how many points of each triple are in
    open: Ints
    tried: Ints  # how many are in the set that is tried


@inner
def _widest(half):  # type: ignore[no-untyped-def]
    out = 0.0
    for d in range(half.shape[0]):
        out = max(out, half[d])
    return out


@inner
def _peak(slope, weight, half):  # type: ignore[no-untyped-def]
    """Return max over |δ| ≤ half of slope·δ − ½ weight δ²."""
    step = min(max(slope / weight, -half), half)
    return step * (slope - 0.5 * weight * step)


@inner
def _own(space, y, i):  # type: ignore[no-untyped-def]
    """Return −½|x|² − y of a point."""
    norm = 0.0
    for d in range(space.x.shape[1]):
        norm += space.x[i, d] * space.x[i, d]
    return -0.5 * norm - y[i]


@inner
def _set_value(space, total, base, n):  # type: ignore[no-untyped-def]
    """Return log w(C) − y(C) from Σx, Σ(−½|x|² − y) and n."""
    out = space.g[n] + base
    for d in range(total.shape[0]):
        tau = space.tau[d]
        away = total[d] / n - space.mu[d]
        out += 0.5 * (total[d] * total[d] / n - n * tau / (n + tau) * away * away)
    return out


@inner
def _load(space, y, nodes, found, top, room):  # type: ignore[no-untyped-def]
    """Copy a node's box and sums to the working space; return Σ(−½|x|² − y) of the points in."""
    n_columns = space.x.shape[1]
    for d in range(n_columns):
        room.centre[d] = nodes.centre[top, d]
        room.half[d] = nodes.half[top, d]
        room.total[d] = nodes.sums[top, d]
    if nodes.integers[top, AGE] == found.count[2]:
        return nodes.sums[top, n_columns]
    base = 0.0  # prices have been raised since
    for k in range(nodes.integers[top, N_IN]):
        base += _own(space, y, nodes.inside[k])
    return base


@inner
def _sort_points(space, y, nodes, top, margin, base, room):  # type: ignore[no-untyped-def]
    """Find which of a node's points are out, in or open; return (number in, number open, new base).

    Open points go to the arena after the node's own list, points in to `inside` and the sums.
    """
    x, integers, n_columns = space.x, nodes.integers, space.x.shape[1]
    out_below = -space.step_high[integers[top, N_HIGH] - 1] - margin
    in_above = -space.step_low[integers[top, N_LOW]] + margin
    point, action = integers[top, POINT], integers[top, ACTION]
    start, n_in, n_open = integers[top, START], integers[top, N_IN], 0
    fresh = start + integers[top, LENGTH]
    for k in range(start, fresh):
        i = nodes.arena[k]
        near_square = 0.0
        far_square = 0.0
        square = 0.0
        reach = 0.0
        for d in range(n_columns):
            off = abs(x[i, d] - room.centre[d])
            square += off * off
            reach += off * room.half[d]
            outer = off + room.half[d]
            far_square += outer * outer
            closer = max(off - room.half[d], 0.0)
            near_square += closer * closer
        high = -0.5 * near_square - y[i]
        joins = i == point and action == 1
        if (i == point and action == 2) or (high < out_below and not joins):
            continue
        tolls = 0.0
        for e in range(space.first[i], space.first[i + 1]):
            tolls += y[x.shape[0] + space.which[e]]
        if joins or -0.5 * far_square - y[i] - tolls > in_above:
            nodes.inside[n_in] = i
            n_in += 1
            for d in range(n_columns):
                room.total[d] += x[i, d]
            base += _own(space, y, i)
            continue
        nodes.arena[fresh + n_open] = i
        room.value[n_open] = -0.5 * square - y[i]
        room.spread[n_open] = reach
        room.far[n_open] = high
        n_open += 1
    return n_in, n_open, base


@inner
def _charge(space, y, inside, points, n_in, n_open, room):  # type: ignore[no-untyped-def]
    """Subtract from the values of open points their shares of tolls.

    Return the tolls that are certainly paid, the largest tolls of an open point, and that point.
    """
    n, n_triples, which = space.x.shape[0], space.triples.shape[0], space.which
    for t in range(n_triples):
        room.inside[t] = 0
        room.open[t] = 0
    if n_triples > 0:
        for k in range(n_in):
            for e in range(space.first[inside[k]], space.first[inside[k] + 1]):
                room.inside[which[e]] += 1
    for k in range(n_open):
        for e in range(space.first[points[k]], space.first[points[k] + 1]):
            room.open[which[e]] += 1
    most, point = 0.0, -1
    for k in range(n_open):
        room.share[k] = 0.0
        tolls = 0.0
        for e in range(space.first[points[k]], space.first[points[k] + 1]):
            toll = y[n + which[e]]
            tolls += toll
            if room.inside[which[e]] == 1:
                room.share[k] += toll / room.open[which[e]]
        if tolls > most:
            most, point = tolls, points[k]
        room.value[k] -= room.share[k]
        room.far[k] -= room.share[k]
    paid = 0.0
    for t in range(n_triples):
        if room.inside[t] >= 2:
            paid += y[n + t]
    return paid, most, point


@inner
def _level_of(g, n_low, n_high):  # type: ignore[no-untyped-def]
    """Return t, the value above which a point joins a set of the node's sizes."""
    if n_low < n_high:
        return -(g[n_high] - g[n_low]) / (n_high - n_low)
    t = -g[n_low] + g[n_low - 1]
    if n_low + 1 < g.shape[0]:
        t = 0.5 * (t - g[n_low + 1] + g[n_low])
    return t


@inner
def _bound(space, points, n_low, n_high, n_in, n_open, base, t, room):  # type: ignore[no-untyped-def]
    """Return (bound, its part without open points, Σ (a − t)⁺ at the centre).

    Set the slope and the width of the bound by chords.
    """
    g, tau, centre, half, total = space.g, space.tau, room.centre, room.half, room.total
    n_columns = space.x.shape[1]
    constant = 0.0  # Σ (U − t)⁺
    linear = 0.0  # Σ of chords, at δ = 0
    middle = 0.0
    for d in range(n_columns):
        room.slope[d] = total[d] - n_in * centre[d]
        room.width[d] = 0.0
    for k in range(n_open):
        a, e = room.value[k], room.spread[k]
        constant += max(room.far[k] - t, 0.0)
        middle += max(a - t, 0.0)
        i = points[k]
        if a - e >= t:
            linear += a - t
            for d in range(n_columns):
                room.slope[d] += space.x[i, d] - centre[d]
        elif a + e > t:
            share = 0.5 * (a + e - t) / e
            linear += share * e
            for d in range(n_columns):
                off = space.x[i, d] - centre[d]
                room.slope[d] += share * off
                room.width[d] += abs(off)
    fixed = base + max(g[n_low] + n_low * t, g[n_high] + n_high * t) - n_in * t
    chords = linear
    distance = constant
    for d in range(n_columns):
        away = centre[d] - space.mu[d]
        fixed += centre[d] * (total[d] - 0.5 * n_in * centre[d]) - 0.5 * tau[d] * away * away
        pull = tau[d] * away
        chords += _peak(room.slope[d] - pull, n_low + tau[d], half[d])
        distance += _peak(total[d] - n_in * centre[d] - pull, n_in + tau[d], half[d])
    return fixed + min(chords, distance), fixed, middle


@inner
def _try_set(space, y, points, n_low, n_in, n_open, base, t, room):  # type: ignore[no-untyped-def]
    """Choose the best set at the centre m where the bound is largest; room.slope becomes that m.

    Return (how many open points the set has, its value).
    """
    n, n_columns = space.x.shape
    n_chosen = 0
    for s in range(space.triples.shape[0]):
        room.tried[s] = room.inside[s]
    for d in range(n_columns):
        room.trial[d] = room.total[d]
        pull = space.tau[d] * (room.centre[d] - space.mu[d])
        step = (room.slope[d] - pull) / (n_low + space.tau[d])
        room.slope[d] = room.centre[d] + min(max(step, -room.half[d]), room.half[d])
    for k in range(n_open):
        i = points[k]
        square = 0.0
        for d in range(n_columns):
            off = space.x[i, d] - room.slope[d]
            square += off * off
        if -0.5 * square - y[i] - room.share[k] > t:
            room.chosen[n_chosen] = i
            n_chosen += 1
            base += _own(space, y, i)
            for e in range(space.first[i], space.first[i + 1]):
                room.tried[space.which[e]] += 1
            for d in range(n_columns):
                room.trial[d] += space.x[i, d]
    if n_in + n_chosen == 0:
        return 0, -np.inf
    for s in range(space.triples.shape[0]):
        if room.tried[s] >= 2:
            base -= y[n + s]
    return n_chosen, _set_value(space, room.trial, base, n_in + n_chosen)


@inner
def _size_loss(g, n_low, n_high):  # type: ignore[no-untyped-def]
    """Return how loose the bound is because the node has a range of sizes."""
    if n_high - n_low == 1:
        return 0.25 / n_high
    between = (n_low + n_high) // 2
    chord = g[n_low] + (g[n_high] - g[n_low]) * (between - n_low) / (n_high - n_low)
    return chord - g[between]


@inner
def _most_doubtful(points, n_open, t, room):  # type: ignore[no-untyped-def]
    """Return the open point whose value is closest to the threshold t."""
    best = 0
    for k in range(1, n_open):
        if abs(room.value[k] - t) < abs(room.value[best] - t):
            best = k
    return points[best]


@inner
def _widest_column(n_low, room):  # type: ignore[no-untyped-def]
    """Return the column in which the bound by chords is loosest."""
    cut = 0
    widest = -1.0
    for d in range(room.half.shape[0]):
        loss = (room.width[d] + 0.25 * n_low * room.half[d]) * room.half[d]
        if loss > widest:
            widest = loss
            cut = d
    return cut


@inner
def _push(nodes, top, age, n_low, n_high, fresh, n_open, n_in, base, bound, room):  # type: ignore[no-untyped-def]
    """Put a node with the box and sums of the working space on the stack."""
    n_columns = room.centre.shape[0]
    for d in range(n_columns):
        nodes.centre[top, d] = room.centre[d]
        nodes.half[top, d] = room.half[d]
        nodes.sums[top, d] = room.total[d]
    nodes.sums[top, n_columns] = base
    nodes.bound[top] = bound
    integers = nodes.integers
    integers[top, N_LOW], integers[top, N_HIGH] = n_low, n_high
    integers[top, START], integers[top, LENGTH] = fresh, n_open
    integers[top, N_IN], integers[top, POINT], integers[top, ACTION] = n_in, -1, 0
    integers[top, AGE] = age


@inner
def _within(space, total, n, centre, half):  # type: ignore[no-untyped-def]
    """Whether a set's posterior mean lies in the box, so that only one box records the set."""
    for d in range(total.shape[0]):
        own = (total[d] + space.tau[d] * space.mu[d]) / (n + space.tau[d])
        if abs(own - centre[d]) > half[d] * (1.0 + 1e-9) + 1e-12:
            return False
    return True


@inner
def _record(found, y, inside, n_in, chosen, n_chosen, value, mode):  # type: ignore[no-untyped-def]
    """Record the set inside[:n_in] ∪ chosen[:n_chosen]; in mode RAISE, raise prices for it."""
    at = found.count[1]
    found.count[1] += 1
    found.values[at] = value
    size = n_in + n_chosen
    for i in range(found.members.shape[1]):
        found.members[at, i] = 0
    for k in range(size):
        i = inside[k] if k < n_in else chosen[k - n_in]
        found.members[at, i] = 1
        if mode == RAISE:
            y[i] += value / size
    if mode == LARGEST:
        found.level[0] = max(found.level[0], value)
    elif mode == RAISE:
        found.count[2] += 1


@inner
def _visit(space, y, nodes, room, found, run, top):  # type: ignore[no-untyped-def]
    """Settle the node at `top`, or replace it by itself or two children; return the new top."""
    integers, parent_bound, floor = nodes.integers, nodes.bound[top], found.level[0]
    fresh = integers[top, START] + integers[top, LENGTH]
    if fresh + integers[top, LENGTH] > nodes.arena.shape[0]:
        found.level[1] = max(found.level[1], parent_bound)
        return top
    base = _load(space, y, nodes, found, top, room)
    n_in, n_open, base = _sort_points(space, y, nodes, top, run.margin, base, room)
    n_low = max(integers[top, N_LOW], n_in)
    n_high = min(integers[top, N_HIGH], n_in + n_open)
    if n_low > n_high:
        return top
    points = nodes.arena[fresh : fresh + n_open]
    paid, tolls, point = _charge(space, y, nodes.inside, points, n_in, n_open, room)
    if n_open == 0:
        value = _set_value(space, room.total, base - paid, n_in)
        counted = run.mode != ALL or _within(space, room.total, n_in, room.centre, room.half)
        if value > floor and counted:
            _record(found, y, nodes.inside, n_in, room.chosen, 0, value, run.mode)
        return top
    t = _level_of(space.g, n_low, n_high)
    bound, fixed, middle = _bound(space, points, n_low, n_high, n_in, n_open, base - paid, t, room)
    bound = min(bound, parent_bound) + run.rounding
    if bound <= floor:
        return top
    if run.mode != ALL:
        n_chosen, value = _try_set(space, y, points, n_low, n_in, n_open, base, t, room)
        if value > floor:
            _record(found, y, nodes.inside, n_in, room.chosen, n_chosen, value, run.mode)
            return top + 1  # examine the same node again: with a higher floor or other prices
    if top + 2 > integers.shape[0] or _widest(room.half) <= _SMALLEST:
        found.level[1] = max(found.level[1], bound)
        return top
    age = found.count[2]
    for child in range(2):
        _push(nodes, top + child, age, n_low, n_high, fresh, n_open, n_in, base, bound, room)
    lost = bound - fixed - middle  # looseness due to the size of the box
    by_size = n_low < n_high and _size_loss(space.g, n_low, n_high) >= lost
    # Even in the smallest box, tolls and the margin can leave points open.
    by_tolls = point >= 0 and lost < _TOLLS * tolls
    if by_size and not by_tolls:
        integers[top, N_HIGH] = (n_low + n_high) // 2
        integers[top + 1, N_LOW] = (n_low + n_high) // 2 + 1
    elif by_tolls or (run.mode == ALL and (n_open <= _POINT_BRANCH or lost < run.margin)):
        if not by_tolls:
            point = _most_doubtful(points, n_open, t, room)
        for child in range(2):
            integers[top + child, POINT], integers[top + child, ACTION] = point, 1 + child
    else:
        cut = _widest_column(n_low, room)
        for child in range(2):
            nodes.half[top + child, cut] *= 0.5
            nodes.centre[top + child, cut] += (child - 0.5) * room.half[cut]
    return top + 2


@kernel
def explore(space, y, nodes, room, found, run, budget):  # type: ignore[no-untyped-def]
    """Work on the stack until it is empty, no more sets can be recorded, or `budget` is spent.

    The budget counts points examined.  The modes differ as follows.

    LARGEST: a node is settled if its bound is not above the floor and the best value found.
    RAISE: the prices of the members of a set above the floor are raised to pay for it; `y` changes.
    ALL: every set above the floor is recorded.
    """
    work = 0
    top = found.count[0]
    while top > 0 and work < budget and found.count[1] < found.values.shape[0]:
        top -= 1
        if nodes.bound[top] > found.level[0]:
            work += 3 * nodes.integers[top, LENGTH] + 20
            top = _visit(space, y, nodes, room, found, run, top)
    found.count[0] = top
