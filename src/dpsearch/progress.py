"""Progress: a line that changes on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape

from dpsearch._jit import Compiling, on_compile
from dpsearch._numbers import count
from dpsearch.deadline import Deadline
from dpsearch.events import Callback, Event

_BAR = 24  # characters
_REDRAWN, _EVERY = 0.2, 5.0  # seconds between two lines: on a terminal, and elsewhere


class Stages:
    """What a command is doing: the stage, how far it is, and how long it may still take."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.deadline = Deadline()
        self._stage, self._about, self._begun = "", "", 0.0
        self._event: Event | None = None
        self._compiling, self._compiled = "", 0.0  # what was said last, and until when that holds

    def begin(self, stage: str) -> None:
        self._stage, self._about, self._event = stage, "", None
        self._begun = self.deadline.elapsed

    def count_rows(self, n_rows: int) -> None:
        """Say how many rows have been read."""
        self._about = f"{n_rows:,} rows"

    def compiling(self, report: Compiling) -> None:
        """Say that kernels are being compiled, which happens on the first run only."""
        done = _BAR * report.number // report.expected
        bar = "━" * done + "╌" * (_BAR - done)
        self._compiling = f"compiling kernels {bar} {report.number} of about {report.expected}"
        self._compiled = self.deadline.elapsed + _EVERY

    def tell(self, event: Event) -> None:
        """Say what a solver reports."""
        if event.phase and event.phase != self._stage:
            self.begin(event.phase)
        self._compiled = 0.0
        self._event, self._about = event, "" if event.step == event.phase else describe(event)

    @property
    def callback(self) -> Callback | None:
        """A callback for a solver; None if nothing is shown."""
        return self.tell if self.shown else None

    def line(self) -> str:
        """Return the stage, what is known of it, the time since the beginning, and what is left."""
        seconds, event = self.deadline.elapsed, self._event
        about = self._compiling if seconds < self._compiled else self._about
        parts = [f"{self._stage}: {about}" if about else self._stage]
        parts.append(f"{seconds:.0f} s")
        if event is not None and 0 < event.done < event.total:
            left = (seconds - self._begun) * (event.total / event.done - 1.0)
            parts.append(f"about {left:.0f} s to go")
        if self.deadline.left_in_all < math.inf:
            parts.append(f"at most {self.deadline.left_in_all:.0f} s left")
        return ", ".join(parts)


@contextlib.contextmanager
def stages(console: Console) -> Iterator[Stages]:
    """Show stages: on a terminal by a line that changes, elsewhere by a line every few seconds."""
    stage, ended = Stages(not console.quiet), threading.Event()
    with contextlib.ExitStack() as stack:
        show: Any
        every, show = _EVERY, functools.partial(console.print, highlight=False, soft_wrap=True)
        if console.is_terminal and stage.shown:
            every, show = _REDRAWN, stack.enter_context(console.status("")).update

        def tell() -> None:
            while not ended.wait(every):
                show(escape(stage.line()))
            if console.is_terminal:
                show(escape(stage.line()))

        if stage.shown:
            stack.enter_context(on_compile(stage.compiling))
            teller = threading.Thread(target=tell, daemon=True)
            teller.start()
            stack.callback(teller.join)
            stack.callback(ended.set)  # before that
        yield stage


def describe(event: Event) -> str:
    """Return one line that describes an event of a solver."""
    if math.isnan(event.log_joint):
        return f"{event.done} of {event.total} {event.step}" if event.total else event.step
    about = f"{count(event.n_clusters, 'cluster')}, log joint {event.log_joint:.6g}"
    if math.isfinite(event.upper_bound):
        about += f", proved within {event.upper_bound - event.log_joint:.3g} nats"
    if event.step == "shards":
        about += f", {event.done} of {event.total} shards"
    return about
