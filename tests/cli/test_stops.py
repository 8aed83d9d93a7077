"""`dpsearch fit` with a time limit, and with Ctrl-C and SIGTERM in each of its phases."""

import json
import os
import signal

import polars as pl
import pytest

from command_line import as_text, names_in, table
from dpsearch import load
from dpsearch.deadline import Deadline, current
from dpsearch.refinement.turns import Refinement

WRITTEN = ["clusters.csv", "labels.csv", "model.npz", "run.json"]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def send_while(monkeypatch, phase, number):
    """Send a signal when refinement runs in a given phase."""
    run, sent = Refinement.run, []

    def signalled(self, *arguments, **options):
        if current().phase == phase and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return run(self, *arguments, **options)

    monkeypatch.setattr(Refinement, "run", signalled)
    return sent


def record_of(folder):
    """Read all files of the folder; return the record."""
    record = json.loads((folder / "run.json").read_text())
    labels, model = pl.read_csv(folder / "labels.csv"), load(folder / "model.npz")
    assert len(labels) == record["input"]["rows"] == model.mixture_.sizes.sum()
    assert pl.read_csv(folder / "clusters.csv")["size"].to_list() == record["sizes"]
    return record


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_in_refinement_writes_the_best_so_far(run, tmp_path, monkeypatch, number):
    (tmp_path / "x.csv").write_text(as_text(table()))
    sent = send_while(monkeypatch, "refining", number)
    options = ("--family", "gaussian", "--refine", "converge", "--report")
    code, out, err = run("fit", "x.csv", *options)
    assert (code, out, sent) == (128 + number, "", [number])
    assert names_in(tmp_path / "x.clusters") == WRITTEN  # but for the report
    record = record_of(tmp_path / "x.clusters")
    assert record["stopped"] == {"signal": number, "while": "refining"}
    assert record["cut_short"][0] == "refining"
    assert load(tmp_path / "x.clusters/model.npz").cut_short_[0] == "refining"
    assert "while refining: this is the best clustering found by then" in err.splitlines()[-1]
    assert signal.getsignal(number) is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_there_is_a_partition_writes_nothing(run, tmp_path, monkeypatch, number):
    (tmp_path / "x.csv").write_text(as_text(table()))
    send_while(monkeypatch, "choosing the family", number)
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[number]
    code, out, err = run("fit", "x.csv", "--family", "gaussian")
    assert (code, out) == (128 + number, "")
    assert err.splitlines()[-1] == (
        f"dpsearch: {word} while choosing the family: nothing was written"
    )
    assert names_in(tmp_path) == ["x.csv"]


def test_a_stop_in_the_explanation_leaves_it_out(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text(as_text(table()))

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the handler should have raised")

    monkeypatch.setattr("dpsearch.explain._p_values", interrupted)
    code, _, err = run("fit", "x.csv", "--family", "gaussian", "--report")
    assert code == 130
    assert "while explaining" in err.splitlines()[-1]
    assert err.splitlines()[-1].endswith("; report.html is not written")
    record = record_of(tmp_path / "x.clusters")
    assert record["stopped"]["while"] == "explaining"
    assert pl.read_csv(tmp_path / "x.clusters/labels.csv")["certainty"].null_count() == 0


def test_a_run_says_what_its_time_did_not_suffice_for(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text(as_text(table()))
    code, _, err = run("fit", "x.csv", "--time", "0.001", "--report")
    assert code == 0
    said = err.splitlines()[-1]
    assert said.startswith("cut short for lack of time: choosing the family, ")
    assert said.endswith(", writing the report; report.html is not written")
    record = record_of(tmp_path / "x.clusters")
    assert record["stopped"] is None
    assert record["parameters"]["time_limit"] == 0.001
    assert record["cut_short"][-1] == "writing the report"
    assert names_in(tmp_path / "x.clusters") == WRITTEN


def test_what_does_not_suffice_for_all_rows_may_for_some(run, tmp_path, monkeypatch):
    """The time for explaining all rows is over at once; that for a sample is not."""
    x, y = table().T
    days = [f"2020-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(len(x))]
    pl.DataFrame({"x": x, "y": y, "day": days}).write_csv(tmp_path / "x.csv")
    monkeypatch.setattr("dpsearch.cli.results._FEW", 10)
    during = Deadline.during

    def shortened(self, phase, share=1.0):
        return during(self, phase, 0.0 if phase == "explaining" else share)

    monkeypatch.setattr(Deadline, "during", shortened)
    assert run("fit", "x.csv", "--time", "100", "--report")[0] == 0
    folder = tmp_path / "x.clusters"
    assert record_of(folder)["cut_short"] == ["explaining"]
    assert "report.html" in names_in(folder)
    assert pl.read_csv(folder / "labels.csv")["certainty"].null_count() == len(table())
    assert pl.read_csv(folder / "clusters.csv")["typical_rows"].null_count() == 0


@pytest.mark.parametrize("family", ["gaussian", "product"])
def test_clusters_have_centres_where_there_was_no_time_for_rows(run, tmp_path, family):
    pl.DataFrame({"x": table()[:, 0], "n": [i % 7 for i in range(len(table()))]}).write_csv(
        tmp_path / "x.csv"
    )
    kinds = ("--kinds", "n=count") if family == "product" else ("--family", family)
    assert run("fit", "x.csv", "--time", "0.001", *kinds)[0] == 0
    found, clusters = record_of(tmp_path / "x.clusters"), tmp_path / "x.clusters/clusters.csv"
    assert "explaining" in found["cut_short"]
    assert found["family"]["name"] == family
    centres = pl.read_csv(clusters).select("^(mean|centre) of [xn]$")
    assert centres.width == 2
    assert centres.null_count().sum_horizontal()[0] == 0


def test_a_report_needs_no_draws(run, tmp_path, monkeypatch):
    """If there is no time to compare rows with draws, everything else is still written."""
    (tmp_path / "x.csv").write_text(as_text(table()))

    def over(*arguments):
        current().leave_out()

    monkeypatch.setattr("dpsearch.explain._p_values", over)
    code, _, err = run("fit", "x.csv", "--time", "100", "--report")
    assert code == 0
    assert err.splitlines()[-1] == "cut short for lack of time: explaining"
    page = (tmp_path / "x.clusters/report.html").read_text()
    assert "There was no time to look for outliers." in page
    assert "No row is an outlier" not in page


def test_what_needs_rows_is_named_where_no_row_was_explained(run, tmp_path, monkeypatch):
    (tmp_path / "x.csv").write_text(as_text(table()))
    during = Deadline.during

    def shortened(self, phase, share=1.0):
        return during(self, phase, 0.0 if phase == "explaining" else share)

    monkeypatch.setattr(Deadline, "during", shortened)
    code, _, err = run("fit", "x.csv", "--time", "100", "--report")
    assert code == 0
    assert err.splitlines()[-1].endswith(
        ": explaining, writing the report; report.html is not written"
    )
    assert record_of(tmp_path / "x.clusters")["cut_short"] == ["explaining", "writing the report"]
