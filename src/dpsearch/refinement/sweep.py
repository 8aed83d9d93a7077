"""Reassignment sweeps over the whole data set: each item to its best cluster, or to a new one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import call_score_dots, call_update, inner
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.dots import BLOCK, block_products, gather, gather_size
from dpsearch.items import add_item, clear_row, score_item, score_member
from dpsearch.objective import Problem
from dpsearch.refinement.local import EPSILON


class Clusters(NamedTuple):
    """The current partition.  A label is a slot; the slots in use are `live[:n]`, in no order."""

    pool: Vector
    sizes: Ints  # [slot]; 0 if free
    steps: Vector  # [position in live]: log W(n + 1) − log W(n) of its size n
    live: Ints
    starts: Ints  # [position in live]: where the slot's row begins
    place: Ints  # [slot]: position in live
    changed: Any  # bool [slot]: since somebody last looked
    labels: Labels


class _Room(NamedTuple):
    out: Vector
    scratch: Vector
    points: Matrix
    products: Matrix
    gram: Matrix


def sweep(problem: Problem, clusters: Clusters, n_live: int, order: Ints) -> tuple[int, int, int]:
    """Visit the items in order, up to where the slots run out.

    Return (items visited, number of clusters, items moved).
    """
    capacity = len(clusters.sizes)
    n_features = problem.model.n_features
    room = _Room(
        out=np.empty(capacity),
        scratch=np.empty(problem.model.core.width),
        points=np.empty((gather_size(n_features), n_features)),
        products=np.empty((BLOCK, capacity)),
        gram=np.empty((BLOCK, BLOCK)),
    )
    dots = problem.model.dots()
    if problem.items.blocks:
        dots = None
    # Numba leaves out what depends on dots when it is None, so the two cases compile apart.
    done, n_live, moved = _sweep(
        problem.model.core, dots, problem.items, problem.alone, problem.tables, clusters, n_live,
        order, room,
    )  # fmt: skip
    return int(done), int(n_live), int(moved)


@inner
def _sweep(core, dots, items, alone, tables, clusters, n_live, order, room):  # type: ignore[no-untyped-def]
    moved = 0
    at = 0
    while at < order.shape[0]:
        stop = min(order.shape[0], at + room.points.shape[0])
        if dots is not None:
            gather(items, order[at:stop], room.points)
        for t in range(at, stop, BLOCK):
            if n_live + BLOCK > clusters.sizes.shape[0]:
                return t, n_live, moved
            block = room.points[t - at : t - at + BLOCK]
            if dots is not None:
                block_products(
                    dots, block, clusters.pool, clusters.starts[:n_live], room.products, room.gram
                )
            for b in range(min(BLOCK, stop - t)):
                i = order[t + b]
                starts = clusters.starts[:n_live]
                if dots is not None:
                    call_score_dots(
                        dots.score_dots,
                        (core.params, clusters.pool, starts, room.products[b], room.gram[b, b],
                         room.out),
                    )  # fmt: skip
                else:
                    score_item(core, items, i, clusters.pool, starts, room.out, room.scratch)
                old = clusters.place[clusters.labels[i]]
                best = _best_place(core, items, i, alone[i], tables, clusters, n_live, old, room)
                if best == old:
                    continue
                moved += 1
                n_live = _move(core, items, i, tables, clusters, n_live, best, dots, block, b, room)
        at = stop
    return order.shape[0], n_live, moved


@inner
def _best_place(core, items, i, alone, tables, clusters, n_live, old, room):  # type: ignore[no-untyped-def]
    """Return the position in live where item i is best off; n_live for a new cluster."""
    size = items.sizes[i]
    slot = clusters.live[old]
    n = clusters.sizes[slot]
    fresh = alone + tables.log_w[size]
    if n > size:
        row = clusters.pool[slot * core.width : (slot + 1) * core.width]
        stay = score_member(core, items, i, row, room.scratch)
        stay += tables.log_w[n] - tables.log_w[n - size]
        fresh += tables.log_v[n_live + 1] - tables.log_v[n_live]
    else:
        stay = fresh + tables.log_v[n_live] - tables.log_v[n_live - 1]
        fresh = -np.inf
    best = old
    best_gain = stay + EPSILON
    if size == 1:
        room.out[old] = -np.inf
        for k in range(n_live):
            gain = room.out[k] + clusters.steps[k]
            if gain > best_gain:
                best_gain = gain
                best = k
    else:
        for k in range(n_live):
            if k == old:
                continue
            n = clusters.sizes[clusters.live[k]]
            gain = room.out[k] + tables.log_w[n + size] - tables.log_w[n]
            if gain > best_gain:
                best_gain = gain
                best = k
    if fresh > best_gain:
        best = n_live
    return best


@inner
def set_size(tables, clusters, at, size):  # type: ignore[no-untyped-def]
    """Set the size of the cluster at a position in live."""
    clusters.sizes[clusters.live[at]] = size
    if size + 1 < tables.log_w.shape[0]:
        clusters.steps[at] = tables.log_w[size + 1] - tables.log_w[size]


@inner
def _move(core, items, i, tables, clusters, n_live, best, dots, block, b, room):  # type: ignore[no-untyped-def]
    """Move item i; keep the block's products right.  Return the number of clusters."""
    width = core.width
    size = items.sizes[i]
    if best == n_live:
        slot = clusters.live[n_live]  # free slots follow the ones in use
        clear_row(core, clusters.pool[slot * width : (slot + 1) * width])
        clusters.sizes[slot] = 0
        clusters.starts[n_live] = slot * width
        clusters.place[slot] = n_live
        if dots is not None:
            for later in range(BLOCK):
                room.products[later, n_live] = 0.0
        n_live += 1
    source = clusters.labels[i]
    target = clusters.live[best]
    old = clusters.place[source]
    _add(core, items, i, clusters.pool[target * width : (target + 1) * width], dots, block, b, 1.0)
    _add(
        core,
        items,
        i,
        clusters.pool[source * width : (source + 1) * width],
        dots,
        block,
        b,
        -1.0,
    )
    if dots is not None:
        for later in range(b + 1, BLOCK):
            room.products[later, best] += room.gram[b, later]
            room.products[later, old] -= room.gram[b, later]
    set_size(tables, clusters, best, clusters.sizes[target] + size)
    set_size(tables, clusters, old, clusters.sizes[source] - size)
    clusters.labels[i] = target
    clusters.changed[source] = True
    clusters.changed[target] = True
    if clusters.sizes[source] == 0:
        n_live -= 1
        drop(clusters, n_live, old)
        if dots is not None:
            for later in range(BLOCK):
                room.products[later, old] = room.products[later, n_live]
    return n_live


@inner
def drop(clusters, last, at):  # type: ignore[no-untyped-def]
    """Take the empty cluster at a position out of live, whose last entry takes its place."""
    slot = clusters.live[at]
    other = clusters.live[last]
    clusters.live[at] = other
    clusters.live[last] = slot
    clusters.place[other] = at
    clusters.starts[at] = clusters.starts[last]
    clusters.steps[at] = clusters.steps[last]


@inner
def _add(core, items, i, row, dots, block, b, sign):  # type: ignore[no-untyped-def]
    if dots is not None:
        call_update(core.update, (core.params, row, items.ids, block[b], sign))
    else:
        add_item(core, items, i, row, sign)
