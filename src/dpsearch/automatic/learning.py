"""Learning of hyperparameters from the data, in turn with a partition.

    1. Hyperparameters from the columns' means and variances (`Family.suggest`).
    2. A partition under them: search, then sweeps, splits and merges; from the second round on
       the last partition is the start.
    3. Hyperparameters from the partition (`Family.learned`); back to 2.

Each round ends with log p(c, x | hyperparameters).  All are probabilities of the same data, so they
are comparable, and the round with the largest is kept.  Rounds end at a local optimum of partition
and hyperparameters, so several starts are tried: the clusters of a simpler family, if there is one;
one cluster for all rows, if that is better under hyperparameters of its own; and two halves, if one
cluster is found.  Of up to 200 rows the best is then refined thoroughly, and rounds go on from
there while they gain enough.

At most 2,000 rows take part, always the same ones.  That is quick, and it keeps scales from
following ever finer detail as a table grows: a mixture of Gaussians never describes real data
exactly, and with enough rows each deviation is worth a cluster.  Nothing here is random.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from dpsearch._threads import concurrently, in_use
from dpsearch._types import ArrayLike, Ints, Labels
from dpsearch.deadline import current
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Simpler
from dpsearch.families.with_gaps import filled
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.refinement import halved, refine
from dpsearch.tables.checked import CheckedTable

_SAMPLE = 2000
_FEW_ROWS = 100  # for which a thorough refinement is quick, in every round
_MOST_SETTLED = 200  # rows for which the best partition is refined thoroughly in the end
_ROUNDS = 6
_ENOUGH = 1e-3  # nats a row: rounds end when they gain less
_FEWEST_TO_HALVE = 10
_MOST_KEPT = 1 << 24  # numbers of encoded rows in the compiled problems of a table
_HALVINGS = 6  # tries at halving a table in which one cluster was found


class Learned(NamedTuple):
    """A family with its hyperparameters, and a partition of all rows to start from."""

    family: Family
    labels: Labels
    problem: Problem  # the family compiled for the rows that took part
    log_joint: float = math.nan  # of these rows
    is_simpler: bool = False  # whether a simpler family replaced the one to start from
    settled: bool = False  # whether no move of refinement improves the partition

    @property
    def of_all_rows(self) -> bool:
        """Whether all rows took part."""
        return self.problem.n_items == len(self.labels)


_Under = tuple[Family, Problem]  # a family, and the problem of the table under it


def learn(
    X: ArrayLike | CheckedTable,
    start: Family,
    prior: Prior,
    *,
    or_simpler: bool = False,
    n_first: int | None = None,
) -> Learned:
    """Learn the hyperparameters of a family from a table, or from its first `n_first` rows.

    `start` has those that `suggest` returned.  With `or_simpler` a simpler family may replace it
    where that describes the table better.
    """
    table = CheckedTable.of(X)
    sample = learning_sample(table, n_first)
    best = _Learner(sample, start, prior).learn(or_simpler)
    if sample is table:
        return best
    mixture = Mixture.of(best.problem.model, best.problem.items, best.labels, prior)
    labels = np.unique(mixture.memberships(table).labels, return_inverse=True)[1]
    return best._replace(labels=labels, settled=False)


def suited(start: Family, table: CheckedTable) -> Family:
    """Return a family to start from, its missing hyperparameters resolved by a table.

    Families resolve complete tables only, so gaps are filled for this purpose; later they are
    skipped.
    """
    complete = CheckedTable(filled(table.matrix), None, True) if table.gaps else table
    return start.suited(complete)


class _Learner:
    """Rounds of learning on one table, all from the same family."""

    def __init__(self, sample: CheckedTable, start: Family, prior: Prior) -> None:
        self.sample = sample
        self.start = start
        self.prior = prior
        self.n_rows = sample.shape[0]
        self._known: dict[bytes, _Under] = {}

    def under(self, labels: Labels | None = None) -> _Under:
        """Return the family learned from a partition, or the first one, and its problem."""
        key = b"" if labels is None else labels.tobytes()
        if key not in self._known:
            family = self.start
            if labels is not None:
                family = family.learned(self.sample.matrix, labels)
            self._known[key] = family, compiled(self.sample, family, self.prior)
        return self._known[key]

    def learn(self, or_simpler: bool) -> Learned:
        simpler = self.start.simpler(self.sample.matrix)
        plain = None if simpler is None else self.simpler_learner(simpler)
        best, found = concurrently(
            lambda: self.rounds(self.under()),
            lambda: None if plain is None or current().over else plain.quick(),
        )
        assert best is not None
        if simpler is not None and plain is not None and found is not None and not current().over:
            best = self.from_simpler(plain, found, best, or_simpler and simpler.replaces)
        return self.settle(self.with_other_starts(best))

    def quick(self) -> Learned:
        """Return the best of quick rounds from the first family, and of the other starts."""
        return self.with_other_starts(self.rounds(self.under(), quick=True))

    def simpler_learner(self, simpler: Simpler) -> _Learner:
        """Return the learner of a simpler family, on its own form of the table."""
        table = self.sample
        if not np.array_equal(simpler.X, table.matrix):
            table = CheckedTable(simpler.X, None, complete=not table.gaps)
        return _Learner(table, simpler.family, self.prior)

    def rounds(
        self,
        under: _Under,
        labels: Labels | None = None,
        *,
        quick: bool = False,
        thorough: bool = False,
    ) -> Learned:
        """Return the best of the rounds from a family, and perhaps a partition.

        With `quick`, clusters are split in the first round only.
        """
        best: Learned | None = None
        thorough = self.prior.product_form and (thorough or self.n_rows <= _FEW_ROWS)
        for _ in range(_ROUNDS):
            (family, problem), before = under, labels
            tries = None if best is None else 0 if quick else 1
            labels, settled = self.partition(problem, labels, thorough, tries)
            value = problem.log_joint(labels)
            gain = np.inf if best is None else value - best.log_joint
            if best is None or gain > 0.0:
                best = Learned(family, labels, problem, value, settled=settled)
            # From the same partition the next round would be the same.
            unchanged = before is not None and np.array_equal(labels, before)
            if unchanged or gain < _ENOUGH * problem.n_items or current().over:
                break
            current().tell("rounds of learning")
            under = self.under(labels)
        assert best is not None
        return best

    def partition(
        self, problem: Problem, labels: Labels | None, thorough: bool, tries: int | None
    ) -> tuple[Labels, bool]:
        """Search or refine a partition; return labels, and whether no move improves them."""
        if labels is None or not self.prior.product_form:  # refinement needs that form
            with current().needed():  # few rows take part, and all that follows depends on it
                labels = search(problem, beam_size=1).labels
        if not self.prior.product_form:
            return labels, False
        found = refine(
            problem, labels, rng=0, thorough=thorough, tries=tries, keep_interrupted=False,
            n_jobs=in_use(),
        )  # fmt: skip
        return found.labels, found.converged

    def from_simpler(
        self, plain: _Learner, found: Learned, best: Learned, replaces: bool
    ) -> Learned:
        """Go on from the clusters that a simpler family found; return the best result.

        A prior on covariances that was learned from merged clusters expects wide ones, and so keeps
        them merged.  Under a family with fewer parameters they separate.
        """
        again = self.rounds(self.under(found.labels), found.labels)
        best = max(best, again, key=attrgetter("log_joint"))
        if replaces and found.log_joint > best.log_joint:
            return plain.settle(found)._replace(is_simpler=True)
        return best

    def settle(self, best: Learned) -> Learned:
        """Refine a partition of few rows until no move improves it, and go on from there."""
        if best.settled or self.n_rows > _MOST_SETTLED or not self.prior.product_form:
            return best
        if current().over:
            return best
        return self.rounds((best.family, best.problem), best.labels, thorough=True)

    def with_other_starts(self, best: Learned) -> Learned:
        """Return the better of a result and rounds from one cluster, or of one cluster and two."""
        if not self.prior.product_form or current().over:
            return best
        together = np.zeros(self.n_rows, np.int64)
        if best.labels.any():
            for_all = self.under(together)
            if for_all[1].log_joint(together) > best.log_joint:
                best = self.rounds(for_all, together)
        if not best.labels.any() and self.n_rows >= _FEWEST_TO_HALVE:
            halves = self.halves()
            if halves is not None:
                best = max(
                    best, self.rounds(self.under(halves), halves), key=attrgetter("log_joint")
                )
        return best

    def halves(self) -> Labels | None:
        """Return the two clusters that are best under hyperparameters learned from them.

        With many columns the first prior, set without knowing any cluster's covariance, may prefer
        one cluster to two that are well separated.
        """
        tries = [halved(self.under()[1], rng=seed) for seed in range(_HALVINGS)]
        two = [labels for labels in tries if labels.max() == 1]

        def value(labels: Labels) -> float:
            return self.under(labels)[1].log_joint(labels)

        return max(two, key=value, default=None)


def learning_rows(n_rows: int) -> Ints:
    """Return the rows that take part: all, or a random sample, the same every time."""
    if n_rows <= _SAMPLE:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, size=_SAMPLE, replace=False))


def learning_sample(table: CheckedTable, n_first: int | None = None) -> CheckedTable:
    """Return the rows of a table that take part, all of them among the first `n_first` if given."""
    n_rows = table.shape[0]
    rows = learning_rows(n_rows if n_first is None else n_first)
    return table if len(rows) == n_rows else table.cached(len(rows), lambda: table.rows(rows))


def compiled(table: CheckedTable, family: Family, prior: Prior) -> Problem:
    """Return the problem of a table under a family; compiled ones are kept while there is room."""
    known: dict[Any, Problem] = table.cached("problems", dict)
    found = known.get((family, prior))
    if found is None:
        others = list(known.values())  # a copy, since another thread may add to them
        if sum(len(one.items.values) for one in others) > _MOST_KEPT:
            known.clear()
        found = known[family, prior] = Problem(table, family, prior)
    return found
