"""The data rows of a problem as a table, whether they are stored dense or sparse."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Matrix
from dpsearch.problem import Problem


def points_of(problem: Problem) -> Matrix:
    """Return what the family's functions see of each point, one row each."""
    items = problem.items
    n, n_columns = items.n_items, problem.model.n_features
    out: Matrix = np.zeros((n, n_columns))
    if len(items.ids) == 0 and len(items.values) == n * n_columns:
        out[:] = items.values.reshape(n, n_columns)
    else:
        out[np.repeat(np.arange(n), np.diff(items.indptr)), items.ids] = items.values
    return out
