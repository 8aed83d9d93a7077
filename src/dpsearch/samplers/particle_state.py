"""The particles of a run: weighted partitions that share clusters and can take more rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpsearch._records import zeros
from dpsearch._types import ArrayLike, Ints, Rng, Vector
from dpsearch.dots import BLOCK
from dpsearch.errors import DataError
from dpsearch.items import Rows, log_marginals, rows_of_labels
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.beam_state import Counts, Hypotheses, Nodes, new_room, new_rows
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.prefix_search.shared_rows import (
    Shared,
    labels_of_members,
    nothing_placed,
    packed,
    with_more_room,
)
from dpsearch.priors.base import size_steps, size_weights
from dpsearch.problem import Clustering, Problem
from dpsearch.samplers.resampling import advance
from dpsearch.state import State

_CHUNK = 1024  # most items between two calls of the callback, or checks for Ctrl-C
_FIRST = 8  # items of the first chunk; a chunk has at most as many items as all before it
_WORK = 1 << 28  # values multiplied in a chunk
_CANDIDATE = 64  # values that take as long as one candidate: a particle's item in one cluster


class Filter:
    """The particles of a run, which can continue with the rows of another batch."""

    def __init__(
        self, problem: Problem, most: int, resampling: str, order: Any, sweeps: int, rng: Rng
    ) -> None:
        self.problem = problem  # the batch being placed, with the tables and log_base of all rows
        self.most = most
        self.resampling = resampling
        self.sweeps = sweeps
        self.rng = rng
        self.placing = placing_order(problem, order, rng)
        self.base: Vector | None = None  # `log_base` of the batch's rows, if it is not the first
        self.n_before = 0  # rows of earlier batches
        self.placed = 0  # of this batch
        self.stopped = False  # by Ctrl-C
        self.sizes = problem.items.sizes  # of the items of all batches
        self.log_scale = 0.0
        self.cut = 1.0 / most
        shared = nothing_placed(problem.model.core.width, problem.n_points, most)
        shared.hypotheses.scores[0] = 1.0
        shared.rows.gains[0] = 0.0  # factor of the unused row
        self.shared: Shared = shared

    @property
    def n_rows(self) -> int:
        return self.n_before + self.problem.n_items

    @property
    def left(self) -> Ints:
        """The items of this batch that are not placed yet."""
        return self.placing[self.placed :]

    @property
    def n_points_placed(self) -> int:
        return self.problem.n_points - int(self.problem.items.sizes[self.left].sum())

    @property
    def log_base_left(self) -> float:
        """The `log_base` of the rows that are not placed; 0 for blocks, where it is not known."""
        model, items = self.problem.model, self.problem.items
        if items.blocks or not len(self.left):
            return 0.0
        base = model.family.log_base(model.matrix) if self.base is None else self.base
        return float(base[self.left] @ items.sizes[self.left])

    def problem_placed(self) -> Problem | None:
        """The problem of the rows placed; None if rows of earlier batches are no longer there."""
        if self.n_before or not len(self.left):
            return None if self.n_before else self.problem
        model, items, prior = self.problem.model, self.problem.items, self.problem.prior
        items = items.take(np.sort(self.placing[: self.placed]))
        return Problem.of_items(model, items, self.problem.log_base - self.log_base_left, prior)

    def copied(self) -> Filter:
        """Return a copy that can continue without changing this filter."""
        out = object.__new__(Filter)
        out.__dict__.update(self.__dict__, stopped=False)
        width = self.problem.model.core.width
        out.shared = _copied(self.shared, width, self.problem.n_points)
        return out

    def extended(self, X: ArrayLike, order: Any) -> Filter:
        """Continue with more rows."""
        old, width = self.problem, self.problem.model.core.width
        table = old.model.family.table(X)
        if table.gaps and old.model.family.suited(table).width(old.model.n_features) != width:
            raise DataError("X has missing values, but the first rows had none: start with"
                            " family.with_gaps() as the family")  # fmt: skip
        items, self.base = old.model.items(table)
        n_points = old.n_points + items.n_items
        tables = old.prior.tables(n_points)
        self.n_before, self.placed = self.n_rows, 0
        self.sizes = np.append(self.sizes, items.sizes)
        log_base = old.log_base + float(self.base.sum())
        self.problem = Problem.of_items(old.model, items, log_base, old.prior, tables=tables)
        self.problem.n_points = n_points
        self.placing = placing_order(self.problem, order, self.rng)
        self.sweeps = 0
        room = new_room(self.shared.hypotheses, self.shared.rows, width, n_points)
        self.shared = with_more_room(self.shared._replace(room=room), width, n_points)
        rows, live = self.shared.rows, self.shared.rows_in_use()
        rows.steps[live] = size_steps(tables, rows.sizes[live])  # of a table for larger sizes
        # γ contains V(K) for the number of all rows.
        n, hypotheses = self.shared.counts.hypotheses, self.shared.hypotheses
        clusters = hypotheses.counts[:n]
        change = tables.log_v[clusters] - old.tables.log_v[clusters]
        hypotheses.scores[:n] *= np.exp(change - change.max())
        self.log_scale += change.max()
        return self

    def _chunk(self) -> int:
        """Return how many items to place before the next check; they take a moment."""
        counts, width = self.shared.counts, self.problem.model.core.width
        work = _CANDIDATE * counts.hypotheses * (counts.widest + 1) + counts.highest * width
        n = min(_CHUNK, max(_FIRST, self.placed), max(1, _WORK // work))
        return n if n < BLOCK else n - n % BLOCK

    def place(self) -> None:
        """Place the next chunk of items."""
        placing, sweeps = self.placing, self.sweeps
        stop = min(len(placing), self.placed + self._chunk())
        if sweeps:  # up to the next power of two
            stop = min(stop, 1 << self.placed.bit_length())
        problem = self.problem
        self.shared.nodes.item[:] -= self.n_before  # the rows of this batch count from 0
        while self.placed < stop:
            self.placed, self.log_scale, self.cut, counts = advance(
                problem.model.core, problem.dots(), problem.items, problem.alone, problem.tables,
                *self.shared, placing, self.placed, stop, self.most, self.resampling == "optimal",
                self.log_scale, self.cut, self.rng,
            )  # fmt: skip
            self.shared = packed(self.shared._replace(counts=counts), problem.model.core.width)
            if self.placed < stop:  # an array is full
                self.shared = with_more_room(
                    self.shared, problem.model.core.width, problem.n_points
                )
        self.shared.nodes.item[:] += self.n_before
        if sweeps and stop in (len(placing), 1 << (stop.bit_length() - 1)):
            self._rejuvenate(placing[:stop], sweeps)

    def _rejuvenate(self, placed: Ints, sweeps: int) -> None:
        """Make Gibbs sweeps in every particle; afterwards share equal clusters.

        First, particles are resampled with equal weights by stratified draws, so that a heavy one
        has copies, which the sweeps make different.  If the run is stopped between two particles,
        all of them stay as they were.
        """
        numbers: dict[bytes, int] = {}
        lists: list[Ints] = []
        chosen = []
        scores = self.shared.hypotheses.scores
        below = np.cumsum(scores[: self.shared.counts.hypotheses])
        strata = (np.arange(self.most) + self.rng.random(self.most)) / self.most
        drawn = np.searchsorted(below[:-1], strata * below[-1], side="right")
        for h in drawn:
            if self.stopped:
                return
            state = State(self.problem, self.labels(h))
            for _ in range(sweeps):
                state.sweep(placed, rng=self.rng)
            own = []
            for slot in state.live:
                items = state.members(int(slot))
                row = numbers.setdefault(items.tobytes(), len(numbers) + 1)  # row 0 stays unused
                if row > len(lists):
                    lists.append(items)
                own.append(row)
            chosen.append(own)
        scores[:] = below[-1] / self.most
        self.shared = _of_clusters(self.problem, self.shared.hypotheses, chosen, lists)

    def rows(self, h: int) -> Ints:
        """Return the rows of statistics of particle h's clusters."""
        hypotheses = self.shared.hypotheses
        return np.asarray(hypotheses.rows[h, : hypotheses.counts[h]])

    def places(self, h: int) -> Any:
        """Return the cluster of each row in particle h, −1 for rows that are not placed."""
        members = self.shared.rows.members[self.rows(h)]
        return labels_of_members(self.shared.nodes, members, self.n_rows)

    def labels(self, h: int) -> Any:
        """Return the cluster of each row in particle h, numbered by first appearance."""
        found = self.places(h)
        there = found >= 0
        found[there] = by_appearance(found[there])
        return found

    def log_joints(self) -> Vector:
        """Return the log joint of each particle, computed from its clusters' statistics.

        V(K, N) and the constants are those of all rows, including those not placed.
        """
        hypotheses, rows, _, counts, _ = self.shared
        core, tables = self.problem.model.core, self.problem.tables
        live = self.shared.rows_in_use()
        values = np.zeros(len(rows.sizes))
        pool = rows.pool.reshape(-1, core.width)[live].reshape(-1)
        values[live] = log_marginals(core, pool, len(live)) + size_weights(tables, rows.sizes[live])
        n = counts.hypotheses
        clusters = hypotheses.counts[:n]
        inside = np.arange(hypotheses.rows.shape[1]) < clusters[:, None]
        sums = np.where(inside, values[hypotheses.rows[:n]], 0.0).sum(axis=1)
        return np.asarray(sums + tables.log_v[clusters] + self.problem.log_base)

    def completed(self, h: int) -> Clustering:
        """Return the partition of particle h, with the remaining rows placed greedily."""
        problem, rows, own = self.problem, self.shared.rows, self.rows(h)
        labels, left = self.places(h), self.left
        pool = rows.pool.reshape(-1, problem.model.core.width)[own].reshape(-1)
        clusters = Rows(pool, rows.sizes[own])
        if len(left):
            items = problem.items.take(left)
            rest = Problem.of_items(
                problem.model, items, 0.0, problem.prior, clusters, problem.tables
            )
            state = State(rest, np.full(len(left), -1))
            state.sweep(np.arange(len(left)))
            labels[self.n_before + left] = state.labels
            clusters = Rows(*rest.rows(state.labels))
        found = problem.clustering(labels, clusters if self.n_before else None)
        return replace(found, weights=None if (self.sizes == 1).all() else self.sizes)


def _copied(shared: Shared, width: int, n_points: int) -> Shared:
    """Return a copy of the hypotheses, with working space for `n_points` points."""

    def copies(part: Any) -> Any:
        return type(part)(*map(np.copy, part))

    hypotheses, rows, nodes = (copies(part) for part in shared[:3])
    room = new_room(hypotheses, rows, width, n_points)
    return Shared(hypotheses, rows, nodes, shared.counts, room)


def _of_clusters(
    problem: Problem, hypotheses: Hypotheses, chosen: list[list[int]], lists: list[Ints]
) -> Shared:
    """Return hypotheses by their clusters: `chosen` has indices, from 1, of item `lists`."""
    core, most, n = problem.model.core, len(hypotheses.counts), len(lists)
    width, lengths, members = core.width, list(map(len, lists)), np.concatenate(lists)
    rows = new_rows(width, n + 1 + 4 * most)
    n_nodes = len(members)
    nodes = zeros(Nodes, n_nodes + 4 * most)
    pool, sizes = rows_of_labels(core, problem.items, np.repeat(range(n), lengths), n, members)
    rows.pool[width : (n + 1) * width] = pool
    rows.sizes[1 : n + 1] = sizes
    rows.steps[1 : n + 1] = size_steps(problem.tables, sizes)
    rows.users[: n + 1] = np.bincount([row for own in chosen for row in own], minlength=n + 1)
    rows.gains[0] = 0.0
    ends = np.cumsum(lengths)
    rows.members[1 : n + 1] = ends - 1
    nodes.item[:n_nodes] = members
    nodes.before[:n_nodes] = np.arange(-1, n_nodes - 1)
    nodes.before[np.append(0, ends[:-1])] = -1
    widest = max(map(len, chosen))
    table = np.zeros((most, max(hypotheses.rows.shape[1], widest + 8)), np.uint32)
    counts = np.zeros(most, np.int64)
    for h, own in enumerate(chosen):
        table[h, : len(own)] = own
        counts[h] = len(own)
    out = hypotheses._replace(rows=table, counts=counts)
    used = Counts(len(chosen), widest, n, len(rows.free) - 1 - n, n_nodes)
    return Shared(out, rows, nodes, used, new_room(out, rows, width, problem.n_points))
