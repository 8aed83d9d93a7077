"""Families by nodes: against quadrature and SciPy, bad nodes and bad values, a user's density."""

import functools
import math
import re

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from dpsearch import DPMixture, families, load, priors, search
from dpsearch.checks.compiled import Compiled
from dpsearch.errors import DataError, ParameterError
from dpsearch.families._columns import medians, with_holes
from dpsearch.families.by_nodes import MOST
from dpsearch.items import log_predictive
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem

BY_NODES = [
    families.StudentT,
    families.Gamma,
    families.Beta,
    families.VonMises,
    families.NegativeBinomial,
    families.RoundedGaussian,
    families.Ordinal,
]


@pytest.mark.parametrize("cls", BY_NODES)
def test_nodes_are_placed_by_the_data_in_any_units(cls):
    X = cls.examples()[0].X
    one = cls.suggest(X)
    assert all(len(own) <= MOST for own in one.nodes)
    if cls in (families.StudentT, families.Gamma):
        other = cls.suggest(1000.0 * X)
        labels = np.arange(len(X)) % 2
        shift = len(X) * math.log(1000.0)
        found = other.evidence(1000.0 * X, labels) + shift
        np.testing.assert_allclose(found, one.evidence(X, labels), rtol=1e-9)


def test_few_points_have_the_log_h_of_the_integral():
    """With a uniform location, the nodes are close enough to integrate over it."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(4.0, size=(200, 1))
    family = families.StudentT.suggest(X)
    theta, log_weights = family.of_columns(1)[0]
    width = np.unique(theta[:, 1])[4]
    own = np.isclose(theta[:, 1], width)
    level = families.StudentT([theta[own]], [log_weights[own]])
    low, high = X.min(), X.max()
    for n in (1, 3, 10):
        x = X[rng.choice(200, n, replace=False), 0]
        value, _ = integrate.quad(
            lambda m, x=x: np.exp(stats.t.logpdf(x, 4.0, m, width).sum()), low, high, limit=200
        )
        found = level.evidence(x[:, None], np.zeros(n, np.int64))[0]
        assert found == pytest.approx(math.log(value / (high - low)), abs=0.05)


@pytest.mark.parametrize("cls", BY_NODES)
def test_rows_are_the_same_however_their_points_came(cls):
    """Adding and removing points is compared with a merge, which derives everything anew."""
    X = cls.examples()[0].X
    kit, rng = Compiled(cls.suggest(X), X), np.random.default_rng(0)
    row, members = kit.row(), rng.integers(len(X), size=400)
    for count, (i, weight) in enumerate([*((i, 1) for i in members), *((i, -1) for i in members)]):
        kit.add(row, i, weight)
        again = kit.row()
        kit.merge(again, row)
        message = f"after {count + 1} steps"
        for value in (kit.scores, kit.log_marginal):
            np.testing.assert_allclose(value(row), value(again), rtol=1e-11, err_msg=message)
    np.testing.assert_array_equal(row, kit.row())  # nothing is left


@pytest.mark.parametrize("cls", BY_NODES)
def test_rows_have_the_sums_of_their_points_through_many_changes(cls):
    """Weights that are clipped, lifted and seen again, against sums of log densities."""
    X = cls.examples()[0].X
    kit, rng = Compiled(cls.suggest(X), X), np.random.default_rng(1)
    logs, _ = kit.family.relative(X)
    log_weights = kit.family._log_weights(X.shape[1])
    row, counts = kit.row(), np.zeros(len(X))

    def log_h(counts):
        return logsumexp(np.tensordot(counts, logs, 1) + log_weights, axis=1).sum()

    for step in range(600):
        # Two points at a time: the other nodes' weights become small, and large again.
        i = rng.integers(len(X)) if step % 100 < 20 else step // 100 + rng.integers(2)
        weight = 3 if rng.random() < 0.01 else 1
        if counts[i] >= weight and rng.random() < (0.3 if step % 200 < 100 else 0.7):
            weight = -weight
        kit.add(row, i, weight)
        counts[i] += weight
        if step % 10 == 0:
            before, more = log_h(counts), counts + np.eye(len(X))
            wanted = [log_h(one) - before for one in more]
            assert kit.log_marginal(row) == pytest.approx(before, rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(kit.scores(row), wanted, rtol=1e-9, atol=1e-9)
            there = np.flatnonzero(counts)
            own = log_predictive(kit.core, kit.items.take(there), row, np.zeros(len(there), int))
            wanted = [before - log_h(counts - np.eye(len(X))[i]) for i in there]
            np.testing.assert_allclose(own[:, 0], wanted, rtol=1e-9, atol=1e-9)
            merged = kit.row([0, 1])
            kit.merge(merged, row)
            more = counts + (np.arange(len(X)) < 2)
            assert kit.log_marginal(merged) == pytest.approx(log_h(more), rel=1e-9, abs=1e-9)


def test_a_node_that_was_clipped_is_seen_again_once_points_are_removed():
    X = np.array([[0.0], [90.0]])
    kit = Compiled(families.Quadrature(laplace, [0.0, 90.0], support=(-10.0, 100.0)), X)
    row = kit.settled(kit.row([0, 0, 0, 1]))
    for left in ([0, 0, 1], [0, 1], [1]):
        kit.add(row, 0, -1)
        assert kit.log_marginal(row) == pytest.approx(kit.log_marginal(kit.row(left)), rel=1e-9)


MEANS = {  # nodes, and the values over which sums go, or None for an integral
    families.Ordinal: (
        [(m, s, 1.0, 5.0) for m in (-3.0, 0.2, 2.6, 5.0, 40.0) for s in (0.25, 0.9, 6.0)]
        + [(4.0, 2.0, 3.0, 3.0), (-70.0, 40.0, -120.0, 30.0)],
        np.arange(-120.0, 31.0),
    ),
    families.RoundedGaussian: (
        [(m, s) for m in (-2.5, 0.25, 0.5, 7.8) for s in (1e-3, 0.25, 0.6, 1.2, 1.3, 9.0)],
        np.arange(-120.0, 121.0),
    ),
    families.NegativeBinomial: ([(0.3, 0.01), (3.0, 1.0), (9.0, 2.0)], np.arange(2000.0)),
    families.Gamma: ([(0.5, 0.3), (3.0, 0.9)], None),
    families.Beta: ([(0.1, 0.4), (0.7, 0.2)], None),
}


@pytest.mark.parametrize("cls", MEANS, ids=lambda cls: cls.name)
def test_what_is_expected_at_a_node_is_the_mean_of_the_values(cls):
    nodes, values = MEANS[cls]
    family, rng = cls(), np.random.default_rng(0)

    def density(x, theta):
        with np.errstate(invalid="ignore"):
            return np.exp(family.log_densities(np.atleast_1d(x), theta))[:, 0]

    for node in nodes:
        theta = np.array([node])
        found = family.expected(theta)[0]
        if values is None:
            end = 1.0 if cls is families.Beta else 200.0
            wanted, _ = integrate.quad(
                lambda x, theta=theta: x * density(x, theta)[0], 0.0, end, limit=200
            )
        else:
            levels = values[(values >= node[2]) & (values <= node[3])] if len(node) > 2 else values
            wanted = levels @ density(levels, theta)
        assert found == pytest.approx(wanted, rel=1e-7, abs=1e-9), node
        draws = family.drawn(np.repeat(theta, 4000, axis=0), rng)
        assert abs(draws.mean() - found) <= 5.0 * draws.std() / math.sqrt(4000.0) + 0.01, node
    many = family.expected(np.array(nodes))
    np.testing.assert_allclose(many, [family.expected(np.array([node]))[0] for node in nodes])


def test_centres_of_ratings_are_means_of_levels():
    stars = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [2, 3, 8, 26, 61])  # whose mean is 4.41
    model = DPMixture(families.Ordinal(), alpha=1e-6).fit(stars[:, None])
    assert model.n_clusters_ == 1
    (centre,) = model.explain().centres.ravel()
    assert centre == pytest.approx(stars.mean(), abs=0.05)
    assert model.impute([[np.nan]])[0, 0] == pytest.approx(centre, abs=1e-3)
    drawn = model.family_.draws(model.mixture_.row(0), 1).sample(20_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(centre, abs=0.05)
    told = model.mixture_.posterior(0)  # the normal value beneath
    assert told["location"][0] > centre + 0.3
    assert [told["low"][0], told["high"][0]] == pytest.approx([1.0, 5.0])


class WithoutTables(families.NegativeBinomial):
    """A family that keeps the densities of all values in its rows."""

    name = "without_tables"

    def common(self, theta):
        return 0.0, -1.0


def test_densities_in_parameters_and_in_rows_are_the_same():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    X = rng.poisson(3.0 + 40.0 * labels[:, None], size=(90, 3)) * 1.0
    X[rng.random(X.shape) < 0.1] = np.nan
    X[5, 1] = 1000.0  # beyond the tables
    family, prior = families.NegativeBinomial.suggest(X), priors.DirichletProcess(1.0)
    one = Problem(X, family, prior)
    other = Problem(X, WithoutTables(family.nodes, family.log_weights), prior)
    assert len(one.items.values) < 0.1 * len(other.items.values)
    assert one.log_joint(labels) == pytest.approx(other.log_joint(labels), rel=1e-13)
    order = np.arange(len(X))
    np.testing.assert_array_equal(greedy(one, order), greedy(other, order))
    prior_part = one.log_joint(labels) - family.evidence(X, labels).sum()
    flat = Problem(np.full_like(X, np.nan), family, prior)  # nothing but the prior
    assert prior_part == pytest.approx(flat.log_joint(labels), rel=1e-9)


@pytest.mark.parametrize(
    ("cls", "value", "message"),
    [
        (families.Gamma, -1.0, "numbers above 0, but X at row 1, column 0 is -1"),
        (families.LogNormal, 0.0, "numbers above 0, but X at row 1, column 0 is 0"),
        (families.Beta, 1.0, "above 0 and below 1, but X at row 1, column 0 is 1"),
        (families.RoundedGaussian, 0.5, "integers, but X at row 1, column 0 is 0.5"),
        (families.Ordinal, 0.5, "integers, but X at row 1, column 0 is 0.5"),
        (families.NegativeBinomial, -2.0, "X at row 1, column 0 is -2, which is negative"),
    ],
)
def test_values_outside_the_support_are_named(cls, value, message):
    X = cls.examples()[0].X.copy()
    X[1, 0] = value
    with pytest.raises(DataError, match=message):
        DPMixture(cls.name).fit(X)


def laplace(x, theta):
    return -abs(x - theta) - math.log(2.0)


def test_a_density_of_your_own(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=60)
    X = 12.0 * truth[:, None] + rng.laplace(size=(60, 1))
    family = families.Quadrature(laplace, np.linspace(-5.0, 20.0, 101))
    model = DPMixture(family).fit(X)
    assert model.n_clusters_ == 2
    assert model.sample(5)[0].shape == (5, 1)
    assert model.outliers([[15.0], [500.0]]).tolist() == [1]
    with pytest.raises(ParameterError, match=r"laplace.*register_density"):
        model.save(tmp_path / "model.npz")
    families.register_density(laplace)
    path = tmp_path / "named.npz"
    model.save(path)
    np.testing.assert_array_equal(load(path).predict(X), model.labels_)


def test_another_function_of_the_same_name_is_noticed():
    def half(x, theta):
        return -abs(x - theta) - math.log(2.0)

    families.register_density(half)
    told = families.Quadrature(half, [0.0, 1.0, 2.0]).to_dict()
    assert families.from_dict(told).nodes == ((0.0,), (1.0,), (2.0,))
    families.register_density(lambda x, theta: 0.5 * -abs(x - theta))  # its name is another
    assert families.from_dict(told).log_density == "half"

    def half(x, theta):
        return -0.5 * abs(x - theta) - math.log(4.0)

    families.register_density(half)
    with pytest.raises(
        ParameterError, match="'half' is registered as a function whose values differ"
    ):
        families.from_dict(told)


def test_a_support_that_excludes_the_data():
    family = families.Quadrature(laplace, [0.0, 1.0], support=(0.0, 5.0))
    with pytest.raises(DataError, match=r"from 0 to 5 \(its `support`\), but X at row 1, column 0"):
        family.compile([[1.0], [-3.0]])


def test_new_values_outside_a_support_that_was_given_are_an_error(tmp_path):
    X = np.random.default_rng(0).integers(6, size=(40, 2)) * 1.0
    rows = np.array([[1.0, 2.0], [np.nan, 5.5], [6.0, 3.0]])
    for support in ((0.0, 5.0), None):
        family = families.Quadrature("poisson_rate", np.linspace(0.5, 6.0, 9), support=support)
        model, path = DPMixture(family).fit(X), tmp_path / f"{support}.npz"
        model.save(path)
        for one in (model, load(path)):
            assert len(one.sample(50)[0]) == 50
            for method in (one.predict, one.score_samples, one.outliers):
                assert len(method(X)) <= 40
                if support is None:  # the range for draws and means comes from the data
                    method(20.0 * rows)
                else:
                    with pytest.raises(DataError, match=r"0 to 5 .*X at row 1, column 1 is 5.5"):
                        method(rows)
    far = np.full((1, 2), 99.0)
    for options in ({"support": (0.0, 5.0)}, {"bounded": True}):
        bound = families.Quadrature(laplace, [0.0, 1.0], **options).resolve(X)
        for family in (bound, bound.column(1, 2)):
            with pytest.raises(DataError, match="row 0, column 0 is 99"):
                family.check(far)
        bound.with_parameters(bounded=False).check(far)


def test_nodes_that_miss_the_data():
    family = families.Quadrature(laplace, [0.0, 1.0])
    with pytest.raises(
        DataError,
        match="row 2, column 0 is 90000.*-89999.7 at its best node: the nodes miss the data",
    ):
        search([[0.0], [1.0], [9e4]], family, priors.DirichletProcess(1.0))


@pytest.mark.parametrize(
    ("nodes", "log_weights", "message"),
    [
        ([], None, "nodes must not be empty"),
        ([math.nan], None, "nodes must be a list of numbers"),
        ([0.0, 1.0], [0.0], "has 1 values for 2 nodes"),
        ([[[0.0], [1.0]], [[0.0], [1.0]]], None, "nodes are for 2 columns"),
    ],
)
def test_bad_nodes(nodes, log_weights, message):
    with pytest.raises(ParameterError, match=message):
        families.Quadrature(laplace, nodes, log_weights).compile(np.zeros((3, 1)))


def test_log_weights_and_a_support_are_checked_at_once():
    with pytest.raises(ParameterError, match="log_weights has 1 values for 2 nodes"):
        families.Quadrature(laplace, [0.0, 1.0], [0.0])
    for support in ((5, -5), (0.0,), 3, (0.0, math.nan), (0, math.inf)):
        with pytest.raises(ParameterError, match="support must be two numbers"):
            families.Quadrature(laplace, [0.0, 1.0], support=support)


def test_whole_numbers_are_checked():
    family = families.Quadrature(laplace, [0.0, 1.0], whole=True)
    family.compile([[1.0], [math.nan]])
    with pytest.raises(DataError, match=r"takes integers.*row 1, column 0 is 1.5"):
        family.compile([[1.0], [1.5]])


def unknown_name(x, theta):
    return -abs(x - thetta)  # noqa: F821


def vector(x, theta):
    return -abs(x - theta[0])


def division(x, theta):
    return x / (theta - theta)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unknown_name, "NameError: name 'thetta' is not defined"),
        (vector, r"No implementation of function .*getitem.*getitem\(float64"),
        (division, "division by zero"),
    ],
)
def test_a_mistake_in_the_function_is_named_in_one_line(function, reason):
    with pytest.raises(ParameterError) as raised:
        search([[1.0]], families.Quadrature(function, [0.0, 1.0]), priors.DirichletProcess(1.0))
    message = str(raised.value)
    assert re.fullmatch(f"log_density: '{function.__name__}' failed: {reason}.*", message)
    assert raised.value.__cause__ is not None


def laplace_about(x, theta):
    return -abs(x - theta[0]) / theta[1] - math.log(2.0 * theta[1])


@pytest.mark.parametrize("reach", [60.0, 1e9])
@pytest.mark.parametrize("scale", [1e-3, 3.0])
def test_draws_and_means_of_a_density_are_right_however_wide_its_support_is(reach, scale):
    family = families.Quadrature(laplace_about, [(2.0, scale)], support=(-reach, reach))
    theta, truth = np.array([[2.0, scale]]), stats.laplace(2.0, scale)
    assert family.expected(theta)[0] == pytest.approx(2.0, abs=1e-3 * scale)
    draws = family.drawn(np.repeat(theta, 4000, axis=0), np.random.default_rng(0))
    assert stats.kstest(draws, truth.cdf).pvalue > 1e-3
    inside = truth.cdf([-reach, reach])
    levels = np.array([0.001, 0.01, 0.99, 0.999])
    wanted = truth.ppf(inside[0] + levels * np.diff(inside))
    many = family.drawn(np.repeat(theta, 40_000, axis=0), np.random.default_rng(1))
    np.testing.assert_allclose(np.quantile(many, levels), wanted, atol=1.5 * scale)
    assert many.std() == pytest.approx(truth.std(), rel=0.05 if reach > 60.0 else 0.1)


@pytest.mark.parametrize(
    ("function", "nodes", "text"),
    [
        (laplace_about, [(1, 2), (1,)], "nodes must all have as many coordinates"),
        (
            laplace_about,
            [np.arange(3.0), np.arange(2.0)],
            "nodes must all have as many coordinates",
        ),
        (functools.partial(laplace_about), [(0.0, 1.0)], "log_density must be a function"),
        (3, [0.0], "log_density 3 is not registered"),
    ],
)
def test_what_is_no_density_or_no_list_of_nodes_is_refused(function, nodes, text):
    with pytest.raises(ParameterError, match=text):
        families.Quadrature(function, nodes)


@pytest.mark.parametrize("n_rows", [2, 7, 8])
def test_medians_are_those_of_the_values_there_are(n_rows):
    X = np.random.default_rng(n_rows).normal(size=(n_rows, 6))
    np.testing.assert_array_equal(medians(X), np.median(X, axis=0))
    X = np.column_stack([with_holes(X), np.full(n_rows, np.nan)])
    np.testing.assert_array_equal(medians(X)[:-1], np.nanmedian(X[:, :-1], axis=0))
    assert np.isnan(medians(X)[-1])


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (families.NegativeBinomial, {"nodes": [[1.0, 2.0, 3.0]]}, "rows of mean, dispersion, but"),
        (families.RoundedGaussian, {"nodes": [[[0.0]], [[1.0]]]}, "but have 1 numbers"),
        (families.StudentT, {"nodes": [[0.0, 1.0]]}, "rows of location, scale, degrees, but"),
        (families.VonMises, {"nodes": [[0.0, 1.0]]}, "rows of location, width, period, begin"),
        (families.Ordinal, {"nodes": [[1.0, 1.0]]}, "rows of location, width, low, high, but"),
        (families.Ordinal, {"low": "a"}, "low must be a number"),
        (families.Ordinal, {"high": np.inf}, "high must be finite"),
        (families.Ordinal, {"low": 5, "high": 1}, "low must be whole numbers, `low` not above"),
        (families.Ordinal, {"high": 3.5}, "high must be whole numbers"),
    ],
)
def test_nodes_and_levels_that_are_none_are_refused_in_words(kind, given, text):
    with pytest.raises(ParameterError, match=text):
        kind(**given).resolve(np.array([[1.0, 2.0], [3.0, 1.0]]))
