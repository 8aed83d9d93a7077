"""Scales of answers that several columns share, such as those of a questionnaire.

In a few rows the variance of integers does not show whether they are counts.  However, columns of
answers have the same range, and the highest answer is given now and then, while the highest of
counts is rare and differs between columns.  So most columns that begin at 0 must end alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpsearch._types import Vector
from dpsearch.tables.column_facts import ColumnFacts, TableFacts
from dpsearch.tables.columns import RawColumn

_SCALE_SHARED = 3  # the fewest columns that share a scale
_WIDEST_SCALE = 12.0  # the largest difference between the highest and the lowest answer
_LEVELS_FROM_0 = 5  # the fewest levels of a scale from 0: counts often have fewer
_HIGHEST_ANSWER = 0.025  # the least share of the highest answer in a scale from 0


def shared_scales(
    names: Sequence[str], raws: Sequence[RawColumn], given: Mapping[str, str], table: TableFacts
) -> frozenset[tuple[float, float]]:
    """Return the lowest and highest answers of the scales that columns of a table share."""
    columns: dict[tuple[float, float], list[Vector]] = {}
    for name, raw in zip(names, raws, strict=True):
        if raw.uniques is None and name not in given:
            values = ColumnFacts(name, raw, None, False, table).sampled
            if len(values) and bool((np.floor(values) == values).all()):
                ends = float(values.min()), float(values.max())
                if 2.0 <= ends[1] - ends[0] <= _WIDEST_SCALE:
                    columns.setdefault(ends, []).append(values)
    n_from_0 = sum(len(own) for (low, _), own in columns.items() if low == 0.0)
    return frozenset(ends for ends, own in columns.items() if _is_scale(ends, own, n_from_0))


def _is_scale(ends: tuple[float, float], columns: list[Vector], n_from_0: int) -> bool:
    (low, high), n = ends, len(columns)
    if n < _SCALE_SHARED or low > 0.0:
        return n >= _SCALE_SHARED
    if high - low < _LEVELS_FROM_0 - 1 or 2 * n < n_from_0:
        return False
    return bool(np.mean(np.concatenate(columns) == high) >= _HIGHEST_ANSWER)
