"""Too little memory, and clocks that jump."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpsearch import refine
from studies.attacks.arena import Trial, failures, trials
from studies.attacks.inject import in_child
from studies.attacks.record import Outcome
from studies.attacks.victims import GAUSSIAN, PRIOR, VICTIMS, rows

_PATIENCE = 20  # seconds for a process that has too little memory


def memory(count: int, seed: int) -> Outcome:
    """Give the work of each victim little more memory than the process has already."""
    begun, rng, tried, failed = time.perf_counter(), np.random.default_rng(seed), 0, 0
    share = -(-count // len(VICTIMS))
    for trial in trials():
        for _ in range(min(share, count - tried)):
            tried += 1
            more = int(2 ** rng.uniform(16, 29))
            failed += failures(
                lambda t=trial, m=more: _starved(t, m),  # type: ignore[misc]
                f"{trial.victim.name} with {more / 1e6:.1f} MB more",
            )
    what = (
        "the work with only 64 KB to 512 MB more address space than the process has at the"
        " beginning (RLIMIT_AS); then the same work again"
    )
    return Outcome("memory", what, tried, failed, time.perf_counter() - begun)


def _starved(trial: Trial, more: int) -> None:
    with trial.folder() as folder:

        def work() -> None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + more
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            signal.alarm(_PATIENCE)  # which ends the process: libraries may wait for ever
            trial.victim.work(folder)

        in_child(work)  # it may die of it: what counts is what it leaves
        trial.judge(folder)


def clocks(count: int, seed: int) -> Outcome:
    """Let the clocks jump while the work goes on: the time of day both ways, others forward."""
    begun, rng, tried, failed = time.perf_counter(), np.random.default_rng(seed), 0, 0
    share = -(-count // (len(VICTIMS) + 1))
    for trial in trials():
        for _ in range(min(share, count - tried)):
            tried += 1
            own = int(rng.integers(2**31))
            failed += failures(
                lambda t=trial, s=own: _in_odd_time(t, s),  # type: ignore[misc]
                f"{trial.victim.name} with clocks that jump, seed {own}",
            )
    while tried < count:
        tried += 1
        own = int(rng.integers(2**31))
        failed += failures(lambda s=own: _limited(s), f"a time limit, seed {own}")  # type: ignore[misc]
    what = (
        "the same work while the time of day jumps by up to a year in both directions, and other"
        " clocks forward by up to an hour; also refinement with a time limit"
    )
    return Outcome("clocks", what, tried, failed, time.perf_counter() - begun)


def _jumping(seed: int) -> None:
    """Patch the clocks of this process."""
    rng = np.random.default_rng(seed)
    ahead = 0.0

    def forward(clock: Callable[[], float]) -> Callable[[], float]:
        def now() -> float:
            nonlocal ahead
            if rng.random() < 0.1:
                ahead += float(rng.uniform(0.0, 3600.0))
            return clock() + ahead

        return now

    day = time.time
    time.time = lambda: day() + float(rng.normal(0.0, 1e7))
    time.perf_counter, time.monotonic = forward(time.perf_counter), forward(time.monotonic)


def _in_odd_time(trial: Trial, seed: int) -> None:
    with trial.folder() as folder:

        def work() -> None:
            _jumping(seed)
            trial.victim.work(folder)

        code = in_child(work)
        assert code == 0, f"exit code {code}"
        found = trial.victim.state(folder)
        assert found == trial.at_last, f"another result: {found}"


def _limited(seed: int) -> None:
    def work() -> None:
        X = rows(seed % 100)
        _jumping(seed)
        found = refine(X, np.zeros(len(X)), GAUSSIAN, PRIOR, rng=0, seconds=0.5)
        assert np.isfinite(found.log_joint)
        assert len(found.labels) == len(X)

    assert in_child(work) == 0
