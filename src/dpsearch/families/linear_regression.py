"""Linear regression within clusters: Normal–inverse-gamma prior on coefficients and noise.

    y | x, β, σ² ~ N(β₀ + xᵀβ, σ²),   β_j | σ² ~ N(0, σ² v_j),   σ² ~ InverseGamma(a₀, b₀)

One column is the target y; the others are covariates x, which are not modelled: log H is that of
the targets given the covariates.  Covariates are encoded as u_j = (x_j − c_j)√v_j with √v₀ for the
intercept, and y as (y − c)/√b₀ (times √½ in data rows), so that the prior precision is the identity
and the prior scale 1.  With the sums of n rows, Λ = I + Σuuᵀ, m = Λ⁻¹Σuy (Bishop 2006, section 3.3
and exercise 3.12; Murphy 2012, eqs 7.69–7.76):

    posterior    β = 1 + ½(Σy² − mᵀΛm),   a = a₀ + n/2
    predictive   log p(y | u, C) = log Γ(a + ½)/Γ(a) − ½ log 2πβq − (a + ½) log(1 + (y − uᵀm)²/2βq)
                 q = 1 + uᵀΛ⁻¹u
    marginal     log H = log Γ(a)/Γ(a₀) − a log β − ½ log|Λ| − n/2 log 2π
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import digamma, gammaln

from dpsearch._special import LOG_2PI, log_gamma_table
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column, positive
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import layout
from dpsearch.families._columns import as_tuple, in_range, mean_and_variance
from dpsearch.families._regression import FUNCTIONS, PARAMS, ROW
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, Gaps, PredictiveDraws
from dpsearch.families.functions import Functions
from dpsearch.families.learning import FLOOR, WITHIN
from dpsearch.families.linear import LinearForm, columns_of, like, namespace
from dpsearch.tables.checked import CheckedTable

_LARGEST_TABLE = 1 << 22
_SHAPE = 2.0


@dataclass(frozen=True)
class LinearRegression(Family):
    """A linear regression of one column on the others, with unknown coefficients and noise.

    Parameters
    ----------
    target
        The dependent column: its index, −1 for the last, or its name if the table has names.
    centre
        The centres of covariates and target, a scalar or one number per column: the intercept is
        the value at the covariates' centres, and its prior mean is the target's centre.
    slope_variance
        Prior variance of the covariates' coefficients, relative to the variance of the noise: a
        scalar, or one number per column, of which the target's is not used.
    intercept_variance
        The same for the intercept.
    shape, scale
        Of the inverse-gamma prior on the variance of the noise.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.LinearRegression(target=0).name
    'linear_regression'
    """

    target: Any = -1
    centre: Any = 0.0
    slope_variance: Any = 1.0
    intercept_variance: float = 1.0
    shape: float = 1.0
    scale: float = 1.0

    name: ClassVar[str] = "linear_regression"
    kind: ClassVar[str] = "regression"
    functions: ClassVar[Functions] = FUNCTIONS

    def _columns(self, n_features: int) -> tuple[int, Ints]:
        """Return the index of the target's column, and those of the covariates."""
        target = self.target
        whole = isinstance(target, (int, np.integer)) and not isinstance(target, bool)
        if not whole or not -n_features <= target < n_features:
            wanted = f"be the number or the name of one of the {n_features} columns"
            raise ParameterError.must("target", wanted, target)
        target = int(target) % n_features
        return target, np.delete(np.arange(n_features), target)

    def _scales(self, n_features: int) -> tuple[Vector, Vector]:
        """Return the centre of each column, and the factor that it is then multiplied by."""
        target, _ = self._columns(n_features)
        centre = per_column(self.centre, n_features, "centre", above_zero=False)
        factors = np.sqrt(per_column(self.slope_variance, n_features, "slope_variance",
                                     above_zero=True))  # fmt: skip
        factors[target] = math.sqrt(0.5 / positive(self.scale, "scale"))
        return centre, factors

    def _intercept(self) -> float:
        return math.sqrt(positive(self.intercept_variance, "intercept_variance"))

    def suited(self, table: CheckedTable) -> Family:
        if isinstance(self.target, str):
            names = table.names or ()
            if self.target not in names:
                wanted = "be the name of a column" if names else "be a number: X has no names"
                raise ParameterError.must("target", wanted, self.target)
            return self.with_parameters(target=names.index(self.target)).suited(table)
        return super().suited(table)

    def resolve(self, X: Any) -> LinearRegression:
        return self.with_parameters(target=self._columns(X.shape[1])[0])

    def row_layout(self) -> Any:
        return ROW

    def row_size(self, n_features: int) -> int:
        return n_features + 1  # with the intercept

    def parameters(self, n_features: int, X: Any) -> Vector:
        self._scales(n_features)
        shape = positive(self.shape, "shape")
        size = min(X.shape[0] + 3, _LARGEST_TABLE)
        both = log_gamma_table(shape, size), log_gamma_table(shape + 0.5, size)
        return layout.make_params(
            PARAMS, size=n_features + 1, shape=shape, log_gammas=np.stack(both, axis=1).reshape(-1)
        )

    def encode(self, X: Any) -> Any:
        centre, factors = self._scales(X.shape[1])
        encoded = in_range((X - like(X, centre)) * like(X, factors), "prior scales", "scale")
        return self._arranged(encoded)

    def _arranged(self, encoded: Any) -> Any:
        """Return the covariates, the intercept and the target."""
        target, others = self._columns(encoded.shape[1])
        y = columns_of(encoded, np.array([target]))
        ones = y * like(y, 0.0) + like(y, self._intercept())
        return namespace(y).concat([columns_of(encoded, others), ones, y], axis=1)

    def log_base(self, X: Any) -> Vector:
        return np.full(X.shape[0], -0.5 * math.log(self.scale))

    def log_ceiling(self, X: Any) -> Vector:
        # At the regression line, with the least β and q, which are 1.
        shape = self.shape + 0.5 * X.shape[0]
        largest = gammaln(shape + 0.5) - gammaln(shape) - 0.5 * LOG_2PI
        return np.full(X.shape[0], largest)

    def linear(self, n_features: int) -> LinearForm:
        """Return the linear form, whose features are products of encoded numbers: Σvvᵀ.

        log H is a function of |M| and |Λ|, the determinants with and without the target:
        log Γ(a)/Γ(a₀) − a log|M| + (a − ½) log|Λ| − n/2 log 2π.
        """
        centre, factors = self._scales(n_features)
        i, j = np.tril_indices(n_features + 1)
        twice = np.where(i == j, 1.0, 2.0)

        def features(X: Any) -> Any:
            z = self._arranged((X - like(X, centre)) * like(X, factors))
            return columns_of(z, i) * columns_of(z, j)

        def posterior(sizes: Vector, totals: Matrix) -> tuple[Matrix, Any, Vector, Vector]:
            """Return M, log|Λ|, a and log β."""
            matrix = np.tile(np.eye(n_features + 1), (len(totals), 1, 1))
            matrix[:, i, j] += totals
            matrix[:, j, i] = matrix[:, i, j]
            inner = np.linalg.slogdet(matrix[:, :-1, :-1])[1]
            log_rest = np.maximum(np.linalg.slogdet(matrix)[1] - inner, 0.0)
            return matrix, inner, self.shape + 0.5 * sizes, log_rest

        def log_marginals(sizes: Vector, totals: Matrix) -> Vector:
            _, inner, shape, log_rest = posterior(sizes, totals)
            out = gammaln(shape) - gammaln(self.shape) - shape * log_rest
            return np.asarray(out - 0.5 * (inner + sizes * LOG_2PI))

        def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
            matrix, _, shape, log_rest = posterior(sizes, totals)
            out = -shape[:, None, None] * np.linalg.inv(matrix)
            out[:, :-1, :-1] += (shape - 0.5)[:, None, None] * np.linalg.inv(matrix[:, :-1, :-1])
            return twice * out[:, i, j], 0.5 * (digamma(shape) - log_rest - LOG_2PI)

        def rows(sizes: Vector, totals: Matrix) -> Matrix:
            return layout.make_rows(ROW, len(sizes), n_features + 1, n=sizes, products=totals)

        return LinearForm(len(i), features, log_marginals, weights, rows)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        centre, factors = self._scales(n_features)
        target, others = self._columns(n_features)
        fields = layout.read(ROW, row, n_features + 1)
        last = fields.inverse[-n_features - 1 :]
        coefficients, shape = -last[:-1] / last[-1] / factors[target], self.shape + 0.5 * fields.n
        slopes = coefficients[:-1] * factors[others]
        at_centre = centre[target] + self._intercept() * coefficients[-1]
        scale, spare = self.scale * math.exp(fields.log_rest), shape - 1.0
        return {
            "intercept": float(at_centre - slopes @ centre[others]),
            "slopes": slopes,
            "noise_variance": scale / spare if spare > 0.0 else math.nan,
            "shape": shape,
            "scale": scale,
        }

    def _predictive(self, row: Vector, given: Matrix) -> tuple[Vector, Vector, float]:
        """Return location, scale and degrees of freedom of the target's Student t."""
        n_features = given.shape[1] + 1
        centre, factors = self._scales(n_features)
        _, others = self._columns(n_features)
        below = np.tril_indices(n_features)
        inverse = np.zeros((n_features, n_features))
        inverse[below] = layout.read(ROW, row, n_features + 1).inverse[: len(below[0])]
        u = (given - centre[others]) * factors[others]
        u = np.column_stack([u, np.full(len(u), self._intercept())])
        posterior = self.posterior(row, n_features)
        spread = 1.0 + ((u @ inverse.T) ** 2).sum(axis=1)
        locations = posterior["intercept"] + given @ posterior["slopes"]
        shape = posterior["shape"]
        return locations, np.sqrt(posterior["scale"] / shape * spread), 2.0 * shape

    def _mean_covariates(self, row: Vector, n_features: int) -> Vector:
        """Return the mean of a cluster's covariates; their centres if it is empty."""
        centre, factors = self._scales(n_features)
        _, others = self._columns(n_features)
        fields = layout.read(ROW, row, n_features + 1)
        begin = n_features * (n_features - 1) // 2  # of the intercept's products
        sums = fields.products[begin : begin + n_features - 1] / self._intercept()
        return np.asarray(centre[others] + sums / max(fields.n, 1.0) / factors[others])

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Return columns of which only the target has evidence; covariates are not modelled."""
        target, others = self._columns(n_features)
        fields = layout.read(ROW, row, n_features + 1)
        shape = self.shape + 0.5 * fields.n
        log_h = gammaln(shape) - gammaln(self.shape) - (shape - 0.5) * fields.log_rest
        log_h -= 0.5 * (fields.n * LOG_2PI + fields.log_det)
        out, centres = np.zeros(n_features), np.empty(n_features)
        out[target] = log_h
        centres[others] = self._mean_covariates(row, n_features)
        centres[target] = self._predictive(row, centres[None, others])[0][0]
        return Columns(out, centres)

    def lengths(self, X: Any) -> Matrix:
        """Return the covariates, which are not modelled."""
        return np.asarray(X[:, self._columns(X.shape[1])[1]])

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        """Return draws of targets for given covariates, or for the cluster's mean of these."""
        target, others = self._columns(n_features)
        mean = self._mean_covariates(row, n_features)

        def of_lengths(given: Matrix, rng: Rng) -> Matrix:
            locations, scales, degrees = self._predictive(row, given)
            out = np.empty((len(given), n_features))
            out[:, others] = given
            out[:, target] = locations + scales * rng.standard_t(degrees, size=len(given))
            return out

        return PredictiveDraws(
            lambda size, rng: of_lengths(np.tile(mean, (size, 1)), rng), of_lengths
        )

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps:
        """Return `Gaps` for missing targets, without evidence; covariates must not be missing."""
        target, others = self._columns(n_features)

        def given(X: Matrix) -> Matrix:
            missing = np.isnan(X[:, others])
            if missing.any():
                row, column = np.argwhere(missing)[0]
                raise DataError(
                    "{place} of X is missing, but the covariates of a regression are given: only"
                    " the target may be missing",
                    row=int(row), column=int(others[column]),
                )  # fmt: skip
            return np.asarray(X[:, others])

        def log_densities(X: Matrix) -> Matrix:
            from scipy.stats import t as student  # here, since the import is slow

            parts = [self._predictive(row, given(X)) for row in rows]
            y = X[:, target]
            out = [student.logpdf(y, df, loc, scale) for loc, scale, df in parts]
            return np.where(np.isnan(y)[:, None], 0.0, np.stack(out, axis=1))

        def fill(X: Matrix, weights: Matrix) -> Matrix:
            expected = np.stack([self._predictive(row, given(X))[0] for row in rows], axis=1)
            out = np.array(X)
            missing = np.isnan(X[:, target])
            out[missing, target] = (weights * expected).sum(axis=1)[missing]
            return out

        return Gaps(log_densities, fill)

    @classmethod
    def suggest(cls, X: Any) -> LinearRegression:
        return cls()._for_noise(X, WITHIN * _unexplained(X, cls()._columns(X.shape[1])[0], None))

    def learned(self, X: Any, labels: Ints) -> LinearRegression:
        target = self._columns(X.shape[1])[0]
        least = FLOOR * _unexplained(X, target, None)
        return self._for_noise(X, max(_unexplained(X, target, labels), least))

    def _for_noise(self, X: Any, noise: float) -> LinearRegression:
        """The prior whose mean variance of the noise is as given, for slopes of any sensible size.

        A coefficient that explains all of the target's variance is one prior deviation from 0.
        """
        mean, variance = mean_and_variance(X)
        target, _ = self._columns(X.shape[1])
        noise = noise if noise > 0.0 else FLOOR * float(variance[target])
        by_noise = float(variance[target]) / noise
        return self.with_parameters(
            centre=as_tuple(mean), slope_variance=as_tuple(by_noise / variance),
            intercept_variance=by_noise, shape=_SHAPE, scale=(_SHAPE - 1.0) * noise,
        )  # fmt: skip

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(14, 3))
        X[:, 1] += np.where(np.arange(14) < 7, 2.0, -2.0) * X[:, 0]
        return [
            Example(cls(1, 0.0, 1.0, 2.0, 2.0, 0.5), X),
            Example(cls(-1, [1.0, -0.5], [0.5, 1.0]), 3.0 * X[:, :2]),
        ]


def _unexplained(X: Any, target: int, labels: Ints | None) -> float:
    """Return the variance of the target about a regression in each cluster, pooled.

    With the degrees of freedom that are left; clusters with none are left out.
    """
    labels = np.zeros(len(X), np.int64) if labels is None else labels
    total, freedom = 0.0, 0
    for k in np.unique(labels):
        own = X[labels == k]
        u = np.column_stack([np.delete(own, target, axis=1), np.ones(len(own))])
        u[:, :-1] -= u[:, :-1].mean(axis=0)
        y = own[:, target] - own[:, target].mean()
        fitted, _, rank, _ = np.linalg.lstsq(u, y, rcond=None)
        if len(own) > rank:
            total += float(((y - u @ fitted) ** 2).sum())
            freedom += len(own) - int(rank)
    return total / freedom if freedom else 0.0
