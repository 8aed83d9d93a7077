"""Pricing over boxes of the statistic, for every family with terms, against all subsets."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

import enumeration
from dpsearch import certify, families
from dpsearch.errors import CapabilityError
from dpsearch.exact import regions
from dpsearch.exact.assumptions import totals_of
from dpsearch.exact.statistic_pricing import StatisticPricer
from provable import KINDS, PRIORS, columns, known, numbers, problem_of


def excesses(pricer, y):
    """Return log w(C) − y(C) of every set, by the family's own functions."""
    sets = [np.flatnonzero(bits) for bits in np.ndindex(*(2,) * pricer.n) if any(bits)]
    return np.array([pricer.log_weight(members) - y[members].sum() for members in sets])


def check_pricing(make, seed, largest=7):
    rng, problem = problem_of(make, seed, largest)
    pricer = StatisticPricer(problem, totals_of(problem), rng.normal())
    labels = rng.integers(2, size=problem.n_items)
    y = rng.normal(size=problem.n_items) * rng.choice([0.1, 1.0, 3.0])
    y += pricer.fit(np.unique(labels, return_inverse=True)[1]) * rng.integers(2)
    true = float(excesses(pricer, y).max())
    below = pricer.price(y, threshold=true - rng.choice([1e-3, 1.0, 10.0]), max_columns=3)
    assert below.complete
    assert true <= below.bound <= true + 1e-8
    members = below.columns[0]
    assert pricer.log_weight(members) - y[members].sum() == pytest.approx(true, abs=1e-8)
    above = pricer.price(y, threshold=true + 1e-6, max_columns=3)
    assert above.complete
    assert not above.columns
    assert true <= above.bound
    slack = rng.uniform(0.0, 4.0)
    everything = excesses(pricer, y)
    columns = pricer.columns_within(y, slack, limit=2000)
    assert columns is not None
    assert len(columns) == len({tuple(members) for members in columns})
    assert (everything >= -slack).sum() == len(columns)
    assert all(pricer.log_weight(c) - y[c].sum() >= -slack - 1e-9 for c in columns)
    near = pricer.near(columns[:5], y, true - 1.0)
    assert len(near) == len({tuple(members) for members in near})
    assert all(pricer.log_weight(c) - y[c].sum() > true - 1.0 - 1e-9 for c in near)
    best = pricer.near([members], y, true - 1e-6)  # nothing is better than the best
    assert [tuple(c) for c in best] == [tuple(members)]
    raised = pricer.raise_prices(y, threshold=1e-6, max_columns=1000)
    assert raised.complete
    assert (raised.y >= y).all()
    assert excesses(pricer, raised.y).max() <= raised.bound


def enclosed(shape, rng):
    """Check that the statistic of a random cluster in a random box is an average of its corners."""
    low = np.array(
        [*rng.normal(size=2), rng.uniform(0.1, 2.0), rng.normal(), rng.uniform(0.0, 1.0)]
    )
    high = low + rng.uniform(0.1, 2.0, size=5)
    m1, m2, u, slope, rest = rng.uniform(low, high)
    v = np.array([[u - shape.least, slope * u], [slope * u, rest + slope**2 * u]])
    mean = np.array([m1, m2])
    second = v + np.outer(mean, mean)
    want = np.array([m1, m2, second[0, 0], second[0, 1], second[1, 1]])
    points = shape.points(low[None], high[None])
    far, near, (c1, c2, tilt) = points.far[0], points.near[0], points.frame[0]
    matrix = np.vstack([far.T, np.ones(len(far))])
    found = linprog(np.zeros(len(far)), A_eq=matrix, b_eq=np.append(want, 1.0))
    # The same points in the frame of the box: about its centre, the second value less its slope.
    turn = np.array([[1.0, 0.0], [-tilt, 1.0]])
    for a, b in zip(far, near, strict=True):
        off = a[:2] - [c1, c2]
        full = np.array([[a[2], a[3]], [a[3], a[4]]]) - np.outer([c1, c2], a[:2])
        full -= np.outer(off, [c1, c2])
        np.testing.assert_allclose(b[:2], turn @ off, atol=1e-9)
        np.testing.assert_allclose(
            b[[2, 3, 4]], (turn @ full @ turn.T)[[0, 0, 1], [0, 1, 1]], atol=1e-9
        )
    return found.status == 0


def test_corners_enclose_the_covariances_of_a_box():
    rng = np.random.default_rng(0)
    shape = regions.shape_of(families.FullGaussian().linear(2).terms[0], 50)
    assert all(enclosed(shape, rng) for _ in range(40))
    flat = shape._replace(slope=np.zeros_like(shape.slope))  # β² taken for linear
    assert not all(enclosed(flat, rng) for _ in range(40))
    narrow = shape._replace(square=0.0 * shape.square)
    assert not all(enclosed(narrow, rng) for _ in range(40))


def check_certificate(make, seed, largest=7):
    _, problem = problem_of(make, seed, largest)
    best = enumeration.best(problem)
    found = certify(problem, np.zeros(problem.n_items, np.int64))
    assert found.upper_bound >= best - 1e-9
    assert found.lower_bound <= best + 1e-9
    if found.optimal:
        assert found.lower_bound == pytest.approx(best, abs=2e-6)
    assert found.verify()
    return found


@pytest.mark.parametrize("make", KINDS)
def test_prices_agree_with_all_subsets(make):
    for seed in range(8):
        check_pricing(make, seed)


@pytest.mark.parametrize("make", KINDS)
def test_certificates_agree_with_the_enumeration_of_partitions(make):
    closed = [check_certificate(make, seed, 6).optimal for seed in range(6)]
    assert all(closed)


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS)
def test_three_hundred_sets_of_each_family(make):
    for seed in range(300):
        check_pricing(make, seed, 8)
        check_certificate(make, seed, 8)


# -- planted errors -------------------------------------------------------------------------------


def test_corners_that_do_not_enclose_the_region_are_noticed(monkeypatch):
    correct = regions.Shape.points

    def planted(self, low, high):
        points = correct(self, low, high)
        inside = 0.5 * (points.near + points.near[:, :1])
        return points._replace(near=inside, far=points.far + inside - points.near)

    monkeypatch.setattr(regions.Shape, "points", planted)
    with pytest.raises(AssertionError):
        any(check_pricing(known, seed) for seed in range(30))


@pytest.mark.parametrize("change", [lambda f: f - 0.01, lambda f: 0.9 * f, lambda f: np.abs(f)])
def test_terms_that_disagree_with_the_family_are_refused(monkeypatch, change):
    correct = families.DiagonalGaussian.linear

    def planted(self, n_features):
        form = correct(self, n_features)
        first, *others = form.terms
        wrong = first._replace(upper=lambda n, totals: change(first.upper(n, totals)))
        return dataclasses.replace(form, terms=(wrong, *others))

    monkeypatch.setattr(families.DiagonalGaussian, "linear", planted)
    _, problem = problem_of(columns, 0, 7)
    with pytest.raises(CapabilityError, match="linear of the diagonal_gaussian family disagrees"):
        certify(problem, np.zeros(problem.n_items, np.int64))


def test_the_number_of_threads_does_not_matter():
    X = numbers(np.random.default_rng(0), 60, 2)
    family = families.DiagonalGaussian(0.0, 0.1, 2.0, 1.0)
    one, two = (certify(X, np.zeros(60), family, PRIORS[0], n_jobs=n) for n in (1, 2))
    assert one.upper_bound == two.upper_bound
    np.testing.assert_array_equal(one.prices[0].y, two.prices[0].y)
