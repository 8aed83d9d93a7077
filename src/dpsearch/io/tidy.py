"""Columns that are not measurements: row numbers, names of rows, and columns without a value.

Clustering by a row number finds clusters of rows that follow each other.  Unless the user names the
columns, such a column is left out, and said to be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from dpsearch.errors import DataError
from dpsearch.io.table import NAMELESS, Table, as_floats
from dpsearch.tables import DISTINCT

_FEW = 5  # rows among which different texts, or numbers in order, may be by chance
_SOME = 20  # rows from which many different texts are not by chance
_MANY = 0.5  # different texts for a row: names rather than categories
_LONG = 30  # characters of texts that are sentences, on average
_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?$"
NUMBERING = (*NAMELESS, "index")  # names of columns of integers that name rows, in any order


def tidy(table: Table, *, named: bool) -> Table:
    """Take a first column that names the rows as the index, and leave out what tells nothing."""
    if table.n_rows == 0:
        raise DataError("there are no rows")
    if named:
        return table
    out = list(range(table.n_columns))
    _leave_out_row_numbers(table, out)
    _leave_out_names(table, out)
    gaps = [j for j in out if _is_missing(table, j)]
    if gaps == out:
        raise DataError("no column has a value")
    for j in gaps:
        _take_out(table, out, j, "it has no values")
    table.notes += [note for j in out for note in _doubts(table, j)]
    if len(out) < table.n_columns:
        table.select(out)
        if isinstance(table.X, pl.DataFrame) and all(t.is_numeric() for t in table.X.dtypes):
            table.X = as_floats(table.X.get_columns(), table.n_rows)
    return table


def _leave_out_row_numbers(table: Table, out: list[int]) -> None:
    if table.n_columns > 1 and _numbers_rows(table):
        _take_out(table, out, 0, "it numbers the rows")
        if table.index is None:
            table.take_index(_as_written(table).alias(table.name(0)))
    table.written = None


def _leave_out_names(table: Table, out: list[int]) -> None:
    """Leave out columns of texts that all differ; the first may name the rows."""
    for j in range(table.n_columns if isinstance(table.X, pl.DataFrame) else 0):
        column = table.X.to_series(j)
        if len(out) == 1 or j not in out or not _all_different(column):
            continue
        if j == 0 and table.index is None:
            table.take_index(column.alias(table.name(j)))
            _take_out(table, out, j, "it names the rows")
        else:
            why = "it is text, and every value is different"
            _take_out(table, out, j, why + _words_instead(table, j))


def _doubts(table: Table, j: int) -> list[str]:
    """Notes on a column of texts that may not be categories."""
    column = _column(table, j)
    if not _is_text(column):
        return []
    if _is_names(column):
        return [
            f"{table.place(j)} has almost as many texts as rows, each taken for a category: if it"
            " names the rows, leave it out (--drop, or --index)"
        ]
    if _is_dates(column):
        return [
            f"{table.place(j)} looks like dates, and each is taken for a category: turn them into"
            " numbers, or leave them out (--drop)"
        ]
    return []


def _take_out(table: Table, out: list[int], j: int, why: str) -> None:
    out.remove(j)
    column = table.place(j)
    if table.names is not None and table.names[j] == f"column {j}":
        column = f"{table.names[j]}, which has no name,"
    table.left_out.append(table.name(j))
    table.notes.append(f"{column} is not clustered by: {why} (--columns overrides)")


def _column(table: Table, j: int) -> Any:
    return table.X.to_series(j) if isinstance(table.X, pl.DataFrame) else table.X[:, j]


def _as_written(table: Table) -> pl.Series:
    """The first column: integers, or as text if they are not written as such, as 007 is."""
    column = pl.Series(_column(table, 0)) if table.written is None else table.written
    if column.dtype in (pl.Float64, pl.String):
        whole = column.cast(pl.Int64, strict=False)  # null where it is too large
        same = column.dtype == pl.Float64 or whole.cast(pl.String).equals(column)
        return whole if same and not whole.null_count() else column
    return column


def _numbers_rows(table: Table) -> bool:
    """Whether the first column is 0 … N−1 or 1 … N, in any order, or a nameless whole index."""
    column = _column(table, 0)
    if table.written is not None:
        column = table.written.cast(pl.Int64, strict=False)
    if isinstance(column, pl.Series):
        if not column.dtype.is_numeric() or column.null_count():
            return False
        column = column.to_numpy()
    ordered = np.sort(column)
    if table.names is not None and table.names[0] in NUMBERING:
        return bool((np.diff(ordered) > 0).all() and (column == np.floor(column)).all())
    count = np.arange(len(column)) + ordered[0]
    return len(column) >= _FEW and ordered[0] in (0.0, 1.0) and np.array_equal(ordered, count)


def _is_text(column: Any) -> bool:
    return isinstance(column, pl.Series) and column.dtype == pl.String  # no declared categories


def _all_different(column: pl.Series) -> bool:
    return _is_text(column) and len(column) >= _FEW and column.n_unique() == len(column)


def _words_instead(table: Table, j: int) -> str:
    column = _column(table, j)
    is_long = float(column.str.len_chars().mean()) > _LONG
    return f"; --text {table.name(j)} counts its words" if is_long else ""


def _is_names(column: pl.Series) -> bool:
    n_values = len(column) - column.null_count()
    # More than `DISTINCT` is an error later on, which says the same.
    return n_values >= _SOME and _MANY * n_values < column.n_unique() <= DISTINCT * n_values


def _is_dates(column: pl.Series) -> bool:
    return bool(column.drop_nulls().head(100).str.contains(_DATE).all())


def _is_missing(table: Table, j: int) -> bool:
    column = _column(table, j)
    if isinstance(column, pl.Series):
        return column.null_count() == len(column)
    return bool(np.isnan(column[0]) and np.isnan(column).all())
