"""NumPy's .npy and .npz files, and SciPy's sparse .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._validate import name_column
from dpsearch.errors import DataError
from dpsearch.io.choice import Choice, choose
from dpsearch.io.table import Reading, Table, name_of, unreadable


def read_numpy(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """Read an array; of an archive the entry ``X``, or the only one, or a sparse matrix."""
    try:
        # Opened here, because np.load leaves a damaged archive open.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
            if isinstance(array, np.lib.npyio.NpzFile):
                if {"format", "shape", "data"} <= set(array.files):  # as scipy.sparse writes
                    stream.seek(0)
                    array = sp.load_npz(stream).tocsr()
                else:
                    array = _entry(array)
    except (DataError, OSError):
        raise
    except Exception as error:  # ValueError, BadZipFile, zlib.error and the like
        raise not_numbers(error) from error
    if array.ndim == 1 and array.dtype.names is None and not sp.issparse(array):
        array = array.reshape(-1, 1)
    return table_of_array(array, None, None, reading)


def not_numbers(error: Exception) -> DataError:
    # NumPy takes a file that it does not know for a pickle, and advises to open it.
    why = "" if "pickle" in str(error) else f": {error}"
    return unreadable(f"not a NumPy file of numbers{why}")


def _entry(entries: Any) -> Any:
    names = list(entries.files)
    if "X" not in names and len(names) != 1:
        raise DataError(f"which entry? It has {', '.join(names) or 'none'} and no 'X'")
    array = entries["X" if "X" in names else names[0]]
    if not isinstance(array, np.ndarray):
        raise DataError("holds files that are not NumPy arrays")
    return array


def table_of_array(
    array: Any, names: list[str] | None, index: Any, reading: Reading
) -> tuple[Table, Choice]:
    """Choose columns of a dense or sparse matrix."""
    import polars as pl

    if array.ndim != 2:
        raise DataError(f"an array of {array.ndim} dimensions, not rows and columns")
    choice = choose(names, array.shape[1], reading)
    if choice.categories:
        raise DataError(
            "{place} is a category to the model, but the file has numbers",
            column=name_column(names, min(choice.categories)),
        )
    table = Table(array, index=index)
    if choice.index is not None:
        column = array[:, [choice.index]]
        column = np.asarray(column.todense() if hasattr(column, "todense") else column).ravel()
        table.take_index(pl.Series(name_of(names, choice.index), column))
    if choice.kept != list(range(array.shape[1])):
        table.X = array[:, choice.kept]
    table.take_columns(names, array.shape[1], choice.kept)
    return table, choice
