"""Computing values once, in threads, and so that Ctrl-C leaves nothing half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

Tell = Callable[[str], None]
# A state to look at from time to time: raises when the work is to be given up.
Check = Callable[[], None]


class Lazily(Generic[Made]):
    """A value that is computed at its first use, by one thread only."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made: list[Made] = []
        self._lock = threading.Lock()

    def __call__(self) -> Made:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
        return self._made[0]


@contextlib.contextmanager
def whole_or_nothing() -> Iterator[None]:
    """Let Ctrl-C end the block with KeyboardInterrupt, even if a solver in it handles Ctrl-C.

    On Ctrl-C, refinement and certificates return their best result so far, which is
    no result to keep.  Threads other than the main one never see Ctrl-C.
    """
    usual = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or usual is not signal.default_int_handler:
        yield
        return
    heard = threading.Event()

    def hear(number: int, frame: Any) -> None:
        heard.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if heard.is_set():
        raise KeyboardInterrupt


def in_threads(
    function: Callable[[Item, Check], Made], items: Sequence[Item], n_jobs: int
) -> list[Made]:
    """Map in threads.  On Ctrl-C or an error, running calls are notified and no more are begun."""
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
