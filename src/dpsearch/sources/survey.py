"""What the columns of a table hold, found in one pass over blocks of its rows.

Which columns are measurements, and of which kind, is a question about the whole table.  The rules
are those of tables in memory: `io.tidy` and `tables.Schema`.  The first is asked about a stand-in,
the smallest table of which it says the same; the second about a sample, which has the smallest
value of every column of integers, and gets the levels of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from dpsearch.errors import DataError, UnclearColumnError, located
from dpsearch.io.table import Table
from dpsearch.io.tidy import NUMBERING, tidy
from dpsearch.sources.shards import SAMPLE_ROWS
from dpsearch.tables import Column, Schema

_MOST_LEVELS = 100_000  # of a column: more are no categories
_STAND_IN = 6  # rows, if there are as many
_LEAST_COUNTED = 20  # rows from which integers one after the other are row numbers
_WORD = 2**64


@dataclass
class Columns:
    """The columns to cluster by."""

    names: list[str]
    schema: Schema | None
    index: str | None = None
    index_name: str = "row"
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Survey:
    """Blocks of rows go in by `add`; `columns` tells at the end."""

    def __init__(
        self,
        types: Mapping[str, Any],
        n_rows: int,
        *,
        categories: Collection[str] = (),
        kinds: Mapping[str, str] | None = None,
        named: bool = False,
        unnamed: bool = False,  # whether the names were made up
    ) -> None:
        self.types = {name: pl.Categorical() if name in categories else kind
                      for name, kind in types.items()}  # fmt: skip
        self.n_rows, self.kinds, self.named = n_rows, kinds, named
        self.mixed = kinds is not None or not all(map(_is_number, self.types.values()))
        self._unnamed = unnamed and not self.mixed
        said = kinds if isinstance(kinds, Mapping) else {}
        self._levels = {
            name: _Levels()
            for name, kind in self.types.items()
            if _is_text(kind) or said.get(name) in ("category", "binary")
        }
        self._without_value = set(self.types)
        first = next(iter(self.types))
        numbered = self.mixed or (not named and len(self.types) > 1)
        self._numberings = {
            name: _Numbering()
            for name, kind in self.types.items()
            if numbered and kind.is_numeric() and (name == first or kind.is_integer())
        }
        self._rng = np.random.default_rng(0)
        self._sample: list[pl.DataFrame] = []
        self._places: list[tuple[str, int]] = []

    def needed(self) -> list[str]:
        """The columns about which something is still to be found out."""
        if self.mixed:
            return list(self.types)
        asked = {name for name, about in self._numberings.items() if about.maybe}
        asked |= self._without_value
        return [name for name in self.types if name in asked]

    def add(self, frame: pl.DataFrame, source: str, first: int) -> None:
        """Look at rows, the first of which has this number in its source."""
        frame = frame.with_columns(
            pl.col(name).fill_nan(None) for name, kind in frame.schema.items() if kind.is_float()
        )
        kept = np.sort(self._rng.choice(frame.height, self._share(frame.height), replace=False))
        least: set[int] = set()
        for series in frame.get_columns():
            name = series.name
            if series.null_count() < len(series):
                self._without_value.discard(name)
            if name in self._levels:
                as_text = _is_text(self.types[name])
                self._levels[name].add(series.cast(pl.String) if as_text else series)
            if name in self._numberings:
                self._numberings[name].add(series)
                if len(series) and series.null_count() < len(series):
                    least.add(int(series.arg_min() or 0))
        if self.mixed:
            rows = sorted(least.union(kept.tolist()))
            self._sample.append(frame.select(list(self.types))[rows])
            self._places += [(source, first + row) for row in rows]

    def _share(self, height: int) -> int:
        return min(height, -(-height * SAMPLE_ROWS // max(self.n_rows, 1)))

    # -- the end ----------------------------------------------------------------------------

    def columns(self, source: str) -> Columns:
        """Decide, when all rows have been seen."""
        table = tidy(self._stand_in(source), named=self.named)
        names = [name for name in self.types if name not in table.left_out]
        found = Columns(names, None, notes=table.notes, left_out=table.left_out)
        if table.index is not None:
            found.index = next(iter(self.types))
            found.index_name = table.index.name
        for name in found.left_out:
            if name in self._levels and self._levels[name].too_many:
                found.notes = [self._levels[name].honest(note) for note in found.notes]
        kept = {name: self.types[name] for name in found.names}
        if self.kinds is not None or not all(map(_is_number, kept.values())):
            with located(source):
                found.schema = self._schema(found.names)
        return found

    def _stand_in(self, source: str) -> Table:
        height = min(_STAND_IN, self.n_rows)
        columns = [self._like(name, height) for name in self.types]
        names = None if self._unnamed else list(self.types)
        if all(map(_is_number, self.types.values())):
            cells = [series.cast(pl.Float64).fill_null(float("nan")) for series in columns]
            return Table(np.column_stack(cells), names, source=source)
        return Table(pl.DataFrame(columns), names, source=source)

    def _like(self, name: str, height: int) -> pl.Series:
        """A column of which the rules say what they would say of this one."""
        kind = self.types[name]
        if name in self._without_value:
            return pl.Series(name, [None] * height, dtype=kind)
        if _is_text(kind):
            apart = kind == pl.String and self._levels[name].all_different(self.n_rows)
            texts = [f"{row if apart else 0}" for row in range(height)]
            return pl.Series(name, texts, dtype=pl.String if kind == pl.String else pl.Categorical)
        if kind == pl.Boolean:
            return pl.Series(name, [True] * height)
        nameless = name in NUMBERING and not self._unnamed
        numbering = self._numberings.get(name)
        if numbering is not None and numbering.counts_rows(self.n_rows, nameless):
            return pl.Series(name, np.arange(float(height)))
        return pl.Series(name, np.full(height, 0.5))

    def _schema(self, names: list[str]) -> Schema:
        for name in names:
            self._check(name)
        sample = pl.concat(self._sample, how="vertical_relaxed").select(
            pl.col(name).cast(pl.String).cast(self.types[name])
            if _is_text(self.types[name])
            else pl.col(name)
            for name in names
        )
        try:
            schema = Schema.of(sample, self.kinds)
        except DataError as error:
            if error.row is not None:
                error.source, error.row = self._places[error.row]
            raise
        return replace(schema, columns=tuple(map(self._with_all_levels, schema.columns)))

    def _check(self, name: str) -> None:
        """Raise if a column holds names, free texts or the numbers of the rows."""
        levels = self._levels.get(name)
        if levels is not None and levels.too_many:
            raise DataError(
                f"{{place}} has more than {_MOST_LEVELS:,} different values, a name or a free text"
                " rather than a category: leave it out",
                column=name,
            )
        said = isinstance(self.kinds, Mapping) and name in self.kinds
        numbering = self._numberings.get(name) if self.types[name].is_integer() else None
        if numbering is not None and not said and numbering.one_by_one(self.n_rows):
            raise UnclearColumnError("{place} counts the rows, in their order", column=name)

    def _with_all_levels(self, column: Column) -> Column:
        levels = self._levels.get(column.name)
        if column.levels is None or levels is None or isinstance(self.types[column.name], pl.Enum):
            return column
        found = levels.ordered()
        if column.kind == "binary" and len(found) > 2:
            raise DataError(
                f"{{place}} is not binary: it has {len(found)} levels", column=column.name
            )
        return replace(column, levels=found)


class _Levels:
    """The different values of a column."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.n_values = 0
        self.too_many = False

    def add(self, series: pl.Series) -> None:
        if self.too_many:
            return
        self.n_values += series.count()
        self.seen.update(series.drop_nulls().unique().to_list())
        self.too_many = len(self.seen) > _MOST_LEVELS

    def all_different(self, n_rows: int) -> bool:
        """Whether no value comes twice, the missing one included; if too many: not so far."""
        if len(self.seen) < self.n_values:
            return False
        return self.too_many or n_rows - self.n_values <= 1

    def honest(self, note: str) -> str:
        return note.replace("every value", f"each of the first {self.n_values:,} values")

    def ordered(self) -> tuple[Any, ...]:
        return tuple(sorted(self.seen))


class _Numbering:
    """Whether a column numbers the rows.

    That N integers are 0 … N−1 in some order is known by their sum and sum of squares modulo
    2⁶⁴ and by their range; it takes no memory.
    """

    def __init__(self) -> None:
        self.maybe = True  # integers, none missing, none twice in a block
        self.in_steps = True  # of one
        self.n_values = self.total = self.squares = 0
        self.least, self.most = np.inf, -np.inf
        self.last: Any = None

    def add(self, series: pl.Series) -> None:
        if not self.maybe or not len(series):
            return
        if series.dtype.is_integer() and not series.null_count():
            values, whole = series.cast(pl.Int64).to_numpy(), True
        else:
            values = series.cast(pl.Float64).fill_null(float("nan")).to_numpy()
            with np.errstate(invalid="ignore"):
                whole = bool((values == np.floor(values)).all())
                whole = whole and bool((np.abs(values) < 2.0**53).all())
        self.maybe = whole and len(np.unique(values)) == len(values)
        if not self.maybe:
            return
        before = values[:0] if self.last is None else [self.last]
        self.in_steps &= bool((np.diff(np.concatenate([before, values])) == 1).all())
        self.last = values[-1].item()
        words = values.astype(np.int64).astype(np.uint64)
        self.n_values += len(words)
        self.total += int(words.sum())
        self.squares += int((words * words).sum())
        self.least = min(self.least, values.min().item())
        self.most = max(self.most, values.max().item())

    def counts_rows(self, n_rows: int, nameless: bool) -> bool:
        if not self.maybe or self.n_values < n_rows:
            return False
        if nameless:
            return True
        if self.least not in (0.0, 1.0) or self.most != self.least + n_rows - 1:
            return False
        top = int(self.most)
        sums = top * (top + 1) // 2, top * (top + 1) * (2 * top + 1) // 6
        return (self.total % _WORD, self.squares % _WORD) == (sums[0] % _WORD, sums[1] % _WORD)

    def one_by_one(self, n_rows: int) -> bool:
        complete = self.maybe and self.n_values == n_rows
        return complete and self.in_steps and n_rows >= _LEAST_COUNTED


def _is_text(kind: Any) -> bool:
    return kind in (pl.String, pl.Categorical) or isinstance(kind, pl.Enum)


def _is_number(kind: Any) -> bool:
    return bool(kind.is_numeric() or kind == pl.Null)
