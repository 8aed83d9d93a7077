"""Positive, skewed numbers: a diagonal Gaussian of their logarithms.

    log x | μ, v ~ N(μ, v),    p(x) = N(log x; μ, v)/x

with the Normal–inverse-gamma prior of `diagonal_gaussian.py` and its closed forms; the factor 1/x
is part of `log_base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsearch._types import Vector
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.linear import like, namespace


@dataclass(frozen=True)
class LogNormal(DiagonalGaussian):
    """Positive, skewed numbers whose logarithms are normal.

    Parameters
    ----------
    prior_mean, prior_strength, shape, scale
        As in `DiagonalGaussian`, for the logarithms.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.LogNormal(prior_mean=1.0)
    LogNormal(prior_mean=1.0, prior_strength=1.0, shape=2.0, scale=1.0)
    """

    name: ClassVar[str] = "log_normal"
    scale_replicas: ClassVar[bool] = False

    @staticmethod
    def forward(X: Any) -> Any:
        """Return the logarithms, NaN for values that `check` refuses."""
        xp = namespace(X)
        return xp.log(xp.where(X > 0.0, X, like(X, np.nan)))

    def log_jacobian(self, X: Any) -> Any:
        return -np.nansum(self.forward(X), axis=1)

    def check(self, X: Any) -> None:
        self.check_support(X, ~(X > 0.0), "numbers above 0")

    def columns(self, row: Vector, n_features: int) -> Columns:
        found = super().columns(row, n_features)
        return found._replace(centres=np.exp(found.centres))  # medians

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        of_logs = super().draws(row, n_features)
        return PredictiveDraws(lambda size, rng: np.exp(of_logs.sample(size, rng)))

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.random.default_rng(0).lognormal(1.0, 0.7, size=(12, 2))
        return [
            Example(cls(0.5, 0.5, 2.0, 1.5), X),
            Example(cls([1.0, 2.0], 2.0, [1.5, 3.0], 0.7), with_holes(X)),
        ]
