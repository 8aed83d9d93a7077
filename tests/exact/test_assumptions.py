"""Wrong declarations of families about log H lead to no wrong proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import enumeration
from dpsearch import certify, families, priors, search
from dpsearch.errors import CapabilityError, ProofError
from dpsearch.exact.assumptions import at_least
from dpsearch.families import Functions, pointer
from dpsearch.families.statistics import (
    BetaCounts,
    DirichletCounts,
    GammaCounts,
    NormalMeans,
)
from dpsearch.prefix_search.search import HEURISTICS
from dpsearch.problem import Problem
from models import DRAWS

DP = priors.DirichletProcess(1.0)


@pointer("update")
def update(params, row, ids, values, weight):
    row[0] += weight
    for d in range(values.shape[0]):
        row[1 + d] += weight * values[d]


@pointer("merge")
def merge(params, row, other, sign):
    for d in range(row.shape[0]):
        row[d] += sign * other[d]


@pointer("score_rows")
def score_rows(params, pool, starts, ids, values, out):
    a, b = params[1], params[2]
    for k in range(starts.shape[0]):
        n = pool[starts[k]]
        out[k] = 0.0
        for d in range(values.shape[0]):
            s, x = pool[starts[k] + 1 + d], values[d]
            out[k] += math.log(a + n) + math.lgamma(b + s + x) - math.lgamma(b + s)
            out[k] += math.lgamma(a + b + n + s) - math.lgamma(a + b + n + s + 1 + x)


@pointer("log_marginal")
def log_marginal(params, row):
    a, b, n = params[1], params[2], row[0]
    out = 0.0
    for d in range(int(params[0])):
        s = row[1 + d]
        out += math.lgamma(a + n) + math.lgamma(b + s) - math.lgamma(a + b + n + s)
        out -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return out


FUNCTIONS = Functions(update, merge, score_rows, log_marginal)


@dataclass(frozen=True)
class Failures(families.Poisson):
    """Geometric counts as a subclass of Poisson; `shape` and `rate` are those of a Beta prior."""

    functions: ClassVar[Functions] = FUNCTIONS

    def width(self, n_features):
        return 1 + n_features

    def parameters(self, n_features, X):
        return np.array([n_features, self.shape, self.rate])

    def encode(self, X):
        return np.asarray(X, dtype=np.float64)

    def log_base(self, X):
        return np.zeros(len(X))


@dataclass(frozen=True)
class NamedGaussian(Failures):
    """A subclass with the name of a family of the package."""

    name: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class Bounded(Failures):
    """A subclass with its own ceiling: no probability is above 1."""

    def log_ceiling(self, X):
        return np.zeros(len(X))


@dataclass(frozen=True)
class Proved(Bounded):
    """It also has a closed form: a column of x is a document of one success and x failures."""

    functions: ClassVar[Functions] = FUNCTIONS
    log_ceiling = Bounded.log_ceiling

    def statistic(self, X):
        if X.shape[1] > 1:
            return None
        return DirichletCounts(
            np.column_stack([np.ones(len(X)), X]), np.array([self.shape, self.rate])
        )


@dataclass(frozen=True)
class Twice(families.Poisson):
    """A class whose functions have other parameters than it declares."""

    def parameters(self, n_features, X):
        return families.Poisson(2.0 * self.shape, self.rate).parameters(n_features, X)


@dataclass(frozen=True)
class Mistaken(Twice):
    """A class that declares what is true only of its parent."""

    statistic = families.Poisson.statistic
    log_ceiling = families.Poisson.log_ceiling


@dataclass(frozen=True)
class Low(Failures):
    def log_ceiling(self, X):
        return np.full(len(X), -0.5)


@dataclass(frozen=True)
class Gaps(Bounded):
    """A closed form of values that are not counts."""

    def statistic(self, X):
        return DirichletCounts(
            np.column_stack([np.full(len(X), 0.5), X]), np.array([self.shape, self.rate])
        )


def tiny(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    X = rng.poisson(rng.choice([1.0, 6.0], size=(n, 1))).astype(float)
    return X, rng.integers(3, size=n), float(rng.uniform(0.3, 3.0)), float(rng.uniform(0.3, 3.0))


def certified(cls, seed, **options):
    """Return the certificate of a tiny set, checked by enumeration; None if it was refused."""
    X, labels, a, b = tiny(seed)
    problem = Problem(X, cls(a, b), DP)
    try:
        certificate = certify(problem, labels, **options)
    except CapabilityError:
        return None
    best = enumeration.best(problem)
    assert certificate.upper_bound >= best - 1e-9
    assert certificate.lower_bound <= best + 1e-9
    if certificate.optimal:
        assert certificate.lower_bound == pytest.approx(best, abs=1e-6)
    assert certificate.verify()
    return certificate


@pytest.mark.parametrize("cls", [Failures, NamedGaussian, Twice, Mistaken, Gaps])
def test_a_family_that_proves_nothing_is_refused(cls):
    for seed in range(25):
        assert certified(cls, seed) is None


def test_a_ceiling_that_is_too_low_is_refused_or_does_no_harm():
    assert sum(certified(Low, seed) is None for seed in range(25)) > 12


def test_a_ceiling_alone_gives_a_valid_bound():
    for seed in range(25):
        assert certified(Bounded, seed, time_limit=0.0).method == "ceiling"
        assert certified(Bounded, seed).optimal  # every set of few points is looked at


def test_a_closed_form_of_a_users_own_family_proves_optimality():
    for seed in range(25):
        certificate = certified(Proved, seed)
        assert certificate.optimal
        assert certificate.method == "line"
        X, labels, a, b = tiny(seed)
        assert certify(X, labels, Proved(a, b), DP, line=False).optimal


def test_a_closed_form_that_disagrees_is_named():
    X, labels, a, b = tiny(0)
    with pytest.raises(CapabilityError, match="poisson family disagrees with its log_marginal"):
        certify(X, labels, Mistaken(a, b), DP)
    with pytest.raises(CapabilityError, match="not counts"):
        certify(X, labels, Gaps(a, b), DP)


def test_a_ceiling_that_is_not_an_upper_bound_is_named():
    X, labels, a, b = tiny(1)
    with pytest.raises(CapabilityError, match="no upper bound"):
        certify(X, labels, Low(a, b), DP)
    with pytest.raises(CapabilityError, match="no upper bound"):
        search(X, Low(a, b), DP, heuristic="trivial", beam_size=None)
    with pytest.raises(CapabilityError, match="ceiling"):
        search(X, Failures(a, b), DP, heuristic="trivial", beam_size=None)


@pytest.mark.parametrize("name", ["gaussian", "poisson", "bernoulli", "multinomial"])
def test_closed_forms_are_those_of_the_families(name):
    kinds = (NormalMeans, GammaCounts, BetaCounts, DirichletCounts)
    rng = np.random.default_rng(3)
    for _ in range(10):
        family, X = DRAWS[name](rng, 12)
        problem = Problem(X, family, DP)
        statistic = problem.model.family.statistic(problem.model.matrix)
        assert isinstance(statistic, kinds)
        labels = np.unique(rng.integers(4, size=12), return_inverse=True)[1]
        pool, sizes = problem.rows(labels)
        width = problem.model.core.width
        own = [
            problem.model.family.variant().log_marginal(
                problem.model.core.params, pool[k * width : (k + 1) * width]
            )
            for k in range(len(sizes))
        ]
        np.testing.assert_allclose(statistic.log_marginals(labels), own, rtol=1e-9, atol=1e-9)


def test_a_bound_below_a_partition_is_an_error(monkeypatch):
    assert at_least(1.0, 2.0, 0.0) == 2.0
    assert at_least(1.0, 1.0 - 1e-12, 1e-11) == 1.0
    with pytest.raises(ProofError, match="report"):
        at_least(1.0, 1.0 - 1e-6, 1e-11)
    with pytest.raises(ProofError):
        at_least(1.0, math.nan, 1e-11)
    X, labels, a, b = tiny(2)
    with monkeypatch.context() as patch:
        patch.setattr(
            "dpsearch.exact.proof.all_loose_prices", lambda problem, lam: [np.full(len(X), -9.0)]
        )
        with pytest.raises(ProofError, match="contradicts"):
            certify(X, labels, Bounded(a, b), DP)

    def too_low(problem, order):
        correct = HEURISTICS["inadmissible"](problem, order)
        return correct._replace(tail=correct.tail - 5.0 * np.arange(len(X), -1.0, -1.0))

    monkeypatch.setitem(HEURISTICS, "trivial", too_low)
    family = families.Poisson(a, b)
    with pytest.raises(ProofError, match="contradicts"):
        search(X, family, DP, heuristic="trivial", beam_size=None, max_states=2)


def test_rows_far_from_the_prior_have_a_bound_all_the_same():
    rng = np.random.default_rng(0)
    for far in (1e3, 1e5, 1e7):
        X = rng.normal(size=(7, 2)) + far
        problem = Problem(X, families.FullGaussian(0.0, 1.0, 4.0, 1.0), DP)
        found = certify(problem, np.zeros(7), time_limit=1.0)
        assert found.upper_bound >= enumeration.best(problem)
