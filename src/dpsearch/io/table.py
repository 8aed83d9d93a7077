"""What is said about a file before it is read, and what comes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsearch._validate import name_column
from dpsearch.errors import DataError

# Texts that stand for a value that is not there.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A")


@dataclass(frozen=True)
class Reading:
    """What the user says about a file.

    Attributes
    ----------
    columns, drop
        Columns to cluster by, or to leave out: names, numbers from 0 and ranges of numbers,
        separated by commas.  None: all that look like measurements.
    index
        Column that names the rows.
    text
        Column of texts, whose words are counted.
    categories
        Columns to take as names of groups even if they hold numbers.
    input_format
        One of `FORMATS`; None: by the file's ending.
    separator, decimal_comma, header, encoding
        Of delimited text.  None: found out.
    words
        Number of words to count at most, the most frequent first.
    wanted, width
        The columns that a model knows, or how many: these are taken, in this order.  Of texts, the
        words to count.
    """

    columns: str | None = None
    drop: str | None = None
    index: str | None = None
    text: str | None = None
    categories: str | tuple[str, ...] | None = None
    input_format: str | None = None
    separator: str | None = None
    decimal_comma: bool = False
    header: bool | None = None
    encoding: str = "utf-8"
    words: int = 2000
    wanted: tuple[str, ...] | None = None
    width: int | None = None


@dataclass
class Table:
    """Rows to cluster.

    Attributes
    ----------
    X
        A float64 matrix with NaN for what is missing; a CSR matrix of counts; or, where columns
        are texts or truth values, a polars frame.
    names
        Names of the columns, None if the file has none.
    index
        A polars Series that names the rows, None if nothing does.
    notes
        What the reader decided by itself, for people to read.
    left_out
        Columns that were not taken for one of these reasons.
    lines
        Line of the file on which each row ends, as ranges or arrays, where that is known.
    words
        Whether the columns are counts of words.
    """

    X: Any
    names: list[str] | None = None
    index: Any = None
    source: str = ""
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    lines: list[Any] = field(default_factory=list)
    words: bool = False

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    def line(self, row: int) -> int | None:
        """Line of the file for a row, counted from 1."""
        for part in self.lines:
            if row < len(part):
                return int(part[row])
            row -= len(part)
        return None

    def locate(self, message: str) -> str:
        """A message about rows and columns by number, in terms of the file's lines and names."""

        def place(match: re.Match[str]) -> str:
            line = self.line(int(match["row"]))
            column = match["column"]
            if column is not None and column.isdigit() and int(column) < self.n_columns:
                column = name_column(self.names, int(column)).removeprefix("column ")
            where = f"row {match['row']}" if line is None else f"line {line}"
            return where if column is None else f"{where}, column {column}"

        pattern = r"row (?P<row>\d+)(?:, column (?P<column>\d+|'[^']*'))?"
        return re.sub(pattern, place, message)


def source_error(source: str, message: str) -> DataError:
    return DataError(f"{source}: {' '.join(message.split())}")


def shown(cell: str) -> str:
    """A cell as messages show it."""
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")


def as_floats(columns: list[Any], n_rows: int) -> Any:
    """Polars Series of numbers as one C-ordered matrix; the list is emptied as it is copied."""
    import polars as pl

    out = np.empty((n_rows, len(columns)))
    for j in range(len(columns)):
        out[:, j] = columns[j].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        columns[j] = None
    return out
