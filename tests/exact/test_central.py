"""Central prices against the linear programme over the same sets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from dpsearch import certify, families, priors, refine, search
from dpsearch.exact import central
from dpsearch.exact.central import central_prices


def check_prices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    columns = [np.array([i]) for i in range(n)]
    columns += [np.flatnonzero(rng.random(n) < 0.4) for _ in range(60)]
    columns = [members for members in columns if len(members)]
    weights = np.array([rng.normal(len(members)) for members in columns])
    member = np.zeros((n, len(columns)))
    for s, members in enumerate(columns):
        member[members, s] = 1.0
    best = linprog(-weights, A_eq=member, b_eq=np.ones(n))
    prices = -best.eqlin.marginals  # optimal: the pull towards them moves nothing
    found = central_prices(prices, columns, weights, 1e-6)
    assert found is not None
    paid = np.array([found.prices[members].sum() for members in columns])
    assert (paid >= weights).all()
    assert found.prices.sum() == pytest.approx(-best.fun, abs=1e-4)
    assert found.value == pytest.approx(-best.fun, abs=1e-4)
    far = central_prices(prices + rng.normal(size=n), columns, weights, 1e-6)
    assert far is not None
    assert far.prices.sum() >= -best.fun - 1e-9


def test_central_prices_pay_for_all_sets_and_are_as_low_as_the_linear_programme():
    for seed in range(30):
        check_prices(seed)


def test_prices_that_do_not_pay_are_noticed(monkeypatch):
    correct = central._step_share
    monkeypatch.setattr(central, "_step_share", lambda values, steps: 3.0 * correct(values, steps))
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        test_central_prices_pay_for_all_sets_and_are_as_low_as_the_linear_programme()


def test_a_fractional_gap_is_closed():
    """The linear programme of this cloud is not integral, so prices alone leave a gap."""
    X = 2.0 * np.random.default_rng(8).normal(size=(70, 2))
    family, prior = families.Gaussian(0.0, 10.0, 1.0), priors.DirichletProcess(1.0)
    start = refine(X, search(X, family, prior, beam_size=1), family, prior, rng=0)
    closed = certify(X, start, family, prior, polish=False)
    assert closed.optimal
    assert closed.method == "sets"
    assert closed.verify()
