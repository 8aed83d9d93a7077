"""log E[exp(x u₁)] on a sphere against mpmath, for orders and arguments of directions."""

import mpmath
import numpy as np
import pytest

from dpsearch._bessel import expansion, log_mean_exps

POINTS = [10.0**e * m for e in range(-4, 8) for m in (1.0, 3.0)] + [1e8]


def log_i(order, x):
    """Return log I_ν(x) to 40 digits, by the power series or, for large x, Hankel's expansion."""
    order, x = mpmath.mpf(order), mpmath.mpf(x)
    if x < 1e4:
        return mpmath.log(mpmath.besseli(order, x, maxterms=10**6))
    term = total = mpmath.mpf(1)
    k = 0
    while abs(term) > mpmath.mpf(10) ** -40:
        k += 1
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        total += term
    return x - mpmath.log(2 * mpmath.pi * x) / 2 + mpmath.log(total)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 7.5, 15.5, 16.0, 49.0, 191.0, 383.0, 2047.0])
def test_against_mpmath(order):
    values, slopes = log_mean_exps(order, expansion(order), np.array(POINTS))
    with mpmath.workdps(50):
        for x, value, slope in zip(POINTS, values, slopes, strict=True):
            if order > 1000.0 and 1e4 <= x < 1e5:
                continue  # where Hankel's expansion needs many terms
            below, above = log_i(order, x), log_i(order + 1, x)
            wanted = mpmath.loggamma(order + 1) + below - order * mpmath.log(mpmath.mpf(x) / 2)
            assert value == pytest.approx(float(wanted), rel=1e-11)
            assert slope == pytest.approx(float(mpmath.exp(above - below)), rel=1e-11)


def test_nothing_is_lost_at_zero():
    assert (log_mean_exps(3.0, expansion(3.0), np.zeros(1)) == 0.0).all()
    tiny = log_mean_exps(191.0, expansion(191.0), np.array([1e-8]))
    np.testing.assert_allclose(tiny[:, 0], [1e-16 / (4.0 * 192.0), 1e-8 / 384.0], rtol=1e-12)
