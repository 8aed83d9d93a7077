"""The facts about one column by which the rules of the triage decide."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpsearch._numbers import count
from dpsearch._types import Vector
from dpsearch.tables import cells
from dpsearch.tables.codes import FEWEST_COPIES, codes_in
from dpsearch.tables.columns import Column, Level, RawColumn
from dpsearch.tables.entries import DROPPED, Entry
from dpsearch.tables.names import words_of

SOME = 20  # the fewest rows in which values are not all different, or alike, by chance
FEW = 5  # the same for consecutive integers from 0 or 1, and for texts
_SAMPLED = 10_000  # values of a column that are examined


class TableFacts(NamedTuple):
    """Facts about the whole table."""

    n_rows: int
    named: bool  # whether the table names its columns
    cycles: bool  # whether numbers of months, hours and weekdays become categories
    codes: bool  # whether codes of missing values are recognised
    scales: frozenset[tuple[float, float]] = frozenset()  # ranges of answers that columns share


class Found(NamedTuple):
    """The decision about a column: its entry in the triage, and the columns to cluster by."""

    entry: Entry
    columns: tuple[Column, ...] = ()
    names_rows: bool = False  # whether no two values are the same


class ColumnFacts:
    """A column as it came, how its texts may be read, and what the user gives for it."""

    def __init__(
        self, name: str, raw: RawColumn, given: str | None, last: bool, table: TableFacts
    ) -> None:
        self.name, self.raw, self.given, self.last, self.table = name, raw, given, last, table
        self.free = given is None  # whether the rules decide, not the user
        self.n = int((~np.isnan(raw.values)).sum())
        self.notes: list[str] = []
        self.changed = raw.n_infinite > 0  # whether values are replaced, or taken as missing
        self.among = " in a sample" if len(raw.values) < table.n_rows else ""
        gaps = len(raw.values) - self.n - raw.n_infinite
        if gaps:
            self.notes.append(f"{gaps:,} missing{self.among}")
        if raw.n_infinite:
            self.notes.append(f"{raw.n_infinite:,} not finite, treated as missing")

    # -- decisions ------------------------------------------------------------------------------

    def dropped(self, role: str, why: str, names_rows: bool = False) -> Found:
        return Found(self._entry(role, DROPPED, why), (), names_rows)

    def used(self, role: str, treatment: str, why: str, *columns: Column) -> Found:
        return Found(self._entry(role, treatment, why), columns)

    def _entry(self, role: str, treatment: str, why: str) -> Entry:
        return Entry(self.name, role, treatment, "; ".join([why, *self.notes]), self.changed)

    # -- names ----------------------------------------------------------------------------------

    def named_like(self, pattern: re.Pattern[str]) -> bool:
        """Whether the table names the column so that the words match a pattern."""
        return self.table.named and pattern.fullmatch(words_of(self.name)) is not None

    # -- texts ----------------------------------------------------------------------------------

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The different texts; empty if the column holds anything else."""
        uniques = self.raw.uniques or ()
        return uniques if all(isinstance(text, str) for text in uniques) else ()

    @cached_property
    def counts(self) -> Any:
        """How often each text or level occurs."""
        codes = self.raw.values[~np.isnan(self.raw.values)].astype(np.int64)
        return np.bincount(codes, minlength=len(self.raw.uniques or ()))

    @property
    def n_levels(self) -> int:
        return int((self.counts > 0).sum())

    def form(self, form_of: Callable[..., str | None]) -> str | None:
        """The form in which the texts are numbers or dates; None if they are not."""
        return form_of(self.texts, self.counts) if self.texts else None

    @property
    def levels(self) -> tuple[Level, ...]:
        """All different values, in an order that does not depend on the rows' order."""
        raw = self.raw
        if raw.uniques is None:
            seen = np.unique(raw.values[~np.isnan(raw.values)]).tolist()
            return tuple(int(value) if raw.source == "int" else value for value in seen)
        texts = raw.source == "text" or len(raw.uniques) != len({*map(str, raw.uniques)})
        return tuple(sorted(map(str, raw.uniques))) if texts else raw.uniques

    def read(self, read: cells.Reader, what: str) -> Vector:
        """Return the texts as numbers; the notes get an example, and the number of unread texts."""
        texts, values = self.texts, self.raw.map(read)
        known = ~np.isnan(values)
        other = np.flatnonzero(~known & ~np.isnan(self.raw.values))
        if known.any():
            example = texts[int(self.raw.values[known][0])]
            self.notes.insert(0, f"read as {what}, such as {example!r}")
        if len(other):
            first = texts[int(self.raw.values[other[0]])]
            others = count(len(other), "other")
            self.notes.append(f"{others}{self.among}, such as {first!r}, treated as missing")
            self.changed = True
        return values

    @property
    def date_form(self) -> str | None:
        """How dates are read, "" if they have a type of dates; None if the column holds none."""
        if self.raw.source == "date":
            return ""
        may_be = self.raw.source == "text" and self.number_form is None
        return self.form(cells.date_form) if may_be or self.given == "date" else None

    # -- numbers --------------------------------------------------------------------------------

    @cached_property
    def number_form(self) -> str | None:
        """How numbers are read, "" if they are not texts; None if the column holds none."""
        if self.raw.uniques is None:
            return cells.POINT if self.raw.n_infinite else ""
        return self.form(cells.number_form) if self.raw.source == "text" else None

    @property
    def unit(self) -> str:
        """The unit of numbers in texts; "" if there is none."""
        return cells.unit_of(self.texts, self.counts) if self.texts else ""

    @cached_property
    def numbers(self) -> Vector:
        """The column as numbers."""
        if self.raw.uniques is None or self.number_form is None:
            return self.raw.values
        return self.read(cells.number_reader(self.number_form, self.unit), "numbers")

    @cached_property
    def known(self) -> Vector:
        """The numbers without gaps and codes of missing values, or the codes of texts."""
        known = self.numbers[~np.isnan(self.numbers)]
        if not (self.table.codes and self.number_form is not None and len(known)):
            return known
        some = _spread(known)
        for code in codes_in(some):
            if (some == code).sum() >= FEWEST_COPIES:
                self.notes.append(f"{(known == code).sum():,} of {code:.10g}, treated as missing")
                self.changed = True
                known = known[known != code]
        return known

    @cached_property
    def sampled(self) -> Vector:
        """Some of the known values, at regular intervals of the column."""
        return _spread(self.known)

    @cached_property
    def distinct(self) -> Vector:
        """The different sampled values in ascending order."""
        return np.unique(self.sampled)

    @property
    def range(self) -> tuple[float, float]:
        return float(self.known.min()), float(self.known.max())

    @property
    def on_a_scale(self) -> bool:
        """Whether all numbers are answers on a scale that several columns share."""
        least, most = self.range
        return any(low <= least and most <= high for low, high in self.table.scales)

    @cached_property
    def whole(self) -> bool:
        return self.number_form is not None and bool(
            (np.floor(self.distinct) == self.distinct).all()
        )

    @cached_property
    def source(self) -> str:
        """The type of the numbers; for texts the type that they are read as."""
        if self.raw.uniques is None:
            return self.raw.source
        return "int" if bool((np.floor(self.known) == self.known).all()) else "float"

    @property
    def different(self) -> bool:
        """Whether no value is missing and no two are the same."""
        return len(self.distinct) == len(self.sampled) and self.n == len(self.raw.values)

    @property
    def may_number_rows(self) -> bool:
        return self.free and self.whole and self.n >= FEW and self.different

    @property
    def in_order(self) -> bool:
        """Whether each number is the one before plus 1."""
        return self.different and bool((np.diff(self.numbers) == 1.0).all())


def _spread(values: Vector) -> Vector:
    """Return values at regular intervals of a column."""
    return values[:: -(-len(values) // _SAMPLED) or 1]


def skewness(values: Vector) -> float:
    """Return the standardised third moment."""
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    return 0.0 if spread == 0.0 else float((centred**3).mean()) / spread**3
