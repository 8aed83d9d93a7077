"""Random small problems over all families and priors, for tests against enumeration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from dpsearch import families, priors
from dpsearch.families import Family


@dataclass(frozen=True)
class FiniteMixture(priors.Prior):
    """A mixture of m components, m − 1 ~ Poisson(more), with Dirichlet(γ) weights.

    It has the two tables and nothing else (Miller & Harrison 2018).
    """

    more: float = 3.0
    weight: float = 1.0

    name: ClassVar[str] = "finite_mixture"
    consistent: ClassVar[bool] = True

    def log_v(self, n_points, most_clusters=None):
        most = n_points if most_clusters is None else most_clusters
        m = np.arange(1, most + 200)
        log_p = (m - 1) * np.log(self.more) - self.more - gammaln(m)
        log_p += gammaln(self.weight * m) - gammaln(self.weight * m + n_points) + gammaln(m + 1.0)
        clusters = np.arange(1, most + 1)[:, None]
        terms = np.where(m >= clusters, log_p - gammaln(np.maximum(m - clusters, 0) + 1.0), -np.inf)
        return np.append(0.0, logsumexp(terms, axis=1))

    def log_w(self, sizes):
        values = gammaln(sizes + self.weight) - gammaln(self.weight)
        return np.where(np.asarray(sizes) > 0, values, 0.0)


@dataclass(frozen=True)
class FewComponents(FiniteMixture):
    """A mixture of few components, so that V is 0 for larger numbers of clusters."""

    more: float = 3.0

    name: ClassVar[str] = "few_components"

    def log_v(self, n_points, most_clusters=None):
        most = n_points if most_clusters is None else most_clusters
        clusters, m = np.arange(1, most + 1), self.more
        left = gammaln(np.maximum(m - clusters, 0) + 1.0)
        out = gammaln(m + 1.0) - left + gammaln(self.weight * m)
        out -= gammaln(self.weight * m + n_points)
        return np.append(0.0, np.where(clusters <= m, out, -np.inf))


@dataclass(frozen=True)
class EvenSizes(priors.Prior):
    """p(c) ∝ Π 1/n_k!: clusters of even sizes, so that log W is concave."""

    name: ClassVar[str] = "even_sizes"

    def log_v(self, n_points, most_clusters=None):
        most = n_points if most_clusters is None else most_clusters
        total = [0.0]  # log Σ over partitions of n points of Π W, by the cluster of the last point
        for n in range(n_points):
            j = np.arange(n + 1)
            choices = gammaln(n + 1.0) - gammaln(j + 1.0) - gammaln(n - j + 1.0)
            total.append(float(logsumexp(choices - gammaln(j + 2.0) + np.array(total)[n - j])))
        return np.append(0.0, np.full(most, -total[n_points]))

    def log_w(self, sizes):
        return -gammaln(np.asarray(sizes) + 1.0)


PRODUCT_PRIORS = [
    priors.DirichletProcess(1.0),
    priors.DirichletProcess(priors.Gamma(1.0, 0.5)),
    priors.PitmanYor(0.7, 0.4),
]
ALL_PRIORS = [*PRODUCT_PRIORS, priors.AntoniakCounts(1.0)]

Draw = Callable[[np.random.Generator, int], tuple[Family, np.ndarray]]


def _scale(rng: np.random.Generator) -> float:
    """Draw a scale, from tight clusters to none."""
    return float(np.exp(rng.uniform(-1.5, 2.0)))


def gaussian(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 4))
    noise = float(np.exp(rng.uniform(-4.0, 1.0)))
    family = families.Gaussian(rng.normal(), _scale(rng) ** 2, noise)
    if rng.random() < 0.3:
        family = families.Gaussian(0.0, rng.uniform(0.5, 9.0, width), rng.uniform(0.05, 2.0, width))
    return family, _scale(rng) * rng.normal(size=(n, width))


def diagonal_gaussian(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 4))
    family = families.DiagonalGaussian(
        prior_strength=_scale(rng), shape=rng.uniform(0.6, 3.0), scale=_scale(rng) ** 2
    )
    return family, _scale(rng) * rng.normal(size=(n, width))


def full_gaussian(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 4))
    root = rng.normal(size=(width, width + 2))
    family = families.FullGaussian(
        prior_strength=_scale(rng), degrees=width + rng.uniform(0.0, 4.0), scale=root @ root.T
    )
    return family, _scale(rng) * rng.normal(size=(n, width)) @ rng.normal(size=(width, width))


def projected_gaussian(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    inner, Z = full_gaussian(rng, n)
    width = Z.shape[1]
    components = rng.normal(size=(width, width + 2))
    X = rng.normal() + Z @ np.linalg.pinv(components).T + rng.normal(size=(n, width + 2))
    parameters = {name: getattr(inner, name) for name in ("prior_strength", "degrees", "scale")}
    return families.ProjectedGaussian(components, X.mean(axis=0), **parameters), X


def multinomial(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(2, 5))
    concentration = _scale(rng) if rng.random() < 0.5 else rng.uniform(0.1, 3.0, width)
    means = rng.uniform(0.0, 4.0, size=(2, width))[rng.integers(2, size=n)]
    return families.Multinomial(concentration), rng.poisson(means).astype(float)


def bernoulli(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 6))
    family = families.Bernoulli(_scale(rng), rng.uniform(0.1, 2.0, width))
    chance = rng.beta(0.5, 0.5, size=(2, width))[rng.integers(2, size=n)]
    return family, (rng.random((n, width)) < chance).astype(float)


def poisson(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 4))
    means = rng.gamma(1.0, 4.0, size=(2, width))[rng.integers(2, size=n)]
    return families.Poisson(_scale(rng), _scale(rng)), rng.poisson(means).astype(float)


def categorical(rng: np.random.Generator, n: int) -> tuple[Family, np.ndarray]:
    width = int(rng.integers(1, 5))
    codes = rng.integers(0, 3, size=(2, width))[rng.integers(2, size=n)]
    codes = np.where(rng.random((n, width)) < 0.3, rng.integers(0, 4, size=(n, width)), codes)
    return families.Categorical(_scale(rng), n_levels=(4,) * width), codes.astype(float)


DRAWS: dict[str, Draw] = {
    "gaussian": gaussian,
    "diagonal_gaussian": diagonal_gaussian,
    "full_gaussian": full_gaussian,
    "projected_gaussian": projected_gaussian,
    "multinomial": multinomial,
    "bernoulli": bernoulli,
    "poisson": poisson,
    "categorical": categorical,
}

GAPPED = ["gaussian", "diagonal_gaussian", "bernoulli", "poisson", "categorical"]


def draw_with_gaps(name, n, seed=0):
    """Return a family and data with a third of the values missing, and one row without any."""
    rng = np.random.default_rng([seed, len(name)])
    while True:
        family, X = DRAWS[name](rng, n)
        if X.shape[1] >= 2:
            break
    missing = rng.random(X.shape) < 0.33
    missing[2] = True
    return family, np.where(missing, np.nan, X), X


def mixed(n, seed=0):
    parts, blocks, at = [], [], 0
    for name in GAPPED:
        family, X, _ = draw_with_gaps(name, n, seed)
        parts.append((family, at + np.arange(X.shape[1])))
        blocks.append(X)
        at += X.shape[1]
    return families.Product(parts), np.hstack(blocks)
