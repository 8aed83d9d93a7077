"""Batch search over rows of which every pass is dear: proposals are worked out on a sample.

The sample's rows are in the same clusters as all rows, because they follow every pass.  Rows that
their clusters describe worst join it, so that it shows what a uniform draw has not.  What is
proposed is found by sweeps over the sample, and then tried on all rows, all groups in one pass;
the exact gain decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints, Labels, Rng, Vector
from dpsearch.deadline import current
from dpsearch.families.linear import LinearForm
from dpsearch.passes.chunk import Candidates, Seeds, Totals
from dpsearch.passes.memory import threaded_rows
from dpsearch.passes.moves import GROWTH, Group
from dpsearch.passes.rows import LargeRows, ThreadedRows
from dpsearch.passes.search import MOST_SWEEPS, BatchSearch
from dpsearch.priors.base import Tables

_ENOUGH = 1e-4  # nats a row: rounds end when they bring less, and so does regrouping in a round
_OUTLIERS = 64  # rows of each cluster that it describes worst, which join the sample …
_NUMBERS = 1 << 20  # … as long as they have no more features than this in all; at least four do
_TRIES = 3  # divisions of a cluster on the sample, of which the best is tried on all rows


class _Followed:
    """Rows, and a sample of them that follows all their passes."""

    def __init__(self, rows: LargeRows, sample: ThreadedRows) -> None:
        self.all, self.sample = rows, sample
        self.n_rows = rows.n_rows

    def place(self, labels: Labels | None) -> None:
        self.all.place(labels)
        self.sample.place(labels)

    def assign(self, candidates: Candidates) -> Totals:
        totals = self.all.assign(candidates)  # first, as the time may be up
        with current().needed():
            self.sample.assign(candidates)
        return totals

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        self.all.decide(of_candidates, of_clusters)
        self.sample.decide(of_candidates, of_clusters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.all, name)


class PilotedSearch(BatchSearch):
    """The search, with features of a sample on which proposals are worked out."""

    rows: Any

    def __init__(
        self,
        rows: LargeRows,
        sample: Any,
        form: LinearForm,
        tables: Tables,
        rng: Rng,
        note: Callable[[str, float, int], None],
        check_time: Callable[[], None],
        n_threads: int = 1,
    ) -> None:
        super().__init__(rows, form, tables, rng, note, check_time)
        self.features, self.threads = sample, n_threads
        self.follow()

    def follow(self, outliers: Seeds | None = None) -> None:
        """Take the sample, and these rows beside it, as what proposals are worked out on."""
        form = replace(self.form, features=lambda X: X, quick=False)  # as they are computed
        if outliers is None:
            sample = threaded_rows(form, self.threads, self.features)
        else:
            labels = np.concatenate([self.sample_labels(), outliers.clusters])
            new = outliers.features
            new = sp.csr_matrix(new) if sp.issparse(self.features) else new
            sample = threaded_rows(form, self.threads, self.features, new)
            sample.place(labels)
        self.rows = _Followed(getattr(self.rows, "all", self.rows), sample)
        self.pilot = BatchSearch(
            sample, form, self.tables, self.rng, lambda *_: None, self.check_time
        )

    def sample_labels(self) -> Labels:
        """The clusters of the sample that was given."""
        labels: Labels = self.rows.sample.labels()[: self.features.shape[0]]
        return labels

    def add_outliers(self) -> None:
        """Add to the sample the rows that their clusters describe worst."""
        most = _NUMBERS // (self.n_clusters * self.form.n_totals)
        counts = np.full(self.n_clusters, min(_OUTLIERS, max(4, most)))
        self.follow(self.rows.all.outliers(*self.scores(self.totals), counts))

    def propose(
        self, groups: list[Group], most: int = MOST_SWEEPS, tries: int = _TRIES
    ) -> tuple[Vector, Vector]:
        """Give groups new partitions where that gains; each the best of a few for the sample."""
        pilot = self.pilot
        starts, of_cluster = self.numbered(groups)
        owner = np.repeat(np.arange(len(groups)), np.diff(starts))
        totals, _, costs = pilot.tried(groups, starts, of_cluster, most, tries)
        # As large as the clusters of all rows, of which they have the shapes.
        sizes = [one.totals.sizes for one in (self, pilot)]
        of_groups = [
            np.bincount(of_cluster[of_cluster >= 0], size[of_cluster >= 0]) for size in sizes
        ]
        scale = (of_groups[0] / of_groups[1])[owner]
        scores = self.scores(Totals(totals.sizes * scale, totals.sums * scale[:, None]))
        found = self.rows.assign(Candidates(of_cluster, starts, *scores))
        return self.take(groups, starts, of_cluster, found, self.value_of(found)), costs

    def possible(self, group: Group) -> bool:
        """Whether the sample has rows enough of a group."""
        pilot = self.pilot
        return bool(pilot.totals.sizes[group.clusters].min() > 0) and not pilot.too_small(*group)

    def divide(self) -> None:
        """Propose a division of every cluster, all in one pass."""
        self.pilot.adopt(self.pilot.rows.totals(self.n_clusters))
        groups = [Group(np.array([k]), GROWTH) for k in range(self.n_clusters)]
        groups = [group for group in groups if self.possible(group)]
        if groups and self.propose(groups)[0].max() > 0.0:
            self.note("split", self.log_joint, self.n_clusters)

    def regroup_all(self) -> float:
        """Propose new partitions of disjoint groups of similar clusters, all in one pass.

        Return what that gains.
        """
        before = self.log_joint
        self.pilot.adopt(self.pilot.rows.totals(self.n_clusters))
        both = zip(*self.groups(np.arange(self.n_clusters)), strict=True)
        proposals = [(group, kind) for group, kind in both if self.possible(group)]
        if not proposals:
            return 0.0
        gains, costs = self.propose([group for group, _ in proposals])
        for (_, kind), gain, cost in zip(proposals, gains, costs, strict=True):
            self.schedule.learn(kind, float(gain), float(cost))
        if gains.max() > 0.0:
            self.note("regroup", self.log_joint, self.n_clusters)
        return self.log_joint - before

    def round(self, n_regroups: int) -> float:
        """Divide clusters, regroup them so many times, sweep and merge; return the gain."""
        before = self.log_joint
        self.add_outliers()
        self.check_time()
        self.divide()
        for _ in range(n_regroups):
            self.check_time()
            if self.regroup_all() < _ENOUGH * self.rows.n_rows:
                break
        self.check_time()
        self.sweep()
        self.merge()
        return self.log_joint - before

    def improve(self, most: int, n_regroups: int) -> bool:
        """Make rounds while they gain; return whether they ended by that."""
        for _ in range(most):
            self.check_time()
            if self.round(n_regroups) < _ENOUGH * self.rows.n_rows:
                return True
        return False
