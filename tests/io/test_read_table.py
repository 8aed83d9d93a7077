"""`read_table`: every format gives the same table; blocks do not matter; row names are not data."""

import csv
import gzip
import hashlib
import io
import math
import sys
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmwrite
from sklearn.datasets import dump_svmlight_file

from command_line import as_text, names_in, table
from dpsearch._files import atomic_folder
from dpsearch.errors import DataError, MissingLibraryError, ParameterError
from dpsearch.io import ModelColumns, Reading, labels_table, read_table, write_table
from dpsearch.io.delimited import read_delimited
from dpsearch.io.sniff import count_titles, guess_separator
from dpsearch.io.table import MISSING

NAMES = ["height", "weight"]


def write_as(form, X, folder):
    """Write a matrix; return the path and the column names that the format keeps."""
    path = folder / form
    frame = pl.DataFrame(X[:, :2], schema=NAMES, orient="row")
    text = as_text(X, ",".join(NAMES) + "\n")
    if form == "plain.csv":
        path.write_text(as_text(X))
        return path, None
    if form == "messy.csv":  # a byte order mark, Windows line ends, blanks, quotes, blank lines
        lines = ['"height", weight', *(f'"{a!r}", {b!r} ' for a, b in X.tolist()), "", ""]
        path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    elif form in ("x.csv", "X.CSV"):
        path.write_text(text)
    elif form == "old_mac.csv":
        path.write_bytes(text.replace("\n", "\r").encode())
    elif form == "x.tsv":
        path.write_text(text.replace(",", "\t"))
    elif form == "semicolon.csv":
        path.write_text(text.replace(",", ";"))
    elif form == "bar.txt":
        path.write_text(text.replace(",", "|"))
    elif form in ("x.csv.gz", "x.tsv.gz"):
        path.write_bytes(gzip.compress(text.replace(",", "\t" if "tsv" in form else ",").encode()))
    elif form == "x.parquet":
        frame.write_parquet(path)
    elif form in ("x.arrow", "x.feather"):
        frame.write_ipc(path)
    elif form == "pandas.feather":
        frame.to_pandas().to_feather(path)
    elif form == "x.h5ad":
        anndata = pytest.importorskip("anndata")
        cells = anndata.AnnData(X)
        cells.var_names = NAMES
        cells.obs_names = [f"cell {i}" for i in range(len(X))]
        cells.write_h5ad(path)
    else:
        if form == "x.npy":
            np.save(path, X)
        elif form == "fortran.npy":
            np.save(path, np.asfortranarray(X))
        elif form == "named.npz":
            np.savez_compressed(path, labels=np.zeros(3), X=X)
        elif form == "only.npz":
            np.savez(path, anything=X)
        elif form in ("dense.mtx", "sparse.mtx"):
            mmwrite(path, X if form == "dense.mtx" else sp.coo_matrix(X), precision=17)
        elif form == "x.mtx.gz":
            mmwrite(folder / "x.mtx", sp.coo_matrix(X), precision=17)
            path.write_bytes(gzip.compress((folder / "x.mtx").read_bytes()))
        else:
            dump_svmlight_file(X, np.zeros(len(X)), str(path))
        return path, None
    return path, NAMES


FORMS = [
    "plain.csv", "x.csv", "X.CSV", "messy.csv", "old_mac.csv", "x.tsv", "semicolon.csv", "bar.txt",
    "x.csv.gz", "x.tsv.gz", "x.parquet", "x.arrow", "x.feather", "pandas.feather", "x.npy",
    "fortran.npy", "named.npz", "only.npz", "dense.mtx", "sparse.mtx", "x.mtx.gz", "x.svmlight",
    "x.h5ad",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_table(form, tmp_path):
    X = table()
    path, names = write_as(form, X, tmp_path)
    found = read_table(path)
    assert found.names == names
    if form == "x.svmlight":  # scikit-learn writes sixteen digits
        np.testing.assert_allclose(found.X, X, rtol=1e-15)
    else:
        np.testing.assert_array_equal(found.X, X)
    assert found.notes == []
    if form == "x.h5ad":
        assert found.index.to_list()[:2] == ["cell 0", "cell 1"]


@pytest.mark.parametrize("form", ["sparse.mtx", "x.svmlight", "x.h5ad"])
def test_counts_stay_sparse(form, tmp_path):
    X = np.random.default_rng(0).poisson(0.5, size=(30, 4)).astype(float)
    X[0, 3] = 2.0  # the last column of an SVMlight file is the last that is not empty
    if form == "x.h5ad":
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(sp.csr_matrix(X)).write_h5ad(tmp_path / form)
    else:
        write_as(form, X, tmp_path)
    found = read_table(tmp_path / form).X
    assert sp.issparse(found)
    np.testing.assert_array_equal(found.toarray(), X)


def test_anndata_missing_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    (tmp_path / "x.h5ad").write_bytes(b"whatever")
    wanted = r'x.h5ad: .*anndata: pip install "dpsearch\[anndata\]"'
    with pytest.raises(MissingLibraryError, match=wanted):
        read_table(tmp_path / "x.h5ad")


# -- delimited text ------------------------------------------------------------------------------


def read_text(text, tmp_path, /, **options):
    (tmp_path / "x.csv").write_text(text, newline="")
    return read_table(tmp_path / "x.csv", Reading(**options))


def test_names_and_gaps(tmp_path):
    found = read_text("a, b \n1,2.5\n-3,NA\n,4e2\n", tmp_path)
    assert found.names == ["a", "b"]
    np.testing.assert_array_equal(found.X, [[1.0, 2.5], [-3.0, math.nan], [math.nan, 400.0]])
    for gap in MISSING:
        np.testing.assert_array_equal(
            read_text(f"a,b\n{gap},1\n2,{gap}\n", tmp_path).X, [[math.nan, 1.0], [2.0, math.nan]]
        )


@pytest.mark.parametrize("empty", ["", ";;;"])
def test_titles_before_the_names_of_columns(empty, tmp_path):
    path = tmp_path / "X.csv"
    below = "Nr;x;kind;\n" + "".join(f"{k};{k * k};{'ab'[k % 2]};\n" for k in range(30))
    path.write_text(f'Sales{empty}\n\n"As of\n2024"{empty}\n{below}')
    found = read_table(path, Reading())
    assert found.notes[0].startswith("2 lines before the column names skipped")
    assert found.names[:3] == ["Nr", "x", "kind"]
    assert found.X.shape[0] == 30
    path.write_text(f"Sales{empty}\n{below}1;2\n")
    with pytest.raises(DataError, match=r"line 33: 2 cells, but the first line has 4; put cells"):
        read_table(path, Reading())


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,\nx,y\nz,w\nx,w\n",
        ",b,c\nx,1,2\ny,3,4\n",
        "1,\na,b\n2,3\n",
        "a,b,c\n,,\nx,y,z\n",
        "a\nb\nc\n",
    ],
)
def test_first_lines_that_are_not_column_names(text):
    rows = [line.split(",") for line in text.splitlines()]
    assert count_titles(rows, False) == 0


def test_mixed_tables_are_frames(tmp_path):
    found = read_text(
        "colour,count,size,sold,code\nred,1,1.5,true,10\nblue,2,,FALSE,10\nred,,2.5,,20\n",
        tmp_path,
        categories="code",
    )
    huge = read_text("colour,n\nred,9223372036854775807\nblue,1\n", tmp_path)
    assert huge.X["n"].to_list() == [9223372036854775807, 1]
    assert found.X.equals(
        pl.DataFrame(
            {
                "colour": ["red", "blue", "red"],
                "count": [1, 2, None],
                "size": [1.5, None, 2.5],
                "sold": ["true", "FALSE", None],
                "code": ["10", "10", "20"],
            }
        )
    )
    found.decide()
    assert found.X["sold"].to_list() == [True, False, None]


def test_decimal_commas(tmp_path):
    text = "a;b\n1,5;2\n-3,25;4\n"
    found = read_text(text, tmp_path)
    assert found.X["a"].to_list() == ["1,5", "-3,25"]
    found.decide()
    np.testing.assert_array_equal(found.X, [[1.5, 2.0], [-3.25, 4.0]])
    np.testing.assert_array_equal(
        read_text(text, tmp_path, decimal_comma=True).X, [[1.5, 2.0], [-3.25, 4.0]]
    )


def test_encodings(tmp_path):
    for encoding in ("latin-1", "utf-16", "cp1252"):
        (tmp_path / "x.csv").write_bytes("größe,b\n1,2\n3,4\n".encode(encoding))
        with pytest.raises(DataError, match="not UTF-8"):
            read_table(tmp_path / "x.csv")
        found = read_table(tmp_path / "x.csv", Reading(encoding=encoding))
        assert found.names == ["größe", "b"]
        np.testing.assert_array_equal(found.X, [[1.0, 2.0], [3.0, 4.0]])


def test_headers(tmp_path):
    assert read_text("2019,2020\n1,2\n", tmp_path).n_rows == 2
    found = read_text("2019,2020\n1,2\n", tmp_path, header=True)
    assert (found.names, found.n_rows) == (["2019", "2020"], 1)
    without = read_text("a,1\n1,2\n2,3\n3,4\n", tmp_path, header=False)
    assert without.X["column 0"].to_list() == ["a", "1", "2", "3"]


def test_numbers_that_name_columns(tmp_path):
    """As pandas writes columns without names, with and without its index."""
    X = table(60)
    frame = pd.DataFrame(X)
    for text in (
        frame.to_csv(),
        frame.to_csv(index=False),
        frame.to_csv().replace(",0,1\n", ",7,9\n"),
    ):
        found = read_text(text, tmp_path)
        found.decide()
        assert found.names == (["7", "9"] if ",7,9" in text else ["0", "1"])
        np.testing.assert_array_equal(found.X, X)
        assert "is taken for column names; use --no-header" in found.notes[0]
    found = read_text(frame.to_csv(), tmp_path)
    found.decide()
    assert found.index.to_list() == list(range(60))
    counts = pd.DataFrame(np.arange(12).reshape(4, 3)).to_csv(index=False)
    assert read_text(counts, tmp_path).names == ["0", "1", "2"]
    for text in ("0,1\n1,0\n1,1\n", ",1.5\n,2.5\n0,3\n", "2019,2020\n1,2\n3,4\n"):
        found = read_text(text, tmp_path)
        assert (found.names, found.n_rows) == (None, 3)
        assert not any("first line" in note for note in found.notes)
    found = read_text("2019,2020\n1.5,2.5\n3,4\n", tmp_path)
    assert (found.names, found.n_rows) == (None, 3)
    assert found.notes == [
        "the first line, 2019,2020, is taken for data; use --header if it names the columns"
    ]
    # A model knows its names; small blocks know what large ones do.
    model = ModelColumns(("2020", "2019"), 2)
    assert read_text("2019,2020\n1,2\n", tmp_path, model=model).names == ["2020", "2019"]
    (tmp_path / "x.csv").write_text("0,1\n1,0\n1,0.5\n")
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=2)
    assert (found.names, found.n_rows) == (["0", "1"], 2)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b;c\n1,5;2,5;3\n", ";"),
        ("1,5;2,5;3\n1,5;2,5;3\n", ";"),
        ("a\tb c\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ('"x;y",b\n"u;v;w",2\n', ","),
        ("a\n1\n2\n", ","),
        ("a,b\n1,2\n3\n", ","),
    ],
)
def test_separators(text, separator):
    assert guess_separator(text) == separator


def naive(text, separator):
    """Read a table with names, of numbers and gaps only, in the obvious way."""
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if row]
    cells = [[cell.strip() for cell in row] for row in rows[1:]]
    return rows[0], [[math.nan if c in MISSING else float(c) for c in row] for row in cells]


CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-999, 10**15).map(str),
    st.sampled_from(["", "NA", " 7 ", '"8"', "+1e3", "5.", '"9\n"']),
)


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1)
    ),
    st.sampled_from(",;\t|"),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_size_give_the_naive_table(tmp_path_factory, rows, separator, block, end):
    names = ["a", "b", "c"][: len(rows[0])]
    text = end.join(separator.join(cells) for cells in [names, *rows]) + end
    path = tmp_path_factory.mktemp("blocks") / "x.csv"
    path.write_text(text, newline="")
    want_names, want = naive(text.replace("\r\n", "\n"), separator)
    if not want:  # one column, and nothing but blank lines
        return
    found, _ = read_delimited(path, Reading(separator=separator), block=block)
    assert found.names == want_names
    np.testing.assert_array_equal(found.X, want)
    whole, _ = read_delimited(path, Reading(separator=separator))
    assert [whole.line(i) for i in range(len(want))] == [found.line(i) for i in range(len(want))]
    # The line of a row is where it ends.
    lines = text.replace("\r\n", "\n").split("\n")
    for i, cells in enumerate(rows if len(want) == len(rows) else []):
        ending = separator.join(cells).split("\n")[-1]
        assert lines[found.line(i) - 1] == ending


@pytest.mark.parametrize("block", [5, 64, 1 << 20])
def test_errors_name_the_same_line_for_any_block_size(block, tmp_path):
    lines = ["a,b", *(f"{i},{i}" for i in range(100)), "7,oops", "8,9", "x,1"]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=block)
    assert found.X["b"].to_list() == [*map(str, range(100)), "oops", "9", "1"]
    (tmp_path / "x.csv").write_text("\n".join(lines).replace("7,oops", '"7\n",3\n\n4'))
    with pytest.raises(DataError, match=r"line 105: 1 cells, but the first line has 2"):
        read_delimited(tmp_path / "x.csv", Reading(), block=block)


@pytest.mark.parametrize("block", [8, 50, 1 << 20])
def test_kinds_of_columns_do_not_depend_on_blocks(block, tmp_path):
    """A column may begin with gaps or numbers and later contain text."""
    rows = [(i, None, i / 2, None) for i in range(20)]
    rows += [(i, "uv"[i % 2], -i / 2, i % 3) for i in range(20, 40)]
    frame = pl.DataFrame(rows, schema=["a", "b", "c", "d"], orient="row")
    frame.write_csv(tmp_path / "x.csv")
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=block)
    assert found.X.equals(frame)
    lines = ["a", *map(str, range(20)), *["late"] * 50]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=block)
    assert found.X["a"].to_list() == lines[1:]


def test_a_file_passes_through_a_small_window(tmp_path):
    """Memory holds the matrix and a few blocks, not the text."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10))
    (tmp_path / "x.csv").write_text(as_text(X))
    tracemalloc.start()  # sees NumPy's and Python's memory
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=1 << 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found.X, X)
    assert peak < 2.5 * X.nbytes  # the text alone is 2.4 times the matrix
    rows = []
    read_delimited(tmp_path / "x.csv", Reading(), block=1 << 16, progress=rows.append)
    assert rows == sorted(rows)
    assert rows[-1] == 20_000
    assert len(rows) > 20


# -- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["x.csv", "x.parquet", "x.npy"])
def test_columns_by_name_and_number(form, tmp_path):
    X = np.arange(24.0).reshape(6, 4) ** 1.5
    names = None if form == "x.npy" else ["a", "b", "3", "d"]
    path = tmp_path / form
    if names is None:
        np.save(path, X)
    else:
        frame = pl.DataFrame(X, schema=names, orient="row")
        frame.write_csv(path) if form == "x.csv" else frame.write_parquet(path)

    def columns(**options):
        found = read_table(path, Reading(**options))
        wanted = [int(np.flatnonzero((x[:, None] == X).all(axis=0))[0]) for x in found.X.T]
        assert found.names == (None if names is None else [names[j] for j in wanted])
        return wanted, found

    assert columns(columns="0,2-3")[0] == [0, 2, 3]
    assert columns(columns="1-2")[0] == [1, 2]
    assert columns(drop="1")[0] == [0, 2, 3]
    kept, found = columns(index="0")
    assert kept == [1, 2, 3]
    np.testing.assert_array_equal(found.index.cast(pl.Float64), X[:, 0])
    if names is not None:
        assert columns(columns="d,a")[0] == [3, 0]
        assert columns(columns="3")[0] == [2]  # a name goes before a number
        assert columns(model=ModelColumns(("d", "b"), 2))[0] == [3, 1]
        with pytest.raises(DataError, match="no column 'e', which the model needs"):
            columns(model=ModelColumns(("a", "e"), 2))
    with pytest.raises(ParameterError, match="--drop: no column 'z'"):
        columns(drop="z")


def ids(text, tmp_path):
    found = read_text(text, tmp_path)
    found.decide()
    index = None if found.index is None else found.index.to_list()
    return found.names, index, list(found.triage.dropped)


def test_columns_that_are_not_measurements(tmp_path):
    rest = ["5,1", "6,3", "7,2", "8,8", "7,9"]

    def with_first(name, values):
        rows = [f"{first},{cells}" for first, cells in zip(values, rest, strict=True)]
        return ids("\n".join([f"{name},a,b", *rows]), tmp_path)

    assert with_first("id", range(5)) == (["a", "b"], [0, 1, 2, 3, 4], ["id"])
    assert with_first("id", range(1, 6)) == (["a", "b"], [1, 2, 3, 4, 5], ["id"])
    assert with_first("id", [3, 1, 2, 5, 4]) == (["a", "b"], [3, 1, 2, 5, 4], ["id"])
    assert with_first("", [10, 7, 3, 20, 5]) == (["a", "b"], [10, 7, 3, 20, 5], ["column 0"])
    zeros = ["000", "001", "002", "003", "004"]
    assert with_first("id", zeros) == (["a", "b"], zeros, ["id"])
    large = [100000000000000000 + i for i in (7, 8, 1, 3, 2)]  # not all of them are doubles
    assert with_first("", large)[1] == large
    frame = pl.DataFrame({"index": large, "a": [0.5, 1.5, 4.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet")
    found.decide()
    assert (found.index.to_list(), found.index.name) == (large, "index")
    assert with_first("Unnamed: 0", [4, 8, 15, 16, 23])[2] == ["Unnamed: 0"]
    assert with_first("who", "vwxyz") == (["a", "b"], list("vwxyz"), ["who"])
    # Measurements stay.
    assert with_first("x", [2, 3, 4, 5, 6]) == (["x", "a", "b"], None, [])
    assert with_first("x", [1, 2, 3, 4, 4]) == (["x", "a", "b"], None, [])
    assert with_first("x", ["u", "u", "v", "w", "x"])[0] == ["x", "a", "b"]
    # So does what the user names.
    named = read_text("id,a\n1,5\n2,6\n3,5\n4,6\n5,5\n", tmp_path, columns="id,a")
    named.decide()
    assert (named.names, named.triage.dropped) == (["id", "a"], ())
    # Elsewhere than in the first column, texts that are all different, and nothing at all.
    found = ids("a,note,gone\n5,u,\n6,v,NA\n7,w,\n8,x,\n7,y,\n", tmp_path)
    assert found == (["a"], list("uvwxy"), ["note", "gone"])


def test_sentences_dates_and_names(tmp_path):
    said = [f"the {word} film of the year, or so they say" for word in "abcdefghij"]
    days = ["2024-01-02", "2024-01-02", "", "2024-11-30T08:00", "2024-11-30T08:00"] * 2
    rows = [f'{i % 2},"{text}",{day}' for i, (text, day) in enumerate(zip(said, days, strict=True))]
    found = read_text("\n".join(["stars,review,day", *rows]), tmp_path)
    found.decide()
    assert [entry[1:3] for entry in found.triage] == [
        ("category", "used as it is"),
        ("text", "dropped"),
        ("date", "parts"),
    ]
    assert found.names == ["stars", "day (month)", "day (weekday)", "day (hour)"]
    names = ["x,who", *(f"{i}.5,name {i % 15}" for i in range(24))]
    found = read_text("\n".join(names), tmp_path)
    found.decide()
    assert found.triage["who"].reason == "names: 15 in 24 values"


@pytest.mark.parametrize("block", [5, 1 << 20])
def test_points_between_thousands_are_no_decimals(block, tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n987;1,5\n1.234;2,5\n")
    reading = Reading(decimal_comma=True)
    found, _ = read_delimited(tmp_path / "x.csv", reading, block=block)
    np.testing.assert_array_equal(found.X, [[987.0, 1.5], [1234.0, 2.5]])


def test_numbers_of_rows_beyond_whole_numbers(tmp_path):
    rows = [f"{i}e20,{i % 2}.5" for i in range(1, 7)]
    found = read_text("\n".join(["index,a", *rows]), tmp_path)
    found.decide()
    assert found.names == ["a"]
    assert found.index.to_list() == [i * 1e20 for i in range(1, 7)]


@pytest.mark.parametrize("block", [5, 1 << 20])
def test_a_first_line_may_say_the_separator(block, tmp_path):
    (tmp_path / "x.csv").write_text("sep=;\r\na;b\r\n1,5;2\r\n3;4,5\r\n")
    reading = Reading(decimal_comma=True)
    found, _ = read_delimited(tmp_path / "x.csv", reading, block=block)
    assert found.names == ["a", "b"]
    np.testing.assert_array_equal(found.X, [[1.5, 2.0], [3.0, 4.5]])
    (tmp_path / "x.csv").write_text("sep=;\na;b\n1;2\n3;oops\n")
    found, _ = read_delimited(tmp_path / "x.csv", Reading(), block=block)
    assert found.X["b"].to_list() == ["2", "oops"]


def test_an_index_of_pandas_in_parquet(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": [1.0, 1.0, 2.0]}, index=[10, 30, 20])
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet")
    assert found.names == ["a", "b"]
    np.testing.assert_array_equal(found.X, frame.to_numpy())


def test_a_model_finds_its_columns(tmp_path):
    """Columns, categories and the index are found by name, or by place in files without names."""
    model = ModelColumns(("size", "zip"), 2, categories=(1,), index="id")
    text = "zip,id,size\n10,007,1.5\n20,008,2.5\n"
    found = read_text(text, tmp_path, model=model)
    assert found.names == ["size", "zip"]
    assert found.X["zip"].to_list() == ["10", "20"]
    assert (found.index.name, found.index.to_list()) == ("id", ["007", "008"])
    found = read_text(text, tmp_path, model=model, columns="zip,size", index="id")
    assert found.X["zip"].to_list() == ["10", "20"]
    found = read_text("1.5,10\n2.5,20\n", tmp_path, model=model)
    assert (found.names, found.index) == (None, None)
    assert found.X.to_series(1).to_list() == ["10", "20"]
    for name in ("size", "zip"):
        with pytest.raises(DataError, match=f"no column '{name}', which the model needs"):
            read_text(text.replace(name, "other"), tmp_path, model=model)
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    with pytest.raises(DataError, match="column 1 is a category in the model"):
        read_table(tmp_path / "x.npy", Reading(model=model))
    # What columns of a file without names are called is their number there.
    model = ModelColumns(("column 2", "column 1"), 2, categories=(1,), index="column 0")
    found = read_text("a,10,1.5\nb,20,2.5\n", tmp_path, model=model, header=False)
    assert found.X.to_series(0).to_list() == [1.5, 2.5]
    assert found.X.to_series(1).to_list() == ["10", "20"]
    assert (found.index.name, found.index.to_list()) == ("row", ["a", "b"])


def test_streams_of_arrow(tmp_path):
    frame = pl.DataFrame(table(), schema=NAMES, orient="row")
    frame.write_ipc_stream(tmp_path / "x.arrow")
    found = read_table(tmp_path / "x.arrow")
    assert found.names == NAMES
    np.testing.assert_array_equal(found.X, table())


def test_the_digest_is_that_of_what_was_read(tmp_path, monkeypatch):
    content = as_text(table()).encode()
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "x.csv").write_bytes(content)
    assert read_table(tmp_path / "x.csv").sha256 == digest
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_table("-").sha256 == digest

    def write(rows):
        (tmp_path / "x.csv").write_bytes(content * 2)

    with pytest.raises(DataError, match="x.csv: was changed while it was being read"):
        read_table(tmp_path / "x.csv", progress=write)


# -- texts ---------------------------------------------------------------------------------------


def test_words_are_counted(tmp_path):
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "b.txt").write_text("Pear pear PLUM")
    (tmp_path / "docs" / "deep" / "a.md").write_text("plum äpfel")
    (tmp_path / "docs" / ".hidden").write_text("secret")
    found = read_table(tmp_path / "docs")
    assert found.names == ["pear", "plum", "äpfel"]
    assert found.index.to_list() == ["b.txt", "deep/a.md"]
    assert found.X.toarray().tolist() == [[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    again = read_table(tmp_path / "docs", Reading(model=ModelColumns(("plum", "quince"), 2)))
    assert again.X.toarray().tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_rare_common_and_too_many_words_are_left_out(tmp_path):
    rows = [
        f"the {'apple' if i % 2 else 'bolt'} once{i} {'pear' if i < 5 else ''}" for i in range(30)
    ]
    pl.DataFrame({"text": rows, "other": 1}).write_csv(tmp_path / "t.csv")
    found = read_table(tmp_path / "t.csv", Reading(text="text"))
    assert found.names == ["apple", "bolt", "pear"]
    assert found.notes == ["3 of 34 words are counted"]
    fewer = read_table(tmp_path / "t.csv", Reading(text="text", words=2))
    assert fewer.names == ["apple", "bolt"]
    pl.DataFrame({"text": ["", None]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="there are no words"):
        read_table(tmp_path / "t.parquet", Reading(text="text"))


# -- places in messages, and writing -------------------------------------------------------------


def test_messages_are_put_in_terms_of_the_file(tmp_path):
    found = read_text("a,b\n\n1,2\n3,4\n", tmp_path)

    def located(table, text, **place):
        error = DataError(text, **place)
        table.locate(error)
        return str(error).removeprefix(f"{table.source}: ")

    at = "X at {place} is 4"
    assert located(found, at, row=1, column=1) == "line 4, column 'b' is 4"
    assert located(found, "{place} of X is odd", row=0) == "line 3 of X is odd"
    assert located(found, at, row=7, column=9) == "row 7, column 9 is 4"
    assert located(found, at, row=1, column="b") == "line 4, column 'b' is 4"
    assert located(found, "{place} of X has no value", column=1) == "column 'b' of X has no value"
    np.save(tmp_path / "x.npy", np.zeros((2, 3)))
    assert located(read_table(tmp_path / "x.npy"), "{place}", row=1, column=0) == "row 1, column 0"
    chosen = read_table(tmp_path / "x.npy", Reading(columns="2,0"))
    assert located(chosen, "{place} of X", column=0) == "column 2 of X"
    assert located(chosen, "X at {place}", row=1, column=1) == "row 1, column 0"


def test_long_documents(tmp_path):
    long = "pear " * 40_000
    found = read_text(f'text,n\n"{long}",1\n"plum, pear",2\n', tmp_path, text="text")
    assert found.names == ["pear", "plum"]
    assert found.X.toarray().tolist() == [[40_000.0, 0.0], [1.0, 1.0]]
    assert csv.field_size_limit() == 1 << 17  # of the process: as before


def test_writing(tmp_path, capsys):
    frame = labels_table(pl.Series("row", range(3)), cluster=np.array([2, 0, 1]))
    write_table(tmp_path / "labels.csv", frame)
    assert (tmp_path / "labels.csv").read_text() == "row,cluster\n0,2\n1,0\n2,1\n"
    write_table("-", frame)
    assert capsys.readouterr().out == "row,cluster\n0,2\n1,0\n2,1\n"
    clash = labels_table(pl.Series("cluster", ["a", "b"]), cluster=[0, 1])
    assert clash.columns == ["input cluster", "cluster"]


def test_cells_that_a_spreadsheet_would_run_are_made_harmless(tmp_path):
    names = ["=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(A1)", "\tx", "a=b", "", None, "-1e5", "＝1"]
    index = pl.Series("=name", names)
    frame = labels_table(index, cluster=list(range(-1, 9)))
    write_table(tmp_path / "x.csv", frame)
    read = pl.read_csv(tmp_path / "x.csv")
    assert read.columns == ["'=name", "cluster"]
    assert read.to_series(0).to_list() == [
        "'=cmd|' /C calc'!A0", "'+1+1", "-2", "'@SUM(A1)", "'\tx", "a=b", "", None, "-1e5", "'＝1"
    ]  # fmt: skip
    assert read["cluster"].to_list() == list(range(-1, 9))
    write_table(tmp_path / "y.csv", frame, verbatim=True)
    assert pl.read_csv(tmp_path / "y.csv").to_series(0)[:4].to_list() == names[:4]
    write_table(tmp_path / "z.parquet", frame)
    assert pl.read_parquet(tmp_path / "z.parquet").equals(frame)
    coded = frame.with_columns(pl.col("=name").cast(pl.Categorical))
    write_table(tmp_path / "c.csv", coded)
    assert (tmp_path / "c.csv").read_bytes() == (tmp_path / "x.csv").read_bytes()


def test_a_folder_is_written_as_a_whole_or_not_at_all(tmp_path):
    out = tmp_path / "out"

    def write(text, fails=None):
        with atomic_folder(out, frozenset({"a", "old"}), force=True) as folder:
            (folder / "a").write_text(text)
            assert text not in [file.read_text() for file in out.glob("*") if file.is_file()]
            if fails is not None:
                raise fails

    with pytest.raises(KeyboardInterrupt):
        write("half", KeyboardInterrupt())
    assert names_in(tmp_path) == []
    write("1")
    assert names_in(out) == ["a"]
    (tmp_path / "usual").mkdir()
    assert out.stat().st_mode == (tmp_path / "usual").stat().st_mode
    (out / "mine").write_text("kept")
    (out / "old").write_text("of the last run")
    with pytest.raises(OSError, match="disk"):
        write("2", OSError("disk"))
    assert (out / "a").read_text() == "1"
    assert names_in(out) == ["a", "mine", "old"]
    write("2")
    assert names_in(out) == ["a", "mine"]
    assert (out / "a").read_text() == "2"
    assert names_in(tmp_path) == ["out", "usual"]


def test_sparse_matrices_as_scipy_writes_them(tmp_path):
    X = sp.random(7, 5, density=0.5, random_state=0, format="csc")
    sp.save_npz(tmp_path / "x.npz", X)
    table = read_table(tmp_path / "x.npz")
    assert sp.issparse(table.X)
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    np.savez(tmp_path / "y.npz", format="csr", shape=[1], data=[2.0])
    with pytest.raises(DataError, match="y.npz: not a NumPy file"):
        read_table(tmp_path / "y.npz")
