"""Arrays of PyTorch, CuPy and others of the array API: where they are, and how they travel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._arrays import is_torch, on_gpu, to_host
from dpsearch._threads import together
from dpsearch.errors import CapabilityError
from dpsearch.families.linear import namespace
from dpsearch.passes.chunk import Totals
from dpsearch.passes.rows import CHUNK_NUMBERS

INSTALL = 'pip install "dpsearch[gpu]"'

_MOST_NUMBERS = 1 << 28  # of a chunk on a GPU: longer ones are no faster
_PART = 1 << 12  # totals of clusters that a thread computes something of, at least
_MOST_PARTS = 32
_SHARE = 16  # of the free memory that a chunk may take; a pass has several arrays of its size


def torch() -> Any:
    """Return PyTorch, or raise an error that says how to get it."""
    try:
        import torch as module
    except ImportError:
        raise CapabilityError("{parameter} needs PyTorch: " + INSTALL, parameter="device") from None
    return module


def device_of(X: Any) -> Any:
    """Return the device that an array is on."""
    if isinstance(X, np.ndarray):
        return "cpu"
    from array_api_compat import device

    return device(X)


def here(totals: Totals) -> Totals:
    """Return totals as arrays of NumPy."""
    return Totals(*map(to_host, totals))


def taken(totals: Totals, which: Any) -> Totals:
    """Return some of the clusters, where they are; None for all."""
    if which is None:
        return totals
    xp = namespace(totals.sums)
    return Totals(*(xp.take(x, which, axis=0) for x in totals))


def spread(values: Any, places: Any, rest: float) -> Any:
    """Return values at places; `rest` where the place is beyond them.  None: where they are."""
    if places is None:
        return values
    xp = namespace(values)
    values = xp.concat([values, xp.full_like(values[:1, ...], rest)])
    return xp.take(values, places, axis=0)


def by_parts(function: Any, totals: Totals, rows: Any) -> Any:
    """Return a function of totals, which the threads of rows compute for some clusters each.

    Which clusters these are does not depend on the number of threads, so that no bit does.
    """
    threads, n = getattr(rows, "n_threads", None), totals.sizes.shape[0]
    step = max(_PART // totals.sums.shape[1], -(-n // _MOST_PARTS), 1)
    if threads is None or n <= step:
        return function(*totals)
    begins = range(0, n, step)
    found = together(
        lambda i: function(*totals.take(slice(begins[i], begins[i] + step))), len(begins), threads
    )
    if isinstance(found[0], tuple):
        return tuple(np.concatenate(part) for part in zip(*found, strict=True))
    return np.concatenate(found)


def tensor(X: Any) -> Any:
    """Return an array as a tensor, without a copy where that is possible."""
    if isinstance(X, np.ndarray):
        return torch().from_numpy(X if X.flags.writeable else X.copy())
    return X if is_torch(X) else torch().from_dlpack(X)


def moved(X: Any, device: Any) -> Any:
    """Return an array on another device."""
    from array_api_compat import to_device

    return X if device_of(X) == device else to_device(X, device)


def free_bytes(X: Any) -> int | None:
    """Return how much memory is free where an array is; None if that is not known."""
    if not on_gpu(X):
        return None
    if not is_torch(X):
        return int(X.device.mem_info[0])
    cuda = torch().cuda
    unused = cuda.memory_reserved(X.device) - cuda.memory_allocated(X.device)
    return int(cuda.mem_get_info(X.device)[0]) + int(unused)


def chunk_numbers(X: Any) -> int:
    """Return of how many numbers a chunk may be where an array is."""
    free = free_bytes(X)
    return CHUNK_NUMBERS if free is None else min(_MOST_NUMBERS, max(free // 8 // _SHARE, 1))


def lacks_memory(error: Exception) -> bool:
    """Whether an error says that memory is used up; PyTorch and CuPy have errors of their own."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "not enough memory" in text


def release(xp: Any) -> None:
    """Give memory back that a library keeps for later."""
    if xp.__name__.endswith("torch"):
        torch().cuda.empty_cache()


def put(target: Any, places: Any, values: Any) -> Any:
    """Return `target` with values at places; in place where arrays can be written to."""
    try:
        target[places] = values
    except (IndexError, TypeError):  # the array API itself has no such assignment
        out = to_host(target).copy()
        out[to_host(places)] = to_host(values)
        return namespace(target).asarray(out, device=device_of(target))
    return target
