"""Proposals: which clusters to take together, how to begin their new partition, what to try next.

Each move is a beginning for `repartition`, which does the rest.  The first of the clusters is the
one that the proposal is about; the others are its neighbours, whose items may come and go.

``split``      the first cluster is divided between two or more of its items
``dissolve``   the first cluster's items are placed anew among the others
``exchange``   one cluster is dissolved and another one split
``reseed``     all items are divided between as many of them as there were clusters, or a few more
               or less
``research``   all items are placed anew, in random order, by the search engine's greedy pass
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsearch._types import Labels, Rng
from dpsearch.refinement.local import TO_DIVIDE, TO_PLACE, Beginning


class Move(NamedTuple):
    """A kind of proposal: its name, how many clusters it takes, and a number of seeds."""

    name: str
    n_clusters: int
    extra: int = 0


# At first clusters are split by themselves: large ones into many parts, then all into two.
GROWTH = (Move("split", 1, 8), Move("split", 1, 2))
LARGE = 1000
# Afterwards these are tried, in proportion to what they gain for their cost.
NEIGHBOURHOODS = (
    Move("split", 1, 2),
    Move("split", 5, 2),
    Move("split", 8, 2),
    Move("split", 16, 2),
    Move("exchange", 3),
    Move("exchange", 5),
    Move("exchange", 8),
    Move("exchange", 16),
    Move("dissolve", 5),
    Move("dissolve", 12),
    Move("reseed", 2, 1),
    Move("reseed", 3, 0),
    Move("reseed", 3, 1),
    Move("reseed", 3, -1),
    Move("research", 2),
)


def begin(move: Move, current: Labels, n_clusters: int, rng: Rng) -> Beginning | None:
    """Return a beginning for items with these labels, or None if there are too few of them."""
    if move.name == "research":
        return Beginning(np.full(len(current), TO_PLACE), 0)
    if move.name == "reseed":
        n_seeds = max(1, n_clusters + move.extra)
        return _divided(np.zeros_like(current), 0, n_seeds, np.arange(n_seeds), n_seeds, rng)
    if move.name == "split":
        n_seeds = max(2, min(move.extra, int((current == 0).sum()) // 2))
        names = np.concatenate([[0], np.arange(n_clusters, n_clusters + n_seeds - 1)])
        return _divided(current, 0, n_seeds, names, n_clusters + n_seeds - 1, rng)
    if n_clusters < 2:
        return None
    dissolved = np.where(current == 0, TO_PLACE, current)
    if move.name == "exchange":
        return _divided(dissolved, 1, 2, np.array([1, 0]), n_clusters, rng)
    # The first cluster's number goes to the last one.
    return Beginning(np.where(current == n_clusters - 1, 0, dissolved), n_clusters - 1)


def _divided(
    labels: Labels, cluster: int, n_seeds: int, names: Labels, n_clusters: int, rng: Rng
) -> Beginning | None:
    """Divide the items of a cluster between random ones of them, which get these names."""
    inside = np.flatnonzero(labels == cluster)
    if len(inside) < n_seeds:
        return None
    # Drawing with replacement, and again if an item is drawn twice, is faster than numpy's choice.
    seeds = rng.integers(len(inside), size=n_seeds)
    while len(set(seeds.tolist())) < n_seeds:
        seeds = rng.permutation(len(inside))[:n_seeds]
    divided = np.where(labels == cluster, TO_DIVIDE, labels)
    return Beginning(divided, n_clusters, inside[seeds], names)
