"""The choice of a family for each column: planted clouds, mixtures, words."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, load
from dpsearch.errors import ParameterError

N = 300


def log_normal(rng):
    return rng.lognormal(0.0, 1.0, size=(N, 2)), np.zeros(N)


def heavy_tailed(rng):
    return rng.standard_t(3.0, size=(N, 2)), np.zeros(N)


def log_normal_with_gaps(rng):
    X, truth = log_normal(rng)
    X[rng.random(N) < 0.1, 0] = np.nan
    return X, truth


def correlated(rng):
    normal = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    return np.exp(normal), np.zeros(N)


def mirrored(rng):
    return 100.0 - rng.lognormal(2.0, 0.7, size=(N, 2)), np.zeros(N)


def with_tax(rng):
    net = np.round(rng.lognormal(4.0, 0.8, N), 2)
    return np.column_stack([net, np.round(1.19 * net, 2), rng.normal(size=N)]), np.zeros(N)


def with_total(rng):
    X, truth = log_normal(rng)
    return np.column_stack([X, X.sum(axis=1)]), truth


def u_shaped(rng):
    return rng.beta(0.5, 0.5, size=(N, 2)), np.zeros(N)


def rounded(rng):
    return np.rint(rng.normal(50.0, 2.0, size=(N, 2))), np.zeros(N)


def bursty(rng):
    return rng.negative_binomial(2, 0.2, size=(N, 3)) * 1.0, np.zeros(N)


def two_heavy_tailed(rng):
    truth = rng.integers(2, size=N)
    return 15.0 * truth[:, None] + rng.standard_t(3, (N, 2)), truth


def beside_a_rating(rng):
    truth = rng.integers(2, size=N)
    return np.column_stack(
        [rng.normal(size=(N, 2)) + 6.0 * truth[:, None], rng.integers(1, 5, N)]
    ), truth


@pytest.mark.parametrize(
    "plant",
    [
        log_normal, log_normal_with_gaps, correlated, mirrored, with_tax, with_total, u_shaped,
        heavy_tailed, two_heavy_tailed, rounded, bursty, beside_a_rating,
    ],
)  # fmt: skip
def test_a_cloud_that_is_not_gaussian_is_one_cluster(plant):
    X, truth = plant(np.random.default_rng(1))
    model = DPMixture(random_state=0).fit(X)
    assert model.n_clusters_ == len(np.unique(truth))


def test_the_reason_names_the_winners_and_their_gain():
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=N)
    X = np.column_stack(
        [rng.lognormal(3.0 * truth, 0.7), rng.negative_binomial(2, 0.3 - 0.25 * truth)]
    )
    model = DPMixture(random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    won = r"1 of (log_normal|gamma) \(column 0\), 1 of negative_binomial \(column 1\), better by \d"
    assert re.search(won, model.reason_)


def test_hours_are_circular():
    rng = np.random.default_rng(2)
    truth = rng.integers(2, size=N)
    hours = np.remainder(rng.normal(12.0 * truth, 1.5), 24.0)  # about midnight, and about noon
    frame = pd.DataFrame({"hour": hours, "x": rng.normal(size=N) + 0.5 * truth})
    model = DPMixture(random_state=0).fit(frame)
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert "von_mises" in model.reason_


@pytest.mark.slow
def test_large_skewed_integers_are_one_cluster_and_counts_stay_counts():
    rng = np.random.default_rng(1)
    model = DPMixture(random_state=0).fit(np.round(rng.lognormal(10.0, 1.0, (200, 2))))
    assert model.n_clusters_ == 1
    assert "2 of log_normal" in model.reason_
    truth = rng.integers(2, size=300)
    mean = np.where(truth, 300.0, 1200.0)[:, None]
    model = DPMixture(random_state=0).fit(rng.negative_binomial(8.0, 8.0 / (8.0 + mean), (300, 2)))
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert "2 of negative_binomial" in model.reason_


def test_a_far_row_outside_the_support_of_what_won():
    """Rows far from all others are left out of the choice but must be in the fit."""
    X, _ = beside_a_rating(np.random.default_rng(0))
    assert "ordinal" in DPMixture().fit(X).reason_
    for far in (55.0, -300.0):
        X[7, 2] = far
        model = DPMixture().fit(X)
        assert "1 row far from all others" in model.reason_
        assert len(model.labels_) == N


def test_a_far_row_with_gaps():
    rng = np.random.default_rng(4)
    numbers = rng.normal(size=(40, 2))
    numbers[rng.random((40, 2)) < 0.3] = np.nan
    numbers[7] = 1e4, np.nan
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    frame["kind"] = np.where(
        np.arange(40) % 5 == 2, None, np.array(["x", "y"])[rng.integers(2, size=40)]
    )
    model = DPMixture().fit(frame)
    assert "1 row far from all others" in model.reason_
    assert len(model.labels_) == 40


def test_clusters_of_transformed_columns_are_distinguished():
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=N)
    normal = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    X = np.exp(normal + 5.0 * truth[:, None])
    model = DPMixture(random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert model.n_clusters_ == 2


def test_a_column_that_follows_from_others_leaves_the_competition_as_it_is(tmp_path):
    X, _ = with_total(np.random.default_rng(1))
    X[: N // 2] *= 200.0
    alone, model = DPMixture(random_state=0).fit(X[:, :2]), DPMixture(random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    assert model.reason_.endswith("; column 2 follows from the others")
    assert "2 of log_normal" in model.reason_
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), alone.predict(X[:, :2]))
    for column in range(3):  # what is missing is told by the others
        gaps = X.copy()
        gaps[:, column] = np.nan
        np.testing.assert_allclose(model.score_samples(gaps), model.score_samples(X), rtol=1e-6)
        np.testing.assert_allclose(model.impute(gaps), X, rtol=1e-6, atol=1e-6)
    drawn = model.sample(50)[0]
    np.testing.assert_allclose(drawn[:, 2], drawn[:, 0] + drawn[:, 1], rtol=1e-6)


def test_one_row_of_a_derived_column_with_two_gaps():
    """x₁ = 2 x₀ − 1 is missing together with x₀, so the row says nothing about it."""
    X = np.array([[1.0, 1.0, 3.0], [np.nan, 5.0, 4.0], [np.nan, np.nan, 5.0]])
    family = families.Derived(families.DiagonalGaussian(), [1], [[2.0, 0.0]], [-1.0])
    expected = [[1.0, 3.0], [3.0, 4.0], [np.nan, 5.0]]
    np.testing.assert_array_equal(family.forward(X), expected)


def test_what_some_derived_columns_tell_though_others_are_missing():
    X = np.array([[np.nan, np.nan, np.nan, 5.0, 8.0], [np.nan, 1.0, np.nan, 5.0, np.nan]])
    ways = [[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    family = families.Derived(families.DiagonalGaussian(), [3, 4], ways, [0.0, 0.0])
    nan = np.nan
    np.testing.assert_allclose(family.forward(X), [[nan, nan, 4.0], [4.0, 1.0, nan]])
    out = family.without(np.ones((1, 5)), np.array([0]), np.array([1]))
    np.testing.assert_array_equal(out, [[1.0, nan, 1.0, nan, 1.0]])


def test_relations_have_no_coefficient_that_is_only_rounding():
    """Otherwise a missing rating would be a price's rounding error divided by the coefficient."""
    rng = np.random.default_rng(0)
    price, rating = np.exp(rng.normal(4.0, 1.0, 400)).round(2), rng.integers(1, 6, 400)
    constant = np.full(400, 7.0)
    X = np.column_stack([price, rating, (1.25 * price).round(2), constant])
    found = families.Derived.among(X, [0, 1, 2, 3])
    assert found.derived == (2, 3)
    np.testing.assert_allclose(found.coefficients, [[1.25, 0.0], [0.0, 0.0]], rtol=1e-4)
    assert found.coefficients[0][1] == 0.0
    X[5, 1] = np.nan
    assert np.isnan(found.forward(X)[5, 1])


def test_totals_of_counts_in_a_mixed_table_with_gaps():
    rng = np.random.default_rng(1)
    group = rng.integers(2, size=400)
    wins, losses = rng.poisson(np.array([4, 12])[group]), rng.poisson(np.array([6, 2])[group])
    draws = rng.negative_binomial(2, 0.3, 400)
    frame = pd.DataFrame({"wins": wins, "losses": losses, "draws": draws, "height": 0.0})
    frame["height"] = rng.normal(180.0, 8.0, 400)
    frame["league"] = rng.choice(["first", "second", "third"], 400)
    frame["games"] = wins + losses + draws
    frame = frame.astype({"losses": float, "games": float})
    frame.loc[rng.random(400) < 0.03, "losses"] = np.nan
    frame.loc[rng.random(400) < 0.03, "games"] = np.nan
    model = DPMixture(random_state=0).fit(frame)
    assert "games follows from the others" in model.reason_
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(group, model.labels_) > 0.8
    filled = model.impute(frame)
    known = frame.losses.isna() & frame.games.notna()
    np.testing.assert_allclose(filled["losses"][known], losses[known])


def test_a_rating_with_gaps_beside_a_price_with_tax():
    rng = np.random.default_rng(11)
    group = rng.integers(2, size=300)
    frame = pd.DataFrame(
        {
            "amount": np.exp(rng.normal(np.array([2.0, 5.0])[group], 0.5)).round(2),
            "rating": np.clip(np.round(rng.normal(np.array([2.0, 4.0])[group], 0.8)), 1, 5),
        }
    )
    frame["gross"] = (1.25 * frame.amount).round(2)
    frame.loc[rng.random(300) < 0.05, "rating"] = np.nan
    model = DPMixture(random_state=0).fit(frame)
    assert "gross follows from the others" in model.reason_
    assert adjusted_rand_score(group, model.labels_) > 0.95


@pytest.mark.parametrize(
    ("derived", "ways", "constants", "message"),
    [
        (
            (-1,),
            [[2.0, 0.0]],
            [1.0],
            r"derived must be different column numbers from 0 to 2, got \(-1,\)",
        ),
        ((3,), [[2.0, 0.0]], [1.0], "derived must be different column numbers"),
        ((1, 1), [[2.0], [2.0]], [1.0, 1.0], "derived must be different column numbers"),
        ((1.5,), [[2.0, 0.0]], [1.0], "derived must be different column numbers"),
        ((1,), [[np.nan, 0.0]], [1.0], "coefficients must be finite"),
        ((1,), [[2.0, 0.0]], [np.inf], "constants must be finite"),
        ((1,), [[2.0]], [1.0], "coefficients has 1 values"),
        ("gross", [[2.0, 0.0]], [1.0], "derived must be finite numbers"),
        ((1, 2), [[2.0, 0.0], [1.0]], [1.0, 1.0], "coefficients must be finite numbers"),
        ((1,), [[2.0, 0.0]], None, "constants must be finite numbers"),
    ],
)
def test_invalid_derived_columns_are_refused(derived, ways, constants, message):
    family = families.Derived(families.DiagonalGaussian(), derived, ways, constants)
    with pytest.raises(ParameterError, match=message):
        family.forward(np.zeros((4, 3)))


def test_relations_hold_in_rows_with_gaps_too():
    """A column that is constant, or twice another, only where a third is known is no function."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=N)
    rate = np.where(truth == 0, rng.normal(5.0, 1.0, N), np.nan)
    term, spent = np.array([36.0, 0.0, 12.0])[truth], rng.normal(50.0, 5.0, N)
    twice = np.where(truth == 0, 2.0 * spent, rng.normal(30.0, 1.0, N))
    for other in (term, twice):
        model = DPMixture(random_state=0).fit(np.column_stack([spent, rate, other]))
        assert "follow" not in model.reason_
        assert "constant" not in model.reason_
        clusters = np.minimum(truth, 1) if other is twice else truth
        assert adjusted_rand_score(clusters, model.labels_) > 0.9


def test_relations_beside_a_column_of_gaps():
    rng = np.random.default_rng(0)
    x, rare = rng.normal(size=N), np.where(rng.random(N) < 0.97, np.nan, rng.normal(size=N))
    X = np.column_stack([x, 2.0 * x, rng.normal(size=N), rare])
    assert DPMixture(random_state=0).fit(X).family_.derived == (1,)


def test_a_far_row_in_which_a_relation_does_not_hold():
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    X = np.column_stack([x, 1.5 * x + 3.0, rng.normal(size=N)])
    X[7, 1] = 1e6
    model = DPMixture(random_state=0).fit(X)
    assert (model.labels_ == model.labels_[7]).sum() == 1
    assert 7 in model.outliers(X)
    X[7, 0] = (X[7, 1] - 3.0) / 1.5
    assert DPMixture(random_state=0).fit(X).family_.derived == (1,)


def test_whole_numbers_with_too_large_a_total_for_families_of_counts():
    """Such as seconds since 1970."""
    rng = np.random.default_rng(0)
    seconds = np.rint(1.7e9 + rng.uniform(0.0, 1e7, 1000))
    model = DPMixture(random_state=0).fit(np.column_stack([seconds, rng.normal(size=1000)]))
    assert model.n_clusters_ == 1
    assert "poisson" not in model.reason_
