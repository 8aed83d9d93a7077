"""α and hyperparameters, sampled along with the partition, against quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln, softmax
from scipy.stats import kstest, multivariate_normal

import posterior_harness as harness
from dpsearch import families, gibbs, priors
from dpsearch.problem import Problem
from dpsearch.samplers.chain import draw_alpha
from dpsearch.samplers.hyperparameters import Hyperparameters
from enumeration import log_joints
from models import PRODUCT_PRIORS
from posterior_harness import SWEEPS, chi_square, visits


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
    concentration = priors.DirichletProcess(gamma).concentration()
    exact = concentration.draw(n_points, np.full(5000, n_clusters), rng)
    assert kstest(exact, want).pvalue > 1e-3
    # The test can fail: one cluster more is another distribution.
    wrong = _alpha_distribution(gamma, n_clusters + 1, n_points)
    assert kstest(exact, wrong).pvalue < 1e-3


@pytest.mark.parametrize("alpha", ["integrate", "sample"])
def test_alpha_of_draws_has_its_posterior_mean(alpha):
    problem, posterior = harness.small_problem("gaussian", 1, 6)
    labels, _ = harness.partitions(6)
    prior = PRODUCT_PRIORS[1]
    want = posterior @ [prior.concentration().mean(6, int(c.max()) + 1) for c in labels]
    draws = gibbs(problem, draws=SWEEPS, alpha=alpha, rng=0)
    values = draws.alpha.reshape(100, -1).mean(axis=1)
    assert abs(values.mean() - want) < 4.0 * values.std() / 10.0


def _log_density_by_hand(x, labels, s):
    """log N(s; 0, 1) + Σ_k log N(x_k; 0, 9 + 2 e^s I), up to a constant."""
    value = -0.5 * s**2
    for k in np.unique(labels):
        block = x[labels == k]
        covariance = 9.0 + 2.0 * math.exp(s) * np.eye(len(block))
        value += multivariate_normal.logpdf(block, np.zeros(len(block)), covariance)
    return value


@pytest.mark.slow
def test_a_sampled_hyperparameter_agrees_with_quadrature():
    """On a fixed partition, draws of the slice step are compared with the density on a grid."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0.0, 1.0, 15), rng.normal(5.0, 1.0, 10)])[:, None]
    labels = np.repeat([0, 1], [15, 10])
    problem = Problem(X, families.Gaussian(0.0, 9.0, 2.0), priors.DirichletProcess(1.0))
    sampled = Hyperparameters(problem, {"noise_variance": 1.0})
    grid = np.linspace(-5.0, 5.0, 501)
    density = np.array([_log_density_by_hand(X[:, 0], labels, s) for s in grid])
    below = np.cumsum(softmax(density))
    draws = []
    for _ in range(2500):
        sampled.step(problem, labels, rng)
        draws.append(sampled.state[0])
    assert kstest(draws[::5], lambda s: np.interp(s, grid, below)).pvalue > 1e-3


@pytest.mark.slow
def test_partitions_have_their_posterior_when_a_hyperparameter_is_sampled():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4, 1)) * 2.0
    family, prior = families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.0)
    steps = np.linspace(-3.5, 3.5, 71)
    values = [
        log_joints(Problem(X, family.with_parameters(noise_variance=math.exp(s)), prior))
        - 0.5 * s**2
        for s in steps
    ]
    weights = np.exp(np.array(values) - np.max(values))
    posterior = weights.sum(axis=0) / weights.sum()
    draws = gibbs(X, family, prior, draws=3000, hyperparameters={"noise_variance": 1.0}, rng=1)
    assert chi_square(visits(draws.labels)[::3], posterior) > 1e-3
    # The test can fail: with the hyperparameter fixed the posterior is another one.
    fixed = softmax(log_joints(Problem(X, family, prior)))
    assert chi_square(visits(draws.labels)[::3], fixed) < 1e-3
