"""Adversarial small data sets under every family that `certify` takes, and all their partitions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dpsearch import families, priors
from dpsearch.families import Family
from dpsearch.items import Items, log_marginals, rows_of_labels
from dpsearch.partition import all_partitions
from dpsearch.priors import Prior
from dpsearch.problem import Problem

Rng = np.random.Generator
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
_HOW_OFTEN = (0.02, 0.08, 0.15, 0.2, 0.2, 0.2, 0.12, 0.03)


def draw(rng: Rng) -> tuple[Any, Family, Prior]:
    """Return data with ties, copies and extreme scales, a family and a prior with an extreme α."""
    n = int(rng.choice(_SIZES, p=_HOW_OFTEN))
    family, X = _DRAWS[int(rng.integers(len(_DRAWS)))](rng, n)
    if rng.random() < 0.3:  # copies of some rows
        X = X[rng.integers(max(1, n // 2), size=n)]
    return X, family, _prior(rng)


def without_structure(rng: Rng) -> Problem:
    """Return a cloud of bits or of wide rows, for which prices alone may leave a gap."""
    n = int(rng.integers(9, 13))
    if rng.random() < 0.2:
        return Problem(rng.normal(size=(n, 5)), families.Gaussian(0.0, 4.0, 1.0), _prior(rng))
    X = (rng.random((n, 5)) < 0.5).astype(float)
    return Problem(X, families.Bernoulli(0.5, 0.5), priors.PitmanYor(0.7, 0.4))


def _power(rng: Rng, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def _prior(rng: Rng) -> Prior:
    kind = rng.integers(6)
    if kind < 2:
        return priors.DirichletProcess(_power(rng, -1.0, 1.0))
    if kind == 2:
        return priors.DirichletProcess(_power(rng, -30.0, 30.0))
    if kind == 3:
        return priors.DirichletProcess(priors.Gamma(_power(rng, -2.0, 2.0), _power(rng, -2.0, 2.0)))
    discount = float(rng.choice([0.01, 0.5, 0.99, rng.random()]))
    return priors.PitmanYor(_power(rng, -3.0, 3.0) - 0.9 * discount, discount)


def _real(rng: Rng, n: int, width: int) -> Any:
    """Draw clustered, tied, repeated, distant, large or tiny numbers."""
    places = rng.integers(3, size=n)
    X = rng.normal(size=(n, width)) + 6.0 * rng.random() * places[:, None]
    if rng.random() < 0.3:
        X = np.round(X)
    if rng.random() < 0.1:
        X[:, 0] = X[0, 0]
    if rng.random() < 0.3:
        X *= _power(rng, -6.0, 6.0)
    if rng.random() < 0.2:
        X += _power(rng, 0.0, 6.0)
    return X


def _gaussian(rng: Rng, n: int) -> tuple[Family, Any]:
    width = int(rng.choice([1, 1, 2, 2, 3, 5]))
    X = _real(rng, n, width)
    unit = X.std() if rng.random() < 0.7 and X.std() > 0.0 else 1.0
    noise, spread = (unit * unit * _power(rng, -3.0, 1.0) for _ in range(2))
    mean = float(X.mean()) if rng.random() < 0.5 else 0.0
    if rng.random() < 0.3:
        by_column = rng.uniform(0.2, 5.0, size=(2, width))
        return families.Gaussian(mean, spread * by_column[0], noise * by_column[1]), X
    return families.Gaussian(mean, 10.0 * spread, noise), X


def _diagonal(rng: Rng, n: int) -> tuple[Family, Any]:
    X = _real(rng, n, int(rng.integers(1, 4)))
    scale = float(X.var()) + 1e-3
    return families.DiagonalGaussian(
        prior_strength=_power(rng, -2.0, 1.0), shape=rng.uniform(0.6, 3.0), scale=scale
    ), X


def _full(rng: Rng, n: int) -> tuple[Family, Any]:
    width = int(rng.integers(1, 4))
    X = _real(rng, n, width)
    root = rng.normal(size=(width, width + 2)) * (float(X.std()) + 1e-2)
    return families.FullGaussian(
        prior_strength=_power(rng, -2.0, 1.0), degrees=width + rng.random() * 4.0,
        scale=root @ root.T,
    ), X  # fmt: skip


def _counts(rng: Rng, n: int, width: int) -> Any:
    means = _power(rng, -1.0, 3.0 if rng.random() < 0.2 else 1.0)
    return rng.poisson(means * rng.random((3, width))[rng.integers(3, size=n)]).astype(float)


def _poisson(rng: Rng, n: int) -> tuple[Family, Any]:
    X = _counts(rng, n, int(rng.integers(1, 4)))
    return families.Poisson(_power(rng, -2.0, 2.0), _power(rng, -2.0, 2.0)), X


def _multinomial(rng: Rng, n: int) -> tuple[Family, Any]:
    X = _counts(rng, n, int(rng.integers(2, 5)))
    return families.Multinomial(_power(rng, -2.0, 2.0)), X


def _bernoulli(rng: Rng, n: int) -> tuple[Family, Any]:
    width = int(rng.integers(1, 6))
    X = (
        rng.random((n, width)) < rng.beta(0.5, 0.5, size=(3, width))[rng.integers(3, size=n)]
    ) * 1.0
    return families.Bernoulli(_power(rng, -2.0, 1.0), _power(rng, -2.0, 1.0)), X


def _categorical(rng: Rng, n: int) -> tuple[Family, Any]:
    width = int(rng.integers(1, 4))
    X = rng.integers(0, 3, size=(n, width)).astype(float)
    return families.Categorical(_power(rng, -2.0, 1.0), n_levels=(3,) * width), X


def _product(rng: Rng, n: int) -> tuple[Family, Any]:
    (one, X), (other, Y) = _gaussian(rng, n), _categorical(rng, n)
    parts = [
        (one, np.arange(X.shape[1])),
        (other, X.shape[1] + np.arange(Y.shape[1])),
    ]
    return families.Product(parts), np.hstack([X, Y])


# Those on which more than a ceiling can be proved come more often.
_DRAWS = (
    _gaussian, _gaussian, _gaussian, _gaussian, _poisson, _poisson, _bernoulli, _bernoulli,
    _multinomial, _multinomial, _diagonal, _full, _categorical, _product,
)  # fmt: skip


@cache
def _partitions(n: int) -> tuple[Any, Any]:
    """Return the members of every set of points, by bits, and the sets of every partition."""
    masks = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(bool)
    labels = np.array(list(all_partitions(n)))
    blocks = np.zeros_like(labels)
    for k in range(n):
        blocks[:, k] = (labels == k) @ (1 << np.arange(n))
    return masks, blocks


def log_joints(problem: Problem) -> Any:
    """Return the log joint of every partition, from the weights of all 2ⁿ − 1 sets."""
    n, tables = problem.n_items, problem.tables
    _, blocks = _partitions(n)
    weights = np.append(0.0, set_weights(problem))
    value = weights[blocks].sum(axis=1)
    return value + tables.log_v[(blocks > 0).sum(axis=1)] + problem.log_base


def set_weights(problem: Problem) -> Any:
    """Return log W + log H of the sets 1 … 2ⁿ − 1, by their bits."""
    masks, _ = _partitions(problem.n_items)
    sets, members = np.nonzero(masks[1:])
    core = problem.model.core
    pool, sizes = rows_of_labels(core, _taken(problem.items, members), sets, len(masks) - 1)
    return log_marginals(core, pool, len(sizes)) + problem.tables.log_w[sizes]


def _taken(items: Items, rows: Any) -> Items:
    """Return items that repeat some rows."""
    slices = [slice(items.indptr[i], items.indptr[i + 1]) for i in rows]
    lengths = [part.stop - part.start for part in slices]
    return Items(
        values=np.concatenate([items.values[part] for part in slices]),
        ids=np.concatenate([items.ids[part] for part in slices]) if len(items.ids) else items.ids,
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        sizes=items.sizes[rows],
        blocks=items.blocks,
    )


def members_of(problem: Problem) -> Any:
    """Return which points the sets 1 … 2ⁿ − 1 have."""
    return _partitions(problem.n_items)[0][1:]
