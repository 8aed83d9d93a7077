"""CSV, TSV and similar files, read by Polars block by block.

The result does not depend on where blocks end.  A column holds numbers if all its cells do, and
none of them is a code such as 007; otherwise it holds texts, which the triage may read as dates,
numbers with units and so on.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl

from dpsearch._numbers import count
from dpsearch.errors import DataError, ParameterError
from dpsearch.io.blocks import BLOCK, Block, long_fields, records, text_blocks
from dpsearch.io.choice import Choice, choose
from dpsearch.io.sniff import begins_with_names, count_titles, first_rows, guess_separator, head_of
from dpsearch.io.table import MISSING, WHOLE, Reading, Table, name_of, unreadable
from dpsearch.tables.frames import distinct_names

_POINTS = r"^[+-]?\d{1,3}(\.\d{3})+(,\d*)?$"  # points between thousands
_CODE = r"^[+-]?0\d+$|^\d{20,}$"  # digits that are not a quantity
_SEPARATOR_LINE = re.compile(r"sep=([,;|\t])\r?\n")  # a first line for spreadsheets


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
    """Yield the columns after each block that is added to them, at least once."""
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
    given = _SEPARATOR_LINE.match(start)
    if given:
        start, line = start[given.end() :], 2
    separator = reading.separator or (given[1] if given else None)
    separator = separator or guess_separator(start, ".tsv" in path.suffixes)
    for text in itertools.chain([start], blocks):
        block = records(text, separator, line)
        line += text.count("\n")
        if not len(block.fields):
            continue
        if columns is None:
            columns, block = _first_columns(block, start, separator, reading)
            if not len(block.fields):
                continue
        columns.add(block)
        yield columns
    if columns is None:
        raise DataError("the file is empty")
    if columns.n_rows == 0:
        raise DataError("the file has column names but no rows")


def _first_columns(
    block: Block, start: str, separator: str, reading: Reading
) -> tuple[Columns, Block]:
    """Return the columns, named by the first record if it has names, and the other records."""
    rows = first_rows(start, separator)
    titles = count_titles(rows, reading.decimal_comma) if reading.header is None else 0
    for _ in range(titles):
        _, block = _split_first(block, separator)
    first, rest = _split_first(block, separator)
    header, note = _header(first, rows[titles + 1 :], reading)
    if titles:
        note = (
            f"{count(titles, 'line')} before the column names skipped as a title; use --header if"
            " the first line has the names"
        )
    names = None
    if header:
        given = [cell.strip() or name_of(None, j) for j, cell in enumerate(first)]
        names = distinct_names(given)
        block = rest
    choice = choose(names, len(first), replace(reading, header=header))
    columns = Columns(names, len(first), choice, reading, separator)
    columns.notes += [note] if note else []
    return columns, block


def _header(first: list[str], below: list[list[str]], reading: Reading) -> tuple[bool, str | None]:
    """Whether the first line has names, by the user, the model or its cells; and a note."""
    if reading.header is not None:
        return reading.header, None
    known = None if reading.model is None else reading.model.names
    if known is not None and set(known) <= {cell.strip() for cell in first}:
        return True, None
    return begins_with_names(first, below, reading.decimal_comma)


def _split_first(block: Block, separator: str) -> tuple[list[str], Block]:
    """Return the cells of the first record, and the other records."""
    stream = io.StringIO(block.text.decode(), newline="")
    first = next(csv.reader(stream, delimiter=separator))
    rest = stream.read().encode()
    return first, Block(rest, block.lines[1:], block.fields[1:])


class Columns:
    """The columns of a file that is being read."""

    def __init__(
        self, names: list[str] | None, width: int, choice: Choice, reading: Reading, separator: str
    ) -> None:
        self.names, self.width, self.choice = names, width, choice
        self.separator = separator
        self.decimal_comma = reading.decimal_comma
        self.blocks: list[pl.DataFrame] = []  # of numbers and texts
        self.lines: list[Any] = []
        self.notes: list[str] = []
        self.n_rows = 0
        aside = [j for j in (choice.index, choice.text) if j is not None]
        self.used = list(dict.fromkeys([*choice.kept, *aside]))
        # Indices of columns: the texts, with all others numbers; the integers; …
        self.texts: set[int] = {*aside, *(choice.categories & set(choice.kept))}
        self.whole: set[int] = set(choice.kept)
        self.large: set[int] = set()  # … and those with more digits than double precision has

    def add(self, block: Block) -> None:
        self._check_width(block)
        frame = self._cells(block)
        numeric = [str(j) for j in self.used if j not in self.texts]
        codes = frame.select(pl.col(numeric).str.contains(_CODE).any())
        self.texts |= {int(name) for name in numeric if codes[name][0]}
        numeric = [name for name in numeric if int(name) not in self.texts]
        casts = frame.select(pl.col(numeric).cast(pl.Float64, strict=False))
        doubtful = numeric if self.decimal_comma else _more_nulls(casts, frame)
        if doubtful:
            frame = frame.with_columns(_stripped(pl.col(doubtful)))
            plain = frame.select(
                _with_decimal_point(pl.col(doubtful)) if self.decimal_comma else doubtful
            )
            again = plain.select(pl.all().cast(pl.Float64, strict=False))
            casts = casts.with_columns(again.get_columns())
            self.texts |= {int(name) for name in _more_nulls(again, frame)}
        texts = _only(frame, [str(j) for j in self.used if j in self.texts])
        texts = texts.select(_stripped(pl.all())) if texts.width else texts
        casts = _only(casts, [name for name in numeric if int(name) not in self.texts])
        columns = {series.name: series for series in (*casts, *texts)}
        columns |= self._large_integers(frame, casts)
        self.blocks.append(
            pl.DataFrame([columns[str(j)].alias(name_of(self.names, j)) for j in self.used])
        )
        self.lines.append(block.lines)
        self.n_rows += frame.height

    def _cells(self, block: Block) -> pl.DataFrame:
        """Return the cells of the columns that are used, as texts."""
        schema = {str(j): pl.String for j in range(self.width)}
        try:
            frame = pl.read_csv(
                block.text,
                has_header=False,
                schema=schema,
                separator=self.separator,
                null_values=list(MISSING),
            )
        except pl.exceptions.PolarsError as error:
            place = f"from line {block.lines[0]}"
            raise unreadable(f"{place}: not a CSV file: {error}") from error
        return frame.select([str(j) for j in self.used])

    def _check_width(self, block: Block) -> None:
        wrong = np.flatnonzero(block.fields != self.width)
        if len(wrong):
            line, fields = block.lines[int(wrong[0])], block.fields[wrong[0]]
            raise DataError(
                f"{fields} cells, but the first line has {self.width}; put cells that contain"
                f" {self.separator!r} in quotation marks, and remove titles and notes",
                line=int(line),
            )

    def _large_integers(self, frame: pl.DataFrame, casts: pl.DataFrame) -> dict[str, pl.Series]:
        """Update `whole` and `large`; return the integers that double precision does not hold."""
        for cells in casts:
            if cells.count() and cells.abs().max() >= WHOLE:  # type: ignore[operator]
                self.large.add(int(cells.name))
        whole = [name for name in casts.columns if int(name) in self.whole]
        integers = frame.select(pl.col(whole).cast(pl.Int64, strict=False))
        self.whole -= {int(name) for name in _more_nulls(integers, frame)}
        large = self.whole & self.large
        return {name: integers[name] for name in whole if int(name) in large}

    # -- the end ----------------------------------------------------------------------------

    def drain(self) -> pl.DataFrame:
        """Return the last block that was added, of numbers and texts, and drop it here."""
        self.lines.clear()
        return self.blocks.pop()

    def types(self) -> dict[str, Any]:
        """Return the type of each column, which is known once all blocks have been added."""
        found: dict[str, Any] = {}
        for j in self.used:
            number = pl.Int64 if j in self.whole else pl.Float64
            found[name_of(self.names, j)] = pl.String if j in self.texts else number
        return found

    def table(self) -> Table:
        """Return all blocks as one table, which empties the list of blocks."""
        types, choice = self.types(), self.choice
        kept = [name_of(self.names, j) for j in choice.kept]
        no_floats = self.texts | (self.large & self.whole)
        numbers = choice.text is None and not no_floats & set(choice.kept)
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
    """Return some columns; Polars's own methods take names for patterns, or are slow."""
    return pl.DataFrame([frame[name] for name in names])


def typed(frame: pl.DataFrame, types: dict[str, Any]) -> pl.DataFrame:
    """Return a block's columns of numbers and texts with the types of the whole file."""
    columns = []
    for series in frame.with_columns(pl.col(pl.Float64).fill_nan(None)):
        wanted = types.get(series.name, series.dtype)
        if series.dtype == pl.Float64 and wanted == pl.String:
            whole = series.cast(pl.Int64, strict=False)
            series = whole if (whole.cast(pl.Float64) == series).all() else series
        columns.append(series.cast(wanted, strict=False))
    return pl.DataFrame(columns) if columns else frame


def _stripped(cells: pl.Expr) -> pl.Expr:
    """Strip blanks, and replace gaps by nulls."""
    cells = cells.str.strip_chars()
    return pl.when(cells.is_in(list(MISSING))).then(None).otherwise(cells).name.keep()


def _with_decimal_point(cells: pl.Expr) -> pl.Expr:
    """Replace a decimal comma by a point, and remove separators of thousands."""
    plain = cells.str.replace_all(".", "", literal=True)
    plain = pl.when(cells.str.contains(_POINTS)).then(plain).otherwise(cells)
    return plain.str.replace(",", ".", literal=True).name.keep()


def _more_nulls(casts: pl.DataFrame, frame: pl.DataFrame) -> list[str]:
    """Return the columns in which a cast failed."""
    before, after = frame.null_count(), casts.null_count()
    return [name for name in casts.columns if after[name][0] > before[name][0]]
