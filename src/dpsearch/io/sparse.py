"""Matrix Market by SciPy, SVMlight by scikit-learn, AnnData by anndata: mostly counts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch.errors import DataError
from dpsearch.io.arrays import table_of_array
from dpsearch.io.choice import Choice
from dpsearch.io.table import Reading, Table, unreadable

_MOST_DENSE = 1 << 27  # cells of a sparse matrix of real numbers that are written out


def read_matrix_market(path: Path, reading: Reading) -> tuple[Table, Choice]:
    from scipy.io import mmread

    try:
        matrix = mmread(path)
    except (ValueError, EOFError, OverflowError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise unreadable(f"damaged, or not a Matrix Market file: {error}") from error
    return _table(matrix, None, None, reading)


def read_svmlight(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """The labels that such files begin their lines with are not looked at."""
    from sklearn.datasets import load_svmlight_file

    try:
        matrix, _ = load_svmlight_file(str(path))
    except (ValueError, EOFError, OverflowError, IndexError) as error:
        raise unreadable(f"damaged, or not an SVMlight file: {error}") from error
    return _table(matrix, None, None, reading)


def read_anndata(path: Path, reading: Reading) -> tuple[Table, Choice]:
    """Cells by genes, with their names."""
    try:
        import anndata
    except ImportError as error:
        raise DataError(".h5ad files need anndata: pip install 'dpsearch[anndata]'") from error
    import polars as pl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names and formats of old
            data = anndata.read_h5ad(path)
    except Exception as error:  # h5py's errors share no base
        raise unreadable(f"damaged, or not an AnnData file: {error}") from error
    if data.X is None:
        raise DataError("has no matrix X")
    index = pl.Series("cell", [str(name) for name in data.obs_names])
    names = [str(name) for name in data.var_names]
    return _table(data.X, names, index, reading)


def _table(
    matrix: Any, names: list[str] | None, index: Any, reading: Reading
) -> tuple[Table, Choice]:
    if np.iscomplexobj(matrix):
        raise DataError("complex numbers")
    if matrix.ndim == 2 and 0 in matrix.shape:
        raise DataError(f"an empty matrix, {matrix.shape[0]} × {matrix.shape[1]}")
    if not sp.issparse(matrix):
        return table_of_array(np.asarray(matrix, np.float64), names, index, reading)
    table, choice = table_of_array(sp.csr_matrix(matrix), names, index, reading)
    values = table.X.data
    counts = bool((values >= 0).all() and (values == np.floor(values)).all())
    # Sparse matrices are for counts; the families of real numbers take dense ones.
    if not counts:
        if table.n_rows * table.n_columns > _MOST_DENSE:
            raise DataError(
                f"{table.n_rows:,} × {table.n_columns:,} real numbers are too many to"
                " write out; reduce the columns first, for example by TruncatedSVD"
            )
        table.X = np.asarray(table.X.todense(), dtype=np.float64)
    return table, choice
