"""Named fields of flat vectors: of a cluster's row of statistics and of a family's parameters.

A layout is a NamedTuple class that lists the fields, single numbers first:

    class _Row(NamedTuple):
        n: Count
        constant: Number  # of the predictive
        sums: Counts  # of each column
        logs: Numbers

    ROW = layout.row(_Row)

`ROW` is an instance of that class which holds positions.  Numba takes it as a constant, so that
`row[ROW.constant]` costs as much as `row[1]`, and `view(row, ROW.logs, n_features)` as much as the
same slice with explicit offsets.  In Python, `layout.read(ROW, row, n_features)` returns all fields
by name, and `layout.make(ROW, n_features, n=2.0, sums=…)` makes a row.

The vectors of a row all have the same length, such as the number of columns, which the caller
gives.  Vectors of parameters may have any length: a head has the beginning of each of them.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numba import types

from dpsearch._jit import as_integer, emit_entry, emit_view, emits
from dpsearch._types import Ints, Matrix, Vector

T = TypeVar("T", bound=tuple[Any, ...])


class Span(NamedTuple):
    """The fields before a vector in a row, and whether the vector is itself a lower triangle."""

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
# A lower triangle, stored row by row, of a matrix with as many rows as the vectors have numbers.
Triangle = Annotated[Span, _Kind(triangular=True)]


def _emit_bounds(builder: Any, span: Any, size: Any) -> tuple[Any, Any]:
    """Emit the beginning of a vector in a row, and its length."""
    numbers, vectors, triangles, triangular = (builder.extract_value(span, i) for i in range(4))
    square = builder.mul(size, size)
    triangle = builder.ashr(builder.add(square, size), size.type(1))
    below_diagonal = builder.sub(triangle, size)
    before = builder.add(builder.mul(vectors, size), builder.mul(triangles, triangle))
    begin = builder.add(numbers, before)
    return begin, builder.add(size, builder.mul(triangular, below_diagonal))


def _emit_at(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    size = as_integer(context, builder, arguments[1], signature.args[1])
    return _emit_bounds(builder, arguments[0], size)[0]


@emits(lambda span, size: types.intp, _emit_at)
def at(span: Any, size: int) -> Any:
    """Return the beginning of a vector in a row whose vectors have `size` numbers."""
    return span.numbers + span.vectors * size + span.triangles * (size * (size + 1) // 2)


def _emit_view(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (row, span, size), kinds = arguments, signature.args
    bounds = _emit_bounds(builder, span, as_integer(context, builder, size, kinds[2]))
    return emit_view(context, builder, kinds[0], row, *bounds)


@emits(lambda row, span, size: row, _emit_view)
def view(row: Vector, span: Any, size: int) -> Any:
    """Return a vector of a row."""
    begin = at(span, size)
    return row[begin : begin + size + span.triangular * (size * (size - 1) // 2)]


def _emit_view_at(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (pool, start, span, size), kinds = arguments, signature.args
    start = as_integer(context, builder, start, kinds[1])
    begin, n = _emit_bounds(builder, span, as_integer(context, builder, size, kinds[3]))
    return emit_view(context, builder, kinds[0], pool, builder.add(start, begin), n)


@emits(lambda pool, start, span, size: pool, _emit_view_at)
def view_at(pool: Vector, start: int, span: Any, size: int) -> Any:
    """Return a vector of the row that begins at `start`."""
    return view(pool[start:], span, size)


def _emit_limits(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, Any]:
    """Emit the beginning and the end of a vector of parameters."""
    params, field = arguments[0], as_integer(context, builder, arguments[1], signature.args[1])
    kind = signature.args[0]
    begin, end = (
        emit_entry(context, builder, kind, params, place)
        for place in (field, builder.add(field, field.type(1)))
    )
    return (
        as_integer(context, builder, begin, kind.dtype),
        as_integer(context, builder, end, kind.dtype),
    )


def _emit_table(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    begin, end = _emit_limits(context, builder, signature, arguments)
    kind = signature.args[0]
    return emit_view(context, builder, kind, arguments[0], begin, builder.sub(end, begin))


@emits(lambda params, field: params, _emit_table)
def table(params: Vector, field: Any) -> Any:
    """Return a vector of parameters."""
    return params[int(params[field]) : int(params[field + 1])]


def _emit_table_entry(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    begin, _ = _emit_limits(context, builder, signature, arguments)
    index = builder.add(begin, as_integer(context, builder, arguments[2], signature.args[2]))
    return emit_entry(context, builder, signature.args[0], arguments[0], index)


@emits(lambda params, field, i: params.dtype, _emit_table_entry)
def entry(params: Vector, field: Any, i: float) -> float:
    """Return number i of a vector of parameters."""
    return float(params[int(params[field]) + int(i)])


def _emit_length(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    begin, end = _emit_limits(context, builder, signature, arguments)
    return builder.sub(end, begin)


@emits(lambda params, field: types.intp, _emit_length)
def length(params: Vector, field: Any) -> int:
    """Return the length of a vector of parameters."""
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
    """Return the length of a row, or of one that ends after its first `vectors`."""
    return sum(_sizes(layout, size, vectors))


def counts(layout: NamedTuple, size: int, vectors: int | None = None) -> Ints:
    """Return the positions of counts in a row, by which kernels may index tables."""
    sizes = _sizes(layout, size, vectors)
    are_counts = [kind.counts for kind in _kinds(type(layout))[: len(sizes)]]
    return np.flatnonzero(np.repeat(are_counts, sizes))


def read(layout: NamedTuple, row: Vector, size: int) -> Any:
    """Return all fields of a row by name: numbers, and views of vectors, empty after its end."""
    parts = np.split(row, np.cumsum(_sizes(layout, size)))
    kinds = _kinds(type(layout))
    pairs = zip(kinds, parts, strict=False)
    return layout._make(part[0] if kind.single else part for kind, part in pairs)


def make(layout: NamedTuple, size: int, vectors: int | None = None, **fields: Any) -> Vector:
    """Return a row with these fields; the others are 0."""
    return np.asarray(make_rows(layout, 1, size, vectors, **fields)[0])


def make_rows(
    layout: NamedTuple, n_rows: int, size: int, vectors: int | None = None, **fields: Any
) -> Matrix:
    """Return several rows with these fields, each [n_rows] or [n_rows, its length]."""
    out = np.zeros((n_rows, width(layout, size, vectors)))
    parts = np.split(out, np.cumsum(_sizes(layout, size, vectors))[:-1], axis=1)
    for name, part in zip(layout._fields, parts, strict=False):
        if name in fields:
            part[:] = np.reshape(fields[name], (n_rows, -1))
    return out


def make_params(layout: NamedTuple, **fields: Any) -> Vector:
    """Return a vector of parameters: the numbers, the beginnings of the vectors, the vectors."""
    kinds = _kinds(type(layout))
    numbers = [
        fields[name] for name, kind in zip(layout._fields, kinds, strict=True) if kind.single
    ]
    vectors = [np.asarray(fields[name]) for name in layout._fields[len(numbers) :]]
    begins = len(kinds) + 1 + np.cumsum([0, *map(len, vectors)])
    return np.concatenate([numbers, begins, *vectors]).astype(np.float64)


def _sizes(layout: NamedTuple, size: int, vectors: int | None = None) -> list[int]:
    """Return the length of each field of a row, up to a number of vectors."""
    triangle = size * (size + 1) // 2
    kinds = _kinds(type(layout))
    end = None if vectors is None else sum(kind.single for kind in kinds) + vectors
    return [1 if k.single else triangle if k.triangular else size for k in kinds[:end]]


@functools.cache
def _kinds(fields: Any) -> tuple[_Kind, ...]:
    hints = get_type_hints(fields, include_extras=True).values()
    return tuple(hint.__metadata__[0] for hint in hints)
