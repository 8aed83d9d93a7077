"""Limits that the points of a node set to its box of statistics (`regions`): kernels.

A node has points that are *in* each of its sets, points that are *out* of all, and open ones.  The
mean of a set lies between the means of the points that are in together with the smallest, or the
largest, open values; the same holds for its mean square about m₀.  By Bhatia and Davis (2000) a
variance is at most (largest − mean)(mean − smallest).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Ints, Matrix, Vector

OPEN, IN, OUT = range(3)
_SLACK = 1e-12


class Space(NamedTuple):
    """The points, and how the coordinates of a box are arranged by terms."""

    values: Matrix  # [value, point]
    order: Ints  # [value, place]: points by increasing value
    largest: Vector  # [value]: 1 + the largest absolute value
    whole: Ints  # [value]: whether all are integers
    masks: Matrix  # [term, point]: whether the point has values
    n_values: Ints  # by term
    squares: Ints
    counted: Ints
    least: Vector  # c of each term
    begin: Ints  # [term + 1]: first coordinate
    corners: Ints  # [term + 1]: first point of a region
    base: Vector  # [n]


@kernel
def shrink_boxes(space, n_low, n_high, low, high, status, alive):  # type: ignore[no-untyped-def]
    """Shrink boxes, in place, to what their points allow; set which are not empty."""
    n_points = space.values.shape[1]
    for b in range(n_low.shape[0]):
        n_in = 0
        n_open = 0
        for i in range(n_points):
            n_in += status[b, i] == IN
            n_open += status[b, i] == OPEN
        n_low[b] = max(n_low[b], n_in)
        n_high[b] = min(n_high[b], n_in + n_open)
        alive[b] = n_low[b] <= n_high[b]
        at = 0
        for t in range(space.n_values.shape[0]):
            if not alive[b]:
                break
            sizes = (n_low[b], n_high[b], n_in)
            alive[b] = _shrink_term(space, t, at, sizes, low[b], high[b], status[b])
            if not alive[b] and space.counted[t] == 1:
                alive[b] = _without_values(space, t, low[b], high[b])
            at += space.n_values[t]


@inner
def _without_values(space, t, low, high):  # type: ignore[no-untyped-def]
    """Restrict an empty box to sets of rows without values; return whether there are any."""
    first = space.begin[t]
    if low[first] > 0.0:
        return False
    for c in range(first, space.begin[t + 1]):
        low[c] = 0.0
        high[c] = 0.0
    return True


@inner
def _shrink_term(space, t, at, sizes, low, high, status):  # type: ignore[no-untyped-def]
    """Shrink the sides of one term, whose values begin at `at`; return whether any set is left."""
    d = space.n_values[t]
    c = space.begin[t]
    counted = space.counted[t] == 1
    if counted:
        seen, known = _shares(space.masks[t], status)
        low[c] = max(low[c], seen / sizes[1])
        high[c] = min(high[c], known / sizes[0])
        if low[c] > high[c] or high[c] == 0.0:
            return False
        c += 1
    for k in range(d):
        values = space.values[at + k]
        slack = _SLACK * space.largest[at + k]
        if counted:
            least, most = _ends(values, space.masks[t], status)
        else:
            least, most = _means(values, space.order[at + k], sizes, status)
        low[c + k] = max(low[c + k], least - slack)
        high[c + k] = min(high[c + k], most + slack)
        if space.whole[at + k] == 1 and not counted and sizes[0] == sizes[1]:
            n = float(sizes[0])
            low[c + k] = max(low[c + k], math.ceil(low[c + k] * n - 1e-6) / n)
            high[c + k] = min(high[c + k], math.floor(high[c + k] * n + 1e-6) / n)
        if low[c + k] > high[c + k]:
            return False
    if space.squares[t] == 0:
        return True
    v = c + d
    least, most = _variances(space, t, at, sizes, low[c], high[c], status)
    low[v] = max(low[v], least + space.least[t])
    high[v] = min(high[v], most + space.least[t])
    if low[v] > high[v]:
        return False
    if d == 2:
        least, most = _variances(space, t, at + 1, sizes, low[c + 1], high[c + 1], status)
        # |V₁₂| ≤ √(V₁₁V₂₂), and √(U − c)/U is largest at 2c.
        u = min(max(2.0 * space.least[t], low[v]), high[v])
        steep = math.sqrt(most * max(u - space.least[t], 0.0)) / u * (1.0 + _SLACK)
        low[v + 1] = max(low[v + 1], -steep)
        high[v + 1] = min(high[v + 1], steep)
        power = max(low[v + 1] * low[v + 1], high[v + 1] * high[v + 1])
        low[v + 2] = max(low[v + 2], max(least - power * high[v] * (1.0 + _SLACK), 0.0))
        high[v + 2] = min(high[v + 2], most)
        return low[v + 1] <= high[v + 1] and low[v + 2] <= high[v + 2]
    return True


@inner
def _shares(mask, status):  # type: ignore[no-untyped-def]
    """Return how many points with values are in, and how many are not out."""
    seen = 0.0
    known = 0.0
    for i in range(mask.shape[0]):
        if status[i] != OUT:
            known += mask[i]
            if status[i] == IN:
                seen += mask[i]
    return seen, known


@inner
def _ends(values, mask, status):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest value of points that are not out."""
    least = np.inf
    most = -np.inf
    for i in range(values.shape[0]):
        if status[i] != OUT and mask[i] != 0.0:
            least = min(least, values[i])
            most = max(most, values[i])
    if least > most:  # none has a value: any mean will do
        return 0.0, 0.0
    return least, most


@inner
def _means(values, order, sizes, status):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest mean of a value over the node's sets."""
    n_points = values.shape[0]
    inside = 0.0
    for i in range(n_points):
        if status[i] == IN:
            inside += values[i]
    n_low, n_high, n_in = sizes
    ends = (np.inf, -np.inf)
    for side in range(2):
        total = inside
        n = n_in
        place = 0
        best = np.inf if side == 0 else -np.inf
        while True:
            if n >= n_low:
                mean = total / n if n > 0 else 0.0
                if n > 0:
                    best = min(best, mean) if side == 0 else max(best, mean)
            if n == n_high:
                break
            i = order[place] if side == 0 else order[n_points - 1 - place]
            while status[i] != OPEN:
                place += 1
                i = order[place] if side == 0 else order[n_points - 1 - place]
            total += values[i]
            n += 1
            place += 1
        ends = (best, ends[1]) if side == 0 else (ends[0], best)
    return ends


@inner
def _variances(space, t, value, sizes, low, high, status):  # type: ignore[no-untyped-def]
    """Return bounds of the variance of a value over the node's sets with means low … high."""
    values = space.values[value]
    mask = space.masks[t]
    slack = _SLACK * space.largest[value] * space.largest[value]
    first, last = _ends(values, mask, status)
    best = min(max(0.5 * (first + last), low), high)
    most = max((last - best) * (best - first), 0.0)
    least = 0.0
    if space.counted[t] == 0:
        middle = 0.5 * (low + high)
        near = _nearest(values, space.order[value], sizes, middle, status)
        half = 0.5 * (high - low)
        least = max(near - half * half - slack, 0.0)
    return least, most + slack


@inner
def _nearest(values, order, sizes, middle, status):  # type: ignore[no-untyped-def]
    """Return the smallest mean square about `middle` over the node's sets."""
    n_points = values.shape[0]
    total = 0.0
    for i in range(n_points):
        if status[i] == IN:
            off = values[i] - middle
            total += off * off
    n_low, n_high, n = sizes
    right = 0
    step = n_points
    while step > 0:  # the first place whose value is not below the middle
        half = step // 2
        if values[order[right + half]] < middle:
            right += half + 1
            step -= half + 1
        else:
            step = half
    left = right - 1
    best = np.inf
    while True:
        if n >= n_low and n > 0:
            best = min(best, total / n)
        if n == n_high:
            return best
        while right < n_points and status[order[right]] != OPEN:
            right += 1
        while left >= 0 and status[order[left]] != OPEN:
            left -= 1
        above = values[order[right]] - middle if right < n_points else np.inf
        below = middle - values[order[left]] if left >= 0 else np.inf
        if above <= below:
            total += above * above
            right += 1
        else:
            total += below * below
            left -= 1
        n += 1
