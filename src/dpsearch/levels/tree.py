"""The tree over components: the two of largest lift are merged repeatedly.

P and p of merged components are sums, so the lift of a merged pair with another component is a
weighted mean of lifts.  Hence heights, which are −log lift, never decrease from one merge to the
next.  At height 0 two clusters share rows as often as by chance; below it they share more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch._validate import whole
from dpsearch.errors import ParameterError
from dpsearch.levels.overlap import Overlap


@dataclass(frozen=True, eq=False)
class Tree:
    """A dendrogram over components.

    Attributes
    ----------
    merges
        [K − 1, 2] the two nodes of each merge, in order; nodes 0 … K − 1 are the components, node
        K + m is what merge m makes.
    heights
        [K − 1] −log lift of each merge, never falling; 0 is what chance would give.
    sizes
        [2K − 1] the number of points in each node.
    log_lift
        [K, K] log lift of each pair of components.
    log_weights
        [K] log of the share of each component, by which lifts are averaged.
    """

    merges: Ints
    heights: Vector
    sizes: Ints
    log_lift: Matrix
    log_weights: Vector

    @property
    def n_components(self) -> int:
        return len(self.heights) + 1

    @property
    def shift(self) -> float:
        """The constant that `linkage` adds to heights, since SciPy accepts none below 0."""
        return max(0.0, -float(self.heights.min())) if len(self.heights) else 0.0

    @property
    def linkage(self) -> Matrix:
        """The tree as SciPy's linkage: two nodes, height + `shift`, number of components."""
        n = self.n_components
        counts = node_sizes(self.merges, np.ones(n, np.int64))[n:]
        return np.column_stack([self.merges, self.heights + self.shift, counts]).astype(float)

    def with_sizes(self, sizes: Ints) -> Tree:
        """Return the same tree over components of other sizes."""
        return replace(self, sizes=node_sizes(self.merges, sizes))

    def cut(
        self,
        n_clusters: int | None = None,
        *,
        height: float | None = None,
        min_size: int | None = None,
    ) -> Ints:
        """Return the cluster of each component, numbered from the largest cluster.

        Parameters
        ----------
        n_clusters
            How many clusters to make.
        height
            Merge all that lies below this height; 0 if `n_clusters` is not given either.
        min_size
            Clusters with fewer points are given to the one of the largest lift.  With
            `n_clusters`, the tree is cut so that as many are left, if it can be.
        """
        if n_clusters is not None and height is not None:
            raise ParameterError("give n_clusters or height, not both", parameter="n_clusters")
        least = 1 if min_size is None else whole(min_size, "min_size", 1)
        if n_clusters is None:
            level = 0.0 if height is None else _number(height)
            return self._with_small_joined(self._groups(int((self.heights < level).sum())), least)
        wanted = whole(n_clusters, "n_clusters", 1)
        self.require(wanted, "n_clusters")
        for n_merges in range(self.n_components - wanted, -1, -1):
            groups = self._with_small_joined(self._groups(n_merges), least)
            if groups.max() + 1 == wanted:
                return groups
        raise ParameterError.of(
            "n_clusters",
            f"is {wanted}, but no cut of the tree has {wanted} clusters of at least {least} points",
        )

    def require(self, n_clusters: int, name: str) -> None:
        """Raise an error about the parameter of that name if there are fewer components."""
        if n_clusters > self.n_components:
            raise ParameterError.of(
                name, f"is {n_clusters}, but there are only {self.n_components} components"
            )

    def _groups(self, n_merges: int) -> Ints:
        """Return the cluster of each component after the first merges."""
        n = self.n_components
        if n_merges == 0:
            return np.arange(n)
        parent = np.arange(n + n_merges)
        for m in range(n_merges - 1, -1, -1):  # from the top, so that parents are known
            parent[self.merges[m]] = parent[n + m]
        return self._numbered(parent[:n])

    def _numbered(self, groups: Ints) -> Ints:
        """Number clusters by size, the largest first, and ties by their first component."""
        names, first, groups = np.unique(groups, return_index=True, return_inverse=True)
        sizes = np.bincount(groups, self.sizes[: self.n_components])
        order = np.lexsort((first, -sizes))
        place = np.empty(len(names), np.int64)
        place[order] = np.arange(len(names))
        return np.asarray(place[groups])

    def _with_small_joined(self, groups: Ints, least: int) -> Ints:
        """Join each cluster of fewer points to that of the largest lift, the smallest first."""
        n_clusters = int(groups.max()) + 1
        sizes = np.bincount(groups, self.sizes[: self.n_components])
        if n_clusters == 1 or sizes.min() >= least:
            return groups
        log_pairs, log_single = self._between(groups)
        goes = np.arange(n_clusters)
        while np.isfinite(sizes).sum() > 1 and sizes.min() < least:
            small = int(sizes.argmin())
            into = int((log_pairs[small] - log_single).argmax())
            goes[goes == small] = into
            _join(log_pairs, log_single, into, small)
            sizes[into] += sizes[small]
            sizes[small] = np.inf
        return self._numbered(goes[groups])

    def _between(self, groups: Ints) -> tuple[Matrix, Vector]:
        """Return log P of pairs of clusters, with −∞ on the diagonal, and log p of each."""
        n_clusters = int(groups.max()) + 1
        log_single = np.full(n_clusters, -np.inf)
        np.logaddexp.at(log_single, groups, self.log_weights)
        pairs = self.log_lift + self.log_weights[:, None] + self.log_weights
        half = np.full((n_clusters, len(groups)), -np.inf)
        np.logaddexp.at(half, groups, pairs)
        out = np.full((n_clusters, n_clusters), -np.inf)
        np.logaddexp.at(out, groups, half.T)
        np.fill_diagonal(out, -np.inf)
        return np.asarray(out.T).copy(), log_single

    def nearest(self, groups: Ints, among: Any = True) -> Ints:
        """Return for each cluster the other one, `among` some, of the largest lift; −1 if none."""
        n_clusters = int(groups.max()) + 1
        if n_clusters == 1:
            return np.full(1, -1)
        log_pairs, log_single = self._between(groups)
        lift = log_pairs - log_single
        lift[:, ~np.broadcast_to(among, n_clusters)] = -np.inf
        return np.asarray(lift.argmax(axis=1))


def node_sizes(merges: Ints, sizes: Ints) -> Ints:
    """Return the number of points in each node, components first."""
    out = np.concatenate([sizes, np.zeros(len(merges), np.int64)])
    for m, (a, b) in enumerate(merges):
        out[len(sizes) + m] = out[a] + out[b]
    return out


def _join(log_pairs: Matrix, log_single: Vector, into: int, gone: int) -> None:
    """Add the P and p of the cluster `gone` to those of another, and set its own to zero."""
    log_single[into] = np.logaddexp(log_single[into], log_single[gone])
    joined = np.logaddexp(log_pairs[into], log_pairs[gone])
    log_pairs[into], log_pairs[:, into] = joined, joined
    log_pairs[gone], log_pairs[:, gone] = -np.inf, -np.inf
    log_pairs[into, into] = -np.inf


def grow(overlap: Overlap, sizes: Ints) -> Tree:
    """Return the tree of components with this overlap and these sizes."""
    n = len(sizes)
    lift = overlap.log_lift
    lift = np.maximum(lift, lift.T)  # they are equal up to rounding
    log_pairs = lift + overlap.log_single[:, None] + overlap.log_single
    log_single = overlap.log_single.copy()
    np.fill_diagonal(log_pairs, -np.inf)
    current = log_pairs - log_single[:, None] - log_single
    best, value = current.argmax(axis=1), current.max(axis=1)
    node = np.arange(n)
    merges, heights = np.empty((n - 1, 2), np.int64), np.empty(n - 1)
    for m in range(n - 1):
        a = int(value.argmax())
        b = int(best[a])
        merges[m] = sorted((node[a], node[b]))
        heights[m] = max(-value[a], heights[m - 1] if m else -np.inf)
        node[a] = n + m
        _join(log_pairs, log_single, a, b)
        value[b] = -np.inf
        again = np.flatnonzero((best == a) | (best == b) | (np.arange(n) == a))
        for c in again[value[again] > -np.inf] if m < n - 2 else ():
            row = log_pairs[c] - log_single[c] - log_single
            best[c], value[c] = row.argmax(), row.max()
    return Tree(merges, heights, node_sizes(merges, sizes), lift, overlap.log_single)


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise ParameterError.must("height", "be a number", value)
    if math.isnan(value):
        raise ParameterError.of("height", "must be a number, got nan")
    return float(value)
