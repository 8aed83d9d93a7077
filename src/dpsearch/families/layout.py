"""Names for the numbers of a flat vector: a cluster's row of statistics, a family's parameters.

A layout is a NamedTuple class that lists the fields, single numbers first:

    class _Row(NamedTuple):
        n: Count
        constant: Number  # of the predictive
        sums: Counts  # of each column
        logs: Numbers

    ROW = layout.row(_Row)

`ROW` is an instance of that class which holds positions.  Numba takes it as a constant, so that
`row[ROW.constant]` costs what `row[1]` does, and `view(row, ROW.logs, n_features)` what the same
slice does with its offset written out.  In Python, `layout.read(ROW, row, n_features)` gives all
fields by name and `layout.make(ROW, n_features, n=2.0, sums=…)` makes a row.

The vectors of a row all have one length, the number of columns say, which the caller gives.  The
vectors of parameters may have any: their head says where each of them begins.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from dpsearch._jit import inline
from dpsearch._types import Ints, Vector

T = TypeVar("T", bound=tuple[Any, ...])


class Span(NamedTuple):
    """What stands before a vector in a row, and whether it is a lower triangle itself."""

    numbers: int
    vectors: int
    triangles: int
    triangular: int


class _Kind(NamedTuple):
    single: bool = False
    counts: bool = False  # integers that are not below 0
    triangular: bool = False


Number = Annotated[int, _Kind(single=True)]
Count = Annotated[int, _Kind(single=True, counts=True)]
Numbers = Annotated[Span, _Kind()]
Counts = Annotated[Span, _Kind(counts=True)]
# A lower triangle, row after row, of a matrix with as many rows as the vectors have numbers.
Triangle = Annotated[Span, _Kind(triangular=True)]


@inline
def at(span, size):  # type: ignore[no-untyped-def]
    """Return where in a row a vector begins, if vectors have `size` numbers."""
    return span.numbers + span.vectors * size + span.triangles * (size * (size + 1) // 2)


@inline
def view(row, span, size):  # type: ignore[no-untyped-def]
    """Return a vector of a row."""
    begin = at(span, size)
    return row[begin : begin + size + span.triangular * (size * (size - 1) // 2)]


@inline
def view_at(pool, start, span, size):  # type: ignore[no-untyped-def]
    """Return a vector of the row that begins at `start`."""
    begin = start + at(span, size)
    return pool[begin : begin + size + span.triangular * (size * (size - 1) // 2)]


@inline
def table(params, field):  # type: ignore[no-untyped-def]
    """Return a vector of parameters."""
    return params[int(params[field]) : int(params[field + 1])]


@inline
def entry(params, field, i):  # type: ignore[no-untyped-def]
    """Return number i of a vector of parameters."""
    return params[int(params[field]) + int(i)]


@inline
def length(params, field):  # type: ignore[no-untyped-def]
    """Return how many numbers a vector of parameters has."""
    return int(params[field + 1]) - int(params[field])


def row(fields: type[T]) -> T:
    """Return the positions of the fields in a row, for `view`."""
    positions: list[Any] = []
    numbers = vectors = triangles = 0
    for kind in _kinds(fields):
        if kind.single:
            positions.append(numbers)
            numbers += 1
        else:
            positions.append(Span(numbers, vectors, triangles, int(kind.triangular)))
            vectors += not kind.triangular
            triangles += kind.triangular
    return fields(*positions)


def params(fields: type[T]) -> T:
    """Return the positions of the fields in a vector of parameters, for `table`."""
    return fields(*range(len(_kinds(fields))))


def width(layout: NamedTuple, size: int, vectors: int | None = None) -> int:
    """The length of a row, or of one that ends after its first vectors."""
    return sum(_sizes(layout, size, vectors))


def counts(layout: NamedTuple, size: int, vectors: int | None = None) -> Ints:
    """Which numbers of a row are counts, of which kernels may index tables."""
    sizes = _sizes(layout, size, vectors)
    are_counts = [kind.counts for kind in _kinds(type(layout))[: len(sizes)]]
    return np.flatnonzero(np.repeat(are_counts, sizes))


def read(layout: NamedTuple, row: Vector, size: int) -> Any:
    """All fields of a row by name: numbers, and views of vectors; empty where the row ends."""
    parts = np.split(row, np.cumsum(_sizes(layout, size)))
    kinds = _kinds(type(layout))
    pairs = zip(kinds, parts, strict=False)
    return layout._make(part[0] if kind.single else part for kind, part in pairs)


def make(layout: NamedTuple, size: int, vectors: int | None = None, **fields: Any) -> Vector:
    """Make a row from its fields; what is not given is 0."""
    out = np.zeros(width(layout, size, vectors))
    parts = np.split(out, np.cumsum(_sizes(layout, size, vectors))[:-1])
    for name, part in zip(layout._fields, parts, strict=False):
        part[:] = fields.get(name, 0.0)
    return out


def make_params(layout: NamedTuple, **fields: Any) -> Vector:
    """Lay out parameters: the numbers, where the vectors begin and end, the vectors."""
    kinds = _kinds(type(layout))
    numbers = [
        fields[name] for name, kind in zip(layout._fields, kinds, strict=True) if kind.single
    ]
    vectors = [np.asarray(fields[name]) for name in layout._fields[len(numbers) :]]
    begins = len(kinds) + 1 + np.cumsum([0, *map(len, vectors)])
    return np.concatenate([numbers, begins, *vectors]).astype(np.float64)


def _sizes(layout: NamedTuple, size: int, vectors: int | None = None) -> list[int]:
    """How many numbers each field of a row has, up to a number of vectors."""
    triangle = size * (size + 1) // 2
    kinds = _kinds(type(layout))
    end = None if vectors is None else sum(kind.single for kind in kinds) + vectors
    return [1 if k.single else triangle if k.triangular else size for k in kinds[:end]]


@functools.cache
def _kinds(fields: Any) -> tuple[_Kind, ...]:
    hints = get_type_hints(fields, include_extras=True).values()
    return tuple(hint.__metadata__[0] for hint in hints)
