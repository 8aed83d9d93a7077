"""Faults at chosen moments: before a line or a system call of this process, or in a child of it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import dpsearch
from dpsearch.errors import DPSearchError

_PACKAGE = str(Path(dpsearch.__file__).parent)
# What Python tells of before it asks the system for something about files.
_CALLS = ("open", "os.", "shutil.", "tempfile.", "fcntl.")
_WRITES = ("os.mkdir", "os.rename", "os.link", "os.chmod", "tempfile.mkstemp", "tempfile.mkdtemp")
_REMOVALS = ("os.remove", "os.rmdir")
REFUSED, BUG = 1, 70  # exit codes


# -- before a line ----------------------------------------------------------------------------


class Moments:
    """Counts the lines of the package that run, and interrupts before one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self


@contextmanager
def interrupted_at(at: int | None = None) -> Iterator[Moments]:
    """Raise KeyboardInterrupt before the given line that runs; None: only count the lines."""
    moments, before = Moments(at), sys.gettrace()
    sys.settrace(moments)
    try:
        yield moments
    finally:
        sys.settrace(before)


def some_moments(n_moments: int, rng: Any, n_random: int = 10, n_last: int = 5) -> list[int]:
    """Return moments of a run of `n` lines: some at random, and all of the last ones."""
    chosen = rng.choice(n_moments, size=min(n_random, n_moments), replace=False) + 1
    return sorted({*chosen.tolist(), *range(max(1, n_moments - n_last), n_moments + 1)})


# -- before a system call ---------------------------------------------------------------------


def kill_at(number: int) -> None:
    """Let this process kill itself before a system call about files; it cannot be undone."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event.startswith(_CALLS):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


class Writes:
    """Counts the writes below a folder, by Python's audit events."""

    error = 0

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number, self.count = str(folder), number, 0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_write(event, arguments):
            return
        self.count += 1
        self.react(str(arguments[0]))

    def react(self, path: str) -> None:
        """Do nothing."""

    def _is_write(self, event: str, arguments: tuple[Any, ...]) -> bool:
        removes = event in _REMOVALS and self.error == errno.EACCES
        opens = event == "open" and _opens_to_write(arguments)
        if not (opens or removes or event in _WRITES):
            return False
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        return isinstance(path, str) and os.path.abspath(path).startswith(self.folder)


class Refusals(Writes):
    """Lets the system refuse the write of a given number, or all from it on."""

    def __init__(self, folder: Path, number: int, error: int, lasting: bool) -> None:
        super().__init__(folder, number)
        self.error, self.lasting = error, lasting

    def react(self, path: str) -> None:
        if self.count == self.number or (self.lasting and self.count > self.number):
            raise OSError(self.error, os.strerror(self.error), path)


class Death(Writes):
    """Kills this process just after the write of a given number has begun."""

    def __init__(self, folder: Path, number: int, seconds: float) -> None:
        super().__init__(folder, number)
        self.seconds = seconds

    def react(self, path: str) -> None:
        if self.count == self.number:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process at once
            signal.setitimer(signal.ITIMER_REAL, self.seconds)


def _opens_to_write(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


# -- children ---------------------------------------------------------------------------------


def start(work: Callable[[], object], log: Path | None = None) -> int:
    """Begin some work in a child; what it prints goes to a file, or nowhere."""
    child = os.fork()
    if child:
        return child
    code = BUG
    try:
        out = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except (OSError, MemoryError, DPSearchError):
        code = REFUSED
        traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a child; return its exit code, below 0 if a signal ended it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def in_child(work: Callable[[], object], log: Path | None = None) -> int:
    """Do some work in a child; return its exit code, below 0 if a signal ended it."""
    return ended(start(work, log))
