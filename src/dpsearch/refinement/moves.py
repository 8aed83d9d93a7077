"""Proposals: which clusters to take together, and how to begin their new partition.

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

from dpsearch._types import Ints, Labels, Rng
from dpsearch.refinement.local import TO_DIVIDE, TO_PLACE


class Move(NamedTuple):
    """A kind of proposal: its name, how many clusters it takes, and a number of seeds."""

    name: str
    n_clusters: int
    extra: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.n_clusters}"


class Beginning(NamedTuple):
    """What `repartition` starts from."""

    labels: Labels
    n_clusters: int
    seeds: Ints
    seed_labels: Labels


# To begin with, clusters are split alone: large ones into many parts, where there is room for
# them, then into two.
GROWTH = (Move("split", 1, 8), Move("split", 1, 2))
LARGE = 1000
# Afterwards all of these are tried, in proportion to what they bring for their cost.
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
    nobody = np.empty(0, np.int64)
    if move.name == "research":
        return Beginning(np.full(len(current), TO_PLACE), 0, nobody, nobody)
    if move.name == "reseed":
        n_seeds = max(1, n_clusters + move.extra)
        return _divided(np.arange(len(current)), len(current), n_seeds, np.arange(n_seeds), rng)
    if move.name == "dissolve":
        if n_clusters < 2:
            return None
        # The first cluster's number goes to the last one.
        labels = np.where(current == n_clusters - 1, 0, current)
        labels[current == 0] = TO_PLACE
        return Beginning(labels, n_clusters - 1, nobody, nobody)
    if move.name == "exchange":
        if n_clusters < 2:
            return None
        names = np.array([1, 0])
        split = _divided(np.flatnonzero(current == 1), len(current), 2, names, rng)
        if split is None:
            return None
        labels = np.where(current == 1, split.labels, current)
        labels[current == 0] = TO_PLACE
        return Beginning(labels, n_clusters, split.seeds, split.seed_labels)
    n_seeds = max(2, min(move.extra, int((current == 0).sum()) // 2))
    names = np.concatenate([[0], np.arange(n_clusters, n_clusters + n_seeds - 1)])
    split = _divided(np.flatnonzero(current == 0), len(current), n_seeds, names, rng)
    if split is None:
        return None
    labels = np.where(current == 0, split.labels, current)
    return Beginning(labels, n_clusters + n_seeds - 1, split.seeds, split.seed_labels)


def _divided(inside: Ints, n: int, n_seeds: int, names: Labels, rng: Rng) -> Beginning | None:
    """Divide the items `inside` between random ones of them."""
    if len(inside) < n_seeds:
        return None
    # Draw with replacement and look whether that mattered: faster than numpy's choice without.
    seeds = rng.integers(len(inside), size=n_seeds)
    while len(set(seeds.tolist())) < n_seeds:
        seeds = rng.permutation(len(inside))[:n_seeds]
    return Beginning(np.full(n, TO_DIVIDE), n_seeds, inside[seeds], names)
