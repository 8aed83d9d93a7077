"""Endless data: batch after batch, in bounded memory.

The clusters are rows of statistics.  A batch is placed greedily among them, given all that came
before.  Some rows, a uniform draw from all that were seen, are kept with the cluster that each is
in.  From time to time the partition is consolidated: the kept rows are taken out of their
clusters, split where they ask for it, and what remains of each cluster and each part of the kept
rows are searched as items.  So clusters are merged, dissolved and
opened by the one objective, and the log joint is always exactly that of the partition of all rows
seen, though only statistics are left of most.

A first batch knows little.  While all rows are kept, everything is learned again from them at
growing intervals: the family, its projections and hyperparameters, and the partition.  Later the
hyperparameters are learned from the kept rows, and the clusters' statistics are restated under
them (`Family.restated`), so that the log joint stays exact.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Labels, Rng
from dpsearch.automatic.learning import learn
from dpsearch.deadline import current
from dpsearch.families.base import Model
from dpsearch.families.restored import restated_rows
from dpsearch.items import Rows, clear_row, log_marginals, merge_rows
from dpsearch.partition import by_appearance
from dpsearch.passes.departure import Expected
from dpsearch.prefix_search.greedy import greedy
from dpsearch.priors.base import Prior, Tables, log_prior
from dpsearch.problem import Problem
from dpsearch.refinement import refine, split_problem
from dpsearch.sources.shards import stacked
from dpsearch.tables.checked import CheckedTable

KEPT_ROWS = 20_000
_PERIOD = 10 * KEPT_ROWS  # rows between two consolidations, or twice as many as there were
_TRIES = 2
# How many times as many rows there are when all is learned again: more rows than a few thousand say
# little that is new.
_FEW, _SOONER, _LATER = 2000, 1.25, 2.0
_ROUNDING = 1e-12  # of a log joint: hyperparameters must gain more
_STALE = 1.05  # tables of the prior serve for this multiple of their points when rows are placed


class Renamed(NamedTuple):
    """What a consolidation did to rows that were seen before."""

    clusters: Labels  # the cluster that each cluster became
    rows: Ints  # the rows at hand, by their number in the stream …
    labels: Labels  # … and the clusters that they are in now


class Added(NamedTuple):
    """What became of a batch: the model after it, its clusters, and what a consolidation did."""

    model: Model
    labels: Labels
    renamed: Renamed | None


class _Rearranged(NamedTuple):
    """Other clusters of all rows."""

    log_joint: float
    clusters: Rows
    names: Labels  # the cluster that each cluster became
    free: Labels  # the clusters of the free rows


class _Free(NamedTuple):
    """Rows that are at hand, and so can change their cluster each on its own."""

    matrix: Any
    rows: Ints  # their numbers in the stream
    labels: Labels

    def and_others(self, matrix: Any, first: int, labels: Labels) -> _Free:
        """These, and those of a batch that are not among them."""
        numbers = np.arange(first, first + len(labels))
        other = np.flatnonzero(~np.isin(numbers, self.rows))
        if not len(other):
            return self
        return _Free(
            stacked([self.matrix, matrix[other]]),
            np.concatenate([self.rows, numbers[other]]),
            np.concatenate([self.labels, labels[other]]),
        )


@dataclass
class Stream:
    """The partition of all that was seen, and the rows that are kept.

    Plain data: what it belongs to, model and prior, comes with every call.
    """

    clusters: Rows
    log_base: float
    kept: Any  # a matrix
    kept_rows: Ints  # their numbers in the stream
    kept_labels: Labels
    rng: Rng
    consolidated: int  # rows that had been seen
    before: int  # rows that came otherwise, of which none can be kept
    learned: int = 0  # rows that had been seen when hyperparameters were learned
    expected: Expected | None = None  # how probable rows are; None: not known yet
    n_judged: int = 0  # batches that were compared with it
    departed: bool = False  # whether the last one had left it
    origin: int = 0  # rows that had been seen when the stream last left what was known
    _cached: Any = None

    def copy(self) -> Stream:
        """One that can go on without changing this one, whose arrays are never changed in place."""
        return replace(self, rng=deepcopy(self.rng))

    @property
    def n_seen(self) -> int:
        return int(self.clusters.sizes.sum())

    @property
    def keeps_all(self) -> bool:
        """Whether all rows that were seen are kept, in order."""
        return self.keeps_all_of(0)

    def keeps_all_of(self, n_more: int) -> bool:
        """Whether all rows will be kept after a batch of so many."""
        return len(self.kept_rows) == self.n_seen and self.n_seen + n_more <= KEPT_ROWS

    def is_due(self, n_more: int = 0) -> bool:
        """Whether it is time to learn hyperparameters again, with so many rows more."""
        growth = _SOONER if self.learned < _FEW else _LATER
        return self.n_seen + n_more - self.origin >= growth * (self.learned - self.origin)

    @classmethod
    def of(
        cls, model: Model, prior: Prior, clusters: Rows, log_joint: float, rng: Rng, before: int
    ) -> Stream:
        """Go on from clusters of rows of which nothing is kept yet, or of `before` of them ever."""
        n_seen = int(clusters.sizes.sum())
        empty = np.empty(0, np.int64)
        out = cls(clusters, 0.0, None, empty, empty, rng, n_seen, before, n_seen)
        out.log_base = log_joint - out.log_joint(model, prior)
        return out

    def log_joint(self, model: Model, prior: Prior) -> float:
        """The objective, for the partition of all rows seen."""
        sizes = self.clusters.sizes
        marginals = log_marginals(model.core, self.clusters.pool, len(sizes))
        tables = prior.tables(self.n_seen, len(sizes))
        return log_prior(tables, sizes) + float(marginals.sum()) + self.log_base

    def add(self, model: Model, prior: Prior, matrix: Any, *, learning: bool = False) -> Added:
        """Place a batch; if `learning`, hyperparameters may follow what was seen.

        Every row is placed, whether there is time or not; the rest is due again if there is none.
        """
        items, base = model.items(matrix)
        tables = self._tables(prior, items.n_items)
        problem = Problem.of_items(model, items, 0.0, prior, self.clusters, tables)
        with current().needed():
            labels = greedy(problem, np.arange(items.n_items))
        first = self.n_seen
        self.clusters = Rows(*problem.rows(labels))
        self.log_base += float(base.sum())
        self.keep(matrix, first, labels)
        free = _Free(self.kept, self.kept_rows, self.kept_labels)
        if len(labels) <= KEPT_ROWS:
            free = free.and_others(matrix, first, labels)
        with current().during("rearranging clusters") as deadline:
            before = self.learned, self.consolidated
            model, renamed = self._improve(model, prior, free, learning)
            if deadline.phase in deadline.cut_short:
                self.learned, self.consolidated = before
        if renamed is not None:
            self.expected = None
            labels = renamed.clusters[labels]
            new = renamed.rows >= first
            labels[renamed.rows[new] - first] = renamed.labels[new]
        return Added(model, labels, renamed)

    def _improve(
        self, model: Model, prior: Prior, free: _Free, learning: bool
    ) -> tuple[Model, Renamed | None]:
        """Learn hyperparameters, or consolidate, if that is due and there is time."""
        renamed = None
        if learning and self.is_due() and not current().over:
            model, renamed = self.learn(model, prior, free)
        wait = self.consolidated if self.consolidated > _FEW else 0
        rows = self.n_seen - self.consolidated
        if renamed is None and rows and rows >= min(_PERIOD, wait) and not current().over:
            renamed = self.consolidate(model, prior, free)
        return model, renamed

    def consolidate(self, model: Model, prior: Prior, free: _Free) -> Renamed | None:
        """Merge, split and dissolve clusters where the log joint rises; None if it does not."""
        self.consolidated = self.n_seen
        found = self._rearranged(model, prior, self.clusters, self.log_base, free)
        if found.log_joint <= self.log_joint(model, prior):
            return None
        return self._take(found, self.log_base, free)

    def learn(self, model: Model, prior: Prior, free: _Free) -> tuple[Model, Renamed | None]:
        """Learn hyperparameters from the rows that are kept, and rearrange all clusters under them.

        The statistics of the clusters are restated, so that nothing is needed of other rows.
        Hyperparameters and clusters are each taken if the log joint of all rows rises.
        """
        self.learned = self.n_seen
        if not model.family.learns_on:
            return model, None
        table, n_kept = CheckedTable(free.matrix), len(self.kept_rows)
        found = learn(table, model.family, prior, n_first=n_kept)
        family = model.family.restatable(found.family.suited(table))
        other = Model(family, table).without_data()
        changed = restated_rows(model, self.clusters, other)
        if changed is None:
            return model, None
        self.consolidated = self.n_seen
        clusters, more = changed
        base = self.log_base + more
        best = self._rearranged(other, prior, clusters, base, free, found.labels)
        back = restated_rows(other, best.clusters, model)
        assert back is not None
        before = self.log_joint(model, prior)
        as_it_was = replace(self, clusters=back[0]).log_joint(model, prior)
        least = _ROUNDING * abs(before)
        if best.log_joint > max(before, as_it_was) + least:
            return other, self._take(best, base, free)
        if as_it_was > before + least:
            return model, self._take(best._replace(clusters=back[0]), self.log_base, free)
        return model, None

    def _rearranged(
        self,
        model: Model,
        prior: Prior,
        clusters: Rows,
        log_base: float,
        free: _Free,
        also: Labels | None = None,
    ) -> _Rearranged:
        """Search for better clusters of all rows, of which the free ones can be taken apart.

        Begins with the clusters as they are, and also with others of the free rows, if given.
        """
        n_known, labels = len(clusters.sizes), free.labels
        items, _ = model.items(free.matrix)
        rest = _without(model, clusters, Rows(*model.rows(items, labels, n_known)))
        there = np.flatnonzero(rest.sizes > 0)
        points = Problem.of_items(model, items, 0.0, prior)
        parts = split_problem(points, by_appearance(labels), rng=self.rng, tries=_TRIES)
        if also is not None:
            parts = np.unique(np.stack([parts, also]), axis=1, return_inverse=True)[1].reshape(-1)
        own = Rows(*points.rows(parts))
        pool = np.concatenate([rest.pool.reshape(n_known, -1)[there].reshape(-1), own.pool])
        blocks = model.blocks(pool, np.concatenate([rest.sizes[there], own.sizes]))
        problem = Problem.of_items(model, blocks, log_base, prior)
        starts = [np.concatenate([there, _most_common(parts, labels)])]
        if also is not None:
            joined = _most_common(labels, also, n_known)[there]
            starts.append(np.concatenate([joined, _most_common(parts, also)]))
        tried = [
            refine(
                problem, by_appearance(start), rng=int(self.rng.integers(2**31)), thorough=False,
                keep_interrupted=False,
            )
            for start in starts
        ]  # fmt: skip
        best = max(tried, key=attrgetter("log_joint"))
        of_rest, of_parts = np.split(best.labels, [len(there)])
        # A cluster of which nothing but free rows was left has no other rows to rename.
        names = np.full(n_known, -1)
        names[there] = of_rest
        rows = Rows(*problem.rows(best.labels))
        return _Rearranged(best.log_joint, rows, names, of_parts[parts])

    def _take(self, found: _Rearranged, log_base: float, free: _Free) -> Renamed:
        self.clusters, self.log_base = found.clusters, log_base
        self.kept_labels = found.free[: len(self.kept_rows)]
        return Renamed(found.names, free.rows, found.free)

    def _tables(self, prior: Prior, n_new: int) -> Tables:
        """Tables for placing: made for a few more points than there are, and used for a while."""
        n_points, n_clusters = self.n_seen + n_new, len(self.clusters.sizes) + n_new
        if self._cached is None or n_points > self._cached[0] or n_clusters > self._cached[1]:
            most = math.ceil(_STALE * n_points), math.ceil(_STALE * n_clusters)
            self._cached = (*most, prior.tables(*most))
        tables: Tables = self._cached[2]
        return tables

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": None}

    def keep(self, matrix: Any, first: int, labels: Labels) -> None:
        """Keep a uniform draw from all rows of the stream (Vitter 1985, algorithm R)."""
        numbers = np.arange(first, first + len(labels))
        room = max(0, KEPT_ROWS - len(self.kept_rows))
        if room:
            chosen = np.arange(min(room, len(labels)))
            new = matrix[chosen]
            self.kept = new if self.kept is None else stacked([self.kept, new])
            self.kept_rows = np.concatenate([self.kept_rows, numbers[chosen]])
            self.kept_labels = np.concatenate([self.kept_labels, labels[chosen]])
        if room < len(labels):
            later = np.arange(room, len(labels))
            places = self.rng.integers(numbers[later] - self.before + 1)
            taken = places < KEPT_ROWS
            # Of rows that go to one place the last stays.
            place, last = np.unique(places[taken][::-1], return_index=True)
            row = later[taken][::-1][last]
            self.kept = _replaced(self.kept, place, matrix, row)
            self.kept_rows = _replaced(self.kept_rows, place, numbers, row)
            self.kept_labels = _replaced(self.kept_labels, place, labels, row)


def _replaced(kept: Any, places: Ints, matrix: Any, rows: Ints) -> Any:
    if isinstance(kept, np.ndarray):
        kept = kept.copy()
        kept[places] = matrix[rows]
        return kept
    order = np.arange(kept.shape[0])
    order[places] = kept.shape[0] + np.arange(len(rows))
    return stacked([kept, matrix[rows]])[order]


def _most_common(these: Labels, others: Labels, n_labels: int | None = None) -> Ints:
    """The other label that most rows of each label have; a new one if it has no rows."""
    n_others = int(others.max()) + 1
    n_labels = int(these.max()) + 1 if n_labels is None else n_labels
    counts = np.bincount(these * n_others + others, minlength=n_labels * n_others)
    counts = counts.reshape(n_labels, n_others)
    new = n_others + np.arange(n_labels)
    return np.where(counts.any(axis=1), counts.argmax(axis=1), new)


def _without(model: Model, clusters: Rows, own: Rows) -> Rows:
    """The clusters as they are without some of their points."""
    rest = Rows(clusters.pool.copy(), clusters.sizes - own.sizes)
    _take_out(model.core, rest, own)
    return rest


@inner
def _take_out(core, rest, own):  # type: ignore[no-untyped-def]
    for k in range(rest.sizes.shape[0]):
        row = rest.pool[k * core.width : (k + 1) * core.width]
        if rest.sizes[k] == 0:
            clear_row(core, row)  # not what rounding leaves of it
        elif own.sizes[k] > 0:
            merge_rows(core, row, own.pool[k * core.width : (k + 1) * core.width], -1.0)
