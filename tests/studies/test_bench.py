"""`python -m studies peers`: units, kept results, environments, scores and the page.

scikit-learn's tools run in the Python of the tests instead of their own environment.
"""

import csv
import json
import math
import shlex
import sys
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from dpsearch import datasets, families, log_joint
from dpsearch.automatic import resolve_prior
from dpsearch.errors import ParameterError
from studies.__main__ import main
from studies.peers import command as peers_command
from studies.peers import environments, mixed, page, peers, scores, summary, tables, tools, units
from studies.peers.classifier import classified
from studies.peers.environments import EnvironmentProblem, Environments
from studies.peers.workers import by_dpsearch
from studies.reproduction.report import Report

DRAWN = datasets.planted_clusters(90, 2, 3, spread=8.0, rng=0)
TINY = tables.Table("tiny", lambda seed: ({"X": DRAWN.X}, DRAWN.labels))
TOOLS = {tool.name: tool for tool in (*tools.PEERS, tools.LACE)}


class Here(Environments):
    """Environments that give the tests' Python for scikit-learn's and cannot make any other."""

    def python(self, name):
        if name == "scikit":
            return Path(sys.executable)
        raise EnvironmentProblem(f"the environment {name} cannot be made: no network")


@pytest.fixture
def runner(tmp_path):
    return units.Runner(units.Store(tmp_path / "cache"), Here(tmp_path / "envs"), 60.0)


def outcome(labels, seconds=1.0, **about):
    return units.Outcome("done", seconds, seconds, 100.0, list(map(int, labels)), about=about)


# -- units -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_unit_runs_in_a_process_of_its_own_and_is_kept(runner):
    unit = units.Unit(TINY, TOOLS["GaussianMixture full, given K"], 0)
    found = runner(unit)
    assert found.status == "done"
    X = tables.common(DRAWN.X)
    want = GaussianMixture(3, covariance_type="full", random_state=0).fit_predict(X)
    assert found.labels == want.tolist()
    assert found.seconds > 0.0
    assert found.wall_seconds > 0.0
    assert 20.0 < found.peak_mb < 5000.0
    # Kept: the same comes back, and no process is started.
    runner._run = None
    assert runner(unit) == found
    (path,) = runner.store.folder.iterdir()
    assert str(runner.store.folder) not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["KMeans, silhouette", "GaussianMixture diag, BIC"])
@pytest.mark.slow
def test_tools_that_choose_k_find_separated_clusters(runner, name):
    found = runner(units.Unit(TINY, TOOLS[name], 0))
    assert adjusted_rand_score(DRAWN.labels, found.labels) > 0.95


def test_what_a_kept_result_depends_on(tmp_path):
    store = units.Store(tmp_path)
    unit = units.Unit(TINY, TOOLS["HDBSCAN"], 0)
    other_data = tables.Table("tiny", lambda seed: ({"X": DRAWN.X + 1e-9}, DRAWN.labels))
    other_settings = replace(unit.tool, settings={**unit.tool.settings, "min_samples": 3})
    others = [
        replace(unit, seed=1),
        replace(unit, form="raw"),
        replace(unit, table=other_data),
        replace(unit, tool=other_settings),
        replace(unit, tool=replace(unit.tool, environment="dp_means")),
    ]
    assert len({store.path(other) for other in (unit, *others)}) == 1 + len(others)
    again = tables.Table("tiny", lambda seed: ({"X": DRAWN.X.copy()}, DRAWN.labels))
    assert store.path(replace(unit, table=again)) == store.path(unit)
    # Results of dpsearch depend on its sources.
    ours = units.Unit(TINY, tools.DPSEARCH, 0)
    assert ours.key()["stamp"] == tools.source_stamp()


def test_a_kept_result_answers_for_other_limits(tmp_path):
    store = units.Store(tmp_path)
    unit = units.Unit(TINY, TOOLS["HDBSCAN"], 0)
    assert store.get(unit, 10.0) is None
    store.put(unit, outcome(DRAWN.labels, seconds=5.0))
    assert store.get(unit, 10.0).status == "done"
    assert store.get(unit, 4.0) == units.stopped(4.0)
    store.put(unit, replace(outcome(DRAWN.labels, seconds=5.0), wall_seconds=20.0))
    assert store.get(unit, 10.0).busy
    assert units.Store(tmp_path, retime=True).get(unit, 10.0) is None
    store.put(unit, units.stopped(10.0))
    assert store.get(unit, 4.0) == units.stopped(4.0)
    assert store.get(unit, 11.0) is None  # might be done by then
    store.path(unit).write_text("{", encoding="utf-8")
    assert store.get(unit, 10.0) is None
    for status in ("failed", "not installed"):
        other = replace(unit, seed=1)
        store.put(other, units.Outcome(status))
        assert not store.path(other).exists()


@pytest.fixture
def planted_worker(monkeypatch, tmp_path):
    """Run a worker script written by the test, beside the real run.py."""
    folder = tmp_path / "workers"
    folder.mkdir()
    real = Path(units.__file__).parent / "workers" / "run.py"
    (folder / "run.py").write_text(real.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(units, "_WORKERS", folder)

    def plant(body):
        code = (
            f"def prepare(data, settings, seed):\n    def fit():\n        {body}\n    return fit\n"
        )
        (folder / "planted.py").write_text(code, encoding="utf-8")
        return units.Unit(TINY, tools.Tool("planted", "planted", environment="scikit"), 0)

    monkeypatch.setattr(tools.Tool, "stamp", lambda self: "planted")
    return plant


@pytest.mark.slow
def test_a_unit_is_stopped_at_the_limit_of_processor_time(planted_worker, runner):
    runner.limit = 1.0
    unit = planted_worker("while True: pass")
    begun = time.monotonic()
    assert runner(unit) == units.stopped(1.0)
    assert time.monotonic() - begun < 60.0
    assert runner.store.get(unit, 1.0).message == "stopped at 1 s"


def test_a_failing_tool_is_reported_and_not_kept(planted_worker, runner):
    found = runner(planted_worker("raise ValueError('no such luck')"))
    assert found == units.Outcome("failed", message="ValueError: no such luck")
    assert list(runner.store.folder.iterdir()) == []
    found = runner(planted_worker("return [0, 1]"))
    assert found.status == "failed"
    assert "2 labels" in found.message


def test_dpsearch_is_the_same_in_a_worker_where_its_path_is_relative(
    planted_worker, runner, monkeypatch, tmp_path
):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "marked.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "here")
    unit = planted_worker("import marked; return [0] * 90")
    found = runner(replace(unit, tool=replace(unit.tool, environment=None)))
    assert found.status == "done", found.message
    other = runner(replace(unit, seed=1))  # in an environment of its own
    assert "No module named 'marked'" in other.message


@pytest.mark.slow
def test_only_the_last_call_of_a_fit_is_timed_and_limited(planted_worker, runner):
    """A fit that returns None asks to be called again."""
    runner.limit = 2.0
    unit = planted_worker(
        "import time; end = time.process_time() + (1.5 if not settings else 0.7)\n"
        "        while time.process_time() < end: pass\n"
        "        return [0] * 90 if settings else settings.update(warm=True)"
    )
    found = runner(unit)
    assert found.status == "done", found.message
    assert 0.6 < found.seconds < 1.4
    assert found.wall_seconds >= 0.99 * found.seconds


def test_dpsearch_is_timed_once_more_if_it_chose_another_family(monkeypatch):
    chosen = iter([families.Poisson(), families.Gaussian(), families.Gaussian()])

    class Pretended:
        def __init__(self, **settings):
            pass

        def fit(self, X):
            self.family_, self.labels_, self.log_joint_ = next(chosen), np.zeros(len(X)), 0.0
            return self

    monkeypatch.setattr("dpsearch.DPMixture", Pretended)
    fit = by_dpsearch.prepare({"X": DRAWN.X}, {}, 0)
    assert fit() is None
    labels, about = fit()
    assert len(labels) == 90
    assert "seconds" not in about  # they are those of this call


def test_a_unit_that_is_given_up_leaves_no_process(planted_worker, runner, monkeypatch):
    started = []
    popen = units.subprocess.Popen
    monkeypatch.setattr(
        units.subprocess, "Popen", lambda *a, **b: started.append(popen(*a, **b)) or started[-1]
    )

    def check():
        if started:
            raise CancelledError

    with pytest.raises(CancelledError):
        runner(planted_worker("import time; time.sleep(600)"), check)
    assert started[0].returncode is not None


# -- environments ------------------------------------------------------------------------------


def test_every_tool_has_a_pinned_version():
    for tool in TOOLS.values():
        assert tool.version
        if tool.environment is not None:
            text = environments.requirements(tool.environment)
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            assert all(line.count("==") == 1 for line in lines)
    with pytest.raises(EnvironmentProblem, match="no pinned nothing"):
        environments.version("scikit", "nothing")


def test_an_environment_is_made_once_and_used_again(tmp_path, monkeypatch):
    commands = []

    def pretend(command, **options):
        commands.append(command[1:3])
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        return units.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(environments.subprocess, "run", pretend)
    python = Environments(tmp_path).python("scikit")
    assert commands == [["-m", "venv"], ["-m", "pip"]]
    listed = (python.parents[1] / "requirements.txt").read_text(encoding="utf-8")
    assert listed == environments.requirements("scikit")
    assert Environments(tmp_path).python("scikit") == python
    assert len(commands) == 2
    # One that was left half made is made again; another list is another environment.
    (python.parents[1] / ".ready").unlink()
    Environments(tmp_path).python("scikit")
    assert len(commands) == 4
    monkeypatch.setattr(environments, "requirements", lambda name: "# another list\n")
    assert Environments(tmp_path).place("scikit") != python.parents[1]


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    calls = []

    def fail(command, **options):
        calls.append(command)
        said = "" if "venv" in command else "WARNING: x\nERROR: No matching distribution for y"
        return units.subprocess.CompletedProcess(command, "pip" in command, "", said)

    monkeypatch.setattr(environments.subprocess, "run", fail)
    monkeypatch.setattr(Path, "write_text", lambda self, *a, **b: None)
    made = Environments(tmp_path)
    for _ in range(2):
        with pytest.raises(EnvironmentProblem, match="scikit cannot be made: ERROR: No matching"):
            made.python("scikit")
    assert len(calls) == 2  # the folder and pip, once


# -- tables ------------------------------------------------------------------------------------


def test_common_columns():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(5.0, 3.0, (80, 4)), np.full((80, 1), 1e9)])
    out = tables.common(X)
    assert out.shape == (80, 4)
    np.testing.assert_allclose(out.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(out.std(axis=0), 1.0)
    assert tables.common(rng.normal(size=(80, 60))).shape == (80, 50)


def test_gaps_are_of_the_share_and_differ_by_seed():
    X = np.random.default_rng(0).normal(size=(2000, 5))
    first, second = tables.with_gaps(X, 0.3, 0), tables.with_gaps(X, 0.3, 1)
    assert abs(np.isnan(first).mean() - 0.3) < 0.02
    assert (np.isnan(first) != np.isnan(second)).any()
    np.testing.assert_allclose(np.nanstd(first, axis=0), 1.0)
    np.testing.assert_array_equal(first, tables.with_gaps(X, 0.3, 0))


def test_documents_keep_frequent_words_and_are_not_empty():
    counts = sp.csr_matrix([[3, 0, 1, 0], [0, 0, 5, 0], [0, 1, 0, 0], [2, 0, 0, 1]])
    raw, classes = tables.news_part(counts, np.array([7, 8, 9, 7]), words=2)
    np.testing.assert_array_equal(tables.sparse(raw).toarray(), [[3, 1], [0, 5], [2, 0]])
    assert classes.tolist() == [7, 8, 7]
    rng = np.random.default_rng(0)
    columns = tables.latent_columns(sp.csr_matrix(rng.poisson(0.5, (100, 80)) + np.eye(100, 80)))
    assert columns.shape == (100, 50)
    np.testing.assert_allclose(np.linalg.norm(columns, axis=1), 1.0)


def test_tables_that_are_not_there_are_named(tmp_path):
    found, absent = tables.labelled_tables(None)
    assert [table.name for table in found] == [
        "iris",
        "wine",
        "breast cancer",
        "digits",
        "MNIST 3k",
    ]
    assert len(absent) == 4
    np.savez(
        tmp_path / "uci_labelled.npz", penbased_X=np.eye(3, dtype=np.uint8), penbased_y=[0, 1, 2]
    )
    found, absent = tables.labelled_tables(tmp_path)
    pens = next(table for table in found if table.name == "penbased")
    np.testing.assert_array_equal(pens.raw(0)["X"], np.eye(3))
    assert [line.split(" left")[0] for line in absent] == ["20 newsgroups", "MNIST 60k"]


def test_mixed_tables_are_as_described():
    settings = mixed.Settings(20_000, 2, 2.0)
    drawn = mixed.draw(settings, 0)
    assert drawn.X.shape == (20_000, 12)
    assert abs(np.isnan(drawn.X).mean() - 0.1) < 0.01
    of_kind = {kind: drawn.X[:, drawn.kinds == kind] for kind in ("real", "count", "category")}
    for k in range(2):
        inside = {kind: columns[drawn.labels == k] for kind, columns in of_kind.items()}
        np.testing.assert_allclose(np.nanstd(inside["real"], axis=0), 1.0, atol=0.05)
        ratio = np.nanvar(inside["count"], axis=0) / np.nanmean(inside["count"], axis=0)
        np.testing.assert_allclose(ratio, 1.0, atol=0.1)
    seen = of_kind["category"][~np.isnan(of_kind["category"])]
    assert set(seen) <= set(range(5))
    np.testing.assert_array_equal(mixed.draw(settings, 0).X, drawn.X)


def test_the_judge_takes_the_most_probable_cluster():
    rng = np.random.default_rng(1)
    X = np.array([[0.3, 2.0, 1.0], [np.nan, 1.0, 0.0], [np.nan] * 3, [1.2, np.nan, 1.0]])
    weights, means, rates = np.array([0.3, 0.7]), rng.normal(size=(2, 1)), np.array([[2.0], [6.0]])
    levels = np.array([[[0.9, 0.1]], [[0.2, 0.8]]])
    want = []
    for x, n, c in X:
        p = [
            weights[k]
            * (1.0 if np.isnan(x) else stats.norm.pdf(x, means[k, 0]))
            * (1.0 if np.isnan(n) else stats.poisson.pmf(n, rates[k, 0]))
            * (1.0 if np.isnan(c) else levels[k, 0, int(c)])
            for k in range(2)
        ]
        want.append(int(np.argmax(p)))
    assert mixed._judged(X, weights, means, rates, levels).tolist() == want
    assert set(want) == {0, 1}


# -- scores ------------------------------------------------------------------------------------


def test_scores_against_the_truth_and_noise():
    labels = DRAWN.labels.copy()
    labels[:9] = -1
    score = scores.judge(units.Unit(TINY, TOOLS["HDBSCAN"], 0), outcome(labels))
    assert score.ari == adjusted_rand_score(DRAWN.labels, labels)
    assert (score.n_clusters, score.n_classes, score.noise) == (3, 3, 0.1)
    cell = summary.Cell([score])
    assert cell.clusters_text() == "3, noise 10%"


def test_log_joints_are_those_of_the_family_that_dpsearch_chose():
    family = families.Gaussian(0.0, 3.0, 0.5)
    X = tables.common(DRAWN.X)
    value = log_joint(X, DRAWN.labels, family, resolve_prior("auto"))
    split = np.where(np.arange(90) == 3, -1, DRAWN.labels)
    ours = outcome(DRAWN.labels, family_fields=family.to_dict(), log_joint=value)
    results = [
        (units.Unit(TINY, TOOLS["HDBSCAN"], 0), outcome(split)),
        (units.Unit(TINY, tools.DPSEARCH_COMMON, 0), ours),
        (units.Unit(TINY, TOOLS["KMeans, given K"], 0), units.stopped(3.0)),
        (units.Unit(TINY, tools.DPSEARCH, 0), outcome(DRAWN.labels)),  # another form, no family
    ]
    want = log_joint(X, np.where(split < 0, 3, split), family, resolve_prior("auto"))
    assert scores.log_joints(results) == [pytest.approx(want), pytest.approx(value), None, None]
    # A family that does not give back what dpsearch reported is not used.
    ours.about["log_joint"] = value + 1.0
    assert scores.log_joints(results) == [None] * 4


def cell(ari, *, status="done", seconds=1.0):
    unit = units.Unit(TINY, TOOLS["HDBSCAN"], 0)
    made = units.Outcome(status, seconds, message="stopped at 9 s" if status == "stopped" else "no")
    return summary.Cell([replace(scores.Score(unit, made), ari=a, ami=a / 2) for a in ari])


def test_cells_show_spread_and_never_a_number_for_what_was_stopped():
    assert cell([0.5, 0.7, 0.6]).ari_text() == "0.60 (0.50–0.70)"
    assert cell([0.5, 0.5001]).ari_text() == "0.50"
    halted = cell([math.nan], status="stopped")
    texts = (halted.ari_text(), halted.ami_text(), halted.clusters_text(), halted.seconds_text())
    assert set(texts) == {"stopped at 9 s"}
    assert halted.log_joint_text() == ""
    assert (halted.ari, halted.ami) == (0.0, 0.0)
    (line,) = summary.lines([cell([0.8]), halted])
    assert (line.ari, line.ami, line.n_without_answer) == (0.4, 0.2, 1)
    assert summary.lines([cell([math.nan], status="not installed")]) == []


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """Run the command on the tiny table with available tools, and one that is not available."""
    big = tables.Table("big", TINY.source)
    monkeypatch.setattr(peers, "labelled_tables", lambda folder: ([TINY, big], ["moon left out"]))
    monkeypatch.setattr(peers, "mixed_tables", list)
    monkeypatch.setattr(peers, "Environments", Here)

    def run(**options):
        said = []
        path = peers.bench_peers(tmp_path / "out", tell=said.append, **options)
        return path, said

    return run


@pytest.mark.slow
def test_the_page_the_tables_and_the_figure(bench, tmp_path):
    only = ["HDBSCAN", "KMeans, given", "DP-means,"]
    path, said = bench(only=only, seeds=2, sets=["tiny"])
    assert said[0] == "moon left out"
    assert sum("seed 1" in line for line in said) == 1  # HDBSCAN has no chance in it
    text = path.read_text(encoding="utf-8")
    assert path == tmp_path / "out" / "peers.md"
    assert "- moon left out" in text
    assert "DP-means, δ by χ²: the environment dp_means cannot be made: no network" in text
    with (tmp_path / "out" / "tables" / "peers.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["tool"], row["seed"], row["status"]) for row in rows] == [
        ("HDBSCAN", "0", "done"),
        ("DP-means, δ by χ²", "0", "not installed"),
        ("KMeans, given K", "0", "done"),
        ("KMeans, given K", "1", "done"),
    ]
    assert float(rows[2]["ari"]) > 0.95
    for name in ("figures/peers.png", "figures/peers.svg", "tables/peers-ari.md"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    # A second run starts no process but writes the same page.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cache").iterdir()}
    bench(only=only, seeds=2, sets=["tiny"])
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "cache").iterdir()} == before
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_relative_folders(bench, tmp_path, monkeypatch):
    """Tools run in their own folder, and relative paths are still found."""
    monkeypatch.setattr(peers, "Environments", Environments)
    place = Environments(tmp_path / "envs").place("scikit")
    (place / "bin").mkdir(parents=True)
    (place / ".ready").touch()
    python = place / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    folders = {"envs": Path("envs"), "cache": Path("kept"), "data": Path("envs")}
    _, said = bench(only=["HDBSCAN"], sets=["tiny"], seeds=1, **folders)
    assert said[-1].endswith(" s")
    assert len(list((tmp_path / "kept").iterdir())) == 1
    text = (tmp_path / "out" / "peers.md").read_text(encoding="utf-8")
    options = "--seeds 1 --limit 600 --jobs 1 --only HDBSCAN --sets tiny"
    assert text.splitlines()[2].startswith(f"Written by `python -m studies peers {options}`, with")
    assert str(tmp_path) not in text


@pytest.mark.parametrize("names", [["iris"], ["mixed, 300 rows"], ["iris", "mixed, 300 rows"]])
def test_the_page_tells_a_command_that_can_be_run(names):
    options = {"only": None, "seeds": 2, "limit": 300.0, "n_jobs": 2}
    text = peers.command(quick=False, sets=names, **options)
    assert text.startswith("python -m studies peers --seeds 2 --limit 300 --jobs 2 --sets ")
    assert peers_command.names(shlex.split(text)[-1]) == names
    quick = peers.command(quick=True, sets=None, **options)
    assert quick == "python -m studies peers --quick --limit 300 --jobs 2"


def fake_page(monkeypatch, tmp_path, by_tool):
    """Return the page for given outcomes, on a table of 6,000 rows."""
    truth = np.repeat(np.arange(3), 2000)
    table = tables.Table("many", lambda seed: ({"X": np.zeros((6000, 2))}, truth))
    results = [(units.Unit(table, TOOLS[name], 0), made) for name, made in by_tool.items()]
    judged = [scores.judge(unit, made) for unit, made in results]
    report = Report(tmp_path)
    path = page.write(judged, [], report, limit=600.0, n_jobs=1, command="python -m studies peers")
    return path.read_text(encoding="utf-8")


def test_losses_and_speed_are_computed(monkeypatch, tmp_path):
    truth = np.repeat(np.arange(3), 2000)
    parted = truth * 3 + np.arange(6000) % 3
    by_tool = {
        "dpsearch": outcome(parted, 2.0),
        "BayesianGaussianMixture full": units.stopped(600.0),
        "KMeans, silhouette": outcome(truth),
        "KMeans, given K": outcome(truth),
    }
    text = fake_page(monkeypatch, tmp_path, by_tool)
    assert "- **many** (" in text
    assert "to KMeans, silhouette (1.00). It finds 3.0 times as many clusters" in text
    assert "classes are split rather than mixed" in text
    assert "| many | 6,000 | stopped at 600 s | 2 | ≥ 300 |" in text
    assert "not above the best tool that is not given K, KMeans, silhouette, 1.000" in text
    won = {**by_tool, "dpsearch": outcome(truth, 2.0), "KMeans, silhouette": outcome(parted)}
    assert "On no data set to a tool that is not given K." in fake_page(monkeypatch, tmp_path, won)


@pytest.mark.slow
def test_dpsearch_is_compared_like_for_like_too(monkeypatch, tmp_path):
    truth = np.repeat(np.arange(3), 2000)
    parted = truth * 3 + np.arange(6000) % 3
    by_tool = {
        "dpsearch": outcome(truth),
        "dpsearch, common columns": outcome(parted * 2 + np.arange(6000) // 3 % 2),
        "bnpy multinomial": outcome(truth),  # it gets other columns
        "HDBSCAN": outcome(parted),
        "KMeans, given K": outcome(truth),
    }
    lines = fake_page(monkeypatch, tmp_path, by_tool).splitlines()
    for metric in ("ARI", "AMI"):
        raw, same, told = (line for line in lines if line.startswith(f"- Mean {metric}: "))
        assert "dpsearch from the raw table 1.000, not above" in raw
        assert "that is not given K, bnpy multinomial, 1.000." in raw
        assert "like for like, dpsearch, common columns 0." in same
        assert ", not above the best tool that is not given K, HDBSCAN, 0." in same
        assert "that is given K, KMeans, given K, 1.000." in told
    won = {**by_tool, "dpsearch, common columns": outcome(truth)}
    text = fake_page(monkeypatch, tmp_path, won)
    assert "like for like, dpsearch, common columns 1.000, above the best tool" in text
    del won["dpsearch"]
    assert "like for like" in fake_page(monkeypatch, tmp_path, won)


def test_without_other_tools_dpsearch_is_not_called_the_best(monkeypatch, tmp_path):
    truth = np.repeat(np.arange(3), 2000)
    alone = {"dpsearch": outcome(truth), "DP-means": units.Outcome("not installed", message="no")}
    text = fake_page(monkeypatch, tmp_path, alone)
    assert "## Where dpsearch loses\n\nNo other tool was run.\n" in text
    told = {**alone, "KMeans, given K": outcome(truth)}
    assert "No tool that is not given K was run." in fake_page(monkeypatch, tmp_path, told)


def test_every_labelled_unit_is_listed_and_gaps_too():
    iris = tables.Table("iris", TINY.source)
    drawn = tables.mixed_tables()[0]
    listed = peers.units([iris, drawn], list(TOOLS.values()))
    places = {(u.table.name, u.data_form, u.tool.name) for u in listed}
    assert ("iris", "gaps", "pylace") in places
    assert ("iris", "gaps", "dpsearch, common columns") in places
    assert {(f, t) for n, f, t in places if n == drawn.name} == {
        ("raw", "dpsearch"),
        ("raw", "pylace"),
    }
    assert len(places) == len(listed)


def test_names_that_are_not_known_are_errors(bench, capsys, monkeypatch):
    with pytest.raises(ParameterError, match="unknown tool 'Bayes net'"):
        bench(only=["Bayes net"])
    with pytest.raises(ParameterError, match="unknown data set 'moon'"):
        bench(sets=["moon"])
    with pytest.raises(ParameterError, match="limit must be above 0"):
        bench(limit=0.0)
    monkeypatch.setattr(sys, "argv", ["studies", "peers", "--only", "pears"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert "unknown tool 'pears'" in capsys.readouterr().err


@pytest.mark.slow
def test_dpsearch_itself_runs_as_a_tool(tmp_path):
    runner = units.Runner(units.Store(tmp_path / "cache"), Here(tmp_path), 60.0)
    found = runner(units.Unit(TINY, tools.DPSEARCH, 0))
    assert found.status == "done", found.message
    assert adjusted_rand_score(DRAWN.labels, found.labels) > 0.95
    value = scores.log_joints([(units.Unit(TINY, tools.DPSEARCH, 0), found)])
    assert value == [pytest.approx(found.about["log_joint"])]
    assert json.dumps(found.about)


def test_a_classifier_given_the_classes_uses_only_observed_values():
    rng = np.random.default_rng(0)
    classes = np.repeat(["u", "v", "w"], [30, 50, 20])
    X = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 3)) + 2.0 * (classes == "v")[:, None]
    gaps = np.where(rng.random(X.shape) < 0.4, np.nan, X)
    scores = np.log([[30.0, 50.0, 20.0]] * 100)
    for k, name in enumerate("uvw"):
        mean, covariance = X[classes == name].mean(axis=0), np.cov(X[classes == name].T)
        for i, row in enumerate(gaps):
            seen = ~np.isnan(row)
            if seen.any():
                part = covariance[np.ix_(seen, seen)]
                scores[i, k] += stats.multivariate_normal.logpdf(row[seen], mean[seen], part)
    assert np.isnan(gaps).all(axis=1).any()
    wanted = np.array(list("uvw"))[scores.argmax(axis=1)]
    np.testing.assert_array_equal(classified(X, classes, gaps), wanted)
