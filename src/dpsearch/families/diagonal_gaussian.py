"""Gaussian data with unknown mean and variance in every column: Normal–inverse-gamma prior.

    x | μ, v ~ N(μ, v),   μ | v ~ N(μ₀, v/κ₀),   v ~ InverseGamma(a₀, b₀)      column by column

Data are encoded as z = (x − μ₀)/√b₀, so that the prior mean is 0 and the prior scale 1.  With n
points of a cluster, their mean z̄ and their squared deviations M = Σ (z − z̄)² (Murphy 2007,
"Conjugate Bayesian analysis of the Gaussian distribution", eqs 85–100):

    posterior    κ = κ₀ + n,  a = a₀ + n/2,  m = n z̄/κ,  β = 1 + M/2 + κ₀ n z̄²/(2κ)
    predictive   log p(z | C) = log Γ(a + ½)/Γ(a) − ½ log 2πβ(κ + 1)/κ − (a + ½) log(1 + q),
                 q = κ (z − m)²/(2β(κ + 1))                       a Student t with 2a degrees
    marginal     log H = log Γ(a)/Γ(a₀) − a log β − ½ log κ/κ₀ − n/2 log 2π

summed over columns.  What depends on n alone comes from two tables.  When a₀ is one number the
logarithms of 1 + q over the columns are taken as one logarithm of their product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import betaln, gammaln

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_ROWS,
    UPDATE,
    inner,
    pointer,
)
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError
from dpsearch.families._columns import mean_and_variance, normal_inverse_gamma, with_holes
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import (
    START_STRENGTH,
    STRENGTHS,
    WITHIN,
    deviations,
    moments_within,
    most_likely,
    pooled_variance,
    sums_of,
)
from dpsearch.items import copy_row

if TYPE_CHECKING:
    from dpsearch.families._diagonal_gaps import DiagonalWithGaps

# params: D, size of each table, whether a₀ is one number, κ₀[D], a₀[D], steps, totals.  Entry n of
# `steps` is the predictive's constant without β, of `totals` the marginal's.
# row: n, the predictive's constant, Σ log β, Σ a₀ log β, z̄[D], M[D], m[D], q/(z − m)² [D]
_PARAMS = 3
_HEAD = 4
_LARGEST_TABLE = 1 << 22
# Products of factors ≥ 1 are turned into a logarithm when above this: the running product and what
# it is multiplied by are each below, so that nothing overflows.
_FULL = 1e150
_SHAPE = 5.0  # a₀ that is suggested: a cluster's variance within a factor of two of the prior's


@inner
def _step(params, n):  # type: ignore[no-untyped-def]
    """Return Σ_d log Γ(a + ½)/Γ(a) − ½ log 2π(κ + 1)/κ for n points."""
    n_features, size = int(params[0]), int(params[1])
    if n < size:
        return params[_PARAMS + 2 * n_features + int(n)]
    out = 0.0
    for d in range(n_features):
        shape = params[_PARAMS + n_features + d] + 0.5 * n
        out += math.lgamma(shape + 0.5) - math.lgamma(shape)
        out -= 0.5 * (LOG_2PI + math.log1p(1.0 / (params[_PARAMS + d] + n)))
    return out


@inner
def _total(params, n):  # type: ignore[no-untyped-def]
    """Return Σ_d log Γ(a)/Γ(a₀) − ½ log κ/κ₀ − n/2 log 2π for n points."""
    n_features, size = int(params[0]), int(params[1])
    if n < size:
        return params[_PARAMS + 2 * n_features + size + int(n)]
    out = 0.0
    for d in range(n_features):
        shape = params[_PARAMS + n_features + d]
        out += math.lgamma(shape + 0.5 * n) - math.lgamma(shape)
        out -= 0.5 * (n * LOG_2PI + math.log1p(n / params[_PARAMS + d]))
    return out


@inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Derive everything that scoring needs from n, z̄ and M."""
    n_features = int(params[0])
    n = row[0]
    logs, weighted, product = 0.0, 0.0, 1.0
    for d in range(n_features):
        kappa = params[_PARAMS + d] + n
        mean = row[_HEAD + d]
        beta = 1.0 + 0.5 * (
            row[_HEAD + n_features + d] + params[_PARAMS + d] * n / kappa * mean * mean
        )
        row[_HEAD + 2 * n_features + d] = n * mean / kappa
        row[_HEAD + 3 * n_features + d] = kappa / (2.0 * beta * (kappa + 1.0))
        if params[2] == 0.0 or beta > _FULL:
            log_beta = math.log(beta)
            logs += log_beta
            weighted += params[_PARAMS + n_features + d] * log_beta
        else:
            product *= beta
            if product > _FULL:
                logs += math.log(product)
                product = 1.0
    logs += math.log(product)
    row[1] = _step(params, n) - 0.5 * logs
    row[2] = logs
    row[3] = weighted if params[2] == 0.0 else params[_PARAMS + n_features] * logs


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _constants(params, row)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    """Welford's update, which loses no digits however far the data lie from the prior mean."""
    n_features = values.shape[0]
    n = row[0]
    total = n + weight
    if total <= 0.0:
        row[:] = 0.0
    else:
        for d in range(n_features):
            difference = values[d] - row[_HEAD + d]
            row[_HEAD + d] += weight / total * difference
            squares = row[_HEAD + n_features + d] + weight * n / total * difference * difference
            # A single point has none, and rounding must not leave fewer than none.
            row[_HEAD + n_features + d] = max(squares, 0.0) if total > 1.0 else 0.0
        row[0] = total
    _constants(params, row)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    """Chan, Golub & LeVeque 1983, eq. 2.1; solved for one part when the sign is −1."""
    n_features = int(params[0])
    n, added = row[0], sign * other[0]
    total = n + added
    if total <= 0.0:
        row[:] = 0.0
    elif added != 0.0:
        for d in range(n_features):
            at = _HEAD + n_features + d
            difference = other[_HEAD + d] - row[_HEAD + d]
            row[_HEAD + d] += added / total * difference
            squares = row[at] + sign * other[at] + added * n / total * difference * difference
            row[at] = max(squares, 0.0) if total > 1.0 else 0.0
        row[0] = total
    _constants(params, row)


@inner
def _sum_logs(values, mean, factor):  # type: ignore[no-untyped-def]
    """Return Σ_d log(1 + q_d) where the product of all 1 + q overflows."""
    logs, product = 0.0, 1.0
    for d in range(values.shape[0]):
        difference = values[d] - mean[d]
        term = 1.0 + factor[d] * difference * difference
        if term > _FULL:
            logs += math.log(term)
        else:
            product *= term
            if product > _FULL:
                logs += math.log(product)
                product = 1.0
    return logs + math.log(product)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    shapes = params[_PARAMS + n_features : _PARAMS + 2 * n_features]
    even = params[2] == 1.0
    for k in range(starts.shape[0]):
        s = starts[k]
        mean = pool[s + _HEAD + 2 * n_features : s + _HEAD + 3 * n_features]
        factor = pool[s + _HEAD + 3 * n_features : s + _HEAD + 4 * n_features]
        half = 0.5 * (pool[s] + 1.0)
        if even:
            product = 1.0
            for d in range(n_features):
                difference = values[d] - mean[d]
                product *= 1.0 + factor[d] * difference * difference
            logs = math.log(product) if product < np.inf else _sum_logs(values, mean, factor)
            out[k] = pool[s + 1] - (shapes[0] + half) * logs
        else:
            score = pool[s + 1]
            for d in range(n_features):
                difference = values[d] - mean[d]
                score -= (shapes[d] + half) * math.log1p(factor[d] * difference * difference)
            out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    return _total(params, row[0]) - row[3] - 0.5 * row[0] * row[2]


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    copy_row(values, out)


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """Column by column the nearest mean, and the best β that the helpers could leave.

    With δ² = κ(z − m)²/(2(κ + 1)), β enters as a log β − (a + ½) log(β + δ²), largest at 2aδ².
    Scales only grow: β is at least the row's, and β + δ², the scale once the point is in too, at
    least that of the row with the point alone.
    """
    n_features = values.shape[0]
    out = _step(params, row[0] + helpers)
    for d in range(n_features):
        prior = params[_PARAMS + d] + row[0]
        kappa = prior + helpers
        shape = params[_PARAMS + n_features + d] + 0.5 * (row[0] + helpers)
        mean = row[_HEAD + 2 * n_features + d]
        beta = prior / (2.0 * (prior + 1.0) * row[_HEAD + 3 * n_features + d])
        alone = beta + 0.5 * prior / (prior + 1.0) * (values[d] - mean) ** 2
        nearest = min(
            max(values[d], (prior * mean + low[d]) / kappa), (prior * mean + high[d]) / kappa
        )
        apart = 0.5 * kappa / (kappa + 1.0) * (values[d] - nearest) ** 2
        best = beta if helpers == 0 else max(beta, alone - apart, 2.0 * shape * apart)
        out += shape * math.log(best) - (shape + 0.5) * math.log(best + apart)
    return out


@dataclass(frozen=True)
class DiagonalGaussian(Family):
    """Gaussian with unknown mean and variance, independent in every column.

    Parameters
    ----------
    prior_mean
        Where cluster means are expected.
    prior_strength
        How many points the prior on the mean counts for.
    shape, scale
        Of the inverse-gamma prior on the variance, whose mean is scale / (shape − 1).

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
    functions: ClassVar[Functions] = Functions(
        _init, _update, _merge, _score_rows, _log_marginal, features=_features, bound=_bound
    )

    def strength_shape(self, n_features: int) -> tuple[Vector, Vector]:
        """The prior's strength and shape in each column."""
        strength = per_column(self.prior_strength, n_features, "prior_strength", above_zero=True)
        return strength, per_column(self.shape, n_features, "shape", above_zero=True)

    def location_scale(self, n_features: int) -> tuple[Vector, Vector]:
        """What `encode` takes from each column, and divides it by."""
        mean = per_column(self.prior_mean, n_features, "prior_mean", above_zero=False)
        scale = per_column(self.scale, n_features, "scale", above_zero=True)
        return mean, np.sqrt(scale)

    def _tables(self, n_features: int, size: int) -> tuple[Vector, Vector]:
        """The terms that depend on n alone, for n = 0 … size − 1, of predictive and marginal."""
        n = np.arange(size, dtype=np.float64)
        steps, totals = np.zeros(size), np.zeros(size)
        pairs = np.stack(self.strength_shape(n_features), axis=1)
        for (strength, shape), columns in zip(
            *np.unique(pairs, axis=0, return_counts=True), strict=True
        ):
            # log Γ(a + ½)/Γ(a) by the beta function keeps its digits where a is large.
            step = 0.5 * math.log(math.pi) - betaln(shape + 0.5 * n, 0.5)
            step -= 0.5 * (LOG_2PI + np.log1p(1.0 / (strength + n)))
            total = gammaln(shape + 0.5 * n) - gammaln(shape)
            total -= 0.5 * (n * LOG_2PI + np.log1p(n / strength))
            steps += columns * step
            totals += columns * total
        return steps, totals

    def width(self, n_features: int) -> int:
        return _HEAD + 4 * n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        strength, shape = self.strength_shape(n_features)
        self.location_scale(n_features)
        even = float((shape == shape[0]).all())
        # One pass per column at worst: columns that differ share the budget.
        kinds = len(np.unique(np.stack([strength, shape]), axis=1).T)
        size = min(X.shape[0] + 2, _LARGEST_TABLE // kinds)
        head = [n_features, size, even]
        return np.concatenate([head, strength, shape, *self._tables(n_features, size)])

    def encode(self, X: Any) -> Any:
        mean, scale = self.location_scale(X.shape[1])
        encoded = X if (mean == 0.0).all() and (scale == 1.0).all() else (X - mean) / scale
        limit = math.sqrt(1e300 / X.size)
        if max(encoded.max(), -encoded.min()) > limit:
            column = int(np.abs(encoded).max(axis=0).argmax())
            raise DataError(
                f"X lies more than {limit:.1e} prior scales from the prior mean in {{place}}:"
                " rescale it, or give a larger scale",
                column=column,
            )
        return encoded

    def log_base(self, X: Any) -> Vector:
        _, scale = self.location_scale(X.shape[1])
        return np.full(X.shape[0], -float(np.log(scale).sum()))

    def log_ceiling(self, X: Any) -> Vector:
        # As in `_bound`: the constants grow with n, and β ≤ u gives at most −½ log u.
        strength, _ = self.strength_shape(X.shape[1])
        steps, _ = self._tables(X.shape[1], X.shape[0] + 1)
        spread = 0.5 * strength / (strength + 1.0) * self.encode(X) ** 2
        return np.asarray(steps[-1] - 0.5 * np.log1p(spread).sum(axis=1))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        mean, scale = self.location_scale(n_features)
        strength, shape = self.strength_shape(n_features)
        parts = row[_HEAD:].reshape(4, n_features)
        kappa, shape = strength + row[0], shape + 0.5 * row[0]
        beta = scale**2 * kappa / (2.0 * parts[3] * (kappa + 1.0))
        variance = np.full(n_features, math.inf)  # the mean of an inverse gamma with shape ≤ 1
        np.divide(beta, shape - 1.0, out=variance, where=shape > 1.0)
        return {
            "mean": mean + scale * parts[2],
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

    def with_gaps(self) -> DiagonalWithGaps:
        from dpsearch.families._diagonal_gaps import DiagonalWithGaps

        return DiagonalWithGaps(self)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        return self.with_gaps().row_of_complete(row, n_features)

    def draws(self, row: Vector, n_features: int) -> Draws:
        posterior = self.posterior(row, n_features)
        kappa, shape = posterior["strength"], posterior["shape"]
        spread = np.sqrt(posterior["scale"] * (kappa + 1.0) / (kappa * shape))
        return Draws(
            lambda size, rng: (
                posterior["mean"] + spread * rng.standard_t(2.0 * shape, (size, n_features))
            )
        )

    @classmethod
    def suggest(cls, X: Any) -> DiagonalGaussian:
        mean, variance = mean_and_variance(X)
        return cls._with_variance(mean, WITHIN * variance, START_STRENGTH)

    def learned(self, X: Any, labels: Ints) -> DiagonalGaussian:
        mean = per_column(self.prior_mean, X.shape[1], "prior_mean", above_zero=False)
        scale = per_column(self.scale, X.shape[1], "scale", above_zero=True)
        start = mean, scale / (_SHAPE - 1.0)  # as in `_with_variance`
        mean, within = moments_within(X, pooled_variance(X, labels), start)
        sums = sums_of(X, labels)
        counts, squares = sums.counts, (sums.means - mean) ** 2
        spread = sums_of(deviations(X, labels) ** 2, labels).sums
        scale = (_SHAPE - 1.0) * within

        def log_likelihood(strength: float) -> float:
            """What of Σ log H depends on the strength."""
            share = strength * counts / (strength + counts)
            logs = np.log(scale + 0.5 * (spread + share * squares))
            out = -(_SHAPE + 0.5 * counts) * logs - 0.5 * np.log1p(counts / strength)
            return float(out.sum())

        return self._with_variance(mean, within, most_likely(log_likelihood, STRENGTHS))

    @classmethod
    def _with_variance(cls, mean: Vector, variance: Vector, strength: float) -> DiagonalGaussian:
        """The prior whose mean variance is as given."""
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
