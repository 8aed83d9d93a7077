"""Limits that the points of a node set to its box of sums: the kernels that shrink a node.

The points that are in, and those that are free, limit the sums of `_sum_boxes`; a point with which
no possible sums lie in the box is out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dpsearch._jit import inner
from dpsearch._types import Ints, Ints8, Matrix, Vector

BINARY, COUNTS = range(2)
FREE, IN, OUT = range(3)


class Space(NamedTuple):
    """Points and tables.  The last column of documents is their length."""

    kind: int
    x: Any  # int64 [point, column]
    real: Matrix  # the same as floating-point numbers
    ascending: Any  # int64 [column, place]: points by increasing value
    begin: Ints  # where a column's table begins in `table`
    table: Vector  # log (a)_s, end to end
    other: Matrix  # [column, s]: log (b)_s for BetaCounts
    slope: Matrix  # [n, column]: log(b + n) for GammaCounts
    prior: Vector  # a of each column
    concave: int  # the column of lengths, or −1
    constant: Vector  # [n]


class Room(NamedTuple):
    """Working space for one node, by column and by point."""

    low: Ints  # [column]
    high: Ints
    sums: Ints  # of the chosen set
    lines: Vector  # [column]: slopes of the lines
    inside: Vector  # sums of the points that are in
    spare: Vector  # sums of the points that are free
    barred: Ints8  # [column]: 1 if ones are impossible, 2 if zeros are, 3 if both are
    status: Ints8  # [point]
    chosen: Ints8  # [point]: 1 if it is in the best set of the linear bound
    free: Ints
    values: Vector


@inner
def part(space, d, n, s):  # type: ignore[no-untyped-def]
    """Return f_d(n, s)."""
    value = space.table[space.begin[d] + s]
    if d == space.concave:
        return -value
    if space.kind == BINARY:
        return value + space.other[d, n - s]
    return value - s * space.slope[n, d]


@inner
def limit(space, n, room):  # type: ignore[no-untyped-def]
    """Shrink the box to the possible sums; take out points that do not fit.

    Return (whether the node may contain a set, number of points in, number free).
    """
    if space.kind == BINARY:
        return _limit_bits(space, n, room)
    return _limit_sums(space, n, room)


@inner
def _limit_bits(space, n, room):  # type: ignore[no-untyped-def]
    """`limit` for zeros and ones, by counting the ones of each column."""
    n_points, n_columns = space.x.shape
    while True:
        n_in = 0
        n_free = 0
        for d in range(n_columns):
            room.inside[d] = 0.0
            room.spare[d] = 0.0
        for i in range(n_points):
            if room.status[i] == IN:
                n_in += 1
                for d in range(n_columns):
                    room.inside[d] += space.real[i, d]
            elif room.status[i] == FREE:
                n_free += 1
                for d in range(n_columns):
                    room.spare[d] += space.real[i, d]
        missing = n - n_in
        if missing < 0 or n_free < missing:
            return False, n_in, n_free
        if n_free > 0 and (missing == 0 or missing == n_free):  # only one set is left
            for i in range(n_points):
                if room.status[i] == FREE:
                    room.status[i] = OUT if missing == 0 else IN
            continue
        any_barred = False
        for d in range(n_columns):
            inside = int(room.inside[d])
            ones = int(room.spare[d])
            zeros = n_free - ones
            room.low[d] = max(room.low[d], inside + max(0, missing - zeros))
            room.high[d] = min(room.high[d], inside + min(missing, ones))
            low, high = room.low[d], room.high[d]
            if low > high:
                return False, n_in, n_free
            room.barred[d] = 0
            if missing > 0:
                least = inside + max(0, missing - 1 - zeros)
                most = inside + min(missing - 1, ones)
                if ones > 0 and (1 + least > high or 1 + most < low):
                    room.barred[d] += 1
                if zeros > 0 and (least > high or most < low):
                    room.barred[d] += 2
                if room.barred[d] != 0:
                    any_barred = True
        if not any_barred or not _bar(space, room):
            return True, n_in, n_free


@inner
def _bar(space, room):  # type: ignore[no-untyped-def]
    """Take out free points with an impossible bit; return whether there were any."""
    changed = False
    for i in range(space.x.shape[0]):
        if room.status[i] == FREE:
            for d in range(space.x.shape[1]):
                if room.barred[d] & (2 - space.x[i, d]):
                    room.status[i] = OUT
                    changed = True
                    break
    return changed


@inner
def _extreme_sum(space, d, missing, place, step, room):  # type: ignore[no-untyped-def]
    """Return the sum of the first `missing` free points from one end, and that without the last."""
    total = 0
    all_but_one = 0
    taken = 0
    while taken < missing:
        i = space.ascending[d, place]
        if room.status[i] == FREE:
            all_but_one = total
            total += space.x[i, d]
            taken += 1
        place += step
    return total, all_but_one


@inner
def _limit_sums(space, n, room):  # type: ignore[no-untyped-def]
    """`limit` for counts, by adding up the smallest and the largest values of each column."""
    n_points, n_columns = space.x.shape
    n_in = 0
    n_free = 0
    for i in range(n_points):
        if room.status[i] == IN:
            n_in += 1
        elif room.status[i] == FREE:
            n_free += 1
    missing = n - n_in
    if missing < 0 or n_free < missing:
        return False, n_in, n_free
    if missing == 0 or missing == n_free:  # only one set is left
        for i in range(n_points):
            if room.status[i] == FREE:
                room.status[i] = OUT if missing == 0 else IN
        n_in += missing
        n_free = 0
        missing = 0
    for d in range(n_columns):
        inside = 0
        for i in range(n_points):
            if room.status[i] == IN:
                inside += space.x[i, d]
        least, least_but_one = _extreme_sum(space, d, missing, 0, 1, room)
        most, most_but_one = _extreme_sum(space, d, missing, n_points - 1, -1, room)
        if inside + least > room.low[d]:
            room.low[d] = inside + least
        if inside + most < room.high[d]:
            room.high[d] = inside + most
        if room.low[d] > room.high[d]:
            return False, n_in, n_free
        if missing > 0:
            for i in range(n_points):
                if room.status[i] == FREE:
                    with_it = inside + space.x[i, d]
                    if (
                        with_it + least_but_one > room.high[d]
                        or with_it + most_but_one < room.low[d]
                    ):
                        room.status[i] = OUT
                        n_free -= 1
            if n_free < missing:
                return False, n_in, n_free
    return True, n_in, n_free
