"""Laws that every family must obey, run over the `examples` of every family in the registry."""

from __future__ import annotations

import itertools
import json
import math

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import naive
from dpsearch import families
from dpsearch._jit import (
    call_bound,
    call_features,
    call_merge,
    call_score_dots,
    call_update,
)
from dpsearch.errors import DataError, ParameterError
from dpsearch.items import item_ids, item_values, log_marginal, score_item

# Seeds have no order worth shrinking along, and a run must not depend on the last one.
laws = settings(
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
seeds = st.integers(0, 2**32 - 1)


# Not cached on disk: the cache would hold on to the name under which this file is imported.
@numba.njit
def _update(core, items, i, row, weight):
    call_update(core.update, (core.params, row, item_ids(items, i), item_values(items, i), weight))


@numba.njit
def _merge(core, row, other, sign):
    call_merge(core.merge, (core.params, row, other, sign))


@numba.njit
def _scores(core, items, row):
    n = items.indptr.shape[0] - 1
    out = np.empty(n)
    scratch = np.empty(core.width)
    start = np.zeros(1, np.int64)
    for i in range(n):
        score_item(core, items, i, row, start, out[i : i + 1], scratch)
    return out


@numba.njit
def _score_dots(core, score_dots, pool, starts, dots, square, out):
    call_score_dots(score_dots, (core.params, pool, starts, dots, square, out))


@numba.njit
def _features(core, bounds, items, i):
    out = np.empty(bounds.n_features)
    call_features(bounds.features, (core.params, item_ids(items, i), item_values(items, i), out))
    return out


@numba.njit
def _bound(core, bounds, items, i, row, helpers, low, high):
    return call_bound(
        bounds.bound,
        (core.params, row, helpers, low, high, item_ids(items, i), item_values(items, i)),
    )


class Kit:
    """A family compiled for data, with its functions in the shape the tests want."""

    def __init__(self, family, X, fitted=None):
        self.model = family.compile(X if fitted is None else fitted)
        self.core = self.model.core
        self.given = family
        self.family = self.model.family
        self.X = X
        self.items, self.base = self.model.items(X)
        self.n = self.items.n_items
        self.scratch = np.empty(self.core.width)

    def row(self, members=(), weight=1.0):
        row = self.model.empty_row()
        for i in members:
            self.add(row, i, weight)
        return row

    def add(self, row, i, weight=1.0):
        _update(self.core, self.items, i, row, weight)

    def merge(self, row, other, sign=1.0):
        _merge(self.core, row, other, sign)

    def score(self, row, i):
        out = np.empty(1)
        score_item(self.core, self.items, i, row, np.zeros(1, np.int64), out, self.scratch)
        return out[0]

    def scores(self, row, X=None):
        items = self.items if X is None else self.model.items(X)[0]
        return _scores(self.core, items, row)

    def log_marginal(self, row):
        return log_marginal(self.core, row)

    def oracle(self, members):
        return naive.log_marginal(self.family, naive.dense(self.X)[list(members)])

    def subset(self, rng, least=0):
        """Members of a random cluster, in random order and with repetitions."""
        return rng.integers(0, self.n, size=rng.integers(least, self.n + 1))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(example, id=f"{name}-{k}")
        for name, family in [*families.BY_NAME.items(), ("product", families.Product)]
        for k, example in enumerate(family.examples())
    ],
)
def kit(request):
    return Kit(request.param.family, request.param.X)


def close(a, b, tolerance=1e-8):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# -- the conjugate algebra ---------------------------------------------------------------------


@given(seed=seeds)
@settings(laws, max_examples=8)
def test_marginal_agrees_with_the_oracle(kit, seed):
    members = kit.subset(np.random.default_rng(seed))
    close(kit.log_marginal(kit.row(members)) + kit.base[members].sum(), kit.oracle(members))


@given(seed=seeds)
@settings(laws, max_examples=8)
def test_predictive_agrees_with_the_oracle(kit, seed):
    rng = np.random.default_rng(seed)
    members, i = kit.subset(rng), rng.integers(kit.n)
    score = kit.score(kit.row(members), i) + kit.base[i]
    close(score, kit.oracle([*members, i]) - kit.oracle(members))


@given(seed=seeds)
@laws
def test_predictives_in_any_order_add_up_to_the_marginal(kit, seed):
    rng = np.random.default_rng(seed)
    members = kit.subset(rng)
    for _ in range(2):
        rng.shuffle(members)
        row, chain = kit.row(), 0.0
        for i in members:
            chain += kit.score(row, i)
            kit.add(row, i)
            close(chain, kit.log_marginal(row))
    assert kit.log_marginal(kit.row()) == 0.0


@given(seed=seeds)
@laws
def test_removing_undoes_adding(kit, seed):
    rng = np.random.default_rng(seed)
    row = kit.row(kit.subset(rng, least=1))
    before = row.copy()
    added = kit.subset(rng)
    for i in added:
        kit.add(row, i)
    rounding = 1e-12 * np.abs(row).max()
    for i in rng.permutation(added):
        kit.add(row, i, -1.0)
    np.testing.assert_allclose(row, before, rtol=1e-8, atol=1e-9 + rounding)
    close(kit.log_marginal(row), kit.log_marginal(before))


@given(seed=seeds)
@laws
def test_an_emptied_row_is_the_empty_row(kit, seed):
    rng = np.random.default_rng(seed)
    members = kit.subset(rng, least=1)
    row = kit.row(members)
    other = row.copy()
    for i in rng.permutation(members):
        kit.add(row, i, -1.0)
    np.testing.assert_array_equal(row, kit.row())
    kit.merge(other, kit.row(members), -1.0)
    np.testing.assert_array_equal(other, kit.row())


@given(seed=seeds)
@laws
def test_merging_is_adding_one_by_one(kit, seed):
    rng = np.random.default_rng(seed)
    first, second = kit.subset(rng), kit.subset(rng)
    row, other = kit.row(first), kit.row(second)
    before = row.copy()
    kit.merge(row, other)
    together = kit.row([*first, *second])
    close(row, together)
    close(kit.log_marginal(row), kit.log_marginal(together))
    close(kit.scores(row), kit.scores(together))
    kit.merge(row, other, -1.0)
    close(row, before)
    close(kit.log_marginal(row), kit.log_marginal(before))


@given(seed=seeds, weight=st.integers(1, 6))
@laws
def test_a_weight_is_that_many_copies(kit, seed, weight):
    rng = np.random.default_rng(seed)
    row = kit.row(kit.subset(rng))
    before = row.copy()
    i = rng.integers(kit.n)
    one_by_one = row.copy()
    for _ in range(weight):
        kit.add(one_by_one, i)
    kit.add(row, i, float(weight))
    close(row, one_by_one)
    kit.add(row, i, -float(weight))
    close(row, before)


@given(seed=seeds)
@laws
def test_many_rows_are_scored_as_one_by_one(kit, seed):
    rng = np.random.default_rng(seed)
    width = kit.core.width
    pool = np.concatenate([kit.row(kit.subset(rng)) for _ in range(7)])
    starts = rng.permutation(7) * width
    i, out = rng.integers(kit.n), np.empty(7)
    score_item(kit.core, kit.items, i, pool, starts, out, kit.scratch)
    close(out, [kit.score(pool[s : s + width], i) for s in starts], 1e-12)
    dots = kit.model.dots()
    if dots is None:
        return
    x = item_values(kit.items, i)
    linear = [pool[s + dots.offset :][: dots.n_features] for s in starts]
    by_dots = np.empty(7)
    _score_dots(
        kit.core, dots.score_dots, pool, starts, np.array([x @ v for v in linear]), x @ x, by_dots
    )
    close(by_dots, out, 1e-10)


@given(seed=seeds)
@settings(laws, max_examples=8)
def test_clusters_larger_than_the_tables(kit, seed):
    """Tables are sized to the data; a model may meet more later."""
    rng = np.random.default_rng(seed)
    small = Kit(kit.family, kit.X, fitted=kit.X[:2])
    members = kit.subset(rng, least=6)
    row, same = kit.row(members), small.row(members)
    close(small.log_marginal(same), kit.log_marginal(row))
    close(small.scores(same), kit.scores(row))
    other = small.row()
    small.merge(other, same)
    close(other, same)
    heavy = small.row([members[0]], weight=1000.0)
    i = rng.integers(kit.n)
    before, score = small.log_marginal(heavy), small.score(heavy, i)
    small.add(heavy, i)
    close(small.log_marginal(heavy) - before, score, 1e-6)


def test_dense_and_sparse_data_agree(kit):
    if not kit.family.accepts_sparse:
        with pytest.raises(DataError, match="sparse"):
            kit.family.compile(sp.csr_matrix(kit.X))
        return
    X = naive.dense(kit.X)
    with_zeros = sp.csr_matrix(np.ones_like(X))  # zeros stored as entries
    with_zeros.data[:] = X.reshape(-1)
    reference = Kit(kit.family, X)
    row = reference.row(range(7))
    for other in (sp.csr_matrix(X), sp.csc_matrix(X), with_zeros):
        sparse = Kit(kit.family, other)
        close(sparse.row(range(7)), row, 1e-12)
        close(sparse.scores(row), reference.scores(row), 1e-12)
        close(sparse.base, reference.base, 1e-12)
        np.testing.assert_array_equal(
            kit.family.log_ceiling(sparse.model.matrix), kit.family.log_ceiling(X)
        )


@pytest.mark.parametrize("name", [n for n, f in families.BY_NAME.items() if f.accepts_sparse])
def test_a_sparse_matrix_without_entries(name):
    family = families.by_name(name)()
    empty, zeros = Kit(family, sp.csr_matrix((3, 4))), Kit(family, np.zeros((3, 4)))
    close(empty.scores(empty.row([0, 1])), zeros.scores(zeros.row([0, 1])), 1e-12)


# -- bounds --------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(laws, max_examples=60)
def test_bound_is_above_what_helpers_can_do(kit, seed):
    rng = np.random.default_rng(seed)
    bounds = kit.model.bounds("the tests")
    members, i = kit.subset(rng), int(rng.integers(kit.n))
    row = kit.row(members)
    none = np.zeros(bounds.n_features)
    close(_bound(kit.core, bounds, kit.items, i, row, 0, none, none), kit.score(row, i))
    for _ in range(4):
        # Few kinds of helpers, the point itself often among them: that is where bounds are tight.
        kinds = np.append(rng.integers(0, kit.n, size=2), i)
        helpers = rng.choice(kinds, size=rng.integers(1, 6))
        helped = kit.row([*members, *helpers])
        features = sum(_features(kit.core, bounds, kit.items, h) for h in helpers)
        slack = rng.integers(0, 3, size=(2, bounds.n_features)) * rng.integers(0, 2)
        low, high = features - slack[0], features + slack[1]
        arguments = (kit.core, bounds, kit.items, i, row, len(helpers))
        bound = _bound(*arguments, low, high)
        score = kit.score(helped, i)
        assert bound >= score - 1e-9 * (1.0 + abs(score))
        assert math.isfinite(bound)
        # Knowing more can only help.
        exact = _bound(*arguments, features, features)
        assert exact <= bound + 1e-9 * (1.0 + abs(bound))


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "poisson", "categorical"])
def test_bound_is_exact_where_features_say_all(name):
    for example in families.by_name(name).examples():
        kit = Kit(example.family, example.X)
        bounds = kit.model.bounds("the tests")
        features = _features(kit.core, bounds, kit.items, 5)
        row, helped = kit.row([0, 1, 2]), kit.row([0, 1, 2, 5])
        bound = _bound(kit.core, bounds, kit.items, 7, row, 1, features, features)
        close(bound, kit.score(helped, 7))


@given(seed=seeds)
@laws
def test_ceiling_is_above_every_predictive(kit, seed):
    rng = np.random.default_rng(seed)
    ceiling = kit.family.log_ceiling(kit.model.matrix)
    assert (ceiling >= kit.scores(kit.row(kit.subset(rng))) - 1e-9).all()
    i = rng.integers(kit.n)
    alike = kit.row([i], weight=float(rng.integers(0, kit.n + 1)))
    assert ceiling[i] >= kit.score(alike, i) - 1e-9


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
    kit = Kit(family, np.array(support, dtype=np.float64))
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
    kit = Kit(family, np.array([[0.4], [1.5], [-0.3]]))
    for members in ([], [0], [0, 1, 1, 2]):
        row = kit.row(members)

        def density(x, row=row):
            return math.exp(kit.scores(row, [[x]])[0] + kit.base[0])

        mass = sum(quad(density, *part)[0] for part in [(-np.inf, 0.5), (0.5, np.inf)])
        assert mass == pytest.approx(1.0, abs=1e-6)


def test_draws_have_the_moments_of_the_predictive(kit):
    row = kit.row(range(kit.n))
    n = 20_000
    draws = kit.family.draws(row, kit.model.n_features).sample(n, np.random.default_rng(1))
    assert draws.shape == (n, kit.model.n_features)
    mean, variance = naive.predictive_moments(kit.family, kit.X)
    squares = (draws - mean) ** 2
    assert (np.abs(draws.mean(axis=0) - mean) <= 5.0 * np.sqrt(variance / n)).all()
    assert (np.abs(squares.mean(axis=0) - variance) <= 5.0 * squares.std(axis=0) / n**0.5).all()


def test_draws_have_the_predictive_as_their_density(kit):
    """The mean of p(x | B)/p(x | A) over draws from A is one, whatever the cluster B."""
    row = kit.row(range(kit.n))
    draws = kit.family.draws(row, kit.model.n_features).sample(20_000, np.random.default_rng(2))
    for i in range(3):
        other = row.copy()
        kit.add(other, i, 2.0)
        ratios = np.exp(kit.scores(other, draws) - kit.scores(row, draws))
        assert abs(ratios.mean() - 1.0) <= 5.0 * ratios.std() / len(ratios) ** 0.5


def test_draws_from_the_empty_cluster(kit):
    draws = kit.family.draws(kit.row(), kit.model.n_features).sample(50, np.random.default_rng(3))
    assert np.isfinite(kit.scores(kit.row([0]), draws)).all()


def test_posterior_is_readable(kit):
    few = kit.family.posterior(kit.row([0]), kit.model.n_features)
    many = kit.family.posterior(kit.row(range(kit.n)), kit.model.n_features)
    assert few.keys() == many.keys()
    mean, _ = naive.predictive_moments(kit.family, kit.X)
    if "mean" in many:
        close(many["mean"], mean)


# -- descriptions --------------------------------------------------------------------------------


def test_description_round_trip(kit):
    for family in (kit.given, kit.family):
        again = families.from_dict(json.loads(json.dumps(family.to_dict())))
        assert type(again) is type(family)
        assert hash(again) == hash(families.from_dict(family.to_dict()))
        np.testing.assert_array_equal(
            again.compile(kit.X).core.params, family.compile(kit.X).core.params
        )


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


@pytest.mark.parametrize("name", families.BY_NAME)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_values_that_are_not_finite(name, value):
    X = np.ones((3, 2))
    X[1, 1] = value
    kind = families.by_name(name)
    family = kind([[1.0, 2.0]]) if name == "projected_gaussian" else kind()
    if math.isnan(value) and family.takes_gaps:
        assert family.compile(X).family.name == "with_gaps"
        return
    with pytest.raises(DataError, match="row 1, column 1"):
        family.compile(X)


@pytest.mark.parametrize(
    ("family", "value", "kind"),
    [
        (families.Multinomial(), -1.0, "negative"),
        (families.Multinomial(), 0.5, "not a whole number"),
        (families.Poisson(), -1.0, "negative"),
        (families.Poisson(), 0.5, "not a whole number"),
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
        (families.Bernoulli(successes=0.0), "successes must be"),
        (families.Bernoulli(failures=[1.0, math.inf]), "failures must be .* column 1"),
        (families.Poisson(shape=0.0), "shape must be"),
        (families.Poisson(rate=[1.0, -1.0]), "rate must be .* column 1"),
        (families.Categorical(concentration=-1.0), "concentration must be"),
        (families.Categorical(n_levels=2.5), "n_levels must be whole"),
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
    """With next to no weight on the prior mean, where it is changes nothing."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    for family in (families.DiagonalGaussian(0.0, 1e-18), families.FullGaussian(0.0, 1e-18)):
        near, far = Kit(family, X), Kit(family, X + 1e7)
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
    kit = Kit(family, X)
    for members in ([], [3, 4], [0, 3], [0, 1, 2, 3], [0, 0, 1]):
        row = kit.row(members)
        assert np.isfinite(row).all()
        assert np.isfinite(kit.scores(row)).all()
        for i in members[1:]:
            kit.add(row, i, -1.0)
        assert np.isfinite(row).all()
    # Against the formula, with a logarithm for each column.
    if family.name == "diagonal_gaussian":
        expected = [naive.log_marginal(family, X[i : i + 1]) for i in range(6)]
        close(kit.scores(kit.row()) + kit.base, expected, 1e-10)


@pytest.mark.parametrize("distance", [1e2, 1e4, 1e6, 1e9, 1e12])
def test_removing_an_outlier_from_a_full_gaussian(distance):
    """A rank-one change alone would leave a matrix that is not positive definite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 4))
    X[0] = distance * rng.normal(size=4)
    kit = Kit(families.FullGaussian(), X)
    row = kit.row(range(10))
    kit.add(row, 0, -1.0)
    assert np.isfinite(row).all()
    assert np.isfinite(kit.scores(row)).all()
    if distance <= 1e6:
        rounding = 1e-15 * distance**2
        close(kit.scores(row)[1:], kit.scores(kit.row(range(1, 10)))[1:], rounding)


def test_many_moves_do_not_wear_a_row_out():
    rng = np.random.default_rng(0)
    for family in (families.DiagonalGaussian(), families.FullGaussian()):
        kit = Kit(family, 5.0 + rng.normal(size=(40, 5)))
        members = set(range(10))
        row = kit.row(members)
        for i in rng.integers(0, 40, size=20_000):
            if i in members and len(members) > 1:
                members.remove(i)
                kit.add(row, i, -1.0)
            elif i not in members:
                members.add(i)
                kit.add(row, i)
        close(row, kit.row(sorted(members)), 1e-9)
