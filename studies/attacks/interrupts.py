"""Ctrl-C before any line, and real ones at any moment; interrupted calls are repeated."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dpsearch import DPMixture, gibbs
from dpsearch.samplers import chain
from studies.attacks.arena import failures, warm_up
from studies.attacks.inject import ended, in_child, interrupted_at, start
from studies.attacks.record import Outcome
from studies.attacks.victims import BATCH, GAUSSIAN, N_BATCHES, PRIOR, rows


def interrupts(count: int, seed: int) -> Outcome:
    """Interrupt a second fit, a batch of partial_fit and a sampler, and go on."""
    begun, rng, failed = time.perf_counter(), np.random.default_rng(seed), 0
    warm_up()
    before, short = chain._LEG_NUMBERS, 20_000
    chain._LEG_NUMBERS = short
    try:
        kinds = [_second_fit(), _batch(), _chains()]
        for number in range(count):
            if number % 4 == 3:
                failed += failures(lambda: _signalled(rng), "real Ctrl-C in a stream of batches")
                continue
            lines, attempt = kinds[number % 4]
            at = int(rng.integers(1, lines + 1))
            about = f"{attempt.__name__} interrupted at line {at} of {lines}"
            failed += failures(lambda f=attempt, a=at: f(a), about)  # type: ignore[misc]
    finally:
        chain._LEG_NUMBERS = before
    what = (
        "KeyboardInterrupt before a random line of a second fit, of a batch of partial_fit and of"
        " gibbs with a checkpoint, and SIGINT at random moments of a stream of batches; the"
        " interrupted work is then repeated"
    )
    return Outcome("interrupts", what, count, failed, time.perf_counter() - begun)


def _told(model: Any) -> tuple[Any, ...]:
    mixture = model.mixture_
    return (mixture.pool.tobytes(), mixture.sizes.tobytes(), model.log_joint_, model.n_features_in_)


def _second_fit() -> tuple[int, Any]:
    X = rows()
    model = DPMixture(GAUSSIAN, 1.0, refine=False, random_state=0)
    model.fit(X[:, :1])
    with interrupted_at() as moments:
        model.fit(X[:, :1])
    new = _told(model)
    old = _told(model.fit(X))

    def second_fit(at: int) -> None:
        model.fit(X)
        try:
            with interrupted_at(at):
                model.fit(X[:, :1])
        except KeyboardInterrupt:
            assert _told(model) in (old, new)
            model.predict(X[:5, : model.n_features_in_])
        assert _told(model.fit(X[:, :1])) == new

    return moments.count, second_fit


def _batch() -> tuple[int, Any]:
    X = rows()
    model = DPMixture(GAUSSIAN, 1.0, refine=False, random_state=0).partial_fit(X[:BATCH])
    begun, old = pickle.dumps(model), _told(model)
    with interrupted_at() as moments:
        model.partial_fit(X[BATCH:])
    new = _told(model)

    def batch(at: int) -> None:
        again = pickle.loads(begun)
        try:
            with interrupted_at(at):
                again.partial_fit(X[BATCH:])
        except KeyboardInterrupt:
            assert _told(again) in (old, new)
            if _told(again) == old:
                again.partial_fit(X[BATCH:])
        assert _told(again) == new

    return moments.count, batch


def _chains() -> tuple[int, Any]:
    X = rows()[:100]
    how: dict[str, Any] = {"draws": 200, "chains": 2, "rng": 0, "n_jobs": 1}
    with interrupted_at() as moments, TemporaryDirectory() as folder:
        want = gibbs(X, GAUSSIAN, PRIOR, checkpoint=Path(folder) / "c", checkpoint_seconds=0, **how)

    def chains(at: int) -> None:
        with TemporaryDirectory() as folder:
            again: dict[str, Any] = {"checkpoint": Path(folder) / "c", "checkpoint_seconds": 0}
            try:
                with interrupted_at(at):
                    draws = gibbs(X, GAUSSIAN, PRIOR, **again, **how)
            except KeyboardInterrupt:
                draws = gibbs(X, GAUSSIAN, PRIOR, resume=True, **again, **how)
            assert np.array_equal(draws.labels, want.labels)
            assert np.array_equal(draws.log_joint, want.log_joint)

    return moments.count, chains


def _signalled(rng: Any) -> None:
    """Stream batches, repeating each that Ctrl-C stopped; every batch must count once."""
    X = rows()

    def stream() -> None:
        model, begin = DPMixture(GAUSSIAN, 1.0, refine=False, random_state=0), 0
        while begin < len(X):
            with contextlib.suppress(KeyboardInterrupt):
                model.partial_fit(X[begin : begin + BATCH])
            seen = int(model.mixture_.sizes.sum()) if hasattr(model, "mixture_") else 0
            assert seen in (begin, begin + BATCH), (seen, begin)
            begin = seen
        assert int(model.mixture_.sizes.sum()) == BATCH * N_BATCHES

    begun = time.perf_counter()
    assert in_child(stream) == 0
    seconds = time.perf_counter() - begun
    child = start(stream)
    time.sleep(float(rng.uniform(0.3, 0.9)) * seconds)
    os.kill(child, signal.SIGINT)
    code = ended(child)
    assert code == 0, f"exit code {code}"
