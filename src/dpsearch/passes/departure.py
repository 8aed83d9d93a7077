"""Whether a batch of a stream has left what the model knows.

Rows that are kept are scored each without itself; of those of a component, or of all small
components together, one in 50 is below a *floor*.  If the rows of a batch are like them, whatever
the shares of the components, the number of n rows below the r-th lowest of m is Beta-binomial,

    P(c) = C(n, c) B(r + c, m − r + 1 + n − c)/B(r, m − r + 1),

if all of them are exchangeable, whatever their distribution.  They are so approximately: the kept
rows took part in choosing the partition and the hyperparameters, and a batch did not.  A batch has
departed if a tenth of its rows is below, and that many are too improbable for a component.  Batch t
may be called so by chance with a probability of about 0.01/t(t + 1): a stream without end, of one
in a hundred.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, gammaln

from dpsearch._numbers import brief, count
from dpsearch._types import Ints, Labels, Vector
from dpsearch.mixture import Mixture
from dpsearch.tables.checked import CheckedTable

FEWEST = 200  # kept rows, before any batch is judged
RATE = 0.01  # of streams that are called departed, though they go on as they were
_LOW = 0.02  # share of rows below the floor
_MANY = 0.1  # the least share of a batch below it that matters
_SCORED, _JUDGED = 5000, 500  # kept rows that are scored, and rows of a batch, at most
_NAMED = 3  # columns


class Expected(NamedTuple):
    """How probable rows are, by groups of components."""

    groups: Ints  # the group of each component
    floors: Vector  # of each group: the log density of …
    ranks: Ints  # … the r-th lowest …
    counts: Ints  # … of m rows

    @classmethod
    def of(cls, mixture: Mixture, kept: Any, labels: Labels) -> Expected:
        """Score rows that are in the components, each without itself."""
        some = _spread(len(labels), _SCORED)
        labels = labels[some]
        densities = mixture.memberships(CheckedTable(kept[some]), labels).log_density
        sizes = np.bincount(labels, minlength=mixture.n_components)
        large = _LOW * (sizes + 1) >= 1.0
        groups = np.where(large, np.cumsum(large), 0)
        counts = np.bincount(groups, sizes).astype(np.int64)
        ranks = np.floor(_LOW * (counts + 1)).astype(np.int64)
        floors = np.full(len(counts), -np.inf)
        for g in np.flatnonzero(ranks):
            floors[g] = np.sort(densities[groups[labels] == g])[ranks[g] - 1]
        return cls(groups, floors, ranks, counts)

    def below(self, mixture: Mixture, table: CheckedTable) -> tuple[Any, Ints]:
        """Whether each row is below the floor of its group, and the group; −1 for none."""
        found = mixture.memberships(table)
        known = np.append(self.groups, np.full(mixture.n_components - len(self.groups), -1))
        groups = known[found.components]
        groups = np.where(self.ranks[groups] > 0, groups, -1)
        return (groups >= 0) & (found.log_density < self.floors[groups]), groups

    def left_by(self, mixture: Mixture, table: CheckedTable, n_judged: int) -> bool:
        """Whether a batch has departed, after so many that were judged."""
        some = _spread(table.shape[0], _JUDGED)
        below, groups = self.below(mixture, table.rows(some))
        if below.sum() < _MANY * len(some):
            return False
        present = np.unique(groups[groups >= 0])
        least = min(
            _log_tail(int(below[groups == g].sum()), int((groups == g).sum()), r, m)
            for g, r, m in zip(present, self.ranks[present], self.counts[present], strict=True)
        )
        allowed = RATE / ((n_judged + 1.0) * (n_judged + 2.0))
        return bool(least + np.log(len(present)) <= np.log(allowed))


def _spread(n: int, most: int) -> Ints:
    """Return numbers below n, evenly spread, at most so many."""
    return np.arange(min(n, most)) * n // min(n, most)


def _log_tail(c: int, n: int, rank: int, of: int) -> float:
    """Return log P(at least c of n rows are below the rank-th lowest of others)."""
    more = np.arange(c, n + 1)
    ways = gammaln(n + 1) - gammaln(more + 1) - gammaln(n - more + 1)
    terms = ways + betaln(rank + more, of - rank + 1 + n - more) - betaln(rank, of - rank + 1)
    return float(np.logaddexp.reduce(terms))


def in_words(
    expected: Expected, mixture: Mixture, table: CheckedTable, first: int, columns: str, then: str
) -> str:
    """Return what happened and what to do about it."""
    n_rows = table.shape[0]
    below = int(expected.below(mixture, table)[0].sum())
    return (
        f"the stream has departed from what the model knows: {below:,} of {count(n_rows, 'row')},"
        f" from row {first + 1:,} of the stream on, are less probable than 98 % of the rows before;"
        f" {columns}.  {then}"
    )


def changed_columns(kept: Any, batch: Any, names: list[str], codes: set[int]) -> str:
    """Return the columns that differ most between rows, and where nine of ten values are.

    By the largest difference of distribution functions, or of shares of gaps; of sparse rows by
    that of shares of values.  `codes` are columns whose numbers mean nothing.
    """
    far = np.array(
        [_nonzero(kept) - _nonzero(batch)] if sp.issparse(batch) else _distances(kept, batch)
    )
    far = np.abs(far).max(axis=0)
    worst = [int(j) for j in np.argsort(-far, kind="stable")[:_NAMED] if far[j] > _MANY]
    if not worst:
        return "no column differs much on its own"
    plain = sp.issparse(batch)
    words = [
        names[j]
        if plain or j in codes
        else f"{names[j]} ({_range(kept, j)} before, {_range(batch, j)} now)"
        for j in worst
    ]
    return f"most changed: {', '.join(words)}"


def _nonzero(X: Any) -> Vector:
    return np.asarray((X != 0).mean(axis=0), dtype=np.float64).reshape(-1)


def _distances(kept: Any, batch: Any) -> list[Vector]:
    """The distance of Kolmogorov and Smirnov of each column, and the difference of gaps."""
    values = np.sort(np.vstack([kept, batch]), axis=0)
    out = np.empty(batch.shape[1])
    for j, column in enumerate(values.T):
        shares = [
            np.searchsorted(np.sort(X[~np.isnan(X[:, j]), j]), column[~np.isnan(column)], "right")
            / max(1, int((~np.isnan(X[:, j])).sum()))
            for X in (kept, batch)
        ]
        out[j] = np.abs(shares[0] - shares[1]).max(initial=0.0)
    return [out, np.isnan(kept).mean(axis=0) - np.isnan(batch).mean(axis=0)]


def _range(X: Any, j: int) -> str:
    values = X[~np.isnan(X[:, j]), j]
    if not len(values):
        return "no value"
    low, high = np.quantile(values, [0.05, 0.95])
    return f"{brief(low)} to {brief(high)}"
