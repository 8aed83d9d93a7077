"""Best-first search with prices is exact, admissible, and needs far fewer states."""

from __future__ import annotations

import numpy as np
import pytest

import enumeration
from dpsearch import families, priors, search
from dpsearch.errors import CapabilityError
from dpsearch.exact import dual
from dpsearch.partition import by_appearance
from dpsearch.problem import Problem
from models import DRAWS
from prefixes import scores_of_prefixes

NAMES = ["gaussian", "bernoulli", "poisson", "multinomial"]
DP = priors.DirichletProcess(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_dual_search_finds_and_proves_the_optimum(name):
    rng = np.random.default_rng(len(name))
    for trial in range(8):
        family, X = DRAWS[name](rng, 8 if trial == 0 else int(rng.integers(1, 8)))
        prior = priors.DirichletProcess(float(np.exp(rng.normal())))
        problem = Problem(X, family, prior)
        order = "random" if trial % 2 else "ascending"
        result = search(problem, heuristic="dual", beam_size=None, order=order, rng=trial)
        want = enumeration.best(problem)
        assert result.log_joint == pytest.approx(want, abs=1e-7)
        assert result.optimal
        assert result.upper_bound == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("most", [20_000, 3, 0], ids=["all sets", "few sets", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_never_below_a_completion(name, most, monkeypatch):
    """Check every prefix of every partition of six points, even if few sets can be listed."""
    monkeypatch.setattr(dual, "_MOST_SETS", most)
    rng = np.random.default_rng([most, len(name)])
    labels, _ = enumeration.partitions(6)
    tight = 0
    for _ in range(3):
        family, X = DRAWS[name](rng, 6)
        problem = Problem(X, family, DP)
        order = rng.permutation(6)
        score = scores_of_prefixes(problem, "dual", order)
        values = enumeration.log_joints(problem)
        # Partitions of positions: point order[p] has the label at p.
        lookup = {
            tuple(by_appearance(row[order])): v for row, v in zip(labels, values, strict=True)
        }
        best = {}
        for partition in labels:
            for level in range(1, 7):
                prefix = tuple(partition[:level])
                best[prefix] = max(best.get(prefix, -np.inf), lookup[tuple(partition)])
        assert len(score) == len(best)
        for prefix, value in best.items():
            assert score[prefix] >= value - 1e-8, (family, X, prefix)
            tight += score[prefix] < value + 1e-5
        for partition in labels:
            assert score[tuple(partition)] == pytest.approx(lookup[tuple(partition)], abs=1e-8)
    assert tight >= 3 * 203 + 3 * 5  # the complete states, and at least the path to the best


def draws_from_the_process(n, width, seed):
    """Draw the paper's artificial sets: α = 1, prior variance 10, noise 1."""
    rng = np.random.default_rng(seed)
    labels, sizes = [], []
    for i in range(n):
        k = int(rng.choice(len(sizes) + 1, p=np.array([*sizes, 1.0]) / (i + 1.0)))
        sizes = [*sizes, 0] if k == len(sizes) else sizes
        sizes[k] += 1
        labels.append(k)
    return rng.normal(0.0, np.sqrt(10.0), (len(sizes), width))[labels] + rng.normal(size=(n, width))


def test_expands_little_more_than_one_state_per_point():
    family = families.Gaussian(0.0, 10.0, 1.0)
    fewer = total = 0
    for width in (1, 2):
        for seed in range(3):
            X = draws_from_the_process(16, width, seed)
            other = search(X, family, DP, heuristic="admissible", beam_size=None)
            result = search(X, family, DP, heuristic="dual", beam_size=None)
            assert result.optimal
            assert result.log_joint == pytest.approx(other.log_joint, abs=1e-7)
            fewer += result.n_enqueued
            total += other.n_enqueued
    assert fewer < 0.25 * total
    X = draws_from_the_process(50, 2, 0)
    result = search(X, family, DP, heuristic="dual", beam_size=None)
    assert result.optimal
    assert result.n_dequeued < 200


def test_a_capped_queue_still_returns_a_partition():
    X = draws_from_the_process(20, 2, 1)
    result = search(X, families.Gaussian(0.0, 10.0, 1.0), DP, heuristic="dual", beam_size=5)
    assert len(result.labels) == 20
    assert not result.optimal


@pytest.mark.parametrize(
    ("family", "prior", "reason"),
    [
        (families.Gaussian(), priors.DirichletProcess(priors.Gamma(1.0, 1.0)), "linear"),
        (families.Gaussian(), priors.AntoniakCounts(1.0), "linear"),
        (families.FullGaussian(), DP, "full_gaussian"),
    ],
)
def test_says_where_it_does_not_apply(family, prior, reason):
    with pytest.raises(CapabilityError, match=reason):
        search(np.zeros((13, 3)), family, prior, heuristic="dual")


def test_few_points_of_any_family():
    """With at most twelve points, every set is priced."""
    X = np.random.default_rng(0).normal(size=(7, 3)) * 2.0
    result = search(X, families.FullGaussian(), DP, heuristic="dual", beam_size=None)
    best = enumeration.best(Problem(X, families.FullGaussian(), DP))
    assert result.optimal
    assert result.log_joint == pytest.approx(best, abs=1e-9)
