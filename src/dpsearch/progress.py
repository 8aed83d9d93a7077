"""Progress on a terminal; elsewhere nothing is shown."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dpsearch._jit import Compiling, on_compile
from dpsearch._numbers import count
from dpsearch.events import Callback, Event

_BAR = 24  # characters


@contextlib.contextmanager
def progress(console: Console, what: str) -> Iterator[Callback | None]:
    """Yield a callback for a solver that shows the log joint and the number of clusters.

    It is None if the output is not a terminal or is quiet.
    """
    if not console.is_terminal or console.quiet:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[about]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=1, about="")

        def callback(report: Event) -> None:
            bar.update(
                task, description=what, completed=report.done, total=report.total,
                about=describe(report),
            )  # fmt: skip

        def compiling(report: Compiling) -> None:
            bar.update(
                task, description="compiling kernels", completed=report.number,
                total=report.expected,
            )  # fmt: skip

        with on_compile(compiling):
            yield callback


class Stages:
    """A line that shows the current stage of the work."""

    def __init__(self, status: Any) -> None:
        self._status = status
        self._stage = ""

    def begin(self, stage: str) -> None:
        self._stage = stage
        self.show("")

    def count_rows(self, n_rows: int) -> None:
        """Show how many rows have been read."""
        self.show(f"{n_rows:,} rows")

    def compiling(self, report: Compiling) -> None:
        """Show that kernels are being compiled, which happens on the first run only."""
        done = _BAR * report.number // report.expected
        bar = "━" * done + "╌" * (_BAR - done)
        self.show(f"compiling kernels {bar} {report.number} of about {report.expected}")

    def show(self, about: str) -> None:
        """Show the progress of the stage."""
        if self._status is not None:
            self._status.update(escape(f"{self._stage}: {about}" if about else self._stage))

    @property
    def callback(self) -> Callable[[Any], None] | None:
        """A callback for a solver; None if nothing is shown."""
        return None if self._status is None else lambda report: self.show(describe(report))


@contextlib.contextmanager
def stages(console: Console) -> Iterator[Stages]:
    """Show stages with a spinner on a terminal."""
    if not console.is_terminal or console.quiet:
        yield Stages(None)
        return
    with console.status("") as status:
        shown = Stages(status)
        with on_compile(shown.compiling):
            yield shown


def describe(event: Event) -> str:
    """Return one line that describes an event of a solver."""
    if math.isnan(event.log_joint):
        return f"{event.done} of {event.total} {event.step}"
    about = f"{count(event.n_clusters, 'cluster')}, log joint {event.log_joint:.6g}"
    if math.isfinite(event.upper_bound):
        about += f", proved within {event.upper_bound - event.log_joint:.3g} nats"
    if event.step == "shards":
        about += f", {event.done} of {event.total} shards"
    return f"{about}, {event.seconds:.0f} s"
