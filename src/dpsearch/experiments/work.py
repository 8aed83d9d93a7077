"""Doing things once, in threads, for a time, and so that Ctrl-C leaves nothing half done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Generic, TypeVar

from dpsearch._types import Labels
from dpsearch.objective import Clustering, Problem
from dpsearch.refinement import refine_problem

Item = TypeVar("Item")
Made = TypeVar("Made")

# A state to look at from time to time: raises when the work is to be given up.
Check = Callable[[], None]


class Lazily(Generic[Made]):
    """Something that is made when first asked for, by one thread only."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: list[Made] = []
        self._lock = threading.Lock()

    def __call__(self) -> Made:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
        return self._made[0]


def in_threads(
    function: Callable[[Item, Check], Made], items: Sequence[Item], n_jobs: int
) -> list[Made]:
    """Map in threads.  On Ctrl-C or an error those that run are told, and no more are begun."""
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise CancelledError

    pool = ThreadPoolExecutor(n_jobs)
    try:
        return list(pool.map(lambda item: function(item, check), items))
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def refine_for(
    problem: Problem, labels: Labels, seconds: float, *, seed: int, n_jobs: int
) -> Clustering:
    """Refine for a time; Ctrl-C is passed on, since what it leaves is not a result to keep."""
    result = refine_problem(problem, labels, seconds=seconds, rng=seed, n_jobs=n_jobs)
    if not result.converged and result.seconds < seconds:
        raise KeyboardInterrupt
    return result
