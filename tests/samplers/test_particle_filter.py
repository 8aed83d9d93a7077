"""The particle filter against the enumeration of all partitions."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

import posterior_harness as harness
from dpsearch import families, gibbs, particle_filter, priors
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.partition import by_appearance
from dpsearch.prefix_search import shared_rows
from dpsearch.problem import Problem
from dpsearch.samplers import particle_state
from dpsearch.samplers.particle_state import Filter
from dpsearch.state import State
from enumeration import log_joints
from models import DRAWS, PRODUCT_PRIORS
from posterior_harness import HARNESS_PRIORS

FAMILY, DP = families.Gaussian(0.0, 9.0, 1.0), priors.DirichletProcess(1.0)
KINDS = [("optimal", 0), ("stratified", 0), ("optimal", 1)]


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-2.0, 1.0, (n // 2, 2)), rng.normal(2.0, 1.0, (n // 2, 2))])


def ratios(problem, runs, **options):
    """Return estimates of the evidence, divided by the enumerated one."""
    evidence = logsumexp(log_joints(problem))
    found = [particle_filter(problem, rng=run, **options).log_evidence for run in range(runs)]
    return np.exp(np.array(found) - evidence)


@pytest.mark.parametrize("sets", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("resampling", "rejuvenate"), KINDS)
def test_the_evidence_is_unbiased(resampling, rejuvenate, sets):
    """This holds for every family and prior, even if most particles are lost at every step."""
    cases = list(itertools.product(DRAWS, range(len(HARNESS_PRIORS))))
    scores, weighted = [], []
    for number in range(sets):
        name, prior = cases[number % len(cases)]
        family, X = DRAWS[name](np.random.default_rng([number, 7]), 5)
        problem = Problem(X, family, HARNESS_PRIORS[prior])
        runs = 20 if rejuvenate and sets == 20 else 50  # sweeps of particles take long
        found = ratios(problem, runs, particles=5, resampling=resampling, rejuvenate=rejuvenate)
        if found.std() > 1e-9:
            scores.append((found.mean() - 1.0) / (found.std(ddof=1) / np.sqrt(len(found))))
            weighted.append(found.mean() - 1.0)
        else:
            assert found.mean() == pytest.approx(1.0, abs=1e-8)
    pooled = np.mean(weighted) / (np.std(weighted, ddof=1) / np.sqrt(len(weighted)))
    assert abs(pooled) < 3.0
    # Estimates are skewed, so that a few of 200 means are far off in their own standard errors.
    assert (np.abs(scores) > 3.0).mean() < 0.06


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
@pytest.mark.parametrize("resampling", ["optimal", "stratified"])
def test_ten_thousand_particles_have_the_posterior(name, resampling):
    """The nine points have 21,147 partitions."""
    for prior in range(len(PRODUCT_PRIORS)):
        for seed in itertools.count():
            family, X = DRAWS[name](np.random.default_rng([prior, seed]), 9)
            problem = Problem(X, family, PRODUCT_PRIORS[prior])
            posterior = softmax(log_joints(problem))
            # Independent draws would be off by Σ √(p/n)/√(2π).
            if 0.005 < np.sqrt(posterior / 1e4 / (2 * np.pi)).sum() < 0.03:
                break
        found = particle_filter(problem, particles=10_000, resampling=resampling, rng=0)
        visited = harness.visits(found.labels)
        weights = np.bincount(visited, found.weights, minlength=len(posterior))
        assert 0.5 * np.abs(weights - posterior).sum() < 0.05


def test_with_room_for_all_partitions_the_filter_is_exact():
    problem, posterior = harness.small_problem("poisson", 1, 6)
    values = log_joints(problem)
    found = particle_filter(problem, particles=203, rng=0)
    visited = harness.visits(found.labels)
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)
    np.testing.assert_allclose(found.weights, posterior[visited], atol=1e-12)
    np.testing.assert_allclose(found.log_joint, values[visited], atol=1e-9)
    assert found.clustering.log_joint == pytest.approx(values.max(), abs=1e-9)
    assert found.k_posterior().sum() == pytest.approx(1.0)
    assert found.effective_sample_size == pytest.approx(1.0 / np.square(posterior).sum())


def test_with_room_for_all_points_taken_in_blocks_are_exact():
    """The family has the block capability: four points are taken at once, then three."""
    X = np.random.default_rng(3).normal(size=(7, 2)) * 2.0
    problem = Problem(X, FAMILY, priors.PitmanYor(1.5, 0.3))
    assert problem.dots() is not None
    values = log_joints(problem)
    found = particle_filter(problem, particles=877, rng=0)
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)
    np.testing.assert_allclose(
        found.weights, softmax(values)[harness.visits(found.labels)], atol=1e-12
    )


def candidates(state, X, i):
    """Return the partitions that placing item i leads to, with weights by their log joints."""
    out = {}
    weights = state.shared.hypotheses.scores
    for h in range(state.shared.counts.hypotheses):
        labels = state.labels(h)
        there = labels >= 0
        before = Problem(X[there], FAMILY, DP).log_joint(labels[there])
        for k in range(labels.max() + 2):
            after = labels.copy()
            after[i] = k
            after[after >= 0] = by_appearance(after[after >= 0])
            now = Problem(X[after >= 0], FAMILY, DP).log_joint(after[after >= 0])
            out[tuple(after)] = weights[h] * np.exp(now - before)
    return out


@pytest.mark.parametrize(("n", "guess"), [(11, 0.01), (18, 1.0), (33, 1e-9)])
def test_optimal_resampling_keeps_the_heavy_and_gives_the_light_one_weight(n, guess):
    """Compare with all candidates one by one, with the limit found by bisection."""
    problem = Problem(table(), FAMILY, DP)
    order = np.random.default_rng(n).permutation(40)
    state = Filter(problem, 30, "optimal", order, 0, np.random.default_rng(0))
    state.placing = order[:n]
    while len(state.left):
        state.place()
    wanted = candidates(state, table(), order[n])
    state.cut = guess  # any will do
    state.placing = order[: n + 1]
    state.place()
    values = np.array(list(wanted.values()))
    values /= values.sum()
    limit = brentq(lambda c: np.minimum(values / c, 1.0).sum() - 30, 1e-12, 1.0, xtol=1e-15)
    assert state.cut == pytest.approx(limit, rel=1e-8)
    found = {tuple(state.labels(h)): state.shared.hypotheses.scores[h] for h in range(30)}
    for value, partition in zip(values, wanted, strict=True):
        if value > limit:
            assert found.pop(partition) == pytest.approx(value, rel=1e-8)
    assert set(found) <= set(wanted)
    np.testing.assert_allclose(list(found.values()), limit, rtol=1e-8)


@pytest.mark.parametrize("resampling", ["optimal", "stratified"])
def test_where_rows_lie_does_not_matter(resampling, monkeypatch):
    monkeypatch.setattr(particle_state, "_CHUNK", 16)
    runs = []
    for share in (-1.0, 2.0):  # rows are never, and always, moved together
        monkeypatch.setattr(shared_rows, "_DENSE", share)
        runs.append(
            particle_filter(table(200), FAMILY, DP, resampling=resampling, particles=40, rng=0)
        )
    np.testing.assert_array_equal(runs[0].labels, runs[1].labels)
    np.testing.assert_array_equal(runs[0].weights, runs[1].weights)
    assert runs[0]._filter.shared.counts.highest > len(runs[0]._filter.shared.rows_in_use())


def test_blocks_of_points_are_placed_as_wholes():
    X = np.random.default_rng(0).normal(size=(7, 2))
    points = Problem(X, FAMILY, priors.PitmanYor(1.5, 0.3))
    pool, sizes = points.rows(np.array([0, 0, 1, 2, 2, 3, 3]))
    problem = Problem.of_items(points.model, points.model.blocks(pool, sizes), 0.0, points.prior)
    values = [points.log_joint(c[[0, 0, 1, 2, 2, 3, 3]]) for c in harness.partitions(4)[0]]
    found = particle_filter(problem, particles=50, rng=0)
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)


@pytest.mark.parametrize("prior", HARNESS_PRIORS, ids=repr)
def test_batches_have_the_posterior_of_all_rows(prior):
    """The posteriors agree exactly if all partitions fit, otherwise in expectation."""
    X = np.random.default_rng(2).normal(size=(6, 1)) * 2.0
    problem = Problem(X, FAMILY, prior)
    values = log_joints(problem)
    first = particle_filter(X[:3], FAMILY, prior, particles=203, rng=0)
    found = first.update(X[3:4]).update(X[4:])
    visited = harness.visits(found.labels)
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)
    np.testing.assert_allclose(found.weights, softmax(values)[visited], atol=1e-12)
    np.testing.assert_allclose(found.log_joint, values[visited], atol=1e-9)
    assert found.clustering.log_joint == pytest.approx(values.max(), abs=1e-9)
    # What was there before has not changed.
    assert first.log_evidence == particle_filter(X[:3], FAMILY, prior, rng=0).log_evidence
    assert first.labels.shape[1] == 3
    some = []
    for run in range(200):
        begun = particle_filter(X[:3], FAMILY, prior, particles=4, rng=run)
        some.append(np.exp(begun.update(X[3:]).log_evidence - logsumexp(values)))
    assert abs(np.mean(some) - 1.0) < 3.5 * np.std(some) / np.sqrt(len(some))


def test_more_particles_than_fit_the_first_arrays():
    """With many clusters and members, all arrays must grow; values are recomputed from labels."""
    X = np.random.default_rng(0).normal(size=(1500, 1)) * 300.0
    problem = Problem(X, families.Gaussian(0.0, 9e4, 1.0), priors.DirichletProcess(50.0))
    found = particle_filter(problem, particles=20, rng=0)
    assert found.clustering.n_clusters > 64
    for h, labels in enumerate(found.labels):
        assert found.log_joint[h] == pytest.approx(problem.log_joint(labels), abs=1e-6)
        assert found.n_clusters[h] == labels.max() + 1


def test_rejuvenated_particles_keep_their_books():
    problem = Problem(table(), FAMILY, DP)
    found = particle_filter(problem, particles=30, rejuvenate=2, rng=0)
    for h, labels in enumerate(found.labels):
        assert found.log_joint[h] == pytest.approx(problem.log_joint(labels), abs=1e-8)
    shared = found._filter.shared
    lists = zip(shared.hypotheses.rows, shared.hypotheses.counts, strict=True)
    held = np.concatenate([rows[:count] for rows, count in lists])
    wanted = np.bincount(held, minlength=len(shared.rows.users))
    np.testing.assert_array_equal(shared.rows.users[1:], wanted[1:])


def test_the_same_seed_gives_the_same_particles():
    first, second = (particle_filter(table(), FAMILY, DP, particles=50, rng=4) for _ in range(2))
    np.testing.assert_array_equal(first.labels, second.labels)
    np.testing.assert_array_equal(first.weights, second.weights)


def test_draws_of_particles():
    found = particle_filter(table(), FAMILY, DP, particles=200, rng=0)
    draws = found.draws(400, rng=0)
    assert draws.labels.shape == (400, 40)
    assert draws.point_estimate().n_clusters == 2
    together = draws.coclustering()
    exact = np.einsum("h,hij->ij", found.weights, found.labels[:, :, None] == found.labels[:, None])
    np.testing.assert_allclose(together, exact, atol=0.12)
    assert "effective sample size" in repr(found)
    pytest.importorskip("matplotlib")
    assert draws.plot_trace()[1].get_xlabel() == "draw"


def test_an_interrupted_run_returns_the_best_so_far():
    def interrupt(event):
        assert event.total == 2600
        if event.done > 1024:
            raise KeyboardInterrupt

    problem = Problem(table(2600), FAMILY, DP)
    found = particle_filter(problem, particles=10, callback=interrupt, rng=0)
    assert 1024 < found.n_placed < 2600
    assert (found.labels < 0).sum() == 10 * (2600 - found.n_placed)
    assert len(found.clustering.labels) == 2600
    value = problem.log_joint(found.clustering.labels)
    assert found.clustering.log_joint == pytest.approx(value, abs=1e-6)
    with pytest.raises(
        ParameterError, match=r"Ctrl-C left .* rows unplaced: update\(\) places these"
    ):
        found.update(table())


def test_ctrl_c_ends_a_rejuvenation_between_two_particles(monkeypatch):
    swept = []

    class Interrupting(State):
        def sweep(self, *args, **options):
            swept.append(len(args[0]))
            if len(swept) == 33:  # the third particle of the second rejuvenation
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                time.sleep(0.2)
            super().sweep(*args, **options)

    monkeypatch.setattr("dpsearch.samplers.particle_state.State", Interrupting)
    problem = Problem(table(), FAMILY, DP)
    found = particle_filter(problem, particles=30, rejuvenate=1, rng=0)
    assert len(swept) == 34  # the last one completes the best
    assert found.n_placed == swept[-2] == 40 - swept[-1]
    plain = found.update()
    assert plain.n_placed == 40
    for h, labels in enumerate(plain.labels):
        assert plain.log_joint[h] == pytest.approx(problem.log_joint(labels), abs=1e-8)


def stopped(after):
    def callback(event):
        if event.done >= after:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("prior", HARNESS_PRIORS, ids=repr)
@pytest.mark.parametrize("family", [FAMILY, families.Poisson(2.0, 0.5)])
def test_a_stopped_run_is_that_of_the_rows_placed_and_goes_on(prior, family, monkeypatch):
    """The results agree exactly, as all partitions fit."""
    monkeypatch.setattr(particle_state, "_FIRST", 4)
    X = np.random.default_rng(4).poisson(3.0, (6, 1)).astype(float)
    order, rows = np.array([5, 0, 3, 2, 1, 4]), [0, 2, 3, 5]
    found = particle_filter(
        X, family, prior, particles=203, order=order, callback=stopped(4), rng=0
    )
    values = log_joints(Problem(X[rows], family, prior))
    visited = harness.visits(found.labels[:, rows])
    assert found.n_placed == 4
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)
    np.testing.assert_allclose(found.weights, softmax(values)[visited], atol=1e-12)
    np.testing.assert_allclose(found.log_joint, values[visited], atol=1e-9)
    draws = found.draws(30, rng=0)
    assert draws.labels.shape == (30, 4)
    assert np.isfinite(draws.log_predictive(X)).all()
    problem = Problem(X, family, prior)
    whole = problem.log_joint(found.clustering.labels)
    assert found.clustering.log_joint == pytest.approx(whole, abs=1e-9)
    with pytest.raises(ParameterError, match="X must wait"):
        found.update(X)
    ended = found.update()
    values = log_joints(problem)
    assert ended.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)
    np.testing.assert_allclose(ended.log_joint, values[harness.visits(ended.labels)], atol=1e-9)
    with pytest.raises(ParameterError, match="X is missing"):
        ended.update()


def test_a_stopped_update_is_completed_and_goes_on():
    X = table(60)
    whole = Problem(X, FAMILY, DP)
    begun = particle_filter(X[:40], FAMILY, DP, particles=20, order="given", rng=0)
    found = begun.update(X[40:], callback=stopped(5))
    assert 40 < found.n_placed < 60
    assert "points in" in repr(found.clustering)
    sizes = found.clustering.sizes
    assert sizes.sum() == 60
    assert (np.diff(sizes) <= 0).all()
    value = whole.log_joint(found.clustering.labels)
    assert found.clustering.log_joint == pytest.approx(value, abs=1e-9)
    there = found.labels[0] >= 0
    part = Problem(X[there], FAMILY, DP)
    for h, labels in enumerate(found.labels):
        assert found.log_joint[h] == pytest.approx(part.log_joint(labels[there]), abs=1e-8)
    ended = found.update()
    assert ended.n_placed == 60
    for h, labels in enumerate(ended.labels):
        assert ended.log_joint[h] == pytest.approx(whole.log_joint(labels), abs=1e-8)


def test_many_particles_are_placed_in_short_chunks(monkeypatch):
    monkeypatch.setattr(particle_state, "_WORK", 1 << 20)
    done = []
    particle_filter(table(100), FAMILY, DP, particles=2000, rng=0,
                    callback=lambda event: done.append(event.done))  # fmt: skip
    assert np.diff(done)[-1] < 8
    assert done[0] == 8


def test_a_gap_in_a_later_batch():
    gaps = np.array([[0.0, np.nan], [4.0, 4.0]])
    begun = particle_filter(np.zeros((3, 2)), FAMILY, DP, particles=10, rng=0)
    with pytest.raises(
        DataError, match=r"but the first rows had none: start with family.with_gaps"
    ):
        begun.update(gaps)
    begun = particle_filter(np.zeros((3, 2)), FAMILY.with_gaps(), DP, particles=52, rng=0)
    found = begun.update(gaps)
    values = log_joints(Problem(np.concatenate([np.zeros((3, 2)), gaps]), FAMILY, DP))
    assert found.log_evidence == pytest.approx(logsumexp(values), abs=1e-9)


def test_draws_have_a_concentration():
    prior = priors.DirichletProcess(priors.Gamma(2.0, 1.0))
    found = particle_filter(table(), FAMILY, prior, particles=50, rng=0)
    draws = found.draws(2000, rng=0)
    chain = gibbs(table(), FAMILY, prior, draws=4000, burn_in=200, rng=0)
    assert draws.alpha.mean() == pytest.approx(chain.alpha.mean(), abs=0.1)


def test_an_interrupted_batch_is_completed_and_counts_weights():
    """The earlier batch's rows are gone, so the rest joins the clusters of the best particle."""

    def interrupt(event):
        raise KeyboardInterrupt

    X, prior = table(1600), priors.PitmanYor(1.0, 0.2)
    first = Problem(X[:100], FAMILY, prior, weights=np.arange(100) % 3 + 1)
    found = particle_filter(first, particles=10, rng=0).update(X[100:], callback=interrupt)
    assert 100 < found.n_placed < 1600
    weights = np.append(first.items.sizes, np.ones(1500, np.int64))
    whole = Problem(X, FAMILY, prior, weights=weights)
    labels = found.clustering.labels
    assert found.clustering.log_joint == pytest.approx(whole.log_joint(labels), abs=1e-6)
    np.testing.assert_array_equal(found.clustering.sizes, np.bincount(labels, weights))
    assert (np.diff(found.clustering.sizes) <= 0).all()
    by_particle = found.labels[int(np.argmax(found.log_joint))]
    there = by_particle >= 0
    np.testing.assert_array_equal(by_appearance(labels[there]), by_particle[there])
    # The best place of the last row, given all others.
    choices = [np.append(labels[:-1], k) for k in range(labels.max() + 1)]
    values = [whole.log_joint(choice) for choice in choices]
    assert labels[-1] == np.argmax(values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"particles": 0}, "particles must be an integer ≥ 1"),
        ({"particles": 2.5}, "particles"),
        ({"resampling": "none"}, "resampling must be one of optimal, stratified"),
        ({"order": "sorted"}, "unknown order"),
        ({"rejuvenate": -1}, "rejuvenate"),
        ({"rng": "x"}, "rng"),
        ({"particles": 10**15}, "particles: 1,000,000,000,000,000 need more memory"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ParameterError, match=words):
        particle_filter(table(), FAMILY, DP, **options)


def test_a_prior_that_is_no_product_is_refused():
    with pytest.raises(CapabilityError, match="antoniak_counts is not"):
        particle_filter(table(), FAMILY, priors.AntoniakCounts(1.0))
