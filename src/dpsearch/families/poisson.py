"""Counts under a Poisson distribution with a Gamma prior on every column's rate.

    x | λ ~ Poisson(λ),   λ ~ Gamma(a, b)      column by column; b is a rate, the mean a/b

With n points of a cluster and their sums s (Gelman et al. 2013, "Bayesian Data Analysis", 2.6):

    posterior    λ | C ~ Gamma(a + s, b + n)
    predictive   log p(x | C) = Σ_d log Γ(a + s + x)/Γ(a + s) − (a + s) log (b + n + 1)/(b + n)
                 − x log(b + n + 1)                                 a negative binomial
    marginal     log H = Σ_d log Γ(a + s)/Γ(a) − a log (b + n)/b − s log(b + n)

without Σ log x!, which no clustering changes.  A column with x = 0 adds only the middle term to the
predictive, whose sum is kept in the row, so data are encoded as sparse.  Log-gammas come from a
table if a is one number.

With gaps, n is n_d = n − m_d in column d, where m_d points lack a value, and a data row lists its
missing values after its counts: a one in column D + d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from dpsearch import _jit
from dpsearch._special import log_gamma_table, log_rising, table_rising
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import check_counts, per_column
from dpsearch.families import layout
from dpsearch.families._columns import means, with_holes
from dpsearch.families._totals import GammaTotals, by_columns
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated
from dpsearch.families.functions import Functions
from dpsearch.families.layout import at, entry, length, table, view, view_at
from dpsearch.families.learning import CONCENTRATIONS, most_likely, sums_of
from dpsearch.families.linear import LinearForm
from dpsearch.families.packing import row_sums, without_zeros
from dpsearch.families.statistics import GammaCounts
from dpsearch.families.with_gaps import WithGaps, WithOwnRows

_LARGEST_TABLE = 1 << 22


class _Params(NamedTuple):
    even: layout.Number  # whether b is one number, and there are no gaps
    gaps: layout.Number  # whether there are gaps
    total_shape: layout.Number  # Σa
    shape: layout.Numbers  # a of each column
    rate: layout.Numbers  # b
    log_gammas: layout.Numbers  # log Γ(a + j), empty unless a is one number


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number  # of the predictive
    total: layout.Number  # Σs
    log_rate: layout.Number  # log(b + n + 1)
    sums: layout.Counts  # s of each column
    log_rates: layout.Numbers  # log(b + n_d + 1), unless b is one number
    missing: layout.Counts  # m_d, if there are gaps
    shares: layout.Numbers  # each column's share of the constant, if there are gaps


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def _n_observed(params, ids):  # type: ignore[no-untyped-def]
    """Return how many entries of a data row are counts; the rest are missing values."""
    n_features = length(params, PARAMS.shape)
    end = ids.shape[0]
    while end > 0 and ids[end - 1] >= n_features:
        end -= 1
    return end


@_jit.inner
def _rate(params, row, d):  # type: ignore[no-untyped-def]
    """Return b + n_d."""
    n = row[ROW.n]
    if params[PARAMS.gaps] == 1.0:
        n -= row[at(ROW.missing, length(params, PARAMS.shape)) + d]
    return entry(params, PARAMS.rate, d) + n


@_jit.inner
def _set_column(params, row, d):  # type: ignore[no-untyped-def]
    """Compute what scoring needs of column d; return its share of the constant."""
    n_features, rate = length(params, PARAMS.shape), _rate(params, row, d)
    shape = entry(params, PARAMS.shape, d) + row[at(ROW.sums, n_features) + d]
    share = shape * math.log1p(1.0 / rate)
    row[at(ROW.log_rates, n_features) + d] = math.log(rate + 1.0)
    if params[PARAMS.gaps] == 1.0:
        row[at(ROW.shares, n_features) + d] = share
    return share


@_jit.inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Compute everything that scoring needs from n, the sums and the missing counts."""
    if params[PARAMS.even] == 1.0:
        rate = _rate(params, row, 0)
        row[ROW.constant] = -(params[PARAMS.total_shape] + row[ROW.total]) * math.log1p(1.0 / rate)
        row[ROW.log_rate] = math.log(rate + 1.0)
        return
    constant = 0.0
    for d in range(length(params, PARAMS.rate)):
        constant -= _set_column(params, row, d)
    row[ROW.constant] = constant


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_features, n_observed = length(params, PARAMS.shape), _n_observed(params, ids)
    sums, missing = view(row, ROW.sums, n_features), view(row, ROW.missing, n_features)
    row[ROW.n] += weight
    for i in range(n_observed):
        row[ROW.total] += weight * values[i]
        sums[ids[i]] += weight * values[i]
    for i in range(n_observed, ids.shape[0]):
        missing[ids[i] - n_features] += weight
    _constants(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = length(params, PARAMS.shape)
    sums, more = view(row, ROW.sums, n_features), view(other, ROW.sums, n_features)
    row[ROW.n] += sign * other[ROW.n]
    total = 0.0
    for d in range(n_features):
        sums[d] += sign * more[d]
        total += sums[d]
    row[ROW.total] = total
    if params[PARAMS.gaps] == 1.0:
        missing, lacked = view(row, ROW.missing, n_features), view(other, ROW.missing, n_features)
        for d in range(n_features):
            missing[d] += sign * lacked[d]
    _constants(params, row)


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    shape, log_gammas = table(params, PARAMS.shape), table(params, PARAMS.log_gammas)
    n_features, n_observed = shape.shape[0], _n_observed(params, ids)
    total = 0.0
    for i in range(n_observed):
        total += values[i]
    for k in range(starts.shape[0]):
        s = starts[k]
        sums = view_at(pool, s, ROW.sums, n_features)
        score = pool[s + ROW.constant]
        for i in range(n_observed):
            score += table_rising(log_gammas, shape[ids[i]], sums[ids[i]], values[i])
        if params[PARAMS.even] == 1.0:
            score -= total * pool[s + ROW.log_rate]
        else:
            log_rates = view_at(pool, s, ROW.log_rates, n_features)
            shares = view_at(pool, s, ROW.shares, n_features)
            for i in range(n_observed):
                score -= values[i] * log_rates[ids[i]]
            for i in range(n_observed, ids.shape[0]):
                score += shares[ids[i] - n_features]
        out[k] = score


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    shape, rates = table(params, PARAMS.shape), table(params, PARAMS.rate)
    log_gammas = table(params, PARAMS.log_gammas)
    n_features = shape.shape[0]
    sums = view(row, ROW.sums, n_features)
    n_observed = lacking = _n_observed(params, ids)
    out = 0.0
    if params[PARAMS.even] == 1.0:
        before = rates[0] + row[ROW.n] - 1.0
        out -= (params[PARAMS.total_shape] + row[ROW.total]) * math.log1p(1.0 / before)
    else:
        for d in range(n_features):
            if lacking < ids.shape[0] and ids[lacking] == n_features + d:
                lacking += 1
            else:
                before = _rate(params, row, d) - 1.0
                out -= (shape[d] + sums[d]) * math.log1p(1.0 / before)
    for i in range(n_observed):
        d = ids[i]
        out += table_rising(log_gammas, shape[d], sums[d] - values[i], values[i])
        out -= values[i] * math.log(_rate(params, row, d) - 1.0)
    return out


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    shape, rates = table(params, PARAMS.shape), table(params, PARAMS.rate)
    log_gammas = table(params, PARAMS.log_gammas)
    sums = view(row, ROW.sums, shape.shape[0])
    even = params[PARAMS.even] == 1.0
    out = 0.0
    if even:
        out -= params[PARAMS.total_shape] * math.log1p(row[ROW.n] / rates[0])
        out -= row[ROW.total] * math.log(rates[0] + row[ROW.n])
    for d in range(shape.shape[0]):
        out += table_rising(log_gammas, shape[d], 0.0, sums[d])
        if not even:
            rate = _rate(params, row, d)
            out -= shape[d] * math.log(rate / rates[d]) + sums[d] * math.log(rate)
    return out


@_jit.inner
def _best_case(params, row, d, x, helpers, low, high):  # type: ignore[no-untyped-def]
    """Return the largest predictive of x in column d over the helpers' sum and their number.

    With α = a + s and β = b + n, helpers included, one more in the sum changes the predictive by
    log (α + x)/α − log (β + 1)/β: an increase while α ≤ xβ.
    """
    n_features = length(params, PARAMS.shape)
    shape = entry(params, PARAMS.shape, d) + row[at(ROW.sums, n_features) + d]
    fewest = most = helpers
    if params[PARAMS.gaps] == 1.0:
        fewest = max(helpers - int(np.floor(high[n_features + d])), 0)
        most = min(helpers - int(np.ceil(low[n_features + d])), helpers)
    best_case = -np.inf
    for count in range(fewest, most + 1):
        rate = _rate(params, row, d) + count
        best = min(max(math.floor(x * rate - shape) + 1.0, low[d]), high[d])
        value = log_rising(shape + best, x) - x * math.log(rate + 1.0)
        best_case = max(best_case, value - (shape + best) * math.log1p(1.0 / rate))
    return best_case


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column the helpers are those that are best for the point."""
    out = 0.0
    for d in range(length(params, PARAMS.shape)):
        out += _best_case(params, row, d, 0.0, helpers, low, high)
    n_observed = _n_observed(params, ids)
    for i in range(ids.shape[0]):
        d = ids[i] if i < n_observed else ids[i] - length(params, PARAMS.shape)
        out -= _best_case(params, row, d, 0.0, helpers, low, high)
        if i < n_observed:
            out += _best_case(params, row, d, values[i], helpers, low, high)
    return out


_FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, bound=_bound
)


class PoissonWithGaps(WithOwnRows):
    """`WithGaps` of a `Poisson`, with the same functions."""

    family: Poisson

    functions: ClassVar[Functions] = _FUNCTIONS

    log_ceiling = WithGaps.log_ceiling  # the sum over columns

    def row_layout(self) -> Any:
        return ROW

    def bound_width(self, n_features: int) -> int:
        return 2 * n_features

    def parameters(self, n_features: int, X: Any) -> Vector:
        params = self.family.parameters(n_features, np.nan_to_num(X))
        params[[PARAMS.even, PARAMS.gaps]] = 0.0, 1.0
        return params

    def encode(self, X: Any) -> Any:
        missing = np.isnan(X)
        counts = self.family.encode(np.where(missing, 0.0, X))
        return sp.hstack([counts, sp.csr_matrix(missing, dtype=np.float64)], format="csr")

    def _sum_observed(self, X: Any, of_column: str) -> Vector:
        # Neither zeros nor gaps add anything.
        value: Vector = getattr(self.family, of_column)(np.nan_to_num(X))
        return value

    def linear(self, n_features: int) -> LinearForm:
        return self.family.linear(n_features, gaps=True)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        return Restated(row)

    def _rows(self, row: Vector, n_features: int) -> list[Vector]:
        fields = layout.read(ROW, row, n_features)
        return [
            layout.make(ROW, 1, 1, n=fields.n - missing, total=total, sums=total)
            for missing, total in zip(fields.missing, fields.sums, strict=True)
        ]


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
    functions: ClassVar[Functions] = _FUNCTIONS
    form_with_gaps: ClassVar[Any] = PoissonWithGaps

    def prior(self, n_features: int) -> tuple[Vector, Vector]:
        """Return shape and rate of each column."""
        shape = per_column(self.shape, n_features, "shape", above_zero=True)
        return shape, per_column(self.rate, n_features, "rate", above_zero=True)

    def _even_rate(self, n_features: int) -> bool:
        _, rate = self.prior(n_features)
        return bool((rate == rate[0]).all())

    def width(self, n_features: int) -> int:
        return layout.width(ROW, n_features, 1 if self._even_rate(n_features) else 2)

    def check(self, X: Any) -> None:
        check_counts(X, self.name)

    def parameters(self, n_features: int, X: Any) -> Vector:
        shape, rate = self.prior(n_features)
        size = int(min(np.asarray(X.sum(axis=0)).max() + 2, _LARGEST_TABLE))
        even = (shape == shape[0]).all()
        log_gammas = log_gamma_table(shape[0], size) if even else np.empty(0)
        return layout.make_params(
            PARAMS, even=self._even_rate(n_features), gaps=0.0, total_shape=shape.sum(),
            shape=shape, rate=rate, log_gammas=log_gammas,
        )  # fmt: skip

    def encode(self, X: Any) -> Any:
        return without_zeros(X)

    def log_base(self, X: Any) -> Vector:
        X = self.encode(X)
        return np.asarray(-row_sums(X, gammaln(X.data + 1.0)))

    def log_ceiling(self, X: Any) -> Vector:
        X = self.encode(X)
        return np.asarray(row_sums(X, xlogy(X.data, X.data) - X.data))  # at the rate x

    def statistic(self, X: Any) -> GammaCounts:
        return GammaCounts(self.encode(X), *self.prior(X.shape[1]))

    def linear(self, n_features: int, *, gaps: bool = False) -> LinearForm:
        width = layout.width(ROW, n_features) if gaps else self.width(n_features)

        def rows(sizes: Vector, n: Matrix, sums: Matrix) -> Matrix:
            missing = sizes[:, None] - n
            out = layout.make_rows(ROW, len(sizes), n_features, n=sizes, sums=sums, missing=missing)
            return out[:, :width]

        closed = GammaTotals(*self.prior(n_features))
        return by_columns(closed, n_features, lambda X: X, rows, gaps=gaps)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        return Restated(self.row_with_gaps(row, n_features)[: other.width(n_features)])

    def counts_in_row(self, n_features: int) -> Ints:
        return layout.counts(ROW, n_features, 1)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        shape, rate = self.prior(n_features)
        fields = layout.read(ROW, row, n_features)
        shape, rate = shape + fields.sums, rate + fields.n
        return {"mean": shape / rate, "shape": shape, "rate": rate}

    def columns(self, row: Vector, n_features: int) -> Columns:
        (shape, rate), posterior = self.prior(n_features), self.posterior(row, n_features)
        out = gammaln(posterior["shape"]) - gammaln(shape)
        out += shape * np.log(rate) - posterior["shape"] * np.log(posterior["rate"])
        return Columns(out, posterior["mean"])

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        fields = layout.read(ROW, row, n_features)
        return layout.make(ROW, n_features, n=fields.n, total=fields.total, sums=fields.sums)

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        posterior = self.posterior(row, n_features)

        def sample(size: int, rng: Rng) -> Any:
            rates = rng.gamma(posterior["shape"], 1.0 / posterior["rate"], (size, n_features))
            return rng.poisson(rates).astype(np.float64)

        return PredictiveDraws(sample)

    @classmethod
    def suggest(cls, X: Any) -> Poisson:
        mean = np.asarray(X.mean(axis=0)).reshape(-1) if sp.issparse(X) else means(X)
        return cls._with_shape(np.where(mean > 0.0, mean, 1.0), 1.0)

    def learned(self, X: Any, labels: Ints) -> Poisson:
        shape, rate = self.prior(X.shape[1])
        counts, sums = sums_of(X, labels)

        def log_likelihood(new: float) -> float:
            """Return Σ log H without the factorials."""
            new_rate = new * rate / shape
            out = gammaln(sums + new) - gammaln(new) + new * np.log(new_rate)
            return float((out - (sums + new) * np.log(counts + new_rate)).sum())

        return self._with_shape(shape / rate, most_likely(log_likelihood, CONCENTRATIONS))

    @classmethod
    def _with_shape(cls, mean: Vector, shape: float) -> Poisson:
        """Return the prior with these means of the columns' rates."""
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
