"""Kinds of proposals of a batch search: how new partitions of groups of clusters begin."""

from __future__ import annotations

from typing import NamedTuple

from dpsearch._types import Ints


class Move(NamedTuple):
    """A kind of proposal: how a new partition of a group of clusters begins.

    The first clusters of the group are divided between seeds, rows drawn from them; the next ones
    stay; the last ones are dissolved, their rows going to the others.
    """

    divided: int
    seeds: int
    kept: int = 0
    dissolved: int = 0

    @property
    def n_clusters(self) -> int:
        return self.divided + self.kept + self.dissolved

    @property
    def n_candidates(self) -> int:
        return self.seeds + self.kept


GROWTH = Move(1, 2)
MOVES = (
    Move(1, 2),
    Move(1, 3),
    Move(1, 2, 2),
    Move(1, 2, 5),
    Move(1, 2, 0, 1),
    Move(1, 2, 1, 1),
    Move(1, 2, 4, 1),
    Move(1, 3, 1, 2),
    Move(0, 0, 3, 1),
    Move(2, 2),
    Move(2, 3),
    Move(3, 3),
    Move(3, 4),
    Move(3, 2),
)


class Group(NamedTuple):
    """One proposal: the clusters that it is about, and its move."""

    clusters: Ints
    move: Move

    @property
    def kept(self) -> Ints:
        """The clusters that stay."""
        return self.clusters[self.move.divided :][: self.move.kept]
