"""Rows with gaps under a Gaussian with full covariance: densities, fills, completed tables."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, load
from dpsearch.automatic import resolve_prior
from dpsearch.automatic.completion import complete
from dpsearch.errors import DataError
from dpsearch.families._observed import drawn, expected, log_densities

PATTERNS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)


def clusters(rng):
    """Return rows of two Student t distributions in three dimensions."""
    means = rng.normal(size=(2, 3))
    roots = rng.normal(size=(2, 3, 3))
    scales = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(3)
    return means, scales, np.array([3.0, 8.5])


def with_patterns(rng):
    X = rng.normal(size=(len(PATTERNS), 3))
    X[PATTERNS] = np.nan
    return X


def test_densities_of_what_was_observed():
    rng = np.random.default_rng(0)
    means, scales, degrees = clusters(rng)
    X = with_patterns(rng)
    got = log_densities(X, means, scales, degrees)
    for i, missing in enumerate(PATTERNS):
        o = np.flatnonzero(~missing)
        for k in range(2):
            want = 0.0
            if len(o):
                margin = stats.multivariate_t(means[k][o], scales[k][np.ix_(o, o)], degrees[k])
                want = margin.logpdf(X[i, o])
            assert got[i, k] == pytest.approx(want, abs=1e-10)


def test_expected_values_given_the_rest():
    rng = np.random.default_rng(1)
    means, scales, _ = clusters(rng)
    X = with_patterns(rng)
    weights = rng.dirichlet([1.0, 1.0], size=len(X))
    got = expected(X, weights, means, scales)
    for i, missing in enumerate(PATTERNS):
        o, m = np.flatnonzero(~missing), np.flatnonzero(missing)
        want = np.zeros(len(m))
        for k in range(2):
            shift = scales[k][np.ix_(m, o)] @ np.linalg.solve(
                scales[k][np.ix_(o, o)], X[i, o] - means[k][o]
            )
            want += weights[i, k] * (means[k][m] + shift)
        np.testing.assert_allclose(got[i, m], want, atol=1e-10)
        np.testing.assert_array_equal(got[i, o], X[i, o])


def test_draws_have_the_conditional_mean_and_covariance():
    rng = np.random.default_rng(2)
    means, scales, _ = clusters(rng)
    n, row = 200_000, np.array([np.nan, 0.7, np.nan])
    draws = means[1] + rng.standard_normal((n, 3)) @ np.linalg.cholesky(scales[1]).T
    filled = drawn(np.tile(row, (n, 1)), np.ones(n, np.int64), draws, scales)
    o, m = [1], [0, 2]
    gain = scales[1][np.ix_(m, o)] / scales[1][1, 1]
    mean = means[1][m] + gain[:, 0] * (0.7 - means[1][1])
    covariance = scales[1][np.ix_(m, m)] - gain @ scales[1][np.ix_(o, m)]
    error = 5.0 * np.sqrt(np.diag(covariance) / n)
    assert (np.abs(filled[:, m].mean(axis=0) - mean) < error).all()
    np.testing.assert_allclose(np.cov(filled[:, m].T), covariance, rtol=0.03, atol=0.03)
    assert (filled[:, 1] == 0.7).all()


def table(n=400, share=0.3):
    """Return two elongated clusters side by side that no single column distinguishes."""
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1], n // 2)
    along = rng.normal(size=(n, 1)) * 3.0
    X = along * [1.0, 1.0, 1.0] + 0.3 * rng.normal(size=(n, 3)) + truth[:, None] * [2.0, -2.0, 0.0]
    gaps = np.where(rng.random(X.shape) < share, np.nan, X)
    return X, gaps, truth


def test_a_table_with_gaps_is_completed_and_its_clusters_found():
    X, gaps, truth = table()
    model = DPMixture(random_state=0).fit(gaps)
    assert model.family_.name == "full_gaussian"
    assert "missing values filled in" in model.reason_
    seen = ~np.isnan(gaps)
    np.testing.assert_array_equal(model.completed_[seen], gaps[seen])
    assert np.isfinite(model.completed_).all()
    whole = seen.all(axis=1)
    assert adjusted_rand_score(truth[whole], model.labels_[whole]) > 0.95
    assert adjusted_rand_score(truth[whole], model.predict(X)[whole]) > 0.95
    # Conditional means are nearer to what was removed than the columns' means.
    error = (model.impute(gaps) - X)[~seen]
    assert np.mean(error**2) < 0.3 * np.mean((X - X.mean(axis=0))[~seen] ** 2)
    explanation = model.explain(gaps)
    np.testing.assert_array_equal(explanation.labels, model.labels_)


@pytest.mark.slow
def test_completion_is_repeatable_and_does_not_depend_on_units():
    _, gaps, _ = table(200)
    prior = resolve_prior("auto")
    first = complete(gaps, prior)
    np.testing.assert_array_equal(complete(gaps, prior), first)
    scale, shift = np.array([1e3, 1e-2, 7.0]), np.array([5.0, -1.0, 100.0])
    np.testing.assert_allclose(
        complete(gaps * scale + shift, prior), first * scale + shift, rtol=1e-6
    )


def test_predictions_for_rows_with_gaps(tmp_path):
    X, gaps, _ = table(200, 0.2)
    model = DPMixture("full_gaussian", random_state=0).fit(X)
    inside = model.predict_proba(gaps)
    np.testing.assert_allclose(inside.sum(axis=1), 1.0)
    complete_rows = ~np.isnan(gaps).any(axis=1)
    np.testing.assert_allclose(
        model.score_samples(gaps)[complete_rows], model.score_samples(X)[complete_rows], rtol=1e-9
    )
    # The margin over an entry is the integral of the density over it.
    row = gaps[complete_rows][:1].copy()
    row[0, 2] = np.nan
    grid = np.linspace(-60.0, 60.0, 40_001)
    rows = np.repeat(row, len(grid), axis=0)
    rows[:, 2] = grid
    total = np.trapezoid(np.exp(model.score_samples(rows)), grid)
    assert np.log(total) == pytest.approx(model.score_samples(row)[0], abs=1e-4)
    model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(load(tmp_path / "m.npz").predict(gaps), model.predict(gaps))


def test_a_named_family_does_not_guess():
    _, gaps, _ = table(200)
    with pytest.raises(DataError, match=r"row \d+, column \d"):
        DPMixture("full_gaussian").fit(gaps)
    with pytest.raises(DataError, match="missing"):
        DPMixture(families.FullGaussian()).fit(gaps)
