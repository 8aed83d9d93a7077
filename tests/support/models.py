"""Random small problems over all families and priors, for tests against enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpsearch import families, priors
from dpsearch.families import Family

PRODUCT_PRIORS = [
    priors.DirichletProcess(1.0),
    priors.DirichletProcess(priors.Gamma(1.0, 0.5)),
    priors.PitmanYor(0.7, 0.4),
]
ALL_PRIORS = [*PRODUCT_PRIORS, priors.AntoniakCounts(1.0)]

Draw = Callable[[np.random.Generator, int], tuple[Family, np.ndarray]]


def _scale(rng: np.random.Generator) -> float:
    """Between tight clusters and none."""
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
    """A family and data with a third of the values missing, one row without any."""
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
