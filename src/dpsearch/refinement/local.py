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
from dpsearch._types import Ints, Labels
from dpsearch.items import add_item, clear_row, score_item
from dpsearch.problem import Problem
from dpsearch.state.clusters import empty_clusters, open_slot, set_size
from dpsearch.state.sweep import sweep_items, sweep_room

# Labels of items without a cluster.
TO_PLACE = -1
TO_DIVIDE = -2

_NO_SEEDS = np.empty(0, np.int64)
_AT_ONCE = 64  # items between two looks at how much room is left


class Beginning(NamedTuple):
    """The partition that `repartition` starts from."""

    labels: Labels  # 0 … n_clusters − 1, or `TO_PLACE`, or `TO_DIVIDE` between the seeds
    n_clusters: int
    seeds: Ints = _NO_SEEDS  # positions of the seeds
    seed_labels: Labels = _NO_SEEDS  # and the labels that go with them


def repartition(
    problem: Problem,
    chosen: Ints,
    start: Beginning,
    n_others: int,
    order: Ints,
    max_sweeps: int,
) -> tuple[Labels, int]:
    """Return a new partition of the chosen items, beside `n_others` clusters that stay.

    Its labels are 0, 1, …; their number comes with them.  `order` is a permutation of the items'
    positions: the order of placing and of sweeping.
    """
    labels, n_clusters, seeds, seed_labels = start
    labels = labels.copy()
    core, tables = problem.model.core, problem.tables
    tables = tables._replace(log_v=tables.log_v[n_others:])
    capacity = max(n_clusters + 30, len(seeds))
    while True:
        # Called as plain Python, which spares their compilation.
        clusters = empty_clusters.py_func(  # type: ignore[attr-defined]
            core.width, np.empty(problem.n_items, np.int64), capacity
        )
        room = sweep_room.py_func(core, 0, _AT_ONCE, capacity)  # type: ignore[attr-defined]
        full, n_clusters = _repartition(
            core, problem.items, problem.alone, tables, chosen, labels, clusters, n_clusters,
            order, max_sweeps, seeds, seed_labels, room, np.empty(len(order), np.int64),
        )  # fmt: skip
        if not full:
            return labels, int(n_clusters)
        # Go on from what was reached, with more room.
        capacity *= 2
        seeds = seed_labels = _NO_SEEDS


@inner
def _repartition(  # type: ignore[no-untyped-def]
    core, items, alone, tables, chosen, labels, clusters, n_live, order, max_sweeps,
    seeds, seed_labels, room, ids,
):  # fmt: skip
    """Change labels in place; return whether there is no room left, and the number of clusters."""
    if seeds.shape[0] > 0:
        _divide(core, items, chosen, labels, seeds, seed_labels, clusters, room)
    for k in range(n_live):
        open_slot(core, clusters, k)
    for p in range(chosen.shape[0]):
        i, k = chosen[p], labels[p]
        clusters.labels[i] = k
        if k >= 0:
            row = view(clusters.pool, k * core.width, core.width)
            add_item(core, items, i, row, 1.0)
            clusters.sizes[k] += items.sizes[i]
    for k in range(n_live):
        set_size(tables, clusters, k, clusters.sizes[k])
    n_ids = 0
    for p in order:  # first those without a cluster
        if labels[p] < 0:
            ids[n_ids] = chosen[p]
            n_ids += 1
    full = False
    for sweep in range(max_sweeps + 1):
        visited, n_live, moved = sweep_items(
            core, None, items, alone, tables, clusters, n_live, view(ids, 0, n_ids), room, None,
            None,
        )  # fmt: skip
        full = visited < n_ids
        if full or (sweep > 0 and moved == 0):
            break
        if sweep == 0:
            n_ids = order.shape[0]
            for position in range(n_ids):
                ids[position] = chosen[order[position]]
    for p in range(chosen.shape[0]):
        slot = clusters.labels[chosen[p]]
        labels[p] = clusters.place[slot] if slot >= 0 else TO_PLACE
    return full, n_live


@inner
def _divide(core, items, chosen, labels, seeds, seed_labels, clusters, room):  # type: ignore[no-untyped-def]
    """Give each item that is to be divided the label of the seed that makes it most probable."""
    n_seeds = seeds.shape[0]
    for k in range(n_seeds):
        row = view(clusters.pool, k * core.width, core.width)
        clear_row(core, row)
        add_item(core, items, chosen[seeds[k]], row, 1.0)
    starts = view(clusters.starts, 0, n_seeds)
    for p in range(chosen.shape[0]):
        if labels[p] != TO_DIVIDE:
            continue
        score_item(core, items, chosen[p], clusters.pool, starts, room.out, room.scratch)
        best = 0
        for k in range(1, n_seeds):
            if room.out[k] > room.out[best]:
                best = k
        labels[p] = seed_labels[best]
    for k in range(n_seeds):
        labels[seeds[k]] = seed_labels[k]
