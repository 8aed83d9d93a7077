"""Plots with matplotlib: axes in, axes out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsearch._files import atomic_write
from dpsearch._types import Labels
from dpsearch.errors import ParameterError

if TYPE_CHECKING:
    from dpsearch.samplers.draws import Draws

# Okabe & Ito's colours, which people who see colours differently can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")


def new_axes(n_rows: int, n_columns: int, size: tuple[float, float]) -> Any:
    """Return a figure's axes as an array, without touching pyplot's state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure.subplots(n_rows, n_columns, squeeze=False)


def check_figure(path: str | Path) -> str:
    """Return the format that a figure's file name asks for, or raise; also without matplotlib."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise ParameterError(
            f"{path}: plots need matplotlib: pip install dpsearch[plots]"
        ) from error
    form = Path(path).suffix.lstrip(".").lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if form not in known:
        raise ParameterError(f"{path}: the name must end with one of {', '.join(sorted(known))}")
    return form


def save_figure(figure: Any, path: str | Path, dpi: int = 150) -> None:
    """Write a figure in the format that the file's name ends with; nothing half-written."""
    form = check_figure(path)
    # No date: the same figure is the same file.
    metadata = {"Date": None} if form == "svg" else None
    with atomic_write(path) as stream:
        figure.savefig(stream, format=form, dpi=dpi, metadata=metadata)


def mean_images(
    images: Any, labels: Labels, axis: Any = None, *, columns: int = 12, shown: int | None = None
) -> Any:
    """Draw the mean image of each cluster in order of number, with its size above it.

    Parameters
    ----------
    images
        [N, side²]: grey values of square images.
    labels
        Cluster of each image.
    axis
        A matplotlib axis; default: a new figure.
    columns
        Images in a line.
    shown
        Number of clusters; default: all.

    Returns
    -------
    The axis.
    """
    side = math.isqrt(images.shape[1])
    sizes = np.bincount(labels)[:shown]
    columns = min(len(sizes), columns)
    rows = -(-len(sizes) // columns)
    if axis is None:
        axis = new_axes(1, 1, (0.85 * columns, 1.05 * rows + 0.4))[0, 0]
    # A tile is the image, room for its caption above it, and a margin.
    tall, wide = round(1.43 * side), round(1.15 * side)
    left_margin, caption = (wide - side) // 2, round(0.36 * side)
    mosaic = np.zeros((rows * tall, columns * wide))
    for k, size in enumerate(sizes):
        top, left = k // columns * tall, k % columns * wide
        image = images[labels == k].mean(axis=0).reshape(side, side)
        down, right = top + caption, left + left_margin
        mosaic[down : down + side, right : right + side] = image
        axis.text(left + wide / 2, top + 0.29 * side, f"{size:,}", fontsize=8, ha="center")
    axis.imshow(mosaic, cmap="gray_r")
    axis.set_axis_off()
    return axis


def sampler_trace(draws: Draws, axes: Any = None) -> Any:
    """Plot the log joint and the number of clusters by sweep, a line for each chain.

    Burn-in is grey.  The axis of the log joint leaves out the climb at the beginning when that
    would flatten the rest.

    Parameters
    ----------
    draws
        From `gibbs` or `split_merge`.
    axes
        Two matplotlib axes; default: a new figure.

    Returns
    -------
    The two axes.
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
        axis.spines[["top", "right"]].set_visible(False)
    later = draws.trace.log_joint[:, min(len(sweeps) - 1, max(draws.burn_in, len(sweeps) // 20)) :]
    low, high = float(later.min()), float(draws.trace.log_joint.max())
    margin = 0.05 * max(high - low, 1e-9)
    if draws.trace.log_joint.min() < low - 3.0 * (high - low):
        top.set_ylim(low - margin, high + margin)
    top.set_ylabel("log joint")
    bottom.set_ylabel("clusters")
    bottom.set_xlabel("sweep (grey: burn-in)" if draws.burn_in else "sweep")
    bottom.yaxis.get_major_locator().set_params(integer=True)
    if draws.n_chains > 1:
        top.legend(frameon=False, ncols=min(draws.n_chains, 4), fontsize="small")
    return np.array([top, bottom])
