"""Angles and hours: circular means, the range of the data, and the period of each column."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import vonmises
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families
from dpsearch.checks.compiled import Compiled
from dpsearch.errors import ParameterError
from dpsearch.tables import CheckedTable

TURN = 2.0 * np.pi


def about_midnight(n=200):
    """Return two clusters, before and after midnight, both about noon in the other column."""
    rng = np.random.default_rng(0)
    late = np.arange(n) % 2 == 0
    hours = np.where(late, 23.3, 0.7) + 0.1 * rng.normal(size=n)
    return np.column_stack([np.remainder(hours, 24.0), 12.0 + 0.5 * rng.normal(size=n)])


def test_gaps_are_filled_by_the_mean_direction_of_the_mixture():
    model = DPMixture(families.VonMises(period=24.0), level="components").fit(about_midnight())
    assert model.n_clusters_ == 2
    filled = model.impute([[np.nan, 12.0], [5.0, 6.0]])
    assert min(filled[0, 0], 24.0 - filled[0, 0]) < 0.3
    assert filled[1].tolist() == [5.0, 6.0]


def test_the_centre_is_the_argument_of_the_mean_over_the_predictive():
    X = np.random.default_rng(1).vonmises(3.0, 2.0, (30, 1))
    kit = Compiled(families.VonMises(), X)
    row = kit.row(range(20))
    grid = TURN * (np.arange(2000) + 0.5) / 2000 - np.pi
    density = np.zeros(2000)
    for theta, weights in kit.family._posteriors(row, 1):
        for node, weight in zip(theta, weights, strict=True):
            density += weight * vonmises.pdf(grid, node[1] ** -2.0, node[0])
    mean = np.angle(density @ np.exp(1j * grid))
    assert kit.family.columns(row, 1).centres[0] == pytest.approx(mean, abs=1e-6)
    assert kit.family.posterior(row, 1)["location"][0] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "period"),
    [(-np.pi, np.pi, TURN), (0.0, TURN, TURN), (-180.0, 180.0, 360.0), (0.5, 12.5, 12.0)],
)
def test_values_come_back_in_the_range_of_the_data(low, high, period):
    X = np.random.default_rng(2).uniform(low, high, (60, 1))
    X[:2, 0] = low + 1e-6 * period, high - 1e-6 * period
    family = families.VonMises(period=period)
    model = DPMixture(family, level="components").fit(X)
    drawn = model.sample(500)[0]
    assert low <= drawn.min() < low + 0.1 * period
    assert high >= drawn.max() > high - 0.1 * period
    assert low <= model.impute([[np.nan]])[0, 0] <= high
    for k in range(model.n_clusters_):
        location = model.mixture_.posterior(k)["location"][0] * period / TURN
        assert low - 1e-9 <= location <= high + 1e-9


@pytest.mark.parametrize(
    ("name", "period"), [("x0", 360.0), ("hour", 24.0), ("wind direction", 360.0)]
)
def test_a_family_by_name_takes_the_period_of_the_column(name, period):
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=200)
    x = np.remainder(rng.normal(truth / 2.0, 0.05, 200), 1.0) * period
    model = DPMixture("von_mises", random_state=0).fit(pd.DataFrame({name: x}))
    assert np.ravel(model.family_.period).tolist() == [period]
    assert adjusted_rand_score(truth, model.labels_) > 0.95


@pytest.mark.parametrize(
    ("name", "low", "high", "period"),
    [("", -3.0, 3.0, TURN), ("", 0.1, 6.2, TURN), ("", 240.0, 340.0, 360.0),
     ("", -170.0, 100.0, 360.0), ("month", 1.0, 12.0, 12.0),
     ("hour", 8.0, 11.0, 24.0), ("heading", 1.0, 5.0, 360.0)],
)  # fmt: skip
def test_periods_by_name_and_range(name, low, high, period):
    table = CheckedTable(np.array([[low], [np.nan], [high]]), (name,))
    assert families.VonMises.suggest_for(table).period == (period,)
    if not name:
        assert families.VonMises().resolve(np.array([[low], [high]])).period == (period,)


@pytest.mark.parametrize(("low", "high"), [(0.0, 23.0), (1.0, 12.0), (7.0, 9.0), (0.0, 1000.0)])
def test_a_period_that_nothing_says_must_be_given(low, high):
    X = np.linspace(low, high, 30)[:, None]
    with pytest.raises(ParameterError, match=r"period.*must be given") as caught:
        DPMixture("von_mises").fit(X)
    assert caught.value.parameter == "period"
    with pytest.raises(ParameterError, match="period"):
        families.VonMises().compile(X)
    families.VonMises(period=24.0).compile(X)
