"""`dpsearch demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-output"),
) -> None:
    """Cluster 3,000 embedded handwritten digits, and show what was found."""
    from dpsearch.demo import run_demo

    run_demo(out, Console())
