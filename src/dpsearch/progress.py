"""Progress for people to see; quiet off a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dpsearch.objective import Callback
from dpsearch.objective import Progress as Report


@contextlib.contextmanager
def progress(console: Console, what: str) -> Iterator[Callback | None]:
    """Yield a callback for a solver that shows the log joint and the number of clusters.

    None when nobody would see the bar.
    """
    if not console.is_terminal:
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

        def callback(report: Report) -> None:
            about = f"{report.n_clusters} clusters, log joint {report.log_joint:.6g}"
            bar.update(task, completed=report.done, total=report.total, about=about)

        yield callback


@contextlib.contextmanager
def closing_gap(console: Console) -> Iterator[Callable[[Any], None] | None]:
    """Yield a callback for `certify` that shows how far the bounds are apart."""
    if not console.is_terminal:
        yield None
        return
    with console.status("certify") as status:

        def callback(report: Any) -> None:
            gap = report.upper_bound - report.lower_bound
            status.update(
                f"certify: log joint {report.lower_bound:.6g}, gap {gap:.3g} nats,"
                f" {report.seconds:.0f} s"
            )

        yield callback
