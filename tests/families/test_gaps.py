"""Missing values are skipped exactly: by enumeration, by quadrature, in every solver."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import softmax

import enumeration
import naive
from dpsearch import (
    DPMixture,
    certify,
    check_family,
    families,
    gibbs,
    load,
    log_joint,
    priors,
    refine,
    search,
)
from dpsearch._special import vector_log
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import Example
from dpsearch.families._columns import with_holes
from dpsearch.families.capabilities import PredictiveDraws
from dpsearch.mixture import Mixture
from dpsearch.problem import Problem
from models import DRAWS, GAPPED, draw_with_gaps, mixed
from planted import Right

DP = priors.DirichletProcess(1.0)


@pytest.mark.parametrize("name", [*GAPPED, "product"])
def test_every_partition_has_the_joint_of_the_naive_formula(name):
    family, X = mixed(5) if name == "product" else draw_with_gaps(name, 5)[:2]
    problem = Problem(X, family, DP)
    values = enumeration.log_joints(problem)
    labels, _ = enumeration.partitions(5)
    for partition, value in zip(labels, values, strict=True):
        clusters = [X[partition == k] for k in np.unique(partition)]
        want = DP.log_probability([len(cluster) for cluster in clusters])
        want += sum(naive.log_marginal(problem.model.family, cluster) for cluster in clusters)
        assert value == pytest.approx(want, rel=1e-9, abs=1e-9)
    assert len(labels) == 52


def test_a_gap_is_integrated_over():
    """The marginal with a gap is the integral of the complete marginal over the missing value."""
    family = families.DiagonalGaussian(0.3, 0.5, 1.5, 2.0)
    X = np.array([[0.4, 1.0], [math.nan, -0.7], [1.2, 0.1]])

    def complete(x):
        return math.exp(log_joint(np.where(np.isnan(X), x, X), [0, 0, 0], family, DP))

    mass = sum(quad(complete, *part)[0] for part in [(-np.inf, 0.5), (0.5, np.inf)])
    assert log_joint(X, [0, 0, 0], family, DP) == pytest.approx(math.log(mass), abs=1e-7)
    gaussian = families.Gaussian(0.3, 2.0, 0.7)
    mass, _ = quad(
        lambda x: math.exp(log_joint(np.where(np.isnan(X), x, X), [0, 1, 0], gaussian, DP)),
        -np.inf,
        np.inf,
    )
    assert log_joint(X, [0, 1, 0], gaussian, DP) == pytest.approx(math.log(mass), abs=1e-7)


def test_a_gap_in_counts_is_summed_over():
    X = np.array([[2.0, math.nan], [0.0, 4.0], [3.0, 1.0]])
    family = families.Poisson([1.5, 0.7], [0.5, 0.3])
    values = [log_joint(np.where(np.isnan(X), x, X), [0, 0, 0], family, DP) for x in range(400)]
    want = np.logaddexp.reduce(values)
    assert log_joint(X, [0, 0, 0], family, DP) == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("name", [*GAPPED, "product"])
def test_every_solver_takes_gaps(name):
    family, X = mixed(7, 1) if name == "product" else draw_with_gaps(name, 7, 1)[:2]
    best = enumeration.best(Problem(X, family, DP))
    for heuristic in ("admissible", "trivial"):
        found = search(X, family, DP, heuristic=heuristic, beam_size=None)
        assert found.log_joint == pytest.approx(best, abs=1e-9)
        assert found.optimal
    for beam_size in (1, 10):
        greedy = search(X, family, DP, beam_size=beam_size)
        assert greedy.log_joint <= best + 1e-9
        assert greedy.log_joint == pytest.approx(log_joint(X, greedy.labels, family, DP))
    refined = refine(X, greedy, family, DP, rng=0)
    assert greedy.log_joint - 1e-9 <= refined.log_joint <= best + 1e-9
    bound = certify(X, refined, family, DP, time_limit=1.0).upper_bound
    assert bound >= best - 1e-9


def test_draws_have_the_posterior_that_enumeration_gives():
    family, X = draw_with_gaps("diagonal_gaussian", 5, 3)[:2]
    problem = Problem(X, family, DP)
    labels, _ = enumeration.partitions(5)
    chances = softmax(enumeration.log_joints(problem))
    together = sum(p * (c[0] == c[1]) for p, c in zip(chances, labels, strict=True))
    draws = gibbs(X, family, DP, draws=4000, burn_in=100, rng=0)
    share = (draws.labels[:, 0] == draws.labels[:, 1]).mean()
    # Far wider than independent draws would need.
    assert abs(share - together) < 6.0 * math.sqrt(together * (1.0 - together) / 1000)
    sampled = gibbs(X, family, DP, draws=5, rng=0, hyperparameters={"scale": 0.5})
    assert len(sampled.labels) == 5


@pytest.mark.parametrize("name", [*GAPPED, "product"])
def test_a_model_of_complete_data_takes_gaps_and_the_other_way_round(name):
    if name == "product":
        family, _ = mixed(30, 2)
        rng = np.random.default_rng(0)
        complete = np.hstack([draw_with_gaps(part, 30, 2)[2] for part in GAPPED])
        X = np.where(rng.random(complete.shape) < 0.2, np.nan, complete)
    else:
        family, X, complete = draw_with_gaps(name, 30, 2)
    labels = np.arange(30) % 3
    plain = Problem(complete, family, DP)
    gapped = Problem(np.vstack([complete, X[:1] * np.nan]), family, DP)
    assert plain.model.family.name != gapped.model.family.name or name == "product"
    one = Mixture.of(plain.model, plain.items, labels, DP)
    inside, outside = one.log_joint_probabilities(X)
    for i in (0, 1, 2, 7):
        for k in range(3):
            members = complete[labels == k]
            want = naive.log_predictive(gapped.model.family, members, X[i]) + one.log_weights[k]
            assert inside[i, k] == pytest.approx(want, rel=1e-8, abs=1e-8)
        want = naive.log_marginal(gapped.model.family, X[i : i + 1]) + one.log_fresh_weight
        assert outside[i] == pytest.approx(want, rel=1e-8, abs=1e-8)
    # Complete data, with and without company that has gaps.
    np.testing.assert_allclose(
        one.log_joint_probabilities(complete)[0],
        one.log_joint_probabilities(np.vstack([complete, X]))[0][:30],
        rtol=1e-9,
    )
    # The rows of statistics of a model fitted with gaps score complete data alike.
    other = Mixture.of(gapped.model, gapped.items, np.append(labels, 0), DP)
    got = other.log_joint_probabilities(complete)[0] - other.log_weights
    np.testing.assert_allclose(
        got, one.log_joint_probabilities(complete)[0] - one.log_weights, rtol=1e-8, atol=1e-8
    )


def test_the_logarithm_that_loops_vectorise():
    rng = np.random.default_rng(0)
    x = np.concatenate([1.0 + rng.random(500), np.exp(rng.uniform(-600.0, 700.0, 500)), [1.0]])
    got = np.array([vector_log(value) for value in x])
    np.testing.assert_allclose(got, np.log(x), rtol=4e-16)


# -- what cannot be done -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full_gaussian", "multinomial"])
def test_families_that_refuse_name_the_place_and_the_remedy(name):
    _, X = DRAWS[name](np.random.default_rng(0), 20)
    family = families.by_name(name)()
    model = DPMixture(family).fit(X)
    X[4, 0] = np.nan
    said = "row 4, column 0 is missing.*diagonal_gaussian"
    for call in (DPMixture(family).fit, DPMixture(name).fit):
        with pytest.raises(DataError, match=said):
            call(X)
    for call in (model.predict, model.impute):
        if family.predicts_gaps:
            assert np.isfinite(call(X)).all()
        else:
            with pytest.raises(DataError, match=said):
                call(X)
    product = families.Product([(family, range(X.shape[1])), (families.Poisson(), X.shape[1])])
    wide = np.column_stack([X, np.arange(20)])
    with pytest.raises(DataError, match=f"row 4, column 0 is missing, but the {name}"):
        search(wide, product, DP)
    with pytest.raises(ParameterError, match="cannot skip missing values"):
        families.WithGaps(family)


def test_a_column_without_values_is_named():
    X = np.ones((4, 3))
    X[:, 1] = np.nan
    with pytest.raises(DataError, match="column 1 of X has no values"):
        DPMixture().fit(X)


def test_a_row_without_values_changes_nothing_but_the_prior():
    family, X = draw_with_gaps("gaussian", 6)[:2]
    empty = np.vstack([X, np.full((1, X.shape[1]), np.nan)])
    labels = [0, 0, 1, 1, 2, 2]
    more = log_joint(empty, [*labels, 0], family, DP) - log_joint(X, labels, family, DP)
    assert more == pytest.approx(DP.log_probability([3, 2, 2]) - DP.log_probability([2, 2, 2]))


def test_rows_with_gaps_have_prices():
    family, X = draw_with_gaps("gaussian", 8)[:2]
    found = search(X, family, DP, heuristic="dual", beam_size=None)
    assert found.optimal
    assert found.log_joint == pytest.approx(enumeration.best(Problem(X, family, DP)), abs=1e-9)


def test_auto_takes_a_family_that_takes_gaps():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 1, (60, 3)), rng.normal(7, 1, (60, 3))])
    assert DPMixture().fit(X).family_.name == "diagonal_gaussian"
    X[rng.random(X.shape) < 0.2] = np.nan
    model = DPMixture().fit(X)
    assert model.family_.family.name == "diagonal_gaussian"
    assert model.n_clusters_ == 2
    ones = (rng.random((40, 5)) < 0.5).astype(float)
    ones[0, 0] = np.nan
    assert DPMixture().fit(ones).family_.family.name == "bernoulli"


class Trials(Right):
    """Whole numbers of trials, from 1 on."""

    name = "trials"

    def check(self, X):
        assert not np.isnan(X).any()
        self.check_support(X, X < 1.0, "numbers from 1 on")

    def encode(self, X):
        self.check(X)
        return X - 1.0

    def log_base(self, X):
        self.check(X)
        return np.zeros(len(X))

    def columns(self, row, n_features):
        found = super().columns(row, n_features)
        return found._replace(centres=found.centres + 1.0)

    def draws(self, row, n_features):
        right = super().draws(row, n_features)
        return PredictiveDraws(lambda size, rng: right.sample(size, rng) + 1.0)

    @classmethod
    def examples(cls):
        X = Right.examples()[0].X + 1.0
        return [Example(cls(), X), Example(cls(), with_holes(X))]


def test_a_family_that_refuses_zero_takes_columns_without_values():
    check_family(Trials)
    rng = np.random.default_rng(0)
    X = rng.geometric(np.repeat([[0.5], [0.02]], 40, axis=0), size=(80, 2)) * 1.0
    model = DPMixture(Trials()).fit(X)
    assert model.n_clusters_ == 2
    rows = np.array([[np.nan, 1.0], [np.nan, 90.0]])
    assert model.predict(rows).tolist() == [model.labels_[0], model.labels_[-1]]
    low, high = model.impute(rows)[:, 0]
    assert 1.0 < low < 6.0 < 30.0 < high
    assert model.outliers(rows).tolist() == []
    assert np.isfinite(model.score_samples(np.full((2, 2), np.nan))).all()
    rows[:, 0] = np.nan, -3.0
    with pytest.raises(
        DataError, match="numbers from 1 on, but X at row 1, column 0 is -3"
    ) as said:
        model.predict(rows)
    rows_of_cells, columns, values = map(list, said.value.cells)
    assert (rows_of_cells, columns, values) == ([1], [0], [-3.0])


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "bernoulli", "categorical"])
def test_gaps_before_a_value_that_is_refused_are_not_named(name):
    X = np.random.default_rng(0).integers(2, size=(20, 2)) * 1.0
    model = DPMixture(name).fit(X)
    with pytest.raises(DataError, match="X at row 2, column 1 is -1") as said:
        model.predict([[1.0, np.nan], [np.nan, np.nan], [0.0, -1.0], [1.0, np.nan]])
    assert list(said.value.cells[0]) == [2]


# -- impute ------------------------------------------------------------------------------------


def test_imputed_values_by_hand():
    """Compare with the formulas for the weights and means of one cluster and a new one."""
    family = families.Gaussian(0.0, 4.0, 1.0)
    X = np.array([[1.0, 2.0], [2.0, 2.5], [1.5, 1.0]])
    model = DPMixture(family, alpha=0.5, refine=False).fit(X)
    assert model.n_clusters_ == 1
    row = np.array([[1.2, math.nan]])
    precision = 1.0 / 4.0 + 3.0
    means = X.sum(axis=0) / precision
    inside = 3.0 * stats.norm(means[0], math.sqrt(1.0 + 1.0 / precision)).pdf(1.2)
    outside = 0.5 * stats.norm(0.0, math.sqrt(5.0)).pdf(1.2)
    want = inside / (inside + outside) * means[1]
    assert model.impute(row)[0, 1] == pytest.approx(want)
    assert model.impute(row)[0, 0] == 1.2
    assert np.isnan(row[0, 1])


@pytest.mark.parametrize("name", GAPPED)
def test_imputed_values_are_those_of_draws(name):
    """Compare with draws from the predictive, weighted by the density of the observed values."""
    family, _, X = draw_with_gaps(name, 40, 4)
    if name == "diagonal_gaussian":
        family = family.with_parameters(shape=3.0)  # whose draws have a mean and a variance
    model = DPMixture(family, random_state=0).fit(X)
    row = X[:1].copy()
    row[0, 1] = np.nan
    model.set_params(random_state=1)
    inside, outside = model.mixture_.log_joint_probabilities(row)
    weights = softmax(np.append(inside[0], outside))
    rng = np.random.default_rng(0)
    counts = rng.multinomial(40_000, weights)
    mixture = model.mixture_
    rows = [mixture.row(k) for k in range(model.n_clusters_)] + [mixture.model.empty_row()]
    drawn = np.concatenate(
        [
            model.family_.draws(cluster, X.shape[1]).sample(int(count), rng)[:, 1]
            for cluster, count in zip(rows, counts, strict=True)
            if count
        ]
    )
    got = model.impute(row)[0, 1]
    if name in ("bernoulli", "categorical"):
        assert got == np.bincount(drawn.astype(int)).argmax()
    else:
        assert abs(got - drawn.mean()) < 6.0 * drawn.std() / 200.0


def test_a_column_of_one_level_is_filled_with_it():
    family = families.Categorical(1.0, (1, 3))
    X = np.array([[0.0, 1.0], [0.0, 2.0], [np.nan, 1.0]])
    assert DPMixture(family).fit(X).impute(X)[2, 0] == 0.0


def test_impute_leaves_complete_data_as_they_are():
    _, _, X = draw_with_gaps("gaussian", 20)
    model = DPMixture("gaussian").fit(X)
    assert np.array_equal(model.impute(X), X)
    assert model.impute(X) is not X


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["diagonal_gaussian", "categorical", "product"])
def test_model_files_of_data_with_gaps(name, tmp_path):
    family, X = mixed(20) if name == "product" else draw_with_gaps(name, 20)[:2]
    model = DPMixture(family).fit(X)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.family_.to_dict() == model.family_.to_dict()
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(again.impute(X), model.impute(X), rtol=1e-12)
    # Addresses of functions belong to a process, and are in no file.
    with np.load(tmp_path / "model.npz") as entries:
        tree = {f"tree_{part}" for part in ("merges", "heights", "log_lift", "log_weights")}
        tree |= {"tree_agreement", "groups"}
        known = {"about", "pool", "sizes", "labels", "weights"}
        assert set(entries.files) <= known | tree
        assert set(entries.files) >= tree
