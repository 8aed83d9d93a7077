"""The fitted mixture: clusters as rows of statistics, and their predictions for new data.

Given a partition of N points into K clusters, a new point belongs to cluster k with probability
proportional to W(n_k + 1)/W(n_k) · H(x | cluster k), and to none of them in proportion to
V(K + 1, N + 1)/V(K, N + 1) · W(1) · H(x).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from dpsearch._jit import inner, kernel
from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Rng, Vector
from dpsearch.families.base import Model, gapped
from dpsearch.families.capabilities import Gaps, PredictiveDraws, require
from dpsearch.families.packing import unlocked
from dpsearch.items import (
    Core,
    Items,
    add_item,
    log_alone,
    log_predictive,
    score_item,
    score_member,
)
from dpsearch.priors.base import Prior
from dpsearch.tables.checked import CheckedTable


class Memberships(NamedTuple):
    """Where rows belong, given all others."""

    labels: Labels
    certainty: Vector  # probability of that cluster
    second: Labels  # the next most probable cluster; K stands for a new one
    log_density: Vector
    log_inside: Vector  # the same if there are no new clusters; −∞ if there are no others


class _Places(NamedTuple):
    """Log weights of the places where a point may go, given the others.

    [K] for clusters, [K + 1] by the cluster that the point was taken from, the last one for none.
    """

    steps: Vector  # [K]: of a cluster that the point was not in
    own: Vector  # [K]: of the one that it was in, with others
    fresh: Vector  # [K + 1]: of a new cluster
    inside: Vector  # [K + 1]: of all clusters of the others
    total: Vector  # [K + 1]: of all places


class Mixture:
    """Clusters of a fitted partition, ready for prediction."""

    def __init__(self, model: Model, pool: Vector, sizes: Ints, prior: Prior) -> None:
        self.model = model
        self.pool = pool
        self.sizes = sizes
        self.prior = prior
        n_points, n_clusters = int(sizes.sum()), len(sizes)
        prior = prior.for_prediction()
        log_v = prior.log_v(n_points + 1, n_clusters + 1)
        weights = prior.log_w(sizes + 1) - prior.log_w(sizes)
        fresh = log_v[n_clusters + 1] - log_v[n_clusters] + prior.log_w(np.ones(1, np.int64))[0]
        total = logsumexp(np.append(weights, fresh))
        self.log_weights: Vector = weights - total
        self.log_fresh_weight = float(fresh - total)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(unlocked(state))

    @classmethod
    def of(cls, model: Model, items: Items, labels: Labels, prior: Prior) -> Mixture:
        pool, sizes = model.rows(items, labels, int(labels.max()) + 1)
        return cls(model.without_data(), pool, sizes, prior)

    @property
    def n_clusters(self) -> int:
        return len(self.sizes)

    def row(self, k: int) -> Vector:
        """Return the statistics of cluster k."""
        width = self.model.core.width
        return self.pool[k * width : (k + 1) * width]

    def log_joint_probabilities(self, X: ArrayLike | CheckedTable) -> tuple[Matrix, Vector]:
        """Return log p(cluster k, x) [N, K] and log p(new cluster, x) [N]."""
        table = self._table(X)
        if table.gaps and not self.model.family.skips(table):
            scores = self._gaps(self._rows_and_new()).log_densities(table.matrix)
            return scores[:, :-1] + self.log_weights, scores[:, -1] + self.log_fresh_weight
        if table.gaps and self.gapped is not self:
            return self.gapped.log_joint_probabilities(table)
        items, base = self.model.items(table)
        inside = log_predictive(self.model.core, items, self.pool)
        inside += self.log_weights + base[:, None]
        outside = log_alone(self.model.core, items) + self.log_fresh_weight + base
        return inside, outside

    def memberships(
        self, X: ArrayLike | CheckedTable, labels: Labels | None = None, fitted: Any = None
    ) -> Memberships:
        """Return where rows belong, given all others.

        `labels` name the cluster that contains each row, from which it is first taken out; −1 for
        none, and None if no row is in any.  What is in none belongs to the most probable.  Rows
        that are in clusters with their gaps filled come as such too, as `fitted`: the filled ones
        are taken out, and what was observed is placed.
        """
        table = self._table(X)
        if labels is None:
            labels = np.full(table.shape[0], -1)
        if table.gaps and not self.model.family.skips(table):
            return self._memberships_by_observed(table.matrix, labels, fitted)
        if table.gaps and self.gapped is not self:
            return self.gapped.memberships(table, labels)
        items, base = self.model.items(table)
        own, certainty, second, log_density, log_inside = _memberships(
            self.model.core, items, self.pool, self.sizes, labels,
            log_alone(self.model.core, items), self._places(),
        )  # fmt: skip
        return Memberships(own, certainty, second, log_density + base, log_inside + base)

    def _table(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        family = self.model.family
        return CheckedTable.of(X, accept_sparse=family.accepts_sparse, gaps=family.predicts_gaps)

    def _memberships_by_observed(self, matrix: Matrix, labels: Labels, fitted: Any) -> Memberships:
        """Return memberships for a family that cannot skip gaps, by the densities it gives."""
        gappy = np.isnan(matrix).any(axis=1)
        X, own = matrix[gappy], labels[gappy]
        scores = self._gaps(self._rows_and_new()).log_densities(X)
        shared = np.flatnonzero((own >= 0) & (self.sizes[own] > 1))
        if len(shared):
            items, _ = self.model.items(fitted[gappy][shared])
            for at, i in enumerate(shared):
                rest = self.row(own[i]).copy()
                add_item(self.model.core, items, at, rest, -1.0)
                scores[i, own[i]] = self._gaps([rest]).log_densities(X[i : i + 1])[0, 0]
        found = _memberships_by_scores(scores, self.sizes, own, self._places())
        if gappy.all():
            return Memberships(*found)
        whole = self.memberships(matrix[~gappy], labels[~gappy])
        return Memberships(*(_interleaved(gappy, *both) for both in zip(found, whole, strict=True)))

    def _places(self) -> _Places:
        n_points, n_clusters = int(self.sizes.sum()), self.n_clusters
        prior = self.prior.for_prediction()
        with_new = prior.log_v(n_points + 1, n_clusters + 1)
        without = prior.log_v(n_points, n_clusters + 1)
        now = prior.log_w(self.sizes)
        steps, own = prior.log_w(self.sizes + 1) - now, now - prior.log_w(self.sizes - 1)
        alone = self.sizes == 1
        # A point that was alone leaves one cluster fewer behind, and its place is a new one.
        others = np.where(alone, n_clusters - 1, n_clusters)
        fresh = np.append(
            without[others + 1] - without[others], with_new[n_clusters + 1] - with_new[n_clusters]
        )
        fresh += prior.log_w(np.ones(1, np.int64))[0]
        top = max(steps.max(), own.max(), fresh.max())
        weights = np.exp(steps - top)
        rest = weights.sum() - np.append(weights, 0.0)
        rest += np.append(np.where(alone, 0.0, np.exp(own - top)), 0.0)
        total = rest + np.exp(fresh - top)
        inside = np.log(np.maximum(rest, np.finfo(float).tiny))  # of a point that was all there is
        return _Places(steps, own, fresh, top + inside, top + np.log(total))

    @cached_property
    def gapped(self) -> Mixture:
        """The same clusters in the form that takes data with missing values."""
        family = self.model.family
        if family.with_gaps() is family:
            return self
        rows = [self.row(k) for k in range(self.n_clusters)]
        model, pool = gapped(family, rows, self.model.n_features)
        return Mixture(model, pool, self.sizes, self.prior)

    @property
    def has_gaps(self) -> bool:
        """Whether the clusters are in that form already."""
        return self.gapped is self

    def impute(self, matrix: Matrix) -> Matrix:
        """Fill gaps with what the posterior predictive given the rest of the row expects.

        That is the mean over clusters, new ones included, each weighted by its probability given
        the observed entries; for columns of codes the most probable code.
        """
        weights = softmax(np.column_stack(self.log_joint_probabilities(matrix)), axis=1)
        return self._gaps(self._rows_and_new()).fill(matrix, weights)

    def impute_from_one(self, matrix: Matrix) -> Matrix:
        """Fill gaps with what a row's most probable cluster, or a new one, expects there.

        The mean over clusters may lie where there is none.
        """
        scores = np.column_stack(self.log_joint_probabilities(matrix))
        weights = np.eye(scores.shape[1])[scores.argmax(axis=1)]
        return self._gaps(self._rows_and_new()).fill(matrix, weights)

    def _gaps(self, rows: list[Vector]) -> Gaps:
        """Return the predictions of clusters, as rows of statistics, for rows with gaps."""
        gaps: Gaps = require(
            self.model.family, "gaps", rows, self.model.n_features, needed_by="a row with gaps"
        )
        return gaps

    def draws(self, k: int, needed_by: str = "sample") -> PredictiveDraws:
        """Return draws from the predictive of cluster k; K stands for a new one."""
        row = self.row(k) if k < self.n_clusters else self.model.empty_row()
        draws: PredictiveDraws = require(
            self.model.family, "draws", row, self.model.n_features, needed_by=needed_by
        )
        return draws

    def _rows_and_new(self) -> list[Vector]:
        """Return the clusters' statistics, and those of a new cluster."""
        return [*(self.row(k) for k in range(self.n_clusters)), self.model.empty_row()]

    def posterior(self, k: int) -> dict[str, Any]:
        """Posterior parameters of cluster k, for people to read."""
        return self.model.family.posterior(self.row(k), self.model.n_features)

    def sample(self, n_samples: int, rng: Rng) -> tuple[Matrix, Labels]:
        """Draw from the posterior predictive; label K stands for a new cluster."""
        weights = np.exp(np.append(self.log_weights, self.log_fresh_weight))
        labels = np.sort(rng.choice(len(weights), size=n_samples, p=weights / weights.sum()))
        pairs = zip(*np.unique(labels, return_counts=True), strict=True)
        return np.vstack([self.draws(k).sample(int(count), rng) for k, count in pairs]), labels


@inner
def _log_sum_exp(values):  # type: ignore[no-untyped-def]
    top = -np.inf
    for k in range(values.shape[0]):
        top = max(top, values[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(values.shape[0]):
        total += math.exp(values[k] - top)
    return top + math.log(total)


@inner
def _placed(out, k, size, places):  # type: ignore[no-untyped-def]
    """Return the fields of `Memberships` for one row; `out`, its log H in every place, is changed.

    k is the cluster that it was in, of that size, or −1; the last place is a new cluster.
    """
    n_clusters = out.shape[0] - 1
    origin = k if k >= 0 else n_clusters
    for j in range(n_clusters):
        out[j] += places.own[j] if j == k else places.steps[j]
    out[n_clusters] += places.fresh[origin]
    if k < 0:
        own = out[:n_clusters].argmax()
    else:
        own = k
        if size == 1:
            out[k] = -np.inf
    log_inside = _log_sum_exp(out[:n_clusters]) - places.inside[origin]
    if k >= 0 and size == 1:  # staying alone is the new cluster
        out[k] = out[n_clusters]
        out[n_clusters] = -np.inf
    total = _log_sum_exp(out)
    log_density = total - places.total[origin]
    certainty = math.exp(out[own] - total)
    out[own] = -np.inf
    return own, certainty, out.argmax(), log_density, log_inside


@kernel
def _memberships(
    core: Core,
    items: Items,
    pool: Vector,
    sizes: Ints,
    labels: Labels,
    alone: Vector,
    places: _Places,
) -> Any:
    """Return `Memberships` of every item, taken out of its cluster."""
    n, n_clusters = items.indptr.shape[0] - 1, sizes.shape[0]
    own, second = labels.copy(), np.empty(n, np.int64)
    certainty, log_density, log_inside = np.empty(n), np.empty(n), np.empty(n)
    starts = np.arange(n_clusters) * core.width
    scratch = np.empty(core.width)
    out = np.empty(n_clusters + 1)
    for i in range(n):
        k = labels[i]
        score_item(core, items, i, pool, starts, out[:n_clusters], scratch)
        out[n_clusters] = alone[i]
        if k >= 0 and sizes[k] > 1:
            row = pool[k * core.width : (k + 1) * core.width]
            out[k] = score_member(core, items, i, row, scratch)
        own[i], certainty[i], second[i], log_density[i], log_inside[i] = _placed(
            out, k, sizes[k], places
        )
    return own, certainty, second, log_density, log_inside


@kernel
def _memberships_by_scores(scores: Matrix, sizes: Ints, labels: Labels, places: _Places) -> Any:
    """Return the same from log H of every row in every place, which are changed."""
    n = labels.shape[0]
    own, second = labels.copy(), np.empty(n, np.int64)
    certainty, log_density, log_inside = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        own[i], certainty[i], second[i], log_density[i], log_inside[i] = _placed(
            scores[i], labels[i], sizes[labels[i]], places
        )
    return own, certainty, second, log_density, log_inside


def _interleaved(chosen: Any, first: Any, second: Any) -> Any:
    """Return one array of two: the first where chosen, the second elsewhere."""
    out = np.empty(len(chosen), first.dtype)
    out[chosen], out[~chosen] = first, second
    return out
