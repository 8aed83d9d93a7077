"""`DPMixture` with a device fits a sample first, then all rows where they are."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

from dpsearch import DPMixture, Problem, families, log_joint, priors
from dpsearch.errors import DataError, ParameterError
from dpsearch.passes import device_fit

N, K = 3000, 4


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(device_fit, "SAMPLE_ROWS", 400)
    monkeypatch.setattr(device_fit, "_CHECKED", 1000)


def planted() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    truth = rng.integers(K, size=N)
    return 30.0 * rng.normal(size=(K, 2))[truth] + rng.normal(size=(N, 2)), truth


def arrays(X: Any) -> list[Any]:
    try:
        import torch
    except ImportError:
        return [X, array_api_strict.asarray(X)]
    return [X, array_api_strict.asarray(X), torch.asarray(X)]


def same(truth: Any, labels: Any) -> bool:
    """Whether two partitions are the same."""
    pairs = {*zip(truth.tolist(), labels.tolist(), strict=True)}
    return len(pairs) == len(np.unique(truth)) == len(np.unique(labels))


@pytest.mark.parametrize("n_rows", [30, 60_000])
def test_a_device_that_is_not_there_is_refused_at_once(n_rows):
    with pytest.raises(ParameterError, match="device must be None, 'cpu', 'cuda'"):
        DPMixture(device="tpu").fit(np.zeros((n_rows, 2)))


def test_all_rows_are_fitted_and_labels_are_where_they_are() -> None:
    X, truth = planted()
    family = families.FullGaussian(0.0, 0.1)
    for given in arrays(X):
        model = DPMixture(family, 1.0, device="cpu", level="components").fit(given)
        assert isinstance(model.labels_, type(given))
        assert same(truth, np.asarray(model.labels_))
        expected = log_joint(Problem(X, family, priors.DirichletProcess(1.0)), truth)
        np.testing.assert_allclose(model.log_joint_, expected, rtol=1e-12)
        assert model.clustering_.trace[-1].log_joint == pytest.approx(expected)
        assert same(truth, np.asarray(model.predict(given)))


def test_gaps_are_skipped_where_they_are() -> None:
    X, _ = planted()
    X[::5, 1] = np.nan
    X[:, 0] *= 5.0
    family = families.DiagonalGaussian(0.0, 0.1)
    here = DPMixture(family, 1.0, level="components").fit(X)
    for given in arrays(X):
        there = DPMixture(family, 1.0, device="cpu", level="components").fit(given)
        assert there.log_joint_ == pytest.approx(here.log_joint_, rel=1e-9)
        assert same(here.labels_, np.asarray(there.labels_))


def test_a_bad_row_is_named_though_the_sample_lacks_it() -> None:
    X = np.abs(np.random.default_rng(0).normal(size=(N, 2))).round() + 1.0
    X[1234, 1] = 0.5
    with pytest.raises(DataError, match="1234"):
        DPMixture(families.Poisson(), device="cpu").fit(array_api_strict.asarray(X))


def test_rows_without_values_and_few_rows_are_fitted_here() -> None:
    X, truth = planted()
    few = DPMixture(device="cpu").fit(array_api_strict.asarray(X[:100]))
    assert same(truth[:100], np.asarray(few.labels_))
    X[7] = np.nan
    model = DPMixture(families.DiagonalGaussian(0.0, 0.1), 1.0, device="cpu").fit(X)
    assert same(np.delete(truth, 7), np.delete(model.labels_, 7))
