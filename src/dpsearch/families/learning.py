"""What families learn from a partition: hyperparameters that make its clusters probable.

Spread.  The prior on a cluster's covariance is centred on the average covariance of the clusters
there are, its moment estimate.  Maximising the log joint instead would go further: it makes the
prior so broad that whatever is constant in a handful of rows, such as a number that was cut off
at the end of its range, is worth a cluster.

Strengths and concentrations, which say how much clusters differ from each other, maximise
Σ_k log H(x_k), within bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpsearch._types import Labels, Matrix, Vector
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
    rest = deviations(X, labels)
    return np.asarray(rest.T @ rest / _freedom(labels))


def variances(X: Matrix, labels: Labels) -> Vector:
    """Return the pooled variance of each column within clusters; gaps are left out."""
    rest = deviations(X, labels)
    seen = np.maximum((~np.isnan(rest)).mean(axis=0), 1e-9)
    return np.asarray(np.nansum(rest**2, axis=0) / (_freedom(labels) * seen))


def deviations(X: Matrix, labels: Labels) -> Matrix:
    """Return each row less the mean of its cluster."""
    n_clusters = int(labels.max()) + 1
    seen = ~np.isnan(X)
    sums = np.zeros((n_clusters, X.shape[1]))
    counts = np.zeros_like(sums)
    np.add.at(sums, labels, np.where(seen, X, 0.0))
    np.add.at(counts, labels, seen)
    means = sums / np.maximum(counts, 1.0)
    return np.asarray(X - means[labels])


def _freedom(labels: Labels) -> float:
    return max(len(labels) - float(labels.max()) - 1.0, 1.0)
