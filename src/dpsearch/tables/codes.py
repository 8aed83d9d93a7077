"""Codes in tables: numbers that stand for missing values."""

from __future__ import annotations

import numpy as np

from dpsearch.tables.checked import CheckedTable

Codes = tuple[tuple[int, float], ...]  # columns and values that stand for missing ones


def without_codes(table: CheckedTable, codes: Codes) -> CheckedTable:
    """Return the table with codes turned into gaps."""
    if not codes:
        return table
    matrix = table.matrix.copy()
    for j, value in codes:
        matrix[matrix[:, j] == value, j] = np.nan
    return CheckedTable(matrix, table.names)
