"""`dpsearch predict`."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dpsearch._numbers import count
from dpsearch.cli import options as opt
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import load_model, quiet_about_names
from dpsearch.errors import (
    AbsentColumnsWarning,
    CapabilityError,
    ParameterError,
    UnseenValuesWarning,
    located,
)

_ROWS = 10_000  # rows whose probabilities of all clusters are in memory at a time
_RATE = 0.001  # share of rows that are called outliers even if they come from the clusters
_DRAWS = 20_000  # draws that rows are compared with; each row with gaps has its own
_CHEAP = 2e8  # values drawn for all clusters, which take a few seconds at most


@opt.reads_data
def predict(
    model: opt.Model,
    data: opt.Data,
    reading: opt.Reading,
    out: Annotated[
        Path, opt.option("File for the labels (.csv or .parquet), or - for standard output.")
    ] = Path("-"),
    proba: Annotated[
        bool, opt.option("Also write the probability of every cluster.", "--proba")
    ] = False,
    handle_unknown: Annotated[
        str | None,
        opt.option("What to do with values that the fit did not see: missing or error."),
    ] = None,
    memory: opt.Memory = None,
    verbatim: opt.Verbatim = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the clusters of new rows.

    Columns are found by their names: their order may differ, and other columns are ignored.  The
    certainty is the probability of the cluster, given that the row is in one of those found.  A
    note says how many rows are improbable under all of them, if that takes little time to find.
    """
    import polars as pl

    from dpsearch.cli.source import NAMED, Source, TableOptions, empty_in_words
    from dpsearch.io.output import check_ending, write_pieces
    from dpsearch.progress import stages
    from dpsearch.tables import UNKNOWN

    to_file = str(out) != "-"
    if to_file:
        check_ending(out)
        opt.check_writable(out, force)
    messages = Messages(quiet)
    n_rows, clusters, empty, outliers = 0, set(), list[Any](), list[str]()
    with (
        stages(messages.console) as stage,
        contextlib.ExitStack() as files,
        _noting_unseen(messages),
    ):
        stage.begin(f"reading {data}")
        estimator = load_model(model)
        if handle_unknown is not None:
            if handle_unknown not in UNKNOWN:
                raise ParameterError.unknown("--handle-unknown", "way", handle_unknown, UNKNOWN)
            estimator.handle_unknown = handle_unknown
        options = TableOptions(reading=reading, memory=memory, progress=stage.count_rows)
        source = Source(files, data, options, estimator)
        for note in source.table.notes if source.opened is None else ():
            messages.print(f"note: {note}")
        stage.begin("predicting")

        def counted() -> Iterator[Any]:
            nonlocal n_rows
            for piece in _predicted(estimator, source, proba, empty, outliers):
                n_rows += piece.height
                clusters.update(piece["cluster"].unique())
                if source.opened is not None:
                    stage.count_rows(n_rows)
                yield piece

        if as_json and not to_file:
            print_json(pl.concat(counted()).to_dict(as_series=False))
        else:
            write_pieces(out, counted(), force=force, verbatim=verbatim)
    if empty:
        messages.print(empty_in_words(empty[:NAMED], len(empty)))
    for note in outliers:
        messages.print(note)
    if to_file:
        if as_json:
            print_json({"rows": n_rows, "out": str(out)})
        messages.print(f"{count(n_rows, 'row')} in {count(len(clusters), 'cluster')}: {out}")


@contextlib.contextmanager
def _noting_unseen(messages: Messages) -> Iterator[None]:
    """Print notes about absent columns and unseen values instead of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        for kind in (AbsentColumnsWarning, UnseenValuesWarning):
            warnings.simplefilter("always", kind)
        yield
    unseen: dict[Any, UnseenValuesWarning] = {}
    for one in caught:
        if isinstance(one.message, UnseenValuesWarning):
            why = type(one.message), one.message.column, one.message.levels
            found = unseen.setdefault(why, one.message)
            if found is not one.message:
                found.count += one.message.count
        elif isinstance(one.message, AbsentColumnsWarning):
            messages.print(f"note: {one.message}")
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    for found in unseen.values():
        messages.print(f"note: {found}")


def _outliers(model: Any, names: Any, table: Any) -> str:
    """Return a note on rows improbable under all clusters; "" if none, or if it would take long."""
    from dpsearch.cli.source import NAMED
    from dpsearch.report.summary import by_chance

    judged, which = np.arange(len(names)), ""
    work = _DRAWS * model.n_components_ * model.n_features_in_
    gappy = np.isnan(table.matrix).any(axis=1) if table.gaps else np.zeros(len(names), bool)
    # As many rows as in the fit would be completed anew to see whether they are those of the fit.
    same = len(names) == model.mixture_.sizes.sum()
    if table.gaps and (same or work * (1 + gappy.sum()) > _CHEAP):
        judged, which = np.flatnonzero(~gappy), " without gaps"
    if not len(judged) or work > _CHEAP:
        return ""
    try:
        odd = judged[np.sort(model.outliers(table.rows(judged), _RATE))]
    except CapabilityError:  # the family has no draws
        return ""
    if not len(odd):
        return ""
    some = ", ".join(map(str, names[odd[:NAMED]])) + (", …" if len(odd) > NAMED else "")
    return (
        f"note: {len(odd):,} of {count(len(judged), 'row')}{which}"
        f" {'is' if len(odd) == 1 else 'are'} improbable under every cluster"
        f" ({by_chance(_RATE, len(judged))}): {some}"
    )


def _predicted(
    model: Any, source: Any, proba: bool, empty: list[Any], outliers: list[str]
) -> Iterator[Any]:
    """Yield the table to write, in blocks of rows.

    The names of rows without a value are added to `empty`, and a note on outliers to `outliers`.
    """
    from dpsearch.io import labels_table

    begin, known = 0, None if source.opened is None else model.state_.names
    with source.errors_named(), quiet_about_names():
        for names, rows in source.blocks(model):
            empty += names.filter(rows.empty_rows).to_list()
            if source.opened is None and (note := _outliers(model, names, rows)):
                outliers.append(note)
            for at in range(0, len(names), _ROWS):
                with located(rows=begin + at, columns=known):
                    found = model.predict_proba(rows.rows(slice(at, at + _ROWS)))
                columns = {"cluster": found.argmax(axis=1), "certainty": found.max(axis=1).round(6)}
                if proba:
                    columns |= {f"p{k}": found[:, k] for k in range(found.shape[1])}
                yield labels_table(names[at : at + _ROWS], **columns)
            begin += len(names)
