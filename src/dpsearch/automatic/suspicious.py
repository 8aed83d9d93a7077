"""Values that the choice must ignore: codes of missing values, and rows far from all others.

`tables.codes` defines codes and far values.  A row is far if one of its values is, unless more than
one row in twenty is far in that column: such rows are clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsearch._threads import shared
from dpsearch.errors import ParameterError
from dpsearch.tables import CheckedTable, Codes, Schema
from dpsearch.tables.codes import FEWEST_COPIES, codes_in, far_values

_MOST_FAR = 0.05  # the largest share of far rows
_MOST_NAMED = 3


def find_codes(table: CheckedTable, columns: Sequence[int]) -> Codes:
    """Return the codes of missing values in some columns."""
    copies: Counter[float] = Counter()
    found = []
    matrix = table.matrix
    by_column = shared(lambda j: codes_in(matrix[:, j]), columns)
    for j, values in zip(columns, by_column, strict=True):
        for value in values:
            copies[value] += int((matrix[:, j] == value).sum())
            found.append((j, value))
    return tuple((j, value) for j, value in found if copies[value] >= FEWEST_COPIES)


def given_codes(values: Any, columns: Sequence[int]) -> Codes:
    """Return the codes that a user gives, for each of some columns."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ParameterError.must("missing_codes", "be 'auto', None or numbers", values) from error
    return tuple((j, value) for j in columns for value in numbers)


def far_rows(table: CheckedTable, columns: Sequence[int]) -> Any:
    """Return which rows are far from all others in at least one of some columns of numbers."""
    out = np.zeros(table.shape[0], bool)
    for far in shared(lambda j: _far_places(table, j), columns):
        if len(far) <= max(1, _MOST_FAR * len(out)):
            out[far] = True
    return out


def _far_places(table: CheckedTable, j: int) -> Any:
    return table.cached(("far", j), lambda: np.flatnonzero(far_values(table.matrix[:, j])))


def codes_in_words(codes: Codes, schema: Schema | None, missing_codes: Any) -> str:
    """Return the end of the choice's reason: which codes were recognised as missing values."""
    if not codes or not isinstance(missing_codes, str):  # the user gave them
        return ""
    values = sorted({value for _, value in codes})
    shown = ", ".join(f"{value:.10g}" for value in values[:_MOST_NAMED])
    more = " …" if len(values) > _MOST_NAMED else ""
    columns = sorted({j for j, _ in codes})
    where = f"{len(columns)} columns"
    if len(columns) == 1:
        name = columns[0] if schema is None else schema.columns[columns[0]].name
        where = f"column {name!r}"
    return f"; {shown}{more} in {where} treated as missing"
