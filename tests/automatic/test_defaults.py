"""Common kinds of tables that the defaults must not get wrong."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, priors
from dpsearch.automatic import learn
from dpsearch.errors import ParameterError
from dpsearch.families import DiagonalGaussian, FullGaussian, ProjectedGaussian
from dpsearch.problem import Problem
from dpsearch.tables import Schema

IRIS = load_iris().data
PRIOR = priors.DirichletProcess(priors.Gamma(1.0, 1.0))


def blobs(rng, n_rows, width, n_clusters, spread):
    """Return clusters of unit variance whose centres have this spread."""
    truth = rng.integers(n_clusters, size=n_rows)
    centres = spread * rng.normal(size=(n_clusters, width))
    return centres[truth] + rng.normal(size=(n_rows, width)), truth


def agreement(X, truth):
    return adjusted_rand_score(truth, DPMixture().fit(X).labels_)


# -- noise -------------------------------------------------------------------------------------


NOISE = [(14, 3), (100, 20), (160, 32), (200, 100)]


@pytest.mark.parametrize(
    "shape", [*NOISE, *(pytest.param(one, marks=pytest.mark.slow) for one in [(20, 4), (300, 5)])]
)
def test_noise_is_one_cluster(shape):
    found = [
        DPMixture().fit(np.random.default_rng(seed).normal(size=shape)).n_clusters_
        for seed in range(4)
    ]
    assert found.count(1) >= 3, found


def test_one_cluster_is_always_compared():
    rng = np.random.default_rng(1)
    for seed in range(2):
        X = rng.normal(size=(20, 3))
        start = FullGaussian.suggest(X).resolve(X)
        learned = learn(X, start, PRIOR)
        together = np.zeros(20, np.int64)
        for_all = Problem(X, start.learned(X, together), PRIOR).log_joint(together)
        value = Problem(X, learned.family, PRIOR).log_joint(learned.labels)
        assert value >= for_all - 1e-9, seed


# -- clusters that are there -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "width", "n_clusters", "spread"),
    [
        (600, 43, 8, 6.0),
        (600, 43, 8, 10.0),
        pytest.param(1000, 20, 10, 6.0, marks=pytest.mark.slow),
        (18, 4, 3, 30.0),
        (60, 500, 3, 2.0),
    ],
)
def test_clusters_far_apart_are_found(n_rows, width, n_clusters, spread):
    X, truth = blobs(np.random.default_rng(3), n_rows, width, n_clusters, spread)
    assert agreement(X, truth) > 0.99


def test_two_clusters_in_many_columns_are_not_taken_for_one():
    """The fit starts from random halves, as search alone stays with one cluster."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=2000)
    X = rng.normal(size=(2000, 30)) + 5.0 / np.sqrt(30.0) * truth[:, None]
    start = FullGaussian.suggest(X).resolve(X)
    assert adjusted_rand_score(truth, learn(X, start, PRIOR).labels) > 0.95


@pytest.mark.slow
def test_columns_of_noise_hide_nothing():
    rng = np.random.default_rng(5)
    X, truth = blobs(rng, 600, 3, 3, 8.0)
    model = DPMixture().fit(np.column_stack([X, rng.normal(size=(600, 25))]))
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert model.family_.name == "diagonal_gaussian"
    assert model.reason_ == "numbers in 28 columns, independent within clusters"


def test_a_simpler_family_is_taken_only_where_it_is_more_probable():
    rng = np.random.default_rng(6)
    slant = rng.normal(size=(400, 2)) @ [[3.0, 2.9], [0.0, 0.3]]
    truth = rng.integers(2, size=400)
    X = slant + 2.0 * truth[:, None] * [1.0, -1.0]
    model = DPMixture().fit(X)
    assert model.family_.name == "full_gaussian"
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    named = DPMixture(family="full_gaussian").fit(rng.normal(size=(100, 3)))
    assert named.family_.name == "full_gaussian"  # what was named is not given up


# -- columns that tell nothing new ---------------------------------------------------------------


@pytest.fixture(scope="module")
def of_iris():
    return DPMixture().fit(IRIS)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (lambda X: np.full(len(X), 7.0), "is constant"),
        (lambda X: 3.0 * X[:, 0] + 1.0, "follows from the others"),
        (lambda X: X.sum(axis=1), "follows from the others"),
        (lambda X: X[:, 2] - 5.0 * X[:, 1], "follows from the others"),
    ],
    ids=["constant", "in other units", "sum", "difference"],
)
def test_a_column_that_follows_from_others_changes_nothing(more, reason, of_iris):
    model = DPMixture().fit(np.column_stack([IRIS, more(IRIS)]))
    np.testing.assert_array_equal(model.labels_, of_iris.labels_)
    assert model.reason_ == f"numbers in 4 columns; column 4 {reason}"
    np.testing.assert_allclose(
        model.predict_proba(np.column_stack([IRIS, more(IRIS)])),
        of_iris.predict_proba(IRIS),
        atol=1e-6,
    )


def test_condensed_coordinates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1.0, 1e3, 1e-3]
    X = np.column_stack([X, X[:, 0] + 1e-3 * X[:, 1], np.full(200, 2.0), 5.0 * X[:, 2] - 1.0])
    family = ProjectedGaussian.condensed(X)
    components, loadings = np.array(family.components), np.array(family.loadings)
    assert components.shape == (3, 6)
    np.testing.assert_allclose(components @ loadings, np.eye(3), atol=1e-9)
    # Nothing is lost: rows come back from their projections.
    back = np.array(family.centre) + family.project(X) @ loadings.T
    np.testing.assert_allclose(back, X, rtol=1e-6, atol=1e-6 * X.std(axis=0).min())
    assert ProjectedGaussian.condensed(rng.normal(size=(200, 3))) is None


def test_what_follows_need_not_have_been_observed():
    X = np.column_stack([IRIS, 3.0 * IRIS[:, 0] + 1.0, IRIS.sum(axis=1)])
    model = DPMixture().fit(X)
    for column in (0, 4, 5):
        gaps = X.copy()
        gaps[:, column] = np.nan
        np.testing.assert_allclose(model.score_samples(gaps), model.score_samples(X), rtol=1e-6)
        np.testing.assert_allclose(model.impute(gaps), X, rtol=1e-6)


def test_projections_of_rows_with_gaps():
    """Compare with the margin of a Student t for q = 2 projections, one of which is observed."""
    A = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    B = np.array([[1.0, 0.0], [0.0, 0.6], [0.0, 0.8]])
    family = ProjectedGaussian(A, [1.0, 0.0, 2.0], loadings=B).resolve(np.zeros((1, 3)))
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = family.compile(X)
    items, _ = model.items()
    row = model.rows(items, np.zeros(30, np.int64), 1)[0]
    mean, scale, degrees = family._inner.predictive(row, 2)
    new = np.array([[0.3, np.nan, np.nan], [np.nan, 0.4, np.nan], [np.nan] * 3])
    got = family.gaps([row], 3).log_densities(new)[:, 0]
    first = stats.t.logpdf(-0.7, degrees, mean[0], np.sqrt(scale[0, 0]))
    # 0.6 · 0.4 is 0.36 of z₂, as the columns that are missing follow B.
    second = stats.t.logpdf(0.6 * 0.4 / 0.36, degrees, mean[1], np.sqrt(scale[1, 1]))
    np.testing.assert_allclose(got, [first, second, 0.0], rtol=1e-9)
    filled = family.gaps([row], 3).fill(new, np.ones((3, 1)))
    z = mean[1] + scale[1, 0] / scale[0, 0] * (-0.7 - mean[0])
    np.testing.assert_allclose(filled[0], [0.3, 0.6 * z, 2.0 + 0.8 * z], rtol=1e-9)


def test_bad_loadings():
    for loadings, message in (
        ([[1.0]], "loadings has shape"),
        ([[2.0], [0.0]], "identity"),
        ("no", "loadings must be a matrix of numbers"),
    ):
        with pytest.raises(ParameterError, match=message):
            ProjectedGaussian([[1.0, 0.0]], loadings=loadings).compile(np.zeros((3, 2)))


# -- mixed tables ------------------------------------------------------------------------------


def test_a_column_of_text_does_not_change_what_numbers_tell(of_iris):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    frame["sex"] = rng.choice(["m", "f"], len(frame))
    model = DPMixture().fit(frame)
    assert adjusted_rand_score(model.labels_, of_iris.labels_) > 0.95
    assert [family.name for family, _ in model.family_.parts] == ["full_gaussian", "categorical"]


def test_products_with_a_covariance_predict_rows_with_gaps():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(40, 2)), rng.integers(3, size=40)])
    parts = FullGaussian(0.0, 0.5), families.Categorical(1.0, 3)
    product = families.Product([(parts[0], [0, 1]), (parts[1], [2])])
    labels = rng.integers(2, size=40)
    whole = DPMixture(product, refine=False).fit(X)
    mixture = type(whole.mixture_).of(
        product.compile(X), product.compile(X).items()[0], labels, whole.mixture_.prior
    )
    new = X[:5].copy()
    new[0, 0] = new[1, 2] = np.nan
    new[2, :2] = np.nan
    new[3] = np.nan
    inside, _ = mixture.log_joint_probabilities(new)
    for k in range(2):
        own = X[labels == k]
        want = np.zeros(5)
        model = parts[0].compile(own[:, :2])
        row = model.rows(model.items()[0], np.zeros(len(own), np.int64), 1)[0]
        want += parts[0].resolve(own[:, :2]).gaps([row], 2).log_densities(new[:, :2])[:, 0]
        counts = np.bincount(own[:, 2].astype(int), minlength=3) + 1.0
        codes = new[:, 2]
        seen = ~np.isnan(codes)
        want[seen] += np.log(counts / counts.sum())[codes[seen].astype(int)]
        np.testing.assert_allclose(inside[:, k] - mixture.log_weights[k], want, rtol=1e-9)
    filled = mixture.impute(new)
    assert not np.isnan(filled).any()
    np.testing.assert_array_equal(filled[~np.isnan(new)], new[~np.isnan(new)])


def test_a_column_of_zeros_and_ones_among_numbers():
    rng = np.random.default_rng(2)
    X, truth = blobs(rng, 600, 3, 3, 6.0)
    table = np.column_stack([X, rng.random(600) < 0.5])
    model = DPMixture().fit(table)
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    assert model.family_.name == "product"
    assert model.family_.parts[1] == (model.family_.parts[1][0], (3,))
    assert model.family_.parts[1][0].name == "bernoulli"


def test_zeros_and_ones_in_a_frame_are_binary_unless_specified_otherwise():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    frame = pd.DataFrame(rng.normal(size=(200, 3)) + 3.0 * truth[:, None], columns=list("xyz"))
    frame["smoker"] = rng.integers(2, size=200)
    frame["city"] = rng.choice(["a", "b"], 200)
    model = DPMixture().fit(frame)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert [columns for _, columns in model.family_.parts] == [(0, 1, 2), (3,), (4,)]
    assert len(model.predict(frame)) == 200
    said = DPMixture(kinds={"smoker": "real"}).fit(frame)
    assert [columns for _, columns in said.family_.parts] == [(0, 1, 2, 3), (4,)]


@pytest.mark.slow
def test_constant_columns_do_not_count_as_columns():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(47, 9)) @ (np.eye(9) + 0.5 * rng.normal(size=(9, 9)))
    more = np.column_stack([X, np.full((47, 2), 2.0)])
    one, other = DPMixture().fit(X), DPMixture().fit(more)
    assert adjusted_rand_score(one.labels_, other.labels_) == 1.0
    assert (one.family_.name, other.family_.name) == ("full_gaussian", "projected_gaussian")


def test_a_gap_in_a_constant_column_of_counts():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(0.4, size=(80, 5)), np.full(80, 2.0)])
    X[5, 5] = np.nan
    model = DPMixture().fit(X)
    assert len(model.predict(X)) == 80
    assert len(model.explain(X).certainty) == 80


def test_a_row_of_no_weight_may_have_gaps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) @ [[1.0, 0.9], [0.0, 0.4]] + 8.0 * (np.arange(80) % 2)[:, None]
    X[3, 0] = np.nan
    model = DPMixture().fit(X, sample_weight=(np.arange(80) != 3).astype(int))
    assert not model.family_.takes_gaps
    assert model.labels_[3] == model.labels_[1]


def test_whole_numbers_that_vary_less_than_counts():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=400)
    frame = pd.DataFrame(
        {
            "age": np.round(np.where(truth, 26, 19) + 1.2 * rng.normal(size=400)).astype(int),
            "rating": rng.integers(1, 6, size=400),
            "visits": rng.poisson(3.0, size=400),
            "rare": rng.poisson(0.1, size=400),
            "school": rng.choice(list("abc"), 400),
        }
    )
    assert Schema.of(frame).groups() == {"real": [0, 1], "count": [2, 3], "category": [4]}
    assert agreement(frame[["age", "school"]], truth) > 0.9


# -- gaps ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_missing_cell_changes_next_to_nothing(of_iris):
    X = IRIS.copy()
    X[0, 0] = np.nan
    model = DPMixture().fit(X)
    assert model.reason_ == "numbers in 4 columns, with missing values filled in"
    assert adjusted_rand_score(model.labels_, of_iris.labels_) > 0.95


def test_wide_tables_are_completed():
    rng = np.random.default_rng(0)
    X, truth = blobs(rng, 90, 60, 3, 1.5)
    X[:, 7] = 4.0
    X[rng.random(X.shape) < 0.1] = np.nan
    model = DPMixture().fit(X)
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    assert model.family_.name == "projected_gaussian"
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(model.completed_[seen], X[seen])
    assert (model.completed_[:, 7] == 4.0).all()
    assert np.isfinite(model.completed_).all()


@pytest.mark.slow
def test_numbers_of_a_mixed_table_are_completed_if_little_is_missing():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    frame["sex"] = rng.choice(["m", "f"], len(frame))
    frame.iloc[3, 1] = np.nan
    frame.iloc[5, 4] = None
    model = DPMixture().fit(frame)
    assert model.family_.parts[0][0].name == "full_gaussian"
    assert np.isnan(model.completed_).sum() == 1  # categories are skipped
    assert (model.explain(frame).certainty > 0.3).all()
    frame.iloc[::3, :4] = np.nan
    skipped = DPMixture().fit(frame)
    assert skipped.completed_ is None
    assert skipped.family_.parts[0][0].name == "with_gaps"


def test_few_rows_with_gaps_are_skipped_exactly():
    X = np.random.default_rng(0).normal(size=(14, 3))
    X[2, 1] = np.nan
    model = DPMixture().fit(X)
    assert model.completed_ is None
    assert isinstance(model.family_.family, DiagonalGaussian)
