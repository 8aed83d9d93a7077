"""The paper's greedy completion of P(m), for many vectors of counts that differ by one point.

Placing a point multiplies P(m) by α/(m_1 + 1) if it opens a cluster, and by
i m_i / ((i + 1)(m_{i+1} + 1)) if it joins one of size i (the paper's Eq. 3).  The remaining points
are placed one by one where P(m) grows most.  A cluster that is the only one of its size cannot beat
a larger one.  So only the *repeated* sizes, the largest size and a new cluster are compared, and a
completion takes a few steps over a few sizes for any number of clusters.

If the only cluster of size s has grown to s + 1, the completion of m still applies, unless it has
examined one of these two sizes.  `marks` says which sizes it has examined.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Vector

_TIE = 1.0 + 1e-12  # factors whose ratio is below this are equal up to rounding
_SMALLEST, _LARGEST = 1e-200, 1e200  # products beyond these are replaced by their logarithms


class Rule(NamedTuple):
    """How P(m) is completed, as kernels see it."""

    alpha: float
    early_stop: bool


NO_RULE = Rule(1.0, False)  # passed to kernels with a prior of product form


class Completion(NamedTuple):
    """Counts of cluster sizes, and working space; `forget_sizes` restores it after each use."""

    counts: Any  # int32 [size]: m
    marks: Any  # bool [size]: whether the completion from m has examined this size
    marked: Ints  # the first path[1] entries are the sizes that it has examined
    repeated: Ints  # the first path[0] entries are the sizes with m > 1, ascending
    now: Ints  # the same in the course of a completion
    steps: Ints  # the sizes of the clusters that each step of a completion has enlarged
    values: Vector  # [size]: log P(m) completed after a point joins a cluster of this size, or NaN
    path: Ints  # [3]: the number of repeated sizes, of marked sizes, and the largest size


def completion_room(n_points: int) -> Completion:
    """Return working space for n points, which have at most √(2n) distinct cluster sizes."""
    distinct = math.isqrt(2 * n_points) + 4
    return Completion(
        np.zeros(n_points + 3, np.int32),
        np.zeros(n_points + 3, np.bool_),
        np.zeros(n_points + 3, np.int64),
        np.zeros(distinct, np.int64),
        np.zeros(distinct, np.int64),
        np.zeros(n_points + 1, np.int64),
        np.full(n_points + 3, np.nan),
        np.zeros(3, np.int64),
    )


@inner
def greedy_completion(tables, sizes, remaining, rule, room):  # type: ignore[no-untyped-def]
    """Return log P(m) after placing the remaining points one by one where P(m) grows most."""
    value = count_sizes(tables, sizes, room)
    value += _completed(tables, sizes.shape[0], 0, False, remaining, rule, room)
    forget_sizes(sizes, room)
    return value


@inner
def count_sizes(tables, sizes, room):  # type: ignore[no-untyped-def]
    """Count the clusters of each size; return log P(m)."""
    value = tables.log_v[sizes.shape[0]]
    n_repeated = 0
    largest = 0
    for k in range(sizes.shape[0]):
        size = sizes[k]
        room.counts[size] += 1
        value += tables.log_w[size]
        largest = max(largest, size)
        if room.counts[size] > 1:
            value -= math.log(room.counts[size])
            if room.counts[size] == 2:
                n_repeated = _insert(room.repeated, n_repeated, size)
    room.path[0] = n_repeated
    room.path[2] = largest
    return value


@inner
def forget_sizes(sizes, room):  # type: ignore[no-untyped-def]
    """Reset the counts, marks and values."""
    for k in range(sizes.shape[0]):
        room.counts[sizes[k]] = 0
        room.values[sizes[k]] = np.nan
    for j in range(room.path[1]):
        room.marks[room.marked[j]] = False
    room.path[1] = 0


@inner
def complete_as_they_are(tables, n_clusters, remaining, rule, room):  # type: ignore[no-untyped-def]
    """Return what the completion adds to log P(m), and mark the sizes that it examines."""
    return _completed(tables, n_clusters, 0, True, remaining, rule, room)


@inner
def value_after(tables, n_clusters, size, value, plain, remaining, rule, room):  # type: ignore[no-untyped-def]
    """Return log P(m) completed after a point joins a cluster of this size (0: a new cluster).

    `value` is log P(m), `plain` the result of `complete_as_they_are` for the same `remaining`.
    """
    counts, marks = room.counts, room.marks
    alone = counts[size] == 1 and counts[size + 1] == 0
    if size > 0 and alone and not (marks[size] or marks[size + 1]):
        return value + tables.log_w[size + 1] - tables.log_w[size] + plain
    if size > 0 and not math.isnan(room.values[size]):
        return room.values[size]
    before = counts[size] if size > 0 else 1
    after = counts[size + 1] + 1
    changed = value + tables.log_w[size + 1] + math.log(before / after)
    if size > 0:
        changed -= tables.log_w[size]
    else:
        changed += tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]
        n_clusters += 1
    n_repeated, largest = room.path[0], room.path[2]
    for j in range(n_repeated):
        room.now[j] = room.repeated[j]
    room.path[0] = _grow(counts, room.now, n_repeated, size)
    room.path[2] = max(largest, size + 1)
    changed += _completed(tables, n_clusters, 1, False, remaining, rule, room)
    if size > 0:
        counts[size] += 1
    counts[size + 1] -= 1
    room.path[0] = n_repeated
    room.path[2] = largest
    room.values[size] = changed if size > 0 else np.nan
    return changed


@inner
def _completed(tables, n_clusters, changed, marking, remaining, rule, room):  # type: ignore[no-untyped-def]
    """Return what the greedy completion adds to log P(m), leaving the counts as they were.

    The repeated sizes are in `room.now` if they have `changed`, else in `room.repeated`.
    """
    counts, now, steps = room.counts, room.now, room.steps
    n_repeated, largest = room.path[0], room.path[2]
    if changed == 0:
        for j in range(n_repeated):
            now[j] = room.repeated[j]
    value = 0.0
    product = 1.0
    made = 0
    while remaining > 0:
        fresh = rule.alpha / (counts[1] + 1.0)
        best = fresh if n_clusters > 0 else math.inf
        size = 0
        last = n_repeated if n_repeated > 0 and now[n_repeated - 1] == largest else n_repeated + 1
        for j in range(last if largest > 0 else 0):
            i = now[j] if j < n_repeated else largest
            if marking:
                _mark(room, i)
                _mark(room, i + 1)
            factor = (i * counts[i]) / ((i + 1.0) * (counts[i + 1] + 1.0))
            if factor > best * _TIE:
                best = factor
                size = i
        remaining -= 1
        if n_clusters > 0:
            product *= best
            if product < _SMALLEST or product > _LARGEST:
                value += math.log(product)
                product = 1.0
        else:
            value += tables.log_w[1] + tables.log_v[1] - tables.log_v[0]
        n_repeated = _grow(counts, now, n_repeated, size)
        steps[made] = size
        made += 1
        if size == 0:
            n_clusters += 1
            largest = max(largest, 1)
        elif size == largest:
            largest += 1
            again = largest / (largest + 1.0)
            if rule.early_stop and again * _TIE >= rule.alpha / (counts[1] + 1.0):
                # It takes all the remaining points.
                value += tables.log_w[largest + remaining] - tables.log_w[largest]
                remaining = 0
    if marking:
        _mark(room, 1)
        _mark(room, largest)
    for j in range(made - 1, -1, -1):
        size = steps[j]
        if size > 0:
            counts[size] += 1
        counts[size + 1] -= 1
    return value + math.log(product)


@inner
def _mark(room, size):  # type: ignore[no-untyped-def]
    if not room.marks[size]:
        room.marks[size] = True
        room.marked[room.path[1]] = size
        room.path[1] += 1


@inner
def _grow(counts, repeated, n_repeated, size):  # type: ignore[no-untyped-def]
    """Enlarge a cluster of this size (0: a new one) by 1; return the number of repeated sizes."""
    if size > 0:
        counts[size] -= 1
        if counts[size] == 1:
            n_repeated -= 1
            at = 0
            while repeated[at] != size:
                at += 1
            for j in range(at, n_repeated):
                repeated[j] = repeated[j + 1]
    counts[size + 1] += 1
    if counts[size + 1] == 2:
        n_repeated = _insert(repeated, n_repeated, size + 1)
    return n_repeated


@inner
def _insert(repeated, n_repeated, size):  # type: ignore[no-untyped-def]
    """Insert a size in ascending order; return the number of repeated sizes."""
    at = n_repeated
    while at > 0 and repeated[at - 1] > size:
        repeated[at] = repeated[at - 1]
        at -= 1
    repeated[at] = size
    return n_repeated + 1
