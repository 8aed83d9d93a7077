"""Verification of certificates in interval arithmetic, over every set of a few rows."""

from __future__ import annotations

import dataclasses
import sys

import mpmath
import numpy as np
import pytest

import enumeration
from dpsearch import certify, families, priors
from dpsearch.errors import CapabilityError, MissingLibraryError, ParameterError
from dpsearch.exact import interval_arithmetic
from dpsearch.exact.assumptions import totals_of
from dpsearch.exact.interval_arithmetic import ExactSets, Intervals
from dpsearch.exact.statistic_pricing import StatisticPricer
from dpsearch.problem import Problem
from provable import KINDS, problem_of

DP = priors.DirichletProcess(1.0)
VARIANCES = families.DiagonalGaussian(0.0, 0.1, 2.0, 1.0)


def some(n=8, width=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)) * 2.0


def test_log_gammas_are_enclosed_to_a_hundred_bits():
    real = Intervals()
    with mpmath.workdps(60):
        for x in [1e-3, 0.5, 1.0, 1.7, 2.0, 12.25, 29.9, 31.0, 1e5]:
            found, want = real.log_gamma(real(x)), mpmath.loggamma(mpmath.mpf(x))
            assert found.a <= want <= found.b
            assert found.delta <= 1e-33 * (1.0 + abs(want))
        wide = real.log_gamma(real(2.0) + mpmath.iv.mpf([-0.25, 0.5]))
        assert all(wide.a <= mpmath.loggamma(x) <= wide.b for x in np.linspace(1.75, 2.5, 20))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("seed", enumeration.seeds(range(12), 3))
def test_honest_certificates_hold_and_forged_ones_do_not(make, seed):
    _, problem = problem_of(make, seed, 7)
    found = certify(problem, np.zeros(problem.n_items))
    assert found.verify() is True
    assert found.verify(exact=True) is True
    sets = ExactSets(problem)
    # Every partition is in its bound, and the best one is at it.
    bounds, best = sets._bounds(found.prices[0].y[: problem.n_items]), enumeration.best(problem)
    assert float(max(bounds[1:])) == pytest.approx(best, abs=1e-9)
    below = tuple(entry._replace(upper=best - 1e-9) for entry in found.prices)
    assert not sets.prove(below, found.order)
    for entry in found.prices:
        if entry.kind == "prices":  # a price may fall by what the dearest set leaves, and no more
            pricer = StatisticPricer(problem, totals_of(problem), entry.lam)
            every = [np.flatnonzero(bits) for bits in np.ndindex(*(2,) * problem.n_items)][1:]
            above = [pricer.log_weight(members) - entry.y[members].sum() for members in every]
            dearest, left = every[np.argmax(above)][0], entry.slack - max(above)
            for less, holds in ((left - 1e-9, True), (left + 1e-9, False), (left + 1e-6, False)):
                y = entry.y.copy()
                y[dearest] -= less
                assert sets.prove((entry._replace(y=y),), None) is holds


@pytest.mark.parametrize(
    ("X", "family", "prior"),
    [
        (some(12, 1), families.Gaussian(0.0, 10.0, 1.0), DP),
        (some(9, 1), families.Poisson(1.0, 0.5), priors.PitmanYor(0.7, 0.4)),
        (some(9, 2), VARIANCES, priors.DirichletProcess()),
        (some(9, 6), families.Gaussian(0.0, 10.0, 1.0), DP),
    ],
)
@pytest.mark.parametrize("time_limit", [None, 0.0])
def test_every_method_of_proof(X, family, prior, time_limit):
    """Verify proofs by the dynamic programme, prices, quick prices and ceilings."""
    X = np.abs(np.round(X)) if family.name == "poisson" else X
    found = certify(X, np.zeros(len(X)), family, prior, time_limit=time_limit)
    assert found.verify(exact=True) is True
    lower = found.lower_bound + 1e-9
    higher = dataclasses.replace(
        found,
        lower_bound=lower,
        upper_bound=max(found.upper_bound, lower),
        clustering=dataclasses.replace(found.clustering, log_joint=lower),
    )
    assert higher.verify(exact=True) is False


def test_the_stated_value_lies_in_the_interval_but_for_rounding():
    problem = Problem(some(), VARIANCES, DP)
    labels = np.arange(8) % 3
    low, high = ExactSets(problem).value_within(labels)
    assert 0.0 <= float(high - low) < 1e-30
    assert float(low) == pytest.approx(problem.log_joint(labels), abs=1e-12)


def test_what_is_missing_is_named(monkeypatch):
    many = certify(some(17), np.zeros(17), VARIANCES, DP, time_limit=0.0)
    with pytest.raises(ParameterError, match="at most 16 rows.* got 17"):
        many.verify(exact=True)
    nodes = certify(np.abs(some(6, 1)), np.zeros(6), families.Gamma(), DP)
    with pytest.raises(CapabilityError, match=r"linear form has terms .*gamma"):
        nodes.verify(exact=True)
    few = certify(some(5), np.zeros(5), VARIANCES, DP)

    def without(problem):
        form, _ = totals_of(problem)
        terms = tuple(term._replace(exactly=None) for term in form.terms)
        return totals_of(problem)._replace(form=dataclasses.replace(form, terms=terms))

    with monkeypatch.context() as patch:
        patch.setattr(interval_arithmetic, "totals_of", without)
        with pytest.raises(CapabilityError, match="`exactly` for each of its terms"):
            few.verify(exact=True)
    for name in ("mpmath", "mpmath.ctx_iv"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingLibraryError, match=r"dpsearch\[exact\]"):
        few.verify(exact=True)


def test_a_term_that_is_another_function_is_refused(monkeypatch):
    few = certify(some(5), np.zeros(5), VARIANCES, DP)

    def other(problem):
        form, _ = totals_of(problem)
        wrong = form.terms[0]._replace(exactly=lambda real, n, total, square: -square)
        return totals_of(problem)._replace(
            form=dataclasses.replace(form, terms=(wrong, *form.terms[1:]))
        )

    monkeypatch.setattr(interval_arithmetic, "totals_of", other)
    with pytest.raises(CapabilityError, match="disagrees with log H"):
        few.verify(exact=True)
