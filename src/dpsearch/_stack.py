"""A few numbers of scratch space for `@pointer` functions, which may not allocate."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

_vector = types.Array(types.float64, 1, "C")


@intrinsic  # type: ignore[untyped-decorator]
def stack_vector(typing_context: Any) -> Any:
    """Return 64 numbers of the calling function's own, which it need not allocate."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        data = cgutils.alloca_once(builder, context.get_value_type(types.float64), size=64)
        array = make_array(_vector)(context, builder)
        word = context.get_constant(types.intp, 8)
        populate_array(
            array,
            data=data,
            shape=[context.get_constant(types.intp, 64)],
            strides=[word],
            itemsize=word,
            meminfo=None,
        )
        return array._getvalue()

    return _vector(), codegen
