"""`python -m studies reproduce`: the optimum that methods are compared with, and their runs."""

import itertools

import numpy as np
import pytest

import enumeration
from dpsearch import priors
from dpsearch.errors import CapabilityError
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import log_prior
from small_experiments import (
    COUNTS,
    DP,
    TINY,
    problem,
)
from studies.reproduction import (
    artificial,
    chains,
    optimum,
    study,
)


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("prior", [DP, COUNTS, priors.AntoniakCounts(0.3)], ids=repr)
def test_the_optimum_is_that_of_all_partitions(prior, dimension, monkeypatch):
    for n in (1, 2, 5, 7):
        for seed in range(3):
            drawn = problem(n, dimension, prior, seed)
            best = enumeration.best(drawn)
            found = optimum.optimum(drawn, np.zeros(n, np.int64))
            assert found.log_joint == pytest.approx(best, abs=1e-9)
            assert found.proof == "enumeration"
            if n > 1 and dimension == 1 and prior is not DP:
                known = drawn.log_joint(np.zeros(n, np.int64))
                assert optimum._by_intervals(drawn, known) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("prior", "dimension", "proof"),
    [(DP, 1, "certificate"), (DP, 2, "certificate"), (COUNTS, 1, "intervals"), (COUNTS, 2, "")],
)
def test_the_optimum_without_enumeration_is_that_of_all_partitions(
    prior, dimension, proof, monkeypatch
):
    monkeypatch.setattr(optimum, "MOST_ENUMERATED", 0)
    for seed in range(3):
        drawn = problem(9, dimension, prior, seed)
        worst = np.arange(9)
        found = optimum.optimum(drawn, worst)
        assert found.proof == proof
        # What cannot be proved is no more than what was known.
        want = enumeration.best(drawn) if proof else drawn.log_joint(worst)
        assert found.log_joint == pytest.approx(want, abs=1e-7)


@pytest.mark.slow
def test_the_optimum_of_sets_too_large_for_enumeration():
    """Under P(m) on a line some best partition is contiguous, so all 2^15 of those are tried."""
    n = 16
    drawn = problem(n, 1, COUNTS, 5)
    order = np.argsort(drawn.items.values)
    cuts = (np.arange(1 << (n - 1))[:, None] >> np.arange(n - 1)) & 1
    best = -np.inf
    blocks = {}
    for i, j in itertools.combinations(range(n + 1), 2):
        row = np.full(n, 1)
        row[order[i:j]] = 0
        pool, _ = drawn.rows(row) if j - i < n else drawn.rows(np.zeros(n, np.int64))
        blocks[i, j] = float(optimum.log_marginal(drawn.model.core, pool[: drawn.model.core.width]))
    for cut in cuts:
        ends = [0, *(np.flatnonzero(cut) + 1), n]
        spans = list(itertools.pairwise(ends))
        sizes = np.array([j - i for i, j in spans])
        value = log_prior(drawn.tables, sizes) + sum(blocks[span] for span in spans)
        best = max(best, value)
    known = search(drawn, beam_size=1).labels
    found = optimum.optimum(drawn, known)
    assert found.proof == "intervals"
    assert found.log_joint == pytest.approx(best + drawn.log_base, abs=1e-8)


def test_priors_whose_optimum_is_not_worked_out():
    with pytest.raises(CapabilityError, match="α fixed"):
        optimum.optimum(problem(5, 1, priors.PitmanYor(1.0, 0.3)), np.zeros(5, np.int64))


def test_a_method_above_a_proved_optimum_is_an_error(monkeypatch):
    unit = {"dimension": 1, "size": 5, "number": 0, **artificial._relevant(TINY)}
    assert artificial.one_set(unit)
    monkeypatch.setattr(artificial, "optimum", lambda *_: optimum.Optimum(-1e3, "enumeration"))
    with pytest.raises(RuntimeError, match="below the optimum 1000.0 by enumeration"):
        artificial.one_set(unit)


def test_searches_stop_at_either_limit():
    drawn = problem(40, 2, COUNTS)
    found, _ = artificial._timed_search(drawn, "trivial", 3000, 60.0)
    assert not found.complete
    assert 3000 <= found.n_enqueued < 3100
    found, seconds = artificial._timed_search(drawn, "tighter", 10**9, 0.2)
    assert not found.complete
    assert found.n_enqueued < 10**6
    assert 0.2 <= seconds < 20.0
    assert artificial._timed_search(drawn, "inadmissible", 10**6, 60.0)[0].complete


def test_samplers_are_judged_by_each_prior_at_its_best():
    drawn = problem(9, 1, DP)
    for sampler in chains.MOVES:
        best = chains.best_of_runs(drawn, [COUNTS, DP], sampler, ["one", "all"], 80, 0)
        for visited, prior in zip(best, (COUNTS, DP), strict=True):
            value = drawn.with_prior(prior).log_joint(visited.labels)
            assert visited.log_joint == pytest.approx(value, abs=1e-9)
            assert 1 <= visited.sweep <= 80
            assert visited.seconds > 0.0
        assert drawn.log_joint(best[0].labels) <= best[1].log_joint + 1e-9
        if sampler in study.SAMPLERS:
            assert best[1].log_joint == pytest.approx(enumeration.best(drawn), abs=1e-9)


def test_log_priors_of_many_partitions():
    sizes = np.array([[3, 2, 2], [7, 0, 0], [5, 1, 1], [4, 0, 3]])
    for prior in (DP, COUNTS):
        drawn = problem(7, 1, prior)
        want = [log_prior(drawn.tables, row[row > 0]) for row in sizes]
        assert chains._log_priors(drawn, sizes) == pytest.approx(want, abs=1e-12)
