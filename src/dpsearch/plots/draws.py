"""Plots of draws from the posterior, or of several restarts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dpsearch._types import ArrayLike
from dpsearch._validate import whole
from dpsearch.plots._axes import COLOURS, colour_bar, groups, new_axes, one_axis, open_frame


def sampler_trace(draws: Any, axes: Any = None) -> Any:
    """Plot the log joint and the number of clusters by sweep and chain; return the two axes.

    Burn-in is grey.  The axis of the log joint leaves out the climb at the beginning when that
    would flatten the rest.

    Parameters
    ----------
    draws
        From `gibbs` or `split_merge`.
    axes
        Two matplotlib axes; default: a new figure.
    """
    if axes is None:
        axes = new_axes(2, 1, (8.0, 5.0))[:, 0]
    top, bottom = np.ravel(axes)
    sweeps = np.arange(1, draws.trace.log_joint.shape[1] + 1)
    for c in range(draws.n_chains):
        style: dict[str, Any] = {"color": COLOURS[c % len(COLOURS)], "linewidth": 0.9, "alpha": 0.9}
        top.plot(sweeps, draws.trace.log_joint[c], label=f"chain {c}", **style)
        bottom.plot(sweeps, draws.trace.n_clusters[c], drawstyle="steps-mid", **style)
    for axis in (top, bottom):
        if draws.burn_in:
            axis.axvspan(0.5, draws.burn_in + 0.5, color="0.9", zorder=0, linewidth=0)
        axis.set_xlim(0.5, sweeps[-1] + 0.5)
    open_frame(top, bottom)
    later = draws.trace.log_joint[:, min(len(sweeps) - 1, max(draws.burn_in, len(sweeps) // 20)) :]
    low, high = float(later.min()), float(draws.trace.log_joint.max())
    margin = 0.05 * max(high - low, 1e-9)
    if draws.trace.log_joint.min() < low - 3.0 * (high - low):
        top.set_ylim(low - margin, high + margin)
    top.set_ylabel("log joint")
    bottom.set_ylabel("clusters")
    unit = "draw" if draws.trace.log_joint.size == len(draws) else "sweep"
    bottom.set_xlabel(f"{unit} (grey: burn-in)" if draws.burn_in else unit)
    bottom.yaxis.get_major_locator().set_params(integer=True)
    if draws.n_chains > 1:
        top.legend(frameon=False, ncols=min(draws.n_chains, 4), fontsize="small")
    return np.array([top, bottom])


def coclustering(
    source: Any, axis: Any = None, *, labels: ArrayLike = None, shown: int = 500
) -> Any:
    """Draw how often pairs of points share a cluster, sorted by cluster; return the axis.

    Parameters
    ----------
    source
        Draws from the posterior, or a `consensus` of restarts.
    axis
        A matplotlib axis; default: a new figure.
    labels
        A partition to order the points by; default: the best one of `source`.
    shown
        Of more points, this many evenly spaced ones of that order.
    """
    shown = whole(shown, "shown", 2)
    from_draws = hasattr(source, "coclustering")
    best = source.best() if from_draws else source.best
    clusters, known = groups(best.labels if labels is None else labels, len(best.labels))
    order = np.argsort(known, kind="stable")
    rows = order[np.linspace(0, len(order) - 1, min(shown, len(order))).round().astype(int)]
    shares = source.coclustering(rows, rows) if from_draws else source.together(rows)
    axis = one_axis(axis, 5.8, 4.8)
    picture = axis.imshow(shares, cmap="cividis", vmin=0.0, vmax=1.0, interpolation="nearest")
    ends = np.flatnonzero(np.diff(known[rows])) + 0.5
    for place in ends:
        axis.axhline(place, color="white", linewidth=0.6)
        axis.axvline(place, color="white", linewidth=0.6)
    # Name the clusters that are wide enough.
    edges = np.concatenate([[-0.5], ends, [len(rows) - 0.5]])
    wide = [pair for pair in itertools.pairwise(edges) if np.diff(pair) >= 0.035 * edges[-1]]
    middles = [(low + high) / 2 for low, high in wide]
    names = [clusters[known[rows[int(np.ceil(low))]]] for low, _ in wide]
    axis.set_xticks(middles, names)
    axis.set_yticks(middles, names)
    axis.set_xlabel("points, by cluster")
    what = "draws" if from_draws else "restarts"
    colour_bar(picture, axis, f"share of {what} together")
    return axis


def k_posterior(draws: Any, axis: Any = None) -> Any:
    """Draw the posterior probability of each number of clusters; return the axis.

    Parameters
    ----------
    draws
        From `gibbs` or `split_merge`.
    axis
        A matplotlib axis; default: a new figure.
    """
    shares = draws.k_posterior()
    seen = np.flatnonzero(shares)
    counts = np.arange(seen[0], seen[-1] + 1)
    axis = one_axis(axis, 5.6, 3.4)
    colours = np.where(counts == shares.argmax(), COLOURS[0], COLOURS[4])
    bars = axis.bar(counts, shares[counts], color=colours, width=0.85)
    if len(counts) <= 12:
        axis.bar_label(bars, [f"{100.0 * share:.1f} %" for share in shares[counts]], fontsize=8)
    axis.set_xlabel("number of clusters K")
    axis.set_ylabel("p(K | data)")
    axis.set_xlim(counts[0] - 0.7, counts[-1] + 0.7)
    axis.xaxis.get_major_locator().set_params(integer=True)
    open_frame(axis)
    return axis
