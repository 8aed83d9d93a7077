"""Linear forms beyond the laws of `check_family`: kinds of arrays, gaps, fractional sizes."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from scipy.special import logsumexp

from dpsearch import check_family, families
from dpsearch._special import LOG_2PI
from dpsearch.families._columns import with_holes
from models import DRAWS, GAPPED
from planted import Right

CASES = [
    pytest.param(example, id=f"{cls.name}-{i}")
    for cls in [*families.FAMILIES.classes.values(), families.Product]
    for i, example in enumerate(cls.examples())
]


def form_of(example):
    model = example.family.compile(example.X)
    return model.family.linear(model.n_features), model.matrix


@pytest.mark.parametrize("example", CASES)
def test_every_family_has_one_and_blocks_do_not_mind_each_other(example):
    form, X = form_of(example)
    features = form.features(X)
    assert features.shape == (X.shape[0], form.n_totals)
    rng = np.random.default_rng(0)
    shares = rng.random((3, X.shape[0]))  # fractional sizes
    shares[1] = 0.0
    sizes, totals = shares.sum(axis=1), shares @ features
    values = form.log_marginals(sizes, totals)
    by_totals, by_size = form.weights(sizes, totals)
    assert values[1] == 0.0
    for found in (values, by_totals, by_size):
        assert np.isfinite(found).all()
    for k in range(3):
        own = sizes[k : k + 1], totals[k : k + 1]
        np.testing.assert_allclose(form.log_marginals(*own), values[k : k + 1], rtol=1e-12)
        np.testing.assert_allclose(form.weights(*own)[0], by_totals[k : k + 1], rtol=1e-12)
        assert not form.rows(*own)[0].any() or k != 1


@pytest.mark.parametrize("example", CASES)
def test_formulas_that_work_anywhere_say_the_same_there(example):
    """They are given arrays of a library that has only the array API."""
    form, X = form_of(example)
    if not form.anywhere:
        pytest.skip("its formulas are for NumPy")
    shares = np.random.default_rng(0).integers(2, size=(3, X.shape[0]))
    here = shares.sum(axis=1).astype(float), np.asarray(shares @ form.features(X), dtype=float)
    there = tuple(map(array_api_strict.asarray, here))
    expected = form.log_marginals(*here), *form.weights(*here)
    found = form.log_marginals(*there), *form.weights(*there)
    for mine, its in zip(expected, found, strict=True):
        assert isinstance(its, type(there[0]))
        np.testing.assert_allclose(np.asarray(its), mine, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("example", CASES)
def test_sparse_rows_stay_sparse_and_single_precision_single(example):
    form, X = form_of(example)
    if sp.issparse(X):
        assert sp.issparse(form.features(X))
        return
    single = form.features(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, form.features(X), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", GAPPED)
def test_the_form_for_gaps_agrees_on_complete_data(name):
    """The form for gaps has the log marginals of the plain one on complete data."""
    family, X = DRAWS[name](np.random.default_rng(0), 20)
    plain = family.compile(X).family
    forms = [plain.linear(X.shape[1]), plain.with_gaps().linear(X.shape[1])]
    sizes = np.array([20.0])
    values = [f.log_marginals(sizes, f.features(X).sum(axis=0)[None]) for f in forms]
    np.testing.assert_allclose(*values, rtol=1e-10)


@pytest.mark.slow
def test_a_family_from_outside_has_gaps_and_products():
    """A form for complete columns suffices for columns with gaps and in products."""
    X = with_holes(np.random.default_rng(0).geometric(0.3, size=(12, 2)) - 1.0)
    outcomes = check_family(Right(1.0, 2.0), X)
    passed = {outcome.law for outcome in outcomes if outcome.status == "passed"}
    assert {"totals_give_rows", "weights_are_the_gradient"} <= passed
    product = families.Product([(Right(), (1,)), (families.Gaussian(), (0,))])
    assert product.compile(X).family.linear(2).n_totals == 2 + 3


def test_a_product_has_no_form_if_a_part_has_none():
    class Plain(families.Poisson):
        linear = families.Family.linear

    assert families.Product([(Plain(), (0,)), (families.Poisson(), (1,))]).linear(2) is None


# Families of one column: the prior of θ, and n log-likelihoods of which T are the totals.
INTEGRALS = {
    "gaussian": (
        families.Gaussian(0.0, 0.5, 1.0),
        stats.norm(0.0, 0.5**0.5),
        lambda mu, n, T: mu * T[0] - 0.5 * (n * mu**2 + T[1] + n * LOG_2PI),
    ),
    "poisson": (
        families.Poisson(1.5, 0.7),
        stats.gamma(1.5, scale=1.0 / 0.7),
        lambda rate, n, T: T[0] * np.log(rate) - n * rate,
    ),
    "bernoulli": (
        families.Bernoulli(1.5, 2.5),
        stats.beta(1.5, 2.5),
        lambda p, n, T: T[0] * np.log(p) + (n - T[0]) * np.log1p(-p),
    ),
}


@pytest.mark.parametrize("name", INTEGRALS)
def test_fractional_sizes_are_fractional_powers_of_the_likelihood(name):
    family, prior, log_likelihood = INTEGRALS[name]
    n, T = 2.6, np.array([1.3, 4.2][: family.linear(1).n_totals])
    theta = prior.ppf((np.arange(200_000) + 0.5) / 200_000)  # by the midpoint rule
    wanted = logsumexp(log_likelihood(theta, n, T)) - np.log(len(theta))
    found = family.linear(1).log_marginals(np.array([n]), T[None])
    np.testing.assert_allclose(found, [wanted], rtol=1e-4)
