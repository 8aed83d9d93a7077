"""A partition with its statistics, members and log joint, for solvers that change it in steps."""

from __future__ import annotations

import itertools
from concurrent.futures import Executor
from typing import Any

import numpy as np

from dpsearch._threads import together
from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch.deadline import current
from dpsearch.dots import BLOCK, gather_size
from dpsearch.items import Rows, fill_rows, log_marginals, merged_marginals, score_item
from dpsearch.partition import by_appearance
from dpsearch.priors.base import size_steps, size_weights
from dpsearch.problem import Problem
from dpsearch.state.clusters import Clusters, drop, empty_clusters, grown
from dpsearch.state.sweep import Room, sweep_items, sweep_room

_MOST_MOVES = 1_000_000  # after these, statistics are computed anew
_SHARED_ITEMS = 1 << 14  # items in a block that threads share
_FEW_ITEMS = 4096  # whose statistics one thread adds up as fast
_AT_ONCE = 1 << 27  # values read between two checks of the time


class State:
    """A partition: rows of statistics in slots, members by slot, and the log joint.

    Items with the label −1 have no cluster until a sweep places them.
    """

    def __init__(self, problem: Problem, labels: Labels, threads: Executor | None = None) -> None:
        self.problem = problem
        self._core = problem.model.core
        self._dots = problem.dots()
        self._room: Room | None = None
        n_background = len(problem.background.sizes)
        keep_labels = n_background > 0 or labels.min() < 0
        labels = labels.copy() if keep_labels else by_appearance(labels)
        self.n_live = max(n_background, int(labels.max()) + 1)
        capacity = max(64, 2 * self.n_live + 8)
        # Called as plain Python, which spares its compilation.
        self.clusters: Clusters = empty_clusters.py_func(  # type: ignore[attr-defined]
            self._core.width, labels, capacity
        )
        self.refresh(threads)

    def refresh(self, threads: Executor | None = None) -> None:
        """Recompute the statistics from the data, so that rounding does not add up."""
        pool, sizes = self.problem.rows(self.clusters.labels, threads)
        self.clusters.pool[: len(pool)] = pool
        self.clusters.sizes[: len(sizes)] = sizes
        steps = size_steps(self.problem.tables, self.clusters.sizes[self.live])
        self.clusters.steps[: self.n_live] = steps
        self._values: Vector | None = None
        self._members: list[Ints] | None = None
        self._moves = 0

    @property
    def values(self) -> Vector:
        """log W(n) + log H of each slot in use, computed at the first access."""
        if self._values is None:
            values = np.zeros(len(self.clusters.sizes))
            values[self.live] = self._values_of(self.live)
            self._values = values  # set when complete, as several threads may read it
        return self._values

    def _values_of(self, slots: Ints) -> Vector:
        rows = self.clusters.pool.reshape(-1, self._core.width)[slots].reshape(-1)
        weights = size_weights(self.problem.tables, self.clusters.sizes[slots])
        return np.asarray(weights + log_marginals(self._core, rows, len(slots)))

    @property
    def live(self) -> Ints:
        """The slots in use."""
        return self.clusters.live[: self.n_live]

    @property
    def log_joint(self) -> float:
        prior = float(self.problem.tables.log_v[self.n_live])
        return prior + float(self.values[self.live].sum()) + self.problem.log_base

    @property
    def labels(self) -> Labels:
        return self.clusters.labels

    def members(self, slot: int) -> Ints:
        """The items of a cluster."""
        if self._members is None:
            n_slots = len(self.clusters.sizes)
            order = _in_order(self.clusters.labels + 1, n_slots)
            bounds = np.searchsorted(self.clusters.labels[order], np.arange(n_slots + 1))
            self._members = [order[a:b] for a, b in itertools.pairwise(bounds)]
        return self._members[slot]

    def sweep(self, order: Ints, threads: Executor | None = None, rng: Rng | None = None) -> int:
        """Move each item to its best place, in this order; return how many moved.

        With `threads`, these find the items of a block that would move while the clusters do not
        change; those items are then visited one after another.  With an `rng` instead, each item
        moves to a place drawn by its probability: a Gibbs sweep.
        """
        if threads is None:
            return self._sweep(order, rng)
        moved = 0
        for begin in range(0, len(order), _SHARED_ITEMS):
            current().check()
            block = order[begin : begin + _SHARED_ITEMS]
            moved += self._sweep(block[self._would_move(block, threads)])
        return moved

    def _would_move(self, order: Ints, threads: Executor) -> Any:
        """Return whether each item would move, given the clusters as they are now."""
        if self.n_live + BLOCK > len(self.clusters.sizes):
            self._grow()
        marks = np.zeros(len(order), np.bool_)

        def mark(begin: int) -> None:
            at = slice(begin, begin + _SHARED_ITEMS // 16)
            self._visit(order[at], self._new_room(), marks[at])

        list(threads.map(mark, range(0, len(order), _SHARED_ITEMS // 16)))
        return marks

    def _new_room(self) -> Room:
        n_features = self.problem.model.n_features
        # Called as plain Python, which spares its compilation.
        return sweep_room.py_func(  # type: ignore[attr-defined, no-any-return]
            self._core, n_features, gather_size(n_features), len(self.clusters.sizes)
        )

    def _visit(
        self, order: Ints, room: Room, marks: Any, rng: Rng | None = None
    ) -> tuple[int, int, int]:
        problem = self.problem
        return sweep_items(  # type: ignore[no-any-return]
            self._core, self._dots, problem.items, problem.alone, problem.tables,
            self.clusters, self.n_live, order, room, rng, marks,
        )  # fmt: skip

    def _sweep(self, order: Ints, rng: Rng | None = None) -> int:
        done, moved, deadline = 0, 0, current()
        while done < len(order):
            if self._room is None:
                self._room = self._new_room()
            # A multiple of the items that are gathered together, so that blocks remain the same.
            size, least = self._core.width * (self.n_live + 1), len(self._room.points)
            some = order[done : done + least * max(1, _AT_ONCE // (size * least))]
            visited, self.n_live, more = self._visit(some, self._room, None, rng)
            done += visited
            moved += more
            self._moves += more
            if more:
                self._members = self._values = None
            if visited < len(some):
                self._grow()
            elif done < len(order):
                deadline.check()
        if self._moves > _MOST_MOVES:
            self.refresh()
        return moved

    def merge_gains(self, slots: Ints, others: Ints, *, together: bool = False) -> Matrix:
        """Return [slot, other]: the change of the log joint if each slot is merged with each other.

        With `together`, column j is for merging the slot with all of `others` up to the j-th.
        """
        tables, sizes, apart = self.problem.tables, self.clusters.sizes[others], self.values[others]
        merged: Any = 1
        if together:
            merged = np.arange(1, len(others) + 1)
            sizes, apart = np.cumsum(sizes), np.cumsum(apart)
        gains = merged_marginals(self._core, self.clusters.pool, slots, others, together)
        merged_sizes = sizes + self.clusters.sizes[slots][:, None]
        gains += size_weights(tables, merged_sizes.ravel()).reshape(gains.shape)
        gains -= apart + self.values[slots][:, None]
        gains += tables.log_v[self.n_live - merged] - tables.log_v[self.n_live]
        return gains

    def best_places(self, items: Ints, count: int) -> Ints:
        """Return the `count` best clusters of each item, without repetitions."""
        scores = np.empty(self.n_live)
        scratch = np.empty(self._core.width)
        starts = self.clusters.starts[: self.n_live]
        best = []
        for i in items:
            score_item(
                self._core, self.problem.items, i, self.clusters.pool, starts, scores, scratch
            )
            best.append(
                np.argpartition(-(scores + self.clusters.steps[: self.n_live]), count)[:count]
            )
        return self.live[np.unique(np.concatenate(best))]

    def replace(
        self, slots: Ints, chosen: Ints, labels: Labels, n_clusters: int, n_threads: int = 1
    ) -> Ints:
        """Give the items of some clusters a new partition; return the slots of its clusters.

        `chosen` are all the items of `slots`, and `labels` their new clusters, 0, 1, …
        """
        self.members(int(slots[0]))  # makes the member lists before labels change
        while self.n_live - len(slots) + n_clusters > len(self.clusters.sizes):
            self._grow()
        kept = self.n_live - len(slots)
        used = self._reopen(slots, n_clusters)
        order = _in_order(labels, n_clusters)
        chosen, labels = chosen[order], labels[order]
        bounds = np.searchsorted(labels, np.arange(n_clusters + 1))
        pool, sizes = self._rows_of_runs(chosen, labels, bounds, n_threads)
        clusters, width = self.clusters, self._core.width
        clusters.pool.reshape(-1, width)[used] = pool.reshape(-1, width)
        clusters.sizes[used] = sizes
        clusters.steps[kept : self.n_live] = size_steps(self.problem.tables, sizes)
        clusters.labels[chosen] = used[labels]
        clusters.changed[used] = True
        self.values[used] = self._values_of(used)
        assert self._members is not None
        for slot in slots:
            self._members[int(slot)] = np.empty(0, np.int64)
        for k, slot in enumerate(used):
            self._members[int(slot)] = chosen[bounds[k] : bounds[k + 1]]
        return used

    def _rows_of_runs(
        self, chosen: Ints, labels: Labels, bounds: Ints, n_threads: int
    ) -> tuple[Vector, Ints]:
        """Return the rows and sizes of clusters whose items come one cluster after the other."""
        n, width = len(bounds) - 1, self._core.width
        pool, sizes = np.empty(n * width), np.zeros(n, np.int64)
        n_parts = min(n, n_threads) if len(chosen) > _FEW_ITEMS else 1
        edges = np.searchsorted(bounds, np.linspace(0, len(chosen), n_parts + 1))
        edges[0], edges[-1] = 0, n

        def part(i: int) -> None:
            a, b = int(edges[i]), int(edges[i + 1])
            run = slice(bounds[a], bounds[b])
            rows = pool[a * width : b * width]
            fill_rows(
                self._core, self.problem.items, chosen[run], labels[run] - a, rows, sizes[a:b]
            )

        together(part, n_parts, n_threads)
        return pool, sizes

    def _reopen(self, slots: Ints, n_clusters: int) -> Ints:
        """Drop some clusters; return the slots of `n_clusters` others, now the last of live."""
        clusters = self.clusters
        for slot in slots:
            self.n_live -= 1
            clusters.sizes[slot] = 0
            drop.py_func(clusters, self.n_live, clusters.place[slot])  # type: ignore[attr-defined]
        places = np.arange(self.n_live, self.n_live + n_clusters)
        used: Ints = clusters.live[places]
        clusters.starts[places] = used * self._core.width
        clusters.place[used] = places
        self.n_live += n_clusters
        return used

    @property
    def rows(self) -> Rows:
        """The clusters' statistics, slot by slot; valid only if no cluster was ever dropped."""
        width = self._core.width
        return Rows(self.clusters.pool[: self.n_live * width], self.clusters.sizes[: self.n_live])

    def _grow(self) -> None:
        """Double the number of slots."""
        n = len(self.clusters.sizes)
        self.clusters = grown.py_func(self._core, self.clusters)  # type: ignore[attr-defined]
        self._values = self._room = None
        if self._members is not None:
            self._members += [np.empty(0, np.int64) for _ in range(n)]


def _in_order(labels: Labels, largest: int) -> Ints:
    """Return the items sorted by labels, which are at least 0; those of a cluster stay in order."""
    # NumPy sorts 16-bit integers by radix, in two passes.
    short = np.uint16 if largest < np.iinfo(np.uint16).max else np.int64
    return np.argsort(labels.astype(short), kind="stable")
