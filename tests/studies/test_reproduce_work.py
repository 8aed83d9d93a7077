"""`python -m studies reproduce`: stored results, Ctrl-C, and the command itself."""

import datetime
import gzip
import signal
import sys
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dpsearch.exact
from dpsearch import datasets, families
from small_experiments import (
    DP,
    TINY,
    check_links,
    documents,
    problem,
    silent,
)
from studies.__main__ import main
from studies.reproduction import (
    artificial,
    cache,
    chains,
    data,
    mnist,
    mnist_page,
    reproduce,
    study,
    work,
)

# -- keeping what is done ----------------------------------------------------------------------


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    store = cache.Cache(tmp_path)
    settings = replace(TINY, sizes=(4, 5), dimensions=(1,))
    one_set, done = artificial.one_set, []

    def stopped(unit):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(unit)
        return one_set(unit)

    monkeypatch.setattr(artificial, "_compiled", True)
    monkeypatch.setattr(artificial, "one_set", stopped)
    with pytest.raises(KeyboardInterrupt):
        artificial.run(settings, store, 1, silent)
    assert len(list(tmp_path.iterdir())) == 3
    assert all(path.suffix == ".npz" for path in tmp_path.iterdir())
    later = []
    monkeypatch.setattr(artificial, "one_set", lambda unit: later.append(unit) or one_set(unit))
    first = artificial.run(settings, store, 1, silent)
    assert len(later) == 1
    assert later[0] not in done
    monkeypatch.setattr(artificial, "one_set", None)
    assert artificial.run(settings, store, 1, silent) == first
    # A file that was damaged is done again.
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:100])
    monkeypatch.setattr(artificial, "one_set", lambda unit: later.append(unit) or one_set(unit))
    again = artificial.run(settings, store, 1, silent)
    assert len(later) == 2
    assert [r.value for r in again] == [r.value for r in first]


def test_results_are_kept_apart_by_parameters_and_version(tmp_path, monkeypatch):
    store = cache.Cache(tmp_path)
    result = cache.Result({"x": 1.5}, {"labels": np.arange(3)})
    store.put("unit", {"seed": 0}, result)
    kept = store.get("unit", {"seed": 0})
    assert kept.values == {"x": 1.5}
    assert np.array_equal(kept.arrays["labels"], np.arange(3))
    assert store.get("unit", {"seed": 1}) is None
    assert store.get("other", {"seed": 0}) is None
    assert store.ran("un") == [f"1 piece of work on {today()}: {cache.machine()}, 1 at a time"]
    assert store.ran("other") == []
    with monkeypatch.context() as patched:
        patched.setattr(cache, "__version__", "999")
        assert store.get("unit", {"seed": 0}) is None
    monkeypatch.setattr(cache, "source_stamp", lambda: "other code")
    assert store.get("unit", {"seed": 0}) is None


def today():
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def test_the_stamp_is_of_all_code_that_results_depend_on(tmp_path, monkeypatch):
    for name in ("state.py", "optimum.py", "mnist_page.py", "cli/fit.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    monkeypatch.setattr(cache, "_SOURCES", (tmp_path,))
    stamp = cache.source_stamp.__wrapped__
    before = stamp()
    for name, matters in (
        ("mnist_page.py", False), ("cli/fit.py", False), ("state.py", True),
        ("optimum.py", True),
    ):  # fmt: skip
        (tmp_path / name).write_text("x = 2")
        assert (stamp() != before) == matters, name
        before = stamp()


def test_constants_are_part_of_the_key(tmp_path, monkeypatch):
    settings = replace(TINY, sizes=(4,), dimensions=(1,), n_sets=1)
    store = cache.Cache(tmp_path)
    artificial.run(settings, store, 1, silent)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(artificial, "FAMILY", families.Gaussian(0.0, 11.0, 1.0))
    artificial.run(settings, store, 1, silent)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_two_processes_do_the_same_as_one(tmp_path):
    settings = replace(TINY, sizes=(4, 6), dimensions=(2,), n_sets=1)
    one = artificial.run(settings, cache.Cache(tmp_path / "one"), 1, silent)
    two = artificial.run(settings, cache.Cache(tmp_path / "two"), 2, silent)
    timeless = [[r._replace(seconds=0.0) for r in records] for records in (one, two)]
    assert timeless[0] == timeless[1]


def interrupting(function, after=0):
    """Return the solver with a callback that sends Ctrl-C, except in its first calls."""

    def run(*arguments, **given):
        calls = []

        def press(point):
            calls.append(point)
            if len(calls) > after:
                signal.raise_signal(signal.SIGINT)

        return function(*arguments, **{**given, "callback": press})

    return run


def test_a_set_whose_certificate_was_interrupted_is_no_result(tmp_path, monkeypatch):
    store = cache.Cache(tmp_path)
    settings = replace(TINY, sizes=(17,), dimensions=(2,), n_sets=1)
    artificial._compile()
    certify = dpsearch.exact.certify
    # Alone, it takes Ctrl-C for the wish to have what is proved by then.
    drawn = problem(17, 2, DP)
    assert interrupting(certify)(drawn, np.zeros(17, np.int64)).lower_bound < 0.0
    monkeypatch.setattr(dpsearch.exact, "certify", interrupting(certify))
    with pytest.raises(KeyboardInterrupt):
        artificial.run(settings, store, 1, silent)
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_unit_that_was_interrupted_is_not_kept(tmp_path):
    store = cache.Cache(tmp_path)
    drawn = problem(30, 2, DP)

    def compute():
        refine = interrupting(study.refine, after=1)  # it listens once it has begun
        found = refine(drawn, np.zeros(30, np.int64), rng=0)
        return cache.Result({"value": found.log_joint})

    assert compute().values["value"] < 0.0

    with pytest.raises(KeyboardInterrupt):
        store.unit("refine", {}, compute)
    assert list(tmp_path.iterdir()) == []
    assert store.unit("refine", {}, lambda: cache.Result({"value": 1.0})).values["value"] == 1.0


def test_threads_stop_when_one_fails():
    begun, seen = time.perf_counter(), []

    def function(item, check):
        if item == 0:
            raise ValueError("fails")
        seen.append(item)
        while time.perf_counter() - begun < 30.0:
            check()
            time.sleep(0.01)

    with pytest.raises(ValueError, match="fails"):
        work.in_threads(function, [0, 1, 2, 3, 4], 2)
    assert time.perf_counter() - begun < 10.0
    assert len(seen) < 4
    with pytest.raises(CancelledError):
        chains.run_for(problem(9, 1, DP), "gibbs", "one", 9.0, 0, _give_up)
    assert work.in_threads(lambda item, check: 2 * item, [1, 2, 3], 2) == [2, 4, 6]


def _give_up():
    raise CancelledError


def test_made_once():
    made = []
    lazily = work.Lazily(lambda: made.append(1) or len(made))
    assert [lazily(), lazily()] == [1, 1]


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(data.VARIABLE, raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["studies", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run


def stand_ins(folder, n_images=3000):
    """Write small data in the originals' formats: MNIST as IDX files, NIPS as UCI's documents."""
    folder.mkdir()
    digits = datasets.mnist_digits()
    for name, array in (
        ("train-images-idx3-ubyte.gz", digits.images[:n_images].reshape(-1, 28, 28)),
        ("train-labels-idx1-ubyte.gz", digits.labels[:n_images].astype(np.uint8)),
    ):
        header = b"\x00\x00\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes()
        (folder / name).write_bytes(gzip.compress(header + array.tobytes(), 1))
    drawn = documents(2, n=150)
    matrix = sp.coo_matrix(drawn.counts)
    lines = [str(n) for n in (*matrix.shape, matrix.nnz)]
    lines += [
        f"{i + 1} {j + 1} {v}" for i, j, v in zip(matrix.row, matrix.col, matrix.data, strict=True)
    ]
    (folder / "docword.nips.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "vocab.nips.txt").write_text("\n".join(drawn.words))
    return folder


@pytest.mark.slow
def test_all_in_quick_on_stand_ins(run, tmp_path):
    """Run the command with its quick settings twice; the second run finds everything done."""
    folder = tmp_path / "docs" / "reproduction"
    arguments = ["all", "--quick", "--jobs", 2, "--data", stand_ins(tmp_path / "data")]
    code, out, err = run(*arguments, "--out", folder)
    assert (code, out) == (0, "")
    assert f"artificial, mnist, nips: {folder}/quick/index.md" in err
    assert [path.name for path in folder.iterdir()] == ["quick"]
    check_links(folder / "quick")
    index = (folder / "quick" / "index.md").read_text(encoding="utf-8")
    for name in reproduce.EXPERIMENTS:
        assert f"({name}.md)" in index
        text = (folder / "quick" / f"{name}.md").read_text(encoding="utf-8")
        assert "A quick run" in text
        assert "| the paper says |" in text
        assert cache.machine() in text
        assert (folder / "quick" / "tables" / f"{name}_claims.csv").is_file()
    assert not list(folder.rglob("*.part"))
    kept = {path: path.stat().st_mtime_ns for path in (folder / "quick" / "cache").iterdir()}
    assert run(*arguments, "--out", folder)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list((folder / "quick" / "cache").iterdir())) == len(kept)


@pytest.mark.slow
def test_absent_data_are_left_out_and_reported(run, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(artificial, "QUICK", replace(TINY, sizes=(4, 6), n_sets=1))
    monkeypatch.setattr(mnist, "run", lambda digits, settings, *rest: given.append(settings))
    monkeypatch.setattr(mnist_page, "write", lambda *rest: None)
    code, _, err = run("all", "--quick", "--jobs", 1, "--seed", 5, "--dimension", 3)
    assert code == 0
    assert "NIPS left out" in err
    assert "archive.ics.uci.edu" in err
    assert "Using the 3,000 digits" in err
    assert given == [replace(mnist.QUICK, seed=5)]
    text = (tmp_path / "results" / "quick" / "artificial.md").read_text(encoding="utf-8")
    assert "(seed 5)" in text
    assert "## In 3 dimensions" in text
    assert "## In 2 dimensions" not in text


def test_errors_say_what_is_wrong(run, tmp_path, monkeypatch):
    for arguments, said in (
        (["everything"], "unknown experiment 'everything'"),
        (["nips"], "NIPS documents not found"),
        (["artificial", "--data", "nowhere"], "nowhere: no such folder"),
        (["artificial", "--dimension", 0], "dimension must be 1 … 50, got [0]"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        assert err.startswith("studies: ")
        assert len(err.splitlines()) == 1
        assert said in err
    (tmp_path / "taken").write_text("mine")
    assert "is a file" in run("artificial", "--out", "taken")[2]
    monkeypatch.setattr(reproduce.importlib.util, "find_spec", lambda name: None)
    assert "dpsearch[plots]" in run("artificial")[2]
