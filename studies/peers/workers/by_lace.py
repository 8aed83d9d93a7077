"""pylace (CrossCat): all columns in one view, the last state of one chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def prepare(data: dict[str, Any], settings: dict[str, Any], seed: int) -> Callable[[], Any]:
    import polars as pl
    from lace import Engine

    X = data["X"]
    kinds = data["kinds"].tolist() if "kinds" in data else ["real"] * X.shape[1]
    columns: dict[str, Any] = {"ID": [f"row {i}" for i in range(len(X))]}
    for j, kind in enumerate(kinds):
        present = [None if np.isnan(x) else x for x in X[:, j].tolist()]
        if kind == "category":
            values: Any = [None if x is None else f"level {x:.0f}" for x in present]
        elif kind == "count":
            values = pl.Series([None if x is None else int(x) for x in present], dtype=pl.UInt32)
        else:
            values = pl.Series(present, dtype=pl.Float64)
        columns[f"{kind} {j}"] = values
    frame = pl.DataFrame(columns)

    def fit() -> Any:
        engine = Engine.from_df(frame, n_states=1, rng_seed=seed, flat_columns=True)
        engine.update(settings["updates"], transitions="flat", quiet=True)
        (rows,) = engine.row_assignments(0)
        # Rows come in the order of the frame; an index that says otherwise would be an error.
        assert list(engine.index) == frame["ID"].to_list()
        return rows

    return fit
