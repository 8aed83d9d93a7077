"""`dpsearch sample`: what it writes, that a killed run goes on, and what it refuses."""

import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from dpsearch import Draws


@pytest.fixture
def run(run):
    """Run `dpsearch sample` in a folder with a table."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [9.0, -9.0]], 30, axis=0) + rng.normal(size=(60, 2))
    np.save("x.npy", X)
    return partial(run, "sample")


def test_draws_labels_and_plot(run, tmp_path):
    code, _, said = run(
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


@pytest.mark.parametrize("sampler", ["gibbs", "split-merge-1", "split-merge-2", "sams"])
def test_samplers(run, sampler):
    code, _, said = run(
        "x.npy", "--draws", 50, "--sampler", sampler, "--start", "one", "--chains", 1
    )
    assert code == 0
    assert f"1 chains of {sampler}" in said


def test_a_killed_run_goes_on_bit_for_bit(run, tmp_path):
    """The process is killed outright once it has saved its chains."""
    options = ["x.npy", "--draws", "12000", "--seed", "3", "--family", "diagonal_gaussian"]
    assert run(*options, "--out", "whole.npz")[0] == 0
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
    code, _, said = run(*options, "--out", "d.npz")
    assert code == 1
    assert "d.npz.checkpoint exists, from a run that was stopped" in said
    code, _, said = run(*options[:4], 4, *options[5:], "--out", "d.npz", "--resume")
    assert code == 1
    assert "another seed: 3, this run 4" in said
    assert run(*options, "--out", "d.npz", "--resume")[0] == 0
    assert not saved.exists()
    whole, again = Draws.load("whole.npz"), Draws.load("d.npz")
    for name in ("labels", "log_joint", "alpha"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


def test_a_checkpoint_that_was_named_is_kept_and_makes_a_longer_run(run, tmp_path):
    options = ["x.npy", "--seed", 0, "--checkpoint", "c"]
    assert run(*options, "--draws", 1000)[0] == 0
    assert (tmp_path / "c").exists()
    assert run(*options, "--draws", 1500, "--resume", "--force")[0] == 0
    assert len(Draws.load("draws.npz")) == 2800


def test_ctrl_c_says_where_the_chains_are(run, tmp_path):
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
    assert "the chains are saved in draws.npz.checkpoint: go on with --resume" in said
    assert "dpsearch: interrupted" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", 0], "draws must be a whole number ≥ 1"),
        (["--draws", 10, "--burn-in", 30], "burn_in 30"),
        (["--sampler", "magic"], "unknown sampler 'magic'"),
        (["--start", "nowhere"], "unknown start 'nowhere'"),
        (["--loss", "squared"], "unknown loss 'squared'"),
        (["--out", "x.npy"], "x.npy exists; use --force"),
        (["--out", "a", "--labels", "a"], "name the same file"),
        (["--out", "a", "--checkpoint", "a"], "--checkpoint names a file to be written"),
        (["--out", "no/such/a"], "no such folder"),
        (["--jobs", 0], "n_jobs must be"),
        (["--plot", "t.xyz"], "must end with one of"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(run, tmp_path, arguments, message):
    code, _, said = run("x.npy", *arguments)
    assert code == 1
    assert message in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
