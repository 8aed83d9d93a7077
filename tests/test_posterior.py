"""Every sampler has the right posterior; and each check would say so if it had not."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln, softmax
from scipy.stats import kstest

import posterior_harness as harness
from dpsearch import families, gibbs, priors, split_merge
from dpsearch.objective import Problem
from dpsearch.samplers import chain, pair_moves
from dpsearch.samplers.concentration import draw_alpha, draw_alpha_given_clusters
from dpsearch.samplers.hyperparameters import Hyperparameters
from enumeration import log_joints
from models import DRAWS, PRODUCT_PRIORS
from posterior_harness import SAMPLERS, chi_square, geweke, total_variation, visits

SWEEPS = 50_000
THIN = 15  # until draws are as good as independent
PRIORS = range(len(PRODUCT_PRIORS))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("n", [5, 6])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", DRAWS)
def test_visits_agree_with_enumeration(name, prior, n, sampler):
    problem, posterior = harness.small_problem(name, prior, n)
    visited = visits(harness.run_chain(problem, SAMPLERS[sampler], SWEEPS, seed=prior))
    assert total_variation(visited, posterior) < 0.02
    assert chi_square(visited[::THIN], posterior) > 1e-4


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", DRAWS)
def test_geweke_joint_distribution(name, prior, sampler):
    problem, _ = harness.small_problem(name, prior, 4)
    sweep = harness.one_sweep(SAMPLERS[sampler])
    assert geweke(problem, PRODUCT_PRIORS[prior], 4, sweep, iterations=300, seed=1) < 4.0


@pytest.mark.parametrize("options", [{"scan": "shuffled"}, {"alpha": "sample"}], ids=str)
@pytest.mark.parametrize("name", ["gaussian", "multinomial"])
def test_other_options_have_the_same_posterior(name, options):
    """Sampling α along with the partition, and integrating it out, are the same on partitions."""
    problem, posterior = harness.small_problem(name, 1, 6)
    visited = visits(harness.run_chain(problem, options, SWEEPS, seed=0))
    assert total_variation(visited, posterior) < 0.02
    assert chi_square(visited[::THIN], posterior) > 1e-4


def test_blocks_of_points_are_sampled_as_wholes():
    """Items of several points: the posterior over partitions of the items, by enumeration."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 2))
    points = Problem.of(X, families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.5))
    pool, sizes = points.rows(np.array([0, 0, 1, 2, 2, 2, 3, 4, 4]))
    problem = Problem(points.model, points.model.blocks(pool, sizes), 0.0, points.prior)
    values = []
    for labels in harness.partitions(5)[0]:
        values.append(points.log_joint(labels[[0, 0, 1, 2, 2, 2, 3, 4, 4]]))
    posterior = softmax(values)
    for sampler, options in SAMPLERS.items():
        visited = visits(harness.run_chain(problem, options, SWEEPS, seed=0))
        assert total_variation(visited, posterior) < 0.02, sampler


# -- planted bugs ----------------------------------------------------------------------------


def _interpreted(monkeypatch):
    """Run the samplers as plain Python, in which functions can be replaced."""
    monkeypatch.setattr(chain, "_run", chain._run.py_func)
    monkeypatch.setattr(chain, "split_merge_move", pair_moves.split_merge_move.py_func)
    monkeypatch.setattr(pair_moves, "_divide", pair_moves._divide.py_func)


def _both_checks(sampler, sweeps=2500):
    problem, posterior = harness.small_problem("poisson", 0, 5)
    visited = visits(harness.run_chain(problem, SAMPLERS[sampler], sweeps, seed=0))
    variation, p_value = total_variation(visited, posterior), chi_square(visited[::4], posterior)
    small, _ = harness.small_problem("poisson", 0, 4)
    one = harness.one_sweep(SAMPLERS[sampler])
    return variation, p_value, geweke(small, PRODUCT_PRIORS[0], 4, one, iterations=800, seed=1)


_DIVIDE = pair_moves._divide.py_func


def _without_hastings_factor():
    def wrong(*arguments):
        _DIVIDE(*arguments)
        return 0.0

    return wrong


def _with_all_scans_counted():
    """The probability of every scan instead of the last one's."""

    def wrong(core, items, tables, i, j, members, side, rule, scans, forced, room, rng):
        last = _DIVIDE(core, items, tables, i, j, members, side, rule, scans, forced, room, rng)
        return last * (scans + 1)

    return wrong


@pytest.mark.parametrize(
    ("sampler", "bug"),
    [
        ("split-merge 1", _without_hastings_factor),
        ("split-merge 2", _without_hastings_factor),
        ("sams", _without_hastings_factor),
        ("split-merge 2", _with_all_scans_counted),
    ],
)
def test_the_checks_catch_planted_bugs(monkeypatch, sampler, bug):
    _interpreted(monkeypatch)
    variation, p_value, z = _both_checks(sampler)
    assert variation < 0.05  # 2,500 sweeps are few: the bound that the bugs exceed
    assert p_value > 1e-4
    assert z < 4.0
    monkeypatch.setattr(pair_moves, "_divide", bug())
    variation, p_value, z = _both_checks(sampler)
    assert variation > 0.05
    assert p_value < 1e-4
    assert z > 4.0


@pytest.mark.parametrize("sampler", ["gibbs", "gibbs, random scan", "split-merge 3"])
def test_the_checks_catch_a_cluster_weighed_with_the_item_in_it(sampler):
    """n where n − 1 is meant: the Chinese restaurant process with a guest counted twice."""

    def spoiled(problem):
        out = copy.copy(problem)
        sizes = np.arange(problem.n_points + 1)
        out.tables = problem.tables._replace(log_w=gammaln(sizes + 1.0))
        return out

    problem, posterior = harness.small_problem("poisson", 0, 5)
    visited = visits(harness.run_chain(spoiled(problem), SAMPLERS[sampler], SWEEPS, seed=0))
    assert total_variation(visited, posterior) > 0.02
    assert chi_square(visited[::THIN], posterior) < 1e-4
    small, _ = harness.small_problem("poisson", 0, 4)
    one = harness.one_sweep(SAMPLERS[sampler])
    z = geweke(small, PRODUCT_PRIORS[0], 4, lambda p, c, rng: one(spoiled(p), c, rng), 800, seed=1)
    assert z > 4.0


# -- the concentration -----------------------------------------------------------------------


def _alpha_distribution(gamma, n_clusters, n_points):
    """Return p(α ≤ a | K, N) by quadrature."""

    def log_density(alpha):
        value = (n_clusters + gamma.shape - 1.0) * np.log(alpha) - gamma.rate * alpha
        return value + gammaln(alpha) - gammaln(alpha + n_points)

    grid = np.geomspace(1e-6, 200.0, 400)
    peak = log_density(grid).max()
    masses = [
        quad(lambda a: np.exp(log_density(a) - peak), low, high, epsabs=1e-12, epsrel=1e-9)[0]
        for low, high in itertools.pairwise([1e-12, *grid])
    ]
    below = np.cumsum(masses) / np.sum(masses)
    return lambda a: np.interp(a, grid, below)


@pytest.mark.parametrize(("n_clusters", "n_points"), [(1, 10), (4, 50), (12, 3000)])
@pytest.mark.parametrize("gamma", [priors.Gamma(1.0, 1.0), priors.Gamma(2.0, 0.3)], ids=repr)
def test_alpha_agrees_with_quadrature_on_a_fixed_partition(gamma, n_clusters, n_points):
    want = _alpha_distribution(gamma, n_clusters, n_points)
    rng = np.random.default_rng(0)
    alpha, chain_draws = 1.0, []
    for _ in range(40_000):
        alpha = draw_alpha(alpha, gamma.shape, gamma.rate, n_clusters, n_points, rng)
        chain_draws.append(alpha)
    assert kstest(chain_draws[::20], want).pvalue > 1e-3
    exact = draw_alpha_given_clusters(gamma, n_points, np.full(5000, n_clusters), rng)
    assert kstest(exact, want).pvalue > 1e-3
    # The test can fail: one cluster more is another distribution.
    wrong = _alpha_distribution(gamma, n_clusters + 1, n_points)
    assert kstest(exact, wrong).pvalue < 1e-3


@pytest.mark.parametrize("alpha", ["integrate", "sample"])
def test_alpha_of_draws_has_its_posterior_mean(alpha):
    problem, posterior = harness.small_problem("gaussian", 1, 6)
    labels, _ = harness.partitions(6)
    prior = PRODUCT_PRIORS[1]
    want = posterior @ [prior.mean_alpha(6, int(c.max()) + 1) for c in labels]
    draws = gibbs(
        problem.model.matrix, problem.model.family, prior, draws=SWEEPS, alpha=alpha, rng=0
    )
    values = draws.alpha.reshape(100, -1).mean(axis=1)
    assert abs(values.mean() - want) < 4.0 * values.std() / 10.0


# -- hyperparameters -------------------------------------------------------------------------


def test_a_sampled_hyperparameter_agrees_with_quadrature():
    """On a fixed partition: the slice step's draws against the density on a grid."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0.0, 1.0, 15), rng.normal(5.0, 1.0, 10)])[:, None]
    labels = np.repeat([0, 1], [15, 10])
    problem = Problem.of(X, families.Gaussian(0.0, 9.0, 2.0), priors.DirichletProcess(1.0))
    sampled = Hyperparameters(problem, {"noise_variance": 1.0})
    grid = np.linspace(-5.0, 5.0, 2001)
    density = np.array([sampled.log_density(np.array([s]), labels) for s in grid])
    below = np.cumsum(softmax(density))
    draws = []
    for _ in range(2500):
        sampled.step(labels, rng)
        draws.append(sampled.log_factors[0])
    assert kstest(draws[::5], lambda s: np.interp(s, grid, below)).pvalue > 1e-3


def test_partitions_have_their_posterior_when_a_hyperparameter_is_sampled():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4, 1)) * 2.0
    family, prior = families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0)
    steps = np.linspace(-3.5, 3.5, 71)
    values = [
        log_joints(Problem.of(X, family.with_parameters(noise_variance=math.exp(s)), prior))
        - 0.5 * s**2
        for s in steps
    ]
    weights = np.exp(np.array(values) - np.max(values))
    posterior = weights.sum(axis=0) / weights.sum()
    draws = gibbs(X, family, prior, draws=3000, hyperparameters={"noise_variance": 1.0}, rng=1)
    assert chi_square(visits(draws.labels)[::3], posterior) > 1e-3
    # The test can fail: with the hyperparameter fixed the posterior is another one.
    fixed = softmax(log_joints(Problem.of(X, family, prior)))
    assert chi_square(visits(draws.labels)[::3], fixed) < 1e-3


def test_split_merge_reaches_what_gibbs_does_not():
    """From one cluster, with clusters far apart: Gibbs alone stays, a split is one proposal."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, (200, 1)), rng.normal(2, 1, (200, 1))])
    family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1e-8)
    stuck = gibbs(X, family, prior, draws=20, start="one", rng=0)
    free = split_merge(X, family, prior, draws=20, start="one", rng=0)
    assert stuck.n_clusters[-1] == 1
    assert free.n_clusters[-1] == 2
    assert free.log_joint[-1] > stuck.log_joint[-1] + 100.0
