"""The common part of all moves of refinement: find new partitions of groups of clusters.

A group consists of a few clusters.  The first are divided between seeds, the next are kept, and the
items of the last have no cluster at first (`passes.moves.Move` gives the numbers of each).  Then

1. each item of a divided cluster goes to the seed under which it is most probable;
2. each item without a cluster is placed where the log joint grows most, in random order (the
   search engine's greedy pass);
3. sweeps move each item to its best place until none moves, or until the group is unlikely to
   exceed its former value.

Only the group's clusters are scored, so the cost is that of a small problem, and the change of the
log joint is exact.  Groups are disjoint.  Each thread takes one after another within a single call
of a kernel, and the result does not depend on which thread takes which.

Seeds are needed because, under a strong prior, a cluster of one point says little about its
neighbours, and a greedy pass from two points puts nearly all items into the larger cluster.
Comparing the seeds with each other, without the prior, splits a cluster in a sensible direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner, take_next, view
from dpsearch._threads import together
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.items import add_item, clear_row, fill_rows, log_marginal, score_item
from dpsearch.priors.base import Tables, size_weight
from dpsearch.problem import Problem
from dpsearch.state.clusters import cluster_value, empty_clusters, open_slot, set_size
from dpsearch.state.sweep import sweep_items, sweep_room

# Labels of items without a cluster.
_TO_PLACE = -1
_TO_DIVIDE = -2

_AT_ONCE = 64  # items placed between two checks of the capacity
_SPARE = 30  # capacity for clusters beyond those at the start
_SWEEPS = 10
_VISITS = 200_000  # limit on visits to the items of a group, so that none takes long
_AT_A_TIME = 1 << 26  # values that one sweep of the groups between two checks of the time reads
_SEEN = 2  # sweeps before a group may be given up
_HOPE = 5.0  # give up if more than this many times the last sweep's gain is missing


class Groups(NamedTuple):
    """Disjoint groups of clusters that get new partitions, and those partitions."""

    chosen: Ints  # the items of all groups, end to end …
    labels: Labels  # … and their clusters, 0, 1, … in each group: first the old, then the new ones
    begins: Ints  # where each group's items begin, and the end of the last
    moves: Ints  # [group, 4]: clusters divided, seeds, clusters kept, clusters outside the group
    goals: Vector  # part of the log joint to be exceeded, log V included; −∞ if there is no goal
    draws: Vector  # uniform draws, one per item, which set the order of placing and sweeping
    n_clusters: Ints  # in each new partition
    values: Vector  # Σ [log W + log H] over its clusters, computed from the data
    costs: Vector  # scores computed
    full: Any  # bool: whether the capacity was too small


def groups_of(
    members: list[list[Ints]], moves: Matrix | Ints, goals: Vector, rng: np.random.Generator
) -> Groups:
    """Return groups, given the items of each of their clusters, with all random numbers drawn."""
    chosen = np.concatenate([items for group in members for items in group])
    numbers = [k for group in members for k in range(len(group))]
    labels = np.repeat(numbers, [len(items) for group in members for items in group])
    begins = [0, *itertools.accumulate(sum(map(len, group)) for group in members)]
    n = len(members)
    return Groups(
        chosen, labels, np.array(begins), np.asarray(moves, np.int64), goals,
        rng.random(len(chosen)), np.zeros(n, np.int64), np.zeros(n), np.zeros(n),
        np.zeros(n, np.bool_),
    )  # fmt: skip


def repartition(
    problem: Problem,
    groups: Groups,
    n_threads: int,
    check_time: Callable[[], None] = lambda: None,
) -> None:
    """Give groups new partitions, in place; the result does not depend on the number of threads.

    `check_time` is called between shares of the work and raises when the time is up.
    """
    core, sizes = problem.model.core, np.diff(groups.begins)
    at_first = groups.moves[:, 1] + groups.moves[:, 2]
    costs = sizes * (1 + at_first)
    todo = np.argsort(-costs, kind="stable")  # longest first
    capacity = _SPARE + int(at_first.max())
    while True:
        parts = [todo]
        if costs[todo].sum() * core.width >= _AT_A_TIME:
            upto = np.cumsum(costs[todo]) * core.width // _AT_A_TIME
            parts = np.split(todo, np.flatnonzero(np.diff(upto)) + 1)
        for some in parts:
            check_time()
            _share(problem, groups, some, int(sizes[some].max()), capacity, n_threads)
        if not groups.full[todo].any():
            return
        todo = todo[groups.full[todo]]
        # Continue from what was reached, with more capacity.
        groups.moves[todo, 0] = groups.moves[todo, 1] = 0
        groups.moves[todo, 2] = groups.n_clusters[todo]
        capacity *= 2


def _share(
    problem: Problem, groups: Groups, todo: Ints, longest: int, capacity: int, n_threads: int
) -> None:
    core, counter = problem.model.core, np.zeros(1, np.int64)

    def work(_: int) -> None:
        # Called as plain Python, which spares their compilation.
        clusters = empty_clusters.py_func(  # type: ignore[attr-defined]
            core.width, np.empty(problem.n_items, np.int64), capacity
        )
        room = sweep_room.py_func(core, 0, _AT_ONCE, capacity)  # type: ignore[attr-defined]
        order, ids = np.empty(longest, np.int64), np.empty(longest, np.int64)
        _work_through(
            core, problem.items, problem.alone, problem.tables, groups, todo, counter, clusters,
            room, order, ids,
        )  # fmt: skip

    together(work, min(n_threads, len(todo)), n_threads)


@inner
def _work_through(  # type: ignore[no-untyped-def]
    core, items, alone, tables, groups, todo, counter, clusters, room, order, ids
):
    """Process groups one after another, skipping those that other threads have taken."""
    log_v = tables.log_v
    while True:
        turn = take_next(counter)
        if turn >= todo.shape[0]:
            return
        g = todo[turn]
        begin, n_others = groups.begins[g], groups.moves[g, 3]
        n = groups.begins[g + 1] - begin
        beside = Tables(
            view(log_v, n_others, log_v.shape[0] - n_others), tables.log_w, tables.discount,
            tables.log_w_base, tables.open_cost, tables.multiplicity, tables.most_clusters,
        )  # fmt: skip
        chosen, labels = view(groups.chosen, begin, n), view(groups.labels, begin, n)
        _shuffle(view(groups.draws, begin, n), order)
        shuffled = view(order, 0, n)
        n_live = _begin(
            core, items, beside, chosen, labels, groups.moves, g, shuffled, clusters, room
        )
        full, n_live, cost = _settle(
            core, items, alone, beside, chosen, labels, groups.goals[g], n_live, clusters, room,
            shuffled, ids,
        )  # fmt: skip
        groups.full[g] = full
        groups.n_clusters[g] = n_live
        groups.costs[g] += cost
        if not full:
            groups.values[g] = _value(core, items, tables, chosen, labels, clusters, n_live)


@inner
def _shuffle(draws, order):  # type: ignore[no-untyped-def]
    """Set the first entries of order to a random permutation."""
    for p in range(draws.shape[0]):
        other = int(draws[p] * (p + 1))
        order[p] = order[other]
        order[other] = p


@inner
def _begin(core, items, tables, chosen, labels, moves, g, order, clusters, room):  # type: ignore[no-untyped-def]
    """Put the items into the clusters that the move starts from; return how many there are."""
    divided, seeds, kept = moves[g, 0], moves[g, 1], moves[g, 2]
    for p in range(chosen.shape[0]):
        k = labels[p]
        if k < 0 or k >= divided + kept:
            labels[p] = _TO_PLACE
        elif k < divided:
            labels[p] = _TO_DIVIDE
        else:
            labels[p] = k - divided + seeds
    for k in range(clusters.sizes.shape[0]):  # undo what the group before has left
        clusters.live[k] = k
    n_live = seeds + kept
    for k in range(n_live):
        open_slot(core, clusters, k)
    if seeds > 0:
        _divide(core, items, chosen, labels, seeds, order, clusters, room)
    for p in range(chosen.shape[0]):
        i, k = chosen[p], labels[p]
        clusters.labels[i] = k
        if k >= 0:
            add_item(core, items, i, view(clusters.pool, k * core.width, core.width), 1.0)
            clusters.sizes[k] += items.sizes[i]
    for k in range(n_live):
        set_size(tables, clusters, k, clusters.sizes[k])
    return n_live


@inner
def _divide(core, items, chosen, labels, n_seeds, order, clusters, room):  # type: ignore[no-untyped-def]
    """Label each item of a divided cluster with the seed under which it is most probable.

    The seeds are the first of these items in `order`.
    """
    found = 0
    for p in order:
        if labels[p] == _TO_DIVIDE:
            row = view(clusters.pool, found * core.width, core.width)
            add_item(core, items, chosen[p], row, 1.0)
            labels[p] = found
            found += 1
            if found == n_seeds:
                break
    starts = view(clusters.starts, 0, n_seeds)
    for p in range(chosen.shape[0]):
        if labels[p] != _TO_DIVIDE:
            continue
        score_item(core, items, chosen[p], clusters.pool, starts, room.out, room.scratch)
        best = 0
        for k in range(1, n_seeds):
            if room.out[k] > room.out[best]:
                best = k
        labels[p] = best
    for k in range(n_seeds):
        clear_row(core, view(clusters.pool, k * core.width, core.width))


@inner
def _settle(  # type: ignore[no-untyped-def]
    core, items, alone, tables, chosen, labels, goal, n_live, clusters, room, order, ids
):
    """Place and sweep; return whether capacity ran out, the number of clusters and the cost."""
    n_ids = 0
    for p in order:  # first those without a cluster
        if labels[p] < 0:
            ids[n_ids] = chosen[p]
            n_ids += 1
    most = _VISITS // order.shape[0]
    most = 2 if most < 2 else (_SWEEPS if most > _SWEEPS else most)
    full, value, cost = False, -np.inf, 0.0
    for sweep in range(most + 1):
        visited, n_live, moved = sweep_items(
            core, None, items, alone, tables, clusters, n_live, view(ids, 0, n_ids), room, None,
            None,
        )  # fmt: skip
        cost += float(n_ids * (1 + n_live))
        full = visited < n_ids
        if full or (sweep > 0 and moved == 0):
            break
        if sweep == 0:
            n_ids = order.shape[0]
            for p in range(n_ids):
                ids[p] = chosen[order[p]]
        before, value = value, tables.log_v[n_live]
        for k in range(n_live):
            value += cluster_value(core, tables, clusters, clusters.live[k])
        if sweep >= _SEEN and goal - value > _HOPE * (value - before):
            break
    for p in range(chosen.shape[0]):
        slot = clusters.labels[chosen[p]]
        labels[p] = clusters.place[slot] if slot >= 0 else _TO_PLACE
    return full, n_live, cost


@inner
def _value(core, items, tables, chosen, labels, clusters, n_live):  # type: ignore[no-untyped-def]
    """Return Σ [log W + log H] over the clusters of some items, computed from the data.

    Adding a distant row to a cluster and removing it again leaves rounding errors in the
    statistics, which can amount to many nats.
    """
    pool, sizes = view(clusters.pool, 0, n_live * core.width), view(clusters.sizes, 0, n_live)
    for k in range(n_live):
        sizes[k] = 0
    fill_rows(core, items, chosen, labels, pool, sizes)
    value = 0.0
    for k in range(n_live):
        row = view(pool, k * core.width, core.width)
        value += size_weight(tables, sizes[k]) + log_marginal(core, row)
    return value
