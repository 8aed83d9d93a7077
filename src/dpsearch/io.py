"""Reading tables from files, and writing labels."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._files import atomic_write
from dpsearch._types import Labels
from dpsearch._validate import name_column
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
    readers = {".csv": _read_csv, ".npy": _read_numpy, ".npz": _read_numpy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: cannot read '{path.suffix}' files; known are .csv, .npy, .npz")
    try:
        return reader(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_numpy(path: Path) -> Table:
    try:
        # Opened here, because np.load leaves a damaged archive open.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
            if isinstance(array, np.lib.npyio.NpzFile):
                array = _entry(path, array)
    except (DataError, OSError):
        raise
    except Exception as error:  # ValueError, BadZipFile, zlib.error and the like
        raise DataError(f"{path}: not a NumPy file of numbers: {error}") from error
    return Table(array.reshape(-1, 1) if array.ndim == 1 else array, None)


def _entry(path: Path, entries: Any) -> Any:
    names = list(entries.files)
    if "X" not in names and len(names) != 1:
        raise DataError(f"{path}: which entry? It has {', '.join(names) or 'none'} and no 'X'")
    array = entries["X" if "X" in names else names[0]]
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds files that are not NumPy arrays")
    return array


def _read_csv(path: Path) -> Table:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            lines = [(reader.line_num, cells) for cells in reader if cells]
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
            out[i, j] = float(cell) if _is_number(cell) else math.nan
            if not math.isfinite(out[i, j]):
                wanted = "finite" if _is_number(cell) else "a number"
                place = f"{path}, line {number}, {name_column(names, j)}"
                raise DataError(f"{place}: {cell!r} is not {wanted}")
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
