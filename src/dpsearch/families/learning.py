"""Learning of hyperparameters from a partition.

The prior on a cluster's covariance is centred on the average covariance of the present clusters,
its moment estimate.  Maximising the log joint instead would make the prior so broad that any value
that is constant in a few rows, such as a number that was cut off at the end of its range, would be
worth a cluster.

The partition may be that of a sample in which a column happens to be constant.  Such a column has
no information, and keeps the hyperparameters that `suggest` derived from all the data: any fixed
number in their place would have units.

Strengths and concentrations, which determine how much clusters differ from each other, maximise
Σ_k log H(x_k) within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from dpsearch._types import Labels, Matrix, Vector
from dpsearch.families._columns import mean_and_variance, varies

# The assumed share of a column's variance within clusters, before anything is known about them.
WITHIN = 0.4
# The least share of a column's variance within clusters.
FLOOR = 0.05
STRENGTHS = (1e-4, 10.0)  # bounds on the prior strength of a cluster's mean, in points
START_STRENGTH = 0.05
# Bounds on pseudo-counts.  Below 1 the prior expects clusters to use few words or levels, and every
# burst of a word is worth a cluster.
CONCENTRATIONS = (1.0, 100.0)


def most_likely(log_likelihood: Callable[[float], float], bounds: tuple[float, float]) -> float:
    """Return the maximum of a function between bounds, found by Brent's method on a log scale."""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(
        lambda u: -log_likelihood(math.exp(u)),
        bounds=(math.log(bounds[0]), math.log(bounds[1])),
        method="bounded",
        options={"xatol": 0.02},
    )
    return math.exp(best.x)


def pseudo_count(counts: Matrix) -> float:
    """Return the Dirichlet parameter that maximises the likelihood of counts [clusters, levels]."""
    totals, n_levels = counts.sum(axis=1), counts.shape[1]

    def log_likelihood(count: float) -> float:
        """Return Σ log H without the multinomial coefficients."""
        levels = (gammaln(counts + count) - gammaln(count)).sum()
        both = gammaln(totals + n_levels * count) - gammaln(n_levels * count)
        return float(levels - both.sum())

    return most_likely(log_likelihood, CONCENTRATIONS)


class Sums(NamedTuple):
    """The number and the sum of the observed values of each cluster and column."""

    counts: Matrix
    sums: Matrix

    @property
    def means(self) -> Matrix:
        return np.asarray(self.sums / np.maximum(self.counts, 1.0))


def sums_of(X: Any, labels: Labels) -> Sums:
    """Return the sums of a dense or sparse table by cluster, without gaps."""
    if not sp.issparse(X):
        return _dense_sums(X, labels, int(labels.max()) + 1)
    n_rows = len(labels)
    shape = (int(labels.max()) + 1, n_rows)
    of_cluster = sp.csr_matrix((np.ones(n_rows), (labels, np.arange(n_rows))), shape=shape)
    sizes = np.asarray(of_cluster.sum(axis=1))
    return Sums(np.repeat(sizes, X.shape[1], axis=1), (of_cluster @ X).toarray())


def _dense_sums(X: Matrix, labels: Labels, n_clusters: int) -> Sums:
    counts, sums = np.empty((2, n_clusters, X.shape[1]))
    sizes = np.bincount(labels, minlength=n_clusters)
    for d, column in enumerate(X.T):
        missing = np.isnan(column)
        if missing.any():
            counts[:, d] = sizes - np.bincount(labels[missing], minlength=n_clusters)
            column = np.where(missing, 0.0, column)
        else:
            counts[:, d] = sizes
        sums[:, d] = np.bincount(labels, column, n_clusters)
    return Sums(counts, sums)


def deviations(X: Matrix, labels: Labels) -> Matrix:
    """Return each row less the mean of its cluster."""
    return np.asarray(X - sums_of(X, labels).means[labels])


def pooled_covariance(X: Matrix, labels: Labels) -> Matrix:
    """Return the covariance within clusters, Σ_k Σ_i (x − x̄_k)(x − x̄_k)ᵀ / (N − K)."""
    rest = deviations(X, labels)
    return np.asarray(rest.T @ rest / _freedom(X, labels))


def pooled_variance(X: Matrix, labels: Labels) -> Vector:
    """Return the variance of each column within clusters, without gaps.

    The sum of squares of a column with n values in k clusters is divided by n − k.
    """
    return np.asarray(np.nansum(deviations(X, labels) ** 2, axis=0) / _freedom(X, labels))


def _freedom(X: Matrix, labels: Labels) -> Vector:
    """Return each column's degrees of freedom within clusters: n − k."""
    counts = sums_of(X, labels).counts
    return np.asarray(np.maximum((counts - (counts > 0.0)).sum(axis=0), 1.0))


def moments_within(X: Matrix, within: Any, start: tuple[Vector, Vector]) -> tuple[Vector, Any]:
    """Return the mean of the columns, and their variances or covariance within clusters.

    A share of the total variance is added to the estimate within clusters.  `start` has the mean
    and the variances within clusters that are used for columns that are constant in X.
    """
    mean, total = mean_and_variance(X)
    known = varies(X)
    least = np.where(known, FLOOR * total, start[1])
    if np.ndim(within) == 2:
        least = np.diag(least)
    return np.where(known, mean, start[0]), (1.0 - FLOOR) * within + least
