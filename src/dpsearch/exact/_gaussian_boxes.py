"""Branch and bound over boxes of a cluster's centre: the kernel of Gaussian pricing.

With unit noise, prior precision τ and prior mean μ (column by column; see `families.gaussian`),

    log w(C) − y(C) = max over m of  g(n) − ½ Σ_d τ_d (m_d − μ_d)² + Σ_{i∈C} a_i(m),
    a_i(m) = −½ |x_i − m|² − y_i,
    g(n) = λ + log W(n) − nD/2 log 2π + ½ Σ_d log(τ_d/(n + τ_d)),

so that the best set of n points for a given m are those with the largest a_i.  A *node* is a box
of centres m = c + δ, |δ_d| ≤ h_d, with a range n₁ … n₂ of sizes.  Three facts make its bound.

1. Let s(n) = g(n + 1) − g(n).  At the best set for some m no point can leave or join with a gain.
   So a point whose a_i stays below −max s(n) over n < n₂ in the whole box is *out*, and one whose
   a_i stays above −min s(n) over n ≥ n₁ is *in*; what is left is *open*.
2. The sum of the n largest a_i is at most n·t + Σ_i (a_i − t)⁺ for every t.  g(n) + n·t is convex
   in n where log W is, and then largest at n₁ or n₂.
3. a_i(c + δ) = a_i(c) + (x_i − c)·δ − ½|δ|².  In the linear part, with values between L and U over
   the box, (a − t)⁺ lies below its chord from L to U, which is linear in δ.  The bound is then a
   concave quadratic in δ, maximised column by column; it is exact when no point is open.  In large
   boxes the constant bound (U − t)⁺, with U by the distance to the box, can be better.

A node that is not settled is split, in n or in the box, where the bound gives away more.
Depth first, so that the lists of open points share one arena.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Ints, Matrix, Vector

# What a run is for: the largest violation; prices raised until none is left; or all sets.
LARGEST, RAISE, ALL = range(3)

_POINT_BRANCH = 24  # open points from which sets are enumerated point by point


class Space(NamedTuple):
    """Points and tables that do not change with the prices."""

    x: Matrix  # [N, D], noise 1, centred
    tau: Vector  # prior precision by column
    mu: Vector  # prior mean by column
    g: Vector  # [n] for n = 0 … N; entry 0 is not used
    step_high: Vector  # [n]: largest g(k + 1) − g(k) over 1 ≤ k ≤ n
    step_low: Vector  # [n]: smallest over k ≥ n


class Nodes(NamedTuple):
    """The stack of nodes, and what hangs on it."""

    centre: Matrix
    half: Matrix
    sums: Matrix  # [node, D + 1]: of x and of −½|x|² − y over the points that are in
    whole: Any  # [node, 8] int64: n₁, n₂, list start, list length, number in, point, action, age
    bound: Vector  # of the parent
    arena: Ints  # lists of open points
    inside: Ints  # points that are in, along the current path
    value: Vector  # scratch, one per open point: a, e, U
    spread: Vector
    far: Vector


class Found(NamedTuple):
    """Sets end to end, their values, and counters."""

    members: Ints
    indptr: Ints
    values: Vector
    count: Any  # int64 [4]: nodes on the stack, sets found, node visits, times prices were raised
    level: Any  # float64 [2]: best value found, largest bound of a leaf given up


@inner
def _least_box(half, tiny):  # type: ignore[no-untyped-def]
    widest = 0.0
    for d in range(half.shape[0]):
        widest = max(widest, half[d])
    return widest <= tiny


@inner
def _peak(slope, weight, half):  # type: ignore[no-untyped-def]
    """Return max over |δ| ≤ half of slope·δ − ½ weight δ²."""
    step = min(max(slope / weight, -half), half)
    return step * (slope - 0.5 * weight * step)


@inner
def set_value(space, total, base, n):  # type: ignore[no-untyped-def]
    """Return log w(C) − y(C) from Σx, Σ(−½|x|² − y) and n."""
    out = space.g[n] + base
    for d in range(total.shape[0]):
        tau = space.tau[d]
        away = total[d] / n - space.mu[d]
        out += 0.5 * (total[d] * total[d] / n - n * tau / (n + tau) * away * away)
    return out


@kernel
def explore(space, y, nodes, found, mode, threshold, margin, rounding, budget):  # type: ignore[no-untyped-def]
    """Work on the stack until it is empty, the sets' room is full, or `budget` is spent.

    Budget is counted in points looked at.  Returns True when the stack is empty.

    LARGEST: nodes are settled below the larger of `threshold` and the best value found.
    RAISE: a set above `threshold` has its members' prices raised until it is not; `y` changes.
    ALL: every set with value ≥ threshold is recorded (`margin`: how much a point's removal or
    joining can gain at such a set).
    """
    n_points, n_columns = space.x.shape
    x, tau, mu, g = space.x, space.tau, space.mu, space.g
    whole, arena, inside = nodes.whole, nodes.arena, nodes.inside
    value, spread, far = nodes.value, nodes.spread, nodes.far
    total = np.empty(n_columns)
    trial = np.empty(n_columns)
    slope = np.empty(n_columns)
    width = np.empty(n_columns)
    chosen = np.empty(n_points, np.int64)
    centre = np.empty(n_columns)
    half = np.empty(n_columns)
    work = 0
    top = found.count[0]
    capacity = whole.shape[0]
    while top > 0 and work < budget:
        if found.indptr[found.count[1]] + n_points > found.members.shape[0]:
            break
        if found.count[1] >= found.values.shape[0]:
            break
        top -= 1
        floor = threshold
        if mode == LARGEST:
            floor = max(threshold, found.level[0])
        if nodes.bound[top] <= floor:
            continue
        found.count[2] += 1
        n_low, n_high = whole[top, 0], whole[top, 1]
        start, length = whole[top, 2], whole[top, 3]
        n_in, point, action = whole[top, 4], whole[top, 5], whole[top, 6]
        parent_bound = nodes.bound[top]
        for d in range(n_columns):
            centre[d] = nodes.centre[top, d]
            half[d] = nodes.half[top, d]
            total[d] = nodes.sums[top, d]
        base = nodes.sums[top, n_columns]
        if whole[top, 7] != found.count[3]:  # prices were raised since
            base = 0.0
            for k in range(n_in):
                i = inside[k]
                norm = 0.0
                for d in range(n_columns):
                    norm += x[i, d] * x[i, d]
                base -= 0.5 * norm + y[i]
        fresh = start + length
        if fresh + length > arena.shape[0]:
            found.level[1] = max(found.level[1], parent_bound)
            continue
        work += length + 20
        # -- who is out, in, open
        out_below = -space.step_high[n_high - 1] - margin
        in_above = -space.step_low[n_low] + margin
        n_open = 0
        for k in range(start, start + length):
            i = arena[k]
            near_square = 0.0
            far_square = 0.0
            square = 0.0
            reach = 0.0
            for d in range(n_columns):
                off = abs(x[i, d] - centre[d])
                square += off * off
                reach += off * half[d]
                outer = off + half[d]
                far_square += outer * outer
                closer = max(off - half[d], 0.0)
                near_square += closer * closer
            high = -0.5 * near_square - y[i]
            joins = i == point and action == 1
            if i == point and action == 2:
                continue
            if high < out_below and not joins:
                continue
            if joins or -0.5 * far_square - y[i] > in_above:
                inside[n_in] = i
                n_in += 1
                norm = 0.0
                for d in range(n_columns):
                    total[d] += x[i, d]
                    norm += x[i, d] * x[i, d]
                base -= 0.5 * norm + y[i]
                continue
            arena[fresh + n_open] = i
            value[n_open] = -0.5 * square - y[i]
            spread[n_open] = reach
            far[n_open] = high
            n_open += 1
        n_low = max(n_low, n_in)
        n_high = min(n_high, n_in + n_open)
        if n_low > n_high:
            continue
        # -- the bound
        if n_open == 0:
            exact = set_value(space, total, base, n_in)
            if exact > floor and (mode != ALL or _within(space, total, n_in, centre, half)):
                _record(found, y, inside, n_in, chosen, 0, exact, mode)
            continue
        if n_low < n_high:
            t = -(g[n_high] - g[n_low]) / (n_high - n_low)
        else:
            t = -g[n_low] + g[n_low - 1]
            if n_low < n_points:
                t = 0.5 * (t - g[n_low + 1] + g[n_low])
        size_part = max(g[n_low] + n_low * t, g[n_high] + n_high * t) - n_in * t
        constant = 0.0  # Σ (U − t)⁺
        linear = 0.0  # Σ of chords, at δ = 0
        middle = 0.0  # Σ (a − t)⁺ at the centre
        for d in range(n_columns):
            slope[d] = total[d] - n_in * centre[d]
            width[d] = 0.0
        for k in range(n_open):
            a, e = value[k], spread[k]
            constant += max(far[k] - t, 0.0)
            if a > t:
                middle += a - t
            i = arena[fresh + k]
            if a - e >= t:
                linear += a - t
                for d in range(n_columns):
                    slope[d] += x[i, d] - centre[d]
            elif a + e > t:
                share = 0.5 * (a + e - t) / e
                linear += share * e
                for d in range(n_columns):
                    off = x[i, d] - centre[d]
                    slope[d] += share * off
                    width[d] += abs(off)
        fixed = base + size_part
        for d in range(n_columns):
            fixed += centre[d] * (total[d] - 0.5 * n_in * centre[d])
            away = centre[d] - mu[d]
            fixed -= 0.5 * tau[d] * away * away
        by_chords = fixed + linear
        by_distance = fixed + constant
        for d in range(n_columns):
            pull = tau[d] * (centre[d] - mu[d])
            by_chords += _peak(slope[d] - pull, n_low + tau[d], half[d])
            by_distance += _peak(total[d] - n_in * centre[d] - pull, n_in + tau[d], half[d])
        bound = min(min(by_chords, by_distance), parent_bound) + rounding
        if bound <= floor:
            continue
        # -- the set at the bound's own centre
        work += 2 * n_open
        if mode != ALL:
            n_set = n_in
            own = base
            for d in range(n_columns):
                trial[d] = total[d]
                pull = tau[d] * (centre[d] - mu[d])
                step = (slope[d] - pull) / (n_low + tau[d])
                slope[d] = centre[d] + min(max(step, -half[d]), half[d])
            for k in range(n_open):
                i = arena[fresh + k]
                square = 0.0
                norm = 0.0
                for d in range(n_columns):
                    off = x[i, d] - slope[d]
                    square += off * off
                    norm += x[i, d] * x[i, d]
                if -0.5 * square - y[i] > t:
                    chosen[n_set - n_in] = i
                    n_set += 1
                    own -= 0.5 * norm + y[i]
                    for d in range(n_columns):
                        trial[d] += x[i, d]
            if n_set >= 1:
                exact = set_value(space, trial, own, n_set)
                if exact > floor:
                    _record(found, y, inside, n_in, chosen, n_set - n_in, exact, mode)
                    # Look at the same node again: with a higher floor, or with other prices.
                    top += 1
                    continue
        # -- split
        if top + 2 > capacity or _least_box(half, 1e-12):
            found.level[1] = max(found.level[1], bound)
            continue
        by_size = 0.0
        if n_low < n_high:
            between = (n_low + n_high) // 2
            chord = g[n_low] + (g[n_high] - g[n_low]) * (between - n_low) / (n_high - n_low)
            by_size = chord - g[between]
            if n_high - n_low == 1:
                by_size = 0.25 * (n_high - n_low) / n_high
        by_box = bound - fixed - middle
        split_size = n_low < n_high and by_size >= by_box
        split_point = mode == ALL and not split_size and n_open <= _POINT_BRANCH
        cut = 0
        pick = -1
        if split_point:
            nearest = np.inf
            for k in range(n_open):
                if abs(value[k] - t) < nearest:
                    nearest = abs(value[k] - t)
                    pick = arena[fresh + k]
        elif not split_size:
            widest = -1.0
            for d in range(n_columns):
                if (width[d] + 0.25 * n_low * half[d]) * half[d] > widest:
                    widest = (width[d] + 0.25 * n_low * half[d]) * half[d]
                    cut = d
        for child in range(2):
            for d in range(n_columns):
                nodes.centre[top, d] = centre[d]
                nodes.half[top, d] = half[d]
                nodes.sums[top, d] = total[d]
            nodes.sums[top, n_columns] = base
            nodes.bound[top] = bound
            whole[top, 0], whole[top, 1] = n_low, n_high
            whole[top, 2], whole[top, 3] = fresh, n_open
            whole[top, 4], whole[top, 5], whole[top, 6] = n_in, -1, 0
            whole[top, 7] = found.count[3]
            if split_size:
                if child == 0:
                    whole[top, 1] = (n_low + n_high) // 2
                else:
                    whole[top, 0] = (n_low + n_high) // 2 + 1
            elif split_point:
                whole[top, 5], whole[top, 6] = pick, 1 + child
            else:
                nodes.half[top, cut] = 0.5 * half[cut]
                nodes.centre[top, cut] += (child - 0.5) * half[cut]
            top += 1
    found.count[0] = top
    return top == 0


@inner
def _within(space, total, n, centre, half):  # type: ignore[no-untyped-def]
    """Whether a set's own centre lies in the box, so that each set is counted in one box."""
    for d in range(total.shape[0]):
        own = (total[d] + space.tau[d] * space.mu[d]) / (n + space.tau[d])
        if abs(own - centre[d]) > half[d] * (1.0 + 1e-9) + 1e-12:
            return False
    return True


@inner
def _record(found, y, inside, n_in, chosen, n_chosen, exact, mode):  # type: ignore[no-untyped-def]
    """Keep the set inside[:n_in] ∪ chosen[:n_chosen]; in mode RAISE, pay for it."""
    at = found.count[1]
    end = found.indptr[at]
    size = n_in + n_chosen
    for k in range(size):
        found.members[end + k] = inside[k] if k < n_in else chosen[k - n_in]
    found.indptr[at + 1] = end + size
    found.values[at] = exact
    found.count[1] += 1
    found.level[0] = max(found.level[0], exact)
    if mode == RAISE:
        for k in range(size):
            y[found.members[end + k]] += exact / size
        found.count[3] += 1
