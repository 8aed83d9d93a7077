"""New values outside the support of an automatically chosen family."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dpsearch import DPMixture
from dpsearch.errors import DataError, OutsideSupportWarning


def _incomes(n=300):
    return np.random.default_rng(0).lognormal(10.0, 1.0, size=(n, 2))


def _ratings(n=300):
    rng = np.random.default_rng(1)
    return np.column_stack([rng.integers(1, 5, n), np.rint(rng.normal(100.0, 9.0, n))]).astype(
        float
    )


def _with_gaps(X, *cells):
    """Return rows with some values outside the support, and the same with gaps there."""
    bad, gaps = X[:9].copy(), X[:9].copy()
    for row, column, value in cells:
        bad[row, column], gaps[row, column] = value, np.nan
    return bad, gaps


@pytest.mark.parametrize(
    ("make", "cells"),
    [
        (_incomes, [(3, 0, 0.0), (5, 0, -2.0), (6, 1, -1.0)]),
        (_ratings, [(2, 0, 9.0), (4, 0, 2.5), (7, 1, 90.5)]),
    ],
)
def test_they_are_gaps_and_a_warning_names_them(make, cells):
    X = make()
    model = DPMixture(random_state=0).fit(X)
    bad, gaps = _with_gaps(X, *cells)
    for method in ("predict", "predict_components", "predict_proba", "score_samples"):
        with pytest.warns(OutsideSupportWarning) as said:
            found = getattr(model, method)(bad)
        np.testing.assert_allclose(found, getattr(model, method)(gaps))
        row, column, value = cells[0]
        texts = [str(one.message) for one in said]
        assert any(f"'column {column}'" in text and f"{value:g} in row {row}:" in text
                   for text in texts)  # fmt: skip
        assert sum(one.message.count for one in said) == len(cells)


def test_the_row_is_counted_from_the_first_of_all_blocks(monkeypatch):
    X = _incomes()
    model = DPMixture(random_state=0).fit(X)
    monkeypatch.setattr("dpsearch.fitted_methods._BLOCK", 30)
    bad = X[:40].copy()
    bad[33, 1] = -5.0
    with pytest.warns(OutsideSupportWarning, match="cannot hold, -5 in row 33"):
        model.predict(bad)


def test_frames_and_streams_take_them_too():
    X = pd.DataFrame(_incomes(), columns=["income", "wealth"])
    model = DPMixture(random_state=0).fit(X)
    bad = X.iloc[:30].copy()
    bad.loc[4, "wealth"] = 0.0
    with pytest.warns(OutsideSupportWarning, match="'wealth' has 1 value .*, 0 in row 4: it is"):
        assert model.predict_proba(bad).shape == (30, 1)
    with pytest.warns(OutsideSupportWarning, match="wealth"):
        model.partial_fit(bad)
    assert model.mixture_.sizes.sum() == 330


def test_a_value_that_others_follow_from():
    X = _incomes()
    X = np.column_stack([X, X.sum(axis=1)])
    model = DPMixture(random_state=0).fit(X)
    assert model.family_.name == "derived"
    bad, gaps = _with_gaps(X, (3, 0, -2.0))
    gaps[3, 2] = np.nan
    with pytest.warns(OutsideSupportWarning, match="'column 0' has 1 value"):
        found = model.score_samples(bad)
    np.testing.assert_allclose(found, model.score_samples(gaps))


@pytest.mark.parametrize("options", [{"family": "log_normal"}, {"handle_unknown": "error"}])
def test_values_outside_the_support_are_an_error_on_request(options):
    X = _incomes()
    model = DPMixture(random_state=0, **options).fit(X)
    bad = X[:9].copy()
    bad[3, 1] = -2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match="row 3, column 1 is -2"):
            model.predict(bad)


@pytest.mark.parametrize("options", [{"family": "log_normal"}, {"handle_unknown": "error"}])
def test_an_error_counts_rows_from_the_first_of_all_blocks(monkeypatch, options):
    X = _incomes()
    model = DPMixture(random_state=0, **options).fit(X)
    monkeypatch.setattr("dpsearch.fitted_methods._BLOCK", 30)
    bad = X[:40].copy()
    bad[33, 1] = -5.0
    for method in (model.predict, model.score_samples):
        with pytest.raises(DataError, match="row 33, column 1 is -5"):
            method(bad)


def _counts_with_their_sum(n=300):
    rng = np.random.default_rng(0)
    rates = rng.choice([3.0, 30.0], size=(n, 1)) * [[1.0, 2.0]]
    X = rng.negative_binomial(3, 3.0 / (3.0 + rates)).astype(float)
    return np.column_stack([X, X @ [1 / 3, 1 / 7]])


def test_counts_that_follow_from_others_are_whole():
    X = _counts_with_their_sum()
    model = DPMixture(random_state=0, handle_unknown="error").fit(X)
    kinds = [own.name for own in model.family_.by_column(3)]
    assert kinds == ["negative_binomial", "negative_binomial", "derived"]
    gaps = X[:40].copy()
    gaps[:, 0] = np.nan
    np.testing.assert_array_equal(model.score_samples(gaps), model.score_samples(X[:40]))


def test_a_value_that_would_follow_from_others_is_named():
    X = _counts_with_their_sum()
    model = DPMixture(random_state=0).fit(X)
    row = np.array([[np.nan, 7.0, -1.0]])
    with pytest.warns(OutsideSupportWarning, match="'column 0' has 1 value .*, -6 in row 0: it is"):
        found = model.score_samples(row)
    np.testing.assert_allclose(found, model.score_samples([[np.nan, 7.0, np.nan]]))


def test_sparse_rows_of_a_dense_model_are_refused():
    X = _incomes()
    model = DPMixture(random_state=0).fit(X)
    with pytest.raises(DataError, match="X is sparse"):
        model.predict(scipy.sparse.csr_array(X[:9]))


@pytest.mark.parametrize("frame", [False, True])
def test_such_rows_are_outliers_and_impute_leaves_what_was_observed(frame):
    X = _incomes()
    model = DPMixture(random_state=0).fit(pd.DataFrame(X, columns=["a", "b"]) if frame else X)
    bad, _ = _with_gaps(X, (3, 0, 0.0), (5, 1, -2.0))
    bad[7, 0] = np.nan
    rows = pd.DataFrame(bad, columns=["a", "b"]) if frame else bad
    with pytest.warns(OutsideSupportWarning):
        found = model.explain(rows)
    assert set(found.outliers) == {3, 5}
    assert found.p_value[7] > 0.01
    with pytest.warns(OutsideSupportWarning):
        filled = np.asarray(model.impute(rows))
    seen = ~np.isnan(bad)
    np.testing.assert_array_equal(filled[seen], bad[seen])
    assert filled[7, 0] > 0.0
