"""Tolls of triples, which exclude solutions of the LP over sets that mix partitions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import enumeration
from dpsearch import Certificate, certify, families, priors
from dpsearch.exact import proof
from dpsearch.exact.assumptions import statistic_of
from dpsearch.exact.pricing import NO_TRIPLES
from dpsearch.exact.proof import Bounded, by_prices, pricer_of
from dpsearch.exact.triples import broken_triples
from dpsearch.problem import Problem

FAMILY, PRIOR = families.Gaussian(0.0, 10.0, 1.0), priors.DirichletProcess(1.0)


def test_a_mixture_of_three_pairs_breaks_their_triple():
    columns = [np.array(c) for c in ([0, 1], [1, 2], [0, 2], [0], [1], [2], [3], [0, 1, 2])]
    worth = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.2])  # the mixture has 1.5
    found = broken_triples(columns, worth, NO_TRIPLES, 4)
    np.testing.assert_array_equal(found, [[0, 1, 2]])
    assert len(broken_triples(columns, worth, found, 4)) == 0
    # No known set fits into the gap of a range without the partition's number of clusters.
    assert len(broken_triples([], worth[:0], NO_TRIPLES, 4)) == 0


def bound_by_tolls(seed, toll=1.0):
    """Return how far the bound by random prices and tolls is above the best log joint."""
    rng = np.random.default_rng(seed)
    n, n_triples = int(rng.integers(3, 8)), int(rng.integers(1, 6))
    problem = Problem(rng.normal(size=(n, 2)), FAMILY, PRIOR)
    triples = np.array([np.sort(rng.choice(n, 3, replace=False)) for _ in range(n_triples)])
    y = np.append(problem.alone + rng.normal(size=n), rng.exponential(3.0, n_triples))
    entry = Bounded(1, n, math.log(PRIOR.alpha), y, 0.0, "prices", math.inf, triples)
    pricer = pricer_of(problem, statistic_of(problem, np.zeros(n, np.int64)), entry)
    slack = pricer.price(y, threshold=-1e9, max_columns=1).bound / n
    y[:n] += slack  # every set is paid for, as it has at least one point
    slack = pricer.price(y, threshold=-1e9, max_columns=1).bound
    y[n:] *= toll
    return by_prices(problem, entry, y, slack, "prices").upper - enumeration.best(problem)


def test_tolls_bound_every_partition_and_must_be_counted():
    above = [bound_by_tolls(seed) for seed in range(60)]
    assert min(above) > 0.0
    # Were tolls not counted in the bound, some partition would be above it.
    assert min(bound_by_tolls(seed, toll=0.0) for seed in range(60)) < 0.0


@pytest.fixture(scope="module")
def by_tolls():
    """Certify a cloud whose LP is not integral, without listing sets."""
    rng = np.random.default_rng(5)
    X = np.exp(rng.uniform(-0.5, 1.2)) * rng.normal(size=(70, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "_FEW_SETS", -1)
        patch.setattr(proof, "_MOST_SETS", -1)
        return certify(X, np.zeros(70), FAMILY, PRIOR, tolerance=1e-4), X


def test_a_fractional_gap_is_closed_by_tolls(by_tolls):
    found, X = by_tolls
    listed = certify(X, np.zeros(70), FAMILY, PRIOR)
    assert found.optimal
    assert found.method == "prices"
    assert len(found.prices[0].triples)
    assert listed.optimal
    assert listed.lower_bound == found.lower_bound
    assert found.verify()


def test_tolls_are_saved_and_bound_pairs(by_tolls, tmp_path):
    found, X = by_tolls
    found.save(tmp_path / "proof.npz")
    again = Certificate.load(tmp_path / "proof.npz", X)
    assert again.verify()
    np.testing.assert_array_equal(again.prices[0].triples, found.prices[0].triples)
    labels = found.clustering.labels
    other = int(np.flatnonzero(labels != labels[0])[-1])
    assert found.apart(0, other) or not found.together(0, other)


def test_nothing_of_tolls_is_believed(by_tolls):
    found, _ = by_tolls
    (entry,) = found.prices
    n, triples = 70, entry.triples
    shifted = entry.y.copy()
    shifted[n] -= 100.0
    shifted[0] += 100.0
    for change in (
        {"triples": triples[:-1], "y": entry.y[:-1]}, {"triples": triples[:-1]}, {"y": shifted},
        {"triples": NO_TRIPLES, "y": entry.y[:n]}, {"triples": triples[:, ::-1].copy()},
        {"triples": triples + n}, {"triples": triples * 1.0}, {"triples": triples[:, :2].copy()},
        {"triples": np.repeat(triples[:, :1], 3, axis=1)}, {"triples": None},
        {"triples": triples.tolist()}, {"kind": "ceiling"}, {"kind": "quick"}, {"kind": "line"},
    ):  # fmt: skip
        forged = dataclasses.replace(found, prices=(entry._replace(**change),))
        assert forged.verify() is False, change


def test_tolls_hold_in_interval_arithmetic():
    X = np.random.default_rng(0).normal(size=(7, 2))
    found = certify(X, np.zeros(7), FAMILY, PRIOR)
    (entry,) = found.prices
    y = np.append(entry.y, [0.0, 0.5])
    triples = np.array([[0, 1, 2], [3, 4, 6]])
    y[[3, 4, 6]] -= 0.25  # what two points of the triple pay less is its toll
    more = by_prices(found.problem, entry._replace(triples=triples), y, entry.slack, "prices")
    pricer = pricer_of(found.problem, statistic_of(found.problem, found.clustering.labels), more)
    slack = pricer.price(y, threshold=-1e9, max_columns=1).bound
    for amount, holds in ((slack + 1e-9, True), (slack - 1e-9, False)):
        stated = by_prices(found.problem, more, y, amount, "prices")
        gap = stated.upper - found.lower_bound
        clustering = dataclasses.replace(
            found.clustering, upper_bound=stated.upper, optimal=gap <= found.tolerance
        )
        claimed = dataclasses.replace(
            found, prices=(stated,), upper_bound=stated.upper, gap=gap, method="prices",
            optimal=gap <= found.tolerance, clustering=clustering,
        )  # fmt: skip
        assert claimed.verify(exact=True) is holds
