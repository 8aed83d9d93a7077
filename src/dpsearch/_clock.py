"""The clock for time limits and reports of solvers, which stands still during compilation."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from numba.core import event


class _Compilation(event.Listener):  # type: ignore[misc]
    """The time spent on compilation in any thread since this module was imported."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0  # of nested compilations
        self._begun = 0.0
        self._spent = 0.0

    def on_start(self, event: Any) -> None:
        with self._lock:
            if self._depth == 0:
                self._begun = time.perf_counter()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        with self._lock:
            if self._depth == 0:  # it began before this module was imported
                return
            self._depth -= 1
            if self._depth == 0:
                self._spent += time.perf_counter() - self._begun

    def without(self) -> float:
        with self._lock:
            now = self._begun if self._depth else time.perf_counter()
            return now - self._spent


_COMPILATION = _Compilation()
event.register("numba:compile", _COMPILATION)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Let the clock stand still during a compilation that Numba does not announce by an event."""
    _COMPILATION.on_start(None)
    try:
        yield
    finally:
        _COMPILATION.on_end(None)


def clock() -> float:
    """Return seconds like `time.perf_counter`, without the time spent on compilation."""
    return _COMPILATION.without()
