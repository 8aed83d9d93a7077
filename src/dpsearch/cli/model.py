"""A saved model, and new data brought into its columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsearch.errors import DataError

if TYPE_CHECKING:
    from dpsearch.io import Reading, Table


def load_model(path: Path) -> Any:
    """Load a model file, or the one in a folder that `dpsearch fit` wrote."""
    from dpsearch.model_file import load

    return load(path / "model.npz" if path.is_dir() else path)


def read_for(model: Any, data: Path, reading: Reading, **options: Any) -> Table:
    """Read the columns that a model knows, by name if both have names, otherwise by number."""
    from dpsearch.io import read_table

    reading = reading_for(model, reading)
    table = read_table(data, reading, **options)
    width, schema = model.n_features_in_, getattr(model, "schema_", None)
    names = getattr(model, "feature_names_in_", None)
    wanted = None if names is None else tuple(str(name) for name in names)
    if table.n_columns != width:
        raise DataError(
            f"{table.source}: {table.n_columns} columns, but the model was fitted to {width}"
        )
    if wanted is not None and table.names is not None and table.names != list(wanted):
        if set(table.names) != set(wanted):
            missing = next(name for name in wanted if name not in table.names)
            raise DataError(f"{table.source}: no column {missing!r}, which the model needs")
        table.X = table.X[:, [table.names.index(name) for name in wanted]]
        table.names = list(wanted)
    if schema is not None and isinstance(table.X, np.ndarray):
        import polars as pl

        table.X = pl.DataFrame(table.X, schema=list(wanted or ()), orient="row")
    return table


def reading_for(model: Any, reading: Reading) -> Reading:
    """What the user says about a file, with what the model knows about its columns."""
    names = getattr(model, "feature_names_in_", None)
    wanted = None if names is None else tuple(str(name) for name in names)
    width = model.n_features_in_
    if reading.columns is None and reading.drop is None:
        reading = replace(reading, wanted=wanted, width=width)
    schema = getattr(model, "schema_", None)
    if schema is not None and reading.categories is None:
        groups = tuple(c.name for c in schema.columns if c.kind == "category")
        reading = replace(reading, categories=groups)
    return reading


def matrix_of(model: Any, table: Table) -> Any:
    """The table as the model's solvers see it: categories as codes."""
    schema = getattr(model, "schema_", None)
    return table.X if schema is None else schema.encode(table.X)
