"""`partial_fit`: the partition of all rows seen, from statistics and a few kept rows."""

import pickle
from itertools import count, pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

import dpsearch
from dpsearch import DPMixture, families, log_joint, priors
from dpsearch.automatic.learning import Learned
from dpsearch.deadline import Deadline, within
from dpsearch.errors import CapabilityError, DataError, DepartureWarning
from dpsearch.items import Rows
from dpsearch.passes import stream
from dpsearch.passes.stream import Stream
from dpsearch.prefix_search.greedy import greedy
from dpsearch.problem import Problem
from dpsearch.state import State
from shard_tables import GAUSSIAN, PRIOR, TABLES, planted
from studies.attacks.inject import interrupted_at, some_moments

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
    rest = stream._without(problem.model, rows, own)
    np.testing.assert_array_equal(rest.sizes, want[1])
    np.testing.assert_allclose(rest.pool, want[0], atol=1e-8)
    nothing = stream._without(problem.model, rows, rows)
    np.testing.assert_array_equal(nothing.pool.reshape(6, -1)[0], problem.model.empty_row())


# -- streams -------------------------------------------------------------------------------------


@pytest.fixture
def few_kept(monkeypatch):
    """Keep few rows and consolidate often, so that small data exercise every step."""
    monkeypatch.setattr(stream, "KEPT_ROWS", 60)
    monkeypatch.setattr(stream, "_PERIOD", 150)


class Followed:
    """All labels given so far, updated by the consolidations."""

    def __init__(self):
        self.labels = np.empty(0, np.int64)

    def add(self, labels, renamed):
        if renamed is not None:
            self.labels = renamed.clusters[self.labels]
            old = renamed.rows < len(self.labels)
            self.labels[renamed.rows[old]] = renamed.labels[old]
        self.labels = np.concatenate([self.labels, labels])
        assert (self.labels >= 0).all()


@pytest.mark.parametrize("name", TABLES)
def test_the_log_joint_is_that_of_all_rows_seen(name, few_kept):
    family, X = TABLES[name]
    model = Problem(X, family, PRIOR).model
    begin = DPMixture(family, 1.0, random_state=0).fit(X[:50])
    rows = dpsearch.items.Rows(begin.mixture_.pool, begin.mixture_.sizes)
    seen = Stream.of(model, PRIOR, rows, begin.log_joint_, np.random.default_rng(0), 0)
    seen.keep(dpsearch._validate.as_matrix(X[:50], gaps=True), 0, begin.labels_)
    followed, consolidations = Followed(), 0
    followed.add(begin.labels_, None)
    for at in range(50, X.shape[0], 50):
        _, labels, renamed = seen.add(model, PRIOR, X[at : at + 50])
        followed.add(labels, renamed)
        consolidations += renamed is not None
        want = log_joint(X[: at + 50], followed.labels, family, PRIOR)
        assert seen.log_joint(model, PRIOR) == pytest.approx(want, abs=1e-6)
        np.testing.assert_array_equal(
            np.bincount(followed.labels, minlength=len(seen.clusters.sizes)), seen.clusters.sizes
        )
        np.testing.assert_array_equal(seen.kept_labels, followed.labels[seen.kept_rows])
    assert len(seen.kept_rows) == len(set(seen.kept_rows.tolist())) == 60
    kept = np.asarray(seen.kept.todense()) if sp.issparse(seen.kept) else seen.kept
    source = np.asarray(X.todense()) if sp.issparse(X) else X
    np.testing.assert_array_equal(kept, source[seen.kept_rows])


POOR = {  # hyperparameters that leave much to learn
    "gaussian": GAUSSIAN,
    "full": families.FullGaussian(50.0, 2.0, 6.0, 400.0),
    "diagonal with gaps": families.DiagonalGaussian(50.0, 2.0, 3.0, 400.0),
    "multinomial": families.Multinomial(40.0),
    "poisson": families.Poisson(20.0, 1.0),
    "bernoulli": families.Bernoulli(30.0, 30.0),
}


def drifting(name):
    """Return a table whose second half has other spreads, rates, words or levels."""
    rng = np.random.default_rng(5)
    if name == "mixed":
        X, labels = planted(300)
        levels = (labels + rng.integers(2, size=300)) % 3
        # A part by nodes stays as it is, and the others learn on.
        parts = [(POOR["full"], [0, 1]), (families.StudentT(), [2]),
                 (families.Categorical(50.0, 3), [3])]  # fmt: skip
        X = np.column_stack([X, levels])
        X[150:, :2] *= 10.0
        return families.Product(parts), X
    family, X, half = POOR[name], TABLES[name][1][:300], 150
    if sp.issparse(X):
        return family, sp.csr_matrix(sp.vstack([X[:half], X[half:][:, ::-1]]))
    X = X.astype(float)
    X[half:] = X[half:, ::-1] if name == "bernoulli" else 10.0 * X[half:]
    return family, X


@pytest.mark.parametrize("ticks", [0, 1, 3, 8, 20, 10_000])
def test_a_batch_is_added_whenever_the_time_is_up(ticks, few_kept):
    X, truth = planted(400)
    model = Problem(X, GAUSSIAN, PRIOR).model
    begin = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X[:100])
    rows = Rows(begin.mixture_.pool, begin.mixture_.sizes)
    seen = Stream.of(model, PRIOR, rows, begin.log_joint_, np.random.default_rng(0), 0)
    seen.keep(X[:100], 0, begin.labels_)
    followed, time = Followed(), count()
    followed.add(begin.labels_, None)
    with within(Deadline(ticks, clock=lambda: next(time))) as deadline:
        _, labels, renamed = seen.add(model, PRIOR, X[100:])
    followed.add(labels, renamed)
    want = log_joint(X, followed.labels, GAUSSIAN, PRIOR)
    assert seen.n_seen == 400
    assert seen.log_joint(model, PRIOR) == pytest.approx(want, abs=1e-6)
    assert adjusted_rand_score(truth, followed.labels) > 0.9  # none was placed in haste
    assert deadline.cut_short == ([] if ticks == 10_000 else ["rearranging clusters"])
    assert seen.consolidated == (400 if ticks == 10_000 else 100)  # else it is still due


def test_partial_fit_keeps_a_limit_of_time(few_kept):
    X, _ = planted(600)
    model, n = DPMixture(GAUSSIAN, random_state=0, time_limit=1e-9), 0
    for batch in np.array_split(X, 4):
        model.partial_fit(batch)
        n += len(batch)
        assert model.mixture_.sizes.sum() == n
    assert model.cut_short_ == ("rearranging clusters",)
    assert model.set_params(time_limit=None).partial_fit(X[:50]).cut_short_ == ()


@pytest.mark.parametrize("name", [*TABLES, pytest.param("mixed", marks=pytest.mark.slow)])
def test_what_is_learned_on_has_the_log_joint_of_all_rows(name, few_kept):
    family, X = drifting(name)
    model = Problem(X, family, PRIOR).model.without_data()
    first, base = model.items(X[:50])
    start = greedy(Problem.of_items(model, first, 0.0, PRIOR), np.arange(50))
    rows = Rows(*model.rows(first, start, start.max() + 1))
    seen = Stream.of(model, PRIOR, rows, 0.0, np.random.default_rng(0), 0)
    seen.log_base = float(base.sum())
    seen.keep(dpsearch._validate.as_matrix(X[:50], gaps=True), 0, start)
    followed, known = Followed(), [model.family]
    followed.add(start, None)
    for at in range(50, X.shape[0], 100):
        seen.origin = at if at == X.shape[0] // 2 else seen.origin
        model, labels, renamed = seen.add(model, PRIOR, X[at : at + 100], learning=True)
        followed.add(labels, renamed)
        known.append(model.family)
        want = log_joint(X[: at + 100], followed.labels, model.family, PRIOR)
        assert seen.log_joint(model, PRIOR) == pytest.approx(want, rel=1e-9, abs=1e-6)
        np.testing.assert_array_equal(
            np.bincount(followed.labels, minlength=len(seen.clusters.sizes)), seen.clusters.sizes
        )
        np.testing.assert_array_equal(seen.kept_labels, followed.labels[seen.kept_rows])
    changed = sum(one != before for before, one in pairwise(known))
    # Of a Gaussian with known noise the row has the squares of all columns in one number.
    assert changed == 0 if name == "gaussian" else changed >= 1
    if name == "mixed":
        assert len({repr(one.members[1]) for one in known}) == 1


def test_hyperparameters_that_bring_nothing_are_left(few_kept, monkeypatch):
    X, _ = planted(300)
    problem = Problem(X, families.DiagonalGaussian(0.0, 0.02, 5.0, 4.0), PRIOR)
    labels = greedy(problem, np.arange(300))
    seen = Stream.of(
        problem.model, PRIOR, Rows(*problem.rows(labels)), problem.log_joint(labels),
        np.random.default_rng(0), 0,
    )  # fmt: skip
    seen.keep(X, 0, labels)
    worse = families.DiagonalGaussian(30.0, 5.0, 1.0, 900.0)

    def learn(table, start, prior, n_first):
        return Learned(worse, np.zeros(table.shape[0], np.int64), None)

    monkeypatch.setattr(stream, "learn", learn)
    free = stream._Free(seen.kept, seen.kept_rows, seen.kept_labels)
    before = seen.log_joint(problem.model, PRIOR)
    model, _ = seen.learn(problem.model, PRIOR, free)
    assert model is problem.model
    assert seen.log_joint(model, PRIOR) >= before


@pytest.fixture
def some_kept(monkeypatch):
    monkeypatch.setattr(stream, "KEPT_ROWS", 400)
    monkeypatch.setattr(stream, "_PERIOD", 2000)


def in_batches(model, X, size=100, *, pickled=True):
    for at in range(0, len(X), size):
        model.partial_fit(X[at : at + size])
        if pickled:
            model = pickle.loads(pickle.dumps(model))
    return model


def begun_narrow(seed=0):
    """Return two groups, followed after 800 rows by four wider ones on all sides."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([rng.integers(2, size=800), rng.integers(2, 6, size=800)])
    centres = np.vstack([[[0.0, 0.0], [0.5, 0.5]], [[90, 0], [0, 90], [-90, 0], [0, -90]]])
    return centres[truth] + np.where(truth < 2, 0.05, 5.0)[:, None] * rng.normal(
        size=(1600, 2)
    ), truth


def test_a_stream_learns_on_when_not_all_rows_are_kept(some_kept):
    X, truth = begun_narrow()
    with pytest.warns(DepartureWarning, match="from row 801 of the stream on") as said:
        model = in_batches(DPMixture("diagonal_gaussian", random_state=0), X)
    assert len(said) == 1
    fitted = DPMixture("diagonal_gaussian", random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.predict(X)) > 0.99
    assert model.log_joint_ > fitted.log_joint_ - 0.01 * abs(fitted.log_joint_)
    with pytest.warns(DepartureWarning):
        again = in_batches(DPMixture("diagonal_gaussian", random_state=0), X, pickled=False)
    assert told(again) == told(model)
    assert again.family_ == model.family_


def test_after_fit_a_stream_learns_on_too(some_kept):
    X, truth = begun_narrow()
    model = DPMixture("full_gaussian", random_state=0).fit(X[:400])
    before = model.family_
    with pytest.warns(DepartureWarning, match="from row 801 of the stream on"):
        model = in_batches(model, X[400:])
    assert model.family_ != before
    assert model.mixture_.sizes.sum() == 1600
    assert adjusted_rand_score(truth, model.predict(X)) > 0.99


def test_consolidation_mends_what_came_before(few_kept):
    X, truth = planted(1200, k=6)
    model = DPMixture(GAUSSIAN, 1.0, random_state=0)
    # All of the first clusters come first, so that later ones must be opened.
    order = np.argsort(truth, kind="stable")
    for part in np.split(X[order], 24):
        model.partial_fit(part)
    assert model.n_clusters_ == 6
    assert adjusted_rand_score(truth, model.predict(X)) > 0.99
    one = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X)
    assert model.log_joint_ >= one.log_joint_ - 0.002 * abs(one.log_joint_)


def test_a_cluster_that_is_two_is_split_from_kept_rows(few_kept):
    X, truth = planted(600, k=2, d=2)
    problem = Problem(X, GAUSSIAN, PRIOR)
    together = np.zeros(600, np.int64)
    value = problem.log_joint(together)
    seen = Stream.of(
        problem.model, PRIOR, dpsearch.items.Rows(*problem.rows(together)), value,
        np.random.default_rng(0), 0,
    )  # fmt: skip
    seen.keep(X, 0, together)
    free = stream._Free(seen.kept, seen.kept_rows, seen.kept_labels)
    renamed = seen.consolidate(problem.model, PRIOR, free)
    assert renamed is not None
    # Rows that nothing is left of but statistics must stay together; the kept ones are apart.
    assert len(seen.clusters.sizes) >= 2
    assert adjusted_rand_score(truth[seen.kept_rows], seen.kept_labels) > 0.9
    assert seen.log_joint(problem.model, PRIOR) > value


def test_every_row_is_kept_with_the_same_probability(monkeypatch):
    monkeypatch.setattr(stream, "KEPT_ROWS", 20)
    counts = np.zeros(200)
    model = Problem(np.zeros((2, 1)), GAUSSIAN, PRIOR).model
    rows = dpsearch.items.Rows(model.empty_row(), np.zeros(1, np.int64))
    for seed in range(2000):
        seen = Stream(
            rows, 0.0, None, *[np.empty(0, np.int64)] * 2, np.random.default_rng(seed), 0, 0
        )
        for first in range(0, 200, 25):
            seen.keep(np.arange(first, first + 25.0)[:, None], first, np.zeros(25, np.int64))
        np.testing.assert_array_equal(seen.kept[:, 0], seen.kept_rows)
        counts[seen.kept_rows] += 1
    # 20 of 200: a mean of 200 for each with a deviation of 13.4
    assert abs(counts.mean() - 200) < 1e-9
    assert ((counts - 200) ** 2).sum() / (200 * 0.9) == pytest.approx(200, abs=100)


@pytest.mark.slow
def test_same_seed_same_result_also_through_a_pickle(few_kept):
    X, _ = planted()
    a, b = DPMixture(random_state=3), DPMixture(random_state=3)
    for at in range(0, 300, 100):
        a.partial_fit(X[at : at + 100])
        b = pickle.loads(pickle.dumps(b)).partial_fit(X[at : at + 100])
    assert a.log_joint_ == b.log_joint_
    np.testing.assert_array_equal(a.labels_, b.labels_)


def test_after_fit_it_goes_on_and_fit_begins_anew():
    X, _ = planted()
    model = DPMixture(random_state=0).fit(X[:600])
    first = model.log_joint_
    model.partial_fit(X[600:])
    assert len(model.labels_) == 300
    assert model.clustering_.sizes.sum() == 300
    assert model.log_joint_ < first  # of more rows
    model.fit(X[:600])
    assert model.log_joint_ == first


def test_predicting_and_saving_between_batches(tmp_path):
    X, _ = planted()
    model = DPMixture(random_state=0).partial_fit(X[:300]).partial_fit(X[300:600])
    assert model.score_samples(X[600:]).shape == (300,)
    model.save(tmp_path / "model.npz")
    again = dpsearch.load(tmp_path / "model.npz")
    again.save(tmp_path / "again.npz")
    for loaded in (again, dpsearch.load(tmp_path / "again.npz")):
        assert loaded.state_.last_batch
        np.testing.assert_array_equal(loaded.labels_, model.labels_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_frames_and_wrong_batches():
    X, labels = planted(400, k=3)
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.array(list("xyz"))[labels])
    model = DPMixture(random_state=0).partial_fit(frame[:200]).partial_fit(frame[200:])
    assert adjusted_rand_score(labels[200:], model.labels_) > 0.95
    with pytest.raises(DataError, match="no column 'kind'"):
        model.partial_fit(frame[["a", "b", "c"]])
    with pytest.raises(ValueError, match="features"):
        DPMixture(GAUSSIAN).partial_fit(X).partial_fit(X[:, :2])
    with pytest.raises(CapabilityError, match="product form"):
        DPMixture(GAUSSIAN, priors.AntoniakCounts(1.0)).partial_fit(X[:50]).partial_fit(X[50:])


def test_gaps_after_a_first_batch_without():
    X, labels = planted(600)
    model = DPMixture(families.DiagonalGaussian(0.0, 0.1, 3.0, 2.0), 1.0).partial_fit(X[:300])
    X[450, 1] = np.nan
    model.partial_fit(X[300:])
    assert adjusted_rand_score(labels[300:], model.labels_) > 0.95


@pytest.mark.slow
def test_a_first_batch_with_gaps_and_more_of_them(few_kept):
    X, labels = planted(900)
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    model = DPMixture(random_state=0)
    for at in range(0, 900, 150):
        model.partial_fit(X[at : at + 150])
    assert np.isfinite(model.log_joint_)
    assert adjusted_rand_score(labels[750:], model.labels_) > 0.9


def told(model):
    """Return the whole state after a stream of batches, to compare bit by bit."""
    mixture = model.mixture_
    stream = model._stream
    return (
        mixture.pool.tobytes(), mixture.sizes.tobytes(), model.labels_.tobytes(), model.log_joint_,
        stream.kept.tobytes(), stream.kept_rows.tobytes(), stream.kept_labels.tobytes(),
        stream.consolidated, stream.log_base, str(stream.rng.bit_generator.state),
        stream.learned, stream.origin, stream.n_judged, stream.departed, model.departure_,
    )  # fmt: skip


@pytest.mark.parametrize("first", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_batch_that_is_interrupted_is_in_or_out(first, few_kept):
    """A batch that is interrupted anywhere and given again counts exactly once."""
    X, _ = planted(600)
    begun = DPMixture(GAUSSIAN, 1.0, refine=False, random_state=0)
    if not first:
        begun.partial_fit(X[:150]).partial_fit(X[150:300])
    batch, later = X[300:450], X[450:]
    begun = pickle.dumps(begun)
    pickle.loads(begun).partial_fit(batch)  # all is imported and compiled
    want = pickle.loads(begun)
    with interrupted_at() as moments:
        want.partial_fit(batch)
    after = told(want)
    assert first or want._stream.consolidated == 450  # the batch is followed by a consolidation
    end = told(want.partial_fit(later))
    before = None if first else told(pickle.loads(begun))
    interrupts, known = 0, 0
    for at in some_moments(moments.count, np.random.default_rng(0)):
        model = pickle.loads(begun)
        try:
            with interrupted_at(at):
                model.partial_fit(batch)
        except KeyboardInterrupt:
            interrupts += 1
            now = told(model) if hasattr(model, "mixture_") else None
            assert now in (before, after), at
            known += now == after  # as if it were interrupted when the call has returned
            if now == before:
                model.partial_fit(batch)
        assert told(model) == after, at
    assert told(model.partial_fit(later)) == end
    assert interrupts > 10
    assert known <= 1


@pytest.mark.slow
def test_after_fit_rows_of_the_stream_are_kept_alike(monkeypatch):
    monkeypatch.setattr(stream, "KEPT_ROWS", 20)
    X, _ = planted(900)
    kept = np.zeros(400)
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X[:500])
    for seed in range(300):
        one = pickle.loads(pickle.dumps(model)).set_params(random_state=seed)
        one.partial_fit(X[500:])
        kept[one._stream.kept_rows - 500] += 1
    assert kept.sum() == 300 * 20
    assert kept[:20].sum() < 2 * kept[-20:].sum()  # 15 times as many, if they were not alike


@pytest.mark.slow
def test_a_stream_in_the_order_of_its_classes_learns_on():
    X, truth = load_iris(return_X_y=True)
    model, seen = DPMixture(random_state=0), []
    for at in range(0, 150, 25):
        model.partial_fit(X[at : at + 25])
        seen.append(repr(model.family_))
        rows = model._stream
        assert rows.keeps_all
        assert model.log_joint_ == pytest.approx(
            log_joint(X[: at + 25], rows.kept_labels, model.family_, model.mixture_.prior)
        )
        np.testing.assert_array_equal(model.component_labels_, rows.kept_labels[-25:])
    assert len(set(seen)) > 3
    assert adjusted_rand_score(truth, model.predict(X)) > 0.85
    given = DPMixture(GAUSSIAN, 1.0).partial_fit(X[:50, :3]).partial_fit(X[50:, :3])
    assert given.family_ == DPMixture(GAUSSIAN, 1.0).fit(X[:50, :3]).family_


@pytest.mark.slow
def test_a_row_without_any_value_is_not_kept():
    X, _ = planted(120)
    X[3] = np.nan
    model = DPMixture(random_state=0).partial_fit(X[:60]).partial_fit(X[60:])
    assert model._stream.n_seen == 119
    assert model._stream.keeps_all


@pytest.mark.slow
def test_codes_that_are_found_while_learning_again_are_kept_as_gaps():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(0, 6, (4, 3)), 125, axis=0) + rng.normal(size=(500, 3))
    X[200:300:7, 1] = -9999.0
    model = DPMixture(random_state=0)
    for at in range(0, 500, 50):
        model.partial_fit(X[at : at + 50])
    assert model.state_.codes == ((1, -9999.0),)
    assert model.mixture_.sizes.sum() == 500
    assert np.nanmax(np.abs(model._stream.kept)) < 100.0
    again = log_joint(model._stream.kept, model._stream.kept_labels, model.family_,
                      model.mixture_.prior)  # fmt: skip
    assert model.log_joint_ == pytest.approx(again, rel=1e-9)
