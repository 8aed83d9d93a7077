"""The page `peers.md`, its tables and its figure; every number comes from kept outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.peers import plot, sections
from studies.peers.scores import Score
from studies.peers.summary import Cell, Line, cells, lines, two_digits
from studies.peers.tables import NEWS_WORDS, WIDEST
from studies.peers.tools import (
    DPSEARCH,
    DPSEARCH_COMMON,
    LACE,
    LADDER,
    SILHOUETTE_SAMPLE,
)
from studies.peers.units import BUSY
from studies.reproduction.cache import machine
from studies.reproduction.report import Report, joined


def write(
    scores: Sequence[Score],
    absent: Sequence[str],
    report: Report,
    *,
    limit: float,
    n_jobs: int,
    command: str,
) -> Path:
    everything = cells(scores)
    main = [c for c in everything if is_main(c)]
    out = [*_about(limit, n_jobs, command, scores), *_busy(scores)]
    out += [*(f"- {line}" for line in absent), ""]
    if main:
        ranked = lines(main)
        out += ["## Summary", "", *_summary(ranked, report), *_verdict(ranked)]
        out += report.figure("peers", plot.figure(_drawn(ranked), limit), "Tools compared")
        out += _matrices(main, report)
        out += ["## Where dpsearch loses", "", *sections.losses(main), ""]
        out += sections.speed(main, report)
    out += sections.gaps(everything, report)
    out += sections.mixed_tables(everything, report)
    for table in dict.fromkeys(cell.table.name for cell in main):
        out += _details(table, [cell for cell in main if cell.table.name == table], report)
    out += _problems(everything)
    report.table("peers", *_every_unit(scores))
    return report.page("peers", "dpsearch and its peers", out)


def is_main(cell: Cell) -> bool:
    """A labelled set as it is, with any tool but the one for mixed tables."""
    form = cell.scores[0].unit.data_form
    return cell.table.kind != "mixed" and form != "gaps" and cell.tool.name != LACE.name


# -- words -------------------------------------------------------------------------------------


def _about(limit: float, n_jobs: int, command: str, scores: Sequence[Score]) -> list[str]:
    tools = {score.unit.tool.name: score.unit.tool for score in scores}
    versions = {t.package: t.version for t in tools.values() if t.package}
    listed = joined([f"{name} {version}" for name, version in versions.items()]) or "no peer"
    return [
        f"Written by `{command}`, with {listed}.",
        f"{machine()}, {n_jobs} at a time.",
        "",
        "How to read it:",
        "",
        "- ARI and AMI compare labels with the true classes: 1 means the same partition, 0 means"
        " chance.",
        "- Cells are means over seeds, with the smallest and the largest value in brackets where"
        " they differ. There is only one seed where the first took more than 120 s, on MNIST 60k,"
        " and for deterministic tools.",
        "- Seconds are processor seconds of the fit alone, on one thread. On an idle machine they"
        " equal wall-clock seconds, and they depend less on other work on the machine. The choice"
        " of K from a grid is part of the fit. The kernels of dpsearch are compiled beforehand, by"
        " a fit to up to 2,500 rows.",
        f"- A fit is stopped after {limit:g} s. A tool that was stopped or failed on a data set has"
        " no answer there, and its ARI and AMI count as 0 in the means.",
        "- All numeric tools get the same columns: standardised, without constant columns, and"
        f" reduced to the first {WIDEST} principal components if there are more than {WIDEST}. For"
        f" 20 newsgroups (training part, {NEWS_WORDS:,} most frequent words, documents without any"
        " of them dropped) they are tf-idf weights, reduced by a truncated singular value"
        f" decomposition to {WIDEST} columns, in rows scaled to length one.",
        "- *dpsearch* gets the raw table, and *dpsearch, common columns* gets the columns of the"
        " others. Only its seed and its number of threads, one, are set.",
        "- BayesianGaussianMixture: 50 components, Dirichlet process, max_iter 1000. BIC and"
        f" silhouette choose K among {', '.join(map(str, LADDER))} (silhouette from 2 on, on a"
        f" sample of {SILHOUETTE_SAMPLE:,} rows if there are more). HDBSCAN: min_cluster_size 15;"
        " its noise points count as one more label. DP-means: its default δ = 1, and"
        " δ = 2·χ²₀.₉₉₉(columns). bnpy: 50 laps, 5 batches, K = 30 at the start, merges and"
        " deletes. All other settings are defaults. *given K*: the tool is given the true number of"
        " classes.",
        "- Only clusters that have points are counted.",
        "- The log joint is that of a tool's labels under the family and hyperparameters that"
        " dpsearch chose on the same columns, with α integrated out. It is the objective of"
        " dpsearch, not of the others; it shows whether search found the best of the partitions"
        " compared.",
    ]


def _busy(scores: Sequence[Score]) -> list[str]:
    """Say so if fits had to share the machine: that makes processor seconds longer too."""
    timed = [score.outcome for score in scores if score.outcome.long_enough]
    shared = sum(outcome.busy for outcome in timed)
    if not shared:
        return []
    return [
        f"- {shared} of {len(timed)} fits of 0.1 s or more took more than {BUSY:g} times as long"
        " in wall-clock time as in processor time: the machine was busy with other work, which also"
        " increases processor time. `--retime` repeats them."
    ]


def _marked(line: Line) -> str:
    return f"{line.tool.name} *" if line.tool.group == "oracle" else line.tool.name


def _summary(ranked: Sequence[Line], report: Report) -> list[str]:
    most = max(len(line.cells) for line in ranked)
    whole = [line for line in ranked if len(line.cells) == most]
    rows = [
        [_marked(line), two_digits(line.ari), two_digits(line.ami), line.n_without_answer]
        for line in whole
    ]
    headers = ["tool", "mean ARI", "mean AMI", "sets without an answer"]
    out = report.table("peers-summary", headers, rows)
    out += [
        f"Means over {most} data sets. Tools marked * were given the true number of classes.",
        "",
    ]
    fewer = [f"{line.tool.name} ({len(line.cells)})" for line in ranked if line not in whole]
    return out + ([f"Run on fewer data sets, so not ranked: {joined(fewer)}.", ""] if fewer else [])


def _verdict(ranked: Sequence[Line]) -> list[str]:
    """dpsearch beside the best of the others, which all get the common columns."""
    at = {line.tool.name: line for line in ranked}
    if DPSEARCH.name not in at and DPSEARCH_COMMON.name not in at:
        return ["dpsearch itself was not run.", ""]
    matches = (
        (DPSEARCH, "dpsearch from the raw table", "peer", "that is not given K"),
        (DPSEARCH_COMMON, "like for like, " + DPSEARCH_COMMON.name, "peer", "that is not given K"),
        (DPSEARCH, "dpsearch from the raw table", "oracle", "that is given K"),
    )
    out = []
    for metric, value in (("ARI", lambda line: line.ari), ("AMI", lambda line: line.ami)):
        for tool, words, group, who in matches:
            ours = at.get(tool.name)
            others = [line for line in ranked if ours and _comparable(line, ours, group)]
            if ours and others:
                best = max(others, key=value)
                order = "above" if value(ours) > value(best) else "not above"
                out.append(
                    f"- Mean {metric}: {words} {value(ours):.3f}, {order} the best tool {who},"
                    f" {best.tool.name}, {value(best):.3f}."
                )
    return [*out, ""]


def _comparable(line: Line, ours: Line, group: str) -> bool:
    """Whether a tool of the group was tried on as many sets; like for like, on the same columns."""
    same_columns = ours.tool is DPSEARCH or line.tool.form == ours.tool.form
    return line.tool.group == group and len(line.cells) == len(ours.cells) and same_columns


def _drawn(ranked: Sequence[Line]) -> list[plot.Line]:
    most = max(len(line.cells) for line in ranked)
    return [
        plot.Line(
            line.tool.name,
            line.tool.group,
            [cell.ari for cell in line.cells],
            [max(c.n_clusters, 1) / c.scores[0].n_classes for c in line.cells if c.done],
            [cell.seconds for cell in line.cells if cell.done],
        )
        for line in ranked
        if len(line.cells) == most
    ]


def _matrices(main: Sequence[Cell], report: Report) -> list[str]:
    names = list(dict.fromkeys(cell.table.name for cell in main))
    tools = list(dict.fromkeys(cell.tool.name for cell in main))
    at = {(cell.tool.name, cell.table.name): cell for cell in main}
    classes = [next(c for c in main if c.table.name == n).scores[0].n_classes for n in names]
    kinds: list[tuple[str, str, Callable[[Cell], str]]] = [
        ("ARI", "ari", Cell.ari_text),
        ("AMI", "ami", Cell.ami_text),
        ("Clusters found", "clusters", Cell.clusters_text),
        ("Seconds", "seconds", Cell.seconds_text),
    ]
    out = []
    for title, name, text in kinds:
        rows = [
            [tool, *(text(at[tool, n]) if (tool, n) in at else "" for n in names)] for tool in tools
        ]
        if name == "clusters":
            rows.append(["true classes", *map(str, classes)])
        out += [f"## {title}", "", *report.table(f"peers-{name}", ["tool", *names], rows)]
    return out


# -- everything --------------------------------------------------------------------------------


def _details(name: str, here: Sequence[Cell], report: Report) -> list[str]:
    truth = here[0].table.truth(0)
    raw = here[0].table.raw(0)
    width = int(raw["shape"][1]) if "shape" in raw else raw["X"].shape[1]
    rows = [
        [
            cell.tool.name,
            cell.ari_text(),
            cell.ami_text(),
            cell.clusters_text(),
            cell.seconds_text(),
            cell.text(lambda score: score.outcome.peak_mb, "{:.0f}".format),
            cell.log_joint_text(),
        ]
        for cell in here
    ]
    headers = ["tool", "ARI", "AMI", "clusters", "seconds", "MB", "log joint"]
    about = f"{len(truth):,} rows, {width:,} columns, {len(np.unique(truth))} classes."
    chosen = [
        f"{cell.tool.name} chose {cell.scores[0].outcome.about['family'].split('(')[0]}."
        for cell in here
        if "family" in cell.scores[0].outcome.about
    ]
    plain = "".join(c if c.isalnum() else "-" for c in name.lower())
    return [
        f"## {name}", "", about, "", *report.table(f"peers-set-{plain}", headers, rows),
        *chosen, "",
    ]  # fmt: skip


def _problems(everything: Sequence[Cell]) -> list[str]:
    """What failed, and what could not be installed, with the messages."""
    messages = dict.fromkeys(
        f"{cell.tool.name}: {score.outcome.message}"
        if score.outcome.status == "not installed"
        else f"{score.unit.name()}: {score.outcome.message}"
        for cell in everything
        for score in cell.scores
        if score.outcome.status in ("failed", "not installed")
    )
    return ["## What failed", "", *(f"- {line}" for line in messages), ""] if messages else []


def _every_unit(scores: Sequence[Score]) -> tuple[list[str], list[list[Any]]]:
    headers = ["set", "columns", "tool", "version", "seed", "status", "ari", "ami", "clusters"]
    headers += ["classes", "noise", "homogeneity", "completeness", "seconds", "wall_seconds"]
    headers += ["peak_mb", "log_joint"]
    rows = [
        [
            s.unit.table.name, s.unit.data_form, s.unit.tool.name, s.unit.tool.version,
            s.unit.seed, s.outcome.status, s.ari, s.ami, s.n_clusters, s.n_classes, s.noise,
            s.homogeneity, s.completeness, s.outcome.seconds, s.outcome.wall_seconds,
            s.outcome.peak_mb, "" if s.log_joint is None else s.log_joint,
        ]
        for s in scores
    ]  # fmt: skip
    return headers, rows
