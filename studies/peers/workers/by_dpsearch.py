"""dpsearch with no argument but the data (and a seed, and one thread)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_WARM_ROWS = 2500  # more than hyperparameters are learned from, for all kernels to be used


def prepare(data: dict[str, Any], settings: dict[str, Any], seed: int) -> Callable[[], Any]:
    from dpsearch import DPMixture

    table, n_rows = _table(data), len(data["indptr"]) - 1 if "indptr" in data else len(data["X"])

    def model() -> DPMixture:
        return DPMixture(random_state=seed, n_jobs=1)

    # Kernels are compiled, or read from the disk, before the clock runs.
    rows = np.sort(np.random.default_rng(0).permutation(n_rows)[:_WARM_ROWS])
    part = model().fit(table[rows.tolist()] if "kinds" in data else table[rows])
    warm = {type(part.family_)}

    def fit() -> Any:
        fitted = model().fit(table)
        if type(fitted.family_) not in warm:
            # Another family than for the part of the rows: its kernels were not warm.
            warm.add(type(fitted.family_))
            return None
        about = {
            "family": repr(fitted.family_),
            "family_fields": fitted.family_.to_dict(),
            "log_joint": fitted.log_joint_,
        }
        return fitted.labels_, about

    return fit


def _table(data: dict[str, Any]) -> Any:
    """What a user has: a matrix, sparse counts, or a frame of mixed columns with gaps."""
    if "indptr" in data:
        from scipy.sparse import csr_matrix

        parts = (data["data"].astype(np.int64), data["indices"], data["indptr"])
        return csr_matrix(parts, shape=tuple(data["shape"]))
    if "kinds" not in data:
        return data["X"]
    import polars as pl

    columns: dict[str, Any] = {}
    for j, (kind, column) in enumerate(zip(data["kinds"].tolist(), data["X"].T, strict=True)):
        values = pl.Series(column, nan_to_null=True)
        if kind == "count":
            values = values.cast(pl.Int64)
        elif kind == "category":
            levels = [None if np.isnan(x) else f"level {x:.0f}" for x in column.tolist()]
            values = pl.Series(levels, dtype=pl.Categorical)
        columns[f"{kind} {j}"] = values
    return pl.DataFrame(columns)
