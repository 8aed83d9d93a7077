"""The branches of the tree over components, which the page cuts at the level that its reader picks.

A cluster at any level of the tree is one of its nodes, so the columns that distinguish nodes are
computed once for all levels.  Clusters of the fit that are not nodes, because small clusters were
assigned to others, come after the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._types import Ints
from dpsearch.explain import explain_branches
from dpsearch.explanation import Explanation
from dpsearch.levels import Tree
from dpsearch.report.page import single
from dpsearch.report.profiles import Subsets


@dataclass(frozen=True)
class Branches:
    """The sets of components that can be clusters, and the tree that the page cuts."""

    subsets: Subsets  # the sets of components, and how columns distinguish them
    fitted: Ints  # [C]: the set that each cluster of the fit is
    tree: Tree  # its nodes are the first sets
    agreement: Any  # for 1, 2, … clusters, how well fits to halves of the rows recover them

    @classmethod
    def of(cls, model: Any, explanation: Explanation) -> Branches:
        """Return the branches of a fitted model."""
        groups, levels = model.mixture_.groups, model.state_.levels
        clusters = np.arange(model.n_clusters_)[:, None] == groups
        tree = levels.tree
        sets, sibling = _nodes(tree)
        found = explain_branches(model.mixture_, tree.merges)
        evidence, contrast = found.rest, found.sibling
        place = {one.tobytes(): b for b, one in enumerate(sets)}
        fitted = np.array([place.get(one.tobytes(), -1) for one in clusters])
        new = np.flatnonzero(fitted < 0)
        fitted[new] = len(sets) + np.arange(len(new))
        near = np.where(explanation.nearest[new] < 0, -1, fitted[explanation.nearest[new]])
        subsets = Subsets(
            np.vstack([sets, clusters[new]]),
            np.vstack([evidence, explanation.columns[new]]),
            np.vstack([contrast, explanation.against_nearest[new]]),
            np.concatenate([sibling, near]),
        )
        return cls(subsets, fitted, tree, levels.agreement)

    def payload(self) -> dict[str, Any]:
        """Return what the page's script needs to cut the tree and to find nearest clusters."""
        n = self.tree.n_components
        return {
            "fitted": self.fitted.tolist(),
            "sibling": self.subsets.sibling.tolist(),
            "members": [np.flatnonzero(one).tolist() for one in self.subsets.sets],
            "merges": self.tree.merges.tolist(),
            "heights": single(self.tree.heights),
            "points": self.tree.sizes[:n].tolist(),
            "lift": single(self.tree.log_lift[np.tril_indices(n, -1)]),
            "weights": single(self.tree.log_weights),
            "agreement": single(self.agreement),
        }


def _nodes(tree: Tree) -> tuple[Any, Ints]:
    """Return the components in each node [2K − 1, K], and the sibling of each, −1 for the root."""
    n = tree.n_components
    sets, sibling = np.zeros((2 * n - 1, n), bool), np.full(2 * n - 1, -1)
    sets[:n] = np.eye(n, dtype=bool)
    for m, (a, b) in enumerate(tree.merges):
        sets[n + m] = sets[a] | sets[b]
        sibling[a], sibling[b] = b, a
    return sets, sibling
