"""`open_table`: arrays, frames, files, batches and Dask's collections as one kind of table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dpsearch._arrays import is_foreign, is_sparse
from dpsearch._scratch import scratch
from dpsearch._validate import column_names, is_array, is_lazy, readable
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.sources.dask_client import present_client, some_client
from dpsearch.sources.dask_tables import is_collection, open_collection
from dpsearch.sources.pieces import Layout, Piece, PieceShard, cut
from dpsearch.sources.shards import SHARD_ROWS, ArrayShard, Shard, n_shards_for, shards_of_array
from dpsearch.tables import CheckedTable, Schema, is_mixed

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading
    from dpsearch.sources.batches import Alike
    from dpsearch.sources.files import Files
    from dpsearch.sources.survey import Columns

_BASE = 400 << 20  # bytes of a process that has only just begun, with its kernels and a sample
_COPIES = 6  # of a shard: as read, as a matrix, as items, in a family's own form, …
_PER_ROW = 200  # bytes beside: labels, orders, weights
_FEWEST = 1000  # rows of a shard


@dataclass
class OpenedTable:
    """A table that is open for the time of a fit: its rows in shards, and what is known of them."""

    shards: list[Any]
    n_columns: int
    names: list[str] | None = None  # by which errors name the columns
    schema: Schema | None = None
    source: str = "X"
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    index: str | int | None = None  # the column that names the rows
    index_name: str = "row"
    written: bool = False  # whether the index is there as it is written, too
    numbers: list[int] | None = None  # of the columns in the file, if they are not all of them
    lasting: bool = False  # whether shards are the user's own files, and not temporary ones
    feature_names: tuple[str, ...] | None = None  # for `feature_names_in_`
    table: CheckedTable | None = None  # all rows, if they are in memory and checked
    client: Any = None  # of a Dask cluster that holds the rows
    client_stays: bool = True  # whether that cluster lives on after the fit

    @property
    def n_rows(self) -> int:
        return sum(shard.n_rows for shard in self.shards)

    @property
    def in_memory(self) -> bool:
        """Whether this is fitted in one piece."""
        return self.table is not None or (len(self.shards) == 1 and self.client is None)

    def load(self) -> CheckedTable:
        """All rows."""
        if self.table is not None:
            return self.table
        return CheckedTable(self.shards[0].load(), self.feature_names)

    def cluster(self) -> Any:
        """The client of the Dask cluster that works on the shards; None: this process does."""
        return present_client() if self.client is None and self.lasting else self.client

    def index_of(self, shard: PieceShard) -> Any:
        """The names of a shard's rows; None if they have none."""
        import polars as pl

        from dpsearch.io.delimited import WRITTEN

        if self.index is None:
            return None
        series = shard.column(WRITTEN if self.written else self.index).alias(self.index_name)
        return series.cast(pl.Int64) if series.dtype == pl.Float64 else series


def rows_within(memory: int, n_columns: int, n_threads: int) -> int:
    """How many rows a shard may have so that the shards of all threads stay within `memory`."""
    if memory < 1.25 * _BASE:
        raise ParameterError(
            f"memory must be at least {1.25 * _BASE / 1e6:.0f} MB, got {memory / 1e6:.0f} MB"
        )
    per_row = 8 * n_columns * _COPIES + _PER_ROW
    return max(_FEWEST, min(SHARD_ROWS, (memory - _BASE) // (n_threads * per_row)))


@dataclass(frozen=True)
class TableOptions:
    """How a table is divided, and what is known about its columns."""

    n_shards: int | None = None
    gaps: bool = True
    kinds: Any = None
    reading: Reading | None = None
    memory: int | None = None
    n_threads: int = 1
    schema: Schema | None = None  # of a model, for new rows
    progress: Callable[[int], None] | None = None  # called with the number of rows read so far
    weighted: bool = False  # whether rows have weights: they are then fitted in one piece
    stay: bool = False  # whether arrays of other libraries stay where they are

    def block(self, n_columns: int) -> int:
        """Rows that are read at once."""
        if self.memory is None:
            return SHARD_ROWS
        return rows_within(self.memory, n_columns, self.n_threads)

    def divide(self, n_rows: int, n_columns: int) -> int:
        """How many shards there are."""
        if self.weighted:
            return 1
        if self.n_shards is None and self.memory is not None:
            return -(-n_rows // self.block(n_columns))
        return n_shards_for(n_rows, n_columns, self.n_shards)


@contextmanager
def open_table(X: Any, options: TableOptions) -> Iterator[OpenedTable]:
    """Yield any table that `DPMixture.fit` takes; temporary files are gone when the block ends.

    X is an array, a sparse matrix, a frame, a path, an iterator of batches or a function that
    returns one, a collection of Dask, a lazy frame, or a table that is open already.
    """
    if isinstance(X, OpenedTable):
        yield X
    elif is_collection(X):
        _refuse_weights(options)
        with some_client() as (client, stays):
            yield _of_collection(X, options, client, stays)
    elif isinstance(X, (str, os.PathLike, Iterator)) or _is_function(X) or _reads_files(X):
        _refuse_weights(options)
        with scratch(tempfile.gettempdir(), "dpsearch-", folder=True) as folder:
            if isinstance(X, (str, os.PathLike)):
                yield from _of_path(Path(X), folder, options)
            elif isinstance(X, Iterator):
                yield _of_batches(X, folder, options)
            elif _is_function(X):
                yield _of_calls(X, options)
            else:
                yield _of_lazy(X, folder, options)
    else:
        yield _of_memory(X, options)


def _is_function(X: Any) -> bool:
    return callable(X) and not hasattr(X, "shape") and not is_lazy(X)


def _reads_files(X: Any) -> bool:
    """Whether X is a lazy frame that reads files."""
    if not is_lazy(X):
        return False
    try:
        return "SCAN" in X.explain(optimized=False)
    except OSError:  # a file is missing: the error is raised where it is read
        return True


def _refuse_weights(options: TableOptions) -> None:
    if options.weighted:
        raise ParameterError("sample_weight is for tables in memory")


# -- memory and Dask --------------------------------------------------------------------------


def _of_memory(X: Any, options: TableOptions) -> OpenedTable:
    """An array, a sparse matrix or a frame; arrays that are divided are checked in shards."""
    if options.stay and is_foreign(X) and not is_sparse(X) and X.ndim == 2:
        return OpenedTable([ArrayShard(X, 0, X.shape[0], options.gaps)], X.shape[1])
    X = readable(X)
    schema, table, names = None, None, _feature_names(X)
    if isinstance(X, CheckedTable):
        table, names = X, X.names
    elif options.kinds is not None or is_mixed(X):
        schema, matrix = Schema.with_matrix(X, options.kinds)
        table = CheckedTable(matrix, names)
    elif not is_array(X):
        table = CheckedTable.of(X, gaps=options.gaps)
    rows: Any = X if table is None else table.matrix
    n_rows, n_columns = rows.shape
    n_shards = options.divide(n_rows, n_columns)
    if n_shards > 1:
        shards, table = shards_of_array(rows, n_shards, options.gaps), None
    else:
        table = CheckedTable.of(X, gaps=options.gaps) if table is None else table
        shards = shards_of_array(table.matrix, 1, options.gaps)
    known = names if isinstance(X, CheckedTable) else column_names(X)
    return OpenedTable(
        list(shards), n_columns, None if known is None else list(known), schema,
        feature_names=names, table=table,
    )  # fmt: skip


def _feature_names(X: Any) -> tuple[str, ...] | None:
    """The names of a frame's columns, by scikit-learn's rules."""
    if not hasattr(X, "columns"):
        return None
    named = BaseEstimator()
    validate_data(named, X, reset=True, skip_check_array=True)
    names = getattr(named, "feature_names_in_", None)
    return None if names is None else tuple(names)


def _of_collection(X: Any, options: TableOptions, client: Any, stays: bool) -> OpenedTable:
    shards, schema, like = open_collection(X, options.gaps, options.kinds)
    return OpenedTable(
        list(shards), like.shape[1], column_names(like), schema,
        feature_names=_feature_names(like), client=client, client_stays=stays,
    )  # fmt: skip


# -- paths ------------------------------------------------------------------------------------


def _of_path(path: Path, folder: Path, options: TableOptions) -> Iterator[OpenedTable]:
    from dpsearch.io import Reading
    from dpsearch.io.read import STANDARD_INPUT, check_options, format_of, local_file
    from dpsearch.sources.files import comes_in_pieces, open_files, set_of_files

    reading = options.reading or Reading()
    if not comes_in_pieces(path, reading):
        yield _in_memory(path, reading, options)
        return
    source = STANDARD_INPUT if str(path) == "-" else str(path)
    is_set = set_of_files(path) is not None
    with located(source):
        check_options("parquet" if is_set else format_of(path, reading), reading)
    if is_set:
        yield _of_files(open_files(path, source, reading, folder, options.progress), options)
        return
    with local_file(path) as local:
        files = open_files(local, source, reading, folder, options.progress)
        yield _of_files(files, options)


def _of_files(files: Files, options: TableOptions) -> OpenedTable:
    from dpsearch.io.table import PANDAS_INDEX

    pieces, choice = files.pieces, files.choice
    if options.reading is not None and options.reading.model is not None:
        options.reading.model.check_width(len(choice.kept), files.source)
    if files.names is None:
        layout = Layout(None, tuple(choice.kept), options.schema, options.gaps)
        width = len(choice.kept)
        shards = cut(pieces, options.divide(files.n_rows, width), layout)
        return OpenedTable(
            shards, width, source=files.source, index=choice.index,
            index_name=f"column {choice.index}", numbers=files.numbers(choice.kept),
        )  # fmt: skip
    found = _columns(files, options)
    index, index_name = found.index, found.index_name
    if choice.index is not None:
        index = files.names[choice.index]
        index_name = "row" if index == PANDAS_INDEX else index
    names = found.names
    layout = Layout(tuple(names), schema=found.schema, gaps=options.gaps)
    shards = cut(pieces, options.divide(files.n_rows, len(names)), layout)
    shown = None if files.unnamed and found.schema is None else names
    places = {name: j for j, name in enumerate(files.names)}
    return _named(OpenedTable(
        shards, len(names), shown, found.schema, files.source, found.notes, found.left_out, index,
        index_name, files.written and choice.index is None,
        files.numbers([places[name] for name in names]), files.lasting,
    ))  # fmt: skip


def _columns(files: Files, options: TableOptions) -> Columns:
    """The columns that a model knows, or those that a look at all rows finds fit to cluster by."""
    from dpsearch.sources.survey import Columns, Survey

    choice, reading = files.choice, options.reading
    if reading is not None and reading.model is not None:
        assert files.names is not None
        names = [files.names[j] for j in choice.kept]
        return Columns(names, None if options.schema is None else options.schema.renamed(names))
    survey = Survey(files.types, files.n_rows, categories=files.categories, kinds=options.kinds,
                    named=choice.named, unnamed=files.unnamed)  # fmt: skip
    _surveyed(survey, files.pieces, options.block(len(files.types)))
    return survey.columns(files.source)


def _surveyed(survey: Any, pieces: Iterable[Piece], block: int) -> None:
    for piece in pieces:
        for begin in range(0, piece.n_rows, block):
            names = survey.needed()
            if not names:
                return
            frame = piece.read(begin, min(begin + block, piece.n_rows), names)
            survey.add(frame, piece.source, piece.first + begin)


def _in_memory(path: Path, reading: Reading, options: TableOptions) -> OpenedTable:
    """Formats that cannot be read in pieces are read at once, and then divided."""
    from dpsearch.io import read_table

    if options.memory is not None:
        raise ParameterError("memory is for CSV, Parquet, Arrow and NPY files", source=path)
    table = read_table(path, reading, progress=options.progress)
    opened = _of_memory(table.X, options)
    opened.names, opened.source = table.names, table.source
    opened.notes, opened.left_out = table.notes, table.left_out
    return _named(opened)


def _named(opened: OpenedTable) -> OpenedTable:
    """The names that errors use are those of the features, too."""
    opened.feature_names = None if opened.names is None else tuple(opened.names)
    return opened


# -- batches ----------------------------------------------------------------------------------


def _of_batches(batches: Iterator[Any], folder: Path, options: TableOptions) -> OpenedTable:
    from dpsearch.sources.batches import Alike, spooled

    alike = Alike(options.gaps)
    return _of_pieces(spooled(batches, folder, alike), alike, options)


def _of_lazy(frame: Any, folder: Path, options: TableOptions) -> OpenedTable:
    """A lazy frame that reads files is streamed into a file of its own."""
    import polars as pl

    from dpsearch.sources.batches import Alike

    path = folder / "lazy"
    try:
        frame.sink_parquet(path)
        n_rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"X cannot be read: {' '.join(str(error).split())}") from error
    if not n_rows:
        raise DataError("X is empty: a lazy frame without rows")
    piece = Piece(path, "parquet", n_rows, "X")
    alike = Alike(options.gaps)
    alike(piece.read(0, 1))
    return _of_pieces([piece], alike, options)


def _of_pieces(pieces: list[Piece], alike: Alike, options: TableOptions) -> OpenedTable:
    n_rows = sum(piece.n_rows for piece in pieces)
    found = None
    if alike.form == "frame":
        types = pieces[0].read(0, 0).schema
        found = _batch_schema(
            alike, types, n_rows, options,
            lambda survey: _surveyed(survey, pieces, options.block(alike.width)),
        )  # fmt: skip
    layout = _layout(alike, found, options)
    shards: list[Shard] = list(cut(pieces, options.divide(n_rows, alike.width), layout))
    return _of_alike(shards, alike, found)


def _of_alike(shards: list[Any], alike: Alike, schema: Schema | None) -> OpenedTable:
    schema = None if schema is None else alike.meant(schema)
    return _named(OpenedTable(shards, alike.width, alike.names, schema))


def _of_calls(make: Callable[[], Any], options: TableOptions) -> OpenedTable:
    from dpsearch.sources.batches import Alike, Called

    alike = Alike(options.gaps)
    types: Any = None
    sizes = []
    for batch in make():
        rows = alike(batch)
        types = getattr(rows, "schema", None) if types is None else types
        sizes.append(rows.shape[0])
    if not sizes:
        raise DataError("there are no batches")
    source = Called(make, sizes, options.gaps)

    def look(survey: Any) -> None:
        for number, rows in enumerate(source.batches()):
            survey.add(rows, f"batch {number}", 0)

    found = None
    if alike.form == "frame":
        found = _batch_schema(alike, types, sum(sizes), options, look)
    layout = _layout(alike, found, options)
    n_shards = options.divide(sum(sizes), alike.width)
    return _of_alike(source.shards(n_shards, layout), alike, found)


def _batch_schema(
    alike: Alike, types: Any, n_rows: int, options: TableOptions, look: Callable[[Any], None]
) -> Schema | None:
    """What frames hold that came in batches; None if it is numbers."""
    from dpsearch.sources.survey import Survey

    survey = Survey(types, n_rows, kinds=options.kinds, named=True)
    if not survey.mixed:
        return None
    look(survey)
    found = survey.columns("X").schema
    if found is None:
        return None
    return replace(alike.written(found), library=alike.library or "polars")


def _layout(alike: Alike, schema: Schema | None, options: TableOptions) -> Layout:
    names = None if alike.names is None else tuple(alike.names)
    if options.kinds is not None and names is None:
        raise DataError("kinds of columns are taken from pandas and polars frames only")
    return Layout(names, schema=schema, gaps=options.gaps)
