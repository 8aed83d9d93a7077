"""Running chains of any moves: threads, other processes, progress and checkpoints."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from dpsearch._validate import as_rng
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.events import Callback, Event
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.checkpoint import Checkpoint
from dpsearch.samplers.draws import Draws, collect
from dpsearch.samplers.hyperparameters import HyperparameterUpdate
from dpsearch.samplers.moves import AlphaUpdate, Move
from dpsearch.samplers.options import RunOptions, starting_labels

ALPHAS = ("integrate", "sample")


def sample(
    problem: Problem,
    moves: Sequence[Move],
    *,
    name: str = "sample",
    alpha: str = "integrate",
    hyperparameters: Mapping[str, float] | None = None,
    **options: Any,
) -> Draws:
    """Draw partitions from the posterior by sweeps that make these moves.

    Parameters
    ----------
    problem
        Data under a family and a prior of product form.
    moves
        What a sweep does: `GibbsSweep`, `SplitMerge`, and others.
    name
        What the sampler is called in the draws.
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
    begun = time.perf_counter()
    unknown = set(options) - {field.name for field in dataclasses.fields(RunOptions)}
    if unknown:
        raise TypeError(f"{name} got an unexpected argument {min(unknown)!r}")
    how = RunOptions(**options)
    if alpha not in ALPHAS:
        raise ParameterError(f"alpha must be one of {', '.join(ALPHAS)}, got {alpha!r}")
    moves = [*moves]
    if alpha == "sample":
        moves.append(AlphaUpdate())
    if hyperparameters is not None:
        moves.append(HyperparameterUpdate(hyperparameters))
    check_moves(problem, moves)
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
    if _in_other_processes():
        _run_in_other_processes(chains, how, store)
    else:
        _run(chains, how, store)
    return collect(problem, chains, name, how, before + time.perf_counter() - begun)


def check_moves(problem: Problem, moves: Iterable[Move]) -> None:
    """Raise unless chains of these moves can sample the problem."""
    if not problem.prior.product_form:
        raise CapabilityError(
            f"samplers need a prior over partitions of product form; {problem.prior.name} is not:"
            " use DirichletProcess"
        )
    for move in moves:
        move.check(problem)


def _new_chains(problem: Problem, moves: Sequence[Move], how: RunOptions) -> list[Chain]:
    # Each chain has random numbers of its own, whatever the kind of Generator given.
    entropy = as_rng(how.rng).integers(2**32, size=8).tolist()
    seeds = np.random.SeedSequence(entropy).spawn(how.chains)

    def begin(number: int) -> Chain:
        generator = np.random.Generator(np.random.PCG64(seeds[number]))
        labels = starting_labels(problem, how.start, number, generator)
        return Chain(problem, labels, moves, generator)

    with ThreadPoolExecutor(how.threads) as pool:
        return list(pool.map(begin, range(how.chains)))


def _run(chains: list[Chain], how: RunOptions, store: Checkpoint | None) -> None:
    """Advance all chains leg by leg.

    Legs run in threads also when there is one only: Ctrl-C then reaches this function and not the
    middle of a leg, and chains stay intact.
    """
    kept = how.kept()
    begun = saved = time.perf_counter()
    pause = how.checkpoint_seconds
    pool = ThreadPoolExecutor(how.threads)
    try:
        while unfinished := [chain for chain in chains if chain.n_sweeps < how.draws]:
            list(pool.map(lambda chain: chain.advance(how.draws, kept), unfinished))
            _report(how.callback, chains, how, begun)
            if store is not None and time.perf_counter() - saved > pause:
                before = time.perf_counter()
                store.write(chains)
                saved = time.perf_counter()
                # A large file is written less often, so that writing stays a small part.
                pause = max(how.checkpoint_seconds, 20.0 * (saved - before))
    except KeyboardInterrupt:
        pool.shutdown(wait=True, cancel_futures=True)
        if store is not None:
            store.write(chains)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if store is not None:
        store.write(chains)


def _in_other_processes() -> bool:
    """Whether joblib is set to work in other processes, such as those of a Dask cluster."""
    backend, _ = get_active_backend(prefer="threads")
    return not getattr(backend, "supports_sharedmem", False)


def _run_in_other_processes(chains: list[Chain], how: RunOptions, store: Checkpoint | None) -> None:
    """Run each chain to its end in a process of joblib's; keep each as it comes back."""
    begun, kept = time.perf_counter(), how.kept()
    ended = Parallel(return_as="generator")(delayed(_ended)(chain, kept) for chain in chains)
    for number, chain in enumerate(ended):
        chains[number] = chain
        _report(how.callback, chains[: number + 1], how, begun)
        if store is not None:
            store.write(chains)


def _ended(chain: Chain, kept: Any) -> Chain:
    while chain.n_sweeps < len(kept):
        chain.advance(len(kept), kept)
    return chain


def _report(callback: Callback | None, chains: list[Chain], how: RunOptions, begun: float) -> None:
    if callback is None:
        return
    best = max(chains, key=lambda chain: float(chain.records.log_joint[-1][-1]))
    callback(
        Event(
            time.perf_counter() - begun,
            float(best.records.log_joint[-1][-1]),
            int(best.records.n_clusters[-1][-1]),
            "sample",
            sum(chain.n_sweeps for chain in chains),
            how.draws * how.chains,
        )
    )
