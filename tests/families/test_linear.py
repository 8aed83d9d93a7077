"""Linear forms beyond the laws of `check_family`: kinds of arrays, gaps, empty blocks."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpsearch import check_family, families
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
def test_sparse_rows_stay_sparse_and_single_precision_single(example):
    form, X = form_of(example)
    if sp.issparse(X):
        assert sp.issparse(form.features(X))
        return
    single = form.features(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, form.features(X), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", GAPPED)
def test_gaps_do_not_matter_where_there_are_none(name):
    """The form for gaps has the log marginals of the plain one on complete data."""
    family, X = DRAWS[name](np.random.default_rng(0), 20)
    plain = family.compile(X).family
    forms = [plain.linear(X.shape[1]), plain.with_gaps().linear(X.shape[1])]
    sizes = np.array([20.0])
    values = [f.log_marginals(sizes, f.features(X).sum(axis=0)[None]) for f in forms]
    np.testing.assert_allclose(*values, rtol=1e-10)


def test_a_family_from_outside_has_gaps_and_products():
    """A form for complete columns is enough for columns with gaps, and beside others."""
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
