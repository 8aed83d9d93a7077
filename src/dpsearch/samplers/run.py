"""Running chains: starts, threads, progress, checkpoints; what `gibbs` and `split_merge` share."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._types import Ints
from dpsearch._validate import as_rng, n_threads
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.objective import Problem, Progress
from dpsearch.priors import DirichletProcess, Gamma
from dpsearch.samplers import checkpoint as files
from dpsearch.samplers.chain import RANDOM_ITEMS, SHUFFLED, SYSTEMATIC, Chain, Plan
from dpsearch.samplers.draws import Draws, collect
from dpsearch.samplers.hyperparameters import Hyperparameters
from dpsearch.samplers.start import starting_labels

SCANS = {"systematic": SYSTEMATIC, "shuffled": SHUFFLED, "random": RANDOM_ITEMS}
ALPHAS = ("integrate", "sample")
SampleCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Settings:
    """How chains are run; all but `draws` decide what they visit."""

    sampler: str
    draws: int
    burn_in: int
    thin: int
    chains: int
    moves: int
    rule: int
    scans: int
    gibbs: bool
    scan: str
    alpha: str
    spreads: tuple[tuple[str, float], ...]

    def plan(self, problem: Problem) -> Plan:
        gamma = getattr(problem.prior, "alpha", None)
        sampled = self.alpha == "sample" and isinstance(gamma, Gamma)
        shape, rate = (gamma.shape, gamma.rate) if isinstance(gamma, Gamma) else (1.0, 1.0)
        return Plan(
            self.moves, self.rule, self.scans, self.gibbs, SCANS[self.scan], sampled,
            float(shape), float(rate),
        )  # fmt: skip

    def kept(self) -> Any:
        """Which sweeps are kept: every `thin`-th after burn-in."""
        sweeps = np.arange(1, self.draws + 1)
        return (sweeps > self.burn_in) & ((sweeps - self.burn_in) % self.thin == 0)


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
    callback: SampleCallback | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
) -> Draws:
    """Run chains on a problem that is compiled already; see `gibbs` for the parameters."""
    begun = time.perf_counter()
    spreads = tuple((str(name), float(s)) for name, s in dict(hyperparameters or {}).items())
    settings = Settings(
        sampler, draws, burn_in, thin, chains, moves, rule, scans, gibbs, scan, alpha, spreads
    )
    _check(problem, settings, checkpoint_seconds)
    threads = min(n_threads(n_jobs), chains)
    store = None
    if checkpoint is not None:
        store = files.Checkpoint(Path(checkpoint), problem, settings, rng)
    if store is not None and store.path.exists():
        if not resume:
            raise ParameterError(
                f"{store.path} exists: resume=True goes on from it; otherwise name another file"
            )
        running = store.read(settings)
    else:
        running = _new_chains(problem, settings, start, rng)
    _run(running, settings, threads, callback, store, checkpoint_seconds)
    return collect(problem, running, settings, time.perf_counter() - begun)


def _new_chains(problem: Problem, settings: Settings, start: Any, rng: Any) -> list[Chain]:
    # Each chain has random numbers of its own, whatever the kind of Generator given.
    entropy = as_rng(rng).integers(2**32, size=8).tolist()
    out = []
    for number, seed in enumerate(np.random.SeedSequence(entropy).spawn(settings.chains)):
        generator = np.random.Generator(np.random.PCG64(seed))
        labels = starting_labels(problem, start, number, generator)
        out.append(new_chain(problem, settings, labels, generator))
    return out


def new_chain(
    problem: Problem, settings: Settings, labels: Ints, rng: np.random.Generator
) -> Chain:
    sampled = Hyperparameters(problem, dict(settings.spreads)) if settings.spreads else None
    return Chain(problem, labels, settings.plan(problem), rng, sampled)


def _run(
    chains: list[Chain],
    settings: Settings,
    threads: int,
    callback: SampleCallback | None,
    store: files.Checkpoint | None,
    checkpoint_seconds: float,
) -> None:
    """Advance all chains leg by leg.

    Legs run in threads also when there is one only: Ctrl-C then reaches this function and not the
    middle of a leg, and chains stay whole.
    """
    kept = settings.kept()
    saved = time.perf_counter()
    pause = checkpoint_seconds
    pool = ThreadPoolExecutor(threads)
    try:
        while any(chain.n_sweeps < settings.draws for chain in chains):
            unfinished = [chain for chain in chains if chain.n_sweeps < settings.draws]
            list(pool.map(lambda chain: chain.advance(settings.draws, kept), unfinished))
            if callback is not None:
                callback(_progress(chains, settings))
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


def _progress(chains: list[Chain], settings: Settings) -> Progress:
    done = sum(chain.n_sweeps for chain in chains)
    best = max(chains, key=lambda chain: float(chain.records.log_joint[-1][-1]))
    return Progress(
        done=done,
        total=settings.draws * len(chains),
        n_clusters=int(best.records.n_clusters[-1][-1]),
        log_joint=float(best.records.log_joint[-1][-1]),
    )


def _check(problem: Problem, settings: Settings, checkpoint_seconds: float) -> None:
    if not problem.prior.product_form:
        raise CapabilityError(
            f"samplers need a prior over partitions of product form; {problem.prior.name} is not:"
            " use DirichletProcess"
        )
    for name, least in (
        ("draws", 1), ("burn_in", 0), ("thin", 1), ("chains", 1), ("moves", 0), ("scans", 0),
    ):  # fmt: skip
        value = getattr(settings, name)
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or value < least:
            raise ParameterError(f"{name} must be a whole number ≥ {least}, got {value!r}")
    if settings.burn_in + settings.thin > settings.draws:
        raise ParameterError(
            f"burn_in {settings.burn_in} and thin {settings.thin} leave nothing of"
            f" {settings.draws} draws: draws counts all sweeps, burn-in included"
        )
    if settings.scan not in SCANS:
        raise ParameterError(f"unknown scan {settings.scan!r}: known are {', '.join(SCANS)}")
    if settings.alpha not in ALPHAS:
        raise ParameterError(f"alpha must be one of {', '.join(ALPHAS)}, got {settings.alpha!r}")
    prior = problem.prior
    has_gamma = isinstance(prior, DirichletProcess) and isinstance(prior.alpha, Gamma)
    if settings.alpha == "sample" and not has_gamma:
        raise ParameterError(
            "alpha='sample' needs a prior on α: DirichletProcess(Gamma(shape, rate))"
        )
    if not (isinstance(checkpoint_seconds, numbers.Real) and checkpoint_seconds >= 0):
        raise ParameterError(f"checkpoint_seconds must be ≥ 0, got {checkpoint_seconds!r}")
