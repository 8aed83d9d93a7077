"""`dpsearch predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpsearch.cli.console import Voice, print_json
from dpsearch.cli.model import load_model, read_for
from dpsearch.cli.options import (
    Data,
    Force,
    Json,
    Model,
    Quiet,
    Reading,
    check_writable,
    errors_name,
    reads_data,
)


@reads_data
def predict(
    model: Model,
    data: Data,
    reading: Reading,
    out: Annotated[
        Path, typer.Option(help="File for the labels, .csv or .parquet; - for standard output.")
    ] = Path("-"),
    proba: Annotated[
        bool, typer.Option("--proba", help="Also the probability of every cluster.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the clusters of new rows.

    Columns go by their names: their order may differ, and others are not looked at.  The certainty
    is the probability of the cluster, given that the row is in one of those found.
    """
    from dpsearch.cli.results import quiet_about_names
    from dpsearch.io import labels_table, write_table
    from dpsearch.io.output import check_ending
    from dpsearch.progress import stages

    to_file = str(out) != "-"
    if to_file:
        check_ending(out)
        check_writable(out, force)
    voice = Voice(quiet)
    with stages(voice.console) as stage:
        stage.begin(f"reading {data}")
        estimator = load_model(model)
        table = read_for(estimator, data, reading, tell=lambda n: stage.tell(f"{n:,} rows"))
        stage.begin("predicting")
        with errors_name(table), quiet_about_names():
            probabilities = estimator.predict_proba(table.X)
    for note in table.notes:
        voice.say(f"note: {note}")
    columns: dict[str, Any] = {
        "cluster": probabilities.argmax(axis=1),
        "certainty": probabilities.max(axis=1).round(6),
    }
    if proba:
        columns |= {f"p{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    frame = labels_table(table.index, table.n_rows, **columns)
    if to_file or not as_json:
        write_table(out, frame, force=force)
    if as_json:
        about = (
            {"rows": table.n_rows, "out": str(out)} if to_file else frame.to_dict(as_series=False)
        )
        print_json(about)
    if to_file:
        voice.say(f"{table.n_rows:,} rows in {len(set(columns['cluster']))} clusters: {out}")
