"""Positive, skewed numbers whose logarithms are normal: a diagonal Gaussian of them.

    log x | μ, v ~ N(μ, v),    p(x) = N(log x; μ, v)/x

with the Normal–inverse-gamma prior of `diagonal_gaussian.py` and its closed forms; 1/x is in
`log_base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch.errors import DataError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.diagonal_gaussian import DiagonalGaussian, DiagonalWithGaps
from dpsearch.families.linear import LinearForm, namespace


class LogNormalWithGaps(DiagonalWithGaps):
    """`WithGaps` of a `LogNormal`."""

    def check(self, X: Any) -> None:
        self.family.check(X)

    def encode(self, X: Any) -> Any:
        family: Any = self.family
        return DiagonalWithGaps(family.of_logs).encode(np.log(X))

    def log_base(self, X: Any) -> Vector:
        family: Any = self.family
        logs = np.log(X)
        base = DiagonalWithGaps(family.of_logs).log_base(logs)
        return np.asarray(base - np.nansum(logs, axis=1))

    log_ceiling, restated = DiagonalWithGaps.log_ceiling, DiagonalWithGaps.restated

    def linear(self, n_features: int) -> LinearForm:
        family: Any = self.family
        return _of_logs(DiagonalWithGaps(family.of_logs).linear(n_features))


@dataclass(frozen=True)
class LogNormal(DiagonalGaussian):
    """Positive, skewed numbers whose logarithms are normal.

    Parameters
    ----------
    prior_mean, prior_strength, shape, scale
        As of `DiagonalGaussian`, for the logarithms.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.LogNormal(prior_mean=1.0)
    LogNormal(prior_mean=1.0, prior_strength=1.0, shape=2.0, scale=1.0)
    """

    name: ClassVar[str] = "log_normal"
    scale_replicas: ClassVar[bool] = False

    @property
    def of_logs(self) -> DiagonalGaussian:
        """The family of the logarithms."""
        return DiagonalGaussian(self.prior_mean, self.prior_strength, self.shape, self.scale)

    def check(self, X: Any) -> None:
        bad = ~(X > 0.0) & ~np.isnan(X)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise DataError(
                f"the {self.name} family takes numbers above 0, but X at {{place}} is"
                f" {X[row, column]:g}",
                row=row,
                column=column,
            )

    def encode(self, X: Any) -> Any:
        return super().encode(np.log(X))

    def log_base(self, X: Any) -> Vector:
        logs = np.log(X)
        return np.asarray(super().log_base(logs) - logs.sum(axis=1))

    def log_ceiling(self, X: Any) -> Vector:
        return self.of_logs.log_ceiling(np.log(X))

    def linear(self, n_features: int) -> LinearForm:
        return _of_logs(super().linear(n_features))

    restated = DiagonalGaussian.restated  # of the logarithms

    def columns(self, row: Vector, n_features: int) -> Columns:
        found = super().columns(row, n_features)
        return found._replace(centres=np.exp(found.centres))  # medians

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        of_logs = super().draws(row, n_features)
        return PredictiveDraws(lambda size, rng: np.exp(of_logs.sample(size, rng)))

    def with_gaps(self) -> LogNormalWithGaps:
        return LogNormalWithGaps(self)

    @classmethod
    def suggest(cls, X: Any) -> Self:
        return cls._of(DiagonalGaussian.suggest(_logs(X)))

    def learned(self, X: Any, labels: Ints) -> Self:
        return self._of(self.of_logs.learned(_logs(X), labels))

    @classmethod
    def _of(cls, of_logs: DiagonalGaussian) -> Self:
        return cls(of_logs.prior_mean, of_logs.prior_strength, of_logs.shape, of_logs.scale)

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.random.default_rng(0).lognormal(1.0, 0.7, size=(12, 2))
        return [
            Example(cls(0.5, 0.5, 2.0, 1.5), X),
            Example(cls([1.0, 2.0], 2.0, [1.5, 3.0], 0.7), with_holes(X)),
        ]


def _logs(X: Any) -> Any:
    """Return logarithms; `check` speaks of values that have none."""
    return np.log(np.where(X > 0.0, X, np.nan))


def _of_logs(form: LinearForm) -> LinearForm:
    return LinearForm(
        form.n_totals,
        lambda X: form.features(namespace(X).log(X)),
        form.log_marginals,
        form.weights,
        form.rows,
    )
