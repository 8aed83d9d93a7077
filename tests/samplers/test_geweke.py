"""Geweke's joint-distribution test of every sampler, for every family and prior.

Most of these tests are slow; test_posterior.py compares all samplers and priors by enumeration."""

from __future__ import annotations

import pytest

import posterior_harness as harness
from models import PRODUCT_PRIORS
from posterior_harness import HARNESS_PRIORS, SAMPLERS, check_geweke


@pytest.mark.parametrize(("name", "prior", "sampler"), harness.few_cases())
def test_geweke_joint_distribution(name, prior, sampler):
    problem, _ = harness.small_problem(name, prior, 4)
    one = harness.one_sweep(SAMPLERS[sampler])
    assert check_geweke(problem, PRODUCT_PRIORS[prior], one, seed=1)


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(name, marks=() if name in ("gibbs", "split-merge 3") else pytest.mark.slow)
        for name in SAMPLERS
    ],
)
@pytest.mark.parametrize("prior", range(len(PRODUCT_PRIORS), len(HARNESS_PRIORS)))
def test_geweke_joint_distribution_under_a_prior_from_elsewhere(prior, sampler):
    problem, _ = harness.small_problem("poisson", prior, 4)
    one = harness.one_sweep(SAMPLERS[sampler])
    assert check_geweke(problem, HARNESS_PRIORS[prior], one, seed=1)
