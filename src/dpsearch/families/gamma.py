"""Positive, skewed numbers: a gamma distribution in every column, mean and shape by nodes.

    x | m, α ~ Gamma(α, α/m),    log p = α log(α/m) − log Γ(α) + (α − 1) log x − αx/m

m is the mean and α^(−½) the coefficient of variation, approximately the standard deviation of log
x. Nodes are a lattice in log m and that width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.located import Located


@dataclass(frozen=True)
class Gamma(Located):
    """Positive, skewed numbers: a gamma distribution with its mean and shape on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of mean and α^(−½), where α is the shape, and their prior; by default placed where the
        data are.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Gamma([[2.0, 0.5], [4.0, 0.5]]).nodes
    ((2.0, 0.5), (4.0, 0.5))
    """

    name: ClassVar[str] = "gamma"
    kind: ClassVar[str] = "real"
    limits: ClassVar[tuple[float, float]] = (1e-4, 4.0)
    parameter_names: ClassVar[tuple[str, ...]] = ("mean", "width")
    dimensions: ClassVar[tuple[int, ...]] = (2,)

    def check(self, X: Any) -> None:
        self.check_support(X, ~(X > 0.0), "numbers above 0")

    def coordinate(self, X: Any) -> Any:
        return np.log(np.where(X > 0.0, X, np.nan))

    def location(self, coordinate: Vector) -> Vector:
        return np.exp(coordinate)

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        mean, shape = theta[:, 0], theta[:, 1] ** -2.0
        log_x = np.log(x)[:, None]
        out = shape * (np.log(shape / mean) + log_x - x[:, None] / mean) - gammaln(shape) - log_x
        return np.asarray(out)

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        shape = theta[:, 1] ** -2.0
        return np.maximum(theta[:, 0] * rng.gamma(shape) / shape, np.finfo(float).tiny)

    def expected(self, theta: Matrix) -> Vector:
        return theta[:, 0]

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.random.default_rng(0).gamma(1.5, size=(12, 2)) * [1.0, 100.0]
        return [Example(cls(), X), Example(cls(), with_holes(X))]
