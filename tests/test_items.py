"""Items as kernels use them: log H of rows and blocks, alone and in clusters."""

from dataclasses import replace

import numpy as np
import pytest
from numba.core.errors import NumbaError

import naive
from dpsearch import Problem, families, priors
from dpsearch._jit import pointer
from dpsearch.items import log_alone, log_marginals, log_predictive

FAMILY = families.DiagonalGaussian(0.0, 0.5, 2.0, 1.0)
X = np.random.default_rng(0).normal(size=(9, 2))
labels = np.array([0, 1, 2, 0, 1, 0, 1, 1, 0])


def test_blocks_alone_also_those_of_a_part():
    model = FAMILY.compile(X)
    blocks = model.blocks(*model.rows(model.items()[0], labels, 3))
    want = [naive.log_marginal(FAMILY, X[labels == k]) for k in range(3)]
    np.testing.assert_allclose(log_alone(model.core, blocks), want, rtol=1e-10)
    np.testing.assert_allclose(log_alone(model.core, blocks.rows(1, 3)), want[1:], rtol=1e-10)


def test_members_are_taken_out_of_their_rows():
    model = FAMILY.compile(X)
    items, _ = model.items()
    pool, _ = model.rows(items, labels, 3)
    members = np.where(np.arange(9) % 2, labels, -1)
    found = log_predictive(model.core, items, pool, members)
    for i, k in np.ndindex(found.shape):
        others = (labels == k) & ((np.arange(9) != i) | (members[i] < 0))
        want = naive.log_predictive(FAMILY, X[others], X[i])
        assert found[i, k] == pytest.approx(want, rel=1e-9)
    alone = [naive.log_marginal(FAMILY, X[[i]]) for i in range(9)]
    np.testing.assert_allclose(log_alone(model.core, items), alone, rtol=1e-10)


def test_what_scores_points_is_compiled_when_points_are_scored():
    @pointer("score_rows")
    def cannot_be_compiled(params, pool, starts, ids, values, out):
        return object()

    class Mute(families.DiagonalGaussian):
        functions = replace(families.DiagonalGaussian.functions, score_rows=cannot_be_compiled)

    model = Mute(0.0, 0.5, 2.0, 1.0).compile(X)
    pool, _ = model.rows(model.items()[0], labels, 3)
    want = [naive.log_marginal(FAMILY, X[labels == k]) for k in range(3)]
    np.testing.assert_allclose(log_marginals(model.summaries, pool, 3), want, rtol=1e-10)
    with pytest.raises(NumbaError):
        Problem(X, Mute(0.0, 0.5, 2.0, 1.0), priors.DirichletProcess(1.0))
