"""Loading saved models, reading data for them, and writing reports about them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsearch.cli.options import errors_name
from dpsearch.errors import DataError

if TYPE_CHECKING:
    from dpsearch.io import ModelColumns, Reading, Table


def load_model(path: Path) -> Any:
    """Load a model file, or the one in a folder that `dpsearch fit` wrote."""
    from dpsearch.estimator import load

    return load(path / "model.npz" if path.is_dir() else path)


def read_for(
    model: Any, data: Path, reading: Reading, *, gaps: bool = False, **options: Any
) -> Table:
    """Read the columns that a model knows, by name if both have names, otherwise by number.

    With `gaps`, columns that the file lacks count as missing, if the model can do without them.
    """
    from dpsearch.io import read_table
    from dpsearch.tables import Schema, is_frame

    known = known_columns(model, gaps)
    table = read_table(data, replace(reading, model=known), **options)
    table.add_missing(known.absent_from(table.names))
    schema, wanted = getattr(model, "schema_", None), known.names
    known.check_width(table.n_columns, table.source)
    if wanted is not None:
        _put_in_order(table, wanted)
    dense = isinstance(table.X, np.ndarray)
    if schema is None and (is_frame(table.X) or (dense and np.isinf(table.X).any())):
        with errors_name(table):
            names = table.all_names
            table.X = Schema.of_numbers(names).encode(table.frame(), model.handle_unknown)
    elif schema is not None:
        import polars as pl

        if isinstance(table.X, np.ndarray):
            table.X = pl.DataFrame(table.X, schema=schema.origins, orient="row")
        else:
            table.X.columns = schema.origins
    return table


def known_columns(model: Any, gaps: bool = False) -> ModelColumns:
    """Return what a model knows about the columns of files; `gaps`: files may lack some."""
    from dpsearch.io import ModelColumns

    schema = getattr(model, "schema_", None)
    names = getattr(model, "feature_names_in_", None) if schema is None else schema.origins
    wanted = None if names is None else tuple(str(name) for name in names)
    if wanted is not None and len(set(wanted)) < len(wanted):
        wanted = None  # repeated names do not identify columns
    columns = () if schema is None else schema.columns
    levels = {column.origin_name for column in columns if column.kind == "category"}
    triage = getattr(model, "triage_", None) or ()
    file = tuple(entry.name for entry in triage)
    return ModelColumns(
        wanted,
        model.n_features_in_ if schema is None else len(schema.origins),
        tuple(j for j, name in enumerate(wanted or ()) if name in levels),
        getattr(model, "index_name_", None),
        file if wanted is not None and {*wanted} <= {*file} else (),
        gaps,
    )


def _put_in_order(table: Table, wanted: tuple[str, ...]) -> None:
    from dpsearch.io.choice import missing_columns

    place = {table.name(j): j for j in range(table.n_columns)}
    if place.keys() >= {*wanted}:
        if tuple(place) != wanted:
            table.select([place[name] for name in wanted])
    elif table.names is not None:
        raise DataError(missing_columns(wanted, table.names), source=table.source)


def rows_of(model: Any, table: Table) -> Any:
    """Return the table as solvers use it: categories as codes, gaps filled as in the fit."""
    with quiet_about_names():
        return model.encode(table.X)


def write_page(path: Path, model: Any, table: Table, **options: Any) -> None:
    """Write a report with the names that the table has; see `dpsearch.report`."""
    from dpsearch._validate import is_array
    from dpsearch.report import write_report

    X = table.X if table.dates is None or is_array(table.X) else table.X.hstack(table.dates)
    with quiet_about_names():
        write_report(
            path, model, X, names=table.names, index=table.index, title=table.source,
            **options,
        )  # fmt: skip


@contextlib.contextmanager
def quiet_about_names() -> Iterator[None]:
    """Silence scikit-learn's warning about matrices without names, which are checked already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
