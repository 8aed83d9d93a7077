"""Count vectors under a multinomial with a Dirichlet prior: documents, sparse or dense.

    x | θ ~ Multinomial(|x|, θ),   θ ~ Dirichlet(a)

With counts s of a cluster, S = Σ_w s_w and A = Σ_w a_w (the Dirichlet–multinomial, or Pólya,
distribution; Minka 2000, "Estimating a Dirichlet distribution"):

    predictive   log p(x | C) = Σ_w log Γ(a_w + s_w + x_w)/Γ(a_w + s_w)
                 − log Γ(A + S + |x|)/Γ(A + S)
    marginal     log H = Σ_w log Γ(a_w + s_w)/Γ(a_w) − log Γ(A + S)/Γ(A)

and ``log |x|!/Π x_w!`` for each document, which no clustering changes.  All arguments are a
constant plus a count, so log-gamma comes from two tables when a is one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, gammaln, xlogy

from dpsearch._jit import (
    BOUND,
    FEATURES,
    INIT,
    LOG_MARGINAL,
    MERGE,
    SCORE_MEMBER,
    SCORE_ROWS,
    UPDATE,
    inner,
    pointer,
)
from dpsearch._special import log_gamma_table, log_rising
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import check_counts, per_column
from dpsearch.families.base import Example, Family, Functions, without_zeros
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import CONCENTRATIONS, most_likely, sums_of
from dpsearch.families.statistics import DirichletCounts

# params: V, A, size of table 1, size of table 2, a[V], log Γ(a + j), log Γ(A + j).  Table 1 is
# empty unless a is one number.
# row: n, S, s[V]
_PARAMS = 4
_HEAD = 2
_LARGEST_TABLE = 1 << 22


@inner
def _log_rising_total(params, total, n):  # type: ignore[no-untyped-def]
    """Return log Γ(A + total + n)/Γ(A + total)."""
    size = int(params[3])
    if total + n < size:
        table = params[params.shape[0] - size :]
        return table[int(total + n)] - table[int(total)]
    return log_rising(params[1] + total, n)


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[0] += weight
    for i in range(values.shape[0]):
        row[1] += weight * values[i]
        row[_HEAD + ids[i]] += weight * values[i]


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    for i in range(row.shape[0]):
        row[i] += sign * other[i]


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_words = int(params[0])
    size = int(params[2])
    table = params[_PARAMS + n_words : _PARAMS + n_words + size]
    length = 0.0
    for i in range(values.shape[0]):
        length += values[i]
    for k in range(starts.shape[0]):
        s = starts[k]
        counts = pool[s + _HEAD : s + _HEAD + n_words]
        score = -_log_rising_total(params, pool[s + 1], length)
        for i in range(values.shape[0]):
            count = counts[ids[i]]
            if count + values[i] < size:
                score += table[int(count + values[i])] - table[int(count)]
            else:
                score += log_rising(params[_PARAMS + ids[i]] + count, values[i])
        out[k] = score


@pointer(SCORE_MEMBER)
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    n_words = int(params[0])
    size = int(params[2])
    table = params[_PARAMS + n_words : _PARAMS + n_words + size]
    length = 0.0
    score = 0.0
    for i in range(values.shape[0]):
        count = row[_HEAD + ids[i]]
        length += values[i]
        if count < size:
            score += table[int(count)] - table[int(count - values[i])]
        else:
            score += log_rising(params[_PARAMS + ids[i]] + count - values[i], values[i])
    return score - _log_rising_total(params, row[1] - length, length)


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_words = int(params[0])
    size = int(params[2])
    table = params[_PARAMS + n_words : _PARAMS + n_words + size]
    out = -_log_rising_total(params, 0.0, row[1])
    for w in range(n_words):
        count = row[_HEAD + w]
        if count < size:
            out += table[int(count)] - table[0]
        else:
            out += log_rising(params[_PARAMS + w], count)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[ids[i]] = values[i]
        out[out.shape[0] - 1] += values[i]


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """Every word of the point as frequent in the helpers, and the helpers as short, as can be."""
    length = 0.0
    out = 0.0
    for i in range(values.shape[0]):
        word = ids[i]
        length += values[i]
        out += log_rising(params[_PARAMS + word] + row[_HEAD + word] + high[word], values[i])
    shortest = low[low.shape[0] - 1]
    return min(0.0, out - log_rising(params[1] + row[1] + shortest, length))


@dataclass(frozen=True)
class Multinomial(Family):
    """Counts under a multinomial with a Dirichlet prior.

    Parameters
    ----------
    concentration
        The Dirichlet parameter: one number for all words, or one per word.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Multinomial(concentration=10.0)
    Multinomial(concentration=10.0)
    """

    concentration: Any = 1.0

    name: ClassVar[str] = "multinomial"
    kind: ClassVar[str] = "words"
    accepts_sparse: ClassVar[bool] = True
    functions: ClassVar[Functions] = Functions(
        _init,
        _update,
        _merge,
        _score_rows,
        _log_marginal,
        score_member=_score_member,
        features=_features,
        bound=_bound,
    )

    def _concentration(self, n_features: int) -> Vector:
        return per_column(self.concentration, n_features, "concentration", above_zero=True)

    def width(self, n_features: int) -> int:
        return _HEAD + n_features

    def bound_width(self, n_features: int) -> int:
        return n_features + 1  # and the length of the document

    def check(self, X: Any) -> None:
        check_counts(X, self.name)

    def parameters(self, n_features: int, X: Any) -> Vector:
        concentration = self._concentration(n_features)
        total = float(concentration.sum())
        columns = np.asarray(X.sum(axis=0)).reshape(-1)
        size = int(min(columns.max() + 2, _LARGEST_TABLE))
        total_size = int(min(columns.sum() + 2, _LARGEST_TABLE))
        even = (concentration == concentration[0]).all()
        table = log_gamma_table(concentration[0], size) if even else np.empty(0)
        head = [n_features, total, len(table), total_size]
        return np.concatenate([head, concentration, table, log_gamma_table(total, total_size)])

    def encode(self, X: Any) -> Any:
        return without_zeros(X)

    def log_base(self, X: Any) -> Vector:
        X = self.encode(X)
        per_word = sp.csr_matrix((gammaln(X.data + 1.0), X.indices, X.indptr), shape=X.shape)
        lengths = np.asarray(X.sum(axis=1)).reshape(-1)
        return np.asarray(gammaln(lengths + 1.0) - np.asarray(per_word.sum(axis=1)).reshape(-1))

    def log_ceiling(self, X: Any) -> Vector:
        X = self.encode(X)
        lengths = np.asarray(X.sum(axis=1)).reshape(-1)
        per_word = sp.csr_matrix((xlogy(X.data, X.data), X.indices, X.indptr), shape=X.shape)
        return np.asarray(np.asarray(per_word.sum(axis=1)).reshape(-1) - xlogy(lengths, lengths))

    def statistic(self, X: Any) -> DirichletCounts:
        return DirichletCounts(self.encode(X), self._concentration(X.shape[1]))

    def counts_in_row(self, n_features: int) -> slice | None:
        return slice(1, _HEAD + n_features)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        concentration = self._concentration(n_features) + row[_HEAD:]
        return {
            "probabilities": concentration / concentration.sum(),
            "concentration": concentration,
            "mean_length": row[1] / row[0] if row[0] > 0 else math.nan,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Each word against all the others.

        Those put together, the Dirichlet is a Beta(a_w, A − a_w) and counts are binomial.
        """
        before = self._concentration(n_features)
        after = before + row[_HEAD:]
        centres = self.posterior(row, n_features)["probabilities"]
        if n_features == 1:
            return Columns(np.zeros(1), centres)
        out = betaln(after, after.sum() - after) - betaln(before, before.sum() - before)
        return Columns(out, centres)

    def lengths(self, X: Any) -> Matrix:
        return np.asarray(X.sum(axis=1), dtype=np.float64).reshape(-1, 1)

    def draws(self, row: Vector, n_features: int) -> Draws:
        """Documents as long as the cluster's mean, or as given: lengths are not modelled."""
        length = round(row[1] / row[0]) if row[0] > 0 else 1
        concentration = self._concentration(n_features) + row[_HEAD:]

        def of_lengths(lengths: Matrix, rng: Rng) -> Any:
            probabilities = rng.dirichlet(concentration, size=len(lengths))
            counts = rng.multinomial(lengths[:, 0].astype(np.int64), probabilities)
            return counts.astype(np.float64)

        return Draws(lambda size, rng: of_lengths(np.full((size, 1), length), rng), of_lengths)

    def learned(self, X: Any, labels: Ints) -> Multinomial:
        sums = sums_of(X, labels).sums
        totals, width = sums.sum(axis=1), X.shape[1]

        def log_likelihood(count: float) -> float:
            """Σ log H, without the multinomial coefficients."""
            words = (gammaln(sums + count) - gammaln(count)).sum()
            return float(words - (gammaln(totals + width * count) - gammaln(width * count)).sum())

        return type(self)(most_likely(log_likelihood, CONCENTRATIONS))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        counts = rng.poisson(1.5, size=(12, 4)).astype(np.float64)
        counts[3] = 0.0
        return [
            Example(cls(0.5), counts),
            Example(cls([0.2, 1.0, 3.0, 0.7]), counts),
            Example(cls(2.0), sp.csr_matrix(counts)),
        ]
