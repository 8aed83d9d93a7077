"""Tables in shards: the same objective, exactly, whoever works on them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, _archive, families, log_joint, priors
from dpsearch.errors import (
    CapabilityError,
    CheckpointWarning,
    DataError,
    ModelFileError,
    ParameterError,
)
from dpsearch.items import Rows
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem
from dpsearch.progress import describe
from dpsearch.passes import fit as scale_fit
from dpsearch.scale import rounds, shard
from dpsearch.scale.rounds import run_rounds
from dpsearch.scale.shard import NOWHERE, Handed, Task, origins_of, split_rows, work
from dpsearch.sources.shards import ArrayShard, digest, n_shards_for, sampled_rows, shards_of_array
from dpsearch.scale.workers import Threads
from dpsearch.state import State
from shard_tables import GAUSSIAN, PRIOR, TABLES, counts, planted

# -- the background ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_a_background_is_points_that_stay(name):
    family, X = TABLES[name]
    half = X.shape[0] // 2
    whole = Problem(X, family, PRIOR)
    labels = np.random.default_rng(0).integers(4, size=X.shape[0])
    labels[:4] = np.arange(4)
    first, base = whole.model.items(X[:half])
    second, more = whole.model.items(X[half:])
    rows = Rows(*whole.model.rows(first, labels[:half], 4))
    part = Problem.of_items(whole.model, second, float(base.sum() + more.sum()), PRIOR, rows)
    want = whole.log_joint(labels)
    assert part.log_joint(labels[half:]) == pytest.approx(want, abs=1e-6)
    state = State(part, labels[half:])
    assert state.log_joint == pytest.approx(want, abs=1e-6)
    before = state.log_joint
    state.sweep(np.arange(part.n_items))
    moved = np.concatenate([labels[:half], state.labels])
    assert state.log_joint >= before
    assert state.log_joint == pytest.approx(
        whole.log_joint(np.unique(moved, return_inverse=True)[1]), abs=1e-6
    )


def test_greedy_goes_on_from_a_background():
    X, _ = planted(300)
    whole = Problem(X, GAUSSIAN, PRIOR)
    order = np.arange(300)
    want = greedy(whole, order)
    # The first 100 placed, the others placed given them; each prior knows all 300.
    first, _ = whole.model.items(X[:100])
    rest, _ = whole.model.items(X[100:])
    k = want[:100].max() + 1
    rows = Rows(*whole.model.rows(first, want[:100], k))
    got = greedy(Problem.of_items(whole.model, rest, 0.0, PRIOR, rows), np.arange(200))
    assert np.array_equal(got, want[100:])


def test_taking_a_shard_out_leaves_the_others():
    X, labels = planted(300)
    problem = Problem(X, families.FullGaussian(0.0, 0.1, 6.0, 1.0), PRIOR)
    rows = Rows(*problem.rows(labels))
    items, _ = problem.model.items(X[:200])
    own = Rows(*problem.model.rows(items, labels[:200], 6))
    others, _ = problem.model.items(X[200:])
    want = problem.model.rows(others, labels[200:], 6)
    rest = shard.without(problem.model, rows, own)
    np.testing.assert_array_equal(rest.sizes, want[1])
    np.testing.assert_allclose(rest.pool, want[0], atol=1e-8)
    nothing = shard.without(problem.model, rows, rows)
    np.testing.assert_array_equal(nothing.pool.reshape(6, -1)[0], problem.model.empty_row())


# -- one shard ---------------------------------------------------------------------------------


def task_of(problem, rows, tries=1):
    model = problem.model
    return Task(model.family, model.n_features, model.core.params, PRIOR, rows, 0, tries, 1.0)


@pytest.mark.parametrize("name", TABLES)
def test_what_a_shard_hands_up_is_its_partition(name):
    family, X = TABLES[name]
    problem = Problem(X, family, PRIOR)
    start = Rows(*problem.rows(np.arange(X.shape[0]) % 2))
    up, parts = work(task_of(problem, start), X, None, 0)
    items, base = problem.model.items(X)
    pool, sizes = problem.model.rows(items, parts.astype(np.int64), len(up.origins))
    np.testing.assert_array_equal(up.rows.sizes, sizes)
    np.testing.assert_allclose(up.rows.pool, pool, atol=1e-9)
    assert up.log_base == pytest.approx(base.sum())
    assert set(up.origins) <= {NOWHERE, 0, 1}
    again = work(task_of(problem, start), X, None, 0)
    np.testing.assert_array_equal(again[1], parts)


def test_a_shard_splits_what_is_two_and_says_where_it_came_from(monkeypatch):
    monkeypatch.setattr(shard, "_TRIED", 40)  # so that most rows follow those that were tried
    X, labels = planted(600, k=4)
    model = Problem(X, GAUSSIAN, PRIOR).model
    merged = labels // 2  # two clusters, each really two
    parts = split_rows(model, PRIOR, X, merged, 3, 1.0, np.random.default_rng(0))
    assert adjusted_rand_score(labels, parts) > 0.95
    assert sorted(origins_of(parts, merged, 2)) == [0, 0, 1, 1]
    assert sorted(origins_of(parts, merged, 1)) == [NOWHERE, NOWHERE, 0, 0]
    # A share of the clusters: those that were not tried keep their rows.
    halves = [split_rows(model, PRIOR, X, merged, 3, 0.5, np.random.default_rng(s)) for s in (0, 5)]
    kinds = {tuple(sorted(origins_of(by_appearance(half), merged, 2))) for half in halves}
    assert kinds <= {(0, 0, 1, 1), (0, 0, 1), (0, 1, 1), (0, 1)}
    assert kinds & {(0, 0, 1), (0, 1, 1)}
    # What is one stays one.
    np.testing.assert_array_equal(
        split_rows(model, PRIOR, X, labels, 3, 1.0, np.random.default_rng(0)), labels
    )


# -- rounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_the_log_joint_is_that_of_the_labels(name):
    family, X = TABLES[name]
    model = DPMixture(family, 1.0, n_shards=3, random_state=0).fit(X)
    assert model.log_joint_ == pytest.approx(
        log_joint(X, model.component_labels_, family, PRIOR), abs=1e-6
    )
    assert np.bincount(model.labels_).tolist() == model.clustering_.sizes.tolist()
    assert (np.diff(model.clustering_.sizes) <= 0).all()
    one = DPMixture(family, 1.0, n_shards=1, random_state=0).fit(X)
    assert model.log_joint_ >= one.log_joint_ - 0.002 * abs(one.log_joint_)


def test_threads_do_not_matter_and_seeds_do_not_change():
    X, labels = planted()
    fits = [DPMixture(n_shards=4, n_jobs=j, random_state=1).fit(X) for j in (1, 2, 3, 1)]
    for fit in fits[1:]:
        np.testing.assert_array_equal(fit.labels_, fits[0].labels_)
        assert fit.log_joint_ == fits[0].log_joint_
    assert adjusted_rand_score(labels, fits[0].labels_) > 0.99


def test_clusters_that_the_sample_missed_are_found():
    X, labels = planted(800, k=5)
    problem = Problem(X, GAUSSIAN, PRIOR)
    seen = labels < 2
    items, _ = problem.model.items(X[seen])
    start = Rows(*problem.model.rows(items, labels[seen], 2))
    workers = Threads(shards_of_array(X, 4, False), 1)
    _, found = run_rounds(workers, problem.model, PRIOR, start)
    assert adjusted_rand_score(labels, found.labels) > 0.99
    assert found.log_joint == pytest.approx(problem.log_joint(found.labels), abs=1e-6)
    assert [point.log_joint for point in found.trace] == sorted(p.log_joint for p in found.trace)


class Spoiling(Threads):
    """The second round deals rows out at random, which no merging can mend."""

    def run(self, task, clusters_of_parts):
        handed = super().run(task, clusters_of_parts)
        if clusters_of_parts is None:
            return handed
        spoilt = []
        for number, part in enumerate(self.shards):
            matrix = part.load()
            parts = np.random.default_rng(number).integers(3, size=part.n_rows)
            items, base = task.model().items(matrix)
            rows = Rows(*task.model().rows(items, parts, 3))
            spoilt.append(Handed(rows, np.arange(3), float(base.sum())))
            self._parts[number] = parts
        return spoilt


def test_a_round_that_makes_it_worse_is_taken_back():
    X, labels = planted(400, k=4)
    problem = Problem(X, GAUSSIAN, PRIOR)
    start = Rows(*problem.rows(labels))
    _, found = run_rounds(Spoiling(shards_of_array(X, 2, False), 1), problem.model, PRIOR, start)
    assert len(found.trace) == 2
    assert found.trace[1].log_joint < found.trace[0].log_joint == found.log_joint
    assert found.log_joint == pytest.approx(problem.log_joint(found.labels), abs=1e-6)


class Interrupted(Threads):
    def run(self, task, clusters_of_parts):
        if clusters_of_parts is not None:
            raise KeyboardInterrupt
        return super().run(task, clusters_of_parts)


def test_an_interrupted_round_leaves_the_last_one():
    X, labels = planted(400, k=4)
    problem = Problem(X, GAUSSIAN, PRIOR)
    shards = shards_of_array(X, 2, False)
    _, found = run_rounds(Interrupted(shards, 1), problem.model, PRIOR, Rows(*problem.rows(labels)))
    assert found.log_joint == pytest.approx(problem.log_joint(found.labels), abs=1e-6)


def test_ctrl_c_while_parts_are_merged_leaves_the_round_before(monkeypatch):
    X, _ = planted(400, k=4)
    merged, calls = rounds.merged, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return merged(*arguments)

    monkeypatch.setattr(rounds, "merged", interrupted)
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, random_state=0).fit(X)
    assert len(calls) == 2
    assert not model.clustering_.converged
    value = log_joint(X, model.component_labels_, GAUSSIAN, PRIOR)
    assert model.log_joint_ == pytest.approx(value, abs=1e-6)


def test_a_checkpoint_knows_its_rows(tmp_path):
    X, _ = planted(400, k=4)
    model = DPMixture(GAUSSIAN, 1.0, n_shards=2, checkpoint=tmp_path / "c", random_state=0)
    model.fit(X)
    before = (tmp_path / "c").read_bytes()
    swapped = X.copy()
    swapped[[0, 1], 0] = X[[1, 0], 0]  # the same cells in every column, of other rows
    for others in (X + 1e-9, swapped, -X):
        with pytest.raises(ModelFileError, match="the checkpoint is of other data"):
            model.fit(others)
    assert (tmp_path / "c").read_bytes() == before
    order = np.random.default_rng(0).permutation(400)
    found = clone(model).set_params(n_shards=5).fit(X[order])  # the same rows, divided otherwise
    assert found.log_joint_ >= model.log_joint_ - 1e-6


def test_what_a_killed_run_left_beside_a_checkpoint_is_removed(tmp_path):
    """Also by a run that finds nothing better, and so writes no checkpoint."""
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


def test_a_cluster_that_lost_all_its_rows():
    X, labels = planted(300, k=3)
    problem = Problem(X, GAUSSIAN, PRIOR)
    rows = Rows(*problem.rows(labels % 2))
    handed = Handed(rows, np.array([0, 2]), problem.log_base)
    found = rounds.merged([handed], problem.model, PRIOR, 3, 0)
    want = problem.log_joint(found.clusters_of_parts[0][labels % 2])
    assert found.log_joint == pytest.approx(want, abs=1e-6)


def test_progress_counts_shards():
    told = []
    model = DPMixture(GAUSSIAN, 1.0, n_shards=3, random_state=0)
    model.fit(planted()[0], callback=told.append)
    passes = [point for point in told if point.step == "shards"]
    assert [point.done for point in passes[:6]] == [1, 2, 3, 1, 2, 3]  # a look, and the first
    assert describe(passes[0]) == "1 of 3 shards"
    assert ", 3 of 3 shards" in describe(passes[-1])
    assert "clusters, log joint -" in describe(passes[-1])


def test_refine_true_goes_on_until_nothing_improves():
    X, _ = planted()
    assert (
        DPMixture(GAUSSIAN, 1.0, n_shards=3, refine=True, random_state=0)
        .fit(X)
        .clustering_.converged
    )


def test_refine_false_places_once():
    X, _ = planted()
    assert len(DPMixture(n_shards=2, refine=False).fit(X).clustering_.trace) == 1


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
    monkeypatch.setattr(scale_fit, "SAMPLE_ROWS", 200)


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


def test_what_shards_cannot_do_is_said():
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
