"""Where rows are worked on: `open_rows` takes data to a device, or finds them there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dpsearch._arrays import is_sparse, is_torch, on_gpu, to_host
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.families.linear import LinearForm, namespace
from dpsearch.passes import arrays, chunk
from dpsearch.passes.chunk import Candidates, Own, Seeds, Soft, Totals
from dpsearch.passes.csr_rows import CsrRows
from dpsearch.passes.dense_rows import DenseRows
from dpsearch.passes.rows import Rows

T = TypeVar("T")


class DividedRows:
    """Rows that are divided over several places, each with a thread of its own."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self.parts = parts
        self._edges = list(itertools.accumulate((part.n_rows for part in parts), initial=0))
        self.n_rows = self._edges[-1]

    def _each(self, work: Callable[[Any], T]) -> list[T]:
        with ThreadPoolExecutor(len(self.parts)) as threads:
            return list(threads.map(work, self.parts))

    def place(self, labels: Labels | None) -> None:
        for part, (a, b) in zip(self.parts, itertools.pairwise(self._edges), strict=True):
            part.place(None if labels is None else labels[a:b])

    def totals(self, n_clusters: int) -> Totals:
        return _added(self._each(lambda part: part.totals(n_clusters)))

    def assign(self, candidates: Candidates) -> Totals:
        return _added(self._each(lambda part: part.assign(candidates)))

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        found = self._each(lambda part: part.soften(weights, constants, own))
        out: Soft = found[0]
        for one in found[1:]:
            out += one
        return out

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        self._each(lambda part: part.decide(of_candidates, of_clusters))

    def draw(self, counts: Ints, seed: int) -> Seeds:
        return chunk.least(self._each(lambda part: part.draw(counts, seed)), counts)

    def labels(self) -> Any:
        """Return the cluster of each row, where the first of them are."""
        found = [part.labels() for part in self.parts]
        xp, where = namespace(found[0]), arrays.device_of(found[0])
        return xp.concat([found[0], *(arrays.moved(one, where) for one in found[1:])])


def _added(totals: list[Totals]) -> Totals:
    out = totals[0]
    for one in totals[1:]:
        out += one
    return out


def check_device(device: Any) -> None:
    """Raise unless there is such a device."""
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise ParameterError(
            f"{{parameter}} must be None, 'cpu', 'cuda' or 'cuda:' and a number, got {device!r}",
            parameter="device",
        )
    if device not in (None, "cpu"):
        _places(device)


def open_rows(form: LinearForm, X: Any, device: str | None = None) -> Rows:
    """Return rows for passes over X on a device.

    Parameters
    ----------
    X
        Rows of numbers: an array of NumPy, PyTorch, CuPy or another library that follows the array
        API or DLPack; or counts in CSR, of SciPy or PyTorch.  What is on a GPU is used there.
    device
        None for where X is, "cpu", "cuda" for all GPUs (rows that come from elsewhere are divided
        over them), or one of them, as in "cuda:1".
    """
    check_device(device)
    if is_sparse(X):
        return _open_sparse(form, X, device)
    X = _floating(_known(X))
    if X.ndim != 2:
        raise DataError(f"the data must have rows and columns, got {X.ndim} dimensions")
    if device is None or (device == "cpu" and not on_gpu(X)):
        return DenseRows(form, X)
    if device == "cuda" and on_gpu(X):
        return DenseRows(form, X)
    places = _places(device)
    X = arrays.tensor(X)
    edges = np.linspace(0, X.shape[0], len(places) + 1).astype(int)
    spans = list(zip(places, itertools.pairwise(edges.tolist()), strict=True))
    parts = [DenseRows(form, X[a:b].to(place), a) for place, (a, b) in spans]
    return parts[0] if len(parts) == 1 else DividedRows(parts)


def _open_sparse(form: LinearForm, X: Any, device: str | None) -> Rows:
    if not sp.issparse(X):
        device, X = device or str(X.device), to_host(X)
    places = _places(device or "cpu")
    edges = np.linspace(0, X.shape[0], len(places) + 1).astype(int).tolist()
    spans = zip(places, itertools.pairwise(edges), strict=True)
    parts = [CsrRows(form, X[a:b], place, a) for place, (a, b) in spans]
    return parts[0] if len(parts) == 1 else DividedRows(parts)


def _known(X: Any) -> Any:
    """Return an array that has a namespace: others come by DLPack."""
    if isinstance(X, np.ndarray):
        return X
    from array_api_compat import is_array_api_obj, is_jax_array

    if is_array_api_obj(X) and not is_jax_array(X):
        return X.detach() if is_torch(X) else X
    if hasattr(X, "__dlpack__"):
        return arrays.torch().from_dlpack(X)
    return np.asarray(X)


def _floating(X: Any) -> Any:
    """Return the numbers in float32 or float64; whole ones in float64."""
    xp = namespace(X)
    return X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)


def _places(device: str) -> list[Any]:
    """Return the devices of PyTorch that are meant; raise an error if there are none."""
    torch = arrays.torch()
    if device == "cpu":
        return [torch.device("cpu")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise CapabilityError(
            f"{{parameter}} is {device!r}, but PyTorch {torch.__version__} sees no GPU: install a"
            f" driver and a PyTorch built for it ({arrays.INSTALL}, see https://pytorch.org),"
            " or leave the device out",
            parameter="device",
        )
    if device == "cuda":
        return [torch.device("cuda", number) for number in range(count)]
    number = int(device.split(":")[1])
    if number >= count:
        raise ParameterError(
            f"{{parameter}} is {device!r}, but there are {count} GPUs, counted from 0",
            parameter="device",
        )
    return [torch.device("cuda", number)]
