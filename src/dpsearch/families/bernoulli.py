"""Binary data under a Bernoulli distribution with a Beta prior in every column, sparse or dense.

    x | θ ~ Bernoulli(θ),   θ ~ Beta(s, f)      column by column

With n points of a cluster, c of them ones (Gelman et al. 2013, "Bayesian Data Analysis", 2.4):

    posterior    θ | C ~ Beta(s + c, f + n − c)
    predictive   log p(x | C) = Σ_d x log(s + c) + (1 − x) log(f + n − c) − log(s + f + n)
    marginal     log H = Σ_d log B(s + c, f + n − c)/B(s, f)

The predictive is a constant plus ⟨x, logits⟩, logits = log(s + c) − log(f + n − c), kept in the
row: a point costs one product, or one sum over its ones when sparse.  Counts are whole numbers,
so logarithms and log-gammas come from tables when s and f are single numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln

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
from dpsearch._types import Ints, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import CONCENTRATIONS, most_likely, sums_of
from dpsearch.families.statistics import BetaCounts

if TYPE_CHECKING:
    from dpsearch.families._level_gaps import LevelsWithGaps

# params: D, size of each table, s[D], f[D], log(s + j), log(f + j), log Γ(s + j), log Γ(f + j).
# The tables are empty unless s and f are single numbers.
# row: n, the predictive's constant, c[D], logits[D]
_PARAMS = 2
_HEAD = 2
_LARGEST_TABLE = 1 << 22


@inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Derive everything that scoring needs from n and the counts."""
    n_features, size = int(params[0]), int(params[1])
    n = row[0]
    ones = row[_HEAD : _HEAD + n_features]
    logits = row[_HEAD + n_features : _HEAD + 2 * n_features]
    constant = 0.0
    if n < size:
        begin = _PARAMS + 2 * n_features
        log_successes = params[begin : begin + size]
        log_failures = params[begin + size : begin + 2 * size]
        for d in range(n_features):
            log_zero = log_failures[int(n - ones[d])]
            logits[d] = log_successes[int(ones[d])] - log_zero
            constant += log_zero
        constant -= n_features * math.log(params[_PARAMS] + params[_PARAMS + n_features] + n)
    else:
        for d in range(n_features):
            successes = params[_PARAMS + d] + ones[d]
            failures = params[_PARAMS + n_features + d] + n - ones[d]
            logits[d] = math.log(successes / failures)
            constant -= math.log1p(successes / failures)
    row[1] = constant


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _constants(params, row)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    if ids.shape[0] > 0:
        for i in range(values.shape[0]):
            row[_HEAD + ids[i]] += weight * values[i]
    else:
        for i in range(values.shape[0]):
            row[_HEAD + i] += weight * values[i]
    _constants(params, row)


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for d in range(_HEAD, _HEAD + int(params[0])):
        row[d] += sign * other[d]
    _constants(params, row)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[0])
    for k in range(starts.shape[0]):
        s = starts[k]
        logits = pool[s + _HEAD + n_features : s + _HEAD + 2 * n_features]
        score = pool[s + 1]
        if ids.shape[0] > 0:
            for i in range(values.shape[0]):
                score += logits[ids[i]] * values[i]
        else:
            for i in range(values.shape[0]):
                score += logits[i] * values[i]
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features, size = int(params[0]), int(params[1])
    n = row[0]
    out = 0.0
    if n < size:
        begin = _PARAMS + 2 * n_features + 2 * size
        successes = params[begin : begin + size]
        failures = params[begin + size : begin + 2 * size]
        for d in range(n_features):
            ones = row[_HEAD + d]
            out += successes[int(ones)] + failures[int(n - ones)]
        total = params[_PARAMS] + params[_PARAMS + n_features]
        return out - n_features * (successes[0] + failures[0] + log_rising(total, n))
    for d in range(n_features):
        ones = row[_HEAD + d]
        a, b = params[_PARAMS + d], params[_PARAMS + n_features + d]
        out += log_rising(a, ones) + log_rising(b, n - ones) - log_rising(a + b, n)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[ids[i] if ids.shape[0] > 0 else i] = values[i]


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column as many helpers that agree with the point as there can be."""
    n_features = int(params[0])
    n = row[0] + helpers
    out = 0.0
    for d in range(n_features):
        a, b = params[_PARAMS + d], params[_PARAMS + n_features + d]
        zeros = n - row[_HEAD + d] - max(low[d], 0.0)
        out += math.log((b + zeros) / (a + b + n))
    for i in range(values.shape[0]):
        d = ids[i] if ids.shape[0] > 0 else i
        if values[i] != 0.0:
            zeros = n - row[_HEAD + d] - max(low[d], 0.0)
            ones = row[_HEAD + d] + min(high[d], float(helpers))
            out += math.log(
                (params[_PARAMS + d] + ones) / (params[_PARAMS + n_features + d] + zeros)
            )
    return out


@dataclass(frozen=True)
class Bernoulli(Family):
    """Zeros and ones, with a Beta prior on each column's probability of a one.

    Parameters
    ----------
    successes, failures
        How many ones and zeros the prior counts for: scalars, or one number per column.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Bernoulli(successes=0.5, failures=2.0)
    Bernoulli(successes=0.5, failures=2.0)
    """

    successes: Any = 1.0
    failures: Any = 1.0

    name: ClassVar[str] = "bernoulli"
    kind: ClassVar[str] = "binary"
    accepts_sparse: ClassVar[bool] = True
    independent_columns: ClassVar[bool] = True
    functions: ClassVar[Functions] = Functions(
        _init, _update, _merge, _score_rows, _log_marginal, features=_features, bound=_bound
    )

    def _prior(self, n_features: int) -> tuple[Vector, Vector]:
        successes = per_column(self.successes, n_features, "successes", above_zero=True)
        return successes, per_column(self.failures, n_features, "failures", above_zero=True)

    def width(self, n_features: int) -> int:
        return _HEAD + 2 * n_features

    def check(self, X: Any) -> None:
        values = X.data if sp.issparse(X) else X.reshape(-1)
        bad = np.flatnonzero((values != 0.0) & (values != 1.0))
        if len(bad) == 0:
            return
        at = int(bad[0])
        if sp.issparse(X):
            row = int(np.searchsorted(X.indptr, at, side="right")) - 1
            column = int(X.indices[at])
        else:
            row, column = divmod(at, X.shape[1])
        raise DataError(
            f"the {self.name} family takes zeros and ones, but X at {{place}} is {values[at]:g}",
            row=row,
            column=column,
        )

    def parameters(self, n_features: int, X: Any) -> Vector:
        successes, failures = self._prior(n_features)
        even = (successes == successes[0]).all() and (failures == failures[0]).all()
        size = min(X.shape[0] + 2, _LARGEST_TABLE) if even else 0
        counts = np.arange(size)
        return np.concatenate(
            [
                [n_features, size],
                successes,
                failures,
                np.log(successes[0] + counts),
                np.log(failures[0] + counts),
                log_gamma_table(successes[0], size),
                log_gamma_table(failures[0], size),
            ]
        )

    def encode(self, X: Any) -> Any:
        if sp.issparse(X) and (X.data == 0.0).any():
            X = X.copy()
            X.eliminate_zeros()
        return X

    def log_ceiling(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])

    def statistic(self, X: Any) -> BetaCounts:
        return BetaCounts(self.encode(X), *self._prior(X.shape[1]))

    def counts_in_row(self, n_features: int) -> slice | None:
        return slice(_HEAD, _HEAD + n_features)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        successes, failures = self._prior(n_features)
        ones = row[_HEAD : _HEAD + n_features]
        successes, failures = successes + ones, failures + row[0] - ones
        return {
            "probabilities": successes / (successes + failures),
            "successes": successes,
            "failures": failures,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        posterior = self.posterior(row, n_features)
        after = betaln(posterior["successes"], posterior["failures"])
        ones = posterior["probabilities"]
        codes = list(np.stack([1.0 - ones, ones], axis=1))
        return Columns(after - betaln(*self._prior(n_features)), ones, codes)

    def with_gaps(self) -> LevelsWithGaps:
        from dpsearch.families._level_gaps import LevelsWithGaps

        return LevelsWithGaps(self)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        ones = row[_HEAD : _HEAD + n_features]
        counts = np.stack([row[0] - ones, ones], axis=1).reshape(-1)
        return self.with_gaps().row_of_complete(row[0], counts, n_features)

    def level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        """How many levels each column has, and what the prior counts for at each."""
        successes, failures = self._prior(n_features)
        return np.full(n_features, 2), np.stack([failures, successes], axis=1).reshape(-1)

    def row_of_levels(self, counts: Vector) -> Vector:
        """The row of a single column with so many points at each level, without logarithms."""
        return np.array([counts.sum(), 0.0, counts[1], 0.0])

    def draws(self, row: Vector, n_features: int) -> Draws:
        ones = self.posterior(row, n_features)["probabilities"]
        return Draws(lambda size, rng: (rng.random((size, n_features)) < ones).astype(np.float64))

    def learned(self, X: Any, labels: Ints) -> Bernoulli:
        counts, ones = sums_of(X, labels)

        def log_likelihood(count: float) -> float:
            both = betaln(ones + count, counts - ones + count) - betaln(count, count)
            return float(both.sum())

        count = most_likely(log_likelihood, CONCENTRATIONS)
        return type(self)(count, count)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = (rng.random((12, 4)) < [0.2, 0.5, 0.5, 0.9]).astype(np.float64)
        X[3] = 0.0
        return [
            Example(cls(0.5, 2.0), X),
            Example(cls([0.3, 1.0, 2.0, 0.7], [1.0, 0.2, 3.0, 1.5]), X),
            Example(cls(1.0, 0.1), sp.csr_matrix(X)),
            Example(cls([0.3, 1.0, 2.0, 0.7], 1.5), with_holes(X)),
        ]
