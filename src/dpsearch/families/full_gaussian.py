"""Gaussian data with unknown mean and covariance matrix: Normal–inverse-Wishart prior.

    x | μ, Σ ~ N(μ, Σ),   μ | Σ ~ N(μ₀, Σ/κ₀),   Σ ~ InverseWishart(ν₀, Ψ₀)

Data are encoded as z = L₀⁻¹(x − μ₀) with L₀L₀ᵀ = Ψ₀, so that the prior mean is 0 and the prior
scale matrix the identity.  With n points of a cluster, their mean z̄ and their scatter
S = Σ (z − z̄)(z − z̄)ᵀ (Murphy 2007, "Conjugate Bayesian analysis of the Gaussian distribution",
eqs 250–258 and 266):

    posterior    κ = κ₀ + n,  ν = ν₀ + n,  m = n z̄/κ,  Ψ = I + S + κ₀ n/κ z̄z̄ᵀ
    predictive   log p(z | C) = log Γ((ν + 1)/2)/Γ((ν + 1 − D)/2) − D/2 log π(κ + 1)/κ − ½ log|Ψ|
                 − (ν + 1)/2 log(1 + κ/(κ + 1) (z − m)ᵀΨ⁻¹(z − m))
    marginal     log H = log Γ_D(ν/2)/Γ_D(ν₀/2) − ν/2 log|Ψ| − D/2 log κ/κ₀ − nD/2 log π
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column, positive
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import layout, learning
from dpsearch.families._columns import as_tuple, mean_and_variance, normal_inverse_gamma
from dpsearch.families._normal_wishart import FUNCTIONS, LOG_PI, PARAMS, ROW
from dpsearch.families._observed import expected, log_densities
from dpsearch.families._wishart_totals import NormalWishart
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, Gaps, PredictiveDraws, Restated, Simpler
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm, like

_LARGEST_TABLE = 1 << 22


@dataclass(frozen=True)
class FullGaussian(Family):
    """Gaussian with unknown mean and covariance matrix.

    Parameters
    ----------
    prior_mean
        The prior mean of cluster means: a scalar, or one number per column.
    prior_strength
        The weight of the prior on the mean, as a number of points.
    degrees
        Degrees of freedom of the inverse-Wishart prior, above the number of columns less one;
        None for the number of columns plus two, with which the mean covariance is `scale`.
    scale
        Scale matrix of the inverse-Wishart prior: a number for its diagonal, one number per
        column, or a matrix.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.FullGaussian(prior_strength=0.1).name
    'full_gaussian'
    """

    prior_mean: Any = 0.0
    prior_strength: float = 1.0
    degrees: float | None = None
    scale: Any = 1.0

    name: ClassVar[str] = "full_gaussian"
    kind: ClassVar[str] = "real"
    scale_replicas: ClassVar[bool] = True
    functions: ClassVar[Functions] = FUNCTIONS

    def _degrees(self, n_features: int) -> float:
        if self.degrees is None:
            return n_features + 2.0
        degrees = positive(self.degrees, "degrees")
        if degrees <= n_features - 1:
            wanted = f"be above {n_features - 1}, the number of columns less one"
            raise ParameterError.must("degrees", wanted, self.degrees)
        return degrees

    def _location_factor(self, n_features: int) -> tuple[Vector, Any]:
        """Return the prior mean, and the lower Cholesky factor of the scale matrix."""
        mean = per_column(self.prior_mean, n_features, "prior_mean", above_zero=False)
        if np.ndim(self.scale) < 2:
            diagonal = per_column(self.scale, n_features, "scale", above_zero=True)
            return mean, np.diag(np.sqrt(diagonal))
        try:
            scale = np.asarray(self.scale, dtype=np.float64)
        except (TypeError, ValueError) as error:
            text = "must be a number, a vector or a matrix"
            raise ParameterError.of("scale", text) from error
        if scale.shape != (n_features, n_features):
            text = f"has shape {scale.shape}, but the data have {n_features} columns"
            raise ParameterError.of("scale", text)
        if not np.isfinite(scale).all() or not np.allclose(scale, scale.T, rtol=1e-10, atol=0.0):
            raise ParameterError.of("scale", "must be a symmetric matrix of finite numbers")
        try:
            return mean, np.linalg.cholesky(scale)
        except np.linalg.LinAlgError as error:
            raise ParameterError.of("scale", "must be positive definite") from error

    def resolve(self, X: Any) -> FullGaussian:
        return self.with_parameters(degrees=self._degrees(X.shape[1]))

    def row_layout(self) -> Any:
        return ROW

    def _steps(self, n_features: int, size: int) -> Vector:
        """Return the predictive's constant without |Ψ|, for n = 0 … size − 1."""
        n = np.arange(size, dtype=np.float64)
        half = 0.5 * (self._degrees(n_features) + n + 1.0)
        strength = positive(self.prior_strength, "prior_strength")
        gammas = gammaln(half) - gammaln(half - 0.5 * n_features)
        return np.asarray(gammas - 0.5 * n_features * (LOG_PI + np.log1p(1.0 / (strength + n))))

    def parameters(self, n_features: int, X: Any) -> Vector:
        self._location_factor(n_features)
        strength = positive(self.prior_strength, "prior_strength")
        degrees = self._degrees(n_features)
        size = min(X.shape[0] + 2, _LARGEST_TABLE // n_features)
        n = np.arange(size, dtype=np.float64)
        totals = -0.5 * n_features * (n * LOG_PI + np.log1p(n / strength))
        for i in range(n_features):
            totals += gammaln(0.5 * (degrees - i + n)) - gammaln(0.5 * (degrees - i))
        return layout.make_params(
            PARAMS, n_features=n_features, strength=strength, degrees=degrees,
            steps=self._steps(n_features, size), totals=totals,
        )  # fmt: skip

    def encode(self, X: Any) -> Any:
        mean, factor = self._location_factor(X.shape[1])
        diagonal = factor.diagonal()
        if (factor == np.diag(diagonal)).all():
            encoded = (X - mean) / diagonal
        else:
            encoded = solve_triangular(factor, (X - mean).T, lower=True).T
        limit = math.sqrt(1e300 / X.size)
        if not max(encoded.max(), -encoded.min()) <= limit:
            raise DataError(
                f"X lies more than {limit:.1e} prior scales from the prior mean: rescale it, or"
                " give a larger scale"
            )
        return encoded

    def log_base(self, X: Any) -> Vector:
        _, factor = self._location_factor(X.shape[1])
        return np.full(X.shape[0], -float(np.log(factor.diagonal()).sum()))

    def log_ceiling(self, X: Any) -> Vector:
        # As in `_bound`: constants grow with n, and |Ψ⁺| is least with the point alone.
        strength = positive(self.prior_strength, "prior_strength")
        squares = (self.encode(X) ** 2).sum(axis=1)
        largest = self._steps(X.shape[1], X.shape[0] + 1)[-1]
        return np.asarray(largest - 0.5 * np.log1p(strength / (strength + 1.0) * squares))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        mean, prior_factor = self._location_factor(n_features)
        fields = layout.read(ROW, row, n_features)
        inverse = np.zeros((n_features, n_features))
        inverse[np.tril_indices(n_features)] = fields.inverse
        factor = prior_factor @ np.linalg.inv(inverse)
        scale = factor @ factor.T
        degrees = self._degrees(n_features) + fields.n
        spare = degrees - n_features - 1.0
        return {
            "mean": mean + prior_factor @ fields.mean,
            "covariance": scale / spare if spare > 0.0 else np.full_like(scale, math.nan),
            "strength": self.prior_strength + fields.n,
            "degrees": degrees,
            "scale": scale,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Return the Normal–inverse-gamma prior of one column.

        A diagonal block of an inverse Wishart matrix is one, too, with its degrees reduced by the
        number of other columns: Σ_dd ~ InverseGamma((ν − D + 1)/2, Ψ_dd/2), before and after the
        data.
        """
        return self.columns_along(np.eye(n_features), row)

    def columns_along(self, directions: Matrix, row: Vector) -> Columns:
        """Return the columns vᵀz of a cluster, for the rows v of `directions`.

        vᵀΣv ~ InverseGamma((ν − q + 1)/2, vᵀΨv/2), before and after the data, since every linear
        map of an inverse Wishart matrix is one.
        """
        n_features = directions.shape[1]
        _, factor = self._location_factor(n_features)
        posterior = self.posterior(row, n_features)
        spare = 1.0 - n_features
        scales = (
            ((directions @ factor) ** 2).sum(axis=1),
            np.einsum("di,ij,dj->d", directions, posterior["scale"], directions),
        )
        # A direction of length 0 has no information: any scale above 0 will do.
        before, after = (0.5 * np.maximum(scale, np.finfo(float).tiny) for scale in scales)
        log_marginals = normal_inverse_gamma(
            (self.prior_strength, 0.5 * (self._degrees(n_features) + spare), before),
            (posterior["strength"], 0.5 * (posterior["degrees"] + spare), after),
        )
        return Columns(log_marginals, directions @ posterior["mean"])

    def predictive(self, row: Vector, n_features: int) -> tuple[Vector, Any, float]:
        """Return location, scale matrix and degrees of freedom of the predictive Student t."""
        posterior = self.posterior(row, n_features)
        degrees = posterior["degrees"] - n_features + 1.0
        strength = posterior["strength"]
        scale = posterior["scale"] * (strength + 1.0) / (strength * degrees)
        return posterior["mean"], scale, degrees

    def predictives(self, rows: list[Vector], n_features: int) -> tuple[Any, Any, Any]:
        """Return locations, scale matrices and degrees of freedom of several clusters."""
        parts = [self.predictive(row, n_features) for row in rows]
        means, scales, degrees = (np.array(part) for part in zip(*parts, strict=True))
        return means, scales, degrees

    def linear(self, n_features: int) -> LinearForm:
        mean, factor = self._location_factor(n_features)
        unmixing = solve_triangular(factor, np.eye(n_features), lower=True).T
        return NormalWishart(n_features, self.prior_strength, self._degrees(n_features)).form(
            lambda X: (X - like(X, mean)) @ like(X, unmixing)
        )

    def restated(self, row: Vector, n_features: int, other: FullGaussian) -> Restated:
        """Return the row in the other prior's encoding of x = μ₀ + L₀z."""
        (mean, factor), (centre, unit) = (one._location_factor(n_features) for one in (self, other))
        fields = layout.read(ROW, row, n_features)
        transform = solve_triangular(unit, factor, lower=True)
        scatter = np.zeros((n_features, n_features))
        below = np.tril_indices(n_features)
        scatter[below] = fields.scatter
        scatter = scatter + np.tril(scatter, -1).T
        own = (self.prior_strength + fields.n) / max(fields.n, 1.0) * fields.mean
        shifted = transform @ own + solve_triangular(unit, mean - centre, lower=True)
        share = fields.n / (other.prior_strength + fields.n)
        scatter = (transform @ scatter @ transform.T)[below]
        changed = layout.make(ROW, n_features, n=fields.n, mean=share * shifted, scatter=scatter)
        return Restated(changed, float(fields.n * np.log(transform.diagonal()).sum()))

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps:
        """Return `Gaps`; margins of a Student t have the same degrees of freedom."""
        means, scales, degrees = self.predictives(rows, n_features)
        return Gaps(
            lambda X: np.asarray(log_densities(X, means, scales, degrees)),
            lambda X, weights: expected(X, np.ascontiguousarray(weights), means, scales),
        )

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        mean, scale, degrees = self.predictive(row, n_features)
        factor = np.linalg.cholesky(scale)

        def sample(size: int, rng: Rng) -> Any:
            normal = rng.standard_normal((size, n_features)) @ factor.T
            return mean + normal / np.sqrt(rng.chisquare(degrees, (size, 1)) / degrees)

        return PredictiveDraws(sample)

    @classmethod
    def suggest(cls, X: Any) -> FullGaussian:
        mean, variance = mean_and_variance(X)
        return cls._with_covariance(
            mean, np.diag(learning.WITHIN * variance), learning.START_STRENGTH
        )

    def simpler(self, X: Any) -> Simpler | None:
        """Return independent columns; None if there is only one column."""
        if X.shape[1] == 1:
            return None
        return Simpler(X, DiagonalGaussian.suggest(X), replaces=True)

    def learned(self, X: Any, labels: Ints) -> FullGaussian:
        mean, factor = self._location_factor(X.shape[1])
        start = mean, (factor**2).sum(axis=1) / len(mean)  # as in `_with_covariance`
        mean, covariance = learning.moments_within(X, learning.pooled_covariance(X, labels), start)
        n_features = X.shape[1]
        scale, degrees = n_features * covariance, 2.0 * n_features + 1.0
        sums = learning.sums_of(X, labels)
        counts, shifts = sums.counts[:, 0], sums.means - mean
        rest = learning.deviations(X, labels)
        spread = np.array([rest[labels == k].T @ rest[labels == k] for k in range(len(counts))])

        def log_likelihood(strength: float) -> float:
            """Return the terms of Σ log H that depend on the strength."""
            share = strength * counts / (strength + counts)
            outer = shifts[:, :, None] * shifts[:, None, :]
            logs = np.linalg.slogdet(scale + spread + share[:, None, None] * outer)[1]
            out = -0.5 * (degrees + counts) * logs - 0.5 * n_features * np.log1p(counts / strength)
            return float(out.sum())

        return self._with_covariance(
            mean, covariance, learning.most_likely(log_likelihood, learning.STRENGTHS)
        )

    @classmethod
    def _with_covariance(cls, mean: Vector, covariance: Any, strength: float) -> FullGaussian:
        """Return the prior with this mean covariance and 2D + 1 degrees of freedom."""
        n_features = len(mean)
        scale = n_features * covariance
        return cls(as_tuple(mean), strength, 2.0 * n_features + 1.0, as_tuple(scale))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        scale = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
        return [
            Example(cls(0.0, 0.5), 2.0 * rng.normal(size=(12, 2))),
            Example(cls([1.0, 0.0, -2.0], 1.5, 2.5, scale), rng.normal(size=(12, 3))),
            Example(cls(0.0, 0.1, 9.0, [0.5, 1.0, 2.0, 4.0]), 50.0 + rng.normal(size=(12, 4))),
        ]
