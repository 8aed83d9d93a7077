"""Fits to two halves of the rows, and how well they find the clusters of the whole fit again."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from dpsearch._threads import concurrently
from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch.items import Items, log_predictive
from dpsearch.levels.overlap import overlap
from dpsearch.levels.tree import Tree, grow
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine

_FEW_ROWS = 200  # the most rows for which refinement is thorough
_FITTED = (1000, 2000)  # bounds on the rows in both halves, which are a quarter of all otherwise


class Halves(NamedTuple):
    """What two fits to disjoint halves of the rows found."""

    # For each half: rows of the sample by [its component, the component of the whole fit].
    tables: tuple[Matrix, ...]
    n_clusters: tuple[int, ...]  # of each half's tree, cut like that of the whole fit

    def agreement(self, groups: Ints) -> float:
        """Return how well the halves find clusters, which are sets of the whole fit's components.

        Each component of a half is assigned to the cluster of most of its rows.  The result is the
        mean over halves of the adjusted Rand index of this clustering with the given one.
        """
        return float(np.mean([_agreement(table, groups) for table in self.tables]))


def fit_halves(
    mixture: Mixture, items: Items, labels: Labels, temper: float | None, rng: Rng
) -> Halves:
    """Fit two halves of some rows, which have these components as labels, under the same family.

    `temper` is that of the overlaps of the trees; None if components are clusters.
    """
    wanted = int(np.clip(mixture.sizes.sum() // 4, *_FITTED))
    order = rng.permutation(items.n_items)[:wanted]

    def of_half(rows: Ints) -> tuple[Matrix, int]:
        half_items = items.take(rows)
        half, own = _fit(mixture, half_items)
        scores = log_predictive(half.model.core, items, half.pool) + half.log_weights
        table = np.zeros((half.n_components, mixture.n_components))
        np.add.at(table, (scores.argmax(axis=1), labels), 1.0)
        if temper is None:
            return table, half.n_components
        tree = grow(overlap(half.log_memberships(half_items, own), temper), half.sizes)
        return table, int(tree.cut().max()) + 1

    halves = map(np.sort, np.array_split(order, 2))
    tables, counts = zip(*concurrently(*(partial(of_half, rows) for rows in halves)), strict=True)
    return Halves(tables, counts)


def _fit(mixture: Mixture, items: Items) -> tuple[Mixture, Labels]:
    prior = mixture.prior
    problem = Problem.of_items(mixture.model, items, 0.0, prior)
    # As in the learning of hyperparameters, a greedy search suffices if refinement follows.
    labels = search(problem, beam_size=1 if prior.product_form else 10).labels
    if prior.product_form:
        thorough = items.n_items <= _FEW_ROWS
        labels = refine(
            problem, labels, rng=0, thorough=thorough, tries=1, keep_interrupted=False
        ).labels
    return Mixture.of(mixture.model, items, labels, prior), labels


def _agreement(table: Matrix, groups: Ints) -> float:
    """Return the adjusted Rand index of the clusters and a half's components assigned to them."""
    clusters = np.arange(int(groups.max()) + 1)
    by_cluster = table @ (groups[:, None] == clusters).astype(np.float64)
    joint = (clusters[:, None] == by_cluster.argmax(axis=1)).astype(np.float64) @ by_cluster
    pairs, first, second = _pairs(joint), _pairs(joint.sum(axis=0)), _pairs(joint.sum(axis=1))
    expected = first * second / _pairs(joint.sum())
    most = 0.5 * (first + second)
    return 1.0 if most == expected else float((pairs - expected) / (most - expected))


def _pairs(counts: Matrix | Vector | float) -> float:
    return float(np.sum(np.asarray(counts) * (np.asarray(counts) - 1.0)) / 2.0)


def agreements(halves: Halves, tree: Tree) -> Vector:
    """Return the agreement for every number of clusters, 1 … K."""
    n = tree.n_components
    return np.array([halves.agreement(tree.cut(count)) for count in range(1, n + 1)])
