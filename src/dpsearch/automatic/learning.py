"""Hyperparameters from the data: partition and hyperparameters in turn.

    1. Hyperparameters from the columns' means and variances (`Family.suggest`).
    2. A partition under them: search, then sweeps, splits and merges; from the second round on
       the partition is carried along.
    3. Hyperparameters from the partition (`Family.learned`); back to 2.

Each round ends with log p(c, x | hyperparameters).  All are probabilities of the same data, so they
compare, and the round with the largest is kept.  Rounds stop where partition and hyperparameters
suit each other, so they begin more than once: from the clusters of a simpler family, if there is
one; from one cluster for all rows, if that is better under hyperparameters of its own; and where
one cluster is found, from two halves.

At most 2,000 rows take part, always the same ones.  That is quick, and it keeps scales from
following ever finer detail as a table grows: a mixture of Gaussians never describes real data
exactly, and with enough rows it is worth a cluster to say so.  Nothing here is random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsearch._types import ArrayLike, Ints, Labels
from dpsearch.families.base import Family
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.refinement import halved, refine
from dpsearch.tables.checked import CheckedTable

_SAMPLE = 2000
FEW_ROWS = 100  # for which a thorough refinement is quick
_ROUNDS = 6
_ENOUGH = 1e-3  # nats a row: rounds end when they bring less
_FEWEST_TO_HALVE = 10
_HALVINGS = 6  # tries at halving a table that seems to be one cluster


class Learned(NamedTuple):
    """A family with its hyperparameters, and a partition of all rows to start from."""

    family: Family
    labels: Labels
    problem: Problem | None  # the family compiled for all rows, if all took part


class _Round(NamedTuple):
    """What one round ended with."""

    log_joint: float
    family: Family
    problem: Problem
    labels: Labels


def learn(
    X: ArrayLike | CheckedTable, start: Family, prior: Prior, *, or_simpler: bool = False
) -> Learned:
    """Learn the hyperparameters of a family from a table.

    `start` has those that `suggest` made of it.  It may be given up for a simpler family, if
    wanted, where that describes the table better.
    """
    table = CheckedTable.of(X)
    n_rows = table.shape[0]
    rows = _sample(n_rows)
    sample = table if len(rows) == n_rows else table.rows(rows)
    best = _rounds(sample, start, start, prior, None)
    best = _from_simpler(sample, start, prior, best, or_simpler)
    if prior.product_form:
        best = _second_look(sample, start, prior, best)
    if len(rows) < n_rows:
        problem = best.problem
        mixture = Mixture.of(problem.model, problem.items, best.labels, prior)
        labels = mixture.memberships(table).labels
        labels = np.unique(labels, return_inverse=True)[1]
        return Learned(best.family, labels, None)
    return Learned(best.family, best.labels, best.problem)


def _rounds(
    sample: CheckedTable,
    start: Family,
    family: Family,
    prior: Prior,
    labels: Labels | None,
    *,
    quick: bool = False,
) -> _Round:
    """Go from a family, and perhaps a partition, round by round; return the best.

    If it is to be quick, clusters are split in the first round only.
    """
    best: _Round | None = None
    for _ in range(_ROUNDS):
        problem = Problem(sample, family, prior)
        if labels is None or not prior.product_form:  # which refinement needs
            labels = search(problem, beam_size=1).labels
        if prior.product_form:
            thorough = problem.n_items <= FEW_ROWS
            tries = None if best is None else 0 if quick else 1
            refined = refine(
                problem, labels, rng=0, thorough=thorough, tries=tries, keep_interrupted=False
            )
            labels = refined.labels
        value = problem.log_joint(labels)
        gain = np.inf if best is None else value - best.log_joint
        if best is None or gain > 0.0:
            best = _Round(value, family, problem, labels)
        if gain < _ENOUGH * problem.n_items:
            break
        family = start.learned(sample.matrix, labels)
    assert best is not None
    return best


def _from_simpler(
    sample: CheckedTable, start: Family, prior: Prior, best: _Round, or_simpler: bool
) -> _Round:
    """Go on from the clusters that a simpler family finds; return what is better.

    A prior on covariances that was learned from clusters taken together expects wide ones, and
    holds them together.  Where clusters have fewer numbers to learn, they come apart.
    """
    simpler = start.simpler(sample.matrix)
    if simpler is None:
        return best
    matrix, plain = simpler
    table = CheckedTable(matrix, None, complete=not sample.gaps)
    found = _rounds(table, plain, plain, prior, None, quick=True)
    if prior.product_form:
        found = _second_look(table, plain, prior, found)
    family = start.learned(sample.matrix, found.labels)
    again = _rounds(sample, start, family, prior, found.labels)
    best = max(best, again, key=lambda found: found.log_joint)
    return found if or_simpler and found.log_joint > best.log_joint else best


def _second_look(sample: CheckedTable, start: Family, prior: Prior, best: _Round) -> _Round:
    """Compare what was found with one cluster for all, and one cluster with two."""
    together = np.zeros(len(best.labels), np.int64)
    for_all = start.learned(sample.matrix, together)
    if best.labels.any():
        problem = Problem(sample, for_all, prior)
        if problem.log_joint(together) > best.log_joint:
            best = _rounds(sample, start, for_all, prior, together)
    if not best.labels.any() and len(together) >= _FEWEST_TO_HALVE:
        halves = _halves(sample, start, prior)
        if halves is not None:
            again = _rounds(sample, start, start.learned(sample.matrix, halves), prior, halves)
            best = max(best, again, key=lambda found: found.log_joint)
    return best


def _halves(sample: CheckedTable, start: Family, prior: Prior) -> Labels | None:
    """Return the two clusters that are best under hyperparameters learned from them.

    Where columns are many, the prior to start from, of which no cluster's covariance is known, may
    hold one cluster more probable than two that are well apart.
    """
    problem = Problem(sample, start, prior)
    tries = [halved(problem, rng=seed) for seed in range(_HALVINGS)]
    apart = [labels for labels in tries if labels.max() == 1]
    if not apart:
        return None

    def value(labels: Labels) -> float:
        return Problem(sample, start.learned(sample.matrix, labels), prior).log_joint(labels)

    return max(apart, key=value)


def _sample(n_rows: int) -> Ints:
    """Rows that take part: all, or some chosen as if at random, the same every time."""
    if n_rows <= _SAMPLE:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, size=_SAMPLE, replace=False))
