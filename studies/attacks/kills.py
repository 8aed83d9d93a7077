"""kill -9 at random moments of everything that writes."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial

import numpy as np

from studies.attacks.arena import Trial, failures, trials
from studies.attacks.inject import Death, ended, in_child, start
from studies.attacks.record import Outcome
from studies.attacks.victims import VICTIMS


def kills(count: int, seed: int) -> Outcome:
    """Kill each victim a number of times; then look, and do its work again."""
    begun, rng, tried, failed = time.perf_counter(), np.random.default_rng(seed), 0, 0
    for number, trial in enumerate(trials()):
        n_writes = trial.n_writes()
        for _ in range(count * (number + 1) // len(VICTIMS) - count * number // len(VICTIMS)):
            tried += 1
            if tried % 2:
                delay = float(rng.uniform(0.0, 1.05 * trial.seconds))
                about = f"killed after {delay:.4f} of {trial.seconds:.4f} s"
                attempt = partial(_killed, trial, delay)
            else:
                at, delay = int(rng.integers(1, n_writes + 1)), float(10 ** rng.uniform(-6, -2))
                about = f"killed {delay:.6f} s after write {at} of {n_writes}"
                attempt = partial(_killed_writing, trial, at, delay)
            failed += failures(attempt, f"{trial.victim.name} {about}")
    what = (
        "SIGKILL at a random moment or, in every other case, an unhandled SIGALRM within 10 ms of"
        " a random write, during fit, fit --force, fit with a report, predict, partial_fit with"
        " save, gibbs and shards with checkpoints, and every writer; then the same work again"
    )
    return Outcome("kills", what, tried, failed, time.perf_counter() - begun)


def _killed(trial: Trial, delay: float) -> None:
    with trial.folder() as folder:
        child = start(lambda: trial.victim.work(folder))
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        ended(child)
        trial.judge(folder)


def _killed_writing(trial: Trial, at: int, seconds: float) -> None:
    with trial.folder() as folder:

        def work() -> None:
            sys.addaudithook(Death(folder, at, seconds))
            trial.victim.work(folder)

        code = in_child(work)
        assert code in (0, -signal.SIGALRM), f"exit code {code}"
        trial.judge(folder)
