"""Codes in tables: numbers that stand for missing values.

A value of a column is far from the others if the gap between is more than three times their range.
The others are found by starting from the middle half of the values and growing outwards over every
narrower gap.  So any number of far values is found, and neither means, nor variances, nor units
matter.

A code is a far value that occurs several times and is written as people and programs write unknown
values: with nines, eights or sevens alone (−9999, 99.99, 88), as the least or largest number of a
type (−32768), as −999.25 in well logs, or as a number larger than any measurement (10^20).  If no
other value is below 0, codes such as −9 and −88 need not be far.  Codes do not count among the
others, so half of a column may consist of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._types import Vector
from dpsearch.tables.checked import CheckedTable

Codes = tuple[tuple[int, float], ...]  # columns and values that stand for missing ones

_GAP = 3.0  # times the range of the others
_FEWEST_VALUES = 8  # in a column, so that some can be far from the others
FEWEST_COPIES = 3  # of a code in the table
# Ends of the integer types, where 0 is not one, and the code of the LAS files of well logs.
_ENDS = [end for bits in (16, 32) for end in (-(2**bits) // 2, 2**bits // 2 - 1, 2**bits - 1)]
_OF_PROGRAMS = frozenset(map(float, [*_ENDS, -999.25]))
_BEYOND_MEASUREMENT = 1e15


def without_codes(table: CheckedTable, codes: Codes) -> CheckedTable:
    """Return the table with codes replaced by gaps."""
    if not codes:
        return table
    matrix = table.matrix.copy()
    for j, value in codes:
        matrix[matrix[:, j] == value, j] = np.nan
    return CheckedTable(matrix, table.names)


def far_values(column: Vector) -> Any:
    """Return which values of a column are far from the others; gaps are not."""
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
    """Return the first and last index of the middle half of sorted values.

    If these are all equal, the middle half of the other values is included.
    """
    low, high = len(values) // 4, 3 * len(values) // 4
    if values[low] < values[high]:
        return low, high
    others = np.flatnonzero(values != values[low])
    if not len(others):
        return 0, len(values) - 1
    return (min(low, int(others[len(others) // 4])), max(high, int(others[3 * len(others) // 4])))


def codes_in(column: Vector) -> list[float]:
    """Return the values of a column that are written as codes and lie far from the others."""
    likely = _like_codes(np.unique(column))
    others = np.where(np.isin(column, likely), np.nan, column) if likely else column[:0]
    others = others[~np.isnan(others) & ~far_values(others)]
    if len(others) < _FEWEST_VALUES:
        return []
    low, high = others.min(), others.max()
    return [
        value
        for value in likely
        if (value < 0.0 <= low < high and abs(value) < _BEYOND_MEASUREMENT)
        or (max(low - value, value - high) > _GAP * (high - low) > 0.0)
    ]


def _like_codes(values: Vector) -> list[float]:
    """Return the values that are written as codes; the first digits rule out most others."""
    values = values[np.isfinite(values) & (np.abs(values) > 1e-300)]
    sizes = np.abs(values)
    first = np.floor(10.0 * sizes / 10.0 ** np.floor(np.log10(sizes)) + 1e-6)
    possible = np.isin(first, (77, 88, 99, 100)) | np.isin(values, list(_OF_PROGRAMS))
    possible |= (values < 0.0) & np.isin(first, (70, 80, 90))
    possible |= sizes >= _BEYOND_MEASUREMENT
    return [value for value in values[possible].tolist() if _is_like_a_code(value)]


def _is_like_a_code(value: float) -> bool:
    digits = f"{abs(value):.10g}".replace(".", "")
    repeated = (len(digits) >= 2 or value < 0.0) and digits[0] in "789" and len(set(digits)) == 1
    return repeated or value in _OF_PROGRAMS or abs(value) >= _BEYOND_MEASUREMENT
