"""`dpsearch fit --level`, and `dpsearch cut`."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import complains
from dpsearch import DPMixture, families, load
from dpsearch.cli.results import advice


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder for the output of one fit."""
    return tmp_path_factory.mktemp("fitted")


@pytest.fixture
def fitted(run, kept):
    """Fit three skewed groups, which need several components each, once with a report."""
    if not any(kept.iterdir()):
        rng = np.random.default_rng(0)
        kind, spread = rng.integers(3, size=900), 0.8 * rng.normal(size=(900, 2))
        X = np.array([[0.0, 0.0], [14.0, 0.0], [0.0, 14.0]])[kind] + np.exp(spread)
        names = [f"r{i}" for i in range(900)]
        pl.DataFrame({"name": names, "a": X[:, 0], "b": X[:, 1]}).write_csv("x.csv")
        code, _, said = run("fit", "x.csv", "--index", "name", "--report")
        assert code == 0
        assert "level: " in said
        shutil.copytree(".", kept, dirs_exist_ok=True)
    shutil.copytree(kept, ".", dirs_exist_ok=True)
    return run


def read(folder="x.clusters"):
    labels = pl.read_csv(f"{folder}/labels.csv")
    clusters = pl.read_csv(f"{folder}/clusters.csv")
    return labels, clusters, json.loads(Path(f"{folder}/run.json").read_text())


def test_labels_have_clusters_and_components(fitted):
    labels, clusters, record = read()
    model = load("x.clusters/model.npz")
    assert labels.columns == ["name", "cluster", "component", "certainty", "apart_from"]
    np.testing.assert_array_equal(labels["cluster"], model.labels_)
    np.testing.assert_array_equal(labels["component"], model.component_labels_)
    assert labels["component"].max() > labels["cluster"].max()
    np.testing.assert_array_equal(clusters["size"], np.bincount(labels["cluster"]))
    assert clusters["components"].sum() == model.n_components_ == record["components"]
    assert record["clusters"] == model.n_clusters_
    assert record["level_reason"] == model.level_reason_
    apart = model.rows_apart_[model.labels_]
    found = labels["apart_from"].cast(pl.Int64).fill_null(-1)
    assert found.to_list() == apart.tolist()


def test_a_folder_is_cut_without_fitting(fitted, monkeypatch):
    before, _, record = read()
    page = Path("x.clusters/report.html").read_text()

    def never(*arguments, **options):
        raise AssertionError("fitted again")

    monkeypatch.setattr("dpsearch.estimator.DPMixture.fit", never)
    code, _, said = fitted("cut", "x.clusters", "--clusters", "2")
    assert code == 0
    assert said.startswith("900 rows in 2 clusters")
    assert "cut at 2 clusters, as requested" in said
    labels, clusters, after = read()
    assert labels["cluster"].n_unique() == clusters.height == after["clusters"] == 2
    assert labels["component"].to_list() == before["component"].to_list()
    assert after["log_joint"] == record["log_joint"]
    assert load("x.clusters/model.npz").n_clusters_ == 2
    assert Path("x.clusters/report.html").read_text() != page
    code, out, _ = fitted("cut", "x.clusters", "--level", "components", "--json", "--no-report")
    assert json.loads(out)["clusters"] == record["components"]
    code, _, _ = fitted("cut", "x.clusters")
    assert code == 0
    assert read()[0]["cluster"].to_list() == before["cluster"].to_list()
    code, _, _ = fitted("cut", "x.clusters", "--level", "components", "--min-size", "30")
    assert read()[1]["size"].min() >= 30


def test_what_cannot_be_cut(fitted, run):
    complains(run("cut", "x.clusters", "--clusters", "500"), "there are only", "components")
    complains(run("cut", "x.clusters", "--level", "many"), "level must be 'auto'")
    complains(run("cut", "x.clusters", "--clusters", "2", "--level", "3"), "not both")
    complains(run("cut", "nowhere"), "nowhere", "it has no run.json")
    text = Path("x.csv").read_text()
    Path("x.csv").write_text(text.replace("r1,", "r1,9"))
    complains(run("cut", "x.clusters", "--clusters", "2"), "x.csv", "not the data that were fitted")
    Path("y.csv").write_text(text)
    assert run("cut", "x.clusters", "y.csv", "--clusters", "2")[0] == 0
    Path("x.csv").unlink()
    complains(run("cut", "x.clusters", "--clusters", "2"), "x.csv", "the data are no longer there")
    Path("x.clusters/run.json").write_text("{}")
    complains(
        run("cut", "x.clusters", "--clusters", "2"), "run.json", "not what `dpsearch fit` wrote"
    )


@pytest.mark.slow
def test_levels_of_fits(fitted, run):
    assert run("fit", "x.csv", "--drop", "name", "--level", "2", "--out", "two")[0] == 0
    assert read("two")[2]["clusters"] == 2
    complains(run("fit", "x.csv", "--drop", "name", "--level", "0", "--out", "z"), "level must be")


def test_files_in_pieces_are_cut_too(fitted, run):
    arguments = ("--index", "name", "--shards", "2", "--out", "pieces")
    assert run("fit", "x.csv", *arguments)[0] == 0
    code, _, said = run("cut", "pieces", "--clusters", "2", "--memory", "600MB")
    assert code == 0, said
    assert read("pieces")[0]["cluster"].n_unique() == 2


@pytest.mark.parametrize(
    ("level", "agreement", "advised"),
    [
        ("auto", 0.3, True),
        ("auto", 0.7, False),
        ("auto", np.nan, False),
        ("components", 0.3, False),
    ],
)
def test_a_level_that_halves_agree_little_about_has_advice(level, agreement, advised):
    """Six overlapping components in three groups are six clusters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) + np.repeat([0.0, 1.5, 40.0, 41.5, 90.0, 91.5], 50)[:, None]
    family = families.Gaussian(0.0, 1e4, 0.3)
    model = DPMixture(family, 1.0, level="components", refine=False).fit(X)
    levels = model.state_.levels
    assert (levels.n_if_merged, model.n_components_ > 3) == (3, True)
    known = replace(levels, merges=False, agreement=np.full(model.n_components_, agreement))
    model = DPMixture.from_state(model.state_._replace(levels=known), level=level)
    said = advice(model, Path("a folder"))
    assert said.endswith(": dpsearch cut 'a folder' --clusters 3") if advised else said == ""
    assert advice(model.at_level(3), Path("x")) == ""
