"""The command line: what it writes, and that every error is one line and exit code 1."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dpsearch import DPMixture, __version__, cli, demo, load
from dpsearch.errors import DataError
from dpsearch.io import read_table, write_labels


def table(n=40):
    rng = np.random.default_rng(0)
    return np.repeat([[0.0, 0.0], [9.0, -9.0]], n // 2, axis=0) + rng.normal(size=(n, 2))


def as_text(X):
    return "".join(",".join(map(repr, row)) + "\n" for row in X.tolist())


# -- what it does ------------------------------------------------------------------------------


def test_the_version(run):
    assert run("--version") == (0, f"dpsearch {__version__}\n", "")


def test_help_and_wrong_usage():
    runner = CliRunner()
    shown = runner.invoke(cli.app, ["--help"])
    assert shown.exit_code == 0
    assert "fit" in shown.output
    assert "demo" in shown.output
    assert runner.invoke(cli.app, ["fit"]).exit_code == 2
    assert runner.invoke(cli.app, ["fit", "x.csv", "--colour"]).exit_code == 2
    assert runner.invoke(cli.app, ["fit", "x.csv", "--seed", "-1"]).exit_code == 2
    assert runner.invoke(cli.app, ["fit", "x.csv", "--beam-size", "0"]).exit_code == 2


@pytest.mark.parametrize(
    "name",
    ["plain.csv", "header.csv", "messy.csv", "X.npy", "float32.npy", "named.npz", "only.npz"],
)
def test_fit_reads_every_kind_of_file(name, run, tmp_path):
    X = table()
    path = tmp_path / name
    if name == "plain.csv":
        path.write_text(as_text(X))
    elif name == "header.csv":
        path.write_text("height,weight\n" + as_text(X))
    elif name == "messy.csv":  # a byte order mark, Windows line ends, blanks, quotes, blank lines
        lines = ['"height", weight', *(f'"{a!r}", {b!r} ' for a, b in X.tolist()), "", ""]
        path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    elif name == "X.npy":
        np.save(path, X)
    elif name == "float32.npy":
        X = np.asfortranarray(X, dtype=np.float32)
        np.save(path, X)
    elif name == "named.npz":
        np.savez_compressed(path, labels=np.zeros(3), X=X)
    else:
        np.savez(path, anything=X)
    code, out, err = run("fit", path, "--seed", 1, "--out", "found.csv", "--model", "m.npz")
    assert (code, out) == (0, "")
    want = DPMixture(random_state=1).fit(X)
    rows = [f"{i},{k}" for i, k in enumerate(want.labels_)]
    assert (tmp_path / "found.csv").read_text() == "\n".join(["row,cluster", *rows, ""])
    assert f"40 rows in {want.n_clusters_} clusters" in err
    assert f"log joint {want.log_joint_:.6g}" in err
    assert f"family {want.family_.name}" in err
    assert "found.csv" in err
    assert len(err.splitlines()) == 1
    loaded = load(tmp_path / "m.npz")
    assert np.array_equal(loaded.labels_, want.labels_)
    assert loaded.log_joint_ == want.log_joint_
    assert loaded.random_state == 1


def test_fit_passes_its_options_on(run, tmp_path):
    X = np.random.default_rng(0).poisson(3.0, size=(30, 3))
    np.save("X.npy", X)
    code, _, err = run("fit", "X.npy", "--family", "poisson", "--alpha", "2.5", "--beam-size", 3)
    assert code == 0
    assert "family poisson" in err
    want = DPMixture(family="poisson", alpha=2.5, beam_size=3).fit(X)
    found = np.loadtxt(tmp_path / "labels.csv", delimiter=",", skiprows=1)
    assert np.array_equal(found[:, 1], want.labels_)
    assert f"log joint {want.log_joint_:.6g}" in err


def test_one_column_from_every_kind_of_file(run, tmp_path):
    x = table()[:, 0]
    np.save("x.npy", x)
    np.savez("x.npz", x=x)
    (tmp_path / "x.csv").write_text(as_text(x[:, None]))
    found = set()
    for path in ("x.npy", "x.npz", "x.csv"):
        assert run("fit", path, "--force")[0] == 0
        found.add((tmp_path / "labels.csv").read_text())
    assert len(found) == 1
    assert len(found.pop().splitlines()) == 41


def test_names_that_look_like_markup_are_printed_as_they_are(run, tmp_path):
    (tmp_path / "[red]x.csv").write_text(as_text(table()))
    long = "a" * 120 + "[bold].csv"
    code, _, err = run("fit", "[red]x.csv", "--out", long)
    assert code == 0
    assert err.endswith(f"labels: {long}\n")
    assert len(err.splitlines()) == 1


# -- errors ------------------------------------------------------------------------------------


def complains(outcome, *parts):
    """One line on standard error that says all of it, nothing else."""
    code, out, err = outcome
    assert code == 1, err
    assert out == ""
    assert re.fullmatch(r"dpsearch: [^\n]+\n", err), err
    assert "Traceback" not in err
    for part in parts:
        assert part in err, err


def test_nothing_is_overwritten_without_force(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    (tmp_path / "labels.csv").write_text("mine")
    complains(run("fit", "X.csv"), "labels.csv exists", "--force")
    (tmp_path / "m.npz").write_text("mine")
    complains(run("fit", "X.csv", "--out", "new.csv", "--model", "m.npz"), "m.npz exists")
    assert not (tmp_path / "new.csv").exists()
    assert (tmp_path / "labels.csv").read_text() == (tmp_path / "m.npz").read_text() == "mine"
    assert run("fit", "X.csv", "--model", "m.npz", "--force")[0] == 0
    assert (tmp_path / "labels.csv").read_text().startswith("row,cluster\n0,")
    assert len(load(tmp_path / "m.npz").labels_) == 40
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"X.csv", "labels.csv", "m.npz"}


def test_where_it_cannot_write(run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(table()))
    (tmp_path / "folder").mkdir()
    complains(run("fit", "X.csv", "--out", "nowhere/labels.csv"), "nowhere", "no such folder")
    complains(run("fit", "X.csv", "--model", "nowhere/m.npz"), "nowhere", "no such folder")
    complains(run("fit", "X.csv", "--out", "folder", "--force"), "folder: is a folder")
    same = ("--out", "same", "--model", "folder/../same")
    complains(run("fit", "X.csv", *same), "same", "--out and --model")
    assert {path.name for path in tmp_path.iterdir()} == {"X.csv", "folder"}


BAD_CSV = {
    "empty": ("", ["the file is empty"]),
    "blank": ("\n\n\n", ["the file is empty"]),
    "header only": ("a,b\n", ["column names and no data"]),
    "ragged": ("a,b\n1,2\n\n3\n", ["line 4", "1 cells, expected 2"]),
    "long row": ("1,2\n3,4,5\n", ["line 2", "3 cells, expected 2"]),
    "wider than its header": ("a,b\n1,2,3\n", ["line 2", "3 cells, expected 2"]),
    "text": ("a,b\n1,2\n3,four\n", ["line 3, column 'b'", "'four' is not a number"]),
    "text without header": ("1,2\n3,four\n", ["line 2, column 1", "'four' is not a number"]),
    "after a quoted line end": ('"a\nb",c\n1,2\n3,x\n', ["line 4, column 'c'"]),
    "empty cell": ("a,b\n1,2\n,4\n", ["line 3, column 'a'", "'' is not a number"]),
    "semicolons": ("1;2\n3;4\n", ["line 2", "'3;4' is not a number"]),
    "a line end in a cell": ('a\n1\n"x\ny"\n', ["'x\\ny' is not a number"]),
    "nan": ("a,b\n1,2\n3,NaN\n", ["line 3, column 'b'", "'NaN' is not finite"]),
    "infinity": ("1,2\n-inf,4\n", ["line 2, column 0", "'-inf' is not finite"]),
    "beyond doubles": ("1,2\n1e999,4\n", ["line 2, column 0", "'1e999' is not finite"]),
    "huge": ("1,2\n1e200,4\n", ["row 1, column 0", "1e+200"]),
    "long cell": ("1,2\n3," + "4" * 200_000 + "\n", ["not a CSV file"]),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv_files(name, run, tmp_path):
    text, parts = BAD_CSV[name]
    (tmp_path / "X.csv").write_text(text)
    complains(run("fit", "X.csv"), "X.csv", *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["X.csv"]


@pytest.mark.parametrize(
    ("encoding", "parts"), [("utf-16", ["not UTF-8", "byte 0"]), ("latin-1", ["not UTF-8"])]
)
def test_other_encodings(encoding, parts, run, tmp_path):
    (tmp_path / "X.csv").write_bytes("größe,b\n1,2\n".encode(encoding))
    complains(run("fit", "X.csv"), "X.csv", *parts)


def test_files_that_are_not_there_or_of_another_kind(run, tmp_path):
    complains(run("fit", "nothing.csv"), "nothing.csv", "no such file")
    complains(run("fit", tmp_path), str(tmp_path), "is a folder")
    (tmp_path / "X.xlsx").write_text("1,2")
    complains(run("fit", "X.xlsx"), "X.xlsx", "'.xlsx'", ".csv, .npy, .npz")
    (tmp_path / "X").write_text("1,2")
    complains(run("fit", "X"), ".csv, .npy, .npz")
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    complains(run("fit", "dangling.csv"), "dangling.csv", "no such file")


def header(shape):
    return np.lib.format.magic(1, 0) + _text(
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"
    )


def _text(text):
    data = text.encode().ljust(117) + b"\n"
    return len(data).to_bytes(2, "little") + data


def bad_numpy_files(folder):
    """Yield (file name, what is said about it)."""
    (folder / "text.npy").write_text("1,2")
    yield "text.npy", "not a NumPy file"
    (folder / "empty.npy").write_bytes(b"")
    yield "empty.npy", "not a NumPy file"
    (folder / "short.npy").write_bytes(header((10, 2)) + bytes(100))
    yield "short.npy", "not a NumPy file"
    (folder / "enormous.npy").write_bytes(header((2**60, 2)) + bytes(100))
    yield "enormous.npy", "not a NumPy file"
    (folder / "long.npy").write_bytes(np.lib.format.magic(1, 0) + b"\xff\xff" + b" " * 65535)
    yield "long.npy", "not a NumPy file"
    (folder / "text.npz").write_text("1,2")
    yield "text.npz", "not a NumPy file"
    np.save(folder / "objects.npy", np.array([{}, None], dtype=object))
    yield "objects.npy", "not a NumPy file"
    np.savez(folder / "objects.npz", X=np.array([{}, None], dtype=object))
    yield "objects.npz", "not a NumPy file"
    np.savez(folder / "two.npz", a=np.zeros(3), b=np.zeros(3))
    yield "two.npz", "which entry? It has a, b"
    np.savez(folder / "none.npz")
    yield "none.npz", "which entry?"
    whole = (folder / "two.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    yield "cut.npz", "not a NumPy file"
    np.savez_compressed(folder / "flipped.npz", X=table())
    damaged = bytearray((folder / "flipped.npz").read_bytes())
    damaged[100:140] = bytes(40)
    (folder / "flipped.npz").write_bytes(damaged)
    yield "flipped.npz", "not a NumPy file"
    np.save(folder / "scalar.npy", np.array(3.0))
    yield "scalar.npy", "0D array"
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    yield "cube.npy", "3D array"
    np.save(folder / "norows.npy", np.zeros((0, 2)))
    yield "norows.npy", "X is empty"
    np.save(folder / "nan.npy", np.array([[1.0, np.nan], [3.0, np.nan]]))
    yield "nan.npy", "column 1 of X has no value at all"
    np.save(folder / "complex.npy", np.zeros((2, 2), complex))
    yield "complex.npy", "Complex data"
    np.save(folder / "texts.npy", np.array([["1", "b"]]))
    yield "texts.npy", "row 0, column 1 is 'b', not a number"
    np.save(folder / "dates.npy", np.array([["2020-01-01"]], dtype="datetime64[D]"))
    yield "dates.npy", "row 0, column 0"
    np.save(folder / "records.npy", np.zeros(3, dtype=[("a", "f8"), ("b", "f8")]))
    yield "records.npy", "row 0, column 0"


def test_bad_numpy_files(run, tmp_path):
    seen = 0
    for name, said in bad_numpy_files(tmp_path):
        complains(run("fit", name), name, said)
        seen += 1
    assert seen == 20
    assert not (tmp_path / "labels.csv").exists()


def test_kinds_of_numpy_files_may_be_mistaken_for_each_other(run, tmp_path):
    np.savez(tmp_path / "x.npz", X=table())
    (tmp_path / "x.npz").rename(tmp_path / "archive.npy")
    np.save(tmp_path / "x.npy", table())
    (tmp_path / "x.npy").rename(tmp_path / "array.npz")
    for name in ("archive.npy", "array.npz"):
        assert run("fit", name, "--force")[0] == 0
        assert len((tmp_path / "labels.csv").read_text().splitlines()) == 41


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--family", "normal"], ["there is no family 'normal'", "full_gaussian"]),
        (["--family", "multinomial"], ["X.csv", "multinomial", "row 0, column 0", "whole number"]),
        (["--family", "bernoulli"], ["X.csv", "zeros and ones", "row 0, column 0"]),
        (["--alpha", "0"], ["alpha", "0"]),
        (["--alpha", "-1"], ["alpha", "-1"]),
        (["--alpha", "nan"], ["alpha", "nan"]),
        (["--alpha", "inf"], ["alpha", "inf"]),
        (["--alpha", "many"], ["alpha", "'many'"]),
        (["--alpha", ""], ["alpha", "''"]),
    ],
    ids=" ".join,
)
def test_bad_options(options, parts, run, tmp_path):
    (tmp_path / "X.csv").write_text(as_text(np.abs(table())))
    complains(run("fit", "X.csv", *options), *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["X.csv"]


def test_what_the_system_refuses(run, tmp_path, monkeypatch):
    (tmp_path / "X.csv").write_text(as_text(table()))

    def full(path, labels):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("dpsearch.io.write_labels", full)
    complains(run("fit", "X.csv"), "labels.csv: No space left on device")

    def too_much(*arguments):
        raise MemoryError

    monkeypatch.setattr("dpsearch.io.read_table", too_much)
    complains(run("fit", "X.csv"), "out of memory")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsearch.io.read_table", interrupted)
    code, out, err = run("fit", "X.csv")
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_as_a_program(tmp_path):
    """The real thing: nothing else on standard error, such as warnings, and the exit codes."""
    (tmp_path / "X.csv").write_text("a,b\n1,2\n3,x\n")
    program = [sys.executable, "-W", "always", "-c", "from dpsearch.cli import main; main()"]
    bad = subprocess.run(
        [*program, "fit", "X.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "dpsearch: X.csv, line 3, column 'b': 'x' is not a number\n"
    (tmp_path / "X.csv").write_text(as_text(table()))
    good = subprocess.run(
        [*program, "fit", "X.csv"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (good.returncode, good.stdout) == (0, "")
    assert len(good.stderr.splitlines()) == 1
    assert "40 rows in" in good.stderr


# -- reading and writing, as functions ---------------------------------------------------------


def test_read_table_returns_values_and_names(tmp_path):
    (tmp_path / "X.csv").write_text("a, b \n1,2.5\n-3,4e2\n")
    X, names = read_table(tmp_path / "X.csv")
    assert names == ["a", "b"]
    assert X.tolist() == [[1.0, 2.5], [-3.0, 400.0]]
    (tmp_path / "X.CSV").write_text("1,2\n")
    X, names = read_table(str(tmp_path / "X.CSV"))
    assert names is None
    assert X.tolist() == [[1.0, 2.0]]
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "Y.csv")


def test_write_labels(tmp_path):
    write_labels(tmp_path / "labels.csv", np.array([2, 0, 1]))
    assert (tmp_path / "labels.csv").read_text() == "row,cluster\n0,2\n1,0\n2,1\n"


# -- the demonstration -------------------------------------------------------------------------


def test_the_demo_shows_what_it_found(run, tmp_path):
    code, out, err = run("demo", "--out", "pictures/here")
    assert (code, err) == (0, "")
    assert "the first run compiles them" in out
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
