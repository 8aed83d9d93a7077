"""Special functions for kernels: logarithms, exponentials and ratios of gamma functions."""

from __future__ import annotations

import math
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba import types
from numba.extending import intrinsic
from scipy.special import gammaln

from dpsearch._jit import inner
from dpsearch._types import Vector

LOG_2 = math.log(2.0)
LOG_2PI = math.log(2.0 * math.pi)
# The coefficients of R in `vector_log`, and log 2 in two parts, from fdlibm.
_R1, _R2, _R3 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01
_R4, _R5, _R6 = 2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01
_R7 = 1.479819860511658591e-01
_LOG_2_HIGH, _LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PER_LOG_2 = 1.0 / LOG_2
# 1/k!, for `vector_exp`.
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (
    1.0 / math.factorial(k) for k in range(2, 14)
)


def log_gamma_table(offset: float, size: int) -> Vector:
    """Return log Γ(offset + j) for j = 0 … size − 1."""
    return np.asarray(gammaln(offset + np.arange(size)), dtype=np.float64)


@intrinsic  # type: ignore[untyped-decorator]
def _bits(typing_context: Any, x: Any) -> Any:
    """Return the bits of a double as an integer."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _double(typing_context: Any, bits: Any) -> Any:
    """Return the double with these bits."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.int64), codegen


bits_of: Any = _bits  # for callers whose types are checked


@inner
def exponent(x: float) -> Any:
    """Return the power of two in a normal number above 0.

    >>> exponent(0.75)
    -1
    """
    return np.int32((bits_of(x) >> 52) - 0x3FF)


@inner
def with_exponent(x: float, power: Any) -> float:
    """Return a normal number above 0 with another power of two.

    >>> with_exponent(0.75, 3)
    12.0
    """
    bits = bits_of(x) & 0x000FFFFFFFFFFFFF
    return _double(bits | ((np.int64(power) + 0x3FF) << 52))  # type: ignore[call-arg, no-any-return]


@inner
def vector_log(x: float) -> float:
    """Return log x of a normal number above 0, by arithmetic that loops can vectorise.

    The method is that of Sun's fdlibm, e_log.c (1993): x = 2ᵏ(1 + f) with 1 + f between √½ and √2,
    s = f/(2 + f), and log(1 + f) = f − f²/2 + s(f²/2 + R(s²)).  The error is less than a unit in
    the last place.

    >>> round(vector_log(10.0), 12)
    2.302585092994
    """
    bits = _bits(x) + (0x3FF0000000000000 - 0x3FE6A09E00000000)  # type: ignore[call-arg]
    k = float(np.int32((bits >> 52) - 0x3FF))
    f = _double((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E00000000) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = z * (_R1 + w * (_R3 + w * (_R5 + w * _R7)))
    even = w * (_R2 + w * (_R4 + w * _R6))
    half = 0.5 * f * f
    low = s * (half + odd + even) + k * _LOG_2_LOW
    return low - half + f + k * _LOG_2_HIGH


@inner
def vector_exp(x: float) -> float:
    """Return exp x of a number that is at most 0, by arithmetic that loops can vectorise.

    x = k log 2 + r with |r| ≤ ½ log 2, and exp r is Taylor's polynomial in Horner's form.  The
    result is 0 for x below −690.

    >>> round(vector_exp(-1.0), 12)
    0.367879441171
    """
    near = max(x, -690.0)
    k = np.int32(near * _PER_LOG_2 - 0.5)
    r = near - k * _LOG_2_HIGH - k * _LOG_2_LOW
    high = _E8 + r * (_E9 + r * (_E10 + r * (_E11 + r * (_E12 + r * _E13))))
    low = _E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * (_E6 + r * (_E7 + r * high)))))
    scale: float = _double((np.int64(k) + 1023) << 52)  # type: ignore[call-arg]
    return scale * (1.0 + r * (1.0 + r * low)) if x >= -690.0 else 0.0


@inner
def log_rising(a: float, n: float) -> float:
    """Return log Γ(a + n) − log Γ(a) for an integer n ≥ 0, without log-gamma when n is small.

    >>> round(log_rising(2.0, 3.0), 6)  # log(2 · 3 · 4)
    3.178054
    """
    if n <= 0.0:
        return 0.0
    if n <= 6.0:
        product = a
        for i in range(1, int(n)):
            product *= a + i
        return math.log(product)
    return math.lgamma(a + n) - math.lgamma(a)


@inner
def table_rising(log_gammas, a, before, more):  # type: ignore[no-untyped-def]
    """Return log Γ(a + before + more)/Γ(a + before), by a table of log Γ(a + j) if large enough."""
    if before + more < log_gammas.shape[0]:
        return log_gammas[int(before + more)] - log_gammas[int(before)]
    return log_rising(a + before, more)
