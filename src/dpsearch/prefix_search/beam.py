"""Level-synchronous beam search: the best `beam_size` clusterings of each prefix of the data.

Hypotheses share cluster rows.  A row of statistics that many hypotheses contain is scored once
per item and, when several of them add the item to it, changed once; so a beam of 100 costs little
more than a beam of one.  Labels are not stored per hypothesis: a row knows its members through a
linked list that it shares with the rows it was copied from.
"""

from __future__ import annotations

import time

import numpy as np

from dpsearch._jit import inner, kernel, view
from dpsearch._types import Ints, Labels
from dpsearch.events import Callback, Event
from dpsearch.items import add_item, clear_row, copy_row, score_item
from dpsearch.prefix_search.beam_state import (
    Counts,
    enlarged,
    new_hypotheses,
    new_nodes,
    new_room,
    new_rows,
    wider,
)
from dpsearch.priors.antoniak import complete, grow, rule_of, tally
from dpsearch.priors.base import size_step, size_weight
from dpsearch.problem import Problem

_CHUNK = 1024  # items between two calls of the callback, or checks for Ctrl-C


def beam(
    problem: Problem, order: Ints, beam_size: int, callback: Callback | None = None
) -> tuple[Labels, int, int]:
    """Return the labels of the best hypothesis, and the numbers of states expanded and created."""
    begun = time.perf_counter()
    n = len(order)
    width = problem.model.core.width
    rows = new_rows(width, 4 * beam_size + 64)
    nodes = new_nodes(4 * beam_size + 1024)
    hypotheses = new_hypotheses(beam_size, 32)
    room = new_room(hypotheses, rows, width, problem.n_points)
    # The search begins with one hypothesis, in which nothing is placed.
    counts = Counts(1, 0, 0, len(rows.sizes) - 1, len(nodes.item))
    rule = rule_of(problem.prior) if problem.tables.multiplicity else None
    placed, n_enqueued, n_dequeued = 0, 0, 0
    while placed < n:
        stop = min(n, placed + _CHUNK)
        model = (problem.model.core, problem.items, problem.alone, problem.tables)
        state = (hypotheses, rows, nodes, counts, room, order, placed, stop, beam_size)
        placed, made, taken, counts = _advance(*model, rule, *state)
        n_enqueued += made
        n_dequeued += taken
        if placed < stop:  # something is full
            n_rows, n_nodes = len(rows.sizes), len(nodes.item)
            if counts.free_rows <= beam_size:
                rows = enlarged(rows, new_rows(width, 2 * n_rows), counts.free_rows)
                counts = counts._replace(free_rows=counts.free_rows + n_rows)
            if counts.free_nodes <= beam_size:
                nodes = enlarged(nodes, new_nodes(2 * n_nodes), counts.free_nodes)
                counts = counts._replace(free_nodes=counts.free_nodes + n_nodes)
            hypotheses = wider(hypotheses)
            room = new_room(hypotheses, rows, width, problem.n_points)
        best = int(np.argmax(hypotheses.scores[: counts.hypotheses]))
        if callback is not None:
            score = float(hypotheses.scores[best])
            count = int(hypotheses.counts[best])
            seconds = time.perf_counter() - begun
            callback(Event(seconds, score, count, "search", placed, n))
    members = rows.members[hypotheses.rows[best, : hypotheses.counts[best]]]
    return _labels(nodes, members, n), n_dequeued, n_enqueued


@kernel
def _labels(nodes, members, n):  # type: ignore[no-untyped-def]
    """Read the partition off the clusters' member lists."""
    labels = np.empty(n, np.int64)
    for k in range(members.shape[0]):
        node = members[k]
        while node >= 0:
            labels[nodes.item[node]] = k
            node = nodes.before[node]
    return labels


@inner
def _advance(  # type: ignore[no-untyped-def]
    core, items, alone, tables, rule, beam, rows, nodes, counts, room, order, begin, end, beam_size
):
    """Place order[begin:end]; stop early when a structure may not suffice for one more item.

    Return (where it stopped, states created, states expanded, counts).  `rule` is None for a prior
    of product form; Numba then removes the code that needs it.
    """
    made = 0
    taken = 0
    for t in range(begin, end):
        if _full(beam, counts, beam_size):
            return t, made, taken, counts
        i = order[t]
        taken += counts.hypotheses
        _score_live(core, items, i, tables, rows, counts, room)
        if rule is None:
            found, created = _candidates(
                tables, beam, rows, counts, items.sizes[i], alone[i], beam_size, room
            )
        else:
            remaining = order.shape[0] - t - 1
            found = _count_candidates(
                tables, rule, beam, rows, counts.hypotheses, alone[i], remaining, room
            )
            created = found
        made += created
        counts = _step(
            core, items, i, alone[i], tables, beam, rows, nodes, counts, room, found, beam_size
        )
    return end, made, taken, counts


@inner
def _full(beam, counts, beam_size):  # type: ignore[no-untyped-def]
    """Whether one more item may need more room than there is."""
    lists_short = counts.widest + 1 >= beam.rows.shape[1]
    return lists_short or counts.free_rows <= beam_size or counts.free_nodes <= beam_size


@inner
def _score_live(core, items, i, tables, rows, counts, room):  # type: ignore[no-untyped-def]
    """Score item i once in every row that some hypothesis has."""
    size = items.sizes[i]
    n_live = counts.live
    for j in range(n_live):
        room.starts[j] = rows.live[j] * core.width
    score_item(core, items, i, rows.pool, view(room.starts, 0, n_live), room.out, room.row)
    for j in range(n_live):
        row = rows.live[j]
        rows.gains[row] = room.out[j]
        if size == 1:
            rows.gains[row] += rows.steps[row]
        elif not tables.multiplicity:
            n = rows.sizes[row]
            rows.gains[row] += size_weight(tables, n + size) - size_weight(tables, n)


@inner
def _log_fresh(tables, n_clusters, size, alone):  # type: ignore[no-untyped-def]
    """Return the gain of an item as a cluster of its own."""
    if tables.multiplicity:
        return alone
    opened = tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]
    return alone + size_weight(tables, size) + opened


@inner
def _candidates(  # type: ignore[no-untyped-def]
    tables, beam, rows, counts, size, alone, beam_size, room
):
    """List (hypothesis, cluster, score) of all successors that may be among the best.

    With a full beam, each hypothesis's best successor is at least as good as the worst of these
    best ones, so that successors below it cannot stay.
    """
    n_hypotheses = counts.hypotheses
    threshold = np.inf
    created = 0
    for h in range(n_hypotheses):
        n_clusters = beam.counts[h]
        shared = beam.rows[h]
        best = _log_fresh(tables, n_clusters, size, alone)
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
        if room.second[h] < threshold:  # as a rule: only the best successor stays
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
                value = beam.scores[h] + _log_fresh(tables, n_clusters, size, alone)
            if value >= threshold:
                room.parents[found] = h
                room.choices[found] = k
                room.scores[found] = value
                found += 1
    return found, created


@inner
def _count_candidates(  # type: ignore[no-untyped-def]
    tables, rule, beam, rows, n_hypotheses, alone, remaining, room
):
    """List all successors under AntoniakCounts: the paper's score, with p(c) greedily completed."""
    found = 0
    shape, count = room.completion[0], room.completion[1]
    placed_shape, placed_count = room.completion[2], room.completion[3]
    for h in range(n_hypotheses):
        n_clusters = beam.counts[h]
        for k in range(n_clusters):
            room.sizes[k] = rows.sizes[beam.rows[h, k]]
        room.sizes[n_clusters] = 0
        placed, value = tally(tables, room.sizes[:n_clusters], placed_shape, placed_count)
        for k in range(n_clusters + 1):
            for j in range(placed):
                shape[j] = placed_shape[j]
                count[j] = placed_count[j]
            used, more = grow(tables, shape, count, placed, n_clusters, room.sizes[k])
            grown = max(n_clusters, k + 1)
            prior = complete(tables, shape, count, used, grown, value + more, remaining, rule)
            gain = alone if k == n_clusters else rows.gains[beam.rows[h, k]]
            room.parents[found] = h
            room.choices[found] = k
            room.scores[found] = beam.placed[h] + gain + prior
            found += 1
    return found


@inner
def _select(scores, parents, choices, found, wanted):  # type: ignore[no-untyped-def]
    """Move the `wanted` best candidates to the front, in no order (Hoare's selection)."""
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
        if wanted - 1 <= b:
            high = b
        elif wanted - 1 >= a:
            low = a
        else:
            return


@inner
def _step(core, items, i, alone, tables, beam, rows, nodes, counts, room, found, beam_size):  # type: ignore[no-untyped-def]
    """Make the best candidates the new beam; return the counts."""
    kept = min(found, beam_size)
    if found > beam_size:
        _select(room.scores, room.parents, room.choices, found, beam_size)
    n_ended = _count_children(beam, rows, counts.hypotheses, room, kept)
    widest, n_fresh = _branch(tables, beam, rows, counts, room, kept, n_ended, alone)
    n_live, free_rows, free_nodes = _change_rows(core, items, i, tables, rows, nodes, counts)
    fresh = -1
    if n_fresh > 0:
        free_rows -= 1
        fresh = rows.free[free_rows]
        clear_row(core, view(rows.pool, fresh * core.width, core.width))
        rows.sizes[fresh] = 0
        free_nodes = _append(core, items, i, tables, rows, nodes, fresh, -1, free_nodes)
        rows.users[fresh] = n_fresh
        rows.live[n_live] = fresh
        n_live += 1
    for c in range(kept):
        slot = room.parents[c]
        k = room.choices[c]
        if k < beam.counts[slot]:
            beam.rows[slot, k] = rows.successor[beam.rows[slot, k]]
        else:
            beam.rows[slot, k] = fresh
            beam.counts[slot] += 1
    n_live, free_rows, free_nodes = _drop_unused(rows, nodes, n_live, free_rows, free_nodes)
    return Counts(kept, widest, n_live, free_rows, free_nodes)


@inner
def _count_children(beam, rows, n_hypotheses, room, kept):  # type: ignore[no-untyped-def]
    """Count each hypothesis's successors; return the number of those that have none.

    These are listed in room.slots, and their rows are released.
    """
    room.children[:n_hypotheses] = 0
    for c in range(kept):
        room.children[room.parents[c]] += 1
    n_ended = 0
    for h in range(n_hypotheses):
        if room.children[h] == 0:
            for k in range(beam.counts[h]):
                rows.users[beam.rows[h, k]] -= 1
            room.slots[n_ended] = h
            n_ended += 1
    return n_ended


@inner
def _branch(tables, beam, rows, counts, room, kept, n_ended, alone):  # type: ignore[no-untyped-def]
    """Give each successor a slot, room.parents[c], with its parent's rows; count the wanted rows.

    A hypothesis with one successor stays where it is and keeps its share in its rows; only
    further successors copy its list, into the slots of hypotheses that end here and behind them.
    Return (the most clusters of a hypothesis, how many open a new one).
    """
    next_slot = counts.hypotheses
    widest = counts.widest
    n_fresh = 0
    for c in range(kept):
        h = room.parents[c]
        k = room.choices[c]
        n_clusters = beam.counts[h]
        slot = h
        room.children[h] -= 1
        if room.children[h] > 0:
            if n_ended > 0:
                n_ended -= 1
                slot = room.slots[n_ended]
            else:
                slot = next_slot
                next_slot += 1
            for j in range(counts.widest):
                row = beam.rows[h, j]
                beam.rows[slot, j] = row
                rows.users[row] += 1  # for row 0 it means nothing
        room.parents[c] = slot
        beam.counts[slot] = n_clusters
        beam.scores[slot] = room.scores[c]
        if k < n_clusters:
            old = beam.rows[slot, k]
            rows.users[old] -= 1
            rows.wanted[old] += 1
            if tables.multiplicity:
                beam.placed[slot] = beam.placed[h] + rows.gains[old]
        else:
            n_fresh += 1
            widest = max(widest, n_clusters + 1)
            if tables.multiplicity:
                beam.placed[slot] = beam.placed[h] + alone
    return widest, n_fresh


@inner
def _change_rows(core, items, i, tables, rows, nodes, counts):  # type: ignore[no-untyped-def]
    """Change each wanted row once: in place if no hypothesis keeps the old one, else in a copy."""
    width = core.width
    n_live, free_rows, free_nodes = counts.live, counts.free_rows, counts.free_nodes
    for j in range(n_live):
        old = rows.live[j]
        if rows.wanted[old] == 0:
            continue
        row = old
        if rows.users[old] > 0:
            free_rows -= 1
            row = rows.free[free_rows]
            copy_row(view(rows.pool, old * width, width), view(rows.pool, row * width, width))
            rows.sizes[row] = rows.sizes[old]
            rows.users[row] = 0
            nodes.users[rows.members[old]] += 1
            rows.live[n_live] = row
            n_live += 1
        free_nodes = _append(
            core, items, i, tables, rows, nodes, row, rows.members[old], free_nodes
        )
        rows.users[row] += rows.wanted[old]
        rows.wanted[old] = 0
        rows.successor[old] = row
    return n_live, free_rows, free_nodes


@inner
def _drop_unused(rows, nodes, n_live, free_rows, free_nodes):  # type: ignore[no-untyped-def]
    """Make the rows that no hypothesis has free again."""
    j = 0
    while j < n_live:
        row = rows.live[j]
        if rows.users[row] == 0:
            free_nodes = _release(nodes, rows.members[row], free_nodes)
            rows.free[free_rows] = row
            free_rows += 1
            n_live -= 1
            rows.live[j] = rows.live[n_live]
        else:
            j += 1
    return n_live, free_rows, free_nodes


@inner
def _append(core, items, i, tables, rows, nodes, row, before, free_nodes):  # type: ignore[no-untyped-def]
    """Add item i to a row and to its list of members; return the number of free nodes."""
    add_item(core, items, i, view(rows.pool, row * core.width, core.width), 1.0)
    n = rows.sizes[row] + items.sizes[i]
    rows.sizes[row] = n
    if not tables.multiplicity:
        rows.steps[row] = size_step(tables, n)
    free_nodes -= 1
    node = nodes.free[free_nodes]
    nodes.before[node] = before
    nodes.item[node] = i
    nodes.users[node] = 1
    rows.members[row] = node
    return free_nodes


@inner
def _release(nodes, node, free_nodes):  # type: ignore[no-untyped-def]
    """Release a list, back to the node that another list shares."""
    while node >= 0:
        nodes.users[node] -= 1
        if nodes.users[node] > 0:
            break
        nodes.free[free_nodes] = node
        free_nodes += 1
        node = nodes.before[node]
    return free_nodes
