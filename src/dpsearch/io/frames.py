"""Parquet, Arrow and Feather files, read by Polars."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from dpsearch.errors import DataError
from dpsearch.io.choice import Choice, choose
from dpsearch.io.table import PANDAS_INDEX, WHOLE, Reading, Table, as_floats, unreadable


def scan(path: Path, form: str) -> pl.LazyFrame:
    """Return a Parquet or Arrow file as a lazy frame; an Arrow stream has no magic number."""
    if form == "parquet":
        return pl.scan_parquet(path, glob=False)
    with path.open("rb") as stream:
        is_file = stream.read(6) == b"ARROW1"
    return pl.scan_ipc(path, glob=False) if is_file else pl.read_ipc_stream(path).lazy()


@contextlib.contextmanager
def naming_form(form: str) -> Iterator[None]:
    """Replace errors of Polars by one about a file of this format."""
    try:
        yield
    except PermissionError:
        raise
    except (pl.exceptions.PolarsError, OSError) as error:
        what = "a Parquet" if form == "parquet" else "an Arrow or Feather"
        raise unreadable(f"damaged, or not {what} file: {error}") from error


def read_frame(path: Path, form: str, reading: Reading) -> tuple[Table, Choice]:
    with naming_form(form):
        lazy = scan(path, form)
        names = lazy.collect_schema().names()
        choice, wanted = choose_names(names, reading)
        frame = lazy.select(wanted).collect()
    index = None
    if choice.index is not None:
        index = frame[names[choice.index]]
        if index.dtype.is_nested() or index.dtype in (pl.Binary, pl.Object, pl.Duration):
            raise DataError(f"values of type {index.dtype} cannot name rows", column=index.name)
    if choice.text is not None:
        text = frame[names[choice.text]]
        if text.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            raise DataError(f"values of type {text.dtype} are not texts", column=text.name)
        table = Table(text.cast(pl.String))
    else:
        texts = {names[j] for j in choice.categories}
        table = table_of_frame(frame.select([names[j] for j in choice.kept]), texts)
        table.take_columns(names, len(names), choice.kept)
    if index is not None:
        table.take_index(index)
    return table, choice


def choose_names(names: list[str], reading: Reading) -> tuple[Choice, list[str]]:
    """Return the choice of columns, and the names of those to read.

    Names that Polars takes for patterns are refused, since it would read other columns.
    """
    if reading.index is None and PANDAS_INDEX in names:
        reading = replace(reading, index=PANDAS_INDEX)
    choice = choose(names, len(names), reading)
    aside = [j for j in (choice.index, choice.text) if j is not None]
    wanted = [names[j] for j in dict.fromkeys([*choice.kept, *aside])]
    for name in wanted:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            raise DataError("Polars takes the name for a pattern", column=name)
    return choice, wanted


def table_of_frame(frame: pl.DataFrame, texts: set[str]) -> Table:
    """Return a matrix if every column is of numbers, otherwise the frame."""
    if all(kind.is_numeric() or kind == pl.Null for kind in frame.schema.values()) and not texts:
        integers = [cells for cells in frame if cells.dtype in (pl.Int64, pl.UInt64)]
        if not any((cells.abs().max() or 0) >= WHOLE for cells in integers):  # type: ignore[operator]
            return Table(as_floats(frame.get_columns(), frame.height))
    declared = [frame[name].cast(pl.String).cast(pl.Categorical) for name in texts]
    return Table(frame.with_columns(declared))
