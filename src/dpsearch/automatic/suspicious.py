"""Values that should not decide: codes that stand for missing values, and rows far from all others.

A value of a column is far from the others if a gap of more than three times their range lies
between.  The others grow from the middle half of the values, outwards over every narrower gap, so
that no number of far values hides them; no mean and no variance is involved, and units do not
matter.

A code is such a value that is there several times and is written as people and programs write what
they do not know: with nines, eights or sevens alone (−9999, 99.99, 88), as the least or largest
number of a type (−32768), as −999.25 in well logs, or as a number beyond all measurements (10^20).
Codes do not count among the others, so that half of a column may consist of them.

A row is far if a number of it is, unless as many as one row in twenty are far in that column: those
are clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch.errors import ParameterError
from dpsearch.tables import CheckedTable, Codes, Schema

_GAP = 3.0  # times the range of the others
_FEWEST_VALUES = 8  # in a column, from which on some can be far from the others
_FEWEST_COPIES = 3  # of a code in the table
_MOST_FAR = 0.05  # the share of rows that are far at most
_MOST_NAMED = 3
# Ends of the integer types, where 0 is not one, and the code of the LAS files of well logs.
_ENDS = [end for bits in (16, 32) for end in (-(2**bits) // 2, 2**bits // 2 - 1, 2**bits - 1)]
_OF_PROGRAMS = frozenset(map(float, [*_ENDS, -999.25]))
_BEYOND_MEASUREMENT = 1e15


def far_values(column: Vector) -> Any:
    """Return which values of a column lie far from the others; gaps do not."""
    values = np.sort(column[~np.isnan(column)])
    if len(values) < _FEWEST_VALUES:
        return np.zeros(len(column), bool)
    low, high = _middle(values)
    while True:
        before = low, high
        above = values[high:]
        wide = np.diff(above) > _GAP * (above[:-1] - values[low])
        high = high + int(wide.argmax()) if wide.any() else len(values) - 1
        below = values[: low + 1]
        wide = np.diff(below) > _GAP * (values[high] - below[1:])
        low = low - int(wide[::-1].argmax()) if wide.any() else 0
        if (low, high) == before:
            return (column < values[low]) | (column > values[high])


def _middle(values: Vector) -> tuple[int, int]:
    """Return the places between which the middle half of sorted values lies.

    Where these are all equal, it is the middle half of the other values, and the equal ones.
    """
    low, high = len(values) // 4, 3 * len(values) // 4
    if values[low] < values[high]:
        return low, high
    others = np.flatnonzero(values != values[low])
    if not len(others):
        return 0, len(values) - 1
    return (
        min(low, int(others[len(others) // 4])),
        max(high, int(others[3 * len(others) // 4])),
    )


def find_codes(table: CheckedTable, columns: Sequence[int]) -> Codes:
    """Return the codes of missing values in some columns."""
    copies: Counter[float] = Counter()
    found = []
    for j in columns:
        column = table.matrix[:, j]
        likely = _like_codes(np.unique(column))
        others = np.where(np.isin(column, likely), np.nan, column) if likely else column[:0]
        others = others[~np.isnan(others) & ~far_values(others)]
        if len(others) < _FEWEST_VALUES:
            continue
        low, high = others.min(), others.max()
        for value in likely:
            if max(low - value, value - high) > _GAP * (high - low) > 0.0:
                copies[value] += int((column == value).sum())
                found.append((j, value))
    return tuple((j, value) for j, value in found if copies[value] >= _FEWEST_COPIES)


def given_codes(values: Any, columns: Sequence[int]) -> Codes:
    """Return the codes that a user gives, in every one of some columns."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ParameterError.must("missing_codes", "be 'auto', None or numbers", values) from error
    return tuple((j, value) for j in columns for value in numbers)


def _like_codes(values: Vector) -> list[float]:
    """Return the values that are written as codes are; first digits rule out most others."""
    values = values[np.isfinite(values) & (np.abs(values) > 1e-300)]
    sizes = np.abs(values)
    first = np.floor(10.0 * sizes / 10.0 ** np.floor(np.log10(sizes)) + 1e-6)
    possible = np.isin(first, (77, 88, 99, 100)) | np.isin(values, list(_OF_PROGRAMS))
    possible |= sizes >= _BEYOND_MEASUREMENT
    return [value for value in values[possible].tolist() if _is_like_a_code(value)]


def _is_like_a_code(value: float) -> bool:
    digits = f"{abs(value):.10g}".replace(".", "")
    repeated = len(digits) >= 2 and digits[0] in "789" and len(set(digits)) == 1
    return repeated or value in _OF_PROGRAMS or abs(value) >= _BEYOND_MEASUREMENT


def far_rows(table: CheckedTable, columns: Sequence[int]) -> Any:
    """Return which rows lie far from all others in one of some columns of numbers."""
    out = np.zeros(table.shape[0], bool)
    for j in columns:
        far = _far_places(table, j)
        if len(far) <= max(1, _MOST_FAR * len(out)):
            out[far] = True
    return out


def _far_places(table: CheckedTable, j: int) -> Ints:
    """Return the rows whose values in a column lie far from the others."""
    key = ("far values", j)
    if key not in table.known:
        table.known[key] = np.flatnonzero(far_values(table.matrix[:, j]))
    places: Ints = table.known[key]
    return places


def codes_in_words(codes: Codes, schema: Schema | None) -> str:
    """Say which codes were taken as missing values, for the reason."""
    if not codes:
        return ""
    values = sorted({value for _, value in codes})
    shown = ", ".join(f"{value:.10g}" for value in values[:_MOST_NAMED])
    more = " …" if len(values) > _MOST_NAMED else ""
    columns = sorted({j for j, _ in codes})
    where = f"{len(columns)} columns"
    if len(columns) == 1:
        name = columns[0] if schema is None else schema.columns[columns[0]].name
        where = f"column {name!r}"
    return f"; {shown}{more} in {where} taken as missing"
