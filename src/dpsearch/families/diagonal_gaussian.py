"""Gaussian data with unknown mean and variance in every column: Normal–inverse-gamma prior.

    x | μ, v ~ N(μ, v),   μ | v ~ N(μ₀, v/κ₀),   v ~ InverseGamma(a₀, b₀)      column by column

Data are encoded as z = (x − μ₀)/√b₀, so that the prior mean is 0 and the prior scale 1.  With n
points of a cluster, their mean z̄ and their squared deviations M = Σ (z − z̄)² (Murphy 2007,
"Conjugate Bayesian analysis of the Gaussian distribution", eqs 85–100):

    posterior    κ = κ₀ + n,  a = a₀ + n/2,  m = n z̄/κ,  β = 1 + M/2 + κ₀ n z̄²/(2κ)
    predictive   log p(z | C) = log Γ(a + ½)/Γ(a) − ½ log 2πβ(κ + 1)/κ − (a + ½) log(1 + q),
                 q = κ (z − m)²/(2β(κ + 1))                       a Student t with 2a degrees
    marginal     log H = log Γ(a)/Γ(a₀) − a log β − ½ log κ/κ₀ − n/2 log 2π

summed over columns.  Terms that depend on n alone come from two tables.  If a₀ is one number, the
sum of log(1 + q) over the columns is computed as the logarithm of a product; if it is not, and for
data with gaps, the functions are those of `_diagonal_columns.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import betaln, gammaln

from dpsearch import _jit
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Matrix, Vector
from dpsearch._validate import per_column
from dpsearch.families import _diagonal_columns, layout, learning
from dpsearch.families._columns import (
    in_range,
    mean_and_variance,
    normal_inverse_gamma,
    standardised,
    with_holes,
)
from dpsearch.families._diagonal_columns import PARAMS, best_case, column_step, column_total
from dpsearch.families._totals import NormalGammaTotals, by_columns
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, table, view, view_at
from dpsearch.families.linear import LinearForm, like
from dpsearch.families.with_gaps import WithGaps, WithOwnRows, filled
from dpsearch.items import fill

_LARGEST_TABLE = 1 << 22
# A running product of factors ≥ 1 is replaced by its logarithm above this; neither the product nor
# a factor exceeds it before they are multiplied, so nothing overflows.
_FULL = 1e150
_SHAPE = 5.0  # the suggested a₀: cluster variances are within a factor of 2 of the prior's


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive
    log_betas: layout.Number  # Σ log β
    padding: layout.Number  # to begin vectors at a multiple of 32 bytes
    means: layout.Numbers  # z̄ of each column
    squares: layout.Numbers  # M
    centres: layout.Numbers  # m
    factors: layout.Numbers  # q/(z − m)²


ROW = layout.row(_Row)


@_jit.inner
def _step(params, n):  # type: ignore[no-untyped-def]
    """Return the predictive's constant for n points, without β."""
    if n < params[PARAMS.size]:
        return entry(params, PARAMS.steps, n)
    out = 0.0
    for d in range(length(params, PARAMS.shape)):
        out += column_step(params, d, n)
    return out


@_jit.inner
def _times(logs, product, factor):  # type: ignore[no-untyped-def]
    """Multiply exp(logs) · product by a factor; return both."""
    if factor > _FULL:
        return logs + math.log(factor), product
    product *= factor
    if product > _FULL:
        return logs + math.log(product), 1.0
    return logs, product


@_jit.inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Compute everything that scoring needs from n, z̄ and M."""
    strength = table(params, PARAMS.strength)
    n_features, n = strength.shape[0], row[ROW.n]
    means, squares = view(row, ROW.means, n_features), view(row, ROW.squares, n_features)
    centres, factors = view(row, ROW.centres, n_features), view(row, ROW.factors, n_features)
    logs, product = 0.0, 1.0
    for d in range(n_features):
        kappa = strength[d] + n
        beta = 1.0 + 0.5 * (squares[d] + strength[d] * n / kappa * means[d] * means[d])
        centres[d] = n * means[d] / kappa
        factors[d] = kappa / (2.0 * beta * (kappa + 1.0))
        logs, product = _times(logs, product, beta)
    logs += math.log(product)
    row[ROW.constant] = _step(params, n) - 0.5 * logs
    row[ROW.log_betas] = logs


@_jit.inner
def _add(params, row, added, means, share, squares):  # type: ignore[no-untyped-def]
    """Add points, or remove them if `added` < 0, by their means and a share of their squares.

    The update is that of Chan, Golub & LeVeque 1983, eq. 2.1, for a single point Welford's: no
    digits are lost however far the data are from the prior mean.
    """
    n_features, n = means.shape[0], row[ROW.n]
    total = n + added
    if total <= 0.0:
        fill(row, 0.0)
    elif added != 0.0:
        own, left = view(row, ROW.means, n_features), view(row, ROW.squares, n_features)
        for d in range(n_features):
            difference = means[d] - own[d]
            own[d] += added / total * difference
            sum_of_squares = left[d] + share * squares[d]
            sum_of_squares += added * n / total * difference * difference
            # It is 0 for a single point, and rounding must not make it negative.
            left[d] = max(sum_of_squares, 0.0) if total > 1.0 else 0.0
        row[ROW.n] = total
    _constants(params, row)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    _add(params, row, weight, values, 0.0, values)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = length(params, PARAMS.strength)
    squares = view(other, ROW.squares, n_features)
    _add(params, row, sign * other[ROW.n], view(other, ROW.means, n_features), sign, squares)


@_jit.inner
def _sum_logs(values, centres, factors):  # type: ignore[no-untyped-def]
    """Return Σ_d log(1 + q_d) where the product of all 1 + q overflows."""
    logs, product = 0.0, 1.0
    for d in range(values.shape[0]):
        difference = values[d] - centres[d]
        logs, product = _times(logs, product, 1.0 + factors[d] * difference * difference)
    return logs + math.log(product)


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features, shape = values.shape[0], entry(params, PARAMS.shape, 0)
    for k in range(starts.shape[0]):
        s = starts[k]
        centres = view_at(pool, s, ROW.centres, n_features)
        factors = view_at(pool, s, ROW.factors, n_features)
        product = 1.0
        for d in range(n_features):
            difference = values[d] - centres[d]
            product *= 1.0 + factors[d] * difference * difference
        logs = math.log(product) if product < np.inf else _sum_logs(values, centres, factors)
        out[k] = pool[s + ROW.constant] - (shape + 0.5 * (pool[s + ROW.n] + 1.0)) * logs


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n, out = row[ROW.n], 0.0
    if n < params[PARAMS.size]:
        out = entry(params, PARAMS.totals, n)
    else:
        for d in range(length(params, PARAMS.shape)):
            out += column_total(params, d, n)
    return out - (entry(params, PARAMS.shape, 0) + 0.5 * n) * row[ROW.log_betas]


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    n_features, n = values.shape[0], row[ROW.n]
    centres, factors = view(row, ROW.centres, n_features), view(row, ROW.factors, n_features)
    out = _step(params, n + helpers)
    for d in range(n_features):
        out += best_case(params, d, n, centres[d], factors[d], values[d], helpers, low[d], high[d])
    return out


_SHARED = Functions(_update, _merge, _score_rows, _log_marginal, bound=_bound)


@dataclass(frozen=True)
class DiagonalGaussian(Family):
    """Gaussian with unknown mean and variance, independent in every column.

    Parameters
    ----------
    prior_mean
        The prior mean of cluster means.
    prior_strength
        The weight of the prior on the mean, as a number of points.
    shape, scale
        Parameters of the inverse-gamma prior on the variance, whose mean is scale / (shape − 1).

    All are scalars, or one number per column.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.DiagonalGaussian(shape=3.0).name
    'diagonal_gaussian'
    """

    prior_mean: Any = 0.0
    prior_strength: Any = 1.0
    shape: Any = 2.0
    scale: Any = 1.0

    name: ClassVar[str] = "diagonal_gaussian"
    kind: ClassVar[str] = "real"
    scale_replicas: ClassVar[bool] = True
    independent_columns: ClassVar[bool] = True
    functions: ClassVar[Functions] = _SHARED

    @staticmethod
    def forward(X: Any) -> Any:
        """Return the transforms of the values that are normal: here the values themselves."""
        return X

    def log_jacobian(self, X: Any) -> Any:
        """Return the log Jacobian of `forward` for each row."""
        return 0.0

    def strength_shape(self, n_features: int) -> tuple[Vector, Vector]:
        """Return the prior's strength and shape in each column."""
        strength = per_column(self.prior_strength, n_features, "prior_strength", above_zero=True)
        return strength, per_column(self.shape, n_features, "shape", above_zero=True)

    def location_scale(self, n_features: int) -> tuple[Vector, Vector]:
        """Return what `encode` subtracts from each column, and what it divides by."""
        mean = per_column(self.prior_mean, n_features, "prior_mean", above_zero=False)
        scale = per_column(self.scale, n_features, "scale", above_zero=True)
        return mean, np.sqrt(scale)

    def _tables(self, n_features: int, size: int) -> tuple[Vector, Vector]:
        """Return the terms of predictive and marginal that depend on n alone, n = 0 … size − 1."""
        n = np.arange(size, dtype=np.float64)
        steps, totals = np.zeros(size), np.zeros(size)
        pairs = np.stack(self.strength_shape(n_features), axis=1)
        for (strength, shape), columns in zip(
            *np.unique(pairs, axis=0, return_counts=True), strict=True
        ):
            # The beta function gives log Γ(a + ½)/Γ(a) with full precision for large a.
            step = 0.5 * math.log(math.pi) - betaln(shape + 0.5 * n, 0.5)
            step -= 0.5 * (LOG_2PI + np.log1p(1.0 / (strength + n)))
            total = gammaln(shape + 0.5 * n) - gammaln(shape)
            total -= 0.5 * (n * LOG_2PI + np.log1p(n / strength))
            steps += columns * step
            totals += columns * total
        return steps, totals

    def _has_columns(self) -> bool:
        """Whether columns have different shapes, so that rows are those of `_diagonal_columns`."""
        return len(set(np.ravel(self.shape).tolist())) > 1

    def variant(self) -> Functions:
        return _diagonal_columns.FUNCTIONS if self._has_columns() else _SHARED

    def row_layout(self) -> Any:
        return _diagonal_columns.ROW if self._has_columns() else ROW

    def bound_width(self, n_features: int) -> int:
        return 2 * n_features if self._has_columns() else n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        return self.laid_out(n_features, X.shape[0], by_column=self._has_columns())

    def laid_out(self, n_features: int, n_rows: int, *, by_column: bool) -> Vector:
        """Return the parameters, with tables for all columns together or for each prior."""
        self.location_scale(n_features)
        strength, shape = self.strength_shape(n_features)
        _, first, kind = np.unique(
            np.stack([strength, shape]), axis=1, return_index=True, return_inverse=True
        )
        # Different priors share the budget of memory.
        size = min(n_rows + 2, _LARGEST_TABLE // len(first))
        if by_column:
            columns = [self.column(int(d), n_features)._tables(1, size) for d in first]
            steps, totals = np.concatenate(columns, axis=1)
        else:
            steps, totals = self._tables(n_features, size)
        return layout.make_params(
            PARAMS,
            size=size,
            strength=strength,
            shape=shape,
            begins=kind.reshape(-1) * size,
            steps=steps,
            totals=totals,
        )

    def encode(self, X: Any) -> Any:
        encoded = standardised(self.forward(X), *self.location_scale(X.shape[1]))
        return in_range(encoded, "prior scales", "scale", float(np.max(self.prior_strength)))

    def log_base(self, X: Any) -> Vector:
        _, scale = self.location_scale(X.shape[1])
        base = np.full(X.shape[0], -float(np.log(scale).sum()))
        return np.asarray(base + self.log_jacobian(X))

    def log_ceiling(self, X: Any) -> Vector:
        # As in `_bound`: constants grow with n, and the term of β is at most −½ log of this spread.
        strength, _ = self.strength_shape(X.shape[1])
        steps, _ = self._tables(X.shape[1], X.shape[0] + 1)
        spread = 0.5 * strength / (strength + 1.0) * self.encode(X) ** 2
        return np.asarray(steps[-1] - 0.5 * np.log1p(spread).sum(axis=1))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        mean, scale = self.location_scale(n_features)
        strength, shape = self.strength_shape(n_features)
        fields = layout.read(self.row_layout(), row, n_features)
        kappa, shape = strength + fields.n, shape + 0.5 * fields.n
        beta = scale**2 * kappa / (2.0 * fields.factors * (kappa + 1.0))
        variance = np.full(n_features, math.inf)  # the mean of an inverse gamma with shape ≤ 1
        np.divide(beta, shape - 1.0, out=variance, where=shape > 1.0)
        return {
            "mean": mean + scale * fields.centres,
            "variance": variance,
            "strength": kappa,
            "shape": shape,
            "scale": beta,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        posterior = self.posterior(row, n_features)
        _, scale = self.location_scale(n_features)
        log_marginals = normal_inverse_gamma(
            (*self.strength_shape(n_features), scale**2),
            (posterior["strength"], posterior["shape"], posterior["scale"]),
        )
        return Columns(log_marginals, posterior["mean"])

    def linear(self, n_features: int) -> LinearForm:
        return self.linear_form(n_features, self.row_layout(), gaps=False)

    def linear_form(self, n_features: int, row_layout: Any, *, gaps: bool) -> LinearForm:
        """Return the linear form, for data with gaps or without."""
        mean, scale = self.location_scale(n_features)

        def rows(sizes: Vector, n: Matrix, sums: Matrix, squares: Matrix) -> Matrix:
            means = sums / np.maximum(n, 1.0)
            squares = np.maximum(squares - sums * means, 0.0)
            return layout.make_rows(
                row_layout, len(sizes), n_features, n=sizes, counts=n, means=means, squares=squares
            )

        return by_columns(
            NormalGammaTotals(*self.strength_shape(n_features)),
            n_features,
            lambda X: (self.forward(X) - like(X, mean)) / like(X, scale),
            rows,
            powers=2,
            gaps=gaps,
        )

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        fields = layout.read(self.row_layout(), row, n_features)
        return self.restated_columns(fields, fields.n, other, other.row_layout())

    def restated_columns(
        self, fields: Any, counts: Any, other: DiagonalGaussian, row_layout: Any
    ) -> Restated:
        """Return the row for another prior; `counts` are of each column, or one for all."""
        width = len(fields.means)
        (mean, scale), (centre, unit) = (one.location_scale(width) for one in (self, other))
        ratio = scale / unit
        means = np.where(counts > 0.0, ratio * fields.means + (mean - centre) / unit, 0.0)
        row = layout.make(
            row_layout, width,
            n=fields.n, counts=counts, means=means, squares=ratio**2 * fields.squares,
        )  # fmt: skip
        return Restated(row, float((counts * np.log(ratio)).sum()))

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        fields = layout.read(self.row_layout(), row, n_features)
        return self.restated_columns(fields, fields.n, self, _diagonal_columns.ROW).row

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        posterior = self.posterior(row, n_features)
        kappa, shape = posterior["strength"], posterior["shape"]
        spread = np.sqrt(posterior["scale"] * (kappa + 1.0) / (kappa * shape))
        return PredictiveDraws(
            lambda size, rng: (
                posterior["mean"] + spread * rng.standard_t(2.0 * shape, (size, n_features))
            )
        )

    @classmethod
    def suggest(cls, X: Any) -> Self:
        mean, variance = mean_and_variance(cls.forward(X))
        return cls._with_variance(mean, learning.WITHIN * variance, learning.START_STRENGTH)

    def learned(self, X: Any, labels: Ints) -> Self:
        X = self.forward(X)
        mean = per_column(self.prior_mean, X.shape[1], "prior_mean", above_zero=False)
        scale = per_column(self.scale, X.shape[1], "scale", above_zero=True)
        start = mean, scale / (_SHAPE - 1.0)  # as in `_with_variance`
        mean, within = learning.moments_within(X, learning.pooled_variance(X, labels), start)
        sums = learning.sums_of(X, labels)
        counts, squares = sums.counts, (sums.means - mean) ** 2
        spread = learning.sums_of(learning.deviations(X, labels) ** 2, labels).sums
        scale = (_SHAPE - 1.0) * within

        def log_likelihood(strength: float) -> float:
            """Return the terms of Σ log H that depend on the strength."""
            share = strength * counts / (strength + counts)
            logs = np.log(scale + 0.5 * (spread + share * squares))
            out = -(_SHAPE + 0.5 * counts) * logs - 0.5 * np.log1p(counts / strength)
            return float(out.sum())

        return self._with_variance(
            mean, within, learning.most_likely(log_likelihood, learning.STRENGTHS)
        )

    @classmethod
    def _with_variance(cls, mean: Vector, variance: Vector, strength: float) -> Self:
        """Return the prior with this mean of the variance."""
        scale = (_SHAPE - 1.0) * variance
        return cls(tuple(mean.tolist()), strength, _SHAPE, tuple(scale.tolist()))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        return [
            Example(cls(0.0, 0.5, 2.0, 1.5), 2.0 * rng.normal(size=(12, 3))),
            Example(cls([1.0, -1.0], [0.1, 2.0], [1.5, 3.0], [0.3, 4.0]), rng.normal(size=(12, 2))),
            Example(cls(3.0, 1.0, 1.0, 1e-4), 1e3 + rng.normal(size=(12, 11))),
            Example(cls([1.0, -1.0], 2.0, [1.5, 3.0], 0.7), with_holes(rng.normal(size=(12, 2)))),
        ]


class DiagonalWithGaps(WithOwnRows):
    """`WithGaps` of a `DiagonalGaussian`."""

    family: DiagonalGaussian

    functions: ClassVar[Functions] = _diagonal_columns.FUNCTIONS
    log_ceiling = WithGaps.log_ceiling  # the sum over columns

    def row_layout(self) -> Any:
        return _diagonal_columns.ROW

    def bound_width(self, n_features: int) -> int:
        return 2 * n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        return self.family.laid_out(n_features, X.shape[0], by_column=True)

    def encode(self, X: Any) -> Any:
        return np.where(np.isnan(X), np.nan, self.family.encode(filled(X)))

    def log_base(self, X: Any) -> Vector:
        _, scale = self.family.location_scale(X.shape[1])
        return np.asarray(self.family.log_jacobian(X) - ~np.isnan(X) @ np.log(scale))

    def linear(self, n_features: int) -> LinearForm:
        return self.family.linear_form(n_features, _diagonal_columns.ROW, gaps=True)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        fields = layout.read(_diagonal_columns.ROW, row, n_features)
        return self.family.restated_columns(
            fields, fields.counts, other.family, _diagonal_columns.ROW
        )

    def _rows(self, row: Vector, n_features: int) -> list[Vector]:
        fields = layout.read(_diagonal_columns.ROW, row, n_features)
        statistics = ("means", "squares", "centres", "factors")
        return [
            layout.make(ROW, 1, n=n, **{name: getattr(fields, name)[d] for name in statistics})
            for d, n in enumerate(fields.counts)
        ]


DiagonalGaussian.form_with_gaps = DiagonalWithGaps
