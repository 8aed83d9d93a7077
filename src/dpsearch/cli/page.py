"""The report of a table that was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsearch.io import Table


def write_page(path: Path, model: Any, table: Table, **about: Any) -> None:
    """Write `report.html` with the names that the table has; see `dpsearch.report`."""
    from dpsearch.cli.results import quiet_about_names
    from dpsearch.report import write_report

    with quiet_about_names():
        write_report(
            path,
            model,
            table.X,
            names=table.names,
            index=table.index,
            title=table.source,
            **about,
        )
