"""Metropolis–Hastings sweeps whose proposals come from the prior (Xing et al. 2004).

For item i a place is proposed from the prior's conditional given the other items: cluster k of
theirs in proportion to W(n_k + 1)/W(n_k), a new one to V(K + 1)/V(K) · W(1).  In the acceptance
ratio the prior cancels against the proposal, and what is left is the ratio of likelihoods,

    H(x_i | the proposed cluster) / H(x_i | the rest of its own).

Two clusters are scored for each proposal, where Gibbs sampling scores all of them.  With several
proposals for an item it is Neal's algorithm 5 (2000), with the parameters integrated out.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._jit import inner, view
from dpsearch.items import score_item, score_member
from dpsearch.priors.base import size_weight
from dpsearch.state.sweep import move_item


@inner
def propose_items(core, items, alone, tables, clusters, n_live, order, proposals, room, rng):  # type: ignore[no-untyped-def]
    """Visit items in order, with some proposals for each.

    Return (items visited, number of clusters, proposals accepted); stop early without a free slot.
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
            place = _proposed(tables, clusters, n_live, old, single, size, room, rng)
            if place == old or (single and place == n_live):
                continue
            gain = alone[i]
            if place < n_live:
                start, score = view(clusters.starts, place, 1), view(room.out, place, 1)
                score_item(core, items, i, clusters.pool, start, score, room.scratch)
                gain = room.out[place]
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
    return order.shape[0], n_live, accepted


@inner
def _proposed(tables, clusters, n_live, old, single, size, room, rng):  # type: ignore[no-untyped-def]
    """Draw a position in live, or n_live for a new cluster, by the prior given the other items."""
    others = n_live - 1 if single else n_live
    fresh = size_weight(tables, size) + tables.log_v[others + 1] - tables.log_v[others]
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
    total = math.exp(fresh - top)
    for k in range(n_live):
        room.out[k] = math.exp(room.out[k] - top)
        total += room.out[k]
    left = rng.random() * total
    for k in range(n_live):
        left -= room.out[k]
        if left < 0.0:
            return k
    return n_live if fresh > -np.inf else old
