"""Directions: densities on the circle and the sphere, input, recognition, planted clusters."""

import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special
from scipy.integrate import dblquad, quad
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, priors
from dpsearch.automatic.directions import n_dimensions
from dpsearch.automatic.first_guess import guess
from dpsearch.checks.compiled import Compiled
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import _concentration
from dpsearch.families.von_mises_fisher import draw_directions
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem
from dpsearch.tables import CheckedTable


def planted(n, d, k, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0)))
    means = draw_directions(np.tile(np.eye(d)[0], (k, 1)), np.zeros(k), rng)
    kappas = d * np.exp(rng.uniform(-0.5, 1.0, k))
    return draw_directions(means[labels], kappas[labels], rng), labels


@pytest.mark.parametrize("members", [[], [0], [0, 1, 1, 2]])
def test_densities_integrate_to_one_on_the_circle_and_the_sphere(members):
    circle = Compiled(families.VonMisesFisher((0.5, 30.0)), np.eye(3, 2) + np.eye(3, 2, k=-2))
    row = circle.row(members)

    def on_circle(angle):
        x = np.array([[math.cos(angle), math.sin(angle)]])
        return math.exp(circle.scores(row, x)[0] + circle.base[0])

    assert quad(on_circle, 0.0, 2.0 * math.pi)[0] == pytest.approx(1.0, abs=1e-6)
    sphere = Compiled(families.VonMisesFisher((1.0, 5.0), (1.0, 1.0, 0.0), 0.8), np.eye(3))
    own = sphere.row(members)

    def on_sphere(angle, z):
        across = math.sqrt(1.0 - z * z)
        x = np.array([[across * math.cos(angle), across * math.sin(angle), z]])
        return math.exp(sphere.scores(own, x)[0] + sphere.base[0])

    mass = dblquad(on_sphere, -1.0, 1.0, 0.0, 2.0 * math.pi, epsabs=1e-4)[0]
    assert mass == pytest.approx(1.0, abs=1e-3)


def test_the_sum_over_nodes_is_that_of_all_of_them():
    """The first term may be any, and the points may be far from a tight cluster."""
    for n_features, many in ((384, 0.0), (384, np.inf), (8, np.inf)):
        family = families.VonMisesFisher((0.05 * n_features, 50.0 * n_features))
        params = family.parameters(n_features, None)
        params[_concentration.PARAMS.many] = max(params[_concentration.PARAMS.many], many)
        for n, share in [(1.0, 1.0), (2.0, 0.9), (3.0, 0.4), (40.0, 0.7), (5000.0, 0.95)]:
            length, last = n * share, len(family._nodes(n_features)) - 1
            terms = [_concentration._term(params, n, length, g)[0] for g in range(last + 1)]
            found = [_concentration.log_sum(params, n, length**2, begin) for begin in (0, 30, last)]
            logs = [one.log for one in found]
            np.testing.assert_allclose(logs, np.logaddexp.reduce(terms), atol=1e-3)
            np.testing.assert_allclose(logs, logs[0], atol=1e-7)
            summit = _concentration.summit(params, n, length, 0)
            assert all(terms[one.largest] > terms[summit] - 0.5 for one in found)


@pytest.mark.parametrize("n_features", [2, 3, 24, 100])
def test_log_h_is_the_integral_over_the_concentration(n_features):
    """Compare with SciPy's Bessel function on a fine grid, for 1 to 10,000 points."""
    low, high, nu = 0.02 * n_features, 60.0 * n_features, 0.5 * n_features - 1.0
    kappas = np.geomspace(low, high, 40_001)

    def mean_exp(x):
        log_i = np.log(special.ive(nu, x)) + x
        return math.lgamma(nu + 1.0) + log_i - nu * np.log(0.5 * x)

    form = families.VonMisesFisher((low, high)).linear(n_features)
    for n in (1, 3, 10, 30, 100, 1_000, 10_000):
        for share in (0.5, 0.7, 0.85):
            length = max(share * n, 1.0) if n > 1 else 1.0
            terms = mean_exp(kappas * length) - n * mean_exp(kappas)
            whole = np.trapezoid(np.exp(terms - terms.max())) / (len(kappas) - 1)
            wanted = terms.max() + math.log(whole)
            found = form.log_marginals(np.array([float(n)]), length * np.eye(1, n_features))
            assert found[0] == pytest.approx(wanted, abs=1e-3)


def test_what_is_left_out_changes_no_place():
    """A greedy pass that scores all clusters places every row in the same cluster."""
    X, _ = planted(400, 24, 6)
    problem = Problem(X, families.VonMisesFisher((5.0, 500.0)), priors.DirichletProcess(1.0))
    found = greedy(problem, np.arange(400))
    dots = problem.model._functions
    object.__setattr__(problem.model, "_functions", dots.__class__(
        **{**{f: getattr(dots, f) for f in dots.__dataclass_fields__}, "best_dots": None}
    ))  # fmt: skip
    np.testing.assert_array_equal(greedy(problem, np.arange(400)), found)


def test_rows_that_are_not_directions():
    X, _ = planted(20, 5, 2)
    X[7] *= 1.01
    with pytest.raises(DataError, match=r"row 7 of X has length 1.01.*normalize"):
        DPMixture("von_mises_fisher").fit(X)
    with pytest.raises(DataError, match="row 7"):
        families.VonMisesFisher().compile(sp.csr_matrix(X))
    with pytest.raises(DataError, match="two columns"):
        families.VonMisesFisher().compile(np.ones((3, 1)))
    X[7] = np.nan
    with pytest.raises(DataError, match="row 7, column 0"):
        families.VonMisesFisher().compile(X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"concentration": (3.0, 2.0)}, "concentration"),
        ({"concentration": 0.0}, "concentration"),
        ({"prior_strength": -1.0}, "prior_strength"),
        ({"mean_direction": (0.0, 0.0, 0.0)}, "mean_direction"),
    ],
)
def test_bad_parameters(changes, message):
    with pytest.raises(ParameterError, match=message):
        families.VonMisesFisher(**changes).compile(np.eye(3))


def test_rounded_rows_are_normalised():
    X, _ = planted(30, 6, 2)
    family = families.VonMisesFisher((1.0, 100.0))
    exact, rounded = Compiled(family, X), Compiled(family, np.round(X, 4))
    np.testing.assert_allclose(rounded.items.values.reshape(X.shape), X, atol=1e-4)
    lengths = np.linalg.norm(rounded.items.values.reshape(X.shape), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-14)
    np.testing.assert_allclose(
        rounded.scores(rounded.row([0, 1])), exact.scores(exact.row([0, 1])), atol=0.05
    )


@pytest.mark.slow
def test_rows_of_length_one_are_recognised():
    X, labels = planted(300, 40, 4)
    for table in (X.astype(np.float32), sp.csr_matrix(X)):
        assert guess(CheckedTable.of(table))[0] is families.VonMisesFisher
        model = DPMixture().fit(table)
        assert "rows of length 1" in model.reason_
        assert adjusted_rand_score(labels, model.labels_) > 0.98
    assert guess(CheckedTable.of(2.0 * X))[0] is not families.VonMisesFisher
    assert guess(CheckedTable.of(np.eye(5)[[0, 1, 2, 3, 4, 0, 1]]))[0] is families.Bernoulli
    with pytest.raises(DataError, match="normalize"):
        guess(CheckedTable.of(sp.csr_matrix(2.0 * X)))


def topics(n, width, seed=0):
    """Return rows like text embeddings: a common direction, and topics along few dimensions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    axes = rng.normal(size=(12, width)) * np.linspace(1.0, 0.3, 12)[:, None]
    X = 4.0 * rng.normal(size=(5, 12))[labels] @ axes + 2.0 * rng.normal(size=(n, 12)) @ axes
    X += 2.0 * rng.normal(size=width) + rng.normal(size=(n, width))
    return X / np.linalg.norm(X, axis=1)[:, None], labels


@pytest.mark.parametrize("kappa", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("n_clusters", [1, 3])
def test_dimensions_are_counted_for_any_clusters(kappa, n_clusters):
    rng = np.random.default_rng(0)
    labels = rng.integers(n_clusters, size=400)
    for width in (40, 150):
        means = draw_directions(
            np.tile(np.eye(1, width), (n_clusters, 1)), np.zeros(n_clusters), rng
        )
        X = draw_directions(means[labels], np.full(400, kappa * width), rng)
        assert 0.95 * width < n_dimensions(X) < 1.7 * width
        within = X @ np.linalg.qr(rng.normal(size=(300, width)))[0].T  # of more columns
        assert n_dimensions(within) == pytest.approx(n_dimensions(X), rel=1e-6)


@pytest.mark.slow
def test_directions_that_differ_along_few_dimensions_are_projected():
    """The von Mises–Fisher family would take variation along them for clusters."""
    X, labels = topics(300, 100)
    model = DPMixture().fit(X)
    assert model.family_.name == "projected_gaussian"
    assert re.search(r"length 1 in 100 columns, which differ along 1\d dimensions", model.reason_)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert DPMixture("von_mises_fisher").fit(X).n_clusters_ > 2 * model.n_clusters_


def test_a_cloud_of_directions_is_one_cluster_and_its_concentration_is_found():
    rng = np.random.default_rng(3)
    X = draw_directions(np.tile(np.eye(30)[2], (600, 1)), np.full(600, 45.0), rng)
    model = DPMixture().fit(X)
    assert model.n_clusters_ == 1
    posterior = model.family_.posterior(Compiled(model.family_, X).row(range(600)), 30)
    assert posterior["concentration"] == pytest.approx(45.0, rel=0.05)
    assert posterior["mean_direction"][2] > 0.99
