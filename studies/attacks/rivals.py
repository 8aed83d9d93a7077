"""Two processes that write to one place at the same time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from studies.attacks.arena import failures, names, trials
from studies.attacks.inject import ended, start
from studies.attacks.record import Outcome
from studies.attacks.victims import command

_QUICK = ("--refine", "no", "--family", "gaussian", "--quiet")


def rivals(count: int, seed: int) -> Outcome:
    """Run two fits into one folder: with --force one of them is there, without it the first."""
    begun, rng, failed = time.perf_counter(), np.random.default_rng(seed), 0
    for trial in trials("fit"):
        for number in range(count):
            force = bool(number % 2)
            delay = float(rng.uniform(0.0, 0.3 * trial.seconds))
            with trial.folder() as folder:
                failed += failures(
                    lambda f=folder, o=force, d=delay: _both(f, o, d),  # type: ignore[misc]
                    f"two fits, {'--force' if force else 'none forced'}, {delay:.3f} s apart",
                )
    what = "two fits into one folder at the same time, with and without --force"
    return Outcome("rivals", what, count, failed, time.perf_counter() - begun)


def _both(folder: Path, force: bool, delay: float) -> None:
    more = ("--force",) if force else ()

    def fit(seed: int) -> None:
        command(folder, "fit", "x.csv", "--out", "out", "--seed", seed, *more, *_QUICK)

    children = [start(lambda: fit(1))]
    time.sleep(delay)
    children.append(start(lambda: fit(2)))
    codes = [ended(child) for child in children]
    assert codes == [0, 0] if force else sorted(codes) == [0, 1], codes
    from studies.attacks.victims import _results

    found = _results(folder)
    assert found["seed"] in (("1", "2") if force else (str(codes.index(0) + 1),)), found
    files = ["clusters.csv", "labels.csv", "model.npz", "run.json"]
    want = ["out", *(f"out/{name}" for name in files), "x.csv"]
    assert names(folder) == want, names(folder)
