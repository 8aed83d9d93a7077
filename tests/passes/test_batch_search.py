"""The batch search and its passes, against plain recomputation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from dpsearch import Problem, families, items, priors
from dpsearch.passes import chunk
from dpsearch.passes import rows as rows_module
from dpsearch.passes.arrays import by_parts
from dpsearch.passes.chunk import Candidates, Totals
from dpsearch.passes.rows import ThreadedRows
from dpsearch.passes.search import GROWTH, BatchSearch, Group, Move
from dpsearch.sources.shards import shards_of_array
from models import DRAWS, PRODUCT_PRIORS

DP = priors.DirichletProcess(1.0)


class Part:
    """Some rows of a matrix."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.n_rows = matrix.shape[0]

    def load(self):
        return self.matrix


def rows_of(form, X, n_chunks=3, n_threads=1):
    return ThreadedRows(
        form, [Part(X[at]) for at in np.array_split(np.arange(X.shape[0]), n_chunks)], n_threads
    )


def search_of(problem, labels, *, seed=0, n_chunks=3, n_threads=1):
    """Return a search that begins with these labels, and the log joints that it notes."""
    form = problem.model.family.linear(problem.model.n_features)
    rows = rows_of(form, problem.model.matrix, n_chunks, n_threads)
    rows.place(labels)
    noted = []

    def note(step, log_joint, n_clusters):
        noted.append(log_joint + problem.log_base)

    rng = np.random.default_rng(seed)
    batch = BatchSearch(rows, form, problem.tables, rng, note, lambda: None)
    batch.begin(int(labels.max()) + 1)
    return batch, noted


class Threads(NamedTuple):
    n_threads: int


@pytest.mark.parametrize("function", ["log_marginals", "weights"])
def test_what_threads_compute_of_totals_is_what_one_call_does(function):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 9))
    form = Problem(X, families.FullGaussian(), DP).model.family.linear(9)
    totals = chunk.totals_of(form.features(X), rng.integers(170, size=2000).astype(np.int32), 170)
    compute = getattr(form, function)
    at_once = compute(*totals)
    parts = [by_parts(compute, totals, Threads(n)) for n in (1, 2, 5)]
    if function == "log_marginals":
        at_once, parts = (at_once,), [(one,) for one in parts]
    for one in parts:
        for found, first, whole in zip(one, parts[0], at_once, strict=True):
            np.testing.assert_array_equal(found, first)
            np.testing.assert_allclose(found, whole, rtol=1e-12)


def test_the_least_of_several_draws_are_those_of_all_rows():
    rng = np.random.default_rng(5)
    counts = np.array([3, 0, 2, 40])
    draws = []
    for n in (0, 7, 30, 12):
        clusters = np.sort(rng.integers(4, size=n))
        draws.append(chunk.Seeds(clusters, rng.random(n), rng.random((n, 3))))
    found = chunk.least(draws, counts)
    clusters, keys, features = (np.concatenate(part) for part in zip(*draws, strict=True))
    order = np.lexsort((keys, clusters))
    kept = np.concatenate([order[clusters[order] == k][: counts[k]] for k in range(4)])
    np.testing.assert_array_equal(found.clusters, clusters[kept])
    np.testing.assert_array_equal(found.keys, keys[kept])
    np.testing.assert_array_equal(found.features, features[kept])


def planted(n=300, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(6, size=n)
    return rng.normal(0.0, 12.0, (6, 3))[truth] + rng.normal(size=(n, 3)), truth


@pytest.fixture(params=["dense", "sparse"])
def features(request):
    X = np.random.default_rng(0).poisson(0.7, (50, 6)).astype(float)
    return X if request.param == "dense" else sp.csr_matrix(X)


def naive_assign(F, labels, candidates, choice):
    F = F.toarray() if sp.issparse(F) else F
    out = choice.copy()
    for i, label in enumerate(labels):
        g = candidates.groups[label]
        if g >= 0:
            inside = np.arange(candidates.starts[g], candidates.starts[g + 1])
            scores = candidates.weights[inside] @ F[i] + candidates.constants[inside]
            out[i] = inside[np.argmax(scores)]
    return out


@pytest.mark.parametrize("n_candidates", [5, 40])  # with few and with many
def test_one_group_assigns_as_the_plain_way(features, n_candidates):
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=50).astype(np.int32)
    candidates = Candidates(
        np.zeros(4, np.int64), np.array([0, n_candidates]), rng.normal(size=(n_candidates, 6)),
        rng.normal(size=n_candidates),
    )  # fmt: skip
    candidates.constants[2] = -np.inf
    check_assign(features, labels, candidates, np.full(50, -1, np.int32))


def test_groups_assign_as_the_plain_way_and_others_keep_their_choice(features):
    rng = np.random.default_rng(2)
    labels = rng.integers(5, size=50).astype(np.int32)
    groups, starts = np.array([0, 1, -1, 0, 1]), np.array([0, 2, 5])
    candidates = Candidates(groups, starts, rng.normal(size=(5, 6)), rng.normal(size=5))
    check_assign(features, labels, candidates, rng.integers(-1, 5, size=50).astype(np.int32))


def check_assign(F, labels, candidates, choice):
    wanted = naive_assign(F, labels, candidates, choice)
    found = chunk.assign(F, labels, candidates, choice)
    assert np.array_equal(choice, wanted)
    inside = candidates.groups[labels] >= 0
    dense = F.toarray() if sp.issparse(F) else F
    for c in range(candidates.n_candidates):
        chosen = inside & (wanted == c)
        assert found.sizes[c] == chosen.sum()
        assert np.allclose(found.sums[c], dense[chosen].sum(axis=0))


def test_the_same_rows_are_drawn_however_they_are_divided(features):
    labels = np.random.default_rng(3).integers(4, size=50).astype(np.int32)
    counts = np.array([2, 0, 3, 100])
    whole = chunk.draw(features, labels, 0, counts, 7)
    parts = [chunk.draw(features[a:b], labels[a:b], a, counts, 7) for a, b in ((0, 11), (11, 50))]
    divided = chunk.least(parts, counts)
    for found, wanted in zip(divided, whole, strict=True):
        assert np.array_equal(found, wanted)
    assert np.bincount(whole.clusters, minlength=4).tolist() == [2, 0, 3, (labels == 3).sum()]
    assert not np.array_equal(chunk.draw(features, labels, 0, counts, 8).keys, whole.keys)


def test_rows_below_0_take_no_part(features):
    rng = np.random.default_rng(4)
    labels = rng.integers(-1, 3, size=50).astype(np.int32)
    seen = labels >= 0
    for n_candidates in (4, 30):
        weights, constants = rng.normal(size=(n_candidates, 6)), rng.normal(size=n_candidates)
        edges = np.array([0, n_candidates])
        candidates = Candidates(np.zeros(3, np.int64), edges, weights, constants)
        choice, only = np.full(50, -1, np.int32), np.full(seen.sum(), -1, np.int32)
        found = chunk.assign(features, labels, candidates, choice)
        wanted = chunk.assign(features[seen], labels[seen], candidates, only)
        assert (choice[~seen] == -1).all()
        assert np.array_equal(choice[seen], only)
        assert np.array_equal(found.sizes, wanted.sizes)
        moved = chunk.decided(labels, choice, np.arange(n_candidates), np.zeros(3, np.int64))
        assert np.array_equal(moved, choice)
    assert np.array_equal(
        chunk.decided(labels, np.full(50, -1), [], np.array([2, 0, 1])) < 0, ~seen
    )
    assert chunk.draw(features, labels, 0, np.full(3, 50), 0).clusters.tolist() == sorted(
        labels[seen]
    )


def test_outliers_of_shards_do_not_depend_on_the_number_of_threads():
    """Values repeat, and of ties the first rows are taken."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, size=(2000, 2)).astype(float)
    form = families.Gaussian(0.0, 4.0, 1.0).linear(2)
    labels = rng.integers(0, 5, size=2000)
    weights, constants = rng.normal(size=(5, form.n_totals)), rng.normal(size=5)
    counts = np.array([3, 7, 0, 500, 1])
    scores = (form.features(X) * weights[labels]).sum(axis=1)
    found = []
    for n_threads in (1, 3):
        rows = ThreadedRows(form, shards_of_array(X, 9, False), n_threads)
        rows.place(labels)
        found.append(rows.outliers(weights, constants, counts))
    for k, count in enumerate(counts):
        own = np.flatnonzero(labels == k)
        want = own[np.argsort(scores[own], kind="stable")[:count]]
        for one in found:
            np.testing.assert_array_equal(one.features[one.clusters == k], form.features(X[want]))


@pytest.mark.parametrize("family", [families.Gaussian(0.0, 4.0, 1.0), families.FullGaussian()])
def test_statistics_of_parts_are_those_of_all_items(family, monkeypatch):
    monkeypatch.setattr(items, "_PART", 64)
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(500, 3)), rng.integers(0, 4, size=500)
    problem = Problem(X, family, priors.DirichletProcess(1.0))
    whole = items.rows_of_labels(problem.model.core, problem.items, labels, 4)
    parts = problem.rows(labels)
    with ThreadPoolExecutor(3) as threads:
        shared = problem.rows(labels, threads)
    np.testing.assert_array_equal(parts[0], shared[0])
    np.testing.assert_array_equal(parts[1], whole[1])
    marginals = [items.log_marginals(problem.model.core, pool, 4) for pool, _ in (parts, whole)]
    np.testing.assert_allclose(*marginals, rtol=1e-10)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("few", [False, True])
def test_a_pass_over_few_rows_or_shards_is_that_over_single_rows(few, everything, monkeypatch):
    monkeypatch.setattr(rows_module, "_FEW_NUMBERS", (1 << 24) if few else 0)
    monkeypatch.setattr(chunk, "_SCORES", 100)
    rng = np.random.default_rng(0)
    X, n_clusters = rng.normal(size=(3000, 3)), 13
    form = families.Gaussian(0.0, 4.0, 1.0).linear(3)
    F, labels = form.features(X), rng.integers(-1, n_clusters, size=3000)
    if everything:
        groups, starts = np.zeros(n_clusters, np.int64), np.array([0, 14])
    else:
        groups, starts = np.arange(n_clusters) // 2 - 1, np.array([0, 2, 3, 6, 9, 11, 14])
    weights, constants = rng.normal(size=(14, F.shape[1])), rng.normal(size=14)
    constants[4] = -np.inf
    scores = F @ weights.T + constants
    want = np.full(3000, -1)
    for i in np.flatnonzero((labels >= 0) & (groups[labels] >= 0)):
        begin, end = starts[groups[labels[i]]], starts[groups[labels[i]] + 1]
        want[i] = begin + np.argmax(scores[i, begin:end])
    found = []
    for n_threads in (1, 3):
        rows = ThreadedRows(form, shards_of_array(X, 5, False), n_threads)
        rows._labels[:] = labels
        found.append(rows.assign(Candidates(groups, starts, weights, constants)))
        np.testing.assert_array_equal(rows._choice, want)
        np.testing.assert_array_equal(
            rows.totals(n_clusters).sizes, np.bincount(labels[labels >= 0])
        )
    for one in found:
        np.testing.assert_array_equal(one.sums, found[0].sums)
        for c in range(14):
            assert one.sizes[c] == (want == c).sum()
            np.testing.assert_allclose(one.sums[c], F[want == c].sum(axis=0), atol=1e-9)


def test_features_that_are_computed_in_every_pass_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(rows_module, "_FEW_NUMBERS", 0)
    X, rng = planted()[0], np.random.default_rng(0)
    form = families.FullGaussian(0.0, 0.01, 5.0, 2.0).linear(X.shape[1])
    z = form.features(X)[:, : X.shape[1]]
    pairs = [z[:, d] * z[:, e] for d in range(X.shape[1]) for e in range(d + 1)]
    np.testing.assert_array_equal(form.features(X), np.column_stack([z, *pairs]))
    weights, constants = rng.normal(size=(15, form.n_totals)), rng.normal(size=15)
    candidates = Candidates(np.zeros(1, np.int64), np.array([0, 15]), weights, constants)
    found = []
    for quick in (True, False):
        rows = rows_of(replace(form, quick=quick), X)
        found.append([rows.assign(candidates) for _ in range(2)])
        assert all(one is None for one in rows._features) == quick
    for one in found[0][1:] + found[1]:
        np.testing.assert_array_equal(one.sums, found[0][0].sums)


def test_outliers_are_the_rows_of_the_least_scores(features):
    rng = np.random.default_rng(5)
    labels = rng.integers(-1, 3, size=50).astype(np.int32)
    weights, constants, counts = rng.normal(size=(3, 6)), rng.normal(size=3), np.array([4, 0, 100])
    parts = [(features[a:b], slice(a, b)) for a, b in ((0, 9), (9, 30), (30, 50))]
    found = chunk.outliers(parts, labels, weights, constants, counts)
    dense = features.toarray() if sp.issparse(features) else features
    for k, count in enumerate(counts):
        scores = dense[labels == k] @ weights[k] + constants[k]
        order = np.argsort(scores)[:count]
        assert np.allclose(found.keys[found.clusters == k], scores[order])
        assert np.allclose(found.features[found.clusters == k], dense[labels == k][order])


def test_every_row_of_a_cluster_is_drawn_equally_often():
    labels = np.zeros(20, np.int32)
    F = np.eye(20)
    times = sum(
        chunk.draw(F, labels, 0, np.array([4]), s).features.sum(axis=0) for s in range(2000)
    )
    assert np.abs(times - 400).max() < 5 * np.sqrt(400 * 0.8)


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=lambda prior: prior.name)
@pytest.mark.parametrize("name", sorted(DRAWS))
def test_a_sweep_never_lowers_the_log_joint_and_values_are_exact(name, prior):
    rng = np.random.default_rng(4)
    family, X = DRAWS[name](rng, 60)
    problem = Problem(X, family, prior)
    if problem.model.family.linear(problem.model.n_features) is None:
        pytest.skip("no linear form")
    labels = rng.integers(3, size=60)
    batch, _ = search_of(problem, labels)
    assert batch.log_joint + problem.log_base == pytest.approx(problem.log_joint(labels), rel=1e-9)
    n = batch.n_clusters
    everything = Candidates(np.zeros(n, np.int64), np.array([0, n]), *batch.scores(batch.totals))
    totals = batch.rows.assign(everything)
    if (totals.sizes > 0).all():  # by convexity, without looking whether it gains
        assert batch.value_of(totals).sum() >= batch.values.sum() - 1e-9 * abs(batch.values.sum())
    before = batch.log_joint
    gain = batch.sweep()
    assert gain >= 0.0
    assert batch.log_joint == pytest.approx(before + gain)
    found = batch.log_joint + problem.log_base
    assert found == pytest.approx(problem.log_joint(batch.rows.labels()), rel=1e-9)


@pytest.mark.parametrize("name", ["full_gaussian", "multinomial", "poisson", "categorical"])
def test_a_run_never_falls_and_ends_where_it_says(name):
    family, X = DRAWS[name](np.random.default_rng(5), 120)
    problem = Problem(X, family, DP)
    batch, noted = search_of(problem, np.zeros(120, np.int64))
    start = batch.log_joint + problem.log_base
    batch.run()
    assert (np.diff([start, *noted]) >= -1e-7).all()
    value = problem.log_joint(batch.rows.labels())
    assert batch.log_joint + problem.log_base == pytest.approx(value, rel=1e-9)
    assert batch.n_clusters == len(np.unique(batch.rows.labels()))


def test_planted_clusters_are_found_with_any_number_of_threads_and_chunks():
    X, truth = planted()
    problem = Problem(X, families.FullGaussian(0.0, 0.01, 5.0, 2.0), DP)
    found = []
    for n_chunks, n_threads in ((1, 1), (7, 3)):
        batch, _ = search_of(
            problem, np.zeros(300, np.int64), n_chunks=n_chunks, n_threads=n_threads
        )
        batch.run()
        found.append(batch.rows.labels())
    assert np.array_equal(*found)
    assert len(set(zip(found[0].tolist(), truth.tolist(), strict=True))) == 6


def test_scores_are_tangent_planes_of_the_value_of_a_cluster():
    """The planes touch log W + log H at the cluster and lie below it elsewhere."""
    X, truth = planted()
    problem = Problem(X, families.FullGaussian(0.0, 0.01, 5.0, 2.0), DP)
    batch, _ = search_of(problem, truth)
    weights, constants = batch.scores(batch.totals)
    others = batch.totals.take(np.arange(6)[::-1])
    planes = batch.values + ((others.sums - batch.totals.sums) * weights).sum(axis=1)
    planes += (others.sizes - batch.totals.sizes) * constants
    assert (planes < batch.value_of(others)).all()
    # Nowhere does a plane with another slope by size touch from below on both sides.
    for change in (-1.0, 1.0):
        sizes = batch.totals.sizes + change
        totals = Totals(sizes, batch.totals.sums * (sizes / batch.totals.sizes)[:, None])
        step = batch.value_of(totals) - batch.values
        slope = ((totals.sums - batch.totals.sums) * weights).sum(axis=1) + change * constants
        assert (slope < step).all()
        assert (step - slope < 0.2).all()


@pytest.mark.parametrize("tries", [1, 4])
def test_proposals_are_taken_by_their_exact_gain(tries):
    """Each accepted proposal raises the log joint by its gain; others change nothing."""
    X, truth = planted()
    prior = priors.DirichletProcess(0.01)  # so that a cluster has its price
    problem = Problem(X, families.Gaussian(0.0, 150.0, 1.0), prior)
    labels = truth // 2  # pairs of groups in one cluster
    for move in (GROWTH, Move(1, 2, 1), Move(1, 2, 0, 1), Move(0, 0, 2, 1), Move(2, 3), Move(3, 2)):
        batch, _ = search_of(problem, labels)
        before = batch.log_joint
        members = np.arange(move.n_clusters)
        gains, costs = batch.propose([Group(members, move)], tries=tries)
        gained = batch.log_joint - before
        assert gained == pytest.approx(max(gains[0], 0.0), abs=1e-6)
        assert costs[0] > 0
        value = problem.log_joint(batch.rows.labels())
        assert batch.log_joint + problem.log_base == pytest.approx(value, rel=1e-12)


def test_of_a_few_tries_the_best_is_proposed():
    X, truth = planted()
    problem = Problem(X, families.Gaussian(0.0, 150.0, 1.0), DP)
    groups = [Group(np.array([0]), GROWTH), Group(np.array([1, 2]), Move(2, 3))]
    batch, _ = search_of(problem, truth // 2)
    starts, of_cluster = batch.numbered(groups)
    given = groups, starts, of_cluster
    totals, values, costs = batch.tried(*given, 1, 5)
    same, _ = search_of(problem, truth // 2)
    found = [same.settled(*given, start, 1) for start in same.beginnings(*given, 5)]
    for g, inside in enumerate([slice(0, 2), slice(2, 5)]):
        each = [of_try[1][inside].sum() for of_try in found]
        assert len(set(each)) > 1  # the tries differ
        best = found[int(np.argmax(each))]
        np.testing.assert_array_equal(values[inside], best[1][inside])
        np.testing.assert_array_equal(totals.sums[inside], best[0].sums[inside])
        assert costs[g] == sum(of_try[2][g] for of_try in found)


def test_seeds_come_from_what_is_divided_and_what_stays_begins_as_it_is():
    X, truth = planted()
    kept = (truth != 4) | (np.arange(len(truth)) % 4 == 0)  # a quarter of one cluster
    X, truth = X[kept], truth[kept]
    problem = Problem(X, families.Gaussian(0.0, 150.0, 1.0), DP)
    batch, _ = search_of(problem, truth)
    groups = [Group(np.array([3, 0, 5]), Move(1, 2, 1, 1)), Group(np.array([2, 4]), Move(2, 3))]
    starts, of_cluster = batch.numbered(groups)
    centres = np.array([X[truth == k].mean(axis=0) for k in range(6)])
    from_4 = 0
    for _ in range(60):
        (start,) = batch.beginnings(groups, starts, of_cluster, 1)
        means = start.sums[:, :3] / start.sizes[:, None]
        nearest = ((means[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        assert nearest[:3].tolist() == [3, 3, 0]
        assert set(nearest[3:]) <= {2, 4}
        from_4 += (nearest[3:] == 4).sum()
        np.testing.assert_array_equal(start.sums[2], batch.totals.sums[0])
        assert start.sizes[:2].sum() == pytest.approx(batch.totals.sizes[3])
        assert start.sizes[3:].sum() == pytest.approx(batch.totals.sizes[[2, 4]].sum())
    assert 0.1 < from_4 / 180 < 0.4  # as many are drawn from both, and more of the larger chosen


def test_merges_go_by_totals():
    X, truth = planted()
    problem = Problem(X, families.Gaussian(0.0, 150.0, 1.0), DP)
    batch, _ = search_of(problem, 2 * truth + (np.arange(300) % 2))
    gain = batch.merge()
    assert batch.n_clusters == 6
    assert gain > 0.0
    value = problem.log_joint(batch.rows.labels())
    assert batch.log_joint + problem.log_base == pytest.approx(value, rel=1e-12)


def test_totals_add_and_take():
    one = Totals(np.array([1.0, 2.0]), np.array([[1.0], [3.0]]))
    both = one + one
    assert both.take([1]).sizes.tolist() == [4.0]
    assert both.take([1]).sums.tolist() == [[6.0]]


@pytest.mark.parametrize("prior", [priors.DirichletProcess(2.0), priors.PitmanYor(1.0, 0.3)])
def test_steps_of_sizes_are_those_of_the_prior_in_its_table_and_beyond(prior):
    """Compare with log W(n + 1)/W(n) = log(n − σ)."""
    tables = prior.tables(10**9, 10)
    search = BatchSearch(None, None, tables, None, None, None)
    last = len(tables.log_w) - 1
    sizes = np.array([2.0, 3.0, 1000.0, last - 1, last, last + 1, last + 2, 3e8])
    sigma = tables.discount
    expected = 0.5 * (np.log(sizes - sigma) + np.log(sizes - 1.0 - sigma))
    np.testing.assert_allclose(search.mean_steps(sizes), expected, rtol=1e-9)
