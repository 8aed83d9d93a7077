"""A full disk, a lost permission, or a file that may not grow, at any write."""

from __future__ import annotations

import errno
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from studies.attacks.arena import Trial, failures, names, trials
from studies.attacks.inject import BUG, Refusals, in_child
from studies.attacks.record import Outcome
from studies.attacks.victims import VICTIMS

_ERRORS = (errno.ENOSPC, errno.EACCES, errno.EIO)


def refusals(count: int, seed: int) -> Outcome:
    """Let the system refuse one write of each victim, or all from one on, or to grow a file."""
    begun, rng, tried, failed = time.perf_counter(), np.random.default_rng(seed), 0, 0
    share = -(-count // len(VICTIMS))
    for trial in trials():
        n_writes = trial.n_writes()
        for i in range(min(share, count - tried)):
            tried += 1
            limit = int(rng.integers(1, 30_000)) if i % 3 == 2 else None
            at = int(rng.integers(1, n_writes + 1))
            error, lasting = int(rng.choice(_ERRORS)), bool(rng.integers(2))
            about = f"{errno.errorcode[error]} at write {at}, {'lasting' if lasting else 'once'}"
            if limit is not None:
                about = f"no file above {limit} bytes"
            failed += failures(
                lambda t=trial, a=at, e=error, s=lasting, b=limit: _refused(t, a, e, s, b),  # type: ignore[misc]
                f"{trial.victim.name} with {about}",
            )
    what = (
        "ENOSPC, EACCES or EIO from one write during the same work, or also from all later writes,"
        " or a limit on the size of files; then the same work again"
    )
    return Outcome("refusals", what, tried, failed, time.perf_counter() - begun)


def _refused(trial: Trial, at: int, error: int, lasting: bool, limit: int | None) -> None:
    with trial.folder() as folder:
        hook: Any = Refusals(folder, at, error, lasting)

        def work() -> None:
            if limit is None:
                sys.addaudithook(hook)
            else:
                most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
            trial.victim.work(folder)

        log = folder.with_name(folder.name + ".log")
        code = in_child(work, log)
        text = log.read_text(errors="replace")
        os.unlink(log)
        assert code != BUG, f"called a bug: {text[-2000:]}"
        assert code in (0, 1), f"exit code {code}: {text[-2000:]}"
        if code and not (lasting and error == errno.EACCES):
            _nothing_left(trial, folder)
        trial.judge(folder)


def _nothing_left(trial: Trial, folder: Path) -> None:
    left = [name for name in names(folder) if name.endswith(".part")]
    assert not left, f"left behind: {left}"
