"""`Deadline`: how long a call may still take, in which phase it is, and to whom it reports.

A call with a time limit, or one that can be stopped, has a `Deadline`.  Each of its phases asks
`current()` whether time is left, and does less if not; a stop is a deadline that has passed.  A
phase is given a share of the time that is left when it begins, so that later ones have some, and
phases that were cut short are recorded.  Without a limit no phase is ever over.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident

from dpsearch._threads import in_pool
from dpsearch.errors import plain_interrupts
from dpsearch.events import Callback, Event


class OutOfTime(Exception):
    """The time is up; the result so far is used."""


class Deadline:
    """The time limit, the phases and the reports of one call, which begins now."""

    def __init__(
        self,
        seconds: float | None = None,
        callback: Callback | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.callback = callback
        self._clock, self._begun, self._end = clock, clock(), math.inf
        self._needed: set[int] = set()  # threads whose work every result needs
        if seconds is not None:
            self._end = self._begun + seconds
        self._last = self._end  # of the whole call
        self.phase = "reading"
        self.cut_short: list[str] = []  # phases that ended before they were done
        self.stopped_in: str | None = None  # the phase in which the call was asked to stop
        self.interrupted_in: str | None = None  # the single phase that Ctrl-C ended
        self.has_result = False  # whether there is a result so far that can be returned
        self.interruptible = False  # whether the present step is optional

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return self._clock() - self._begun

    @property
    def left(self) -> float:
        """Seconds that are left for the present phase."""
        return 0.0 if self.stopped_in is not None else max(0.0, self._end - self._clock())

    @property
    def left_in_all(self) -> float:
        """Seconds that are left for the whole call."""
        return max(0.0, self._last - self._clock())

    @property
    def over(self) -> bool:
        """Whether the present phase must end; it is then recorded as cut short."""
        over = get_ident() not in self._needed and self.left <= 0.0
        if over:
            self._cut()
        return over

    def _cut(self) -> None:
        if self.phase not in self.cut_short:
            self.cut_short.append(self.phase)

    def leave_out(self) -> None:
        """End the present phase, since a step that it needs was cut short."""
        self._cut()
        raise OutOfTime

    def check(self) -> None:
        """Raise `OutOfTime` if the present phase must end."""
        if self.over:
            raise OutOfTime

    def stop(self) -> None:
        """End every phase when it next asks."""
        if self.stopped_in is None:
            self.stopped_in = self.phase

    def interrupt(self) -> None:
        """Record that Ctrl-C ended the present phase, whose best result so far is kept."""
        if self.stopped_in is None and self is not _NEVER:
            self._cut()
            self.interrupted_in = self.phase

    def warn_of_interrupt(self) -> None:
        """Warn the caller's caller if Ctrl-C ended a phase."""
        if self.interrupted_in is not None:
            text = f"interrupted while {self.interrupted_in}: this is the best found by then"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    @contextmanager
    def during(self, phase: str, share: float = 1.0) -> Iterator[Deadline]:
        """Begin a phase that ends after a share of the time that is left."""
        before = self.phase, self._end
        self.phase, self._end = phase, min(self._end, self._clock() + share * self.left)
        self.tell(phase)
        try:
            yield self
        finally:
            self.phase, self._end = before

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Do work that every result needs, even if the time is up."""
        own = {get_ident()} - self._needed  # empty inside another such block
        self._needed |= own
        try:
            yield
        finally:
            self._needed -= own

    @contextmanager
    def optional(self) -> Iterator[None]:
        """Do optional work: leave the block when the time is up, or the call is stopped."""
        before, self.interruptible = self.interruptible, True
        try:
            with plain_interrupts():
                yield
            self.interruptible = before
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            if self.stopped_in is None:
                raise
            self.over  # noqa: B018 - records the phase as cut short
        finally:
            self.interruptible = before

    def tell(self, step: str, done: int = 0, total: int = 0) -> None:
        """Report a step of a phase that has no partition of all rows yet."""
        self.pass_on(Event(self.elapsed, math.nan, 0, step, done, total))

    def pass_on(self, event: Event) -> None:
        """Pass on an event of a solver, unless several solvers run at the same time."""
        if self.callback is not None and not in_pool():
            self.callback(event._replace(seconds=self.elapsed, phase=self.phase))


_CURRENT: ContextVar[Deadline] = ContextVar("deadline")
_NEVER = Deadline()


def current() -> Deadline:
    """Return the deadline of the present call; one that never passes if it has none."""
    return _CURRENT.get(_NEVER)


@contextmanager
def within(deadline: Deadline) -> Iterator[Deadline]:
    """Make a deadline the current one in the block."""
    token = _CURRENT.set(deadline)
    try:
        yield deadline
    finally:
        _CURRENT.reset(token)


@contextmanager
def limited(seconds: float | None, callback: Callback | None) -> Iterator[Deadline]:
    """Limit the block to some seconds, within the deadline that there already is."""
    outer = _CURRENT.get(None)
    sooner = outer is not None and outer.left <= (math.inf if seconds is None else seconds)
    if outer is not None and sooner and callback is None:
        yield outer
        return
    if outer is not None and sooner:
        seconds = outer.left
    with within(Deadline(seconds, callback)) as own:
        yield own
