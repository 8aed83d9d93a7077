"""Gaussian data with known noise variance, Gaussian prior on the mean (the paper's family).

    x | μ ~ N(μ, σ²),   μ ~ N(μ₀, s²)      column by column

Data are encoded as z = (x − μ₀)/σ, so that the noise is 1, the prior mean 0 and the prior
precision τ = σ²/s².  With n points and sum S of a cluster (Bishop 2006, eqs 2.141–2.142):

    posterior    μ | C ~ N(S/(n + τ), 1/(n + τ))
    predictive   z | C ~ N(S/(n + τ), 1 + 1/(n + τ))
    marginal     log H = −nD/2 log 2π + ½ Σ_d [ log τ_d − log(n + τ_d) + S_d²/(n + τ_d) ] − ½ Σ z²

Two forms of the same formulas.  *Isotropic* (τ equal in all columns): the predictive is
c₀ + c₁⟨z, S⟩ + c₂⟨z, z⟩ with three constants per cluster, one inner product to score.
*Columns*: any τ; means and squared differences instead of sums and squares, so that data many
thousands of noise deviations from the prior mean lose no digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_DOTS,
    SCORE_MEMBER,
    SCORE_ROWS,
    UPDATE,
    inner,
    pointer,
)
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.families._columns import mean_and_variance, varies, with_holes
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import FLOOR, WITHIN, pooled_variance
from dpsearch.families.statistics import NormalMeans
from dpsearch.items import copy_row

# params: D, then τ for each column.
# row, isotropic: n, c₀, c₁, c₂, |S|², Σ|z|², unused, unused, S[D].
# row, columns: n, c₀, unused, unused, unused, Σ|z − z̄|², unused, unused, the mean z̄[D], posterior
# means [D], half precisions of the predictive [D].
_HEAD = 8
# Inner products lose about z² · 1e-16 nats to rounding: beyond this, use differences.
_FAR = 1e3


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _isotropic_constants(params, row)


@inner
def _isotropic_constants(params, row):  # type: ignore[no-untyped-def]
    n_features = params[0]
    precision = row[0] + params[1]
    variance = 1.0 + 1.0 / precision
    row[1] = -0.5 * (
        n_features * math.log(2.0 * math.pi * variance)
        + row[4] / (precision * precision * variance)
    )
    row[2] = 1.0 / (precision * variance)
    row[3] = -0.5 / variance


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    row[0] += weight
    if row[0] <= 0.0:
        row[:] = 0.0
    else:
        total = row[_HEAD : _HEAD + n_features]
        squared_sum = 0.0
        sum_of_squares = 0.0
        for d in range(n_features):
            value = values[d]
            total[d] += weight * value
            squared_sum += total[d] * total[d]
            sum_of_squares += value * value
        row[4] = squared_sum
        row[5] += weight * sum_of_squares
    _isotropic_constants(params, row)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    if row[0] <= 0.0:
        row[:] = 0.0
    else:
        row[5] += sign * other[5]
        squared_sum = 0.0
        for d in range(int(params[0])):
            row[_HEAD + d] += sign * other[_HEAD + d]
            squared_sum += row[_HEAD + d] * row[_HEAD + d]
        row[4] = squared_sum
    _isotropic_constants(params, row)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    square = 0.0
    for d in range(n_features):
        square += values[d] * values[d]
    n_rows = starts.shape[0]
    k = 0
    # Four clusters at a time, so that each value loaded serves four products.
    while k + 4 <= n_rows:
        s0, s1, s2, s3 = starts[k], starts[k + 1], starts[k + 2], starts[k + 3]
        r0 = pool[s0 + _HEAD : s0 + _HEAD + n_features]
        r1 = pool[s1 + _HEAD : s1 + _HEAD + n_features]
        r2 = pool[s2 + _HEAD : s2 + _HEAD + n_features]
        r3 = pool[s3 + _HEAD : s3 + _HEAD + n_features]
        dot0 = dot1 = dot2 = dot3 = 0.0
        for d in range(n_features):
            value = values[d]
            dot0 += r0[d] * value
            dot1 += r1[d] * value
            dot2 += r2[d] * value
            dot3 += r3[d] * value
        out[k] = pool[s0 + 1] + pool[s0 + 2] * dot0 + pool[s0 + 3] * square
        out[k + 1] = pool[s1 + 1] + pool[s1 + 2] * dot1 + pool[s1 + 3] * square
        out[k + 2] = pool[s2 + 1] + pool[s2 + 2] * dot2 + pool[s2 + 3] * square
        out[k + 3] = pool[s3 + 1] + pool[s3 + 2] * dot3 + pool[s3 + 3] * square
        k += 4
    while k < n_rows:
        s0 = starts[k]
        r0 = pool[s0 + _HEAD : s0 + _HEAD + n_features]
        dot0 = 0.0
        for d in range(n_features):
            dot0 += r0[d] * values[d]
        out[k] = pool[s0 + 1] + pool[s0 + 2] * dot0 + pool[s0 + 3] * square
        k += 1


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    total = row[_HEAD : _HEAD + n_features]
    square = 0.0
    dot = 0.0
    for d in range(n_features):
        square += values[d] * values[d]
        dot += values[d] * total[d]
    # The sum without the point: its product with the point, and its square.
    rest_square = row[4] - 2.0 * dot + square
    dot -= square
    precision = row[0] - 1.0 + params[1]
    variance = 1.0 + 1.0 / precision
    distance = square - 2.0 * dot / precision + rest_square / (precision * precision)
    return -0.5 * (n_features * math.log(2.0 * math.pi * variance) + distance / variance)


@pointer(SCORE_DOTS)
def _score_dots(params, pool, starts, dots, square, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        s = starts[k]
        out[k] = pool[s + 1] + pool[s + 2] * dots[k] + pool[s + 3] * square


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features = params[0]
    n = row[0]
    tau = params[1]
    out = n * n_features * LOG_2PI + row[5] - row[4] / (n + tau) + n_features * math.log1p(n / tau)
    return -0.5 * out


@pointer(LOG_MARGINAL)
def _columns_log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    n = row[0]
    out = n * n_features * LOG_2PI + row[5]
    for d in range(n_features):
        tau = params[1 + d]
        mean = row[_HEAD + d]
        out += n * tau / (n + tau) * mean * mean + math.log1p(n / tau)
    return -0.5 * out


@inner
def _columns_constants(params, row):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    n = row[0]
    log_scale = 0.0
    for d in range(n_features):
        precision = n + params[1 + d]
        variance = 1.0 + 1.0 / precision
        log_scale += LOG_2PI + math.log(variance)
        row[_HEAD + n_features + d] = row[_HEAD + d] * n / precision
        row[_HEAD + 2 * n_features + d] = 0.5 / variance
    row[1] = -0.5 * log_scale


@pointer(INIT)
def _columns_init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _columns_constants(params, row)


@pointer(UPDATE)
def _columns_update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    before = row[0]
    row[0] += weight
    if row[0] <= 0.0:
        row[:] = 0.0
    else:
        # Welford's update of the mean and of the scatter about it.
        for d in range(values.shape[0]):
            difference = values[d] - row[_HEAD + d]
            row[_HEAD + d] += weight * difference / row[0]
            row[5] += weight * before / row[0] * difference * difference
        row[5] = max(row[5], 0.0)
    _columns_constants(params, row)


@pointer(MERGE)
def _columns_merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    before = row[0]
    row[0] += sign * other[0]
    if row[0] <= 0.0:
        row[:] = 0.0
    else:
        row[5] += sign * other[5]
        for d in range(int(params[0])):
            difference = other[_HEAD + d] - row[_HEAD + d]
            row[_HEAD + d] += sign * other[0] * difference / row[0]
            row[5] += sign * other[0] * before / row[0] * difference * difference
        row[5] = max(row[5], 0.0)
    _columns_constants(params, row)


@pointer(SCORE_ROWS)
def _columns_score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    for k in range(starts.shape[0]):
        s = starts[k]
        mean = pool[s + _HEAD + n_features : s + _HEAD + 2 * n_features]
        half_precision = pool[s + _HEAD + 2 * n_features : s + _HEAD + 3 * n_features]
        distance = 0.0
        for d in range(n_features):
            difference = values[d] - mean[d]
            distance += difference * difference * half_precision[d]
        out[k] = pool[s + 1] - distance


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    copy_row(values, out)


@inner
def _best_case(params, row, scale, helpers, low, high, values):  # type: ignore[no-untyped-def]
    """The helpers can bring the posterior mean, column by column, at best to the point itself.

    The cluster's sum is `scale` times what the row holds: a sum, or a mean.
    """
    out = 0.0
    for d in range(values.shape[0]):
        precision = row[0] + helpers + params[1 + d]
        variance = 1.0 + 1.0 / precision
        total = scale * row[_HEAD + d]
        nearest = max(values[d], (total + low[d]) / precision)
        nearest = min(nearest, (total + high[d]) / precision)
        difference = values[d] - nearest
        out -= 0.5 * (LOG_2PI + math.log(variance) + difference * difference / variance)
    return out


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    return _best_case(params, row, 1.0, helpers, low, high, values)


@pointer(BOUND)
def _columns_bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    return _best_case(params, row, row[0], helpers, low, high, values)


_ISOTROPIC = Functions(
    _init,
    _update,
    _merge,
    _score_rows,
    _log_marginal,
    score_member=_score_member,
    score_dots=_score_dots,
    dots_offset=_HEAD,
    features=_features,
    bound=_bound,
)
_COLUMNS = Functions(
    _columns_init,
    _columns_update,
    _columns_merge,
    _columns_score_rows,
    _columns_log_marginal,
    features=_features,
    bound=_columns_bound,
)


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
            raise ParameterError(f"form must be auto, isotropic or columns, got {self.form!r}")

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
        uneven = tau.max() - tau.min() > 1e-12 * tau.max()
        far = float(np.abs(self.encode(X)).max()) > _FAR
        return self.with_parameters(form="columns" if uneven or far else "isotropic")

    def rescaled(self, factors: Mapping[str, float]) -> Gaussian:
        # The form suits the noise, which may change.
        return super().rescaled(factors).with_parameters(form="auto")

    def variant(self) -> Functions:
        return _COLUMNS if self.form == "columns" else _ISOTROPIC

    def width(self, n_features: int) -> int:
        return _HEAD + (3 if self.form == "columns" else 1) * n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        return np.concatenate([[n_features], self._tau(n_features)])

    def encode(self, X: Any) -> Any:
        mean, scale = self._location_scale(X.shape[1])
        if (mean == 0.0).all() and (scale == 1.0).all():
            encoded = X
        else:
            encoded = (X - mean) / scale
        limit = math.sqrt(1e300 / X.size)
        if max(encoded.max(), -encoded.min()) > limit:
            column = int(np.abs(encoded).max(axis=0).argmax())
            raise DataError(
                f"X lies more than {limit:.1e} noise deviations from the prior mean in"
                " {place}: rescale it, or give a larger noise_variance",
                column=column,
            )
        return encoded

    def log_base(self, X: Any) -> Vector:
        _, scale = self._location_scale(X.shape[1])
        return np.full(X.shape[0], -float(np.log(scale).sum()))

    def log_ceiling(self, X: Any) -> Vector:
        return np.full(X.shape[0], -0.5 * X.shape[1] * LOG_2PI)

    def statistic(self, X: Any) -> NormalMeans:
        return NormalMeans(self.encode(X), self._tau(X.shape[1]))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        mean, scale = self._location_scale(n_features)
        precision = row[0] + self._tau(n_features)
        total = row[_HEAD : _HEAD + n_features] * (row[0] if self.form == "columns" else 1.0)
        return {
            "mean": mean + scale * total / precision,
            "mean_variance": scale**2 / precision,
            "noise_variance": scale**2,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """−½ [ log (n + τ)/τ + τn/(n + τ) z̄² ], without the scatter, which `moments` is for."""
        n, tau = row[0], self._tau(n_features)
        own = row[_HEAD : _HEAD + n_features]
        mean = own if self.form == "columns" else own / max(n, 1.0)
        rows = np.zeros((n_features, self.width(1)))
        rows[:, 0] = n
        rows[:, 5] = row[5] / n_features  # only their sum is known, nor does the predictive need it
        rows[:, _HEAD] = own
        return Columns(
            -0.5 * (np.log1p(n / tau) + tau * n / (n + tau) * mean**2),
            self.posterior(row, n_features)["mean"],
            moments=np.stack([np.full(n_features, n), mean]),
            rows=list(rows),
        )

    def draws(self, row: Vector, n_features: int) -> Draws:
        posterior = self.posterior(row, n_features)
        spread = np.sqrt(posterior["mean_variance"] + posterior["noise_variance"])
        return Draws(
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
        """The variance within clusters, and the rest of it between them."""
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
