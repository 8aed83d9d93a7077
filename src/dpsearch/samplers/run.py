"""Running chains: starts, threads, progress, checkpoints; what `gibbs` and `split_merge` share."""

from __future__ import annotations

import numbers
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from dpsearch._validate import as_rng, n_threads
from dpsearch.errors import ParameterError
from dpsearch.events import Callback, Event
from dpsearch.problem import Problem
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.checkpoint import Checkpoint
from dpsearch.samplers.draws import Draws, collect
from dpsearch.samplers.hyperparameters import checked_spreads
from dpsearch.samplers.settings import Settings, checked, new_chain
from dpsearch.samplers.start import name_of_start, starting_labels


def sample_problem(
    problem: Problem,
    *,
    sampler: str,
    draws: int,
    burn_in: int = 0,
    thin: int = 1,
    chains: int = 1,
    start: Any = "search",
    scan: str = "systematic",
    alpha: str = "integrate",
    hyperparameters: Mapping[str, float] | None = None,
    moves: int = 0,
    rule: int = 0,
    scans: int = 0,
    gibbs: bool = True,
    n_jobs: int | None = None,
    rng: Any = None,
    callback: Callback | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
) -> Draws:
    """Run chains on a problem that is compiled already; see `gibbs` for the parameters."""
    begun = time.perf_counter()
    spreads: tuple[tuple[str, float], ...] = ()
    if hyperparameters is not None:
        spreads = tuple(checked_spreads(problem, hyperparameters).items())
    settings = checked(
        problem,
        Settings(
            sampler, draws, burn_in, thin, chains, moves, rule, scans, gibbs, scan,
            name_of_start(start), alpha, spreads,
        ),
    )  # fmt: skip
    if not (isinstance(checkpoint_seconds, numbers.Real) and float(checkpoint_seconds) >= 0):
        raise ParameterError(f"checkpoint_seconds must be ≥ 0, got {checkpoint_seconds!r}")
    threads = min(n_threads(n_jobs), settings.chains)
    store = None
    if checkpoint is not None:
        store = Checkpoint(Path(checkpoint), problem, settings, rng)
    if store is not None and store.path.exists():
        if not resume:
            raise ParameterError(
                f"{store.path} exists: resume=True goes on from it; otherwise name another file"
            )
        running = store.read(settings)
    else:
        running = _new_chains(problem, settings, start, rng, threads)
    before = 0.0 if store is None else store.seconds
    if _elsewhere():
        _run_elsewhere(running, settings, callback, store)
    else:
        _run(running, settings, threads, callback, store, checkpoint_seconds)
    return collect(problem, running, settings, before + time.perf_counter() - begun)


def _new_chains(
    problem: Problem, settings: Settings, start: Any, rng: Any, threads: int
) -> list[Chain]:
    # Each chain has random numbers of its own, whatever the kind of Generator given.
    entropy = as_rng(rng).integers(2**32, size=8).tolist()
    seeds = np.random.SeedSequence(entropy).spawn(settings.chains)

    def begin(number: int) -> Chain:
        generator = np.random.Generator(np.random.PCG64(seeds[number]))
        labels = starting_labels(problem, start, number, generator)
        return new_chain(problem, settings, labels, generator)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(settings.chains)))


def _run(
    chains: list[Chain],
    settings: Settings,
    threads: int,
    callback: Callback | None,
    store: Checkpoint | None,
    checkpoint_seconds: float,
) -> None:
    """Advance all chains leg by leg.

    Legs run in threads also when there is one only: Ctrl-C then reaches this function and not the
    middle of a leg, and chains stay whole.
    """
    kept = settings.kept()
    begun = saved = time.perf_counter()
    pause = checkpoint_seconds
    pool = ThreadPoolExecutor(threads)
    try:
        while any(chain.n_sweeps < settings.draws for chain in chains):
            unfinished = [chain for chain in chains if chain.n_sweeps < settings.draws]
            list(pool.map(lambda chain: chain.advance(settings.draws, kept), unfinished))
            if callback is not None:
                callback(_event(chains, settings, begun))
            if store is not None and time.perf_counter() - saved > pause:
                before = time.perf_counter()
                store.write(chains)
                saved = time.perf_counter()
                # A large file is written less often, so that writing stays a small part.
                pause = max(checkpoint_seconds, 20.0 * (saved - before))
    except KeyboardInterrupt:
        pool.shutdown(wait=True, cancel_futures=True)
        if store is not None:
            store.write(chains)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if store is not None:
        store.write(chains)


def _elsewhere() -> bool:
    """Whether joblib was told to work in other processes, such as those of a Dask cluster."""
    backend, _ = get_active_backend(prefer="threads")
    return not getattr(backend, "supports_sharedmem", False)


def _run_elsewhere(
    chains: list[Chain],
    settings: Settings,
    callback: Callback | None,
    store: Checkpoint | None,
) -> None:
    """Have each chain run to its end where joblib says; they are kept as they come back."""
    begun = time.perf_counter()
    ended = Parallel(return_as="generator")(delayed(_ended)(chain, settings) for chain in chains)
    for number, chain in enumerate(ended):
        chains[number] = chain
        if callback is not None:
            callback(_event(chains[: number + 1], settings, begun))
        if store is not None:
            store.write(chains)


def _ended(chain: Chain, settings: Settings) -> Chain:
    kept = settings.kept()
    while chain.n_sweeps < settings.draws:
        chain.advance(settings.draws, kept)
    return chain


def _event(chains: list[Chain], settings: Settings, begun: float) -> Event:
    best = max(chains, key=lambda chain: float(chain.records.log_joint[-1][-1]))
    return Event(
        time.perf_counter() - begun,
        float(best.records.log_joint[-1][-1]),
        int(best.records.n_clusters[-1][-1]),
        "sample",
        sum(chain.n_sweeps for chain in chains),
        settings.draws * settings.chains,
    )
