"""The move that every other one is made of: find a new partition of a few clusters' items.

Each item of some clusters begins with a cluster, with none, or is to be divided between seeds.
Then

1. each item to be divided goes to the seed under which it is most probable;
2. each item without a cluster is placed where the log joint grows most, in the given order (the
   search engine's greedy pass);
3. sweeps move each item to its best place until none moves.

Only the chosen items' clusters are scored, so the cost is that of a small problem, and the change
of the log joint is exact.

Seeds are needed because a cluster of one point says little about its neighbours when the prior is
strong, so a greedy pass from two points puts nearly everything into the larger cluster.  Comparing
the seeds with each other, without the prior, halves a cluster in a sensible direction at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner, view
from dpsearch._types import Ints, Labels, Vector
from dpsearch.items import add_item, clear_row, copy_row, log_marginal, score_item, score_member
from dpsearch.priors.base import size_weight
from dpsearch.problem import Problem
from dpsearch.state.sweep import EPSILON

# Labels of items without a cluster.
TO_PLACE = -1
TO_DIVIDE = -2

_NO_SEEDS = np.empty(0, np.int64)


class LocalRoom(NamedTuple):
    """Working space for one call: rows of up to `capacity` clusters."""

    pool: Vector
    sizes: Ints
    starts: Ints
    out: Vector
    scratch: Vector


class Beginning(NamedTuple):
    """The partition that `repartition` starts from."""

    labels: Labels  # 0 … n_clusters − 1, or `TO_PLACE`, or `TO_DIVIDE` between the seeds
    n_clusters: int
    seeds: Ints = _NO_SEEDS  # positions of the seeds
    seed_labels: Labels = _NO_SEEDS  # and the labels that go with them


class Repartition(NamedTuple):
    """A new partition of some items."""

    labels: Labels  # 0 … n_clusters − 1
    n_clusters: int
    log_value: float  # Σ [log W + log H] over these clusters


def repartition(
    problem: Problem,
    chosen: Ints,
    start: Beginning,
    n_others: int,
    order: Ints,
    max_sweeps: int,
) -> Repartition:
    """Return a new partition of the chosen items, beside `n_others` clusters that stay.

    `order` is a permutation of their positions: the order of placing and of sweeping.
    """
    labels, n_clusters, seeds, seed_labels = start
    labels = labels.copy()
    capacity = max(n_clusters + 30, len(seeds))
    while True:
        width = problem.model.core.width
        room = LocalRoom(
            pool=np.empty(capacity * width),
            sizes=np.zeros(capacity, np.int64),
            starts=np.arange(capacity, dtype=np.int64) * width,
            out=np.empty(capacity),
            scratch=np.empty(width),
        )
        found, value = _repartition(
            problem.model.core, problem.items, problem.alone, problem.tables,
            chosen, labels, n_clusters, n_others, order, max_sweeps, seeds, seed_labels, room,
        )  # fmt: skip
        if found >= 0:
            return Repartition(labels, int(found), float(value))
        # More clusters than room: go on from what was reached, with more room.
        n_clusters = int(labels.max()) + 1
        capacity *= 2
        seeds = seed_labels = _NO_SEEDS


@inner
def _repartition(  # type: ignore[no-untyped-def]
    core, items, alone, tables, chosen, labels, n_clusters, n_others, order, max_sweeps,
    seeds, seed_labels, room,
):  # fmt: skip
    """Change labels in place; return (number of clusters, value), or (−1, 0) if room is full."""
    capacity = room.sizes.shape[0]
    width = core.width
    if seeds.shape[0] > 0:
        _divide(core, items, chosen, labels, seeds, seed_labels, room)
    for k in range(n_clusters):
        room.sizes[k] = 0
        clear_row(core, view(room.pool, k * width, width))
    for p in range(chosen.shape[0]):
        k = labels[p]
        if k >= 0:
            add_item(core, items, chosen[p], view(room.pool, k * width, width), 1.0)
            room.sizes[k] += items.sizes[chosen[p]]
    for k in range(n_clusters - 1, -1, -1):  # a seed may have got nothing
        if room.sizes[k] == 0:
            n_clusters -= 1
            _move_cluster(core, room, labels, n_clusters, k)
    for sweep in range(max_sweeps + 1):
        moved = 0
        for position in range(order.shape[0]):
            p = order[position]
            if sweep == 0 and labels[p] >= 0:
                continue
            if n_clusters + 1 > capacity:
                return -1, 0.0
            n_clusters, at = _settle(
                core, items, alone, tables, room, chosen[p], labels[p], n_clusters, n_others
            )
            if at == labels[p]:
                continue
            moved += 1
            old = labels[p]
            labels[p] = at
            if old >= 0 and room.sizes[old] == 0:
                n_clusters -= 1
                _move_cluster(core, room, labels, n_clusters, old)
        if sweep > 0 and moved == 0:
            break
    value = 0.0
    for k in range(n_clusters):
        value += size_weight(tables, room.sizes[k])
        value += log_marginal(core, view(room.pool, k * width, width))
    return n_clusters, value


@inner
def _divide(core, items, chosen, labels, seeds, seed_labels, room):  # type: ignore[no-untyped-def]
    """Give each item that is to be divided the label of the seed that makes it most probable."""
    width = core.width
    n_seeds = seeds.shape[0]
    for k in range(n_seeds):
        row = view(room.pool, k * width, width)
        clear_row(core, row)
        add_item(core, items, chosen[seeds[k]], row, 1.0)
    for p in range(chosen.shape[0]):
        if labels[p] != TO_DIVIDE:
            continue
        score_item(
            core, items, chosen[p], room.pool, view(room.starts, 0, n_seeds), room.out, room.scratch
        )
        best = 0
        for k in range(1, n_seeds):
            if room.out[k] > room.out[best]:
                best = k
        labels[p] = seed_labels[best]
    for k in range(n_seeds):
        labels[seeds[k]] = seed_labels[k]


@inner
def _settle(core, items, alone, tables, room, i, old, n_clusters, n_others):  # type: ignore[no-untyped-def]
    """Put item i where it is best off; return (number of clusters, its cluster).

    `old` is its cluster, below 0 if it has none.  A cluster that it leaves empty is still counted.
    """
    width = core.width
    size = items.sizes[i]
    score_item(core, items, i, room.pool, view(room.starts, 0, n_clusters), room.out, room.scratch)
    total = n_others + n_clusters
    fresh = alone[i] + size_weight(tables, size)
    if old >= 0 and room.sizes[old] == size:
        # Alone already: its best other place competes with staying.
        stay = fresh + tables.log_v[total] - tables.log_v[total - 1]
        fresh = -np.inf
    else:
        fresh += tables.log_v[total + 1] - tables.log_v[total]
        stay = -np.inf
        if old >= 0:
            n = room.sizes[old]
            row = view(room.pool, old * width, width)
            stay = score_member(core, items, i, row, room.scratch)
            stay += size_weight(tables, n) - size_weight(tables, n - size)
    best = old
    best_gain = stay + EPSILON
    for k in range(n_clusters):
        if k == old:
            continue
        n = room.sizes[k]
        gain = room.out[k] + size_weight(tables, n + size) - size_weight(tables, n)
        if gain > best_gain:
            best_gain = gain
            best = k
    if fresh > best_gain:
        best = n_clusters
    if best == old:
        return n_clusters, old
    if best == n_clusters:
        clear_row(core, view(room.pool, best * width, width))
        room.sizes[best] = 0
        n_clusters += 1
    add_item(core, items, i, view(room.pool, best * width, width), 1.0)
    room.sizes[best] += size
    if old >= 0:
        add_item(core, items, i, view(room.pool, old * width, width), -1.0)
        room.sizes[old] -= size
    return n_clusters, best


@inner
def _move_cluster(core, room, labels, source, target):  # type: ignore[no-untyped-def]
    """Give the last cluster the number of one that has become empty."""
    if source == target:
        return
    width = core.width
    copy_row(view(room.pool, source * width, width), view(room.pool, target * width, width))
    room.sizes[target] = room.sizes[source]
    for p in range(labels.shape[0]):
        if labels[p] == source:
            labels[p] = target
