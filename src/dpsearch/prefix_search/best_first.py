"""Best-first search over clusterings of prefixes: the paper's Figure 1.

The state with the highest score is taken off a priority queue and expanded: the next item is put
into each of its clusters and into a new one.  With an admissible score and no cap on the queue, the
first complete state is a best partition (A*).  With a cap, the states with the lowest scores are
dropped.

A state on the queue has only its parent, the cluster that its last item went to, and its scores.
When it is taken off, its clusters are stored as one new row of statistics and a list of rows, which
its children refer to.
"""

from __future__ import annotations

import copy
import math
import time
from typing import NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._jit import inner, view
from dpsearch._records import copied, zeros
from dpsearch._types import Ints, Ints32, Labels, Vector
from dpsearch.events import Callback, Event
from dpsearch.items import Rows, add_item, clear_row, copy_row, score_item
from dpsearch.prefix_search.dual import node_of, worth_of
from dpsearch.prefix_search.greedy import greedy
from dpsearch.prefix_search.heap import Queue, new_queue, pop, push, shrink
from dpsearch.prefix_search.heuristics import (
    ADMISSIBLE,
    DUAL,
    REPLICA,
    TRIVIAL,
    Heuristic,
    fresh_value,
    rest_of_row,
)
from dpsearch.priors.base import log_completion, size_weight
from dpsearch.priors.completion import NO_RULE, Completion, completion_room, greedy_completion
from dpsearch.problem import Problem

_CHUNK = 512  # expansions between two calls of the callback, or checks for Ctrl-C


class _States(NamedTuple):
    parent: Ints32
    choice: Ints32  # cluster of the last item
    level: Ints32  # number of items placed
    count: Ints32  # type: ignore[assignment]  # number of clusters
    placed: Vector  # Σ log H, and Σ log W for a prior of product form
    first: Ints  # where its list of rows begins once it is expanded


class _Store(NamedTuple):
    """The clusters of expanded states: rows of statistics, and lists of rows."""

    pool: Vector
    sizes: Ints
    lists: Ints32
    last: Ints32  # position of the item that was added to make this row
    before: Ints32  # the row that it was added to, or −1


class _Used(NamedTuple):
    """How much of each array is in use."""

    states: int
    queue: int
    rows: int
    lists: int


class _Room(NamedTuple):
    """Working space."""

    out: Vector
    starts: Ints
    row: Vector
    scratch: Vector
    first: Vector  # for each unplaced item: its largest bound over the clusters,
    second: Vector  # the second largest,
    holder: Ints  # and the cluster with the largest
    rest: Vector
    sizes: Ints
    completion: Completion
    start: Ints
    score: Vector
    inside: Ints  # [position]: 1 if the item there belongs to the cluster


class Outcome(NamedTuple):
    """How a best-first search ended."""

    labels: Labels
    complete: bool  # a complete state came off the queue; else the limit was reached
    score: float  # of the last state taken off
    n_dequeued: int
    n_enqueued: int


def best_first(
    problem: Problem,
    order: Ints,
    heuristic: Heuristic,
    *,
    queue_size: int | None = None,
    max_states: int | None = None,
    seconds: float | None = None,
    callback: Callback | None = None,
) -> Outcome:
    """Run the search until a complete state comes off the queue.

    After `max_states` states on the queue, or `seconds` of this thread's processor time, the best
    state is completed greedily.
    """
    begun = clock()
    deadline = math.inf if seconds is None else time.thread_time() + seconds
    n, width = problem.n_items, problem.model.core.width
    states, store, queue = zeros(_States, 4096), _new_store(256, width), new_queue(4096)
    states.parent[0] = -1
    states.first[0] = 0
    used = _Used(1, 1, 0, 0)
    room = _new_room(problem)
    rule = problem.prior.completion_rule() or NO_RULE
    cap = np.iinfo(np.int64).max if queue_size is None else queue_size
    limit = np.iinfo(np.int64).max if max_states is None else max_states
    dequeued, enqueued = 0, 0
    while True:
        goal, top, in_use, n_out, n_in = _run(
            problem.model.core, problem.items, problem.alone, problem.tables, rule, heuristic,
            order, states, store, queue, used, room, cap, _CHUNK, limit - enqueued,
        )  # fmt: skip
        used = _Used(*in_use)
        dequeued += n_out
        enqueued += n_in
        if callback is not None:
            level, count = int(states.level[goal]), int(states.count[goal])
            elapsed = clock() - begun
            callback(Event(elapsed, float(top), count, "search", level, n))
        if states.level[goal] == n:
            return Outcome(_labels(states, goal, order), True, float(top), dequeued, enqueued)
        if enqueued >= limit or time.thread_time() > deadline:
            labels = _completed(problem, states, int(goal), order)
            return Outcome(labels, False, float(top), dequeued, enqueued)
        if n_out < _CHUNK:  # an array is full
            states, store, queue = _grown(states, store, queue, used, n, width)


def _labels(states: _States, state: int, order: Ints) -> Labels:
    """Return the labels of a state's prefix; −1 for items that are not placed."""
    labels = np.full(len(order), -1, np.int64)
    while states.level[state] > 0:
        labels[order[states.level[state] - 1]] = states.choice[state]
        state = int(states.parent[state])
    return labels


def _completed(problem: Problem, states: _States, state: int, order: Ints) -> Labels:
    """Return the labels of a state completed greedily: items go where the log joint grows most."""
    labels = _labels(states, state, order)
    left = order[states.level[state] :]
    rest = copy.copy(problem)
    rest.background = Rows(*problem.model.rows(problem.items, labels, int(states.count[state])))
    labels[left] = greedy(rest, left)[left]
    return labels


def _new_store(capacity: int, width: int) -> _Store:
    return zeros(_Store, capacity, pool=capacity * width, lists=16 * capacity)


def _grown(
    states: _States, store: _Store, queue: Queue, used: _Used, n: int, width: int
) -> tuple[_States, _Store, Queue]:
    """Double the arrays that may not hold one more expansion."""
    if used.states + n + 1 > len(states.level):
        size = max(2 * len(states.level), used.states + 2 * n + 2)
        states = copied(states, zeros(_States, size))
    if used.queue + n + 1 > len(queue.score):
        size = max(2 * len(queue.score), used.queue + 2 * n + 2)
        queue = copied(queue, new_queue(size))
    if used.rows + 1 > len(store.sizes) or used.lists + n > len(store.lists):
        store = copied(store, _new_store(max(2 * len(store.sizes), n), width))
    return states, store, queue


def _new_room(problem: Problem) -> _Room:
    width, completion = problem.model.core.width, completion_room(problem.n_points)
    return zeros(
        _Room, problem.n_items + 1, row=width, scratch=width, start=1, score=1,
        completion=completion,
    )  # fmt: skip


@inner
def _run(  # type: ignore[no-untyped-def]
    core, items, alone, tables, rule, heuristic, order, states, store, queue, used, room,
    cap, most_out, most_in,
):  # fmt: skip
    """Expand states until one is complete, a limit is reached or an array may be too small.

    Return (the last state examined, its score, how much is in use, states dequeued, enqueued).
    """
    n = order.shape[0]
    n_states, n_queue, n_rows, n_lists = used.states, used.queue, used.rows, used.lists
    n_out = 0
    n_in = 0
    while True:
        state = queue.state[0]
        score = queue.score[0]
        full = (
            n_states + n + 1 > states.level.shape[0]
            or n_queue + n + 1 > queue.score.shape[0]
            or n_rows + 1 > store.sizes.shape[0]
            or n_lists + n > store.lists.shape[0]
        )
        if full or n_out >= most_out or n_in >= most_in:
            return state, score, (n_states, n_queue, n_rows, n_lists), n_out, n_in
        n_queue = pop(queue, n_queue)
        n_out += 1
        if states.level[state] == n:
            return state, score, (n_states, n_queue, n_rows, n_lists), n_out, n_in
        if states.level[state] > 0:
            _store_clusters(core, items, order, states, store, state, n_rows, n_lists)
            n_rows += 1
            n_lists += states.count[state]
        made = _expand(
            core, items, alone, tables, rule, heuristic, order, states, store, room, state,
            n_states,
        )  # fmt: skip
        for child in range(n_states, n_states + made):
            n_queue = push(queue, n_queue, room.out[child - n_states], child)
        n_states += made
        n_in += made
        if n_queue > cap:
            n_queue = shrink(queue, n_queue, cap)


@inner
def _store_clusters(core, items, order, states, store, state, row, first):  # type: ignore[no-untyped-def]
    """Store the state's clusters: its parent's list of rows, with a new row for the last item."""
    parent = states.parent[state]
    choice = states.choice[state]
    i = order[states.level[state] - 1]
    width = core.width
    new = view(store.pool, row * width, width)
    begin = states.first[parent]
    for k in range(states.count[parent]):
        store.lists[first + k] = store.lists[begin + k]
    if choice < states.count[parent]:
        old = store.lists[begin + choice]
        copy_row(view(store.pool, old * width, width), new)
        store.sizes[row] = store.sizes[old] + items.sizes[i]
        store.before[row] = old
    else:
        clear_row(core, new)
        store.sizes[row] = items.sizes[i]
        store.before[row] = -1
    store.last[row] = states.level[state] - 1
    add_item(core, items, i, new, 1.0)
    store.lists[first + choice] = row
    states.first[state] = first


@inner
def _expand(  # type: ignore[no-untyped-def]
    core, items, alone, tables, rule, heuristic, order, states, store, room, state, at
):
    """Write the state's children to positions from `at` on, and their scores to room.out."""
    n = order.shape[0]
    level = states.level[state]
    n_clusters = states.count[state]
    begin = states.first[state]
    i = order[level]
    size = items.sizes[i]
    for k in range(n_clusters):
        room.starts[k] = store.lists[begin + k] * core.width
        room.sizes[k] = store.sizes[store.lists[begin + k]]
    score_item(core, items, i, store.pool, view(room.starts, 0, n_clusters), room.out, room.scratch)
    for k in range(n_clusters + 1):
        gain = alone[i] if k == n_clusters else room.out[k]
        if not tables.multiplicity:
            before = 0 if k == n_clusters else room.sizes[k]
            gain += size_weight(tables, before + size) - size_weight(tables, before)
        states.parent[at + k] = state
        states.choice[at + k] = k
        states.level[at + k] = level + 1
        states.count[at + k] = n_clusters + (1 if k == n_clusters else 0)
        states.placed[at + k] = states.placed[state] + gain
    by_rows = heuristic.code == ADMISSIBLE or heuristic.code == REPLICA
    if by_rows:
        _rest_of_parent(
            core, items, tables, heuristic, order, store, room, begin, n_clusters, level
        )
    if heuristic.code == DUAL and level + 1 < n:
        _score_by_prices(heuristic.tree, store, room, begin, n_clusters, level)
        return n_clusters + 1
    for k in range(n_clusters + 1):
        score = states.placed[at + k]
        room.sizes[n_clusters] = 0
        room.sizes[k] += size
        count = states.count[at + k]
        # p(c) is completed as the heuristic requires.
        if tables.multiplicity:
            score += greedy_completion(
                tables, room.sizes[:count], n - level - 1, rule, room.completion
            )
        elif heuristic.code != TRIVIAL and heuristic.code != REPLICA:
            score += tables.log_v[count]
        else:
            largest = 0
            for j in range(count):
                largest = max(largest, room.sizes[j])
            score += log_completion(tables, count, largest, n - level - 1)
        # p(x | c) of the rest.
        score += heuristic.tail[level + 1]
        if by_rows:
            score += _rest_of_child(
                core, items, alone, tables, heuristic, order, store, room, begin, k, count, level
            )
        room.sizes[k] -= size
        room.out[k] = score
    return n_clusters + 1


@inner
def _score_by_prices(tree, store, room, begin, n_clusters, level):  # type: ignore[no-untyped-def]
    """Set room.out to the scores by prices: the ceiling and the clusters' best extensions."""
    score = tree.ceiling
    for k in range(n_clusters + 1):
        for position in range(level):
            room.inside[position] = 0
        if k < n_clusters:
            row = store.lists[begin + k]
            while row >= 0:
                room.inside[store.last[row]] = 1
                row = store.before[row]
        node = node_of(tree, room.inside, level)
        without = worth_of(tree, node, 0) if k < n_clusters else 0.0
        room.out[k] = worth_of(tree, node, 1) - without
        score += without
    for k in range(n_clusters + 1):
        room.out[k] += score


@inner
def _rest_of_parent(core, items, tables, heuristic, order, store, room, begin, n_clusters, level):  # type: ignore[no-untyped-def]
    """Find the largest and second largest bound of each unplaced item over the present clusters."""
    left = order.shape[0] - level - 1
    for m in range(left):
        room.first[m] = -np.inf
        room.second[m] = -np.inf
        room.holder[m] = -1
    for k in range(n_clusters):
        start = store.lists[begin + k] * core.width
        rest_of_row(
            heuristic, core, items, tables, order, view(store.pool, start, core.width),
            room.sizes[k], level + 1, room.rest, room.scratch, room.start, room.score,
        )  # fmt: skip
        for m in range(left):
            if room.rest[m] > room.first[m]:
                room.second[m] = room.first[m]
                room.first[m] = room.rest[m]
                room.holder[m] = k
            elif room.rest[m] > room.second[m]:
                room.second[m] = room.rest[m]


@inner
def _rest_of_child(  # type: ignore[no-untyped-def]
    core, items, alone, tables, heuristic, order, store, room, begin, k, count, level
):
    """Return the sum of the unplaced items' bounds after the next item has gone to cluster k."""
    left = order.shape[0] - level - 1
    if left == 0:
        return 0.0
    if room.sizes[k] > items.sizes[order[level]]:
        start = store.lists[begin + k] * core.width
        copy_row(view(store.pool, start, core.width), room.row)
    else:
        clear_row(core, room.row)
    add_item(core, items, order[level], room.row, 1.0)
    rest_of_row(
        heuristic, core, items, tables, order, room.row, room.sizes[k], level + 1, room.rest,
        room.scratch, room.start, room.score,
    )  # fmt: skip
    total = 0.0
    for m in range(left):
        best = room.second[m] if room.holder[m] == k else room.first[m]
        best = max(best, room.rest[m])
        total += max(best, fresh_value(heuristic, tables, alone, order, count, level + 1, m))
    return total
