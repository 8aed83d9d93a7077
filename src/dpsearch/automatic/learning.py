"""Hyperparameters from the data: partition and hyperparameters in turn.

    1. Hyperparameters from the columns' means and variances (`Family.suggest`).
    2. A partition under them: search, then sweeps, splits and merges; from the second round on
       the partition is carried along.
    3. Hyperparameters from the partition (`Family.learned`); back to 2.

Each round ends with log p(c, x | hyperparameters).  All are probabilities of the same data, so they
compare, and the round with the largest is kept.

At most 2,000 rows take part, always the same ones.  That is quick, and it keeps scales from
following ever finer detail as a table grows: a mixture of Gaussians never describes real data
exactly, and with enough rows it is worth a cluster to say so.  Nothing here is random.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels
from dpsearch.families.base import Family
from dpsearch.mixture import Mixture
from dpsearch.objective import Problem
from dpsearch.prefix_search.search import search_problem
from dpsearch.priors.base import Prior
from dpsearch.refinement import refine_problem

_SAMPLE = 2000
FEW_ROWS = 100  # for which a thorough refinement is quick
_ROUNDS = 6
_ENOUGH = 1e-3  # nats a row: rounds end when they bring less


class Learned(NamedTuple):
    """A family with its hyperparameters, and a partition of all rows to start from."""

    family: Family
    labels: Labels
    problem: Problem | None  # the family compiled for all rows, if all took part


def learn(matrix: Any, start: Family, prior: Prior) -> Learned:
    """Learn the hyperparameters of a family from a checked matrix.

    `start` has those that `suggest` made of it.
    """
    n_rows = matrix.shape[0]
    rows = _sample(n_rows)
    sample = matrix if len(rows) == n_rows else matrix[rows]
    product_form = prior.product_form
    family = start
    labels: Labels | None = None
    best: tuple[float, Family, Problem, Labels] | None = None
    for _ in range(_ROUNDS):
        problem = Problem.of(sample, family, prior)
        if labels is None or not product_form:  # which refinement needs
            labels = search_problem(problem, beam_size=1).labels
        if product_form:
            labels = refine_problem(problem, labels, rng=0, thorough=len(rows) <= FEW_ROWS).labels
        value = problem.log_joint(labels)
        gain = np.inf if best is None else value - best[0]
        if best is None or gain > 0.0:
            best = value, family, problem, labels
        if gain < _ENOUGH * len(rows):
            break
        family = start.learned(sample, labels)
    assert best is not None
    _, family, problem, labels = best
    if len(rows) < n_rows:
        mixture = Mixture.of(problem.model, problem.items, labels, prior)
        labels = mixture.memberships(matrix).labels
        labels = np.unique(labels, return_inverse=True)[1]
        return Learned(family, labels, None)
    return Learned(family, labels, problem)


def _sample(n_rows: int) -> Ints:
    """Rows that take part: all, or some chosen as if at random, the same every time."""
    if n_rows <= _SAMPLE:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, size=_SAMPLE, replace=False))
