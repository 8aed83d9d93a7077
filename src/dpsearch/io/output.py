"""Tables of results, as CSV or Parquet."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import polars as pl

from dpsearch._files import atomic_write
from dpsearch.errors import ParameterError

TABLE_ENDINGS = (".csv", ".parquet")
_PIECE = 1 << 15


def labels_table(table_index: Any, n_rows: int, **columns: Any) -> pl.DataFrame:
    """The rows' names (or numbers from 0) beside what is said about each row."""
    index = pl.Series("row", range(n_rows)) if table_index is None else table_index
    taken = set(columns)
    name = index.name or "row"
    while name in taken:  # a file may well have a column called "cluster"
        name = f"input {name}"
    return pl.DataFrame([index.alias(name), *(pl.Series(k, v) for k, v in columns.items())])


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in TABLE_ENDINGS:
        raise ParameterError(f"{path}: tables are written as {' or '.join(TABLE_ENDINGS)}")


def write_table(path: str | Path, frame: pl.DataFrame, *, force: bool = True) -> None:
    """Write a file that is complete or not there; ``-`` is standard output."""
    if str(path) == "-":
        text = frame.write_csv()
        # Piece by piece: without buffers (PYTHONUNBUFFERED) Python does not notice that a reader
        # who went away took only part of one write.
        for at in range(0, len(text), _PIECE):
            sys.stdout.write(text[at : at + _PIECE])
        sys.stdout.flush()
        return
    # Polars would not say what the system says, such as that the disk is full.
    content = io.BytesIO()
    if Path(path).suffix.lower() == ".parquet":
        frame.write_parquet(content)
    else:
        frame.write_csv(content)
    with atomic_write(path, force=force) as stream:
        stream.write(content.getbuffer())
