"""The linear form of a Gaussian with unknown mean and covariance matrix: see `full_gaussian.py`.

Features are z and the lower triangle of zzᵀ.  With their totals s and Q of n points,

    Ψ = I + Q − ssᵀ/κ,   κ = κ₀ + n,   ν = ν₀ + n,   m = s/κ
    ∂ log H/∂Q = −ν/2 Ψ⁻¹,   ∂ log H/∂s = νΨ⁻¹m
    ∂ log H/∂n = ½ Σ_i ψ((ν − i)/2) − ½ log|Ψ| − ν/2 mᵀΨ⁻¹m − D/2κ − D/2 log π,   i = 0 … D − 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, multigammaln

from dpsearch._types import Matrix, Vector
from dpsearch.families import layout
from dpsearch.families._normal_wishart import LOG_PI, ROW
from dpsearch.families.linear import LinearForm, columns_of, namespace
from dpsearch.families.terms import Term, rounded_up

_MOST_COLUMNS = 1  # for proofs: the corners of a region are too many with more


class NormalWishart(NamedTuple):
    """The prior of encoded data: mean 0 and scale matrix 1."""

    n_features: int
    strength: float
    degrees: float

    def form(self, encode: Callable[[Any], Any]) -> LinearForm:
        """Return the form for data that become z by `encode`, in operations of the array API."""
        n_features = self.n_features
        i, j = np.tril_indices(n_features)

        def features(X: Any) -> Any:
            z = encode(X)
            return namespace(z).concat([z, columns_of(z, i) * columns_of(z, j)], axis=1)

        n_totals = n_features * (n_features + 3) // 2
        term = Term(np.arange(n_totals), n_features, self._upper, self._weights, squares=True)
        terms = (term,) if n_features <= _MOST_COLUMNS else ()
        return LinearForm(n_totals, features, self._log_marginals, self._weights, self._rows, terms)

    def _upper(self, sizes: Vector, totals: Matrix) -> Vector:
        """Return log H rounded up; ∞ where Ψ is not the sum of 1 and a covariance matrix."""
        kappa, sums, scale = self._scale(sizes, totals)
        smallest = np.linalg.eigvalsh(scale)[:, 0]
        half = 0.5 * (self.degrees + sizes)
        parts = 1.0 + np.abs(totals[:, self.n_features :]).sum(axis=1)
        parts += (sums**2).sum(axis=1) / kappa
        inside = smallest > 0.5
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = parts / np.where(inside, smallest, 1.0) + np.log(parts) + np.log1p(half) + 4.0
            out = rounded_up(self._log_marginals(sizes, totals), self.n_features * half * spread)
        return np.where(inside, out, np.inf)

    def _scale(self, sizes: Vector, totals: Matrix) -> tuple[Vector, Matrix, Any]:
        """Return κ, s and Ψ of each block."""
        kappa = self.strength + sizes
        sums, products = np.split(totals, [self.n_features], axis=1)
        outer = sums[:, :, None] * sums[:, None, :] / kappa[:, None, None]
        return kappa, sums, np.eye(self.n_features) + self._square(products) - outer

    def _square(self, triangles: Matrix) -> Any:
        """Return symmetric matrices [K, D, D] with these lower triangles."""
        i, j = np.tril_indices(self.n_features)
        out = np.empty((len(triangles), self.n_features, self.n_features))
        out[:, i, j] = out[:, j, i] = triangles
        return out

    def _log_marginals(self, sizes: Vector, totals: Matrix) -> Vector:
        kappa, _, scale = self._scale(sizes, totals)
        half, d = 0.5 * (self.degrees + sizes), self.n_features
        gammas = multigammaln(half, d) - multigammaln(0.5 * self.degrees, d)
        spread = half * np.linalg.slogdet(scale)[1]
        return np.asarray(
            gammas - spread - 0.5 * d * (np.log(kappa / self.strength) + sizes * LOG_PI)
        )

    def _weights(self, sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
        kappa, sums, scale = self._scale(sizes, totals)
        d, degrees = self.n_features, self.degrees + sizes
        inverse = np.linalg.inv(scale)
        means = sums / kappa[:, None]
        pulls = np.einsum("kij,kj->ki", inverse, means)
        by_sums = degrees[:, None] * pulls
        i, j = np.tril_indices(d)
        twice = np.where(i == j, 0.5, 1.0)  # products off the diagonal stand for two entries
        by_products = -degrees[:, None] * twice * inverse[:, i, j]
        gammas = 0.5 * digamma(0.5 * (degrees[:, None] - np.arange(d))).sum(axis=1)
        by_size = gammas - 0.5 * np.linalg.slogdet(scale)[1] - 0.5 * d * (1.0 / kappa + LOG_PI)
        by_size -= 0.5 * degrees * (means * pulls).sum(axis=1)
        return np.hstack([by_sums, by_products]), by_size

    def _rows(self, sizes: Vector, totals: Matrix) -> Matrix:
        d = self.n_features
        sums, products = np.split(totals, [d], axis=1)
        i, j = np.tril_indices(d)
        scatter = products - sums[:, i] * sums[:, j] / np.maximum(sizes, 1.0)[:, None]
        scatter[:, i == j] = np.maximum(scatter[:, i == j], 0.0)
        means = sums / (self.strength + sizes)[:, None]
        return layout.make_rows(ROW, len(sizes), d, n=sizes, mean=means, scatter=scatter)
