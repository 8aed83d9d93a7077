"""Batches of rows: those of an iterator are written to disk, those of a function made again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._files import naming
from dpsearch._validate import as_matrix, column_names, is_array
from dpsearch.errors import DataError, located
from dpsearch.sources.pieces import Layout, Piece
from dpsearch.sources.shards import edges_of, stacked
from dpsearch.tables import Schema, is_frame, library_of
from dpsearch.tables.columns import Level


class BatchChecker:
    """Checks that batches have the columns of the first batch, and puts them into its order."""

    def __init__(self, gaps: bool) -> None:
        self.gaps = gaps
        self.n_batches = 0
        self.names: list[str] | None = None
        self.width = 0
        self.form = ""  # frame, sparse or dense
        # For columns of categories: the levels that their types declare, by their texts.
        self.levels: dict[str, dict[str, Level]] = {}
        self.library: str | None = None

    def __call__(self, batch: Any) -> Any:
        """Return the batch as a polars frame, a sparse matrix or an array."""
        source = f"batch {self.n_batches}"
        form = "frame" if is_frame(batch) else "sparse" if sp.issparse(batch) else "dense"
        if form == "frame":
            batch = self._named(batch, source)
        else:
            with located(source, 0, None):
                checked = as_matrix(batch, gaps=self.gaps)
            batch = batch if is_array(batch) else checked
        if self.n_batches == 0:
            self.form, self.width = form, batch.shape[1]
        elif form != self.form:
            raise DataError(f"{source} is {_FORM_NAMES[form]}, but the batches before it are not")
        elif batch.shape[1] != self.width:
            raise DataError(f"{source} has {batch.shape[1]} columns, but batch 0 has {self.width}")
        self.n_batches += 1
        return batch

    def _named(self, frame: Any, source: str) -> Any:
        names = column_names(frame) or []
        if self.names is None:
            self.names, self.library = names, library_of(frame)
        for name in self.names:
            if name not in names:
                raise DataError(f"{source} has no column {name!r}, which batch 0 has")
        for name in names:
            if name not in self.names:
                raise DataError(f"{source} has a column {name!r}, which batch 0 does not have")
        if not len(frame):
            raise DataError(f"{source} has no rows")
        frame, levels = as_polars(frame)
        for name, of_batch in levels.items():
            known = self.levels.setdefault(name, {})
            for level in of_batch:
                if known.setdefault(str(level), level) != level:
                    raise DataError(
                        f"{{place}} has the levels {level!r} and {known[str(level)]!r}",
                        column=name, source=source,
                    )  # fmt: skip
        return frame[:, self.names]

    def with_texts(self, schema: Schema) -> Schema:
        """Return the schema with all levels that the types declare, as texts."""
        return self._with_levels(schema, lambda known, seen: tuple(dict.fromkeys([*known, *seen])))

    def with_declared_levels(self, schema: Schema) -> Schema:
        """Return a schema from `with_texts` with the declared levels in place of their texts."""
        return self._with_levels(
            schema, lambda known, seen: tuple(known.get(text, text) for text in seen)
        )

    def _with_levels(self, schema: Schema, change: Callable[..., tuple[Level, ...]]) -> Schema:
        columns = (
            replace(column, levels=change(self.levels[column.name], column.levels or ()))
            if column.name in self.levels and column.levels is not None and not column.form
            else column
            for column in schema.columns
        )
        return replace(schema, columns=tuple(columns))


_FORM_NAMES = {"frame": "a frame", "sparse": "a sparse matrix", "dense": "an array"}


def as_polars(frame: Any) -> tuple[Any, dict[str, tuple[Level, ...]]]:
    """Return a frame of either library as one of polars, without PyArrow.

    Categories become texts.  Also returned are the levels that their types declare, used or not.
    """
    import polars as pl

    from dpsearch.tables import read_column

    if library_of(frame) == "polars":
        return frame, {}
    columns, levels = [], {}
    for j, name in enumerate(column_names(frame) or ()):
        raw = read_column(frame, j)
        cells = raw.cells()
        if raw.uniques is None:
            series = pl.Series(name, cells).fill_nan(None)
            if raw.source == "date":
                series = (series * 1000.0).cast(pl.Int64).cast(pl.Datetime("ms"))
            elif raw.source == "int":
                series = series.cast(pl.Int64)
        elif raw.source == "categorical":
            texts = [None if value is None else str(value) for value in cells]
            series = pl.Series(name, texts, dtype=pl.String).cast(pl.Categorical)
            levels[name] = raw.uniques
        else:
            series = pl.Series(name, cells)
        columns.append(series)
    return pl.DataFrame(columns), levels


def written_batches(batches: Iterable[Any], folder: Path, checker: BatchChecker) -> list[Piece]:
    """Write each batch to a file of its own, and return the files."""
    from dpsearch.io.output import write_parquet

    pieces = []
    for number, rows in enumerate(map(checker, batches)):
        path = folder / f"batch{number}"
        form = {"frame": "parquet", "sparse": "sparse", "dense": "numpy"}[checker.form]
        if form == "parquet":
            write_parquet(path, rows)
        else:
            with naming(path), path.open("wb") as stream:
                if form == "sparse":
                    sp.save_npz(stream, sp.csr_matrix(rows), compressed=False)
                else:
                    np.save(stream, rows)
        pieces.append(Piece(path, form, rows.shape[0], f"batch {number}"))
    if not pieces:
        raise DataError("there are no batches")
    return pieces


class BatchFunction:
    """Batches of a function that is called again in every pass over the data.

    Shards are mostly loaded in their order.  One that is skipped, because another thread was
    quicker, is kept until it is loaded.
    """

    def __init__(self, make: Callable[[], Iterable[Any]], n_rows: Sequence[int], gaps: bool):
        self.make, self.n_rows, self.gaps = make, list(n_rows), gaps
        self.layout = Layout(None)
        self._edges: list[int] = []
        self._lock = threading.Lock()
        self._running: Iterator[Any] = iter(())
        self._next = 0
        self._passed: dict[int, Any] = {}

    def shards(self, n_shards: int, layout: Layout) -> list[FunctionShard]:
        self.layout = layout
        self._edges = edges_of(sum(self.n_rows), n_shards)
        self._next = n_shards  # so that loading the first one begins a pass
        return [
            FunctionShard(self, number, end - begin)
            for number, (begin, end) in enumerate(itertools.pairwise(self._edges))
        ]

    def batches(self) -> Iterator[Any]:
        """Yield the batches of one pass, which must be those of the first."""
        checker = BatchChecker(self.gaps)
        number = -1
        for number, rows in enumerate(map(checker, self.make())):
            if number >= len(self.n_rows) or rows.shape[0] != self.n_rows[number]:
                raise DataError(
                    f"batch {number} does not have the rows that it had in the first pass"
                )
            yield rows
        if number + 1 < len(self.n_rows):
            before = len(self.n_rows)
            raise DataError(f"there are {number + 1} batches, but the first pass had {before}")

    def load(self, number: int) -> Any:
        with self._lock:
            if number in self._passed:
                return self._passed.pop(number)
            if number < self._next:
                self._running, self._next = self._shards(), 0
                self._passed.clear()
            while True:
                matrix = next(self._running)
                self._next += 1
                if self._next > number:
                    return matrix
                self._passed[self._next - 1] = matrix

    def _shards(self) -> Iterator[Any]:
        batches = enumerate(self.batches())
        number, rows, at = -1, None, 0
        for begin, end in itertools.pairwise(self._edges):
            parts, wanted = [], end - begin
            while wanted:
                if rows is None or at == rows.shape[0]:
                    (number, rows), at = next(batches), 0
                taken = min(wanted, rows.shape[0] - at)
                part = rows[at : at + taken]
                # A copy: the function may use its array again for the next batch.
                parts.append(self.layout.matrix(part, f"batch {number}", at).copy())
                at, wanted = at + taken, wanted - taken
            yield stacked(parts)
        for _ in batches:  # so that further batches raise an error
            pass


@dataclass(frozen=True)
class FunctionShard:
    """A block of rows of a function's batches."""

    source: BatchFunction
    number: int
    n_rows: int

    def load(self) -> Any:
        return self.source.load(self.number)
