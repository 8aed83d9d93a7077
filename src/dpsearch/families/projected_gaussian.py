"""Wide tables of numbers: a Gaussian with full covariance on a few projections of a row.

    z = A (x − m),   z | μ, Σ ~ N(μ, Σ),   μ, Σ ~ Normal–inverse-Wishart

with A of q rows, as a rule the leading principal components of the standardised columns.  Rows
of statistics and functions are those of `FullGaussian` for z.  Densities, and so the log joint,
are of z: they compare only under the same A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import eigh

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import ParameterError
from dpsearch.families._columns import (
    as_tuple,
    mean_and_variance,
    normal_inverse_gamma,
    varies,
)
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.full_gaussian import FullGaussian

_MOST_COMPONENTS = 20
_ROWS_A_COMPONENT = 10
_NOTHING = 1e-10  # share of the variance below which a component is rounding
_BLOCK = 4096


@dataclass(frozen=True)
class ProjectedGaussian(Family):
    """Gaussian with unknown mean and covariance matrix on projections of the rows.

    Parameters
    ----------
    components
        The matrix A: a row for each projection, a column for each column of the data.
    centre
        What is subtracted before projecting: a scalar, or one number per column.
    prior_mean, prior_strength, degrees, scale
        As for `FullGaussian`, of the projections.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.ProjectedGaussian([[1.0, 0.0, 1.0]]).name
    'projected_gaussian'
    """

    components: Any
    centre: Any = 0.0
    prior_mean: Any = 0.0
    prior_strength: float = 1.0
    degrees: float | None = None
    scale: Any = 1.0

    name: ClassVar[str] = "projected_gaussian"
    functions: ClassVar[Functions] = FullGaussian.functions

    def _matrix(self, n_features: int | None = None) -> Matrix:
        try:
            matrix = np.asarray(self.components, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError("components must be a matrix of numbers") from error
        if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
            raise ParameterError("components must be a matrix of finite numbers")
        if n_features is not None and matrix.shape[1] != n_features:
            raise ParameterError(
                f"components has {matrix.shape[1]} columns, but the data have {n_features}"
            )
        return matrix

    def _centre(self, n_features: int) -> Vector:
        return per_column(self.centre, n_features, "centre", above_zero=False)

    def _some_projections(self, n_features: int) -> Matrix:
        """A row as wide as the projections, for what depends on nothing else."""
        return np.zeros((1, len(self._matrix(n_features))))

    @property
    def _inner(self) -> FullGaussian:
        """The family of the projections."""
        return FullGaussian(self.prior_mean, self.prior_strength, self.degrees, self.scale)

    def _with_inner(self, inner: FullGaussian) -> ProjectedGaussian:
        return self.with_parameters(
            prior_mean=inner.prior_mean,
            prior_strength=inner.prior_strength,
            degrees=inner.degrees,
            scale=inner.scale,
        )

    def project(self, X: Any) -> Matrix:
        """Return z = A (x − m) of each row."""
        return np.asarray((X - self._centre(X.shape[1])) @ self._matrix(X.shape[1]).T)

    def _back(self, z: Any, n_features: int) -> Matrix:
        """Return the rows nearest the centre that have these projections."""
        return np.asarray(self._centre(n_features) + z @ np.linalg.pinv(self._matrix(n_features)).T)

    def hyperparameters(self) -> dict[str, Any]:
        # Not what says which projections they are: log joints under others do not compare.
        return self._inner.hyperparameters()

    def resolve(self, X: Any) -> ProjectedGaussian:
        return self._with_inner(self._inner.resolve(self._some_projections(X.shape[1])))

    def width(self, n_features: int) -> int:
        return self._inner.width(len(self._matrix(n_features)))

    def bound_width(self, n_features: int) -> int:
        return len(self._matrix(n_features))

    def parameters(self, n_features: int, X: Any) -> Vector:
        self._centre(n_features)
        return self._inner.parameters(len(self._matrix(n_features)), X)

    def encode(self, X: Any) -> Any:
        return self._inner.encode(self.project(X))

    def log_base(self, X: Any) -> Vector:
        # The same for every row.
        base = self._inner.log_base(self._some_projections(X.shape[1]))
        return np.full(X.shape[0], base[0])

    def log_ceiling(self, X: Any) -> Vector:
        return self._inner.log_ceiling(self.project(X))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        """Of the projections; `mean` is that of the columns."""
        out = self._inner.posterior(row, len(self._matrix(n_features)))
        return {**out, "projected_mean": out["mean"], "mean": self._back(out["mean"], n_features)}

    def column_log_marginals(self, row: Vector, n_features: int) -> Vector:
        """Of each column as its projections show it, vᵀz: Normal–inverse-gamma.

        vᵀΣv ~ InverseGamma((ν − q + 1)/2, vᵀΨv/2), before and after the data, as any linear map
        of an inverse Wishart matrix is one.
        """
        directions = np.linalg.pinv(self._matrix(n_features))
        q = directions.shape[1]
        inner = self._inner
        _, factor = inner._location_factor(q)
        posterior = inner.posterior(row, q)
        degrees = posterior["degrees"] - row[0]
        # A column that no projection sees says nothing: any scale above 0 will do for it.
        prior_scale = np.maximum(((directions @ factor) ** 2).sum(axis=1), np.finfo(float).tiny)
        scale = np.einsum("di,ij,dj->d", directions, posterior["scale"], directions)
        return normal_inverse_gamma(
            (self.prior_strength, 0.5 * (degrees - q + 1.0), 0.5 * prior_scale),
            (
                posterior["strength"],
                0.5 * (posterior["degrees"] - q + 1.0),
                0.5 * np.maximum(scale, np.finfo(float).tiny),
            ),
        )

    def column_centres(self, row: Vector, n_features: int) -> Vector:
        return np.asarray(self.posterior(row, n_features)["mean"])

    def draw(self, row: Vector, n_features: int, size: int, rng: Rng) -> Any:
        """Rows with projections from the posterior predictive, in the span of the components."""
        z = self._inner.draw(row, len(self._matrix(n_features)), size, rng)
        return self._back(z, n_features)

    @classmethod
    def suggest(cls, X: Any) -> ProjectedGaussian:
        """The leading principal components of the columns, each divided by its standard deviation.

        At most 20, and at most one for every ten rows.  A constant column has no part in them.
        """
        mean, variance = mean_and_variance(X)
        scale = np.where(varies(X), 1.0 / np.sqrt(variance), 0.0)
        n_rows, width = X.shape
        wanted = max(1, min(_MOST_COMPONENTS, n_rows // _ROWS_A_COMPONENT, width))
        components = _principal(X, mean, scale, wanted)
        if not len(components):  # all columns are constant
            components, scale = np.eye(1, width), 1.0 / np.sqrt(variance)
        # The sign of an eigenvector is arbitrary: its largest entry is made positive.
        rows = np.arange(len(components))
        signs = np.sign(components[rows, np.abs(components).argmax(axis=1)])
        components = components * signs[:, None] * scale
        family = cls(as_tuple(components), as_tuple(mean))
        return family._with_inner(FullGaussian.suggest(family.project(X)))

    def learned(self, X: Any, labels: Ints) -> ProjectedGaussian:
        return self._with_inner(self._inner.learned(self.project(X), labels))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        components = ((1.0, 0.5, 0.0, -1.0), (0.0, 1.0, 2.0, 0.3))
        X = rng.normal(size=(12, 4))
        return [
            Example(cls(components, 0.0, 0.0, 0.5), X),
            Example(cls(components, (1.0, 0.0, 2.0, 0.0), (0.3, -1.0), 1.5, 3.5, 2.0), X),
        ]


def _principal(X: Matrix, mean: Vector, scale: Vector, wanted: int) -> Matrix:
    """Return unit vectors along the columns' leading principal components, largest first.

    The columns are first centred and multiplied by `scale`, in blocks of rows to save memory.
    """
    n_rows, width = X.shape
    size = min(n_rows, width)
    if size == width:
        parts = ((X[at : at + _BLOCK] - mean) * scale for at in range(0, n_rows, _BLOCK))
        gram = np.zeros((width, width))
        for part in parts:
            gram += part.T @ part
    else:  # the same through the smaller matrix
        standard = (X - mean) * scale
        gram = standard @ standard.T
    top = (max(size - wanted, 0), size - 1)
    values, vectors = eigh(gram / n_rows, subset_by_index=top)
    real = values > _NOTHING * width
    values, vectors = values[real][::-1], vectors[:, real][:, ::-1]
    if size < width:
        vectors = standard.T @ vectors / np.sqrt(values * n_rows)
    return np.asarray(vectors.T)
