"""`python -m studies calibration`: the study, its table and its figure."""

from __future__ import annotations

import itertools
import multiprocessing
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import binom, kstest

from studies.calibration.planted import BUGS, caught
from studies.calibration.ranks import (
    N_BINS,
    SAMPLERS,
    MapFigures,
    Ranks,
    Reliability,
    of_map,
    of_outliers,
    of_predictions,
    of_samplers,
)
from studies.calibration.worlds import KINDS, N_ROWS
from studies.say import say

LEVEL = 0.01  # of all tests together
_BEGIN, _END = "<!-- calibration -->\n", "<!-- end of calibration -->\n"
_MAP_ROWS = (N_ROWS, 200)
_MAP_SETS = 10  # of `count`, one in so many
_FOR_BUGS = 3  # times as many data sets, to see the small ones
_EDGES = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)


class Found:
    """The measurements of the study."""

    def __init__(self) -> None:
        self.ranks: list[Ranks] = []
        self.reliability: list[Reliability] = []
        self.best: list[MapFigures] = []
        self.bugs: list[tuple[str, Ranks]] = []

    @property
    def threshold(self) -> float:
        return LEVEL / max(1, len(self.ranks))

    def failed(self) -> list[Ranks]:
        return [one for one in self.ranks if one.p_value() < self.threshold]


def _tasks(count: int, seed: int) -> list[Any]:
    """Return functions without arguments, each with a seed of its own."""
    tasks: list[Any] = []

    def add(function: Any, *arguments: Any) -> None:
        tasks.append(partial(function, *arguments, 1000 * seed + len(tasks)))

    for family in KINDS:
        for sampler in SAMPLERS:
            add(_listed, family, sampler, count)
        add(of_predictions, family, count)
        for gaps in (False, True):
            add(of_outliers, family, gaps, count)
        for n_rows in _MAP_ROWS:
            add(of_map, family, n_rows, max(2, count // _MAP_SETS))
    for number in range(len(BUGS)):
        add(_bug, number, _FOR_BUGS * count)
    return tasks


def _listed(*arguments: Any) -> list[Ranks]:
    return [*of_samplers(*arguments)]


def _bug(number: int, count: int, seed: int) -> tuple[str, Ranks]:
    return BUGS[number].what, caught(BUGS[number], count, seed)


def _done(task: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return task()


def measure(count: int, seed: int, n_jobs: int = 1) -> Found:
    """Run the study."""
    found, tasks = Found(), _tasks(count, seed)
    with multiprocessing.get_context("fork").Pool(n_jobs) as pool:
        for task, result in zip(tasks, pool.imap(_done, tasks), strict=True):
            say(f"{task.func.__name__.strip('_')} {task.args[:-1]}")
            if isinstance(result, Ranks):
                found.ranks.append(result)
            elif isinstance(result, MapFigures):
                found.best.append(result)
            elif isinstance(result, list):
                found.ranks.extend(result)
            elif isinstance(result[1], Reliability):
                found.ranks.extend(result[0])
                found.reliability.append(result[1])
            else:
                found.bugs.append(result)
    return found


def calibration(
    out: Annotated[Path, typer.Option(help="Page to write the results into.")] = Path(
        "results/calibration.md"
    ),
    count: Annotated[int, typer.Option(min=20, help="Data sets of each kind.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data sets.")] = 0,
    n_jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = 1,
) -> None:
    """Simulation-based calibration; the exit code is 1 if ranks are not uniform."""
    found = measure(count, seed, n_jobs)
    before, _, rest = (out.read_text() if out.exists() else "").partition(_BEGIN)
    after = rest.partition(_END)[2]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(before + _BEGIN + "\n".join(section(found, count)) + "\n" + _END + after)
    _figure(found, out.with_suffix(".png"))
    for one in found.failed():
        say(f"NOT UNIFORM, {one.what} of {one.procedure}, {one.family}: p = {one.p_value():.2g}")
    if found.failed():
        raise typer.Exit(1)


# -- the page ---------------------------------------------------------------------------------


def section(found: Found, count: int) -> list[str]:
    """Return the lines of the page that the study writes."""
    values = [one.p_value() for one in found.ranks]
    spread = kstest([one.p_value() for one in found.ranks if not one.at_most], "uniform").pvalue
    lines = [
        "", f"There are {count:,} data sets of {N_ROWS} rows for each line of the table and each of"
        f" the {len(KINDS)} families, which makes {len(found.ranks)} tests. Ranks are not uniform,"
        f" at a level of {LEVEL:.0%} for all tests together, if a p-value is below"
        f" {found.threshold:.1e} (Bonferroni). The smallest p-value is {min(values):.2g};"
        f" {len(found.failed())} of {len(found.ranks)} tests fail. The uniformity of"
        f" the p-values themselves has a Kolmogorov–Smirnov p-value of {spread:.2f}.",
        "", "| what is ranked | procedure | tests | smallest p-value |",
        "| --- | --- | --- | --- |",
    ]  # fmt: skip
    groups: dict[tuple[str, str], list[float]] = {}
    for one, value in zip(found.ranks, values, strict=True):
        groups.setdefault((one.what, one.procedure), []).append(value)
    for (what, procedure), own in sorted(groups.items()):
        lines.append(f"| {what} | {procedure} | {len(own)} | {min(own):.2g} |")
    lines += [
        "",
        "Planted bugs, and the p-value of the ranks that reveal them, from"
        f" {_FOR_BUGS * count:,} data sets:",
        "",
    ]
    lines += ["| bug | seen in | p-value |", "| --- | --- | --- |"]
    for what, ranks in found.bugs:
        lines.append(f"| {what} | {ranks.what} | {ranks.p_value():.1e} |")
    lines += ["", "Stated probabilities that a new row shares a cluster with a row of the fit, and"
              " how often it did (stated → true), for all families together:", ""]  # fmt: skip
    bins = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(_EDGES)]
    lines += ["| stated by | " + " | ".join(bins) + " |", "| --- |" + " --- |" * len(bins)]
    lines.append(_reliability_row("draws of the posterior", found.reliability))
    for n_rows in _MAP_ROWS:
        own_best = [one.memberships for one in found.best if one.n_rows == n_rows]
        lines.append(_reliability_row(f"the best partition of {n_rows} rows", own_best))
    lines += ["", "Shares of rows that the best partition calls outliers, although they come from"
              " the model:", "",
              "| family | rows | new rows at 0.01 | at 0.05 | rows of the fit at 0.01 | at 0.05 |"
              " adjusted Rand index with the true partition |",
              "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for one_map in found.best:
        cells = " | ".join(f"{share:.3f}" for share in (*one_map.outliers, *one_map.of_the_fit))
        lines.append(f"| {one_map.family} | {one_map.n_rows} | {cells} | {one_map.agreement:.2f} |")
    return [*lines, ""]


def _reliability_row(name: str, found: Sequence[Reliability]) -> str:
    probability = np.concatenate([one.probability for one in found])
    outcome = np.concatenate([one.outcome for one in found])
    which = np.searchsorted(_EDGES[1:-1], probability, side="right")
    cells = []
    for number in range(len(_EDGES) - 1):
        own = which == number
        cells.append(
            f"{probability[own].mean():.3f} → {outcome[own].mean():.3f}" if own.any() else ""
        )
    return f"| {name} | " + " | ".join(cells) + " |"


def _figure(found: Found, path: Path) -> None:
    """Draw the rank histograms, with the band that contains 99 % of uniform ones."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    subjects = list(dict.fromkeys(one.what for one in found.ranks))
    figure, grid = plt.subplots(
        len(subjects), len(KINDS), figsize=(11, 1.5 * len(subjects)), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for line, what in zip(grid, subjects, strict=True):
        for axes, family in zip(line, KINDS, strict=True):
            for one in found.ranks:
                if (one.what, one.family) == (what, family):
                    axes.stairs(one.counts(), np.linspace(0, 1, N_BINS + 1), baseline=None, lw=0.9)
                    size = len(one.shares)
            low, high = binom.ppf([0.005, 0.995], size, 1.0 / N_BINS)
            axes.axhspan(low, high, color="0.9", zorder=0)
            axes.set(yticks=[], ylim=(0, None))
        line[0].set_ylabel(what.replace(" of a ", "\nof a ").replace(" with", "\nwith"), fontsize=8)
    for axes, family in zip(grid[0], KINDS, strict=True):
        axes.set_title(family, fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("rank", fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
