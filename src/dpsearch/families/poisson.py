"""Counts under a Poisson distribution with a Gamma prior on every column's rate.

    x | λ ~ Poisson(λ),   λ ~ Gamma(a, b)      column by column; b is a rate, the mean a/b

With n points of a cluster and their sums s (Gelman et al. 2013, "Bayesian Data Analysis", 2.6):

    posterior    λ | C ~ Gamma(a + s, b + n)
    predictive   log p(x | C) = Σ_d log Γ(a + s + x)/Γ(a + s) − (a + s) log (b + n + 1)/(b + n)
                 − x log(b + n + 1)                                 a negative binomial
    marginal     log H = Σ_d log Γ(a + s)/Γ(a) − a log (b + n)/b − s log(b + n)

without Σ log x!, which no clustering changes.  Columns where x = 0 add nothing to the predictive
but the middle term, which the row holds summed: data are taken as sparse.  Log-gammas come from a
table when a is one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

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
from dpsearch._special import log_gamma_table, log_rising
from dpsearch._types import Ints, Rng, Vector
from dpsearch._validate import check_counts, per_column
from dpsearch.families._columns import means, with_holes
from dpsearch.families.base import Example, Family, Functions, without_zeros
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import CONCENTRATIONS, most_likely, sums_of
from dpsearch.families.statistics import GammaCounts

if TYPE_CHECKING:
    from dpsearch.families._poisson_gaps import PoissonWithGaps

# params: D, whether b is one number, size of the table, Σa, a[D], b[D], log Γ(a + j).  The table
# is empty unless a is one number.
# row: n, the predictive's constant, Σs, log(b + n + 1), s[D], and unless b is one number
# log(b + n + 1) for each column [D]
_PARAMS = 4
_HEAD = 4
_LARGEST_TABLE = 1 << 22


@inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Derive everything that scoring needs from n and the sums."""
    n_features = int(params[0])
    n = row[0]
    if params[1] == 1.0:
        rate = params[_PARAMS + n_features] + n
        row[1] = -(params[3] + row[2]) * math.log1p(1.0 / rate)
        row[3] = math.log(rate + 1.0)
        return
    row[1] = 0.0
    for d in range(n_features):
        rate = params[_PARAMS + n_features + d] + n
        row[1] -= (params[_PARAMS + d] + row[_HEAD + d]) * math.log1p(1.0 / rate)
        row[_HEAD + n_features + d] = math.log(rate + 1.0)


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _constants(params, row)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for i in range(values.shape[0]):
        row[2] += weight * values[i]
        row[_HEAD + ids[i]] += weight * values[i]
    _constants(params, row)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    row[2] += sign * other[2]
    for d in range(_HEAD, _HEAD + int(params[0])):
        row[d] += sign * other[d]
    _constants(params, row)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features, size = int(params[0]), int(params[2])
    table = params[_PARAMS + 2 * n_features : _PARAMS + 2 * n_features + size]
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    for k in range(starts.shape[0]):
        s = starts[k]
        sums = pool[s + _HEAD : s + _HEAD + n_features]
        score = pool[s + 1]
        for i in range(values.shape[0]):
            before = sums[ids[i]]
            after = before + values[i]
            if after < size:
                score += table[int(after)] - table[int(before)]
            else:
                score += log_rising(params[_PARAMS + ids[i]] + before, values[i])
        if params[1] == 1.0:
            score -= total * pool[s + 3]
        else:
            for i in range(values.shape[0]):
                score -= values[i] * pool[s + _HEAD + n_features + ids[i]]
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features, size = int(params[0]), int(params[2])
    table = params[_PARAMS + 2 * n_features : _PARAMS + 2 * n_features + size]
    n = row[0]
    out = 0.0
    if params[1] == 1.0:
        rate = params[_PARAMS + n_features]
        out -= params[3] * math.log1p(n / rate) + row[2] * math.log(rate + n)
    for d in range(n_features):
        shape, rate = params[_PARAMS + d], params[_PARAMS + n_features + d]
        total = row[_HEAD + d]
        if total < size:
            out += table[int(total)] - table[0]
        else:
            out += log_rising(shape, total)
        if params[1] == 0.0:
            out -= shape * math.log1p(n / rate) + total * math.log(rate + n)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[ids[i]] = values[i]


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column the sum of the helpers that suits the point best.

    With α = a + s and β = b + n, helpers included, one more in the sum changes the predictive by
    log (α + x)/α − log (β + 1)/β: an increase while α ≤ xβ.
    """
    n_features = int(params[0])
    out = 0.0
    for d in range(n_features):
        rate = params[_PARAMS + n_features + d] + row[0] + helpers
        out -= (params[_PARAMS + d] + row[_HEAD + d] + low[d]) * math.log1p(1.0 / rate)
    for i in range(values.shape[0]):
        d = ids[i]
        rate = params[_PARAMS + n_features + d] + row[0] + helpers
        shape = params[_PARAMS + d] + row[_HEAD + d]
        best = min(max(math.floor(values[i] * rate - shape) + 1.0, low[d]), high[d])
        out += log_rising(shape + best, values[i]) - values[i] * math.log(rate + 1.0)
        out -= (best - low[d]) * math.log1p(1.0 / rate)
    return out


@dataclass(frozen=True)
class Poisson(Family):
    """Counts, with a Gamma prior on each column's rate.

    Parameters
    ----------
    shape, rate
        Of the Gamma prior, whose mean is shape / rate: scalars, or one number per column.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Poisson(shape=2.0, rate=0.5)
    Poisson(shape=2.0, rate=0.5)
    """

    shape: Any = 1.0
    rate: Any = 1.0

    name: ClassVar[str] = "poisson"
    kind: ClassVar[str] = "count"
    accepts_sparse: ClassVar[bool] = True
    independent_columns: ClassVar[bool] = True
    functions: ClassVar[Functions] = Functions(
        _init, _update, _merge, _score_rows, _log_marginal, features=_features, bound=_bound
    )

    def prior(self, n_features: int) -> tuple[Vector, Vector]:
        """Shape and rate of each column."""
        shape = per_column(self.shape, n_features, "shape", above_zero=True)
        return shape, per_column(self.rate, n_features, "rate", above_zero=True)

    def _even_rate(self, n_features: int) -> bool:
        _, rate = self.prior(n_features)
        return bool((rate == rate[0]).all())

    def width(self, n_features: int) -> int:
        return _HEAD + (1 if self._even_rate(n_features) else 2) * n_features

    def check(self, X: Any) -> None:
        check_counts(X, self.name)

    def parameters(self, n_features: int, X: Any) -> Vector:
        shape, rate = self.prior(n_features)
        size = int(min(np.asarray(X.sum(axis=0)).max() + 2, _LARGEST_TABLE))
        table = log_gamma_table(shape[0], size) if (shape == shape[0]).all() else np.empty(0)
        head = [n_features, self._even_rate(n_features), len(table), shape.sum()]
        return np.concatenate([head, shape, rate, table])

    def encode(self, X: Any) -> Any:
        return without_zeros(X)

    def log_base(self, X: Any) -> Vector:
        X = self.encode(X)
        logs = sp.csr_matrix((gammaln(X.data + 1.0), X.indices, X.indptr), shape=X.shape)
        return -np.asarray(logs.sum(axis=1)).reshape(-1)

    def log_ceiling(self, X: Any) -> Vector:
        X = self.encode(X)
        best = xlogy(X.data, X.data) - X.data  # at the rate x
        terms = sp.csr_matrix((best, X.indices, X.indptr), shape=X.shape)
        return np.asarray(terms.sum(axis=1)).reshape(-1)

    def statistic(self, X: Any) -> GammaCounts:
        return GammaCounts(self.encode(X), *self.prior(X.shape[1]))

    def counts_in_row(self, n_features: int) -> slice | None:
        return slice(_HEAD, _HEAD + n_features)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        shape, rate = self.prior(n_features)
        shape, rate = shape + row[_HEAD : _HEAD + n_features], rate + row[0]
        return {"mean": shape / rate, "shape": shape, "rate": rate}

    def columns(self, row: Vector, n_features: int) -> Columns:
        (shape, rate), posterior = self.prior(n_features), self.posterior(row, n_features)
        out = gammaln(posterior["shape"]) - gammaln(shape)
        out += shape * np.log(rate) - posterior["shape"] * np.log(posterior["rate"])
        return Columns(out, posterior["mean"])

    def with_gaps(self) -> PoissonWithGaps:
        from dpsearch.families._poisson_gaps import PoissonWithGaps

        return PoissonWithGaps(self)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        return self.with_gaps().row_of_complete(row[0], row[_HEAD : _HEAD + n_features])

    def draws(self, row: Vector, n_features: int) -> Draws:
        posterior = self.posterior(row, n_features)

        def sample(size: int, rng: Rng) -> Any:
            rates = rng.gamma(posterior["shape"], 1.0 / posterior["rate"], (size, n_features))
            return rng.poisson(rates).astype(np.float64)

        return Draws(sample)

    @classmethod
    def suggest(cls, X: Any) -> Poisson:
        mean = np.asarray(X.mean(axis=0)).reshape(-1) if sp.issparse(X) else means(X)
        return cls._with_shape(np.where(mean > 0.0, mean, 1.0), 1.0)

    def learned(self, X: Any, labels: Ints) -> Poisson:
        shape, rate = (
            per_column(getattr(self, name), X.shape[1], name, above_zero=True)
            for name in ("shape", "rate")
        )
        counts, sums = sums_of(X, labels)

        def log_likelihood(new: float) -> float:
            """Σ log H, without the factorials."""
            new_rate = new * rate / shape
            out = gammaln(sums + new) - gammaln(new) + new * np.log(new_rate)
            return float((out - (sums + new) * np.log(counts + new_rate)).sum())

        return self._with_shape(shape / rate, most_likely(log_likelihood, CONCENTRATIONS))

    @classmethod
    def _with_shape(cls, mean: Vector, shape: float) -> Poisson:
        """The prior whose mean is as given for each column."""
        return cls(shape, tuple((shape / mean).tolist()))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = rng.poisson([0.5, 3.0, 12.0], size=(12, 3)).astype(np.float64)
        X[3] = 0.0
        return [
            Example(cls(1.5, 0.5), X),
            Example(cls([0.3, 1.0, 9.0], [0.5, 1.0, 0.2]), X),
            Example(cls([2.0, 0.1, 5.0], 1.0), X),
            Example(cls(0.7, 2.0), sp.csr_matrix(X)),
            Example(cls(0.7, [0.5, 1.0, 0.2]), with_holes(X)),
        ]
