"""CSV, TSV and their like: cells by Polars, block by block.

The rules do not depend on where blocks end.  A column is of numbers if its first value is one, and
then all must be; otherwise it is of texts, unless most of it are numbers, which is a mistake in the
file rather than a category.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from dpsearch._validate import name_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.io.blocks import BLOCK, Block, long_fields, records, text_blocks
from dpsearch.io.choice import Choice, choose
from dpsearch.io.sniff import (
    begins_with_names,
    first_rows,
    guess_separator,
    head_of,
    is_number,
)
from dpsearch.io.table import MISSING, Reading, Table, name_of, shown, unreadable

_WHOLE = 2.0**53  # in double precision every integer below is itself
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")
_SAID = re.compile(r"sep=([,;|\t])\r?\n")  # a first line for spreadsheets
WRITTEN = "dpsearch: the first column as it is written"  # beside it, as long as it is integers
_TRUTH = {"true": True, "false": False}


def read_delimited(
    path: Path,
    reading: Reading,
    *,
    block: int = BLOCK,
    progress: Callable[[int], None] | None = None,
) -> tuple[Table, Choice]:
    """Read a file of separated values, also compressed by gzip.

    Parameters
    ----------
    block
        Bytes to read at a time.
    progress
        Called with the number of rows read so far.
    """
    columns: Columns | None = None
    for columns in filled_columns(path, reading, block=block):
        if progress is not None:
            progress(columns.n_rows)
    assert columns is not None
    return columns.table(), columns.choice


def filled_columns(path: Path, reading: Reading, *, block: int = BLOCK) -> Iterator[Columns]:
    """Yield the columns each time a block has been added to them: at least once."""
    _check_options(reading)
    try:
        with _opened(path) as stream, long_fields():
            yield from _filled(stream, path, reading, block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"damaged, or not a gzip file: {error}") from error


def _check_options(reading: Reading) -> None:
    separator = reading.separator
    if separator is not None and (
        len(separator) != 1 or not separator.isascii() or separator in '"\n\r'
    ):
        raise ParameterError.of("--separator", f"must be one character, got {separator!r}")
    if reading.decimal_comma and separator == ",":
        raise ParameterError.of("--decimal-comma", "needs another --separator than the comma")


def _opened(path: Path) -> Any:
    with path.open("rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path) if compressed or path.suffix == ".gz" else path.open("rb")


def _filled(stream: IO[bytes], path: Path, reading: Reading, size: int) -> Iterator[Columns]:
    columns: Columns | None = None
    line = 1
    blocks = text_blocks(stream, reading.encoding, size)
    head = head_of(blocks)
    start = "".join(head)
    said = _SAID.match(start)
    if said:
        start, line = start[said.end() :], 2
    separator = reading.separator or (said[1] if said else None)
    separator = separator or guess_separator(start, ".tsv" in path.suffixes)
    for text in itertools.chain([start], blocks):
        block = records(text, separator, line)
        line += text.count("\n")
        if not len(block.fields):
            continue
        if columns is None:
            first, rest = _divided(block, separator)
            header, note = _header(first, first_rows(start, separator)[1:], reading)
            names = None
            if header:
                names = [cell.strip() or name_of(None, j) for j, cell in enumerate(first)]
                block = rest
            choice = choose(names, len(first), reading)
            columns = Columns(names, len(first), choice, reading, separator)
            columns.notes += [note] if note else []
            if not len(block.fields):
                continue
        columns.add(block)
        yield columns
    if columns is None:
        raise DataError("the file is empty")
    if columns.n_rows == 0:
        raise DataError("a line of column names and no data")


def _header(first: list[str], below: list[list[str]], reading: Reading) -> tuple[bool, str | None]:
    """Whether the first line has names, as the user says, as the model knows, or as it looks."""
    if reading.header is not None:
        return reading.header, None
    known = None if reading.model is None else reading.model.names
    if known is not None and set(known) <= {cell.strip() for cell in first}:
        return True, None
    return begins_with_names(first, below, reading.decimal_comma)


def _divided(block: Block, separator: str) -> tuple[list[str], Block]:
    """Return the cells of the first record, and the other records."""
    stream = io.StringIO(block.text.decode(), newline="")
    first = next(csv.reader(stream, delimiter=separator))
    rest = stream.read().encode()
    return first, Block(rest, block.lines[1:], block.fields[1:])


class Columns:
    """The columns as far as they have been read."""

    def __init__(
        self,
        names: list[str] | None,
        width: int,
        choice: Choice,
        reading: Reading,
        separator: str,
    ) -> None:
        self.names, self.width, self.choice = names, width, choice
        self.separator = separator
        self.decimal_comma = reading.decimal_comma
        self.blocks: list[pl.DataFrame] = []  # numbers and texts as they are
        self.lines: list[Any] = []
        self.notes: list[str] = []
        self.n_rows = 0
        aside = [j for j in (choice.index, choice.text) if j is not None]
        self.used = list(dict.fromkeys([*choice.kept, *aside]))
        # By column number: what are texts; the others are numbers, or not known as long as nothing
        # but gaps has been seen.
        self.texts: set[int] = {*aside, *(choice.categories & set(choice.kept))}
        self.first_text: dict[int, tuple[int, str]] = {}  # the line and the cell
        self.like_numbers: dict[int, int] = {}
        self.n_texts: dict[int, int] = {}
        self.not_truths: set[int] = set(choice.categories)
        self.known: set[int] = set()
        self.whole: set[int] = set(choice.kept)
        self.large: set[int] = set()  # with more digits than double precision has
        # The first column may turn out to number the rows: then it is wanted as it was written.
        self.first = None if choice.named else choice.kept[0]
        self.plain = True  # whether it is so far as numbers are printed, unlike 007

    def add(self, block: Block) -> None:
        self._check_width(block)
        schema = {str(j): pl.String for j in range(self.width)}
        try:
            frame = pl.read_csv(
                block.text,
                has_header=False,
                schema=schema,
                separator=self.separator,
                null_values=list(MISSING),
            ).select([str(j) for j in self.used])
        except pl.exceptions.PolarsError as error:
            place = f"from line {block.lines[0]}"
            raise unreadable(f"{place}: not a CSV file: {error}") from error
        numeric = [j for j in self.used if j not in self.texts]
        if self.decimal_comma:
            self._refuse_thousands(frame, numeric, block)
        casts = frame.select(pl.col([str(j) for j in numeric]).cast(pl.Float64, strict=False))
        doubtful = _more_nulls(casts, frame)
        if doubtful:
            frame = frame.with_columns(_stripped(pl.col(doubtful), self.decimal_comma))
            again = frame.select(pl.col(doubtful).cast(pl.Float64, strict=False))
            casts = casts.with_columns(again.get_columns())
            for name in _more_nulls(again, frame):
                self._meet_text(int(name), frame[name], again[name], block)
        texts = _only(frame, [str(j) for j in self.used if j in self.texts])
        texts = texts.select(_stripped(pl.all())) if texts.width else texts
        casts = _only(casts, [str(j) for j in numeric if j not in self.texts])
        self._note_numbers(frame, casts, block)
        self._note_texts(texts)
        columns = {series.name: series for series in (*casts, *texts)}
        columns = {name_of(self.names, j): columns[str(j)] for j in self.used}
        self._keep_first(frame, columns)
        self.blocks.append(pl.DataFrame([cells.alias(name) for name, cells in columns.items()]))
        self.lines.append(block.lines)
        self.n_rows += frame.height

    def _check_width(self, block: Block) -> None:
        wrong = np.flatnonzero(block.fields != self.width)
        if len(wrong):
            line, fields = block.lines[int(wrong[0])], block.fields[wrong[0]]
            raise DataError(f"{fields} cells, expected {self.width}", line=int(line))

    def _refuse_thousands(self, frame: pl.DataFrame, numeric: list[int], block: Block) -> None:
        """Refuse 1.234 where commas are decimal: it would be read as a little more than one."""
        for j in numeric:
            cells = frame[str(j)]
            at = cells.str.contains(f"^{_POINTS.pattern}$").arg_true()
            first = cells.drop_nulls().head(1)
            if len(at) and is_number(first[0], True):
                raise self._not_a_number(j, block.lines[int(at[0])], cells[int(at[0])])

    def _meet_text(self, j: int, cells: pl.Series, casts: pl.Series, block: Block) -> None:
        """Take a column for texts if the first of its values is not a number; raise otherwise."""
        at = (cells.is_not_null() & casts.is_null()).arg_true()[0]
        first = cells.is_not_null().arg_true()[0]
        if j in self.known or at != first:
            raise self._not_a_number(j, block.lines[at], cells[at])
        self.first_text[j] = (int(block.lines[at]), cells[at])
        self.texts.add(j)

    def _not_a_number(self, j: int, line: int, cell: str) -> DataError:
        hint = ""
        if _THOUSANDS.fullmatch(cell):
            hint = " (a comma between thousands? leave it out)"
        elif _POINTS.fullmatch(cell) and self.decimal_comma:
            hint = " (a point between thousands? leave it out)"
        elif "," in cell and is_number(cell, True):
            hint = " (a decimal comma? say --decimal-comma)"
        elif not any(char.isdigit() for char in cell):
            hint = "; if it is a category, say --category, if it is a gap, leave it empty"
        return DataError(
            f"{shown(cell)} is not a number{hint}", line=line, column=name_column(self.names, j)
        )

    def _note_numbers(self, frame: pl.DataFrame, casts: pl.DataFrame, block: Block) -> None:
        sizes: list[Any] = [
            np.fmax.reduce(np.abs(cells.to_numpy())) if cells.count() else None for cells in casts
        ]
        if math.inf in sizes:
            infinite = np.argwhere(np.isinf(casts.to_numpy()))
            row, column = infinite[0].tolist()
            name = casts.columns[column]
            raise DataError(
                f"{shown(frame[name][row])} is not finite",
                line=int(block.lines[row]),
                column=name_column(self.names, int(name)),
            )
        seen = {int(name): size for name, size in zip(casts.columns, sizes) if size is not None}
        self.known |= set(seen)
        self.large |= {j for j, size in seen.items() if size >= _WHOLE}
        whole = [name for name in casts.columns if int(name) in self.whole]
        integers = frame.select(pl.col(whole).cast(pl.Int64, strict=False))
        self.whole -= {int(name) for name in _more_nulls(integers, frame)}

    def _note_texts(self, texts: pl.DataFrame) -> None:
        for cells in texts:
            j = int(cells.name)
            self.n_texts[j] = self.n_texts.get(j, 0) + cells.count()
            lower = cells.drop_nulls().str.to_lowercase()
            if j not in self.not_truths and not lower.is_in(list(_TRUTH)).all():
                self.not_truths.add(j)
            if j in self.first_text:
                plain = cells.str.replace_all(",", "", literal=True).cast(pl.Float64, strict=False)
                self.like_numbers[j] = self.like_numbers.get(j, 0) + plain.count()

    def _keep_first(self, frame: pl.DataFrame, columns: dict[str, pl.Series]) -> None:
        """Keep the first column's cells as long as all of them are integers."""
        if self.first is None:
            return
        cells = frame[str(self.first)]
        if self.first in self.whole and self.first not in self.texts and not cells.null_count():
            integers = cells.cast(pl.Int64)  # not all of them are doubles
            self.plain = self.plain and integers.cast(pl.String).equals(cells)
            columns |= {name_of(self.names, self.first): integers, WRITTEN: cells}
        else:
            self.first = None

    # -- the end ----------------------------------------------------------------------------

    def drain(self) -> pl.DataFrame:
        """Hand over what was added last, numbers and texts as they are, and forget it."""
        self.lines.clear()
        return self.blocks.pop()

    def types(self) -> dict[str, Any]:
        """Return what each column turned out to hold, once all has been added."""
        for j, (line, cell) in self.first_text.items():
            if j in self.choice.kept and 2 * self.like_numbers[j] > self.n_texts[j]:
                raise self._not_a_number(j, line, cell)
        found: dict[str, Any] = {}
        for j in self.used:
            integers = j in self.whole and (j not in self.large or j == self.first)
            kind: Any = pl.Int64 if integers else pl.Float64
            if j in self.texts:
                truths = j in self.choice.kept and j not in self.not_truths
                kind = pl.Boolean if truths else pl.String
            found[name_of(self.names, j)] = kind
        if self.first is not None:
            found[WRITTEN] = pl.Int64 if self.plain else pl.String
        return found

    def table(self) -> Table:
        """Return all that was added; the blocks are given up for it."""
        types, choice = self.types(), self.choice
        kept = [name_of(self.names, j) for j in choice.kept]
        numbers = choice.text is None and not self.texts & set(choice.kept)
        others = [name for name in types if not numbers or name not in kept]
        matrix, parts, row = np.empty((self.n_rows, len(kept) if numbers else 0)), [], 0
        self.blocks.reverse()
        while self.blocks:  # each is freed when it has been copied
            block = self.blocks.pop()
            parts.append(typed(_only(block, others), types))
            if numbers:
                matrix[row : row + block.height] = _only(block, kept).to_numpy(order="c")
            row += block.height
        frame = pl.concat(parts)
        table = Table(matrix, notes=self.notes, lines=self.lines)
        table.take_columns(self.names, self.width, choice.kept)
        if self.first is not None:
            table.written = frame[WRITTEN]
        if choice.index is not None:
            table.take_index(frame[name_of(self.names, choice.index)])
        if choice.text is not None:
            table.X = frame[name_of(self.names, choice.text)]
        elif not numbers:
            groups = [name_of(self.names, j) for j in choice.categories]
            texts = _only(frame, groups).cast(pl.Categorical)
            table.X = _only(frame, kept).with_columns(texts.get_columns())
        return table


def _only(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return some columns; Polars's own ways take names for patterns, or take long."""
    return pl.DataFrame([frame[name] for name in names])


def typed(frame: pl.DataFrame, types: dict[str, Any]) -> pl.DataFrame:
    """Return columns of numbers and texts as what they turned out to be when all had been seen."""
    columns = []
    for series in frame.with_columns(pl.col(pl.Float64).fill_nan(None)):
        wanted = types.get(series.name, series.dtype)
        if series.dtype == pl.String and wanted == pl.Boolean:
            series = series.str.to_lowercase().replace_strict(_TRUTH, return_dtype=pl.Boolean)
        columns.append(series.cast(wanted))
    return pl.DataFrame(columns) if columns else frame


def _stripped(cells: pl.Expr, decimal_comma: bool = False) -> pl.Expr:
    """Strip blanks, turn gaps into nulls, and write a decimal point."""
    cells = cells.str.strip_chars()
    if decimal_comma:
        cells = cells.str.replace(",", ".", literal=True)
    return pl.when(cells.is_in(list(MISSING))).then(None).otherwise(cells).name.keep()


def _more_nulls(casts: pl.DataFrame, frame: pl.DataFrame) -> list[str]:
    """Return the columns in which a cast failed."""
    before, after = frame.null_count(), casts.null_count()
    return [name for name in casts.columns if after[name][0] > before[name][0]]
