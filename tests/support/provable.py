"""Small problems of every kind that pricing over statistics can prove."""

from __future__ import annotations

import numpy as np

from dpsearch import families, priors
from dpsearch.problem import Problem

PRIORS = [priors.DirichletProcess(1.0), priors.DirichletProcess(), priors.PitmanYor(0.7, 0.4)]


def numbers(rng, n, width):
    """Draw numbers; half of the sets have clusters, half have none."""
    X = rng.normal(size=(n, width)) * rng.choice([0.3, 1.0, 3.0])
    return X + 4.0 * rng.integers(3, size=(n, 1)) if rng.random() < 0.5 else X


def diagonal(rng):
    return families.DiagonalGaussian(
        rng.normal(), rng.uniform(0.01, 1.0), rng.uniform(0.6, 5.0), rng.uniform(0.05, 2.0)
    )


def column(rng, n):
    return diagonal(rng), numbers(rng, n, 1)


def columns(rng, n):
    return diagonal(rng), numbers(rng, n, 2)


def gaps(rng, n):
    X = numbers(rng, n, 2)
    X[rng.random((n, 2)) < 0.3] = np.nan
    return diagonal(rng), X


def known(rng, n):
    return families.Gaussian(0.0, rng.uniform(1.0, 20.0), 1.0), numbers(rng, n, 2)


def one_matrix(rng, n):
    return families.FullGaussian(0.0, 0.1, 3.0, np.eye(1)), numbers(rng, n, 1)


def matrix(rng, n):
    scale = np.array([[1.0, 0.3], [0.3, 0.5]]) * rng.uniform(0.1, 2.0)
    slope = np.array([[1.0, rng.normal()], [0.0, 0.3]])
    return families.FullGaussian(0.0, 0.1, 3.5, scale), numbers(rng, n, 2) @ slope


def categories(rng, n):
    return families.Categorical(rng.uniform(0.1, 2.0), 3), rng.integers(3, size=(n, 2)) * 1.0


def bits(rng, n):
    return families.Bernoulli(rng.uniform(0.1, 2.0), 0.5), rng.integers(2, size=(n, 3)) * 1.0


def counts(rng, n):
    return families.Poisson(rng.uniform(0.2, 3.0), 0.3), rng.poisson(3.0, size=(n, 2)) * 1.0


def words(rng, n):
    return families.Multinomial(rng.uniform(0.1, 2.0)), rng.integers(4, size=(n, 3)) * 1.0


def mixed(rng, n):
    family = families.Product([(diagonal(rng), [0]), (families.Categorical(0.5, 3), [1])])
    return family, np.column_stack([numbers(rng, n, 1), rng.integers(3, size=n)])


KINDS = [
    column, columns, gaps, known, one_matrix, matrix, categories, bits, counts, words,
    mixed,
]  # fmt: skip


def problem_of(make, seed, largest):
    rng = np.random.default_rng([seed, KINDS.index(make)])
    family, X = make(rng, int(rng.integers(2, largest + 1)))
    return rng, Problem(X, family, PRIORS[seed % len(PRIORS)])
