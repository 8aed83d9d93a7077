"""Explanations of mixed tables and of rows with missing values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import naive
from dpsearch import DPMixture, explain, families, load
from dpsearch.families.with_gaps import WithGaps
from explaining import agrees_with_naive, explained, mixture_of
from models import GAPPED, PRODUCT_PRIORS, draw_with_gaps, mixed

DP = PRODUCT_PRIORS[0]
EVERY = [*GAPPED, "product"]


def data(name, n, seed=0):
    return mixed(n, seed) if name == "product" else draw_with_gaps(name, n, seed)[:2]


def turned(family, X, seed=0):
    """Return the same product for a table with its columns in another order."""
    order = np.random.default_rng(seed).permutation(X.shape[1])
    at = np.argsort(order)
    return families.Product([(part, at[list(columns)]) for part, columns in family.parts]), X[
        :, order
    ]


@pytest.mark.parametrize("name", EVERY)
def test_leaving_one_out_agrees_with_naive_recomputation(name):
    family, X = data(name, 12)
    assert agrees_with_naive(family, X[:9], PRODUCT_PRIORS[2], X[9:])


def naive_bayes_factors(family, X, labels):
    """Return the Bayes factors column by column, with all other columns missing."""
    out = np.empty((labels.max() + 1, X.shape[1]))
    for k, d in np.ndindex(*out.shape):
        alone = np.full_like(X, np.nan)
        alone[:, d] = X[:, d]
        inside = labels == k
        out[k, d] = naive.log_marginal(family, alone[inside])
        out[k, d] += naive.log_marginal(family, alone[~inside]) - naive.log_marginal(family, alone)
    return out


def column_check(name, seed):
    family, X = data(name, 12, seed)
    if name == "product":
        family, X = turned(family, X, seed)
    labels = np.append([0, 1, 2, 3], np.random.default_rng(seed).integers(3, size=8))
    found = explained(X, family, labels)
    mixture = mixture_of(X, family, DP, labels)
    wanted = naive_bayes_factors(mixture.model.family, X, labels)
    return np.allclose(found.columns, wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", EVERY)
def test_bayes_factors_are_those_of_what_each_column_has(name):
    assert column_check(name, 0)


@pytest.mark.parametrize("kind", [families.Product, WithGaps])
def test_columns_in_the_wrong_order_are_noticed(monkeypatch, kind):
    right = kind.columns

    def rolled(*given):
        found = right(*given)
        return found._replace(log_marginals=np.roll(found.log_marginals, 1))

    monkeypatch.setattr(kind, "columns", rolled)
    assert not column_check("product" if kind is families.Product else "poisson", 0)


def test_centres_are_those_of_the_values_there_are():
    X = np.array([[1.0, np.nan, 2.0], [3.0, 1.0, np.nan], [5.0, np.nan, 0.0], [np.nan, 0.0, 2.0]])
    family = families.Product(
        [
            (families.Categorical(0.1, 3), [2]),
            (families.DiagonalGaussian(0.0, 1e-9, 1.0, 1.0), [0]),
            (families.Bernoulli(1.0, 1.0), [1]),
        ]
    )
    found = explained(X, family, [0, 0, 0, 1])
    assert np.allclose(found.centres, [[3.0, 2 / 3, 0.0], [0.0, 1 / 3, 2.0]])
    assert np.allclose(found.elsewhere, found.centres[::-1])


# -- outliers ----------------------------------------------------------------------------------

RATE = 0.02


def rows_of_model(n=2000, share=0.5):
    """Return rows of three clusters of numbers, counts and categories, and a copy with gaps."""
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(3, size=n))
    real = rng.normal(0.0, 6.0, size=(3, 2))[labels] + rng.normal(size=(n, 2))
    counts = rng.poisson(rng.gamma(2.0, 5.0, size=(3, 1))[labels]).astype(float)
    chances = rng.dirichlet(np.ones(3), size=3)
    codes = (rng.random((n, 1)) > np.cumsum(chances[labels], axis=1)[:, :2]).sum(axis=1)
    X = np.column_stack([counts, real, codes])
    family = families.Product(
        [
            (families.Gaussian(0.0, 36.0, 1.0), [1, 2]),
            (families.Poisson(2.0, 0.2), [0]),
            (families.Categorical(1.0, 3), [3]),
        ]
    )
    return family, X, np.where(rng.random(X.shape) < share, np.nan, X), labels


def alarms_are_right(found, missing):
    """Check that false alarms come at the stated rate for any number of missing values."""
    for lacking in range(missing.shape[1]):
        p_value = found.p_value[missing.sum(axis=1) == lacking]
        low, high = stats.binom(len(p_value), RATE).interval(1.0 - 1e-5)
        # Codes and counts have steps: there may be fewer, but not more.
        if (p_value <= RATE).sum() > high or len(p_value) < 50:
            return False
        if lacking <= 1 and (p_value <= RATE).sum() < low:
            return False
    return True


def test_false_alarms_come_at_the_stated_rate_for_any_missing_values():
    family, _, X, labels = rows_of_model()
    found = explained(X, family, labels, outlier_rate=RATE)
    assert alarms_are_right(found, np.isnan(X))
    empty = np.isnan(X).all(axis=1)
    assert empty.sum() > 50
    assert (found.p_value[empty] == 1.0).all()


def test_draws_without_the_gaps_of_the_row_are_noticed(monkeypatch):
    family, _, X, labels = rows_of_model()
    right = explain._p_values_with_gaps

    def spoiled(mixture, lengths, missing, *others):
        return right(mixture, lengths, missing[::-1], *others)

    monkeypatch.setattr(explain, "_p_values_with_gaps", spoiled)
    monkeypatch.setattr(explain, "_DRAWS", 1000)
    assert not alarms_are_right(explained(X, family, labels, outlier_rate=RATE), np.isnan(X))


def test_an_odd_value_among_gaps_is_found():
    family, X, _, labels = rows_of_model(300)
    X[7] = [np.nan, 80.0, np.nan, np.nan]
    X[100] = [500.0, np.nan, np.nan, 1.0]
    found = explained(X, family, labels, outlier_rate=0.001)
    assert set(found.outliers[:2]) == {7, 100}
    assert found.p_value[[7, 100]].max() == 1.0 / 20_001.0


def test_documents_with_other_columns_are_judged_at_their_length():
    """The family is a product of words and a number that may be missing."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 500)
    topics = rng.dirichlet(np.full(20, 0.5), size=2)[labels]
    length = rng.integers(5, 300, size=1000)
    X = np.column_stack([10.0 * labels + rng.normal(size=1000), rng.multinomial(length, topics)])
    family = families.Product(
        [(families.Multinomial(0.5), np.arange(1, 21)), (families.Gaussian(0.0, 100.0, 1.0), [0])]
    )
    assert np.array_equal(family.lengths(X), length[:, None])
    assert np.array_equal(
        mixture_of(X, family, DP, labels).draws(0).like(length[:9, None], rng)[:, 1:].sum(axis=1),
        length[:9],
    )
    X[::2, 0] = np.nan
    found = explained(X, family, labels, outlier_rate=RATE)
    for long in (length > 150, length <= 150):
        for gap in (np.isnan(X[:, 0]), ~np.isnan(X[:, 0])):
            group = found.p_value[long & gap]
            assert (group <= RATE).sum() <= stats.binom(len(group), RATE).ppf(1.0 - 1e-5)
            assert 0.3 < group.mean() < 0.7


# -- the estimator -----------------------------------------------------------------------------


def test_rows_of_the_fit_are_known_by_their_gaps_too():
    family, complete, X, _ = rows_of_model(200, 0.2)
    model = DPMixture(family, random_state=0).fit(X)
    found = model.explain(X)
    assert np.array_equal(found.labels, model.labels_)
    place = model.mixture_.memberships(X, model.fitted_labels(X))
    assert np.array_equal(found.log_density, place.log_density)
    # Complete rows in a model of gaps, and gaps in a model of complete rows, are new.
    assert np.allclose(model.explain(complete).log_density, model.score_samples(complete))
    whole = DPMixture(family, random_state=0).fit(complete)
    assert np.allclose(whole.explain(X).log_density, whole.score_samples(X))
    assert np.array_equal(whole.explain(complete).labels, whole.labels_)


# -- families that cannot skip gaps ------------------------------------------------------------

FULL = families.FullGaussian(0.0, 0.01, 4.0, 1.0)


def two_clusters(n=60):
    """Return rows of two clusters that differ only in the second column."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + np.repeat([[0.0, 0.0], [0.0, 100.0]], n // 2, axis=0)


UNSKIPPED = {
    "full": FULL,
    "projected": families.ProjectedGaussian(np.eye(2), 0.0, 0.0, 0.01, 4.0, 1.0),
    "product": families.Product([(FULL, [0, 1]), (families.Poisson(1.0, 0.1), [2])]),
}


@pytest.mark.parametrize("name", UNSKIPPED)
def test_new_rows_are_judged_by_what_was_observed(name):
    X = two_clusters()
    new = np.array([[0.0, np.nan], [0.0, 100.0], [9.0, np.nan], [np.nan, np.nan], [0.0, 50.0]])
    if name == "product":
        X = np.column_stack([X, np.random.default_rng(1).poisson(3.0, len(X))])
        new = np.column_stack([new, [3.0, np.nan, 3.0, np.nan, 3.0]])
    model = DPMixture(UNSKIPPED[name], random_state=0).fit(X)
    found = model.explain(new)
    inside, outside = model.mixture_.log_joint_probabilities(new)
    assert np.allclose(found.log_density, model.score_samples(new))
    assert np.array_equal(found.labels, model.predict(new))
    both = np.column_stack([inside, outside])
    assert np.allclose(found.certainty, np.exp(inside.max(axis=1) - logsumexp(both, axis=1)))
    both[np.arange(5), found.labels] = -np.inf
    assert np.array_equal(found.second, both.argmax(axis=1))
    assert 0.4 < found.certainty[0] < 0.6
    assert found.p_value[[0, 3]].min() > 0.5
    assert found.outliers.tolist() == [4, 2]
    many = np.tile(new, (12, 1))  # as many as there are in the fit, and still not its rows
    assert np.allclose(model.explain(many).log_density, np.tile(found.log_density, 12))


def test_one_odd_value_of_ten_columns_is_enough():
    X = np.random.default_rng(0).normal(size=(300, 10))
    new = np.full((2, 10), np.nan)
    new[:, 3] = [4.8, 0.5]
    assert DPMixture("full_gaussian", random_state=0).fit(X).outliers(new).tolist() == [0]


def leaves_completed_rows_out_right():
    """Check that a row with gaps is placed by its observed values, without its completed copy."""
    rng = np.random.default_rng(0)
    completed = rng.normal(size=(12, 3))
    labels = np.array([0, 1, 0, 2, 1, 0, 3, 3, 0, 0, 1, 0])  # 2 is alone, 3 are a pair
    X = np.where(rng.random(completed.shape) < 0.3, np.nan, completed)
    X[[3, 6], 0] = np.nan
    family = families.FullGaussian(0.0, 0.5, 5.0, 1.0)
    mixture = mixture_of(completed, family, DP, labels)
    found = mixture.memberships(X, labels, completed)
    fine = []
    for i, k in enumerate(labels):
        others = np.arange(12) != i
        seen = ~np.isnan(X[i])
        values = np.full(5, -np.inf)
        for j in [*np.unique(labels[others]), 4]:
            mean, strength, degrees, scale = naive.full_gaussian_posterior(
                mixture.model.family, completed[others & (labels == j)]
            )
            freedom = degrees - 2.0
            scale = scale * (strength + 1.0) / (strength * freedom)
            t = stats.multivariate_t(mean[seen], scale[np.ix_(seen, seen)], df=freedom)
            values[j] = t.logpdf(X[i, seen]) if seen.any() else 0.0
        known, sizes = np.unique(labels[others], return_counts=True)
        places = np.append(known, 4)
        weights = [
            DP.log_probability([*(sizes + (known == j)), *([1] if j == 4 else [])]) for j in places
        ]
        values[places] += weights - logsumexp(weights)
        fine.append(np.isclose(found.log_density[i], logsumexp(values)))
        inside = logsumexp(values[:4]) - logsumexp((weights - logsumexp(weights))[:-1])
        fine.append(np.isclose(found.log_inside[i], inside))
        own = values[k] if k in known else values[4]
        fine.append(np.isclose(found.certainty[i], np.exp(own - logsumexp(values))))
    return all(fine)


def test_rows_that_the_fit_completed_are_left_out():
    assert leaves_completed_rows_out_right()


def test_completed_rows_left_in_are_noticed(monkeypatch):
    monkeypatch.setattr("dpsearch.mixture.add_item", lambda *given: None)
    assert not leaves_completed_rows_out_right()


@pytest.mark.slow
def test_a_completed_fit_is_as_certain_as_what_was_observed(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    X += np.repeat([[0.0, 0.0], [4.0, 4.0]], 500, axis=0)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[7] = [np.nan, 30.0]
    model = DPMixture(random_state=0).fit(X)
    assert model.completed_ is not None
    found = model.explain(X, outlier_rate=RATE)
    scores = np.column_stack(model.mixture_.log_joint_probabilities(X))  # the row included
    sure = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))[range(1000), model.labels_]
    shared = model.mixture_.sizes[model.labels_] > 50
    assert shared.mean() > 0.9
    assert np.abs(found.certainty - sure)[shared].mean() < 0.001  # one row of hundreds left out
    assert found.outliers[0] == 7
    for gaps in range(3):
        p_value = found.p_value[np.isnan(X).sum(axis=1) == gaps]
        assert (p_value <= RATE).sum() <= stats.binom(len(p_value), RATE).ppf(1.0 - 1e-5)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz").explain(X, outlier_rate=RATE)
    assert np.allclose(again.certainty, found.certainty)


def test_streams_fill_gaps_from_one_cluster():
    model = DPMixture(FULL, random_state=0).partial_fit(two_clusters())
    half = two_clusters(20)
    half[:, 1] = np.nan
    best = model.predict(half)
    model.partial_fit(half)
    assert model.n_clusters_ == 2
    assert np.array_equal(model.labels_, best)
    assert np.allclose(
        sorted(model.mixture_.posterior(k)["mean"][1] for k in range(2)), [0, 100], atol=1.0
    )


# -- projections of wide tables ----------------------------------------------------------------


def wide(n, seed, width=40):
    """Return two clusters whose rows vary much in a few directions, with noise in the others."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(5).normal(size=(4, width))
    labels = rng.integers(2, size=n)
    X = 2.0 * labels[:, None] + rng.normal(size=(n, 4)) @ directions
    return X + rng.normal(size=(n, width)) * np.linspace(0.5, 3.0, width), labels


def wide_rates(drop_residuals=False):
    """Return the shares of new rows, some with gaps, that are called outliers at 0.05."""
    X, labels = wide(600, 0)
    family = families.ProjectedGaussian.suggest(X).learned(X, labels)
    if drop_residuals:
        family = family.with_parameters(residual_variance=0.0)
    new, _ = wide(1000, 1)
    rng = np.random.default_rng(2)
    gaps = np.where(rng.random(new.shape) < 0.3, np.nan, new)
    mixture = mixture_of(X, family, DP, labels)
    rates = []
    for rows in (new, gaps):
        found = explain.explain_mixture(
            mixture, (), rows, outlier_rate=0.05, rng=rng, with_columns=False
        )
        rates.append(float((found.p_value <= 0.05).mean()))
    return rates


@pytest.mark.slow
def test_wide_rows_with_gaps_are_called_outliers_at_the_stated_rate(monkeypatch):
    """This holds under projections too, which ignore most directions of a row."""
    monkeypatch.setattr(explain, "_DRAWS", 2000)
    low, high = stats.binom(1000, 0.05).interval(1.0 - 1e-4)
    for rate in wide_rates():
        assert low <= 1000 * rate <= high
    assert 1000 * wide_rates(drop_residuals=True)[1] > high


def test_draws_for_the_gaps_of_wide_rows_have_the_spread_of_the_rows():
    """Projections use completed rows; filling gaps with means would have too little spread."""
    X, labels = wide(1500, 3)
    family = families.ProjectedGaussian.suggest(X).learned(X, labels)
    mixture = mixture_of(X, family, DP, labels)
    rng = np.random.default_rng(0)
    gaps = np.where(rng.random(X.shape) < 0.4, np.nan, X)
    rows = [mixture.row(k) for k in range(2)]
    filled = family.drawn(gaps, labels, rows, rng)
    seen = ~np.isnan(gaps)
    assert np.array_equal(filled[seen], X[seen])
    for k in range(2):
        own = labels == k
        spread = np.cov(family.project(filled[own]).T).diagonal()
        true = np.cov(family.project(X[own]).T).diagonal()
        assert np.allclose(spread, true, rtol=0.25)
        assert np.mean(spread / true) == pytest.approx(1.0, abs=0.06)
    # What is drawn goes with what is there, in the projections that tell much of the columns.
    off = (family.project(filled) - family.project(X)).std(axis=0)
    assert (off < 0.5 * family.project(X).std(axis=0))[:5].all()
