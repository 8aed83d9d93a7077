"""`open_shards`: paths and batches as shards, for as long as a fit takes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsearch.errors import DataError, ParameterError
from dpsearch.scale.pieces import Layout, Piece, PieceShard, cut
from dpsearch.scale.source import SHARD_ROWS, Shard, n_shards_for, shards_of_array
from dpsearch.tables import Schema, is_mixed

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading
    from dpsearch.scale.batches import Alike
    from dpsearch.scale.files import Files
    from dpsearch.scale.survey import Columns

_BASE = 400 << 20  # bytes of a process that has only just begun, with its kernels and a sample
_COPIES = 6  # of a shard: as read, as a matrix, as items, in a family's own form, …
_PER_ROW = 200  # bytes beside: labels, orders, weights
_FEWEST = 1000  # rows of a shard


@dataclass
class Opened:
    """Shards, and what is known about their columns and rows."""

    shards: list[Any]
    n_columns: int
    names: list[str] | None = None
    schema: Schema | None = None
    source: str = "X"
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    index: str | int | None = None  # the column that names the rows
    index_name: str = "row"
    written: bool = False  # whether it is there as it is written, too
    numbers: list[int] | None = None  # of the columns in the file, if they are not all of them
    lasting: bool = False  # whether shards are the user's own files, and not temporary ones

    @property
    def n_rows(self) -> int:
        return sum(shard.n_rows for shard in self.shards)

    def index_of(self, shard: PieceShard) -> Any:
        """The names of a shard's rows; None if they have none."""
        import polars as pl

        from dpsearch.io.delimited import WRITTEN

        if self.index is None:
            return None
        series = shard.column(WRITTEN if self.written else self.index).alias(self.index_name)
        return series.cast(pl.Int64) if series.dtype == pl.Float64 else series


def is_source(X: Any) -> bool:
    """Whether X is a path, an iterator of batches, or a function that returns one."""
    return isinstance(X, (str, os.PathLike, Iterator)) or (callable(X) and not hasattr(X, "shape"))


def rows_within(memory: int, n_columns: int, n_threads: int) -> int:
    """How many rows a shard may have so that all threads' shards stay within so many bytes."""
    if memory < 1.25 * _BASE:
        raise ParameterError(
            f"memory must be at least {1.25 * _BASE / 1e6:.0f} MB, got {memory / 1e6:.0f} MB"
        )
    per_row = 8 * n_columns * _COPIES + _PER_ROW
    return max(_FEWEST, min(SHARD_ROWS, (memory - _BASE) // (n_threads * per_row)))


@dataclass(frozen=True)
class Wishes:
    """How a source is to be divided, and what its columns are."""

    n_shards: int | None = None
    gaps: bool = True
    kinds: Any = None
    reading: Reading | None = None
    memory: int | None = None
    n_threads: int = 1
    schema: Schema | None = None  # of a model, for new rows
    tell: Callable[[int], None] | None = None

    def block(self, n_columns: int) -> int:
        """Rows that are read at once."""
        if self.memory is None:
            return SHARD_ROWS
        return rows_within(self.memory, n_columns, self.n_threads)

    def divide(self, n_rows: int, n_columns: int) -> int:
        if self.n_shards is None and self.memory is not None:
            return -(-n_rows // self.block(n_columns))
        return n_shards_for(n_rows, n_columns, self.n_shards)


@contextmanager
def open_shards(X: Any, wishes: Wishes) -> Iterator[Opened]:
    """Yield the shards of a path or of batches.  Temporary files are gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="dpsearch-") as name:
        folder = Path(name)
        if isinstance(X, (str, os.PathLike)):
            yield from _of_path(Path(X), folder, wishes)
        elif isinstance(X, Iterator):
            yield _of_batches(X, folder, wishes)
        else:
            yield _of_calls(X, wishes)


# -- paths ------------------------------------------------------------------------------------


def _of_path(path: Path, folder: Path, wishes: Wishes) -> Iterator[Opened]:
    from dpsearch.io import Reading
    from dpsearch.io.read import STANDARD_INPUT, check_options, format_of, local_file
    from dpsearch.scale.files import comes_in_pieces, open_files, set_of_files

    reading = wishes.reading or Reading()
    if not comes_in_pieces(path, reading):
        yield _in_memory(path, reading, wishes)
        return
    source = STANDARD_INPUT if str(path) == "-" else str(path)
    is_set = set_of_files(path) is not None
    check_options("parquet" if is_set else format_of(path, reading), reading, source)
    if is_set:
        yield _of_files(open_files(path, source, reading, folder, wishes.tell), wishes)
        return
    with local_file(path) as local:
        files = open_files(local, source, reading, folder, wishes.tell)
        yield _of_files(files, wishes)


def _of_files(files: Files, wishes: Wishes) -> Opened:
    from dpsearch.io.table import PANDAS_INDEX

    pieces, choice = files.pieces, files.choice
    if wishes.reading is not None and wishes.reading.model is not None:
        wishes.reading.model.check_width(len(choice.kept), files.source)
    if files.names is None:
        layout = Layout(None, tuple(choice.kept), wishes.schema, wishes.gaps)
        width = len(choice.kept)
        shards = cut(pieces, wishes.divide(files.n_rows, width), layout)
        return Opened(shards, width, source=files.source, index=choice.index,
                      index_name=f"column {choice.index}",
                      numbers=files.numbers(choice.kept))  # fmt: skip
    found = _columns(files, wishes)
    index, index_name = found.index, found.index_name
    if choice.index is not None:
        index = files.names[choice.index]
        index_name = "row" if index == PANDAS_INDEX else index
    names = found.names
    layout = Layout(tuple(names), schema=found.schema, gaps=wishes.gaps)
    shards = cut(pieces, wishes.divide(files.n_rows, len(names)), layout)
    told = None if files.unnamed and found.schema is None else names
    places = {name: j for j, name in enumerate(files.names)}
    return Opened(shards, len(names), told, found.schema, files.source, found.notes,
                  found.left_out, index, index_name, files.written and choice.index is None,
                  files.numbers([places[name] for name in names]), files.lasting)  # fmt: skip


def _columns(files: Files, wishes: Wishes) -> Columns:
    """The columns that a model knows, or those that a look at all rows finds fit to cluster by."""
    from dpsearch.scale.survey import Columns, Survey

    choice, reading = files.choice, wishes.reading
    if reading is not None and reading.model is not None:
        assert files.names is not None
        names = [files.names[j] for j in choice.kept]
        return Columns(names, None if wishes.schema is None else wishes.schema.renamed(names))
    survey = Survey(files.types, files.n_rows, categories=files.categories, kinds=wishes.kinds,
                    named=choice.named, unnamed=files.unnamed)  # fmt: skip
    _surveyed(survey, files.pieces, wishes.block(len(files.types)))
    return survey.columns(files.source)


def _surveyed(survey: Any, pieces: Iterable[Piece], block: int) -> None:
    for piece in pieces:
        for begin in range(0, piece.n_rows, block):
            names = survey.needed()
            if not names:
                return
            frame = piece.read(begin, min(begin + block, piece.n_rows), names)
            survey.add(frame, piece.source, piece.first + begin)


def _in_memory(path: Path, reading: Reading, wishes: Wishes) -> Opened:
    """Formats that cannot be read in pieces are read at once, and then divided."""
    from dpsearch.io import read_table

    if wishes.memory is not None:
        raise ParameterError("memory is for CSV, Parquet, Arrow and NPY files", source=path)
    table = read_table(path, reading, tell=wishes.tell)
    schema, matrix = None, table.X
    if wishes.kinds is not None or is_mixed(matrix):
        schema, matrix = Schema.with_matrix(matrix, wishes.kinds)
    n_shards = wishes.divide(table.n_rows, table.n_columns)
    shards = shards_of_array(matrix, n_shards, wishes.gaps)
    return Opened(list(shards), table.n_columns, table.names, schema, table.source, table.notes,
                  table.left_out)  # fmt: skip


# -- batches ----------------------------------------------------------------------------------


def _of_batches(batches: Iterator[Any], folder: Path, wishes: Wishes) -> Opened:
    from dpsearch.scale.batches import Alike, spooled

    alike = Alike(wishes.gaps)
    pieces = spooled(batches, folder, alike)
    n_rows = sum(piece.n_rows for piece in pieces)
    found = None
    if alike.form == "frame":
        types = pieces[0].read(0, 0).schema
        found = _batch_schema(
            alike, types, n_rows, wishes,
            lambda survey: _surveyed(survey, pieces, wishes.block(alike.width)),
        )  # fmt: skip
    layout = _layout(alike, found, wishes)
    shards: list[Shard] = list(cut(pieces, wishes.divide(n_rows, alike.width), layout))
    return Opened(shards, alike.width, alike.names, found)


def _of_calls(make: Callable[[], Any], wishes: Wishes) -> Opened:
    from dpsearch.scale.batches import Alike, Called

    alike = Alike(wishes.gaps)
    types: Any = None
    sizes = []
    for batch in make():
        rows = alike(batch)
        types = getattr(rows, "schema", None) if types is None else types
        sizes.append(rows.shape[0])
    if not sizes:
        raise DataError("there are no batches")
    source = Called(make, sizes, wishes.gaps)

    def look(survey: Any) -> None:
        for number, rows in enumerate(source.batches()):
            survey.add(rows, f"batch {number}", 0)

    found = None
    if alike.form == "frame":
        found = _batch_schema(alike, types, sum(sizes), wishes, look)
    layout = _layout(alike, found, wishes)
    n_shards = wishes.divide(sum(sizes), alike.width)
    return Opened(source.shards(n_shards, layout), alike.width, alike.names, found)


def _batch_schema(
    alike: Alike, types: Any, n_rows: int, wishes: Wishes, look: Callable[[Any], None]
) -> Schema | None:
    """What frames hold that came in batches; None if it is numbers."""
    from dpsearch.scale.survey import Survey

    survey = Survey(types, n_rows, kinds=wishes.kinds, named=True)
    if not survey.mixed:
        return None
    look(survey)
    found = survey.columns("X").schema
    return None if found is None else replace(found, library=alike.library or "polars")


def _layout(alike: Alike, schema: Schema | None, wishes: Wishes) -> Layout:
    names = None if alike.names is None else tuple(alike.names)
    if wishes.kinds is not None and names is None:
        raise DataError("kinds of columns are taken from pandas and polars frames only")
    return Layout(names, schema=schema, gaps=wishes.gaps)
