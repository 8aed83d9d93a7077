"""A sample of a table that is not in memory, by which its columns are judged.

The rules are those of tables in memory, `tables.rules`; up to 50,000 rows all of them are looked
at.  A level that is not in the sample is "other" where the column has that level, and missing where
it has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from dpsearch.sources.pieces import Piece
from dpsearch.sources.shards import SAMPLE_ROWS

_SLICES = 16  # of a file


def sample_of_pieces(
    pieces: Sequence[Piece], names: list[str] | None = None, types: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """Read some rows of files, a few slices of each."""
    n_rows = sum(piece.n_rows for piece in pieces)
    return _together(_slices(pieces, names, n_rows), types)


def _slices(pieces: Sequence[Piece], names: list[str] | None, n_rows: int) -> Iterator[Any]:
    for piece in pieces:
        wanted = share_of(piece.n_rows, n_rows)
        n_slices = 1 if wanted == piece.n_rows else min(_SLICES, wanted)
        height = -(-wanted // n_slices)
        for begin in np.linspace(0, piece.n_rows - height, n_slices).astype(np.int64).tolist():
            yield piece.read(begin, begin + height, names)


def sample_of_batches(batches: Iterable[pl.DataFrame], n_rows: int) -> pl.DataFrame:
    """Take some rows of every batch."""
    rng = np.random.default_rng(0)
    parts = [
        rows[np.sort(rng.choice(rows.height, share_of(rows.height, n_rows), replace=False))]
        for rows in batches
    ]
    return _together(parts, None)


def share_of(height: int, n_rows: int) -> int:
    """Return how many of some rows are in the sample of all."""
    return min(height, -(-height * SAMPLE_ROWS // max(n_rows, 1)))


def _together(parts: Iterable[pl.DataFrame], types: Mapping[str, Any] | None) -> pl.DataFrame:
    """Put rows below each other whose columns may be of different types in different files."""
    frames, declared = [], {name for name, kind in (types or {}).items() if kind == pl.Categorical}
    for frame in parts:
        columns = []
        for series in frame.get_columns():
            wanted = series.dtype if types is None else types.get(series.name, series.dtype)
            if pl.Categorical in (wanted, series.dtype):
                declared |= {series.name} if types is None else set()
                series = series.cast(pl.String)  # codes are those of a file
            elif series.dtype != wanted:
                series = series.cast(wanted, strict=False)
            columns.append(series)
        frames.append(pl.DataFrame(columns))
    whole = pl.concat(frames, how="vertical_relaxed")
    return whole.with_columns(whole[name].cast(pl.Categorical) for name in declared)
