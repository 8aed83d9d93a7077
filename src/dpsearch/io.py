"""Reading tables from files, and writing labels."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._files import atomic_write
from dpsearch._types import Labels
from dpsearch.errors import DataError


class Table(NamedTuple):
    X: Any
    names: list[str] | None


def read_table(path: str | Path) -> Table:
    """Read a table of numbers from a CSV, NPY or NPZ file, by the name's ending.

    CSV: a first line with anything that is not a number is taken as column names.  NPZ: the entry
    ``X``, or the only one.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    readers = {".csv": _read_csv, ".npy": _read_npy, ".npz": _read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: cannot read '{path.suffix}' files; known are .csv, .npy, .npz")
    try:
        return reader(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_npy(path: Path) -> Table:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: not a NumPy array of numbers: {error}") from error
    return Table(array.reshape(-1, 1) if array.ndim == 1 else array, None)


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as entries:
            names = list(entries.files)
            if "X" not in names and len(names) != 1:
                raise DataError(f"{path}: which entry? It has {', '.join(names)} and no 'X'")
            array = entries["X" if "X" in names else names[0]]
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a NumPy archive of numbers: {error}") from error
    return Table(array.reshape(-1, 1) if array.ndim == 1 else array, None)


def _read_csv(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = [(number, line) for number, line in enumerate(csv.reader(stream), 1) if line]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file: {error}") from error
    if not lines:
        raise DataError(f"{path}: the file is empty")
    names = None
    if not all(_is_number(cell) for cell in lines[0][1]):
        names = [cell.strip() for cell in lines[0][1]]
        lines = lines[1:]
    if not lines:
        raise DataError(f"{path}: a line of column names and no data")
    width = len(lines[0][1]) if names is None else len(names)
    out = np.empty((len(lines), width))
    for i, (number, cells) in enumerate(lines):
        if len(cells) != width:
            raise DataError(f"{path}, line {number}: {len(cells)} cells, expected {width}")
        for j, cell in enumerate(cells):
            if not _is_number(cell):
                column = f"column {j}" if names is None else f"column {names[j]!r}"
                raise DataError(f"{path}, line {number}, {column}: {cell!r} is not a number")
            out[i, j] = float(cell)
    return Table(out, names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_labels(path: str | Path, labels: Labels) -> None:
    """Write a CSV with the columns ``row`` and ``cluster``."""
    with atomic_write(path, "w") as stream:
        stream.write("row,cluster\n")
        stream.writelines(f"{row},{label}\n" for row, label in enumerate(labels.tolist()))
