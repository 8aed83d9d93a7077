"""One harness for every sampler: compare what it visits with the enumerated posterior.

A check returns its measurement, so that tests can also show that it fails for a planted bug.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import chisquare

from dpsearch.families.packing import pack
from dpsearch.items import add_item
from dpsearch.priors.base import Prior, log_prior
from dpsearch.problem import Problem
from dpsearch.samplers import GibbsSweep, MetropolisSweep, Move, SplitMerge
from dpsearch.samplers.chain import Chain
from enumeration import log_joints, partitions
from models import DRAWS, PRODUCT_PRIORS, FewComponents, FiniteMixture

HARNESS_PRIORS = [*PRODUCT_PRIORS, FiniteMixture(3.0, 0.6), FewComponents(3, 0.8)]

# What every sampler is held to.
SWEEPS = 50_000
THIN = 15  # until draws are as good as independent
ITERATIONS = 600
LARGEST_VARIATION = 0.02
SMALLEST_P = 1e-4
LARGEST_Z = 4.0

# Every sampler and variant, as the moves of a sweep.
Moves = Sequence[Move]
SAMPLERS: dict[str, Moves] = {
    "gibbs": [GibbsSweep()],
    "gibbs, random scan": [GibbsSweep("random")],
    "split-merge 1": [SplitMerge("random", moves=8, scans=0)],
    "split-merge 2": [SplitMerge(moves=2, scans=2)],
    # Several proposals for each Gibbs sweep, which would make good for what they do wrong.
    "split-merge 3": [SplitMerge(moves=6, scans=1), GibbsSweep()],
    "metropolis": [MetropolisSweep(3)],
    "metropolis 7": [MetropolisSweep(algorithm=7)],
    "sams": [SplitMerge("sequential", moves=3, scans=0)],
}


def cases() -> list:
    """Return all cases of family, prior and sampler; those outside a covering design are slow.

    The design has every sampler and prior on one family, every sampler on another, and every
    family once.
    """
    out = []
    for name, prior, sampler in itertools.product(DRAWS, range(len(PRODUCT_PRIORS)), SAMPLERS):
        covers = name == "gaussian" or (name == "poisson" and prior == 1)
        covers |= (prior, sampler) == (1, "split-merge 3")
        out.append(pytest.param(name, prior, sampler, marks=() if covers else pytest.mark.slow))
    return out


def few_cases() -> list:
    """Return cases with every sampler and family under one prior; the others are slow."""
    out = []
    for case in cases():
        name, prior, sampler = case.values
        covers = prior == 1 and (name == "gaussian" or sampler == "split-merge 3")
        out.append(pytest.param(*case.values, marks=() if covers else pytest.mark.slow))
    return out


def sized_cases() -> list:
    """Return these with six points, and with five, where only one family and prior are not slow."""
    out = []
    for case, n in itertools.product(cases(), (5, 6)):
        covers = n == 6 or case.values[:2] == ("gaussian", 1)
        marks = case.marks if covers else pytest.mark.slow
        out.append(pytest.param(*case.values, n, marks=marks))
    return out


def run_chain(problem: Problem, moves: Moves, sweeps: int, seed: int) -> np.ndarray:
    """Return the partitions that a chain visits from one cluster on."""
    chain = Chain(problem, np.zeros(problem.n_items), moves, np.random.default_rng(seed))
    while chain.n_sweeps < sweeps:
        chain.advance(sweeps, np.ones(sweeps, np.bool_))
    return chain.recorded("labels")


@cache
def small_problem(name: str, prior: int, n: int) -> tuple[Problem, np.ndarray]:
    """Return a random problem whose posterior spreads over several partitions, and it.

    If one partition had all the probability, any sampler would pass.
    """
    for seed in range(1000):
        family, X = DRAWS[name](np.random.default_rng([seed, n, prior]), n)
        problem = Problem(X, family, HARNESS_PRIORS[prior])
        posterior = softmax(log_joints(problem))
        spread = np.exp(-(posterior * np.log(np.maximum(posterior, 1e-300))).sum())
        # Gaussians of both forms: points in blocks, and columns apart.
        blocks = name != "gaussian" or (problem.dots() is not None) == (n != 5)
        if 4.0 < spread < 12.0 and blocks:
            return problem, posterior
    raise AssertionError("no such problem")


def visits(labels: np.ndarray) -> np.ndarray:
    """Return for each draw the number of its partition in the order of `partitions`."""
    n = labels.shape[1]
    powers = n ** np.arange(n)
    codes = partitions(n)[0] @ powers
    order = np.argsort(codes)
    return order[np.searchsorted(codes[order], labels.astype(np.int64) @ powers)]


def total_variation(visited: np.ndarray, posterior: np.ndarray) -> float:
    frequency = np.bincount(visited, minlength=len(posterior)) / len(visited)
    return float(0.5 * np.abs(frequency - posterior).sum())


def chi_square(visited: np.ndarray, posterior: np.ndarray) -> float:
    """Return the p-value of the counts; partitions expected less than ten times go together."""
    counts = np.bincount(visited, minlength=len(posterior)).astype(float)
    expected = posterior * len(visited)
    rare = expected < 10.0
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] < 10.0:
        counts[0] += counts[-1]
        expected[0] += expected[-1]
        counts, expected = counts[:-1], expected[:-1]
    return float(chisquare(counts, expected).pvalue)


def check_visits(
    problem: Problem, posterior: np.ndarray, moves: Moves, seed: int
) -> tuple[bool, bool]:
    """Return whether a chain's visits pass by total variation, and by the chi-square test."""
    visited = visits(run_chain(problem, moves, SWEEPS, seed))
    return (
        total_variation(visited, posterior) < LARGEST_VARIATION,
        chi_square(visited[::THIN], posterior) > SMALLEST_P,
    )


def draw_data(problem: Problem, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a data set given its partition, each point from its cluster's predictive so far."""
    model = problem.model
    rows = [model.empty_row() for _ in range(labels.max() + 1)]
    X = np.empty((len(labels), model.n_features))
    for i, k in enumerate(labels):
        X[i] = model.family.draws(rows[k], model.n_features).sample(1, rng)[0]
        if k in labels[i + 1 :]:  # otherwise this cluster is not needed again
            add_item(model.core, pack(model.family.encode(X[i : i + 1])), 0, rows[k], 1.0)
    return X


Sampler = Callable[[Problem, np.ndarray, np.random.Generator], np.ndarray]


def one_sweep(moves: Moves) -> Sampler:
    """Return a function that makes one sweep of a sampler."""

    def sweep(problem: Problem, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chain = Chain(problem, labels, moves, rng)
        chain.advance(1, np.ones(1, np.bool_))
        return chain.labels

    return sweep


def check_geweke(problem: Problem, prior: Prior, sweep: Sampler, seed: int) -> bool:
    """Geweke's joint-distribution test (2004): alternate x | c and c | x, compare c with its prior.

    It compares K, the share of the first cluster, and whether points 0 and 1 are together.
    Standard errors are from batch means, for successive draws depend on each other.
    """
    rng = np.random.default_rng(seed)
    n = problem.n_items
    all_labels, _ = partitions(n)
    tables = prior.tables(n)
    log_p = [log_prior(tables, np.bincount(labels)) for labels in all_labels]
    weights = np.exp(log_p)
    assert abs(weights.sum() - 1.0) < 1e-9

    def features(labels: np.ndarray) -> np.ndarray:
        together = labels[..., 0] == labels[..., 1]
        first = (labels == labels[..., :1]).mean(axis=-1)
        return np.stack([labels.max(axis=-1) + 1.0, first, together], axis=-1)

    want = weights @ features(all_labels)
    labels = all_labels[rng.choice(len(all_labels), p=weights)]
    seen = []
    for _ in range(ITERATIONS):
        X = draw_data(problem, labels, rng)
        labels = sweep(Problem(X, problem.model.family, prior), labels, rng)
        seen.append(labels)
    values = features(np.array(seen))
    batches = values.reshape(50, -1, values.shape[1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    return bool(np.abs((values.mean(axis=0) - want) / error).max() < LARGEST_Z)
