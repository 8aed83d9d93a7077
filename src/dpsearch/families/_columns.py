"""What families share about single columns: their centre and spread, their marginals."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Vector
from dpsearch.errors import DataError


def means(X: Any) -> Vector:
    """Return the mean of what was observed of each column; 0 where nothing was."""
    return np.asarray(np.nansum(X, axis=0) / _observed(X))


def _observed(X: Any) -> Vector:
    """How many values each column has, at least 1."""
    return np.asarray(np.maximum((~np.isnan(X)).sum(axis=0), 1.0))


def mean_and_variance(X: Any) -> tuple[Vector, Vector]:
    """Return each column's mean and variance; a constant column counts as having variance 1."""
    mean = means(X)
    rest = X - mean
    rest[np.isnan(rest)] = 0.0
    spread = np.abs(rest).max(axis=0)
    small = (spread > 0.0) & (spread < 1e-145)
    if small.any():
        column = int(np.flatnonzero(small)[0])
        raise DataError(
            f"the values of column {column} of X differ by at most {spread[column]:.1e}, too little"
            " to square in double precision: rescale the column"
        )
    # A column whose values differ by rounding alone is constant.
    spread = np.where(spread > 1e-13 * np.abs(mean), spread, 0.0)
    variance = (rest**2).sum(axis=0) / _observed(X)
    return mean, np.where((spread > 0.0) & (variance > 0.0), variance, 1.0)


def normal_inverse_gamma(prior: tuple[Any, Any, Any], posterior: tuple[Any, Any, Any]) -> Vector:
    """Log H of normal values from (strength κ, shape a, scale b) before and after them.

    Γ(a)/Γ(a₀) · b₀^a₀/b^a · √(κ₀/κ), without (2π)^(−n/2) (Murphy 2007, "Conjugate Bayesian
    analysis of the Gaussian distribution", eq. 95).
    """
    (strength, shape, scale), (new_strength, new_shape, new_scale) = prior, posterior
    out = gammaln(new_shape) - gammaln(shape) - 0.5 * np.log(new_strength / strength)
    return np.asarray(out + shape * np.log(scale) - new_shape * np.log(new_scale))


def with_holes(X: Any) -> Any:
    """Return X with a third of its values missing, and all of its last row: for examples."""
    missing = np.random.default_rng(7).random(X.shape) < 0.3
    missing[-1] = True
    missing[0] = False
    return np.where(missing, np.nan, X)


def as_tuple(array: Any) -> Any:
    """Return an array as nested tuples, which can be compared and hashed."""
    return tuple(map(as_tuple, array)) if np.ndim(array) else float(array)
