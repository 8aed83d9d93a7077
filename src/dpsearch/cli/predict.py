"""`dpsearch predict`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import load_model, read_for
from dpsearch.cli.options import (
    Data,
    Force,
    Json,
    Memory,
    Model,
    Quiet,
    Reading,
    Verbatim,
    check_writable,
    errors_name,
    reads_data,
)

_ROWS = 10_000  # for which the probabilities of all clusters are in memory


@reads_data
def predict(
    model: Model,
    data: Data,
    reading: Reading,
    out: Annotated[
        Path, typer.Option(help="File for the labels, .csv or .parquet; - for standard output.")
    ] = Path("-"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Also write the probability of every cluster.")
    ] = False,
    memory: Memory = None,
    verbatim: Verbatim = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the clusters of new rows.

    Columns are found by their names: their order may differ, and others are ignored.  The certainty
    is the probability of the cluster, given that the row is in one of those found.
    """
    import polars as pl

    from dpsearch.cli import large
    from dpsearch.cli.results import quiet_about_names
    from dpsearch.io.output import check_ending, write_pieces
    from dpsearch.progress import stages

    to_file = str(out) != "-"
    if to_file:
        check_ending(out)
        check_writable(out, force)
    messages = Messages(quiet)
    with stages(messages.console) as stage, contextlib.ExitStack() as files:
        stage.begin(f"reading {data}")
        estimator = load_model(model)
        opened = large.opened_for(files, estimator, data, reading, memory, stage.count_rows)
        if opened is None:
            table = read_for(estimator, data, reading, progress=stage.count_rows)
            for note in table.notes:
                messages.print(f"note: {note}")
            stage.begin("predicting")
            with errors_name(table), quiet_about_names():
                found = estimator.predict_proba(table.X)
            pieces = iter([_about(table.index, found, proba)])
        else:
            stage.begin("predicting")
            pieces = _piece_by_piece(estimator, opened, proba, stage.count_rows)
        n_rows, clusters = 0, set()

        def counted() -> Iterator[Any]:
            nonlocal n_rows
            for piece in pieces:
                n_rows += piece.height
                clusters.update(piece["cluster"].unique())
                yield piece

        if as_json and not to_file:
            print_json(pl.concat(counted()).to_dict(as_series=False))
        else:
            write_pieces(out, counted(), force=force, verbatim=verbatim)
    if to_file:
        if as_json:
            print_json({"rows": n_rows, "out": str(out)})
        messages.print(f"{n_rows:,} rows in {len(clusters)} clusters: {out}")


def _piece_by_piece(
    model: Any, opened: Any, proba: bool, count_rows: Callable[[int], None]
) -> Iterator[Any]:
    from dpsearch.cli import large
    from dpsearch.tables import CheckedTable

    begin = 0
    with large.errors_name(opened):
        for shard in opened.shards:
            rows, names = CheckedTable(shard.load()), large.row_names(opened, shard, begin)
            for at in range(0, shard.n_rows, _ROWS):
                found = model.predict_proba(rows.rows(slice(at, at + _ROWS)))
                yield _about(names[at : at + _ROWS], found, proba)
            begin += shard.n_rows
            count_rows(begin)


def _about(index: Any, probabilities: Any, proba: bool) -> Any:
    """The table that is written about some rows."""
    from dpsearch.io import labels_table

    columns: dict[str, Any] = {
        "cluster": probabilities.argmax(axis=1),
        "certainty": probabilities.max(axis=1).round(6),
    }
    if proba:
        columns |= {f"p{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    return labels_table(index, len(probabilities), **columns)
