"""Bad and extreme data give a clear error that names the fault or a correct result, never NaN."""

import functools
import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.special import gammaln

import naive
from dpsearch import DPMixture, families, log_joint, priors, search
from dpsearch.errors import DataError, DataTypeError, DPSearchError, ParameterError
from dpsearch.partition import by_appearance
from models import DRAWS

DP = priors.DirichletProcess(1.0)
COUNTS = ["multinomial", "poisson", "bernoulli", "categorical"]
REAL = ["gaussian", "diagonal_gaussian", "full_gaussian"]


def example(name, n=12):
    """A family with fixed hyperparameters, and data of at least two columns."""
    for seed in range(100):
        family, X = DRAWS[name](np.random.default_rng([seed, len(name)]), n)
        if X.shape[1] >= 2:
            return family, X
    raise AssertionError


def every_way_in(family, X, labels=None):
    """Yield functions that each pass X to a different part of the library."""
    n = X.shape[0]
    yield lambda: search(X, family, DP)
    yield lambda: search(X, family, DP, beam_size=1)
    yield lambda: log_joint(X, np.zeros(n, int) if labels is None else labels, family, DP)
    yield lambda: DPMixture(family=family).fit(X)
    yield lambda: DPMixture(family=family.name).fit(X)


@functools.cache
def fitted(name):
    family, X = example(name)
    return DPMixture(family=family).fit(X), X


@functools.cache
def counted():
    return DPMixture(families.Multinomial(1.0)).fit([[1, 2], [3, 4]])


def sound(model, X):
    """Check that a fitted model contains no NaN and that its log joint is right."""
    assert np.isfinite(model.log_joint_)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-9)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.alpha_)
    return model


def naive_log_joint(X, labels, family, prior=DP):
    labels = np.asarray(labels)
    clusters = [X[labels == k] for k in np.unique(labels)]
    prior_part = prior.log_probability([len(cluster) for cluster in clusters])
    return prior_part + sum(naive.log_marginal(family, cluster) for cluster in clusters)


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 40])
def test_a_table_without_any_value_is_refused(width):
    with pytest.raises(DataError, match="column 0 of X has no values"):
        DPMixture().fit(np.full((8, width), np.nan))


@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
@pytest.mark.parametrize("name", DRAWS)
def test_nan_and_infinity_are_named(name, value, said):
    family, X = example(name)
    X[3, 1] = value
    if np.isnan(value) and family.takes_gaps:
        results = [call() for call in every_way_in(family, X)]
        values = [getattr(r, "log_joint", getattr(r, "log_joint_", r)) for r in results]
        assert np.isfinite(values).all()
        assert np.isfinite(fitted(name)[0].score_samples(X)).all()
        return
    for call in every_way_in(family, X):
        with pytest.raises(DataError, match=f"Input X contains {said}: X at row 3, column 1 is"):
            call()
    model, _ = fitted(name)
    if np.isnan(value) and family.predicts_gaps:  # though it cannot be fitted to them
        assert np.isfinite(model.score_samples(X)).all()
        return
    for method in (model.predict, model.predict_proba, model.score_samples, model.score):
        with pytest.raises(DataError, match=f"{said}: X at row 3, column 1 is"):
            method(X)


@pytest.mark.parametrize("name", ["multinomial", "poisson", "bernoulli"])
def test_nan_in_sparse_data_is_named(name):
    family, X = example(name)
    X[3, 1] = np.nan
    for kind in (sp.csr_matrix, sp.csc_matrix, sp.coo_matrix):
        with pytest.raises(DataError, match="row 3, column 1 is missing"):
            search(kind(X), family, DP)
        with pytest.raises(DataError, match="row 3, column 1 is missing"):
            DPMixture().fit(kind(X))


MISSING = {
    "pandas NaN": pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]}),
    "pandas NA": pd.DataFrame({"a": [1, 2], "b": pd.array([3, None], dtype="Int64")}),
    "pandas arrow": pd.DataFrame({"a": [1, 2], "b": pd.array([3, None], dtype="int64[pyarrow]")}),
    "polars null": pl.DataFrame({"a": [1, 2], "b": [3, None]}),
    "polars NaN": pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]}),
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_values_in_frames_are_named_by_column(kind):
    full = families.FullGaussian()
    model = DPMixture(full).fit(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]}))
    for call in (DPMixture(full).fit, lambda X: search(X, full, DP)):
        with pytest.raises(DataError, match="X at row 1, column 'b' is missing"):
            call(MISSING[kind])
    assert np.isfinite(model.score_samples(MISSING[kind])).all()  # by what was observed
    # Families that can skip them do, and all ways to say missing are one.
    gaussian = families.Gaussian()
    want = log_joint([[1.0, 3.0], [2.0, np.nan]], [0, 0], gaussian, DP)
    assert log_joint(MISSING[kind], [0, 0], gaussian, DP) == want


def test_masked_values_are_missing():
    X = np.ma.masked_greater(np.arange(8.0).reshape(4, 2), 6.5)
    with pytest.raises(DataError, match="X at row 3, column 1 is missing"):
        DPMixture("full_gaussian").fit(X)
    gaussian = families.Gaussian()
    want = log_joint([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, np.nan]], [0] * 4, gaussian, DP)
    assert log_joint(X, [0] * 4, gaussian, DP) == want
    unmasked = np.ma.masked_array(np.arange(8.0).reshape(4, 2))
    assert np.isfinite(DPMixture().fit(unmasked).log_joint_)


TEXT = "row 0, column 'b' is 'x'"
NOT_NUMBERS = {
    "text": ([["1", "b"], ["2", "c"]], "row 0, column 1 is 'b', not a number"),
    "numbers as text": (np.array([["1", "2"]]), "type <U1, not numbers"),
    "text frame": (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), TEXT),
    "polars text": (pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}), TEXT),
    "dates": (np.array([["2020-01-01"]], dtype="datetime64[D]"), "row 0, column 0 is"),
    "date frame": (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 3)}), "'a'"),
    "no date": (np.array([["NaT"]], dtype="datetime64[D]"), "row 0, column 0 is missing"),
    "times": (np.array([[5]], dtype="timedelta64[s]"), "row 0, column 0 is"),
    "objects": (np.array([[1.0, {}]], dtype=object), "row 0, column 1 is {}"),
    "none": ([[1.0, None]], "row 0, column 1 is missing|column 1 of X has no values"),
    "complex": ([[1.0, 2j]], "Complex data not supported: X"),
    "sparse complex": (sp.csr_matrix([[1.0, 2j]]), "Complex data not supported: X"),
    "too large an integer": ([[1, 10**400]], "row 0, column 1 is too large"),
    "ragged": ([[1.0, 2.0], [3.0]], "rows differ in length"),
    "one-dimensional": ([1.0, 2.0], "Expected 2D array, got 1D.*X"),
    "a series": (pd.Series([1.0, 2.0]), "Expected 2D array, got 1D.*X"),
    "three-dimensional": (np.zeros((2, 2, 2)), "Expected 2D array, got 3D.*X"),
    "one-dimensional sparse": (sp.coo_array([1, 0, 2]), "Expected 2D array, got 1D.*X"),
    "a number": (3.0, "Expected 2D array, got 0D.*X"),
    "nothing": (None, "Expected 2D array, got 0D.*X"),
    "a lazy frame of lists": (pl.LazyFrame({"a": [[1.0]]}), "'a'"),
}


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_what_is_not_a_table_of_numbers(kind):
    X, said = NOT_NUMBERS[kind]
    if said == TEXT:
        assert DPMixture().fit(X).n_clusters_ == 1  # a frame may hold texts
    else:
        with pytest.raises((DataError, DataTypeError), match=said):
            DPMixture().fit(X)
    with pytest.raises((DataError, DataTypeError), match=said):
        search(X, families.Multinomial(1.0), DP)
    with pytest.raises((DataError, DataTypeError), match=said):
        log_joint(X, [0], families.Multinomial(1.0), DP)
    with pytest.raises((DataError, DataTypeError), match=said):
        counted().predict(X)


def test_new_rows_do_not_come_from_a_generator():
    model = DPMixture(families.Gaussian(0.0, 25.0, 1.0)).fit([[1.0], [2.0]])
    with pytest.raises(DataError, match="X must be an array.* or a frame, got 'generator'"):
        model.predict(row for row in [[1.0]])


@pytest.mark.parametrize("bad", [5, -1, 2**30])
def test_a_sparse_matrix_that_points_outside_itself(bad):
    """Kernels index by the matrix's column numbers, so invalid ones must be refused."""
    X = sp.csr_matrix(np.ones((3, 4)))
    X.indices[5] = bad
    for call in (DPMixture().fit, lambda X: search(X, families.Multinomial(1.0), DP)):
        with pytest.raises(DataError, match="X is not a valid sparse matrix: indices"):
            call(X)


# -- shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "empty",
    [
        np.zeros((0, 2)),
        np.zeros((3, 0)),
        sp.csr_matrix((0, 2)),
        [[]],
        pd.DataFrame({"a": [], "b": []}),
        pl.DataFrame({"a": [], "b": []}),
    ],
    ids=["no rows", "no columns", "sparse", "a list", "pandas", "polars"],
)
def test_an_empty_set(empty):
    family = families.Multinomial(1.0)
    calls = [
        lambda: DPMixture().fit(empty),
        lambda: counted().predict(empty),
        lambda: search(empty, family, DP),
        lambda: log_joint(empty, [], family, DP),
    ]
    for call in calls:
        with pytest.raises(DataError, match="X is empty"):
            call()


@pytest.mark.parametrize("name", DRAWS)
def test_the_wrong_width_at_predict(name):
    model, X = fitted(name)
    width = X.shape[1]
    for other in (X[:, :-1], np.hstack([X, X])):
        for method in (model.predict, model.predict_proba, model.score_samples, model.transform):
            with pytest.raises(ValueError, match=f"{other.shape[1]} features.*{width} features"):
                method(other)


@pytest.mark.parametrize("name", DRAWS)
def test_one_row(name):
    family, X = example(name)
    one = X[:1]
    want = naive.log_marginal(family, one)
    assert log_joint(one, [7], family, DP) == pytest.approx(want, abs=1e-9)
    for arguments in ({}, {"beam_size": 1}, {"method": "best-first"}, {"heuristic": "admissible"}):
        result = search(one, family, DP, **arguments)
        assert result.labels.tolist() == [0]
        assert result.log_joint == pytest.approx(want, abs=1e-9)
    for given in (family, name, "auto"):
        model = sound(DPMixture(family=given).fit(one), one)
        assert model.labels_.tolist() == [0]
        assert model.predict(one).tolist() == [0]
        if given is family:
            sound(model, X)


@pytest.mark.parametrize("name", DRAWS)
def test_all_rows_equal(name):
    family, X = example(name)
    X = np.repeat(X[:1], 40, axis=0)
    want = naive_log_joint(X, np.zeros(40), family)
    assert log_joint(X, np.zeros(40), family, DP) == pytest.approx(want, abs=1e-7)
    result = search(X, family, DP)
    assert result.log_joint == pytest.approx(naive_log_joint(X, result.labels, family), abs=1e-7)
    assert result.log_joint >= want - 1e-7
    for given in (family, name, "auto"):
        model = sound(DPMixture(family=given).fit(X), X)
        assert model.n_clusters_ == 1
        assert set(model.predict(X)) == {0}


@pytest.mark.parametrize("name", [*DRAWS, "auto"])
def test_all_zeros(name):
    X = np.zeros((30, 3))
    assert sound(DPMixture(family=name).fit(X), X).n_clusters_ == 1


@pytest.mark.parametrize("constant", [0.0, 5.0, 1e12, -1e-12])
@pytest.mark.parametrize("name", REAL)
def test_a_constant_column(name, constant):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [9.0, -9.0]], 20, axis=0) + rng.normal(size=(40, 2))
    X = np.column_stack([X[:, 0], np.full(40, constant), X[:, 1]])
    model = sound(DPMixture(family=name).fit(X), X)
    assert model.n_clusters_ == 2
    assert len(set(model.labels_[:20])) == len(set(model.labels_[20:])) == 1
    if abs(constant) <= 5.0:
        family, _ = example(name)
        mean = [0.0, constant, 0.0]
        family = {
            "gaussian": families.Gaussian(mean, 20.0, 1.0),
            "diagonal_gaussian": families.DiagonalGaussian(mean, 0.1, 2.0, 1.0),
            "full_gaussian": families.FullGaussian(mean, 0.1, 5.0, 1.0),
        }[name]
        result = search(X, family, DP)
        want = naive_log_joint(X, result.labels, family)
        assert result.log_joint == pytest.approx(want, rel=1e-9)
        assert np.array_equal(result.labels, model.labels_)


# -- a family that does not fit ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"), [(-1.0, "-1"), (1.5, "1.5"), (1e-300, "1e-300")], ids=str
)
@pytest.mark.parametrize("name", COUNTS)
def test_negative_and_fractional_counts_are_named(name, value, said):
    family, X = example(name)
    X[3, 1] = value
    match = f"the {name} family takes .*X at row 3, column 1 is {said}"
    for call in every_way_in(family, X):
        with pytest.raises(DataError, match=match):
            call()
    model, _ = fitted(name)
    for method in (model.predict, model.predict_proba, model.score_samples):
        with pytest.raises(DataError, match=match):
            method(X)
    if families.by_name(name).accepts_sparse:
        with pytest.raises(DataError, match=match):
            search(sp.csc_matrix(X), family, DP)


def test_codes_that_are_not_there():
    family, X = example("categorical")
    X[3, 1] = 4.0  # of the levels 0 … 3
    with pytest.raises(DataError, match="codes below 4, its n_levels, but X at row 3, column 1"):
        search(X, family, DP)
    model, _ = fitted("categorical")
    with pytest.raises(DataError, match="X at row 3, column 1 is 4"):
        model.predict(X)
    with pytest.raises(DataError, match="takes zeros and ones, but X at row 3, column 1 is 4"):
        search(np.where(X == 4.0, X, 0.0), families.Bernoulli(1.0, 1.0), DP)


@pytest.mark.parametrize("name", ["gaussian", "diagonal_gaussian", "full_gaussian", "categorical"])
def test_sparse_data_for_a_family_that_takes_none(name):
    family, X = example(name)
    for call in every_way_in(family, sp.csr_matrix(X)):
        with pytest.raises(DataError, match=r"X is sparse.*use X.toarray\(\)"):
            call()
    model, _ = fitted(name)
    with pytest.raises(DataError, match=r"X is sparse.*use X.toarray\(\)"):
        model.predict(sp.csr_matrix(X))


def test_sparse_data_that_no_family_takes():
    with pytest.raises(DataError, match="X is sparse with values that are not counts"):
        DPMixture().fit(sp.csr_matrix([[0.5, 0.0], [0.0, 1.0]]))


@pytest.mark.parametrize(
    ("family", "said"),
    [
        (families.Gaussian(noise_variance=[1.0, 2.0, 3.0]), "noise_variance has shape"),
        (families.Gaussian(noise_variance=0.0), "noise_variance must be finite and above 0"),
        (families.Gaussian(prior_variance=[1.0, -2.0]), "prior_variance .* -2.0 for column 1"),
        (families.Gaussian(prior_mean=np.nan), "prior_mean must be finite"),
        (families.Gaussian(prior_mean="zero"), "prior_mean must be a number"),
        (families.Gaussian(prior_mean=10**400), "prior_mean"),
        (families.DiagonalGaussian(shape=-1.0), "shape"),
        (families.DiagonalGaussian(scale=np.inf), "scale"),
        (families.FullGaussian(degrees=1.0), "degrees must be above 1"),
        (families.FullGaussian(scale=[[1.0, 2.0], [2.0, 1.0]]), "scale must be positive definite"),
        (families.FullGaussian(scale=[[1.0, 0.0], [1.0, 1.0]]), "scale must be .*symmetric"),
        (families.FullGaussian(scale=np.eye(3)), "scale has shape"),
        (families.FullGaussian(prior_strength=0.0), "prior_strength"),
        (families.FullGaussian(prior_strength=10**400), "prior_strength"),
        (families.Multinomial(concentration=0.0), "concentration"),
        (families.Bernoulli(successes=[1.0, 1.0, 1.0]), "successes"),
        (families.Poisson(rate=-1.0), "rate"),
        (families.Categorical(n_levels=2.5), "n_levels"),
        (families.Categorical(n_levels=2**40), "n_levels"),
    ],
    ids=repr,
)
def test_hyperparameters_out_of_range_are_named(family, said):
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    for call in (
        lambda: search(X, family, DP),
        lambda: log_joint(X, [0, 0, 1], family, DP),
        lambda: DPMixture(family=family).fit(X),
    ):
        with pytest.raises(ParameterError, match=said):
            call()


@pytest.mark.parametrize("name", ["normal", "", "Gaussian", "gaussian "])
def test_an_unknown_family(name):
    X = [[0.0], [1.0]]
    near = name.strip().lower() == "gaussian"
    advice = r": did you mean 'gaussian'\?$" if near else "; there are auto, bernoulli, beta, cat"
    with pytest.raises(ParameterError, match=f"no family '{name}'{advice}"):
        DPMixture(family=name).fit(X)
    with pytest.raises(ParameterError, match=f"family must be.*'{name}'"):
        search(X, name, DP)
    with pytest.raises(ParameterError, match=f"family must be.*'{name}'"):
        log_joint(X, [0, 0], name, DP)


@pytest.mark.parametrize("alpha", [0, 0.0, -1.0, -1, np.nan, np.inf, -np.inf, True, "1", 10**400])
def test_alpha_that_is_not_above_zero(alpha):
    with pytest.raises(ParameterError, match="alpha"):
        priors.DirichletProcess(alpha)
    with pytest.raises(ParameterError, match="alpha"):
        priors.AntoniakCounts(alpha)
    with pytest.raises(ParameterError, match="alpha"):
        DPMixture(alpha=alpha).fit([[0.0], [1.0]])
    for shape, rate in ((alpha, 1.0), (1.0, alpha)):
        with pytest.raises(ParameterError, match="shape|rate"):
            priors.Gamma(shape, rate)


def test_pitman_yor_out_of_range():
    for alpha, discount in ((-0.5, 0.5), (np.nan, 0.5), (np.inf, 0.1), (-1.0, 0.0)):
        with pytest.raises(ParameterError, match="alpha"):
            priors.PitmanYor(alpha, discount)
    for discount in (1.0, -0.1, np.nan):
        with pytest.raises(ParameterError, match="discount"):
            priors.PitmanYor(1.0, discount)


@pytest.mark.parametrize(
    "alpha", [1e-320, 1e-300, 1e-10, 1e3, 1e6, 1e12, 1e18, 1e100, 1e300, 1e308]
)
def test_extreme_alpha_gives_the_right_log_joint(alpha):
    """Compare with the sum of log α/(α + i) and log n_k/(α + i), point by point."""
    X = np.random.default_rng(0).normal(size=(8, 1))
    family = families.Gaussian(0.0, 4.0, 1.0)
    for labels in (np.zeros(8, int), np.arange(8), np.repeat([0, 1, 2, 3], 2)):
        prior_part = 0.0
        for i, k in enumerate(labels):
            n_k = (labels[:i] == k).sum()
            prior_part += math.log(n_k if n_k else alpha) - (math.log(alpha + i) if i else 0.0)
        prior_part -= math.log(alpha)
        want = prior_part + sum(
            naive.log_marginal(family, X[labels == k]) for k in np.unique(labels)
        )
        found = log_joint(X, labels, family, priors.DirichletProcess(alpha))
        assert found == pytest.approx(want, rel=1e-9, abs=1e-9)
    model = sound(DPMixture(family=family, alpha=alpha).fit(X), X)
    assert model.n_clusters_ == (1 if alpha < 1e-9 else 8 if alpha > 1e9 else model.n_clusters_)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 0], "labels have shape"),
        ([0, 0, 0, 0], "labels have shape"),
        ([[0, 0, 0]], "labels have shape"),
        (None, "labels have shape"),
        (3, "labels have shape"),
        ([0.0, np.nan, 1.0], r"labels\[1\]"),
        ([0, None, 1], "labels"),
        ([0, [1], 2], "labels"),
    ],
    ids=str,
)
def test_labels_that_do_not_form_a_partition(labels, said):
    with pytest.raises(DataError, match=said):
        log_joint([[0.0], [1.0], [2.0]], labels, families.Gaussian(), DP)


# -- scales ------------------------------------------------------------------------------------


def scaled(name, c):
    """The family scaled for data that are c times those for c = 1."""
    return {
        "gaussian": families.Gaussian(c, 30.0 * c * c, c * c),
        "diagonal_gaussian": families.DiagonalGaussian(c, 0.1, 2.0, 1.5 * c * c),
        "full_gaussian": families.FullGaussian(c, 0.1, 5.0, 1.5 * c * c),
    }[name]


def blobs(n=60, width=2, seed=0):
    rng = np.random.default_rng(seed)
    return 9.0 * rng.integers(3, size=(n, 1)) + rng.normal(size=(n, width))


@pytest.mark.parametrize("c", [1e-150, 1e-100, 1e-10, 1e10, 1e100, 1e147])
@pytest.mark.parametrize("name", REAL)
def test_units_change_nothing_but_the_jacobian(name, c):
    X = blobs()
    before, after = search(X, scaled(name, 1.0), DP), search(X * c, scaled(name, c), DP)
    assert np.array_equal(after.labels, before.labels)
    assert after.log_joint == pytest.approx(before.log_joint - X.size * math.log(c), abs=1e-6)
    for labels in (np.zeros(60), np.arange(60)):
        values = [log_joint(X * s, labels, scaled(name, s), DP) for s in (1.0, c)]
        assert values[1] == pytest.approx(values[0] - X.size * math.log(c), abs=1e-6)


@pytest.mark.parametrize("name", [*REAL, "auto"])
def test_hyperparameters_from_the_data_follow_their_units(name):
    X = blobs()
    before = DPMixture(family=name).fit(X)
    for c in (2.0**-400, 2.0**400):
        after = DPMixture(family=name).fit(X * c)
        assert np.array_equal(after.labels_, before.labels_)
        jacobian = X.size * math.log(c)
        assert after.log_joint_ == pytest.approx(before.log_joint_ - jacobian, abs=1e-6)
        np.testing.assert_allclose(
            sound(after, X * c).predict_proba(X * c), before.predict_proba(X), atol=1e-9
        )


def outcome(call):
    """Return (result, None) or (None, error)."""
    try:
        return call(), None
    except DPSearchError as error:
        return None, error


@pytest.mark.parametrize("c", [1e-323, 1e-200, 1e-160, 1e145, 1e149, 1e150, 1e300])
@pytest.mark.parametrize("name", [*REAL, "auto"])
def test_the_ends_of_the_range_are_refused_or_right(name, c):
    X = blobs(40) / 30.0 * c
    model, error = outcome(lambda: DPMixture(family=name).fit(X))
    if error is None:
        sound(model, X)
    else:
        assert re.search(r"column \d", str(error)), error
        assert np.abs(X).max() > 1e148 or np.abs(X).max() < 1e-140
    # And under hyperparameters that are for other data.
    family = scaled(REAL[0] if name == "auto" else name, 1.0)
    for beam_size in (1, 10):
        found, error = outcome(lambda size=beam_size: search(X, family, DP, beam_size=size))
        if error is None:
            assert np.isfinite(found.log_joint)
            assert len(found.labels) == 40
        else:
            assert re.search(r"column \d|scale", str(error)), error
            assert np.abs(X).max() > 1e148
    if c > 1e150:
        with pytest.raises(DataError, match=r"X at row \d+, column \d is .*: magnitudes above"):
            search(X, family, DP)
        with pytest.raises(DataError, match=r"X at row \d+, column \d is .*: magnitudes above"):
            DPMixture(family=family).fit(blobs()).predict(X)


@pytest.mark.parametrize("name", REAL)
def test_columns_of_very_different_scales(name):
    X = blobs(60, 3) * [1e-100, 1.0, 1e100]
    model = sound(DPMixture(family=name).fit(X), X)
    assert np.array_equal(model.labels_, DPMixture(family=name).fit(blobs(60, 3)).labels_)


@pytest.mark.parametrize("name", REAL)
def test_one_value_far_from_all_others(name):
    X = np.vstack([blobs(), [[1e140, -1e140]]])
    model = sound(DPMixture(family=name).fit(X), X)
    assert (model.labels_ == model.labels_[-1]).sum() == 1


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("name", REAL)
def test_data_far_from_the_prior_mean_lose_no_digits(name, offset):
    """Such as seconds since 1970, under a prior wide enough to reach them."""
    X = offset + np.round(1024.0 * blobs(30)) / 1024.0
    if name == "gaussian":
        family = families.Gaussian(0.0, offset**2, 1.0)
    elif name == "diagonal_gaussian":
        family = families.DiagonalGaussian(0.0, 1.0 / offset**2, 2.0, 1.5)
    else:
        family = families.FullGaussian(0.0, 1.0 / offset**2, 5.0, 1.5)
    for labels in (np.zeros(30, int), np.repeat([0, 1], 15)):
        clusters = [X[labels == k] for k in np.unique(labels)]
        want = DP.log_probability([len(cluster) for cluster in clusters])
        want += sum(centred_log_marginal(family, cluster) for cluster in clusters)
        assert log_joint(X, labels, family, DP) == pytest.approx(want, abs=1e-3)


def centred_log_marginal(family, X):
    """log H computed from differences to the cluster's own mean (Murphy 2007)."""
    n, width = X.shape
    shift = X[0]
    mean = (X - shift).mean(axis=0)
    scatter = (X - shift - mean).T @ (X - shift - mean)
    mean = mean + shift
    if family.name == "gaussian":
        noise, prior = family.noise_variance, family.prior_variance
        out = -0.5 * n * width * math.log(2.0 * math.pi * noise)
        out -= 0.5 * width * math.log1p(n * prior / noise)
        out -= 0.5 * np.trace(scatter) / noise
        return out - 0.5 * (mean @ mean) / (prior + noise / n)
    strength = family.prior_strength
    kappa = strength + n
    off = np.outer(mean, mean) * strength * n / kappa
    if family.name == "diagonal_gaussian":
        shape = family.shape + 0.5 * n
        beta = family.scale + 0.5 * np.diag(scatter + off)
        out = gammaln(shape) - gammaln(family.shape) + 0.5 * math.log(strength / kappa)
        out += family.shape * math.log(family.scale) - 0.5 * n * math.log(2.0 * math.pi)
        return width * out - shape * np.log(beta).sum()
    psi = family.scale * np.eye(width)
    i = np.arange(width)
    out = (gammaln(0.5 * (family.degrees + n - i)) - gammaln(0.5 * (family.degrees - i))).sum()
    out += 0.5 * width * (math.log(strength / kappa) - n * math.log(math.pi))
    out += 0.5 * family.degrees * np.linalg.slogdet(psi)[1]
    return out - 0.5 * (family.degrees + n) * np.linalg.slogdet(psi + scatter + off)[1]


@pytest.mark.parametrize("name", REAL)
def test_the_oracle_for_far_data_agrees_with_the_other_one_near_by(name):
    X = blobs(8)
    family = scaled(name, 1.0).with_parameters(prior_mean=0.0)
    want = naive.log_marginal(family, X)
    assert centred_log_marginal(family, X) == pytest.approx(want, rel=1e-10)


# -- many rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [1e-140, 1.0, 1e140])
@pytest.mark.parametrize("name", REAL)
def test_a_hundred_thousand_rows_at_any_scale(name, c):
    X = blobs(100_000) * c
    family = scaled(name, c)
    result = search(X, family, DP, beam_size=1)
    assert result.n_clusters < 100
    want = DP.log_probability(result.sizes)
    unit = scaled(name, 1.0).with_parameters(prior_mean=0.0)
    for k in range(result.n_clusters):
        # About the prior mean, in units in which the prior is that for c = 1.
        want += centred_log_marginal(unit, X[result.labels == k] / c - 1.0)
    want -= X.size * math.log(c)
    assert result.log_joint == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("name", REAL)
def test_a_hundred_thousand_rows_of_tiny_values(name):
    X = blobs(100_000) * 1e-300
    result = search(X, scaled(name, 1.0), DP, beam_size=1)
    assert result.n_clusters == 1
    want = log_joint(np.zeros_like(X), np.zeros(100_000), scaled(name, 1.0), DP)
    assert result.log_joint == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("name", [*REAL, "multinomial", "poisson", "bernoulli"])
def test_a_hundred_thousand_equal_rows(name):
    family, X = example(name)
    X = np.repeat(X[:1], 100_000, axis=0)
    result = search(X, family, DP, beam_size=1)
    assert result.n_clusters == 1
    # Equal points are ever more probable: the mean step lies between the first and the last.
    few, more = (log_joint(X[:n], np.zeros(n), family, DP) for n in (1000, 1001))
    less = log_joint(X[1:], np.zeros(99_999), family, DP)
    mean = (result.log_joint - few) / 99_000
    assert more - few - 1e-6 <= mean <= result.log_joint - less + 1e-6


@pytest.mark.slow
def test_a_million_rows_at_the_end_of_the_range():
    X = np.random.default_rng(0).normal(size=(1_000_000, 2)) * 1e145
    family = families.DiagonalGaussian(0.0, 1.0, 2.0, 1e290)
    result = search(X, family, DP, beam_size=1)
    assert result.n_clusters < 10
    unit = families.DiagonalGaussian(0.0, 1.0, 2.0, 1.0)
    want = DP.log_probability(result.sizes) - X.size * math.log(1e145)
    for k in range(result.n_clusters):
        want += centred_log_marginal(unit, X[result.labels == k] / 1e145)
    assert result.log_joint == pytest.approx(want, rel=1e-10)
    with pytest.raises(DataError, match="column"):
        search(X * 1e4, families.DiagonalGaussian(), DP, beam_size=1)


@pytest.mark.parametrize("name", ["multinomial", "poisson"])
def test_large_counts_are_refused_or_right(name):
    """For large enough counts, log-gammas lose the digits in which partitions differ."""
    family = families.Multinomial(1.0) if name == "multinomial" else families.Poisson(1.0, 2.0**-31)
    X = np.full((50, 2), 2.0**31)
    result = search(X, family, DP)
    assert result.n_clusters == 1
    more = search(np.vstack([X, X * [1.0, 3.0]]), family, DP)
    # Clusters of one size are numbered by their probability.
    assert by_appearance(more.labels).tolist() == [0] * 50 + [1] * 50
    for factor in (2.0**5, 2.0**12, 2.0**20, 2.0**30):
        with pytest.raises(DataError, match=f"the {name} family takes counts.*X"):
            search(X * factor, family, DP)
        with pytest.raises(DataError, match=f"the {name} family takes counts.*X"):
            DPMixture(family=name).fit(sp.csr_matrix(X * factor))


@pytest.mark.parametrize("name", ["missing_codes", "checkpoint"])
def test_an_option_of_another_type_is_refused(name):
    with pytest.raises(ParameterError, match=f"{name} must be"):
        DPMixture(**{name: 3}).fit(np.eye(4))
