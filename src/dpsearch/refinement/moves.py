"""Proposals of refinement: which clusters get a new partition together, and what it starts from.

A proposal is about one cluster, its centre, and some of the clusters that would lose least by
merging with it.  A `passes.moves.Move` sets what it starts from, and `local` does the rest.
"""

from __future__ import annotations

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Matrix
from dpsearch.passes.moves import Move

# Growth splits single clusters: first large ones into many parts, then each into two.
GROWTH = (Move(1, 8), Move(1, 2))
LARGE = 1000
# Afterwards these moves are tried, in proportion to what they gain for their cost.
NEIGHBOURHOODS = (
    # Split one cluster; its items may move to neighbours, and theirs to it.
    *(Move(1, 2, kept) for kept in (0, 4, 7, 15)),
    # Split one cluster and dissolve another.
    *(Move(1, 2, kept, 1) for kept in (1, 3, 6, 14)),
    # Dissolve one cluster.
    *(Move(0, 0, kept, 1) for kept in (4, 11)),
    # Divide all items between seeds: one more than there were clusters, as many, or one less.
    *(Move(2, 3), Move(3, 3), Move(3, 4), Move(3, 2)),
    # Place all items anew, in random order, by the search engine's greedy pass.
    Move(0, 0, 0, 2),
)
N_CLUSTERS = np.array([move.n_clusters for move in NEIGHBOURHOODS])
_WIDER = 2  # a group is drawn from this many more neighbours than it needs …
_WINDOW = 1.5  # … among this many times as many of the nearest, as other groups may have some


def fitted(move: Move, counts: Ints) -> Move:
    """Adapt a move to a group of fewer clusters than it needs, or of few items.

    `counts` are the numbers of items of the group's clusters.
    """
    divided, seeds, kept, dissolved = move
    short = move.n_clusters - len(counts)
    fewer = min(short, kept)
    kept -= fewer
    short -= fewer
    if divided > 1:
        divided, seeds = divided - short, max(1, seeds - short)
    else:
        dissolved -= short
    if divided and counts[:divided].sum() < max(2, seeds):  # too few to be divided
        return Move(0, 0, kept, dissolved + divided)
    return Move(divided, seeds, kept, dissolved)


def neighbourhoods(gains: Matrix, centres: Ints, counts: Ints, draws: Matrix) -> Ints:
    """Return disjoint groups [centre, position], −1 where there is no cluster.

    A group has its centre and up to counts − 1 other clusters, drawn from those that would gain
    most by merging with it; a gain of −∞ excludes a cluster.  A centre has no group if it, or too
    many of its neighbours, belong to another one.
    """
    out = np.full((len(centres), int(counts.max())), -1)
    taken, seen = np.zeros(gains.shape[1], np.bool_), np.full(gains.shape[1], -1)
    near = np.empty(int(counts.max()) + _WIDER, np.int64)
    _neighbourhoods(gains, centres, counts, draws, taken, seen, near, out)
    return out


@inner
def _neighbourhoods(gains, centres, counts, draws, taken, seen, near, out):  # type: ignore[no-untyped-def]
    for c in range(centres.shape[0]):
        if taken[centres[c]]:
            continue
        seen[centres[c]] = c
        n_near, n_seen, more = 0, 0, counts[c] > 1
        while more and n_near < counts[c] + _WIDER and n_seen < _WINDOW * (counts[c] + _WIDER):
            best, at = -np.inf, -1
            for k in range(seen.shape[0]):
                if seen[k] != c and gains[c, k] > best:
                    best, at = gains[c, k], k
            if at < 0:
                more = False
                break
            seen[at] = c
            n_seen += 1
            if not taken[at]:
                near[n_near] = at
                n_near += 1
        if more and n_near < counts[c] - 1:
            continue
        taken[centres[c]] = True
        out[c, 0] = centres[c]
        for q in range(min(counts[c] - 1, n_near)):
            other = q + int(draws[c, q] * (n_near - q))
            near[q], near[other] = near[other], near[q]
            taken[near[q]] = True
            out[c, q + 1] = near[q]
