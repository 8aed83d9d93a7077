"""Explanations against naive computations, and on data whose clusters are known."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy import stats

import naive
from dpsearch import DPMixture, Explanation, explain, families, load, priors
from dpsearch._numbers import Format
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.families.base import Family
from dpsearch.families.capabilities import PredictiveDraws
from dpsearch.mixture import Mixture
from dpsearch.problem import Problem
from explaining import agrees_with_naive, explained, mixture_of
from models import DRAWS, PRODUCT_PRIORS

# -- rows --------------------------------------------------------------------------------------


def leaves_out_right(name, prior):
    family, X = DRAWS[name](np.random.default_rng(0), 12)
    return agrees_with_naive(family, X[:9], prior, X[9:])


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=lambda prior: type(prior).__name__)
@pytest.mark.parametrize("name", DRAWS)
def test_leaving_one_out_agrees_with_naive_recomputation(name, prior):
    assert leaves_out_right(name, prior)


def test_a_cluster_weighed_with_the_row_in_it_is_noticed(monkeypatch):
    places = Mixture._places
    monkeypatch.setattr(
        Mixture, "_places", lambda self: places(self)._replace(own=places(self).steps)
    )
    assert not leaves_out_right("poisson", PRODUCT_PRIORS[0])


def test_a_lone_row_given_more_clusters_than_there_are_is_noticed(monkeypatch):
    places = Mixture._places

    def spoiled(self):
        out = places(self)
        return out._replace(fresh=np.full_like(out.fresh, out.fresh[-1]))

    monkeypatch.setattr(Mixture, "_places", spoiled)
    assert not leaves_out_right("gaussian", PRODUCT_PRIORS[2])


def test_one_row():
    found = explained(np.array([[0.5]]), families.Gaussian(), [0])
    assert found.certainty.tolist() == [1.0]
    assert np.isclose(found.log_density[0], stats.norm(0.0, np.sqrt(2.0)).logpdf(0.5))
    assert found.p_value.tolist() == [1.0]
    assert found.columns.tolist() == [[0.0]]
    assert np.isnan(found.elsewhere).all()


# -- columns -----------------------------------------------------------------------------------


def one_column(family, X, d):
    """The family and data of column d alone."""
    if family.name == "multinomial":
        a = np.broadcast_to(family.concentration, X.shape[1]).astype(float)
        both = np.stack([X[:, d], X.sum(axis=1) - X[:, d]], axis=1)
        return families.Multinomial([a[d], a.sum() - a[d]]), both
    if family.name == "full_gaussian":
        width = X.shape[1]
        scale = np.asarray(family.scale, dtype=float)
        scale = scale if scale.ndim == 2 else np.diag(np.broadcast_to(scale, width))
        mean = np.broadcast_to(family.prior_mean, width)[d]
        shape = 0.5 * (family.degrees - width + 1.0)
        return (
            families.DiagonalGaussian(mean, family.prior_strength, shape, 0.5 * scale[d, d]),
            X[:, [d]],
        )
    if family.name == "projected_gaussian":  # of what the projections show of the column
        inner, Z = naive.of_projections(family, X)
        mean, _, degrees, scale = naive.full_gaussian_posterior(inner, Z[:0])
        v = np.linalg.pinv(np.asarray(family.components))[d]
        shape = 0.5 * (degrees - Z.shape[1] + 1.0)
        single = families.DiagonalGaussian(
            v @ mean, family.prior_strength, shape, 0.5 * v @ scale @ v
        )
        return single, (Z @ v)[:, None]
    changes = {
        field.name: np.broadcast_to(getattr(family, field.name), X.shape[1])[d]
        for field in dataclasses.fields(family)
        if field.name != "form"
    }
    return type(family)(**changes), X[:, [d]]


def naive_bayes_factors(family, X, labels):
    out = np.empty((labels.max() + 1, X.shape[1]))
    for k, d in np.ndindex(*out.shape):
        single, x = one_column(family, X, d)
        inside = labels == k
        out[k, d] = naive.log_marginal(single, x[inside]) + naive.log_marginal(single, x[~inside])
        out[k, d] -= naive.log_marginal(single, x)
    return out


def column_check(name, seed):
    rng = np.random.default_rng(seed)
    family, X = DRAWS[name](rng, 20)
    labels = np.append([0, 1, 2, 3], rng.integers(3, size=16))
    found = explained(X, family, labels)
    wanted = naive_bayes_factors(Problem(X, family, PRODUCT_PRIORS[0]).model.family, X, labels)
    return np.allclose(found.columns, wanted, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", DRAWS)
def test_bayes_factors_are_those_of_each_column_on_its_own(name, seed):
    assert column_check(name, seed)


@pytest.mark.parametrize("family", ["Gaussian", "DiagonalGaussian", "Poisson"])
def test_a_wrong_bayes_factor_is_noticed(monkeypatch, family):
    kind = getattr(families, family)
    right = kind.columns

    def doubled(self, row, n_features):
        found = right(self, row, n_features)
        return found._replace(log_marginals=2.0 * found.log_marginals)

    monkeypatch.setattr(kind, "columns", doubled)
    name = {"Gaussian": "gaussian", "DiagonalGaussian": "diagonal_gaussian", "Poisson": "poisson"}
    assert not column_check(name[family], 0)


def product_check(gaps):
    """Check that columns of a mixed table have the evidence of their observed cells alone."""
    rng = np.random.default_rng(0)
    labels = np.append([0, 1, 2, 3], rng.integers(3, size=26))
    X = np.column_stack(
        [
            rng.integers(3, size=30),
            rng.normal(labels, 1.0),
            rng.poisson(1.0 + labels),
            rng.random(30) < 0.3,
            rng.normal(size=30),
        ]
    ).astype(float)
    if gaps:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[labels == 3, 1] = np.nan  # nothing was seen of this column in one cluster
    parts = {
        0: families.Categorical(0.5, 3),
        1: families.DiagonalGaussian(0.5, 0.3, 2.0, 1.5),
        2: families.Poisson(1.5, 0.7),
        3: families.Bernoulli(0.5, 2.0),
        4: families.DiagonalGaussian(0.5, 0.3, 2.0, 1.5),
    }
    product = families.Product([(parts[1], [4, 1]), *((parts[d], [d]) for d in (3, 0, 2))])
    found = explained(X, product, labels)
    wanted = np.empty((4, 5))
    for k, d in np.ndindex(4, 5):
        x, inside = X[~np.isnan(X[:, d]), d][:, None], (labels == k)[~np.isnan(X[:, d])]
        sides = [naive.log_marginal(parts[d], x[side]) for side in (inside, ~inside) if side.any()]
        wanted[k, d] = sum(sides) - naive.log_marginal(parts[d], x)
    rates = [
        (1.5 + np.nansum(X[labels == k, 2])) / (0.7 + np.sum(~np.isnan(X[labels == k, 2])))
        for k in range(4)
    ]
    return np.allclose(found.columns, wanted, atol=1e-8) and np.allclose(found.centres[:, 2], rates)


@pytest.mark.parametrize("gaps", [False, True])
def test_the_columns_of_a_mixed_table_speak_as_on_their_own(gaps):
    assert product_check(gaps)


@pytest.mark.parametrize(("kind", "gaps"), [("Product", False), ("WithGaps", True)])
def test_columns_of_a_mixed_table_in_a_wrong_order_are_noticed(monkeypatch, kind, gaps):
    kind = getattr(families, kind)
    right = kind.columns

    def reversed_columns(*given):
        found = right(*given)
        return found._replace(log_marginals=found.log_marginals[::-1])

    monkeypatch.setattr(kind, "columns", reversed_columns)
    assert not product_check(gaps)


def test_a_column_under_a_normal_inverse_wishart_prior():
    """For two rows of two columns, the other column is integrated out numerically."""
    scale = np.array([[1.5, 0.7], [0.7, 2.0]])
    family = families.FullGaussian([0.3, -0.2], 0.8, 6.0, scale)
    x = np.array([0.9, -0.4])  # of column 0
    u, step = np.linspace(-6.0, 6.0, 161, retstep=True)
    other, weight = np.sinh(u), np.cosh(u) * step
    values = np.empty((len(u), len(u)))
    for a, first in enumerate(other):
        row = np.array([x[0], first])
        for at, given in ((0, np.empty((0, 2))), (1, row[None])):
            mean, strength, degrees, matrix = naive.full_gaussian_posterior(family, given)
            freedom = degrees - 1.0
            t = stats.multivariate_t(
                mean, matrix * (strength + 1.0) / (strength * freedom), df=freedom
            )
            if at == 0:
                log_first = t.logpdf(row)
            else:
                values[a] = log_first + t.logpdf(np.stack([np.full(len(u), x[1]), other], axis=1))
    integral = np.log(weight @ np.exp(values) @ weight)
    single, _ = one_column(family, np.zeros((2, 2)), 0)
    assert np.isclose(integral, naive.log_marginal(single, x[:, None]), atol=1e-5)


def test_digits_are_kept_far_from_the_prior():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [0.0, 3.0]], 30, axis=0)
    labels = np.repeat([0, 1], 30)
    near = explained(X, families.Gaussian(0.0, 1e4, 1.0), labels)
    far = explained(X + 1e7, families.Gaussian(1e7, 1e4, 1.0), labels)
    assert np.allclose(near.columns, far.columns, rtol=1e-6)
    wide = explained(X + 1e6, families.Gaussian(0.0, 1e14, 1.0), labels)
    # One more mean to place, by a prior 10^10 times as wide, at 0.1 of its deviations.
    wanted = near.columns - 0.5 * np.log(1e10) - 0.5 * 0.1**2
    assert np.allclose(wide.columns, wanted, atol=1e-3)


def planted(name, rng):
    """Return data of two clusters that differ only in column 3, and a family for them."""
    labels = np.repeat([0, 1], 60)
    high = np.zeros((120, 6))
    high[60:, 3] = 1.0
    if name in ("gaussian", "diagonal_gaussian", "full_gaussian"):
        return families.by_name(name)(), rng.normal(size=(120, 6)) + 2.0 * high, labels
    if name == "projected_gaussian":
        return families.ProjectedGaussian(np.eye(6)), rng.normal(size=(120, 6)) + 2.0 * high, labels
    if name in ("poisson", "multinomial"):
        X = rng.poisson(4.0 + 8.0 * high).astype(float)
        return (families.Poisson() if name == "poisson" else families.Multinomial()), X, labels
    X = (rng.random((120, 6)) < 0.3 + 0.6 * high).astype(float)
    return (families.Bernoulli() if name == "bernoulli" else families.Categorical()), X, labels


@pytest.mark.parametrize("name", DRAWS)
def test_the_column_that_separates_comes_first(name):
    family, X, labels = planted(name, np.random.default_rng(0))
    found = explained(X, family, labels)
    best, *others = found.indicative(1)
    assert best.column == "column 3"
    codes = name == "categorical"  # of which none is higher than another
    assert best.direction == ("different" if codes else "higher")
    assert best.centre > best.elsewhere
    assert best.log_bayes_factor > 10.0
    assert found.indicative(0, 1)[0].direction == ("different" if codes else "lower")
    if name != "multinomial":  # whose other words share what the one leaves
        assert max(one.log_bayes_factor for one in others) < 3.0


# -- outliers ----------------------------------------------------------------------------------

RATE = 0.01


def model_data(name, rng, n=4000):
    """Return rows of five clusters whose parameters are drawn from the family's prior."""
    labels = np.sort(rng.integers(5, size=n))
    width = 4
    if name == "gaussian":
        family = families.Gaussian(0.0, 16.0, 1.0)
        X = rng.normal(0.0, 4.0, size=(5, width))[labels] + rng.normal(size=(n, width))
    elif name == "full_gaussian":
        family = families.FullGaussian(0.0, 0.1, 8.0, 2.0)
        X = np.empty((n, width))
        for k in range(5):
            covariance = stats.invwishart(8.0, 2.0 * np.eye(width)).rvs(random_state=rng)
            mean = rng.multivariate_normal(np.zeros(width), covariance / 0.1)
            X[labels == k] = rng.multivariate_normal(mean, covariance, size=(labels == k).sum())
    elif name == "poisson":
        family = families.Poisson(2.0, 0.2)
        X = rng.poisson(rng.gamma(2.0, 5.0, size=(5, width))[labels]).astype(float)
    else:
        family = families.Multinomial(0.5)
        topics = rng.dirichlet(np.full(30, 0.5), size=5)[labels]
        X = rng.multinomial(rng.integers(5, 400, size=n), topics).astype(float)
    return family, X, labels


def binomial_interval(n):
    """Return the interval that the number of false alarms leaves once in a million."""
    return stats.binom(n, RATE).interval(1.0 - 1e-6)


@pytest.mark.parametrize("name", ["gaussian", "full_gaussian", "poisson", "multinomial"])
def test_false_alarms_come_at_the_stated_rate(name):
    family, X, labels = model_data(name, np.random.default_rng(0))
    found = explained(X, family, labels, outlier_rate=RATE)
    low, high = binomial_interval(len(X))
    assert low <= len(found.outliers) <= high
    assert stats.kstest(found.p_value, "uniform").pvalue > 1e-4
    # New rows from the clusters as well.
    mixture = mixture_of(X, family, PRODUCT_PRIORS[0], labels)
    names, rng = found.names, np.random.default_rng(1)
    lengths = family.lengths(X)
    draws = np.vstack([mixture.draws(k).like(lengths[:800], rng) for k in range(5)])
    new = explain.explain_mixture(mixture, names, draws, None, outlier_rate=RATE, rng=rng)
    assert low <= len(new.outliers) <= high


def test_wide_tables_are_compared_with_fewer_draws(monkeypatch):
    """The time does not grow with the columns, and the results are still right."""
    family, X, labels = model_data("multinomial", np.random.default_rng(0))
    monkeypatch.setattr(explain, "_MOST", 90_000)
    drawn = []
    draws = explain._draws
    monkeypatch.setattr(explain, "_draws", lambda *of: drawn.append(draws(*of)) or drawn[-1])
    found = explained(X, family, labels, outlier_rate=RATE)
    assert sum(rows.size for rows, _ in drawn) == 90_000
    assert (found.n_draws, found.can_find_outliers) == (3000, True)
    assert stats.kstest(found.p_value, "uniform").pvalue > 1e-4
    few = explained(X, family, labels, outlier_rate=1e-4)
    assert (few.n_draws, few.can_find_outliers, len(few.outliers)) == (3000, False, 0)
    assert "outliers at a rate of 0.0001: not known from 3000 draws" in few.summary()
    assert explained(X[:9], family, labels[:9], outlier_rate=RATE).n_draws == 3000


@pytest.mark.slow
def test_a_million_columns(monkeypatch):
    monkeypatch.setattr(explain, "_MOST", 3_000_000)
    wide = sp.csr_matrix(([3.0, 1.0, 2.0], ([0, 0, 1], [0, 999_999, 5])), shape=(2, 1_000_000))
    found = explained(wide, families.Multinomial(), [0, 1])
    assert found.n_draws == 3
    assert found.certainty.shape == (2,)


def test_the_interval_catches_a_rule_that_is_wrong(monkeypatch):
    """Draws from the clusters' centres instead of the predictive would flag too many rows."""
    family, X, labels = model_data("gaussian", np.random.default_rng(0))
    right = families.Gaussian.draws

    def narrow(self, row, n_features):
        centre, draws = self.posterior(row, n_features)["mean"], right(self, row, n_features)
        return PredictiveDraws(lambda size, rng: centre + 0.8 * (draws.sample(size, rng) - centre))

    monkeypatch.setattr(families.Gaussian, "draws", narrow)
    found = explained(X, family, labels, outlier_rate=RATE)
    assert len(found.outliers) > binomial_interval(len(X))[1]


def test_long_documents_are_no_outliers_for_being_long():
    family, X, labels = model_data("multinomial", np.random.default_rng(0))
    found = explained(X, family, labels, outlier_rate=RATE)
    length = X.sum(axis=1)
    edges = np.quantile(length, [0.0, 0.25, 0.5, 0.75, 1.0])
    for low, high in itertools.pairwise(edges):
        inside = (low <= length) & (length <= high)
        assert (found.p_value[inside] <= RATE).mean() < 3.0 * RATE
    odd = np.zeros((1, 30))
    odd[0, X.sum(axis=0).argmin()] = 60.0
    mixture = mixture_of(X, family, PRODUCT_PRIORS[0], labels)
    new = explain.explain_mixture(
        mixture,
        found.names,
        np.vstack([X[:200], odd]),
        outlier_rate=1e-3,
        rng=np.random.default_rng(0),
    )
    assert new.outliers[0] == 200


def discrete(name, rng, n=1000):
    """Return rows of one cluster, many of them equal, and a family for them."""
    if name == "bernoulli":
        return families.Bernoulli(), (rng.random((n, 3)) < [0.5, 0.3, 0.03]).astype(float)
    if name == "poisson":
        return families.Poisson(1.0, 1.0), rng.poisson(0.5, size=(n, 2)).astype(float)
    if name == "multinomial":
        return families.Multinomial(), rng.multinomial(3, [0.5, 0.3, 0.2], size=n).astype(float)
    width = 1 if name == "category" else 3
    X = rng.choice(3, p=[0.6, 0.3, 0.1], size=(n, width)).astype(float)
    if name == "categories with gaps":
        X[rng.random(X.shape) < 0.2] = np.nan
    return families.Categorical(1.0, 3), X


DISCRETE = [
    "bernoulli", "category", "categories", "categories with gaps", "poisson", "multinomial",
]  # fmt: skip


def discrete_alarms_are_right(name):
    """Check that no p-value is too frequent in ten tables together."""
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(10):
        family, X = discrete(name, rng)
        p_values.append(explained(X, family, np.zeros(len(X), int), outlier_rate=0.001).p_value)
    found = np.concatenate(p_values)
    return all(
        (found <= rate).sum() <= stats.binom(len(found), rate).ppf(1.0 - 1e-5)
        for rate in (0.001, 0.01, 0.1)
    )


@pytest.mark.parametrize("name", DISCRETE)
def test_values_that_repeat_are_no_outliers_for_being_judged_by_the_others(name):
    assert discrete_alarms_are_right(name)


@pytest.mark.parametrize("name", ["category", "categories with gaps"])
def test_draws_that_do_not_know_their_equals_are_noticed(name, monkeypatch):
    monkeypatch.setattr(explain._Twins, "given_others", lambda self, X, log_inside: log_inside)
    monkeypatch.setattr(explain._Levels, "of", lambda *given: None)
    assert not discrete_alarms_are_right(name)


def test_p_values_are_those_of_all_values_there_are():
    """Of eight values, each has the density of its row, or that of a new row."""
    family, X = discrete("bernoulli", np.random.default_rng(0), 60)
    labels = (X[:, 0] > 0.0).astype(int)
    mixture = mixture_of(X, family, PRODUCT_PRIORS[0], labels)
    values = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    new = mixture.memberships(values).log_inside
    others = mixture.memberships(X, labels).log_inside
    equal = (values[:, None] == X).all(axis=2)
    assert not equal.any(axis=1).all()  # one of them is no row's
    judged = [others[same].min() if same.any() else x for same, x in zip(equal, new, strict=True)]
    chances = np.exp(new)
    assert np.isclose(chances.sum(), 1.0)
    wanted = np.array([chances[judged <= x + 1e-9].sum() for x in others])
    found = explained(X, family, labels).p_value
    assert np.abs(found - wanted).max() < 4.0 * np.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("sparse", [False, True])
def test_equal_rows_have_equal_keys(sparse):
    rng = np.random.default_rng(0)
    X = rng.integers(3, size=(200, 3)).astype(float)
    X[:5, 1] = [0.5, 2.0**53, 2.0**60, -1.0, 3.5]
    if not sparse:
        X[rng.random(X.shape) < 0.2] = np.nan
    factors = rng.integers(2**64, size=3, dtype=np.uint64)
    whole, keys = explain._keys(sp.csr_matrix(X) if sparse else X, factors)
    plain = np.isnan(X) | ((X >= 0.0) & (X < 2.0**53) & (np.round(X) == X))
    assert np.array_equal(whole, plain.all(axis=1))
    rows = X[whole]
    same = ((rows[:, None] == rows) | (np.isnan(rows[:, None]) & np.isnan(rows))).all(axis=2)
    assert np.array_equal(keys[:, None] == keys, same)


def test_an_odd_row_of_categories_in_a_cluster_of_its_own_is_an_outlier():
    rng = np.random.default_rng(0)
    X = (rng.random((300, 6)) < 0.05).astype(float)
    X[0] = 2.0
    labels = np.append(1, np.zeros(299, int))
    found = explained(X, families.Categorical(0.5, 3), labels, outlier_rate=0.001)
    assert found.outliers.tolist()[:1] == [0]
    assert len(found.outliers) <= 3


def test_planted_outliers_are_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) + 8.0 * rng.integers(2, size=300)[:, None]
    X[[17, 200]] = [[4.0, -9.0, 4.0], [20.0, 4.0, -9.0]]
    model = DPMixture(random_state=0).fit(X)
    assert set(model.outliers(X)[:2]) == {17, 200}
    assert len(model.outliers(X)) <= 5
    assert np.array_equal(model.explain(X).outliers, model.outliers(X))
    assert model.outliers([[0.0, 0.0, 0.0], [4.0, 4.0, -30.0]]).tolist() == [1]


def test_units_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_t(3.0, size=(200, 2))
    labels = (X[:, 0] > 0.5).astype(int)
    found = explained(X, families.DiagonalGaussian(0.5, 0.1, 2.0, 1.0), labels)
    scale = np.array([1e4, 1e-4])
    other = explained(X * scale, families.DiagonalGaussian(0.5 * scale, 0.1, 2.0, scale**2), labels)
    assert np.allclose(found.p_value, other.p_value, atol=1e-4)
    assert np.allclose(found.columns, other.columns)
    assert np.allclose(found.certainty, other.certainty)


# -- what the estimator makes of it --------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) + np.repeat([[0.0, 0.0], [0.0, 6.5]], [50, 30], axis=0)
    X[7] = [0.0, 3.1]
    frame = pd.DataFrame(X, columns=["width", "height"])
    return DPMixture(families.Gaussian(0.0, 25.0, 1.0), random_state=0).fit(frame), frame


def test_rows_of_the_fit_are_judged_by_the_others(fitted):
    model, frame = fitted
    found = model.explain(frame)
    assert isinstance(found, Explanation)
    assert np.array_equal(found.labels, model.labels_)
    alone = model.mixture_.memberships(frame.to_numpy(), model.labels_)
    assert np.array_equal(found.log_density, alone.log_density)
    again = model.explain(frame)
    assert np.array_equal(found.p_value, again.p_value)
    # In another order they are new rows, whose densities contain them.
    turned = model.explain(frame.iloc[::-1])
    assert np.allclose(turned.log_density, model.score_samples(frame)[::-1])
    assert (turned.log_density[::-1] > found.log_density).all()
    assert np.array_equal(turned.labels, model.predict(frame)[::-1])


def test_tables_and_lists(fitted):
    model, frame = fitted
    found = model.explain(frame)
    assert found.names == ("width", "height")
    assert found.indicative(0)[0].column == "height"
    assert found.borderline[0] == 7
    assert found.second[7] == 1
    assert (np.diff(found.certainty[found.borderline]) >= 0.0).all()
    for k, rows in enumerate(found.typical):
        assert len(rows) == 10
        assert (model.labels_[rows] == k).all()
        rest = np.setdiff1d(np.flatnonzero(model.labels_ == k), rows)
        assert found.log_density[rows].min() >= found.log_density[rest].max()
    points = found.to_frame()
    assert isinstance(points, pd.DataFrame)
    assert points["cluster"].tolist() == model.labels_.tolist()
    clusters = found.to_frame("clusters", library="polars")
    assert isinstance(clusters, pl.DataFrame)
    assert clusters["column"].to_list() == ["height", "width"] * 2
    assert clusters["log_bayes_factor"][0] == found.columns[0, 1]
    text = found.summary()
    assert "cluster 0: 50 points\n  height: " in text
    assert "row 7: cluster 0" in text
    assert repr(found).startswith("Explanation(80 rows, 2 clusters, 2 columns, ")


def test_categories_are_different_and_numbers_have_the_digits_that_differ():
    rng = np.random.default_rng(0)
    old = np.repeat([True, False], [60, 40])
    frame = pd.DataFrame(
        {
            "year": np.where(old, 2006.0, 2009.0) + rng.normal(0.0, 0.3, 100),
            "price": np.where(old, 98_000.0, 112_000.0) + rng.normal(0.0, 900.0, 100),
            "colour": np.where(old, "red", "blue"),
            "sold": rng.random(100) < np.where(old, 0.9, 0.1),
        }
    )
    found = DPMixture(random_state=0).fit(frame).explain(frame)
    assert found.n_clusters == 2
    said = {one.column: one for one in found.indicative(0)}
    words = {name: one.direction for name, one in said.items()}
    assert words == {"year": "lower", "price": "lower", "colour": "different", "sold": "higher"}
    assert [one.is_code for one in said.values()] == [name == "colour" for name in said]
    text = found.summary()
    assert "  colour: red, elsewhere blue (log" in text
    assert "  year: 2006, elsewhere 2009 (log" in text
    assert "  price: 98,000, elsewhere 112,000 (log" in text


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ((2008.31, 2006.94), ["2008", "2007"]),
        ((2008.31, 2008.3104), ["2008.31", "2008.3104"]),
        ((112_345.0, 98_001.0), ["112,000", "98,000"]),
        ((112_345.0, 112_346.2), ["112,345", "112,346.2"]),
        ((0.0, -0.123), ["0", "−0.123"]),
        ((1e-7, 2.5e-7), ["1e−7", "2.5e−7"]),
        ((0.0001, 1000.0), ["0", "1,000"]),
        ((3e20, 1.0), ["3e20", "1"]),
        ((5.006, np.nan), ["5.01", "–"]),
        ((8.88e-16, -2.5), ["0", "−2.5"]),
        ((-8.88e-16, 0.0), ["−8.88e−16", "0"]),
    ],
)
def test_numbers_as_they_are_shown(numbers, texts):
    assert Format.of(numbers).distinct(*numbers) == texts


def test_a_level_most_probable_in_all_clusters_differs_in_probability():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 200)
    X = (rng.random((400, 1)) > np.where(labels == 0, 0.99, 0.6)[:, None]).astype(float)
    text = explained(X, families.Categorical(), labels).summary()
    assert "  column 0: 0, as elsewhere, but with another probability (log" in text


def test_without_rows(fitted):
    model, _ = fitted
    found = model.explain()
    assert found.columns.shape == (2, 2)
    assert len(found.labels) == len(found.outliers) == len(found.borderline) == 0
    assert [len(rows) for rows in found.typical] == [0, 0]
    assert "typical" not in found.summary()
    assert len(found.to_frame()) == 0


def test_a_loaded_model_explains_the_same(fitted, tmp_path):
    model, frame = fitted
    model.save(tmp_path / "model.npz")
    found, other = model.explain(frame), load(tmp_path / "model.npz").explain(frame)
    assert np.allclose(found.columns, other.columns)
    assert np.allclose(found.log_density, other.log_density)


@pytest.mark.parametrize("family", [families.Poisson(2.0, 0.2), families.FullGaussian(4.0, 0.1)])
def test_weights_explain_as_repeated_rows(family):
    rng = np.random.default_rng(0)
    X = rng.poisson(np.repeat([[2.0, 2.0], [2.0, 12.0]], 20, axis=0)).astype(float)
    weights = rng.integers(0, 4, size=40)
    labels = np.repeat([0, 1], 20)
    problem = Problem(X[weights > 0], family, PRODUCT_PRIORS[0], weights=weights[weights > 0])
    mixture = Mixture.of(problem.model, problem.items, labels[weights > 0], PRODUCT_PRIORS[0])
    rows, names = X.repeat(weights, axis=0), ("a", "b")
    found = explain.explain_mixture(
        mixture, names, X, np.where(weights > 0, labels, -1), outlier_rate=0.01,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    other = explained(rows, family, labels.repeat(weights))
    assert np.allclose(found.columns, other.columns)
    assert np.allclose(found.certainty.repeat(weights), other.certainty)
    assert np.allclose(found.log_density.repeat(weights), other.log_density)
    assert np.array_equal(found.sizes, other.sizes)
    model = DPMixture(family, random_state=0).fit(X, sample_weight=weights)
    own = np.where(weights > 0, model.component_labels_, -1)
    place = model.mixture_.memberships(X, own)
    assert np.array_equal(model.explain(X).log_density, place.log_density)


def test_bad_questions_are_answered_clearly(fitted):
    model, frame = fitted
    found = model.explain(frame)
    for k in (-1, 2, 0.5, "a"):
        with pytest.raises(ParameterError, match="k must be a cluster, 0 … 1"):
            found.indicative(k)
    for rate in (0.0, 1.0, -1, "a", None, np.nan):
        with pytest.raises(ParameterError, match="outlier_rate must lie between 0 and 1"):
            model.explain(frame, outlier_rate=rate)
    with pytest.raises(ParameterError, match="'points' or 'clusters'"):
        found.to_frame("rows")
    with pytest.raises(ParameterError, match="'pandas', 'polars' or None"):
        found.to_frame(library="excel")
    with pytest.raises(ValueError, match="X has 3 features"):
        DPMixture().fit(frame.to_numpy()).explain([[1.0, 2.0, 3.0]])
    with pytest.raises(ParameterError, match="rng must be"):
        model.explain(frame, rng="a")


def test_a_family_without_columns_is_named_in_the_error():
    @dataclasses.dataclass(frozen=True)
    class Silent(families.Poisson):
        columns = Family.columns

    model = DPMixture(Silent(2.0, 0.2)).fit([[1.0], [2.0], [40.0]])
    with pytest.raises(CapabilityError, match="explain needs the capability 'columns'"):
        model.explain()


def test_priors_on_shapes_weigh_places_as_prediction_does():
    X = np.array([[0.0], [0.3], [9.0]])
    labels = np.array([0, 0, 1])
    found = mixture_of(X, families.Gaussian(0.0, 25.0), priors.AntoniakCounts(1.0), labels)
    other = mixture_of(X, families.Gaussian(0.0, 25.0), priors.DirichletProcess(1.0), labels)
    for one, two in zip(found.memberships(X, labels), other.memberships(X, labels), strict=True):
        assert np.array_equal(one, two)


# -- rare levels -------------------------------------------------------------------------------


def rare_levels(n, width, n_levels, seed, numbers):
    """Return two clusters that share many rare levels, many of them seen once, and numbers."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(2, size=n))
    tail = 1.0 / np.arange(1, n_levels + 1)
    columns = []
    for _ in range(width):
        chances = 0.5 * rng.dirichlet(np.full(n_levels, 0.05), size=2) + 0.5 * tail / tail.sum()
        drawn = (np.cumsum(chances[labels], axis=1) < rng.random((n, 1))).sum(axis=1)
        columns.append(np.unique(drawn, return_inverse=True)[1])  # levels are those that are seen
    X = np.column_stack(columns).astype(float)
    codes = families.Categorical(0.1, tuple(int(c.max()) + 1 for c in columns))
    if not numbers:
        return codes, X, labels
    X = np.column_stack([X, 4.0 * labels + rng.normal(size=n)])
    parts = [(codes, range(width)), (families.Gaussian(2.0, 9.0, 1.0), [width])]
    return families.Product(parts), X, labels


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize(("width", "n_levels"), [(5, 50), (5, 500), (20, 200)])
def test_rare_levels_do_not_make_outliers(monkeypatch, width, n_levels, numbers):
    monkeypatch.setattr(explain, "_DRAWS", 3000)
    family, X, labels = rare_levels(600, width, n_levels, 0, numbers)
    found = explained(X, family, labels, outlier_rate=0.01)
    for rate in (0.01, 0.05):
        assert (found.p_value <= rate).sum() <= stats.binom(600, rate).ppf(1.0 - 1e-4)
    if n_levels == 500:
        monkeypatch.setattr(explain._Levels, "of", lambda *given: None)
        spoiled = explained(X, family, labels, outlier_rate=0.01)
        assert (spoiled.p_value <= 0.05).sum() > stats.binom(600, 0.05).ppf(1.0 - 1e-4)


@pytest.mark.parametrize("name", ["student_t", "gamma", "negative_binomial", "ordinal", "beta"])
def test_rows_of_the_fit_are_recognised_under_families_by_nodes(name):
    """Rows by nodes defer sums, by an order of changes that their labels do not tell."""
    rng = np.random.default_rng(4)
    X = rng.integers(1, 6, size=(300, 6)).astype(float)
    X[150:] = np.clip(X[150:] + 2.0, 1.0, 5.0)
    X = X / 6.0 if name == "beta" else X
    for refine in (False, "auto"):
        model = DPMixture(name, random_state=0, refine=refine, level="components").fit(X)
        known = model.state_.labels_of(model.encode(model.checked(X)))
        np.testing.assert_array_equal(known, model.component_labels_)
        np.testing.assert_array_equal(model.explain(X).components, model.component_labels_)
        other = X.copy()
        other[0, 0] = 9.0 - X[0, 0] if name != "beta" else 0.9 - X[0, 0] / 2.0
        other = np.clip(other, X.min(), X.max())
        assert model.state_.labels_of(model.encode(model.checked(other))) is None
