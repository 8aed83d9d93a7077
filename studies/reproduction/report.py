"""Writing pages, tables and figures; every number on them comes from a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsearch._files import atomic_write
from dpsearch.plots import save_figure
from studies.reproduction.paper import Printed

PAPER = "Hal Daumé III, *Fast search for Dirichlet process mixture models*, AISTATS 2007"

PRIOR_WORDS = {"paper": "the paper's P(m)", "true": "the true p(c)"}
START_WORDS = {
    "one": "one cluster", "all": "N clusters", "log": "log N random clusters", "search": "search",
}  # fmt: skip
SAMPLER_WORDS = {"gibbs": "Gibbs", "split-merge": "split-merge"}


class Finding(NamedTuple):
    """The finding of a run about one claim of the paper; its verdict is computed."""

    ours: str
    holds: str  # "yes", "no", "better", "worse", "not tested"


NOT_TESTED = "not tested"


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

    def claims(
        self, name: str, rows: Sequence[tuple[str, Sequence[Finding]]], columns: Sequence[str] = ()
    ) -> list[str]:
        """Return a table of the paper's claims and the run's findings, in one column or several."""
        headers = ["the paper says"]
        for column in columns or [""]:
            headers += [f"we find{column and ', with '}{column}", "holds?"]
        cells = [[claim, *(cell for f in found for cell in f)] for claim, found in rows]
        return self.table(name, headers, cells)

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
    def escaped(cell: Any) -> str:
        return str(cell).replace("|", "\\|").replace("*", "\\*")

    return "| " + " | ".join(map(escaped, cells)) + " |"


def _is_number(cell: Any) -> bool:
    text = str(cell).replace(",", "").strip("%* ")
    if text == "" or text == "–":
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def short(value: float) -> str:
    """Return a number of seconds or a rate to three digits."""
    if value >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.1e}"


DIGITS = (
    "The paper prints few digits: 2.04e5 stands for any value from 203,500 to 204,500. Our value"
    " is called the same if it lies in the range that the printed figure stands for, better if it"
    " is below, and worse if it is above."
)


def verdict(ours: float, paper: Printed) -> str:
    """Compare our negative log joint with the paper's, to the digits that it prints."""
    if abs(ours - paper) <= paper.half:
        return "same"
    return "better" if ours < paper else "worse"


def against(ours: float, paper: Printed) -> str:
    """Return the comparison in words, to follow "is"."""
    which = verdict(ours, paper)
    if which == "same":
        return f"the same as the paper's {paper.text}"
    change = abs(ours / paper - 1.0)
    how = "lower (better)" if which == "better" else "higher (worse)"
    return f"{change:.2%} {how} than the paper's {paper.text}"


def yes(condition: bool) -> str:
    return "yes" if condition else "no"


def times_faster(ours: float, paper: float) -> str:
    ratio = paper / ours
    return f"{short(ratio)} times faster" if ratio >= 1.0 else f"{short(1 / ratio)} times slower"


def joined(words: Sequence[str]) -> str:
    """Return texts joined as "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]


def where(lines: Sequence[str]) -> list[str]:
    """Return where and when the work was done, from the lines of a cache."""
    return [
        "Every method runs in one thread. Kernels are compiled before anything is timed.",
        "",
        *(f"- {line}" for line in lines),
        "",
    ]
