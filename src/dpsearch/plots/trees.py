"""Plots of the tree over components."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._numbers import brief
from dpsearch._types import Ints
from dpsearch._validate import whole
from dpsearch.errors import ParameterError
from dpsearch.plots._axes import COLOURS, one_axis

_ABOVE = "0.55"  # colour of branches above the cut
_LABEL_WIDTH = 0.3  # inches that a label needs


def dendrogram(model: Any, axis: Any = None, *, shown: int = 40) -> Any:
    """Draw the tree over components with the present clusters in colours; return the axis.

    A leaf is a component with its size, and the cluster that it belongs to below that.  The line is
    the present cut: what joins below it is one cluster.  There is no line where clusters are not a
    cut of the tree, because small ones were given to others.

    Parameters
    ----------
    model
        A fitted `DPMixture`.
    axis
        A matplotlib axis; default: a new figure.
    shown
        The largest number of leaves.  Of more components the last merges are drawn; a leaf is then
        a branch, with the number of its components in parentheses.
    """
    from scipy.cluster.hierarchy import dendrogram as draw

    shown = whole(shown, "shown", 2)
    tree, groups = model.tree_, model.mixture_.groups
    n = tree.n_components
    if n == 1:
        raise ParameterError("there is one component: a tree needs two", parameter="model")
    clusters = _clusters_of_nodes(tree.merges, groups).tolist()
    linkage = tree.linkage
    lowest, highest = float(linkage[0, 2]), float(linkage[-1, 2])
    # Leaves begin a little below the first merge, at any height of it.
    floor = lowest - 0.08 * max(highest - lowest, 1e-9)
    linkage[:, 2] -= floor
    counts = [1] * n + linkage[:, 3].astype(int).tolist()
    n_leaves = min(n, shown)

    def label(node: int) -> str:
        inside = "" if counts[node] == 1 else f"\n({counts[node]})"
        return f"{tree.sizes[node]:,}{inside}"

    axis = one_axis(axis, float(np.clip(1.2 + 0.36 * n_leaves, 5.0, 15.0)), 4.4)
    room = axis.figure.get_figwidth() * axis.get_position().width / n_leaves
    drawn = draw(
        linkage,
        p=shown,
        truncate_mode="lastp" if n > shown else None,
        ax=axis,
        link_color_func=lambda node: _colour(clusters[node]),
        leaf_label_func=label,
        leaf_rotation=0 if room >= _LABEL_WIDTH else 90,
        leaf_font_size=8,
    )
    shift = floor - tree.shift
    cut = _height_of_cut(tree, groups)
    if cut is not None:
        axis.axhline(cut - shift, color="0.3", linewidth=1, linestyle="--")
    _show_heights(axis, shift)
    below = 20.0 if room >= _LABEL_WIDTH else 34.0
    _name_clusters(axis, [clusters[node] for node in drawn["leaves"]], below + 10.0 * (n > shown))
    inside = "component" if n <= shown else "branch (components in it)"
    axis.set_xlabel(f"points in each {inside}, and its cluster", labelpad=18.0)
    axis.set_ylabel("height, −log lift")
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    return axis


def _clusters_of_nodes(merges: Ints, groups: Ints) -> Ints:
    """Return the cluster that contains each node, −1 for nodes above the cut."""
    n = len(groups)
    out = np.concatenate([groups, np.full(n - 1, -1)])
    for m, (a, b) in enumerate(merges):
        if out[a] == out[b]:
            out[n + m] = out[a]
    return out


def _colour(cluster: int) -> str:
    return _ABOVE if cluster < 0 else COLOURS[cluster % len(COLOURS)]


def _name_clusters(axis: Any, clusters: list[int], below: float) -> None:
    """Write the number of each cluster below the middle of its leaves, which are 10 units apart."""
    begin = 0
    for end in range(1, len(clusters) + 1):
        if end < len(clusters) and clusters[end] == clusters[begin]:
            continue
        middle, cluster = 5.0 * (begin + end), clusters[begin]
        axis.annotate(
            str(cluster) if cluster >= 0 else "…", (middle, 0.0), (0.0, -below),
            xycoords=axis.get_xaxis_transform(), textcoords="offset points", ha="center", va="top",
            color=_colour(cluster), weight="bold", fontsize=9,
        )  # fmt: skip
        begin = end


def _height_of_cut(tree: Any, groups: Ints) -> float | None:
    """Return a height between the last merge below the cut and the next; None without a cut."""
    n, n_clusters = tree.n_components, int(groups.max()) + 1
    if not np.array_equal(tree.cut(n_clusters), groups):
        return None
    last, following = n - n_clusters - 1, n - n_clusters
    if last < 0:
        return float(tree.heights[0]) - 0.04 * float(np.ptp(tree.heights))
    if following == n - 1:
        return float(tree.heights[-1]) + 0.04 * float(np.ptp(tree.heights))
    return 0.5 * float(tree.heights[last] + tree.heights[following])


def _show_heights(axis: Any, shift: float) -> None:
    """Label the axis with the heights of the tree, which are drawn with a shift."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axis.get_ylim()
    places = MaxNLocator(6).tick_values(low + shift, high + shift)
    axis.set_yticks([place - shift for place in places if low <= place - shift <= high])
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: brief(value + shift, 3)))
