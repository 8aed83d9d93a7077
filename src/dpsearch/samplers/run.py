"""The samplers `gibbs`, `metropolis`, `split_merge` and `sample`, and how chains are run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from dpsearch._clock import clock
from dpsearch._types import ArrayLike
from dpsearch._validate import as_rng
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Event
from dpsearch.families.base import Family
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem, as_problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.checkpoint import Checkpoint
from dpsearch.samplers.draws import Draws, collect
from dpsearch.samplers.hyperparameters import HyperparameterUpdate
from dpsearch.samplers.moves import (
    AlphaUpdate,
    GibbsSweep,
    MetropolisSweep,
    Move,
    SplitMerge,
    plan_of,
)
from dpsearch.samplers.options import RunOptions, starting_labels

ALPHAS = ("integrate", "sample")
# Variant of `split_merge` → name of the sampler, division of a cluster, whether a Gibbs sweep
# follows.
VARIANTS: dict[Any, tuple[str, str, bool]] = {
    1: ("split-merge-1", "random", False),
    2: ("split-merge-2", "restricted_gibbs", False),
    3: ("split-merge-3", "restricted_gibbs", True),
    "sams": ("sams", "sequential", True),
}


def gibbs(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    draws: int,
    scan: str = "systematic",
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by collapsed Gibbs sampling (Neal 2000, algorithm 3).

    In a sweep each item in turn leaves its cluster and joins one, or a new one, with its
    conditional probability.

    Parameters
    ----------
    data, family, prior
        A `Problem`, or X with a family and a prior, as for `search`.  The prior must be of product
        form (not AntoniakCounts).
    draws
        Number of sweeps of each chain, burn-in included.
    scan
        The order of the items: ``"systematic"``, ``"shuffled"`` or ``"random"``; see
        `dpsearch.samplers.GibbsSweep`.
    **options
        alpha and hyperparameters: see `dpsearch.samplers.sample`.  burn_in, thin, chains, start,
        n_jobs, rng, callback, checkpoint, resume, checkpoint_seconds: see
        `dpsearch.samplers.RunOptions`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, gibbs, priors
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> draws = gibbs(X, family, prior, draws=200, burn_in=100, rng=0)
    >>> draws.labels.shape
    (100, 40)
    >>> draws.point_estimate().n_clusters
    2
    """
    problem = as_problem(data, family, prior)
    return sample(problem, [GibbsSweep(scan)], name="gibbs", draws=draws, **options)


def metropolis(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    draws: int,
    proposals: int = 1,
    algorithm: int = 5,
    scan: str = "systematic",
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by proposals from the prior (Xing et al. 2004).

    In a sweep each item in turn is proposed a cluster by the prior given the other items, and moves
    there with the ratio of likelihoods as its probability.  A sweep is cheap, but a proposal that
    knows nothing of the item is seldom accepted where clusters are many.

    Parameters
    ----------
    data, family, prior, draws, scan, **options
        As for `gibbs`.
    proposals, algorithm
        For each item in a sweep; Neal's algorithm 5 or 7.  See `dpsearch.samplers.MetropolisSweep`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, metropolis, priors
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> draws = metropolis(X, family, prior, draws=200, burn_in=100, proposals=2, rng=0)
    >>> draws.best().n_clusters
    2
    """
    problem = as_problem(data, family, prior)
    moves = [MetropolisSweep(proposals, scan, algorithm)]
    return sample(problem, moves, name="metropolis", draws=draws, **options)


def split_merge(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    draws: int,
    variant: int | str = 3,
    moves: int = 1,
    scans: int = 5,
    gibbs_sweep: bool | None = None,
    scan: str = "systematic",
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by splits and merges of clusters.

    Gibbs sampling moves one item at a time and takes very long to divide a cluster or to join
    two; here that is one Metropolis–Hastings proposal.

    Parameters
    ----------
    data, family, prior, draws, scan, **options
        As for `gibbs`.
    variant
        How a split is proposed.  1: at random; 2: by restricted Gibbs scans; 3 (default): the
        same, and a Gibbs sweep over all items after the proposals (Jain & Neal 2004);
        ``"sams"``: by allocating the members one after another, without scans, and a Gibbs sweep
        (Dahl 2005).
    moves, scans
        As for `dpsearch.samplers.SplitMerge`; scans are made in variants 2 and 3.
    gibbs_sweep
        Whether a Gibbs sweep follows the proposals; the default depends on the variant.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, priors, split_merge
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> draws = split_merge(X, family, prior, draws=100, start="one", rng=0)
    >>> draws.best().n_clusters
    2
    """
    if type(variant) not in (int, str) or variant not in VARIANTS:
        names = ", ".join(map(repr, VARIANTS))
        raise ParameterError(f"unknown variant {variant!r}: known are {names}")
    name, division, sweeps = VARIANTS[variant]
    schedule: list[Move] = [SplitMerge(division, moves, scans), GibbsSweep(scan)]
    if not (sweeps if gibbs_sweep is None else gibbs_sweep):
        schedule.pop()
    return sample(as_problem(data, family, prior), schedule, name=name, draws=draws, **options)


def sample(
    problem: Problem,
    moves: Sequence[Move],
    /,
    *,
    name: str = "sample",
    alpha: str = "integrate",
    hyperparameters: Mapping[str, float] | None = None,
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by sweeps that make the given moves.

    Parameters
    ----------
    problem
        Data under a family and a prior of product form.
    moves
        The moves of a sweep: `GibbsSweep`, `SplitMerge`, `MetropolisSweep`, and others.
    name
        The name of the sampler in the draws.
    alpha
        For a prior ``DirichletProcess(Gamma(…))``: ``"integrate"`` α out and draw it afterwards
        for each partition, or ``"sample"`` it in turn with the partition (`AlphaUpdate`).  Both
        have the same posterior; the first moves more freely.
    hyperparameters
        Names of the family's hyperparameters to sample too, each with the standard deviation of
        its log around the given value: ``{"noise_variance": 1.0}`` (`HyperparameterUpdate`).
    **options
        How the chains are run; see `RunOptions`.

    Examples
    --------
    >>> from dpsearch import Problem, families, priors
    >>> from dpsearch.samplers import GibbsSweep, SplitMerge, sample
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> problem = Problem([[0.0], [0.1], [9.0], [9.1]], family, prior)
    >>> draws = sample(problem, [SplitMerge(moves=2), GibbsSweep("random")], draws=50, rng=0)
    >>> draws.best().n_clusters
    2
    """
    begun = clock()
    known = ["alpha", "hyperparameters", *(option.name for option in fields(RunOptions))]
    for option in sorted(options.keys() - set(known)):
        raise TypeError(f"{name} got an unexpected keyword argument {option!r}: it takes"
                        f" {', '.join(known)}")  # fmt: skip
    how = RunOptions(**options)
    if alpha not in ALPHAS:
        raise ParameterError.must("alpha", f"be one of {', '.join(ALPHAS)}", alpha)
    moves = [*moves]
    if alpha == "sample":
        moves.append(AlphaUpdate())
    if hyperparameters is not None:
        moves.append(HyperparameterUpdate(hyperparameters))
    _check(problem, moves)
    store = None
    if how.checkpoint is not None:
        store = Checkpoint(Path(how.checkpoint), problem, name, moves, how)
    if store is not None and store.path.exists():
        if not how.resume:
            raise ParameterError(
                f"{store.path} exists: resume=True continues from it; otherwise name another file"
            )
        chains = store.read()
    else:
        chains = _new_chains(problem, moves, how)
    before = 0.0 if store is None else store.seconds
    # Other processes, such as those of a Dask cluster, are used if joblib's backend has them.
    backend, _ = get_active_backend(prefer="threads")
    here = getattr(backend, "supports_sharedmem", False)
    run = _run_in_threads if here else _run_in_processes
    run(chains, how, store, begun)
    return collect(problem, chains, name, how, before + clock() - begun)


def _check(problem: Problem, moves: Sequence[Move]) -> None:
    """Raise unless chains of these moves can sample the problem."""
    if not problem.prior.product_form:
        raise CapabilityError(
            f"samplers need a prior over partitions of product form; {problem.prior.name} is not:"
            " use DirichletProcess"
        )
    log_v = problem.prior.log_v(problem.n_points, problem.n_items)
    possible = np.flatnonzero(np.isfinite(log_v[1:]))
    if (np.diff(possible) > 1).any():
        raise CapabilityError(
            f"samplers change the number of clusters by one, so they cannot pass the numbers that"
            f" the prior {problem.prior.name} excludes between {possible[0] + 1} and"
            f" {possible[-1] + 1}"
        )
    plan_of(moves, problem)
    for move in moves:
        move.check(problem)


def _new_chains(problem: Problem, moves: Sequence[Move], how: RunOptions) -> list[Chain]:
    # Each chain gets its own stream of random numbers, from any kind of Generator.
    entropy = as_rng(how.rng).integers(2**32, size=8).tolist()
    seeds = np.random.SeedSequence(entropy).spawn(how.chains)

    def begin(number: int) -> Chain:
        generator = np.random.Generator(np.random.PCG64(seeds[number]))
        labels = starting_labels(problem, how.start, number, generator)
        return Chain(problem, labels, moves, generator)

    with ThreadPoolExecutor(how.threads) as pool:
        return list(pool.map(begin, range(how.chains)))


def _run_in_threads(
    chains: list[Chain], how: RunOptions, store: Checkpoint | None, begun: float
) -> None:
    """Advance all chains leg by leg.

    A single chain runs in a thread too, so that Ctrl-C interrupts this function and not a leg, and
    chains stay intact.  Ctrl-C returns the draws made so far unless a checkpoint has them.
    """
    kept = how.kept()
    saved = time.perf_counter()
    pause = how.checkpoint_seconds
    try:
        with plain_interrupts(), ThreadPoolExecutor(how.threads) as pool:
            while unfinished := [chain for chain in chains if chain.n_sweeps < how.draws]:
                list(pool.map(lambda chain: chain.advance(how.draws, kept), unfinished))
                _report(chains, how, begun)
                if store is not None and time.perf_counter() - saved > pause:
                    before = time.perf_counter()
                    store.write(chains)
                    saved = time.perf_counter()
                    # A large file is written less often, so that writing stays a small part.
                    pause = max(how.checkpoint_seconds, 20.0 * (saved - before))
    except KeyboardInterrupt:
        if store is not None:
            store.write(chains)
        if store is not None or not kept[: min(chain.n_sweeps for chain in chains)].any():
            raise
    if store is not None:
        store.write(chains)


def _run_in_processes(
    chains: list[Chain], how: RunOptions, store: Checkpoint | None, begun: float
) -> None:
    """Run each chain to its end in a process of joblib; keep each when it returns."""
    kept = how.kept()
    ended = Parallel(return_as="generator")(delayed(_ended)(chain, kept) for chain in chains)
    for number, chain in enumerate(ended):
        chains[number] = chain
        _report(chains[: number + 1], how, begun)
        if store is not None:
            store.write(chains)


def _ended(chain: Chain, kept: Any) -> Chain:
    while chain.n_sweeps < len(kept):
        chain.advance(len(kept), kept)
    return chain


def _report(chains: list[Chain], how: RunOptions, begun: float) -> None:
    """Call the callback with the best of the current states of the chains."""
    if how.callback is None:
        return
    latest = [(c.records["log_joint"][-1][-1], c.records["n_clusters"][-1][-1]) for c in chains]
    log_joint, n_clusters = max(latest, key=lambda values: float(values[0]))
    done = sum(chain.n_sweeps for chain in chains)
    seconds, total = clock() - begun, how.draws * how.chains
    how.callback(Event(seconds, float(log_joint), int(n_clusters), "sample", done, total))
