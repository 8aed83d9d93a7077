"""The automatic choice of family, hyperparameters and partition."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, compare, families, load, log_joint, priors
from dpsearch.automatic import choose, resolve_prior
from dpsearch.automatic.learning import learn
from dpsearch.errors import DataError, ParameterError
from dpsearch.families.learning import (
    CONCENTRATIONS,
    FLOOR,
    STRENGTHS,
    WITHIN,
    pooled_covariance,
    pooled_variance,
)

AUTO = resolve_prior("auto")


def clusters(n_rows, width, n_clusters=4, seed=0, spread=8.0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_clusters, size=n_rows)
    return spread * rng.normal(size=(n_clusters, width))[truth] + rng.normal(
        size=(n_rows, width)
    ), truth


TABLES = {
    "iris": lambda: load_iris().data,
    "wine": lambda: load_wine().data,
    "wide": lambda: clusters(150, 60)[0],
    "gaps": lambda: np.where(
        np.random.default_rng(1).random((14, 3)) < 0.1, np.nan, clusters(14, 3)[0]
    ),
}


# -- units, seeds, order -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one == "wine")) for one in TABLES]
)
def test_units_do_not_matter(name):
    X = TABLES[name]()
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-3, 3, X.shape[1])
    shift = 10.0 * scale * np.nanstd(X, axis=0) * rng.normal(size=X.shape[1])
    one, other = (DPMixture(random_state=0).fit(x) for x in (X, X * scale + shift))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    jacobian = (~np.isnan(X) * np.log(scale)).sum()
    if name == "wide":  # projections have no units
        np.testing.assert_allclose(
            np.array(other.family_.components) * scale, one.family_.components, rtol=1e-6, atol=1e-9
        )
        np.testing.assert_allclose(other.family_.scale, one.family_.scale, rtol=1e-6, atol=1e-7)
        jacobian = 0.0
    elif name == "gaps":
        one_family, other_family = one.family_.family, other.family_.family
        np.testing.assert_allclose(
            other_family.scale, np.array(one_family.scale) * scale**2, rtol=1e-6
        )
    else:
        want = np.array(one.family_.scale) * np.outer(scale, scale)
        rest = 1e-7 * np.sqrt(np.outer(np.diag(want), np.diag(want)))
        assert (np.abs(other.family_.scale - want) <= rest).all()
        np.testing.assert_allclose(
            other.family_.prior_mean, np.array(one.family_.prior_mean) * scale + shift, rtol=1e-8
        )
        assert other.family_.prior_strength == pytest.approx(one.family_.prior_strength, rel=1e-5)
    assert other.log_joint_ == pytest.approx(one.log_joint_ - jacobian, abs=1e-3)


@pytest.mark.parametrize("family", ["gaussian", "diagonal_gaussian", "full_gaussian"])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_column_that_is_constant_in_the_sample_has_no_units(family, gaps):
    """The scale used for such a column must follow its units, and so must what is learned."""
    if gaps and family == "full_gaussian":
        pytest.skip("takes no gaps")
    X, truth = clusters(300, 3)
    X[:, 1] = 7.0
    X[:3, 1] = [5.0, 9.0, 6.0]
    start = families.by_name(family).suggest(X).resolve(X)
    sample, labels = X[3:].copy(), np.unique(truth[3:], return_inverse=True)[1]
    if gaps:
        sample[::2, 1] = np.nan
    scale = np.array([1.0, 1e4, 1.0])
    learned = start.learned(sample, labels)
    again = families.by_name(family).suggest(X * scale).resolve(X).learned(sample * scale, labels)
    field = "noise_variance" if family == "gaussian" else "scale"
    one, other = (np.array(getattr(f, field)) for f in (learned, again))
    power = np.outer(scale, scale) if one.ndim == 2 else scale**2
    np.testing.assert_allclose(other, one * power, rtol=1e-9, atol=1e-12)
    begin = np.array(getattr(start, field))
    at = (1, 1) if one.ndim == 2 else 1
    assert one[at] == pytest.approx(begin[at])  # kept
    np.testing.assert_allclose(learned.prior_mean[1], X[:, 1].mean())


@pytest.mark.slow
def test_the_value_of_a_constant_column_does_not_matter():
    X = load_iris().data
    found = []
    for value in (0.0, 3.0, 1e12, 1e-12):
        model = DPMixture(random_state=0).fit(np.column_stack([X, np.full(len(X), value)]))
        found.append(model.labels_)
        np.testing.assert_array_equal(found[0], model.labels_)
    # Values that differ by rounding alone are constant: the last digits are no clusters.
    rounding = 1e18 * (1.0 + 1e-15 * np.arange(len(X)) / len(X))
    same = DPMixture(random_state=0).fit(np.column_stack([X, rounding])).labels_
    flat = DPMixture(random_state=0).fit(np.column_stack([X, np.full(len(X), 1e18)])).labels_
    np.testing.assert_array_equal(same, flat)


@pytest.mark.slow
def test_the_choice_is_repeatable_and_does_not_depend_on_the_seed():
    for name in ("iris", "wide"):
        X = TABLES[name]()
        models = [DPMixture(random_state=s, refine=False).fit(X) for s in (0, 0, 7, None)]
        assert len({model.family_ for model in models}) == 1
        assert len({model.reason_ for model in models}) == 1
        np.testing.assert_array_equal(models[0].labels_, models[1].labels_)


# -- what is learned from a partition ----------------------------------------------------------


def loop(X, labels):
    """Return sums of squares within clusters and their degrees of freedom, entry by entry."""
    width = X.shape[1]
    squares, freedom = np.zeros((width, width)), np.zeros(width)
    for k in set(labels.tolist()):
        rows = X[labels == k]
        for d in range(width):
            there = [x for x in rows[:, d] if not np.isnan(x)]
            freedom[d] += max(len(there) - 1, 0)
        means = [np.mean([x for x in column if not np.isnan(x)] or [0.0]) for column in rows.T]
        for row in rows:
            rest = np.where(np.isnan(row), 0.0, row - means)
            squares += np.outer(rest, rest)
    return squares, np.maximum(freedom, 1.0)


def test_pooled_covariance():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 40):
        X = rng.normal(size=(n, 3)) + 100.0
        labels = np.unique(rng.integers(4, size=n), return_inverse=True)[1]
        squares, freedom = loop(X, labels)
        np.testing.assert_allclose(pooled_covariance(X, labels), squares / freedom, atol=1e-12)
        np.testing.assert_allclose(
            pooled_variance(X, labels), np.diag(squares) / freedom, atol=1e-12
        )
        X[rng.random(X.shape) < 0.4] = np.nan
        squares, freedom = loop(X, labels)
        np.testing.assert_allclose(
            pooled_variance(X, labels), np.diag(squares) / freedom, atol=1e-12
        )


STRENGTH = {
    "diagonal_gaussian": lambda f, t: f.with_parameters(prior_strength=t),
    "full_gaussian": lambda f, t: f.with_parameters(prior_strength=t),
    "projected_gaussian": lambda f, t: f.with_parameters(prior_strength=t),
    "multinomial": lambda f, t: families.Multinomial(t),
    "bernoulli": lambda f, t: families.Bernoulli(t, t),
    "categorical": lambda f, t: f.with_parameters(concentration=t),
    "poisson": lambda f, t: families.Poisson(t, tuple(t * np.array(f.rate) / f.shape)),
}


def partitioned(name, rng):
    labels = np.unique(rng.integers(rng.integers(1, 6), size=60), return_inverse=True)[1]
    centres = rng.normal(size=(6, 4))[labels]
    if name.endswith("gaussian"):
        return centres * np.exp(rng.uniform(-3, 3)) + rng.normal(size=(60, 4)), labels
    if name in ("multinomial", "poisson"):
        return rng.poisson(np.exp(1.0 + centres)).astype(float), labels
    return (rng.random((60, 4)) < 1.0 / (1.0 + np.exp(2.0 * centres))).astype(float), labels


@pytest.mark.parametrize("name", STRENGTH)
def test_what_is_learned_is_the_best_of_a_dense_grid(name):
    """Within 0.05 nats, as the method stops 2 % short of the bounds."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        X, labels = partitioned(name, rng)
        start = families.by_name(name).suggest(X).resolve(X)
        learned = start.learned(X, labels)
        bounds = STRENGTHS if name.endswith("gaussian") else CONCENTRATIONS
        grid = [
            log_joint(X, labels, STRENGTH[name](learned, float(t)), AUTO)
            for t in np.geomspace(*bounds, 40)
        ]
        found = log_joint(X, labels, learned, AUTO)
        assert found >= max(grid) - 0.05
        assert found > min(grid)  # the grid has something to find


def test_the_learned_spread_is_the_moment_estimate():
    X, labels = partitioned("full_gaussian", np.random.default_rng(3))
    total = X.var(axis=0)
    full = families.FullGaussian.suggest(X)
    np.testing.assert_allclose(np.array(full.scale) / 4, np.diag(WITHIN * total))
    want = (1 - FLOOR) * pooled_covariance(X, labels) + FLOOR * np.diag(total)
    np.testing.assert_allclose(np.array(full.learned(X, labels).scale) / 4, want)
    assert full.degrees == 9.0  # Ψ/(ν − D − 1), the mean covariance, divides by 4
    known = families.Gaussian.suggest(X).learned(X, labels)
    np.testing.assert_allclose(np.add(known.prior_variance, known.noise_variance), total)


def test_a_round_that_is_worse_is_not_kept(monkeypatch):
    X = load_iris().data
    start = families.FullGaussian.suggest(X).resolve(X)
    better = learn(X, start, AUTO)
    assert better.family != start
    monkeypatch.setattr(
        families.FullGaussian, "learned", lambda self, X, labels: self.rescaled({"scale": 1e6})
    )
    kept = learn(X, start, AUTO)
    assert kept.family == start
    values = [log_joint(X, found.labels, found.family, AUTO) for found in (better, kept)]
    assert values[0] > values[1]


# -- the choice --------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
MANY_ZEROS = RNG.poisson(0.4, size=(80, 6)).astype(float)
BINARY = (RNG.random((80, 6)) < 0.4).astype(float)
NUMBERS = RNG.normal(size=(80, 6))
SLANT = 0.3 * np.eye(6) + np.ones((6, 6))
CHOICES = {
    "counts": (MANY_ZEROS, "multinomial", "counts, most of them 0"),
    "large counts": (RNG.poisson(30.0, size=(80, 6)), "diagonal_gaussian", "6 columns, indep"),
    "binary": (BINARY, "bernoulli", "all values are 0 or 1"),
    "binary with gaps": (np.where(RNG.random((80, 6)) < 0.1, np.nan, BINARY), "bernoulli", "0 or"),
    "all zero": (np.zeros((80, 6)), "full_gaussian", "numbers"),
    "sparse counts": (sp.csr_matrix(MANY_ZEROS), "multinomial", "a sparse table of counts"),
    "sparse binary": (sp.csr_matrix(BINARY), "bernoulli", "a sparse table of zeros and ones"),
    "sparse, empty": (sp.csr_matrix((9, 4)), "multinomial", "sparse"),
    "numbers": (NUMBERS, "diagonal_gaussian", "numbers in 6 columns, independent"),
    "correlated": (NUMBERS @ SLANT, "full_gaussian", "numbers in 6 columns"),
    "wide": (RNG.normal(size=(300, 33)), "projected_gaussian", "33 columns are many"),
    "not too wide": (RNG.normal(size=(528, 32)), "diagonal_gaussian", "numbers in 32 columns"),
    "few rows": (NUMBERS[:29], "diagonal_gaussian", "29 rows are few"),
    "rows enough": ((NUMBERS @ SLANT)[:30], "full_gaussian", "numbers in 6 columns"),
    "few rows, more columns": (
        RNG.normal(size=(160, 32)),
        "projected_gaussian",
        "160 rows are few",
    ),
    "one column": (NUMBERS[:, :1], "full_gaussian", "numbers in 1 column"),
    "one column, few rows": (NUMBERS[:3, :1], "full_gaussian", "numbers in 1 column"),
    "one column of 0 and 1": (BINARY[:, :1], "full_gaussian", "numbers in 1 column"),
    "gaps": (
        np.where(BINARY > 0, np.nan, NUMBERS)[:29],
        "diagonal_gaussian",
        "gaps that are skipped",
    ),
    "correlated, with gaps": (
        np.where(BINARY > 0, np.nan, NUMBERS @ SLANT),
        "full_gaussian",
        "with missing values filled in",
    ),
    "constant": (np.full((40, 3), 2.5), "full_gaussian", "numbers"),
}


def plain_name(family):
    return family.family.name if family.name == "with_gaps" else family.name


@pytest.mark.parametrize("case", CHOICES)
def test_the_family_chosen_and_why(case):
    X, name, reason = CHOICES[case]
    model = DPMixture(random_state=0).fit(X)
    assert plain_name(model.family_) == name
    assert reason in model.reason_


def test_numbers_that_are_sparse_are_refused_with_advice():
    with pytest.raises(DataError, match="not counts.*toarray.*TruncatedSVD"):
        DPMixture().fit(sp.csr_matrix(NUMBERS))


def test_mixed_frames():
    frame = pd.DataFrame({"x": NUMBERS[:, 0], "y": NUMBERS[:, 1], "b": BINARY[:, 0] > 0})
    frame["c"] = np.array(["a", "b", "c"])[np.arange(80) % 3]
    model = DPMixture(random_state=0).fit(frame)
    assert model.family_.name == "product"
    assert model.reason_ == ("columns of several kinds: 2 numeric, 1 yes/no, 1 categorical")
    alone = DPMixture(random_state=0).fit(frame[["c"]])
    assert (alone.family_.name, alone.reason_) == ("categorical", "a table of categories")
    assert DPMixture("poisson").fit(MANY_ZEROS).reason_ == "as named"
    assert DPMixture(families.Poisson()).fit(MANY_ZEROS).reason_ == "as given"


def test_the_reason_is_printed_and_kept_in_files(tmp_path, capsys):
    model = DPMixture(random_state=0, verbose=1).fit(TABLES["wide"]())
    said = capsys.readouterr().out
    assert said.startswith(f"dpsearch: projected_gaussian family ({model.reason_}); ")
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.reason_ == model.reason_
    assert pickle.loads(pickle.dumps(model)).reason_ == model.reason_


# -- small, large and awkward tables -----------------------------------------------------------


@pytest.mark.parametrize("n_rows", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 5, 40])
def test_tiny_tables(n_rows, width):
    X = np.random.default_rng(0).normal(size=(n_rows, width))
    model = DPMixture(random_state=0).fit(X)
    assert len(model.labels_) == n_rows
    assert np.isfinite(model.log_joint_)
    assert np.isfinite(model.score_samples(X + 1.0)).all()


def test_duplicates_stay_together():
    X, _ = clusters(30, 2)
    doubled = np.repeat(X, 10, axis=0)
    labels = DPMixture(random_state=0).fit(doubled).labels_.reshape(30, 10)
    assert (labels == labels[:, :1]).all()
    same = DPMixture(random_state=0).fit(np.tile(X[:1], (50, 1)))
    assert same.n_clusters_ == 1


@pytest.mark.slow
@pytest.mark.parametrize("gap", [False, True])
def test_what_a_sample_teaches_is_carried_to_all_rows(gap):
    X, truth = clusters(5000, 3, spread=20.0)
    if gap:  # in one row that the sample leaves out
        taken = np.random.default_rng(0).choice(5000, size=2000, replace=False)
        X[np.setdiff1d(np.arange(5000), taken)[0], 1] = np.nan
    choice = choose(X, "auto", AUTO)
    assert len(choice.labels) == 5000
    assert adjusted_rand_score(choice.labels, truth) == 1.0
    assert set(choice.labels) == set(range(4))
    assert choose(X, "auto", AUTO).family == choice.family  # the same sample every time


def test_a_column_that_varies_outside_the_sample_alone():
    X, _ = clusters(3000, 3, spread=20.0)
    left = np.setdiff1d(
        np.arange(3000), np.random.default_rng(0).choice(3000, size=2000, replace=False)
    )
    X[:, 1] = 1.0
    X[left[:5], 1] = [1.5, 0.5, 1.2, 0.9, 0.7]
    scale = np.array([1.0, 1e5, 1.0])
    one, other = (DPMixture(random_state=0).fit(x) for x in (X, X * scale))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_allclose(
        other.family_.scale, np.array(one.family_.scale) * np.outer(scale, scale), rtol=1e-6
    )


def test_a_prior_that_is_not_of_product_form():
    X, truth = clusters(60, 2, spread=20.0)
    prior = priors.AntoniakCounts(1.0)
    model = DPMixture(alpha=prior, random_state=0).fit(X)
    assert model.log_joint_ == pytest.approx(
        log_joint(X, model.component_labels_, model.family_, prior)
    )
    assert adjusted_rand_score(model.labels_, truth) > 0.8


def test_weights_are_copies():
    X, _ = clusters(80, 2)
    weights = np.random.default_rng(0).integers(0, 4, size=80)
    weighted = DPMixture(random_state=0).fit(X, sample_weight=weights)
    repeated = DPMixture(random_state=0).fit(np.repeat(X, weights, axis=0))
    assert weighted.family_ == repeated.family_
    assert weighted.reason_ == repeated.reason_
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weights), repeated.labels_)


def test_certificates_of_families_that_were_learned():
    X, _ = clusters(12, 1, n_clusters=2)
    for name in ("auto", "gaussian"):
        model = DPMixture(name, random_state=0, certify=2.0).fit(X)
        bound = model.clustering_.upper_bound
        assert model.log_joint_ <= bound + 1e-9
        value = log_joint(X, model.component_labels_, model.family_, AUTO)
        assert value == pytest.approx(model.log_joint_)


def test_learning_takes_seconds():
    X, _ = clusters(10_000, 16, n_clusters=10)
    learn(X[:100], families.FullGaussian.suggest(X[:100]).resolve(X), AUTO)  # compiles
    begin = time.process_time()
    learn(X, families.FullGaussian.suggest(X).resolve(X), AUTO)
    assert time.process_time() - begin < 10.0


# -- projections -------------------------------------------------------------------------------


def components(X):
    return np.array(families.ProjectedGaussian.suggest(X).components)


def test_projections_are_principal_components():
    for n_rows, width in ((200, 40), (50, 40), (60, 300)):
        X = clusters(n_rows, width)[0] * np.arange(1.0, width + 1.0)
        standard = (X - X.mean(axis=0)) / X.std(axis=0)
        _, lengths, right = np.linalg.svd(standard, full_matrices=False)
        got = components(X) * X.std(axis=0)
        wanted = len(got)
        assert 1 <= wanted <= min(20, n_rows // 15)
        np.testing.assert_allclose(np.abs((got * right[:wanted]).sum(axis=1)), 1.0, rtol=1e-6)
        Z = families.ProjectedGaussian.suggest(X).project(X)
        np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(Z.var(axis=0), lengths[:wanted] ** 2 / n_rows, rtol=1e-6)


def test_columns_that_are_constant_or_collinear_have_no_component_of_their_own():
    X, _ = clusters(200, 3)
    wide = np.column_stack([X, X @ np.random.default_rng(0).normal(size=(3, 40)), np.ones(200)])
    found = components(wide)
    assert found.shape == (3, 44)
    assert (found[:, -1] == 0.0).all()
    for table in (np.ones((2, 40)), np.ones((50, 40))):
        found = components(table)
        assert found.shape == (1, 40)
        assert np.abs(found).sum() > 0.0


def test_projected_models_come_back_from_files(tmp_path):
    X = TABLES["wide"]()
    model = DPMixture(random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    for again in (load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert again.family_ == model.family_
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-10)
    assert families.from_dict(model.family_.to_dict()) == model.family_
    assert model.sample(3)[0].shape == (3, 60)
    assert set(model.family_.hyperparameters()) == {
        "prior_mean",
        "prior_strength",
        "degrees",
        "scale",
    }


# -- families side by side ---------------------------------------------------------------------


def test_compare():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2)) @ [[1.0, 0.9], [0.0, 0.3]]
    found = compare(X, ["diagonal_gaussian", families.FullGaussian(), "gaussian"], random_state=0)
    assert sorted(f.log_joint for f in found) == [f.log_joint for f in found][::-1]
    assert found[0].family.name == "full_gaussian"
    for family, value, n_clusters, model in found:
        assert value == pytest.approx(log_joint(X, model.component_labels_, family, AUTO))
        assert n_clusters == model.n_clusters_


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gaussian", "list of two or more"),
        (["gaussian"], "list of two or more"),
        ([], "list of two or more"),
        (None, "list of two or more"),
        (["gaussian", "auto"], "'auto' may choose any family"),
        (["gaussian", "gausian"], "no family 'gausian'"),
        (["gaussian", 3], "names or families, got 3"),
        (["gaussian", "poisson"], "gaussian and poisson cannot be compared"),
        (["poisson", "multinomial"], "probabilities and probabilities given row totals"),
        (["gaussian", "projected_gaussian"], "models only projections"),
        (
            ["gaussian", families.Product([(families.Gaussian(), [0]), (families.Poisson(), [1])])],
            "for column 1 they give densities of numbers and probabilities",
        ),
    ],
)
def test_what_does_not_compare(given, message):
    with pytest.raises(ParameterError, match=message):
        compare([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]], given)


def test_products_compare_column_by_column():
    X = np.column_stack([NUMBERS[:, 0], MANY_ZEROS[:, 0]])
    one = families.Product([(families.Gaussian(), [0]), (families.Poisson(), [1])])
    other = families.Product([(families.DiagonalGaussian(), [0]), (families.Categorical(), [1])])
    assert len(compare(X, [one, other], random_state=0)) == 2
