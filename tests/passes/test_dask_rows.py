"""A Dask cluster of processes gives the same result as threads, even if processes die."""

import os
import pickle
import signal
import subprocess
import sys
import time

import joblib
import numpy as np
import pandas as pd
import pytest

from dpsearch import DPMixture, families, gibbs, priors
from dpsearch.errors import (
    DataError,
    MissingLibraryError,
    ModelFileError,
    ParameterError,
    WorkersError,
)
from dpsearch.fitting import FitOptions
from dpsearch.passes import dask_graph, dask_rows
from dpsearch.passes import fit as passes_fit
from dpsearch.passes.dask_rows import DaskRows, State
from dpsearch.passes.fit import fit_in_shards
from dpsearch.passes.rows import Encoding
from dpsearch.sources.opened import OpenedTable
from dpsearch.sources.shards import shards_of_array
from faulty_shards import Deadly, Large, ParquetShard, Unreachable

WHY = "Dask is not installed"
distributed = pytest.importorskip("distributed", reason=WHY)
da = pytest.importorskip("dask.array", reason=WHY)
bag = pytest.importorskip("dask.bag", reason=WHY)
dd = pytest.importorskip("dask.dataframe", reason=WHY)

# Workers are processes that start, die and compile in their own time: not for every run.
pytestmark = pytest.mark.slow

GAUSSIAN = families.Gaussian(0.0, 30.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)
LIMIT = 10**9  # bytes of memory for a worker


def planted(n=800, k=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    return rng.normal(0, 8, (k, d))[labels] + rng.normal(size=(n, d)), labels


X, LABELS = planted()
SHARDS = shards_of_array(X, 4, False)


def fitted(shards, client=None, **settings):
    options = FitOptions(GAUSSIAN, PRIOR, np.random.default_rng(0), **settings)
    return fit_in_shards(OpenedTable(list(shards), 3, client=client), options)


@pytest.fixture(scope="module")
def undisturbed():
    """The fit of `SHARDS` by threads."""
    return fitted(SHARDS)


@pytest.fixture(scope="module")
def local():
    with distributed.LocalCluster(
        processes=True,
        n_workers=2,
        threads_per_worker=1,
        memory_limit=LIMIT,
        dashboard_address=":0",
        silence_logs=50,
    ) as cluster:
        yield cluster


@pytest.fixture
def client(local):
    with distributed.Client(local, set_as_default=False) as client, client.as_current():
        yield client


def same(found, wanted):
    assert isinstance(found.clustering.labels, da.Array)
    np.testing.assert_array_equal(found.clustering.labels.compute(), wanted.clustering.labels)
    assert found.clustering.log_joint == wanted.clustering.log_joint
    np.testing.assert_array_equal(found.mixture.pool, wanted.mixture.pool)


# -- the same as threads -----------------------------------------------------------------------


def test_the_same_result_as_threads_and_kilobytes_travel(client, undisturbed, monkeypatch):
    bytes_up = []
    patiently = dask_rows.patiently

    def weighed(*arguments):
        answers = patiently(*arguments)
        bytes_up.append(max(len(pickle.dumps(answer)) for answer in answers))
        return answers

    monkeypatch.setattr(dask_rows, "patiently", weighed)
    told = []
    same(fitted(SHARDS, client, callback=told.append), undisturbed)
    passes = [point for point in told if point.step == "shards"]
    assert [point.done for point in passes] == [1, 2, 3, 4] * (len(passes) // 4)
    few = max(bytes_up[1:])  # but for the look, which brings the sample
    bytes_up.clear()
    fitted(shards_of_array(planted(80_000)[0], 4, False), client)
    print(f"bytes at most: {few} for 200 rows a shard, {max(bytes_up[1:])} for 20,000")
    assert max(bytes_up[1:]) < 2 * few < 100_000


def test_findings_of_many_shards_are_put_together_by_workers(client, monkeypatch):
    monkeypatch.setattr(dask_graph, "GROUP", 2)
    monkeypatch.setattr(dask_graph, "_TOLD_SINGLY", 4)
    shards = shards_of_array(X, 5, False)
    told = []
    found, wanted = fitted(shards, client, callback=told.append), fitted(shards)
    done = [point.done for point in told if point.step == "shards"][:-5]  # labels are told singly
    assert done == [2, 4, 5] * (len(done) // 3)
    np.testing.assert_array_equal(found.clustering.labels.compute(), wanted.clustering.labels)
    assert found.clustering.log_joint == pytest.approx(wanted.clustering.log_joint, abs=1e-6)


def test_an_interrupted_pass_has_not_been(client):
    rows = DaskRows(Encoding(GAUSSIAN, 3), SHARDS, client)
    rows.place(None)
    before = rows.totals(1)

    def interrupt(done):
        raise KeyboardInterrupt

    rows.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        rows.totals(1)
    rows.progress = None
    np.testing.assert_array_equal(rows.totals(1).sums, before.sums)
    np.testing.assert_array_equal(rows.labels().compute(), np.zeros(800))


def test_rows_without_values_and_codes(client):
    gaps = X.copy()
    gaps[::40, 1] = -9999.0
    gaps[[7, 450]] = np.nan
    settings = {"family": "diagonal_gaussian", "alpha": 1.0, "random_state": 0}
    wanted = DPMixture(n_shards=4, **settings).fit(gaps)
    found = DPMixture(**settings).fit(da.from_array(gaps, chunks=(200, 3)))
    np.testing.assert_array_equal(found.labels_.compute(), wanted.labels_)
    assert found.log_joint_ == pytest.approx(wanted.log_joint_, abs=1e-6)


def test_an_error_of_the_network_in_a_shard_is_the_shards_own(client, tmp_path):
    """The cluster has lost nothing, so nothing is computed again."""
    shards = [*SHARDS[:2], Unreachable(tmp_path / "log")]
    with pytest.raises(ConnectionError, match="no answer from the data base"):
        fitted(shards, client)
    assert len((tmp_path / "log").read_text().split()) == 1 + dask_graph.RETRIES


def test_a_recomputed_state_must_be_what_it_was():
    state = State(np.array([0, 1, 1], np.int32), np.full(3, -1, np.int32), 0.0)
    with pytest.raises(WorkersError, match="came out different"):
        dask_rows._decided(state, ("labels", np.array([2, 1])), ())


# -- collections -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_memory():
    return DPMixture(GAUSSIAN, 1.0, n_shards=4, random_state=0).fit(X)


def test_arrays_with_columns_in_chunks_and_of_unknown_length(client, in_memory):
    array = da.from_array(X, chunks=(200, 2))
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(array)
    assert model.labels_.chunks == ((200,) * 4,)
    np.testing.assert_array_equal(model.labels_.compute(), in_memory.labels_)
    assert model.clustering_.sizes.tolist() == in_memory.clustering_.sizes.tolist()
    assert "800 points" in repr(model.clustering_)
    # Rows above −∞ are all of them, but Dask cannot know how many.
    unknown = array[(array > -np.inf).all(axis=1)]
    model.fit(unknown)
    np.testing.assert_array_equal(model.labels_.compute(), in_memory.labels_)
    assert np.isnan(unknown.shape[0])
    blocks = array.rechunk({1: -1}).map_blocks(model.predict, drop_axis=1, dtype=np.int64)
    np.testing.assert_array_equal(blocks.compute(), in_memory.predict(X))


def test_frames_of_numbers_and_of_mixed_columns(client, in_memory):
    frame = pd.DataFrame(X, columns=list("abc"))
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(dd.from_pandas(frame, npartitions=4))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.labels_.compute(), in_memory.labels_)
    kinds = pd.Categorical(np.array(list("xyzuvw"))[LABELS])
    mixed = frame.assign(kind=kinds, seen=LABELS % 2 == 0, n=LABELS)[:400]
    found = DPMixture(alpha=1.0, random_state=0).fit(dd.from_pandas(mixed, npartitions=2))
    wanted = DPMixture(alpha=1.0, random_state=0, n_shards=2).fit(mixed)
    assert found.schema_ == wanted.schema_
    np.testing.assert_array_equal(found.labels_.compute(), wanted.labels_)
    np.testing.assert_array_equal(found.predict(mixed[:9]), wanted.predict(mixed[:9]))


def test_errors_name_unsupported_collections(client):
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=2)
    with pytest.raises(ParameterError, match="kinds names the column 'z'"):
        DPMixture(kinds={"z": "real"}).fit(frame)
    with pytest.raises(DataError, match="got 1D array"):
        DPMixture().fit(da.zeros(5))
    with pytest.raises(DataError, match="is empty"):
        DPMixture().fit(da.zeros((0, 3)))
    with pytest.raises(TypeError, match="Bag"):
        DPMixture().fit(bag.from_sequence([1]))
    with pytest.raises(ParameterError, match="sample_weight"):
        DPMixture().fit(da.zeros((5, 2)), sample_weight=np.ones(5))
    bad = X.copy()
    bad[577, 1] = np.inf
    with pytest.raises(DataError, match="row 577, column 1"):
        DPMixture(GAUSSIAN).fit(da.from_array(bad, chunks=(200, 3)))


def test_without_a_client_there_is_a_cluster_for_the_time(in_memory):
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(da.from_array(X, chunks=(200, 3)))
    with pytest.raises(ValueError, match="No global client"):
        distributed.get_client()
    np.testing.assert_array_equal(model.labels_.compute(), in_memory.labels_)


def test_the_error_without_dask_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingLibraryError, match=r"dpsearch\[dask\]"):
        DPMixture().fit(da.zeros((5, 2)))


def test_files_go_to_the_present_client(client, tmp_path):
    for number in range(4):
        part = pd.DataFrame(X[200 * number : 200 * (number + 1)], columns=list("abc"))
        part.to_parquet(tmp_path / f"p{number}.parquet")
    model = DPMixture(GAUSSIAN, 1.0, n_shards=4, random_state=0)
    found = model.fit(tmp_path).labels_
    assert isinstance(found, da.Array)
    np.testing.assert_array_equal(found, model.fit(X).labels_)
    again = pickle.loads(pickle.dumps(model.fit(tmp_path)))
    assert "labels left on a Dask cluster" in repr(again.clustering_)
    frame = pd.DataFrame(X, columns=list("abc"))
    assert again.explain(frame).n_clusters == model.n_clusters_
    with pytest.raises(DataError, match="labels stayed on a Dask cluster"):
        again.save(tmp_path / "m.npz")


def test_a_damaged_file_of_a_set_is_named(client, tmp_path):
    for number in range(3):
        frame = pd.DataFrame(X[200 * number : 200 * (number + 1)], columns=list("abc"))
        frame.to_parquet(tmp_path / f"p{number}.parquet")
    damaged = bytearray((tmp_path / "p1.parquet").read_bytes())
    damaged[4:600] = b"x" * 596  # the rows, and not what says where they are
    (tmp_path / "p1.parquet").write_bytes(damaged)
    with pytest.raises(DataError, match=r"p1\.parquet"):
        DPMixture(GAUSSIAN, 1.0, n_shards=3).fit(tmp_path)


def test_large_integers_are_measurements(client):
    frame = pd.DataFrame(
        {"cents": 1000 * LABELS + np.arange(len(LABELS)) % 7 + 5000, "kind": pd.Categorical(LABELS)}
    )
    model = DPMixture(random_state=0).fit(dd.from_pandas(frame, npartitions=2))
    assert [column.kind for column in model.schema_.columns] == ["real", "category"]


def test_restarts_and_grids_by_joblib(client):
    def fits():
        settings = [(alpha, seed) for alpha in (0.1, 10.0) for seed in (0, 1)]
        models = [DPMixture(GAUSSIAN, a, order="random", random_state=s) for a, s in settings]
        return joblib.Parallel()(joblib.delayed(model.fit)(X[:200]) for model in models)

    with joblib.parallel_config("dask"):
        found = fits()
    for model, wanted in zip(found, fits(), strict=True):
        np.testing.assert_array_equal(model.labels_, wanted.labels_)
        np.testing.assert_array_equal(model.predict(X), wanted.predict(X))


def test_chains_by_joblib(client):
    def drawn():
        return gibbs(X[:60], GAUSSIAN, PRIOR, draws=20, chains=3, rng=0)

    with joblib.parallel_config("dask"):
        found = drawn()
    np.testing.assert_array_equal(found.labels, drawn().labels)


# -- faults ------------------------------------------------------------------------------------


def test_a_worker_killed_in_the_middle_of_a_round(client, undisturbed, tmp_path):
    flag = tmp_path / "die"
    shards = [Deadly(shard, flag) for shard in SHARDS]
    before = set(client.run(os.getpid).values())
    found = fitted(shards, client, callback=lambda point: point.step == "place" and flag.touch())
    same(found, undisturbed)
    client.wait_for_workers(2, timeout=30)
    assert len(before & set(client.run(os.getpid).values())) < 2  # somebody did die


def test_every_worker_restarted_within_a_pass_and_between_passes(client, undisturbed):
    calls = []

    def told(point):
        if point.step == "shards":
            calls.append(point.done)
            if len(calls) == 6:  # the second shard of the first pass after the look
                client.restart()
        elif point.step == "place":
            for process in client.run(os.getpid).values():
                os.kill(process, signal.SIGKILL)

    same(fitted(SHARDS, client, callback=told), undisturbed)
    assert len(calls) > 6


def test_rows_that_workers_alone_had_are_not_asked_for_forever(client):
    rows = da.from_array(X, chunks=(200, 3)).persist()

    def told(point):
        if point.step == "place":
            client.restart()

    with pytest.raises(WorkersError, match="lost its tasks"):
        DPMixture(GAUSSIAN, 1.0, random_state=0).fit(rows, callback=told)


def test_memory_that_does_not_suffice(client, local):
    allowed, local.scheduler.allowed_failures = local.scheduler.allowed_failures, 0
    try:
        with pytest.raises(WorkersError, match="too little memory"):
            fitted([Large(2 * LIMIT)], client)
    finally:
        local.scheduler.allowed_failures = allowed
        client.wait_for_workers(2, timeout=30)


def test_a_corrupt_file_is_named_and_nothing_is_written(client, tmp_path):
    shards = []
    for number, shard in enumerate(SHARDS):
        path = tmp_path / f"part{number}.parquet"
        pd.DataFrame(shard.load(), columns=list("abc")).to_parquet(path)
        shards.append(ParquetShard(path, shard.n_rows))
    bad = tmp_path / "part2.parquet"
    bad.write_bytes(bad.read_bytes()[:-100])
    with pytest.raises(DataError, match="part2.parquet: cannot be read"):
        fitted(shards, client, checkpoint=tmp_path / "run.checkpoint")
    assert len(list(tmp_path.iterdir())) == 4


@pytest.fixture
def far(tmp_path):
    """A scheduler and a worker in separate processes, and a client with a short timeout."""
    info = tmp_path / "scheduler.json"
    common = [sys.executable, "-m"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*common, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
         "--host", "127.0.0.1", "--scheduler-file", str(info)], **quiet,
    )  # fmt: skip
    worker = subprocess.Popen(
        [*common, "distributed.cli.dask_worker", "--scheduler-file", str(info), "--no-nanny",
         "--nthreads", "1", "--no-dashboard", "--death-timeout", "30"], **quiet,
    )  # fmt: skip
    try:
        while not info.exists() or not info.read_text():
            time.sleep(0.05)
        with distributed.Client(scheduler_file=str(info), timeout=2) as client:
            yield client, scheduler
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def test_the_scheduler_gone_and_a_checkpoint_that_resumes(far, undisturbed, tmp_path, monkeypatch):
    client, scheduler = far

    def kill(point):
        if point.step == "place":
            scheduler.send_signal(signal.SIGKILL)

    path = tmp_path / "run.checkpoint"
    begun = time.monotonic()
    with pytest.raises(WorkersError, match="scheduler .* gone.*run.checkpoint holds the best"):
        fitted(SHARDS, client, checkpoint=path, callback=kill)
    assert time.monotonic() - begun < 60
    monkeypatch.setattr(passes_fit, "first_partition", None)  # no sample is searched
    again = fitted(SHARDS, checkpoint=path)
    assert again.clustering.log_joint == pytest.approx(undisturbed.clustering.log_joint, abs=1e-6)
    assert again.reason == "as given"


def test_checkpoints_of_other_runs_are_refused(tmp_path):
    path = tmp_path / "run.checkpoint"
    DPMixture("diagonal_gaussian", n_shards=4, random_state=0, checkpoint=path).fit(X)
    model = DPMixture("diagonal_gaussian", n_shards=4, random_state=0, checkpoint=path).fit(X)
    assert model.reason_ == "as named"
    with pytest.raises(
        ModelFileError, match=r"another number of rows \(800\) than this run \(799\)"
    ):
        model.fit(X[1:])
    with pytest.raises(ModelFileError, match="another family"):
        DPMixture("gaussian", n_shards=4, checkpoint=path).fit(X)
    with pytest.raises(ModelFileError, match="another prior"):
        DPMixture("diagonal_gaussian", 2.0, n_shards=4, checkpoint=path).fit(X)
    with pytest.raises(
        ModelFileError, match=r"another missing_codes \('auto'\) than this run \(None\)"
    ):
        DPMixture("diagonal_gaussian", missing_codes=None, n_shards=4, checkpoint=path).fit(X)
    with pytest.raises(ModelFileError, match="belongs to other data"):
        DPMixture("diagonal_gaussian", n_shards=4, checkpoint=path).fit(X[:, :2])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ModelFileError, match="damaged"):
        model.fit(X)
    with pytest.raises(ModelFileError, match="no such folder"):
        model.set_params(checkpoint=tmp_path / "none" / "run").fit(X)
    with pytest.raises(ParameterError, match="n_shards"):
        DPMixture(checkpoint=path).fit(X)
