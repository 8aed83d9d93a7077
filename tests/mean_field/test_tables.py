"""Variational inference has the same result wherever the rows are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dpsearch import families, log_joint, priors, variational
from dpsearch.errors import DataError, ParameterError
from dpsearch.passes import chunk

FAMILY, PRIOR = families.Gaussian(0.0, 16.0, 1.0), priors.DirichletProcess(1.0)


def table(n=300):
    rng = np.random.default_rng(0)
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    return centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


X = table()


@pytest.fixture
def places(tmp_path):
    """The same rows in memory, in shards, in a file and in batches."""
    np.save(tmp_path / "rows.npy", X)
    return {
        "array": (X, {"n_shards": 3}),
        "file": (tmp_path / "rows.npy", {"n_shards": 3}),
        "small file": (str(tmp_path / "rows.npy"), {}),
        "batches": (lambda: iter(np.split(X, 3)), {"n_shards": 3}),
    }


@pytest.mark.parametrize("place", ["array", "file", "small file", "batches"])
@pytest.mark.parametrize("variant", ["stick-breaking", "collapsed"])
def test_one_result_wherever_rows_are(places, place, variant):
    options = {"variant": variant, "truncation": 20, "rng": 3}
    here = variational(X, FAMILY, PRIOR, **options)
    data, more = places[place]
    there = variational(data, FAMILY, PRIOR, **options, **more)
    assert there.lower_bound == pytest.approx(here.lower_bound, abs=1e-7)
    np.testing.assert_allclose(there.sizes, here.sizes, atol=1e-6)
    np.testing.assert_array_equal(there.clustering.labels, here.clustering.labels)
    assert there.clustering.log_joint == pytest.approx(here.clustering.log_joint, abs=1e-7)
    np.testing.assert_allclose(there.score_samples(X), here.score_samples(X), atol=1e-9)


@pytest.mark.slow
def test_dask_has_the_same_result():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    da = pytest.importorskip("dask.array", reason="Dask is not installed")
    here = variational(X, FAMILY, PRIOR, truncation=20, rng=3)
    options = {"processes": False, "n_workers": 1, "dashboard_address": None}
    with distributed.Client(**options, threads_per_worker=1):
        there = variational(da.from_array(X, chunks=(100, 2)), FAMILY, PRIOR, truncation=20, rng=3)
        labels = there.clustering.labels.compute()
    assert there.lower_bound == pytest.approx(here.lower_bound, abs=1e-7)
    np.testing.assert_allclose(there.sizes, here.sizes, atol=1e-6)
    np.testing.assert_array_equal(labels, here.clustering.labels)
    assert there.clustering.log_joint == pytest.approx(here.clustering.log_joint, abs=1e-7)


def test_rows_without_any_value_take_no_part(tmp_path):
    holes = np.concatenate([X[:100], np.full((20, 2), np.nan), X[100:]])
    holes[3, 0] = np.nan
    np.save(tmp_path / "rows.npy", holes)
    found = variational(tmp_path / "rows.npy", FAMILY, PRIOR, n_shards=3, rng=0)
    seen = ~np.isnan(holes).all(axis=1)
    want = variational(holes[seen], FAMILY.with_gaps(), PRIOR, rng=0, n_shards=3)
    assert found.sizes.sum() == pytest.approx(300.0)
    assert found.lower_bound == pytest.approx(want.lower_bound, abs=0.5)  # other rows were drawn
    labels = found.clustering.labels[seen]
    value = log_joint(holes[seen], labels, FAMILY.with_gaps(), PRIOR)
    assert found.clustering.log_joint == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_a_soft_pass_leaves_out_rows_below_zero(make):
    rng = np.random.default_rng(1)
    features = rng.poisson(1.0, (40, 5)).astype(float)
    weights, constants = rng.normal(size=(4, 5)), rng.normal(size=4)
    choice, inside = np.zeros(40, np.int32), np.arange(40) % 3 > 0
    choice[~inside] = -1
    found = chunk.soften(make(features), weights, constants, None, choice)
    alone = np.zeros(inside.sum(), np.int32)
    want = chunk.soften(make(features[inside]), weights, constants, None, alone)
    np.testing.assert_allclose(found.totals.sums, want.totals.sums)
    assert found.entropy == pytest.approx(want.entropy)
    assert (choice[~inside] == -1).all()
    np.testing.assert_array_equal(choice[inside], alone)


def test_what_shards_do_not_take_is_refused(places):
    data, more = places["file"]
    with pytest.raises(ParameterError, match="start needs the rows in memory"):
        variational(data, FAMILY, PRIOR, start=np.zeros(300), **more)
    with pytest.raises(ParameterError, match="device needs the rows in memory"):
        variational(data, FAMILY, PRIOR, device="cpu", **more)
    with pytest.raises(ParameterError, match="need a family and a prior"):
        variational(data, **more)
    with pytest.raises(DataError, match="no row of X has any value"):
        variational(np.full((6, 2), np.nan), FAMILY, PRIOR, n_shards=2)


def test_an_interrupted_fit_of_shards_is_returned_as_it_is(places):
    def interrupt(event):
        if event.done == 2:
            raise KeyboardInterrupt

    data, more = places["file"]
    found = variational(data, FAMILY, PRIOR, callback=interrupt, tol=1e-12, **more)
    assert len(found.history) == 2
    assert not found.converged
    assert len(found.clustering.labels) == 300


def test_a_path_means_the_columns_as_they_are(tmp_path):
    rng = np.random.default_rng(2)
    columns = np.arange(1, 301), rng.normal(size=300), np.full(300, 5.0), rng.normal(size=300)
    rows = np.column_stack(columns)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="id,a,b,c", comments="")
    here = variational(rows, FAMILY, PRIOR, truncation=5, rng=0)
    for n_shards in (None, 2):
        found = variational(
            tmp_path / "rows.csv", FAMILY, PRIOR, truncation=5, rng=0, n_shards=n_shards
        )
        assert found.lower_bound == pytest.approx(here.lower_bound, abs=1e-3)


@pytest.mark.parametrize("options", [{}, {"n_shards": 2}, {"cells": 40}, {"tail": True}])
def test_a_label_is_the_number_of_its_component(options):
    rng = np.random.default_rng(3)
    centres = rng.normal(0.0, 9.0, (8, 3))
    rows = np.repeat(centres, 25, axis=0) + rng.normal(size=(200, 3))  # sizes are nearly equal
    found = variational(rows, families.Gaussian(0.0, 80.0, 1.0), PRIOR, rng=0, **options)
    labels = found.clustering.labels
    assert found.n_components >= 7
    assert (labels == found.predict(rows)).mean() > 0.98
    shares = found.predict_proba(rows).sum(axis=0)
    np.testing.assert_allclose(found.sizes, shares, atol=6.0 if "cells" in options else 2.0)
    assert (np.diff(np.bincount(labels)) <= 0).all()
