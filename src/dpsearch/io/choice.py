"""The choice of columns of a file, by name or by index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsearch._validate import name_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.io.table import ModelColumns, Reading, name_of
from dpsearch.tables.names import did_you_mean, taken_as_missing

_NAMED = 5  # columns that an error names


@dataclass(frozen=True)
class Choice:
    """Indices of the columns in the file by their use."""

    kept: list[int]
    index: int | None
    text: int | None
    categories: frozenset[int]
    named: bool  # whether the user or a model named them, so that the triage drops none


def choose(names: list[str] | None, width: int, reading: Reading) -> Choice:
    """Return the columns that the user or a model names; raise an error if one does not exist."""
    if reading.columns is not None and reading.drop is not None:
        raise ParameterError.of("--columns", "and --drop both choose columns: give one of them")
    file = _File(names, width)
    if names is None and reading.model is not None and len(reading.model.file) == width:
        file = _File(list(reading.model.file), width)  # the columns of the fit, by position
    index, text = file.index(reading), file.one("--text", reading.text)
    if text is not None:
        if index == text:
            raise ParameterError.of("--text", "and --index name the same column")
        return Choice([], index, text, frozenset(), True)
    kept, named = file.kept(reading, index)
    if index in kept:
        column = name_column(names, kept[kept.index(index)])
        raise ParameterError(
            "{place} cannot both name the rows and be used for clustering", column=column
        )
    if not kept:
        raise DataError("no column is left to cluster by")
    return Choice(kept, index, None, frozenset(file.categories(reading, kept)), named)


class _File:
    """The columns of a file, by name."""

    def __init__(self, names: list[str] | None, width: int) -> None:
        self.names, self.width = names, width
        self.place = {name_of(names, j): j for j in range(width)}

    def index(self, reading: Reading) -> int | None:
        """Return the column that names the rows, given by the user or a model."""
        index, model = self.one("--index", reading.index), reading.model
        if index is not None or model is None or model.index is None:
            return index
        return None if model.index in (model.names or ()) else self.place.get(model.index)

    def kept(self, reading: Reading, index: int | None) -> tuple[list[int], bool]:
        """Return the columns to cluster by, and whether the user or a model named them."""
        if reading.columns is not None:
            return self.numbers(reading.columns, "--columns"), True
        of_model = None if reading.drop is not None else self.columns_of(reading)
        if of_model is not None:
            return of_model, True
        dropped = set() if reading.drop is None else set(self.numbers(reading.drop, "--drop"))
        kept = [j for j in range(self.width) if j not in dropped and j != index]
        model = reading.model
        if self.names is None and model is not None and len(kept) == len(model.file):
            kept = [kept[model.file.index(name)] for name in model.names or ()]
        return kept, model is not None and len(kept) == model.width

    def categories(self, reading: Reading, kept: list[int]) -> list[int]:
        """Return the columns of categories, given by the user or a model."""
        if reading.categories is None:
            return self.categories_of(reading.model, kept)
        found = self.numbers(reading.categories, "--category")
        for j in found:
            if j not in kept:
                raise ParameterError.of(
                    "--category",
                    ": {place} is not among the columns to cluster by",
                    column=name_column(self.names, j),
                )
        return found

    def one(self, option: str, text: str | None) -> int | None:
        if text is None:
            return None
        found = self.numbers(text, option)
        if len(found) != 1:
            raise ParameterError.of(option, f"must name one column, got {text!r}")
        return found[0]

    def numbers(self, text: str, option: str) -> list[int]:
        """Parse "a,b,3-7": a name if a column has it, otherwise an index or a range of indices."""
        found: list[int] = []
        for part in (part.strip() for part in text.split(",")):
            if part in self.place:
                found.append(self.place[part])
                continue
            match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
            if match is None:
                advice = did_you_mean([part], self.names)
                raise ParameterError.of(option, f": no column {part!r}{advice}")
            first, last = int(match[1]), int(match[2] or match[1])
            if last >= self.width or first > last:
                raise ParameterError.of(
                    option, f": no column {part}; there are {self.width}, numbered from 0"
                )
            found.extend(range(first, last + 1))
        again = repeated(found)
        if again is not None:
            column = name_column(self.names, found[again])
            raise ParameterError.of(option, ": {place} is named twice", column=column)
        return found

    def columns_of(self, reading: Reading) -> list[int] | None:
        """Return the columns that a model knows by name; None if positions decide."""
        model = reading.model
        if model is None or model.names is None:
            return None
        if all(name in self.place for name in model.names):
            return [self.place[name] for name in model.names]
        if self.names is None:
            return None
        if model.gaps and taken_as_missing(model.names, self.names):
            return [self.place[name] for name in model.names if name in self.place]
        known = {*model.names, *model.file} & {*self.names}
        hint = "" if known or not reading.header else "; use --no-header if the first line is data"
        raise DataError(missing_columns(model.names, self.names) + hint)

    def categories_of(self, model: ModelColumns | None, kept: list[int]) -> list[int]:
        """Return which of the kept columns are categories to a model, by name or position."""
        if model is None or len(kept) != model.width:
            return []
        places = kept
        if model.names is not None and {*model.names} == {name_of(self.names, j) for j in kept}:
            places = [self.place[name] for name in model.names]
        return [places[at] for at in model.categories]


def repeated(values: Sequence[Any]) -> int | None:
    """Return the index of the first value that occurred before; None if all are different."""
    seen: set[Any] = set()
    for at, value in enumerate(values):
        if value in seen:
            return at
        seen.add(value)
    return None


def missing_columns(wanted: Sequence[str], names: list[str]) -> str:
    """Return in words which columns a model needs and a file lacks."""
    missing = [name for name in wanted if name not in names]
    some = ", ".join(map(repr, missing[:_NAMED]))
    more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
    advice = did_you_mean(missing[:_NAMED], names, [name for name in names if name not in wanted])
    return f"no column{'s' * (len(missing) > 1)} {some}{more}, which the model needs{advice}"
