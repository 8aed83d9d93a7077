"""Split-merge moves: Metropolis–Hastings proposals that split a cluster or merge two.

Two items i and j are drawn.  If they share a cluster, a split is proposed that separates i from j
and divides the other members S between them; if not, the merge of their clusters is proposed.  With
q the probability of proposing this split, the log of the acceptance ratio is

    split:  log V(K+1)/V(K) + log [W(n_i) W(n_j) / W(n)] + log [H(x_i…) H(x_j…) / H(x)] − log q
    merge:  the same with the opposite sign, where q is that of the split which would undo it

(a merge can be proposed in one way only).  S is divided as follows:

variant 1
    Each member goes to i or j with probability ½: q = 2^−|S|  (Jain & Neal 2004, section 3.1).
variant 2
    From a random division, `scans` restricted Gibbs scans are made, in which each member chooses
    between the two clusters only, and a last such scan, whose probability is q (section 3.2).
variant 3
    As variant 2, followed by a Gibbs sweep over all items.
``"sams"``
    Members in random order choose between the two clusters as they are at that moment; q is the
    product of the probabilities of the choices (sequentially-allocated merge-split, Dahl 2005).
    A Gibbs sweep follows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner, kernel, view
from dpsearch._types import Ints, Vector
from dpsearch.items import Core, add_item, clear_row, copy_row, log_marginal, merge_rows, score_item
from dpsearch.priors.base import size_weight
from dpsearch.state.clusters import drop, open_slot, set_size

RANDOM, RESTRICTED_GIBBS, SEQUENTIAL = 0, 1, 2


class PairRoom(NamedTuple):
    """Working space: two rows of statistics, and the members to divide between them."""

    rows: Vector
    starts: Ints
    out: Vector
    scratch: Vector
    members: Ints
    side: Ints  # [member]: 0 with i, 1 with j
    target: Ints  # [member]: the side that a merge would undo, −1 for a split


@kernel
def pair_room(core: Core, n_items: int) -> PairRoom:
    return PairRoom(
        np.empty(2 * core.width),
        np.arange(2) * core.width,
        np.empty(2),
        np.empty(core.width),
        np.empty(n_items, np.int64),
        np.empty(n_items, np.int64),
        np.empty(n_items, np.int64),
    )


@inner
def split_merge_move(core, items, tables, clusters, n_live, rule, scans, room, rng):  # type: ignore[no-untyped-def]
    """Propose a split or a merge; return (number of clusters, whether it was accepted).

    At least one slot must be free.
    """
    n_items = clusters.labels.shape[0]
    if n_items < 2:
        return n_live, False
    i = int(rng.random() * n_items)
    j = int(rng.random() * (n_items - 1))
    if j >= i:
        j += 1
    slot, other = clusters.labels[i], clusters.labels[j]
    n_members = 0
    for m in range(n_items):
        label = clusters.labels[m]
        if label in (slot, other) and m not in (i, j):
            room.members[n_members] = m
            room.side[n_members] = 0 if label == slot else 1
            n_members += 1
    members, side, width = room.members[:n_members], room.side[:n_members], core.width
    if slot == other:
        log_q = _divide(core, items, tables, i, j, members, side, rule, scans, False, room, rng)
        _fill_rows(core, items, i, j, members, side, room)
        row = view(clusters.pool, slot * width, width)
        gain = _log_ratio(core, tables, n_live, row, room.rows[:width], room.rows[width:])
        if math.log(1.0 - rng.random()) < gain - log_q:
            _split(core, tables, clusters, n_live, j, members, side, room)
            return n_live + 1, True
        return n_live, False
    log_q = _divide(core, items, tables, i, j, members, side, rule, scans, True, room, rng)
    row = view(clusters.pool, slot * width, width)
    another = view(clusters.pool, other * width, width)
    copy_row(row, room.scratch)
    merge_rows(core, room.scratch, another, 1.0)
    loss = _log_ratio(core, tables, n_live - 1, room.scratch, row, another)
    if math.log(1.0 - rng.random()) < log_q - loss:
        copy_row(room.scratch, row)
        for m in range(n_items):
            if clusters.labels[m] == other:
                clusters.labels[m] = slot
        size = clusters.sizes[slot] + clusters.sizes[other]
        set_size(tables, clusters, clusters.place[slot], size)
        clusters.sizes[other] = 0
        drop(clusters, n_live - 1, clusters.place[other])
        return n_live - 1, True
    return n_live, False


@inner
def _log_ratio(core, tables, n_clusters, row, first, second):  # type: ignore[no-untyped-def]
    """Return the gain in log joint if the cluster `row` is split into `first` and `second`."""
    n_first, n_second = int(first[0]), int(second[0])  # a row begins with its size
    gain = log_marginal(core, first) + log_marginal(core, second) - log_marginal(core, row)
    gain += size_weight(tables, n_first) + size_weight(tables, n_second)
    gain -= size_weight(tables, n_first + n_second)
    return gain + tables.log_v[n_clusters + 1] - tables.log_v[n_clusters]


@inner
def _split(core, tables, clusters, n_live, j, members, side, room):  # type: ignore[no-untyped-def]
    """Put j and the members on its side into a new cluster."""
    width = core.width
    slot = clusters.labels[j]
    new = open_slot(core, clusters, n_live)
    copy_row(room.rows[:width], clusters.pool[slot * width : (slot + 1) * width])
    copy_row(room.rows[width:], clusters.pool[new * width : (new + 1) * width])
    clusters.labels[j] = new
    for m in range(members.shape[0]):
        if side[m] == 1:
            clusters.labels[members[m]] = new
    set_size(tables, clusters, clusters.place[slot], int(room.rows[0]))
    set_size(tables, clusters, n_live, int(room.rows[width]))


@inner
def _fill_rows(core, items, i, j, members, side, room):  # type: ignore[no-untyped-def]
    """Compute the statistics of both sides from the data."""
    width = core.width
    first, second = room.rows[:width], room.rows[width:]
    clear_row(core, first)
    clear_row(core, second)
    add_item(core, items, i, first, 1.0)
    add_item(core, items, j, second, 1.0)
    for m in range(members.shape[0]):
        start = side[m] * width
        add_item(core, items, members[m], room.rows[start : start + width], 1.0)


@inner
def _divide(core, items, tables, i, j, members, side, rule, scans, forced, room, rng):  # type: ignore[no-untyped-def]
    """Divide members between i and j by the rule; return the log probability of the outcome.

    If `forced`, the outcome is the given `side`, and only its probability is computed.
    """
    n = members.shape[0]
    if rule == RANDOM:
        if not forced:
            for m in range(n):
                side[m] = rng.random() < 0.5
        return -n * math.log(2.0)
    width = core.width
    log_q = 0.0
    if rule == SEQUENTIAL:
        for m in range(n - 1, 0, -1):  # shuffle members together with their sides
            other = int(rng.random() * (m + 1))
            members[m], members[other] = members[other], members[m]
            side[m], side[other] = side[other], side[m]
        _fill_rows(core, items, i, j, members[:0], side, room)
        for m in range(n):
            target = side[m] if forced else -1
            side[m], log_p = _choose(core, items, tables, members[m], target, room, rng)
            start = side[m] * width
            add_item(core, items, members[m], room.rows[start : start + width], 1.0)
            log_q += log_p
        return log_q
    targets = room.target[:n]
    for m in range(n):
        targets[m] = side[m] if forced else -1
        side[m] = rng.random() < 0.5
    _fill_rows(core, items, i, j, members, side, room)
    for scan in range(scans + 1):
        log_q = 0.0
        for m in range(n):
            start = side[m] * width
            add_item(core, items, members[m], room.rows[start : start + width], -1.0)
            target = targets[m] if scan == scans else -1
            side[m], log_p = _choose(core, items, tables, members[m], target, room, rng)
            start = side[m] * width
            add_item(core, items, members[m], room.rows[start : start + width], 1.0)
            log_q += log_p
    return log_q  # of the last scan


@inner
def _choose(core, items, tables, item, target, room, rng):  # type: ignore[no-untyped-def]
    """Draw the side of an item, or take `target` if ≥ 0; return it and its log probability."""
    score_item(core, items, item, room.rows, room.starts, room.out, room.scratch)
    size = items.sizes[item]
    n_first, n_second = int(room.rows[0]), int(room.rows[core.width])
    # Log odds of the second side.
    odds = room.out[1] + size_weight(tables, n_second + size) - size_weight(tables, n_second)
    odds -= room.out[0] + size_weight(tables, n_first + size) - size_weight(tables, n_first)
    if target < 0:
        target = 1 if rng.random() * (1.0 + math.exp(-abs(odds))) < 1.0 else 0
        if odds < 0.0:
            target = 1 - target
    # −log(1 + e^−z) with z the log odds of the side taken, without overflow
    z = odds if target == 1 else -odds
    return target, min(z, 0.0) - math.log1p(math.exp(-abs(z)))
