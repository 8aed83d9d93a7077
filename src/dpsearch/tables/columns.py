"""`Column`: what one column of a table holds, and how its values become numbers and back."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsearch._types import Vector
from dpsearch._validate import LARGEST
from dpsearch.errors import DataError, ParameterError
from dpsearch.tables.cells import (
    COMMA,
    PARTS,
    POINT,
    date_reader,
    number_reader,
    part_of_date,
    truth_reader,
)

Kind = Literal["real", "count", "binary", "category"]
KINDS: tuple[Kind, ...] = ("real", "count", "binary", "category")
# Types of columns before they are encoded, to which they are decoded.
SOURCES = ("text", "categorical", "bool", "int", "float", "date")
OTHER = "other"  # the level of all values that are not one of the other levels
_ROUNDING = 1e-6  # the relative error of levels that are numbers in single precision, or sums
TRUTH = "yes/no"  # the form of texts that are read as truth values

Level = str | bool | int | float


class RawColumn(NamedTuple):
    """A column as read from a frame; NaN is missing."""

    source: str  # one of `SOURCES`, or "nested"
    values: Vector  # numbers, the seconds of dates since 1970, or codes of `uniques`
    uniques: tuple[Any, ...] | None = None  # the different texts, truth values or declared levels
    ordered: bool = False  # whether the type says that they have an order
    n_infinite: int = 0  # values that are not finite, or too large, taken as missing

    def cells(self) -> Any:
        """Return the values as they came: numbers, or a list in which None is missing."""
        if self.uniques is None:
            return self.values
        return [None if math.isnan(v) else self.uniques[int(v)] for v in self.values]

    def seconds(self, form: str) -> Vector:
        """Return dates as seconds since 1970; texts are read by their form."""
        return self.values if self.source == "date" else self.map(date_reader(form))

    def map(self, read: Any) -> Vector:
        """Return a function of the values, called once for each different value."""
        uniques, codes = self.uniques, self.values
        if uniques is None:
            known = ~np.isnan(self.values)
            seen, inverse = np.unique(self.values[known], return_inverse=True)
            uniques = tuple(int(v) if v.is_integer() else v for v in seen.tolist())
            codes = np.full(len(self.values), math.nan)
            codes[known] = inverse
        table = np.array([*map(read, uniques), math.nan], dtype=np.float64)
        return np.asarray(table[np.where(np.isnan(codes), len(uniques), codes).astype(np.int64)])


class Unseen(NamedTuple):
    """Values that a column cannot hold."""

    rows: Any  # their indices
    example: Any


@dataclass(frozen=True)
class Column:
    """One encoded column: what it holds, and how it is derived from a column of the table.

    `levels` are the categories of codes 0, 1, 2 …  `form` says how texts are read: as numbers
    ("1,234.5"), dates (a format), truth values, or with "other" for rare levels.  `part` names the
    part of a date.
    """

    name: str
    kind: Kind
    source: str
    levels: tuple[Level, ...] | None = None
    origin: str = ""  # the column of the table, if that has another name
    form: str = ""
    part: str = ""
    role: str = field(default="number", compare=False)
    unit: str = field(default="", compare=False)  # that numbers are written with: $, %, kg

    @property
    def origin_name(self) -> str:
        """The name of the column of the table."""
        return self.origin or self.name

    @property
    def period(self) -> float | None:
        """The number of levels if these are circular, such as hours; None for other columns."""
        return float(len(self.levels)) if self.role == "angle" and self.levels else None

    @property
    def is_unchanged(self) -> bool:
        """Whether this column's values are those of the table's column."""
        return not self.part and self.form in ("", OTHER)

    def encode(self, raw: RawColumn) -> tuple[Vector, Unseen | None]:
        """Return the column as numbers, and the values that it cannot hold, which become NaN."""
        if self.part:
            out = part_of_date(raw.seconds(self.form), self.part)
        elif self.levels is not None:
            truths = self.form == TRUTH or self.source == "bool"
            out = raw.map(truth_reader if truths else self._code)
        elif raw.uniques is not None:
            out = raw.map(number_reader(self.form or POINT, self.unit))
        else:
            out = np.array(raw.values, dtype=np.float64)
        if self.kind == "count":
            out[(out < 0.0) | (np.floor(out) < out)] = math.nan
        lost = np.flatnonzero(np.isnan(out) & ~np.isnan(raw.values))
        if not len(lost):
            return out, None
        value = raw.values[lost[0]].item()
        return out, Unseen(lost, value if raw.uniques is None else raw.uniques[int(value)])

    def _code(self, value: Any) -> float:
        codes = self._codes()
        code = codes.get(value, codes.get(str(value)))
        if code is None and self.form == OTHER:
            code = codes[OTHER]
        return self._code_of_number(value) if code is None else code

    def _code_of_number(self, value: Any) -> float:
        """Return the code of the level that equals a number or its text up to rounding."""
        if not all(map(_is_number, self.levels or ())):
            return math.nan
        levels = np.array(self.levels, np.float64)
        form = self.form if self.form in (POINT, COMMA) else POINT
        off = np.abs(levels - number_reader(form, self.unit)(value))
        size = np.abs(levels)
        size[size == 0.0] = np.min(size, where=size > 0.0, initial=1.0)
        # Different integers, such as long codes, are different levels.
        near = off <= np.minimum(_ROUNDING * size, 0.25)
        return float(np.argmin(off)) if near.any() else math.nan

    def _codes(self) -> dict[Any, float]:
        """The codes of the levels, also by their texts, since files hold some levels as texts."""
        known = self.__dict__.get("_known_codes")
        if known is None:
            pairs = [(level, float(code)) for code, level in enumerate(self.levels or ())]
            known = {str(level): code for level, code in pairs} | dict(pairs)
            object.__setattr__(self, "_known_codes", known)
        return known

    def refused(self, unseen: Unseen) -> DataError:
        """Return the error about a value that the column cannot hold."""
        what = f"not a {'count' if self.kind == 'count' else 'number'}"
        if self.levels is not None:
            some = ", ".join(repr(level) for level in self.levels[:8])
            more = " …" if len(self.levels) > 8 else ""
            what = f"which is not a level of this column; the levels are {some}{more}"
        value = f"{unseen.example:g}" if type(unseen.example) is float else repr(unseen.example)
        return DataError(
            f"X at {{place}} is {value}, {what}", row=unseen.rows[0], column=self.origin_name
        )

    def decode(self, values: Vector) -> list[Any]:
        """Return codes or numbers as the column's values, None where they are NaN."""
        if self.levels is not None:
            # Expected values of circular levels lie between these.
            n = len(self.levels)
            return [None if math.isnan(v) else self.levels[round(v) % n] for v in values.tolist()]
        whole = self.source == "int" and bool((np.floor(values) == values)[~np.isnan(values)].all())
        number = int if whole else float
        return [None if math.isnan(v) else number(v) for v in values.tolist()]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        levels = None if self.levels is None else list(self.levels)
        return asdict(self) | {"levels": levels}

    @classmethod
    def from_dict(cls, spec: Any) -> Column:
        """Return the column that `to_dict` describes."""
        known = {one.name for one in fields(cls)}
        needed = {"name", "kind", "source", "levels"}
        if not isinstance(spec, Mapping) or not needed <= set(spec) <= known:
            raise ParameterError("a column is described by name, kind, source and levels")
        name, kind, source, levels = (spec[key] for key in ("name", "kind", "source", "levels"))
        if not isinstance(name, str) or kind not in KINDS or source not in SOURCES:
            raise ParameterError(f"column {name!r}: unknown kind {kind!r} or source {source!r}")
        if (levels is None) != (kind in ("real", "count")):
            raise ParameterError(f"column {name!r}: levels do not go with the kind {kind}")
        rest = {key: spec[key] for key in spec if key not in needed}
        if not all(isinstance(value, str) for value in rest.values()):
            raise ParameterError(f"column {name!r}: origin, form, part, role and unit are texts")
        own = None if levels is None else _levels(name, kind, levels)
        column = cls(name, kind, source, own, **rest)
        column._check()
        return column

    def _check(self) -> None:
        """Raise `ParameterError` if the form or the part is impossible."""
        levels = self.levels or ()
        if self.part:
            wanted = PARTS.get(self.part, ("?",))
            fits = (self.levels is None) == (wanted is None) and len(levels) == len(wanted or ())
        elif self.levels is None:
            fits = self.form in ("", POINT, COMMA)
        else:
            numeric = all(map(_is_number, levels))
            known = {"": True, OTHER: OTHER in levels, TRUTH: len(levels) == 2}
            fits = (known | {POINT: numeric, COMMA: numeric}).get(self.form, False)
        if not fits:
            raise ParameterError(f"column {self.name!r}: unknown form {self.form!r}")


def _is_number(level: Any) -> bool:
    return isinstance(level, numbers.Real) and not isinstance(level, bool)


def _levels(name: str, kind: Kind, levels: Any) -> tuple[Level, ...]:
    plain = isinstance(levels, list) and all(isinstance(v, (str, numbers.Real)) for v in levels)
    if not plain or not levels or len(set(levels)) != len(levels):
        raise ParameterError(f"column {name!r}: levels must be different texts or numbers")
    if kind == "binary" and len(levels) > 2:
        raise ParameterError(f"column {name!r}: binary with {len(levels)} levels")
    return tuple(levels)


def finite(values: Any) -> tuple[Vector, int]:
    """Return numbers with infinite or too large ones as NaN, and how many those are."""
    out = np.array(values, dtype=np.float64)
    bad = np.abs(out) > LARGEST
    out[bad] = math.nan
    return out, int(bad.sum())
