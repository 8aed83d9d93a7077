"""Plots of the tree over components."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._types import Ints
from dpsearch._validate import whole
from dpsearch.errors import ParameterError
from dpsearch.plots._axes import COLOURS, one_axis

_ABOVE = "0.55"  # colour of branches above the cut


def dendrogram(model: Any, axis: Any = None, *, shown: int = 40) -> Any:
    """Draw the tree over components with the present clusters in colours; return the axis.

    A leaf is a component with its size; the clusters of at most 12 leaves have their number below
    them.  The line is the present cut: what joins below it is one cluster.  There is no line where
    clusters are not a cut of the tree, because small ones were given to others.

    Parameters
    ----------
    model
        A fitted `DPMixture`.
    axis
        A matplotlib axis; default: a new figure.
    shown
        Of more components, the last merges with so many leaves; a leaf is then a branch, and says
        of how many components.
    """
    from scipy.cluster.hierarchy import dendrogram as draw

    shown = whole(shown, "shown", 2)
    tree, groups = model.tree_, model.mixture_.groups
    n = tree.n_components
    if n == 1:
        raise ParameterError("there is one component: a tree needs two")
    clusters = _clusters_of_nodes(tree.merges, groups)
    linkage = tree.linkage
    lowest, highest = float(linkage[0, 2]), float(linkage[-1, 2])
    # Leaves hang a little below the first merge, however near to 0 or far from it that is.
    floor = lowest - 0.08 * max(highest - lowest, 1e-9)
    linkage[:, 2] -= floor
    counts = np.append(np.ones(n), linkage[:, 3]).astype(int)
    axis = one_axis(axis, float(np.clip(1.5 + 0.32 * min(n, shown), 5.0, 14.0)), 4.4)
    draw(
        linkage,
        p=shown,
        truncate_mode="lastp" if n > shown else None,
        ax=axis,
        color_threshold=0.0,
        link_color_func=lambda node: _colour(clusters[node]),
        leaf_label_func=lambda node: _label(tree.sizes[node], counts[node], clusters[node]),
        leaf_rotation=0 if min(n, shown) <= 16 else 90,
        leaf_font_size=8,
    )
    shift = floor - tree.shift
    cut = _height_of_cut(tree, groups)
    if cut is not None:
        axis.axhline(cut - shift, color="0.3", linewidth=1, linestyle="--")
    _show_heights(axis, shift)
    axis.set_xlabel("components (points in each), by cluster")
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


def _label(size: int, n_components: int, cluster: int) -> str:
    inside = "" if n_components == 1 else f"\n{n_components} comp."
    return f"{size:,}{inside}\n{cluster if cluster >= 0 else 'several'}"


def _height_of_cut(tree: Any, groups: Ints) -> float | None:
    """Return a height between the last merge that was made and the next; None if there is none."""
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
    """Label the axis with heights of the tree, from which what is drawn is shifted."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axis.get_ylim()
    places = MaxNLocator(6).tick_values(low + shift, high + shift)
    axis.set_yticks([place - shift for place in places if low <= place - shift <= high])
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value + shift:.3g}"))
