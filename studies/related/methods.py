"""Every method under the same time limit, and its result when the time is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from dpsearch import Problem, particle_filter, refine, search, variational
from dpsearch._types import Labels, Vector
from dpsearch.mixture import Mixture
from dpsearch.samplers import GibbsSweep, MetropolisSweep, Move, SplitMerge
from dpsearch.samplers.chain import Chain

_MOST_BEAM, _MOST_PARTICLES = 3000, 10_000
_AVERAGED = 10  # draws, over which a predictive density is averaged
_TRUNCATION = 100
_ROWS_OF_A_CELL = 10  # of the tree, when it has been refined


class Found(NamedTuple):
    """The result of a method after some time."""

    seconds: float
    log_joint: float  # of the best partition
    n_clusters: int
    held_out: float  # log predictive density of fresh rows, a row
    effective: float  # effective samples a second; NaN for a method that does not sample
    n_draws: int = 1


def density(problem: Problem, partitions: Sequence[Labels], weights: Vector, fresh: Any) -> float:
    """Return the mean log predictive density of fresh rows, averaged over partitions."""
    values = []
    for labels in partitions:
        mixture = Mixture.of(problem.model, problem.items, labels, problem.prior)
        inside, outside = mixture.log_joint_probabilities(fresh)
        values.append(logsumexp(np.column_stack([inside, outside]), axis=1))
    return float(logsumexp(np.array(values).T + np.log(weights), axis=1).mean())


def effective_size(values: Vector) -> float:
    """Return the effective size of a chain: n over its autocorrelation time (Geyer 1992).

    NaN for a chain whose halves have means that are more than a standard deviation apart: it is
    not stationary yet, so its values say nothing about its mixing.
    """
    n = len(values)
    if n < 8 or not np.ptp(values):
        return float("nan")
    first, second = values[: n // 2], values[n // 2 :]
    if abs(second.mean() - first.mean()) > min(first.std(), second.std()):
        return float("nan")
    centred = values - values.mean()
    spectrum = np.fft.rfft(centred, 2 * n)
    correlation = np.fft.irfft(spectrum * spectrum.conj())[:n]
    correlation /= correlation[0]
    pairs = correlation[0 : 2 * (n // 2) : 2] + correlation[1 : 2 * (n // 2) : 2]
    last = int(np.argmax(pairs <= 0.0)) if (pairs <= 0.0).any() else len(pairs)
    return float(min(n, n / max(2.0 * pairs[:last].sum() - 1.0, 1e-9)))


def by_search(problem: Problem, limit: float, fresh: Any, unit: float) -> Found:
    """Search with the widest beam that should take no longer than the limit."""
    begun = time.perf_counter()
    beam = int(np.clip(10 * limit / unit, 10, _MOST_BEAM))
    found = search(problem, beam_size=beam)
    return _of(problem, found.labels, begun, fresh)


def by_refinement(problem: Problem, limit: float, fresh: Any, unit: float) -> Found:
    """Search, then refine for the rest of the time."""
    begun = time.perf_counter()
    found = search(problem, beam_size=1)
    left = max(0.0, limit - (time.perf_counter() - begun))
    return _of(problem, refine(problem, found, seconds=left, rng=0).labels, begun, fresh)


def by_particles(problem: Problem, limit: float, fresh: Any, unit: float) -> Found:
    """Filter with as many particles as there is time for, estimated from a few of them."""
    begun = time.perf_counter()
    particles, spent = 10, 0.0
    found = particle_filter(problem, particles=particles, rng=0)
    while particles < _MOST_PARTICLES:
        spent = time.perf_counter() - begun
        more = min(4 * particles, _MOST_PARTICLES)
        if spent + 1.4 * found.seconds * more / particles > limit:
            break
        particles = more
        found = particle_filter(problem, particles=particles, rng=0)
    seconds = time.perf_counter() - begun
    heavy = np.argsort(-found.weights)[:_AVERAGED]
    shares = found.weights[heavy] / found.weights[heavy].sum()
    labels = [found._filter.labels(h) for h in heavy]
    best = found.clustering
    return Found(
        seconds, best.log_joint, best.n_clusters, density(problem, labels, shares, fresh),
        found.effective_sample_size / seconds, len(found),
    )  # fmt: skip


def by_chain(moves: Sequence[Move], start: str = "one") -> Callable[..., Found]:
    """Run a sampler from one cluster of all rows, or from the result of greedy search."""

    def run(problem: Problem, limit: float, fresh: Any, unit: float) -> Found:
        begun = time.perf_counter()
        rng = np.random.default_rng(0)
        first = np.zeros(problem.n_items, np.int64)
        if start == "search":
            first = search(problem, beam_size=1).labels
        chain = Chain(problem, first, moves, rng)
        best, best_labels, last = -np.inf, chain.labels, [chain.labels]
        while time.perf_counter() - begun < limit:
            # So many sweeps that statistics need not be computed anew for each.
            target = chain.n_sweeps + min(20, 1 + chain.n_sweeps)
            while chain.n_sweeps < target and time.perf_counter() - begun < limit:
                chain.advance(target, np.ones(target, bool))
                values, draws = chain.records["log_joint"][-1], chain.records["labels"][-1]
                chain.records["labels"][-1] = draws[-1:]
                if values.max() > best:
                    best, best_labels = values.max(), draws[values.argmax()].astype(np.int64)
        seconds = time.perf_counter() - begun
        labels = [part[-1].astype(np.int64) for part in chain.records["labels"]] or last
        labels = labels[len(labels) // 2 :]
        some = [labels[i] for i in np.unique(np.linspace(0, len(labels) - 1, _AVERAGED).round())
                .astype(int)]  # fmt: skip
        trace = chain.recorded("log_joint") if chain.records["log_joint"] else np.zeros(0)
        size = effective_size(trace[len(trace) // 2 :])
        return Found(
            seconds, problem.log_joint(best_labels), int(best_labels.max()) + 1,
            density(problem, some, np.full(len(some), 1.0 / len(some)), fresh),
            size / (0.5 * seconds), len(trace),
        )  # fmt: skip

    return run


@contextmanager
def _stopped_after(limit: float) -> Iterator[Callable[[Any], None]]:
    """Interrupt a method when the time is over, as Ctrl-C does, but not before its first event."""
    began = False

    def note(event: Any) -> None:
        nonlocal began
        began = True

    def interrupt(*_: Any) -> None:
        if began:
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield note
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def by_variational(
    variant: str, start: str = "search", in_cells: bool = False
) -> Callable[..., Found]:
    """Run mean field from the result of greedy search, its default, or from one component.

    With cells of a tree it has a tail, like the accelerated method of Kurihara et al. (2006).
    """

    def run(problem: Problem, limit: float, fresh: Any, unit: float) -> Found:
        begun = time.perf_counter()
        first = start if start == "search" else np.zeros(problem.n_items, np.int64)
        cells = max(1, problem.n_items // _ROWS_OF_A_CELL) if in_cells else None
        with _stopped_after(limit) as callback:
            found = variational(
                problem, variant=variant, truncation=_TRUNCATION, start=first, rng=0,
                callback=callback, cells=cells, tail=in_cells,
            )  # fmt: skip
        seconds = time.perf_counter() - begun
        best = found.clustering
        score = float(found.score_samples(fresh).mean())
        return Found(seconds, best.log_joint, best.n_clusters, score, float("nan"))

    return run


def _of(problem: Problem, labels: Labels, begun: float, fresh: Any) -> Found:
    seconds = time.perf_counter() - begun
    score = density(problem, [labels], np.ones(1), fresh)
    return Found(seconds, problem.log_joint(labels), int(labels.max()) + 1, score, float("nan"))


METHODS: dict[str, Callable[..., Found]] = {
    "search": by_search,
    "search and refinement": by_refinement,
    "particle filter": by_particles,
    "Gibbs": by_chain([GibbsSweep()]),
    "Gibbs, from search": by_chain([GibbsSweep()], "search"),
    "split-merge": by_chain([SplitMerge(moves=5), GibbsSweep()]),
    "Metropolis": by_chain([MetropolisSweep()]),
    "Metropolis, 10 proposals": by_chain([MetropolisSweep(10)]),
    "variational": by_variational("stick-breaking"),
    "variational, from one": by_variational("stick-breaking", "one"),
    "variational, in cells": by_variational("stick-breaking", in_cells=True),
    "collapsed variational": by_variational("collapsed"),
}
