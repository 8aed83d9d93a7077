"""What families learn from a partition: hyperparameters that make its clusters probable.

Spread.  The prior on a cluster's covariance is centred on the average covariance of the clusters
there are, its moment estimate.  Maximising the log joint instead would go further: it makes the
prior so broad that any value that is constant in a handful of rows, such as a number that was cut
off at the end of its range, is worth a cluster.

The partition may be of a sample in which a column happens to be constant.  Such a column carries
no information, and keeps what `suggest` made of all the data: a number put in its place would have
units.

Strengths and concentrations, which say how much clusters differ from each other, maximise
Σ_k log H(x_k), within bounds.
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

# How much of a column's variance lies within clusters, before anything is known about them.
WITHIN = 0.4
# What part of a column's variance is within clusters at least.
FLOOR = 0.05
STRENGTHS = (1e-4, 10.0)  # bounds on how many points the prior on a cluster's mean counts for
START_STRENGTH = 0.05
# Bounds on pseudo-counts.  Below 1 the prior expects clusters to use few words or levels, and every
# burst of a word is worth a cluster.
CONCENTRATIONS = (1.0, 100.0)


def most_likely(log_likelihood: Callable[[float], float], bounds: tuple[float, float]) -> float:
    """Return the number between bounds at which a function is largest, by Brent's method."""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(
        lambda u: -log_likelihood(math.exp(u)),
        bounds=(math.log(bounds[0]), math.log(bounds[1])),
        method="bounded",
        options={"xatol": 0.02},
    )
    return math.exp(best.x)


def pseudo_count(counts: Matrix) -> float:
    """Return the Dirichlet parameter of each level under which [clusters, levels] are likeliest."""
    totals, n_levels = counts.sum(axis=1), counts.shape[1]

    def log_likelihood(count: float) -> float:
        """Σ log H, without the multinomial coefficients."""
        levels = (gammaln(counts + count) - gammaln(count)).sum()
        both = gammaln(totals + n_levels * count) - gammaln(n_levels * count)
        return float(levels - both.sum())

    return most_likely(log_likelihood, CONCENTRATIONS)


class Sums(NamedTuple):
    """Of each cluster and column: how many values were observed, and what they add up to."""

    counts: Matrix
    sums: Matrix

    @property
    def means(self) -> Matrix:
        return np.asarray(self.sums / np.maximum(self.counts, 1.0))


def sums_of(X: Any, labels: Labels) -> Sums:
    """Add up the columns of a dense or sparse table by cluster; gaps are left out."""
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
    """Return the variance of each column within clusters; gaps are left out.

    Of a column with n values in k clusters, the sum of squares is divided by n − k.
    """
    return np.asarray(np.nansum(deviations(X, labels) ** 2, axis=0) / _freedom(X, labels))


def _freedom(X: Matrix, labels: Labels) -> Vector:
    """Degrees of freedom that are left of each column when its clusters' means are known."""
    counts = sums_of(X, labels).counts
    return np.asarray(np.maximum((counts - (counts > 0.0)).sum(axis=0), 1.0))


def moments_within(X: Matrix, within: Any, start: tuple[Vector, Vector]) -> tuple[Vector, Any]:
    """Return the mean of the columns, and their variances or covariance within clusters.

    To what was found within clusters a share of the total variance is added.  `start` has the mean
    and the variances within clusters of columns that are constant in X.
    """
    mean, total = mean_and_variance(X)
    known = varies(X)
    least = np.where(known, FLOOR * total, start[1])
    if np.ndim(within) == 2:
        least = np.diag(least)
    return np.where(known, mean, start[0]), (1.0 - FLOOR) * within + least
