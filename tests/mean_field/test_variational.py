"""Variational inference against enumeration, naive formulas and scikit-learn."""

from __future__ import annotations

import itertools
import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import betaln, digamma, logsumexp
from scipy.stats import beta, gamma
from sklearn.mixture import BayesianGaussianMixture

from dpsearch import Problem, datasets, families, load, priors, search, variational
from dpsearch.errors import CapabilityError, ModelFileError, ParameterError
from dpsearch.families.linear import LinearForm
from dpsearch.mean_field import VariationalMixture
from dpsearch.mean_field.births import split_rows
from dpsearch.mean_field.sticks import Sticks, collapsed_weights, log_weights, own_share
from dpsearch.passes import chunk
from dpsearch.passes.device import open_rows
from enumeration import log_joints
from models import DRAWS, PRODUCT_PRIORS, FiniteMixture

FAMILY, DP = families.Gaussian(0.0, 16.0, 1.0), priors.DirichletProcess(1.0)
VARIANTS = [
    {},
    {"tail": True},
    {"variant": "collapsed"},
    {"variant": "collapsed", "order": 1},
    {"cells": 5},
]


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


# All variants of three families, one variant of each other; the rest is slow.
BOUNDS = [
    pytest.param(
        name, options, id=f"{name}-{options}",
        marks=[] if number % 4 == 0 or (at + number) % len(VARIANTS) == 0 else pytest.mark.slow,
    )
    for number, name in enumerate(DRAWS)
    for at, options in enumerate(VARIANTS)
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), BOUNDS)
def test_the_bound_rises_and_stays_below_the_evidence(name, options):
    for seed, prior in enumerate(PRODUCT_PRIORS):
        if options.get("tail") and prior != PRODUCT_PRIORS[0]:
            continue
        family, X = DRAWS[name](np.random.default_rng([seed, 5]), 7)
        problem = Problem(X, family, prior)
        found = variational(problem, truncation=9, rng=0, tol=1e-9, **options)
        assert found.lower_bound <= logsumexp(log_joints(problem)) + 1e-8
        assert (np.diff(found.history) > -1e-9).all()
        if options.get("variant") is None:
            assert found.lower_bound == found.history[-1]
        assert found.sizes.sum() <= 7.0 + 1e-6
        assert found.clustering.log_joint == pytest.approx(
            problem.log_joint(found.clustering.labels), abs=1e-8
        )


def test_the_bound_of_one_component_has_a_closed_form():
    """With all rows in the first component, log H and the first stick have a closed form."""
    X = np.random.default_rng(0).normal(size=(20, 2)) * 0.1
    problem = Problem(X, families.Gaussian(0.0, 1.0, 1.0), priors.DirichletProcess(1e-3))
    found = variational(problem, start=np.zeros(20), moves=False)
    alone = problem.log_joint(np.zeros(20, np.int64)) - problem.prior.log_probability([20])
    stick = betaln(21.0, 1e-3) - betaln(1.0, 1e-3)
    assert found.lower_bound == pytest.approx(alone + stick, abs=1e-6)


class _Given(BayesianGaussianMixture):
    """scikit-learn's mixture, started from given responsibilities."""

    def _initialize_parameters(self, X, random_state, **rest):
        self._initialize(X, np.asarray(self.given))


@pytest.mark.parametrize("prior", [DP, priors.DirichletProcess(5.0)], ids=repr)
def test_the_fixed_point_is_that_of_scikit_learn(prior):
    """Sizes from the same start agree; bounds differ by constants that scikit-learn omits."""
    scale = np.array([[2.0, 0.3], [0.3, 1.0]])
    family = families.FullGaussian(np.zeros(2), 0.5, 4.0, scale)
    differences = []
    for seed in range(6):
        X = table(80, seed)
        labels = np.where(X[:, 1] > 2.5, 2, X[:, 0] > 0.0).astype(int)
        _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
        labels = np.argsort(np.argsort(-counts, kind="stable"))[labels]
        theirs = _Given(
            n_components=3, weight_concentration_prior=prior.alpha, mean_precision_prior=0.5,
            mean_prior=np.zeros(2), degrees_of_freedom_prior=4.0, covariance_prior=scale,
            reg_covar=0.0, tol=1e-10, max_iter=3000,
        )  # fmt: skip
        theirs.given = np.eye(3)[labels]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.fit(X)
        ours = variational(
            X, family, prior, truncation=3, start=labels, moves=False, tol=1e-13, max_iter=3000
        )
        sizes = theirs.weight_concentration_[0] - 1.0
        if (np.diff(sizes) < 0.0).all():  # sticks in its order, which it does not change
            np.testing.assert_allclose(ours.sizes, sizes, atol=1e-3)
            differences.append(ours.lower_bound - theirs.lower_bound_)
    assert len(differences) >= 3
    assert np.ptp(differences) < 1e-4


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
def test_sticks_against_quadrature_and_moments(prior):
    sizes = np.array([5.0, 3.5, 0.5])
    q = Sticks(prior, 3, "a test").fit(sizes, 0.25)
    grid = (np.arange(20_000) + 0.5) / 20_000
    after = [4.25, 0.75, 0.25]
    a, b = prior.sticks(3)
    b = np.full(3, q.alpha) if prior.concentration().gamma else b
    spent = 0.0
    for k in range(3):
        density = beta(a[k] + sizes[k], b[k] + after[k]).pdf(grid) / 20_000
        assert q.log_v[k] == pytest.approx(density @ np.log(grid), rel=1e-3)
        assert q.log_rest[k] == pytest.approx(density @ np.log1p(-grid), rel=1e-3)
        spent += density @ np.log(density * 20_000 / beta(a[k], b[k]).pdf(grid))
    if prior.concentration().gamma is None:
        assert q.divergence == pytest.approx(spent, rel=2e-3)
        return
    own = prior.concentration().gamma
    shape, rate = own.shape + 3, own.rate - q.log_rest.sum()
    assert q.alpha == pytest.approx(shape / rate)
    alphas = np.linspace(1e-4, 40.0, 40_001)
    density = gamma(shape, scale=1.0 / rate).pdf(alphas)
    prior_density = gamma(own.shape, scale=1.0 / own.rate).pdf(alphas)
    spent += np.trapezoid(density * np.log(density / prior_density), alphas)
    spent += 3 * (np.log(q.alpha) - digamma(shape) + np.log(rate))
    assert q.divergence == pytest.approx(spent, rel=2e-3)


def test_collapsed_weights_are_those_of_rows_left_out():
    """To first order they are log p(z_i = k | the others) with counts without row i's share."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(4), size=400)
    sizes = shares.sum(axis=0)
    q = Sticks(priors.PitmanYor(0.7, 0.3), 4, "a test").fit(sizes, 0.0)
    a, b = priors.PitmanYor(0.7, 0.3).sticks(4)
    own = own_share(q)
    for r in shares[:5]:
        n = sizes - r
        after = np.append(np.cumsum(n[::-1])[::-1][1:], 0.0)
        rest = np.log(b + after) - np.log(a + b + n + after)
        want = np.log(a + n) - np.log(a + b + n + after) + np.append(0.0, np.cumsum(rest)[:-1])
        from_here = np.cumsum(r[::-1])[::-1]
        here, later = from_here * own.from_here, (from_here - r) * own.after
        got = collapsed_weights(q, np.zeros(4), np.zeros(4), 1)
        got = got + r * own.at + np.cumsum(here + later) - later
        np.testing.assert_allclose(got, want, atol=3e-4)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "device"])
def test_a_soft_pass_against_plain_sums(kind, own):
    rng = np.random.default_rng(1)
    features = rng.poisson(1.0, (50, 5)).astype(float)
    weights, constants = rng.normal(size=(4, 5)), rng.normal(size=4)
    terms = chunk.Own(*rng.normal(size=(3, 4)) * 0.1) if own else None
    choice = np.zeros(50, np.int32)
    if kind == "device":
        form = LinearForm(5, lambda X: X, None, None, None)
        rows = open_rows(form, array_api_strict.asarray(features))
        rows.chunk_numbers = 300  # several chunks
        found = rows.soften(weights, constants, terms)
        choice = np.asarray(rows.labels())
    else:
        given = sp.csr_matrix(features) if kind == "sparse" else features
        found = chunk.soften(given, weights, constants, terms, choice)
    scores = features @ weights.T + constants
    assert found.log_normaliser == pytest.approx(logsumexp(scores, axis=1).sum())
    if own:
        r = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        for i, k in itertools.product(range(50), range(4)):
            scores[i, k] += terms.at[k] * r[i, k]
            scores[i, k] += sum(terms.from_here[j] * r[i, j:].sum() for j in range(k + 1))
            scores[i, k] += sum(terms.after[j] * r[i, j + 1 :].sum() for j in range(k))
    r = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    np.testing.assert_allclose(found.totals.sizes, r.sum(axis=0))
    np.testing.assert_allclose(found.totals.sums, r.T @ features)
    np.testing.assert_allclose(found.squares, (r**2).sum(axis=0))
    later = np.cumsum(r[:, ::-1], axis=1)[:, ::-1] - r
    np.testing.assert_allclose(found.squares_after, (later**2).sum(axis=0), atol=1e-12)
    assert found.entropy == pytest.approx(-(r * np.log(r)).sum())
    np.testing.assert_array_equal(choice, scores.argmax(axis=1))


def test_births_and_merges_leave_a_bad_start():
    X = table(300)
    from_one = variational(X, FAMILY, DP, start=np.zeros(300), truncation=20, rng=0)
    from_many = variational(X, FAMILY, DP, start=np.arange(300) % 12, truncation=20, rng=0)
    stuck = variational(X, FAMILY, DP, start=np.zeros(300), truncation=20, moves=False)
    assert from_one.lower_bound > stuck.lower_bound + 100.0
    assert 3 <= from_many.n_components <= 4
    assert from_one.lower_bound == pytest.approx(from_many.lower_bound, abs=2.0)


@pytest.mark.parametrize("seed", [0, 2])
def test_a_birth_whose_halves_part_slowly_is_followed(seed):
    """Within a dozen iterations, no birth here rises above the bound of one component."""
    X = datasets.whitened(datasets.mnist_digits()[0])
    family = families.Gaussian(0.0, 0.1, 1.0)
    found = variational(X, family, DP, start=np.zeros(len(X)), rng=seed, max_iter=40)
    assert found.n_components > 1
    assert not found.converged
    assert "not converged" in repr(found)


def test_births_divide_ellipses():
    """If a new component's covariance is too long, it never releases the other rows."""
    X, labels = datasets.planted_clusters(400, 6, 6, rng=0)
    family = families.FullGaussian(X.mean(axis=0), 1.0, 6.0, np.diag(X.var(axis=0)))
    best = variational(X, family, DP, start=labels, moves=False).lower_bound
    for rng in range(3):
        found = variational(X, family, DP, start=np.zeros(400), truncation=10, rng=rng)
        assert found.lower_bound == pytest.approx(best, abs=1e-3)


def test_rows_are_split_into_the_planted_groups():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-4.0, 1.0, (20, 2)), rng.normal(4.0, 1.0, (30, 2))])
    form = FAMILY.linear(2)
    features = form.features(X)
    found, gain = split_rows(form, features, rng)
    order = np.argsort(found.sizes)
    np.testing.assert_array_equal(found.sizes[order], [20.0, 30.0])
    np.testing.assert_allclose(found.sums[order[0]], features[:20].sum(axis=0))
    problem = Problem(X, FAMILY, DP)
    one, two = (problem.log_joint(x) - DP.log_probability(np.bincount(x))
                for x in (np.zeros(50, int), np.repeat([0, 1], [20, 30])))  # fmt: skip
    assert gain == pytest.approx(two - one + 20 * np.log(0.4) + 30 * np.log(0.6))
    assert split_rows(form, features[:20], rng)[1] < 0.0
    alike, none = split_rows(form, features[[0, 0, 0]], rng)
    np.testing.assert_array_equal(alike.sizes, [1.0, 1.0])
    assert none == -np.inf


def test_predictions_are_those_of_the_mixture():
    X = table(400)
    found = variational(X, FAMILY, DP, rng=0)
    best = search(X, FAMILY, DP)
    assert (found.clustering.labels != best.labels).mean() < 0.01
    np.testing.assert_array_equal(found.predict(X), found.clustering.labels)
    assert found.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    grid = np.stack(np.meshgrid(*[np.linspace(-25.0, 25.0, 301)] * 2), axis=-1).reshape(-1, 2)
    mass = np.exp(found.score_samples(grid)).sum() * (50.0 / 300.0) ** 2
    assert mass == pytest.approx(1.0, abs=1e-3)
    assert found.score(X) == pytest.approx(found.score_samples(X).mean())
    assert found.sample(10, rng=0)[0].shape == (10, 2)
    assert (np.diff(found.sizes) <= 0.0).all()
    assert "components" in repr(found)


def test_expected_log_weights_add_up():
    q = Sticks(DP, 50, "a test").fit(np.zeros(50), 0.0)
    assert np.exp(log_weights(q)).sum() < 1.0  # Jensen


def test_the_result_does_not_depend_on_threads_and_seeds_repeat():
    X = table(500)
    first = variational(X, FAMILY, DP, rng=3, start=np.zeros(500))
    second = variational(X, FAMILY, DP, rng=3, start=np.zeros(500), n_jobs=2)
    assert first.lower_bound == second.lower_bound
    np.testing.assert_array_equal(first.sizes, second.sizes)


def test_passes_on_a_device_find_the_same():
    X = table(300)
    here = variational(X, FAMILY, DP, rng=3, start=np.zeros(300))
    there = variational(X, FAMILY, DP, rng=3, start=np.zeros(300), device="cpu")
    assert there.lower_bound == pytest.approx(here.lower_bound, abs=1e-6)
    np.testing.assert_allclose(there.sizes, here.sizes, atol=1e-5)


@pytest.mark.parametrize("options", VARIANTS[:3], ids=repr)
@pytest.mark.parametrize("family", [families.Multinomial(1.0), families.Poisson(1.0, 1.0)])
def test_sparse_rows_on_a_device_find_the_same(family, options, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(30, 0.1), size=4)
    counts = sp.csr_matrix([rng.multinomial(6, topics[i % 4]) for i in range(120)])
    problem = Problem(counts, family, DP)
    monkeypatch.setattr("dpsearch.passes.csr_rows._ENTRIES", 100)  # several parts
    monkeypatch.setattr("dpsearch.passes.arrays.CHUNK_NUMBERS", 500)  # and chunks of them
    options = {"start": np.arange(120) % 3, "truncation": 8, "rng": 3, "tol": 1e-9} | options
    here = variational(problem, **options)
    there = variational(problem, **options, device="cpu")
    assert there.lower_bound == pytest.approx(here.lower_bound, rel=1e-9)
    np.testing.assert_allclose(there.sizes, here.sizes, rtol=1e-6)
    np.testing.assert_array_equal(there.clustering.labels, here.clustering.labels)
    np.testing.assert_allclose(there.score_samples(counts), here.score_samples(counts), rtol=1e-9)


def test_an_interrupted_fit_is_returned_as_it_is():
    def interrupt(event):
        if event.done == 3:
            raise KeyboardInterrupt

    found = variational(table(), FAMILY, DP, callback=interrupt, start=np.arange(60) % 5)
    assert len(found.history) == 3
    assert not found.converged


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"truncation": 1}, "truncation must be an integer ≥ 2"),
        ({"variant": "other"}, "variant must be one of"),
        ({"order": 3}, "order must be 1 or 2"),
        ({"start": "one"}, "start must be"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol must be a finite number above 0"),
        ({"tol": float("nan")}, "tol must be"),
        ({"tol": "x"}, "tol must be"),
        ({"tail": True, "variant": "collapsed"}, "tail needs"),
        ({"cells": 0}, "cells must be an integer ≥ 1"),
        ({"cells": 5, "device": "cpu"}, "cells needs the rows in memory"),
        ({"order": 1}, "order needs the variant 'collapsed'"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        variational(table(), FAMILY, DP, **options)
    with pytest.raises(ParameterError, match="n_shards needs data, not a Problem"):
        variational(Problem(table(), FAMILY, DP), n_shards=2)


def test_what_a_model_lacks_is_named():
    with pytest.raises(CapabilityError, match="broken sticks.*finite_mixture"):
        variational(table(), FAMILY, FiniteMixture(3.0, 1.0))
    with pytest.raises(CapabilityError, match="broken sticks.*antoniak_counts"):
        variational(table(), FAMILY, priors.AntoniakCounts(1.0))
    problem = Problem(table(), FAMILY, DP, weights=np.full(60, 2))
    with pytest.raises(CapabilityError, match="single points"):
        variational(problem)


@pytest.mark.parametrize("prior", [DP, priors.PitmanYor(1.0, 0.3)], ids=repr)
def test_a_saved_mixture_predicts_the_same(tmp_path, prior):
    X = table(80)
    found = variational(X, FAMILY, prior, rng=0)
    found.save(tmp_path / "mixture.npz")
    again = VariationalMixture.load(tmp_path / "mixture.npz")
    assert repr(again) == repr(found)
    for name in ("sizes", "history", "weights", "alpha", "lower_bound", "converged"):
        np.testing.assert_allclose(getattr(again, name), getattr(found, name), rtol=1e-12)
    np.testing.assert_array_equal(again.clustering.labels, found.clustering.labels)
    assert again.clustering.log_joint == found.clustering.log_joint
    np.testing.assert_allclose(again.score_samples(X), found.score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(again.sample(5, rng=1)[0], found.sample(5, rng=1)[0], rtol=1e-9)
    holes = np.array([[-4.0, np.nan], [4.0, 0.5]])
    filled = again.impute(holes)
    assert abs(filled[0, 1]) < 1.0
    np.testing.assert_array_equal(filled[~np.isnan(holes)], holes[~np.isnan(holes)])


def test_a_file_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "mixture.npz"
    variational(table(), FAMILY, DP, rng=0).save(path)
    with pytest.raises(ModelFileError, match="not a dpsearch model, but a file for Variational"):
        load(path)
    with np.load(path) as archive:
        entries = dict(archive)
    for name, value in {
        "counts": entries["counts"] + 1,
        "pool": entries["pool"][:-1],
        "sizes": entries["sizes"] * np.nan,
        "log_weights": entries["log_weights"] + 1.0,
        "labels": entries["labels"].astype(float),
    }.items():
        np.savez(path, **entries | {name: value})
        with pytest.raises(ModelFileError, match=r"mixture\.npz"):
            VariationalMixture.load(path)


def test_an_interrupt_while_the_result_is_made_loses_nothing(monkeypatch):
    problem = Problem(table(), FAMILY, DP)
    calls = []

    def interrupted(self, labels, *rest):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return clustering(self, labels, *rest)

    clustering = Problem.clustering
    monkeypatch.setattr(Problem, "clustering", interrupted)
    found = variational(problem, start=np.arange(60) % 5, rng=0)
    assert found.history[-1] == found.lower_bound
    assert len(found.clustering.labels) == 60
