"""Families of transformed rows: the base of `Johnson` and `Derived`.

`Johnson` is a Gaussian of columns transformed by curves, `Derived` any family of the columns that
determine the others.  A subclass defines the transformation and its inverse; functions and rows of
statistics are those of the inner family.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Gaps, PredictiveDraws, Restated, Simpler
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm


class Transformed(Family):
    """A family of rows that are transformed first; the field `family` is that of the result."""

    family: Any

    functions: ClassVar[Functions] = FullGaussian.functions  # `variant` has those of `family`

    @abstractmethod
    def forward(self, X: Any) -> Any:
        """Return the transformed rows."""

    @abstractmethod
    def inverse(self, Z: Any) -> Matrix:
        """Return the rows whose transforms these are."""

    def n_inner(self, n_features: int) -> int:
        """Return the number of transformed columns."""
        return n_features

    def log_jacobian(self, X: Any) -> Vector:
        """Return the log Jacobian of the transformation for each row."""
        return np.zeros(X.shape[0])

    def _with(self, inner: Family) -> Self:
        return self if inner is self.family else self.with_parameters(family=inner)

    def learned(self, X: Any, labels: Ints) -> Self:
        return self._with(self.family.learned(self.forward(X), labels))

    def simpler(self, X: Any) -> Simpler | None:
        found = self.family.simpler(self.forward(X))
        return found and Simpler(X, self._with(found.family), found.replaces)

    def hyperparameters(self) -> dict[str, Any]:
        return self.family.hyperparameters()  # type: ignore[no-any-return]

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        return self._with(self.family.rescaled(factors))

    @property
    def takes_gaps(self) -> bool:
        return bool(self.family.takes_gaps)

    @property
    def predicts_gaps(self) -> bool:
        return bool(self.family.predicts_gaps)

    def variant(self) -> Functions:
        return self.family.variant()  # type: ignore[no-any-return]

    def row_layout(self) -> Any:
        return self.family.row_layout()

    def width(self, n_features: int) -> int:
        return int(self.family.width(self.n_inner(n_features)))

    def bound_width(self, n_features: int) -> int:
        return int(self.family.bound_width(self.n_inner(n_features)))

    def counts_in_row(self, n_features: int) -> Any:
        return self.family.counts_in_row(self.n_inner(n_features))

    def relocated(self, params: Vector, n_features: int) -> Vector:
        return np.asarray(self.family.relocated(params, self.n_inner(n_features)))

    def parameters(self, n_features: int, X: Any) -> Vector:
        return np.asarray(self.family.parameters(self.n_inner(n_features), self.forward(X)))

    def resolve(self, X: Any) -> Self:
        return self._with(self.family.resolve(self.forward(X)))

    def check(self, X: Any) -> None:
        self.family.check(self.forward(X))

    def encode(self, X: Any) -> Any:
        return self.family.encode(self.forward(X))

    def log_base(self, X: Any) -> Vector:
        return np.asarray(self.family.log_base(self.forward(X)) + self.log_jacobian(X))

    def log_ceiling(self, X: Any) -> Vector | None:
        return self.family.log_ceiling(self.forward(X))  # type: ignore[no-any-return]

    def with_gaps(self) -> Self:
        return self._with(self.family.with_gaps())

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        return np.asarray(self.family.row_with_gaps(row, self.n_inner(n_features)))

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws | None:
        found = self.family.draws(row, self.n_inner(n_features))
        return found and PredictiveDraws(lambda size, rng: self.inverse(found.sample(size, rng)))

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps | None:
        found = self.family.gaps(rows, self.n_inner(n_features))
        if found is None:
            return None

        def fill(X: Any, weights: Matrix) -> Matrix:
            return np.where(np.isnan(X), self.inverse(found.fill(self.forward(X), weights)), X)

        return Gaps(
            lambda X: found.log_densities(self.forward(X)) + self.log_jacobian(X)[:, None], fill
        )

    def linear(self, n_features: int) -> LinearForm | None:
        form: LinearForm | None = self.family.linear(self.n_inner(n_features))
        return form and replace(form, features=lambda X: form.features(self.forward(X)))

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated | None:
        return self.family.restated(row, self.n_inner(n_features), other.family)  # type: ignore[no-any-return]
