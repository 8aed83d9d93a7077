"""Explanations of clusters of several components: contrasts with the nearest, rows apart."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dpsearch import DPMixture, families, priors
from dpsearch.errors import ParameterError
from dpsearch.explain import explain_branches, explain_mixture
from explaining import mixture_of, paired_groups
from models import DRAWS

FAMILY = families.Gaussian(0.0, 100.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)


@pytest.fixture(scope="module")
def table():
    return paired_groups("item {}")


@pytest.fixture(scope="module")
def model(table):
    return DPMixture(FAMILY, PRIOR, level="components", random_state=0).fit(table)


@pytest.mark.parametrize("name", DRAWS)
def test_contrasts_are_bayes_factors_of_the_two_clusters_alone(name):
    """Without other rows, contrasts with the nearest cluster equal those with the rest."""
    rng = np.random.default_rng(0)
    family, X = DRAWS[name](rng, 20)
    labels = np.append([0, 1, 2, 3], rng.integers(3, size=16))
    family = mixture_of(X, family, PRIOR, labels).model.family  # sized for these columns
    nearest = np.array([2, 0, 1, -1])
    mixture = mixture_of(X, family, PRIOR, labels)
    found = explain_mixture(mixture, tuple("abcdefgh"), nearest=nearest, outlier_rate=0.01, rng=rng)
    for k in range(3):
        both = (labels == k) | (labels == nearest[k])
        alone = mixture_of(X[both], family, PRIOR, (labels[both] != k).astype(np.int64))
        wanted = explain_mixture(alone, found.names, outlier_rate=0.01, rng=rng)
        np.testing.assert_allclose(
            found.against_nearest[k], wanted.columns[0], rtol=1e-7, atol=1e-8
        )
    assert np.isnan(found.against_nearest[3]).all()


@pytest.mark.parametrize("name", DRAWS)
def test_branches_are_explained_as_clusters_of_their_rows(name):
    rng = np.random.default_rng(1)
    family, X = DRAWS[name](rng, 20)
    labels = np.append([0, 1, 2, 3], rng.integers(4, size=16))
    merges = np.array([[1, 3], [0, 4], [2, 5]])
    mixture = mixture_of(X, family, PRIOR, labels)
    found = explain_branches(mixture, merges)
    for branch, own in [(0, [0]), (3, [3]), (4, [1, 3]), (5, [0, 1, 3])]:
        groups = np.isin(np.arange(4), own).astype(np.int64)
        wanted = explain_mixture(mixture.grouped(groups), (), outlier_rate=0.01, rng=rng)
        np.testing.assert_allclose(found.rest[branch], wanted.columns[1], rtol=1e-7, atol=1e-8)
    nearest = np.array([-1, 3, -1, 1])
    pair = explain_mixture(mixture, (), nearest=nearest, outlier_rate=0.01, rng=rng)
    np.testing.assert_allclose(found.sibling[1], pair.against_nearest[1], rtol=1e-7, atol=1e-8)
    assert (found.rest[-1] == 0.0).all()


def test_a_branch_without_its_second_part_is_noticed(monkeypatch):
    def forgets(core, row, other, sign):
        pass

    monkeypatch.setattr("dpsearch.explain.merge_rows", forgets)
    rng = np.random.default_rng(0)
    family, X = DRAWS["gaussian"](rng, 20)
    mixture = mixture_of(X, family, PRIOR, np.append([0, 1, 2], rng.integers(3, size=17)))
    found = explain_mixture(mixture, (), nearest=np.array([1, 2, 0]), outlier_rate=0.01, rng=rng)
    monkeypatch.undo()
    right = explain_mixture(mixture, (), nearest=np.array([1, 2, 0]), outlier_rate=0.01, rng=rng)
    assert not np.allclose(found.against_nearest, right.against_nearest)


def test_indications_against_the_nearest(model, table):
    found = model.explain(table)
    for k in range(6):
        near = found.nearest[k]
        assert model.rows_apart_[near] < 0
        first, second = found.indicative(k, against="nearest")
        assert first.column == "wide"
        assert first.log_bayes_factor > 0.0 > second.log_bayes_factor
        assert first.elsewhere == found.centres[near, 0]
        higher = found.centres[k, 0] > found.centres[near, 0]
        assert first.direction == ("higher" if higher else "lower")
    # Against the rest the other column may tell more.
    assert {found.indicative(k)[0].column for k in range(6)} == {"wide", "tall"}
    with pytest.raises(ParameterError, match="against must be 'rest' or 'nearest', got 'all'"):
        found.indicative(0, against="all")


def test_one_cluster_has_no_nearest(table):
    found = DPMixture(FAMILY, PRIOR, level=1, random_state=0).fit(table).explain()
    assert found.nearest.tolist() == [-1]
    with pytest.raises(ParameterError, match="cluster 0 has no nearest cluster"):
        found.indicative(0, against="nearest")


def test_the_summary_says_both_and_tells_rows_apart_in_one_line(model, table):
    text = model.explain(table).summary()
    lines = text.splitlines()
    assert sum(line.startswith("cluster ") for line in lines) == 6
    contrasts = [
        line for line in lines if re.match(r"  compared with cluster \d, the nearest: ", line)
    ]
    assert len(contrasts) == 6
    assert all(": wide is " in line and " (there " in line for line in contrasts)
    (apart,) = [line for line in lines if line.startswith("rows apart: ")]
    near = model.rows_apart_
    assert apart == (
        "rows apart: 3 points in 2 small clusters:"
        f" cluster 6 (rows item 1, item 2), nearest to cluster {near[6]};"
        f" cluster 7 (row item 0), nearest to cluster {near[7]}"
    )


def test_points_have_their_index_their_component_and_what_they_are_apart_from(model, table):
    coarse = model.at_level(5)
    points = coarse.explain(table).to_frame()
    assert points.index.equals(table.index)
    assert points["component"].tolist() == model.component_labels_.tolist()
    assert points["cluster"].tolist() == coarse.labels_.tolist()
    assert set(points.index[points["apart_from"] >= 0]) == {"item 0", "item 1", "item 2"}
    row = points.loc["item 0"]
    assert row["apart_from"] == coarse.rows_apart_[row["cluster"]]
    # New rows are in their most probable component.
    new = table.iloc[::-1].iloc[:50]
    points = coarse.explain(new).to_frame()
    assert points.index.equals(new.index)
    assert points["component"].tolist() == model.predict_components(new).tolist()
    assert "component" in coarse.explain(new).to_frame(library="polars").columns
