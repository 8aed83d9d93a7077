"""Ctrl-C and SIGTERM: a call that they stop returns its result so far, or ends if it has none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dpsearch._scratch import remove_all
from dpsearch.deadline import Deadline

_COMPILERS = ("llvmlite", "numba")  # which do not survive exceptions at arbitrary points
_WAIT = 0.02  # seconds
_AGAIN = 1.0  # seconds after which another signal counts as a second one
# Seconds of processor time and of real time until a process ends, without and with a result.
_AT_ONCE, _GRACE = (1.0, 1.0), (5.0, 30.0)
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

Handler = Callable[[int, FrameType | None], Any]

_stoppable: list[Deadline] = []  # the deadlines of the calls that signals stop, the innermost last
_announced: list[int] = []  # signals that were announced as ending the process


class Stopped(KeyboardInterrupt):
    """A signal came before there was a result, or a second time."""

    def __init__(self, number: int, phase: str) -> None:
        super().__init__(f"{_WORDS[signal.Signals(number)]} while {phase}: nothing was written")
        self.code = 128 + number


def outside_compilers(handler: Handler) -> Handler:
    """Return a handler that waits while the main thread runs LLVM's or Numba's own code."""

    def handle(number: int, frame: FrameType | None) -> None:
        if _is_in_compiler(frame):
            again = threading.Timer(_WAIT, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            handler(number, frame)

    return handle


def _is_in_compiler(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _COMPILERS:
            return True
        frame = frame.f_back
    return False


@contextmanager
def stopping(deadline: Deadline) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the call with a deadline; yield the signals that came.

    If there is a result, a signal is a deadline that has passed.  Before that, in an optional
    phase, and for a second signal, `Stopped` is raised.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    first = 0.0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal first
        deadline.stop()
        again = bool(came) and time.perf_counter() > first + _AGAIN
        first = first or time.perf_counter()
        came.append(number)
        if again or deadline.interruptible or not deadline.has_result:
            raise Stopped(number, deadline.stopped_in or "")

    before = {one: signal.signal(one, outside_compilers(handler)) for one in _WORDS}
    _stoppable.append(deadline)
    try:
        yield came
    finally:
        _stoppable.remove(deadline)
        for one, old in before.items():
            signal.signal(one, old)


def watch_signals() -> None:
    """Exit by an exception on SIGTERM, so that temporary files are removed, and soon in any case.

    The exception waits for the running kernel and for other threads.  So a thread that waits for
    signals ends the process after a while, and does the same for Ctrl-C within `stopping`.
    """
    signal.signal(signal.SIGTERM, outside_compilers(_exit))
    if os.name != "posix":
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # A forked child shares the pipe, but its signals are not meant for this process.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def wait() -> None:
        while True:
            number = os.read(reader, 1)[0]
            if number not in _WORDS or (number == signal.SIGINT and not _stoppable):
                continue
            now = tuple(_stoppable)
            for deadline in now:
                deadline.stop()
            kept = bool(now) and all(deadline.has_result for deadline in now)
            grace = _GRACE if kept else _AT_ONCE
            threading.Thread(target=_end, args=(number, now, *grace), daemon=True).start()

    threading.Thread(target=wait, daemon=True).start()


def _exit(number: int, frame: FrameType | None) -> None:
    _announce(number, ())
    raise SystemExit(128 + number)


def _announce(number: int, stopped: tuple[Deadline, ...]) -> None:
    """Print once that the process ends."""
    if not _announced:
        _announced.append(number)
        phase = next((one.stopped_in for one in reversed(stopped)), None)
        words = str(Stopped(number, phase)) if phase else _WORDS[signal.Signals(number)]
        os.write(2, f"dpsearch: {words}\n".encode())


def _end(number: int, stopped: tuple[Deadline, ...], processor: float, seconds: float) -> None:
    """End the process after a while, unless the call that was to stop has ended."""
    processor, seconds = processor + time.process_time(), seconds + time.perf_counter()
    while time.process_time() < processor and time.perf_counter() < seconds:
        time.sleep(_WAIT)
    if any(deadline not in _stoppable for deadline in stopped):
        return
    _announce(number, stopped)
    remove_all()
    os._exit(128 + number)
