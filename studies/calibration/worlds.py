"""Data drawn from the models, by NumPy and SciPy alone: parameters first, then rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpsearch import families, priors
from dpsearch.families import Family
from dpsearch.priors import Prior

Rng = np.random.Generator
N_ROWS = 20
ALPHA = 1.0
SHAPE, RATE = 2.0, 1.5  # of α's own distribution

Parameters = Any
FIXED = priors.DirichletProcess(ALPHA)
LEARNED = priors.DirichletProcess(priors.Gamma(SHAPE, RATE))


class Kind(NamedTuple):
    """A family, with functions that draw a cluster's parameters and rows given them."""

    family: Family
    parameters: Callable[[Rng], Parameters]
    rows: Callable[[Parameters, int, Rng], Any]
    continuous: bool


class World(NamedTuple):
    """Everything that was drawn."""

    kind: Kind
    prior: Prior
    alpha: float
    labels: Any  # by first appearance
    X: Any
    new_labels: Any  # of new rows; the number of clusters for one that begins another
    new: Any


def _wishart(rng: Rng) -> Parameters:
    covariance = stats.invwishart(5.0, 2.0 * np.eye(2)).rvs(random_state=rng)
    return rng.multivariate_normal(np.zeros(2), covariance / 0.15), covariance


def _diagonal(rng: Rng) -> Parameters:
    variance = 2.0 / rng.gamma(3.0, size=2)
    return rng.normal(0.0, np.sqrt(variance / 0.2)), np.sqrt(variance)


KINDS = {
    "Gaussian": Kind(
        families.Gaussian(0.5, 4.0, 1.0),
        lambda rng: rng.normal(0.5, 2.0, size=2),
        lambda mean, n, rng: rng.normal(mean, 1.0, size=(n, 2)),
        True,
    ),
    "DiagonalGaussian": Kind(
        families.DiagonalGaussian(0.0, 0.2, 3.0, 2.0),
        _diagonal,
        lambda own, n, rng: rng.normal(own[0], own[1], size=(n, 2)),
        True,
    ),
    "FullGaussian": Kind(
        families.FullGaussian(0.0, 0.15, 5.0, 2.0),
        _wishart,
        lambda own, n, rng: rng.multivariate_normal(own[0], own[1], size=n),
        True,
    ),
    "Poisson": Kind(
        families.Poisson(1.5, 0.3),
        lambda rng: rng.gamma(1.5, 1.0 / 0.3, size=2),
        lambda rate, n, rng: rng.poisson(rate, size=(n, 2)).astype(float),
        False,
    ),
    "Bernoulli": Kind(
        families.Bernoulli(0.5, 0.5),
        lambda rng: rng.beta(0.5, 0.5, size=5),
        lambda share, n, rng: (rng.random((n, 5)) < share).astype(float),
        False,
    ),
}  # fmt: skip


def chinese_restaurant(n: int, alpha: float, rng: Rng) -> Any:
    """Return the tables of n guests."""
    labels = np.zeros(n, np.int64)
    sizes: list[int] = []
    for i in range(n):
        weights = np.array([*sizes, alpha])
        labels[i] = rng.choice(len(weights), p=weights / weights.sum())
        if labels[i] == len(sizes):
            sizes.append(0)
        sizes[labels[i]] += 1
    return labels


def draw(
    kind: Kind,
    learned: bool,
    rng: Rng,
    *,
    n_rows: int = N_ROWS,
    n_new: int = 1,
    inside: bool = False,
) -> World:
    """Draw α, a partition, parameters, rows and new rows (from existing clusters if `inside`).

    Each new row is drawn as if it were the next one.
    """
    alpha = float(rng.gamma(SHAPE, 1.0 / RATE)) if learned else ALPHA
    labels = chinese_restaurant(n_rows, alpha, rng)
    weights = np.append(np.bincount(labels), 0.0 if inside else alpha)
    new_labels = rng.choice(len(weights), size=n_new, p=weights / weights.sum())
    parameters = [kind.parameters(rng) for _ in weights]
    both = np.concatenate([labels, new_labels])
    X = np.vstack([kind.rows(parameters[label], 1, rng) for label in both])
    prior = LEARNED if learned else FIXED
    return World(kind, prior, alpha, labels, X[:n_rows], new_labels, X[n_rows:])
