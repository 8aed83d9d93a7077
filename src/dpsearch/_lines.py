"""Lines of memory, the eight numbers that a processor reads at once.

A vector of eight numbers that is not a line lies in two of them.  Where loops are short, that and
what LLVM puts before and after a loop take longer than the loop.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import register_jitable

from dpsearch._jit import emits

LINE = 8
_INTEGER, _NUMBERS = ir.IntType(64), ir.VectorType(ir.DoubleType(), LINE)


def _emit_before_line(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    place = builder.lshr(builder.ptrtoint(data, _INTEGER), _INTEGER(3))
    return builder.and_(builder.neg(place), _INTEGER(LINE - 1))


@emits(lambda vector: types.intp, _emit_before_line)
def _before_line(vector: Any) -> Any:
    """Return how many numbers a vector has before a line begins."""
    return -(vector.ctypes.data // 8) % LINE


@register_jitable  # type: ignore[untyped-decorator]
def room_in_lines(size: Any) -> Any:
    """Return a new vector that begins where a line does."""
    room = np.empty(size + LINE - 1)
    first = _before_line(room)
    return room[first : first + size]


def _emit_product(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    left, right = (
        context.make_array(kind)(context, builder, vector)
        for kind, vector in zip(signature.args, arguments, strict=True)
    )
    n = builder.extract_value(left.shape, 0)
    total = cgutils.alloca_once_value(builder, _NUMBERS([0.0] * LINE))
    with cgutils.for_range_slice(builder, n.type(0), n, n.type(LINE), n.type, True) as (at, _):
        lines = [
            builder.load(builder.bitcast(place, _NUMBERS.as_pointer()), align=8)
            for place in (builder.gep(vector.data, [at]) for vector in (left, right))
        ]
        product = builder.fmul(*lines, flags=("contract",))
        builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)
    out = builder.load(total)
    for size in (4, 2, 1):
        places = ir.VectorType(ir.IntType(32), size)
        low, high = (
            builder.shuffle_vector(out, out, places(list(range(first, first + size))))
            for first in (0, size)
        )
        out = builder.fadd(low, high)
    return builder.extract_element(out, ir.IntType(32)(0))


@emits(lambda left, right: types.float64, _emit_product)
def product_of_lines(left: Any, right: Any) -> Any:
    """Return the inner product of vectors whose length is a multiple of eight."""
    return left @ right
