"""Endless data: batch after batch, in bounded memory.

The clusters are rows of statistics.  A batch is placed greedily among them, given all that came
before.  Some rows, a uniform draw from all that were seen, are kept with the cluster that each is
in.  From time to time the partition is consolidated: the kept rows are taken out of their
clusters, split where they ask for it, and what remains of each cluster and each part of the kept
rows are searched as items.  So clusters are merged, dissolved and
opened by the one objective, and the log joint is always exactly that of the partition of all rows
seen, though only statistics are left of most.

A first batch knows little.  While all rows are kept, everything is learned again from them at
growing intervals: the family, its projections and hyperparameters, and the partition.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Labels, Rng
from dpsearch.families.base import Model
from dpsearch.items import Rows, clear_row, log_marginals, merge_rows
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.greedy import greedy
from dpsearch.priors.base import Prior, Tables, log_prior
from dpsearch.problem import Problem
from dpsearch.refinement import refine, split_problem
from dpsearch.sources.shards import stacked

KEPT_ROWS = 20_000
_PERIOD = 10 * KEPT_ROWS  # rows between two consolidations, or twice as many as there were
_TRIES = 2
# How many times as many rows there are when all is learned again: more rows than a few thousand say
# little that is new.
_FEW, _SOONER, _LATER = 2000, 1.25, 2.0
_STALE = 1.05  # tables of the prior serve for this multiple of their points when rows are placed


class Renamed(NamedTuple):
    """What a consolidation did to rows that were seen before."""

    clusters: Labels  # the cluster that each cluster became
    rows: Ints  # the kept rows, by their number in the stream …
    labels: Labels  # … and the clusters that they are in now


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
        return len(self.kept_rows) == self.n_seen

    @property
    def is_due(self) -> bool:
        """Whether so many rows came since hyperparameters were learned that it is time again."""
        growth = _SOONER if self.learned < _FEW else _LATER
        return self.n_seen >= growth * self.learned

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

    def add(self, model: Model, prior: Prior, matrix: Any) -> tuple[Labels, Renamed | None]:
        """Place a batch; return its clusters, and what changed if a consolidation followed."""
        items, base = model.items(matrix)
        tables = self._tables(prior, items.n_items)
        problem = Problem.of_items(model, items, 0.0, prior, self.clusters, tables)
        labels = greedy(problem, np.arange(items.n_items))
        first = self.n_seen
        self.clusters = Rows(*problem.rows(labels))
        self.log_base += float(base.sum())
        self.keep(matrix, first, labels)
        wait = self.consolidated if self.consolidated > _FEW else 0
        if self.n_seen - self.consolidated < min(_PERIOD, wait):
            return labels, None
        renamed = self.consolidate(model, prior)
        if renamed is not None:
            labels = renamed.clusters[labels]
            new = renamed.rows >= first
            labels[renamed.rows[new] - first] = renamed.labels[new]
        return labels, renamed

    def consolidate(self, model: Model, prior: Prior) -> Renamed | None:
        """Merge, split and dissolve clusters where the log joint rises; None if it does not."""
        self.consolidated = self.n_seen
        if self.kept is None:
            return None
        before = self.log_joint(model, prior)
        n_known, labels = len(self.clusters.sizes), self.kept_labels
        items, _ = model.items(self.kept)
        rest = _without(model, self.clusters, Rows(*model.rows(items, labels, n_known)))
        there = np.flatnonzero(rest.sizes > 0)
        kept = Problem.of_items(model, items, 0.0, prior)
        parts = split_problem(kept, by_appearance(labels), rng=self.rng, tries=_TRIES)
        own = Rows(*kept.rows(parts))
        pool = np.concatenate([rest.pool.reshape(n_known, -1)[there].reshape(-1), own.pool])
        blocks = model.blocks(pool, np.concatenate([rest.sizes[there], own.sizes]))
        start = np.concatenate([there, _origins(parts, labels)])
        problem = Problem.of_items(model, blocks, self.log_base, prior)
        found = refine(
            problem, by_appearance(start), rng=int(self.rng.integers(2**31)), thorough=False,
            keep_interrupted=False,
        )  # fmt: skip
        if found.log_joint <= before:
            return None
        self.clusters = Rows(*problem.rows(found.labels))
        of_rest, of_parts = np.split(found.labels, [len(there)])
        # A cluster of which nothing but kept rows was left has no other rows to rename.
        clusters = np.full(n_known, -1)
        clusters[there] = of_rest
        self.kept_labels = of_parts[parts]
        return Renamed(clusters, self.kept_rows, self.kept_labels)

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


def _origins(parts: Labels, labels: Labels) -> Ints:
    """The cluster that most rows of each part were in before."""
    shape = int(parts.max()) + 1, int(labels.max()) + 1
    counts = np.bincount(parts * shape[1] + labels, minlength=shape[0] * shape[1])
    return np.asarray(counts.reshape(shape).argmax(axis=1))


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
