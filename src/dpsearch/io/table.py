"""`Reading`, how a file is to be read, and `Table`, the rows that were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsearch.errors import DataError, DPSearchError
from dpsearch.tables import Schema, Triage, triaged, triaged_columns
from dpsearch.tables.cells import MISSING as ABSENT
from dpsearch.tables.frames import column_of_matrix, without_values
from dpsearch.tables.rules import check_kinds

# Texts that stand for a missing value, in all their cases of letters.
MISSING = tuple(
    sorted({form(text) for text in ABSENT for form in (str, str.upper, str.title)} | {"NaN"})
)
WHOLE = 2.0**53  # double precision represents all smaller integers exactly
PANDAS_INDEX = "__index_level_0__"
# Names of columns without a name, here and in pandas.
NAMELESS = ("column 0", "Unnamed: 0", PANDAS_INDEX)


@dataclass(frozen=True)
class ModelColumns:
    """The columns of a file that a model needs, in its order."""

    names: tuple[str, ...] | None  # of the columns, if they have any; for texts the words to count
    width: int  # the number of columns
    categories: tuple[int, ...] = ()  # the indices of those that hold categories
    index: str | None = None  # the column that named the rows, and does so again if it exists
    file: tuple[str, ...] = ()  # all columns of the file of the fit in order, if known
    gaps: bool = False  # whether absent columns may be taken as missing

    def absent_from(self, names: Sequence[str] | None) -> list[str]:
        """Return the absent columns of a file that are taken as missing."""
        if not self.gaps or names is None:
            return []
        there = {*names}
        return [name for name in self.names or () if name not in there]

    def check_width(self, n_columns: int, source: str) -> None:
        if n_columns != self.width:
            others = f" of {len(self.file)}" if len(self.file) > self.width else ""
            raise DataError(
                f"{n_columns} columns, but the model was fitted to {self.width}{others}",
                source=source,
            )


@dataclass(frozen=True)
class Reading:
    """How the user wants a file to be read; None means that the file decides.

    Columns are names, indices from 0 and ranges of indices, separated by commas.
    """

    columns: str | None = None  # to cluster by: by default those that the triage keeps
    drop: str | None = None  # columns to leave out
    index: str | None = None  # the column that names the rows
    text: str | None = None  # the column of texts, whose words are counted
    categories: str | None = None  # columns to take as categories even if they hold numbers
    input_format: str | None = None  # one of `FORMATS`: by default by the file's ending
    separator: str | None = None
    decimal_comma: bool = False
    header: bool | None = None
    encoding: str = "utf-8"
    words: int = 2000  # the largest number of words to count, the most frequent first
    model: ModelColumns | None = None  # the columns of the model that the rows are for


@dataclass
class Table:
    """Rows to cluster.

    X is a float64 matrix with NaN for missing values; a CSR matrix of counts; or, if some columns
    are texts or truth values, a polars frame.
    """

    X: Any
    names: list[str] | None = None  # of the columns, if the file has them
    numbers: list[int] | None = None  # indices of the columns in the file; None if it has no others
    index: Any = None  # a polars Series that names the rows
    index_column: str | None = None  # the name of that column
    named: bool | None = None  # whether the user or a model named the columns; None without any
    kinds: dict[str, str] = field(default_factory=dict)  # that the user gave for some columns
    triage: Triage | None = None  # what was decided about the columns of the file
    schema: Schema | None = None  # of X, unless X holds the numbers of the file
    dates: Any = None  # a frame of the columns of dates whose parts X has
    source: str = ""
    notes: list[str] = field(default_factory=list)  # on decisions of the reader
    # The line of the file on which each row ends, as ranges or arrays, if known.
    lines: list[Any] = field(default_factory=list)
    sha256: str | None = None  # of the file

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    @property
    def all_names(self) -> list[str]:
        """The names of the columns."""
        return [self.name(j) for j in range(self.n_columns)]

    @property
    def row_names(self) -> Any:
        """The names of the rows as a polars Series: by default their indices."""
        import polars as pl

        return pl.Series("row", range(self.n_rows)) if self.index is None else self.index

    def frame(self) -> Any:
        """Return the rows as a polars frame with names of columns."""
        import polars as pl

        if isinstance(self.X, pl.DataFrame):
            return self.X
        dense = self.X if isinstance(self.X, np.ndarray) else self.X.toarray()
        return pl.DataFrame(dense, schema=self.all_names, orient="row")

    def rows(self, chosen: Any) -> Table:
        """Return some of the rows with their names."""
        dates = None if self.dates is None else self.dates[chosen]
        return replace(self, X=self.X[chosen], index=self.row_names[chosen.tolist()], dates=dates)

    def line(self, row: int) -> int | None:
        """Return the line of the file on which a row ends, counted from 1."""
        for part in self.lines:
            if row < len(part):
                return int(part[row])
            row -= len(part)
        return None

    def take_columns(self, names: list[str] | None, width: int, kept: list[int]) -> None:
        """Set the names of the columns of the file that were kept."""
        self.names = None if names is None else [names[j] for j in kept]
        self.numbers = None if kept == list(range(width)) else kept

    def add_missing(self, absent: list[str]) -> None:
        """Add columns without values."""
        import polars as pl

        if absent:
            frame = self.frame().with_columns(pl.lit(None).alias(name) for name in absent)
            self.X, self.names, self.numbers = frame, frame.columns, None

    def take_index(self, index: Any) -> None:
        """Name the rows by a column of the file."""
        self.index_column = index.name
        self.index = index.alias("row") if index.name in NAMELESS else index

    def decide(self, kinds: Any = None, na: tuple[str, ...] = (), **options: Any) -> None:
        """Decide about the columns of a file; X keeps those to cluster by, as they are used."""
        names = self.all_names
        how: dict[str, Any] = {"keep": bool(self.named)} | options
        kinds = self.kinds | dict(kinds or {}) or None
        if isinstance(self.X, np.ndarray):
            check_kinds({} if kinds is None else kinds, names)
            columns = zip(names, map(column_of_matrix, self.X.T), strict=True)
            raws = [without_values(raw, na, name) for name, raw in columns]
            how["named"] = self.names is not None
            found = triaged_columns("polars", names, raws, kinds, na, **how)
        else:
            found = triaged(self.X, kinds, na, **how)
        self.triage, schema = found.triage, found.schema
        if found.row_names is not None and self.index is None:
            self._take_index_from(names.index(found.row_names))
        if schema.is_plain:
            self.X = found.matrix
            return
        places = {name: j for j, name in enumerate(names)}
        numbers = self.numbers or range(len(names))
        self.numbers = [numbers[places[column.origin_name]] for column in schema.columns]
        self.names, self.schema = schema.names, schema
        dates = list(dict.fromkeys(column.origin_name for column in schema.columns if column.part))
        self.dates = self.X[dates] if dates else None  # an array has no dates
        self.X = found.matrix if schema.all_numbers else schema.decode(found.matrix)

    def take_features(self, model: Any) -> None:
        """Replace X by the columns of the model's schema, derived from the columns of a file."""
        self.schema = model.schema_
        self.X = self.schema.decode(model.checked(self.X).matrix)
        self.names = self.schema.names

    def _take_index_from(self, j: int) -> None:
        import polars as pl

        column = self.X[:, j] if isinstance(self.X, np.ndarray) else self.X.to_series(j)
        series = pl.Series(self.name(j), column)
        if series.dtype == pl.Float64 and series.abs().max() < WHOLE:  # type: ignore[operator]
            series = series.cast(pl.Int64)
        self.take_index(series)

    def select(self, columns: list[int]) -> None:
        """Keep these columns, in this order."""
        numbers = self.numbers or range(self.n_columns)
        self.X = self.X[:, columns]
        self.names = None if self.names is None else [self.names[j] for j in columns]
        self.numbers = [numbers[j] for j in columns]

    def name(self, j: int) -> str:
        """Return the name of a column."""
        if self.names is not None:
            return self.names[j]
        return name_of(None, j if self.numbers is None else self.numbers[j])

    def locate(self, error: DPSearchError) -> None:
        """Add the file, its line and the column's name to an error with indices of these."""
        if error.source is None and error.row is not None:
            error.line = self.line(error.row)
        error.locate(self.source, columns=self.names or self.numbers)


def name_of(names: list[str] | None, j: int) -> str:
    """Return the name of column j of a file."""
    return f"column {j}" if names is None else names[j]


def unreadable(message: str) -> DataError:
    """Return the error about a file that a library cannot read, its message on one line."""
    return DataError(" ".join(message.split()))


def shown(cell: str) -> str:
    """Return a cell, shortened to 40 characters, for messages."""
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")


def as_floats(columns: list[Any], n_rows: int) -> Any:
    """Return Polars Series as one C-ordered matrix; each is freed once it has been copied."""
    import polars as pl

    out = np.empty((n_rows, len(columns)))
    for j in range(len(columns)):
        out[:, j] = columns[j].cast(pl.Float64).to_numpy()  # nulls become NaN
        columns[j] = None
    return out
