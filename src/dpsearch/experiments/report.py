"""Writing pages, tables and figures; every number on them comes from a run."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dpsearch import __version__
from dpsearch._files import atomic_write
from dpsearch.plots import save_figure

PAPER = "Hal Daumé III, *Fast search for Dirichlet process mixture models*, AISTATS 2007"


class Report:
    """A folder with pages, ``tables/`` and ``figures/``, linked relative to each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("tables", "figures"):
            (folder / part).mkdir(parents=True, exist_ok=True)

    def page(self, name: str, title: str, lines: Iterable[str]) -> Path:
        path = self.folder / f"{name}.md"
        with atomic_write(path, "w") as stream:
            stream.write("\n".join([f"# {title}", "", *lines]).rstrip() + "\n")
        return path

    def table(self, name: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
        """Write a table as CSV and Markdown; return the Markdown for a page."""
        lines = markdown_table(headers, rows)
        with atomic_write(self.folder / "tables" / f"{name}.csv", "w") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows([headers, *rows])
        with atomic_write(self.folder / "tables" / f"{name}.md", "w") as stream:
            stream.write("\n".join(lines) + "\n")
        return [*lines, "", f"([CSV](tables/{name}.csv))", ""]

    def figure(self, name: str, figure: Any, words: str) -> list[str]:
        """Write a figure as PNG and SVG; return the Markdown for a page."""
        for form in ("png", "svg"):
            save_figure(figure, self.folder / "figures" / f"{name}.{form}")
        return [f"![{words}](figures/{name}.png)", "", f"([SVG](figures/{name}.svg))", ""]


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    right = [all(_is_number(row[j]) for row in rows) for j in range(len(headers))]
    rule = ["---:" if to_the_right else "---" for to_the_right in right]
    return [_line(headers), _line(rule), *(_line(row) for row in rows)]


def _line(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _is_number(cell: Any) -> bool:
    text = str(cell).replace(",", "").strip("% ")
    if text == "" or text == "–":
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def short(value: float) -> str:
    """A number of seconds or of a rate, to three digits."""
    if value >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.1e}"


def rounded(value: float, digits: int = 3) -> str:
    """A number as the paper prints it: 2.04e5."""
    return f"{value:.{digits - 1}e}".replace("e+0", "e")


def against(ours: float, paper: float) -> str:
    """Our negative log joint beside the paper's, which is given to few digits."""
    change = ours / paper - 1.0
    if abs(change) < 5e-4:
        return "the same"
    return f"{abs(change):.1%} {'lower (better)' if change < 0.0 else 'higher (worse)'}"


def times_faster(ours: float, paper: float) -> str:
    ratio = paper / ours
    return f"{short(ratio)} times faster" if ratio >= 1.0 else f"{short(1 / ratio)} times slower"


def joined(words: Sequence[str]) -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]


def machine(n_jobs: int) -> str:
    return (
        f"dpsearch {__version__}, Python {platform.python_version()},"
        f" {os.cpu_count()} cores ({platform.machine()}), {n_jobs} used at a time; kernels are"
        " compiled before anything is timed"
    )
