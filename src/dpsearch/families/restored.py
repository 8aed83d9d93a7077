"""Rows of statistics in another form: from a file, for data with gaps, for other hyperparameters.

Each row is merged into that of an empty cluster, which reads its statistics only and computes all
other numbers again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import DataError
from dpsearch.families.capabilities import Gaps, all_or_none, fill_by_columns, require
from dpsearch.items import Rows, log_marginals


def completed(model: Any, pool: Vector, sizes: Ints) -> Vector:
    """Return rows with every number that depends on the statistics computed again."""
    blocks = model.blocks(np.ascontiguousarray(pool), sizes)
    return np.asarray(model.rows(blocks, np.arange(len(sizes)), len(sizes))[0])


def restored_rows(model: Any, pool: Vector, sizes: Ints) -> Vector:
    """Return completed rows from outside, such as a file.

    Raise `DataError` if they cannot come from the model's functions: a row's first number must be
    the size of its cluster, the counts that the family names must be counts, and log H finite.
    """
    rows = pool.reshape(len(sizes), model.core.width)
    counts = model.family.counts_in_row(model.n_features)
    checked = rows[:, :1] if counts is None else np.hstack([rows[:, :1], rows[:, counts]])
    integers = (checked >= 0.0) & (checked <= 2.0**53) & (checked == np.floor(checked))
    if np.isfinite(rows).all() and integers.all() and (rows[:, 0] == sizes).all():
        out = completed(model, pool, sizes)
        if np.isfinite(out).all() and np.isfinite(log_marginals(model.core, out, len(sizes))).all():
            return out
    raise DataError("the clusters' statistics are not those of any data")


def restated_rows(model: Any, clusters: Rows, other: Any) -> tuple[Rows, float] | None:
    """Return clusters under other hyperparameters, and the increase of their points' `log_base`.

    Return None if the family cannot compute the statistics under these.
    """
    rows = clusters.pool.reshape(len(clusters.sizes), model.core.width)
    parts = all_or_none(model.family.restated(row, model.n_features, other.family) for row in rows)
    if parts is None:
        return None
    pool = completed(other, np.concatenate([part.row for part in parts]), clusters.sizes)
    return Rows(pool, clusters.sizes), float(sum(part.log_base for part in parts))


def gapped(family: Any, rows: list[Vector], n_features: int) -> tuple[Any, Vector]:
    """Return the family compiled for data with gaps, and rows of statistics in its form."""
    model = family.with_gaps().compile_empty(n_features)
    pool = np.concatenate([family.row_with_gaps(row, n_features) for row in rows])
    return model, completed(model, pool, np.array([int(row[0]) for row in rows]))


def skipped(family: Any, rows: list[Vector], n_features: int) -> Gaps:
    """Return `Gaps` of independent columns, which are skipped exactly and filled one by one."""

    def log_densities(X: Any) -> Matrix:
        model, pool = gapped(family, rows, n_features)
        return np.asarray(model.log_densities(pool, X))

    def fill(X: Any, weights: Matrix) -> Matrix:
        need = "filling of gaps"
        clusters = [require(family, "columns", row, n_features, needed_by=need) for row in rows]
        return fill_by_columns(clusters, X, weights)

    return Gaps(log_densities, fill)
