"""One attack in several processes, in rounds until their processor time is spent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context

import numpy as np

from studies.attacks.record import Outcome
from studies.say import say

Attack = Callable[[int, int], Outcome]


def in_rounds(attack: Attack, count: int, seeds: Sequence[int], minutes: float | None) -> Outcome:
    """Make an attack `count` times, or with `minutes` as often in each round until they are spent.

    Each round has its own seed, made of `seeds` and its number.
    """
    found: list[Outcome] = []
    while not found or (minutes is not None and _processor_time() < 60.0 * minutes):
        seed = int(np.random.SeedSequence([*seeds, len(found)]).generate_state(1)[0])
        found.append(attack(count, seed))
        if found[-1].tried < count or found[-1].failed:  # by Ctrl-C, or it is told already
            break
    return together(found)


def in_processes(
    attack: Attack, count: int, seed: int, processes: int, minutes: float | None
) -> Outcome:
    """Make an attack in several processes with different seeds, and add up the outcomes.

    They share `count` and `minutes`.  A process that dies counts as a broken promise.
    """
    shares = [-(-(count - number) // processes) for number in range(processes)]
    if minutes is not None:
        shares, minutes = [count] * processes, minutes / processes
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the processes
    try:
        with ExitStack() as stack:
            futures = []
            for number, share in enumerate(shares):
                if share == 0:
                    continue
                pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_listen)
                stack.enter_context(pool)
                futures.append(pool.submit(in_rounds, attack, share, [seed, number], minutes))
            found = []
            for number, future in enumerate(futures):
                try:
                    found.append(future.result())
                except BrokenProcessPool as error:
                    say(f"BROKEN: process {number} with seed {seed} died: {error}")
                    found.append(Outcome(attack.__name__, "", 1, 1, 0.0))
    finally:
        signal.signal(signal.SIGINT, before)
    return together(found)


def together(found: Sequence[Outcome]) -> Outcome:
    """Add up the outcomes of one attack."""
    named = max(found, key=lambda one: len(one.what))
    return named._replace(
        tried=sum(one.tried for one in found),
        failed=sum(one.failed for one in found),
        seconds=sum(one.seconds for one in found),
    )


def _listen() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _processor_time() -> float:
    """Return the processor time of this process and of the children that it waited for."""
    return sum(os.times()[:4])
