"""Frames of pandas and polars: reading columns, and making frames of decoded ones.

Neither library is imported unless a frame of it is used.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import importlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import DataError
from dpsearch.tables.cells import is_missing
from dpsearch.tables.columns import Column, RawColumn, finite


def library_of(frame: Any) -> str | None:
    """Return "pandas" or "polars" for their frames, importing neither; None for anything else."""
    if type(frame).__name__ != "DataFrame":
        return None
    library = type(frame).__module__.split(".")[0]
    return library if library in ("pandas", "polars") else None


def is_frame(X: Any) -> bool:
    return library_of(X) is not None


def names_of(frame: Any) -> list[str]:
    """Return the names of the columns; repeated ones are numbered."""
    return distinct_names([str(name) for name in frame.columns])


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return distinct names: the second "a" becomes "a (2)".

    >>> distinct_names(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    taken, out = set(names), dict[str, None]()
    for name in names:
        number, new = 1, name
        while new in out or (number > 1 and new in taken):
            number += 1
            new = f"{name} ({number})"
        out[new] = None
    return list(out)


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
    """Return the type of a column, one of `SOURCES` or "mixed"."""
    types = module("pandas").api.types
    if str(series.dtype) == "category":
        return "categorical"
    for source, test in (
        ("bool", types.is_bool_dtype),
        ("int", types.is_integer_dtype),
        ("float", types.is_float_dtype),
        ("date", types.is_datetime64_any_dtype),
        ("float", types.is_timedelta64_dtype),
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
        "date": "date",
        "datetime": "date",
        "datetime64": "date",
        "period": "date",
    }
    return known.get(inferred, "mixed")


def polars_type(series: Any) -> str:
    """Return the type of a column, one of `SOURCES` or "nested"."""
    dtype = series.dtype
    if dtype.is_integer():
        return "int"
    if dtype.is_numeric():
        return "float"
    known = {"String": "text", "Categorical": "categorical", "Enum": "categorical"}
    known |= {"Boolean": "bool", "Null": "float", "Duration": "float"}
    known |= {"Date": "date", "Datetime": "date", "Time": "date"}
    return known.get(str(dtype).split("(")[0], "nested")


def read_column(frame: Any, j: int, na: Sequence[Any] = ()) -> RawColumn:
    """Read column j of a frame; for `na` see `without_values`."""
    read = _from_polars if library_of(frame) == "polars" else _from_pandas
    raw = read(frame[:, j] if library_of(frame) == "polars" else frame.iloc[:, j])
    if raw.source == "text":
        raw = _without_missing(raw)
    return raw if not na else without_values(raw, na, str(frame.columns[j]))


def _from_polars(series: Any) -> RawColumn:
    import polars as pl

    if series.dtype.is_integer() and (series.abs().max() or 0) >= _LARGEST:
        series = series.cast(pl.String)
    source = polars_type(series)
    if source in ("int", "float"):
        if series.dtype == pl.Duration:
            series = series.dt.total_milliseconds() / 1000.0
        return _numbers(source, series.cast(pl.Float64).fill_null(math.nan).to_numpy())
    if source == "date":
        if series.dtype == pl.Time:
            return RawColumn(source, _floats(series.cast(pl.Int64) // 1_000_000_000))
        if series.dtype != pl.Date:
            series = series.dt.replace_time_zone(None)
        return RawColumn(source, _floats(series.cast(pl.Datetime("ms")).dt.epoch("ms")) / 1000.0)
    if source == "bool":
        return RawColumn(source, _floats(series.cast(pl.Int8)), (False, True))
    if source == "nested":
        return RawColumn(source, _floats(series.is_not_null().replace(False, None).cast(pl.Int8)))
    texts = series.cast(pl.String)
    if isinstance(series.dtype, pl.Enum):
        uniques = series.dtype.categories
    else:
        uniques = texts.drop_nulls().unique().sort()
    codes = texts.replace_strict(uniques, range(len(uniques)), default=None, return_dtype=pl.Int64)
    return RawColumn(source, _floats(codes), tuple(uniques.to_list()))


def _floats(series: Any) -> Vector:
    import polars as pl

    return np.asarray(series.cast(pl.Float64).fill_null(math.nan).to_numpy())


def _from_pandas(series: Any) -> RawColumn:
    pd = module("pandas")
    source = pandas_type(series)
    if source == "int" and (series.abs() >= _LARGEST).any():
        source, series = "text", series.astype(object).map(str, na_action="ignore")
    if source in ("int", "float"):
        if pd.api.types.is_timedelta64_dtype(series.dtype):
            series = series.dt.total_seconds()
        return _numbers(source, series.to_numpy(dtype=np.float64, na_value=math.nan))
    if source == "date":
        if isinstance(series.dtype, pd.PeriodDtype):
            series = series.dt.to_timestamp()
        return RawColumn(source, _seconds(pd.to_datetime(series, errors="coerce")))
    if source == "categorical":
        codes = series.cat.codes.to_numpy().astype(np.float64)
        codes[codes < 0] = math.nan
        levels = tuple(map(_level, series.cat.categories.tolist()))
        return RawColumn(source, codes, levels, bool(series.cat.ordered))
    objects = series.astype(object).where(series.notna(), None)
    if source == "mixed":
        seen = objects.dropna()
        if not seen.map(lambda value: isinstance(value, _SCALARS)).all():
            return RawColumn("nested", np.where(series.notna(), 1.0, math.nan))
        source, objects = "text", objects.map(str, na_action="ignore")
    codes, uniques = pd.factorize(objects)
    values = np.where(codes < 0, math.nan, codes)
    if source == "bool":
        truths = np.array([*map(bool, uniques), math.nan], dtype=np.float64)
        return RawColumn(source, truths[codes], (False, True))
    return RawColumn(source, values, tuple(map(str, uniques)))


_LARGEST = 2**53  # larger integers are codes, and not all of them are exact as doubles
_SCALARS = (str, bool, int, float, np.generic, datetime.date, datetime.time, decimal.Decimal)


def _seconds(series: Any) -> Vector:
    """Return dates of pandas as seconds since 1970 in local time, ignoring the time zone."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_localize(None)
    dates = series.to_numpy(dtype="datetime64[ms]")
    out = dates.astype(np.float64) / 1000.0
    out[np.isnat(dates)] = math.nan
    return np.asarray(out)


def _level(level: Any) -> Any:
    return level if isinstance(level, (str, bool, int, float)) else str(level)


def _numbers(source: str, values: Any) -> RawColumn:
    numbers, n_infinite = finite(values)
    return RawColumn(source, numbers, n_infinite=n_infinite)


def column_of_matrix(values: Vector) -> RawColumn:
    """Return a column of a matrix, of integers if all values are."""
    known = values[~np.isnan(values)]
    return _numbers("int" if (np.floor(known) == known).all() else "float", values)


def _without_missing(raw: RawColumn) -> RawColumn:
    """Strip blanks from texts, and replace those that stand for missing values by gaps."""
    place: dict[str, int] = {}
    codes = [
        math.nan if is_missing(text) else float(place.setdefault(text, len(place)))
        for text in (str(text).strip() for text in raw.uniques or ())
    ]
    if list(place) == list(raw.uniques or ()):
        return raw
    steps = iter(codes)
    return raw._replace(values=raw.map(lambda _: next(steps)), uniques=tuple(place))


def without_values(raw: RawColumn, na: Sequence[Any], name: str) -> RawColumn:
    """Return the column with some values replaced by gaps, given as texts or numbers.

    A text NAME=VALUE applies to the column of that name alone.
    """
    gaps = {str(value).removeprefix(f"{name}=") for value in na}
    own = {*gaps, *(float(v) for v in gaps if re.fullmatch(r"[+-]?\d+\.?\d*", v))}
    values = raw.values.copy()
    if raw.uniques is None:
        values[np.isin(values, [value for value in own if isinstance(value, float)])] = math.nan
        return raw._replace(values=values)
    if raw.source == "bool":
        return raw
    kept = {
        u: k for k, u in enumerate(u for u in raw.uniques if u not in own and str(u) not in own)
    }
    return raw._replace(values=raw.map(lambda u: kept.get(u, math.nan)), uniques=tuple(kept))


# -- back to frames --------------------------------------------------------------------------


def series_of(library: str, column: Column, values: Vector) -> Any:
    """Return encoded values as a series of the column's type."""
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
    """Return encoded values as a series, of the type of the old one if that can hold them."""
    new = series_of(library, column, values)
    source = polars_type(old) if library == "polars" else pandas_type(old)
    dtype = old.dtype
    if source in ("int", "float"):
        if str(dtype) == "object" or column.source not in ("int", "float"):
            return new  # the old series had no type of its own, since all was missing
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
    """Return the type of floats that corresponds to a type of integers."""
    if library == "polars":
        return module("polars").Float64
    if str(dtype).endswith("[pyarrow]"):
        return "double[pyarrow]"
    return "Float64" if module("pandas").api.types.is_extension_array_dtype(dtype) else "float64"
