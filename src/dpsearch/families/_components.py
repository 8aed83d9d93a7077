"""Principal components of a table: how many are above the noise, and their directions.

The threshold for singular values is that of Gavish and Donoho (2014), "The optimal hard threshold
for singular values is 4/√3", for noise of unknown size.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, eigvalsh

from dpsearch._types import Matrix, Vector

_ROWS_COUNTED = 1000  # the most rows by which components are distinguished from noise
_NOTHING = 1e-10  # a smaller share of the variance is rounding
_BLOCK = 4096


def n_components(X: Matrix, mean: Vector, scale: Vector) -> int:
    """Return how many components, at least 1, are above the noise in a sample of the rows."""
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[:_ROWS_COUNTED])
    standard = ((X[rows] - mean) * scale)[:, scale > 0.0]
    short, long = sorted(standard.shape)
    if not short:
        return 1
    wide = len(standard) == short
    gram = standard @ standard.T if wide else standard.T @ standard
    values = np.sqrt(np.maximum(eigvalsh(gram), 0.0))
    noise = np.polyval([0.56, -0.95, 1.82, 1.43], short / long) * np.median(values)
    return max(1, int((values > noise).sum()))


def principal(X: Matrix, mean: Vector, scale: Vector, wanted: int) -> Matrix:
    """Return unit vectors along the columns' leading principal components, largest first.

    The columns are first centred and multiplied by `scale`, in blocks of rows to save memory.
    """
    n_rows, width = X.shape
    size = min(n_rows, width)
    if size == width:
        parts = ((X[at : at + _BLOCK] - mean) * scale for at in range(0, n_rows, _BLOCK))
        gram = np.zeros((width, width))
        for part in parts:
            gram += part.T @ part
    else:  # the same through the smaller matrix
        standard = (X - mean) * scale
        gram = standard @ standard.T
    top = (max(size - wanted, 0), size - 1)
    values, vectors = eigh(gram / n_rows, subset_by_index=top)
    real = values > _NOTHING * width
    values, vectors = values[real][::-1], vectors[:, real][:, ::-1]
    if size < width:
        vectors = standard.T @ vectors / np.sqrt(values * n_rows)
    return np.asarray(vectors.T)
