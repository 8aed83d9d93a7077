"""Checks of tables and parameters that users pass."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from dpsearch._arrays import is_foreign, to_host
from dpsearch._types import ArrayLike, Matrix, Vector
from dpsearch.errors import DataError, DataTypeError, ParameterError

# Squares of larger values, summed over a data set, leave the range of double precision.
LARGEST = 1e150
_BLOCK = 2**15  # numbers that fit into the second-level cache
# Log-gammas of larger counts have rounding errors above 0.01; clusterings may differ by less.
MOST_COUNTED = 2.0**40
_MISSING = (
    "Input X contains NaN: X at {place} is missing. Gaps are allowed only in dense data, under"
    " families whose columns are independent given the cluster, such as diagonal_gaussian,"
    " log_normal and categorical"
)


def column_names(X: ArrayLike) -> list[str] | None:
    """Return the column names of a pandas or polars frame, None for anything else."""
    if isinstance(X, np.ndarray) or not hasattr(X, "shape"):
        return None
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def is_array(X: Any) -> bool:
    """Whether X is a table of numbers by rows: an array, a memory map or a sparse matrix."""
    if sp.issparse(X):
        return bool(X.format == "csr" and X.ndim == 2)
    plain = isinstance(X, np.ndarray) and not np.ma.isMaskedArray(X)
    return bool(plain and X.ndim == 2 and X.dtype.kind in "biuf")


def name_column(names: list[str] | None, j: int) -> int | str:
    """Return a column's name for errors, or its index if it has none."""
    return j if names is None else names[j]


def has_gaps(X: Any) -> bool:
    """Whether a checked matrix has missing values, which are NaN; a sparse one has none."""
    return not sp.issparse(X) and bool(np.isnan(X.min()))


def is_lazy(X: Any) -> bool:
    """Whether X is a lazy frame of polars, without importing that."""
    return type(X).__name__ == "LazyFrame" and type(X).__module__.split(".")[0] == "polars"


def readable(X: Any) -> Any:
    """Return X, with lazy frames collected and other libraries' arrays converted to NumPy's.

    Raise an error if it stands for a table but cannot be read as one.
    """
    if is_lazy(X):
        return X.collect()
    if is_foreign(X):
        return to_host(X)
    if isinstance(X, (str, os.PathLike)):
        raise DataError(
            f"X is the path {str(X)!r}, but a table is needed here: read the file first"
        )
    if isinstance(X, Mapping) and not sp.issparse(X):
        raise DataError(
            f"X is a {type(X).__name__}, not a table: convert it with pandas.DataFrame or"
            " polars.DataFrame"
        )
    kind = f"{type(X).__module__.split('.')[0]} {type(X).__name__}"
    if kind in ("pyarrow Table", "pyarrow RecordBatch"):
        raise DataError(f"X is a {kind}: convert it with to_pandas() or polars.from_arrow")
    return X


def as_matrix(X: ArrayLike, *, accept_sparse: bool = True, gaps: bool = False) -> Any:
    """Return X as a C-contiguous float64 array or a canonical CSR matrix of finite values.

    With `gaps` a dense X may have missing values (NaN, None, pandas's NA, masked), which become
    NaN.
    """
    return read_matrix(X, accept_sparse, gaps)[0]


def read_matrix(X: ArrayLike, accept_sparse: bool, gaps: bool) -> tuple[Any, bool]:
    """Return the matrix that `as_matrix` returns, and whether it is complete."""
    X = readable(X)
    names = column_names(X)
    if sp.issparse(X):
        if not accept_sparse:
            refuse_sparse()
        return _as_sparse(X, names), True
    array = _as_array(X)
    if np.ma.is_masked(X):
        masked = np.ma.getmaskarray(X)
        if not gaps:
            i, j = np.argwhere(masked)[0]
            raise DataError(_MISSING, row=i, column=name_column(names, j))
        array = np.where(masked, np.nan, array)
    if gaps and array.dtype.kind == "O":
        missing = np.frompyfunc(_is_missing, 1, 1)(array).astype(bool)
        array = np.where(missing, np.nan, array)
    if array.dtype.kind not in "biufO":  # NumPy would convert dates and texts to numbers
        raise _not_a_number(array, names)
    try:
        dense = np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_a_number(array, names) from error
    width = dense.shape[1]
    complete = _check_finite(
        dense.reshape(-1),
        lambda at: {"row": at // width, "column": name_column(names, at % width)},
        gaps=gaps,
    )
    return dense, complete


def _as_sparse(X: Any, names: list[str] | None) -> Any:
    """Return a sparse X as a canonical CSR matrix of finite values."""
    _check_form(X)
    matrix = sp.csr_matrix(X)
    try:
        matrix.check_format(full_check=True)  # kernels index without further checks
    except ValueError as error:
        raise DataError(f"X is not a valid sparse matrix: {error}") from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the next line works in place, and the data are the user's
        matrix.sum_duplicates()
    matrix = matrix.astype(np.float64, copy=False)
    _check_finite(matrix.data, lambda at: _sparse_place(matrix, at, names))
    return matrix


def _as_array(X: Any) -> Any:
    """Return a dense X as an array with two dimensions, of any type."""
    if hasattr(X, "to_numpy") and not isinstance(X, np.ndarray):
        X = X.to_numpy()
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise DataError("X is not a table: its rows differ in length") from error
    _check_form(array)
    return array


def refuse_sparse() -> NoReturn:
    raise DataError("X is sparse, which this family does not accept: use X.toarray()")


def refuse_missing(X: Matrix, names: list[str] | None) -> NoReturn:
    """Raise `DataError` about the first missing value of a matrix."""
    row, column = np.argwhere(np.isnan(X))[0]
    raise DataError(_MISSING, row=row, column=name_column(names, column))


def _check_form(X: Any) -> None:
    """Raise unless X has rows and columns of real numbers, in scikit-learn's words."""
    if np.iscomplexobj(X):
        raise DataError(f"Complex data not supported: X has type {X.dtype}")
    if X.ndim == 0 and X.dtype == object:
        raise DataError(
            "Expected 2D array, got 0D array instead: X must be an array, a sparse matrix or"
            f" a frame, got {type(X.item()).__name__!r}"
        )
    if X.ndim != 2:
        raise DataError(
            f"Expected 2D array, got {X.ndim}D array instead: X must have rows and columns."
            " Reshape your data with array.reshape(-1, 1) if it has a single feature or"
            " array.reshape(1, -1) if it contains a single sample."
        )
    if 0 in X.shape:
        what = "sample(s)" if X.shape[0] == 0 else "feature(s)"
        raise DataError(
            f"0 {what} (shape={tuple(X.shape)}) while a minimum of 1 is required: X is empty"
        )


def _is_missing(value: Any) -> bool:
    """Whether an object is None, NaN or pandas's NA or NaT."""
    return value is None or str(value) in ("nan", "<NA>", "NaT")


def _not_a_number(array: Any, names: list[str] | None) -> Exception:
    """Return the error about the first cell that is not a number."""
    for i, j in np.ndindex(*array.shape):
        value = array[i, j]
        try:
            float(value)
        except (TypeError, ValueError, OverflowError) as error:
            place: dict[str, Any] = {"row": i, "column": name_column(names, j)}
            what = "X at {place} is"
            if isinstance(error, OverflowError):
                return DataError(f"{what} too large for a number in double precision", **place)
            if _is_missing(value):
                return DataError(_MISSING, **place)
            if isinstance(value, str):
                return DataError(f"{what} {str(value)!r}, not a number", **place)
            return DataTypeError(
                f"{what} {value!r}: argument must be a string or a real number", **place
            )
    # Dates in nanoseconds, which Python converts to numbers.
    return DataError(
        f"{{place}} of X has type {array.dtype}, not numbers", column=name_column(names, 0)
    )


def _sparse_place(matrix: Any, at: int, names: list[str] | None) -> dict[str, Any]:
    row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
    return {"row": row, "column": name_column(names, int(matrix.indices[at]))}


def largest_magnitude(values: Any) -> float:
    """Return the largest |x| of an array, 0 if it is empty, NaN if a value is missing.

    It reads memory once: the maximum and the minimum of a block are found while it is in the cache.
    """
    flat = values.reshape(-1)
    extremes = [0.0]
    with np.errstate(invalid="ignore"):
        for at in range(0, flat.size, _BLOCK):
            block = flat[at : at + _BLOCK]
            extremes += [block.max(), -block.min()]
    return float(np.max(extremes))


def is_below(limit: float, values: Any) -> bool:
    """Whether every |x| of an array is at most the limit, and none is missing.

    A block whose norm is at most the limit has no larger value, and summing squares takes half the
    time of comparing.
    """
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = (flat[at : at + _BLOCK] for at in range(0, flat.size, _BLOCK))
        if all(block @ block <= limit * limit for block in blocks):
            return True
    return largest_magnitude(values) <= limit


def _check_finite(values: Any, place: Any, *, gaps: bool = False) -> bool:
    """Raise if a value is not finite; return whether there are no gaps, if these are allowed."""
    if is_below(LARGEST, values):
        return True
    bad = ~(np.abs(values) <= LARGEST)
    if gaps:
        bad &= ~np.isnan(values)
        if not bad.any():
            return False
    at = int(np.flatnonzero(bad)[0])
    value = values[at]
    if np.isnan(value):
        raise DataError(_MISSING, **place(at))
    if np.isinf(value):
        raise DataError(f"Input X contains infinity: X at {{place}} is {value}", **place(at))
    raise DataError(
        f"X at {{place}} is {value:.3g}: magnitudes above {LARGEST:.0e} cannot be squared in"
        " double precision; rescale the column",
        **place(at),
    )


def positive(value: Any, name: str) -> float:
    """Return a finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ParameterError.must(name, "be a number above 0", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (np.isfinite(number) and number > 0.0):
        raise ParameterError.must(name, "be a finite number above 0", value)
    return number


def _is_whole(value: Any, least: int) -> bool:
    return (
        not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= least
    )


def whole(value: Any, name: str, least: int) -> int:
    """Return an integer of at least `least` as an int; True and False are refused."""
    if not _is_whole(value, least):
        raise ParameterError.must(name, f"be an integer ≥ {least}", value)
    return int(value)


def as_image_shape(shape: Any, n_pixels: int, name: str) -> tuple[int, int]:
    """Return height and width of images with `n_pixels` pixels."""
    try:
        height, width = shape
    except (TypeError, ValueError) as error:
        raise ParameterError.must("image_shape", "be (height, width)", shape) from error
    if not (_is_whole(height, 1) and _is_whole(width, 1)):
        raise ParameterError.must("image_shape", "be two integers ≥ 1", shape)
    if height * width != n_pixels:
        raise ParameterError.of(
            "image_shape",
            f"{height}×{width} has {height * width} pixels, but {name} has {n_pixels} columns",
        )
    return int(height), int(width)


def per_column(value: Any, n_features: int, name: str, *, above_zero: bool) -> Vector:
    """Broadcast a scalar or a vector of hyperparameters over the columns."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError.of(name, "must be a number or one number per column") from error
    if vector.ndim > 1 or (vector.ndim == 1 and len(vector) not in (1, n_features)):
        raise ParameterError.of(
            name, f"has shape {vector.shape}, but the data have {n_features} columns"
        )
    vector = np.full(n_features, vector)
    bad = ~np.isfinite(vector) | (vector <= 0.0 if above_zero else False)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        wanted = "finite and above 0" if above_zero else "finite"
        raise ParameterError.of(
            name, f"must be {wanted}, got {vector[at]} for {{place}}", column=at
        )
    return vector


def check_counts(X: Any, family: str) -> None:
    """Raise unless every value is an integer ≥ 0, and their total at most `MOST_COUNTED`.

    Gaps are left out.
    """
    values = X.data if sp.issparse(X) else X.reshape(-1)
    bad = (values < 0.0) | (values > np.floor(values)) | (values > MOST_COUNTED)
    if not bad.any():
        total = np.nansum(values)
        if total > MOST_COUNTED:
            raise DataError(
                f"the {family} family takes counts up to {MOST_COUNTED:.3g} in all, but those of X"
                f" add up to {total:.3g}"
            )
        return
    all_bad = np.flatnonzero(bad)
    at = int(all_bad[0])
    kind = "too large." if values[at] > MOST_COUNTED else "not an integer."
    if values[at] < 0:  # the second sentence is scikit-learn's
        kind = "negative. Negative values in data passed to DPMixture with counts cannot be used."
    raise DataError(
        f"the {family} family takes counts, but X at {{place}} is {values[at]:g}, which is {kind}",
        **place_of(X, all_bad),
    )


def place_of(X: Any, at: Any) -> dict[str, Any]:
    """Return the row and column of the first of some flat indices, and all `cells`."""
    if sp.issparse(X):
        return _sparse_place(X, int(at[0]), None)
    rows, columns = np.divmod(at, X.shape[1])
    cells = rows, columns, X.reshape(-1)[at]
    return {"row": int(rows[0]), "column": int(columns[0]), "cells": cells}


def as_rng(rng: Any) -> np.random.Generator:
    """Return a Generator for None, a seed or a Generator (SPEC 7)."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        wanted = "be None, an integer or a numpy Generator"
        raise ParameterError.must("rng", wanted, rng) from error


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads for `n_jobs` by joblib's rules; None means one."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ParameterError.must("n_jobs", "be an integer other than 0 or None", n_jobs)
    cores = os.cpu_count() or 1
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))
