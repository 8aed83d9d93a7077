"""Certificates against the enumeration of all partitions."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time

import numpy as np
import pytest

import enumeration
import models
from dpsearch import datasets, families, priors, search
from dpsearch.errors import CapabilityError, DataError, ParameterError, ProofError
from dpsearch.exact import certify
from dpsearch.exact.centre_pricing import CentrePricer
from dpsearch.exact.slopes import intercept, is_linear, ranges, slope
from dpsearch.families._columns import with_holes
from dpsearch.items import Rows
from dpsearch.problem import Problem

PRIORS = [
    priors.DirichletProcess(1.0),
    priors.DirichletProcess(0.1),
    priors.DirichletProcess(priors.Gamma(1.0, 0.5)),
    priors.DirichletProcess(8.0),
    priors.PitmanYor(0.7, 0.4),
    priors.DirichletProcess(priors.Gamma(3.0, 0.1)),
    priors.PitmanYor(-0.2, 0.6),
]
DP = PRIORS[0]


def draw(seed):
    """Return a small problem, every other one without clusters, and a bad partition of it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 10))
    family, X = models.gaussian(rng, n)
    if seed % 2:
        X = np.exp(rng.uniform(-1.0, 2.0)) * rng.normal(size=X.shape)
    if seed % 11 == 0:
        X = np.round(X)
    labels = [np.zeros(n, int), np.arange(n), rng.integers(0, n, size=n)][seed % 3]
    return X, labels, family, PRIORS[seed % len(PRIORS)]


def draw_counts(seed):
    """Return such a problem of counts or bits; without clusters, columns are shuffled."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 10))
    family, X = models.DRAWS[("bernoulli", "poisson", "multinomial")[seed // 2 % 3]](rng, n)
    if seed % 2:
        X = rng.permuted(X, axis=0)
    labels = [np.zeros(n, int), np.arange(n), rng.integers(0, n, size=n)][seed % 3]
    return X, labels, family, PRIORS[seed % len(PRIORS)]


def check(seed, draw=draw, **options):
    X, labels, family, prior = draw(seed)
    problem = Problem(X, family, prior)
    certificate = certify(problem, labels, **options)
    best = enumeration.best(problem)
    assert certificate.upper_bound >= best - 1e-9
    assert certificate.optimal
    assert certificate.lower_bound == pytest.approx(best, abs=1e-6)
    assert certificate.lower_bound == problem.log_joint(certificate.clustering.labels)
    assert certificate.gap <= certificate.tolerance
    return certificate


@pytest.mark.parametrize("seed", enumeration.seeds(range(150), 40))
def test_the_optimum_of_enumeration_is_certified(seed):
    assert check(seed).verify()


@pytest.mark.parametrize("seed", enumeration.seeds(range(150, 300), 40))
def test_the_proof_needs_no_good_partition_and_no_line(seed):
    check(seed, polish=False, line=False)


@pytest.mark.parametrize("seed", enumeration.seeds(range(240), 80))
def test_the_optimum_of_enumeration_is_certified_for_counts(seed):
    certificate = check(seed, draw_counts, polish=seed % 4 < 2, line=seed % 8 < 4)
    if seed % 5 == 0:
        assert certificate.verify()


@pytest.mark.parametrize("seed", enumeration.seeds(range(60), 15))
def test_bounds_in_many_dimensions_hold(seed):
    """With five or more columns, proofs begin with prices that need no branch and bound."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(2, 8)), int(rng.integers(5, 8))
    family = families.Gaussian(
        rng.choice([0.0, 5.0]), 10 ** rng.uniform(-1.0, 2.0), 10 ** rng.uniform(-1.0, 1.0)
    )
    X = 10 ** rng.uniform(-1.0, 1.0) * rng.normal(size=(n, width))
    prior = [priors.DirichletProcess(10 ** rng.uniform(-2.0, 1.0)), PRIORS[2]][seed % 2]
    problem = Problem(X, family, prior)
    for limit in (0.0, 0.002, 5.0):
        certificate = certify(problem, np.zeros(n, int), polish=False, time_limit=limit)
        assert certificate.upper_bound >= enumeration.best(problem) - 1e-9
        assert certificate.verify()


@pytest.mark.parametrize("seed", range(12))
def test_two_proofs_agree_on_a_line(seed):
    """The dynamic programme and prices of arbitrary sets are independent methods."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 80))
    X = np.exp(rng.uniform(-1.0, 1.5)) * rng.normal(size=(n, 1))
    if seed % 2:
        X = datasets.dirichlet_process_draw(n, 1, rng=seed).X
    prior = PRIORS[seed % len(PRIORS)]
    problem = Problem(X, families.Gaussian(0.0, 10.0, 1.0), prior)
    one = certify(problem, np.zeros(n, np.int64))
    other = certify(problem, np.zeros(n, np.int64), line=False)
    assert one.method == "line"
    assert other.method != "line"
    assert one.optimal
    assert other.optimal
    assert one.lower_bound == pytest.approx(other.lower_bound, abs=2e-6)
    assert one.upper_bound >= other.lower_bound - 1e-9
    assert other.upper_bound >= one.lower_bound - 1e-9


@pytest.mark.parametrize(("table", "error"), [("tau", 0.5), ("step_high", -3.0)])
def test_an_error_planted_in_the_pricing_bound_is_caught(monkeypatch, table, error):
    """The planted errors exaggerate the curvature of boxes, or drop points too early."""
    correct = CentrePricer.__init__

    def planted(self, problem, statistic, lam):
        correct(self, problem, statistic, lam)
        wrong = getattr(self.space, table) + error
        self.space = self.space._replace(**{table: wrong})

    monkeypatch.setattr(CentrePricer, "__init__", planted)
    caught = 0
    for seed in range(60):
        try:
            check(seed, polish=False, line=False)
        except (AssertionError, ProofError):
            caught += 1
    assert caught > 3


@pytest.mark.parametrize("name", models.DRAWS)
def test_every_family_gets_a_valid_bound(name):
    rng = np.random.default_rng(5)
    for trial in range(8):
        n = int(rng.integers(1, 8))
        family, X = models.DRAWS[name](rng, n)
        prior = PRIORS[trial % len(PRIORS)]
        certificate = certify(X, np.zeros(n), family, prior)
        best = enumeration.best(Problem(X, family, prior))
        assert certificate.upper_bound >= best - 1e-9
        assert math.isfinite(certificate.upper_bound)
        assert certificate.verify()


def structured():
    X = datasets.dirichlet_process_draw(60, 2, rng=3).X
    return X, families.Gaussian(0.0, 10.0, 1.0)


@pytest.mark.parametrize("prior", [DP, PRIORS[2], PRIORS[4]])
def test_verification_fails_when_a_price_is_lowered(prior):
    X, family = structured()
    certificate = certify(X, np.zeros(60), family, prior)
    assert certificate.optimal
    assert certificate.verify()
    # Where the range of the number of clusters holds that of the partition, no price has room.
    n_clusters = certificate.clustering.n_clusters
    holds = [entry.low <= n_clusters <= entry.high for entry in certificate.prices]
    at = holds.index(True)
    for point in (0, 17, 59):
        y = certificate.prices[at].y.copy()
        y[point] -= 1e-3
        entries = list(certificate.prices)
        entries[at] = entries[at]._replace(y=y)
        assert not dataclasses.replace(certificate, prices=tuple(entries)).verify()


def test_verification_fails_when_the_bound_or_the_partition_is_not_what_was_proved():
    X, family = structured()
    certificate = certify(X, np.zeros(60), family, DP)
    lower = certificate.upper_bound - 1e-3
    assert not dataclasses.replace(certificate, upper_bound=lower).verify()
    entries = tuple(entry._replace(upper=lower) for entry in certificate.prices)
    assert not dataclasses.replace(certificate, upper_bound=lower, prices=entries).verify()
    assert not dataclasses.replace(certificate, lower_bound=lower - 1.0).verify()
    missing = tuple(entry._replace(low=2) for entry in certificate.prices)
    assert not dataclasses.replace(certificate, prices=missing).verify()


def test_verification_fails_when_loose_prices_or_potentials_are_lowered():
    X = datasets.dirichlet_process_draw(30, 1, rng=0).X
    family = families.Gaussian(0.0, 10.0, 1.0)
    line = certify(X, np.zeros(30), family, DP)
    assert line.method == "line"
    assert line.optimal
    assert line.verify()
    ceiling = certify(X, np.zeros(30), families.DiagonalGaussian(), DP, time_limit=0.0)
    assert ceiling.method == "ceiling"
    assert ceiling.verify()
    for certificate in (line, ceiling):
        (entry,) = certificate.prices
        y = entry.y.copy()
        y[10] -= 1e-3
        changed = dataclasses.replace(certificate, prices=(entry._replace(y=y),))
        assert not changed.verify()
        missing = dataclasses.replace(certificate, prices=(entry._replace(low=2),))
        assert not missing.verify()


def test_a_fractional_case_is_closed_by_enumeration():
    """The LP over sets of these six points has a gap."""
    found = False
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = 2.0 * rng.normal(size=(14, 2))
        family = families.Gaussian(0.0, 4.0, 1.0)
        certificate = certify(X, np.zeros(14), family, DP)
        assert certificate.optimal
        if certificate.method == "sets":
            found = True
            assert certificate.verify()
            (entry,) = certificate.prices
            lower = entry._replace(upper=entry.upper - 1e-3)
            changed = dataclasses.replace(certificate, prices=(lower,), upper_bound=lower.upper)
            assert not changed.verify()
            break
    assert found


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.5])
def test_time_limits_are_kept_and_the_bound_is_finite(seconds):
    X = datasets.dirichlet_process_draw(10_000, 10, rng=0).X
    family = families.Gaussian(0.0, 10.0, 1.0)
    certify(X[:100], np.zeros(100), family, DP, time_limit=0.1)  # compiled
    begun = time.perf_counter()
    certificate = certify(X, np.zeros(10_000), family, DP, time_limit=seconds)
    assert time.perf_counter() - begun < seconds + 5.0
    assert math.isfinite(certificate.upper_bound)
    assert certificate.upper_bound > certificate.lower_bound
    assert certificate.clustering.upper_bound == certificate.upper_bound


def test_the_gap_closes_before_the_eyes_of_a_callback():
    X, family = structured()
    seen = []
    certificate = certify(X, np.zeros(60), family, PRIORS[4], callback=seen.append)
    assert len(seen) > 2
    for before, after in itertools.pairwise(seen):
        assert after.seconds >= before.seconds
        assert after.log_joint >= before.log_joint
        assert after.upper_bound >= certificate.lower_bound - 1e-9
    assert seen[-1].upper_bound - seen[-1].log_joint <= 1e-6


def test_ctrl_c_returns_what_is_proved():
    X, family = structured()

    def interrupt(closing):
        raise KeyboardInterrupt

    certificate = certify(X, np.zeros(60), family, DP, callback=interrupt)
    assert math.isfinite(certificate.upper_bound)
    assert not certificate.optimal


def test_a_clustering_of_search_is_taken_and_returned_with_its_proof():
    X, family = structured()
    found = search(X, family, DP)
    certificate = certify(X, found, family, DP)
    assert certificate.clustering.optimal
    assert certificate.clustering.log_joint >= found.log_joint - 1e-9
    assert "optimal" in repr(certificate.clustering)


def test_problems_that_cannot_be_certified_are_refused_at_once():
    X, family = structured()
    with pytest.raises(CapabilityError, match="certify needs a prior"):
        certify(X, np.zeros(60), family, priors.AntoniakCounts(1.0))
    with pytest.raises(ParameterError, match="time_limit"):
        certify(X, np.zeros(60), family, DP, time_limit=-1.0)
    with pytest.raises(ParameterError, match="tolerance"):
        certify(X, np.zeros(60), family, DP, tolerance=math.nan)
    with pytest.raises(DataError, match="labels"):
        certify(X, np.zeros(59), family, DP)


def test_a_problem_with_background_clusters_is_refused():
    X, family = structured()
    whole = Problem(X, family, DP)
    background = Rows(*whole.rows(np.zeros(60, np.int64)))
    model, items = whole.model, whole.items
    problem = Problem.of_items(model, items, whole.log_base, DP, background=background)
    with pytest.raises(CapabilityError, match="certify does not take .* background clusters"):
        certify(problem, np.zeros(60))
    with pytest.raises(CapabilityError, match="'dual' does not take .* background clusters"):
        search(problem, heuristic="dual", beam_size=None)


def test_a_family_without_any_bound_is_named(monkeypatch):
    X, _ = structured()

    monkeypatch.setattr(families.DiagonalGaussian, "log_ceiling", lambda self, X: None)
    with pytest.raises(CapabilityError, match="certify needs the capability 'log_ceiling'"):
        certify(X, np.zeros(60), families.DiagonalGaussian(), DP)


@pytest.mark.parametrize("prior", PRIORS)
def test_lines_bound_log_v_over_their_ranges(prior):
    log_v = prior.log_v(40)
    for n_clusters in (1, 2, 7, 40):
        covered = set()
        for low, high in ranges(log_v, n_clusters):
            lam = slope(log_v, low, high)
            over = intercept(log_v, lam, low, high) + lam * np.arange(low, high + 1)
            assert (over >= log_v[low : high + 1] - 1e-12).all()
            assert over[0] == pytest.approx(log_v[low], abs=1e-9) or low == high
            covered.update(range(low, high + 1))
        assert covered == set(range(1, 41))
    fixed = isinstance(prior, priors.DirichletProcess) and isinstance(prior.alpha, float)
    assert is_linear(log_v) == fixed


def test_a_start_with_more_clusters_than_the_prior_allows_is_replaced():
    X = np.random.default_rng(0).normal(size=(6, 2))
    problem = Problem(X, families.Gaussian(0.0, 4.0, 1.0), models.FewComponents())
    found = certify(problem, np.arange(6), polish=False)
    assert found.optimal
    assert found.lower_bound >= enumeration.best(problem) - 1e-6


@pytest.mark.parametrize("gaps", [False, True])
def test_log_normal_columns_are_proved_as_the_normal_columns_of_their_logarithms(gaps):
    rng = np.random.default_rng(4)
    logs = rng.normal(np.repeat([[0.0], [4.0]], 9, axis=0), 0.4, (18, 2))
    logs = with_holes(logs)[:-1] if gaps else logs
    prior = 1.0, 0.2, 3.0, 0.5
    proofs = [
        certify(X, search(X, family, DP), family, DP, time_limit=20.0)
        for X, family in (
            (logs, families.DiagonalGaussian(*prior)),
            (np.exp(logs), families.LogNormal(*prior)),
        )
    ]
    normal, positive = ((one.lower_bound, one.upper_bound) for one in proofs)
    assert [one.optimal for one in proofs] == [True, True]
    np.testing.assert_allclose(positive, np.array(normal) - np.nansum(logs), atol=1e-5)
