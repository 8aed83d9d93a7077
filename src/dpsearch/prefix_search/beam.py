"""Level-synchronous beam search: the best `beam_size` clusterings of each prefix of the data."""

from __future__ import annotations

import numpy as np

from dpsearch._clock import clock
from dpsearch._jit import inner, view
from dpsearch._types import Ints, Labels
from dpsearch.deadline import current
from dpsearch.dots import BLOCK
from dpsearch.events import Callback, Event
from dpsearch.prefix_search.beam_state import Counts
from dpsearch.prefix_search.shared_rows import (
    full,
    labels_of_members,
    log_fresh,
    nothing_placed,
    packed,
    score_live,
    step,
    with_more_room,
)
from dpsearch.priors.completion import complete_as_they_are, count_sizes, forget_sizes, value_after
from dpsearch.problem import Problem

_CHUNK = 1024  # items between two calls of the callback, or checks for Ctrl-C


def beam(
    problem: Problem, order: Ints, beam_size: int, callback: Callback | None = None
) -> tuple[Labels, int, int]:
    """Return the labels of the best hypothesis, and how many states were expanded and created."""
    begun = clock()
    n = len(order)
    width = problem.model.core.width
    shared = nothing_placed(width, problem.n_points, beam_size)
    rule = problem.prior.completion_rule()
    placed, n_enqueued, n_dequeued = 0, 0, 0
    while placed < n and not (placed and current().over):
        stop = min(n, placed + _CHUNK)
        model = (problem.model.core, problem.dots(), problem.items, problem.alone, problem.tables)
        placed, made, taken, counts = _advance(
            *model, rule, *shared, order, placed, stop, beam_size
        )
        shared = packed(shared._replace(counts=Counts(*counts)), width)
        n_enqueued += made
        n_dequeued += taken
        if placed < stop:  # an array is full
            shared = with_more_room(shared, width, problem.n_points)
        hypotheses = shared.hypotheses
        best = int(np.argmax(hypotheses.scores[: shared.counts.hypotheses]))
        if callback is not None:
            score = float(hypotheses.scores[best])
            count = int(hypotheses.counts[best])
            seconds = clock() - begun
            callback(Event(seconds, score, count, "search", placed, n))
    members = shared.rows.members[hypotheses.rows[best, : hypotheses.counts[best]]]
    labels = labels_of_members(shared.nodes, members, n)
    labels[labels < 0] = labels.max() + 1  # not reached in time
    return labels, n_dequeued, n_enqueued


@inner
def _advance(  # type: ignore[no-untyped-def]
    core, dots, items, alone, tables, rule, beam, rows, nodes, counts, room, order, begin, end,
    beam_size,
):  # fmt: skip
    """Place order[begin:end]; stop early when the arrays may be too small for one more item.

    Return (where it stopped, states created, states expanded, counts).  The counts are a plain
    tuple because Numba crashes if Ctrl-C is pending when it makes a NamedTuple for Python.  `rule`
    is None for a prior of product form, `dots` for a family without the block capability; Numba
    then removes the code that needs them.
    """
    made = 0
    taken = 0
    for t in range(begin, end):
        if full(beam, nodes, counts, beam_size):
            return t, made, taken, counts[:]
        i, b = order[t], (t - begin) % BLOCK
        taken += counts.hypotheses
        score_live(core, dots, items, order, t, b, tables, rows, counts, room)
        if rule is None:
            found, created = _candidates(
                tables, beam, rows, counts, items.sizes[i], alone[i], beam_size, room
            )
        else:
            remaining = order.shape[0] - t - 1
            found, created = _count_candidates(
                tables, rule, beam, rows, counts.hypotheses, alone[i], remaining, beam_size, room
            )
        made += created
        kept = min(found, beam_size)
        if found > kept:
            _select(room.scores, room.parents, room.choices, found, kept)
        counts = step(
            core, dots, items, i, b, alone[i], tables, beam, rows, nodes, counts, room, kept
        )
    return end, made, taken, counts[:]


@inner
def _candidates(  # type: ignore[no-untyped-def]
    tables, beam, rows, counts, size, alone, beam_size, room
):
    """List (hypothesis, cluster, score) of all successors that may be among the best.

    A full beam could be refilled with the best successor of each hypothesis, so no successor below
    the worst of those can be kept.
    """
    n_hypotheses = counts.hypotheses
    threshold = np.inf
    created = 0
    for h in range(n_hypotheses):
        n_clusters = beam.counts[h]
        shared = beam.rows[h]
        best = log_fresh(tables, n_clusters, size, alone)
        at = n_clusters
        second = -np.inf
        for k in range(counts.widest):
            # Written so that it compiles to minima and maxima: a branch here is mispredicted often.
            gain = rows.gains[shared[k]]
            lower = gain if gain < best else best
            second = lower if lower > second else second
            at = k if gain > best else at
            best = gain if gain > best else best
        room.best[h] = beam.scores[h] + best
        room.second[h] = beam.scores[h] + second
        room.at[h] = at
        if room.best[h] < threshold:
            threshold = room.best[h]
        created += n_clusters + 1
    if n_hypotheses < beam_size:
        threshold = -np.inf
    found = 0
    for h in range(n_hypotheses):
        if room.second[h] < threshold:  # as in most cases: only the best successor is listed
            room.parents[found] = h
            room.choices[found] = room.at[h]
            room.scores[found] = room.best[h]
            found += 1
            continue
        n_clusters = beam.counts[h]
        for k in range(n_clusters + 1):
            if k < n_clusters:
                value = beam.scores[h] + rows.gains[beam.rows[h, k]]
            else:
                value = beam.scores[h] + log_fresh(tables, n_clusters, size, alone)
            if value >= threshold:
                room.parents[found] = h
                room.choices[found] = k
                room.scores[found] = value
                found += 1
    return found, created


@inner
def _count_candidates(  # type: ignore[no-untyped-def]
    tables, rule, beam, rows, n_hypotheses, alone, remaining, beam_size, room
):
    """List candidates under AntoniakCounts, by the paper's score, with p(c) greedily completed."""
    threshold = np.inf
    created = 0
    width = beam.rows.shape[1]
    for h in range(n_hypotheses):
        n_clusters = beam.counts[h]
        sizes = view(room.sizes, 0, n_clusters)
        for k in range(n_clusters):
            sizes[k] = rows.sizes[beam.rows[h, k]]
        value = count_sizes(tables, sizes, room.completion)
        plain = complete_as_they_are(tables, n_clusters, remaining, rule, room.completion)
        best = -np.inf
        for k in range(n_clusters + 1):
            size = sizes[k] if k < n_clusters else 0
            gain = rows.gains[beam.rows[h, k]] if k < n_clusters else alone
            score = beam.placed[h] + gain
            score += value_after(
                tables, n_clusters, size, value, plain, remaining, rule, room.completion
            )
            room.values[h * width + k] = score
            best = max(best, score)
        forget_sizes(sizes, room.completion)
        threshold = min(threshold, best)
        created += n_clusters + 1
    if n_hypotheses < beam_size:
        threshold = -np.inf
    found = 0
    for h in range(n_hypotheses):
        for k in range(beam.counts[h] + 1):
            value = room.values[h * width + k]
            if value >= threshold:
                room.parents[found] = h
                room.choices[found] = k
                room.scores[found] = value
                found += 1
    return found, created


@inner
def _select(scores, parents, choices, found, count):  # type: ignore[no-untyped-def]
    """Move the `count` best candidates to the front, in any order (Hoare's selection)."""
    low = 0
    high = found - 1
    while low < high:
        pivot = scores[(low + high) // 2]
        a = low
        b = high
        while a <= b:
            while scores[a] > pivot:
                a += 1
            while scores[b] < pivot:
                b -= 1
            if a <= b:
                scores[a], scores[b] = scores[b], scores[a]
                parents[a], parents[b] = parents[b], parents[a]
                choices[a], choices[b] = choices[b], choices[a]
                a += 1
                b -= 1
        if count - 1 <= b:
            high = b
        elif count - 1 >= a:
            low = a
        else:
            return
