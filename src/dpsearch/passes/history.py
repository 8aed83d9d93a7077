"""The history of a batch search, and the clock that ends it."""

from __future__ import annotations

from collections.abc import Callable

from dpsearch._clock import clock
from dpsearch.deadline import OutOfTime, current
from dpsearch.events import Callback, Event


class History:
    """Events of one run, its deadline, and its own limit of time, without that of compiling."""

    def __init__(self, seconds: float | None, callback: Callback | None) -> None:
        self.begun = clock()
        self.seconds, self.callback, self.deadline = seconds, callback, current()
        self.log_base: Callable[[], float] = lambda: 0.0
        self.trace: list[Event] = []

    @property
    def elapsed(self) -> float:
        return clock() - self.begun

    def note(self, step: str, log_joint: float, n_clusters: int) -> None:
        self.trace.append(Event(self.elapsed, log_joint + self.log_base(), n_clusters, step))
        if self.callback is not None:
            self.callback(self.trace[-1])

    def check_time(self) -> None:
        self.deadline.check()
        if self.seconds is not None and self.elapsed > self.seconds:
            raise OutOfTime
