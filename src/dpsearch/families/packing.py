"""Concatenated data rows, with the types that kernels are compiled for."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch.items import Items


def without_zeros(X: Any) -> Any:
    """Return counts as a CSR matrix that stores no zeros; X itself is not changed."""
    encoded = sp.csr_matrix(X)
    if (encoded.data == 0.0).any():
        encoded = encoded.copy()
        encoded.eliminate_zeros()
    return encoded


def row_sums(X: Any, values: Any = None) -> Any:
    """Return the sum of each row of a CSR matrix, or of other values at its entries."""
    values = X.data if values is None else values
    terms = sp.csr_matrix((values, X.indices, X.indptr), shape=X.shape)
    return np.asarray(terms.sum(axis=1)).reshape(-1)


def pack(X: Any) -> Items:
    """Concatenate dense or CSR rows as items, unless the family has done so."""
    if isinstance(X, Items):
        return X
    sizes = np.ones(X.shape[0], np.int64)
    if sp.issparse(X):
        return Items(
            writable(np.ascontiguousarray(X.data, dtype=np.float64)),
            writable(np.ascontiguousarray(X.indices, dtype=np.int32)),
            writable(np.ascontiguousarray(X.indptr, dtype=np.int64)),
            sizes,
            False,
        )
    n_rows, width = X.shape
    indptr = width * np.arange(n_rows + 1, dtype=np.int64)
    values = writable(np.ascontiguousarray(X, dtype=np.float64).reshape(-1))
    return Items(values, np.empty(0, np.int32), indptr, sizes, False)


class _Unlocked:
    """A view of a read-only array that claims to be writable."""

    def __init__(self, array: Any) -> None:
        self.array = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}


def writable(array: Any) -> Any:
    """Return the array with the one type that kernels are compiled for.

    Numba has a separate type for read-only arrays, such as memory maps and those of joblib.
    Kernels never write to data, so no copy is needed.
    """
    return array if array.flags.writeable else np.asarray(_Unlocked(array))


def unlocked(state: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as kernels need them; arrays sent by joblib or Dask may be read-only."""
    return {name: _as_writable(value) for name, value in state.items()}


def _as_writable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return writable(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_as_writable, value))
    return value
