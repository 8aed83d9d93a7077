"""The modified Bessel function I_ν for directions: log E[exp(x u₁)] with u uniform on a sphere.

In D dimensions, with ν = D/2 − 1,

    L(x) = log E[exp(x u₁)] = log Γ(ν + 1) + log I_ν(x) − ν log(x/2)
    L′(x) = I_{ν+1}(x)/I_ν(x)

L is 0 at 0 and convex, and keeps full precision where log I_ν loses digits.  For orders from 16 it
is computed by the logarithm of Debye's uniform expansion (DLMF 10.41.3): with z = x/ν,
s = √(1 + z²) and t = 1/s,

    L = ν(s − 1 − log((1 + s)/2)) − ½ log s + Σ_k (D_k(t) − D_k(1))/ν^k,

where Σ_k D_k/ν^k is the logarithm of Debye's Σ_k U_k/ν^k.  Terms are about Γ(k)/(2π (πν)^k); the
first that is omitted is below 1e-13.  Lower orders follow from higher ones by

    L_{ν−1} = L_ν + log(1 + x r_ν/2ν),   r_{ν−1} = x/(2ν + x r_ν),   r = L′,

a sum of positive terms, computed as the logarithm of a product.  For small x the power series of
exp L is used.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._special import vector_log
from dpsearch._types import Vector

_LEAST_ORDER = 16.0
_TERMS = 12
_NEGLIGIBLE = 1e-13
_SMALL = 0.1  # the largest x²/4(ν + 1) for which the power series is used


def _debye_logarithms(n_terms: int) -> Vector:
    """Return [k − 1, i] the coefficient of t^(k + 2i) in D_k, from U_k by DLMF 10.41.9.

    U_{k+1} = ½ t²(1 − t²) U_k′ + ⅛ ∫ (1 − 5t²) U_k, and k D_k = k U_k − Σ_{0<j<k} j D_j U_{k−j}.
    """
    terms: list[dict[int, Fraction]] = [{0: Fraction(1)}]
    for _ in range(n_terms):
        after: dict[int, Fraction] = {}
        for power, value in terms[-1].items():
            for shift, factor in (
                (1, Fraction(power, 2) + Fraction(1, 8 * (power + 1))),
                (3, -Fraction(power, 2) - Fraction(5, 8 * (power + 3))),
            ):
                after[power + shift] = after.get(power + shift, Fraction(0)) + factor * value
        terms.append(after)
    logs: list[dict[int, Fraction]] = [{}]
    for k in range(1, n_terms + 1):
        of_k = dict(terms[k])
        for j in range(1, k):
            for p, a in logs[j].items():
                for q, b in terms[k - j].items():
                    of_k[p + q] = of_k.get(p + q, Fraction(0)) - Fraction(j, k) * a * b
        logs.append(of_k)
    out = np.zeros((n_terms, n_terms + 1))
    for k in range(1, n_terms + 1):
        for power, value in logs[k].items():
            out[k - 1, (power - k) // 2] = float(value)
    return out


@functools.cache
def _coefficients() -> Vector:
    return _debye_logarithms(_TERMS)


def expansion(nu: float) -> Vector:
    """Return the coefficients that `log_mean_exp` needs for an order ν ≥ 0.

    The first is the order from 16 of the expansion; the coefficients of t⁰, t¹, … follow.
    """
    order = nu + max(0.0, math.ceil(_LEAST_ORDER - nu))
    out = np.zeros(3 * _TERMS + 1)
    last = 0
    for k, own in enumerate(_coefficients(), start=1):
        if math.gamma(k) / (2.0 * math.pi * (math.pi * order) ** k) < _NEGLIGIBLE:
            break
        out[k : 3 * k + 1 : 2] += own[: k + 1] / order**k
        last = 3 * k
    out[0] = -out[1:].sum()
    return np.append(order, out[: last + 1])


@inner
def _debye(order, coefficients, x):  # type: ignore[no-untyped-def]
    """Return L and L′ for an order from 16."""
    z = x / order
    s = math.sqrt(1.0 + z * z)
    t = 1.0 / s
    below = z * z / (1.0 + s)  # s − 1
    terms = 0.0
    slope = 0.0
    for i in range(coefficients.shape[0] - 1, 0, -1):
        slope = slope * t + terms
        terms = terms * t + coefficients[i]
    value = order * (below - vector_log(1.0 + 0.5 * below)) - 0.5 * vector_log(s)
    return value + terms, z / (1.0 + s) - z * t * t * (0.5 + t * slope) / order


@inner
def log_mean_exp(nu, expansion, x):  # type: ignore[no-untyped-def]
    """Return L(x) and L′(x) for an order ν ≥ 0 with its expansion, and x ≥ 0.

    >>> import numpy as np
    >>> value, slope = log_mean_exp(0.5, expansion(0.5), 2.0)  # D = 3: log sinh(x)/x
    >>> np.allclose([value, slope], [np.log(np.sinh(2.0) / 2.0), 1.0 / np.tanh(2.0) - 0.5], 1e-12)
    True
    """
    quarter = 0.25 * x * x
    if quarter < _SMALL * (nu + 1.0):
        term = 1.0
        total = 0.0
        slope = 0.0
        k = 0.0
        while term > 1e-18 * total:
            k += 1.0
            term *= quarter / (k * (nu + k))
            total += term
            slope += k * term
        return math.log1p(total), 2.0 * slope / (x * (1.0 + total)) if x > 0.0 else 0.0
    order = expansion[0]
    value, ratio = _debye(order, expansion, x)
    product = 1.0
    while order > nu + 0.5:
        product *= 1.0 + 0.5 * x * ratio / order
        if product > 1e200:
            value += math.log(product)
            product = 1.0
        ratio = x / (2.0 * order + x * ratio)
        order -= 1.0
    return value + math.log(product), ratio


@kernel
def log_mean_exps(nu, expansion, points):  # type: ignore[no-untyped-def]
    """Return L and L′ at many points, [2, n]."""
    out = np.empty((2, points.shape[0]))
    for i in range(points.shape[0]):
        out[0, i], out[1, i] = log_mean_exp(nu, expansion, points[i])
    return out
