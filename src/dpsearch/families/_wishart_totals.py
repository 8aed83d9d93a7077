"""The linear form of a Gaussian with unknown mean and covariance matrix: see `full_gaussian.py`.

Features are z and the lower triangle of zzᵀ.  With their totals s and Q of n points,

    Ψ = I + Q − ssᵀ/κ,   κ = κ₀ + n,   ν = ν₀ + n,   m = s/κ
    ∂ log H/∂Q = −ν/2 Ψ⁻¹,   ∂ log H/∂s = νΨ⁻¹m
    ∂ log H/∂n = ½ Σ_i ψ((ν − i)/2) − ½ log|Ψ| − ν/2 mᵀΨ⁻¹m − D/2κ − D/2 log π,   i = 0 … D − 1
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from dpsearch._jit import kernel
from dpsearch._types import Matrix, Vector
from dpsearch.families import layout
from dpsearch.families._normal_wishart import LOG_PI, ROW
from dpsearch.families.linear import LinearForm, inverses, namespace, special
from dpsearch.families.terms import Term, each_run, rounded_up

_MOST_COLUMNS = 2  # for proofs: with more, a region has too many corners


class NormalWishart(NamedTuple):
    """The prior of encoded data: mean 0 and scale matrix 1."""

    n_features: int
    strength: float
    degrees: float

    def form(self, encode: Callable[[Any], Any]) -> LinearForm:
        """Return the form for data that `encode` maps to z by operations of the array API."""
        n_features = self.n_features
        n_totals = n_features * (n_features + 3) // 2

        def features(X: Any) -> Any:
            z = encode(X)
            if isinstance(z, np.ndarray):
                out = np.empty((len(z), n_totals), z.dtype)
                _with_products(z, out)
                return out
            products = [z[:, d : d + 1] * z[:, : d + 1] for d in range(n_features)]
            return namespace(z).concat([z, *products], axis=1)

        functions = self._upper, self.weights
        term = Term(
            np.arange(n_totals), n_features, *functions, squares=True, exactly=self._exactly
        )
        terms = (term,) if n_features <= _MOST_COLUMNS else ()
        return LinearForm.of(self, n_totals, features, self._rows, terms, quick=True)

    def _upper(self, sizes: Vector, totals: Matrix) -> Vector:
        """Return log H rounded up; ∞ where Ψ is not the sum of I and a covariance matrix.

        It is for one or two columns, whose determinant and smaller eigenvalue are written out.
        """
        d, kappa = self.n_features, self.strength + sizes
        squares = totals[:, :d] ** 2 / kappa[:, None]
        places = [d, d + 2][:d]
        diagonal = 1.0 + totals[:, places] - squares
        parts = 1.0 + totals[:, places].sum(axis=1) + squares.sum(axis=1)
        smallest = determinant = diagonal[:, 0]
        if d == 2:
            cross = totals[:, 3] - totals[:, 0] * totals[:, 1] / kappa
            determinant = determinant * diagonal[:, 1] - cross * cross
            trace = diagonal.sum(axis=1)
            root = np.sqrt((diagonal[:, 0] - diagonal[:, 1]) ** 2 + 4.0 * cross * cross)
            with np.errstate(divide="ignore", invalid="ignore"):
                smallest = np.where(trace > 0.0, 2.0 * determinant / (trace + root), -1.0)
        half, inside = 0.5 * (self.degrees + sizes), smallest > 0.125
        by_size = each_run(self._by_size, sizes)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = parts / np.where(inside, smallest, 1.0) + np.log(parts) + np.log1p(half) + 4.0
            out = rounded_up(by_size - half * np.log(determinant), d * half * spread)
        return np.where(inside, out, np.inf)

    def _exactly(self, real: Any, n: Any, *totals: Any) -> Any:
        """Return log H for one or two columns; see `Term.exactly`."""
        d, strength, degrees = self.n_features, real(self.strength), real(self.degrees)
        kappa = strength + n
        determinant = 1 + totals[d] - totals[0] * totals[0] / kappa
        if d == 2:
            cross = totals[3] - totals[0] * totals[1] / kappa
            determinant *= 1 + totals[4] - totals[1] * totals[1] / kappa
            determinant -= cross * cross
        halves = [(degrees - i) / 2 for i in range(d)]
        out = sum(real.log_gamma(half + n / 2) - real.log_gamma(half) for half in halves)
        out -= (degrees + n) / 2 * real.log(determinant)
        return out - d * (real.log(kappa / strength) + n * real.log(real.pi)) / 2

    def _by_size(self, sizes: Vector) -> Vector:
        """Return log H without |Ψ|."""
        d, steps = self.n_features, 0.5 * np.arange(self.n_features)
        gammas = scipy.special.gammaln(0.5 * (self.degrees + sizes)[:, None] - steps).sum(axis=1)
        gammas -= scipy.special.gammaln(0.5 * self.degrees - steps).sum()
        return np.asarray(gammas - 0.5 * d * (np.log1p(sizes / self.strength) + sizes * LOG_PI))

    def _scale(self, sizes: Any, totals: Any) -> tuple[Any, Any, Any]:
        """Return κ, s and Ψ of each block."""
        d, xp, fixed = self.n_features, namespace(totals), _fixed(self.n_features, totals)
        kappa, sums = self.strength + sizes, totals[:, :d]
        outer = sums[:, :, None] * sums[:, None, :] / kappa[:, None, None]
        products = xp.reshape(xp.take(totals, fixed.square, axis=1), (-1, d, d))
        return kappa, sums, fixed.one + products - outer

    def log_marginals(self, sizes: Any, totals: Any) -> Any:
        xp, gammaln = namespace(totals), special(totals).gammaln
        kappa, _, scale = self._scale(sizes, totals)
        half, d = 0.5 * (self.degrees + sizes), self.n_features
        before = scipy.special.gammaln(0.5 * (self.degrees - np.arange(d))).sum()
        steps = _fixed(d, totals).steps
        gammas = xp.sum(gammaln(half[:, None] - steps), axis=1) - float(before)
        spread = half * xp.linalg.slogdet(scale)[1]
        return gammas - spread - 0.5 * d * (xp.log(kappa / self.strength) + sizes * LOG_PI)

    def weights(self, sizes: Any, totals: Any) -> tuple[Any, Any]:
        xp, digamma = namespace(totals), special(totals).digamma
        kappa, sums, scale = self._scale(sizes, totals)
        d, degrees, fixed = self.n_features, self.degrees + sizes, _fixed(self.n_features, totals)
        inverse, spread = inverses(scale)
        means = sums / kappa[:, None]
        pulls = xp.reshape(inverse @ means[:, :, None], (-1, d))
        lower = xp.take(xp.reshape(inverse, (-1, d * d)), fixed.lower, axis=1)
        gammas = xp.sum(digamma(0.5 * degrees[:, None] - fixed.steps), axis=1)
        distance = degrees * xp.sum(means * pulls, axis=1)
        by_size = 0.5 * (gammas - spread - distance - d * (1.0 / kappa + LOG_PI))
        parts = [degrees[:, None] * pulls, -degrees[:, None] * (fixed.twice * lower)]
        return xp.concat(parts, axis=1), by_size

    def _rows(self, sizes: Vector, totals: Matrix) -> Matrix:
        d = self.n_features
        sums, products = np.split(totals, [d], axis=1)
        i, j = np.tril_indices(d)
        scatter = products - sums[:, i] * sums[:, j] / np.maximum(sizes, 1.0)[:, None]
        scatter[:, i == j] = np.maximum(scatter[:, i == j], 0.0)
        means = sums / (self.strength + sizes)[:, None]
        return layout.make_rows(ROW, len(sizes), d, n=sizes, mean=means, scatter=scatter)


class _Fixed(NamedTuple):
    """Constants of the formulas for D columns, as arrays of one library, type and device."""

    one: Any  # the unit matrix
    square: Any  # for each entry of a matrix the index of its product among the totals
    lower: Any  # the entries of the lower triangle
    twice: Any  # ½ on the diagonal: products off it stand for two entries
    steps: Any  # 0, ½, 1, …


def _fixed(n_features: int, X: Any) -> _Fixed:
    """Return the constants as arrays like X."""
    return _fixed_for(n_features, namespace(X), getattr(X, "device", None), X.dtype)


@functools.lru_cache(maxsize=32)
def _fixed_for(d: int, xp: Any, device: Any, dtype: Any) -> _Fixed:
    i, j = np.indices((d, d))
    high, low = np.maximum(i, j), np.minimum(i, j)
    a, b = np.tril_indices(d)
    numbers = (np.eye(d), np.where(a == b, 0.5, 1.0), 0.5 * np.arange(d))
    one, twice, steps = (xp.asarray(x, dtype=dtype, device=device) for x in numbers)
    places = (d + high * (high + 1) // 2 + low).reshape(-1), a * d + b
    square, lower = (xp.asarray(x, device=device) for x in places)
    return _Fixed(one, square, lower, twice, steps)


@kernel
def _with_products(z, out):  # type: ignore[no-untyped-def]
    """Write each row, followed by the lower triangle of its products."""
    n_features = z.shape[1]
    for i in range(z.shape[0]):
        at = n_features
        for d in range(n_features):
            value = z[i, d]
            out[i, d] = value
            for e in range(d + 1):
                out[i, at + e] = value * z[i, e]
            at += d + 1
