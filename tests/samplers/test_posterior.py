"""Every sampler visits partitions as often as enumeration says it should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

import posterior_harness as harness
from dpsearch import families, gibbs, priors, split_merge
from dpsearch.problem import Problem
from dpsearch.samplers import AlphaUpdate, GibbsSweep
from models import PRODUCT_PRIORS
from posterior_harness import SAMPLERS, check_visits


@pytest.mark.parametrize(("name", "prior", "sampler", "n"), harness.sized_cases())
def test_visits_agree_with_enumeration(name, prior, sampler, n):
    problem, posterior = harness.small_problem(name, prior, n)
    assert check_visits(problem, posterior, SAMPLERS[sampler], seed=prior) == (True, True)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("prior", range(len(PRODUCT_PRIORS), len(harness.HARNESS_PRIORS)))
def test_visits_agree_with_enumeration_under_a_prior_from_elsewhere(prior, sampler):
    for name in ("gaussian", "poisson"):
        problem, posterior = harness.small_problem(name, prior, 6)
        assert check_visits(problem, posterior, SAMPLERS[sampler], seed=prior) == (True, True)


@pytest.mark.parametrize(
    "moves", [[GibbsSweep("shuffled")], [GibbsSweep(), AlphaUpdate()]], ids=str
)
@pytest.mark.parametrize("name", ["gaussian", "multinomial"])
def test_other_moves_have_the_same_posterior(name, moves):
    """Sampling α with the partition and integrating it out give the same posterior."""
    problem, posterior = harness.small_problem(name, 1, 6)
    assert check_visits(problem, posterior, moves, seed=0) == (True, True)


def test_blocks_of_points_are_sampled_as_wholes():
    """Items have several points; compare with the enumerated posterior over their partitions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9, 2))
    points = Problem(X, families.Gaussian(0.0, 4.0, 1.0), priors.DirichletProcess(1.5))
    pool, sizes = points.rows(np.array([0, 0, 1, 2, 2, 2, 3, 4, 4]))
    problem = Problem.of_items(points.model, points.model.blocks(pool, sizes), 0.0, points.prior)
    values = []
    for labels in harness.partitions(5)[0]:
        values.append(points.log_joint(labels[[0, 0, 1, 2, 2, 2, 3, 4, 4]]))
    posterior = softmax(values)
    for sampler, moves in SAMPLERS.items():
        assert check_visits(problem, posterior, moves, seed=0) == (True, True), sampler


def test_split_merge_reaches_what_gibbs_does_not():
    """Started from one cluster with distant groups, Gibbs sampling stays, but a split succeeds."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, (200, 1)), rng.normal(2, 1, (200, 1))])
    family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1e-8)
    stuck = gibbs(X, family, prior, draws=20, start="one", rng=0)
    free = split_merge(X, family, prior, draws=20, start="one", rng=0)
    assert stuck.n_clusters[-1] == 1
    assert free.n_clusters[-1] == 2
    assert free.log_joint[-1] > stuck.log_joint[-1] + 100.0
