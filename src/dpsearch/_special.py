"""Special functions for kernels: log-gamma through tables where arguments are counts."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from dpsearch._jit import inner
from dpsearch._types import Vector

LOG_2PI = math.log(2.0 * math.pi)


def log_gamma_table(offset: float, size: int) -> Vector:
    """The values log Γ(offset + j) for j = 0 … size − 1."""
    return np.asarray(gammaln(offset + np.arange(size)), dtype=np.float64)


@inner
def log_rising(a: float, n: float) -> float:
    """Return log Γ(a + n) − log Γ(a) for a whole number n ≥ 0, without log-gamma when n is small.

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
