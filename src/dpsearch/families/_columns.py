"""Functions of single columns that families share: centre and spread, dependence, marginals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Ints, Matrix, Vector
from dpsearch._validate import is_below, largest_magnitude
from dpsearch.errors import DataError

_SMALLEST = 1e-145  # the smallest number that can be squared in double precision
EXACT = 1e-6  # a smaller unexplained share of a column's variance is rounding
_NOTHING = 1e-10  # the share of the variance that is rounding
_BLOCK = 1 << 18  # numbers
_ROUNDING = 1e-13  # the largest relative difference of values that are the same


def means(X: Any) -> Vector:
    """Return the mean of the observed values of each column; 0 if there are none."""
    return np.asarray(np.nansum(X, axis=0) / np.maximum((~np.isnan(X)).sum(axis=0), 1.0))


def mean_and_variance(X: Any) -> tuple[Vector, Vector]:
    """Return each column's mean and variance.

    The variance of a constant column is set to its value squared, or 1 if that is 0: this scales
    with the column, and is large compared to rounding errors.
    """
    X, mean, spread = _observed(X)
    small = (spread > 0.0) & (spread < _SMALLEST)
    if small.any():
        column = int(np.flatnonzero(small)[0])
        raise DataError(
            f"the values of {{place}} of X differ by at most {spread[column]:.1e}, too little to"
            " square in double precision: rescale the column",
            column=column,
        )
    variance = np.ma.filled(_variances(X), 0.0)
    constant = np.where(np.abs(mean) > _SMALLEST, mean, 1.0) ** 2
    return mean, np.where(_is_wide(mean, spread) & (variance > 0.0), variance, constant)


def medians(X: Matrix) -> Vector:
    """Return the median of each column, by the values there are; NaN where there is none."""
    ordered, known = np.sort(X, axis=0), (~np.isnan(X)).sum(axis=0)  # gaps come last
    at = np.arange(X.shape[1])
    return np.asarray(0.5 * (ordered[(known - 1) // 2, at] + ordered[known // 2, at]))


def varies(X: Any) -> Any:
    """Return for each column whether its values differ by more than rounding."""
    return _is_wide(*_observed(X)[1:])


def independent(correlations: Matrix, columns: Ints, least: float) -> Ints:
    """Return columns, each with at least this share of its variance unexplained by the others.

    Columns are dropped one by one: first the last of those that the rest determines up to rounding,
    since derived columns mostly come later, then the one that the rest explains best.
    """
    while len(columns) > 1:
        among = correlations[np.ix_(columns, columns)] + _NOTHING * np.eye(len(columns))
        unexplained = 1.0 / np.diag(np.linalg.inv(among))
        if unexplained.min() >= least:
            break
        follow = np.flatnonzero(unexplained < EXACT)
        columns = np.delete(columns, follow[-1] if len(follow) else unexplained.argmin())
    return columns


def _variances(X: Any) -> Any:
    """Return X.var(axis=0), to the same bits; of many rows in blocks, not of a copy of X."""
    if np.ma.isMaskedArray(X) or X.size <= _BLOCK or X.shape[1] == 1 or not X.flags.c_contiguous:
        return X.var(axis=0)
    mean, total, height = X.mean(axis=0), 0.0, max(1, _BLOCK // X.shape[1])
    for begin in range(0, len(X), height):
        squares = X[begin : begin + height] - mean
        squares *= squares
        squares[0] += total  # rows are added one after the other
        total = squares.sum(axis=0)
    return total / len(X)


def _observed(X: Any) -> tuple[Any, Vector, Vector]:
    """Return X with gaps masked, each column's mean, and the largest deviation from it.

    Both are 0 for a column without any value.
    """
    mean = X.mean(axis=0)
    if np.isnan(mean).any():
        X = np.ma.masked_invalid(X)
        mean = X.mean(axis=0)
    spread = np.maximum(X.max(axis=0) - mean, mean - X.min(axis=0))
    return X, np.ma.filled(mean, 0.0), np.ma.filled(spread, 0.0)


def _is_wide(mean: Vector, spread: Vector) -> Any:
    return spread > _ROUNDING * np.abs(mean)


def normal_inverse_gamma(prior: tuple[Any, Any, Any], posterior: tuple[Any, Any, Any]) -> Vector:
    """Log H of normal values from (strength κ, shape a, scale b) before and after them.

    Γ(a)/Γ(a₀) · b₀^a₀/b^a · √(κ₀/κ), without (2π)^(−n/2) (Murphy 2007, "Conjugate Bayesian
    analysis of the Gaussian distribution", eq. 95).
    """
    (strength, shape, scale), (new_strength, new_shape, new_scale) = prior, posterior
    out = gammaln(new_shape) - gammaln(shape) - 0.5 * np.log(new_strength / strength)
    return np.asarray(out + shape * np.log(scale) - new_shape * np.log(new_scale))


def standardised(X: Any, mean: Vector, scale: Vector) -> Any:
    """Return (X − mean)/scale."""
    if (mean == 0.0).all() and (scale == 1.0).all():
        return X
    out = X - mean
    out /= scale
    return out


def in_range(encoded: Any, unit: str, parameter: str, times: float = 1.0) -> Any:
    """Return encoded data, or raise `DataError` if their sums of squares would overflow."""
    limit = math.sqrt(1e300 / encoded.size / max(times, 1.0))
    if not is_below(limit, encoded) and largest_magnitude(encoded) > limit:
        raise DataError(
            f"X lies more than {limit:.1e} {unit} from the prior mean in {{place}}: rescale it, or"
            f" give a larger {parameter}",
            column=int(np.abs(encoded).max(axis=0).argmax()),
        )
    return encoded


def with_holes(X: Any) -> Any:
    """Return X with a third of its values and all of its last row missing, for examples."""
    missing = np.random.default_rng(7).random(X.shape) < 0.3
    missing[-1] = True
    missing[0] = False
    return np.where(missing, np.nan, X)


def as_tuple(array: Any) -> Any:
    """Return an array as nested tuples, so that it can be compared and hashed."""
    numbers = np.asarray(array, dtype=np.float64)
    return _tupled(numbers.tolist(), numbers.ndim)


def _tupled(values: Any, depth: int) -> Any:
    if depth < 2:
        return tuple(values) if depth else values
    return tuple(_tupled(value, depth - 1) for value in values)
