"""Binary data under a Bernoulli distribution with a Beta prior in every column, sparse or dense.

    x | θ ~ Bernoulli(θ),   θ ~ Beta(s, f)      column by column

With n points of a cluster, c of them ones (Gelman et al. 2013, "Bayesian Data Analysis", 2.4):

    posterior    θ | C ~ Beta(s + c, f + n − c)
    predictive   log p(x | C) = Σ_d x log(s + c) + (1 − x) log(f + n − c) − log(s + f + n)
    marginal     log H = Σ_d log B(s + c, f + n − c)/B(s, f)

The predictive is a constant plus ⟨x, logits⟩, logits = log(s + c) − log(f + n − c), kept in the
row, which is that of `_levels.py`: scoring is one product, or one sum over the ones of a sparse
point.  Counts are integers, so logarithms and log-gammas come from tables if s and f are single
numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln

from dpsearch import _jit
from dpsearch._special import log_gamma_table, log_rising
from dpsearch._types import Ints, Matrix, Vector
from dpsearch._validate import per_column
from dpsearch.families import layout
from dpsearch.families._columns import with_holes
from dpsearch.families._levels import ROW, Levels, LevelsWithGaps, merge_counts, score_rows
from dpsearch.families._totals import BetaTotals, by_columns
from dpsearch.families.base import Example
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.functions import Functions
from dpsearch.families.layout import table, view
from dpsearch.families.learning import pseudo_count, sums_of
from dpsearch.families.linear import LinearForm
from dpsearch.families.packing import without_zeros
from dpsearch.families.statistics import BetaCounts

_LARGEST_TABLE = 1 << 22


class _Params(NamedTuple):
    n_counts: layout.Number  # as in `_levels`; here the number of columns
    successes: layout.Numbers  # s of each column
    failures: layout.Numbers  # f
    log_successes: layout.Numbers  # log(s + j); tables are empty unless s and f are single numbers
    log_failures: layout.Numbers  # log(f + j)
    gamma_successes: layout.Numbers  # log Γ(s + j)
    gamma_failures: layout.Numbers  # log Γ(f + j)


PARAMS = layout.params(_Params)


@_jit.inner
def _constants(params, row):  # type: ignore[no-untyped-def]
    """Compute everything that scoring needs from n and the counts."""
    successes, failures = table(params, PARAMS.successes), table(params, PARAMS.failures)
    log_successes = table(params, PARAMS.log_successes)
    log_failures = table(params, PARAMS.log_failures)
    n_features, n = successes.shape[0], row[ROW.n]
    ones, logits = view(row, ROW.counts, n_features), view(row, ROW.logs, n_features)
    constant = 0.0
    if n < log_successes.shape[0]:
        for d in range(n_features):
            log_zero = log_failures[int(n - ones[d])]
            logits[d] = log_successes[int(ones[d])] - log_zero
            constant += log_zero
        constant -= n_features * math.log(successes[0] + failures[0] + n)
    else:
        for d in range(n_features):
            odds = (successes[d] + ones[d]) / (failures[d] + n - ones[d])
            logits[d] = math.log(odds)
            constant -= math.log1p(odds)
    row[ROW.constant] = constant


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    ones = view(row, ROW.counts, table(params, PARAMS.successes).shape[0])
    row[ROW.n] += weight
    for i in range(values.shape[0]):
        ones[ids[i] if ids.shape[0] > 0 else i] += weight * values[i]
    _constants(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    merge_counts(params, row, other, sign)
    _constants(params, row)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    successes, failures = table(params, PARAMS.successes), table(params, PARAMS.failures)
    gamma_successes = table(params, PARAMS.gamma_successes)
    gamma_failures = table(params, PARAMS.gamma_failures)
    n_features, n = successes.shape[0], row[ROW.n]
    ones = view(row, ROW.counts, n_features)
    out = 0.0
    if n < gamma_successes.shape[0]:
        for d in range(n_features):
            out += gamma_successes[int(ones[d])] + gamma_failures[int(n - ones[d])]
        empty = gamma_successes[0] + gamma_failures[0] + log_rising(successes[0] + failures[0], n)
        return out - n_features * empty
    for d in range(n_features):
        out += log_rising(successes[d], ones[d]) + log_rising(failures[d], n - ones[d])
        out -= log_rising(successes[d] + failures[d], n)
    return out


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column as many helpers as possible agree with the point."""
    successes, failures = table(params, PARAMS.successes), table(params, PARAMS.failures)
    n_features, n = successes.shape[0], row[ROW.n] + helpers
    ones = view(row, ROW.counts, n_features)
    out = 0.0
    for d in range(n_features):
        zeros = n - ones[d] - max(low[d], 0.0)
        out += math.log((failures[d] + zeros) / (successes[d] + failures[d] + n))
    for i in range(values.shape[0]):
        d = ids[i] if ids.shape[0] > 0 else i
        if values[i] != 0.0:
            zeros = n - ones[d] - max(low[d], 0.0)
            most = ones[d] + min(high[d], float(helpers))
            out += math.log((successes[d] + most) / (failures[d] + zeros))
    return out


@dataclass(frozen=True)
class Bernoulli(Levels):
    """Zeros and ones, with a Beta prior on each column's probability of a one.

    Parameters
    ----------
    successes, failures
        The prior counts of ones and zeros: scalars, or one number per column.

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
    functions: ClassVar[Functions] = Functions(
        _update, _merge, score_rows, _log_marginal, bound=_bound
    )

    def _prior(self, n_features: int) -> tuple[Vector, Vector]:
        successes = per_column(self.successes, n_features, "successes", above_zero=True)
        return successes, per_column(self.failures, n_features, "failures", above_zero=True)

    def check(self, X: Any) -> None:
        values = X.data if sp.issparse(X) else X
        self.check_support(X, (values != 0.0) & (values != 1.0), "zeros and ones")

    def parameters(self, n_features: int, X: Any) -> Vector:
        successes, failures = self._prior(n_features)
        even = (successes == successes[0]).all() and (failures == failures[0]).all()
        size = min(X.shape[0] + 2, _LARGEST_TABLE) if even else 0
        counts = np.arange(size)
        return layout.make_params(
            PARAMS,
            n_counts=n_features,
            successes=successes,
            failures=failures,
            log_successes=np.log(successes[0] + counts),
            log_failures=np.log(failures[0] + counts),
            gamma_successes=log_gamma_table(successes[0], size),
            gamma_failures=log_gamma_table(failures[0], size),
        )

    def encode(self, X: Any) -> Any:
        return without_zeros(X) if sp.issparse(X) else X

    # These hold for the functions and parameters of this class, too.
    log_ceiling, restated = Levels.log_ceiling, Levels.restated
    form_with_gaps, row_with_gaps = LevelsWithGaps, Levels.row_with_gaps

    def statistic(self, X: Any) -> BetaCounts:
        return BetaCounts(self.encode(X), *self._prior(X.shape[1]))

    def linear(self, n_features: int) -> LinearForm:
        def rows(sizes: Vector, n: Matrix, ones: Matrix) -> Matrix:
            return layout.make_rows(ROW, len(sizes), n_features, n=sizes, counts=ones)

        return by_columns(BetaTotals(*self._prior(n_features)), n_features, lambda X: X, rows)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        successes, failures = self._prior(n_features)
        fields = layout.read(ROW, row, n_features)
        successes, failures = successes + fields.counts, failures + fields.n - fields.counts
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

    def level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        successes, failures = self._prior(n_features)
        return np.full(n_features, 2), np.stack([failures, successes], axis=1).reshape(-1)

    def counts_of(self, row: Vector, n_features: int) -> Vector:
        fields = layout.read(ROW, row, n_features)
        return np.stack([fields.n - fields.counts, fields.counts], axis=1).reshape(-1)

    def row_of_levels(self, counts: Vector) -> Vector:
        return layout.make(ROW, 1, n=counts.sum(), counts=counts[1])

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        ones = self.posterior(row, n_features)["probabilities"]
        return PredictiveDraws(
            lambda size, rng: (rng.random((size, n_features)) < ones).astype(np.float64)
        )

    def learned(self, X: Any, labels: Ints) -> Bernoulli:
        counts, ones = sums_of(X, labels)
        count = pseudo_count(np.stack([counts - ones, ones], axis=2).reshape(-1, 2))
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
