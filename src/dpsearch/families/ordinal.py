"""Ratings and other integers from a short range, in order: a normal value cut into levels.

    P(x = l | μ, σ) = Φ((l + ½ − μ)/σ) − Φ((l − ½ − μ)/σ)        unbounded at the ends

(McCullagh 1980, "Regression models for ordinal data", with cuts half-way between levels).  The
lowest and the highest level are those of the data by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from dpsearch._types import Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import ParameterError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.located import Located
from dpsearch.families.rounded_gaussian import log_interval


@dataclass(frozen=True)
class Ordinal(Located):
    """Integers from a lowest to a highest level: a normal value cut into levels, on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of mean, standard deviation, lowest and highest level, and their prior; by default
        placed around the levels.
    low, high
        The lowest and the highest level: scalars, or one number per column.  By default those of
        the data.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Ordinal(low=1, high=5).high
    5
    """

    low: Any = None
    high: Any = None

    name: ClassVar[str] = "ordinal"
    kind: ClassVar[str] = "count"
    limits: ClassVar[tuple[float, float]] = (0.25, np.inf)
    parameter_names: ClassVar[tuple[str, ...]] = ("location", "width", "low", "high")
    dimensions: ClassVar[tuple[int, ...]] = (4,)

    def _ends(self, n_features: int) -> tuple[Vector, Vector]:
        low = per_column(self.low, n_features, "low", above_zero=False)
        return low, per_column(self.high, n_features, "high", above_zero=False)

    def resolve(self, X: Any) -> Self:
        seen = np.ma.masked_invalid(X)
        family = self.with_parameters(
            low=_ends_of(self.low, seen.min(axis=0)), high=_ends_of(self.high, seen.max(axis=0))
        )
        low, high = family._ends(X.shape[1])
        whole = (np.floor(low) == low) & (np.floor(high) == high)
        if self.nodes is None and not (whole & (low <= high)).all():
            name, given = ("low", self.low) if self.low is not None else ("high", self.high)
            if given is not None:
                wanted = "be whole numbers, `low` not above `high`"
                raise ParameterError.must(name, wanted, given)
        return Located.resolve(family, X)

    def check(self, X: Any) -> None:
        self.check_support(X, np.floor(X) != X, "integers")
        low, high = self._ends(X.shape[1])
        self.check_support(X, (low > X) | (high < X), "levels between those of the fit")

    def ends(self, d: int, coordinate: Vector) -> tuple[float, float]:
        low, high = np.ravel(self.low), np.ravel(self.high)
        return float(low[d % len(low)]) - 1.0, float(high[d % len(high)]) + 1.0

    def further(self, d: int, x: Vector) -> tuple[float, ...]:
        low, high = self.ends(d, x)
        return low + 1.0, high - 1.0

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        value, low, high = x[:, None], theta[:, 2], theta[:, 3]
        below = np.where(value <= low, -np.inf, value - 0.5)
        above = np.where(value >= high, np.inf, value + 0.5)
        return log_interval(below, above, theta)

    def common(self, theta: Matrix) -> tuple[float, float]:
        return float(theta[0, 2]), float(theta[0, 3])

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        mean, deviation, low, high = theta.T
        return np.asarray(np.clip(np.rint(rng.normal(mean, deviation)), low, high) + 0.0)

    def expected(self, theta: Matrix) -> Vector:
        mean, deviation, low, high = theta.T
        out = low.copy()  # to which Σ P(x > l) is added
        for step in np.arange((high - low).max()):
            above = ndtr((mean - low - step - 0.5) / deviation)
            out += np.where(step < high - low, above, 0.0)
        return np.asarray(out)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.integers(1, 5, 12), rng.integers(0, 11, 12)]).astype(np.float64)
        return [Example(cls(), X), Example(cls(low=0, high=[4, 10]), with_holes(X))]


def _ends_of(given: Any, found: Any) -> Any:
    return tuple(np.ma.filled(found, 0.0).tolist()) if given is None else given
