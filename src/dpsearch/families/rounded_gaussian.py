"""Rounded values: a normal distribution integrated over the interval that rounds to each integer.

    P(x | μ, σ) = Φ((x + ½ − μ)/σ) − Φ((x − ½ − μ)/σ)

for integers x.  A density at rounded values is unbounded as σ shrinks, so that every repeated value
would be worth a cluster; this probability is bounded.  Mean and standard deviation are on nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.located import Located

_NO_SHIFT = 1.25  # a deviation from which on rounding leaves the mean as it is, to 1e-13


@dataclass(frozen=True)
class RoundedGaussian(Located):
    """Integers that are rounded normal values, with mean and standard deviation on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of mean and standard deviation, and their prior; by default placed where the data are.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.RoundedGaussian([[2.0, 0.5], [4.0, 0.5]]).nodes
    ((2.0, 0.5), (4.0, 0.5))
    """

    name: ClassVar[str] = "rounded_gaussian"
    kind: ClassVar[str] = "count"
    limits: ClassVar[tuple[float, float]] = (0.25, np.inf)
    dimensions: ClassVar[tuple[int, ...]] = (2,)

    def check(self, X: Any) -> None:
        self.check_support(X, np.floor(X) != X, "integers")

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        return log_interval(x[:, None] - 0.5, x[:, None] + 0.5, theta)

    def common(self, theta: Matrix) -> tuple[float, float]:
        return float(np.floor(theta[:, 0].min())), float(np.ceil(theta[:, 0].max()))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        return np.rint(rng.normal(theta[:, 0], theta[:, 1])) + 0.0  # which −0 becomes, too

    def expected(self, theta: Matrix) -> Vector:
        # Rounding moves the mean by a function of period 1, which is 0 if deviations are large.
        nearest = np.rint(theta[:, 0])
        off = (theta[:, 0] - nearest)[:, None]
        deviation = np.minimum(theta[:, 1], _NO_SHIFT)[:, None]
        cuts = np.arange(8.0 * _NO_SHIFT) + 0.5
        rounded = ndtr((off - cuts) / deviation) - ndtr((-off - cuts) / deviation)
        moved = rounded.sum(axis=1) - off[:, 0]
        return np.asarray(theta[:, 0] + moved)

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.rint(np.random.default_rng(0).normal([0.0, 40.0], [1.0, 6.0], size=(12, 2)))
        return [Example(cls(), X), Example(cls(), with_holes(X))]


def log_interval(low: Matrix, high: Matrix, theta: Matrix) -> Matrix:
    """Return the log probability that a normal value is between two numbers, at each node.

    Above the mean the complements are used, which are more precise there.
    """
    mean, deviation = theta[:, 0], theta[:, 1]
    below, above = (low - mean) / deviation, (high - mean) / deviation
    flip = below + above > 0.0
    below, above = np.where(flip, -above, below), np.where(flip, -below, above)
    larger = log_ndtr(above)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(larger + np.log1p(-np.exp(log_ndtr(below) - larger)))
