"""`open_table`: arrays, frames, files, batches and Dask's collections as one kind of table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsearch._arrays import is_foreign, is_sparse
from dpsearch._scratch import scratch
from dpsearch._sklearn import BaseEstimator, validate_data
from dpsearch._validate import column_names, is_array, is_lazy, readable
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.sources.dask_tables import is_collection, open_collection, present_client, some_client
from dpsearch.sources.pieces import (
    Layout,
    Piece,
    PieceShard,
    cut,
    sample_of_batches,
    sample_of_pieces,
)
from dpsearch.sources.shards import ArrayShard, Shard, TableOptions, rows_within, shards_of_array
from dpsearch.tables import CheckedTable, Schema, Triage, Triaged, is_frame

__all__ = ["OpenedTable", "TableOptions", "is_external", "open_table", "rows_within"]

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading
    from dpsearch.sources.batches import BatchChecker
    from dpsearch.sources.files import Files


@dataclass
class OpenedTable:
    """A table that is open for the time of a fit: its rows in shards, and what is known of it."""

    shards: list[Any]
    n_columns: int
    names: list[str] | None = None  # of the columns, for errors
    schema: Schema | None = None
    source: str = "X"
    notes: list[str] = field(default_factory=list)
    triage: Triage | None = None  # what was decided about the columns of a frame or file
    index: str | int | None = None  # the column that names the rows
    index_name: str = "row"
    numbers: list[int] | None = None  # indices of the columns in the file, unless all are used
    lasting: bool = False  # whether the shards are the user's files, not temporary ones
    feature_names: tuple[str, ...] | None = None  # for `feature_names_in_`
    table: CheckedTable | None = None  # all rows, if they are in memory and checked
    client: Any = None  # of a Dask cluster that holds the rows
    client_stays: bool = True  # whether that cluster outlives the fit

    @property
    def n_rows(self) -> int:
        return sum(shard.n_rows for shard in self.shards)

    @property
    def in_memory(self) -> bool:
        """Whether all rows are fitted at once in this process."""
        return self.table is not None or (len(self.shards) == 1 and self.client is None)

    @property
    def kinds(self) -> Schema | None:
        """What the columns hold; None if all hold numbers."""
        return None if self.schema is None else self.schema.for_choice

    def load(self) -> CheckedTable:
        """Return all rows."""
        if self.table is not None:
            return self.table
        return CheckedTable(self.shards[0].load(), self.feature_names)

    def cluster(self) -> Any:
        """Return the client of the Dask cluster for the passes; None if this process makes them."""
        return present_client() if self.client is None and self.lasting else self.client

    def index_of(self, shard: PieceShard) -> Any:
        """Return the names of a shard's rows; None if they have none."""
        import polars as pl

        if self.index is None:
            return None
        series = shard.column(self.index).alias(self.index_name)
        return series.cast(pl.Int64) if series.dtype == pl.Float64 else series


@contextmanager
def open_table(X: Any, options: TableOptions) -> Iterator[OpenedTable]:
    """Open any table that `DPMixture.fit` accepts; temporary files are deleted at the end.

    X is an array, a sparse matrix, a frame, a path, an iterator of batches or a function that
    returns one, a collection of Dask, a lazy frame, or an open table.
    """
    if isinstance(X, OpenedTable):
        yield X
    elif is_collection(X):
        _refuse_weights(options)
        with some_client() as (client, stays):
            yield _of_collection(X, options, client, stays)
    elif is_external(X):
        _refuse_weights(options)
        with scratch(tempfile.gettempdir(), "dpsearch-", folder=True) as folder:
            if isinstance(X, (str, os.PathLike)):
                yield from _of_path(Path(X), folder, options)
            elif isinstance(X, Iterator):
                yield _of_batches(X, folder, options)
            elif _is_function(X):
                yield _of_function(X, options)
            else:
                yield _of_lazy(X, folder, options)
    else:
        yield _of_memory(X, options)


def is_external(X: Any) -> bool:
    """Whether rows must be read or requested: files, batches, lazy frames, Dask's collections."""
    named = isinstance(X, (str, os.PathLike, Iterator, OpenedTable))
    return named or is_collection(X) or _is_function(X) or _reads_files(X)


def _is_function(X: Any) -> bool:
    return callable(X) and not hasattr(X, "shape") and not is_lazy(X)


def _reads_files(X: Any) -> bool:
    """Whether X is a lazy frame that reads files."""
    if not is_lazy(X):
        return False
    try:
        return "SCAN" in X.explain(optimized=False)
    except OSError:  # a file does not exist: reading it raises the error
        return True


def _refuse_weights(options: TableOptions) -> None:
    if options.weighted:
        raise ParameterError("sample_weight is for tables in memory")


# -- memory and Dask --------------------------------------------------------------------------


def _of_memory(X: Any, options: TableOptions) -> OpenedTable:
    """Open an array, a sparse matrix or a frame; arrays that are divided are checked in shards."""
    if options.stay and is_foreign(X) and not is_sparse(X) and X.ndim == 2:
        return OpenedTable([ArrayShard(X, 0, X.shape[0], options.gaps)], X.shape[1])
    X = readable(X)
    found = None if isinstance(X, CheckedTable) else _triaged_frame(X, options)
    schema = None if found is None else found.conversion
    if found is not None and schema is not None:
        X = CheckedTable(found.matrix, tuple(schema.names))
    names, features = _names_of(X)
    if not is_array(X) or options.divide(*X.shape) <= 1:
        X = CheckedTable.of(X, gaps=options.gaps)
    rows = X.matrix if isinstance(X, CheckedTable) else X
    shards = shards_of_array(rows, options.divide(*rows.shape), options.gaps)
    return OpenedTable(
        list(shards), rows.shape[1], names, schema, feature_names=features,
        triage=None if found is None else found.triage, table=X if len(shards) == 1 else None,
    )  # fmt: skip


def _names_of(X: Any) -> tuple[list[str] | None, tuple[str, ...] | None]:
    """Return the names of columns for errors, and those for `feature_names_in_`."""
    if isinstance(X, CheckedTable):
        return None if X.names is None else list(X.names), X.names
    features = _feature_names(X)
    return column_names(X) if features is None else list(features), features


def _triaged_frame(X: Any, options: TableOptions) -> Triaged | None:
    decided = options.kinds is not None or (is_frame(X) and all(X.shape))
    return options.triaged(X) if decided else None


def _feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a frame's columns by scikit-learn's rules."""
    if not hasattr(X, "columns"):
        return None
    named = BaseEstimator()
    validate_data(named, X, reset=True, skip_check_array=True)
    names = getattr(named, "feature_names_in_", None)
    return None if names is None else tuple(names)


def _of_collection(X: Any, options: TableOptions, client: Any, stays: bool) -> OpenedTable:
    shards, found, like = open_collection(X, options)
    names, schema, triage = column_names(like), None, None
    if found is not None:
        triage, schema = found.triage, found.conversion
    feature_names = _feature_names(like)
    if schema is not None:
        names, feature_names = schema.names, tuple(schema.names)
    n_columns = like.shape[1] if schema is None else len(schema.columns)
    return OpenedTable(
        list(shards), n_columns, names, schema, triage=triage, feature_names=feature_names,
        client=client, client_stays=stays,
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
    from dpsearch.io.table import NAMELESS

    choice, model = files.choice, None if options.reading is None else options.reading.model
    names, absent = _taken(files, model)
    if files.names is None:
        return _of_array_file(files, options)
    index, triage = None, None
    if model is not None:
        schema = None if options.schema is None else options.schema.renamed(names)
    else:
        found = _triaged(files, names, options)
        schema, triage, index = found.conversion, found.triage, found.row_names
        names = found.schema.origins
    if choice.index is not None:
        index = files.names[choice.index]
    unknown = options.unknown if triage is None else None
    layout = Layout(
        tuple(names), schema=schema, gaps=options.gaps, unknown=unknown, absent=tuple(absent)
    )
    own = names if schema is None else schema.names
    shards = cut(files.pieces, options.divide(files.n_rows, len(own)), layout)
    return _named(OpenedTable(
        shards, len(own), None if files.unnamed and schema is None else own, schema, files.source,
        triage=triage, index=index, index_name="row" if index in NAMELESS else index or "row",
        numbers=files.numbers([files.names.index(n) for n in layout.in_files or ()]),
        lasting=files.lasting,
    ))  # fmt: skip


def _taken(files: Files, model: Any) -> tuple[list[str], list[str]]:
    """Return the names of columns to use, in a model's order, and which of them no file has."""
    kept = files.choice.kept
    names = [] if files.names is None else [files.names[j] for j in kept]
    absent = [] if model is None else model.absent_from(None if files.unnamed else files.names)
    if model is not None:
        model.check_width(len(kept) + len(absent), files.source)
    return (list(model.names) if absent else names), absent


def _of_array_file(files: Files, options: TableOptions) -> OpenedTable:
    kept, index = files.choice.kept, files.choice.index
    layout = Layout(None, tuple(kept), options.schema, options.gaps)
    shards = cut(files.pieces, options.divide(files.n_rows, len(kept)), layout)
    return OpenedTable(
        shards, len(kept), source=files.source, index=index, index_name=f"column {index}",
        numbers=files.numbers(kept),
    )  # fmt: skip


def _triaged(files: Files, names: list[str], options: TableOptions) -> Triaged:
    import polars as pl

    kinds = dict(options.kinds or {}) | dict.fromkeys(files.categories, "category")
    types = files.types | dict.fromkeys(files.categories, pl.Categorical())
    with located(files.source):
        return replace(options, kinds=kinds or None).triaged(
            sample_of_pieces(files.pieces, names, types),
            n_rows=files.n_rows, keep=files.choice.named or options.keep,
            named=not files.unnamed,
        )  # fmt: skip


def _in_memory(path: Path, reading: Reading, options: TableOptions) -> OpenedTable:
    """Open a file whose format cannot be read in pieces: read it at once, and divide it then."""
    from dpsearch.io import read_table

    if options.memory is not None:
        raise ParameterError("memory is for CSV, Parquet, Arrow and NPY files", source=path)
    table = read_table(path, reading, progress=options.progress)
    opened = _of_memory(table.X, options)
    opened.names, opened.source = table.names, table.source
    opened.notes = table.notes
    return _named(opened)


def _named(opened: OpenedTable) -> OpenedTable:
    """Use the names of columns as names of the features, too."""
    opened.feature_names = None if opened.names is None else tuple(opened.names)
    return opened


# -- batches ----------------------------------------------------------------------------------


def _of_batches(batches: Iterator[Any], folder: Path, options: TableOptions) -> OpenedTable:
    from dpsearch.sources.batches import BatchChecker, written_batches

    checker = BatchChecker(options.gaps)
    return _of_pieces(written_batches(batches, folder, checker), checker, options)


def _of_lazy(frame: Any, folder: Path, options: TableOptions) -> OpenedTable:
    """Open a lazy frame that reads files by streaming it to a temporary file."""
    import polars as pl

    from dpsearch.sources.batches import BatchChecker

    path = folder / "lazy"
    try:
        frame.sink_parquet(path)
        n_rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(f"X cannot be read: {' '.join(str(error).split())}") from error
    if not n_rows:
        raise DataError("X is empty: a lazy frame without rows")
    piece = Piece(path, "parquet", n_rows, "X")
    checker = BatchChecker(options.gaps)
    checker(piece.read(0, 1))
    return _of_pieces([piece], checker, options)


def _of_pieces(pieces: list[Piece], checker: BatchChecker, options: TableOptions) -> OpenedTable:
    n_rows = sum(piece.n_rows for piece in pieces)
    found = None
    if checker.form == "frame":
        found = options.triaged(sample_of_pieces(pieces), n_rows=n_rows)
    layout = _layout(checker, found, options)
    shards: list[Shard] = list(cut(pieces, options.divide(n_rows, checker.width), layout))
    return _of_checked(shards, checker, found, layout.schema)


def _of_checked(
    shards: list[Any], checker: BatchChecker, found: Triaged | None, schema: Schema | None
) -> OpenedTable:
    names, triage = checker.names, None if found is None else found.triage
    if schema is not None:
        schema, names = checker.with_declared_levels(schema), schema.names
    width = checker.width if schema is None else len(schema.columns)
    return _named(OpenedTable(shards, width, names, schema, triage=triage))


def _of_function(make: Callable[[], Any], options: TableOptions) -> OpenedTable:
    from dpsearch.sources.batches import BatchChecker, BatchFunction

    checker = BatchChecker(options.gaps)
    sizes = [checker(batch).shape[0] for batch in make()]
    if not sizes:
        raise DataError("there are no batches")
    source = BatchFunction(make, sizes, options.gaps)
    found = None
    if checker.form == "frame":
        sample = sample_of_batches(source.batches(), sum(sizes))
        found = options.triaged(sample, n_rows=sum(sizes))
    layout = _layout(checker, found, options)
    n_shards = options.divide(sum(sizes), checker.width)
    return _of_checked(source.shards(n_shards, layout), checker, found, layout.schema)


def _layout(checker: BatchChecker, found: Triaged | None, options: TableOptions) -> Layout:
    """Return how batches become matrices, without a schema for arrays and frames of numbers."""
    if found is None:
        if options.kinds is not None and checker.names is None:
            raise DataError("kinds of columns are taken from pandas and polars frames only")
        return Layout(None, gaps=options.gaps)
    if found.schema.is_plain:
        return Layout(tuple(checker.names or ()), gaps=options.gaps)
    schema = replace(checker.with_texts(found.schema), library=checker.library or "polars")
    return Layout(tuple(schema.origins), schema=schema, gaps=options.gaps)
