"""The clusters of a batch search: their totals, what they are worth, and how they score rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._arrays import to_host
from dpsearch._types import Ints, Vector
from dpsearch.families.linear import LinearForm, like, namespace
from dpsearch.passes.arrays import by_parts
from dpsearch.passes.chunk import Totals
from dpsearch.passes.rows import Rows
from dpsearch.priors.base import Tables, size_steps, size_weights

BLOCK = 2048  # clusters that are compared with all others at once
_NEAR = 32  # clusters that are taken as similar to one, where there are many


class Clusters:
    """Clusters as totals, their values under a family and a prior, and their scores."""

    totals: Totals
    values: Vector

    def __init__(self, rows: Rows, form: LinearForm, tables: Tables) -> None:
        self.rows, self.form, self.tables = rows, form, tables
        self._steps: tuple[Tables, Any] | None = None

    @property
    def n_clusters(self) -> int:
        return len(self.values)

    @property
    def log_joint(self) -> float:
        """The log joint of the rows' partition, but for `log_base`."""
        return float(self.values.sum() + self.tables.log_v[self.n_clusters])

    def lifted(self, totals: Totals) -> Totals:
        """Return totals where what is computed of them is computed: where rows are, if they say."""
        lift = getattr(self.rows, "lifted", None)
        return totals if lift is None else lift(totals)

    def value_of(self, totals: Totals) -> Vector:
        """Return log W + log H of each cluster."""
        totals = self.lifted(totals)
        marginals = to_host(by_parts(self.form.log_marginals, totals, self.rows))
        sizes = to_host(totals.sizes).round().astype(np.int64)
        return np.where(sizes > 0, size_weights(self.tables, sizes) + marginals, 0.0)

    def scores(self, totals: Totals) -> tuple[Any, Any]:
        """Return the tangent plane of log W + log H at each cluster; −∞ for an empty one."""
        totals = self.lifted(totals)
        xp = namespace(totals.sums)
        weights, constants = by_parts(self.form.weights, totals, self.rows)
        empty = totals.sizes < 0.5
        constants = constants + self.mean_steps(totals.sizes)
        weights = xp.where(empty[:, None], xp.zeros_like(weights), weights)
        return weights, xp.where(empty, xp.full_like(constants, -np.inf), constants)

    def mean_steps(self, sizes: Any) -> Any:
        """Return the mean of log W(n + 1)/W(n) and log W(n)/W(n − 1), where the sizes n are."""
        xp, last = namespace(sizes), len(self.tables.log_w) - 2
        n = xp.clip(xp.round(sizes), 1.0, None)
        within = xp.astype(xp.clip(n, None, float(last)), xp.int64)
        if isinstance(sizes, np.ndarray):
            known = self._mean_steps(within)
        else:
            if self._steps is None or self._steps[0] is not self.tables:
                self._steps = self.tables, like(sizes, self._mean_steps(np.arange(1, last + 1)))
            known = xp.take(self._steps[1], within - 1, axis=0)
        least = xp.clip(n, float(last), None) - self.tables.discount
        return xp.where(n > last, 0.5 * xp.log(least * (least - 1.0)), known)

    def _mean_steps(self, n: Ints) -> Vector:
        """Return the same for sizes of which log W is in a table."""
        return np.asarray(0.5 * np.add(*(size_steps(self.tables, n - i) for i in (0, 1))))

    def pairs(self) -> tuple[Ints, Ints]:
        """Return all pairs of clusters, or each with those that describe its rows best."""
        n = self.n_clusters
        if n <= 2 * _NEAR:
            first, second = np.triu_indices(n, 1)
            return first.astype(np.int64), second.astype(np.int64)
        weights, constants = map(to_host, self.scores(self.totals))
        means = self.totals.sums / self.totals.sizes[:, None]
        near = np.empty((n, _NEAR), np.int64)
        for at in range(0, n, BLOCK):
            loss = -(means[at : at + BLOCK] @ weights.T + constants)  # [of, under cluster]
            own = np.arange(len(loss))
            loss[own, at + own] = np.inf
            near[at : at + BLOCK] = np.argpartition(loss, _NEAR, axis=1)[:, :_NEAR]
        first, second = np.repeat(np.arange(n), _NEAR), near.reshape(-1)
        both = np.unique(np.minimum(first, second) * n + np.maximum(first, second))
        return both // n, both % n
