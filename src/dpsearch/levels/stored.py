"""Levels as plain arrays in a model file: writing, and reading with checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpsearch._archive import require
from dpsearch._types import Ints
from dpsearch.levels.levels import Levels
from dpsearch.levels.tree import Tree, node_sizes

_ARRAYS = ("merges", "heights", "log_lift", "log_weights")
_PREFIX = "tree_"


def arrays_of(levels: Levels) -> dict[str, Any]:
    """Return the arrays of the tree and its levels, by their names in a file."""
    parts = {name: getattr(levels.tree, name) for name in _ARRAYS}
    parts["agreement"] = levels.agreement
    return {_PREFIX + name: value for name, value in parts.items()}


def about(levels: Levels) -> dict[str, Any]:
    """Return the other fields to store, as plain values."""
    return {
        "merges": levels.merges,
        "finding": levels.finding,
        "n_clusters_in_halves": list(levels.n_clusters_in_halves),
    }


def levels_of(spec: Mapping[str, Any], arrays: Mapping[str, Any], sizes: Ints) -> Levels:
    """Return the levels in a file, for components of these sizes."""
    n = len(sizes)
    shapes = {"merges": (n - 1, 2), "heights": (n - 1,), "log_lift": (n, n), "log_weights": (n,),
              "agreement": (n,)}  # fmt: skip
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        array = arrays.get(_PREFIX + name)
        kind = "i" if name == "merges" else "f"
        fits = array is not None and array.shape == shape and array.dtype.kind == kind
        require(fits, f"the entry {_PREFIX}{name} is missing or has the wrong shape")
        found[name] = array
    agreement = found.pop("agreement")
    gaps = (np.isnan(found[name]).any() for name in ("heights", "log_lift", "log_weights"))
    require(not any(gaps), "the tree holds numbers that are not finite")
    require((np.diff(found["heights"]) >= 0.0).all(), "the heights of the tree fall")
    tree = Tree(sizes=_node_sizes(found["merges"], sizes), **found)
    counts = spec["n_clusters_in_halves"]
    integers = isinstance(counts, list) and all(type(count) is int for count in counts)
    require(integers, "n_clusters_in_halves are not integers")
    return Levels(tree, bool(spec["merges"]), str(spec["finding"]), agreement, tuple(counts))


def check_groups(groups: Any, n_components: int) -> Ints:
    """Return the clusters of components in a file, checked."""
    fits = groups.shape == (n_components,) and groups.dtype == np.int64
    require(fits, "groups are not a cluster for each component")
    distinct = np.unique(groups)  # at most as many as there are components
    in_order = np.array_equal(distinct, np.arange(len(distinct)))
    require(in_order, "the clusters of components are not numbered 0, 1, …")
    return np.ascontiguousarray(groups)


def _node_sizes(merges: Ints, sizes: Ints) -> Ints:
    """Return the number of points in each node; raise if the merges are not those of a tree."""
    n = len(sizes)
    free = np.zeros(2 * n - 1, bool)
    free[:n] = True
    for m, (a, b) in enumerate(merges):
        fits = 0 <= a < b < n + m and free[a] and free[b]
        require(fits, "the merges are not those of a tree over the components")
        free[a] = free[b] = False
        free[n + m] = True
    return node_sizes(merges, sizes)
