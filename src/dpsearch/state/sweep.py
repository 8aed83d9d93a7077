"""Sweeps over the data: each item moves to its best cluster, or to one drawn by its probability.

The first is refinement's reassignment and, for items that have no cluster yet, the greedy search.
The second is collapsed Gibbs sampling, algorithm 3 of Neal (2000): item i goes to cluster k of the
others with probability proportional to W(n_k + 1)/W(n_k) · H(x_i | cluster k), and to a new one
with V(K + 1)/V(K) · W(1) · H(x_i), where K counts the clusters of the other items.

If a family's score needs only inner products of the point with a linear statistic of each cluster
(`dots`), points are taken in blocks: the cluster rows are read once per block, and the products
are corrected by the points' inner products with each other as the clusters change.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import call_best_dots, call_score_dots, call_update, inner, kernel, view
from dpsearch._types import Labels, Matrix, Vector
from dpsearch.dots import BLOCK, block_products, gather
from dpsearch.items import Core, add_item, score_best, score_item, score_member
from dpsearch.priors.base import size_weight
from dpsearch.state.clusters import drop, open_slot, set_size

# Gains below this many nats are rounding.
EPSILON = 1e-9
# Places less probable than the best by this many nats are not drawn: e^-40 is below rounding.
_NEGLIGIBLE = 40.0


class Room(NamedTuple):
    """Working space of a sweep."""

    out: Vector
    scratch: Vector
    points: Matrix
    alone: Vector  # of the points
    labels: Labels
    products: Matrix
    gram: Matrix


@kernel
def sweep_room(core: Core, n_features: int, n_gathered: int, capacity: int) -> Room:
    """Return room for up to `capacity` clusters."""
    return Room(
        np.empty(capacity),
        np.empty(core.width),
        np.empty((n_gathered, n_features)),
        np.empty(n_gathered),
        np.empty(n_gathered, np.int64),
        np.empty((BLOCK, capacity)),
        np.empty((BLOCK, BLOCK)),
    )


@inner
def sweep_items(core, dots, items, alone, tables, clusters, n_live, order, room, rng, marks):  # type: ignore[no-untyped-def]
    """Visit items in order; return (items visited, number of clusters, items moved).

    With an `rng`, places are drawn; without one, the best is taken.  With `marks`, no item moves,
    and those that would move are marked.  `dots` is None for families without the block capability.
    Each combination of arguments that are None is compiled separately, without the branches that
    it excludes.
    """
    moved = 0
    at = 0
    while at < order.shape[0]:
        stop = at + room.points.shape[0]
        if stop > order.shape[0]:
            stop = order.shape[0]
        if dots is not None:
            gather(items, order[at:stop], room.points)
            for b in range(stop - at):
                room.alone[b] = alone[order[at + b]]
                # This copy is not used, as an item may occur twice in the order and move in
                # between.  Reading the label brings it into the cache.
                room.labels[b] = clusters.labels[order[at + b]]
        for t in range(at, stop, BLOCK):
            if n_live + BLOCK > clusters.sizes.shape[0]:
                return t, n_live, moved
            block = room.points[t - at : t - at + BLOCK]
            if dots is not None:
                block_products(
                    dots,
                    block,
                    clusters.pool,
                    view(clusters.starts, 0, n_live),
                    room.products,
                    room.gram,
                )
            for b in range(BLOCK if t + BLOCK <= stop else stop - t):
                i = order[t + b]
                size = 1 if dots is not None else items.sizes[i]
                single = room.alone[t - at + b] if dots is not None else alone[i]
                label = clusters.labels[i]
                old = clusters.place[label] if label >= 0 else -1
                stay, fresh = known_gains(
                    core, items, i, size, single, tables, clusters, n_live, old, room
                )
                _weigh(
                    core, dots, items, i, size, tables, clusters, n_live, old, stay, fresh, b,
                    room, rng,
                )  # fmt: skip
                if rng is None:
                    best = _best_place(n_live, old, fresh, room)
                else:
                    best = drawn_place(n_live, old, fresh, room, rng)
                if marks is not None:
                    marks[t + b] = best != old
                    continue
                if best == old:
                    continue
                moved += 1
                n_live = move_item(
                    core, items, i, size, tables, clusters, n_live, best, dots, block, b, room
                )
        at = stop
    return order.shape[0], n_live, moved


@inner
def _weigh(core, dots, items, i, size, tables, clusters, n_live, old, stay, fresh, b, room, rng):  # type: ignore[no-untyped-def]
    """Set room.out to the log weight of each cluster for item i, point b of its block.

    Without an `rng`, −∞ may stand for clusters that cannot be the best.
    """
    starts = view(clusters.starts, 0, n_live)
    weighted = False
    if dots is not None:
        products, square = room.products[b], room.gram[b, b]
        weighted = rng is None and dots.best_dots != 0
        if weighted:
            floor = stay if stay > fresh else fresh
            call_best_dots(
                dots.best_dots,
                (core.params, clusters.pool, starts, products, square, clusters.steps, old, floor,
                 room.out),
            )  # fmt: skip
        else:
            call_score_dots(
                dots.score_dots, (core.params, clusters.pool, starts, products, square, room.out)
            )
    else:
        if rng is None:
            weighted = score_best(
                core, items, i, clusters.pool, starts, clusters.steps, old, room.out
            )
        if not weighted:
            score_item(core, items, i, clusters.pool, starts, room.out, room.scratch)
    if not weighted:
        add_steps(size, tables, clusters, n_live, old, room)
    if old >= 0:
        room.out[old] = stay


@inner
def known_gains(core, items, i, size, alone, tables, clusters, n_live, old, room):  # type: ignore[no-untyped-def]
    """Return the log weights of staying and of a new cluster; −∞ if one of them is not possible.

    They are relative to the partition without item i.  `old` is the position in live of the item's
    cluster, −1 if it has none.
    """
    fresh = alone + size_weight(tables, size)
    if old >= 0:
        slot = clusters.live[old]
        n = clusters.sizes[slot]
        if n == size:  # the item is alone, so that staying is the same as a new cluster
            return fresh + tables.log_v[n_live] - tables.log_v[n_live - 1], -np.inf
    fresh += tables.log_v[n_live + 1] - tables.log_v[n_live]
    if old < 0:
        return -np.inf, fresh
    row = view(clusters.pool, slot * core.width, core.width)
    stay = score_member(core, items, i, row, room.scratch)
    return stay + size_weight(tables, n) - size_weight(tables, n - size), fresh


@inner
def add_steps(size, tables, clusters, n_live, old, room):  # type: ignore[no-untyped-def]
    """Add the prior's part to the scores in room.out; callers set that of the old place."""
    for k in range(n_live):
        if size == 1:
            room.out[k] += clusters.steps[k]
        elif k != old:
            other = clusters.sizes[clusters.live[k]]
            room.out[k] += size_weight(tables, other + size) - size_weight(tables, other)


@inner
def _best_place(n_live, old, fresh, room):  # type: ignore[no-untyped-def]
    """Return the position in live of the item's best cluster; n_live for a new one."""
    best = old
    best_gain = room.out[old] + EPSILON if old >= 0 else -np.inf
    for k in range(n_live):
        if room.out[k] > best_gain:
            best_gain = room.out[k]
            best = k
    if fresh > best_gain:
        best = n_live
    return best


@inner
def drawn_place(n_live, old, fresh, room, rng):  # type: ignore[no-untyped-def]
    """Draw the position in live of the item's cluster; n_live for a new one."""
    top = fresh
    for k in range(n_live):
        top = max(top, room.out[k])
    total = math.exp(fresh - top)
    for k in range(n_live):
        below = room.out[k] - top
        weight = math.exp(below) if below > -_NEGLIGIBLE else 0.0
        room.out[k] = weight
        total += weight
    left = rng.random() * total
    for k in range(n_live):
        left -= room.out[k]
        if left < 0.0:
            return k
    # The rest belongs to the new cluster, if it is possible; rounding may leave a rest if not.
    return n_live if fresh > -np.inf else old


@inner
def move_item(core, items, i, size, tables, clusters, n_live, best, dots, block, b, room):  # type: ignore[no-untyped-def]
    """Move item i and correct the block's products; return the number of clusters."""
    width = core.width
    if best == n_live:
        open_slot(core, clusters, n_live)
        if dots is not None:
            for later in range(BLOCK):
                room.products[later, n_live] = 0.0
        n_live += 1
    source = clusters.labels[i]
    target = clusters.live[best]
    _add(core, items, i, view(clusters.pool, target * width, width), dots, block, b, 1.0)
    if dots is not None:
        for later in range(b + 1, BLOCK):
            room.products[later, best] += room.gram[b, later]
    set_size(tables, clusters, best, clusters.sizes[target] + size)
    clusters.labels[i] = target
    clusters.changed[target] = True
    if source < 0:
        return n_live
    old = clusters.place[source]
    _add(core, items, i, view(clusters.pool, source * width, width), dots, block, b, -1.0)
    if dots is not None:
        for later in range(b + 1, BLOCK):
            room.products[later, old] -= room.gram[b, later]
    set_size(tables, clusters, old, clusters.sizes[source] - size)
    clusters.changed[source] = True
    if clusters.sizes[source] == 0:
        n_live -= 1
        drop(clusters, n_live, old)
        if dots is not None:
            for later in range(BLOCK):
                room.products[later, old] = room.products[later, n_live]
    return n_live


@inner
def _add(core, items, i, row, dots, block, b, sign):  # type: ignore[no-untyped-def]
    if dots is not None:
        call_update(core.update, (core.params, row, items.ids, block[b], sign))
    else:
        add_item(core, items, i, row, sign)
