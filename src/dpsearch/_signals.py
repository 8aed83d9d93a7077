"""Signals whose handlers raise an exception, but not in the middle of a compiler."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_COMPILERS = ("llvmlite", "numba")  # which do not survive an exception anywhere
_WAIT = 0.02  # seconds

Handler = Callable[[int, FrameType | None], Any]


def outside_compilers(handler: Handler) -> Handler:
    """Return a handler that waits while the main thread is in LLVM's or Numba's own code."""

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
