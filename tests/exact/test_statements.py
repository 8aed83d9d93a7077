"""Statements about numbers of clusters and pairs of rows, against all partitions."""

from __future__ import annotations

import numpy as np
import pytest

import enumeration
from dpsearch import certify, families, priors
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.exact.statements import bound_of_pair
from dpsearch.problem import Problem
from models import FewComponents

PRIORS = [priors.DirichletProcess(1.0), priors.PitmanYor(0.7, 0.4)]


def problem_of(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 2)) + 5.0 * rng.integers(3, size=(7, 1))
    family = [families.DiagonalGaussian(0.0, 0.1, 2.0, 1.0), families.Gaussian(0.0, 20.0, 1.0)]
    return Problem(X, family[seed % 2], PRIORS[seed // 2 % 2])


@pytest.mark.parametrize("seed", range(6))
def test_pairs_and_numbers_agree_with_all_partitions(seed):
    problem = problem_of(seed)
    labels, _ = enumeration.partitions(7)
    values = enumeration.log_joints(problem)
    found = certify(problem, np.zeros(7, np.int64))
    assert found.optimal
    proved = 0
    for i, j in ((0, 1), (2, 5), (3, 6)):
        same = labels[:, i] == labels[:, j]
        for together in (True, False):
            best = values[same == together].max()
            bound = bound_of_pair(found, i, j, together=together, worse_by=2.0)
            assert bound >= best
        for within in (0.0, 2.0):
            near = same[values >= values.max() - within]
            apart, joined = found.apart(i, j, within=within), found.together(i, j, within=within)
            assert not apart or not near.any()
            assert not joined or near.all()
            proved += apart + joined
    assert proved > 0
    numbers = labels.max(axis=1) + 1
    for k in (1, 2, 3, 7):
        bound = found.with_clusters(k)
        best = values[numbers == k].max()
        assert bound.upper_bound >= best
        assert bound.log_joint <= best + 1e-9
        assert bound.worse_by == found.lower_bound - bound.upper_bound
    assert found.with_clusters(1).worse_by > 0.0 or found.clustering.n_clusters == 1


def test_a_number_of_clusters_that_the_prior_excludes_is_infinitely_worse():
    same = problem_of(1).model
    problem = Problem(same.matrix, same.family, FewComponents())
    labels, _ = enumeration.partitions(7)
    values = enumeration.log_joints(problem)
    found = certify(problem, np.zeros(7, np.int64))
    bound = found.with_clusters(3)  # the most that there can be
    assert bound.upper_bound >= values[labels.max(axis=1) == 2].max() >= bound.log_joint - 1e-9
    assert found.with_clusters(4) == (4, -np.inf, np.inf, -np.inf)


def test_questions_without_an_answer_are_refused():
    found = certify(problem_of(0), np.zeros(7, np.int64))
    for i, j in ((0, 0), (-1, 2), (0, 7)):
        with pytest.raises(ParameterError, match="row"):
            found.apart(i, j)
    for say in (found.apart, found.together):
        with pytest.raises(ParameterError, match="within must be a number ≥ 0, got -2"):
            say(0, 1, within=-2)
    with pytest.raises(ParameterError, match="n_clusters"):
        found.with_clusters(8)
    line = certify(problem_of(1).model.matrix[:, :1], np.zeros(7), families.Gaussian(), PRIORS[0])
    with pytest.raises(CapabilityError, match="nothing about pairs"):
        line.apart(0, 1)
