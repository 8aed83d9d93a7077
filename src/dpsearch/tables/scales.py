"""Scales of answers that several columns share, as those of a questionnaire do.

Whole numbers of a few rows do not tell by their variance whether they count something.  But columns
of answers begin and end alike, and the highest answer is given now and then, while the highest of
counts is their rarest, and differs from column to column: most columns that begin at 0 must end
alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpsearch._types import Vector
from dpsearch.tables.columns import RawColumn
from dpsearch.tables.look import Look, TableFacts

_SCALE_SHARED = 3  # columns, at least
_WIDEST_SCALE = 12.0  # between the lowest and the highest answer
_LEVELS_FROM_0 = 5  # of answers that begin at 0, at least: few counts go no farther
_HIGHEST_ANSWER = 0.025  # the share of the highest answer among these, at least


def shared_scales(
    names: Sequence[str], raws: Sequence[RawColumn], said: Mapping[str, str], table: TableFacts
) -> frozenset[tuple[float, float]]:
    """Return the lowest and highest answers of the scales that columns of a table share."""
    columns: dict[tuple[float, float], list[Vector]] = {}
    for name, raw in zip(names, raws, strict=True):
        if raw.uniques is None and name not in said:
            values = Look(name, raw, None, False, table).looked_at
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
