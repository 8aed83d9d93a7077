"""What families learn from a partition: hyperparameters that make its clusters probable.

Spread.  The prior on a cluster's covariance is centred on the average covariance of the clusters
there are, its moment estimate.  Maximising the log joint instead would go further: it makes the
prior so broad that whatever is constant in a handful of rows, such as a number that was cut off
at the end of its range, is worth a cluster.

The partition may be of a sample in which a column happens to be constant.  Such a column tells
nothing, and keeps what `suggest` made of all the data: a number put in its place would have units.

Strengths and concentrations, which say how much clusters differ from each other, maximise
Σ_k log H(x_k), within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpsearch._types import Labels, Matrix, Vector
from dpsearch.families._columns import mean_and_variance, varies
from dpsearch.items import log_marginals

if TYPE_CHECKING:
    from dpsearch.families.base import Family

_F = TypeVar("_F", bound="Family")

# How much of a column's variance lies within clusters, before anything is known about them.
WITHIN = 0.4
# What part of a column's variance is within clusters at least.
FLOOR = 0.05
STRENGTHS = (1e-4, 10.0)  # bounds on how many points the prior on a cluster's mean counts for
START_STRENGTH = 0.05
# Bounds on pseudo-counts.  Below 1 the prior expects clusters to use few words or levels, and every
# burst of a word is worth a cluster.
CONCENTRATIONS = (1.0, 100.0)


def log_likelihood(family: Family, X: Any, labels: Labels) -> float:
    """Return log p(X | labels), the sum of log H over the clusters."""
    model = family.compile(X)
    items, base = model.items()
    n_clusters = int(labels.max()) + 1
    pool, _ = model.rows(items, labels, n_clusters)
    return float(log_marginals(model.core, pool, n_clusters).sum() + base.sum())


def most_likely(
    make: Callable[[float], _F], X: Any, labels: Labels, bounds: tuple[float, float]
) -> _F:
    """Return make(t) for the t between bounds that makes X most probable, by Brent's method."""
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(
        lambda u: -log_likelihood(make(math.exp(u)), X, labels),
        bounds=(math.log(bounds[0]), math.log(bounds[1])),
        method="bounded",
        options={"xatol": 0.02},
    )
    return make(math.exp(best.x))


def scatter(X: Matrix, labels: Labels) -> Matrix:
    """Return the pooled covariance within clusters, Σ_k Σ_i (x − x̄_k)(x − x̄_k)ᵀ / (N − K)."""
    rest, freedom = _deviations(X, labels)
    return np.asarray(rest.T @ rest / freedom)


def variances(X: Matrix, labels: Labels) -> Vector:
    """Return the pooled variance of each column within clusters; gaps are left out.

    Of a column with n values in k clusters, the sum of squares is divided by n − k.
    """
    rest, freedom = _deviations(X, labels)
    return np.asarray(np.nansum(rest**2, axis=0) / freedom)


def expected(X: Matrix, within: Any, start: tuple[Vector, Vector]) -> tuple[Vector, Any]:
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


def _deviations(X: Matrix, labels: Labels) -> tuple[Matrix, Vector]:
    """Return each row less the mean of its cluster, and the degrees of freedom of each column."""
    n_clusters = int(labels.max()) + 1
    seen = ~np.isnan(X)
    sums = np.zeros((n_clusters, X.shape[1]))
    counts = np.zeros_like(sums)
    np.add.at(sums, labels, np.where(seen, X, 0.0))
    np.add.at(counts, labels, seen)
    means = sums / np.maximum(counts, 1.0)
    freedom = (counts - (counts > 0.0)).sum(axis=0)
    return np.asarray(X - means[labels]), np.maximum(freedom, 1.0)
