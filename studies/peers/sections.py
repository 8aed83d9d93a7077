"""Sections of the page that set dpsearch beside the others: losses, speed, gaps, mixed tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.metrics import adjusted_rand_score

from studies.peers import mixed
from studies.peers.classifier import classified
from studies.peers.summary import Cell, two_digits
from studies.peers.tables import MISSING
from studies.peers.tools import BGM_FULL, DPSEARCH, DPSEARCH_COMMON, LACE
from studies.reproduction.report import Report, joined, short

MANY_ROWS = 5000
# ARIs closer than this are called equal.
SAME = 0.005
RECOVERABLE = 0.99


# -- losses and speed --------------------------------------------------------------------------


def losses(main: Sequence[Cell]) -> list[str]:
    """For each set: which tools that are not given K have a higher ARI, and what can be computed
    about why."""
    if not any(cell.tool.name == DPSEARCH.name for cell in main):
        return ["dpsearch itself was not run."]
    others = {cell.tool.group for cell in main if cell.installed} - {"dpsearch"}
    if "peer" not in others:
        which = "No tool that is not given K" if others else "No other tool"
        return [f"{which} was run."]
    out = []
    for name in dict.fromkeys(cell.table.name for cell in main):
        here = {cell.tool.name: cell for cell in main if cell.table.name == name}
        ours = here.get(DPSEARCH.name)
        if ours is None:
            continue
        better = [c for c in here.values() if c.tool.group == "peer" and c.ari > ours.ari + SAME]
        if better:
            better.sort(key=lambda cell: -cell.ari)
            who = joined([f"{cell.tool.name} ({cell.ari:.2f})" for cell in better])
            out.append(f"- **{name}** ({ours.ari_text()}): to {who}. {_why(ours, here, better[0])}")
    return out or ["On no data set to a tool that is not given K."]


def _why(ours: Cell, here: dict[str, Cell], winner: Cell) -> str:
    if not ours.done:
        return f"dpsearch gave no answer: {ours.scores[0].outcome.message}."
    ratio = ours.n_clusters / ours.scores[0].n_classes
    if ratio >= 1.5:
        size = f"It finds {ratio:.1f} times as many clusters as there are classes"
    elif ratio <= 1 / 1.5:
        size = f"It finds {1 / ratio:.1f} times fewer clusters than there are classes"
    else:
        size = "It finds about as many clusters as there are classes"
    pure = ours.mean(lambda score: score.homogeneity)
    whole = ours.mean(lambda score: score.completeness)
    out = f"{size}; homogeneity {pure:.2f}, completeness {whole:.2f}"
    if pure > whole + 0.1:
        out += ": classes are split rather than mixed"
    elif whole > pure + 0.1:
        out += ": classes are mixed rather than split"
    same_columns = here.get(DPSEARCH_COMMON.name)
    if same_columns is not None and same_columns.done and winner.done:
        mine, other = same_columns.scores[0].log_joint, winner.scores[0].log_joint
        if mine is not None and other is not None:
            out += (
                f". On the common columns its own partition has a log joint {mine - other:,.0f}"
                " above the winner's: it is the model that prefers it"
                if mine >= other
                else f". On the common columns the winner's partition has a log joint"
                f" {other - mine:,.0f} above its own: search has missed a better one"
            )
    return out + "."


def speed(main: Sequence[Cell], report: Report) -> list[str]:
    rows, ratios = [], []
    for bgm in (cell for cell in main if cell.tool.name == BGM_FULL):
        n_rows = len(bgm.table.truth(0))
        stopped = bgm.scores[0].outcome.status == "stopped"
        if n_rows < MANY_ROWS or not (bgm.done or stopped):
            continue
        row = [bgm.table.name, f"{n_rows:,}", bgm.seconds_text()]
        for tool in (DPSEARCH, DPSEARCH_COMMON):
            ours = next(
                (c for c in main if c.table.name == bgm.table.name and c.tool.name == tool.name),
                None,
            )
            if ours is None or not ours.done:
                row += ["" if ours is None else ours.status, ""]
                continue
            ratio = bgm.seconds / ours.seconds
            row += [ours.seconds_text(), ("≥ " if stopped else "") + short(ratio)]
            if tool is DPSEARCH:
                ratios.append(ratio)
        rows.append(row)
    if not rows:
        return []
    headers = ["set", "rows", f"{BGM_FULL}, s", "dpsearch, s", "ratio"]
    headers += ["dpsearch, common columns, s", "ratio"]
    out = [f"## Speed on sets of {MANY_ROWS:,} rows or more", ""]
    out += report.table("peers-speed", headers, rows)
    if ratios:
        out += [
            f"{BGM_FULL} takes {short(float(np.median(ratios)))} times as long as dpsearch on the"
            f" raw table in the median, and at least {short(min(ratios))} times. A stopped fit"
            " counts with the limit, so that its ratio is a lower bound.",
            "",
        ]
    return out


# -- gaps and mixed tables ---------------------------------------------------------------------


def gaps(everything: Sequence[Cell], report: Report) -> list[str]:
    at = {(c.table.name, c.scores[0].unit.data_form, c.tool.name): c for c in everything}
    rows = []
    for (name, form, tool), gaps in at.items():
        if form != "gaps":
            continue
        complete = at.get((name, "common", tool))
        row = [name, tool, "" if complete is None else complete.ari_text(), gaps.ari_text()]
        both = complete is not None and complete.done and gaps.done
        row.append(f"{gaps.ari - complete.ari:+.2f}" if complete is not None and both else "")
        row.append(two_digits(given_classes(gaps)))
        row += ["" if complete is None else complete.seconds_text(), gaps.seconds_text()]
        rows.append([*row, gaps.clusters_text()])
    if not rows:
        return []
    headers = ["set", "tool", "ARI, complete", f"ARI, {MISSING:.0%} missing", "change"]
    headers += ["given the classes, missing"]
    headers += ["seconds, complete", "seconds, missing", "clusters, missing"]
    return [
        "## Missing values",
        "",
        f"{MISSING:.0%} of the entries are removed at random, different ones for each seed; columns"
        " are standardised by the remaining values. For comparison there is the ARI of a classifier"
        " that is given all classes, on the same rows with gaps: one Gaussian for each class,"
        " fitted to its complete rows.",
        "",
        *report.table("peers-missing", headers, rows),
    ]


def given_classes(cell: Cell) -> float:
    """The mean ARI of `classified` on the rows with gaps that a cell is about."""
    table, found = cell.table, []
    for seed in (score.unit.seed for score in cell.scores):
        truth, gaps = table.truth(seed), table.form("gaps", seed)["X"]
        complete = table.form("common", seed)["X"]
        with_gaps = np.where(np.isnan(gaps), np.nan, complete)
        found.append(adjusted_rand_score(truth, classified(complete, truth, with_gaps)))
    return float(np.mean(found))


def mixed_tables(everything: Sequence[Cell], report: Report) -> list[str]:
    rows, ours_aris, faster = [], [], []
    for settings in mixed.SETTINGS:
        here = {c.tool.name: c for c in everything if c.table.name == f"mixed, {settings}"}
        if not here:
            continue
        seeds = [score.unit.seed for score in next(iter(here.values())).scores]
        draws = [mixed.draw(settings, seed) for seed in seeds]
        judge = float(np.mean([adjusted_rand_score(d.labels, d.judge) for d in draws]))
        row = [str(settings), two_digits(judge)]
        for tool in (DPSEARCH, LACE):
            cell = here.get(tool.name)
            texts = (
                () if cell is None else (cell.ari_text(), cell.clusters_text(), cell.seconds_text())
            )
            row += texts or ["", "", ""]
        ours, lace = here.get(DPSEARCH.name), here.get(LACE.name)
        if ours is not None and ours.done and judge >= RECOVERABLE:
            ours_aris.append(ours.ari)
        if ours is not None and lace is not None and ours.done and lace.done:
            faster.append(lace.seconds / ours.seconds)
            row.append(short(faster[-1]))
        else:
            row.append("")
        rows.append(row)
    if not rows:
        return []
    headers = ["table", "judge's ARI"]
    headers += [f"{n}: {w}" for n in ("dpsearch", "pylace") for w in ("ARI", "clusters", "seconds")]
    out = [
        "## Mixed tables",
        "",
        "Generated tables of five real columns, three counts and four categories, with 10 % of the"
        " entries missing, one table for each seed. The judge knows all parameters of the clusters"
        " and assigns each row to the most probable one, which shows how much can be recovered."
        " pylace makes 200 updates of one chain, with all columns in one view.",
        "",
        *report.table("peers-mixed", [*headers, "pylace's time ÷ dpsearch's"], rows),
    ]
    if ours_aris:
        out.append(
            f"Where the truth is recoverable (judge's ARI ≥ {RECOVERABLE}), dpsearch's ARI is"
            f" at least {min(ours_aris):.3f}, and {np.mean(ours_aris):.3f} on average."
        )
    if faster:
        out.append(f"pylace takes at least {short(min(faster))} times as long as dpsearch.")
    return [*out, ""]
