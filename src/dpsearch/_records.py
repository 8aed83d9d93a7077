"""NamedTuples of arrays, made by the types of their fields."""

from __future__ import annotations

import functools
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np

T = TypeVar("T", bound=tuple[Any, ...])


def zeros(kind: type[T], size: int, **others: Any) -> T:
    """Return a NamedTuple of arrays of zeros, of the types that its fields are annotated with.

    Each has the length `size`, except for `others`: a length or shape, or the value of a field that
    is not an array.
    """
    return kind(
        *(
            np.zeros(others.get(name, size), dtype) if dtype else others[name]
            for name, dtype in _dtypes(kind)
        )
    )


@functools.cache
def _dtypes(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields, each with its dtype, or None if it is not an array."""
    return [(name, _dtype(hint)) for name, hint in get_type_hints(kind).items()]


def _dtype(hint: Any) -> Any:
    """Return the dtype of an array type, the last parameter of NDArray or of its alias."""
    if parameters := get_args(hint):
        return _dtype(parameters[-1])
    return hint if isinstance(hint, type) and issubclass(hint, np.generic) else None


def copied(old: Any, larger: Any) -> Any:
    """Copy arrays into the beginnings of larger ones."""
    for source, target in zip(old, larger, strict=True):
        target[: len(source)] = source
    return larger
