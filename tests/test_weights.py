"""A weight means repetition: the log joint is the same for every family and partition."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import naive
from dpsearch import DPMixture, families, load, priors
from dpsearch.errors import CapabilityError, DataError, ModelFileError
from dpsearch.partition import all_partitions
from dpsearch.problem import Problem
from dpsearch.state import State
from dpsearch.weights import copies_of, with_decisive_rows
from models import DRAWS, PRODUCT_PRIORS


def naive_log_joint(family, X, labels, prior):
    """Return the log joint of rows, computed block by block."""
    blocks = [X[labels == k] for k in np.unique(labels)]
    value = sum(naive.log_marginal(family, block) for block in blocks)
    return value + prior.log_probability([len(block) for block in blocks])


def weighted_problem(name, seed=0, n=5):
    """Return a small problem with weights, and its rows."""
    rng = np.random.default_rng(seed)
    family, X = DRAWS[name](rng, n)
    weights = rng.integers(1, 5, size=n)
    prior = PRODUCT_PRIORS[seed % len(PRODUCT_PRIORS)]
    return Problem(X, family, prior, weights=weights), X, weights


def equals_repetition(problem, X, weights):
    """Check that every partition has the log joint of the repeated rows."""
    family, rows = problem.model.family, X.repeat(weights, axis=0)
    return all(
        np.isclose(
            problem.log_joint(labels),
            naive_log_joint(family, rows, labels.repeat(weights), problem.prior),
            rtol=1e-9,
        )
        for labels in all_partitions(len(X))
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", DRAWS)
def test_every_partition_has_the_log_joint_of_repeated_rows(name, seed):
    problem, X, weights = weighted_problem(name, seed)
    assert equals_repetition(problem, X, weights)


def test_that_check_can_fail():
    problem, X, weights = weighted_problem("multinomial")
    problem.log_base += 1.0  # coefficients not counted as often as rows
    assert not equals_repetition(problem, X, weights)
    problem, X, weights = weighted_problem("gaussian")
    problem.items = problem.items._replace(sizes=np.ones_like(weights))
    assert not equals_repetition(problem, X, weights)


@pytest.mark.parametrize("name", DRAWS)
def test_search_and_refinement_find_the_best(name):
    problem, X, weights = weighted_problem(name, seed=3, n=6)
    model = DPMixture(problem.model.family, problem.prior, random_state=0)
    model.fit(X, sample_weight=weights)
    best = max(problem.log_joint(labels) for labels in all_partitions(6))
    assert np.isclose(model.log_joint_, best, rtol=1e-9)
    assert model.clustering_.sizes.tolist() == np.bincount(model.labels_, weights).tolist()


@pytest.mark.parametrize("name", DRAWS)
def test_statistics_stay_right_while_rows_move(name):
    rng = np.random.default_rng(4)
    family, X = DRAWS[name](rng, 40)
    problem = Problem(X, family, PRODUCT_PRIORS[0], weights=rng.integers(1, 4, size=40))
    state = State(problem, rng.integers(6, size=40))
    for _ in range(3):
        before = state.log_joint
        moved = state.sweep(rng.permutation(40))
        assert np.isclose(state.log_joint, problem.log_joint(state.labels), rtol=1e-9)
        assert state.log_joint >= before - 1e-9
        if not moved:
            break


def test_numbers_of_equal_clusters_do_not_depend_on_the_order_of_rows():
    X = np.repeat([[0.0], [9.0], [5.0]], 4, axis=0) + np.linspace(0.0, 0.3, 12)[:, None]
    family = families.Gaussian(0.0, 25.0, 0.1)
    order = np.random.default_rng(0).permutation(12)
    first, second = DPMixture(family).fit(X), DPMixture(family).fit(X[order])
    assert first.n_clusters_ == 3
    assert np.array_equal(first.labels_[order], second.labels_)


GAUSSIAN = families.Gaussian(0.0, 25.0, 1.0)


def table(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) + 8.0 * rng.integers(2, size=n)[:, None]
    return X, rng.integers(0, 4, size=n)


def test_rows_of_weight_zero_take_no_part():
    X, weights = table()
    model = DPMixture(GAUSSIAN, random_state=0).fit(X, sample_weight=weights)
    seen = weights > 0
    other = DPMixture(GAUSSIAN, random_state=0).fit(X[seen], sample_weight=weights[seen])
    assert model.log_joint_ == other.log_joint_
    assert np.array_equal(model.labels_[seen], other.labels_)
    assert np.array_equal(model.labels_[~seen], other.predict(X[~seen]))
    assert np.array_equal(model.labels_, model.clustering_.labels)
    assert len(model.labels_) == len(X)


def test_a_fit_with_weights_is_no_worse_than_a_fit_of_the_copies():
    """Heavy rows move as a whole, which alone would end 3.8 nats below the copies here."""
    rng = np.random.default_rng(39)
    n, k = int(rng.integers(15, 80)), int(rng.integers(2, 6))
    labels, weights = rng.integers(k, size=n), rng.integers(1, 6, size=n)
    X = (rng.random((n, 8)) < rng.beta(0.5, 0.5, size=(k, 8))[labels]).astype(float)
    family = families.Bernoulli(0.5, 0.5)
    model = DPMixture(family, 1.0).fit(X, sample_weight=weights)
    copies = DPMixture(family, 1.0).fit(X.repeat(weights, axis=0))
    assert model.log_joint_ >= copies.log_joint_ - 1e-9


def test_weights_of_one_change_nothing():
    X, _ = table()
    plain = DPMixture(random_state=0).fit(X)
    weighted = DPMixture(random_state=0).fit(X, sample_weight=np.ones(len(X)))
    assert plain.log_joint_ == weighted.log_joint_
    assert np.array_equal(plain.labels_, weighted.labels_)


@pytest.mark.parametrize("family", ["auto", "gaussian", "poisson"])
def test_hyperparameters_are_those_of_the_repeated_rows(family):
    X, weights = table()
    X = np.abs(np.round(X))
    model = DPMixture(family, random_state=0).fit(X, sample_weight=weights)
    other = DPMixture(family, random_state=0).fit(X.repeat(weights, axis=0))
    assert repr(model.family_) == repr(other.family_)


def test_sparse_rows():
    X = np.random.default_rng(0).poisson(2.0, size=(30, 4)).astype(float)
    weights = np.arange(30) % 4
    family = families.Multinomial(0.5)
    dense = DPMixture(family, random_state=0).fit(X, sample_weight=weights)
    sparse = DPMixture(family, random_state=0).fit(sp.csr_matrix(X), sample_weight=weights)
    assert np.isclose(dense.log_joint_, sparse.log_joint_)


def test_equal_rows_are_not_merged():
    assert Problem(np.ones((7, 2)), GAUSSIAN, priors.DirichletProcess(1.0)).n_items == 7


def test_very_many_copies_are_chosen_evenly():
    weights = np.array([1, 10**6, 3 * 10**6, 0])
    counts = np.bincount(copies_of(weights), minlength=4)
    assert counts.sum() == 5000
    assert np.abs(counts - 5000 * weights / weights.sum()).max() <= 1


HEAVY = [100_000] * 12 + [1]


def rare(row):
    """Return twelve rows of 0 and 1 with large weights, and one more."""
    return np.vstack([np.tile([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], (3, 1)), row])


@pytest.mark.parametrize(
    ("family", "row", "chosen"),
    [
        ("categorical", [9.0, 0.0], "categorical"),
        ("auto", [1.0, 1.0], "bernoulli"),
        ("auto", [3.0, 0.0], "multinomial"),
        ("auto", [0.5, 0.0], "product"),
        ("auto", [-1.0, 0.0], "product"),
        ("auto", [np.nan, 0.0], "with_gaps"),
    ],
)
def test_a_rare_row_is_known_to_the_choice(family, row, chosen):
    X = rare(row)
    assert 12 not in copies_of(np.array(HEAVY))
    model = DPMixture(family, random_state=0).fit(X, sample_weight=HEAVY)
    assert model.family_.name == chosen
    assert len(model.predict(X)) == 13


def test_a_rare_count_of_a_sparse_table_is_known_to_the_choice():
    X = sp.csr_matrix(rare([3.0, 0.0]))
    model = DPMixture(random_state=0).fit(X, sample_weight=HEAVY)
    assert model.family_.name == "multinomial"


@pytest.mark.slow
def test_rare_numbers_among_numbers_do_not_weigh_more_than_they_should():
    X = np.random.default_rng(0).normal(size=(13, 2))
    X[12] = 1e6
    copies = copies_of(np.array(HEAVY))
    assert np.array_equal(with_decisive_rows(copies, X), copies)
    assert np.array_equal(with_decisive_rows(np.arange(12), rare([9.0, 0.0])), np.arange(13))
    plain = rare([1.0, 1.0])
    assert np.array_equal(with_decisive_rows(np.arange(4, 12), plain), np.arange(4, 12))
    X[12] = [np.nan, 0.0]  # but a gap is news
    model = DPMixture(random_state=0).fit(X, sample_weight=HEAVY)
    assert model.family_.predicts_gaps


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 0.5], r"sample_weight\[2\] is 0.5: .* integer"),
        ([1, -2, 3], r"sample_weight\[1\] is -2"),
        ([1, np.nan, 3], r"sample_weight\[1\] is nan"),
        ([1, np.inf, 3], r"sample_weight\[1\] is inf"),
        ([0, 0, 0], "zero for every row"),
        ([1, 2], r"shape \(2,\), but X has 3 rows"),
        ([[1], [2], [3]], r"shape \(3, 1\)"),
        (["a", "b", "c"], "sample_weight must be"),
        (["1", "2", "3"], "sample_weight must be integers"),
        ([2**40, 1, 1], r"above 1.1e\+12"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(DataError, match=message):
        DPMixture(GAUSSIAN).fit([[0.0], [1.0], [2.0]], sample_weight=weights)


def test_a_row_of_weight_zero_is_checked_before_the_search():
    with pytest.raises(DataError, match="codes below"):
        DPMixture(families.Categorical()).fit([[0], [1], [2]], sample_weight=[1, 1, 0])


def test_pandas_weights():
    frame = pd.DataFrame({"a": [0.0, 0.1, 9.0], "n": [2, 1, 3]})
    model = DPMixture(GAUSSIAN).fit(frame[["a"]], sample_weight=frame["n"])
    assert model.clustering_.sizes.tolist() == [3, 3]


def test_solvers_of_single_points_refuse_weights():
    X, weights = table()
    message = "needs single points, not rows with weights"
    with pytest.raises(CapabilityError, match="certify " + message):
        DPMixture(GAUSSIAN, certify=True).fit(X, sample_weight=weights)
    with pytest.raises(CapabilityError, match="AntoniakCounts " + message):
        DPMixture(GAUSSIAN, priors.AntoniakCounts(1.0)).fit(X, sample_weight=weights)
    small = np.minimum(weights, 1)
    model = DPMixture(GAUSSIAN, 1.0, certify=20.0).fit(X[:30], sample_weight=small[:30])
    assert model.clustering_.optimal  # single points, some left out


def test_files_and_pickles_keep_weights(tmp_path):
    X, weights = table()
    model = DPMixture(GAUSSIAN, random_state=0).fit(X, sample_weight=weights)
    model.save(tmp_path / "model.npz")
    for other in (load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(other.sample_weight_, weights)
        assert np.array_equal(other.clustering_.sizes, model.clustering_.sizes)
        assert np.array_equal(other.predict(X), model.predict(X))


@pytest.mark.parametrize("change", ["other", "fewer", "negative", "huge"])
def test_a_file_with_wrong_weights_is_refused(tmp_path, change):
    X, weights = table()
    path = tmp_path / "model.npz"
    DPMixture(GAUSSIAN, random_state=0).fit(X, sample_weight=weights).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    wrong = arrays["weights"]
    if change == "fewer":
        wrong = wrong[1:]
    else:
        wrong[0] += {"other": 1, "negative": -99, "huge": 10**15}[change]
        arrays["sizes"][arrays["labels"][0]] += 10**15 if change == "huge" else 0
    np.savez(path, **arrays | {"weights": wrong})
    with pytest.raises(ModelFileError, match=re.escape(str(path))):
        load(path)
