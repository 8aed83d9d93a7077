"""The data of a report: named columns of numbers or categories, or counts of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._numbers import PLAIN, Format
from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch._validate import as_matrix, is_array
from dpsearch.errors import DataError, ParameterError
from dpsearch.families.base import Family
from dpsearch.plots._axes import column_titles
from dpsearch.tables.columns import TRUTH
from dpsearch.tables.frames import is_frame, read_column

_CODED = ("category", "binary")  # kinds of columns whose numbers are codes


@dataclass(frozen=True)
class Column:
    """Numbers (NaN: missing), or codes of levels (−1: missing)."""

    name: str
    values: Any
    levels: tuple[str, ...] | None = None
    format: Format = PLAIN
    period: float | None = None  # of a circular column

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
        about: Sequence[Any] = (),
    ) -> Table:
        """Read the data of a fit: an array, a sparse matrix or a frame.

        Pixels count as numbers under every family.  `about` is the triage's columns.
        """
        if not is_frame(X) and not sp.issparse(X):
            X = np.asarray(X)
        if len(X.shape) != 2:
            raise DataError(f"X has {len(X.shape)} dimensions: it must have rows and columns")
        n_rows, width = X.shape
        known = column_titles(X, names)
        rows = _row_names(X, index, n_rows)
        if not pixels and (sp.issparse(X) or family.kind == "words"):
            return cls(rows, counts=sp.csr_matrix(as_matrix(X)), words=known)
        if is_frame(X):
            values = [read_column(X, j).cells() for j in range(width)]
        else:
            dense = X.toarray() if sp.issparse(X) else X
            values = list((dense if is_array(dense) else as_matrix(dense, gaps=True)).T)
        kinds = family.by_column(width)
        codes = [not pixels and own.kind in _CODED for own in kinds]
        periods = [getattr(own, "period", None) for own in kinds]
        of = {one.name: one for one in about}
        return cls(rows, tuple(map(_column, known, values, codes, map(of.get, known), periods)))

    def n_empty(self) -> int:
        """Return how many rows have no value at all."""
        if self.is_counts or not self.columns:
            return 0
        gone = [c.values < 0 if c.is_category else np.isnan(c.values) for c in self.columns]
        return int(np.logical_and.reduce(gone).sum())

    def matrix(self) -> Matrix:
        """Return the columns of numbers as a matrix."""
        numbers = [column.values for column in self.columns if not column.is_category]
        return np.stack(numbers, axis=1) if numbers else np.empty((self.n_rows, 0))


def _row_names(X: Any, index: ArrayLike, n_rows: int) -> tuple[str, ...]:
    if index is None and hasattr(X, "iloc"):
        index = X.index
    if index is None:
        index = range(n_rows)
    if len(index) != n_rows:
        raise ParameterError.of("index", f"has {len(index)} entries for {n_rows} rows of X")
    return tuple(str(name) for name in index)


def _column(name: str, values: Any, is_code: bool, about: Any, period: Any) -> Column:
    """Return a column from an array of numbers, or from a list in which None is missing."""
    is_code |= about is not None and about.levels is not None
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "b" and not is_code:
            numbers = np.asarray(values, dtype=np.float64)
            known = numbers[np.isfinite(numbers)]
            ends = (known.min(), known.max()) if len(known) else ()
            unit = "" if about is None else about.unit
            same = float(np.ravel(period)[0]) if len(np.unique(period)) == 1 and period else None
            return Column(name, numbers, format=Format.of(ends, unit), period=same)
        known = values == values  # NaN differs from itself
        seen = values[known]
    else:
        known = np.array([value is not None for value in values])
        seen = np.array([value for value in values if value is not None])
    levels, inverse = np.unique(seen, return_inverse=True)
    codes = np.full(len(values), -1, np.int64)
    codes[known] = inverse.reshape(-1)
    texts = [_level(level) for level in levels]
    if about is not None and about.form == TRUTH:
        texts = [{"False": "no", "True": "yes"}.get(text, text) for text in texts]
    return Column(name, codes, tuple(texts))


def _level(level: Any) -> str:
    if not isinstance(level, (float, np.floating)):
        return str(level)
    return f"{level:.0f}" if float(level).is_integer() else repr(float(level))


def top_words(table: Table, rows: Ints, shown: int = 8) -> list[str]:
    """Return for each row the words with the largest count × log(rows / rows with the word)."""
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
