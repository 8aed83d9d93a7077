"""The fitted mixture: the statistics of its components, and their predictions for new data.

Given a partition of N points into K components, a new point belongs to component k with
probability proportional to W(n_k + 1)/W(n_k) · H(x | component k), and to a new component with
probability proportional to V(K + 1, N + 1)/V(K, N + 1) · W(1) · H(x).  A cluster is a set of
components; its probability is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from dpsearch._threads import shared
from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Rng, Vector
from dpsearch.errors import located
from dpsearch.families.base import Model
from dpsearch.families.capabilities import Gaps, PredictiveDraws, require
from dpsearch.families.packing import unlocked
from dpsearch.families.restored import gapped
from dpsearch.items import Items, add_item, log_predictive, merge_rows
from dpsearch.priors.base import Prior
from dpsearch.tables.checked import CheckedTable

_BLOCK = 1 << 18  # cells of tables that are made and thrown away


class Memberships(NamedTuple):
    """The clusters of rows, given all other rows."""

    labels: Labels
    certainty: Vector  # probability of that cluster
    second: Labels  # the next most probable cluster; K stands for a new one
    log_density: Vector
    log_inside: Vector  # the same if there are no new clusters; −∞ if there are no others
    components: Labels  # of the fit, or for new rows the most probable in their cluster


class _Places(NamedTuple):
    """Log weights of the components that a point may join, given all other points.

    [K] for the components, [K + 1] by the component that the point was taken from, last for none.
    """

    steps: Vector  # [K]: of a component that the point was not in
    own: Vector  # [K]: of the one that it was in, with others
    fresh: Vector  # [K + 1]: of a new component
    inside: Vector  # [K + 1]: of all components of the others
    total: Vector  # [K + 1]: of all places


class Mixture:
    """The components of a fitted partition and the clusters that they form, for predictions.

    `groups` gives the cluster of each component; by default each component is a cluster.
    """

    def __init__(
        self, model: Model, pool: Vector, sizes: Ints, prior: Prior, groups: Ints | None = None
    ) -> None:
        self.model = model
        self.pool = pool
        self.sizes = sizes
        self.prior = prior
        self.groups: Ints = np.arange(len(sizes)) if groups is None else groups
        n_points, n_components = int(sizes.sum()), len(sizes)
        prior = prior.for_prediction()
        log_v = prior.log_v(n_points + 1, n_components + 1)
        weights = prior.log_w(sizes + 1) - prior.log_w(sizes)
        fresh = log_v[n_components + 1] - log_v[n_components]
        fresh += prior.log_w(np.ones(1, np.int64))[0]
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
    def n_components(self) -> int:
        return len(self.sizes)

    @property
    def n_clusters(self) -> int:
        return int(self.groups.max()) + 1

    @property
    def cluster_sizes(self) -> Ints:
        """The number of points in each cluster."""
        return np.asarray(np.bincount(self.groups, self.sizes), dtype=np.int64)

    def grouped(self, groups: Ints | None = None) -> Mixture:
        """Return the same components in other clusters; by default each is a cluster."""
        return Mixture(self.model, self.pool, self.sizes, self.prior, groups)

    @cached_property
    def merged(self) -> Mixture:
        """The mixture whose components are the clusters, with the statistics of their points."""
        if self.n_clusters == self.n_components:
            return self
        blocks = self.model.blocks(self.pool, self.sizes)
        pool, sizes = self.model.rows(blocks, self.groups, self.n_clusters)
        return Mixture(self.model, pool, sizes, self.prior)

    def row(self, k: int) -> Vector:
        """Return the statistics of component k."""
        width = self.model.core.width
        return self.pool[k * width : (k + 1) * width]

    def settled(self, pool: Vector) -> Matrix:
        """Return rows [K, width] after a merge with an empty row: it derives what a row defers.

        What rows defer depends on the order of changes, their statistics do not.
        """
        rows = pool.reshape(-1, self.model.core.width).copy()
        for row in rows:
            merge_rows(self.model.core, row, self.model.empty_row(), 1.0)
        return rows

    def log_joint_probabilities(self, X: ArrayLike | CheckedTable) -> tuple[Matrix, Vector]:
        """Return log p(component k, x) [N, K] and log p(new component, x) [N]."""
        table = self._table(X)
        scores = self._scores(table, np.full(table.shape[0], -1))
        scores += np.append(self.log_weights, self.log_fresh_weight)
        return scores[:, :-1], scores[:, -1]

    def summed(self, inside: Matrix) -> Matrix:
        """Return log probabilities of clusters [N, C] from those of components [N, K]."""
        if self.n_clusters == self.n_components:
            return inside
        top, weights = _scaled(inside)
        out = np.zeros((len(inside), self.n_clusters))
        for k, cluster in enumerate(self.groups):
            out[:, cluster] += weights[:, k]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(out) + top[:, None])

    def log_memberships(self, items: Items, labels: Labels) -> Matrix:
        """Return log p(component k | row i, all other rows) [N, K], over the components there are.

        Each row is first taken out of its component, as in a Gibbs sampler.  A row that is alone in
        its component stays there with the probability of a new component.
        """
        scores = self._scores_of_items(items, labels)
        self._weigh(scores, labels, self._places())
        alone = np.flatnonzero(self.sizes[labels] == 1)
        scores[alone, labels[alone]] = scores[alone, -1]
        out = scores[:, :-1]
        return np.asarray(out - logsumexp(out, axis=1, keepdims=True))

    def memberships(
        self,
        X: ArrayLike | CheckedTable,
        labels: Labels | None = None,
        fitted: Any = None,
        *,
        check: Callable[[], None] = lambda: None,
        places: Matrix | None = None,
    ) -> Memberships:
        """Return the clusters of rows, given all other rows.

        `labels` are the components that contain the rows, from which they are first taken out; −1
        for a row in no component, and None if no row is in any.  A row in no component belongs to
        the most probable cluster.  If the fit filled gaps, `fitted` are the rows with these
        fillings: they are taken out, and the rows with their observed values are placed.  `check`
        is called from time to time and may raise.  `places` [N, K + 1] receives the log
        probabilities, up to a constant, of each component and of a new one for each row.
        """
        table, prior = self._table(X), self._places()
        labels = np.full(table.shape[0], -1) if labels is None else labels
        step = max(1, _BLOCK // (self.n_components + 1))

        def of_rows(begin: int) -> Memberships:
            rows = slice(begin, begin + step)
            filled = None if fitted is None else fitted[rows]
            with located(rows=begin):
                scores = self._scores(table.rows(rows), labels[rows], filled, check)
            found = self._placed(scores, labels[rows], prior)
            if places is not None:
                places[rows] = scores
            return found

        parts = []
        check()
        with closing(shared(of_rows, range(0, max(1, len(labels)), step))) as found:
            for part in found:
                parts.append(part)
                check()
        return Memberships(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def log_inside(self, X: Any, members: Labels, columns: Any) -> Vector:
        """Return the log densities of new rows, given that they belong to no new cluster.

        In some `columns`, each row is taken out of the component in `members` (−1 for none), as if
        it were a row of the fit with these values.
        """
        own = np.flatnonzero(members >= 0)
        rest = np.where(columns, X[own], np.nan) if len(own) else X[own]
        if not len(own) or not self._skips(X, rest):
            return self.memberships(X).log_inside
        nowhere = np.full(len(X), -1)
        scores = self._scores(self._table(X), nowhere)
        within = self._scores(self._table(rest), members[own])
        without = self._scores(self._table(rest), nowhere[own])
        at = np.arange(len(own)), members[own]
        scores[own, members[own]] += within[at] - without[at]
        return self._placed(scores, nowhere, self._places()).log_inside

    def _skips(self, *tables: Any) -> bool:
        """Whether the gaps of these rows, if any, can be skipped."""
        checked = [self._table(rows) for rows in tables]
        return all(not table.gaps or self.model.family.skips(table) for table in checked)

    def _scores(
        self,
        table: CheckedTable,
        labels: Labels,
        fitted: Any = None,
        check: Callable[[], None] = lambda: None,
    ) -> Matrix:
        """Return log H of rows in every component [N, K + 1], taken out of their own first."""
        if table.gaps and not self.model.family.skips(table):
            return self._scores_of_observed(table.matrix, labels, fitted, check)
        mixture = self.gapped if table.gaps else self
        items, base = mixture.model.items(table)
        scores = mixture._scores_of_items(items, labels)
        scores += base[:, None]
        return scores

    def _scores_of_items(self, items: Items, labels: Labels) -> Matrix:
        """Return the same for items, up to a constant of each item."""
        members = np.where((labels >= 0) & (self.sizes[labels] > 1), labels, -1)
        pool = np.append(self.pool, self.model.empty_row())
        return log_predictive(self.model.core, items, pool, members)

    def _scores_of_observed(
        self, matrix: Matrix, labels: Labels, fitted: Any, check: Callable[[], None]
    ) -> Matrix:
        """Return the same for a family that cannot skip gaps, from its predictive densities."""
        gappy = np.isnan(matrix).any(axis=1)
        scores = np.empty((len(matrix), self.n_components + 1))
        if not gappy.all():
            scores[~gappy] = self._scores(CheckedTable(matrix[~gappy]), labels[~gappy])
        scores[gappy] = self._gaps(self._rows_and_new()).log_densities(matrix[gappy])
        for i in np.flatnonzero(gappy & (labels >= 0) & (self.sizes[labels] > 1)):
            check()
            items, _ = self.model.items(fitted[i : i + 1])
            rest = self.row(labels[i]).copy()
            add_item(self.model.core, items, 0, rest, -1.0)
            scores[i, labels[i]] = self._gaps([rest]).log_densities(matrix[i : i + 1])[0, 0]
        return scores

    def _weigh(self, scores: Matrix, labels: Labels, places: _Places) -> None:
        """Add the log weights to log H of rows that were in these components, −1 for none."""
        own = np.flatnonzero(labels >= 0)
        members = scores[own, labels[own]] + places.own[labels[own]]
        scores[:, :-1] += places.steps
        scores[own, labels[own]] = members
        scores[:, -1] += places.fresh[labels]

    def _placed(self, scores: Matrix, labels: Labels, places: _Places) -> Memberships:
        """Return memberships from log H of every row in every component; the array is changed."""
        self._weigh(scores, labels, places)
        inside, rows = scores[:, :-1], np.arange(len(labels))
        alone = np.flatnonzero((labels >= 0) & (self.sizes[labels] == 1))
        inside[alone, labels[alone]] = -np.inf
        log_inside = _log_sum(inside) - places.inside[labels]
        inside[alone, labels[alone]] = scores[alone, -1]  # staying alone is the new component
        scores[alone, -1] = -np.inf
        of_clusters = np.column_stack([self.summed(inside), scores[:, -1]])
        total = _log_sum(of_clusters)
        new = np.flatnonzero(labels < 0)
        own, components = self.groups[labels], labels.copy()
        own[new] = of_clusters[new, :-1].argmax(axis=1)
        others = self.groups != own[new, None]
        components[new] = np.where(others, -np.inf, inside[new]).argmax(axis=1)
        certainty = np.exp(of_clusters[rows, own] - total)
        of_clusters[rows, own] = -np.inf
        return Memberships(
            own, certainty, of_clusters.argmax(axis=1), total - places.total[labels], log_inside,
            components,
        )  # fmt: skip

    def _table(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        family = self.model.family
        return CheckedTable.of(X, accept_sparse=family.accepts_sparse, gaps=family.predicts_gaps)

    def _places(self) -> _Places:
        n_points, n_components = int(self.sizes.sum()), self.n_components
        prior = self.prior.for_prediction()
        with_new = prior.log_v(n_points + 1, n_components + 1)
        without = prior.log_v(n_points, n_components + 1)
        now = prior.log_w(self.sizes)
        steps, own = prior.log_w(self.sizes + 1) - now, now - prior.log_w(self.sizes - 1)
        alone = self.sizes == 1
        # A point that was alone leaves one component fewer behind, and its place is a new one.
        others = np.where(alone, n_components - 1, n_components)
        fresh = np.append(
            without[others + 1] - without[others],
            with_new[n_components + 1] - with_new[n_components],
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
        """The same clusters, in the form that accepts missing values."""
        family = self.model.family
        if family.with_gaps() is family:
            return self
        rows = [self.row(k) for k in range(self.n_components)]
        model, pool = gapped(family, rows, self.model.n_features)
        return Mixture(model, pool, self.sizes, self.prior, self.groups)

    @cached_property
    def narrow(self) -> Mixture:
        """The same components for rows of few columns, whose densities are on those columns."""
        family, n_features = self.model.family.narrow(self.model.n_features)
        if family is self.model.family:
            return self
        model = family.compile_empty(n_features)
        return Mixture(model, self.pool, self.sizes, self.prior, self.groups)

    @property
    def has_gaps(self) -> bool:
        """Whether the clusters are in the form that accepts missing values."""
        return self.gapped is self

    def impute(self, matrix: Matrix, *, from_one: bool = False) -> Matrix:
        """Fill gaps with their posterior predictive expectation, given the rest of the row.

        This is the mean over clusters, including new ones, weighted by their probabilities given
        the observed entries; for columns of codes it is the most probable code.  The mean may lie
        where there is no cluster: with `from_one`, only the most probable cluster counts.
        """
        scores = np.column_stack(self.log_joint_probabilities(matrix))
        one = np.eye(scores.shape[1])[scores.argmax(axis=1)] if from_one else None
        weights = softmax(scores, axis=1) if one is None else one
        return self._gaps(self._rows_and_new()).fill(matrix, weights)

    def _gaps(self, rows: list[Vector]) -> Gaps:
        """Return predictions for rows with gaps by clusters, given as rows of statistics."""
        gaps: Gaps = require(
            self.model.family, "gaps", rows, self.model.n_features, needed_by="a row with gaps"
        )
        return gaps

    def draws(self, k: int, needed_by: str = "sample") -> PredictiveDraws:
        """Return draws from the predictive distribution of component k; K is a new component."""
        row = self.row(k) if k < self.n_components else self.model.empty_row()
        draws: PredictiveDraws = require(
            self.model.family, "draws", row, self.model.n_features, needed_by=needed_by
        )
        return draws

    def _rows_and_new(self) -> list[Vector]:
        """Return the clusters' statistics, and those of a new cluster."""
        return [*(self.row(k) for k in range(self.n_components)), self.model.empty_row()]

    def posterior(self, k: int) -> dict[str, Any]:
        """Return the posterior parameters of component k, by name."""
        return self.model.family.posterior(self.row(k), self.model.n_features)

    def sample(self, n_samples: int, rng: Rng) -> tuple[Matrix, Labels]:
        """Draw rows from the posterior predictive, and their clusters; C is a new cluster."""
        weights = np.exp(np.append(self.log_weights, self.log_fresh_weight))
        drawn = np.sort(rng.choice(len(weights), size=n_samples, p=weights / weights.sum()))
        pairs = zip(*np.unique(drawn, return_counts=True), strict=True)
        rows = np.vstack([self.draws(k).sample(int(count), rng) for k, count in pairs])
        return rows, np.append(self.groups, self.n_clusters)[drawn]


def _scaled(values: Matrix) -> tuple[Vector, Matrix]:
    """Return each row's largest logarithm (0 for −∞), and the values relative to it."""
    top = values.max(axis=1)
    top = np.where(np.isfinite(top), top, 0.0)
    return top, np.exp(values - top[:, None])


def _log_sum(values: Matrix) -> Vector:
    """Return log Σ exp of each row."""
    top, weights = _scaled(values)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights.sum(axis=1)) + top)
