"""Summaries of scores: a cell is one tool on one form of a table, over its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from studies.peers.scores import Score
from studies.peers.tables import Table
from studies.peers.tools import Tool
from studies.reproduction.report import short


@dataclass(frozen=True)
class Cell:
    scores: Sequence[Score]  # one per seed, at least one

    @property
    def tool(self) -> Tool:
        return self.scores[0].unit.tool

    @property
    def table(self) -> Table:
        return self.scores[0].unit.table

    @property
    def done(self) -> bool:
        """Whether every seed gave an answer."""
        return all(score.done for score in self.scores)

    @property
    def installed(self) -> bool:
        return self.scores[0].outcome.status != "not installed"

    @property
    def status(self) -> str:
        """The text to show in place of a number if a seed gave none."""
        score = next(score for score in self.scores if not score.done)
        stopped = score.outcome.status == "stopped"
        return score.outcome.message if stopped else score.outcome.status

    def mean(self, of: Callable[[Score], float]) -> float:
        return float(np.mean([of(score) for score in self.scores]))

    def counted(self, of: Callable[[Score], float]) -> float:
        """The mean, with 0 if a seed was stopped or failed and so gave no answer."""
        return self.mean(of) if self.done else 0.0

    @property
    def ari(self) -> float:
        return self.counted(lambda score: score.ari)

    @property
    def ami(self) -> float:
        return self.counted(lambda score: score.ami)

    @property
    def n_clusters(self) -> float:
        return self.mean(lambda score: score.n_clusters)

    @property
    def seconds(self) -> float:
        return self.mean(lambda score: score.outcome.seconds)

    def text(self, of: Callable[[Score], float], form: Callable[[float], str]) -> str:
        """The mean over seeds and, if they differ, the smallest and the largest value."""
        if not self.done:
            return self.status
        values = [of(score) for score in self.scores]
        low, high = form(min(values)), form(max(values))
        middle = form(float(np.mean(values)))
        return middle if low == high else f"{middle} ({low}–{high})"

    def ari_text(self) -> str:
        return self.text(lambda score: score.ari, two_digits)

    def ami_text(self) -> str:
        return self.text(lambda score: score.ami, two_digits)

    def clusters_text(self) -> str:
        out = self.text(lambda score: score.n_clusters, "{:.0f}".format)
        noise = self.mean(lambda score: score.noise)
        return f"{out}, noise {noise:.0%}" if self.done and noise > 0.0 else out

    def seconds_text(self) -> str:
        return self.text(lambda score: score.outcome.seconds, short)

    def log_joint_text(self) -> str:
        if not self.done or any(score.log_joint is None for score in self.scores):
            return ""
        return self.text(
            lambda score: math.nan if score.log_joint is None else score.log_joint, "{:,.0f}".format
        )


def two_digits(value: float) -> str:
    return f"{value:.2f}"


def cells(scores: Sequence[Score]) -> list[Cell]:
    """Group scores by table, form and tool, in their order."""
    grouped: dict[tuple[str, str, str], list[Score]] = {}
    for score in scores:
        unit = score.unit
        grouped.setdefault((unit.table.name, unit.data_form, unit.tool.name), []).append(score)
    return [Cell(group) for group in grouped.values()]


@dataclass(frozen=True)
class Line:
    """The scores of one tool over all labelled sets that it was tried on."""

    tool: Tool
    cells: Sequence[Cell]

    @property
    def ari(self) -> float:
        return float(np.mean([cell.ari for cell in self.cells]))

    @property
    def ami(self) -> float:
        return float(np.mean([cell.ami for cell in self.cells]))

    @property
    def n_without_answer(self) -> int:
        return sum(not cell.done for cell in self.cells)


def lines(main: Sequence[Cell]) -> list[Line]:
    """Return the tools by decreasing mean ARI; those that are not installed are left out."""
    by_tool: dict[str, list[Cell]] = {}
    for cell in main:
        if cell.installed:
            by_tool.setdefault(cell.tool.name, []).append(cell)
    out = [Line(group[0].tool, group) for group in by_tool.values()]
    return sorted(out, key=lambda line: -line.ari)
