"""Heavy-tailed numbers: Student's t in every column, location and scale by nodes.

    x | μ, σ ~ t(μ, σ, ν),    log p = log Γ((ν+1)/2)/Γ(ν/2) − ½ log νπ − log σ
                                      − ½ (ν + 1) log(1 + (x − μ)²/(νσ²))

(Gelman et al. 2013, "Bayesian Data Analysis", appendix A).  No prior on μ or σ is conjugate to it:
as a scale mixture of normal distributions it is conjugate given a variance for each point, which is
no statistic of a block.  So both are on nodes.  For the same reason there is no form with a full
covariance: its parameter has too many dimensions for nodes.  The degrees of freedom ν are a
hyperparameter of each column: of a few, those under which a partition's clusters are likeliest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.located import Located

_DEGREES = (2.0, 4.0, 10.0)


@dataclass(frozen=True)
class StudentT(Located):
    """Heavy-tailed numbers: Student's t with its location and scale on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of location, scale and degrees of freedom, and their prior; by default placed where
        the data are.
    degrees
        Degrees of freedom where nodes are placed: a scalar, or one number per column.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.StudentT(degrees=3.0).degrees
    3.0
    """

    degrees: Any = 4.0

    name: ClassVar[str] = "student_t"
    kind: ClassVar[str] = "real"
    robust: ClassVar[bool] = True
    parameter_names: ClassVar[tuple[str, ...]] = ("location", "scale", "degrees")
    dimensions: ClassVar[tuple[int, ...]] = (3,)

    def further(self, d: int, x: Vector) -> tuple[float, ...]:
        degrees = np.ravel(self.degrees)
        return (float(degrees[d % len(degrees)]),)

    def learned(self, X: Any, labels: Ints) -> Self:
        found = self._lattices(X, labels)
        tried = [
            self.with_parameters(degrees=degrees)._with_nodes(
                [(np.column_stack([theta[:, :2], np.full(len(theta), degrees)]), log_weights)
                 for theta, log_weights in found]
            )
            for degrees in _DEGREES
        ]  # fmt: skip
        values = np.array([family.evidence(X, labels) for family in tried])
        best = values.argmax(axis=0)
        chosen = self.with_parameters(degrees=tuple(_DEGREES[i] for i in best))
        return chosen._with_nodes([tried[i].of_columns(X.shape[1])[d] for d, i in enumerate(best)])

    def resolve(self, X: Any) -> Self:
        per_column(self.degrees, X.shape[1], "degrees", above_zero=True)
        return super().resolve(X)

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        location, scale, nu = theta.T
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * np.pi)
        z = (x[:, None] - location) / scale
        return np.asarray(constant - np.log(scale) - 0.5 * (nu + 1.0) * np.log1p(z * z / nu))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        return np.asarray(theta[:, 0] + theta[:, 1] * rng.standard_t(theta[:, 2]))

    def expected(self, theta: Matrix) -> Vector:
        return theta[:, 0]

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.random.default_rng(0).standard_t(3.0, size=(12, 2)) * [1.0, 30.0]
        return [Example(cls(), X), Example(cls(degrees=[3.0, 8.0]), with_holes(X))]
