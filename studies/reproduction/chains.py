"""Samplers as the paper runs them: chains from given starts, judged by the best state visited."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.partition import by_appearance
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.moves import GibbsSweep, Move, SplitMerge
from dpsearch.samplers.options import starting_labels
from studies.reproduction.work import Check

SCANS = 5  # restricted Gibbs scans in each split-merge proposal
_BRIEF = 0.05  # seconds: what is shorter is timed three times


# Jain and Neal's third variant: one proposal with restricted Gibbs scans, then a Gibbs sweep.
# The second has no sweep, the first divides at random.
MOVES: dict[str, list[Move]] = {
    "gibbs": [GibbsSweep()],
    "split-merge": [SplitMerge(scans=SCANS), GibbsSweep()],
    "split-merge 1": [SplitMerge("random")],
    "split-merge 2": [SplitMerge(scans=SCANS)],
}


class Visited(NamedTuple):
    """The best state of a chain."""

    log_joint: float
    labels: Labels
    seconds: float  # of processor time, from the start of the chain until it was there
    sweep: int


def best_of_runs(
    problem: Problem, scores: list[Prior], sampler: str, starts: list[str], sweeps: int, seed: int
) -> list[Visited]:
    """Run a chain from each start; return the best state under each score.

    Chains sample the true posterior, `problem`'s; the log joint that they are judged by is that
    under each prior of `scores`.  The time is that of the best chain run once more up to the
    state: the same seed gives the same chain.
    """
    best: list[tuple[float, int, int]] = [(-np.inf, 0, 0)] * len(scores)  # value, run, sweep
    for number, start in enumerate(starts):
        chain = _begun(problem, sampler, start, seed, number)
        _run_to(chain, sweeps, np.ones(sweeps, np.bool_))
        labels = chain.recorded("labels").astype(np.int64)
        sizes = (labels[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
        likelihood = chain.recorded("log_joint") - _log_priors(problem, sizes)
        for which, prior in enumerate(scores):
            values = likelihood + _log_priors(problem.with_prior(prior), sizes)
            at = int(values.argmax())
            best[which] = max(best[which], (float(values[at]), -number, at + 1))
    return [
        _visited(problem, sampler, starts[-number], seed, -number, value, sweep)
        for value, number, sweep in best
    ]


def _begun(problem: Problem, sampler: str, start: str, seed: int, number: int) -> Chain:
    rng = np.random.default_rng([seed, number])
    return Chain(problem, starting_labels(problem, start, number, rng), MOVES[sampler], rng)


def _run_to(chain: Chain, sweeps: int, kept: Any) -> None:
    while chain.n_sweeps < sweeps:
        chain.advance(sweeps, kept)


def _visited(
    problem: Problem, sampler: str, start: str, seed: int, number: int, value: float, sweep: int
) -> Visited:
    """Run a chain up to a sweep; take the median of three times if it is short.

    Times are processor times, as for searches.
    """
    times: list[float] = []
    nothing = np.zeros(sweep, np.bool_)
    while not times or (len(times) < 3 and times[0] < _BRIEF):
        chain = _begun(problem, sampler, start, seed, number)
        begun = time.thread_time()
        _run_to(chain, sweep, nothing)
        times.append(time.thread_time() - begun)
    return Visited(value, by_appearance(chain.labels), float(np.median(times)), sweep)


def _log_priors(problem: Problem, sizes: Matrix) -> Vector:
    """Return log p(c) of each row of cluster sizes, in which 0 is no cluster."""
    tables, (n_rows, _) = problem.tables, sizes.shape
    log_w = np.where(sizes > 0, tables.log_w[sizes], 0.0)
    out: Vector = tables.log_v[(sizes > 0).sum(axis=1)] + log_w.sum(axis=1)
    if tables.multiplicity:
        at = np.arange(n_rows)[:, None] * (problem.n_points + 1) + sizes
        shape = (n_rows, problem.n_points + 1)
        counts = np.bincount(at.reshape(-1), minlength=shape[0] * shape[1]).reshape(shape)
        out -= gammaln(counts[:, 1:] + 1.0).sum(axis=1)
    return out


class TimedRun(NamedTuple):
    """A chain that ran for a given time: its history, and its best state."""

    seconds: Vector  # after each sweep
    log_joint: Vector
    n_clusters: Ints
    labels: Labels  # of the best state


def run_for(
    problem: Problem,
    sampler: str,
    start: str,
    seconds: float,
    seed: int,
    check: Check | None = None,
) -> TimedRun:
    """Run one chain for the given time, for at least one sweep."""
    rng = np.random.default_rng(seed)
    chain = Chain(problem, starting_labels(problem, start, 0, rng), MOVES[sampler], rng)
    best, labels = -np.inf, chain.labels
    history: list[tuple[float, float, int]] = []
    begun = time.perf_counter()
    while not history or history[-1][0] < seconds:
        if check is not None:
            check()
        chain.advance(chain.n_sweeps + 1, np.zeros(chain.n_sweeps + 1, np.bool_))
        value = float(chain.records["log_joint"][-1][-1])
        clusters = int(chain.records["n_clusters"][-1][-1])
        history.append((time.perf_counter() - begun, value, clusters))
        if value > best:
            best, labels = value, chain.labels
    table: Matrix = np.array(history)
    return TimedRun(table[:, 0], table[:, 1], table[:, 2].astype(np.int64), by_appearance(labels))
