"""Columns that are not measurements: row numbers, names of rows, and columns without a value.

Clustering by a row number finds clusters of rows that follow each other.  Unless the user names the
columns, such a column is left out, and said to be.  The rules are about facts that blocks of rows
add up to; a table in memory is one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from dpsearch.errors import DataError
from dpsearch.io.table import NAMELESS, Table, as_floats
from dpsearch.tables import DISTINCT

FEW = 5  # rows among which different texts, or numbers in order, may be by chance
_SOME = 20  # rows from which many different texts, or integers in steps of one, are not by chance
_MANY = 0.5  # different texts for a row: names rather than categories
_LONG = 30  # characters of texts that are sentences, on average
_DATE = r"^\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ].*)?$"
_NUMBERING = (*NAMELESS, "index")  # names of columns of integers that name rows, in any order
_WHOLE = 2.0**53  # in double precision every integer below is itself
_WORD = 2**64


@dataclass
class Facts:
    """What decides whether a column is clustered by."""

    name: str
    place: str  # the column as messages name it
    empty: bool = False  # whether no row has a value
    numbers_rows: bool = False
    all_different: bool = False  # of texts
    compared: str = "every value"  # those that differ
    long: bool = False  # whether texts are sentences
    doubt: str = ""  # about a column of texts that may not be categories


@dataclass
class Decision:
    """The columns to cluster by, and what is said about the others."""

    kept: list[int]
    index: int | None = None  # the column that names the rows
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def decide(columns: Sequence[Facts], *, indexed: bool = False) -> Decision:
    """Take a first column that names the rows as the index, and leave out what tells nothing.

    `indexed` says that the rows have names already.
    """
    found = Decision(list(range(len(columns))))

    def leave_out(j: int, why: str) -> None:
        found.kept.remove(j)
        found.left_out.append(columns[j].name)
        found.notes.append(f"{columns[j].place} is not clustered by: {why} (--columns overrides)")

    if len(columns) > 1 and columns[0].numbers_rows:
        leave_out(0, "it numbers the rows")
        found.index = None if indexed else 0
    for j, column in enumerate(columns):
        if len(found.kept) == 1 or j not in found.kept or not column.all_different:
            continue
        if j == 0 and not indexed:
            found.index = 0
            leave_out(j, "it names the rows")
        else:
            words = f"; --text {column.name} counts its words" if column.long else ""
            leave_out(j, f"it is text, and {column.compared} is different{words}")
    gaps = [j for j in found.kept if columns[j].empty]
    if gaps == found.kept:
        raise DataError("no column has a value")
    for j in gaps:
        leave_out(j, "it has no values")
    found.notes += [columns[j].doubt for j in found.kept if columns[j].doubt]
    return found


def place_of(name: str, number: int, *, unnamed: bool) -> str:
    """Return a column as messages name it; names of columns without one are made up."""
    if unnamed:
        return name
    return f"{name}, which has no name," if name == f"column {number}" else f"column {name!r}"


class Numbering:
    """Whether a column numbers the rows.

    That N integers are 0 … N−1 in some order is known by their sum and sum of squares modulo
    2⁶⁴ and by their range; it takes no memory.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.maybe = True  # integers, none missing, none twice in a block
        self.in_steps = True  # of one
        self.n_values = self.total = self.squares = 0
        self.least, self.most = np.inf, -np.inf
        self.last: Any = None

    def add(self, series: pl.Series) -> None:
        if not self.maybe or not len(series):
            return
        if series.dtype.is_integer() and not series.null_count():
            values, whole = series.cast(pl.Int64).to_numpy(), True
        else:
            values = series.cast(pl.Float64).fill_null(float("nan")).to_numpy()
            whole = bool((values == np.floor(values)).all())
        self.maybe = whole and len(np.unique(values)) == len(values)
        if not self.maybe:
            return
        before = values[:0] if self.last is None else [self.last]
        self.in_steps &= bool((np.diff(np.concatenate([before, values])) == 1).all())
        self.last = values[-1].item()
        self.n_values += len(values)
        self.least = min(self.least, values.min().item())
        self.most = max(self.most, values.max().item())
        if abs(self.least) < _WHOLE and self.most < _WHOLE:  # otherwise the sums are not asked for
            words = values.astype(np.int64).astype(np.uint64)
            self.total += int(words.sum())
            self.squares += int((words * words).sum())

    def numbers_rows(self, n_rows: int) -> bool:
        """Whether it is 0 … N−1 or 1 … N, in any order, or a nameless whole index."""
        if not self.maybe or self.n_values < n_rows:
            return False
        if self.name in _NUMBERING:
            return True
        if self.least not in (0, 1) or self.most != self.least + n_rows - 1 or n_rows < FEW:
            return False
        top = int(self.most)
        sums = top * (top + 1) // 2, top * (top + 1) * (2 * top + 1) // 6
        return (self.total % _WORD, self.squares % _WORD) == (sums[0] % _WORD, sums[1] % _WORD)

    def one_by_one(self, n_rows: int) -> bool:
        """Whether it counts the rows in their order."""
        return self.maybe and self.n_values == n_rows and self.in_steps and n_rows >= _SOME


def tidy(table: Table, *, named: bool) -> Table:
    """Leave out what `decide` says of a table, unless the user or a model named the columns."""
    if table.n_rows == 0:
        raise DataError("there are no rows")
    if named:
        return table
    facts = [_facts(table, j) for j in range(table.n_columns)]
    found = decide(facts, indexed=table.index is not None)
    if found.index is not None:
        table.take_index(_as_written(table).alias(table.name(0)))
    table.written = None
    table.notes += found.notes
    table.left_out += found.left_out
    if len(found.kept) < table.n_columns:
        table.select(found.kept)
        if isinstance(table.X, pl.DataFrame) and all(t.is_numeric() for t in table.X.dtypes):
            table.X = as_floats(table.X.get_columns(), table.n_rows)
    return table


def _facts(table: Table, j: int) -> Facts:
    name, column = table.name(j), _column(table, j)
    facts = Facts(name, place_of(name, j, unnamed=table.names is None))
    if j == 0 and table.n_columns > 1:
        first = pl.Series(column)
        if table.written is not None:
            first = table.written.cast(pl.Int64, strict=False)
        numbering = Numbering(None if table.names is None else name)
        if first.dtype.is_numeric():
            numbering.add(first)
        facts.numbers_rows = numbering.numbers_rows(table.n_rows)
    if not isinstance(column, pl.Series):
        facts.empty = bool(np.isnan(column[0]) and np.isnan(column).all())
        return facts
    n_values = column.count()
    facts.empty = n_values == 0
    if column.dtype == pl.String and n_values:  # no declared categories
        n_different = column.n_unique()
        facts.all_different = n_different == len(column) >= FEW
        facts.long = float(column.str.len_chars().mean()) > _LONG  # type: ignore[arg-type]
        # More than `DISTINCT` is an error later on, which says the same.
        if n_values >= _SOME and _MANY * n_values < n_different <= DISTINCT * n_values:
            facts.doubt = (
                f"{facts.place} has almost as many texts as rows, each taken for a category: if"
                " it names the rows, leave it out (--drop, or --index)"
            )
        elif column.drop_nulls().head(100).str.contains(_DATE).all():
            facts.doubt = (
                f"{facts.place} looks like dates, and each is taken for a category: turn them"
                " into numbers, or leave them out (--drop)"
            )
    return facts


def _column(table: Table, j: int) -> Any:
    return table.X.to_series(j) if isinstance(table.X, pl.DataFrame) else table.X[:, j]


def _as_written(table: Table) -> pl.Series:
    """Return the first column: integers, or text if they are not written as such, as 007 is."""
    column = pl.Series(_column(table, 0)) if table.written is None else table.written
    if column.dtype == pl.String and table.written is None:
        return column
    if column.dtype in (pl.Float64, pl.String):
        whole = column.cast(pl.Int64, strict=False)  # null where it is too large
        same = column.dtype == pl.Float64 or whole.cast(pl.String).equals(column)
        return whole if same and not whole.null_count() else column
    return column
