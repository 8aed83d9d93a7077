"""Tables with columns of different kinds, from pandas and polars frames, and back.

A `Schema` says what each column holds and turns frames into matrices of numbers, in which
categories are codes 0, 1, 2 … and missing values NaN.  Kinds, from the columns' types:

    category   categoricals, enumerations and texts
    binary     booleans
    count      integers, none below zero, half of them at most 30, with a variance of at least their
               mean, as counts have; in pandas also floats with gaps that are all whole and so,
               because that is what integers with gaps become there
    real       other numbers, measurements in whole units among them: counts as large would vary by
               their square root and no more, which hardly anything does
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dpsearch._types import Matrix, Vector
from dpsearch._validate import LARGEST, readable
from dpsearch.errors import DataError, ParameterError, UnclearColumnError

Kind = Literal["real", "count", "binary", "category"]
KINDS: tuple[Kind, ...] = ("real", "count", "binary", "category")
# What a column came as, so that it goes back as the same.
_SOURCES = ("text", "categorical", "bool", "int", "float")
# Above this share of distinct values a text tells rows apart and groups none.
DISTINCT = 0.9
_COUNTED = 30  # the median of integers up to which they are taken for counts
_ROW_NUMBERS = 20  # rows from which consecutive integers are taken for row numbers

Level = str | bool | int | float


class _Raw(NamedTuple):
    """A column as read from a frame."""

    source: str
    values: Any  # float64 with NaN, or for levels an array of objects with None
    levels: tuple[Level, ...] | None  # in the order that the type gives, if it gives one


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, what it holds, and the levels of codes 0, 1, 2 …"""

    name: str
    kind: Kind
    source: str
    levels: tuple[Level, ...] | None = None

    def encode(self, raw: _Raw) -> Vector:
        """Return the column as numbers."""
        if self.levels is None:
            return _numbers(raw, self.name, self.kind)
        codes = {level: float(code) for code, level in enumerate(self.levels)}
        out = np.full(len(raw.values), math.nan)
        for i, value in enumerate(_as_levels(raw)):
            if value is None:
                continue
            if value not in codes:
                known = ", ".join(repr(level) for level in self.levels[:8])
                more = " …" if len(self.levels) > 8 else ""
                raise DataError(
                    f"X at {{place}} is {value!r}, which is none of the levels of this column:"
                    f" {known}{more}",
                    row=i,
                    column=self.name,
                )
            out[i] = codes[value]
        return out

    def decode(self, values: Vector) -> list[Any]:
        """Return numbers as what the column holds, None where they are NaN."""
        if self.levels is not None:
            return [None if math.isnan(v) else self.levels[int(v)] for v in values]
        whole = self.source == "int" and bool((np.floor(values) == values)[~np.isnan(values)].all())
        number = int if whole else float
        return [None if math.isnan(v) else number(v) for v in values.tolist()]


@dataclass(frozen=True)
class Schema:
    """What the columns of a table hold.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpsearch.tables import Schema
    >>> frame = pd.DataFrame({"age": [31.5, 40.0, None], "pet": ["cat", "dog", "cat"]})
    >>> schema = Schema.of(frame)
    >>> schema.groups()
    {'real': [0], 'category': [1]}
    >>> schema.encode(frame)
    array([[31.5,  0. ],
           [40. ,  1. ],
           [ nan,  0. ]])
    """

    library: str  # pandas or polars
    columns: tuple[Column, ...]
    # Columns whose kind the user said; files do not keep it.
    said: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, frame: Any, kinds: Mapping[str, str] | None = None) -> Schema:
        """Infer the schema of a frame; `kinds` gives some columns another kind by name."""
        return cls._inferred(frame, kinds)[0]

    @classmethod
    def with_matrix(
        cls, frame: Any, kinds: Mapping[str, str] | None = None
    ) -> tuple[Schema, Matrix]:
        """Infer the schema of a frame and encode it, reading each column once."""
        schema, raws = cls._inferred(frame, kinds)
        return schema, schema._encoded(raws)

    @classmethod
    def _inferred(cls, frame: Any, kinds: Mapping[str, str] | None) -> tuple[Schema, list[_Raw]]:
        frame = readable(frame)
        library = library_of(frame)
        if library is None:
            raise DataError("kinds of columns are taken from pandas and polars frames only")
        names = _names(frame)
        kinds = {} if kinds is None else kinds
        _check_kinds(kinds, names)
        if len(frame) == 0 or not names:
            raise DataError(f"X is empty: a frame of shape {frame.shape}")
        raws, columns = [], []
        for j, name in enumerate(names):
            raws.append(read_column(frame, j, name))
            columns.append(_column(raws[-1], name, kinds.get(name), library))
        return cls(library, tuple(columns), frozenset(kinds)), raws

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def renamed(self, names: Sequence[str]) -> Schema:
        """The same columns under other names."""
        pairs = zip(self.columns, names, strict=True)
        return replace(self, columns=tuple(replace(column, name=name) for column, name in pairs))

    def groups(self, is_binary: Callable[[int], bool] = lambda j: False) -> dict[Kind, list[int]]:
        """The numbers of the columns of each kind that there is.

        Columns of numbers that `is_binary` says so of are binary, unless the user said their kind.
        """
        found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        for j, column in enumerate(self.columns):
            number = column.kind in ("real", "count") and column.name not in self.said
            found["binary" if number and is_binary(j) else column.kind].append(j)
        return {kind: columns for kind, columns in found.items() if columns}

    def n_levels(self, columns: Sequence[int]) -> tuple[int, ...]:
        """How many levels these columns of categories have."""
        return tuple(len(self.columns[j].levels or ()) for j in columns)

    def encode(self, frame: Any) -> Matrix:
        """Return a frame with these columns, in any order, as a matrix; gaps are NaN."""
        frame = readable(frame)
        if library_of(frame) is None:
            raise DataError(
                "X must be a pandas or polars frame with the columns that the model was fitted"
                f" with: {', '.join(map(repr, self.names))}"
            )
        places = self.places(frame)
        if len(frame) == 0:
            raise DataError(f"X is empty: a frame of shape {frame.shape}")
        raws = [read_column(frame, j, name) for j, name in zip(places, self.names, strict=True)]
        return self._encoded(raws)

    def _encoded(self, raws: Sequence[_Raw]) -> Matrix:
        columns = [column.encode(raw) for column, raw in zip(self.columns, raws, strict=True)]
        return np.stack(columns, axis=1)

    def places(self, frame: Any) -> list[int]:
        """Where a frame has each of the columns."""
        place = {name: j for j, name in enumerate(_names(frame))}
        names = dict.fromkeys(self.names)
        for name in names:
            if name not in place:
                raise DataError(f"X has no column {name!r}")
        for name in place:
            if name not in names:
                raise DataError(f"X has a column {name!r} that the model was not fitted with")
        return [place[name] for name in names]

    def decode(self, matrix: Matrix) -> Any:
        """Return a matrix as a frame of the library that the schema came from."""
        values = {
            column.name: _series(self.library, column, v)
            for column, v in zip(self.columns, matrix.T, strict=True)
        }
        return _module(self.library).DataFrame(values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        columns = [
            {
                "name": column.name,
                "kind": column.kind,
                "source": column.source,
                "levels": None if column.levels is None else list(column.levels),
            }
            for column in self.columns
        ]
        return {"library": self.library, "columns": columns}

    @classmethod
    def from_dict(cls, spec: Any) -> Schema:
        """Return the schema that `to_dict` describes."""
        if not isinstance(spec, Mapping) or set(spec) != {"library", "columns"}:
            raise ParameterError("a schema is described by its library and its columns")
        if spec["library"] not in ("pandas", "polars") or not isinstance(spec["columns"], list):
            raise ParameterError(
                "a schema needs the library pandas or polars and a list of columns"
            )
        columns = tuple(_column_from(column) for column in spec["columns"])
        names = [column.name for column in columns]
        if not names or len(set(names)) != len(names):
            raise ParameterError("a schema needs columns of different names")
        return cls(spec["library"], columns)


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


def replace_columns(frame: Any, schema: Schema | None, values: Mapping[int, Vector]) -> Any:
    """Return a copy of a frame with the columns at these places replaced by encoded values."""
    library = library_of(frame)
    assert library is not None
    names = list(frame.columns)
    by_name = {} if schema is None else {column.name: column for column in schema.columns}
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


def _module(library: str) -> Any:
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise DataError(
            f"the table came as a {library} frame and goes back as one: pip install {library}"
        ) from error


def _names(frame: Any) -> list[str]:
    names = [str(name) for name in frame.columns]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"X has two columns of the name {name!r}")
        seen.add(name)
    return names


def _check_kinds(kinds: Any, names: list[str]) -> None:
    if not isinstance(kinds, Mapping):
        raise ParameterError(f"kinds must map names of columns to kinds, got {kinds!r}")
    for name, kind in kinds.items():
        if name not in names:
            raise ParameterError(f"kinds names the column {name!r}, which X does not have")
        if kind not in KINDS:
            raise ParameterError(f"kinds[{name!r}] must be one of {', '.join(KINDS)}, got {kind!r}")


# -- reading columns ---------------------------------------------------------------------------


def _pandas_type(series: Any) -> str:
    """Return one of `_SOURCES`, or what else the column holds."""
    types = _module("pandas").api.types
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


def _polars_type(series: Any) -> str:
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
    return _pandas_type(frame.iloc[:, j]) in ("int", "float")


def read_column(frame: Any, j: int, name: str) -> _Raw:
    """Read column j of a frame."""
    if library_of(frame) == "polars":
        series = frame[:, j]
        source = _polars_type(series)
        if source in ("int", "float"):
            import polars as pl

            numbers_ = series.cast(pl.Float64).fill_null(math.nan).to_numpy()
            return _Raw(source, numbers_, None)
        objects = series.to_list()
        is_enum = str(series.dtype).startswith("Enum")
        order = tuple(series.dtype.categories.to_list()) if is_enum else None
    else:
        series = frame.iloc[:, j]
        source = _pandas_type(series)
        if source in ("int", "float"):
            return _Raw(source, series.to_numpy(dtype=np.float64, na_value=math.nan), None)
        objects = series.astype(object).where(series.notna(), None).tolist()
        order = tuple(series.cat.categories.tolist()) if source == "categorical" else None
    if source not in _SOURCES:
        raise DataError(
            f"{{place}} of X holds {source}, which cannot be clustered: turn it into numbers or"
            " categories first, or leave it out",
            column=name,
        )
    return _Raw(source, objects, (False, True) if source == "bool" else order)


def _as_levels(raw: _Raw) -> list[Any]:
    """The column's values as levels, None where missing."""
    if raw.source not in ("int", "float"):
        return list(raw.values)
    number = int if raw.source == "int" else float
    return [None if math.isnan(v) else number(v) for v in raw.values.tolist()]


def _numbers(raw: _Raw, name: str, kind: Kind) -> Vector:
    """The column's values as numbers of a kind."""
    if raw.source == "bool":
        values = np.array([math.nan if v is None else float(v) for v in raw.values])
    elif raw.source in ("int", "float"):
        values = np.array(raw.values, dtype=np.float64)
    else:
        at = next((i for i, value in enumerate(raw.values) if value is not None), None)
        if at is not None:
            raise DataError(
                f"X at {{place}} is {raw.values[at]!r}, not a number", row=at, column=name
            )
        values = np.full(len(raw.values), math.nan)
    bad = np.abs(values) > LARGEST
    what = f"above {LARGEST:.0e} in magnitude: rescale the column, or mark it as missing"
    if kind == "count" and not bad.any():
        bad, what = (values < 0.0) | (np.floor(values) < values), "not a count"
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"X at {{place}} is {values[row]:g}, {what}", row=row, column=name)
    return values


# -- inferring kinds ---------------------------------------------------------------------------


def _column(raw: _Raw, name: str, kind: Any, library: str) -> Column:
    if kind is None:
        kind = _infer(raw, name, library)
    if kind in ("real", "count"):
        _numbers(raw, name, kind)
        return Column(name, kind, raw.source)
    levels = raw.levels if raw.levels is not None else _sorted_levels(raw, name)
    if kind == "binary" and len(levels) > 2:
        raise DataError(f"{{place}} of X is not binary: it has {len(levels)} levels", column=name)
    if not levels:
        raise DataError("{place} of X has no value at all: leave it out", column=name)
    for level in levels:
        if not isinstance(level, (str, bool, int, float)):
            raise DataError(
                f"{{place}} of X has the level {level!r}, of type {type(level).__name__}:"
                " turn it into text first",
                column=name,
            )
    return Column(name, kind, raw.source, levels)


def _infer(raw: _Raw, name: str, library: str) -> Kind:
    if raw.source == "bool":
        return "binary"
    if raw.source == "categorical":
        return "category"
    if raw.source == "text":
        seen = [value for value in raw.values if value is not None]
        distinct = len(set(seen))
        if len(seen) > 1 and distinct > DISTINCT * len(seen):
            raise UnclearColumnError(
                f"{{place}} of X is text in which {distinct} of {len(seen)} values differ, a name"
                " or a free text rather than a category",
                kind="category",
                column=name,
            )
        return "category"
    seen = raw.values[~np.isnan(raw.values)]
    counts = bool((seen >= 0.0).all() and (np.floor(seen) == seen).all()) and len(seen) > 0
    counts = counts and bool(np.isfinite(seen).all())
    counts = counts and are_counts(np.median(seen), seen.mean(), seen.var(), len(seen))
    if raw.source == "int":
        if len(seen) >= _ROW_NUMBERS and (np.diff(seen) == 1.0).all():
            raise UnclearColumnError(
                f"{{place}} of X counts the rows, {seen[0]:g} to {seen[-1]:g}", column=name
            )
        return "count" if counts else "real"
    had_gaps = len(seen) < len(raw.values)
    return "count" if counts and had_gaps and library == "pandas" else "real"


def are_counts(median: float, mean: float, variance: float, n: int) -> bool:
    """Whether whole numbers, none below zero, are taken for counts.

    A mixture of Poisson variables varies by its mean at least; a sample of one by less than two
    standard deviations of that ratio, √(2/n), below.  Ages, grades and ratings vary less.
    """
    return bool(median <= _COUNTED and variance >= (1.0 - 2.0 * math.sqrt(2.0 / n)) * mean)


def _sorted_levels(raw: _Raw, name: str) -> tuple[Level, ...]:
    seen = {value for value in _as_levels(raw) if value is not None}
    try:
        return tuple(sorted(seen))
    except TypeError as error:
        raise DataError(
            "{place} of X has levels of different types: turn them all into text", column=name
        ) from error


# -- back to frames ----------------------------------------------------------------------------


def _series(library: str, column: Column, values: Vector) -> Any:
    """Return encoded values as a series of what the column came as."""
    out = column.decode(values)
    if library == "polars":
        import polars as pl

        dtype: Any = None
        if column.levels is None:
            dtype = pl.Int64 if any(isinstance(v, int) for v in out) else pl.Float64
        elif column.source == "categorical":
            dtype = pl.Enum([str(level) for level in column.levels])
        return pl.Series(column.name, out, dtype=dtype)
    import pandas as pd

    if column.source == "categorical":
        return pd.Series(pd.Categorical(out, categories=list(column.levels or ())))
    if column.levels is not None:
        is_bool = all(isinstance(level, bool) for level in column.levels)
        return pd.Series(out, dtype="boolean" if is_bool and None in out else None)
    if None in out:
        return pd.Series([math.nan if value is None else float(value) for value in out])
    return pd.Series(out)


def _filled(library: str, column: Column, values: Vector, old: Any) -> Any:
    """Return encoded values as a series of the old one's type, where that can hold them."""
    new = _series(library, column, values)
    source = _polars_type(old) if library == "polars" else _pandas_type(old)
    dtype = old.dtype
    if source in ("int", "float"):
        if str(dtype) == "object" or column.source not in ("int", "float"):
            return new  # the type said nothing: all was missing
        if source == "int" and any(value != math.floor(value) for value in new.to_list()):
            dtype = _float_like(dtype, library)
    refused: tuple[type[Exception], ...] = (TypeError, ValueError)
    if library == "polars":
        refused += (_module("polars").exceptions.PolarsError,)
    with contextlib.suppress(*refused):
        same = type(new)(new.to_list(), dtype=dtype)
        lost = same.null_count() if library == "polars" else same.isna().sum()
        return new if lost else same
    return new


def _float_like(dtype: Any, library: str) -> Any:
    """The type of floats that goes with a type of integers."""
    if library == "polars":
        return _module("polars").Float64
    if str(dtype).endswith("[pyarrow]"):
        return "double[pyarrow]"
    return "Float64" if _module("pandas").api.types.is_extension_array_dtype(dtype) else "float64"


def _column_from(spec: Any) -> Column:
    """Return the column that a file describes, if it can be one."""
    if not isinstance(spec, Mapping) or set(spec) != {"name", "kind", "source", "levels"}:
        raise ParameterError("a column is described by name, kind, source and levels")
    name, kind, source, levels = (spec[key] for key in ("name", "kind", "source", "levels"))
    if not isinstance(name, str) or kind not in KINDS or source not in _SOURCES:
        raise ParameterError(f"column {name!r}: unknown kind {kind!r} or source {source!r}")
    if (levels is None) != (kind in ("real", "count")):
        raise ParameterError(f"column {name!r}: levels do not go with the kind {kind}")
    if levels is None:
        return Column(name, kind, source)
    plain = isinstance(levels, list) and all(isinstance(v, (str, numbers.Real)) for v in levels)
    if not plain or not levels or len(set(levels)) != len(levels):
        raise ParameterError(f"column {name!r}: levels must be different texts or numbers")
    if kind == "binary" and len(levels) > 2:
        raise ParameterError(f"column {name!r}: binary with {len(levels)} levels")
    return Column(name, kind, source, tuple(levels))
