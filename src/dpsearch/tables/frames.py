"""Frames of pandas and polars, whichever is installed: reading columns, and putting them back."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import DataError
from dpsearch.tables.columns import SOURCES, Column, RawColumn


def library_of(frame: Any) -> str | None:
    """Return whether this is a frame of pandas or of polars, importing neither."""
    if type(frame).__name__ != "DataFrame":
        return None
    library = type(frame).__module__.split(".")[0]
    return library if library in ("pandas", "polars") else None


def is_frame(X: Any) -> bool:
    return library_of(X) is not None


def is_mixed(X: Any) -> bool:
    """Whether X is a frame with a column that is not of plain numbers."""
    library = library_of(X)
    if library is None or not all(X.shape):
        return False
    return not all(_is_number(X, j, library) for j in range(X.shape[1]))


def names_of(frame: Any) -> list[str]:
    """Return the names of the columns, which must differ."""
    names = [str(name) for name in frame.columns]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"X has two columns of the name {name!r}")
        seen.add(name)
    return names


def module(library: str) -> Any:
    """Return pandas or polars."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise DataError(
            f"the table came as a {library} frame and goes back as one: pip install {library}"
        ) from error


# -- reading ---------------------------------------------------------------------------------


def pandas_type(series: Any) -> str:
    """Return one of `SOURCES`, or what else the column holds."""
    types = module("pandas").api.types
    if str(series.dtype) == "category":
        return "categorical"
    for source, test in (
        ("bool", types.is_bool_dtype),
        ("int", types.is_integer_dtype),
        ("float", types.is_float_dtype),
    ):
        if test(series.dtype):
            return source
    inferred = types.infer_dtype(series, skipna=True)
    known = {
        "string": "text",
        "boolean": "bool",
        "integer": "int",
        "floating": "float",
        "mixed-integer-float": "float",
        "decimal": "float",
        "empty": "float",
        "categorical": "categorical",
    }
    return known.get(inferred, f"{series.dtype} ({inferred})")


def polars_type(series: Any) -> str:
    dtype = series.dtype
    if dtype.is_integer():
        return "int"
    if dtype.is_numeric():
        return "float"
    known = {"String": "text", "Categorical": "categorical", "Enum": "categorical"}
    known |= {"Boolean": "bool", "Null": "float"}
    return known.get(str(dtype).split("(")[0], str(dtype))


def _is_number(frame: Any, j: int, library: str) -> bool:
    if library == "polars":
        return bool(frame.dtypes[j].is_numeric())
    return pandas_type(frame.iloc[:, j]) in ("int", "float")


def read_column(frame: Any, j: int, name: str) -> RawColumn:
    """Read column j of a frame."""
    if library_of(frame) == "polars":
        series = frame[:, j]
        source = polars_type(series)
        if source in ("int", "float"):
            import polars as pl

            numbers_ = series.cast(pl.Float64).fill_null(math.nan).to_numpy()
            return RawColumn(source, numbers_, None)
        objects = series.to_list()
        is_enum = str(series.dtype).startswith("Enum")
        order = tuple(series.dtype.categories.to_list()) if is_enum else None
    else:
        series = frame.iloc[:, j]
        source = pandas_type(series)
        if source in ("int", "float"):
            return RawColumn(source, series.to_numpy(dtype=np.float64, na_value=math.nan), None)
        objects = series.astype(object).where(series.notna(), None).tolist()
        order = tuple(series.cat.categories.tolist()) if source == "categorical" else None
    if source not in SOURCES:
        raise DataError(
            f"{{place}} of X holds {source}, which cannot be clustered: turn it into numbers or"
            " categories first, or leave it out",
            column=name,
        )
    return RawColumn(source, objects, (False, True) if source == "bool" else order)


# -- back to frames --------------------------------------------------------------------------


def series_of(library: str, column: Column, values: Vector) -> Any:
    """Return encoded values as a series of what the column came as."""
    out = column.decode(values)
    return (_polars_series if library == "polars" else _pandas_series)(column, out)


def _polars_series(column: Column, values: list[Any]) -> Any:
    import polars as pl

    dtype: Any = None
    if column.levels is None:
        dtype = pl.Int64 if any(isinstance(v, int) for v in values) else pl.Float64
    elif column.source == "categorical":
        dtype = pl.Enum([str(level) for level in column.levels])
    return pl.Series(column.name, values, dtype=dtype)


def _pandas_series(column: Column, values: list[Any]) -> Any:
    import pandas as pd

    if column.source == "categorical":
        return pd.Series(pd.Categorical(values, categories=list(column.levels or ())))
    if column.levels is not None:
        is_bool = all(isinstance(level, bool) for level in column.levels)
        return pd.Series(values, dtype="boolean" if is_bool and None in values else None)
    if None in values:
        return pd.Series([math.nan if value is None else float(value) for value in values])
    return pd.Series(values)


def replace_columns(frame: Any, columns: Sequence[Column], values: Mapping[int, Vector]) -> Any:
    """Return a copy of a frame with the columns at these places replaced by encoded values."""
    library = library_of(frame)
    assert library is not None
    names = list(frame.columns)
    by_name = {column.name: column for column in columns}
    new = {}
    for j, vector in values.items():
        column = by_name.get(str(names[j]), Column(str(names[j]), "real", "float"))
        old = frame[:, j] if library == "polars" else frame.iloc[:, j]
        new[names[j]] = _filled(library, column, vector, old)
    if library == "polars":
        return frame.with_columns(**new)
    out = frame.copy()
    for name, series in new.items():
        out[name] = series.set_axis(frame.index)
    return out


def _filled(library: str, column: Column, values: Vector, old: Any) -> Any:
    """Return encoded values as a series of the old one's type, where that can hold them."""
    new = series_of(library, column, values)
    source = polars_type(old) if library == "polars" else pandas_type(old)
    dtype = old.dtype
    if source in ("int", "float"):
        if str(dtype) == "object" or column.source not in ("int", "float"):
            return new  # the type said nothing: all was missing
        if source == "int" and any(value != math.floor(value) for value in new.to_list()):
            dtype = _float_like(dtype, library)
    refused: tuple[type[Exception], ...] = (TypeError, ValueError)
    if library == "polars":
        refused += (module("polars").exceptions.PolarsError,)
    with contextlib.suppress(*refused):
        same = type(new)(new.to_list(), dtype=dtype)
        lost = same.null_count() if library == "polars" else same.isna().sum()
        return new if lost else same
    return new


def _float_like(dtype: Any, library: str) -> Any:
    """Return the type of floats that goes with a type of integers."""
    if library == "polars":
        return module("polars").Float64
    if str(dtype).endswith("[pyarrow]"):
        return "double[pyarrow]"
    return "Float64" if module("pandas").api.types.is_extension_array_dtype(dtype) else "float64"
