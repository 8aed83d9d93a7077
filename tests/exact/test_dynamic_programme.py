"""The one-dimensional dynamic programme against enumeration and against slow programmes."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import enumeration
from dpsearch import families, priors
from dpsearch.exact import dynamic_programme, line
from dpsearch.exact.assumptions import statistic_of
from dpsearch.exact.proof import Bounded
from dpsearch.exact.slopes import slope
from dpsearch.items import log_marginals
from dpsearch.problem import Problem
from models import PRODUCT_PRIORS

DP = priors.DirichletProcess(1.0)


def closed_form(problem):
    return statistic_of(problem, np.arange(problem.n_items))


def interval_optimum(problem, deadline=np.inf):
    return dynamic_programme.interval_optimum(problem, closed_form(problem), deadline)


def verify_potentials(problem, order, entries):
    return max(dynamic_programme.verify_potentials(problem, closed_form(problem), order, entries))


def value_and_bound(problem, found):
    return problem.log_joint(found.labels), max(entry.upper for entry in found.entries)


def scale(rng):
    return float(np.exp(rng.uniform(-1.5, 2.0)))


def gaussian(rng, n):
    X = scale(rng) * rng.normal(size=(n, 1)) * rng.choice([0.2, 1.0, 5.0])
    if rng.random() < 0.5:  # with structure
        X += scale(rng) * 4.0 * rng.integers(3, size=(n, 1))
    if rng.random() < 0.3:
        X = np.round(X)
    family = families.Gaussian(rng.normal(), scale(rng) ** 2, np.exp(rng.uniform(-4.0, 1.0)))
    return family, X + rng.choice([0.0, 0.0, 1e5])


def poisson(rng, n):
    means = rng.gamma(1.0, 4.0, size=3)[rng.integers(3, size=n)]
    return families.Poisson(scale(rng), scale(rng)), rng.poisson(means)[:, None].astype(float)


def bernoulli(rng, n):
    X = (rng.random((n, 1)) < rng.random()).astype(float)
    return families.Bernoulli(scale(rng), rng.uniform(0.05, 2.0)), X


def multinomial(rng, n):
    """Return documents on a line: of the same length, or along another direction."""
    step = np.array([[1, -1], [1, -1], [1, 1], [2, -1], [0, 1], [1, 3]])[rng.integers(6)]
    X = rng.poisson(rng.choice([0.5, 3.0, 9.0], size=n))[:, None] * step
    X = X - np.minimum(X.min(axis=0), 0) + rng.integers(0, 3, size=2)
    return families.Multinomial(rng.uniform(0.05, 3.0, 2)), X.astype(float)


DRAWS = {
    "gaussian": gaussian,
    "poisson": poisson,
    "bernoulli": bernoulli,
    "multinomial": multinomial,
}


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_finds_and_proves_the_enumerated_optimum(name, prior):
    rng = np.random.default_rng([len(name), PRODUCT_PRIORS.index(prior)])
    for trial in range(40):
        family, X = DRAWS[name](rng, 9 if trial == 0 else int(rng.integers(1, 8)))
        problem = Problem(X, family, prior)
        want = enumeration.best(problem)
        found = interval_optimum(problem)
        assert found is not None
        proved = verify_potentials(problem, found.order, found.entries)
        for value in (*value_and_bound(problem, found), proved):
            assert value == pytest.approx(want, rel=1e-9, abs=1e-8)
        assert proved >= want - 1e-10 * abs(want)


def slow_layers(problem, order):
    """Return the best Σ (log W + log H) of K contiguous clusters for every K, by the family."""
    n, core = problem.n_items, problem.model.core
    weight = np.full((n, n + 1), -np.inf)
    for i in range(n):
        for j in range(i + 1, n + 1):
            labels = np.ones(n, np.int64)
            labels[order[i:j]] = 0
            pool, sizes = problem.model.rows(problem.items, labels, 2)
            weight[i, j] = log_marginals(core, pool, 1)[0] + problem.tables.log_w[sizes[0]]
    best = np.full((n + 1, n + 1), -np.inf)
    best[0, 0] = 0.0
    for k in range(1, n + 1):
        for j in range(k, n + 1):
            best[k, j] = (best[k - 1, :j] + weight[:j, j]).max()
    return best[:, n]


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_agrees_with_a_programme_over_numbers_of_clusters(name, prior):
    rng = np.random.default_rng([7, len(name), PRODUCT_PRIORS.index(prior)])
    for _ in range(2):
        family, X = DRAWS[name](rng, 40)
        problem = Problem(X, family, prior)
        found = interval_optimum(problem)
        layers = slow_layers(problem, found.order)
        want = (layers + problem.tables.log_v)[1:].max() + problem.log_base
        for value in value_and_bound(problem, found):
            assert value == pytest.approx(want, rel=1e-10, abs=1e-8)


def hard_inputs(rng, n):
    wide = families.Gaussian(0.0, 1e6, 1.0)
    share = rng.binomial(30, rng.beta(0.3, 0.3, size=n))
    counts = rng.poisson(np.exp(rng.uniform(0.0, 7.0, size=n)))[:, None].astype(float)
    yield "one cluster", families.Gaussian(0.0, 10.0, 1.0), rng.normal(size=(n, 1))
    yield "all equal", families.Gaussian(0.0, 10.0, 1.0), np.ones((n, 1))
    yield "uniform", families.Gaussian(0.0, 1e3, 1.0), rng.uniform(-60.0, 60.0, size=(n, 1))
    yield "wide", wide, rng.uniform(-1e4, 1e4, size=(n, 1))
    yield "ties", families.Gaussian(0.0, 100.0, 1.0), np.round(6.0 * rng.normal(size=(n, 1)))
    yield "heavy tails", families.Gaussian(0.0, 1e3, 1.0), rng.standard_cauchy(size=(n, 1))
    yield "small prior", families.Gaussian(0.0, 1e-3, 1.0), 3.0 * rng.normal(size=(n, 1))
    mixed = np.concatenate([rng.normal(size=n // 2), rng.uniform(-500.0, 500.0, n - n // 2)])
    yield "cluster and spread", families.Gaussian(0.0, 1e4, 1.0), mixed[:, None]
    yield "counts", families.Poisson(0.5, 0.01), counts
    yield "bits", families.Bernoulli(0.1, 0.3), (rng.random((n, 1)) < 0.3).astype(float)
    yield "shares", families.Multinomial(0.7), np.column_stack([share, 30 - share]).astype(float)


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_passing_over_blocks_of_starts_changes_nothing(alpha, monkeypatch):
    monkeypatch.setattr(line, "_LARGEST_TABLE", 20_000)  # so that counts go beyond the tables
    rng = np.random.default_rng(int(100 * alpha))
    for n in (513, 2600):
        for name, family, X in hard_inputs(rng, n):
            problem = Problem(X, family, priors.DirichletProcess(alpha))
            statistic = closed_form(problem)
            ordered = np.sort(line.values_on_line(statistic))
            points = line.line_of(
                statistic, ordered, problem.size_weights(), dynamic_programme._STATED
            )
            lam = slope(problem.tables.log_v, 1, n)
            fast, starts = dynamic_programme._solve(points, lam, True, np.inf)
            slow, _ = dynamic_programme._solve(points, lam, False, np.inf)
            np.testing.assert_allclose(fast, slow, rtol=1e-12, atol=1e-9, err_msg=name)
            assert (starts[1:] < np.arange(1, n + 1)).all()


def test_far_and_wide_data_keep_their_digits():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1e4, 1e4, size=(3000, 1)) + 1e7
    problem = Problem(X, families.Gaussian(1e7, 1e8, 1.0), DP)
    found = interval_optimum(problem)
    value, upper = value_and_bound(problem, found)
    assert abs(upper - value) < 1e-6
    proved = verify_potentials(problem, found.order, found.entries)
    assert proved == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("seed", range(60))
def test_potentials_leave_room_for_rounding_however_wide_the_data(seed):
    """The bound proved in verification is at most the stated one, without any tolerance."""
    rng = np.random.default_rng([4, seed])
    n = int(np.exp(rng.uniform(1.0, 5.5)))
    X = 10 ** rng.uniform(-2.0, 4.0) * rng.normal(size=(n, 1))
    X += rng.choice([0.0, 100.0]) * rng.integers(4, size=(n, 1))
    family = families.Gaussian(
        rng.choice([0.0, 1e3]), 10 ** rng.uniform(-3.0, 8.0), 10 ** rng.uniform(-8.0, 1.0)
    )
    problem = Problem(X, family, PRODUCT_PRIORS[seed % 3])
    found = interval_optimum(problem)
    assert verify_potentials(problem, found.order, found.entries) <= found.entries[0].upper
    value = problem.log_joint(found.labels)
    assert found.entries[0].upper - value <= 1e-9 * abs(value) + 1e-9


def test_running_sums_are_right_to_their_last_digits():
    rng = np.random.default_rng(0)
    for sign in (1.0, -1.0):
        values = sign * np.abs(rng.normal(size=2000))
        values[rng.random(2000) < 0.1] *= 1e12
        exact = itertools.accumulate(map(Fraction, values))
        for found, true in zip(line._running_sums(values), exact, strict=True):
            assert abs(Fraction(float(found)) - true) <= 4 * Fraction(2) ** -53 * abs(true)


def test_two_words_and_documents_of_different_lengths_are_refused():
    """Their best partition is contiguous neither by share, nor by count, nor by length."""
    X = np.array([[3, 9], [1, 1], [6, 8], [34, 28], [0, 1], [1, 25]], dtype=float)
    problem = Problem(X, families.Multinomial(0.14), priors.DirichletProcess(0.33))
    assert interval_optimum(problem) is None
    values = enumeration.log_joints(problem)
    assert np.sort(values)[-1] > np.sort(values)[-2] + 0.5
    best = enumeration.partitions(6)[0][values.argmax()]
    total = X.sum(axis=1)
    for key in (X[:, 0] / total, X[:, 0], X[:, 1], total):
        assert not contiguous(best, key)


def contiguous(labels, key):
    ordered = labels[np.argsort(key, kind="stable")]
    return (np.diff(ordered) != 0).sum() == len(np.unique(labels)) - 1


@pytest.mark.parametrize(
    ("family", "X", "prior"),
    [
        (families.Gaussian(), np.zeros((4, 2)), DP),
        (families.DiagonalGaussian(), np.zeros((4, 1)), DP),
        (families.Multinomial(), np.ones((4, 3)), DP),
        (families.Gaussian(), np.zeros((4, 1)), priors.AntoniakCounts(1.0)),
    ],
)
def test_is_left_out_where_it_does_not_apply(family, X, prior):
    problem = Problem(X, family, prior)
    assert interval_optimum(problem) is None
    entry = Bounded(1, 4, 0.0, np.zeros(5), 0.0, "line", 0.0)
    assert verify_potentials(problem, np.arange(4), [entry]) == np.inf


def test_any_potentials_prove_a_valid_bound():
    rng = np.random.default_rng(5)
    for trial in range(60):
        prior = PRODUCT_PRIORS[trial % 3]
        family, X = gaussian(rng, 6)
        problem = Problem(X, family, prior)
        found = interval_optimum(problem)
        want = enumeration.best(problem)
        shifted = [entry._replace(y=entry.y + rng.normal(size=7)) for entry in found.entries]
        proved = verify_potentials(problem, found.order, shifted)
        assert proved >= want - 1e-8
    order, entry = found.order, found.entries[0]._replace(low=1, high=6)
    assert verify_potentials(problem, order, [entry]) < np.inf
    assert verify_potentials(problem, order[::-1], [entry]) == np.inf
    assert verify_potentials(problem, np.zeros(6, int), [entry]) == np.inf


def first_few(solve, left, *arguments):
    return None if next(left, None) is None else solve(*arguments)


def test_a_deadline_leaves_nothing_or_a_valid_bound(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 1)) * 4.0
    problem = Problem(X, families.Gaussian(0.0, 10.0, 1.0), PRODUCT_PRIORS[1])
    assert interval_optimum(problem, deadline=0.0) is None
    best = interval_optimum(problem)
    assert len(best.entries) > 1
    for programmes in range(1, 5):
        with monkeypatch.context() as patch:
            few = partial(first_few, dynamic_programme._solve, iter(range(programmes)))
            patch.setattr(dynamic_programme, "_solve", few)
            found = interval_optimum(problem)
        _, upper = value_and_bound(problem, found)
        assert upper >= problem.log_joint(best.labels) - 1e-8
        proved = verify_potentials(problem, found.order, found.entries)
        assert proved == pytest.approx(upper, abs=1e-6)
