"""Matrices from files of NumPy, SciPy, Matrix Market, SVMlight and AnnData, read by libraries."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._extras import naming_extras
from dpsearch._validate import name_column
from dpsearch.errors import DataError
from dpsearch.io.choice import Choice, choose
from dpsearch.io.table import Reading, Table, name_of, unreadable

_MOST_DENSE = 1 << 27  # the most cells of a sparse matrix of real numbers that is made dense


def read_numpy(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """Read an array, a sparse matrix, or from an archive the entry ``X`` or the only one."""
    try:
        # Opened here, because np.load leaves a damaged archive open.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
            if isinstance(array, np.lib.npyio.NpzFile):
                if {"format", "shape", "data"} <= set(array.files):  # written by scipy.sparse
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
    return _table(array, None, None, reading)


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


def read_matrix_market(path: Path, reading: Reading) -> tuple[Table, Choice]:
    from scipy.io import mmread

    with _damaged_if("a Matrix Market", ValueError, EOFError, OverflowError, OSError):
        matrix = mmread(path)
    return _counts_or_dense(matrix, None, None, reading)


def read_svmlight(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """Read the features; the labels at the beginning of each line are ignored."""
    from sklearn.datasets import load_svmlight_file

    with _damaged_if("an SVMlight", ValueError, EOFError, OverflowError, IndexError):
        matrix, _ = load_svmlight_file(str(path))
    return _counts_or_dense(matrix, None, None, reading)


def read_anndata(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """Read cells by genes, with their names."""
    with naming_extras(".h5ad files"):
        import anndata
    import polars as pl

    # All errors, since those of h5py share no base; the warnings are about old names and formats.
    with _damaged_if("an AnnData", Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = anndata.read_h5ad(path)
    if data.X is None:
        raise DataError("has no matrix X")
    index = pl.Series("cell", [str(name) for name in data.obs_names])
    return _counts_or_dense(data.X, [str(name) for name in data.var_names], index, reading)


@contextlib.contextmanager
def _damaged_if(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Replace errors of a library by one about the file."""
    try:
        yield
    except errors as error:
        if isinstance(error, PermissionError) and Exception not in errors:
            raise
        raise unreadable(f"damaged, or not {what} file: {error}") from error


def _counts_or_dense(
    matrix: Any, names: list[str] | None, index: Any, reading: Reading
) -> tuple[Table, Choice]:
    """Choose columns of a matrix, which stays sparse if it holds counts.

    The families of counts accept sparse matrices; those of real numbers need dense ones.
    """
    if np.iscomplexobj(matrix):
        raise DataError("complex numbers")
    if matrix.ndim == 2 and 0 in matrix.shape:
        raise DataError(f"an empty matrix, {matrix.shape[0]} × {matrix.shape[1]}")
    if not sp.issparse(matrix):
        return _table(np.asarray(matrix, np.float64), names, index, reading)
    table, choice = _table(sp.csr_matrix(matrix), names, index, reading)
    values = table.X.data
    if (values < 0).any() or (values != np.floor(values)).any():
        if table.n_rows * table.n_columns > _MOST_DENSE:
            raise DataError(
                f"{table.n_rows:,} × {table.n_columns:,} real numbers are too many to"
                " write out; reduce the columns first, for example by TruncatedSVD"
            )
        table.X = np.asarray(table.X.todense(), dtype=np.float64)
    return table, choice


def _table(
    array: Any, names: list[str] | None, index: Any, reading: Reading
) -> tuple[Table, Choice]:
    """Choose columns of a dense or sparse matrix."""
    import polars as pl

    if array.ndim != 2:
        raise DataError(f"an array of {array.ndim} dimensions, not rows and columns")
    choice = choose(names, array.shape[1], reading)
    if choice.categories:
        raise DataError(
            "{place} is a category in the model, but the file has numbers",
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
