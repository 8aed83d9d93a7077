"""Gaussian data with known noise variance, Gaussian prior on the mean (the paper's family).

    x | μ ~ N(μ, σ²),   μ ~ N(μ₀, s²)      column by column

Data are encoded as z = (x − μ₀)/σ, so that the noise is 1, the prior mean 0 and the prior
precision τ = σ²/s².  With n points and sum S of a cluster (Bishop 2006, eqs 2.141–2.142):

    posterior    μ | C ~ N(S/(n + τ), 1/(n + τ))
    predictive   z | C ~ N(S/(n + τ), 1 + 1/(n + τ))
    marginal     log H = −nD/2 log 2π + ½ Σ_d [ log τ_d − log(n + τ_d) + S_d²/(n + τ_d) ] − ½ Σ z²

There are two forms of the same formulas.  *Isotropic* (τ equal in all columns): the predictive is
c₀ + c₁⟨z, S⟩ + c₂⟨z, z⟩ with three constants per cluster, so that scoring is one inner product.
*Columns*: any τ; means and squared differences replace sums and squares, so that data many
thousands of noise deviations from the prior mean lose no digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Matrix, Vector
from dpsearch._validate import is_below, per_column
from dpsearch.errors import ParameterError
from dpsearch.families import layout
from dpsearch.families._columns import in_range, mean_and_variance, standardised, varies, with_holes
from dpsearch.families._totals import NormalTotals
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, table, view, view_at
from dpsearch.families.learning import FLOOR, WITHIN, pooled_variance
from dpsearch.families.linear import LinearForm, like, namespace
from dpsearch.families.statistics import NormalMeans

# Inner products lose about z² · 1e-16 nats to rounding: beyond this, use differences.
_FAR = 1e3


class _Params(NamedTuple):
    tau: layout.Numbers  # τ of each column


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # c₀
    slope: layout.Number  # c₁
    curvature: layout.Number  # c₂
    squared_sum: layout.Number  # |S|²
    squares: layout.Number  # Σ|z|²
    padding: layout.Number  # to begin vectors at a multiple of 64 bytes
    more_padding: layout.Number
    sums: layout.Numbers  # S


class _ColumnsRow(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive
    scatter: layout.Number  # Σ|z − z̄|²
    means: layout.Numbers  # z̄ of each column
    centres: layout.Numbers  # posterior means
    precisions: layout.Numbers  # half precisions of the predictive


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)
COLUMNS = layout.row(_ColumnsRow)


@_jit.inner
def _isotropic_constants(params, row):  # type: ignore[no-untyped-def]
    n_features = length(params, PARAMS.tau)
    precision = row[ROW.n] + entry(params, PARAMS.tau, 0)
    variance = 1.0 + 1.0 / precision
    row[ROW.constant] = -0.5 * (
        n_features * math.log(2.0 * math.pi * variance)
        + row[ROW.squared_sum] / (precision * precision * variance)
    )
    row[ROW.slope] = 1.0 / (precision * variance)
    row[ROW.curvature] = -0.5 / variance


@_jit.inner
def _add(params, row, added, share, sums, squares):  # type: ignore[no-untyped-def]
    """Add points, or remove them if `added` is below 0, and a share of these S and Σ|z|²."""
    row[ROW.n] += added
    if row[ROW.n] <= 0.0:
        row[:] = 0.0
    else:
        own = view(row, ROW.sums, sums.shape[0])
        squared_sum = 0.0
        for d in range(sums.shape[0]):
            own[d] += share * sums[d]
            squared_sum += own[d] * own[d]
        row[ROW.squared_sum] = squared_sum
        row[ROW.squares] += share * squares
    _isotropic_constants(params, row)


@_jit.inner
def _square(values):  # type: ignore[no-untyped-def]
    out = 0.0
    for d in range(values.shape[0]):
        out += values[d] * values[d]
    return out


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    _add(params, row, weight, weight, values, _square(values))


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    sums = view(other, ROW.sums, length(params, PARAMS.tau))
    _add(params, row, sign * other[ROW.n], sign, sums, other[ROW.squares])


@_jit.inline
def _score(pool, s, dot, square):  # type: ignore[no-untyped-def]
    """Return the score of a point under the row at s, by their inner product."""
    return pool[s + ROW.constant] + pool[s + ROW.slope] * dot + pool[s + ROW.curvature] * square


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features, square = values.shape[0], _square(values)
    n_rows = starts.shape[0]
    k = 0
    # Four clusters at a time, so that each value loaded serves four products.
    while k + 4 <= n_rows:
        r0 = view_at(pool, starts[k], ROW.sums, n_features)
        r1 = view_at(pool, starts[k + 1], ROW.sums, n_features)
        r2 = view_at(pool, starts[k + 2], ROW.sums, n_features)
        r3 = view_at(pool, starts[k + 3], ROW.sums, n_features)
        dot0 = dot1 = dot2 = dot3 = 0.0
        for d in range(n_features):
            value = values[d]
            dot0 += r0[d] * value
            dot1 += r1[d] * value
            dot2 += r2[d] * value
            dot3 += r3[d] * value
        out[k] = _score(pool, starts[k], dot0, square)
        out[k + 1] = _score(pool, starts[k + 1], dot1, square)
        out[k + 2] = _score(pool, starts[k + 2], dot2, square)
        out[k + 3] = _score(pool, starts[k + 3], dot3, square)
        k += 4
    while k < n_rows:
        r0 = view_at(pool, starts[k], ROW.sums, n_features)
        dot0 = 0.0
        for d in range(n_features):
            dot0 += r0[d] * values[d]
        out[k] = _score(pool, starts[k], dot0, square)
        k += 1


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    sums = view(row, ROW.sums, n_features)
    square = 0.0
    dot = 0.0
    for d in range(n_features):
        square += values[d] * values[d]
        dot += values[d] * sums[d]
    # The sum without the point: its product with the point, and its square.
    rest_square = row[ROW.squared_sum] - 2.0 * dot + square
    dot -= square
    precision = row[ROW.n] - 1.0 + entry(params, PARAMS.tau, 0)
    variance = 1.0 + 1.0 / precision
    distance = square - 2.0 * dot / precision + rest_square / (precision * precision)
    return -0.5 * (n_features * math.log(2.0 * math.pi * variance) + distance / variance)


@_jit.pointer("score_dots")
def _score_dots(params, pool, starts, dots, square, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        out[k] = _score(pool, starts[k], dots[k], square)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features, tau = length(params, PARAMS.tau), entry(params, PARAMS.tau, 0)
    n = row[ROW.n]
    out = n * n_features * LOG_2PI + row[ROW.squares] - row[ROW.squared_sum] / (n + tau)
    return -0.5 * (out + n_features * math.log1p(n / tau))


@_jit.pointer("log_marginal")
def _columns_log_marginal(params, row):  # type: ignore[no-untyped-def]
    tau = table(params, PARAMS.tau)
    n, means = row[COLUMNS.n], view(row, COLUMNS.means, tau.shape[0])
    out = n * tau.shape[0] * LOG_2PI + row[COLUMNS.scatter]
    for d in range(tau.shape[0]):
        # Not n·τ/(n + τ): in another order τ times the square may leave the range of doubles.
        out += n / (1.0 + n / tau[d]) * means[d] * means[d] + math.log1p(n / tau[d])
    return -0.5 * out


@_jit.inner
def _columns_constants(params, row):  # type: ignore[no-untyped-def]
    tau = table(params, PARAMS.tau)
    n_features, n = tau.shape[0], row[COLUMNS.n]
    means, centres = view(row, COLUMNS.means, n_features), view(row, COLUMNS.centres, n_features)
    precisions = view(row, COLUMNS.precisions, n_features)
    log_scale = 0.0
    for d in range(n_features):
        precision = n + tau[d]
        variance = 1.0 + 1.0 / precision
        log_scale += LOG_2PI + math.log(variance)
        centres[d] = means[d] * n / precision
        precisions[d] = 0.5 / variance
    row[COLUMNS.constant] = -0.5 * log_scale


@_jit.inner
def _move_means(row, added, sign, means):  # type: ignore[no-untyped-def]
    """Add points with these means, without their scatter, by the update of Welford and Chan."""
    n, total = row[COLUMNS.n], row[COLUMNS.n] + sign * added
    row[COLUMNS.n] = total
    if total <= 0.0:
        row[:] = 0.0
        return
    own = view(row, COLUMNS.means, means.shape[0])
    scatter = 0.0
    for d in range(means.shape[0]):
        difference = means[d] - own[d]
        own[d] += sign * added * difference / total
        scatter += difference * difference
    left = row[COLUMNS.scatter] + sign * added * n / total * scatter
    row[COLUMNS.scatter] = max(left, 0.0)


@_jit.pointer("update")
def _columns_update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    _move_means(row, weight, 1.0, values)
    _columns_constants(params, row)


@_jit.pointer("merge")
def _columns_merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[COLUMNS.scatter] += sign * other[COLUMNS.scatter]
    means = view(other, COLUMNS.means, length(params, PARAMS.tau))
    _move_means(row, other[COLUMNS.n], sign, means)
    _columns_constants(params, row)


@_jit.pointer("score_rows")
def _columns_score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    for k in range(starts.shape[0]):
        centres = view_at(pool, starts[k], COLUMNS.centres, n_features)
        precisions = view_at(pool, starts[k], COLUMNS.precisions, n_features)
        distance = 0.0
        for d in range(n_features):
            difference = values[d] - centres[d]
            distance += difference * difference * precisions[d]
        out[k] = pool[starts[k] + COLUMNS.constant] - distance


@_jit.inner
def _best_case(params, n, sums, scale, helpers, low, high, values):  # type: ignore[no-untyped-def]
    """Return the predictive with the posterior mean as near to the point as helpers can move it.

    The cluster's sum is `scale` times `sums`, which may be means.
    """
    tau = table(params, PARAMS.tau)
    out = 0.0
    for d in range(values.shape[0]):
        precision = n + helpers + tau[d]
        variance = 1.0 + 1.0 / precision
        total = scale * sums[d]
        nearest = max(values[d], (total + low[d]) / precision)
        nearest = min(nearest, (total + high[d]) / precision)
        difference = values[d] - nearest
        out -= 0.5 * (LOG_2PI + math.log(variance) + difference * difference / variance)
    return out


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    sums = view(row, ROW.sums, values.shape[0])
    return _best_case(params, row[ROW.n], sums, 1.0, helpers, low, high, values)


@_jit.pointer("bound")
def _columns_bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    n, means = row[COLUMNS.n], view(row, COLUMNS.means, values.shape[0])
    return _best_case(params, n, means, n, helpers, low, high, values)


_ISOTROPIC = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, bound=_bound,
    score_dots=_score_dots, dots_offset=layout.width(ROW, 0),
)  # fmt: skip
_COLUMNS = Functions(
    _columns_update, _columns_merge, _columns_score_rows, _columns_log_marginal,
    bound=_columns_bound,
)  # fmt: skip


@dataclass(frozen=True)
class Gaussian(Family):
    """Gaussian with known noise variance and a Gaussian prior on the mean.

    Parameters
    ----------
    prior_mean, prior_variance, noise_variance
        Scalars, or one number per column.
    form
        ``"isotropic"`` or ``"columns"`` (see the module's text); ``"auto"`` chooses from
        hyperparameters and data.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Gaussian(prior_variance=10.0, noise_variance=1.0).name
    'gaussian'
    """

    prior_mean: Any = 0.0
    prior_variance: Any = 1.0
    noise_variance: Any = 1.0
    form: str = "auto"

    name: ClassVar[str] = "gaussian"
    kind: ClassVar[str] = "real"
    scale_replicas: ClassVar[bool] = True
    independent_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.form not in ("auto", "isotropic", "columns"):
            raise ParameterError.must("form", "be auto, isotropic or columns", self.form)

    def _tau(self, n_features: int) -> Vector:
        noise = per_column(self.noise_variance, n_features, "noise_variance", above_zero=True)
        prior = per_column(self.prior_variance, n_features, "prior_variance", above_zero=True)
        tau: Vector = noise / prior
        if not (np.isfinite(tau) & (tau > 0.0)).all():
            raise ParameterError("the ratio noise_variance / prior_variance is not representable")
        return tau

    def _location_scale(self, n_features: int) -> tuple[Vector, Vector]:
        mean = per_column(self.prior_mean, n_features, "prior_mean", above_zero=False)
        noise = per_column(self.noise_variance, n_features, "noise_variance", above_zero=True)
        return mean, np.sqrt(noise)

    def resolve(self, X: Any) -> Gaussian:
        if self.form != "auto":
            return self
        tau = self._tau(X.shape[1])
        if tau.max() - tau.min() > 1e-12 * tau.max():
            return self.with_parameters(form="columns")
        mean, scale = self._location_scale(X.shape[1])
        # Without standardising, values are small enough if they are for every column.
        small = _FAR * scale.min() - np.abs(mean).max()
        near = (small > 0.0 and is_below(small, X)) or is_below(_FAR, standardised(X, mean, scale))
        return self.with_parameters(form="isotropic" if near else "columns")

    def rescaled(self, factors: Mapping[str, float]) -> Gaussian:
        # The form suits the noise, which may change.
        return super().rescaled(factors).with_parameters(form="auto")

    def variant(self) -> Functions:
        return _COLUMNS if self.form == "columns" else _ISOTROPIC

    def row_layout(self) -> Any:
        return COLUMNS if self.form == "columns" else ROW

    def parameters(self, n_features: int, X: Any) -> Vector:
        return layout.make_params(PARAMS, tau=self._tau(n_features))

    def encode(self, X: Any) -> Any:
        encoded = standardised(X, *self._location_scale(X.shape[1]))
        return in_range(encoded, "noise deviations", "noise_variance")

    def log_base(self, X: Any) -> Vector:
        _, scale = self._location_scale(X.shape[1])
        return np.full(X.shape[0], -float(np.log(scale).sum()))

    def log_ceiling(self, X: Any) -> Vector:
        return np.full(X.shape[0], -0.5 * X.shape[1] * LOG_2PI)

    def statistic(self, X: Any) -> NormalMeans:
        return NormalMeans(self.encode(X), self._tau(X.shape[1]))

    def linear(self, n_features: int) -> LinearForm:
        mean, scale = self._location_scale(n_features)
        closed = NormalTotals(self._tau(n_features))

        def features(X: Any) -> Any:
            xp, z = namespace(X), (X - like(X, mean)) / like(X, scale)
            return xp.concat([z, xp.sum(z * z, axis=1, keepdims=True)], axis=1)

        def rows(sizes: Vector, totals: Matrix) -> Matrix:
            sums, squares = totals[:, :-1], totals[:, -1]
            means = sums / np.maximum(sizes, 1.0)[:, None]
            scatter = np.maximum(squares - (sums * means).sum(axis=1), 0.0)
            return layout.make_rows(
                self.row_layout(), len(sizes), n_features,
                n=sizes, sums=sums, squares=squares, means=means, scatter=scatter,
            )  # fmt: skip

        return LinearForm.of(closed, n_features + 1, features, rows, closed.terms())

    def _count_and_sums(self, row: Vector, n_features: int) -> tuple[float, Vector]:
        """Return the number of points of a cluster, and the sums of its encoded columns."""
        if self.form == "columns":
            columns = layout.read(COLUMNS, row, n_features)
            return columns.n, columns.n * columns.means
        fields = layout.read(ROW, row, n_features)
        return fields.n, fields.sums

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        mean, scale = self._location_scale(n_features)
        n, total = self._count_and_sums(row, n_features)
        precision = n + self._tau(n_features)
        return {
            "mean": mean + scale * total / precision,
            "mean_variance": scale**2 / precision,
            "noise_variance": scale**2,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Return −½ [ log (n + τ)/τ + τn/(n + τ) z̄² ]; `moments` accounts for the scatter."""
        n, sums = self._count_and_sums(row, n_features)
        tau, mean = self._tau(n_features), sums / max(n, 1.0)
        return Columns(
            -0.5 * (np.log1p(n / tau) + tau * n / (n + tau) * mean**2),
            self.posterior(row, n_features)["mean"],
            moments=np.stack([np.full(n_features, n), mean]),
            rows=self._column_rows(row, n_features),
        )

    def _column_rows(self, row: Vector, n_features: int) -> list[Vector]:
        # Only the sum of the squares is known, and the predictive does not need more.
        if self.form == "columns":
            fields = layout.read(COLUMNS, row, n_features)
            shared = {"n": fields.n, "scatter": fields.scatter / n_features}
            return [layout.make(COLUMNS, 1, means=mean, **shared) for mean in fields.means]
        fields = layout.read(ROW, row, n_features)
        shared = {"n": fields.n, "squares": fields.squares / n_features}
        return [layout.make(ROW, 1, sums=total, **shared) for total in fields.sums]

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        posterior = self.posterior(row, n_features)
        spread = np.sqrt(posterior["mean_variance"] + posterior["noise_variance"])
        return PredictiveDraws(
            lambda size, rng: posterior["mean"] + spread * rng.standard_normal((size, n_features))
        )

    @classmethod
    def suggest(cls, X: Any) -> Gaussian:
        mean, variance = mean_and_variance(X)
        return cls._with_shares(mean, variance, WITHIN * variance)

    def learned(self, X: Any, labels: Ints) -> Gaussian:
        width = X.shape[1]
        mean = per_column(self.prior_mean, width, "prior_mean", above_zero=False)
        noise = per_column(self.noise_variance, width, "noise_variance", above_zero=True)
        total = noise + per_column(self.prior_variance, width, "prior_variance", above_zero=True)
        here, variance = mean_and_variance(X)
        known = varies(X)
        mean, variance = np.where(known, here, mean), np.where(known, variance, total)
        within = np.where(known, pooled_variance(X, labels), noise)
        within = np.clip(within, FLOOR * variance, (1.0 - FLOOR) * variance)
        return self._with_shares(mean, variance, within)

    @classmethod
    def _with_shares(cls, mean: Vector, variance: Vector, within: Vector) -> Gaussian:
        """Return the family with the noise variance within clusters, the rest between them."""
        return cls(
            tuple(mean.tolist()), tuple((variance - within).tolist()), tuple(within.tolist())
        )

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        return [
            Example(cls(0.0, 10.0, 1.0), 3.0 * rng.normal(size=(12, 2))),
            Example(cls([0.5, -1.0, 2.0], 4.0, 0.25), rng.normal(size=(12, 3))),
            Example(cls(0.0, [1.0, 9.0], [0.5, 2.0]), 2.0 * rng.normal(size=(12, 2))),
            Example(cls(0.5, 4.0, [0.25, 1.0, 2.0]), with_holes(rng.normal(size=(12, 3)))),
            Example(cls(0.5, 4.0, 2.0), with_holes(2.0 * rng.normal(size=(12, 2)))),
        ]
