"""Metropolis–Hastings sweeps whose proposals come from the prior (Xing et al. 2004).

For item i a place is proposed from the prior's conditional given the other items: their cluster k
in proportion to W(n_k + 1)/W(n_k), a new one in proportion to V(K + 1)/V(K) · W(1).  In the
acceptance ratio the prior cancels against the proposal, which leaves the ratio of likelihoods,

    H(x_i | the proposed cluster) / H(x_i | the rest of its own).

Only two clusters are scored for each proposal, while Gibbs sampling scores all of them.  With
several proposals for an item this is algorithm 5 of Neal (2000), with the parameters integrated
out.

His algorithm 7 proposes only to open and to close clusters.  Let w_0 be the prior's weight of a new
cluster, and w the sum of the weights of the others' clusters.  An item that shares its cluster is
proposed a cluster of its own, accepted with (w_0/w) · H(x_i) / H(x_i | the rest of its cluster).
An item that is alone is proposed cluster k of the others in proportion to its weight, accepted with
(w/w_0) · H(x_i | k) / H(x_i).  Then an item that shares its cluster moves to one of the existing
clusters, drawn from its conditional.  With the parameters integrated out, H(x_i) takes the place of
Neal's likelihood under a parameter drawn from its prior.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._jit import inner, view
from dpsearch.items import score_item, score_member
from dpsearch.priors.base import size_weight
from dpsearch.state.sweep import add_steps, drawn_place, known_gains, move_item


@inner
def propose_items(  # type: ignore[no-untyped-def]
    core, items, alone, tables, clusters, n_live, order, proposals, partial, room, rng
):
    """Visit items in order with `proposals` for each, by algorithm 5, or by 7 if `partial`.

    Return (items visited, number of clusters, proposals accepted).  It stops early if no slot is
    free.
    """
    accepted = 0
    for t in range(order.shape[0]):
        i = order[t]
        size = items.sizes[i]
        for _ in range(proposals):
            if n_live + 1 > clusters.sizes.shape[0]:
                return t, n_live, accepted
            old = clusters.place[clusters.labels[i]]
            slot = clusters.live[old]
            single = clusters.sizes[slot] == size
            fresh, others = _weigh(tables, clusters, n_live, old, single, size, room)
            gain = 0.0
            if not partial:
                place = _proposed(fresh, others, n_live, old, room, rng)
            elif single:
                place = _proposed(0.0, others, n_live, old, room, rng)
                gain = math.log(others / fresh)
            else:
                place = n_live
                gain = math.log(fresh / others)
            if place == old or (single and place == n_live):
                continue
            if place < n_live:
                start, score = view(clusters.starts, place, 1), view(room.out, place, 1)
                score_item(core, items, i, clusters.pool, start, score, room.scratch)
                gain += room.out[place]
            else:
                gain += alone[i]
            if single:
                gain -= alone[i]
            else:
                row = view(clusters.pool, slot * core.width, core.width)
                gain -= score_member(core, items, i, row, room.scratch)
            if gain < 0.0 and rng.random() >= math.exp(gain):
                continue
            accepted += 1
            n_live = move_item(
                core, items, i, size, tables, clusters, n_live, place, None, room.points, 0, room
            )
        if partial:
            n_live = _redraw(core, items, i, size, alone[i], tables, clusters, n_live, room, rng)
    return order.shape[0], n_live, accepted


@inner
def _weigh(tables, clusters, n_live, old, single, size, room):  # type: ignore[no-untyped-def]
    """Set room.out to the prior's weights of the other items' clusters; the item's is at `old`.

    Return the weight of a new cluster, and the sum of the others.
    """
    n_others = n_live - 1 if single else n_live
    fresh = size_weight(tables, size) + tables.log_v[n_others + 1] - tables.log_v[n_others]
    top = fresh
    for k in range(n_live):
        n = clusters.sizes[clusters.live[k]]
        weight = clusters.steps[k]
        if k == old:
            weight = -np.inf if single else size_weight(tables, n) - size_weight(tables, n - size)
        elif size > 1:
            weight = size_weight(tables, n + size) - size_weight(tables, n)
        room.out[k] = weight
        top = max(top, weight)
    others = 0.0
    for k in range(n_live):
        room.out[k] = math.exp(room.out[k] - top)
        others += room.out[k]
    return math.exp(fresh - top), others


@inner
def _proposed(fresh, others, n_live, old, room, rng):  # type: ignore[no-untyped-def]
    """Draw a position in live, or n_live for a new cluster, by the weights."""
    left = rng.random() * (fresh + others)
    for k in range(n_live):
        left -= room.out[k]
        if left < 0.0:
            return k
    return n_live if fresh > 0.0 else old


@inner
def _redraw(core, items, i, size, alone, tables, clusters, n_live, room, rng):  # type: ignore[no-untyped-def]
    """Draw the cluster of item i among the existing ones, unless the item is alone."""
    old = clusters.place[clusters.labels[i]]
    if clusters.sizes[clusters.live[old]] == size:
        return n_live
    starts = view(clusters.starts, 0, n_live)
    score_item(core, items, i, clusters.pool, starts, room.out, room.scratch)
    stay, _ = known_gains(core, items, i, size, alone, tables, clusters, n_live, old, room)
    add_steps(size, tables, clusters, n_live, old, room)
    room.out[old] = stay
    place = drawn_place(n_live, old, -np.inf, room, rng)
    if place == old:
        return n_live
    return move_item(
        core, items, i, size, tables, clusters, n_live, place, None, room.points, 0, room
    )
