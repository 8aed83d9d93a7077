"""Completion of a table of numbers, for a Gaussian with full covariance.

That family has no closed form for an incomplete row.  Instead the table is completed as in data
augmentation (Tanner & Wong 1987), in two alternating steps: missing values are drawn from the row's
cluster given its observed values, and clusters are found in the completed table.  The first
clusters are those of the complete rows, or one Gaussian for all rows if few are complete.  Values
are drawn, because conditional means would make clusters look tighter than they are.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dpsearch._types import Labels, Matrix, Rng
from dpsearch.automatic.counts import expected_counts, wide_counts
from dpsearch.automatic.learning import learn
from dpsearch.deadline import current
from dpsearch.families._columns import varies
from dpsearch.families._observed import drawn
from dpsearch.families.base import Family
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.johnson import Johnson
from dpsearch.families.projected_gaussian import ProjectedGaussian
from dpsearch.mixture import Mixture
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.tables.checked import CheckedTable

_FIRST_ROUNDS = 10  # with one Gaussian
_ROUNDS = 4
_WIDE_ROUNDS = 2
_ROWS_A_COLUMN = 5  # complete rows that the first clusters are found in


def complete(matrix: Matrix, prior: Prior, *, wide: bool = False) -> Matrix:
    """Return the table with its gaps filled by draws, the same every time.

    A `wide` table is completed by draws of its projections and of the residuals.
    """
    if not np.isnan(matrix).any():
        return matrix
    changing = varies(matrix)
    if not changing.all():  # a constant column is filled with its value
        filled = np.where(np.isnan(matrix), np.nanmax(matrix, axis=0), matrix)
        if changing.any():
            rest = np.ascontiguousarray(matrix[:, changing])
            filled[:, changing] = complete(rest, prior, wide=wide)
        return filled
    rng = np.random.default_rng(0)
    if wide:
        counted = wide_counts(matrix)
        if counted is not None:
            return counted.held(_of_counts(counted.counts, prior, rng))
        return _by_projections(matrix, prior, rng)
    curves = Johnson.suggest(matrix)  # so that skewed columns are completed by skewed draws
    draws = curves.inverse(_of_numbers(curves.forward(matrix), prior, rng))
    return np.where(np.isnan(matrix), _like_observed(draws, matrix), matrix)


def _like_observed(draws: Matrix, matrix: Matrix) -> Matrix:
    """Return draws, those of columns of integers rounded and clipped to the observed range."""
    integer = (np.isnan(matrix) | (matrix == np.floor(matrix))).all(axis=0)
    inside = np.clip(np.rint(draws), np.nanmin(matrix, axis=0), np.nanmax(matrix, axis=0))
    return np.where(integer, inside, draws)


def _of_numbers(matrix: Matrix, prior: Prior, rng: Rng) -> Matrix:
    """Fill gaps by draws from clusters, and find clusters in the completed table, in turn."""
    complete_rows = ~np.isnan(matrix).any(axis=1)
    if complete_rows.sum() >= _ROWS_A_COLUMN * matrix.shape[1]:
        filled = _by_clusters(matrix, matrix[complete_rows], prior, rng)
    else:
        filled = _by_one_gaussian(matrix, rng)
    for done in range(_ROUNDS):
        current().tell("rounds", done, _ROUNDS)
        if current().over:
            break
        filled = _by_clusters(matrix, filled, prior, rng)
    return filled


def _by_projections(matrix: Matrix, prior: Prior, rng: Rng) -> Matrix:
    """Fill gaps by draws from clusters of the principal components, which are found in turn."""
    gaps = np.isnan(matrix).any(axis=1)
    filled = np.where(np.isnan(matrix), np.nanmean(matrix, axis=0), matrix)
    for done in range(_WIDE_ROUNDS):
        if done and current().over:
            break
        start = ProjectedGaussian.suggest(filled).resolve(filled)
        mixture = _mixture(filled, start, prior)
        inside, _ = mixture.log_joint_probabilities(matrix[gaps])
        rows = [mixture.row(k) for k in range(mixture.n_components)]
        family = cast(ProjectedGaussian, mixture.model.family)
        filled[gaps] = family.drawn(matrix[gaps], inside.argmax(axis=1), rows, rng)
    return filled


def _of_counts(counts: Matrix, prior: Prior, rng: Rng) -> Matrix:
    """Fill gaps by Poisson draws about expected counts, then about the clusters' means."""
    gaps = np.isnan(counts)
    at = gaps.any(axis=1)
    filled = np.where(gaps, rng.poisson(expected_counts(counts)), counts)
    if current().over:
        return filled
    mixture = _mixture(filled, ProjectedGaussian.of_counts(filled).resolve(filled), prior)
    filled[at] = np.where(gaps[at], rng.poisson(mixture.impute(counts[at])), counts[at])
    return filled


def _mixture(rows: Matrix, start: Family, prior: Prior) -> Mixture:
    """Return the clusters of complete rows."""
    table = CheckedTable(rows, None, complete=True)
    learned = learn(table, start, prior)
    problem = learned.problem if learned.of_all_rows else Problem(table, learned.family, prior)
    return Mixture.of(problem.model, problem.items, learned.labels, prior)


def _by_one_gaussian(matrix: Matrix, rng: Rng) -> Matrix:
    """Fill gaps from one Gaussian for all rows, whose mean and covariance are updated in turn."""
    mean = np.nanmean(matrix, axis=0)
    filled = np.where(np.isnan(matrix), mean, matrix)
    together = np.zeros(len(matrix), np.int64)
    for done in range(_FIRST_ROUNDS):
        if done and current().over:
            break
        covariance = np.cov(filled.T).reshape(len(mean), -1)
        covariance += 1e-6 * np.diag(np.where(np.diag(covariance) > 0.0, np.diag(covariance), 1.0))
        filled = _filled(matrix, together, filled.mean(axis=0)[None], covariance[None], rng)
    return filled


def _by_clusters(matrix: Matrix, rows: Matrix, prior: Prior, rng: Rng) -> Matrix:
    """Fill gaps by draws from the clusters of some complete rows."""
    mixture = _mixture(rows, FullGaussian.suggest(rows), prior)
    inside, _ = mixture.log_joint_probabilities(matrix)
    posteriors = [mixture.posterior(k) for k in range(mixture.n_components)]
    means = np.array([posterior["mean"] for posterior in posteriors])
    covariances = np.array([posterior["covariance"] for posterior in posteriors])
    return _filled(matrix, inside.argmax(axis=1), means, covariances, rng)


def _filled(matrix: Matrix, labels: Labels, means: Matrix, covariances: Any, rng: Rng) -> Matrix:
    factors = np.linalg.cholesky(covariances)
    normal = rng.standard_normal(matrix.shape)
    draws = means[labels] + np.einsum("nij,nj->ni", factors[labels], normal)
    return np.asarray(drawn(matrix, labels, draws, np.ascontiguousarray(covariances)))
