"""Bad files give one line that says what is wrong and where, or the right result."""

import gzip
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from command_line import as_text, complains, names_in, table
from dpsearch.cli.app import app
from dpsearch.io import Reading, blocks, delimited, read_table

QUICK = ["--refine", "no", "--family", "gaussian", "--quiet"]

BAD_CSV = {
    "empty": ("", ["the file is empty"]),
    "blank": ("\n\n\n", ["the file is empty"]),
    "header only": ("a,b\n", ["column names but no rows"]),
    "ragged": ("a,b\n1,2\n\n3\n", ["line 4", "1 cells, but the first line has 2"]),
    "long row": ("1,2\n3,4,5\n", ["line 2", "3 cells, but the first line has 2"]),
    "wider than its header": ("a,b\n1,2,3\n", ["line 2", "3 cells, but the first line has 2"]),
    "ragged and quoted": ('a,b\n"1\n",2\n3\n', ["line 4", "1 cells, but the first line has 2"]),
    "an open quotation mark": ('a,b\n1,"2\n3,4\n', ["quotation mark is opened and never closed"]),
    "NUL": ("a,b\n1,2\n3,4\0\n", ["not text", "NUL byte on line 3"]),
    "NUL in a quoted cell": ('a,b\n1,2\n3,"\0"\n', ["not text", "NUL byte on line 3"]),
    "nothing but gaps": (
        "a,b\n,\nNA,NaN\n",
        ["X.csv", "no column is left", "'a': it has no values"],
    ),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv_files(name, run, tmp_path):
    text, parts = BAD_CSV[name]
    (tmp_path / "X.csv").write_text(text)
    complains(run("fit", "X.csv"), "X.csv", *parts)
    assert names_in(tmp_path) == ["X.csv"]


ODD_CSV = {
    "mixed types": ("a,b\n1,2\n3,four\n", "b       category"),
    "text without header": ("1,2\n3,four\n", "column 1  category"),
    "mostly numbers": ("a\n?\n1\n2\n", "1 to 2; 1 missing"),
    "after a quoted line end": ('"a\nb",c\n1,2\n3,x\n', "a b     count"),
    "a line end in a cell": ('a\n1\n"x\ny"\n', "a       category"),
    "infinity": ("1,2\n-inf,4\n5,4\n", "1 to 5; 1 not finite, treated as missing"),
    "beyond doubles": ("1,2\n1e999,4\n5,4\n", "1 to 5; 1 not finite"),
    "huge": ("1,2\n1e200,4\n5,4\n", "1 to 5; 1 not finite"),
    "long cell": ("1,2\n3," + "4" * 200_000 + "\n", "column 1  category"),
    "duplicate names": ("a,b,a\n1,2,3\n4,5,7\n", "a (2)   count"),
    "decimal commas": ("a;b\n1,5;2\n2,5;3\n", "1.5 to 2.5; read as numbers, such as '1,5'"),
    "thousands": ('a,b\n1,"2,000"\n2,"3,000"\n', "2000 to 3000; read as numbers, such as '2,000'"),
}


@pytest.mark.parametrize("name", ODD_CSV)
def test_cells_never_stop_a_run(name, run, tmp_path):
    text, part = ODD_CSV[name]
    (tmp_path / "X.csv").write_text(text)
    code, _, said = run("fit", "X.csv")
    assert code == 0, said
    assert part in said


@pytest.mark.parametrize(
    ("encoding", "parts"),
    [
        ("utf-16", ["byte 0", "--encoding utf-16"]),
        ("latin-1", ["not UTF-8", "byte 2"]),
    ],
)
def test_wrong_encoding(encoding, parts, run, tmp_path):
    (tmp_path / "X.csv").write_bytes("größe,b\n1,2\n".encode(encoding))
    complains(run("fit", "X.csv"), "X.csv", *parts)


@pytest.mark.parametrize("encoding", ["base64", "rot13", "hex", "undefined", "utf-16", "u\0"])
def test_encodings_that_the_file_is_not_in(encoding, run, tmp_path):
    (tmp_path / "X.csv").write_text("a,b\n1,2\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("pear")
    said = "not UTF-16 text (byte 0)" if encoding == "utf-16" else "unknown encoding"
    for data in ("X.csv", "docs"):
        complains(run("fit", data, "--encoding", encoding), said)


def test_wrong_encoding_far_into_the_file(tmp_path):
    """Byte positions count over all blocks, and a character may span two of them."""
    text = ("ä,b\n" + "1,2\n" * 100).encode()
    (tmp_path / "X.csv").write_bytes(text)
    for block in (1, 7, 1 << 16):
        found, _ = delimited.read_delimited(tmp_path / "X.csv", Reading(), block=block)
        assert (found.names, found.n_rows) == (["ä", "b"], 100)
    (tmp_path / "X.csv").write_bytes(text + b"3,\xff\n")
    with pytest.raises(Exception, match=rf"byte {len(text) + 2}\)"):
        delimited.read_delimited(tmp_path / "X.csv", Reading(), block=7)


def test_a_byte_order_mark_is_no_part_of_a_name(run, tmp_path):
    (tmp_path / "X.csv").write_bytes(b"\xef\xbb\xbf" + as_text(table(), "a,b\n").encode())
    assert run("fit", "X.csv", *QUICK, "--columns", "a")[0] == 0


@pytest.mark.slow
def test_ten_thousand_columns(run, tmp_path):
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [3.0]], 10, axis=0) + rng.normal(size=(20, 10_000))
    names = ",".join(f"c{j}" for j in range(10_000))
    (tmp_path / "wide.csv").write_text(as_text(X.round(3), names + "\n"))
    assert run("fit", "wide.csv", *QUICK)[0] == 0
    labels = pl.read_csv("wide.clusters/labels.csv")["cluster"].to_list()
    assert labels in ([0] * 10 + [1] * 10, [1] * 10 + [0] * 10)
    complains(run("fit", "wide.csv", "--columns", "c99999", "--force"), "did you mean 'c9999'?")


def test_a_file_larger_than_a_block_is_streamed(run, tmp_path, monkeypatch):
    """The result is the same if the file is read in much smaller pieces."""
    (tmp_path / "x.csv").write_text(as_text(np.repeat(table(), 50, axis=0), "a,b\n"))
    assert run("fit", "x.csv", *QUICK, "--out", "whole")[0] == 0
    sizes = []

    def in_pieces(stream, encoding, size):
        for text in blocks.text_blocks(stream, encoding, 1000):
            sizes.append(len(text))
            yield text

    monkeypatch.setattr(delimited, "text_blocks", in_pieces)
    assert run("fit", "x.csv", *QUICK, "--out", "pieces")[0] == 0
    assert len(sizes) > 50
    assert max(sizes) <= 1100
    whole, pieces = ((tmp_path / at / "labels.csv").read_text() for at in ("whole", "pieces"))
    assert whole == pieces


def test_folders_and_files_that_are_not_there_or_of_another_kind(run, tmp_path):
    complains(run("fit", "nothing.csv"), "nothing.csv", "no such file")
    (tmp_path / "dangling.csv").symlink_to(tmp_path / "nowhere")
    complains(run("fit", "dangling.csv"), "dangling.csv", "no such file")
    (tmp_path / "folder").mkdir()
    complains(run("fit", "folder"), "folder: the folder has no files")
    complains(run("fit", "folder", "--input-format", "csv"), "folder: is a folder, not a file")
    (tmp_path / "X.xlsx").write_text("1,2")
    complains(run("fit", "X.xlsx"), "X.xlsx", "'.xlsx'", ".csv", ".parquet", "--input-format")
    (tmp_path / "X").write_text("1,2")
    complains(run("fit", "X"), "--input-format")
    (tmp_path / "folder" / "a.txt").write_bytes(b"\xff\xfe\xfd")
    complains(run("fit", "folder"), "a.txt: not UTF-8 text (byte 0)")


@pytest.fixture
def somebody(run, tmp_path, monkeypatch):
    """A folder, and a way to run in it as a user without special rights.

    If the tests run as root, they become the user nobody for a while.
    """
    if not hasattr(os, "seteuid"):
        pytest.skip("no permissions of files on this system")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # that of pytest is closed to others
    (folder / "X.csv").write_text(as_text(table()))
    monkeypatch.chdir(folder)
    assert run("fit", "X.csv", *QUICK)[0] == 0  # nobody could not store what is compiled
    shutil.rmtree(folder / "X.clusters")
    user = os.geteuid()

    def run_as_somebody(*arguments):
        if user == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, 65534, -1)
            os.seteuid(65534)
        try:
            return run(*arguments)
        finally:
            os.seteuid(user)

    yield folder, run_as_somebody
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(folder)


def fails_before_the_fit(monkeypatch):
    def fit(*arguments, **options):
        pytest.fail("all the work was done first")

    monkeypatch.setattr("dpsearch.estimator.DPMixture.fit", fit)


def test_no_permission(somebody, monkeypatch):
    folder, run_as_somebody = somebody
    fit = ("fit", "X.csv", *QUICK[:-1])
    (folder / "X.csv").chmod(0)
    complains(run_as_somebody(*fit), "X.csv: cannot be read: Permission denied")
    (folder / "X.csv").chmod(0o600)
    (folder / "out").mkdir()
    folder.chmod(0o500)
    # A folder that may be written to, in one that may not.
    assert run_as_somebody(*fit, "--out", "out")[0] == 0
    assert names_in(folder / "out") == ["clusters.csv", "labels.csv", "model.npz", "run.json"]
    fails_before_the_fit(monkeypatch)
    complains(run_as_somebody(*fit), "dpsearch: X.clusters: Permission denied\n")
    (folder / "out").chmod(0o500)
    complains(
        run_as_somebody(*fit, "--out", "out", "--force"), "dpsearch: out: Permission denied\n"
    )
    assert names_in(folder) == ["X.csv", "out"]


@pytest.fixture
def small_disk(tmp_path):
    """A folder on its own disk of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk that is full takes the right to mount one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up(run, small_disk, tmp_path):
    np.save("x.npy", table())
    fit = ("fit", "x.npy", *QUICK[:-1])
    # The place where a disk is mounted is as good as any folder.
    assert run(*fit, "--out", "disk")[0] == 0
    written = names_in(small_disk)
    assert written == ["clusters.csv", "labels.csv", "model.npz", "run.json"]
    before = {name: (small_disk / name).read_bytes() for name in written}
    complains(
        run(*fit, "--out", "disk", "--force", "--report"),
        "dpsearch: disk/report.html: No space left on device\n",
    )
    assert {name: (small_disk / name).read_bytes() for name in names_in(small_disk)} == before
    # And a link to another disk.
    (tmp_path / "link").symlink_to(small_disk / "new")
    complains(run(*fit, "--out", "link", "--report"), "dpsearch: link/report.html: No space left")
    assert names_in(small_disk) == written
    assert run(*fit, "--out", "link")[0] == 0
    assert names_in(small_disk / "new") == written
    assert (tmp_path / "link").is_symlink()
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    complains(run(*fit, "--out", "disk/other"), "disk/other", "No space left on device")
    complains(
        run("predict", "disk", "x.npy", "--out", "disk/p.csv"),
        "dpsearch: disk/p.csv: No space left on device\n",
    )
    assert names_in(small_disk) == sorted([*written, "filler", "new"])


@pytest.mark.parametrize(("most", "form"), [(100, "csv"), (100, "parquet"), (100_000, "csv")])
def test_files_larger_than_is_allowed(most, form, run, tmp_path):
    """Wherever writing fails, one line names the file, and nothing of it is left."""
    resource = pytest.importorskip("resource", reason="no limits on this system")
    np.save("x.npy", table())
    assert run("fit", "x.npy", *QUICK)[0] == 0
    before = (tmp_path / "x.clusters" / "run.json").read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        new = run("fit", "x.npy", *QUICK, "--report", "--out", "new", "--format", form)
        over = run("fit", "x.npy", *QUICK, "--report", "--force")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    complains(new, "dpsearch: new/", "File too large")
    complains(over, "dpsearch: x.clusters/", "File too large")
    assert names_in(tmp_path) == ["x.clusters", "x.npy"]
    assert (tmp_path / "x.clusters" / "run.json").read_text() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_device_that_is_full(run, tmp_path):
    """A device is written in place."""
    np.save("x.npy", table())
    assert run("fit", "x.npy", *QUICK)[0] == 0
    (tmp_path / "full.csv").symlink_to("/dev/full")
    complains(
        run("predict", "x.clusters", "x.npy", "--out", "full.csv"),
        "dpsearch: full.csv: No space left on device\n",
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured otherwise elsewhere")
def test_memory_is_that_of_the_table_and_not_of_the_file():
    """The file has 150 MB more of text, of which a few per cent are read."""
    reading = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "reading.py"))
    small, large = reading["measure"](50), reading["measure"](200)
    assert large.size - small.size > 140e6
    # The table, and once more while its pieces are put together; the window is the same.
    assert large.memory - small.memory < 2 * (large.table - small.table) + 30e6


def test_truncated_and_damaged_files(run, tmp_path):
    text = as_text(np.repeat(table(), 100, axis=0), "a,b\n").encode()
    whole = gzip.compress(text)
    for name, content in (
        ("cut.csv.gz", whole[: len(whole) // 2]),
        ("flipped.csv.gz", whole[:-6] + b"\0\0\0\0" + whole[-2:]),
        ("plain.csv.gz", text),
    ):
        (tmp_path / name).write_bytes(content)
        complains(run("fit", name), name, "damaged, or not a gzip file")
    frame = pl.DataFrame(table(), schema=["a", "b"])
    frame.write_parquet("x.parquet")
    frame.write_ipc("x.arrow")
    np.save("x.npy", table())
    for name in ("x.parquet", "x.arrow", "x.npy"):
        content = (tmp_path / name).read_bytes()
        for cut in (0, 3, len(content) // 2, len(content) - 1):
            (tmp_path / name).write_bytes(content[:cut])
            complains(run("fit", name), name)
    for name in ("x.mtx", "x.svmlight", "x.h5ad", "x.mtx.gz"):
        for content in (
            b"",
            b"1,2\n3,4\n",
            b"%%MatrixMarket matrix coordinate real general\n9 9 9\n",
        ):
            (tmp_path / name).write_bytes(content)
            complains(run("fit", name), name)


@pytest.mark.slow
def test_dates_and_infinities_are_no_errors(run, tmp_path):
    days = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 2, 9), eager=True)
    frame = pl.DataFrame({"a": table()[:, 0], "when": days})
    frame.write_parquet("x.parquet")
    assert "when    date    parts          month, weekday" in run("fit", "x.parquet")[2]
    assert run("fit", "x.parquet", "--drop", "when", "--force", *QUICK)[0] == 0
    infinite = frame.with_columns(a=pl.lit(1.0) / (pl.int_range(40) - 7)).select("a")
    infinite.write_parquet("y.parquet")
    assert "1 not finite, treated as missing" in run("fit", "y.parquet")[2]


def test_columns_that_are_not_texts_and_cannot_name_rows(run, tmp_path):
    frame = pl.DataFrame(
        {"a": [1.5, 2.5], "list": [[1], [2]], "bytes": [b"x", b"y"], "struct": [{"u": 1}] * 2}
    )
    frame.write_parquet("x.parquet")
    for name in ("list", "bytes", "struct"):
        place = f"x.parquet, column '{name}'"
        complains(run("fit", "x.parquet", "--columns", "a", "--index", name), place, "name rows")
        complains(run("fit", "x.parquet", "--text", name), place, "are not texts")


def test_a_column_of_gaps_is_left_out_with_a_message(run, tmp_path):
    X = table()
    rows = [f"{a!r},,{b!r}" for a, b in X.tolist()]
    (tmp_path / "x.csv").write_text("\n".join(["a,gone,b", *rows]))
    code, _, err = run("fit", "x.csv", *QUICK[:-1])
    assert code == 0
    assert "gone    constant  dropped        it has no values" in err
    found = read_table("x.csv")
    found.decide()
    np.testing.assert_array_equal(found.X, X)


# -- NumPy ---------------------------------------------------------------------------------------


def header(shape):
    return np.lib.format.magic(1, 0) + _text(
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"
    )


def _text(text):
    data = text.encode().ljust(117) + b"\n"
    return len(data).to_bytes(2, "little") + data


def bad_numpy_files(folder):
    """Yield (file name, expected message)."""
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
    yield "scalar.npy", "0 dimensions"
    np.save(folder / "cube.npy", np.zeros((2, 2, 2)))
    yield "cube.npy", "3 dimensions"
    np.save(folder / "norows.npy", np.zeros((0, 2)))
    yield "norows.npy", "X is empty"
    np.save(folder / "complex.npy", np.zeros((2, 2), complex))
    yield "complex.npy", "Complex data"
    np.save(folder / "texts.npy", np.array([["1", "b"]]))
    yield "texts.npy", "row 0, column 1 is 'b', not a number"
    np.save(folder / "dates.npy", np.array([["2020-01-01"]], dtype="datetime64[D]"))
    yield "dates.npy", "row 0, column 0"
    np.save(folder / "records.npy", np.zeros(3, dtype=[("a", "f8"), ("b", "f8")]))
    yield "records.npy", "1 dimension"
    np.save(folder / "infinite.npy", np.array([[1.0, 2.0], [3.0, np.inf]]))
    yield "infinite.npy", "row 1, column 1 is inf"


def test_bad_numpy_files(run, tmp_path):
    seen = 0
    for name, said in bad_numpy_files(tmp_path):
        complains(run("fit", name), name, said)
        seen += 1
    assert seen == 20
    assert not list(tmp_path.glob("*.clusters"))


def test_kinds_of_numpy_files_may_be_mistaken_for_each_other(tmp_path):
    np.savez(tmp_path / "x.npz", X=table())
    (tmp_path / "x.npz").rename(tmp_path / "archive.npy")
    np.save(tmp_path / "x.npy", table())
    (tmp_path / "x.npy").rename(tmp_path / "array.npz")
    for name in ("archive.npy", "array.npz"):
        np.testing.assert_array_equal(read_table(tmp_path / name).X, table())


# -- anything ------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-5, 20).map(str),
    st.floats(-10, 10).map(lambda x: f"{x:.3g}"),
    st.sampled_from(["1e300", "-1e149", "1e-300", "0", "1e5", "123456789012345678901234567890"]),
)
GAPS = st.sampled_from(["", "NA", "NaN", "null", " "])
TEXTS = st.one_of(
    st.sampled_from(["red", "blue", "true", "False", "x", "inf", "1,5", '"', '"a,b"', "'", "-"]),
    st.text(max_size=4),
)
COLUMNS = st.sampled_from(
    [NUMBERS, NUMBERS, st.integers(0, 3).map(str), st.integers(0, 1).map(str), st.just("7"),
     st.one_of(NUMBERS, NUMBERS, NUMBERS, GAPS), GAPS, st.sampled_from(["u", "v"]), TEXTS,
     st.one_of(NUMBERS, TEXTS, GAPS)]
)  # fmt: skip


@st.composite
def tables(draw):
    """Texts that are more or less tables."""
    width, height = draw(st.integers(1, 5)), draw(st.integers(0, 12))
    separator = draw(st.sampled_from(",,,,;\t|"))
    columns = [
        draw(st.lists(draw(COLUMNS), min_size=height, max_size=height)) for _ in range(width)
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if draw(st.booleans()):
        rows.insert(0, draw(st.lists(st.one_of(st.sampled_from(["a", "id", "größe", "数", "", "a"]),
                                               st.text(max_size=5)),
                                     min_size=width, max_size=width)))  # fmt: skip
    if rows and draw(st.integers(0, 9)) == 0:
        draw(st.sampled_from(rows)).append("9")
    if draw(st.booleans()):
        rows = rows + rows  # duplicates
    return draw(st.sampled_from(["\n", "\r\n"])).join(separator.join(row) for row in rows)


OPTIONS = st.sampled_from(
    [[], [], ["--family", "gaussian"], ["--family", "poisson"], ["--family", "bernoulli"],
     ["--family", "full_gaussian"], ["--family", "categorical"], ["--columns", "0"],
     ["--drop", "0"], ["--index", "0"], ["--text", "0"], ["--category", "0"], ["--no-header"],
     ["--decimal-comma"], ["--format", "parquet"], ["--out", "-"], ["--json"], ["--shards", "2"],
     ["--shards", "2", "--report"], ["--report"]]
)  # fmt: skip

# Two thousand by hand: DPSEARCH_FUZZ=2000 python -m pytest tests/io/test_bad_files.py -k fuzz
CASES = int(os.environ.get("DPSEARCH_FUZZ", "12"))


@pytest.mark.slow
@given(tables(), OPTIONS)
@settings(
    max_examples=CASES, deadline=None, derandomize=CASES < 100,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_fuzz(tmp_path_factory, text, options):
    """Any text is read, or refused in one line with nothing written."""
    folder = tmp_path_factory.mktemp("fuzz")
    data = folder / "x.csv"
    data.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    out = [] if "--out" in options else ["--out", str(folder / "out")]
    arguments = ["fit", str(data), "--refine", "no", *out, *options]
    result = CliRunner().invoke(app, arguments)
    left = names_in(folder)
    try:
        if result.exit_code == 0:
            assert left == (["x.csv"] if options == ["--out", "-"] else ["out", "x.csv"])
            return
        assert result.exit_code == 1, result.output
        assert left == ["x.csv"]
        assert result.stdout == ""
        errors = [line for line in result.stderr.splitlines() if line.startswith("dpsearch: ")]
        assert errors == result.stderr.splitlines()[-1:]  # after the notes and the triage
    finally:
        shutil.rmtree(folder)
