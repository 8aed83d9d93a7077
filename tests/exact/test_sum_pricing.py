"""Pricing of counts and bits against all subsets."""

from __future__ import annotations

import numpy as np
import pytest

import enumeration
from dpsearch import families, priors
from dpsearch._clock import clock
from dpsearch.exact import certify, proof
from dpsearch.exact.assumptions import statistic_of
from dpsearch.exact.statistic_pricing import StatisticPricer
from dpsearch.exact.subset_pricing import SubsetPricer
from dpsearch.exact.sum_pricing import SumPricer
from dpsearch.problem import Problem
from models import DRAWS

NAMES = ["bernoulli", "categorical", "poisson", "multinomial"]
PRIORS = [priors.DirichletProcess(1.0), priors.PitmanYor(0.7, 0.6)]


def pricer_for(problem, lam):
    statistic = statistic_of(problem, np.zeros(problem.n_items, np.int64))
    return proof.pricer_for(problem, statistic, lam)


def structureless(name, rng, n):
    """Return points without clusters, some of them equal."""
    width = int(rng.integers(1, 5))
    if name == "bernoulli":
        family = families.Bernoulli(rng.uniform(0.05, 3.0), rng.uniform(0.05, 3.0))
        return family, (rng.random((n, width)) < 0.5).astype(float)
    if name == "categorical":
        levels = rng.integers(1, 5, size=width)
        family = families.Categorical(rng.uniform(0.05, 3.0, width), levels)
        return family, np.floor(rng.random((n, width)) * levels)
    X = rng.poisson(rng.choice([0.3, 2.0, 20.0]), size=(n, width + 1)).astype(float)
    if name == "poisson":
        return families.Poisson(rng.uniform(0.1, 5.0), rng.uniform(0.01, 3.0, width + 1)), X
    return families.Multinomial(rng.uniform(0.05, 3.0, width + 1)), X


class Subsets:
    """All sets of a small problem with their weights."""

    def __init__(self, pricer):
        n = pricer.n
        bits = (np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1
        self.members = bits.astype(float)
        self.sets = [tuple(np.flatnonzero(row)) for row in bits]
        self.weights = np.array([pricer.log_weight(np.array(s)) for s in self.sets])
        self.alone = self.weights[(1 << np.arange(n)) - 1]

    def excess(self, y):
        return self.weights - self.members @ y

    def prices(self, rng, kind):
        """Return prices that are random, too high, or nearly pay for every set."""
        n = len(self.alone)
        y = rng.normal(-1.0, 1.0, n) * rng.uniform(0.1, 3.0) + self.alone * rng.random()
        if kind == 1:
            return self.alone + rng.exponential(1.0, n)
        for _ in range(300 if kind == 2 else 0):
            excess = self.excess(y)
            worst = excess.argmax()
            if excess[worst] <= 1e-3:
                break
            y = y + self.members[worst] * excess[worst] / self.members[worst].sum()
        return y


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_pricing_agrees_with_all_subsets(name, prior):
    rng = np.random.default_rng([len(name), PRIORS.index(prior)])
    for trial in range(30):
        n = 10 if trial == 0 else int(rng.integers(1, 9))
        family, X = DRAWS[name](rng, n) if trial % 2 else structureless(name, rng, n)
        problem = Problem(X, family, prior)
        pricer = pricer_for(problem, rng.normal())
        assert isinstance(pricer, SumPricer)
        subsets = Subsets(pricer)
        for kind in range(3):
            y = subsets.prices(rng, kind)
            excess = subsets.excess(y)
            threshold = rng.choice([1e-9, 1.0, -1.0])
            priced = pricer.price(y, threshold=threshold, max_columns=40)
            assert priced.complete
            assert excess.max() <= priced.bound <= max(threshold, excess.max()) + 1e-9
            values = [pricer.log_weight(c) - y[c].sum() for c in priced.columns]
            assert (np.diff(values) <= 1e-9).all()
            assert len({tuple(c) for c in priced.columns}) == len(priced.columns)
            if excess.max() > threshold + 1e-9:
                assert values[0] == pytest.approx(excess.max(), abs=1e-9)
                assert min(values) > threshold - 1e-9

            slack = rng.uniform(0.0, 4.0)
            columns = pricer.columns_within(y, slack, limit=2000)
            listed = [tuple(c) for c in columns]
            assert len(set(listed)) == len(listed)
            wanted = {s for s, v in zip(subsets.sets, excess, strict=True) if v >= -slack}
            assert set(listed) == wanted
            if len(wanted) > 1:
                assert pricer.columns_within(y, slack, limit=len(wanted) - 1) is None

            raised = pricer.raise_prices(y, threshold=1e-9, max_columns=10_000)
            assert raised.complete
            assert (raised.y >= y).all()
            assert subsets.excess(raised.y).max() <= raised.bound <= 1e-6
            assert {tuple(c) for c in raised.columns} <= set(subsets.sets)


@pytest.mark.parametrize("name", NAMES)
def test_out_of_time_the_bound_is_still_valid(name, monkeypatch):
    monkeypatch.setattr("dpsearch.exact.sum_pricing._WORK", 1)
    rng = np.random.default_rng(len(name))
    stopped = shared = 0
    for _ in range(10):
        family, X = structureless(name, rng, 8)
        pricer = pricer_for(Problem(X, family, PRIORS[0]), 0.0)
        subsets = Subsets(pricer)
        y = subsets.prices(rng, 2)
        late = clock()
        priced = pricer.price(y, threshold=1e-9, max_columns=5, deadline=late)
        stopped += not priced.complete
        assert priced.bound >= subsets.excess(y).max()
        raised = pricer.raise_prices(y, threshold=1e-9, max_columns=5, deadline=late)
        assert raised.bound >= subsets.excess(raised.y).max()
        assert pricer.columns_within(y, 1.0, limit=2000, deadline=late) is None
        # Stopped at the first set: prices must pay for what was not looked at.
        short = subsets.alone + 0.01
        raised = pricer.raise_prices(short, threshold=1e-9, max_columns=0)
        shared += not raised.complete
        assert subsets.excess(raised.y).max() <= raised.bound <= 1e-6
    assert stopped == 10
    assert shared > 5


def test_prices_by_nearest_neighbours_pay_for_every_subset():
    rng = np.random.default_rng(7)
    for trial in range(40):
        name, n = ("bernoulli", "categorical")[trial % 2], int(rng.integers(1, 9))
        family, X = structureless(name, rng, n)
        if name == "bernoulli":  # another prior for each column
            prior = rng.uniform(0.05, 3.0, size=(2, X.shape[1]))
            family = families.Bernoulli(*prior)
        pricer = pricer_for(Problem(X, family, PRIORS[trial % 2]), rng.normal())
        y, late = pricer.quick(), pricer.quick(deadline=clock() - 1.0)
        excess = Subsets(pricer).excess(y)
        assert excess.max() <= 0.0
        assert excess.max() > -20.0
        assert (late >= y).all()


def test_many_columns_have_a_better_bound_than_the_ceiling():
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=(3, 12))[rng.integers(3, size=60)]
    X = np.where(rng.random(groups.shape) < 0.2, 1 - groups, groups).astype(float)
    problem = Problem(X, families.Bernoulli(0.5, 0.5), PRIORS[0])
    found = certify(problem, np.zeros(60, np.int64), time_limit=0.0)
    assert found.method == "quick"
    assert found.verify()
    ceiling = proof.by_loose_prices(problem).upper
    assert found.upper_bound - found.lower_bound < 0.6 * (ceiling - found.lower_bound)


@pytest.mark.parametrize("name", NAMES)
def test_certificates_of_counts_agree_with_enumeration(name):
    rng = np.random.default_rng([3, len(name)])
    for trial in range(12):
        n = int(rng.integers(2, 8))
        family, X = DRAWS[name](rng, n) if trial % 2 else structureless(name, rng, n)
        bad = rng.integers(3, size=n)
        certificate = certify(X, bad, family, PRIORS[0])
        want = enumeration.best(Problem(X, family, PRIORS[0]))
        assert certificate.upper_bound >= want - 1e-8
        assert certificate.optimal
        assert certificate.lower_bound == pytest.approx(want, abs=1e-7)


def test_first_prices_follow_the_gradient_of_the_marginal():
    """To first order, adding or removing a point changes log H by its price, up to a constant."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        family, X = structureless(name, rng, 1)
        if name == "categorical":
            family = families.Categorical(0.7, 5)
        other = X if name == "bernoulli" else X + 1.0
        many = np.repeat(np.vstack([X, other, X[:, ::-1]]), 400, 0)
        problem = Problem(many, family, PRIORS[0])
        pricer = pricer_for(problem, 0.0)
        fit = pricer.fit(np.zeros(1200, np.int64))
        everyone = np.arange(1200)
        loss = [
            pricer.log_weight(everyone) - pricer.log_weight(np.delete(everyone, i))
            for i in (0, 400, 800)
        ]
        difference = np.array(loss) - fit[[0, 400, 800]]
        assert np.ptp(difference) < 0.02


def test_takes_only_what_it_can():
    bits = np.zeros((4, 2))
    dense = Problem(bits, families.Bernoulli(1.0, 1.0), PRIORS[0])
    assert isinstance(pricer_for(dense, 0.0), SumPricer)
    assert not isinstance(pricer_for(Problem(bits, families.Gaussian(), PRIORS[0]), 0.0), SumPricer)
    huge = Problem(np.full((2, 1), 1e8), families.Poisson(1.0, 1.0), PRIORS[0])
    assert pricer_for(huge, 0.0) is None
    diagonal = Problem(bits, families.DiagonalGaussian(), PRIORS[0])
    assert isinstance(pricer_for(diagonal, 0.0), StatisticPricer)
    full = Problem(bits, families.FullGaussian(), PRIORS[0])
    assert isinstance(pricer_for(full, 0.0), StatisticPricer)
    few, many = (Problem(np.zeros((n, 3)), families.FullGaussian(), PRIORS[0]) for n in (12, 13))
    assert isinstance(pricer_for(few, 0.0), SubsetPricer)
    assert pricer_for(many, 0.0) is None
