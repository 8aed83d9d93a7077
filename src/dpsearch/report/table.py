"""The data as people know them: named columns of numbers or categories, or words with counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._numbers import brief
from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch._validate import column_names
from dpsearch.errors import DataError, ParameterError
from dpsearch.families.base import Family


@dataclass(frozen=True)
class Column:
    """Numbers (NaN: missing), or codes of levels (−1: missing)."""

    name: str
    values: Any
    levels: tuple[str, ...] | None = None

    @property
    def is_category(self) -> bool:
        return self.levels is not None


@dataclass(frozen=True)
class Table:
    """Either `columns`, or `counts` of the words in `words`; and a name for each row."""

    rows: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    counts: Any = None
    words: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        return self.words if self.is_counts else tuple(column.name for column in self.columns)

    @property
    def is_counts(self) -> bool:
        return self.counts is not None

    @classmethod
    def of(
        cls,
        X: ArrayLike,
        family: Family,
        names: Sequence[str] | None = None,
        index: ArrayLike = None,
        *,
        pixels: bool = False,
    ) -> Table:
        """Read what the model was fitted to: an array, a sparse matrix, a frame.

        Pixels are numbers under every family.
        """
        frame_names = column_names(X)
        if frame_names is None and not sp.issparse(X):
            X = np.asarray(X)
        if len(X.shape) != 2:
            raise DataError(f"X has {len(X.shape)} dimensions: it must have rows and columns")
        n_rows, width = X.shape
        known = _names(names, frame_names, width)
        rows = _row_names(X, index, n_rows)
        if pixels and sp.issparse(X):
            X = X.toarray()
        if not pixels and (sp.issparse(X) or family.kind == "words"):
            return cls(rows, counts=sp.csr_matrix(_plain(X), dtype=np.float64), words=known)
        discrete = set() if pixels else discrete_columns(family, width)
        columns = [
            _column(known[j], _column_values(X, frame_names, j), j in discrete)
            for j in range(width)
        ]
        return cls(rows, tuple(columns))

    def cell(self, i: int, j: int) -> str:
        """What row i has in column j, as text."""
        column = self.columns[j]
        value = column.values[i]
        if column.levels is None:
            return brief(float(value))
        return column.levels[value] if value >= 0 else "–"

    def matrix(self) -> Matrix:
        """The columns of numbers side by side."""
        numbers = [column.values for column in self.columns if not column.is_category]
        return np.stack(numbers, axis=1) if numbers else np.empty((self.n_rows, 0))


def discrete_columns(family: Family, width: int) -> set[int]:
    """The columns whose numbers are codes."""
    by_column = enumerate(family.by_column(width))
    return {j for j, own in by_column if own.kind in ("category", "binary")}


def _plain(X: Any) -> Any:
    return X if sp.issparse(X) or isinstance(X, np.ndarray) else X.to_numpy()


def _names(
    names: Sequence[str] | None, frame_names: list[str] | None, width: int
) -> tuple[str, ...]:
    if names is not None:
        if len(names) != width:
            raise ParameterError(f"names has {len(names)} entries for {width} columns of X")
        return tuple(str(name) for name in names)
    return tuple(frame_names or (f"column {j}" for j in range(width)))


def _row_names(X: Any, index: ArrayLike, n_rows: int) -> tuple[str, ...]:
    if index is None and hasattr(X, "iloc"):  # pandas has names of its own
        index = X.index
    if index is None:
        return tuple(str(i) for i in range(n_rows))
    if len(index) != n_rows:
        raise ParameterError(f"index has {len(index)} entries for {n_rows} rows of X")
    return tuple(str(name) for name in index)


def _column_values(X: Any, frame_names: list[str] | None, j: int) -> Any:
    if frame_names is None:
        return X[:, j]
    # By place, since names may repeat.
    series = X.iloc[:, j] if hasattr(X, "iloc") else X.to_series(j)
    return series.to_numpy()


def _column(name: str, values: Any, discrete: bool) -> Column:
    is_number = values.dtype.kind in "biuf"
    if not is_number:
        if any(isinstance(value, str) for value in values):  # 007 is not 7
            return _category(name, values)
        try:  # numbers that came as objects
            numbers = np.array([np.nan if _missing(v) else v for v in values], dtype=np.float64)
        except (TypeError, ValueError):
            return _category(name, values)
        return _category(name, numbers) if discrete else Column(name, numbers)
    if discrete or values.dtype.kind == "b":
        return _category(name, values)
    return Column(name, np.asarray(values, dtype=np.float64))


def _category(name: str, values: Any) -> Column:
    missing = np.array([_missing(value) for value in values], dtype=bool)
    levels, inverse = np.unique(_level_keys(values[~missing]), return_inverse=True)
    codes = np.full(len(values), -1, np.int64)
    codes[~missing] = inverse.reshape(-1)
    return Column(name, codes, tuple(_level(level) for level in levels))


def _level_keys(values: Any) -> Any:
    """Numbers stay numbers, so that they sort as such."""
    return values if values.dtype.kind in "biuf" else np.array([str(v) for v in values], dtype=str)


def _level(level: Any) -> str:
    if not isinstance(level, (float, np.floating)):
        return str(level)
    return f"{level:.0f}" if float(level).is_integer() else repr(float(level))


def _missing(value: Any) -> bool:
    if value is None or str(value) in ("<NA>", "NaT"):  # pandas's ways to say so
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def top_words(table: Table, rows: Ints, shown: int = 8) -> list[str]:
    """For each row its words of most count × log(rows / rows with the word)."""
    present = np.bincount(table.counts.indices, minlength=len(table.words))
    rarity: Vector = np.log(table.n_rows / np.maximum(present, 1))
    out = []
    for i in rows:
        begin, end = table.counts.indptr[i : i + 2]
        ids = table.counts.indices[begin:end]
        score = table.counts.data[begin:end] * rarity[ids]
        best = ids[np.argsort(-score, kind="stable")[:shown]]
        out.append(", ".join(table.words[w] for w in best))
    return out
