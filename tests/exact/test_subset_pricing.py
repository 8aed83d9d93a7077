"""Pricing of few points under families without terms, against all sets and all partitions."""

from __future__ import annotations

import numpy as np
import pytest

import enumeration
from dpsearch import certify, families, priors
from dpsearch.exact.proof import pricer_for
from dpsearch.exact.subset_pricing import SubsetPricer
from dpsearch.problem import Problem

PRIORS = [priors.DirichletProcess(1.0), priors.DirichletProcess(), priors.PitmanYor(0.7, 0.4)]
SEEDS = enumeration.seeds(range(60), 5)


def numbers(rng, n, width):
    X = rng.gamma(2.0, size=(n, width))
    return X * rng.choice([1.0, 8.0], size=(n, 1)) if rng.random() < 0.5 else X


def positive(rng, n):
    return families.Gamma(), numbers(rng, n, 1)


def tails(rng, n):
    return families.StudentT(), numbers(rng, n, 2)


def counts(rng, n):
    return families.NegativeBinomial(), np.round(numbers(rng, n, 1))


def directions(rng, n):
    X = rng.normal(size=(n, 3)) + 2.0 * rng.integers(2, size=(n, 1))
    return families.VonMisesFisher(), X / np.linalg.norm(X, axis=1, keepdims=True)


def matrix(rng, n):
    return families.FullGaussian(), numbers(rng, n, 3)


def mixed(rng, n):
    family = families.Product([(families.StudentT(), [0]), (families.Categorical(0.5, 3), [1])])
    return family, np.column_stack([numbers(rng, n, 1), rng.integers(3, size=n)])


KINDS = [positive, tails, counts, directions, matrix, mixed]


def problem_of(make, seed, smallest=2):
    rng = np.random.default_rng([seed, KINDS.index(make)])
    family, X = make(rng, int(rng.integers(smallest, 8)))
    return rng, Problem(X, family, PRIORS[seed % len(PRIORS)])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", KINDS)
def test_certificates_against_all_partitions(make, seed):
    _, problem = problem_of(make, seed)
    found, best = certify(problem, np.zeros(problem.n_items)), enumeration.best(problem)
    assert found.lower_bound == pytest.approx(best, abs=1e-9)
    assert best - 1e-10 <= found.upper_bound <= best + 1e-6
    assert found.optimal
    assert found.verify() is True


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", KINDS)
def test_pricing_against_all_sets(make, seed):
    rng, problem = problem_of(make, seed)
    pricer = pricer_for(problem, None, rng.normal())
    assert type(pricer) is SubsetPricer
    n = problem.n_items
    every = [np.flatnonzero(bits) for bits in np.ndindex(*(2,) * n) if any(bits)]
    y = pricer.alone + rng.normal(size=n)

    def above(prices):
        return np.array([pricer.log_weight(members) - prices[members].sum() for members in every])

    true = above(y).max()
    assert pricer.price(y, threshold=true - 1.0, max_columns=3).bound == pytest.approx(true)
    over = pricer.price(y, threshold=true + 1e-6, max_columns=3)
    assert true <= over.bound
    assert not over.columns
    listed = pricer.columns_within(y, 2.0, limit=2000)
    assert len({tuple(members) for members in listed}) == len(listed)
    assert len(listed) == (above(y) >= -2.0).sum()
    threshold = rng.choice([1e-6, 0.5])
    raised = pricer.raise_prices(y, threshold=threshold, max_columns=1000)
    assert raised.complete
    assert (raised.y >= y).all()
    assert above(raised.y).max() <= raised.bound <= 1.1 * threshold


def test_more_points_have_the_ceiling():
    X = np.random.default_rng(0).gamma(2.0, size=(13, 1))
    found = certify(X, np.zeros(13), families.Gamma(), PRIORS[0])
    assert found.method == "ceiling"
    fewer = certify(X[:12], np.zeros(12), families.Gamma(), PRIORS[0])
    assert fewer.optimal
    assert fewer.verify() is True
