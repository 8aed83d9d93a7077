"""Clusters that share a regression: crossing lines, missing targets, names, bad input."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families
from dpsearch.checks.compiled import Compiled
from dpsearch.errors import DataError, ParameterError


def crossing(n=200, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    x, labels = rng.uniform(-3.0, 3.0, size=n), np.arange(n) % 2
    y = np.where(labels == 0, 1.0 + 2.0 * x, 1.0 - x) + noise * rng.normal(size=n)
    apart = np.abs(x) > 0.5  # near the crossing nothing tells the lines apart
    return np.column_stack([x, y])[apart], labels[apart]


def test_the_density_of_the_target_integrates_to_one_for_any_covariates():
    X, _ = crossing(20)
    kit = Compiled(families.LinearRegression(1, 0.3, 0.7, 2.0, 1.5, 0.5), X)
    for members in ([], [0], [0, 1, 2, 5]):
        row = kit.row(members)
        for x in (-2.0, 0.4):

            def density(y, row=row, x=x):
                return math.exp(kit.scores(row, [[x, y]])[0] + kit.base[0])

            mass = sum(quad(density, *part)[0] for part in [(-np.inf, 0.0), (0.0, np.inf)])
            assert mass == pytest.approx(1.0, abs=1e-5)


def test_crossing_lines_by_number_and_by_name():
    X, labels = crossing()
    model = DPMixture("linear_regression").fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    named = pd.DataFrame(X[:, ::-1], columns=["y", "x"])
    family = model.family_.with_parameters(
        target="y", centre=model.family_.centre[::-1],
        slope_variance=model.family_.slope_variance[::-1],
    )  # fmt: skip
    again = DPMixture(family).fit(named)
    assert adjusted_rand_score(model.labels_, again.labels_) == 1.0
    assert again.family_.target == 0
    row = Compiled(model.family_, X).row(np.flatnonzero(labels == 0))
    posterior = model.family_.posterior(row, 2)
    assert posterior["slopes"][0] == pytest.approx(2.0, abs=0.05)
    assert posterior["intercept"] == pytest.approx(1.0, abs=0.1)
    assert posterior["noise_variance"] < 0.05


def test_a_missing_target_leaves_the_shares_of_the_clusters():
    X, _ = crossing()
    model = DPMixture("linear_regression", level="components").fit(X)
    unknown = np.array([[2.0, np.nan], [-1.0, np.nan]])
    shares = model.predict_proba(unknown)
    np.testing.assert_allclose(shares[0], shares[1])
    filled = model.impute(unknown)
    assert shares[0].min() > 0.3
    assert -1.0 + 1.0 < filled[0, 1] < 5.0 - 1.0  # between the lines at x = 2
    np.testing.assert_array_equal(filled[:, 0], unknown[:, 0])
    with pytest.raises(DataError, match="row 0, column 0.*covariates"):
        model.predict([[np.nan, 1.0]])


@pytest.mark.parametrize("target", [2, -3, "z", 0.5, True])
def test_targets_that_are_not_there(target):
    with pytest.raises(ParameterError, match="target"):
        families.LinearRegression(target).compile(np.ones((4, 2)))


@pytest.mark.parametrize("factor", [1.0, 1e-6])
def test_outliers_are_found_for_covariates_of_either_sign(factor):
    X, _ = crossing(400)
    X[7] = [2.5, 20.0]
    X[:, 0] *= factor
    found = DPMixture("linear_regression", level="components").fit(X).explain(X)
    assert 7 in found.outliers
    assert len(found.outliers) <= 4
