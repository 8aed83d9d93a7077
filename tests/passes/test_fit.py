"""Tables in shards have exactly the same objective as rows in memory."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, Problem, _archive, families, log_joint, priors, refine
from dpsearch import mixture as mixture_module
from dpsearch._threads import using
from dpsearch.errors import (
    CapabilityError,
    CheckpointWarning,
    DataError,
    ModelFileError,
    ParameterError,
)
from dpsearch.passes import fit as passes_fit
from dpsearch.passes import memory, piloted
from dpsearch.passes.piloted import PilotedSearch
from dpsearch.passes.rows import Encoding, ThreadedRows
from dpsearch.passes.search import BatchSearch
from dpsearch.progress import describe
from dpsearch.sources.shards import (
    ArrayShard,
    decisive_rows,
    digest,
    drawn_rows,
    n_shards_for,
    sampled_rows,
    shards_of_array,
)
from dpsearch.state import State
from shard_tables import GAUSSIAN, PRIOR, TABLES, counts, planted

# -- the objective -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_the_log_joint_is_that_of_the_labels(name):
    family, X = TABLES[name]
    model = DPMixture(family, 1.0, n_shards=3, random_state=0).fit(X)
    seen = np.ones(X.shape[0], bool) if sp.issparse(X) else ~np.isnan(X).all(axis=1)
    labels = model.component_labels_
    want = log_joint(X[seen], labels[seen], family, PRIOR)
    assert model.log_joint_ == pytest.approx(want, abs=1e-6)
    assert np.bincount(labels[seen]).tolist() == model.clustering_.sizes.tolist()
    assert (np.diff(model.clustering_.sizes) <= 0).all()
    one = DPMixture(family, 1.0, n_shards=1, random_state=0).fit(X)
    assert model.log_joint_ >= one.log_joint_ - 0.003 * abs(one.log_joint_)
    rows, _ = model.mixture_.model.items(X[seen])
    pool, _ = model.mixture_.model.rows(rows, labels[seen], model.n_components_)
    np.testing.assert_allclose(model.mixture_.pool, pool, rtol=1e-8, atol=1e-8)


def test_threads_do_not_matter_and_seeds_do_not_change():
    X, labels = planted()
    fits = [DPMixture(n_shards=4, n_jobs=j, random_state=1).fit(X) for j in (1, 2, 3, 1)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.labels_, fits[0].labels_)
        assert fit.log_joint_ == fits[0].log_joint_
    assert adjusted_rand_score(labels, fits[0].labels_) > 0.99


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_look_at_parts_of_shards_tells_what_one_at_whole_shards_does(monkeypatch, n_threads):
    rng = np.random.default_rng(8)
    X = rng.integers(4, size=(500, 6)).astype(np.float64)
    X[rng.random(X.shape) < 0.01] = np.nan
    X[rng.integers(500, size=5), 2] += 0.5
    X[:, 5] = rng.normal(size=500)
    shards = shards_of_array(X, 3, gaps=True)
    monkeypatch.setattr(passes_fit, "_SURVEYED", 37)
    monkeypatch.setattr(passes_fit, "SAMPLE_ROWS", 50)
    done = []
    found = passes_fit.survey_shards(shards, None, n_threads, 7, done.append)
    assert done == [1, 2, 3]
    for s, (one, shard) in enumerate(zip(found, shards, strict=True)):
        whole, rows = shard.load(), one.rows
        np.testing.assert_array_equal(rows, drawn_rows(len(whole), len(rows), [7, s]))
        decisive = np.setdiff1d(decisive_rows(whole), rows)
        assert len(decisive) > 5
        np.testing.assert_array_equal(one.decisive_rows, decisive)
        np.testing.assert_array_equal(one.decisive, whole[decisive])
        np.testing.assert_array_equal(one.sample, whole[rows])
        assert one.gaps == bool(np.isnan(whole).any())
        assert one.digest == digest(whole)
    assert sum(len(one.rows) for one in found) == 50


@pytest.mark.parametrize("n_threads", [2, 5])
def test_memberships_that_threads_share_are_those_of_one(monkeypatch, n_threads):
    X, _ = planted(700)
    X[::50, 0] = np.nan
    mixture = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X).mixture_
    at_once = mixture.memberships(X)
    monkeypatch.setattr(mixture_module, "_BLOCK", 100)
    with using(n_threads):
        found = mixture.memberships(X)
    for one, want in zip(found, at_once, strict=True):
        np.testing.assert_array_equal(one, want)


def test_arrays_files_and_memory_find_the_same_partition(tmp_path):
    X, _ = planted(1500)
    pd.DataFrame(X, columns=list("abc")).to_parquet(tmp_path / "t.parquet")
    np.save(tmp_path / "t.npy", X)
    fits = [DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X)]
    for data in (X, tmp_path / "t.parquet", tmp_path / "t.npy", iter([X[:700], X[700:]])):
        fits.append(DPMixture(GAUSSIAN, 1.0, n_shards=3, random_state=0).fit(data))
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.labels_, fits[0].labels_)
        assert fit.log_joint_ == pytest.approx(fits[0].log_joint_, abs=1e-6)


def searched(X, start, sample, n_shards=4):
    """Return a search over shards that starts from a sample's labels, its history and its rows."""
    problem = Problem(X, GAUSSIAN, PRIOR)
    form = GAUSSIAN.linear(X.shape[1])
    encoding = Encoding(GAUSSIAN, X.shape[1])
    rows = ThreadedRows(form, shards_of_array(X, n_shards, False), 1, encoding, kept=0)
    values = []
    batch = PilotedSearch(
        rows, form.features(X[sample]), form, PRIOR.tables(len(X)), np.random.default_rng(0),
        lambda step, value, n: values.append(value), lambda: None,
    )  # fmt: skip
    few = ThreadedRows(form, shards_of_array(X[sample], 1, False), 1)
    few.place(start)
    batch.begin_from(few.totals(int(start.max()) + 1))
    return problem, batch, rows, values


def test_clusters_that_the_sample_missed_are_found():
    X, labels = planted(800, k=5)
    sample = np.flatnonzero(labels < 2)
    problem, batch, rows, values = searched(X, labels[sample], sample)
    first = batch.log_joint
    assert batch.improve(10, 1)
    assert adjusted_rand_score(labels, rows.labels()) > 0.99
    want = problem.log_joint(rows.labels())
    assert batch.log_joint + rows.log_base == pytest.approx(want, abs=1e-6)
    assert [first, *values] == sorted([first, *values])
    np.testing.assert_array_equal(batch.sample_labels(), rows.labels()[sample])


def test_rows_in_memory_are_also_moved_one_by_one(monkeypatch):
    """The result is a fixed point of sweeps, and labels, totals and the sample's labels agree."""
    monkeypatch.setattr(passes_fit, "FEWEST", 500)
    monkeypatch.setattr(passes_fit, "SAMPLE_ROWS", 300)
    X, labels = planted(1200, k=6)
    told = []
    fits = [
        DPMixture(GAUSSIAN, 1.0, n_shards=3, n_jobs=jobs, random_state=0).fit(
            X, callback=told.append
        )
        for jobs in (1, 2)
    ]
    assert {"place", "end"} <= {event.step for event in fits[0].clustering_.trace}
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    assert fits[0].log_joint_ == fits[1].log_joint_
    assert adjusted_rand_score(labels, fits[0].labels_) > 0.99
    value = log_joint(X, fits[0].component_labels_, GAUSSIAN, PRIOR)
    assert fits[0].log_joint_ == pytest.approx(value, abs=1e-6)
    state = State(Problem(X, GAUSSIAN, PRIOR), fits[0].component_labels_)
    assert state.sweep(np.arange(len(X))) <= 2
    values = [event.log_joint for event in fits[0].clustering_.trace]
    np.testing.assert_array_less(np.array(values[:-1]) - 1e-6, values[1:])


def test_a_few_rows_far_from_all_others_are_found(monkeypatch):
    monkeypatch.setattr(piloted, "_OUTLIERS", 8)
    X, labels = planted(3000, k=4)
    far = np.array([1511, 2222, 2999])
    X[far] = 60.0 + 0.1 * np.arange(9.0).reshape(3, 3)
    sample = np.arange(0, 1000)
    _, batch, rows, _ = searched(X, labels[sample], sample)
    batch.improve(3, 0)
    alone = np.unique(rows.labels()[far])
    assert len(alone) == 1
    assert (rows.labels() == alone[0]).sum() == 3


def test_passes_are_few():
    X, labels = planted(4000)
    loads = []

    @dataclass(frozen=True)
    class Counted:
        begin: int
        n_rows: int = 1000

        def load(self):
            loads.append(self.begin)
            return X[self.begin : self.begin + 1000]

    shards = [Counted(begin) for begin in range(0, 4000, 1000)]
    opened = passes_fit.OpenedTable(shards, 3)
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(opened)
    assert adjusted_rand_score(labels, model.labels_) > 0.99
    assert len(loads) <= 8 * 4


# -- interrupts and the clock ------------------------------------------------------------------


@pytest.mark.parametrize("step", ["add_outliers", "propose", "sweep"])
def test_an_interrupt_leaves_the_best_so_far(step, monkeypatch):
    X, _ = planted(400, k=4)
    told = []

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(PilotedSearch, step, interrupted)
    with pytest.warns(RuntimeWarning, match="^interrupted while refining: .* best found"):
        model = DPMixture(GAUSSIAN, 1.0, n_shards=2, random_state=0).fit(X, callback=told.append)
    assert model.cut_short_ == ("refining",)
    assert not model.clustering_.converged
    value = log_joint(X, model.component_labels_, GAUSSIAN, PRIOR)
    assert model.log_joint_ == pytest.approx(value, abs=1e-6)
    assert value >= max(point.log_joint for point in told if point.log_joint < 0) - 1e-6


def test_an_interrupt_between_labels_and_totals(monkeypatch):
    """The rows have their new labels, but the search does not have the new totals yet."""
    X, labels = planted(400, k=4)
    take = PilotedSearch.take

    def interrupted(self, groups, starts, of_cluster, totals, values):
        before = self.totals
        take(self, groups, starts, of_cluster, totals, values + 1e9)
        self.totals = before
        raise KeyboardInterrupt

    monkeypatch.setattr(PilotedSearch, "take", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted while refining"):
        model = DPMixture(GAUSSIAN, 1.0, n_shards=2, random_state=0).fit(X)
    value = log_joint(X, model.component_labels_, GAUSSIAN, PRIOR)
    assert model.log_joint_ == pytest.approx(value, abs=1e-6)
    assert adjusted_rand_score(labels, model.labels_) > 0.99


def test_no_time_at_all_places_the_rows():
    X, labels = planted()
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, refine=0.0, random_state=0).fit(X)
    assert [point.step for point in model.clustering_.trace] == ["place"]
    assert adjusted_rand_score(labels, model.labels_) > 0.95


def test_refine_true_goes_on_until_nothing_improves():
    X, _ = planted()
    model = DPMixture(GAUSSIAN, 1.0, n_shards=3, refine=True, random_state=0).fit(X)
    assert model.clustering_.converged
    values = [point.log_joint for point in model.clustering_.trace]
    assert values == sorted(values)


def test_refine_false_places_once():
    X, _ = planted()
    assert len(DPMixture(n_shards=2, refine=False).fit(X).clustering_.trace) == 1


# -- many rows in memory -----------------------------------------------------------------------


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(memory, "FEWEST", 500)


@pytest.mark.parametrize("name", TABLES)
def test_passes_in_memory(name, few_are_many):
    family, X = TABLES[name]
    X = X if name == "diagonal with gaps" else X[:600] if X.shape[0] > 600 else X
    problem = Problem(X, family, PRIOR)
    if problem.n_items < 500:
        problem = Problem(sp.vstack([X, X]) if sp.issparse(X) else np.vstack([X, X]), family, PRIOR)
    found = refine(problem, np.zeros(problem.n_items), rng=0, thorough=False, n_jobs=2)
    assert {"split", "sweep"} & {point.step for point in found.trace}
    assert found.log_joint == pytest.approx(problem.log_joint(found.labels), abs=1e-6)
    assert found.trace[-1].log_joint == pytest.approx(found.log_joint, abs=1e-6)
    values = np.array([point.log_joint for point in found.trace])
    assert (np.diff(values) >= -1e-6).all()


def test_ctrl_c_in_memory_leaves_the_best_so_far(few_are_many, monkeypatch):
    X, labels = planted()

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchSearch, "merge", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted while refining"):
        model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X)
    assert model.cut_short_ == ("refining",)
    assert model.log_joint_ == pytest.approx(log_joint(X, model.labels_, GAUSSIAN, PRIOR))
    assert adjusted_rand_score(labels, model.labels_) > 0.9


def test_a_device_is_where_passes_are_made(monkeypatch):
    X, labels = planted()
    opened = []
    monkeypatch.setattr("dpsearch.estimator.check_device", lambda device: None)
    monkeypatch.setattr(
        "dpsearch.passes.device.open_rows",
        lambda form, matrix, device: (
            opened.append(device) or memory.rows_in_memory(form, matrix, 1)
        ),
    )
    model = DPMixture(GAUSSIAN, 1.0, device="cuda", random_state=0).fit(X)
    assert opened == ["cuda"]
    assert adjusted_rand_score(labels, model.labels_) > 0.98
    with pytest.raises(ParameterError, match="device needs the table in memory"):
        DPMixture(GAUSSIAN, device="cuda", n_shards=2).fit(X)


# -- checkpoints -------------------------------------------------------------------------------


def test_a_checkpoint_resumes_without_a_search(tmp_path, monkeypatch):
    X, _ = planted(900)
    want = DPMixture(n_shards=3, random_state=0).fit(X)
    model = DPMixture(n_shards=3, checkpoint=tmp_path / "c", random_state=0)

    def killed(*arguments):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(PilotedSearch, "add_outliers", killed)
        with pytest.raises(MemoryError):
            model.fit(X)
    monkeypatch.setattr(passes_fit, "first_partition", None)  # no sample is searched
    model.fit(X)
    assert model.log_joint_ == pytest.approx(want.log_joint_, abs=1e-6)
    np.testing.assert_array_equal(model.labels_, want.labels_)
    assert model.reason_ == want.reason_


def test_a_checkpoint_of_other_columns_is_refused_in_one_line(tmp_path):
    X, labels = planted(400, k=4)
    frame = pd.DataFrame({"a": X[:, 0], "b": labels.astype(str)})
    model = DPMixture(n_shards=2, refine=False, checkpoint=tmp_path / "c", random_state=0)
    model.fit(frame)
    with pytest.raises(
        ModelFileError, match="c: the checkpoint belongs to other columns"
    ) as raised:
        model.fit(frame.rename(columns={"b": "d"}))
    assert len(str(raised.value)) < 250


def test_a_checkpoint_of_codes_and_gaps(tmp_path):
    X, _ = planted(900)
    X[::90, 1] = -9999.0
    model = DPMixture("diagonal_gaussian", n_shards=3, checkpoint=tmp_path / "c", random_state=0)
    first = model.fit(X).labels_
    np.testing.assert_array_equal(model.fit(X).labels_, first)
    assert "-9999" in model.reason_


def test_a_checkpoint_knows_its_rows(tmp_path):
    X, _ = planted(400, k=4)
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, checkpoint=tmp_path / "c", random_state=0)
    model.fit(X)
    before = (tmp_path / "c").read_bytes()
    swapped = X.copy()
    swapped[[0, 1], 0] = X[[1, 0], 0]  # the same cells in every column, of other rows
    for others in (X + 1e-9, swapped, -X):
        with pytest.raises(ModelFileError, match="the checkpoint belongs to other data"):
            model.fit(others)
    assert (tmp_path / "c").read_bytes() == before
    order = np.random.default_rng(0).permutation(400)
    found = clone(model).set_params(n_shards=5).fit(X[order])  # the same rows, divided otherwise
    assert found.log_joint_ >= model.log_joint_ - 1e-6


def test_what_a_killed_run_left_beside_a_checkpoint_is_removed(tmp_path):
    """This holds for a run that finds nothing better, and so writes no checkpoint."""
    X, _ = planted(400, k=4)
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, checkpoint=tmp_path / "c", random_state=0)
    model.fit(X)
    (tmp_path / ".c.abcd1234.part").write_bytes(b"half")
    model.fit(X)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_digests_of_rows_add_up():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.5, (300, 7)).astype(float)
    whole = digest(X)
    parts = sum(digest(part) for part in np.split(X[rng.permutation(300)], 3)) % 2**64
    stored = sp.csr_matrix(X)
    stored.data[:5] = 0.0  # zeros that are stored
    assert whole == parts == digest(sp.csr_matrix(X))
    assert digest(stored) == digest(stored.toarray()) != whole
    X[0, 0] = np.nan
    assert digest(X) == digest(np.where(np.isnan(X), -np.nan, X)) != whole
    assert digest(-np.zeros((2, 2))) == digest(np.zeros((2, 2)))


def test_a_disk_that_is_full_at_a_checkpoint_stops_no_fit(tmp_path, monkeypatch):
    X, _ = planted(400, k=4)
    want = DPMixture(GAUSSIAN, 1.0, n_shards=2, random_state=0).fit(X)

    def full(stream, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_archive.np, "savez", full)
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, checkpoint=tmp_path / "c", random_state=0)
    with pytest.warns(CheckpointWarning, match="No space left on device.*there is none yet"):
        model.fit(X)
    assert model.log_joint_ == want.log_joint_
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_shards():
    told = []
    model = DPMixture(GAUSSIAN, 1.0, n_shards=3, random_state=0)
    model.fit(planted()[0], callback=told.append)
    passes = [point for point in told if point.step == "shards"]
    assert [point.done for point in passes[:6]] == [1, 2, 3, 1, 2, 3]  # a look, and the first
    assert describe(passes[0]) == "1 of 3 shards"
    assert ", 3 of 3 shards" in describe(passes[-1])
    assert "clusters, log joint -" in describe(passes[-1])


# -- what comes in -----------------------------------------------------------------------------


def test_memory_maps_and_other_numbers(tmp_path):
    X, _ = planted(600)
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = DPMixture(n_shards=3, random_state=0).fit(mapped)
    again = DPMixture(n_shards=3, random_state=0).fit(X.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(model.labels_, again.labels_)


def test_mixed_frames_keep_their_columns():
    X, labels = planted(400, k=3)
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.array(list("xyz"))[labels])
    model = DPMixture(n_shards=2, random_state=0).fit(frame)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "kind"]
    assert adjusted_rand_score(labels, model.labels_) > 0.99
    np.testing.assert_array_equal(model.predict(frame.iloc[:20]), model.labels_[:20])


def test_gaps_that_the_sample_does_not_have():
    X, labels = planted(600)
    X[577, 1] = np.nan
    model = DPMixture("diagonal_gaussian", n_shards=3, random_state=0).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.95


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(passes_fit, "SAMPLE_ROWS", 200)


def test_what_the_sample_does_not_have_is_looked_for(small_sample):
    X, _ = planted(3000)
    whole = DPMixture("diagonal_gaussian", n_shards=3, random_state=0).fit(X)
    X[2571, 1] = np.nan
    model = DPMixture(n_shards=3, random_state=0).fit(X)
    assert model.family_.takes_gaps
    assert adjusted_rand_score(whole.labels_, model.labels_) > 0.99
    truths = (counts(3000) > 1).astype(float)
    truths[2571, 1] = 2.0
    assert DPMixture(n_shards=3, random_state=0).fit(truths).family_.name != "bernoulli"
    halves = counts(3000).astype(float)
    halves[2571, 1] += 0.5
    assert DPMixture(n_shards=3, random_state=0).fit(halves).family_.name not in (
        "poisson", "multinomial",
    )  # fmt: skip


@pytest.mark.parametrize("row", [5, 2571])
def test_what_a_family_cannot_take_is_named_by_its_row(row, small_sample):
    X = counts(3000)
    X[row, 1] = -1
    for family in ("poisson", families.Poisson(1.0, 0.5)):
        with pytest.raises(DataError, match=rf"row {row}\b"):
            DPMixture(family, n_shards=3, random_state=0).fit(X)


def test_errors_name_the_row_of_the_whole_table():
    X, _ = planted(600)
    X[577, 1] = np.inf
    with pytest.raises(DataError, match="row 577, column 1"):
        DPMixture(n_shards=3).fit(X)


def test_errors_say_what_shards_cannot_do():
    X, _ = planted(60)
    with pytest.raises(ParameterError, match="certify"):
        DPMixture(n_shards=2, certify=True).fit(X)
    with pytest.raises(ParameterError, match="n_shards"):
        DPMixture(n_shards=0).fit(X)
    with pytest.raises(CapabilityError, match="product form"):
        DPMixture(GAUSSIAN, priors.AntoniakCounts(1.0), n_shards=2).fit(X)


def test_how_many_shards_and_how_large_a_sample():
    assert [n_shards_for(n, 20, None) for n in (1, 250_000, 250_001, 10**7)] == [1, 1, 2, 40]
    assert n_shards_for(100_000, 2**20, None) == 3125  # of a few rows, if they are wide
    assert n_shards_for(3, 20, 5) == 3
    shards = [ArrayShard(None, 0, n) for n in (10, 30, 0, 60)]
    assert sampled_rows(shards, 50).tolist() == [5, 15, 0, 30]
    assert sampled_rows(shards, 1000).tolist() == [10, 30, 0, 60]


def test_codes_and_rows_without_values_as_in_memory():
    X, _ = planted(900)
    X[::45, 1] = -9999.0
    X[7] = np.nan
    X[450] = -9999.0  # which leaves nothing of the row
    few = DPMixture("diagonal_gaussian", random_state=0).fit(X)
    model = DPMixture("diagonal_gaussian", n_shards=3, random_state=0).fit(X)
    assert "-9999 in 3 columns treated as missing" in model.reason_
    np.testing.assert_array_equal(model.sample_weight_, few.sample_weight_)
    assert (model.sample_weight_ == 0).nonzero()[0].tolist() == [7, 450]
    assert model.mixture_.sizes.sum() == 898
    assert model.labels_[7] == model.labels_[450] == model.predict(X[[7]])[0]
    assert adjusted_rand_score(few.labels_, model.labels_) > 0.97
    kept = DPMixture("diagonal_gaussian", n_shards=3, missing_codes=None, random_state=0).fit(X)
    assert kept.sample_weight_.sum() == 899


@dataclass(frozen=True)
class Own(families.Gaussian):
    """A user's family, without a linear form."""

    def linear(self, n_features):
        return None


def test_a_family_without_a_linear_form(tmp_path):
    X, labels = planted(600)
    family = Own(0.0, 30.0, 1.0)
    model = DPMixture(family, 1.0, n_shards=3, random_state=0).fit(X)  # in memory: in one piece
    assert adjusted_rand_score(labels, model.labels_) > 0.99
    np.save(tmp_path / "t.npy", X)
    with pytest.raises(CapabilityError, match="'linear'.*add_a_family"):
        DPMixture(family, 1.0, n_shards=3).fit(tmp_path / "t.npy")
