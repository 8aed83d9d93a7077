"""Parquet, Arrow and Feather files, by Polars."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dpsearch.errors import DataError
from dpsearch.io.choice import Choice, choose
from dpsearch.io.table import Reading, Table, as_floats, source_error

PANDAS_INDEX = "__index_level_0__"


def read_parquet(path: Path, reading: Reading, source: str) -> tuple[Table, Choice]:
    return _read(pl.scan_parquet, path, reading, source, "Parquet")


def read_arrow(path: Path, reading: Reading, source: str) -> tuple[Table, Choice]:
    return _read(pl.scan_ipc, path, reading, source, "Arrow or Feather")


def _read(scan: Any, path: Path, reading: Reading, source: str, what: str) -> tuple[Table, Choice]:
    try:
        lazy = scan(path, glob=False)
        names = lazy.collect_schema().names()
        if reading.index is None and PANDAS_INDEX in names:
            reading = replace(reading, index=PANDAS_INDEX)
        choice = choose(names, len(names), reading, source)
        aside = [j for j in (choice.index, choice.text) if j is not None]
        frame = lazy.select([names[j] for j in dict.fromkeys([*choice.kept, *aside])]).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise source_error(source, f"damaged, or not a {what} file: {error}") from error
    index = None if choice.index is None else frame[names[choice.index]]
    if index is not None and index.name == PANDAS_INDEX:
        index = index.alias("row")
    kept = [names[j] for j in choice.kept]
    if choice.text is not None:
        return Table(frame[names[choice.text]].cast(pl.String), kept, index, source), choice
    texts = {names[j] for j in choice.categories}
    return table_of_frame(frame.select(kept), index, source, texts), choice


def table_of_frame(frame: pl.DataFrame, index: Any, source: str, texts: set[str]) -> Table:
    """A matrix if every column is of numbers, otherwise the frame, with plain types."""
    for name, kind in frame.schema.items():
        plain = kind.is_numeric() or kind in (pl.Boolean, pl.String, pl.Categorical, pl.Null)
        if not plain and not isinstance(kind, pl.Enum):
            raise DataError(
                f"{source}, column {name!r}: {kind} is not something to cluster by: leave it out"
                f" with --drop {name!r}, or turn it into a number"
            )
    frame = frame.with_columns(
        [
            pl.col(name).cast(pl.String).cast(pl.Categorical)
            for name in texts
            if name in frame.columns
        ]
    )
    columns = frame.get_columns()
    for column in columns:
        if not column.dtype.is_float():
            continue
        infinite = column.is_infinite().arg_true()
        if len(infinite):
            place = f"{source}, row {infinite[0]}, column {column.name!r}"
            raise DataError(f"{place}: {column[infinite[0]]} is not finite")
    names = frame.columns
    if all(kind.is_numeric() or kind == pl.Null for kind in frame.schema.values()):
        height = frame.height
        del frame
        return Table(as_floats(columns, height), names, index, source)
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    return Table(frame.with_columns(pl.col(floats).fill_nan(None)), names, index, source)
