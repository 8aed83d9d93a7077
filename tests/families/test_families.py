"""Families against independent oracles; probabilities and bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import naive
from dpsearch import families, log_joint, priors
from dpsearch.checks.compiled import Compiled
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import _columns

# Seeds have no order worth shrinking along, and a run must not depend on the last one.
laws = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(example, id=f"{family.name}-{k}")
        for family in [*families.FAMILIES.classes.values(), families.Product]
        for k, example in enumerate(family.examples())
    ],
)
def kit(request):
    return Compiled(request.param.family, request.param.X)


def close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def oracle(kit, members):
    return naive.log_marginal(kit.family, naive.dense(kit.X)[list(members)])


# -- beyond the laws, which tests/checks runs for every family ----------------------------------


@given(seed=seeds)
@settings(laws, max_examples=4)
def test_marginal_agrees_with_the_oracle(kit, seed):
    members = kit.subset(np.random.default_rng(seed))
    found = kit.log_marginal(kit.row(members)) + kit.base[members].sum()
    close(found, oracle(kit, members))


@given(seed=seeds)
@settings(laws, max_examples=4)
def test_predictive_agrees_with_the_oracle(kit, seed):
    rng = np.random.default_rng(seed)
    members, i = kit.subset(rng), int(rng.integers(kit.n))
    score = kit.score(kit.row(members), i) + kit.base[i]
    close(score, oracle(kit, [*members, i]) - oracle(kit, members))


@given(seed=seeds)
@laws
def test_an_emptied_row_is_the_empty_row_to_the_last_bit(kit, seed):
    rng = np.random.default_rng(seed)
    members = kit.subset(rng, least=1)
    row = kit.row(members)
    other = row.copy()
    for i in rng.permutation(members):
        kit.add(row, i, -1)
    np.testing.assert_array_equal(row, kit.row())
    kit.merge(other, kit.row(members), -1.0)
    np.testing.assert_array_equal(other, kit.row())


def test_sparse_data_are_refused_where_they_are_not_taken(kit):
    if not kit.family.accepts_sparse:
        with pytest.raises(DataError, match="sparse"):
            kit.family.compile(sp.csr_matrix(kit.X))
        return
    X = naive.dense(kit.X)
    np.testing.assert_array_equal(
        kit.family.log_ceiling(kit.model.matrix), kit.family.log_ceiling(X)
    )


@pytest.mark.parametrize(
    "name", [n for n, f in families.FAMILIES.classes.items() if f.accepts_sparse]
)
def test_a_sparse_matrix_without_entries(name):
    family = families.by_name(name)()
    if name == "von_mises_fisher":  # a row of zeros is no direction
        with pytest.raises(DataError, match="row 0 of X has length 0"):
            family.compile(sp.csr_matrix((3, 4)))
        return
    empty, zeros = Compiled(family, sp.csr_matrix((3, 4))), Compiled(family, np.zeros((3, 4)))
    close(empty.scores(empty.row([0, 1])), zeros.scores(zeros.row([0, 1])), 1e-12)


# -- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "categorical"])
def test_bound_is_exact_where_features_say_all(name):
    for example in families.by_name(name).examples():
        kit = Compiled(example.family, example.X)
        features, row = kit.features(5), kit.row([0, 1, 2])
        bound = kit.bound(row, 7, 1, features, features)
        close(bound, kit.score(kit.row([0, 1, 2, 5]), 7))


# -- probabilities and draws --------------------------------------------------------------------


def _vectors_of_length(length, n_columns):
    return [v for v in itertools.product(range(length + 1), repeat=n_columns) if sum(v) == length]


SUPPORTS = {
    "bernoulli": (
        families.Bernoulli([0.3, 2.0], [1.0, 0.2]),
        list(itertools.product([0, 1], repeat=2)),
    ),
    "categorical": (
        families.Categorical(0.7, [2, 4]),
        list(itertools.product(range(2), range(4))),
    ),
    "multinomial": (families.Multinomial([0.2, 1.0, 3.0]), _vectors_of_length(4, 3)),
    "poisson": (families.Poisson(1.5, 0.5), [[j] for j in range(300)]),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_probabilities_of_all_values_add_up_to_one(name):
    family, support = SUPPORTS[name]
    kit = Compiled(family, np.array(support, dtype=np.float64))
    for members in ([], [1], [0, 2, 2, 3]):
        assert np.exp(kit.scores(kit.row(members)) + kit.base).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "family",
    [
        families.Gaussian(0.5, 2.0, 0.7),
        families.Gaussian(0.5, 2.0, 0.7, form="columns"),
        families.DiagonalGaussian(0.5, 0.3, 1.5, 2.0),
        families.FullGaussian(0.5, 0.3, 1.7, 2.0),
    ],
    ids=lambda family: family.name,
)
def test_densities_integrate_to_one(family):
    kit = Compiled(family, np.array([[0.4], [1.5], [-0.3]]))
    for members in ([], [0], [0, 1, 1, 2]):
        row = kit.row(members)

        def density(x, row=row):
            return math.exp(kit.scores(row, [[x]])[0] + kit.base[0])

        mass = sum(quad(density, *part)[0] for part in [(-np.inf, 0.5), (0.5, np.inf)])
        assert mass == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("mean", "noise", "values", "form"),
    [
        (0.0, 1.0, [0.0, 999.0], "isotropic"),
        (0.0, 1.0, [0.0, 1001.0], "columns"),
        (0.0, 4.0, [0.0, 1999.0], "isotropic"),
        (5000.0, 1.0, [4001.0, 5999.0], "isotropic"),
        (5000.0, 1.0, [0.0, 0.0], "columns"),
        ([0.0, 1e6], [1.0, 1e8], [999.0, 1.1e6], "isotropic"),
        ([0.0, 1e6], [1.0, 1e8], [1001.0, 1e6], "columns"),
    ],
)
def test_the_form_of_a_gaussian_follows_the_distance_from_its_mean(mean, noise, values, form):
    family = families.Gaussian(mean, noise, noise)
    assert family.resolve(np.array([values, values])).form == form


def test_draws_have_the_moments_of_the_predictive(kit):
    row = kit.row(range(kit.n))
    n = 20_000
    draws = kit.draw(row, n, np.random.default_rng(1))
    assert draws.shape == (n, kit.model.n_features)
    of_logs = getattr(kit.family, "family", kit.family).name == "log_normal"
    draws = np.log(draws) if of_logs else getattr(kit.family, "forward", np.asarray)(draws)
    mean, variance = naive.predictive_moments(kit.family, kit.X)
    squares = (draws - mean) ** 2
    rounding = 1e-12  # of columns that are given
    assert (np.abs(draws.mean(axis=0) - mean) <= 5.0 * np.sqrt(variance / n) + rounding).all()
    errors = 5.0 * squares.std(axis=0) / n**0.5 + rounding
    assert (np.abs(squares.mean(axis=0) - variance) <= errors).all()


def test_the_posterior_mean_is_that_of_the_predictive(kit):
    many = kit.family.posterior(kit.row(range(kit.n)), kit.model.n_features)
    mean, _ = naive.predictive_moments(kit.family, kit.X)
    if "mean" in many:
        close(many["mean"], mean)


# -- descriptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "os.system"}, "no family 'os.system'"),
        ({"name": ["gaussian"]}, "no family"),
        ({}, "no family None"),
        ("gaussian", "name and fields"),
        ({"name": "poisson", "rates": 1.0}, "no parameter 'rates'; it has shape, rate"),
        ({"name": "poisson", "rate": "1 + 1"}, "rate must be a number"),
        ({"name": "poisson", "rate": {"a": 1.0}}, "rate must be"),
        ({"name": "poisson", "rate": [1.0, {}]}, "rate must be"),
        ({"name": "gaussian", "form": "round"}, "form must be"),
        ({"name": "poisson", "functions": None}, "no parameter 'functions'"),
    ],
)
def test_bad_descriptions(spec, message):
    with pytest.raises(ParameterError, match=message):
        families.from_dict(spec)


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", families.FAMILIES.classes)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_values_that_are_not_finite(name, value):
    directions = name == "von_mises_fisher"
    X = (
        np.tile([0.6, 0.8], (3, 1))
        if directions
        else np.full((3, 2), 0.5 if name == "beta" else 1.0)
    )
    X[1, 1] = value
    kind = families.by_name(name)
    family = kind([[1.0, 2.0]]) if name == "projected_gaussian" else kind()
    place = "row 1" if directions else "row 1, column 1"
    if math.isnan(value) and family.takes_gaps:
        assert family.compile(X).family.name == family.with_gaps().name
        return
    with pytest.raises(DataError, match=place):
        family.compile(X)


@pytest.mark.parametrize(
    ("family", "value", "kind"),
    [
        (families.Multinomial(), -1.0, "negative"),
        (families.Multinomial(), 0.5, "not an integer"),
        (families.Poisson(), -1.0, "negative"),
        (families.Poisson(), 0.5, "not an integer"),
        (families.Bernoulli(), 2.0, "zeros and ones"),
        (families.Bernoulli(), -1.0, "zeros and ones"),
        (families.Bernoulli(), 0.5, "zeros and ones"),
        (families.Categorical(), -1.0, "codes 0, 1, 2"),
        (families.Categorical(), 0.5, "codes 0, 1, 2"),
        (families.Categorical(), 1e9, "codes below"),
        (families.Categorical(n_levels=3), 3.0, "codes below 3, its n_levels,"),
        (families.Categorical(n_levels=[1, 4]), 4.0, "codes below 4"),
    ],
)
def test_values_that_a_family_does_not_take(family, value, kind):
    X = np.zeros((4, 2))
    X[2, 1] = value
    with pytest.raises(DataError, match=f"{kind}.*row 2, column 1|row 2, column 1.*{kind}"):
        family.compile(X).items()
    if family.accepts_sparse:
        with pytest.raises(DataError, match="row 2, column 1"):
            family.compile(sp.csr_matrix(X)).items()


def test_new_data_are_checked_too():
    model = families.Categorical().compile([[0.0, 1.0], [2.0, 0.0]])
    assert model.family.n_levels == (3, 2)
    with pytest.raises(DataError, match="row 0, column 1"):
        model.items([[0.0, 2.0]])


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (families.DiagonalGaussian(prior_strength=0.0), "prior_strength must be"),
        (families.DiagonalGaussian(shape=-1.0), "shape must be"),
        (families.DiagonalGaussian(scale=[1.0, 0.0]), "scale must be .* column 1"),
        (families.DiagonalGaussian(prior_mean=math.nan), "prior_mean must be"),
        (families.DiagonalGaussian(scale=[1.0, 2.0, 3.0]), "scale has shape"),
        (families.FullGaussian(prior_strength=-1.0), "prior_strength must be"),
        (families.FullGaussian(prior_strength=[1.0, 2.0]), "prior_strength must be"),
        (families.FullGaussian(degrees=1.0), "degrees must be above 1"),
        (families.FullGaussian(degrees="many"), "degrees must be"),
        (families.FullGaussian(prior_mean="here"), "prior_mean must be"),
        (families.FullGaussian(scale=-1.0), "scale must be"),
        (families.FullGaussian(scale=[[1.0, 2.0], [2.0, 1.0]]), "scale must be positive definite"),
        (families.FullGaussian(scale=[[1.0, 2.0], [0.0, 1.0]]), "scale must be a symmetric"),
        (families.FullGaussian(scale=np.eye(3)), "scale has shape"),
        (families.FullGaussian(scale=[["a", "b"], ["c", "d"]]), "scale must be"),
        (families.ProjectedGaussian([1.0, 2.0]), "components must be a matrix of finite"),
        (families.ProjectedGaussian(3.0), "components must be a matrix of finite"),
        (families.ProjectedGaussian([]), "components must be a matrix of finite"),
        (families.ProjectedGaussian([[]]), "components must be a matrix of finite"),
        (families.ProjectedGaussian([[1.0, math.nan]]), "components must be a matrix of finite"),
        (families.ProjectedGaussian([[1.0, 2.0], [3.0]]), "components must be a matrix of num"),
        (families.ProjectedGaussian([["a", "b"]]), "components must be a matrix of num"),
        (families.ProjectedGaussian([[1.0, 2.0, 3.0]]), "components has 3 columns.* data have 2"),
        (families.ProjectedGaussian(np.eye(2), [0.0, math.inf]), "centre must be .* column 1"),
        (families.ProjectedGaussian(np.eye(2), [0.0] * 3), "centre has shape"),
        (families.ProjectedGaussian([[1.0, 2.0]], degrees=-1.0), "degrees must be"),
        (families.ProjectedGaussian([[1.0, 2.0]], prior_strength=0.0), "prior_strength must be"),
        (families.ProjectedGaussian(np.eye(2), scale=[1.0, -1.0]), "scale must be"),
        (
            families.ProjectedGaussian(np.eye(2), residual_variance=[1.0, -1.0]),
            "residual_variance must be at least 0.* column 1",
        ),
        (families.Bernoulli(successes=0.0), "successes must be"),
        (families.Bernoulli(failures=[1.0, math.inf]), "failures must be .* column 1"),
        (families.Poisson(shape=0.0), "shape must be"),
        (families.Poisson(rate=[1.0, -1.0]), "rate must be .* column 1"),
        (families.Categorical(concentration=-1.0), "concentration must be"),
        (families.Categorical(n_levels=2.5), "n_levels must be integers"),
        (families.Categorical(n_levels=0), "n_levels must be"),
        (families.Categorical(n_levels="two"), "n_levels must be"),
        (families.Categorical(n_levels=10**9), "n_levels adds up to"),
        (families.Multinomial(concentration=[1.0, 0.0]), "concentration must be .* column 1"),
        (families.Gaussian(noise_variance=0.0), "noise_variance must be"),
    ],
    ids=repr,
)
def test_hyperparameters_out_of_range(family, message):
    with pytest.raises(ParameterError, match=message):
        family.compile([[0.0, 1.0], [1.0, 0.0]])


# -- numbers near the edge -----------------------------------------------------------------------


def test_data_far_from_the_prior_mean_keep_their_digits():
    """With nearly no weight on the prior mean, its position must not matter."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    for family in (families.DiagonalGaussian(0.0, 1e-18), families.FullGaussian(0.0, 1e-18)):
        near, far = Compiled(family, X), Compiled(family, X + 1e7)
        close(far.scores(far.row(range(20))), near.scores(near.row(range(20))), 1e-4)


@pytest.mark.parametrize(
    "family",
    [families.DiagonalGaussian(), families.FullGaussian()],
    ids=lambda family: family.name,
)
def test_extreme_points_have_a_finite_probability(family):
    X = np.random.default_rng(0).normal(size=(6, 20))
    X[0] = 1e140
    X[1, ::2] = -1e145
    X[2, 3] = 1e100
    kit = Compiled(family, X)
    for members in ([], [3, 4], [0, 3], [0, 1, 2, 3], [0, 0, 1]):
        row = kit.row(members)
        assert np.isfinite(row).all()
        assert np.isfinite(kit.scores(row)).all()
        for i in members[1:]:
            kit.add(row, i, -1)
        assert np.isfinite(row).all()
    # Against the formula, with a logarithm for each column.
    if family.name == "diagonal_gaussian":
        expected = [naive.log_marginal(family, X[i : i + 1]) for i in range(6)]
        close(kit.scores(kit.row()) + kit.base, expected, 1e-10)


def test_a_prior_far_narrower_than_the_noise_keeps_squares_in_range():
    """τ = 10¹² times a square overflows; the log density must not."""
    x = 1.3407807929942596e148
    found = log_joint([[x]], [0], families.Gaussian(1.0, 1e-12, 1.0), priors.DirichletProcess(1.0))
    assert found == pytest.approx(-0.5 * x * x, rel=1e-9)


@pytest.mark.parametrize("distance", [1e2, 1e4, 1e6, 1e9, 1e12])
def test_removing_an_outlier_from_a_full_gaussian(distance):
    """A rank-one update alone would leave a matrix that is not positive definite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 4))
    X[0] = distance * rng.normal(size=4)
    kit = Compiled(families.FullGaussian(), X)
    row = kit.row(range(10))
    kit.add(row, 0, -1)
    assert np.isfinite(row).all()
    assert np.isfinite(kit.scores(row)).all()
    if distance <= 1e6:
        rounding = 1e-15 * distance**2
        close(kit.scores(row)[1:], kit.scores(kit.row(range(1, 10)))[1:], rounding)


def test_many_moves_do_not_wear_a_row_out():
    rng = np.random.default_rng(0)
    for family in (families.DiagonalGaussian(), families.FullGaussian()):
        kit = Compiled(family, 5.0 + rng.normal(size=(40, 5)))
        members = set(range(10))
        row = kit.row(members)
        for i in rng.integers(0, 40, size=20_000):
            if i in members and len(members) > 1:
                members.remove(i)
                kit.add(row, i, -1)
            elif i not in members:
                members.add(i)
                kit.add(row, i)
        close(row, kit.row(sorted(members)), 1e-9)


@pytest.mark.parametrize("width", [2, 3, 50])
def test_variances_of_many_rows_are_added_up_in_blocks_to_the_same_bits(width, monkeypatch):
    monkeypatch.setattr(_columns, "_BLOCK", 170)
    X = np.random.default_rng(width).normal(1e6, 3.0, (500, width))
    np.testing.assert_array_equal(_columns.mean_and_variance(X)[1], X.var(axis=0))
