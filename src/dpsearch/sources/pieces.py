"""Shards of files: slices of rows that any process can read, and how they become matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._validate import as_matrix
from dpsearch.errors import DataError, located
from dpsearch.sources.shards import SAMPLE_ROWS, edges_of, stacked
from dpsearch.tables import Schema

_SLICES = 16  # of each file in a sample


@dataclass(frozen=True)
class Piece:
    """A file of rows: the user's own, or one that was written for the time of a fit."""

    path: Path
    form: str  # parquet, arrow, numpy or sparse
    n_rows: int
    source: str  # its name in errors
    first: int = 0  # the index of its first row in the source
    types: tuple[tuple[str, Any], ...] = ()  # the final types of columns of a converted CSV file

    def read(self, begin: int, end: int, names: Sequence[str] | None = None) -> Any:
        """Return some rows as a polars frame, a memory-mapped array or a sparse matrix."""
        import polars as pl

        from dpsearch.io.delimited import typed
        from dpsearch.io.frames import scan

        try:
            if self.form == "numpy":
                array = np.load(self.path, mmap_mode="r", allow_pickle=False)
                return (array if array.ndim > 1 else array.reshape(-1, 1))[begin:end]
            if self.form == "sparse":
                return sp.load_npz(self.path)[begin:end]
            # Polars decodes only the groups of rows that a slice meets.
            lazy = scan(self.path, self.form).slice(begin, end - begin)
            frame = (lazy if names is None else lazy.select(names)).collect()
        except (pl.exceptions.PolarsError, OSError, ValueError) as error:
            text = " ".join(str(error).split())
            raise DataError(f"cannot be read: {text}", source=self.source) from error
        return typed(frame, dict(self.types))


@dataclass(frozen=True)
class Layout:
    """Which columns of a piece are used, and how they become a matrix."""

    names: tuple[str, ...] | None  # of a frame's columns
    kept: tuple[int, ...] | None = None  # of an array's columns; None: all
    schema: Schema | None = None
    gaps: bool = False
    unknown: str | None = None  # the treatment of values that a model's column cannot hold
    absent: tuple[str, ...] = ()  # columns that no piece has, whose values are missing

    @property
    def in_files(self) -> list[str] | None:
        """The names of the columns to read."""
        return None if self.names is None else [n for n in self.names if n not in self.absent]

    def matrix(self, rows: Any, source: str, first: int) -> Any:
        """Return rows as a checked matrix; errors name the source, and count rows from `first`."""
        with located(source, first, self.names):
            if hasattr(rows, "get_columns"):
                rows = self._numbers(rows)
            elif self.kept is not None:
                rows = rows[:, list(self.kept)]
                if self.schema is not None:
                    import polars as pl

                    frame = pl.DataFrame(rows, schema=self.schema.origins, orient="row")
                    rows = self._encoded(frame)
            return as_matrix(rows, gaps=self.gaps)

    def _encoded(self, frame: Any) -> Any:
        schema = self.schema or Schema.of_numbers(frame.columns)
        return schema.encode(frame, self.unknown or "missing", quiet=self.unknown is None)

    def _numbers(self, frame: Any) -> Any:
        import polars as pl

        from dpsearch.io.table import as_floats

        assert self.names is not None
        nothing = (pl.lit(None).alias(name) for name in self.absent)
        frame = frame.with_columns(nothing).select(self.names)
        plain = all(kind.is_numeric() for kind in frame.dtypes)
        if self.schema is not None or self.unknown is not None or not plain:
            return self._encoded(frame)
        return as_floats(frame.get_columns(), frame.height)


@dataclass(frozen=True)
class PieceShard:
    """A block of rows from one piece or from consecutive ones."""

    slices: tuple[tuple[Piece, int, int], ...]
    layout: Layout

    @property
    def n_rows(self) -> int:
        return sum(end - begin for _, begin, end in self.slices)

    def load(self) -> Any:
        names = self.layout.in_files
        return stacked([
            self.layout.matrix(piece.read(begin, end, names), piece.source, piece.first + begin)
            for piece, begin, end in self.slices
        ])  # fmt: skip

    def column(self, which: str | int) -> Any:
        """Return a column as it is in the files, used or not."""
        import polars as pl

        if isinstance(which, int):
            parts = [pl.Series(piece.read(a, b)[:, which]) for piece, a, b in self.slices]
        else:
            parts = [piece.read(a, b, [which])[which] for piece, a, b in self.slices]
        return pl.concat(parts)


def cut(pieces: Sequence[Piece], n_shards: int, layout: Layout) -> list[PieceShard]:
    """Return shards of nearly equal size."""
    ends = np.cumsum([piece.n_rows for piece in pieces])
    begins = ends - [piece.n_rows for piece in pieces]
    shards = []
    for begin, end in itertools.pairwise(edges_of(int(ends[-1]), n_shards)):
        slices = tuple(
            (piece, max(begin, int(first)) - int(first), min(end, int(last)) - int(first))
            for piece, first, last in zip(pieces, begins, ends, strict=True)
            if first < end and last > begin
        )
        shards.append(PieceShard(slices, layout))
    return shards


# -- a sample ----------------------------------------------------------------------------------


def sample_of_pieces(
    pieces: Sequence[Piece], names: list[str] | None = None, types: Mapping[str, Any] | None = None
) -> Any:
    """Return some rows of files, a few slices of each, by which the triage decides.

    Up to 50,000 rows all of them are returned.  A level that is not in the sample becomes "other"
    if the column has that level, and is missing if it does not.
    """
    n_rows = sum(piece.n_rows for piece in pieces)
    return _together(_slices(pieces, names, n_rows), types)


def _slices(pieces: Sequence[Piece], names: list[str] | None, n_rows: int) -> Iterator[Any]:
    for piece in pieces:
        wanted = share_of(piece.n_rows, n_rows)
        n_slices = 1 if wanted == piece.n_rows else min(_SLICES, wanted)
        height = -(-wanted // n_slices)
        for begin in np.linspace(0, piece.n_rows - height, n_slices).astype(np.int64).tolist():
            yield piece.read(begin, begin + height, names)


def sample_of_batches(batches: Iterable[Any], n_rows: int) -> Any:
    """Return some rows of every batch."""
    rng = np.random.default_rng(0)
    parts = [
        rows[np.sort(rng.choice(rows.height, share_of(rows.height, n_rows), replace=False))]
        for rows in batches
    ]
    return _together(parts, None)


def share_of(height: int, n_rows: int) -> int:
    """Return how many rows of a piece of this height are in the sample."""
    return min(height, -(-height * SAMPLE_ROWS // max(n_rows, 1)))


def _together(parts: Iterable[Any], types: Mapping[str, Any] | None) -> Any:
    """Concatenate rows whose columns may have different types in different files."""
    import polars as pl

    frames, declared = [], {name for name, kind in (types or {}).items() if kind == pl.Categorical}
    for frame in parts:
        columns = []
        for series in frame.get_columns():
            wanted = series.dtype if types is None else types.get(series.name, series.dtype)
            if pl.Categorical in (wanted, series.dtype):
                declared |= {series.name} if types is None else set()
                series = series.cast(pl.String)  # since the codes differ between files
            elif series.dtype != wanted:
                series = series.cast(wanted, strict=False)
            columns.append(series)
        frames.append(pl.DataFrame(columns))
    whole = pl.concat(frames, how="vertical_relaxed")
    return whole.with_columns(whole[name].cast(pl.Categorical) for name in declared)
