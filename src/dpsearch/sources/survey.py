"""What the columns of a table hold, found in one pass over blocks of its rows.

Which columns are measurements, and of which kind, is a question about the whole table.  The rules
are those of tables in memory: `io.tidy` and `tables.Schema`.  The first are about facts that blocks
add up to; the second is asked about a sample, which has the smallest value of every column of
integers, and gets the levels of the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from dpsearch.errors import DataError, UnclearColumnError, located
from dpsearch.io.table import NAMELESS
from dpsearch.io.tidy import FEW, Decision, Facts, Numbering, decide, place_of
from dpsearch.sources.shards import SAMPLE_ROWS
from dpsearch.tables import Column, Schema

_MOST_LEVELS = 100_000  # of a column: more are no categories


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
            name: Numbering(None if self._unnamed else name)
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
        with located(source):
            decision = self._decision()
            names = list(self.types)
            found = Columns([names[j] for j in decision.kept], None, notes=decision.notes,
                            left_out=decision.left_out)  # fmt: skip
            if decision.index is not None:
                found.index = names[decision.index]
                found.index_name = "row" if found.index in NAMELESS else found.index
            kept = (self.types[name] for name in found.names)
            if self.kinds is not None or not all(map(_is_number, kept)):
                found.schema = self._schema(found.names)
        return found

    def _decision(self) -> Decision:
        if self.named:
            return Decision(list(range(len(self.types))))
        columns = []
        for j, (name, kind) in enumerate(self.types.items()):
            facts = Facts(name, place_of(name, j, unnamed=self._unnamed))
            facts.empty = name in self._without_value
            levels, numbering = self._levels.get(name), self._numberings.get(name)
            if kind == pl.String and levels is not None and not facts.empty:
                facts.all_different = self.n_rows >= FEW and levels.all_different(self.n_rows)
                if levels.too_many:
                    facts.compared = f"each of the first {levels.n_values:,} values"
            facts.numbers_rows = numbering is not None and numbering.numbers_rows(self.n_rows)
            columns.append(facts)
        return decide(columns)

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

    def ordered(self) -> tuple[Any, ...]:
        return tuple(sorted(self.seen))


def _is_text(kind: Any) -> bool:
    return kind in (pl.String, pl.Categorical) or isinstance(kind, pl.Enum)


def _is_number(kind: Any) -> bool:
    return bool(kind.is_numeric() or kind == pl.Null)
