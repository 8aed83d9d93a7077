"""`dpsearch fit --checkpoint`: killed runs are continued, and files of other runs refused."""

import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from dpsearch import DPMixture

N = 20_000
FAMILY = ("--family", "diagonal_gaussian")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 2)) + 12.0 * rng.integers(2, size=(N, 2))


@pytest.mark.parametrize(
    ("name", "also"),
    [
        ("x.npy", ()),
        pytest.param("x.csv", (), marks=pytest.mark.slow),
        pytest.param("x.parquet", ("--shards", 3), marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_and_finds_the_same(rows, run, tmp_path, name, also):
    if name == "x.npy":
        np.save(tmp_path / name, rows)
    else:
        frame = pl.DataFrame(rows, schema=["a", "b"])
        (frame.write_csv if name == "x.csv" else frame.write_parquet)(tmp_path / name)
    options, saved = (name, *FAMILY, *also, "--out", "out", "--checkpoint", "c"), tmp_path / "c"
    killed = subprocess.Popen(
        [sys.executable, "-m", "dpsearch.cli", "fit", *map(str, options)], cwd=tmp_path
    )
    while killed.poll() is None and not saved.exists():
        time.sleep(0.001)
    killed.kill()
    assert (killed.wait(), saved.exists(), (tmp_path / "out").exists()) == (-9, True, False)
    code, _, said = run("fit", *options)
    assert code == 0, said
    whole = DPMixture("diagonal_gaussian", random_state=0).fit(rows)
    assert whole.n_clusters_ == 4
    labels = pl.read_csv(tmp_path / "out" / "labels.csv")["cluster"]
    np.testing.assert_array_equal(labels, whole.labels_)
    # The same file serves Python.
    n_shards = also[1] if also else None
    model = DPMixture("diagonal_gaussian", n_shards=n_shards, checkpoint="c", random_state=0)
    np.testing.assert_array_equal(model.fit(rows if name == "x.npy" else name).labels_, labels)


def test_a_checkpoint_of_another_run_is_refused(rows, run, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    options = ("x.npy", "--shards", 1, "--refine", "no", "--checkpoint", "c", "--out")
    assert run("fit", *options, "a", *FAMILY)[0] == 0
    before = (tmp_path / "c").read_bytes()
    np.save(tmp_path / "y.npy", rows + 1e-9)
    for other, expected in (
        (
            ("x.npy", "--family", "gaussian"),
            "another family ('diagonal_gaussian') than this run ('gau",
        ),
        (("x.npy", *FAMILY, "--keep-codes"), "another missing_codes ('auto') than this run (None)"),
        (("y.npy", *FAMILY), "c: the checkpoint belongs to other data"),
        (("x.npy", *FAMILY, "--certify", "1s"), "--certify does not combine with --checkpoint"),
        (("x.npy", *FAMILY, "--restarts", 1), "--restarts does not combine with --checkpoint"),
        (("x.npy", *FAMILY, "--checkpoint", "no/c"), "no such folder for the checkpoint"),
        (("x.npy", *FAMILY, "--checkpoint", "x.npy"), "x.npy: damaged, or not a checkpoint"),
    ):
        code, _, said = run("fit", *options[1:], "b", *other)
        assert code == 1
        assert expected in said
    assert (tmp_path / "c").read_bytes() == before
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), rows)
    np.save(tmp_path / "few.npy", rows[1:])
    said = run("fit", "few.npy", *FAMILY, "--checkpoint", "d")[2]
    assert "--checkpoint needs a table of at least 20,000 rows, or one in shards (--shards)" in said
