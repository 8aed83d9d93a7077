"""One column of a table: its kind, and how its values become numbers and back."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsearch._types import Vector
from dpsearch._validate import LARGEST
from dpsearch.errors import DataError, ParameterError

Kind = Literal["real", "count", "binary", "category"]
KINDS: tuple[Kind, ...] = ("real", "count", "binary", "category")
# What a column came as, so that it goes back as the same.
SOURCES = ("text", "categorical", "bool", "int", "float")

Level = str | bool | int | float


class RawColumn(NamedTuple):
    """A column as read from a frame."""

    source: str
    values: Any  # float64 with NaN, or for levels an array of objects with None
    levels: tuple[Level, ...] | None  # in the order that the type gives, if it gives one


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, what it holds, and the levels of codes 0, 1, 2 …"""

    name: str
    kind: Kind
    source: str
    levels: tuple[Level, ...] | None = None

    def encode(self, raw: RawColumn) -> Vector:
        """Return the column as numbers."""
        if self.levels is None:
            return numbers_of(raw, self.name, self.kind)
        codes = {level: float(code) for code, level in enumerate(self.levels)}
        out = np.full(len(raw.values), math.nan)
        for i, value in enumerate(as_levels(raw)):
            if value is None:
                continue
            if value not in codes:
                known = ", ".join(repr(level) for level in self.levels[:8])
                more = " …" if len(self.levels) > 8 else ""
                raise DataError(
                    f"X at {{place}} is {value!r}, which is none of the levels of this column:"
                    f" {known}{more}",
                    row=i,
                    column=self.name,
                )
            out[i] = codes[value]
        return out

    def decode(self, values: Vector) -> list[Any]:
        """Return numbers as what the column holds, None where they are NaN."""
        if self.levels is not None:
            return [None if math.isnan(v) else self.levels[int(v)] for v in values]
        whole = self.source == "int" and bool((np.floor(values) == values)[~np.isnan(values)].all())
        number = int if whole else float
        return [None if math.isnan(v) else number(v) for v in values.tolist()]

    @classmethod
    def from_dict(cls, spec: Any) -> Column:
        """Return the column that a file describes, if it can be one."""
        if not isinstance(spec, Mapping) or set(spec) != {"name", "kind", "source", "levels"}:
            raise ParameterError("a column is described by name, kind, source and levels")
        name, kind, source, levels = (spec[key] for key in ("name", "kind", "source", "levels"))
        if not isinstance(name, str) or kind not in KINDS or source not in SOURCES:
            raise ParameterError(f"column {name!r}: unknown kind {kind!r} or source {source!r}")
        if (levels is None) != (kind in ("real", "count")):
            raise ParameterError(f"column {name!r}: levels do not go with the kind {kind}")
        return cls(name, kind, source, None if levels is None else _levels(name, kind, levels))


def _levels(name: str, kind: Kind, levels: Any) -> tuple[Level, ...]:
    plain = isinstance(levels, list) and all(isinstance(v, (str, numbers.Real)) for v in levels)
    if not plain or not levels or len(set(levels)) != len(levels):
        raise ParameterError(f"column {name!r}: levels must be different texts or numbers")
    if kind == "binary" and len(levels) > 2:
        raise ParameterError(f"column {name!r}: binary with {len(levels)} levels")
    return tuple(levels)


def as_levels(raw: RawColumn) -> list[Any]:
    """Return the column's values as levels, None where missing."""
    if raw.source not in ("int", "float"):
        return list(raw.values)
    number = int if raw.source == "int" else float
    return [None if math.isnan(v) else number(v) for v in raw.values.tolist()]


def numbers_of(raw: RawColumn, name: str, kind: Kind) -> Vector:
    """Return the column's values as numbers of a kind."""
    if raw.source == "bool":
        values = np.array([math.nan if v is None else float(v) for v in raw.values])
    elif raw.source in ("int", "float"):
        values = np.array(raw.values, dtype=np.float64)
    else:
        at = next((i for i, value in enumerate(raw.values) if value is not None), None)
        if at is not None:
            raise DataError(
                f"X at {{place}} is {raw.values[at]!r}, not a number", row=at, column=name
            )
        values = np.full(len(raw.values), math.nan)
    bad = np.abs(values) > LARGEST
    what = f"above {LARGEST:.0e} in magnitude: rescale the column, or mark it as missing"
    if kind == "count" and not bad.any():
        bad, what = (values < 0.0) | (np.floor(values) < values), "not a count"
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"X at {{place}} is {values[row]:g}, {what}", row=row, column=name)
    return values
