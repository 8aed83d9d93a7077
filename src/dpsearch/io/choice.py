"""Which columns of a file are wanted, by name or number."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpsearch._validate import name_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.io.table import Reading


@dataclass(frozen=True)
class Choice:
    """Numbers of columns in the file."""

    kept: list[int]
    index: int | None
    text: int | None
    categories: frozenset[int]
    named: bool  # whether the user or a model named them: then none is left out


def choose(names: list[str] | None, width: int, reading: Reading, source: str) -> Choice:
    """Turn what the user said into column numbers; complain about names that are not there."""
    again = None if names is None else repeated(names)
    if names is not None and again is not None:
        raise DataError(
            f"{source}: columns {names.index(names[again])} and {again} are both called"
            f" {names[again]!r}; rename one"
        )
    if reading.columns is not None and reading.drop is not None:
        raise ParameterError("--columns and --drop say the same thing twice: give one")

    def one(option: str, text: str | None) -> int | None:
        if text is None:
            return None
        found = _numbers(text, names, width, option, source)
        if len(found) != 1:
            raise ParameterError(f"{option} takes one column, got {text!r}")
        return found[0]

    index, text = one("--index", reading.index), one("--text", reading.text)
    spoken_for = {index, text} - {None}
    categories = frozenset(
        _numbers(reading.categories, names, width, "--category", source)
        if reading.categories is not None
        else ()
    )
    named = True
    if reading.columns is not None:
        kept = _numbers(reading.columns, names, width, "--columns", source)
    elif reading.wanted is not None and names is not None and text is None:
        kept = [_model_column(name, names, source) for name in reading.wanted]
    else:
        dropped = set(spoken_for)
        if reading.drop is not None:
            dropped |= set(_numbers(reading.drop, names, width, "--drop", source))
        kept = [j for j in range(width) if j not in dropped]
        named = len(kept) == reading.width
    if not kept and text is None:
        raise DataError(f"{source}: no column is left to cluster by")
    return Choice(kept, index, text, categories, named)


def _numbers(
    text: str | tuple[str, ...], names: list[str] | None, width: int, option: str, source: str
) -> list[int]:
    """Parse "a,b,3-7": a name if a column has it, otherwise a number or a range of numbers."""
    found: list[int] = []
    parts = [part.strip() for part in text.split(",")] if isinstance(text, str) else text
    for part in parts:
        if names is not None and part in names:
            found.append(names.index(part))
            continue
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ParameterError(
                f"{source}: {option}: no column {part!r}{_did_you_mean(part, names)}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= width or first > last:
            raise ParameterError(
                f"{source}: {option}: no column {part}; there are {width}, numbered from 0"
            )
        found.extend(range(first, last + 1))
    again = repeated(found)
    if again is not None:
        place = name_column(names, found[again])
        raise ParameterError(f"{source}: {option}: {place} is named twice")
    return found


def repeated(values: Sequence[Any]) -> int | None:
    """Place of the first value that was there before."""
    seen: set[Any] = set()
    for at, value in enumerate(values):
        if value in seen:
            return at
        seen.add(value)
    return None


def _model_column(name: str, names: list[str], source: str) -> int:
    if name not in names:
        raise DataError(
            f"{source}: no column {name!r}, which the model needs{_did_you_mean(name, names)}"
        )
    return names.index(name)


def _did_you_mean(name: str, names: list[str] | None) -> str:
    if names is None:
        return "; the file has no column names, so columns go by numbers from 0"
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    close = close or [other for other in names if other.casefold() == name.casefold()]
    if close:
        return f": did you mean {close[0]!r}?"
    some = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"; there are {some}"
