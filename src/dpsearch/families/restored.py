"""Rows of statistics from outside, such as a file: checked, and no derived number believed."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch.errors import DataError
from dpsearch.families.base import Model
from dpsearch.items import log_marginals


def restored_rows(model: Model, pool: Vector, sizes: Ints) -> Vector:
    """Return the rows with every number that follows from statistics made anew.

    Each is merged into the row of an empty cluster, which reads its statistics alone.  Raises
    `DataError` if the rows cannot come from the model's functions: a row's first number is the size
    of its cluster, other counts are what the family says, and log H is a number.
    """
    rows = pool.reshape(len(sizes), model.core.width)
    counts = model.family.counts_in_row(model.n_features)
    checked = rows[:, :1] if counts is None else np.hstack([rows[:, :1], rows[:, counts]])
    integers = (checked >= 0.0) & (checked <= 2.0**53) & (checked == np.floor(checked))
    if np.isfinite(rows).all() and integers.all() and (rows[:, 0] == sizes).all():
        blocks = model.blocks(np.ascontiguousarray(pool), sizes)
        out, _ = model.rows(blocks, np.arange(len(sizes)), len(sizes))
        if np.isfinite(out).all() and np.isfinite(log_marginals(model.core, out, len(sizes))).all():
            return out
    raise DataError("the clusters' statistics are not those of any data")
