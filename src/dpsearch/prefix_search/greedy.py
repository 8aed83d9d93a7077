"""Greedy search, a beam of one: each item goes where the log joint grows most, at once.

Two loops with the same decisions.  The general one scores an item against all clusters by one
call of the family.  The block one is for families whose score needs only inner products of the
point with a linear statistic of each cluster: it takes four points at a time, so that the
cluster rows are read once for four points, and corrects the products by the points' inner
products with each other as the clusters change.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from dpsearch._jit import call_score_dots, call_update, inner, view
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.dots import BLOCK, block_products, gather, gather_size
from dpsearch.events import Callback, Event
from dpsearch.items import Rows, add_item, clear_row, score_best, score_item
from dpsearch.priors.base import size_step, size_steps, size_weight
from dpsearch.problem import Problem

_CHUNK = 8192  # items between two looks at the clock, the callback and Ctrl-C


class _State(NamedTuple):
    """Clusters are the first rows of the pool, in order of creation."""

    pool: Vector
    sizes: Ints
    steps: Vector  # log W(n + 1) − log W(n) for each cluster's size n
    starts: Ints
    labels: Labels  # in placing order


class _Room(NamedTuple):
    """Working space."""

    out: Vector
    row: Vector
    points: Matrix
    products: Matrix
    gram: Matrix


def _new_room(problem: Problem, capacity: int) -> _Room:
    n_features = problem.model.n_features
    return _Room(
        out=np.empty(capacity),
        row=np.empty(problem.model.core.width),
        points=np.empty((gather_size(n_features), n_features)),
        products=np.empty((BLOCK, capacity)),
        gram=np.empty((BLOCK, BLOCK)),
    )


def greedy(problem: Problem, order: Ints, callback: Callback | None = None) -> Labels:
    """Return the labels that one greedy pass in this order gives.

    It begins with the clusters of the background, whose labels come first.  Items that are not in
    the order get the label −1.
    """
    return greedy_with_rows(problem, order, callback)[0]


def greedy_with_rows(
    problem: Problem, order: Ints, callback: Callback | None = None
) -> tuple[Labels, Rows]:
    """Return these labels, and the clusters' statistics."""
    begun = time.perf_counter()
    core = problem.model.core
    dots = problem.dots()
    n = len(order)
    alone = problem.alone[order]  # in placing order, to be read from one end to the other
    n_clusters = len(problem.background.sizes)
    capacity = max(64, 2 * n_clusters)
    state = _grown(None, core.width, capacity, n)
    room = _new_room(problem, capacity)
    state.pool[: len(problem.background.pool)] = problem.background.pool
    state.sizes[:n_clusters] = problem.background.sizes
    state.steps[:n_clusters] = size_steps(problem.tables, problem.background.sizes)
    placed, log_joint = 0, 0.0
    while placed < n:
        stop = min(n, placed + _CHUNK)
        if dots is not None:
            placed, n_clusters, log_joint = _advance_blocks(
                core, dots, problem.items, alone, problem.tables, state, order,
                placed, stop, n_clusters, log_joint, room,
            )  # fmt: skip
        else:
            placed, n_clusters, log_joint = _advance(
                core, problem.items, alone, problem.tables, state, order,
                placed, stop, n_clusters, log_joint, room,
            )  # fmt: skip
        if placed < stop:
            state = _grown(state, core.width, 2 * len(state.sizes), n)
            room = _new_room(problem, len(state.sizes))
        if callback is not None:
            seconds = time.perf_counter() - begun
            callback(Event(seconds, log_joint, n_clusters, "search", placed, n))
    labels = np.full(problem.n_items, -1)
    labels[order] = state.labels
    return labels, Rows(state.pool[: n_clusters * core.width], state.sizes[:n_clusters])


def _grown(state: _State | None, width: int, capacity: int, n: int) -> _State:
    """Return the state with room for `capacity` clusters."""
    pool = np.empty(capacity * width)
    sizes = np.zeros(capacity, np.int64)
    steps = np.zeros(capacity)
    labels = np.zeros(n, np.int64)
    if state is not None:
        pool[: len(state.pool)] = state.pool
        sizes[: len(state.sizes)] = state.sizes
        steps[: len(state.steps)] = state.steps
        labels = state.labels
    return _State(pool, sizes, steps, np.arange(capacity, dtype=np.int64) * width, labels)


@inner
def _choose(tables, state, n_clusters, size, alone, out, weighted):  # type: ignore[no-untyped-def]
    """Return (cluster, gain): the best place for an item whose predictive scores are in `out`.

    `weighted`: the prior's part is in them already.  Ties go to the older cluster, and to an
    existing one before a new one.
    """
    best = -1
    best_gain = -np.inf
    if weighted:
        for k in range(n_clusters):
            if out[k] > best_gain:
                best_gain = out[k]
                best = k
    elif size == 1:
        for k in range(n_clusters):
            gain = out[k] + state.steps[k]
            if gain > best_gain:
                best_gain = gain
                best = k
    else:
        for k in range(n_clusters):
            n = state.sizes[k]
            gain = out[k] + size_weight(tables, n + size) - size_weight(tables, n)
            if gain > best_gain:
                best_gain = gain
                best = k
    fresh = alone + size_weight(tables, size)
    fresh += tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]
    if fresh > best_gain:
        return n_clusters, fresh
    return best, best_gain


@inner
def _record(tables, state, t, k, size):  # type: ignore[no-untyped-def]
    """Note that the item at position t has gone to cluster k."""
    n = state.sizes[k] + size
    state.sizes[k] = n
    state.steps[k] = size_step(tables, n)
    state.labels[t] = k


@inner
def _advance(core, items, alone, tables, state, order, begin, end, n_clusters, log_joint, room):  # type: ignore[no-untyped-def]
    """Place order[begin:end]; stop early when the pool is full.  Return where it stopped."""
    capacity = state.sizes.shape[0]
    for t in range(begin, end):
        if n_clusters == capacity:
            return t, n_clusters, log_joint
        i = order[t]
        starts = view(state.starts, 0, n_clusters)
        weighted = score_best(core, items, i, state.pool, starts, state.steps, -1, room.out)
        if not weighted:
            score_item(core, items, i, state.pool, starts, room.out, room.row)
        k, gain = _choose(tables, state, n_clusters, items.sizes[i], alone[t], room.out, weighted)
        row = view(state.pool, k * core.width, core.width)
        if k == n_clusters:
            clear_row(core, row)
            n_clusters += 1
        add_item(core, items, i, row, 1.0)
        _record(tables, state, t, k, items.sizes[i])
        log_joint += gain
    return end, n_clusters, log_joint


@inner
def _advance_blocks(  # type: ignore[no-untyped-def]
    core, dots, items, alone, tables, state, order, begin, end, n_clusters, log_joint, room
):
    """The same as `_advance`, four points at a time."""
    capacity = state.sizes.shape[0]
    points, products, gram, out = room.points, room.products, room.gram, room.out
    at = begin
    while at < end:
        stop = min(end, at + points.shape[0])
        gather(items, order[at:stop], points)
        for t in range(at, stop, BLOCK):
            if n_clusters + BLOCK > capacity:
                return t, n_clusters, log_joint
            block = points[t - at : t - at + BLOCK]
            starts = view(state.starts, 0, n_clusters)
            block_products(dots, block, state.pool, starts, products, gram)
            for b in range(min(BLOCK, stop - t)):
                call_score_dots(
                    dots.score_dots,
                    (core.params, state.pool, view(state.starts, 0, n_clusters), products[b],
                     gram[b, b], out),
                )  # fmt: skip
                k, gain = _choose(tables, state, n_clusters, 1, alone[t + b], out, False)
                row = view(state.pool, k * core.width, core.width)
                if k == n_clusters:
                    clear_row(core, row)
                    n_clusters += 1
                    for later in range(BLOCK):
                        products[later, k] = 0.0
                call_update(core.update, (core.params, row, items.ids, block[b], 1.0))
                _record(tables, state, t + b, k, 1)
                for later in range(b + 1, BLOCK):
                    products[later, k] += gram[b, later]
                log_joint += gain
        at = stop
    return end, n_clusters, log_joint
