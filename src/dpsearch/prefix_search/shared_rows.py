"""Hypotheses, partitions of a prefix that share the statistics of their clusters.

A row of statistics that many hypotheses contain is scored once per item and, if several of them add
the item to it, changed once, so that a hundred hypotheses cost little more than one.  Labels are
not stored per hypothesis: a row has its members in a linked list that it shares with the rows that
it was copied from.  Beam search and the particle filter differ in which successors they keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsearch._jit import call_score_dots, inner, kernel, view
from dpsearch._records import copied, zeros
from dpsearch._types import Ints
from dpsearch.dots import BLOCK, block_products
from dpsearch.items import add_item, clear_row, copy_row, item_values, score_item
from dpsearch.prefix_search.beam_state import (
    Counts,
    Hypotheses,
    Nodes,
    Room,
    Rows,
    new_room,
    new_rows,
)
from dpsearch.priors.base import size_step, size_weight

_DENSE = 0.9  # rows are packed when a smaller share of them is in use


class Shared(NamedTuple):
    """The hypotheses and all that they share, as kernels use them."""

    hypotheses: Hypotheses
    rows: Rows
    nodes: Nodes
    counts: Counts
    room: Room

    def rows_in_use(self) -> Ints:
        """Return the rows that at least one hypothesis has."""
        return 1 + np.flatnonzero(self.rows.users[1 : self.counts.highest + 1])


def nothing_placed(width: int, n_points: int, most: int) -> Shared:
    """Return one hypothesis with no item placed, and space for `most` of them."""
    rows, nodes = new_rows(width, 4 * most + 64), zeros(Nodes, 4 * most + 1024)
    hypotheses = zeros(Hypotheses, most, rows=(most, 32))
    counts = Counts(1, 0, 0, len(rows.sizes) - 1, 0)
    return Shared(hypotheses, rows, nodes, counts, new_room(hypotheses, rows, width, n_points))


def with_more_room(shared: Shared, width: int, n_points: int) -> Shared:
    """Return the same hypotheses with larger arrays wherever one more item may need them."""
    hypotheses, rows, nodes, counts, room = shared
    most = len(hypotheses.counts)
    if counts.nodes + most > len(nodes.item):
        counts = counts._replace(nodes=_drop_unused_nodes(nodes, rows, counts))
        if counts.nodes + most > len(nodes.item) // 2:
            nodes = copied(nodes, zeros(Nodes, 2 * len(nodes.item)))
    if counts.free_rows <= most:
        n, free = len(rows.sizes), counts.free_rows
        rows = copied(rows, new_rows(width, 2 * n))
        rows.free[n : n + free] = rows.free[:free]
        rows.free[:n] = np.arange(n, 2 * n)[::-1]  # the new rows are used last
        counts = counts._replace(free_rows=free + n)
    if hypotheses.counts.max() + 1 >= hypotheses.rows.shape[1]:
        lists = hypotheses.rows
        hypotheses = hypotheses._replace(rows=np.hstack([lists, np.zeros_like(lists)]))
    if hypotheses is not shared.hypotheses or rows is not shared.rows:
        room = new_room(hypotheses, rows, width, n_points)
    return Shared(hypotheses, rows, nodes, counts, room)


@kernel
def _drop_unused_nodes(nodes, rows, counts):  # type: ignore[no-untyped-def]
    """Drop the nodes that no row's list contains and close the gaps; return how many are left."""
    numbers = np.full(counts.nodes, -1)
    for row in range(1, counts.highest + 1):
        if rows.users[row] > 0:
            numbers[rows.members[row]] = 0
    for node in range(counts.nodes - 1, -1, -1):
        if numbers[node] == 0 and nodes.before[node] >= 0:
            numbers[nodes.before[node]] = 0
    found = 0
    for node in range(counts.nodes):
        if numbers[node] == 0:
            before = nodes.before[node]
            nodes.before[found] = numbers[before] if before >= 0 else -1
            nodes.item[found] = nodes.item[node]
            numbers[node] = found
            found += 1
    for row in range(1, counts.highest + 1):
        if rows.users[row] > 0:
            rows.members[row] = numbers[rows.members[row]]
    return found


def packed(shared: Shared, width: int) -> Shared:
    """Return the same hypotheses, with the highest rows moved to free ones if many are free."""
    hypotheses, rows, _, counts, _ = shared
    live = shared.rows_in_use()
    n = len(live)
    if n > _DENSE * counts.highest:
        return shared
    old, new = live[live > n], 1 + np.flatnonzero(rows.users[1 : n + 1] == 0)
    numbers = np.arange(len(rows.sizes), dtype=np.uint32)
    numbers[old] = new
    hypotheses.rows[:] = numbers[hypotheses.rows]
    table = rows.pool.reshape(-1, width)
    for values in (table, rows.sizes, rows.steps, rows.users, rows.members):
        values[new] = values[old]
    rows.users[n + 1 :] = 0
    rows.free[:] = np.arange(len(rows.free))[::-1]
    return shared._replace(counts=counts._replace(highest=n, free_rows=len(rows.free) - 1 - n))


@kernel
def labels_of_members(nodes, members, n):  # type: ignore[no-untyped-def]
    """Return the labels by the clusters' member lists; items that are not placed have −1."""
    labels = np.full(n, -1)
    for k in range(members.shape[0]):
        node = members[k]
        while node >= 0:
            labels[nodes.item[node]] = k
            node = nodes.before[node]
    return labels


@inner
def full(beam, nodes, counts, beam_size):  # type: ignore[no-untyped-def]
    """Whether an array may be too small for one more item."""
    nodes_short = counts.nodes + beam_size > nodes.item.shape[0]
    lists_short = counts.widest + 1 >= beam.rows.shape[1]
    return lists_short or counts.free_rows <= beam_size or nodes_short


@inner
def _multiply_block(dots, items, order, t, rows, counts, room):  # type: ignore[no-untyped-def]
    """Compute the inner products of the next few points with all rows (block capability)."""
    for b in range(min(BLOCK, order.shape[0] - t)):
        copy_row(item_values(items, order[t + b]), room.points[b])
    starts = view(room.starts, 0, counts.highest + 1)
    block_products(dots, room.points, rows.pool, starts, room.products, room.gram)


@inner
def score_live(core, dots, items, order, t, b, tables, rows, counts, room):  # type: ignore[no-untyped-def]
    """Score item order[t] once in each row that a hypothesis has.

    It is point b of a block if the family has the block capability; otherwise `dots` is None.
    """
    i, n = order[t], counts.highest
    size = items.sizes[i]
    starts, out = view(room.starts, 1, n), view(rows.gains, 1, n)
    if dots is not None:
        if b == 0:
            _multiply_block(dots, items, order, t, rows, counts, room)
        products = view(room.products[b], 1, n)
        call_score_dots(
            dots.score_dots, (core.params, rows.pool, starts, products, room.gram[b, b], out)
        )
    else:
        score_item(core, items, i, rows.pool, starts, out, room.row)
    if size > 1 and not tables.multiplicity:
        for row in range(1, n + 1):
            before = rows.sizes[row]
            rows.gains[row] += size_weight(tables, before + size) - size_weight(tables, before)
    for row in range(1, n + 1):
        step = rows.steps[row] if size == 1 else 0.0
        rows.gains[row] = rows.gains[row] + step if rows.users[row] > 0 else -np.inf


@inner
def log_fresh(tables, n_clusters, size, alone):  # type: ignore[no-untyped-def]
    """Return the gain of an item that opens a new cluster."""
    if tables.multiplicity:
        return alone
    opened = tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]
    return alone + size_weight(tables, size) + opened


@inner
def step(core, dots, items, i, b, alone, tables, beam, rows, nodes, counts, room, kept):  # type: ignore[no-untyped-def]
    """Make the first `kept` candidates the new hypotheses; return the counts."""
    n_ended, free_rows = _count_children(beam, rows, counts, room, kept)
    widest, n_fresh, n_holes, n_changed = _branch(
        tables, beam, rows, counts, room, kept, n_ended, alone
    )
    highest, free_rows = _copy_rows(core, rows, counts.highest, room, n_changed, free_rows)
    n_nodes = counts.nodes
    for j in range(n_changed):
        old = room.at[j]
        row = rows.successor[old]
        n_nodes = _append(core, items, i, tables, rows, nodes, row, rows.members[old], n_nodes)
        rows.users[row] += rows.added[old]
        rows.added[old] = 0
        if dots is not None:
            _set_products(room, old, row, b)
    fresh = -1
    if n_fresh > 0:
        free_rows -= 1
        fresh = rows.free[free_rows]
        clear_row(core, view(rows.pool, fresh * core.width, core.width))
        rows.sizes[fresh] = 0
        n_nodes = _append(core, items, i, tables, rows, nodes, fresh, -1, n_nodes)
        rows.users[fresh] = n_fresh
        highest = max(highest, fresh)
        if dots is not None:
            _set_products(room, 0, fresh, b)
    for c in range(kept):
        slot = room.parents[c]
        k = room.choices[c]
        if k < beam.counts[slot]:
            beam.rows[slot, k] = rows.successor[beam.rows[slot, k]]
        else:
            beam.rows[slot, k] = fresh
            beam.counts[slot] += 1
    if n_holes > 0:
        _fill_holes(beam, room, kept, n_holes, widest)
    return Counts(kept, widest, highest, free_rows, n_nodes)


@inner
def _count_children(beam, rows, counts, room, kept):  # type: ignore[no-untyped-def]
    """Count each hypothesis's successors; return how many have none, and how many rows are free.

    Hypotheses without a successor are listed in room.slots, and rows that only they have are freed.
    """
    n_hypotheses, free_rows = counts.hypotheses, counts.free_rows
    room.children[:n_hypotheses] = 0
    for c in range(kept):
        room.children[room.parents[c]] += 1
    n_ended = 0
    for h in range(n_hypotheses):
        if room.children[h] == 0:
            for k in range(beam.counts[h]):
                row = beam.rows[h, k]
                rows.users[row] -= 1
                if rows.users[row] == 0:
                    rows.free[free_rows] = row
                    free_rows += 1
            room.slots[n_ended] = h
            n_ended += 1
    return n_ended, free_rows


@inner
def _branch(tables, beam, rows, counts, room, kept, n_ended, alone):  # type: ignore[no-untyped-def]
    """Give each successor a slot, room.parents[c], with its parent's rows; list the rows to change.

    The last successor of a hypothesis takes over its slot and its references to rows.  The others
    copy its list, into the slots of hypotheses without successors and then into new ones.  Return
    (the largest number of clusters, how many successors open a new cluster, slots left empty, rows
    to change, which are listed in room.at).
    """
    next_slot = counts.hypotheses
    widest = counts.widest
    n_fresh = 0
    n_changed = 0
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
                rows.users[row] += 1  # of no meaning for row 0
        room.parents[c] = slot
        beam.counts[slot] = n_clusters
        beam.scores[slot] = room.scores[c]
        if k < n_clusters:
            old = beam.rows[slot, k]
            rows.users[old] -= 1
            if rows.added[old] == 0:
                room.at[n_changed] = old
                n_changed += 1
            rows.added[old] += 1
            if tables.multiplicity:
                beam.placed[slot] = beam.placed[h] + rows.gains[old]
        else:
            n_fresh += 1
            widest = max(widest, n_clusters + 1)
            if tables.multiplicity:
                beam.placed[slot] = beam.placed[h] + alone
    return widest, n_fresh, n_ended, n_changed


@inner
def _fill_holes(beam, room, kept, n_holes, widest):  # type: ignore[no-untyped-def]
    """Move the last hypotheses into the slots that are left empty."""
    for j in range(n_holes):
        room.children[room.slots[j]] = -1  # all others have 0
    last = kept + n_holes - 1
    for j in range(n_holes):
        hole = room.slots[j]
        while room.children[last] < 0:
            last -= 1
        if hole < last:
            for k in range(widest):
                beam.rows[hole, k] = beam.rows[last, k]
            beam.counts[hole] = beam.counts[last]
            beam.scores[hole] = beam.scores[last]
            beam.placed[hole] = beam.placed[last]
            last -= 1


@inner
def _copy_rows(core, rows, highest, room, n_changed, free_rows):  # type: ignore[no-untyped-def]
    """Set the successor of each row to change: itself if no hypothesis keeps it, else a copy.

    All copies come before any change, so that many rows can be fetched from memory at once.
    """
    width = core.width
    for j in range(n_changed):
        old = room.at[j]
        row = old
        if rows.users[old] > 0:
            free_rows -= 1
            row = rows.free[free_rows]
            highest = max(highest, row)
            copy_row(view(rows.pool, old * width, width), view(rows.pool, row * width, width))
            rows.sizes[row] = rows.sizes[old]
            rows.users[row] = 0
        rows.successor[old] = row
    return highest, free_rows


@inner
def _set_products(room, old, row, b):  # type: ignore[no-untyped-def]
    """Set the inner products of the rest of a block with a row, which is `old` plus point b."""
    for c in range(b + 1, BLOCK):
        room.products[c, row] = room.products[c, old] + room.gram[b, c]


@inner
def _append(core, items, i, tables, rows, nodes, row, before, node):  # type: ignore[no-untyped-def]
    """Add item i to a row and to its list of members; return the number of nodes."""
    add_item(core, items, i, view(rows.pool, row * core.width, core.width), 1.0)
    n = rows.sizes[row] + items.sizes[i]
    rows.sizes[row] = n
    if not tables.multiplicity:
        rows.steps[row] = size_step(tables, n)
    nodes.before[node] = before
    nodes.item[node] = i
    rows.members[row] = node
    return node + 1
