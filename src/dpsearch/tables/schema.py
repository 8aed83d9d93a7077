"""`Schema`: how frames with columns of different kinds become matrices, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsearch._types import Matrix
from dpsearch._validate import readable
from dpsearch.errors import DataError, ParameterError, UnseenValuesWarning
from dpsearch.tables.cells import POINT, date_texts
from dpsearch.tables.columns import KINDS, Column, Kind, RawColumn
from dpsearch.tables.entries import Triage
from dpsearch.tables.frames import library_of, module, names_of, read_column, series_of
from dpsearch.tables.names import did_you_mean, taken_as_missing
from dpsearch.tables.rules import check_kinds, decide

UNKNOWN = ("missing", "error")  # what becomes of values that a column cannot hold


@dataclass(frozen=True)
class Schema:
    """The columns that a table is clustered by and what they hold; `rules` decides about them.

    It encodes frames as matrices of numbers, in which categories are codes 0, 1, 2 … and missing
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
    # Columns whose kind the user gave; files do not keep this.
    given: frozenset[str] = field(default=frozenset(), compare=False)
    dropped: tuple[str, ...] = ()  # columns of the table that are not clustered by
    na: tuple[str, ...] = ()  # additional texts and numbers that stand for missing values

    @classmethod
    def of(cls, frame: Any, kinds: Mapping[str, str] | None = None) -> Schema:
        """Decide about the columns of a frame; `kinds` overrides that for some by name."""
        return triaged(frame, kinds).schema

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Schema:
        """Return the schema of a table of numbers, which reads texts as numbers, too."""
        return cls("polars", tuple(Column(name, "real", "float", form=POINT) for name in names))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def origins(self) -> list[str]:
        """The names of the table's columns that these come from."""
        return list(dict.fromkeys(column.origin_name for column in self.columns))

    @property
    def all_numbers(self) -> bool:
        """Whether all columns hold numbers, and the user gave no kinds."""
        return not self.given and all(column.levels is None for column in self.columns)

    @property
    def for_choice(self) -> Schema | None:
        """The schema that the choice of a family uses: None for a table of numbers."""
        return None if self.all_numbers else self

    @property
    def is_plain(self) -> bool:
        """Whether encoding changes nothing: all columns of the frame are used and hold numbers."""
        plain = all(c.is_unchanged and c.source in ("int", "float") for c in self.columns)
        return self.all_numbers and plain and not self.dropped and not self.na

    def renamed(self, names: Sequence[str]) -> Schema:
        """Return the schema of the same table with new names for its columns."""
        new = dict(zip(self.origins, names, strict=True))
        return replace(
            self,
            columns=tuple(
                replace(c, name=new[c.origin_name]) if not c.origin
                else replace(c, origin=new[c.origin])
                for c in self.columns
            ),
        )  # fmt: skip

    def groups(self, is_binary: Callable[[int], bool] = lambda j: False) -> dict[Kind, list[int]]:
        """Return the indices of the columns of each kind that occurs.

        Columns of numbers for which `is_binary` is true are binary, unless the user gave their
        kind.
        """
        found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        for j, column in enumerate(self.columns):
            number = column.kind in ("real", "count") and column.name not in self.given
            found["binary" if number and is_binary(j) else column.kind].append(j)
        return {kind: columns for kind, columns in found.items() if columns}

    def n_levels(self, columns: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of levels of some columns of categories."""
        return tuple(len(self.columns[j].levels or ()) for j in columns)

    def encode(
        self, frame: Any, unknown: str = "missing", *, quiet: bool = False, lacking: bool = False
    ) -> Matrix:
        """Return a frame with these columns, in any order, as a matrix; gaps are NaN.

        Values that a column cannot hold, such as new levels, become missing with a warning, or
        raise an error with ``unknown="error"``.  An absent column is an error, unless `lacking`
        allows it as missing values.
        """
        frame = readable(frame)
        if library_of(frame) is None:
            raise DataError(
                "X must be a pandas or polars frame with the columns that the model was fitted"
                f" with: {', '.join(map(repr, self.origins))}"
            )
        place = self._place(frame, lacking)
        if len(frame) == 0:
            raise DataError(f"X is empty: a frame of shape {frame.shape}")
        raws = {name: read_column(frame, j, self.na) for name, j in place.items()}
        out = np.full((len(frame), len(self.columns)), np.nan)
        for j, column in enumerate(self.columns):
            if column.name in place:  # in the form that `decode` returns
                own = column if not column.part else replace(column, form="", part="")
                out[:, j] = _encoded(own, raws[column.name], unknown, quiet)
            elif column.origin_name in place:  # one warning for all parts of a date
                again = j > 0 and column.part and self.columns[j - 1].origin == column.origin
                out[:, j] = _encoded(
                    column, raws[column.origin_name], unknown, quiet or bool(again)
                )
        return out

    def _place(self, frame: Any, lacking: bool = False) -> dict[str, int]:
        """Return the position in a frame of each column, by its name or that of its origin."""
        place = {name: j for j, name in enumerate(names_of(frame))}
        wanted = dict.fromkeys(c.name if c.name in place else c.origin_name for c in self.columns)
        absent = [name for name in wanted if name not in place]
        if absent and not (lacking and taken_as_missing(list(wanted), list(place))):
            raise DataError(f"X has no column {absent[0]!r}")
        known = {*wanted, *self.dropped, *self.origins}
        for name in place:
            if name not in known:
                raise DataError(f"X has a column {name!r} that the model was not fitted with")
        return {name: j for name, j in place.items() if name in wanted}

    def places(self, frame: Any) -> dict[int, int]:
        """Return the positions in a frame of the columns that hold the same values there."""
        place = self._place(frame)
        return {
            j: place[column.name]
            for j, column in enumerate(self.columns)
            if column.name in place and column.is_unchanged
        }

    def decode(self, matrix: Matrix) -> Any:
        """Return an encoded matrix as a frame of the schema's library."""
        values = {
            column.name: series_of(self.library, column, v)
            for column, v in zip(self.columns, matrix.T, strict=True)
        }
        return module(self.library).DataFrame(values)

    def dates(self, frame: Any) -> dict[str, list[str]]:
        """Return as texts the columns of dates of a frame whose parts are columns of the schema."""
        place = {name: j for j, name in enumerate(names_of(frame))}
        of = {c.origin_name: c.form for c in self.columns if c.part and c.origin_name in place}
        return {
            name: date_texts(read_column(frame, place[name], self.na).seconds(form))
            for name, form in of.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return {
            "library": self.library,
            "columns": [column.to_dict() for column in self.columns],
            "dropped": list(self.dropped),
            "na": list(self.na),
        }

    @classmethod
    def from_dict(cls, spec: Any) -> Schema:
        """Return the schema that `to_dict` describes."""
        needed = {"library", "columns"}
        if not isinstance(spec, Mapping) or not needed <= set(spec) <= needed | {"dropped", "na"}:
            raise ParameterError("a schema is described by its library and its columns")
        if spec["library"] not in ("pandas", "polars") or not isinstance(spec["columns"], list):
            raise ParameterError(
                "a schema needs the library pandas or polars and a list of columns"
            )
        columns = tuple(Column.from_dict(column) for column in spec["columns"])
        names = [column.name for column in columns]
        if not names or len(set(names)) != len(names):
            raise ParameterError("a schema needs columns of different names")
        texts = [spec.get(key, []) for key in ("dropped", "na")]
        if not all(isinstance(own, list) and all(isinstance(t, str) for t in own) for own in texts):
            raise ParameterError("a schema needs names of columns, and texts")
        return cls(spec["library"], columns, dropped=tuple(texts[0]), na=tuple(texts[1]))


def _encoded(column: Column, raw: RawColumn, unknown: str, quiet: bool) -> Any:
    values, unseen = column.encode(raw)
    if unseen is not None and unknown == "error":
        raise column.refused(unseen)
    if raw.n_infinite and unknown == "error":
        raise DataError("{place} of X has a number that is not finite", column=column.origin_name)
    n_lost = raw.n_infinite + (0 if unseen is None else len(unseen.rows))
    if n_lost and not quiet:
        levels = column.levels is not None and not column.part
        example = "inf" if unseen is None else unseen.example
        warnings.warn(
            UnseenValuesWarning(column.origin_name, n_lost, example, levels), stacklevel=2
        )
    return values


@dataclass(frozen=True, eq=False)
class Triaged:
    """An encoded frame, and what was decided about its columns."""

    triage: Triage
    schema: Schema
    matrix: Matrix
    row_names: str | None  # the column that names the rows
    renamed: bool = False  # whether names repeat, and are numbered

    @property
    def conversion(self) -> Schema | None:
        """The schema; None if encoding changes nothing."""
        return None if self.schema.is_plain and not self.renamed else self.schema


def triaged(
    frame: Any, kinds: Mapping[str, str] | None = None, na: Sequence[Any] = (), **options: Any
) -> Triaged:
    """Decide about the columns of a frame, and encode it, reading each column once.

    The options are those of `decide`.
    """
    frame = readable(frame)
    library = library_of(frame)
    if library is None:
        raise DataError("kinds of columns are taken from pandas and polars frames only")
    names = names_of(frame)
    check_kinds({} if kinds is None else kinds, names)
    if len(frame) == 0 or not names:
        raise DataError(f"X is empty: a frame of shape {frame.shape}")
    raws = [read_column(frame, j, na) for j in range(len(names))]
    found = triaged_columns(library, names, raws, kinds, na, **options)
    return replace(found, renamed=len({*map(str, frame.columns)}) < len(names))


def triaged_columns(
    library: str,
    names: Sequence[str],
    raws: Sequence[RawColumn],
    kinds: Mapping[str, str] | None = None,
    na: Sequence[Any] = (),
    **options: Any,
) -> Triaged:
    """Decide about columns that have been read."""
    _check_codes(na, names)
    found = decide(names, raws, kinds, **options)
    given = frozenset(name for name, kind in (kinds or {}).items() if kind in KINDS)
    texts = tuple(map(str, na))
    schema = Schema(library, tuple(found.columns), given, found.triage.dropped, texts)
    return Triaged(found.triage, schema, np.stack(found.vectors, axis=1), found.row_names)


def _check_codes(na: Sequence[Any], names: Sequence[str]) -> None:
    """Raise `ParameterError` if a missing code NAME=VALUE is for a column that does not exist."""
    for code in map(str, na):
        name, equals, _ = code.rpartition("=")
        if equals and not any(code.startswith(f"{one}=") for one in names):
            advice = did_you_mean([name], names)
            raise ParameterError.of("missing_codes", f": no column {name!r}{advice}")


def triage(
    frame: Any, kinds: Mapping[str, str] | None = None, missing_codes: Sequence[Any] = ()
) -> Triage:
    """Tell what would be made of each column of a pandas or polars frame, and why.

    Parameters
    ----------
    frame
        The table.  What its columns hold never raises an error.
    kinds
        What you say of some columns, by name: "real", "count", "binary", "category", "date",
        "keep" (use it) or "drop".
    missing_codes
        Further texts and numbers that stand for missing values.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpsearch import triage
    >>> prices = ["$1,200", "$950", "$1,100", "$980"] * 5
    >>> frame = pd.DataFrame({"id": range(20), "price": prices})
    >>> print(triage(frame))
    column  role        treatment  why
    id      identifier  dropped    it numbers the rows
    price   ordinal     read       950 to 1200; read as numbers, such as '$1,200'
    """
    return triaged(frame, kinds, missing_codes).triage
