"""Tables with columns of different kinds, from pandas and polars frames, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsearch._types import Matrix
from dpsearch._validate import readable
from dpsearch.errors import DataError, ParameterError
from dpsearch.tables.columns import KINDS, Column, Kind, RawColumn
from dpsearch.tables.frames import library_of, module, names_of, read_column, series_of
from dpsearch.tables.kinds import column_of


@dataclass(frozen=True)
class Schema:
    """What the columns of a table hold; see `kinds` for how it is inferred.

    It turns frames into matrices of numbers, in which categories are codes 0, 1, 2 … and missing
    values are NaN.

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
    def _inferred(
        cls, frame: Any, kinds: Mapping[str, str] | None
    ) -> tuple[Schema, list[RawColumn]]:
        frame = readable(frame)
        library = library_of(frame)
        if library is None:
            raise DataError("kinds of columns are taken from pandas and polars frames only")
        names = names_of(frame)
        kinds = {} if kinds is None else kinds
        check_kinds(kinds, names)
        if len(frame) == 0 or not names:
            raise DataError(f"X is empty: a frame of shape {frame.shape}")
        raws, columns = [], []
        for j, name in enumerate(names):
            raws.append(read_column(frame, j, name))
            columns.append(column_of(raws[-1], name, kinds.get(name), library))
        return cls(library, tuple(columns), frozenset(kinds)), raws

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def renamed(self, names: Sequence[str]) -> Schema:
        """Return the same columns under other names."""
        pairs = zip(self.columns, names, strict=True)
        return replace(self, columns=tuple(replace(column, name=name) for column, name in pairs))

    def groups(self, is_binary: Callable[[int], bool] = lambda j: False) -> dict[Kind, list[int]]:
        """Return the numbers of the columns of each kind that there is.

        Columns of numbers that `is_binary` says so of are binary, unless the user said their kind.
        """
        found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        for j, column in enumerate(self.columns):
            number = column.kind in ("real", "count") and column.name not in self.said
            found["binary" if number and is_binary(j) else column.kind].append(j)
        return {kind: columns for kind, columns in found.items() if columns}

    def n_levels(self, columns: Sequence[int]) -> tuple[int, ...]:
        """Return the number of levels of these columns of categories."""
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

    def _encoded(self, raws: Sequence[RawColumn]) -> Matrix:
        columns = [column.encode(raw) for column, raw in zip(self.columns, raws, strict=True)]
        return np.stack(columns, axis=1)

    def places(self, frame: Any) -> list[int]:
        """Return where a frame has each of the columns."""
        place = {name: j for j, name in enumerate(names_of(frame))}
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
            column.name: series_of(self.library, column, v)
            for column, v in zip(self.columns, matrix.T, strict=True)
        }
        return module(self.library).DataFrame(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
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
        columns = tuple(Column.from_dict(column) for column in spec["columns"])
        names = [column.name for column in columns]
        if not names or len(set(names)) != len(names):
            raise ParameterError("a schema needs columns of different names")
        return cls(spec["library"], columns)


def check_kinds(kinds: Any, names: list[str]) -> None:
    if not isinstance(kinds, Mapping):
        raise ParameterError.must("kinds", "map names of columns to kinds", kinds)
    for name, kind in kinds.items():
        if name not in names:
            raise ParameterError(
                f"kinds names the column {name!r}, which X does not have", parameter="kinds"
            )
        if kind not in KINDS:
            raise ParameterError(
                f"kinds[{name!r}] must be one of {', '.join(KINDS)}, got {kind!r}",
                parameter="kinds",
            )
