"""The command line: what it writes and prints, and that errors are one line with exit code 1."""

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numba
import numpy as np
import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from command_line import as_text, complains, names_in, table
from dpsearch import DPMixture, __version__, demo, families, load
from dpsearch.cli.app import app
from dpsearch.cli.fit import restart
from dpsearch.cli.options import parse_duration
from dpsearch.deadline import Deadline, within
from dpsearch.errors import AbsentColumnsWarning
from dpsearch.progress import stages

PROGRAM = [sys.executable, "-W", "always", "-m", "dpsearch.cli"]
FILES = ["clusters.csv", "labels.csv", "model.npz", "run.json"]
QUICK = ["--refine", "no", "--family", "gaussian"]


# -- what it does ------------------------------------------------------------------------------


def test_the_version(run):
    assert run("--version") == (0, f"dpsearch {__version__}\n", "")


def test_help_and_wrong_usage():
    runner = CliRunner()
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert runner.invoke(app, ["fit", "-h"]).output == runner.invoke(app, ["fit", "--help"]).output
    for command in ("fit", "predict", "inspect", "certify", "sample", "demo"):
        assert command in shown.output
    said = re.search(r"Exit codes:.*", " ".join(shown.output.split()))[0]
    table = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE):
        assert f" {code} " in said
    assert "130 interrupted" in said
    for wrong in (
        ["fit"],
        ["fit", "x.csv", "--colour"],
        ["fit", "x.csv", "--seed", "-1"],
        ["fit", "x.csv", "--beam-size", "0"],
        ["fit", "x.csv", "--refine", "long"],
        ["fit", "x.csv", "--certify", "long"],
        ["fit", "x.csv", "--certify", "0"],
        ["fit", "x.csv", "--refine", "0s"],
        ["fit", "x.csv", "--time", "0"],
        ["fit", "x.csv", "--time", "-1"],
        ["fit", "x.csv", "--image-shape", "28"],
        ["predict", "model.npz"],
    ):
        assert runner.invoke(app, wrong).exit_code == 2, wrong


def test_durations():
    said = {"30s": 30.0, "2m": 120.0, "1h": 3600.0, "45": 45.0, "0.5": 0.5, "1.5 h": 5400.0}
    assert {text: parse_duration(text) for text in said} == said


@pytest.mark.slow
def test_shell_completion(tmp_path):
    """It can be installed, and it answers the shell's requests."""
    program = str(Path(sys.executable).with_name("dpsearch"))
    home = {
        **os.environ,
        "HOME": str(tmp_path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    installed = subprocess.run(
        [program, "--install-completion", "bash"], env=home, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert "completion installed" in installed.stdout
    assert (
        "_DPSEARCH_COMPLETE=complete_bash"
        in (tmp_path / ".bash_completions" / "dpsearch.sh").read_text()
    )
    for line, answer in (("dpsearch fit --dec", "--decimal-comma"), ("dpsearch pre", "predict")):
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        answered = subprocess.run(
            [program], env={**home, **asked, "_DPSEARCH_COMPLETE": "complete_bash"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert answered.stdout.strip() == answer


def test_fit_writes_a_folder(run, tmp_path):
    X = table()
    (tmp_path / "x.csv").write_text(as_text(X, "height,weight\n"))
    code, out, err = run("fit", "x.csv", "--seed", 1)
    assert (code, out) == (0, "")
    assert names_in(tmp_path) == ["x.clusters", "x.csv"]
    assert names_in(tmp_path / "x.clusters") == FILES
    want = DPMixture(random_state=1, n_jobs=-1).fit(X)
    assert (
        f"40 rows in {want.n_clusters_} clusters; log joint of the components {want.log_joint_:.6g}"
        in err
    )
    assert f"family {want.family_.name}" in err
    # The columns, what was found, and how components became clusters.
    assert len(err.splitlines()) == 6
    labels = pl.read_csv("x.clusters/labels.csv")
    assert labels.columns == ["row", "cluster", "component", "certainty", "apart_from"]
    assert labels["row"].to_list() == list(range(40))
    assert labels["cluster"].to_list() == want.labels_.tolist()
    np.testing.assert_allclose(labels["certainty"], want.explain(X).certainty, atol=1e-6)
    loaded = load("x.clusters/model.npz")
    assert loaded.labels_.tolist() == want.labels_.tolist()
    assert loaded.log_joint_ == want.log_joint_
    assert loaded.feature_names_in_.tolist() == ["height", "weight"]


def test_the_table_of_clusters(run, tmp_path):
    X = table()
    names = [f"r{i}" for i in range(40)]
    lines = [f"{name},{a!r},{b!r}" for name, (a, b) in zip(names, X.tolist(), strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["who,height,weight", *lines]))
    code, _, err = run("fit", "x.csv", "--family", "gaussian")
    assert code == 0
    assert "who     identifier  dropped        40 of 40 values differ" in err
    labels = pl.read_csv("x.clusters/labels.csv")
    assert labels["who"].to_list() == names
    clusters = pl.read_csv("x.clusters/clusters.csv")
    assert clusters["cluster"].to_list() == [0, 1]
    assert clusters["size"].to_list() == [20, 20]
    assert 0.9 < clusters["weight"].sum() < 1.0
    model = load("x.clusters/model.npz")
    for k, line in enumerate(clusters.iter_rows(named=True)):
        height, weight = model.mixture_.posterior(k)["mean"] > X.mean(axis=0)
        said = {
            f"height ({'higher' if height else 'lower'})",
            f"weight ({'higher' if weight else 'lower'})",
        }
        assert set(line["indicative_columns"].split("; ")) == said
        typical = line["typical_rows"].split("; ")
        assert len(typical) == 5
        assert set(typical) <= set(labels.filter(pl.col("cluster") == k)["who"])
        mean = model.mixture_.posterior(k)["mean"]
        assert [line["mean of height"], line["mean of weight"]] == pytest.approx(mean)


def test_the_record_is_enough_to_repeat_the_run(run, tmp_path):
    (tmp_path / "x.csv").write_text(as_text(table(), "height,weight\n"))
    options = ["--family", "diagonal_gaussian", "--alpha", "2.5", "--seed", 7, "--drop", "weight"]
    assert run("fit", "x.csv", *options)[0] == 0
    record = json.loads((tmp_path / "x.clusters" / "run.json").read_text())
    assert record["command"] == ["dpsearch", "fit", "x.csv", *map(str, options)]
    digest = hashlib.sha256((tmp_path / "x.csv").read_bytes()).hexdigest()
    assert record["input"]["sha256"] == digest
    assert (record["input"]["rows"], record["input"]["columns"]) == (40, 1)
    assert record["seed"] == 7
    assert record["dpsearch"] == __version__
    assert set(record["packages"]) >= {"numpy", "numba", "polars"}
    assert record["seconds"]["total"] >= record["seconds"]["fitting"] > 0.0
    assert run(*record["command"][1:], "--out", "again")[0] == 0
    again = json.loads((tmp_path / "again" / "run.json").read_text())
    same = ("log_joint", "clusters", "sizes", "family", "prior", "parameters", "input")
    assert {key: again[key] for key in same} == {key: record[key] for key in same}
    first, second = (tmp_path / at / "labels.csv" for at in ("x.clusters", "again"))
    assert first.read_text() == second.read_text()


def test_json_and_quiet(run, tmp_path):
    np.save("x.npy", table())
    code, out, err = run("fit", "x.npy", "--json", "--quiet", "--family", "diagonal_gaussian")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert out.count("\n") == 1
    assert found["clusters"] == 2
    assert found["out"] == "x.clusters"
    assert found["upper_bound"] is None
    complains(run("fit", "x.npy", "--json", "--out", "-"), "--json", "--out")
    code, out, err = run("predict", "x.clusters", "x.npy", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["cluster"] == load("x.clusters/model.npz").labels_.tolist()
    code, out, err = run("inspect", "x.clusters", "--json")
    assert (code, err) == (0, "")
    about = json.loads(out)
    assert [cluster["size"] for cluster in about["clusters"]] == [20, 20]
    posterior = load("x.clusters/model.npz").mixture_.posterior(0)
    assert about["clusters"][0]["posterior"]["mean"] == posterior["mean"].tolist()
    assert about["clusters"][0]["centre"] == posterior["mean"].tolist()
    assert {one["column"] for one in about["clusters"][0]["indicative"]} == set(about["columns"])
    code, out, err = run(
        "sample", "x.npy", "--draws", 20, "--json", "--quiet", "--family", "gaussian"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["draws"] == 36


def test_parquet_out(run, tmp_path):
    np.save("x.npy", table())
    assert run("fit", "x.npy", *QUICK, "--format", "parquet")[0] == 0
    labels = pl.read_parquet("x.clusters/labels.parquet")
    assert labels.columns == ["row", "cluster", "component", "certainty", "apart_from"]
    assert pl.read_parquet("x.clusters/clusters.parquet").height == 2
    assert run("predict", "x.clusters", "x.npy", "--out", "p.parquet")[0] == 0
    assert pl.read_parquet("p.parquet")["cluster"].to_list() == labels["cluster"].to_list()
    # A forced run in another format leaves no tables of the last one behind.
    assert run("fit", "x.npy", *QUICK, "--force")[0] == 0
    assert names_in(tmp_path / "x.clusters") == FILES


def test_fit_passes_its_options_on(run, tmp_path):
    X = np.random.default_rng(0).poisson(3.0, size=(30, 3))
    np.save("X.npy", X)
    options = ["--family", "poisson", "--alpha", "2.5", "--beam-size", 3, "--refine", "no"]
    code, _, err = run("fit", "X.npy", *options)
    assert code == 0
    assert "family poisson" in err
    want = DPMixture(family="poisson", alpha=2.5, beam_size=3, refine=False).fit(X)
    assert pl.read_csv("X.clusters/labels.csv")["cluster"].to_list() == want.labels_.tolist()
    assert f"log joint of the components {want.log_joint_:.6g}" in err


def test_fit_proves_it_if_asked(run, tmp_path):
    np.save("x.npy", table()[:, 0])  # on a line the best partition is computed outright
    code, _, err = run("fit", "x.npy", "--family", "gaussian", "--certify", "20s", "--refine", "1s")
    assert code == 0
    assert "proved to be the best partition" in err
    assert load("x.clusters/model.npz").clustering_.optimal
    assert json.loads((tmp_path / "x.clusters" / "run.json").read_text())["optimal"]


# -- new data ----------------------------------------------------------------------------------


def test_predict_takes_columns_by_name(run, tmp_path):
    X = table()
    (tmp_path / "x.csv").write_text(as_text(X, "height,weight\n"))
    assert run("fit", "x.csv", *QUICK)[0] == 0
    want = load("x.clusters/model.npz").labels_.tolist()
    frame = pl.DataFrame({"who": [f"r{i}" for i in range(40)], "weight": X[:, 1], "colour": "red",
                          "height": X[:, 0]})  # fmt: skip
    frame.write_csv("new.csv")
    code, out, err = run("predict", "x.clusters", "new.csv", "--index", "who")
    assert (code, err) == (0, "")
    found = pl.read_csv(io.StringIO(out))
    assert found.columns == ["who", "cluster", "certainty"]
    assert found["cluster"].to_list() == want
    code, out, _ = run("predict", "x.clusters/model.npz", "new.csv", "--proba")
    found = pl.read_csv(io.StringIO(out))
    assert found.columns == ["row", "cluster", "certainty", "p0", "p1"]
    np.testing.assert_allclose(found["p0"] + found["p1"], 1.0)
    # Without names columns go by number.
    np.save("new.npy", X)
    assert (
        pl.read_csv(io.StringIO(run("predict", "x.clusters", "new.npy")[1]))["cluster"].to_list()
        == want
    )
    frame.rename({"weight": "weihgt"}).write_csv("misspelt.csv")
    complains(run("predict", "x.clusters", "misspelt.csv"), "'weight'", "did you mean 'weihgt'?")
    np.save("wide.npy", np.zeros((3, 5)))
    complains(run("predict", "x.clusters", "wide.npy"), "5 columns", "fitted to 2")
    complains(run("predict", "x.clusters", "x.csv", "--out", "p.txt"), ".csv or .parquet")
    complains(run("predict", "nothing.npz", "x.csv"), "nothing.npz: no such file")
    complains(run("predict", "x.csv", "x.csv"), "x.csv: damaged, or not a dpsearch model")


def test_a_report_of_texts_without_dates(run, tmp_path):
    (tmp_path / "x.csv").write_text("k,w\n" + "a,79 kg\nb,75 kg\na,75 kg\n" * 9)
    code, _, err = run("fit", "x.csv", "--refine", "no", "--report")
    assert code == 0, err
    assert (tmp_path / "x.clusters/report.html").is_file()


def test_predict_counts_what_it_cannot_read(run, tmp_path):
    rng = np.random.default_rng(0)
    pl.DataFrame(rng.normal(size=(30, 2)), schema=["x", "y"]).write_csv(tmp_path / "x.csv")
    _, _, err = run("fit", "x.csv", "--refine", "no")
    assert err.index("used as it is") < err.index("30 rows in")  # the triage comes first
    (tmp_path / "new.csv").write_text("x,y\n1,1e999\nabc,3\n,\n")
    for how in ((), ("--memory", "2GB")):
        code, out, err = run("predict", "x.clusters", "new.csv", *how)
        assert (code, len(out.splitlines())) == (0, 4)
        assert (
            "note: column 'x' has 1 value that cannot be read, 'abc': it is treated as missing"
            in err
        )
        assert (
            "note: column 'y' has 1 value that cannot be read, 'inf': it is treated as missing"
            in err
        )
        assert "1 row has no values (2)" in err
        code, _, err = run("predict", "x.clusters", "new.csv", "--handle-unknown", "error", *how)
        assert code == 1
        assert "column 'x' is 'abc', not a number" in err


def test_predict_says_which_rows_fit_nowhere(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text(as_text(table()))
    assert run("fit", "x.csv", "--family", "diagonal_gaussian")[0] == 0
    new = table()[:8].copy()
    (tmp_path / "new.csv").write_text(as_text(new))
    assert "improbable" not in run("predict", "x.clusters", "new.csv")[2]
    new[[2, 5]] *= -1000.0
    (tmp_path / "new.csv").write_text(as_text(new))
    model = load(tmp_path / "x.clusters/model.npz")
    assert sorted(model.outliers(new)) == [2, 5]
    code, _, err = run("predict", "x.clusters", "new.csv")
    assert code == 0
    said = "are improbable under every cluster (by chance alone, fewer than one of"
    assert f"note: 2 of 8 rows {said} 8 would be): 2, 5" in err
    new[5, 0] = np.nan
    (tmp_path / "gaps.csv").write_text(as_text(new).replace("nan", ""))
    assert (
        f"note: 2 of 8 rows {said} 8 would be): 2, 5" in run("predict", "x.clusters", "gaps.csv")[2]
    )
    monkeypatch.setattr("dpsearch.cli.predict._CHEAP", 20_000 * model.n_components_ * 2)
    err = run("predict", "x.clusters", "gaps.csv")[2]
    assert "note: 1 of 7 rows without gaps is improbable under every cluster" in err
    assert err.splitlines()[-1].endswith("): 2")
    monkeypatch.setattr("dpsearch.cli.predict._CHEAP", 1)
    assert "improbable" not in run("predict", "x.clusters", "gaps.csv")[2]


@pytest.mark.parametrize("wrong", [("--level", "0"), ("--alpha", "-1")])
def test_options_are_checked_before_anything_is_read(run, tmp_path, monkeypatch, wrong):
    (tmp_path / "x.csv").write_text(as_text(table()))
    monkeypatch.setattr("dpsearch.cli.source.Source.__init__", None)  # which nobody calls
    code, _, err = run("fit", "x.csv", *wrong)
    assert code == 1
    assert f"{wrong[0][2:]} must be" in err


def test_predict_names_the_rows_as_fit_does(run, tmp_path):
    X = table()
    quick = ("--family", "gaussian", "--refine", "no")
    lines = [f"{i:03},{a!r},{b!r}\n" for i, (a, b) in enumerate(X.tolist())]
    for header, said in (("id,a,b\n", "id"), (",a,b\n", "row"), ("", "row")):
        (tmp_path / "x.csv").write_text(header + "".join(lines))
        assert run("fit", "x.csv", *quick, "--force")[0] == 0
        fitted = (tmp_path / "x.clusters" / "labels.csv").read_text()
        assert fitted.startswith(f"{said},cluster,component,certainty,apart_from\n000,")
        (tmp_path / "x.csv").write_text(header + "".join(lines[7:9]))
        code, out, err = run("predict", "x.clusters", "x.csv")
        assert (code, err) == (0, "")
        want = [line.split(",")[:2] for line in fitted.splitlines()]
        assert [line.split(",")[:2] for line in out.splitlines()] == [want[0], *want[8:10]]


def test_mixed_tables_without_names(run, tmp_path):
    """The model can read the file that it was fitted to."""
    lines = [f"{(i % 2) * 9 + i / 40},{'uv'[i % 2]},{10 + i % 2}" for i in range(40)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    options = ("--no-header", "--category", "2")
    assert run("fit", "x.csv", *options, "--refine", "no")[0] == 0
    found = pl.read_csv("x.clusters/labels.csv")["cluster"].to_list()
    code, out, err = run("predict", "x.clusters", "x.csv", "--no-header")
    assert (code, err) == (0, "")
    assert pl.read_csv(io.StringIO(out))["cluster"].to_list() == found
    assert run("certify", "x.clusters", "x.csv", "--no-header", "--time-limit", "1s")[0] == 0
    (tmp_path / "x.csv").write_text("\n".join(["size,kind,code", *lines]))
    complains(
        run("predict", "x.clusters", "x.csv"),
        "no columns 'column 0', 'column 1', 'column 2', which the model needs",
    )
    code, _, err = run("predict", "x.clusters", "x.csv", "--no-header")
    assert (code, "column 'column 1' has 1 value that the fit did not see" in err) == (0, True)


@pytest.mark.slow
def test_files_without_names_for_a_model_with_names(run, tmp_path):
    """Columns and the index are found by their place in the model or in the fit's file."""
    lines = [
        f"p{i:03},{(i % 2) * 9 + i / 40},same,{'uv'[i % 2]},{i % 2 * 7 + i % 5}\n"
        for i in range(60)
    ]
    (tmp_path / "x.csv").write_text("who,length,site,kind,depth\n" + "".join(lines))
    assert run("fit", "x.csv", "--refine", "no")[0] == 0
    assert [*load("x.clusters/model.npz").triage_.dropped] == ["who", "site"]
    (tmp_path / "y.csv").write_text("".join(lines))
    want = [line.split(",")[:2] for line in Path("x.clusters/labels.csv").read_text().split("\n")]
    for options in ((), ("--memory", "4GB")):
        code, out, err = run("predict", "x.clusters", "y.csv", "--no-header", *options)
        assert (code, err) == (0, "")
        assert [line.split(",")[:2] for line in out.split("\n")][1:] == want[1:]
    assert run("fit", "x.csv", "--refine", "no", "--index", "who", "--out", "named")[0] == 0
    code, out, err = run("predict", "named", "y.csv", "--no-header", "--index", "0")
    assert (code, err) == (0, "")
    assert [line.split(",")[:2] for line in out.split("\n")][1:] == want[1:]
    said = "no columns 'length', 'kind', 'depth', which the model needs"
    complains(run("predict", "x.clusters", "y.csv"), said, "--no-header")
    (tmp_path / "z.csv").write_text("".join(f"1,{line}" for line in lines))
    said = "6 columns, but the model was fitted to 3 of 5"
    complains(run("predict", "x.clusters", "z.csv", "--no-header"), said)
    (tmp_path / "z.csv").write_text("who,Length (),site,kind,depths\n" + "".join(lines))
    code, _, err = run("predict", "x.clusters", "z.csv")
    said = (
        "no columns 'length', 'depth', which the model needs: did you mean 'Length ()', 'depths'?"
    )
    assert (code, said in err, "--no-header" in err) == (1, True, False)
    frame = pl.read_csv("x.csv")
    frame.drop("length").write_csv("z.csv")
    found = load("x.clusters/model.npz")
    want = found.predict(frame.with_columns(length=pl.lit(None)).drop("who")).tolist()
    with pytest.warns(AbsentColumnsWarning, match="no column 'length'"):
        assert found.predict(frame.drop("length")).tolist() == want
    for options in ((), ("--memory", "4GB")):
        code, out, err = run("predict", "x.clusters", "z.csv", *options)
        assert (code, pl.read_csv(io.StringIO(out))["cluster"].to_list()) == (0, want)
        assert (
            "note: no column 'length', which the model was fitted with: all such values are treated"
            in err
        )
    complains(run("certify", "x.clusters", "z.csv"), "no column 'length', which the model needs")


def test_columns_that_a_model_cannot_do_without(run, tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (30, 3))
    pl.DataFrame(counts, schema=["a", "b", "c"]).write_csv("x.csv")
    assert run("fit", "x.csv", "--family", "multinomial", "--refine", "no")[0] == 0
    pl.read_csv("x.csv").drop("b").write_csv("y.csv")
    complains(run("predict", "x.clusters", "y.csv"), "no column 'b', which the model needs")


def test_files_that_are_not_read(run):
    for name, said in {"x.xlsx": "save it as CSV or Parquet", "x.odd": ".csv.gz"}.items():
        Path(name).touch()
        complains(run("fit", name), name, said)


def test_a_model_whose_columns_share_a_name(run, tmp_path):
    """Such names do not identify columns, which are found by number instead."""
    model = DPMixture("gaussian", refine=False).fit(table())
    model.feature_names_in_ = np.array(["a", "a"], dtype=object)
    model.save("model.npz")
    pl.DataFrame(table(), schema=["b", "c"], orient="row").write_parquet("x.parquet")
    code, out, _ = run("predict", "model.npz", "x.parquet")
    assert code == 0
    assert pl.read_csv(io.StringIO(out))["cluster"].to_list() == model.labels_.tolist()


def test_inspect_shows_clusters(run, tmp_path):
    (tmp_path / "x.csv").write_text(as_text(table(), "[red]height,weight\n"))
    assert run("fit", "x.csv", "--family", "gaussian")[0] == 0
    code, out, err = run("inspect", "x.clusters")
    assert (code, err) == (0, "")
    assert "40 rows, 2 columns, 2 clusters" in out
    assert "family: gaussian" in out
    assert "[red]height" in out
    assert len(re.findall(r"│ +[01] │ +20 │", out)) == 2
    wide = np.repeat(table(), 10, axis=1)
    np.save("wide.npy", wide + np.random.default_rng(1).normal(size=wide.shape))
    assert run("fit", "wide.npy", "--family", "gaussian", "--refine", "no")[0] == 0
    assert "set apart by" in run("inspect", "wide.clusters")[1]


def test_inspect_shows_levels_of_categories(run, tmp_path):
    lines = ["kind,weight"]
    for i in range(30):
        lines.append(f"{('[b]ird', 'dog')[i % 2]},{(1.0, 20.0)[i % 2] + 0.01 * (i % 7)}")
    (tmp_path / "x.csv").write_text("\n".join(lines))
    assert run("fit", "x.csv", "--kinds", "weight=real", "--refine", "no", "--quiet")[0] == 0
    code, out, err = run("inspect", "x.clusters")
    assert (code, err) == (0, "")
    assert "[b]ird" in out
    assert "dog" in out
    clusters = json.loads(run("inspect", "x.clusters", "--json")[1])["clusters"]
    assert {cluster["centre"][0] for cluster in clusters} == {"[b]ird", "dog"}
    for cluster in clusters:
        own = cluster["centre"][0]
        said = next(one for one in cluster["indicative"] if one["column"] == "kind")
        assert (said["centre"], said["elsewhere"]) == (own, "dog" if own == "[b]ird" else "[b]ird")
        assert isinstance(cluster["centre"][1], float)
    frame = pl.read_csv("x.csv")
    explained = load("x.clusters/model.npz").explain(frame).summary()
    assert re.search(r"kind: (dog|\[b\]ird), elsewhere (dog|\[b\]ird)", explained)


def test_texts(run, tmp_path):
    rng = np.random.default_rng(0)
    kinds = [
        ["apple", "pear", "plum", "cherry", "quince"],
        ["bolt", "nut", "screw", "washer", "rivet"],
    ]
    texts = [" ".join(rng.choice(kinds[i % 2], size=30)) for i in range(24)]
    (tmp_path / "docs").mkdir()
    for i, text in enumerate(texts):
        (tmp_path / "docs" / f"{i:02}.txt").write_text(text)
    code, _, err = run("fit", "docs")
    assert code == 0
    assert "24 rows in 2 clusters" in err
    labels = pl.read_csv("docs.clusters/labels.csv")
    assert labels["document"].to_list() == [f"{i:02}.txt" for i in range(24)]
    assert len(set(labels["cluster"][::2])) == len(set(labels["cluster"][1::2])) == 1
    for words in pl.read_csv("docs.clusters/clusters.csv")["indicative_columns"]:
        higher = {word.removesuffix(" (higher)") for word in words.split("; ") if "higher" in word}
        assert higher in map(set, kinds)
    # The same from a column of a table, and new texts by the model's words.
    pl.DataFrame({"id": range(1, 25), "review": texts}).write_csv("t.csv")
    assert run("fit", "t.csv", "--text", "review", "--index", "id")[0] == 0
    column = pl.read_csv("t.clusters/labels.csv")
    assert column["cluster"].to_list() == labels["cluster"].to_list()
    assert column["id"].to_list() == list(range(1, 25))
    pl.DataFrame({"review": ["a rivet", "pear and plum"]}).write_csv("new.csv")
    code, out, _ = run("predict", "t.clusters", "new.csv", "--text", "review")
    assert code == 0
    found = pl.read_csv(io.StringIO(out))["cluster"].to_list()
    assert found == [labels["cluster"][1], labels["cluster"][0]]


def test_mixed_tables(run, tmp_path):
    """Two kinds of animals are described by categories, truth values and gaps."""
    rng = np.random.default_rng(0)
    lines = ["kind,legs,weight,flies"]
    for i in range(60):
        if i % 2:
            lines.append(f"bird,2,{rng.normal(1, 0.3):.3f},{'true' if i > 1 else 'false'}")
        else:
            lines.append(f"dog,{4 if i % 10 else ''},{rng.normal(20, 3):.3f},false")
    (tmp_path / "x.csv").write_text("\n".join(lines))
    code, _, err = run("fit", "x.csv", "--report")
    assert code == 0, err
    assert "60 rows in 2 clusters" in err
    assert (tmp_path / "x.clusters/report.html").stat().st_size > 10_000
    found = pl.read_csv("x.clusters/labels.csv")["cluster"].to_list()
    assert len(set(found[::2])) == len(set(found[1::2])) == 1
    clusters = pl.read_csv("x.clusters/clusters.csv")
    kinds = ["dog", "bird"] if found[0] == 0 else ["bird", "dog"]
    assert clusters["centre of kind"].to_list() == kinds
    for kind, said in zip(kinds, clusters["indicative_columns"], strict=True):
        assert set(said.split("; ")) == {
            f"kind ({kind})",
            f"weight ({'higher' if kind == 'dog' else 'lower'})",
            f"legs ({4 if kind == 'dog' else 2})",
            f"flies ({'lower' if kind == 'dog' else 'higher'})",
        }
    code, out, err = run("predict", "x.clusters", "x.csv")
    assert (code, err) == (0, "")
    assert pl.read_csv(io.StringIO(out))["cluster"].to_list() == found
    (tmp_path / "new.csv").write_text("flies,weight,kind,legs\n,1.2,bird,\n,,dog,4\n")
    code, out, _ = run("predict", "x.clusters", "new.csv")
    assert pl.read_csv(io.StringIO(out))["cluster"].to_list() == [found[1], found[0]]
    (tmp_path / "new.csv").write_text("kind,legs,weight,flies\nfish,0,1,false\n")
    code, _, err = run("predict", "x.clusters", "new.csv")
    assert (code, "column 'kind' has 1 value that the fit did not see, 'fish'" in err) == (
        0,
        True,
    )
    complains(
        run("predict", "x.clusters", "new.csv", "--handle-unknown", "error"),
        "line 2, column 'kind' is 'fish'",
    )
    assert run("sample", "x.csv", "--model", "x.clusters", "--draws", 20)[0] == 0
    assert run("sample", "x.csv", "--draws", 20, "--force")[0] == 0


# -- pipes and interruptions -------------------------------------------------------------------


def test_pipes(tmp_path):
    text = as_text(table(), "height,weight\n")
    done = subprocess.run(
        [*PROGRAM, "fit", "-"], input=text, cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("row,cluster,component,certainty,apart_from\n0,")
    assert len(done.stdout.splitlines()) == 41
    assert "40 rows in 2 clusters" in done.stderr
    assert names_in(tmp_path) == []


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(tmp_path):
    np.save(tmp_path / "x.npy", np.repeat(table(), 3000, axis=0))  # more than a pipe holds
    fitting = subprocess.Popen(
        [*PROGRAM, "fit", "x.npy", "--out", "-", "--refine", "no", "--family", "gaussian", "-q"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert fitting.stdout.readline() == b"row,cluster,component,certainty,apart_from\n"
    fitting.stdout.close()
    assert fitting.stderr.read() == b""
    fitting.stderr.close()
    assert fitting.wait(60) == 141


@pytest.mark.slow
def test_ctrl_c_during_refinement_keeps_the_best_so_far(tmp_path):
    rng = np.random.default_rng(0)
    centres = 10.0 * rng.normal(size=(300, 5))  # enough that refinement takes minutes
    X = centres[rng.integers(300, size=20_000)] + rng.normal(size=(20_000, 5))
    np.save(tmp_path / "x.npy", X)
    fitting = subprocess.Popen(
        [*PROGRAM, "fit", "x.npy", "--family", "gaussian", "--refine", "1h"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(15)
    fitting.send_signal(signal.SIGINT)
    out, err = fitting.communicate(timeout=60)
    assert fitting.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    if "best clustering found by then" in err:  # a slow machine may not have come to refinement
        assert names_in(tmp_path / "x.clusters") == FILES
    else:
        assert names_in(tmp_path) == ["x.npy"]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.slow
def test_what_is_terminated_leaves_no_temporary_file(tmp_path):
    (tmp_path / "temporary").mkdir()
    reading = subprocess.Popen(
        [*PROGRAM, "fit", "-", "--out", "results"], cwd=tmp_path, stdin=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
    )  # fmt: skip
    try:
        for _ in range(600):  # until it copies what it is given
            if list((tmp_path / "temporary").iterdir()):
                break
            time.sleep(0.1)
        else:
            pytest.fail("nothing was read")
        reading.terminate()
        assert reading.wait(timeout=60) == 143
    finally:
        reading.kill()
        reading.communicate()
    assert list((tmp_path / "temporary").iterdir()) == []


STRAY = """
import importlib, sys, threading, time
from pathlib import Path
from dpsearch._scratch import scratch

cli = importlib.import_module("dpsearch.cli.app")

def stray():
    threading.Thread(target=time.sleep, args=(300,)).start()
    with scratch(sys.argv[1], "x.", folder=True):
        Path(sys.argv[1], "begun").touch()
        while True:  # as a thread pool that waits for its threads
            try:
                time.sleep(300)
            except SystemExit:
                pass

cli._GRACE, cli.app = 0.5, stray
cli.run()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_no_thread_keeps_what_is_terminated_alive(tmp_path):
    running = subprocess.Popen([sys.executable, "-c", STRAY, str(tmp_path)])
    try:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            time.sleep(0.05)
        running.terminate()
        assert running.wait(timeout=30) == 143
    finally:
        running.kill()
        running.wait()
    assert names_in(tmp_path) == ["begun"]


def test_names_of_rows_are_no_formulas(run, tmp_path):
    text = "name,x,y\n" + "".join(f"=cmd{i},{x},{y}\n" for i, (x, y) in enumerate(table()))
    (tmp_path / "x.csv").write_text(text)
    for option, first in (((), "'=cmd0,"), (("--verbatim",), "=cmd0,")):
        assert run("fit", "x.csv", *QUICK, "--index", "name", "--force", *option)[0] == 0
        folder = tmp_path / "x.clusters"
        assert (folder / "labels.csv").read_text().splitlines()[1].startswith(first)
        assert ("'=cmd" in (folder / "clusters.csv").read_text()) == (option == ())
        assert run("predict", "x.clusters", "x.csv", *option)[1].splitlines()[1].startswith(first)


def test_a_terminal_shows_how_the_fit_goes_on():
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    with stages(screen) as stage:
        stage.begin("fitting [red]")
        events = []
        DPMixture("gaussian", refine=False).fit(table(), callback=events.append)
        stage.tell(next(event for event in events if event.n_clusters)._replace(phase=""))
        time.sleep(0.6)  # the line is drawn some times a second
    shown = screen.file.getvalue()
    assert "fitting [red]: 2 clusters, log joint -" in shown
    assert {"choosing the family", "searching", "finding levels"} <= {e.phase for e in events}
    with stages(Console(file=io.StringIO(), quiet=True)) as stage:
        assert stage.callback is None


# -- errors ------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "labels.csv").write_text("mine")
    (folder / "diary.txt").write_text("mine too")
    complains(run("fit", "X.csv", "--out", "out"), "out/labels.csv exists", "--force")
    assert (folder / "labels.csv").read_text() == "mine"
    assert names_in(folder) == ["diary.txt", "labels.csv"]
    assert run("fit", "X.csv", *QUICK, "--out", "out", "--force")[0] == 0
    assert (
        (folder / "labels.csv")
        .read_text()
        .startswith("row,cluster,component,certainty,apart_from\n0,")
    )
    assert (folder / "diary.txt").read_text() == "mine too"
    assert names_in(folder) == sorted([*FILES, "diary.txt"])
    (tmp_path / "p.csv").write_text("mine")
    complains(run("predict", "out", "X.csv", "--out", "p.csv"), "p.csv exists", "--force")
    assert (tmp_path / "p.csv").read_text() == "mine"


def test_a_model_takes_over_what_a_restart_finds():
    X = np.random.default_rng(2).normal(size=(120, 2)) * 2.5
    model = DPMixture(families.Gaussian(0.0, 6.0, 1.0), 1.0, refine=False, order="given").fit(X)
    before = model.log_joint_
    view = restart(model, X, 6, 0)
    assert len(view.clusterings) == 7
    assert model.log_joint_ == view.best.log_joint > before
    assert model.clustering_.labels is model.component_labels_
    # What it says of itself and of rows is of that partition.
    assert model.fitted_labels(X) is not None
    assert model.mixture_.sizes.tolist() == np.bincount(model.component_labels_).tolist()
    with within(Deadline()) as deadline:
        deadline.stop()  # Ctrl-C was pressed before
        assert len(restart(model, X, 6, 0).clusterings) == 1


def meanwhile(monkeypatch, act):
    """Run an action in the folder while the model is fitted."""
    fit = DPMixture.fit

    def slow(self, *arguments, **options):
        act()
        return fit(self, *arguments, **options)

    monkeypatch.setattr(DPMixture, "fit", slow)


def test_what_came_during_the_fit_is_not_overwritten(run, tmp_path, monkeypatch):
    (tmp_path / "X.csv").write_text(as_text(table()))
    folder = tmp_path / "out"

    def others():
        folder.mkdir(exist_ok=True)
        (folder / "labels.csv").write_text("mine")
        (folder / "report.html").write_text("mine")

    assert run("fit", "X.csv", *QUICK, "--out", "model", "--quiet")[0] == 0
    with monkeypatch.context() as patch:
        meanwhile(patch, others)
        fit = ("fit", "X.csv", *QUICK, "--out", "out")
        complains(run(*fit), "out/labels.csv exists", "--force")
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            "labels.csv": "mine", "report.html": "mine"
        }  # fmt: skip
        for path in folder.iterdir():
            path.unlink()
        complains(run(*fit), "out/labels.csv exists", "--force")  # also into a folder that is there
        assert names_in(folder) == ["labels.csv", "report.html"]
        assert run(*fit, "--force")[0] == 0
        assert names_in(folder) == FILES

    predict = DPMixture.predict_proba

    def slow(self, X):
        (tmp_path / "p.csv").write_text("mine")
        return predict(self, X)

    monkeypatch.setattr(DPMixture, "predict_proba", slow)
    complains(run("predict", "model", "X.csv", "--out", "p.csv"), "p.csv exists", "--force")
    assert (tmp_path / "p.csv").read_text() == "mine"
    assert names_in(tmp_path) == ["X.csv", "model", "out", "p.csv"]


def test_of_two_runs_into_one_folder_one_fails(run, tmp_path, monkeypatch):
    (tmp_path / "X.csv").write_text(as_text(table()))
    codes = []

    def another():
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)
        codes.append(run("fit", "X.csv", *QUICK, "--out", "out", "--quiet", "--seed", 7)[0])

    meanwhile(monkeypatch, another)
    complains(run("fit", "X.csv", *QUICK, "--out", "out"), "exists; use --force")
    assert codes == [0]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["seed"] == 7


def test_a_folder_is_written_as_a_whole(run, tmp_path, monkeypatch):
    """If folders cannot be swapped and one file cannot be replaced, all files stay."""
    monkeypatch.setattr("dpsearch._files._exchange", lambda one, other: False)
    (tmp_path / "X.csv").write_text(as_text(table()))
    fit = ("fit", "X.csv", *QUICK, "--out", "out")
    assert run(*fit, "--quiet", "--format", "parquet")[0] == 0
    folder = tmp_path / "out"
    (folder / "diary.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    replace = os.replace
    for failing in FILES:
        left = [failing]

        def refused(old, new, left=left):
            if left and Path(new) == folder / left[0]:
                left.pop()
                raise OSError(5, "Input/output error", str(old))
            return replace(old, new)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refused)
            complains(run(*fit, "--force"), f"dpsearch: out/{failing}: Input/output error")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "run.json").unlink()
    (folder / "run.json").mkdir()
    (folder / "run.json" / "mine").write_text("mine")
    complains(run(*fit, "--force"), "out/run.json: is a folder, not a file")
    assert (folder / "run.json" / "mine").read_text() == "mine"
    assert names_in(folder) == sorted(before)


def test_links_that_lead_nowhere(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    (tmp_path / "deep").symlink_to(tmp_path / "no" / "such")
    complains(run("fit", "X.csv", *QUICK, "--out", "deep"), "no: no such folder")
    (tmp_path / "loop").symlink_to("loop")
    complains(run("fit", "X.csv", *QUICK, "--out", "loop"), "loop")
    (tmp_path / "link").symlink_to("there")
    assert run("fit", "X.csv", *QUICK, "--out", "link", "--quiet")[0] == 0
    assert names_in(tmp_path / "there") == FILES


def test_where_it_cannot_write(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    complains(run("fit", "X.csv", "--out", "nowhere/here"), "nowhere", "no such folder")
    complains(run("fit", "X.csv", "--out", "X.csv"), "X.csv looks like a file")
    (tmp_path / "taken").write_text("mine")
    complains(run("fit", "X.csv", "--out", "taken", "--force"), "taken: is a file")
    complains(run("fit", "X.csv", "--format", "xlsx"), "'xlsx'", "csv, parquet")
    assert names_in(tmp_path) == ["X.csv", "taken"]


def test_names_that_look_like_markup_are_printed_as_they_are(run, tmp_path):
    (tmp_path / "[red]x:bug:.csv").write_text(as_text(table()))
    long = "a" * 120 + "[bold]"
    code, _, err = run("fit", "[red]x:bug:.csv", "--out", long)
    assert code == 0
    assert err.splitlines()[3].endswith(f"written to {long}")
    assert len(err.splitlines()) == 6
    complains(run("fit", "[blue]y.csv"), "[blue]y.csv: no such file")
    complains(run("fit", "none.csv", "--family", "gama"), "did you mean 'gamma'?")  # not read yet


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--family", "gama"], ["dpsearch: there is no family 'gama': did you mean 'gamma'?"]),
        (["--family", "normal"], ["there is no family 'normal'", "full_gaussian"]),
        (["--family", "multinomial"], ["X.csv", "multinomial", "line 2, column 'a'"]),
        (["--family", "bernoulli"], ["X.csv", "zeros and ones", "line 2, column 'a'"]),
        (["--alpha", "0"], ["alpha", "0"]),
        (["--alpha", "-1"], ["alpha", "-1"]),
        (["--alpha", "nan"], ["alpha", "nan"]),
        (["--alpha", "inf"], ["alpha", "inf"]),
        (["--alpha", "many"], ["alpha", "'many'"]),
        (["--alpha", ""], ["alpha", "''"]),
        (["--jobs", "0"], ["n_jobs"]),
        (["--columns", "height"], ["X.csv: --columns: no column 'height'; there are 'a', 'b'"]),
        (["--columns", "A"], ["did you mean 'a'?"]),
        (["--keep", "nosuch"], ["--keep names the column 'nosuch', which the table does not"]),
        (["--kinds", "nosuch=real"], ["--kinds names the column 'nosuch', which the table"]),
        (["--na", "A=-1"], ["dpsearch: --na: no column 'A': did you mean 'a'?"]),
        (["--na", "7,zz=-1"], ["dpsearch: --na: no column 'zz'; there are 'a', 'b'"]),
        (["--columns", "0-9"], ["no column 0-9; there are 2, numbered from 0"]),
        (["--columns", "a,0"], ["column 'a' is named twice"]),
        (["--columns", "a", "--drop", "b"], ["--columns and --drop"]),
        (["--drop", "a,b"], ["no column is left"]),
        (["--index", "a,b"], ["--index must name one column"]),
        (["--columns", "a,b", "--index", "a"], ["column 'a' cannot both name the rows and be"]),
        (["--columns", "a", "--text", "b"], ["--columns does not apply to --text"]),
        (["--category", "a", "--drop", "a"], ["--category: column 'a' is not among the columns"]),
        (["--words", "9"], ["--words only applies to texts"]),
        (["--separator", "ab"], ["--separator must be one character"]),
        (["--encoding", "utf-99"], ["unknown encoding 'utf-99'"]),
        (["--input-format", "xlsx"], ["unknown format 'xlsx'", "parquet"]),
        (["--input-format", "parquet"], ["X.csv: damaged, or not a Parquet file"]),
        (["--input-format", "arrow"], ["X.csv: damaged, or not an Arrow or Feather file"]),
        (["--image-shape", "28x28"], ["--image-shape only affects the report"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_options(options, parts, run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(np.abs(table()), "a,b\n"))
    complains(run("fit", "X.csv", *options), *parts)
    assert names_in(tmp_path) == ["X.csv"]


def test_options_that_would_not_be_looked_at(run, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("pear")
    np.save("x.npy", table())
    pl.DataFrame({"a": [1.5, 2.5]}).write_parquet("x.parquet")
    for data, options in (
        ("docs", ("--columns", "--drop", "--index", "--category", "--text")),
        ("x.npy", ("--category", "--text", "--separator")),
        ("x.parquet", ("--separator", "--encoding")),
    ):
        for option in options:
            value = "utf-16" if option == "--encoding" else "a"
            complains(run("fit", data, option, value), f"{data}: {option} does not apply to")


def test_rows_without_any_value_are_named(run, tmp_path):
    lines = [f"{9 * (i % 2) + i / 50},{'uv'[i % 2]}" for i in range(40)]
    lines[3] = lines[7] = ","
    (tmp_path / "x.csv").write_text("\n".join(["a,k", *lines]))
    for options in ((), ("--shards", "2")):
        code, _, err = run("fit", "x.csv", "--force", *options)
        assert code == 0, err
        assert "note: 2 rows have no values (3, 7): their labels come from the prior alone" in err
        assert "; the sizes in clusters.csv include them" in err
        labels = pl.read_csv("x.clusters/labels.csv")["cluster"].value_counts().sort("cluster")
        clusters = pl.read_csv("x.clusters/clusters.csv")
        assert clusters["size"].to_list() == labels["count"].to_list()
    code, _, err = run("predict", "x.clusters", "x.csv", "--out", "p.csv")
    assert (code, "note: 2 rows have no values (3, 7)" in err) == (0, True)


@pytest.mark.slow
def test_the_user_overrides_the_triage(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({
        "id": range(40),
        "x": rng.normal(size=40),
        "code": [-1, 5] * 20,
        "state": ["a", "refused", "b", "b"] * 10,
        "gone": [None] * 40,
    })  # fmt: skip
    frame.write_csv("x.csv")

    def said(*options):
        code, _, err = run("fit", "x.csv", "--refine", "no", "--force", *options)
        assert code == 0, err
        record = json.loads((tmp_path / "x.clusters" / "run.json").read_text())
        return {entry["name"]: entry for entry in record["triage"]}

    def treatments(found):
        return [found[name]["treatment"].split()[0] for name in found]

    assert treatments(said()) == ["dropped", "used", "used", "used", "dropped"]
    kept = said("--keep", "id", "--kinds", "code=category,x=drop")
    assert treatments(kept) == ["used", "dropped", "used", "used", "dropped"]
    assert kept["code"]["role"] == "category"
    assert said("--na", "refused,-1")["state"]["reason"] == "2 levels; 10 missing"
    assert "x" not in said("--drop", "x")
    assert treatments(said("--columns", "id,x")) == ["used", "used"]
    complains(run("fit", "x.csv", "--keep", "y", "--force"), "names the column 'y'")


def test_a_report_without_a_folder(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    complains(run("fit", "X.csv", "--report", "--out", "-"), "--report needs a folder")


def test_the_report_is_called_with_what_it_needs(run, tmp_path, monkeypatch):
    """Only the call is tested here, as another part of the package writes the report."""
    seen = {}

    def write_report(path, model, X, **about):
        seen.update(about, model=model, shape=X.shape)
        model.predict(X)  # as a report may: not the place for warnings about names
        path.write_text("report")

    stand_in = types.SimpleNamespace(write_report=write_report)
    monkeypatch.setitem(sys.modules, "dpsearch.report", stand_in)
    (tmp_path / "X.csv").write_text(as_text(table(), "a,b\n"))
    complains(
        run("fit", "X.csv", "--report", "--image-shape", "3x3"), "9 pixels", "there are 2 columns"
    )
    assert run("fit", "X.csv", *QUICK, "--report", "--image-shape", "1x2")[0] == 0
    assert (tmp_path / "X.clusters" / "report.html").read_text() == "report"
    assert seen["shape"] == (40, 2)
    assert seen["names"] == ["a", "b"]
    assert seen["image_shape"] == (1, 2)
    assert seen["title"] == "X.csv"
    assert seen["consensus"] is None


@pytest.mark.parametrize("refine", ["no", "auto"])
def test_restarts_keep_the_best_and_are_compared_in_the_report(run, tmp_path, refine):
    """Searches from other orders place rows between clusters differently."""
    rng = np.random.default_rng(2)
    X = 2.5 * rng.normal(size=(6, 2))[rng.integers(6, size=120)] + rng.normal(size=(120, 2))
    np.save("x.npy", X)
    options = ["x.npy", "--family", "gaussian", "--refine", refine, "--seed", 3]
    assert run("fit", *options, "--out", "alone", "--quiet")[0] == 0
    code, _, err = run("fit", *options, "--restarts", 4, "--report")
    assert code == 0
    alone = json.loads((tmp_path / "alone" / "run.json").read_text())
    record = json.loads((tmp_path / "x.clusters" / "run.json").read_text())
    assert len(record["restarts"]) == 5
    assert record["log_joint"] == max(record["restarts"]) >= alone["log_joint"]
    assert alone["log_joint"] in record["restarts"]
    model = load("x.clusters/model.npz")
    assert model.log_joint_ == record["log_joint"]
    said = re.search(r"Of 5 searches from different orders, (all|\d) reached[^\n]*", err)[0]
    page = (tmp_path / "x.clusters" / "report.html").read_text()
    assert said.split(";")[0] in page
    if refine == "no":
        (listed,) = re.findall(r'"moved":(\[\[.*?\]\])', page)
        shares = [share for _, share in json.loads(listed)]
        assert 1 <= len(shares) <= 12
        assert shares == sorted(shares, reverse=True)
        assert min(shares) > 0.1


def test_what_the_system_refuses(run, tmp_path, monkeypatch):
    (tmp_path / "X.csv").write_text(as_text(table()))

    def full(path, frame, **options):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("dpsearch.cli.results.write_pieces", full)
        complains(run("fit", "X.csv", *QUICK), "labels.csv: No space left on device")
    assert names_in(tmp_path) == ["X.csv"]

    def raising(kind):
        def read(*arguments, **options):
            raise kind("what it says")

        return read

    monkeypatch.setattr("dpsearch.io.read_table", raising(MemoryError))
    complains(run("fit", "X.csv"), "out of memory")
    monkeypatch.setattr("dpsearch.io.read_table", raising(KeyboardInterrupt))
    assert run("fit", "X.csv") == (130, "", "dpsearch: interrupted\n")
    monkeypatch.setattr("dpsearch.io.read_table", raising(ZeroDivisionError))
    code, out, err = run("fit", "X.csv")
    assert (code, out) == (70, "")
    assert err == "dpsearch: a bug: ZeroDivisionError: what it says (--debug shows the traceback)\n"
    assert names_in(tmp_path) == ["X.csv"]


def test_debug_shows_the_traceback(tmp_path):
    done = subprocess.run(
        [*PROGRAM, "fit", "nothing.csv", "--debug"], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("dpsearch.errors.DataError: nothing.csv: no such file\n")


@pytest.mark.slow
def test_as_a_program(tmp_path):
    """Run the program in a process: no warnings on standard error, and the exit codes."""
    (tmp_path / "X.csv").write_text("a,b\n1,2\n3,4,5\n")
    bad = subprocess.run(
        [*PROGRAM, "fit", "X.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("dpsearch: X.csv, line 3: ")
    assert len(bad.stderr.splitlines()) == 1
    (tmp_path / "X.csv").write_text(as_text(table()))
    good = subprocess.run(
        [*PROGRAM, "fit", "X.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (good.returncode, good.stdout) == (0, "")
    # But for progress, which comes every few seconds where kernels are compiled.
    said = [line for line in good.stderr.splitlines() if not re.search(r"[0-9] s$", line)]
    assert len(said) == 6, good.stderr
    assert "40 rows in" in good.stderr


# -- the demonstration -------------------------------------------------------------------------


def test_the_demo_shows_what_it_found(run, tmp_path):
    code, out, err = run("demo", "--out", "pictures/here")
    assert (code, err) == (0, "")
    picture = tmp_path / "pictures" / "here" / "digits.png"
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 10_000
    assert [path.name for path in picture.parent.iterdir()] == ["digits.png"]
    # In each line what search found, and perhaps what came of it.
    lines = {}
    for what in ("clusters", "log joint", "points per second"):
        line = re.search(rf"^│ {what}\s*│(.*)$", out, re.MULTILINE)[1]
        lines[what] = [float(text.replace(",", "")) for text in re.findall(r"-?\d[\d,.]*", line)]
    assert all(2 <= n <= 3000 for n in lines["clusters"])
    assert all(-250_000.0 < value < -150_000.0 for value in lines["log joint"])
    assert lines["log joint"] == sorted(lines["log joint"])
    assert lines["points per second"][0] > 0.0
    sizes = [int(size) for size in re.findall(r"│\s+\d+ │\s+(\d+) │ digit \d │\s+\d+% │", out)]
    assert 2 <= len(sizes) <= lines["clusters"][-1]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) <= 3000


def test_the_demo_does_not_write_into_a_file(run, tmp_path):
    (tmp_path / "taken").write_text("mine")
    complains(run("demo", "--out", "taken"), "taken", "is a file")


def test_the_demo_without_matplotlib_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    console = Console(record=True, width=120, file=io.StringIO())
    images = np.zeros((4, 784))
    assert demo._draw(images, np.array([0, 0, 1, 1]), tmp_path / "out", console) is None
    assert "dpsearch[plots]" in console.export_text()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_codes_of_missing_values_may_be_kept(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) + np.repeat([[0.0], [9.0]], 40, axis=0)
    X[::10, 0] = -9999.0
    pl.DataFrame(X, schema=["a", "b"]).write_csv("x.csv")
    assert run("fit", "x.csv")[0] == 0
    assert "-9999 in column 0 treated as missing" in load(tmp_path / "x.clusters/model.npz").reason_
    assert run("predict", "x.clusters", "x.csv")[0] == 0
    assert run("fit", "x.csv", "--keep-codes", "--out", "kept")[0] == 0
    assert "missing" not in load(tmp_path / "kept/model.npz").reason_


def test_kinds_of_columns(run, tmp_path):
    rng = np.random.default_rng(0)
    who = np.repeat([0, 1], 60)
    frame = pl.DataFrame({
        "visits": rng.poisson(np.array([4.0, 20.0])[who]),
        "site": np.array(["a", "b"])[who],
    })  # fmt: skip
    frame.write_csv("x.csv")
    assert run("fit", "x.csv", "--kinds", "visits=real")[0] == 0
    model = load(tmp_path / "x.clusters" / "model.npz")
    assert model.schema_.groups() == {"real": [0], "category": [1]}
    assert run("predict", "x.clusters", "x.csv")[0] == 0
    again = ("--kinds", "visits=real", "--restarts", 1, "--out", "again")
    assert run("fit", "x.csv", *again)[0] == 0
    frame.select("visits", other=pl.col("visits") + 1).write_csv("numbers.csv")
    assert run("fit", "numbers.csv", "--kinds", "visits=count")[0] == 0
    assert load(tmp_path / "numbers.clusters" / "model.npz").schema_ is not None
    complains(
        run("fit", "x.csv", "--force", "--kinds", "visits"), "--kinds: 'visits' is not NAME=KIND"
    )
    complains(run("fit", "x.csv", "--force", "--kinds", "visits=int"), "--kinds: 'visits=int'")
    complains(run("fit", "x.csv", "--force", "--kinds", "nope=real"), "'nope'")


def test_a_report_does_not_explain_the_table_again(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text(as_text(table(), "height,weight\n"))
    calls, explain = [], DPMixture.explain

    def counted(self, *args, **options):
        calls.append(args)
        return explain(self, *args, **options)

    monkeypatch.setattr(DPMixture, "explain", counted)
    assert run("fit", "x.csv", "--refine", "no", "--report")[0] == 0
    assert len(calls) == 1


def test_compilation_is_shown_on_a_terminal():
    shown = io.StringIO()
    with stages(Console(file=shown, force_terminal=True, width=100)) as stage:
        stage.begin("fitting")
        numba.njit(lambda x: x + 1)(1)
    assert "fitting: compiling kernels" in shown.getvalue()


def test_a_forked_child_that_is_terminated_does_not_end_its_parent():
    """Both processes have the pipe by which a thread of the parent is notified of SIGTERM."""
    program = (
        "import os, signal, time\n"
        "import importlib\n"
        "signals = importlib.import_module('dpsearch._signals')\n"
        "signals._GRACE = 0.0, 0.0\n"
        "signals.watch_signals()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(60)\n"
        "time.sleep(0.2)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "os.waitpid(child, 0)\n"
        "time.sleep(0.5)\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["alive"]


def test_predict_notes_values_outside_the_support_of_what_was_chosen(run, tmp_path):
    incomes = np.random.default_rng(0).lognormal(10.0, 1.0, size=(300, 2))
    pl.DataFrame(incomes, schema=["income", "wealth"]).write_csv(tmp_path / "x.csv")
    assert run("fit", "x.csv", "--quiet")[0] == 0
    bad = incomes[:30].copy()
    bad[4, 1] = -3.0
    pl.DataFrame(bad, schema=["income", "wealth"]).write_csv(tmp_path / "new.csv")
    for options in ((), ("--memory", "600MB")):
        code, out, err = run("predict", "x.clusters", "new.csv", *options)
        assert code == 0
        assert len(out.splitlines()) == 31
        assert "column 'wealth' has 1 value that the log_normal family" in " ".join(err.split())
    complains(
        run("predict", "x.clusters", "new.csv", "--handle-unknown", "error"), "-3", "'wealth'"
    )


def test_errors_of_a_table_in_shards_name_its_rows_and_columns(run, tmp_path, monkeypatch):
    monkeypatch.setattr("dpsearch.cli.predict._ROWS", 7)
    monkeypatch.setattr("dpsearch.sources.shards.SHARD_ROWS", 20)
    incomes = np.random.default_rng(0).lognormal(10.0, 1.0, size=(300, 2))
    pl.DataFrame(incomes, schema=["income", "wealth"]).write_csv(tmp_path / "x.csv")
    assert run("fit", "x.csv", "--quiet")[0] == 0
    incomes[53, 1] = -3.0
    pl.DataFrame(incomes[:60], schema=["income", "wealth"]).write_parquet(tmp_path / "new.parquet")
    command = ("predict", "x.clusters", "new.parquet", "--handle-unknown", "error")
    code, _, err = run(*command, "--memory", "600MB")
    assert code == 1
    assert "row 53, column 'wealth' is -3" in err


def test_values_of_a_column_are_counted_by_what_is_wrong_with_them(run, tmp_path):
    rng = np.random.default_rng(0)
    counts = pl.DataFrame({"a": rng.normal(size=300), "n": rng.poisson(9.0, 300)})
    counts.write_csv(tmp_path / "x.csv")
    assert run("fit", "x.csv", "--quiet", "--kinds", "n=count")[0] == 0
    new = counts[:30].with_columns(pl.col("n").cast(pl.Float64)).to_numpy().copy()
    new[3, 1], new[5, 1], new[7, 1] = -1.0, 1e13, -2.0
    pl.DataFrame(new, schema=["a", "n"]).write_csv(tmp_path / "new.csv")
    code, _, err = run("predict", "x.clusters", "new.csv")
    assert code == 0
    said = " ".join(err.split())
    assert "column 'n' has 2 values that cannot be read" in said
    assert "column 'n' has 1 value that the poisson family" in said
