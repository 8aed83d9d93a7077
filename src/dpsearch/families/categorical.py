"""Categories in every column, coded 0, 1, 2 …, each column with a symmetric Dirichlet prior.

    x | θ ~ Categorical(θ),   θ ~ Dirichlet(a, …, a) over L levels      column by column

With n points of a cluster, c_l of them at level l, and A = aL (Gelman et al. 2013, "Bayesian Data
Analysis", 3.4):

    posterior    θ | C ~ Dirichlet(a + c_0, …, a + c_{L−1})
    predictive   log p(x | C) = Σ_d log(a + c_x) − log(A + n)
    marginal     log H = Σ_d [ Σ_l log Γ(a + c_l)/Γ(a) − log Γ(A + n)/Γ(A) ]

Data are encoded as sparse indicators: the levels of all columns side by side, a one at each of
the point's own.  The row keeps log(a + c_l), so that a point costs one sum over its columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

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
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import DataError, ParameterError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.capabilities import Columns, Draws
from dpsearch.families.learning import CONCENTRATIONS, most_likely, sums_of

if TYPE_CHECKING:
    from dpsearch.families._level_gaps import LevelsWithGaps

# With V = ΣL levels in all:
# params: D, V, size of tables 1 and 2, size of tables 3 and 4, A[D], a[V], log(a + j),
# log Γ(a + j), Σ_d log(A + j), Σ_d log Γ(A + j).  Tables 1 and 2 are empty unless a is one number.
# row: n, the predictive's constant, c[V], log(a + c)[V]
_PARAMS = 4
_HEAD = 2
_LARGEST_TABLE = 1 << 22
_MOST_LEVELS = 1 << 24


@inner
def _log_count(params, level, count):  # type: ignore[no-untyped-def]
    """Return log(a + count)."""
    n_levels = int(params[1])
    begin = _PARAMS + int(params[0])
    if count < params[2]:
        return params[begin + n_levels + int(count)]
    return math.log(params[begin + level] + count)


@inner
def _constant(params, n):  # type: ignore[no-untyped-def]
    """Return −Σ_d log(A + n)."""
    n_features, size = int(params[0]), int(params[3])
    if n < size:
        return -params[params.shape[0] - 2 * size + int(n)]
    out = 0.0
    for d in range(n_features):
        out -= math.log(params[_PARAMS + d] + n)
    return out


@inner
def _all_constants(params, row):  # type: ignore[no-untyped-def]
    n_levels = int(params[1])
    row[1] = _constant(params, row[0])
    for level in range(n_levels):
        row[_HEAD + n_levels + level] = _log_count(params, level, row[_HEAD + level])


@pointer(INIT)
def _init(params, row):  # type: ignore[no-untyped-def]
    row[:] = 0.0
    _all_constants(params, row)


@pointer(UPDATE)
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    n_levels = int(params[1])
    row[0] += weight
    row[1] = _constant(params, row[0])
    for i in range(ids.shape[0]):
        level = ids[i]
        row[_HEAD + level] += weight
        row[_HEAD + n_levels + level] = _log_count(params, level, row[_HEAD + level])


@pointer(MERGE)
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for level in range(_HEAD, _HEAD + int(params[1])):
        row[level] += sign * other[level]
    _all_constants(params, row)


@pointer(SCORE_ROWS)
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_levels = int(params[1])
    for k in range(starts.shape[0]):
        s = starts[k]
        logs = pool[s + _HEAD + n_levels : s + _HEAD + 2 * n_levels]
        score = pool[s + 1]
        for i in range(ids.shape[0]):
            score += logs[ids[i]]
        out[k] = score


@pointer(LOG_MARGINAL)
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features, n_levels = int(params[0]), int(params[1])
    size, n_size = int(params[2]), int(params[3])
    begin = _PARAMS + n_features
    table = params[begin + n_levels + size : begin + n_levels + 2 * size]
    n = row[0]
    out = 0.0
    if n < n_size:
        totals = params[params.shape[0] - n_size :]
        out -= totals[int(n)] - totals[0]
    else:
        for d in range(n_features):
            out -= log_rising(params[_PARAMS + d], n)
    for level in range(n_levels):
        count = row[_HEAD + level]
        if count < size:
            out += table[int(count)] - table[0]
        else:
            out += log_rising(params[begin + level], count)
    return out


@pointer(FEATURES)
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for i in range(ids.shape[0]):
        out[ids[i]] = 1.0


@pointer(BOUND)
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """In every column as many helpers at the point's level as there can be."""
    out = _constant(params, row[0] + helpers)
    for i in range(ids.shape[0]):
        level = ids[i]
        count = row[_HEAD + level] + min(high[level], float(helpers))
        out += math.log(params[_PARAMS + int(params[0]) + level] + count)
    return out


@dataclass(frozen=True)
class Categorical(Family):
    """Categories coded 0, 1, 2 … in every column, with a Dirichlet prior on their probabilities.

    Parameters
    ----------
    concentration
        The Dirichlet parameter of each level: one number for all columns, or one per column.
    n_levels
        How many levels columns have: one number for all, one per column, or None for the largest
        code of each column in the data, plus one.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Categorical(concentration=0.5, n_levels=3)
    Categorical(concentration=0.5, n_levels=3)
    """

    concentration: Any = 1.0
    n_levels: Any = None

    name: ClassVar[str] = "categorical"
    kind: ClassVar[str] = "category"
    independent_columns: ClassVar[bool] = True
    functions: ClassVar[Functions] = Functions(
        _init, _update, _merge, _score_rows, _log_marginal, features=_features, bound=_bound
    )

    def _concentration(self, n_features: int) -> Vector:
        return per_column(self.concentration, n_features, "concentration", above_zero=True)

    def _levels(self, n_features: int) -> Ints:
        if self.n_levels is None:
            raise ParameterError("n_levels is None: give it, or take it from data by resolve(X)")
        levels = per_column(self.n_levels, n_features, "n_levels", above_zero=True)
        if (levels != np.floor(levels)).any():
            raise ParameterError(f"n_levels must be whole numbers, got {self.n_levels!r}")
        if levels.sum() > _MOST_LEVELS:
            raise ParameterError(f"n_levels adds up to {levels.sum():g}, above {_MOST_LEVELS}")
        return levels.astype(np.int64)

    def resolve(self, X: Any) -> Categorical:
        if self.n_levels is not None:
            return self
        self.check(X)
        return self.with_parameters(n_levels=tuple(int(code) + 1 for code in X.max(axis=0)))

    def width(self, n_features: int) -> int:
        return _HEAD + 2 * self.bound_width(n_features)

    def bound_width(self, n_features: int) -> int:
        return int(np.sum(self._levels(n_features)))

    def check(self, X: Any) -> None:
        most = _MOST_LEVELS if self.n_levels is None else self._levels(X.shape[1])
        bad = (X < 0.0) | (np.floor(X) != X) | (most <= X)
        if not bad.any():
            return
        row, column = (int(at) for at in np.argwhere(bad)[0])
        value = X[row, column]
        if value < 0.0 or value != math.floor(value):
            wanted = "codes 0, 1, 2 …"
        else:
            wanted = f"codes below {np.broadcast_to(most, X.shape[1])[column]}, its n_levels,"
        raise DataError(
            f"the {self.name} family takes {wanted} but X at {{place}} is {value:g}",
            row=row,
            column=column,
        )

    def parameters(self, n_features: int, X: Any) -> Vector:
        concentration, levels = self._concentration(n_features), self._levels(n_features)
        sums = concentration * levels
        even = (concentration == concentration[0]).all()
        kinds, columns = np.unique(sums, return_counts=True)
        n_size = min(X.shape[0] + 2, _LARGEST_TABLE // len(kinds))
        size = min(X.shape[0] + 2, _LARGEST_TABLE) if even else 0
        logs, log_gammas = np.zeros(n_size), np.zeros(n_size)
        for kind, times in zip(kinds, columns, strict=True):
            logs += times * np.log(kind + np.arange(n_size))
            log_gammas += times * gammaln(kind + np.arange(n_size))
        return np.concatenate(
            [
                [n_features, levels.sum(), size, n_size],
                sums,
                np.repeat(concentration, levels),
                np.log(concentration[0] + np.arange(size)),
                log_gamma_table(concentration[0], size),
                logs,
                log_gammas,
            ]
        )

    def encode(self, X: Any) -> Any:
        levels = self._levels(X.shape[1])
        ids = X.astype(np.int64) + (np.cumsum(levels) - levels)
        indptr = np.arange(X.shape[0] + 1) * X.shape[1]
        shape = (X.shape[0], int(levels.sum()))
        return sp.csr_matrix((np.ones(X.size), ids.reshape(-1), indptr), shape=shape)

    def log_ceiling(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])

    def counts_in_row(self, n_features: int) -> slice:
        return slice(_HEAD, _HEAD + int(np.sum(self._levels(n_features))))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        levels = self._levels(n_features)
        prior = np.repeat(self._concentration(n_features), levels)
        counts = row[_HEAD : _HEAD + len(prior)]
        concentration = np.split(prior + counts, np.cumsum(levels)[:-1])
        return {
            "probabilities": [column / column.sum() for column in concentration],
            "concentration": concentration,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        posterior = self.posterior(row, n_features)
        pairs = zip(self._concentration(n_features), posterior["concentration"], strict=True)
        log_marginals = [
            gammaln(after).sum() - gammaln(after.sum())
            - len(after) * gammaln(prior) + gammaln(len(after) * prior)
            for prior, after in pairs
        ]  # fmt: skip
        codes = posterior["probabilities"]
        centres = np.array([float(column.argmax()) for column in codes])
        return Columns(np.array(log_marginals), centres, codes)

    def with_gaps(self) -> LevelsWithGaps:
        from dpsearch.families._level_gaps import LevelsWithGaps

        return LevelsWithGaps(self)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        counts = row[self.counts_in_row(n_features)]
        return self.with_gaps().row_of_complete(row[0], counts, n_features)

    def level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        """How many levels each column has, and what the prior counts for at each."""
        levels = self._levels(n_features)
        return levels, np.repeat(self._concentration(n_features), levels)

    def row_of_levels(self, counts: Vector) -> Vector:
        """The row of a single column with so many points at each level, without logarithms."""
        return np.concatenate([[counts.sum(), 0.0], counts, np.zeros(len(counts))])

    def draws(self, row: Vector, n_features: int) -> Draws:
        probabilities = self.posterior(row, n_features)["probabilities"]

        def sample(size: int, rng: Rng) -> Any:
            codes = [rng.choice(len(column), size=size, p=column) for column in probabilities]
            return np.stack(codes, axis=1).astype(np.float64)

        return Draws(sample)

    def learned(self, X: Any, labels: Ints) -> Categorical:
        # Each column its own: one that tells clusters apart says nothing about one of noise.
        learned = []
        for d, size in enumerate(self._levels(X.shape[1])):
            own = sums_of((X[:, [d]] == np.arange(size)).astype(np.float64), labels).sums
            totals = own.sum(axis=1)

            def log_likelihood(
                count: float, own: Matrix = own, totals: Vector = totals, size: int = size
            ) -> float:
                out = float((gammaln(own + count) - gammaln(count)).sum())
                return out - float((gammaln(totals + size * count) - gammaln(size * count)).sum())

            learned.append(most_likely(log_likelihood, CONCENTRATIONS))
        return type(self)(tuple(learned), self.n_levels)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.floor(rng.random((12, 3)) ** 2 * [2, 3, 5])
        return [
            Example(cls(0.5), X),
            Example(cls([0.2, 1.0, 3.0], [4, 3, 6]), X),
            Example(cls(2.0, 5), X),
            Example(cls([0.2, 1.0, 3.0]), with_holes(X)),
        ]
