"""Writing tables of results as CSV or Parquet."""

from __future__ import annotations

import errno
import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from dpsearch._files import atomic_write, naming, scratch_beside
from dpsearch.errors import ParameterError

TABLE_ENDINGS = (".csv", ".parquet")
_PIECE = 1 << 15
# The beginnings of formulas in Excel and others, also in the wide forms of East Asian keyboards.
_FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def labels_table(names: pl.Series, **columns: Any) -> pl.DataFrame:
    """Return a table of the rows' names and some columns of results."""
    name = names.name or "row"
    while name in columns:  # such as "cluster", which a file may have, too
        name = f"input {name}"
    return pl.DataFrame([names.alias(name), *(pl.Series(k, v) for k, v in columns.items())])


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in TABLE_ENDINGS:
        raise ParameterError(f"tables are written as {' or '.join(TABLE_ENDINGS)}", source=path)


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a ' before texts and names of columns that a spreadsheet would run as formulas.

    Texts that are numbers are not changed.
    """
    texts = frame.select(pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String))
    formula = pl.all().str.contains(_FORMULA) & ~pl.all().str.contains(_NUMBER)
    guarded = texts.select(pl.when(formula).then("'" + pl.all()).otherwise(pl.all()).name.keep())
    frame = frame.with_columns(guarded.get_columns())
    return frame.rename({name: f"'{name}" for name in frame.columns if re.match(_FORMULA, name)})


def write_pieces(
    path: str | Path, frames: Iterable[pl.DataFrame], *, force: bool = True, verbatim: bool = False
) -> None:
    """Write a table as `write_table` does, from pieces that together need not fit into memory."""
    if not verbatim and Path(path).suffix.lower() != ".parquet":
        frames = map(harmless, frames)
    if str(path) == "-":
        for number, frame in enumerate(frames):
            _print(frame, include_header=number == 0)
        return
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        with scratch_beside(path, folder=True) as folder:
            for number, frame in enumerate(frames):
                with naming(path):
                    write_parquet(folder / f"{number:09}.parquet", frame)
            with atomic_write(path, force=force) as stream:
                try:
                    pl.scan_parquet(folder).sink_parquet(stream)
                except pl.exceptions.PolarsError as error:
                    raise OSError(errno.EIO, str(error), str(path)) from error
        return
    with atomic_write(path, force=force) as stream:
        for number, frame in enumerate(frames):
            # Errors of Polars would hide those of the system, such as a full disk.
            content = io.BytesIO()
            frame.write_csv(content, include_header=number == 0)
            stream.write(content.getbuffer())


def write_parquet(path: Path, frame: pl.DataFrame) -> None:
    """Write a temporary file; errors of Polars would hide those of the system."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="lz4")
    with naming(path):
        path.write_bytes(content.getbuffer())


def _print(frame: pl.DataFrame, *, include_header: bool = True) -> None:
    text = frame.write_csv(include_header=include_header)
    # In pieces: without buffers (PYTHONUNBUFFERED) Python does not notice that a pipe was closed
    # after part of one write.
    for at in range(0, len(text), _PIECE):
        sys.stdout.write(text[at : at + _PIECE])
    sys.stdout.flush()


def write_table(
    path: str | Path, frame: pl.DataFrame, *, force: bool = True, verbatim: bool = False
) -> None:
    """Write a file that is complete or absent; ``-`` is standard output.

    In CSV, cells that a spreadsheet would run are made `harmless`, unless `verbatim`.
    """
    write_pieces(path, [frame], force=force, verbatim=verbatim)
