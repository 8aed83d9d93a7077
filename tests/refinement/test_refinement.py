"""Refinement is exact, monotone and repeatable, and finds the optimum of small sets."""

import itertools
import time

import numpy as np
import pytest

import enumeration
from dpsearch import DPMixture, consensus, families, log_joint, priors, refine, search
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.families._columns import with_holes
from dpsearch.items import score_best, score_item, score_member
from dpsearch.partition import by_appearance
from dpsearch.passes.history import History
from dpsearch.problem import Problem
from dpsearch.refinement.local import groups_of, repartition
from dpsearch.refinement.moves import NEIGHBOURHOODS, fitted, neighbourhoods
from dpsearch.refinement.turns import Refinement
from dpsearch.state import State, sweep
from models import DRAWS, PRODUCT_PRIORS

DP = priors.DirichletProcess(1.0)
GAUSSIAN = families.Gaussian(0.0, 10.0, 1.0)


def planted(n, width, k, seed=0):
    rng = np.random.default_rng(seed)
    return 4.0 * rng.normal(size=(k, width))[rng.integers(k, size=n)] + rng.normal(size=(n, width))


WITH_HOLES = [name for name in DRAWS if DRAWS[name](np.random.default_rng(0), 12)[0].takes_gaps]


@pytest.mark.parametrize(
    ("name", "holes"), [*((name, False) for name in DRAWS), *((name, True) for name in WITH_HOLES)]
)
def test_score_member_is_the_predictive_without_the_point(name, holes):
    rng = np.random.default_rng(0)
    family, X = DRAWS[name](rng, 12)
    if holes:
        X = with_holes(X)
    problem = Problem(X, family, DP)
    core, scratch = problem.model.core, np.empty(problem.model.core.width)
    for i in range(12):
        # Joint of all in one cluster minus the joint with i alone, priors and H(x_i) taken out.
        apart = np.zeros(12, np.int64)
        apart[i] = 1
        pool, _ = problem.rows(np.zeros(12, np.int64))
        together = problem.log_joint(np.zeros(12, np.int64)) - problem.prior.log_probability([12])
        split = problem.log_joint(apart) - problem.prior.log_probability([11, 1])
        want = together - (split - problem.alone[i])
        assert score_member(core, problem.items, i, pool, scratch) == pytest.approx(want, abs=1e-7)


PRUNING = [
    name
    for name in DRAWS
    if DRAWS[name](np.random.default_rng(0), 12)[0].variant().score_best is not None
]


@pytest.mark.parametrize("name", PRUNING)
@pytest.mark.parametrize("seed", range(5))
def test_score_best_leaves_out_only_what_cannot_be_best(name, seed):
    rng = np.random.default_rng(seed)
    family, X = DRAWS[name](rng, 60)
    problem = Problem(X, family, DP)
    core = problem.model.core
    pool, sizes = problem.rows(by_appearance(rng.integers(9, size=60)))
    starts, scratch = np.arange(len(sizes)) * core.width, np.empty(core.width)
    left_out = 0
    for i in range(60):
        want, got = np.empty(len(sizes)), np.full(len(sizes), np.nan)
        score_item(core, problem.items, i, pool, starts, want, scratch)
        offsets = rng.normal(0.0, 3.0, len(sizes))
        skipped = int(rng.integers(-1, len(sizes)))
        assert score_best(core, problem.items, i, pool, starts, offsets, skipped, got)
        want += offsets
        if skipped >= 0:
            assert np.isnan(got[skipped])
            want[skipped] = got[skipped] = -np.inf
        assert got.argmax() == want.argmax()
        kept = got > -np.inf
        np.testing.assert_allclose(got[kept], want[kept], rtol=1e-12)
        left_out += (~kept).sum() - (skipped >= 0)
    assert left_out > 60


def naive_sweep(problem, labels, order):
    """Move each item to its best place by recomputing the log joint of every choice."""
    labels = labels.copy()
    for i in order:
        values = {}
        for k in [*np.unique(np.delete(labels, i)).tolist(), labels.max() + 1]:
            trial = labels.copy()
            trial[i] = k
            _, dense = np.unique(trial, return_inverse=True)
            values[k] = problem.log_joint(dense)
        stay = values.get(labels[i], values[max(values)])
        best = max(values, key=values.get)
        if values[best] > stay + 1e-9:
            labels[i] = best
    return labels


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_sweep_agrees_with_the_naive_sweep(name, prior):
    rng = np.random.default_rng(1)
    family, X = DRAWS[name](rng, 14)
    problem = Problem(X, family, prior)
    labels = rng.integers(4, size=14)
    order = rng.permutation(14)
    state = State(problem, labels)
    state.sweep(order)
    _, found = np.unique(state.labels, return_inverse=True)
    _, want = np.unique(naive_sweep(problem, labels, order), return_inverse=True)
    assert problem.log_joint(found) == pytest.approx(problem.log_joint(want), abs=1e-8)
    assert state.log_joint == pytest.approx(problem.log_joint(found), abs=1e-8)


@pytest.mark.parametrize("name", DRAWS)
def test_gather_gains_are_exact(name):
    rng = np.random.default_rng(1)
    family, X = DRAWS[name](rng, 12)
    problem = Problem(X, family, DP)
    state = State(problem, rng.integers(5, size=12))
    before = problem.log_joint(by_appearance(state.labels))
    slots = rng.permutation(state.live)
    for j, gain in enumerate(state.merge_gains(slots[:1], slots[1:], together=True)[0]):
        labels = np.where(np.isin(state.labels, slots[: j + 2]), -1, state.labels)
        together = problem.log_joint(by_appearance(labels))
        assert gain == pytest.approx(together - before, abs=1e-7)


def test_a_wide_cluster_is_gathered():
    """One of two Gaussians is so much wider than the prior expects that no two points merge."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 400)
    X = np.where(truth[:, None] == 0, 3.0, 0.5) * rng.normal(size=(800, 12))
    family = families.FullGaussian(0.0, 0.05, 25.0, 3.0)
    found = search(X, family, DP, beam_size=1)
    assert found.n_clusters > 20
    refined = refine(X, found, family, DP, rng=0)
    assert refined.n_clusters == 2
    assert "gather" in {event.step for event in refined.trace}


@pytest.mark.parametrize("name", DRAWS)
def test_merge_gains_are_exact(name):
    rng = np.random.default_rng(2)
    family, X = DRAWS[name](rng, 20)
    problem = Problem(X, family, priors.DirichletProcess(priors.Gamma(1.0, 1.0)))
    labels = np.arange(20) % 4
    state = State(problem, labels)
    before = problem.log_joint(labels)
    for slot in state.live:
        others = state.live[state.live != slot]
        gains = state.merge_gains(np.array([slot]), others)[0]
        for at, other in enumerate(others):
            joined = np.where(state.labels == other, slot, state.labels)
            _, dense = np.unique(joined, return_inverse=True)
            assert gains[at] == pytest.approx(problem.log_joint(dense) - before, abs=1e-8)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("name", DRAWS)
def test_the_state_takes_over_local_repartitions_with_their_values(name, n_threads, monkeypatch):
    """In one group cluster 1 is divided and 3 kept; in the other 0 is dissolved and 2 kept."""
    rng = np.random.default_rng(3)
    family, X = DRAWS[name](rng, 30)
    problem = Problem(X, family, DP)
    state = State(problem, np.arange(30) % 5)
    slots = np.array([[1, 3], [2, 0]])
    members = [[state.members(int(slot)) for slot in group] for group in slots]
    moves = np.array([(1, 2, 1, 3), (0, 0, 1, 3)])
    groups = groups_of(members, moves, np.full(2, -np.inf), rng)
    repartition(problem, groups, n_threads)
    before, log_v = state.log_joint, problem.tables.log_v
    gain = groups.values.sum() - state.values[slots].sum()
    gain += log_v[1 + groups.n_clusters.sum()] - log_v[5]
    labels = groups.labels.copy()
    labels[groups.begins[1] :] += groups.n_clusters[0]
    monkeypatch.setattr("dpsearch.state.state._FEW_ITEMS", 0)
    state.replace(slots.ravel(), groups.chosen, labels, int(groups.n_clusters.sum()), n_threads)
    assert state.log_joint == pytest.approx(before + gain, abs=1e-8)
    _, dense = np.unique(state.labels, return_inverse=True)
    assert state.log_joint == pytest.approx(problem.log_joint(dense), abs=1e-8)
    for slot in state.live:
        assert sorted(state.members(int(slot))) == np.flatnonzero(state.labels == slot).tolist()


def naive_repartition(problem, clusters, move, order):
    """Repartition a group by recomputing the log joint of its items for every choice."""
    divided, seeds, kept, _ = move
    items = np.concatenate(clusters)
    inside = Problem(problem.model.matrix[items], problem.model.family, problem.prior)
    of = np.repeat(np.arange(len(clusters)), [len(cluster) for cluster in clusters])
    labels = np.where(of < divided + kept, of - divided + seeds, -1)
    middle = [p for p in order if of[p] < divided]
    for p in middle:
        pairs = [
            Problem(inside.model.matrix[[p, q]], inside.model.family, inside.prior)
            for q in middle[:seeds]
        ]
        apart = [inside.alone[q] for q in middle[:seeds]]
        worth = [pair.log_joint([0, 0]) - one for pair, one in zip(pairs, apart, strict=True)]
        labels[p] = middle.index(p) if p in middle[:seeds] else int(np.argmax(worth))
    for p in order:
        if labels[p] < 0:
            values = {}
            for k in range(labels.max() + 2):
                there = np.append(np.flatnonzero(labels >= 0), p)
                trial = np.append(labels[labels >= 0], k)
                part = Problem(inside.model.matrix[there], inside.model.family, inside.prior)
                values[k] = part.log_joint(by_appearance(trial)) - part.prior.log_probability(
                    np.bincount(trial)[np.bincount(trial) > 0]
                )
                values[k] += float(np.log(max(1, (trial == k).sum() - 1)))  # α = 1
            labels[p] = max(values, key=values.get)
    for _ in range(10):
        new = naive_sweep(inside, labels, order)
        if (new == labels).all():
            break
        labels = new
    return inside, labels


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("move", [(1, 2, 1, 0), (2, 3, 0, 0), (0, 0, 1, 1), (1, 2, 1, 1)])
def test_repartition_agrees_with_the_naive_one(move, seed):
    rng = np.random.default_rng(seed)
    problem = Problem(planted(24, 2, 4, seed), GAUSSIAN, DP)
    n_clusters = move[0] + move[2] + move[3]
    clusters = np.array_split(rng.permutation(24), n_clusters)
    groups = groups_of([clusters], np.array([(*move[:3], 0)]), np.array([-np.inf]), rng)
    order: list[int] = []
    for p, draw in enumerate(groups.draws):  # a permutation that grows by transpositions
        order.append(p)
        at = int(draw * (p + 1))
        order[p], order[at] = order[at], p
    inside, want = naive_repartition(problem, clusters, move, order)
    repartition(problem, groups, 1)
    found = np.bincount(groups.labels, minlength=groups.n_clusters[0])
    assert len(found) == groups.n_clusters[0]
    assert found.min() > 0
    assert by_appearance(groups.labels).tolist() == by_appearance(want).tolist()
    value = groups.values[0] + problem.tables.log_v[groups.n_clusters[0]]
    assert value == pytest.approx(inside.log_joint(by_appearance(want)), abs=1e-8)


def test_a_repartition_without_hope_ends_early_and_one_without_room_goes_on():
    rng = np.random.default_rng(0)
    problem = Problem(planted(600, 3, 60), families.Gaussian(0.0, 100.0, 0.01), DP)
    costs = []
    for goal in (-np.inf, 0.0):
        groups = groups_of([[np.arange(600)]], np.array([(0, 0, 0, 0)]), np.array([goal]), rng)
        repartition(problem, groups, 1)
        assert groups.labels.min() == 0
        assert not groups.full.any()
        assert groups.n_clusters[0] > 200  # beyond the room at first
        costs.append(groups.costs[0])
    assert costs[1] < costs[0]


@pytest.mark.parametrize("seed", range(5))
def test_neighbourhoods_are_disjoint_and_near(seed):
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=(12, 40))
    centres = rng.permutation(40)[:12]
    gains[np.arange(12), centres] = -np.inf
    gains[:, 5] = -np.inf
    counts = rng.integers(1, 7, size=12)
    found = neighbourhoods(gains, centres, counts, rng.random((12, 6)))
    taken: set[int] = set()
    for c, group in enumerate(found):
        members = group[group >= 0].tolist()
        wanted = int(counts[c]) + 2
        others = [k for k in np.argsort(-gains[c]).tolist() if gains[c, k] > -np.inf]
        # A few more than are taken, of half as many again, of which others may have some.
        near = [k for k in others[: -(-3 * wanted // 2)] if k not in taken][:wanted]
        if centres[c] in taken or len(near) < counts[c] - 1:
            assert members == []
            continue
        assert members[0] == centres[c]
        assert len(members) == len(set(members)) == counts[c]
        assert counts[c] == 1 or set(members[1:]) <= set(near)
        assert not taken & set(members)
        taken.update(members)


@pytest.mark.parametrize("counts", [[1], [2], [1, 1], [5, 1, 1], [1, 9, 9, 9, 9]])
def test_every_move_fits_any_group(counts):
    for move in NEIGHBOURHOODS:
        given = np.array(counts[: move.n_clusters])
        fit = fitted(move, given)
        assert fit.n_clusters == len(given)
        assert min(fit) >= 0
        assert given[: fit.divided].sum() >= fit.seeds
        assert (fit.divided > 0) == (fit.seeds > 0)


@pytest.mark.slow
def test_search_and_refinement_reach_the_optimum_on_small_sets():
    """At least 99 % of 576 random sets with up to nine points, over all families."""
    reached, total = 0, 0
    for which, name in enumerate(DRAWS):
        rng = np.random.default_rng(which)
        for trial in range(72):
            prior = PRODUCT_PRIORS[trial % len(PRODUCT_PRIORS)]
            family, X = DRAWS[name](rng, 9 if trial % 12 == 0 else int(rng.integers(4, 9)))
            problem = Problem(X, family, prior)
            start = search(problem, beam_size=10)
            result = refine(problem, start.labels, rng=trial)
            reached += result.log_joint >= enumeration.best(problem) - 1e-8
            total += 1
    assert total == 576
    assert reached >= 0.99 * total


@pytest.mark.parametrize("name", DRAWS)
def test_never_lower_and_converged_from_bad_starts(name):
    rng = np.random.default_rng(4)
    family, X = DRAWS[name](rng, 60)
    problem = Problem(X, family, DP)
    for labels in (np.zeros(60, np.int64), np.arange(60), rng.integers(7, size=60)):
        result = refine(problem, labels, rng=0)
        assert result.converged
        assert result.log_joint >= problem.log_joint(labels) - 1e-9
        values = [point.log_joint for point in result.trace]
        assert all(b >= a - 1e-7 for a, b in itertools.pairwise(values))
        assert result.log_joint == pytest.approx(problem.log_joint(result.labels))
        # Converged means: no single item improves, and no merge.
        state = State(problem, result.labels)
        assert state.sweep(np.arange(60)) == 0
        if state.n_live > 1:
            for s in state.live:
                others = state.live[state.live != s]
                assert state.merge_gains(np.array([s]), others).max() <= 1e-6


def test_same_seed_same_result_for_any_number_of_threads():
    X = planted(400, 5, 12)
    start = search(X, GAUSSIAN, DP, beam_size=1)
    one = refine(X, start, GAUSSIAN, DP, rng=7)
    two = refine(X, start, GAUSSIAN, DP, rng=7, n_jobs=2)
    assert np.array_equal(one.labels, two.labels)
    assert one.log_joint == two.log_joint


@pytest.mark.parametrize("name", ["gaussian", "diagonal_gaussian", "full_gaussian"])
def test_statistics_do_not_drift_over_many_moves(name):
    """10^5 items moved one by one, then the value kept against the value from nothing."""
    rng = np.random.default_rng(0)
    family = {
        "gaussian": families.Gaussian(100.0, 16.0, 1.0),
        "diagonal_gaussian": families.DiagonalGaussian(100.0, 0.1, 2.0, 1.0),
        "full_gaussian": families.FullGaussian(100.0, 0.1, None, 1.0),
    }[name]
    problem = Problem(planted(300, 4, 6) + 100.0, family, DP)
    state = State(problem, np.arange(300) % 6)
    room = sweep.sweep_room.py_func(problem.model.core, 4, 4, 64)
    block = np.empty((4, 4))
    for _ in range(100_000):
        i = int(rng.integers(300))
        to = int(rng.integers(6))
        if state.clusters.live[to] == state.labels[i] or state.n_live < 6:
            to = (to + 1) % state.n_live
        if state.clusters.sizes[state.labels[i]] == 1 or state.clusters.live[to] == state.labels[i]:
            continue
        state.n_live = sweep.move_item(
            problem.model.core, problem.items, i, 1, problem.tables, state.clusters, state.n_live,
            to, None, block, 0, room,
        )  # fmt: skip
    _, dense = np.unique(state.labels, return_inverse=True)
    assert state.log_joint == pytest.approx(problem.log_joint(dense), rel=1e-9)


def test_the_time_limit_holds_and_zero_seconds_returns_the_start():
    X = planted(3000, 10, 40)
    start = search(X, GAUSSIAN, DP, beam_size=1)
    refine(X[:50], start.labels[:50], GAUSSIAN, DP, seconds=0.01)  # compiles
    begun = time.perf_counter()
    result = refine(X, start, GAUSSIAN, DP, seconds=0.5, rng=0)
    assert time.perf_counter() - begun < 5.0
    assert result.log_joint >= start.log_joint
    none = refine(X, start, GAUSSIAN, DP, seconds=0)
    assert none.log_joint == pytest.approx(start.log_joint)
    assert not none.converged


def test_interrupt_returns_the_best_so_far():
    X = planted(500, 4, 10)
    seen = []

    def stop(point):
        seen.append(point)
        if len(seen) == 4:
            raise KeyboardInterrupt

    result = refine(X, np.zeros(500), GAUSSIAN, DP, rng=0, callback=stop)
    assert not result.converged
    assert result.log_joint >= seen[-1].log_joint - 1e-6
    assert log_joint(X, result.labels, GAUSSIAN, DP) == pytest.approx(result.log_joint)


def test_an_interrupt_that_numba_wraps_is_one():
    """A signal while Numba prepares a call comes as a SystemError with that cause."""
    X = planted(500, 4, 10)

    def stop(point):
        if point.step != "start":
            raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    assert not refine(X, np.zeros(500), GAUSSIAN, DP, rng=0, callback=stop).converged
    with pytest.raises(KeyboardInterrupt):
        DPMixture(GAUSSIAN, 1.0, refine=False).fit(X, callback=stop)

    def deep(point):
        try:
            raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
        except SystemError as error:
            raise SystemError("returned a result with an exception set") from error

    with pytest.raises(KeyboardInterrupt):
        DPMixture(GAUSSIAN, 1.0, refine=False).fit(X, callback=deep)

    def fail(point):
        raise SystemError("something else")

    with pytest.raises(SystemError, match="something else"):
        refine(X, np.zeros(500), GAUSSIAN, DP, rng=0, callback=fail)


def test_blocks_are_refined_as_blocks():
    X = planted(60, 2, 4)
    points = Problem(X, GAUSSIAN, DP)
    tied = np.arange(60) // 3
    pool, sizes = points.model.rows(points.items, tied, 20)
    blocks = Problem.of_items(points.model, points.model.blocks(pool, sizes), points.log_base, DP)
    result = refine(blocks, np.zeros(20, np.int64), rng=0)
    assert result.log_joint == pytest.approx(points.log_joint(result.labels[tied]))
    assert result.log_joint > blocks.log_joint(np.zeros(20, np.int64))


def test_planted_clusters_are_recovered():
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(5)
    truth = rng.integers(8, size=800)
    X = 12.0 * rng.normal(size=(8, 3))[truth] + rng.normal(size=(800, 3))
    family = families.Gaussian(0.0, 150.0, 1.0)
    result = refine(X, np.zeros(800), family, DP, rng=0)
    assert adjusted_rand_score(truth, result.labels) > 0.95
    assert result.log_joint >= log_joint(X, truth, family, DP)


def test_consensus_finds_the_points_in_between():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-6, 1, 60), rng.normal(6, 1, 60), rng.uniform(-1.5, 1.5, 6)])
    view = consensus(X[:, None], families.Gaussian(0.0, 36.0, 1.0), DP, n_restarts=6, rng=1)
    assert len(view.clusterings) == 6
    values = [c.log_joint for c in view.clusterings]
    assert values == sorted(values, reverse=True)
    assert view.best is view.clusterings[0]
    assert view.disagreement.shape == (126,)
    assert ((view.disagreement >= 0) & (view.disagreement <= 1)).all()
    share = view.together(np.array([0, 1, 60]))
    assert np.array_equal(share, share.T)
    assert np.array_equal(np.diag(share), np.ones(3))
    # The same by counting pairs.
    naive = np.zeros(126)
    for other in view.clusterings[1:]:
        for i in range(126):
            a = set(np.flatnonzero(view.best.labels == view.best.labels[i]))
            b = set(np.flatnonzero(other.labels == other.labels[i]))
            naive[i] += (1 - len(a & b) / len(a | b)) / 5
    assert view.disagreement == pytest.approx(naive)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"seconds": -1}, ParameterError, "seconds"),
        ({"seconds": "long"}, ParameterError, "seconds"),
        ({"n_jobs": 0}, ParameterError, "n_jobs"),
        ({"rng": "x"}, ParameterError, "rng"),
    ],
)
def test_bad_arguments_are_named(arguments, error, named):
    with pytest.raises(error, match=named):
        refine([[0.0], [1.0]], [0, 0], GAUSSIAN, DP, **arguments)


def test_bad_starts_and_priors():
    with pytest.raises(DataError, match="labels"):
        refine([[0.0], [1.0]], [0], GAUSSIAN, DP)
    with pytest.raises(CapabilityError, match="product form"):
        refine([[0.0], [1.0]], [0, 0], GAUSSIAN, priors.AntoniakCounts(1.0))
    with pytest.raises(ParameterError, match="n_restarts"):
        consensus([[0.0]], GAUSSIAN, DP, n_restarts=0)


def test_many_clusters_find_their_partners_without_all_pairs():
    """600 pairs of clusters that belong together: more than are looked at pair by pair."""
    rng = np.random.default_rng(0)
    centres = 1000.0 * rng.normal(size=(600, 2))
    X = np.repeat(centres, 6, axis=0) + rng.normal(size=(3600, 2))
    family = families.Gaussian(0.0, 1e6, 1.0)
    problem = Problem(X, family, DP)
    history = History(None, None)
    run = Refinement(problem, np.arange(3600) // 3, history, np.random.default_rng(0), n_threads=1)
    run.merge()
    assert run.state.n_live <= 600


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_far_from_the_prior_mean_it_is_still_exact_and_monotone(offset):
    """Sums and squares would lose all digits here; means and differences do not."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 100)
    X = offset + 12.0 * truth[:, None] + rng.normal(size=(400, 1))
    family = families.Gaussian(0.0, offset**2, 1.0)
    result = refine(X, np.zeros(400), family, DP, rng=0)
    values = [point.log_joint for point in result.trace]
    assert all(b >= a - 1e-5 for a, b in itertools.pairwise(values))
    assert result.n_clusters == 4
    # log N(x; 0, I + offset²·11ᵀ) of each cluster, in a form that does not cancel.
    want = DP.log_probability([100] * 4)
    for k in range(4):
        x = X[truth == k, 0]
        mean, scatter = x.mean(), ((x - x.mean()) ** 2).sum()
        want -= 0.5 * (100 * np.log(2 * np.pi) + np.log1p(100 * offset**2) + scatter)
        want -= 0.5 * mean**2 / (offset**2 + 0.01)
    assert result.log_joint == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize(
    "family",
    [families.DiagonalGaussian(0.0, 0.01, 3.0, 2.0), families.FullGaussian(0.0, 0.01, 6.0, 2.0)],
    ids=lambda family: family.name,
)
def test_what_a_far_row_leaves_in_statistics_is_no_gain(family):
    """A row at 10^13 left errors of 200 nats: refinement took minutes over false gains."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)) + 6.0 * (np.arange(80) % 2)[:, None]
    X[7, 1] = 1e13
    told = []
    result = refine(X, np.zeros(80), family, DP, rng=0, callback=told.append)
    assert len(told) < 100
    values = [event.log_joint for event in told]
    assert all(b >= a - 1e-5 for a, b in itertools.pairwise(values))
    assert result.n_clusters == 3
    assert (result.labels == result.labels[7]).sum() == 1
