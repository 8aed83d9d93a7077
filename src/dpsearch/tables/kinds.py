"""What kind a column is of, by its type and its values.

category   categoricals, enumerations and texts
binary     booleans
count      integers, none below zero, half of them at most 30, with a variance of at least their
           mean, as counts have; in pandas also floats with gaps that are all whole and so,
           because that is what integers with gaps become there
real       other numbers, measurements in whole units among them: counts as large would vary by
           their square root and no more, which hardly anything does
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import DataError, UnclearColumnError
from dpsearch.tables.columns import Column, Kind, Level, RawColumn, as_levels, numbers_of

# Above this share of distinct values a text tells rows apart and groups none.
DISTINCT = 0.9
MOST_COUNTED = 30  # the median of integers up to which they are taken for counts
_ROW_NUMBERS = 20  # rows from which consecutive integers are taken for row numbers


def column_of(raw: RawColumn, name: str, kind: Any, library: str) -> Column:
    """Return what a column holds; `kind` is what the user says about it."""
    if kind is None:
        kind = _infer(raw, name, library)
    if kind in ("real", "count"):
        numbers_of(raw, name, kind)
        return Column(name, kind, raw.source)
    levels = raw.levels if raw.levels is not None else _sorted_levels(raw, name)
    if kind == "binary" and len(levels) > 2:
        raise DataError(f"{{place}} of X is not binary: it has {len(levels)} levels", column=name)
    if not levels:
        raise DataError("{place} of X has no value at all: leave it out", column=name)
    for level in levels:
        if not isinstance(level, (str, bool, int, float)):
            raise DataError(
                f"{{place}} of X has the level {level!r}, of type {type(level).__name__}:"
                " turn it into text first",
                column=name,
            )
    return Column(name, kind, raw.source, levels)


def _infer(raw: RawColumn, name: str, library: str) -> Kind:
    if raw.source == "bool":
        return "binary"
    if raw.source == "text":
        _refuse_free_text(raw.values, name)
    if raw.source in ("text", "categorical"):
        return "category"
    seen = raw.values[~np.isnan(raw.values)]
    if raw.source == "int":
        if len(seen) >= _ROW_NUMBERS and (np.diff(seen) == 1.0).all():
            raise UnclearColumnError(
                f"{{place}} of X counts the rows, {seen[0]:g} to {seen[-1]:g}", column=name
            )
        return "count" if _look_like_counts(seen) else "real"
    had_gaps = len(seen) < len(raw.values)
    return "count" if had_gaps and library == "pandas" and _look_like_counts(seen) else "real"


def _refuse_free_text(values: Any, name: str) -> None:
    seen = [value for value in values if value is not None]
    distinct = len(set(seen))
    if len(seen) > 1 and distinct > DISTINCT * len(seen):
        raise UnclearColumnError(
            f"{{place}} of X is text in which {distinct} of {len(seen)} values differ, a name or a"
            " free text rather than a category",
            kind="category",
            column=name,
        )


def _look_like_counts(seen: Vector) -> bool:
    whole = (seen >= 0.0).all() and (np.floor(seen) == seen).all() and np.isfinite(seen).all()
    if not len(seen) or not whole:
        return False
    return are_counts(np.median(seen), seen.mean(), seen.var(), len(seen))


def are_counts(median: float, mean: float, variance: float, n: int) -> bool:
    """Whether integers, none below zero, are taken for counts.

    A mixture of Poisson variables varies by its mean at least; a sample of one by less than two
    standard deviations of that ratio, √(2/n), below.  Ages, grades and ratings vary less.
    """
    return bool(median <= MOST_COUNTED and variance >= (1.0 - 2.0 * math.sqrt(2.0 / n)) * mean)


def _sorted_levels(raw: RawColumn, name: str) -> tuple[Level, ...]:
    seen = {value for value in as_levels(raw) if value is not None}
    try:
        return tuple(sorted(seen))
    except TypeError as error:
        raise DataError(
            "{place} of X has levels of different types: turn them all into text", column=name
        ) from error
