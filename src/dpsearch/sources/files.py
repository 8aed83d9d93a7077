"""Pieces of paths: Parquet and Arrow files and sets of them, NPY files, converted CSV files."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dpsearch._files import visible_files
from dpsearch._validate import is_array
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.io.arrays import not_numbers
from dpsearch.io.choice import Choice, choose
from dpsearch.io.delimited import filled_columns
from dpsearch.io.frames import choose_names, naming_form, scan
from dpsearch.io.output import write_parquet
from dpsearch.io.read import FORMATS, format_of
from dpsearch.io.table import Reading
from dpsearch.sources.pieces import Piece

Progress = Callable[[int], None] | None
_SETS = ("parquet", "arrow")  # the formats of files in a set


@dataclass
class Files:
    """Pieces, and the columns that the user chose."""

    pieces: list[Piece]
    names: list[str] | None  # of all columns
    types: dict[str, Any]  # of the columns to cluster by
    choice: Choice
    source: str
    unnamed: bool = False  # whether the files have no names of columns
    lasting: bool = False  # whether the pieces are the user's files, not temporary ones
    width: int = 0  # the number of columns if there are no names

    @property
    def n_rows(self) -> int:
        return sum(piece.n_rows for piece in self.pieces)

    def numbers(self, kept: list[int]) -> list[int] | None:
        """Return the indices of the kept columns; None if all are kept."""
        width = self.width if self.names is None else len(self.names)
        return None if kept == list(range(width)) else kept

    @property
    def categories(self) -> list[str]:
        return [] if self.names is None else [self.names[j] for j in self.choice.categories]


def set_of_files(path: Path) -> list[Path] | None:
    """Return the files of a folder or pattern; None for any other path."""
    if path.is_dir():
        files = [file for file in visible_files(path) if _form(file) in _SETS]
        # Names of files that programs add to such folders begin with an underscore.
        named = [f for f in files if not any(p[0] == "_" for p in f.relative_to(path).parts)]
        return named or None
    if not path.exists() and glob.has_magic(str(path)):
        files = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
        if not files:
            raise DataError("no such files", source=path)
        for file in files:
            if _form(file) not in _SETS:
                raise DataError("a set of files consists of Parquet or Arrow files", source=file)
        return files
    return None


def _form(path: Path) -> str | None:
    return next((form for form, ends in FORMATS.items() if path.suffix.lower() in ends), None)


def comes_in_pieces(path: Path, reading: Reading) -> bool:
    """Whether this can be read in pieces."""
    if reading.text is not None:
        return False
    if set_of_files(path) is not None:
        return True
    form = format_of(path, reading)
    return form in ("csv", *_SETS) or (form == "numpy" and path.suffix.lower() != ".npz")


def estimated_bytes(path: Path, reading: Reading) -> int:
    """Estimate the memory that the table needs in double precision."""
    files = set_of_files(path)
    if files is None and not path.is_file():
        return 0  # unknown for standard input
    form = None if files else format_of(path, reading)
    if form in ("csv", "numpy"):
        packed = 5 if path.suffix.lower() == ".gz" else 1
        return packed * path.stat().st_size
    total = 0
    for file in [path] if files is None else files:
        piece, schema = _header(file, str(form or _form(file)), str(file))
        total += 8 * piece.n_rows * len(schema)
    return total


def open_files(
    path: Path, source: str, reading: Reading, folder: Path, progress: Progress = None
) -> Files:
    """Return the pieces of a path; errors in any of its files are raised here.

    A CSV file is converted to pieces in the temporary `folder`.
    """
    with located(source):
        files = set_of_files(path)
        form = None if files else format_of(path, reading)
        if files is not None:
            forms = [str(_form(file)) for file in files]
            found = _frames(files, forms, [str(file) for file in files], reading, source)
        elif form == "csv":
            found = _converted(path, reading, source, folder, progress)
        elif form == "numpy":
            return _array(path, reading, source)
        else:
            found = _frames([path], [str(form)], [source], reading, source)
        if found.n_rows == 0:
            raise DataError("there are no rows")
        return found


def _frames(
    paths: Sequence[Path],
    forms: Sequence[str],
    sources: Sequence[str],
    reading: Reading,
    source: str,
) -> Files:
    opened = [_header(*one) for one in zip(paths, forms, sources, strict=True)]
    names = opened[0][1].names()
    choice, used = choose_names(names, reading)
    types = {name: opened[0][1][name] for name in used}
    every = reading.columns is None and reading.model is None
    for piece, schema in opened[1:]:
        with located(piece.source):
            _check_columns(schema, used, names if every else None, sources[0])
            types = {name: _common(types[name], schema[name], name, sources[0]) for name in used}
    kept = {names[j]: types[names[j]] for j in choice.kept}
    return Files([piece for piece, _ in opened], names, kept, choice, source, lasting=True)


def _check_columns(schema: pl.Schema, used: list[str], known: list[str] | None, first: str) -> None:
    """Raise `DataError` unless a file has the columns used, and no others than `known` if given."""
    missing = next((name for name in used if name not in schema), None)
    if missing is not None:
        raise DataError(f"no column {missing!r}, which {first} has")
    other = None if known is None else next((name for name in schema if name not in known), None)
    if other is not None:
        raise DataError(f"a column {other!r}, which {first} does not have")


def _header(path: Path, form: str, source: str) -> tuple[Piece, pl.Schema]:
    with located(source), naming_form(form):
        lazy = scan(path, form)
        schema = lazy.collect_schema()
        n_rows = int(lazy.select(pl.len()).collect().item())
    return Piece(path, form, n_rows, source), schema


def _common(one: Any, other: Any, name: str, first: str) -> Any:
    """Return the type of a column that has these types in different files."""
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    if one.is_numeric() and other.is_numeric():
        both = one.is_integer() and other.is_integer()
        return pl.Int64() if both else pl.Float64()
    texts = (pl.String, pl.Categorical, pl.Enum)
    if one.base_type() in texts and other.base_type() in texts:
        return pl.Categorical() if pl.Categorical in (one, other) else pl.String()
    plain = all(kind.is_numeric() or kind in (*texts, pl.Boolean) for kind in (one, other))
    if plain:
        return pl.String()
    raise DataError(f"column {name!r} is {other}, but in {first} it is {one}")


def _converted(
    path: Path, reading: Reading, source: str, folder: Path, progress: Progress
) -> Files:
    pieces: list[Piece] = []
    for columns in filled_columns(path, reading):
        frame = columns.drain()
        piece = Piece(folder / f"piece{len(pieces)}", "parquet", frame.height, source,
                      columns.n_rows - frame.height)  # fmt: skip
        write_parquet(piece.path, frame)
        pieces.append(piece)
        if progress is not None:
            progress(columns.n_rows)
    types = columns.types()
    pieces = [replace(piece, types=tuple(types.items())) for piece in pieces]
    choice, names = columns.choice, columns.names
    numbered = [f"column {j}" for j in range(columns.width)] if names is None else names
    kept = {numbered[j]: types[numbered[j]]() for j in choice.kept}
    return Files(pieces, numbered, kept, choice, source, unnamed=names is None)


def _array(path: Path, reading: Reading, source: str) -> Files:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise not_numbers(error) from error
    array = array.reshape(-1, 1) if array.ndim == 1 else array
    if not is_array(array):
        raise DataError(f"not rows and columns of numbers: {array.shape} {array.dtype}")
    if reading.categories is not None:
        raise ParameterError("--category is for tables with texts")
    choice = choose(None, array.shape[1], reading)
    piece = Piece(path, "numpy", array.shape[0], source)
    return Files([piece], None, {}, choice, source, width=array.shape[1])
