"""Search against the enumeration of all partitions."""

import math

import numpy as np
import pytest

import enumeration
import naive
from dpsearch import families, log_joint, priors, search
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.items import log_marginals
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.beam import beam
from dpsearch.prefix_search.greedy import greedy
from dpsearch.priors.base import log_prior
from dpsearch.problem import Problem
from models import ALL_PRIORS, DRAWS, PRODUCT_PRIORS
from prefixes import scores_of_prefixes

SETS = 80
GAUSSIAN = families.Gaussian(0.0, 10.0, 1.0)
DP = priors.DirichletProcess(1.0)


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_admissible_search_finds_and_proves_the_optimum(name, prior):
    rng = np.random.default_rng([len(name), PRODUCT_PRIORS.index(prior)])
    for trial in range(SETS):
        n = 8 if trial % 20 == 0 else int(rng.integers(4, 8))
        family, X = DRAWS[name](rng, n)
        problem = Problem(X, family, prior)
        result = search(problem, heuristic="admissible", beam_size=None)
        want = enumeration.best(problem)
        assert result.log_joint == pytest.approx(want, abs=1e-7)
        assert result.optimal
        assert result.upper_bound == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("heuristic", ["admissible", "trivial"])
@pytest.mark.parametrize("name", DRAWS)
def test_admissible_scores_are_never_below_a_completion(name, heuristic):
    """Check every prefix of every partition of six points: 1,218 states and completions per set."""
    pairs = 0
    labels, _ = enumeration.partitions(6)
    for which, prior in enumerate(PRODUCT_PRIORS):
        rng = np.random.default_rng([which, len(name)])
        for _ in range(6):
            family, X = DRAWS[name](rng, 6)
            problem = Problem(X, family, prior)
            order = np.arange(6)
            values = enumeration.log_joints(problem)
            score = scores_of_prefixes(problem, heuristic, order)
            for partition, value in zip(labels, values, strict=True):
                for level in range(1, 7):
                    prefix = tuple(partition[:level])
                    assert score[prefix] >= value - 1e-8, (family, X, prefix)
                    pairs += 1
            for partition, value in zip(labels, values, strict=True):
                assert score[tuple(partition)] == pytest.approx(value, abs=1e-8)
    assert pairs == 3 * 6 * 203 * 6  # over the 7 families and 2 heuristics: 306,936


def test_the_papers_replica_score_is_not_admissible():
    """It is violated on random sets of six points on a line, which is why `admissible` exists."""
    violated = 0
    for seed in range(60):
        X = np.random.default_rng(seed).normal(size=(6, 1)) * np.sqrt(11.0)
        problem = Problem(X, GAUSSIAN, DP)
        order = np.arange(6)
        values = enumeration.log_joints(problem)
        labels, _ = enumeration.partitions(6)
        for prefix, score in scores_of_prefixes(problem, "replica", order).items():
            inside = (labels[:, : len(prefix)] == prefix).all(axis=1)
            if score < values[inside].max() - 1e-8:
                violated += 1
                break
    assert violated >= 5


@pytest.mark.parametrize("prior", ALL_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_a_beam_without_limit_is_exhaustive(name, prior):
    rng = np.random.default_rng(3)
    for _ in range(3):
        family, X = DRAWS[name](rng, 6)
        problem = Problem(X, family, prior)
        found, _, made = beam(problem, np.arange(6), 1000)
        assert problem.log_joint(found) == pytest.approx(enumeration.best(problem), abs=1e-8)
        assert made == 1 + 2 + 5 + 15 + 52 + 203


def naive_beam(problem, order, beam_size):
    """Beam search that keeps whole clusterings and recomputes everything."""
    core = problem.model.core
    hypotheses = [((), 0.0)]
    for t in range(len(order)):
        candidates = []
        for labels, _ in hypotheses:
            for k in range(max(labels, default=-1) + 2):
                extended = (*labels, k)
                full = np.array(extended)
                part = problem.items._replace(
                    indptr=np.concatenate([[0], np.cumsum(_lengths(problem, order[: t + 1]))]),
                    values=np.concatenate([_row(problem, i) for i in order[: t + 1]]),
                    ids=np.concatenate([_ids(problem, i) for i in order[: t + 1]]),
                )
                pool, sizes = problem.model.rows(part, full, full.max() + 1)
                value = log_marginals(core, pool, len(sizes)).sum()
                value += problem.tables.log_v[len(sizes)] + problem.tables.log_w[sizes].sum()
                candidates.append((extended, float(value)))
        candidates.sort(key=lambda c: -c[1])
        hypotheses = candidates[:beam_size]
        if len(candidates) > beam_size and hypotheses[-1][1] - candidates[beam_size][1] < 1e-9:
            return None  # a tie at the cut: either may stay
    labels = np.empty(len(order), np.int64)
    labels[order] = hypotheses[0][0]
    return labels


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 8.0])
def test_a_beam_under_count_vectors_makes_the_decisions_of_a_naive_one(alpha, early_stop):
    """The naive beam searches every completion of P(m) anew and recomputes every likelihood."""
    complete = naive.early_completion if early_stop else naive.greedy_completion
    prior = priors.AntoniakCounts(alpha, early_stop)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(26, 1)) * rng.choice([2.0, 12.0])
        problem = Problem(X, families.Gaussian(0.0, 30.0, 1.0), prior)
        tables, beam_size = prior.tables(26), 4
        hypotheses = [((), 0.0)]
        for t in range(26):
            candidates = []
            for labels, placed in hypotheses:
                for k in range(max(labels, default=-1) + 2):
                    mates = [i for i in range(t) if labels[i] == k]
                    likelihood = placed + naive.log_predictive(problem.model.family, X[mates], X[t])
                    sizes = np.bincount([*labels, k]).tolist()
                    completed = np.array(complete(alpha, sizes, 25 - t))
                    score = likelihood + log_prior(tables, completed)
                    candidates.append(((*labels, k), likelihood, score))
            candidates.sort(key=lambda c: -c[2])
            cut = candidates[beam_size - 1 : beam_size + 1]
            assert len(cut) < 2 or cut[0][2] - cut[1][2] > 1e-9  # else either may stay
            hypotheses = [c[:2] for c in candidates[:beam_size]]
        found, _, _ = beam(problem, np.arange(26), beam_size)
        np.testing.assert_array_equal(by_appearance(found), candidates[0][0])


def _lengths(problem, chosen):
    return problem.items.indptr[chosen + 1] - problem.items.indptr[chosen]


def _row(problem, i):
    return problem.items.values[problem.items.indptr[i] : problem.items.indptr[i + 1]]


def _ids(problem, i):
    if len(problem.items.ids) == 0:
        return problem.items.ids
    return problem.items.ids[problem.items.indptr[i] : problem.items.indptr[i + 1]]


@pytest.mark.parametrize("beam_size", [1, 3, 10])
@pytest.mark.parametrize("name", DRAWS)
def test_beam_agrees_with_the_naive_beam(name, beam_size):
    compared = 0
    for seed in range(40):
        rng = np.random.default_rng([seed, beam_size])
        family, X = DRAWS[name](rng, 13)
        problem = Problem(X, family, DP)
        order = rng.permutation(13)
        naive = naive_beam(problem, order, beam_size)
        if naive is None:
            continue
        found, _, _ = beam(problem, order, beam_size)
        assert problem.log_joint(found) == pytest.approx(problem.log_joint(naive), abs=1e-8)
        compared += 1
        if compared == 3:
            break
    assert compared > 0


@pytest.mark.parametrize("prior", PRODUCT_PRIORS, ids=repr)
@pytest.mark.parametrize("name", DRAWS)
def test_greedy_is_a_beam_of_one(name, prior):
    rng = np.random.default_rng(5)
    family, X = DRAWS[name](rng, 203)
    problem = Problem(X, family, prior)
    order = rng.permutation(203)
    assert np.array_equal(greedy(problem, order), beam(problem, order, 1)[0])


def test_greedy_in_blocks_decides_as_point_by_point():
    rng = np.random.default_rng(0)
    X = 4.0 * rng.normal(size=(12, 7))[rng.integers(12, size=501)] + rng.normal(size=(501, 7))
    fast = Problem(X, families.Gaussian(0.0, 16.0, 1.0), DP)
    slow = Problem(X, families.Gaussian(0.0, 16.0, 1.0, form="columns"), DP)
    assert fast.model.dots() is not None
    assert slow.model.dots() is None
    order = rng.permutation(501)
    assert np.array_equal(greedy(fast, order), greedy(slow, order))


def test_many_clusters_make_every_structure_grow():
    X = np.arange(400.0)[:, None] * 50.0
    wide = families.Gaussian(0.0, 1e8, 1.0)
    for beam_size in (1, 7):
        result = search(X, wide, DP, beam_size=beam_size, order="random", rng=1)
        assert result.n_clusters == 400
    result = search(X[:60], wide, DP, beam_size=None)
    assert result.n_clusters == 60


def test_greedy_beam_and_best_first_count_states():
    rng = np.random.default_rng(2)
    X = 3.0 * rng.normal(size=(30, 2))
    one = search(X, GAUSSIAN, DP, beam_size=1)
    many = search(X, GAUSSIAN, DP, beam_size=1, method="best-first")
    assert one.log_joint == pytest.approx(many.log_joint)
    assert one.n_enqueued == many.n_enqueued
    assert many.n_dequeued == 31  # the root, and one state a point


def test_inadmissible_best_first_dequeues_little_more_than_n():
    rng = np.random.default_rng(4)
    labels = rng.integers(3, size=40)
    X = np.array([[-9.0, 0], [9.0, 0], [0, 9.0]])[labels] + rng.normal(size=(40, 2))
    result = search(X, GAUSSIAN, DP, beam_size=None)
    assert 40 <= result.n_dequeued <= 46


def test_queue_cap_keeps_the_best():
    rng = np.random.default_rng(6)
    X = 3.0 * rng.normal(size=(12, 2))
    full = search(X, GAUSSIAN, DP, heuristic="admissible", beam_size=None)
    wide = search(X, GAUSSIAN, DP, heuristic="admissible", beam_size=100_000)
    narrow = search(X, GAUSSIAN, DP, heuristic="admissible", beam_size=3)
    assert wide.log_joint == pytest.approx(full.log_joint)
    assert not wide.optimal
    assert narrow.log_joint <= full.log_joint + 1e-9
    assert narrow.n_enqueued <= full.n_enqueued
    assert math.isinf(narrow.upper_bound)


def test_max_states_stops_with_a_bound():
    X = 3.0 * np.random.default_rng(7).normal(size=(30, 2))
    result = search(X, GAUSSIAN, DP, heuristic="admissible", beam_size=None, max_states=500)
    assert not result.optimal
    assert result.upper_bound >= result.log_joint
    assert len(result.labels) == 30
    best = search(X, GAUSSIAN, DP, beam_size=500).log_joint
    assert result.upper_bound >= best


def test_order_by_name_and_by_array():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(20, 1)) * 4
    problem = Problem(X, GAUSSIAN, DP)
    ascending = search(X, GAUSSIAN, DP)
    by_hand = search(X, GAUSSIAN, DP, order=np.argsort(problem.alone, kind="stable"))
    assert np.array_equal(ascending.labels, by_hand.labels)
    assert np.all(np.diff(problem.alone[np.argsort(problem.alone)]) >= 0)
    one, two = (search(X, GAUSSIAN, DP, order="random", rng=5) for _ in range(2))
    assert np.array_equal(one.labels, two.labels)
    search(X, GAUSSIAN, DP, order="descending")
    search(X, GAUSSIAN, DP, order="given")


@pytest.mark.parametrize("name", DRAWS)
def test_search_over_blocks_equals_search_over_their_points(name):
    """Placing blocks in order gives the log joint of their points, each block kept together."""
    rng = np.random.default_rng(9)
    family, X = DRAWS[name](rng, 12)
    points = Problem(X, family, DP)
    tied = np.repeat(np.arange(6), 2)
    pool, sizes = points.model.rows(points.items, tied, 6)
    blocks = Problem.of_items(points.model, points.model.blocks(pool, sizes), points.log_base, DP)
    assert blocks.n_points == 12
    labels, _ = enumeration.partitions(6)
    values = [points.log_joint(partition[tied]) for partition in labels]
    assert [blocks.log_joint(p) for p in labels] == pytest.approx(values, abs=1e-8)
    for found in (
        search(blocks, beam_size=1000).labels,
        search(blocks, beam_size=None).labels,
        search(blocks, beam_size=1).labels,
    ):
        assert blocks.log_joint(found) == pytest.approx(points.log_joint(found[tied]), abs=1e-8)
    best = search(blocks, beam_size=1000)
    assert best.log_joint == pytest.approx(max(values), abs=1e-8)


def test_log_joint_is_what_search_reports():
    X = np.random.default_rng(1).normal(size=(15, 2))
    result = search(X, GAUSSIAN, DP)
    assert log_joint(X, result.labels, GAUSSIAN, DP) == pytest.approx(result.log_joint)
    assert result.n_clusters == len(set(result.labels.tolist()))
    assert result.trace[-1].log_joint == result.log_joint


def test_callback_sees_progress_and_may_interrupt():
    X = np.random.default_rng(1).normal(size=(20_000, 2))
    seen = []
    search(X, GAUSSIAN, DP, beam_size=2, callback=seen.append)
    assert seen[-1].done == seen[-1].total == 20_000
    assert [p.done for p in seen] == sorted(p.done for p in seen)

    def stop(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(X, GAUSSIAN, DP, beam_size=2, callback=stop)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"heuristic": "best"}, "heuristic"),
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 2.5}, "beam_size"),
        ({"order": "sideways"}, "order"),
        ({"order": [0, 0, 1]}, "order"),
        ({"method": "magic"}, "method"),
        ({"max_states": -1}, "max_states"),
        ({"rng": "seed"}, "rng"),
        ({"method": "beam", "heuristic": "admissible"}, "beam"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(ParameterError, match=named):
        search([[0.0], [1.0], [2.0]], GAUSSIAN, DP, **arguments)


def test_input_that_a_solver_cannot_take_is_refused_at_once():
    X = [[0.0], [1.0]]
    with pytest.raises(CapabilityError, match="product form"):
        search(X, GAUSSIAN, priors.AntoniakCounts(1.0), heuristic="admissible", beam_size=None)
    with pytest.raises(ParameterError, match="family"):
        search(X, "gaussian", DP)
    with pytest.raises(ParameterError, match="prior"):
        search(X, GAUSSIAN, 1.0)
    big = np.zeros((3000, 2))
    with pytest.raises(CapabilityError, match="admissible"):
        search(big, GAUSSIAN, DP, heuristic="admissible", beam_size=5)
