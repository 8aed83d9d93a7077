"""Arrays of other libraries than NumPy: how to recognise them, and how to convert them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def is_foreign(X: Any) -> bool:
    """Whether X is an array of another library such as PyTorch, CuPy or JAX, on a GPU or not."""
    return hasattr(type(X), "__dlpack__") and not isinstance(X, (np.ndarray, np.generic))


def is_torch(X: Any) -> bool:
    """Whether an array is a tensor of PyTorch."""
    return type(X).__module__.split(".")[0] == "torch"


def on_gpu(X: Any) -> bool:
    """Whether an array is in the memory of a GPU."""
    return (is_torch(X) and X.is_cuda) or type(X).__module__.split(".")[0] == "cupy"


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix of SciPy, or a sparse tensor."""
    return sp.issparse(X) or (is_torch(X) and str(X.layout) != "torch.strided")


def to_host(X: Any) -> Any:
    """Return an array of NumPy with the same values; a CSR matrix for a sparse tensor."""
    if is_torch(X):
        X = X.detach().cpu()
        return X.numpy() if not is_sparse(X) else _csr(X)
    return X.get() if on_gpu(X) else np.asarray(X)


def _csr(X: Any) -> Any:
    if str(X.layout) == "torch.sparse_csr":
        parts = (X.values(), X.col_indices(), X.crow_indices())
        return sp.csr_matrix(tuple(map(to_host, parts)), shape=tuple(X.shape))
    X = X.to_sparse().coalesce()
    entries = (to_host(X.values()), to_host(X.indices()))
    return sp.coo_matrix(entries, shape=tuple(X.shape)).tocsr()
