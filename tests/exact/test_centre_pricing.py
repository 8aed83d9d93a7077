"""Pricing of normal points against all subsets of a few points."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsearch import datasets, families, priors
from dpsearch._clock import clock
from dpsearch.exact.assumptions import statistic_of
from dpsearch.exact.centre_pricing import CentrePricer
from dpsearch.exact.pricing import NO_TRIPLES
from dpsearch.problem import Problem
from enumeration import seeds

PRIORS = [
    priors.DirichletProcess(0.3),
    priors.DirichletProcess(priors.Gamma(1.0, 0.5)),
    priors.PitmanYor(0.7, 0.4),
]


def pricer_of(problem, lam):
    return CentrePricer(problem, statistic_of(problem, np.arange(problem.n_items)), lam)


def all_sets(n):
    return [np.flatnonzero([mask >> i & 1 for i in range(n)]) for mask in range(1, 1 << n)]


def draw(seed, largest=8):
    """Return a pricer with tolls, and prices that are too low, too high, about right or equal."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, largest + 1)), int(rng.integers(1, 4))
    family = families.Gaussian(
        rng.normal(), rng.uniform(0.3, 20.0, width), rng.uniform(0.05, 2.0, width)
    )
    X = np.exp(rng.uniform(-1.0, 2.0)) * rng.normal(size=(n, width))
    if seed % 5 == 0:  # duplicates and ties
        X = np.round(X)
    problem = Problem(X, family, PRIORS[seed % len(PRIORS)])
    pricer = pricer_of(problem, float(rng.normal()))
    y = problem.alone + np.exp(rng.normal()) * rng.normal(size=n) + rng.normal()
    if seed % 2 and n > 2:
        n_triples = int(rng.integers(1, 7))
        triples = [np.sort(rng.choice(n, 3, replace=False)) for _ in range(n_triples)]
        pricer = pricer.with_triples(np.array(triples))
        y = np.append(y, rng.exponential(np.exp(rng.normal()), n_triples))
    return rng, pricer, y


def values(pricer, y):
    n, out = pricer.n, {}
    for members in all_sets(n):
        tolls = [
            toll for three, toll in zip(pricer.triples, y[n:], strict=True)
            if len(set(three) & set(members)) >= 2
        ]  # fmt: skip
        out[tuple(members)] = pricer.log_weight(members) - y[members].sum() - sum(tolls)
    return out


def check_price(pricer, y):
    every = values(pricer, y)
    largest = max(every.values())
    priced = pricer.price(y, threshold=-1e9, max_columns=5)
    assert priced.complete
    assert largest - 1e-10 <= priced.bound <= largest + 1e-8
    assert every[tuple(priced.columns[0])] == pytest.approx(largest, abs=1e-8)


@pytest.mark.parametrize("seed", seeds(range(60), 20))
def test_the_largest_violation_is_that_of_all_subsets(seed):
    _, pricer, y = draw(seed)
    check_price(pricer, y)


@pytest.mark.parametrize("seed", range(3))
def test_ten_points(seed):
    _, pricer, y = draw(1000 + seed, largest=10)
    check_price(pricer, y)


@pytest.mark.parametrize("seed", range(60, 90))
def test_sets_above_a_threshold_are_found_and_nothing_is_above_the_bound(seed):
    rng, pricer, y = draw(seed)
    every = values(pricer, y)
    largest = max(every.values())
    threshold = largest + rng.normal()
    priced = pricer.price(y, threshold=threshold, max_columns=100)
    assert priced.bound >= largest - 1e-10
    assert priced.bound <= max(threshold, largest) + 1e-8
    assert bool(priced.columns) == (largest > threshold)
    for members in priced.columns:
        assert every[tuple(members)] > threshold - 1e-10


@pytest.mark.parametrize("seed", seeds(range(90, 130), 20))
def test_raised_prices_pay_for_every_subset(seed):
    _, pricer, y = draw(seed)
    raised = pricer.raise_prices(y, threshold=1e-7, max_columns=10**6)
    assert raised.complete
    assert (raised.y >= y).all()
    assert max(values(pricer, raised.y).values()) <= raised.bound
    before = values(pricer, y)
    assert all(before[tuple(members)] > 0.0 for members in raised.columns)


@pytest.mark.parametrize("seed", seeds(range(130, 190), 20))
def test_all_sets_within_a_slack(seed):
    rng, pricer, y = draw(seed)
    every = values(pricer, y)
    slack = max(2.0 * rng.exponential() - max(every.values()), 0.1)
    found = pricer.columns_within(y, slack, limit=10**5)
    assert found is not None
    assert sorted(map(tuple, found)) == sorted(s for s, v in every.items() if v >= -slack)
    if len(found) > 1:
        assert pricer.columns_within(y, slack, limit=len(found) - 1) is None


def test_a_bound_made_too_small_is_caught(monkeypatch):
    """If every box's bound is half a nat too low, the comparison with all subsets must fail."""
    monkeypatch.setattr(CentrePricer, "rounding", lambda self, y: -0.5)
    caught = 0
    for seed in range(60):
        _, pricer, y = draw(seed)
        try:
            check_price(pricer, y)
        except AssertionError:
            caught += 1
    assert caught > 10


def test_far_from_the_prior_mean():
    X = 1e5 + np.random.default_rng(0).normal(size=(8, 2))
    problem = Problem(X, families.Gaussian(0.0, 1e10, 1.0), priors.DirichletProcess(1.0))
    pricer = pricer_of(problem, 0.0)
    y = problem.alone + 3.0
    largest = max(values(pricer, y).values())
    priced = pricer.price(y, threshold=-1e9, max_columns=1)
    assert priced.bound == pytest.approx(largest, abs=1e-6)


def test_out_of_time_it_still_has_a_bound():
    X = datasets.dirichlet_process_draw(2000, 8, rng=0).X
    problem = Problem(X, families.Gaussian(0.0, 10.0, 1.0), priors.DirichletProcess(1.0))
    pricer = pricer_of(problem, 0.0)
    priced = pricer.price(problem.alone, threshold=0.0, max_columns=10, deadline=clock())
    assert not priced.complete
    assert math.isfinite(priced.bound)
    everything = np.arange(2000)
    assert priced.bound >= pricer.log_weight(everything) - problem.alone.sum()


@pytest.mark.parametrize("seed", range(200, 230))
def test_prices_by_nearest_neighbours_pay_for_every_subset(seed):
    _, pricer, _ = draw(seed)
    pricer = pricer.with_triples(NO_TRIPLES)
    y = pricer.quick()
    assert max(values(pricer, y).values()) <= 1e-10
    late = pricer.quick(deadline=clock() - 1.0)
    assert (late >= y).all()


@pytest.mark.parametrize("seed", seeds(range(300, 400), 20))
def test_prices_raised_from_shared_out_weights_pay_for_every_subset(seed):
    """Prices are as in a proof: each cluster's weight is shared out among its points."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(4, 9)), int(rng.integers(1, 4))
    X = rng.choice([0.1, 1.0, 3.0]) * rng.normal(size=(n, width))
    family = families.Gaussian(0.0, 10 ** rng.uniform(-2.0, 3.0), 1.0)
    problem = Problem(X, family, priors.DirichletProcess(10 ** rng.uniform(-6.0, 2.0)))
    pricer = pricer_of(problem, math.log(problem.prior.alpha))
    for mode in range(6):
        labels = np.unique(rng.integers(0, rng.integers(1, n + 1), size=n), return_inverse=True)[1]
        y = pricer.fit(labels)
        if mode % 3 == 1:
            y = y + rng.choice([0.3, 3.0]) * rng.normal(size=n)
        if mode % 3 == 2:
            y = rng.choice([1.0, 5.0, 20.0]) * rng.normal(size=n)
        for k in range(labels.max() + 1):
            members = np.flatnonzero(labels == k)
            y[members] += (pricer.log_weight(members) - y[members].sum()) / len(members)
        raised = pricer.raise_prices(y, threshold=1e-8, max_columns=10**6)
        assert max(values(pricer, raised.y).values()) <= raised.bound + 1e-9


def test_tolls_are_priced_as_in_all_subsets():
    """Prices are low, so that some sets contain all points of a triple."""
    for seed in range(1, 700, 2):
        _, pricer, y = draw(seed)
        y[: pricer.n] -= 1.0
        every = values(pricer, y)
        largest = max(every.values())
        slack = max(1.0 - largest, 0.1)
        assert pricer.price(y, threshold=-1e9, max_columns=1).bound >= largest - 1e-9
        found = pricer.columns_within(y, slack, limit=10**5)
        assert found is not None
        assert len(found) == sum(value >= -slack for value in every.values())
