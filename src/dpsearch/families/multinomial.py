"""Count vectors under a multinomial with a Dirichlet prior: documents, sparse or dense.

    x | θ ~ Multinomial(|x|, θ),   θ ~ Dirichlet(a)

With counts s of a cluster, S = Σ_w s_w and A = Σ_w a_w (the Dirichlet–multinomial, or Pólya,
distribution; Minka 2000, "Estimating a Dirichlet distribution"):

    predictive   log p(x | C) = Σ_w log Γ(a_w + s_w + x_w)/Γ(a_w + s_w)
                 − log Γ(A + S + |x|)/Γ(A + S)
    marginal     log H = Σ_w log Γ(a_w + s_w)/Γ(a_w) − log Γ(A + S)/Γ(A)

and ``log |x|!/Π x_w!`` for each document, which no clustering changes.  All arguments are a
constant plus a count, so log-gammas come from two tables if a is one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, gammaln, xlogy

from dpsearch import _jit
from dpsearch._special import log_gamma_table, log_rising, table_rising
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import check_counts, per_column
from dpsearch.families import layout
from dpsearch.families._totals import DirichletTotals
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, length, table, view, view_at
from dpsearch.families.learning import pseudo_count, sums_of
from dpsearch.families.linear import LinearForm
from dpsearch.families.packing import row_sums, without_zeros
from dpsearch.families.statistics import DirichletCounts
from dpsearch.families.terms import group_terms

_LARGEST_TABLE = 1 << 22


class _Params(NamedTuple):
    total: layout.Number  # A
    concentration: layout.Numbers  # a of each word
    log_gammas: layout.Numbers  # log Γ(a + j), empty unless a is one number
    total_log_gammas: layout.Numbers  # log Γ(A + j)


class _Row(NamedTuple):
    n: layout.Count
    total: layout.Count  # S
    counts: layout.Counts  # s of each word


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def _log_rising_total(params, total, n):  # type: ignore[no-untyped-def]
    """Return log Γ(A + total + n)/Γ(A + total)."""
    return table_rising(table(params, PARAMS.total_log_gammas), params[PARAMS.total], total, n)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    counts = view(row, ROW.counts, length(params, PARAMS.concentration))
    row[ROW.n] += weight
    for i in range(values.shape[0]):
        row[ROW.total] += weight * values[i]
        counts[ids[i]] += weight * values[i]


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_words = length(params, PARAMS.concentration)
    counts, more = view(row, ROW.counts, n_words), view(other, ROW.counts, n_words)
    row[ROW.n] += sign * other[ROW.n]
    total = 0.0
    for w in range(n_words):
        counts[w] += sign * more[w]
        total += counts[w]
    row[ROW.total] = total


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    concentration = table(params, PARAMS.concentration)
    log_gammas = table(params, PARAMS.log_gammas)
    n_words = 0.0
    for i in range(values.shape[0]):
        n_words += values[i]
    for k in range(starts.shape[0]):
        counts = view_at(pool, starts[k], ROW.counts, concentration.shape[0])
        score = -_log_rising_total(params, pool[starts[k] + ROW.total], n_words)
        for i in range(values.shape[0]):
            w = ids[i]
            score += table_rising(log_gammas, concentration[w], counts[w], values[i])
        out[k] = score


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    concentration = table(params, PARAMS.concentration)
    log_gammas = table(params, PARAMS.log_gammas)
    counts = view(row, ROW.counts, concentration.shape[0])
    n_words = 0.0
    score = 0.0
    for i in range(values.shape[0]):
        w = ids[i]
        n_words += values[i]
        score += table_rising(log_gammas, concentration[w], counts[w] - values[i], values[i])
    return score - _log_rising_total(params, row[ROW.total] - n_words, n_words)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    concentration = table(params, PARAMS.concentration)
    log_gammas = table(params, PARAMS.log_gammas)
    counts = view(row, ROW.counts, concentration.shape[0])
    out = -_log_rising_total(params, 0.0, row[ROW.total])
    for w in range(concentration.shape[0]):
        out += table_rising(log_gammas, concentration[w], 0.0, counts[w])
    return out


@_jit.pointer("features")
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[ids[i]] = values[i]
        out[out.shape[0] - 1] += values[i]


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """The point's words are as frequent in the helpers, and these as short, as possible."""
    counts = view(row, ROW.counts, length(params, PARAMS.concentration))
    n_words = 0.0
    out = 0.0
    for i in range(values.shape[0]):
        w = ids[i]
        n_words += values[i]
        out += log_rising(entry(params, PARAMS.concentration, w) + counts[w] + high[w], values[i])
    shortest = low[low.shape[0] - 1]
    total = params[PARAMS.total] + row[ROW.total] + shortest
    return min(0.0, out - log_rising(total, n_words))


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
        _update, _merge, _score_rows, _log_marginal, score_member=_score_member, bound=_bound,
        features=_features,
    )  # fmt: skip

    def _concentration(self, n_features: int) -> Vector:
        return per_column(self.concentration, n_features, "concentration", above_zero=True)

    def row_layout(self) -> Any:
        return ROW

    def bound_width(self, n_features: int) -> int:
        return n_features + 1  # the last is the length of the document

    def check(self, X: Any) -> None:
        check_counts(X, self.name)

    def parameters(self, n_features: int, X: Any) -> Vector:
        concentration = self._concentration(n_features)
        total = float(concentration.sum())
        columns = np.asarray(X.sum(axis=0)).reshape(-1)
        size = int(min(columns.max() + 2, _LARGEST_TABLE))
        total_size = int(min(columns.sum() + 2, _LARGEST_TABLE))
        even = (concentration == concentration[0]).all()
        return layout.make_params(
            PARAMS,
            total=total,
            concentration=concentration,
            log_gammas=log_gamma_table(concentration[0], size) if even else [],
            total_log_gammas=log_gamma_table(total, total_size),
        )

    def encode(self, X: Any) -> Any:
        return without_zeros(X)

    def log_base(self, X: Any) -> Vector:
        X = self.encode(X)
        return np.asarray(gammaln(row_sums(X) + 1.0) - row_sums(X, gammaln(X.data + 1.0)))

    def log_ceiling(self, X: Any) -> Vector:
        X = self.encode(X)
        lengths = row_sums(X)
        return np.asarray(row_sums(X, xlogy(X.data, X.data)) - xlogy(lengths, lengths))

    def statistic(self, X: Any) -> DirichletCounts:
        return DirichletCounts(self.encode(X), self._concentration(X.shape[1]))

    def linear(self, n_features: int) -> LinearForm:
        """Return the linear form, whose features are the counts themselves."""
        closed = DirichletTotals(np.array([n_features]), self._concentration(n_features))

        def rows(sizes: Vector, totals: Matrix) -> Matrix:
            return layout.make_rows(ROW, len(sizes), n_features, n=sizes, counts=totals)

        return LinearForm.of(closed, n_features, lambda X: X, rows, group_terms(closed))

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated:
        return Restated(row)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        fields = layout.read(ROW, row, n_features)
        concentration = self._concentration(n_features) + fields.counts
        return {
            "probabilities": concentration / concentration.sum(),
            "concentration": concentration,
            "mean_length": fields.total / fields.n if fields.n > 0 else math.nan,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        """Return columns with each word against all the others.

        Those put together, the Dirichlet is a Beta(a_w, A − a_w) and counts are binomial.
        """
        before = self._concentration(n_features)
        after = self.posterior(row, n_features)["concentration"]
        centres = self.posterior(row, n_features)["probabilities"]
        if n_features == 1:
            return Columns(np.zeros(1), centres)
        out = betaln(after, after.sum() - after) - betaln(before, before.sum() - before)
        return Columns(out, centres)

    def lengths(self, X: Any) -> Matrix:
        return np.asarray(X.sum(axis=1), dtype=np.float64).reshape(-1, 1)

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        """Return draws of documents of given lengths, by default the cluster's mean length."""
        posterior = self.posterior(row, n_features)
        concentration, mean = posterior["concentration"], posterior["mean_length"]
        length = 1 if math.isnan(mean) else round(mean)

        def of_lengths(lengths: Matrix, rng: Rng) -> Any:
            probabilities = rng.dirichlet(concentration, size=len(lengths))
            counts = rng.multinomial(lengths[:, 0].astype(np.int64), probabilities)
            return counts.astype(np.float64)

        return PredictiveDraws(
            lambda size, rng: of_lengths(np.full((size, 1), length), rng), of_lengths
        )

    def learned(self, X: Any, labels: Ints) -> Multinomial:
        return type(self)(pseudo_count(sums_of(X, labels).sums))

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
