"""`open_table`: arrays, files, sets of files and batches are one table, in memory or in shards."""

import errno
import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from dpsearch import DPMixture, families, load
from dpsearch.cli.options import parse_size
from dpsearch.errors import DataError, ParameterError
from dpsearch.io import Reading, read_table
from dpsearch.io.output import write_parquet, write_pieces
from dpsearch.sources import pieces, shards
from dpsearch.sources.opened import TableOptions, open_table, rows_within
from dpsearch.sources.shards import stacked
from dpsearch.tables import Schema

GAUSSIAN = families.Gaussian(0.0, 60.0, 1.0)
N = 900


def planted(n=N, k=5, d=3):
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    return rng.normal(0, 8, (k, d))[labels] + rng.normal(size=(n, d)), labels


X, LABELS = planted()
FRAME = pl.DataFrame(X, schema=list("abc"))
MIXED = FRAME.with_columns(
    kind=pl.Series(np.array(list("vwxyz"))[LABELS]),
    sure=pl.Series(LABELS > 2),
    n=pl.Series(LABELS * 3),
)


@pytest.fixture(autouse=True)
def _no_temporary_file_stays(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def fitted(source, **options):
    return DPMixture(GAUSSIAN, 1.0, n_shards=3, random_state=0, **options).fit(source)


def written(folder, frame, form, name="t"):
    path = folder / f"{name}.{form}"
    if form == "parquet":
        frame.write_parquet(path, row_group_size=100)
    elif form in ("arrow", "feather"):
        frame.write_ipc(path)
    elif form == "npy":
        np.save(path, frame.to_numpy())
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path, separator="\t" if form == "tsv" else ",")
    return path


def a_set(folder, frame=FRAME, n_files=4):
    (folder / "set").mkdir()
    for i, part in enumerate(frame.iter_slices(-(-frame.height // n_files))):
        part.write_parquet(folder / "set" / f"p{i}.parquet")
    return folder / "set"


def batches(rows, size=200):
    return (rows[i : i + size] for i in range(0, N, size))


# -- the same from everywhere ------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    return fitted(X)


def same(model, reference):
    np.testing.assert_array_equal(model.labels_, reference.labels_)
    assert model.log_joint_ == reference.log_joint_
    assert model.labels_.dtype.kind == "i"


@pytest.mark.parametrize("form", ["parquet", "arrow", "feather", "csv", "csv.gz", "tsv", "npy"])
def test_a_file_is_fitted_as_the_array(form, tmp_path, reference):
    path = written(tmp_path, FRAME, form)
    model = fitted(str(path))
    same(model, reference)
    if form != "npy":
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    one = DPMixture(GAUSSIAN, 1.0, n_shards=1, random_state=0)
    same(one.fit(path), DPMixture(GAUSSIAN, 1.0, n_shards=1, random_state=0).fit(X))


def test_a_set_of_files_is_one_table(tmp_path, reference):
    folder = a_set(tmp_path)
    (folder / "_SUCCESS").touch()
    FRAME.head(0).write_parquet(folder / "empty.parquet")  # some writers leave such behind
    same(fitted(folder), reference)
    same(fitted(str(folder / "*.parquet")), reference)


@pytest.mark.parametrize(
    "rows",
    [X, FRAME, pd.DataFrame(X, columns=list("abc")), X.astype(object)],
    ids=["array", "polars", "pandas", "objects"],
)
def test_batches_are_fitted_as_the_array(rows, reference):
    same(fitted(batches(rows)), reference)
    same(fitted(lambda: batches(rows), n_jobs=3), reference)


def test_sparse_batches():
    counts = sp.csr_matrix(np.random.default_rng(0).poisson(LABELS[:, None] + 1.0, (N, 4)))
    options = {"n_shards": 3, "random_state": 0}
    family = families.Multinomial(1.0)
    got = DPMixture(family, 1.0, **options).fit(batches(counts))
    same(got, DPMixture(family, 1.0, **options).fit(counts))


def test_a_memory_map(tmp_path, reference):
    same(fitted(np.load(written(tmp_path, FRAME, "npy"), mmap_mode="r")), reference)


# -- columns -----------------------------------------------------------------------------------


def in_memory(path, reading):
    """Read the file with the reader of whole files; return a matrix."""
    table = read_table(path, reading)
    table.decide()
    matrix = table.X if isinstance(table.X, np.ndarray) else table.schema.encode(table.X)
    return table, table.schema, matrix


READINGS = {
    "plain": (MIXED, Reading()),
    "ids": (MIXED.with_row_index("id"), Reading()),
    "ids in another order": (MIXED.with_row_index("id").sample(N, shuffle=True), Reading()),
    "numbers that are no ids": (MIXED.select(pl.col("n").alias("id"), "a"), Reading()),
    "names": (MIXED.select(pl.Series("who", [f"r{i}" for i in range(N)]), "a", "kind"), Reading()),
    "texts apart": (MIXED.with_columns(s=pl.Series([f"r{i}" for i in range(N)])), Reading()),
    "nothing": (FRAME.with_columns(none=pl.lit(None, pl.Float64)), Reading()),
    "gaps": (FRAME.with_columns(a=pl.when(FRAME["a"] > 0).then(FRAME["a"])), Reading()),
    "chosen": (MIXED, Reading(columns="kind,b", index="n")),
    "dropped": (MIXED, Reading(drop="kind,sure")),
    "numbers as categories": (MIXED, Reading(categories="n")),
}  # fmt: skip


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("name", READINGS)
def test_columns_are_chosen_as_in_memory(name, form, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "SAMPLE_ROWS", 150)
    monkeypatch.setattr(shards, "SHARD_ROWS", 100)
    frame, reading = READINGS[name]
    path = written(tmp_path, frame, form)
    table, schema, matrix = in_memory(path, reading)
    with open_table(path, TableOptions(4, reading=reading)) as found:
        np.testing.assert_array_equal(stacked([s.load() for s in found.shards]), matrix)
        assert found.names == table.names
        assert found.schema == schema
        assert found.triage.dropped == table.triage.dropped
        index = [found.index_of(shard) for shard in found.shards]
        if table.index is None:
            assert index == [None] * 4
        else:
            assert pl.concat(index).to_list() == table.index.to_list()
            assert index[0].name == table.index.name


def test_a_file_without_names(tmp_path):
    path = tmp_path / "t.csv"
    FRAME.with_columns(pl.Series("a", np.arange(N) * 7)).write_csv(path, include_header=False)
    with open_table(path, TableOptions(2)) as found:
        assert (found.names, found.n_columns) == (None, 3)
    (tmp_path / "d.csv").write_text(
        "x;y\n" + "".join(f"{k},5;{k}\n" for k in range(30)) + "2,5;3\n"
    )
    reading = Reading(decimal_comma=True)
    with open_table(tmp_path / "d.csv", TableOptions(2, reading=reading)) as found:
        assert found.shards[1].load()[-1].tolist() == [2.5, 3.0]


@pytest.mark.parametrize("rows", [MIXED, MIXED.to_pandas()], ids=["polars", "pandas"])
def test_mixed_batches(rows):
    whole = DPMixture(n_shards=2, random_state=0, kinds={"n": "category"}).fit(rows)
    got = DPMixture(n_shards=2, random_state=0, kinds={"n": "category"}).fit(batches(rows))
    same(got, whole)
    assert got.schema_ == whole.schema_


def categories(rng, n):
    levels = np.array(["low", "high", "mid"])[rng.integers(3, size=n)]
    return pd.DataFrame({
        "x": rng.normal(size=n) + 9.0 * (levels == "low"),
        "ordered": pd.Categorical(levels, ["low", "mid", "high", "top"], ordered=True),
        "number": pd.Categorical(rng.integers(3, size=n) * 10, [20, 0, 10, 7]),
        "share": pd.Categorical(rng.integers(2, size=n) / 4, [0.25, 0.0]),
    })  # fmt: skip


@pytest.mark.parametrize("called", [False, True])
def test_batches_keep_the_levels_that_types_name(called):
    """Unused, ordered and integer categories are treated as in a single frame."""
    frame = categories(np.random.default_rng(0), 600)
    parts = [frame[:200], frame[200:400], frame[400:]]
    whole = DPMixture(n_shards=2, random_state=0).fit(frame)
    got = DPMixture(n_shards=2, random_state=0).fit((lambda: parts) if called else iter(parts))
    assert got.schema_ == whole.schema_
    assert got.schema_.columns[1].levels == ("low", "mid", "high", "top")
    assert got.schema_.columns[2].levels == (20, 0, 10, 7)
    assert got.log_joint_ == whole.log_joint_
    np.testing.assert_array_equal(got.predict(frame), whole.predict(frame))
    drawn, _ = got.sample(5)
    assert drawn["number"].cat.categories.tolist() == [20, 0, 10, 7]


def test_batches_whose_types_name_other_levels():
    frame = categories(np.random.default_rng(0), 400)
    later = frame[200:].assign(number=frame.number[200:].cat.set_categories([0, 5, 10, 20]))
    model = DPMixture(random_state=0).fit(iter([frame[:200], later]))
    assert model.schema_.columns[2].levels == (20, 0, 10, 7, 5)
    np.testing.assert_array_equal(model.predict(later), model.labels_[200:])
    texts = frame[200:].assign(number=pd.Categorical(["10"] * 200))
    with pytest.raises(DataError, match="batch 1.*'number' has the levels '10' and 10"):
        DPMixture().fit(iter([frame[:200], texts]))


def test_names_are_no_category(tmp_path):
    texts = [f"t{i % 300}" for i in range(N)]
    path = written(tmp_path, FRAME.with_columns(t=pl.Series(texts)), "parquet")
    assert DPMixture(n_shards=2, refine=False).fit(path).triage_.dropped == ("t",)


# -- what is wrong -----------------------------------------------------------------------------


def test_a_damaged_file_of_a_set_is_named(tmp_path):
    folder = a_set(tmp_path)
    whole = (folder / "p2.parquet").read_bytes()
    (folder / "p2.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"p2.parquet: damaged, or not a Parquet file"):
        fitted(folder)
    (folder / "p2.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"p2.parquet: damaged"):
        fitted(folder)
    spoilt = bytearray(whole)
    footer = int.from_bytes(whole[-8:-4], "little") + 8  # which is as it should be
    spoilt[4:-footer] = bytes(len(whole) - footer - 4)
    (folder / "p2.parquet").write_bytes(spoilt)
    with pytest.raises(DataError, match=r"p2.parquet: cannot be read"):
        fitted(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop("b"), r"p3.parquet: no column 'b', which .*p0.parquet has"),
        (lambda f: f.with_columns(new=1), r"p3.parquet: a column 'new', which .* does not have"),
        (lambda f: f.with_columns(b=pl.lit([1])), r"p3.parquet: column 'b' is List"),
    ],
)
def test_a_file_that_is_not_like_the_others_is_named(change, message, tmp_path):
    folder = a_set(tmp_path)
    change(pl.read_parquet(folder / "p3.parquet")).write_parquet(folder / "p3.parquet")
    with pytest.raises(DataError, match=message):
        fitted(folder)


def test_wrong_lines_and_cells_of_csv_files_are_named(tmp_path):
    text = FRAME.write_csv()
    (tmp_path / "t.csv").write_text(text + "1,2\n")
    with pytest.raises(DataError, match=r"t.csv, line 902: 2 cells, but the first line has 3"):
        fitted(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(text + "1,many,2\n")
    with open_table(tmp_path / "t.csv", TableOptions(2)) as found:
        assert "1 other, such as 'many', treated as missing" in found.triage["b"].reason
        assert np.isnan(found.shards[1].load()[-1, 1])


def test_what_the_sample_has_not_is_other_or_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "SAMPLE_ROWS", 150)
    rng = np.random.default_rng(0)
    kinds, sorts = (rng.choice(["v", "w"], N).astype(object) for _ in range(2))
    counts, big = rng.poisson(5.0, N), X[:, 1].copy()
    kinds[0], kinds[30], sorts[30], counts[30], big[30] = "once", "new", "new", -1, 1e200
    rare = FRAME.with_columns(b=big, kind=kinds, sort=sorts, n=counts)
    path = written(tmp_path, rare, "parquet")
    with open_table(path, TableOptions(3)) as found:
        assert found.names == ["a", "b", "c", "kind", "sort", "n"]
        assert found.schema.columns[3].levels == ("once", "v", "w", "other")
        row = found.shards[0].load()[30]
    np.testing.assert_array_equal(row[1:], [np.nan, row[2], 3.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (X[:5, :2], "batch 1 has 2 columns, but batch 0 has 3"),
        (X[:0], "batch 1: 0 sample"),
        (X[0], "batch 1: Expected 2D"),
        (FRAME, "batch 1 is a frame"),
        (np.full((2, 3), np.inf), "batch 1: .*row 0, column 0 is inf"),
    ],
)
def test_a_batch_that_is_not_like_the_others_is_named(other, message):
    with pytest.raises(DataError, match=message):
        fitted(iter([X, other]))
    with pytest.raises(DataError, match=message):
        fitted(lambda: iter([X, other]))


def test_frames_of_other_columns_and_no_batches():
    with pytest.raises(DataError, match="batch 1 has no column 'b', which batch 0 has"):
        fitted(iter([FRAME, FRAME.drop("b")]))
    with pytest.raises(DataError, match="batch 1 has a column 'e', which batch 0 does not have"):
        fitted(iter([FRAME, FRAME.with_columns(e=1)]))
    for nothing in (iter([]), lambda: iter([])):
        with pytest.raises(DataError, match="no batches"):
            fitted(nothing)


def test_a_function_must_give_the_same_batches_again():
    passes = []

    def fewer():
        passes.append(1)
        return batches(X[: N // len(passes)])

    with pytest.raises(DataError, match="rows that it had|batches"):
        fitted(fewer)


def test_what_cannot_be():
    with pytest.raises(DataError, match="no such file"):
        fitted("nowhere.parquet")
    with pytest.raises(DataError, match="no such files"):
        fitted("nowhere/*.parquet")
    with pytest.raises(ParameterError, match="sample_weight"):
        DPMixture().fit("nowhere.parquet", sample_weight=[1])


def test_nothing_stays_after_an_interrupt(tmp_path):
    def interrupted(event):
        assert list(Path(tempfile.gettempdir()).iterdir())
        raise KeyboardInterrupt

    path = written(tmp_path, FRAME, "csv")
    with pytest.raises(KeyboardInterrupt):  # the fixture looks at what is left
        DPMixture(GAUSSIAN, 1.0, n_shards=3).fit(path, callback=interrupted)

    def broken():
        yield X
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(broken())


# -- new data ----------------------------------------------------------------------------------


def test_predictions_do_not_depend_on_blocks(monkeypatch, reference):
    labels, scores = reference.predict(X), reference.score_samples(X)
    monkeypatch.setattr("dpsearch.fitted_methods._BLOCK", 100)
    np.testing.assert_array_equal(reference.predict(X), labels)
    np.testing.assert_array_equal(reference.score_samples(X), scores)
    np.testing.assert_array_equal(labels, reference.predict_proba(X).argmax(axis=1))
    bad = X.copy()
    bad[777, 1] = np.inf
    with pytest.raises(DataError, match="row 777"):
        reference.predict(bad)


def test_a_function_may_use_its_array_again(reference):
    def again():
        buffer = np.empty((100, X.shape[1]))
        for at in range(0, N, 100):
            buffer[:] = X[at : at + 100]
            yield buffer

    np.testing.assert_array_equal(fitted(again).labels_, reference.labels_)


def test_a_checkpoint_of_a_small_table_in_one_piece_is_refused(tmp_path):
    path = written(tmp_path, FRAME, "parquet")
    with pytest.raises(ParameterError, match="checkpoint needs a table of at least 20,000 rows"):
        DPMixture(GAUSSIAN, 1.0, checkpoint=tmp_path / "c").fit(path)


# -- the command line --------------------------------------------------------------------------


def test_fit_within_memory(run, tmp_path):
    written(tmp_path, MIXED.with_row_index("id"), "parquet")
    options = ("--shards", 3, "--memory", "1GB", "--seed", 1)
    assert run("fit", "t.parquet", "--out", "small")[0] == 0
    for form in ("csv", "parquet"):
        code, _, said = run("fit", "t.parquet", *options, "--out", form, "--format", form)
        assert code == 0, said
        assert "id      identifier  dropped        it numbers the rows" in said
    digests = [
        json.loads(Path(f, "run.json").read_text())["input"]["sha256"] for f in ("small", "csv")
    ]
    assert digests == [hashlib.sha256(Path("t.parquet").read_bytes()).hexdigest()] * 2
    small, pieces = pl.read_csv("small/labels.csv"), pl.read_csv("csv/labels.csv")
    assert pieces.columns == ["id", "cluster", "component", "certainty", "apart_from"]
    assert pieces.equals(pl.read_parquet("parquet/labels.parquet").cast(pieces.schema))
    assert pieces["id"].to_list() == list(range(N))
    assert pieces.select("id", "cluster").equals(small.select("id", "cluster"))
    np.testing.assert_allclose(pieces["certainty"], small["certainty"], atol=1e-5)
    assert sorted(p.name for p in Path("parquet").iterdir()) == [
        "clusters.parquet", "labels.parquet", "model.npz", "run.json"
    ]  # fmt: skip


@pytest.mark.parametrize("frame", [FRAME, MIXED.with_row_index("id")], ids=["numbers", "mixed"])
def test_predict_within_memory(frame, run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["dpsearch.cli.predict"], "_ROWS", 70)
    written(tmp_path, frame, "parquet", "fit")
    assert run("fit", "fit.parquet", "--out", "model")[0] == 0
    for form in ("csv", "parquet"):
        new, small, pieces = f"t.{form}", f"small.{form}.csv", f"pieces.{form}.csv"
        written(tmp_path, frame[:, ::-1].with_columns(other=pl.lit(0.0)), form)
        for out, options in ((small, ()), (pieces, ("--memory", "1GB"))):
            code, _, said = run("predict", "model", new, "--proba", "--out", out, *options)
            assert code == 0, said
            assert f"{N} rows in " in said
        assert Path(small).read_text() == Path(pieces).read_text()
        code, _, said = run("predict", "model", new, "--memory", "1GB", "--out", small)
        assert (code, said.count("\n")) == (1, 1)
        assert "--force" in said


def test_predict_arrays_within_memory(run, tmp_path):
    written(tmp_path, MIXED.select("a", "n"), "parquet", "fit")
    assert run("fit", "fit.parquet", "--kinds", "n=count", "--out", "model")[0] == 0
    np.save(tmp_path / "t.npy", MIXED.select("a", "n").to_numpy())
    _, small, _ = run("predict", "model", "t.npy")
    code, pieces, said = run("predict", "model", "t.npy", "--memory", "1GB")
    assert (code, pieces) == (0, small), said
    np.save(tmp_path / "wide.npy", X)
    for options in ((), ("--memory", "1GB")):
        code, _, said = run("predict", "model", "wide.npy", *options)
        assert (code, said.count("\n")) == (1, 1)
        assert "3 columns, but the model was fitted to 2" in said


def test_the_digest_of_a_set_tells_its_files_apart(run, tmp_path):
    folder = a_set(tmp_path)

    def digest(data):
        quick = ("--family", "gaussian", "--refine", "no")
        assert run("fit", data, "--out", "results", "--force", *quick)[0] == 0
        return json.loads(Path("results/run.json").read_text())["input"]["sha256"]

    first = digest("set")
    assert digest("set/*.parquet") == first
    files = sorted(folder.iterdir())
    swapped = [file.read_bytes() for file in files[::-1]]
    for file, content in zip(files, swapped, strict=True):
        file.write_bytes(content)
    assert digest("set") != first


def test_no_restarts_in_pieces(run, tmp_path):
    written(tmp_path, FRAME, "parquet")
    code, _, said = run("fit", "t.parquet", "--shards", 2, "--restarts", 1)
    assert (code, said.count("\n")) == (1, 1)
    assert "--restarts needs the table in memory" in said


def test_a_damaged_set_leaves_nothing_behind(run, tmp_path):
    folder = a_set(tmp_path)
    (folder / "p1.parquet").write_bytes(b"PAR1")
    code, _, said = run("fit", "set", "--out", "results")
    assert (code, said.count("\n")) == (1, 1)
    assert "p1.parquet: damaged" in said
    assert not Path("results").exists()


def test_sizes():
    assert [parse_size(text) for text in ("2GB", "1.5 mb", "700")] == [2 * 10**9, 1_500_000, 700]
    assert rows_within(10**10, 10, 1) == 250_000
    assert rows_within(10**9, 100, 2) < rows_within(10**9, 100, 1) < 250_000
    with pytest.raises(ParameterError, match="memory must be at least"):
        rows_within(10**8, 10, 1)


MEASURED = """
import sys
from dpsearch import DPMixture, families
from studies.peers.workers.run import peak_mb
from dpsearch.passes import fit
from dpsearch.sources.opened import TableOptions, open_table
fit.SAMPLE_ROWS = 2000  # to be quick
before = peak_mb()
with open_table(sys.argv[1], TableOptions(memory=600_000_000, n_threads=2, keep=True)) as opened:
    model = DPMixture(families.Gaussian(0.0, 60.0, 1.0), 1.0, refine=False, n_jobs=2)
    model.fit(opened)
assert len(model.labels_) == opened.n_rows
print(round(2**20 * (peak_mb() - before)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in kilobytes")
def test_memory_stays_within_the_budget(tmp_path):
    # 154 MB as a table, of which a fit in memory takes a few copies, beside Python's own.
    column = pl.int_range(300_000, eager=True) % 2 * 20.0
    frame = pl.select(column.alias(f"v{j}") for j in range(64))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=50_000)
    for _ in range(2):  # the first may have to compile, which takes memory too
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(tmp_path / "t.parquet")],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
    assert int(done.stdout) < 600_000_000


def test_everything_after_a_fit_in_pieces(run, tmp_path, monkeypatch):
    """Fit, inspect, predict, load and report, if only a sample of the rows is in memory."""
    monkeypatch.setattr("dpsearch.cli.source._SHOWN", 60)
    rare = MIXED.with_columns(pl.when(pl.int_range(N) == 5).then(900.0).otherwise("a").alias("a"))
    written(tmp_path, rare, "parquet")
    code, _, said = run("fit", "t.parquet", "--shards", 3, "--out", "out", "--report")
    assert code == 0, said
    model = load("out/model.npz")
    labels = pl.read_csv("out/labels.csv")
    np.testing.assert_array_equal(model.labels_, labels["cluster"])
    clusters = pl.read_csv("out/clusters.csv")
    sizes = labels["cluster"].value_counts().sort("cluster")["count"]
    assert clusters["size"].to_list() == sizes.to_list()
    report = Path("out/report.html").read_text()
    assert f"{N} rows with 5 columns fall into {model.n_clusters_} clusters" in report
    assert "60 of 900 rows" in report
    assert run("inspect", "out")[0] == 0
    code, predicted, said = run("predict", "out", "t.parquet")
    assert code == 0, said
    assert (pl.read_csv(predicted.encode())["cluster"] == labels["cluster"]).mean() > 0.99


@pytest.mark.slow
def test_names_of_rows_in_pieces_are_as_they_are_written(run, tmp_path):
    names = [f"{i:04}" for i in range(N)]
    FRAME.clone().insert_column(0, pl.Series("id", names)).write_csv(tmp_path / "t.csv")
    large = pl.Series("index", [100000000000000007 + 2 * i for i in range(N)])
    FRAME.clone().insert_column(0, large).write_csv(tmp_path / "large.csv")
    for file, wanted in (("t.csv", names), ("large.csv", [str(i) for i in large])):
        for options in ((), ("--shards", 2)):
            code, _, said = run("fit", file, *options, "--out", "out", "--force")
            assert code == 0, said
            found = pl.read_csv("out/labels.csv", infer_schema=False)
            assert found.to_series(0).to_list() == wanted
        predicted = pl.read_csv(run("predict", "out", file)[1].encode(), infer_schema=False)
        assert predicted.to_series(0).to_list() == wanted


@pytest.mark.slow
def test_columns_without_names_keep_their_numbers_in_pieces(run, tmp_path):
    FRAME.with_row_index("id").write_csv(tmp_path / "t.csv", include_header=False)
    np.save(tmp_path / "t.npy", FRAME.with_row_index("id").to_numpy())
    for file, choice in (("t.csv", ()), ("t.npy", ("--columns", "1-3"))):
        heads = []
        for options in ((), ("--shards", 2)):
            code, _, said = run("fit", file, *choice, *options, "--out", "out", "--force")
            assert code == 0, said
            heads.append(pl.read_csv("out/clusters.csv").columns)
            code, _, said = run("predict", "out", file)
            assert code == 0, said
        assert heads[0] == heads[1]
        assert any("column 3" in head for head in heads[0])


def test_a_row_number_after_a_dropped_column_is_left_out_in_pieces(tmp_path):
    rows = FRAME.with_row_index("id").select("a", "id", "b")
    rows.write_csv(tmp_path / "t.csv", include_header=False)
    reading = Reading(drop="0")
    known = read_table(tmp_path / "t.csv", reading)
    known.decide()
    with open_table(tmp_path / "t.csv", TableOptions(2, reading=reading)) as opened:
        assert opened.numbers == known.numbers == [2]
        assert opened.notes == known.notes
        assert opened.index_name == known.index.name


def test_integers_beyond_double_precision_are_missing_in_pieces_too(tmp_path):
    rows = [f"{'cat' if i % 2 else 'dog'},{2**63 - 1 if i == 3 else i * i}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["pet,n", *rows]))
    known = Schema.of(read_table(tmp_path / "t.csv").X)
    with open_table(tmp_path / "t.csv", TableOptions(2, reading=Reading())) as opened:
        assert opened.schema == known
        found = stacked([shard.load() for shard in opened.shards])
    np.testing.assert_array_equal(found[:4, 1], [0.0, 1.0, 4.0, np.nan])


def test_options_are_checked_in_pieces_too(run, tmp_path):
    written(tmp_path, FRAME, "csv")
    written(tmp_path, FRAME, "parquet")
    for file, options, message in (
        ("t.csv", ("--encoding", "nonsense"), "nonsense"),
        ("t.csv", ("--encoding", "base64"), "base64"),
        ("t.parquet", ("--separator", ";"), "--separator does not apply"),
        ("t.parquet", ("--encoding", "latin-1"), "--encoding does not apply"),
    ):
        code, _, said = run("fit", file, "--shards", 2, *options)
        assert (code, said.count("\n")) == (1, 1), said
        assert message in said


def test_an_arrow_stream_is_a_file_too(run, tmp_path):
    FRAME.write_ipc_stream(tmp_path / "t.arrow")
    for options in ((), ("--shards", 2)):
        code, _, said = run("fit", "t.arrow", *options, "--out", "out", "--force")
        assert code == 0, said


@pytest.mark.parametrize("name", ["*", "^c.*$"])
def test_names_that_look_like_patterns(name, run, tmp_path):
    written(tmp_path, FRAME.rename({"a": name}), "parquet")
    for options in ((), ("--shards", 2)):
        code, _, said = run("fit", "t.parquet", *options, "--out", "out", "--force")
        assert (code, said.count("\n")) == (1, 1), said
        assert "takes the name for a pattern" in said
        code, _, said = run(
            "fit", "t.parquet", *options, "--columns", "1-2", "--out", "out", "--force"
        )
        assert code == 0, said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_named():
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_parquet(Path("/dev/full"), FRAME)
    assert caught.value.filename == "/dev/full"


def test_a_disk_that_fills_up_while_pieces_are_written(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_pieces(tmp_path / "labels.parquet", [FRAME])
    assert caught.value.filename == str(tmp_path / "labels.parquet")
    assert list(tmp_path.iterdir()) == []


def test_dates_may_name_rows(run, tmp_path):
    days = pl.date_range(
        pl.date(2000, 1, 1), pl.date(2000, 1, 1) + pl.duration(days=N - 1), eager=True
    )
    written(tmp_path, FRAME.with_columns(day=days), "parquet")
    assert run("fit", "t.parquet", "--index", "day", "--out", "out")[0] == 0
    code, out, said = run("predict", "out", "t.parquet", "--json")
    assert code == 0, said
    assert json.loads(out)["day"][:2] == ["2000-01-01", "2000-01-02"]
