"""The fitted mixture: clusters as rows of statistics, and what they say about new data.

Given a partition of N points into K clusters, a new point belongs to cluster k with probability
proportional to W(n_k + 1)/W(n_k) · H(x | cluster k), and to none of them in proportion to
V(K + 1, N + 1)/V(K, N + 1) · W(1) · H(x).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from dpsearch._jit import kernel
from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Rng, Vector
from dpsearch._validate import as_matrix, has_gaps
from dpsearch.families.base import Model
from dpsearch.items import Core, Items, log_alone, merge_rows, score_item
from dpsearch.priors.base import Prior


class Mixture:
    """Clusters of a fitted partition, ready for prediction."""

    def __init__(self, model: Model, pool: Vector, sizes: Ints, prior: Prior) -> None:
        self.model = model
        self.pool = pool
        self.sizes = sizes
        self.prior = prior
        n_points, n_clusters = int(sizes.sum()), len(sizes)
        tables = prior.for_prediction().tables(n_points + 1)
        weights = tables.log_w[sizes + 1] - tables.log_w[sizes]
        fresh = tables.log_v[n_clusters + 1] - tables.log_v[n_clusters] + tables.log_w[1]
        total = logsumexp(np.append(weights, fresh))
        self.log_weights: Vector = weights - total
        self.log_fresh_weight = float(fresh - total)

    @classmethod
    def of(cls, model: Model, items: Items, labels: Labels, prior: Prior) -> Mixture:
        pool, sizes = model.rows(items, labels, int(labels.max()) + 1)
        return cls(model.without_data(), pool, sizes, prior)

    @property
    def n_clusters(self) -> int:
        return len(self.sizes)

    def row(self, k: int) -> Vector:
        """The statistics of cluster k."""
        width = self.model.core.width
        return self.pool[k * width : (k + 1) * width]

    def log_joint_probabilities(self, X: ArrayLike) -> tuple[Matrix, Vector]:
        """Return log p(cluster k, x) [N, K] and log p(new cluster, x) [N]."""
        family = self.model.family
        matrix = as_matrix(X, accept_sparse=family.accepts_sparse, gaps=family.takes_gaps)
        if has_gaps(matrix) and self._gapped is not self:
            return self._gapped.log_joint_probabilities(matrix)
        items, base = self.model.items(matrix)
        inside = log_predictive(self.model.core, items, self.pool, self.n_clusters)
        inside += self.log_weights + base[:, None]
        outside = log_alone(self.model.core, items) + self.log_fresh_weight + base
        return inside, outside

    @cached_property
    def _gapped(self) -> Mixture:
        """The same clusters in the form that takes data with missing values."""
        family, n_features = self.model.family, self.model.n_features
        if family.with_gaps() is family:
            return self
        model = family.with_gaps().compile_empty(n_features)
        rows = []
        for k in range(self.n_clusters):
            row = model.empty_row()
            merge_rows(model.core, row, family.row_with_gaps(self.row(k), n_features), 1.0)
            rows.append(row)
        return Mixture(model, np.concatenate(rows), self.sizes, self.prior)

    def impute(self, matrix: Matrix) -> Matrix:
        """Fill gaps with what the posterior predictive given the rest of the row expects.

        That is the mean over clusters, new ones included, each weighted by its probability given
        the observed entries; for columns of codes the most probable code.
        """
        inside, outside = self.log_joint_probabilities(matrix)
        missing = np.isnan(matrix)
        weights = softmax(np.column_stack([inside, outside]), axis=1)
        rows = [self.row(k) for k in range(self.n_clusters)] + [self.model.empty_row()]
        family, n_features = self.model.family, self.model.n_features
        expected = [family.expected(row, n_features) for row in rows]
        out = matrix.copy()
        for d in np.flatnonzero(missing.any(axis=0)):
            values = weights[missing[:, d]] @ np.stack([columns[d] for columns in expected])
            out[missing[:, d], d] = values[:, 0] if values.shape[1] == 1 else values.argmax(axis=1)
        return out

    def posterior(self, k: int) -> dict[str, Any]:
        """Posterior parameters of cluster k, for people to read."""
        return self.model.family.posterior(self.row(k), self.model.n_features)

    def sample(self, n_samples: int, rng: Rng) -> tuple[Matrix, Labels]:
        """Draw from the posterior predictive; label K stands for a new cluster."""
        weights = np.exp(np.append(self.log_weights, self.log_fresh_weight))
        labels = np.sort(rng.choice(len(weights), size=n_samples, p=weights / weights.sum()))
        family, n_features = self.model.family, self.model.n_features
        parts = []
        for k, count in zip(*np.unique(labels, return_counts=True), strict=True):
            row = self.row(k) if k < self.n_clusters else self.model.empty_row()
            parts.append(family.draw(row, n_features, int(count), rng))
        return np.vstack(parts), labels


@kernel
def log_predictive(core: Core, items: Items, pool: Vector, n_clusters: int) -> Matrix:
    """Return log H(x_i | cluster k) for every item and cluster."""
    n = items.indptr.shape[0] - 1
    out = np.empty((n, n_clusters))
    starts = np.arange(n_clusters) * core.width
    scratch = np.empty(core.width)
    for i in range(n):
        score_item(core, items, i, pool, starts, out[i], scratch)
    return out
