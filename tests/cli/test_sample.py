"""`dpsearch sample`: what it writes, that a killed run is continued, and what it refuses."""

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dpsearch.samplers
from dpsearch import Draws, load, priors, split_merge
from dpsearch.progress import Stages


@pytest.fixture
def sampled(run, tmp_path):
    """Run `dpsearch sample` in a folder with a table; return (exit code, standard error)."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [9.0, -9.0]], 30, axis=0) + rng.normal(size=(60, 2))
    np.save(tmp_path / "x.npy", X)

    def sampled(*arguments):
        code, _, said = run("sample", *arguments)
        return code, said

    return sampled


def test_draws_labels_and_plot(sampled, tmp_path):
    code, said = sampled(
        "x.npy", "--draws", 200, "--seed", 1, "--labels", "l.csv", "--plot", "t.png", "--out", "d"
    )
    assert code == 0
    assert "360 partitions of 60 rows from 2 chains of split-merge-3" in said
    assert re.search(r"clusters: 2: \d+%", said)
    assert "R-hat" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "l.csv", "t.png", "x.npy"]
    draws = Draws.load("d")
    assert draws.burn_in == 20
    labels = np.loadtxt("l.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    np.testing.assert_array_equal(labels, draws.point_estimate("vi").labels)


def test_a_model_brings_its_family_and_its_clusters(sampled, run, tmp_path):
    assert run("fit", "x.npy", "--family", "gaussian", "--alpha", "0.5", "--quiet")[0] == 0
    options = ["x.npy", "--draws", 30, "--seed", 1, "--chains", 1, "--burn-in", 0, "--force"]
    code, said = sampled(*options, "--model", "x.clusters")
    assert code == 0
    assert "family gaussian" in said
    fitted = load("x.clusters/model.npz")
    prior = priors.DirichletProcess(0.5)
    want = split_merge(
        np.load("x.npy"), fitted.family_, prior, draws=30, variant=3, moves=1, chains=1, rng=1,
        start=fitted.labels_,
    )  # fmt: skip
    np.testing.assert_array_equal(Draws.load("draws.npz").labels, want.labels)
    code, said = sampled(*options, "--model", "x.clusters", "--family", "gaussian")
    assert (code, said.count("\n")) == (1, 1)
    assert "--model has its own family" in said
    np.save("short.npy", np.load("x.npy")[:9])
    code, said = sampled("short.npy", *options[1:], "--model", "x.clusters")
    assert (code, said.count("\n")) == (1, 1)
    assert "9 rows, but x.clusters was fitted to 60" in said


def test_the_posterior_in_a_report(sampled, run, tmp_path):
    assert run("fit", "x.npy", "--family", "gaussian", "--refine", "no", "--quiet")[0] == 0
    options = ["--draws", 60, "--seed", 1, "--chains", 1, "--model", "x.clusters"]
    code, _ = sampled("x.npy", *options, "--report", "posterior.html")
    assert code == 0
    page = (tmp_path / "posterior.html").read_text()
    draws = Draws.load("draws.npz")
    shares = draws.k_posterior()
    assert f"Of {len(draws)} draws from the posterior" in page
    assert f"have {shares.argmax()} clusters" in page
    shown = page.split("Posterior of the number of clusters K")[1].split("Posterior of")[0]
    for k in np.flatnonzero(shares):
        assert f'title="{k}: {100.0 * shares[k]:.1f} %"' in shown
    assert "Posterior of the concentration α" in page
    np.save("y.npy", np.load("x.npy") + 1.0)
    for data, more, message in (
        (
            "y.npy",
            [*options, "--start", "search"],
            "y.npy: --report needs the data that x.clusters",
        ),
        ("x.npy", options, "posterior.html exists; use --force"),
        ("x.npy", ["--draws", 10], "--report shows the clusters of a model: add --model"),
    ):
        path = "posterior.html" if "exists" in message else "new.html"
        code, said = sampled(data, *more, "--out", "other.npz", "--report", path)
        assert (code, said.count("\n")) == (1, 1)
        assert message in said
    assert not (tmp_path / "other.npz").exists()


def test_it_says_what_it_is_doing(sampled, monkeypatch):
    told = []
    monkeypatch.setattr(Stages, "begin", lambda self, stage: told.append(stage))
    options = ["--draws", 10, "--chains", 1, "--family", "gaussian"]
    assert sampled("x.npy", *options)[0] == 0
    outer = ["reading x.npy", "fitting", "preparing", "writing"]
    assert [stage for stage in told if stage in outer] == outer
    assert told.index("fitting") < told.index("searching") < told.index("preparing")


def test_a_file_that_came_meanwhile_is_kept(sampled, tmp_path, monkeypatch):
    def slow(*arguments, **options):
        (tmp_path / "l.csv").write_text("mine")
        return split_merge(*arguments, **options)

    monkeypatch.setattr(dpsearch.samplers, "split_merge", slow)
    options = ["--draws", 10, "--chains", 1, "--family", "gaussian", "--labels", "l.csv"]
    code, said = sampled("x.npy", *options)
    assert code == 1
    assert "l.csv exists; use --force" in said
    assert (tmp_path / "l.csv").read_text() == "mine"


@pytest.mark.parametrize("sampler", ["gibbs", "metropolis", "split-merge-1", "sams"])
def test_samplers(sampled, sampler):
    code, said = sampled(
        "x.npy", "--draws", 50, "--sampler", sampler, "--start", "one", "--chains", 1
    )
    assert code == 0
    assert f"1 chain of {sampler}" in said
    assert "fewer than 100 effective draws: increase --draws" in said


def test_options_of_one_sampler_and_chains_that_disagree(sampled, monkeypatch):
    disagree = {"log_joint": {"rhat": 1.2, "ess": 300.0}}
    monkeypatch.setattr(dpsearch.Draws, "diagnostics", lambda self: disagree)
    given, metropolis = {}, dpsearch.samplers.metropolis

    def noted(*rest, **options):
        given.update(options)
        return metropolis(*rest, **options)

    monkeypatch.setattr(dpsearch.samplers, "metropolis", noted)
    options = ["--sampler", "metropolis", "--proposals", 3, "--algorithm", 7]
    code, said = sampled("x.npy", "--draws", 30, *options)
    assert code == 0
    assert (given["proposals"], given["algorithm"]) == (3, 7)
    assert "R-hat above 1.1: the chains disagree" in said


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(sampled, tmp_path):
    """The process is killed (SIGKILL) once it has saved its chains."""
    options = ["x.npy", "--draws", "12000", "--seed", "3", "--family", "diagonal_gaussian"]
    assert sampled(*options, "--out", "whole.npz")[0] == 0
    command = [sys.executable, "-m", "dpsearch.cli", "sample", *options, "--out", "d.npz"]
    process = subprocess.Popen([*command, "--checkpoint-seconds", "0"], cwd=tmp_path)
    saved = tmp_path / "d.npz.checkpoint"
    for _ in range(1200):
        if saved.exists():
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert saved.exists()
    assert not (tmp_path / "d.npz").exists()
    code, said = sampled(*options, "--out", "d.npz")
    assert code == 1
    assert "d.npz.checkpoint exists, from a run that was stopped" in said
    code, said = sampled(*options[:4], 4, *options[5:], "--out", "d.npz", "--resume")
    assert code == 1
    assert "another seed (3) than this run (4)" in said
    assert sampled(*options, "--out", "d.npz", "--resume")[0] == 0
    assert not saved.exists()
    whole, again = Draws.load("whole.npz"), Draws.load("d.npz")
    for name in ("labels", "log_joint", "alpha"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


def test_a_checkpoint_that_was_named_is_kept_and_makes_a_longer_run(sampled, tmp_path):
    options = ["x.npy", "--seed", 0, "--checkpoint", "c"]
    assert sampled(*options, "--draws", 1000)[0] == 0
    assert (tmp_path / "c").exists()
    assert sampled(*options, "--draws", 1500, "--resume", "--force")[0] == 0
    assert len(Draws.load("draws.npz")) == 2800


@pytest.mark.slow
def test_ctrl_c_says_where_the_chains_are(sampled, tmp_path):
    command = [sys.executable, "-m", "dpsearch.cli", "sample", "x.npy", "--draws", "10000000"]
    process = subprocess.Popen(
        [*command, "--checkpoint-seconds", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    for _ in range(1200):
        if (tmp_path / "draws.npz.checkpoint").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the chains are saved in draws.npz.checkpoint: add --resume to continue" in said
    assert "dpsearch: interrupted" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", 0], "--draws must be an integer ≥ 1"),
        (["--draws", 10, "--burn-in", 30], "--burn-in 30 and --thin 1 leave nothing of --draws 10"),
        (["--burn-in", -1], "--burn-in must be an integer ≥ 0"),
        (
            ["--sampler", "metropolis", "--moves", 5],
            "--moves is not an option of the sampler metropoli",
        ),
        (["--proposals", 5], "--proposals is not an option of the sampler split-merge-3"),
        (["--sampler", "magic"], "unknown sampler 'magic'"),
        (["--start", "nowhere"], "unknown start 'nowhere'"),
        (["--loss", "squared"], "unknown loss 'squared'"),
        (["--out", "x.npy"], "x.npy exists; use --force"),
        (["--out", "a", "--labels", "a"], "name the same file"),
        (["--out", "a", "--checkpoint", "a"], "--checkpoint names a file that the command writes"),
        (["--out", "no/such/a"], "no such folder"),
        (["--jobs", 0], "n_jobs must be"),
        (["--plot", "t.xyz"], "must end with one of"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(sampled, tmp_path, arguments, message):
    code, said = sampled("x.npy", *arguments)
    assert code == 1
    assert message in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
