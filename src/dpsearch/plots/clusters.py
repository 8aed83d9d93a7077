"""Plots of a partition of rows: positions and means of clusters, and the search for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsearch._numbers import brief
from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch._validate import as_image_shape, as_matrix, column_names, whole
from dpsearch.errors import DataError, ParameterError
from dpsearch.plots._axes import (
    COLOURS,
    MARKERS,
    colour_bar,
    column_titles,
    groups,
    one_axis,
    open_frame,
)
from dpsearch.problem import Clustering
from dpsearch.tables import is_frame, read_column, triaged
from dpsearch.tables.frames import names_of

_MOST_IN_LEGEND = 14
_MOST_NUMBERS = 400  # a heat map with more cells has no values in them


def scatter(
    X: ArrayLike,
    labels: ArrayLike,
    axis: Any = None,
    *,
    columns: Sequence[int | str] | None = None,
    names: Sequence[str] | None = None,
    ellipses: bool = True,
) -> Any:
    """Draw the points by cluster, with ellipses and numbers; return the axis.

    The ellipse is that of two standard deviations, which holds 86 % of a normal distribution:
    {z : (z − m)ᵀ S⁻¹ (z − m) = 4} with the mean m and the covariance S of the cluster's points.

    Parameters
    ----------
    X
        Array or frame, at least two columns.  Of a frame with categories each level counts as a
        column, 1 for the rows that have it and 0 for others.
    labels
        Cluster of each row.
    axis
        A matplotlib axis; default: a new figure.
    columns
        The two columns of numbers to draw, by number or name; rows that lack one of the values are
        left out.  Default: the only two, or the first two principal components of the standardised
        columns, where a gap is the mean.
    names
        Column names; default: those of the frame.
    ellipses
        Whether to draw them.
    """
    from matplotlib.patheffects import withStroke

    matrix, clusters, codes, titles = _table(X, labels, names)
    points, titles = _plane(matrix, _numbered(X, columns, titles), titles)
    known = ~np.isnan(points).any(axis=1)
    points, codes = points[known], codes[known]
    axis = one_axis(axis, 6.4, 4.8)
    sizes = np.bincount(codes)
    area = float(np.clip(6000.0 / len(codes), 4.0, 26.0))
    for k, size in enumerate(sizes):
        if not size:
            continue
        own = points[codes == k]
        colour = COLOURS[k % len(COLOURS)]
        axis.scatter(
            own[:, 0], own[:, 1], s=area, color=colour, alpha=0.75, linewidth=0,
            marker=MARKERS[k // len(COLOURS) % len(MARKERS)], label=f"{clusters[k]} ({size:,})",
        )  # fmt: skip
        if ellipses and size > 2:
            axis.add_patch(_ellipse(own, colour))
        axis.text(
            *own.mean(axis=0), clusters[k], ha="center", va="center", fontsize=10, weight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")], zorder=5,
        )  # fmt: skip
    axis.set_xlabel(titles[0])
    axis.set_ylabel(titles[1])
    open_frame(axis)
    if 1 < len(sizes) <= _MOST_IN_LEGEND:
        axis.legend(
            title="cluster (size)", frameon=False, fontsize="small", title_fontsize="small",
            loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0,
        )  # fmt: skip
    return axis


def _ellipse(points: Matrix, colour: str) -> Any:
    from matplotlib.patches import Ellipse

    values, vectors = np.linalg.eigh(np.cov(points.T))
    wide, tall = 4.0 * np.sqrt(np.maximum(values, 0.0))  # two standard deviations either way
    angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    return Ellipse(
        points.mean(axis=0), wide, tall, angle=angle, facecolor="none", edgecolor=colour, lw=1.4
    )


def _plane(
    matrix: Matrix, columns: Sequence[int] | None, names: Sequence[str]
) -> tuple[Matrix, Sequence[str]]:
    """Return the points in two dimensions, and the titles of the dimensions."""
    width = matrix.shape[1]
    if columns is None and width > 2:
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        pca = PCA(2, svd_solver="full")
        standard = np.nan_to_num(StandardScaler().fit_transform(matrix))
        points = pca.fit_transform(standard)
        return points, [
            f"principal component {j + 1} ({share:.0%} of the variance)"
            for j, share in enumerate(pca.explained_variance_ratio_)
        ]
    if width < 2:
        raise ParameterError("X has one column: a scatter plot needs two", parameter="X")
    chosen = [0, 1] if columns is None else list(columns)
    if len(chosen) != 2 or not all(0 <= j < width for j in chosen):
        kind = f"be two columns of numbers, by number from 0 to {width - 1} or by name"
        raise ParameterError.must("columns", kind, columns)
    return matrix[:, chosen], [names[j] for j in chosen]


def _numbered(
    X: Any, columns: Sequence[int | str] | None, titles: Sequence[str]
) -> Sequence[int] | None:
    """Return the places in `titles` of columns given by name, or by number in a frame."""
    if columns is None:
        return None
    own, found = column_names(X) or list(titles), list[int]()
    for one in columns:
        name = one if isinstance(one, str) else own[one] if 0 <= one < len(own) else ""
        found.append(titles.index(name) if name in titles else -1)
    return found


def profiles(
    X: ArrayLike,
    labels: ArrayLike,
    axis: Any = None,
    *,
    names: Sequence[str] | None = None,
    shown: int = 20,
) -> Any:
    """Draw a heat map of the means of the clusters against those of all; return the axis.

    A cell's colour is (mean of the cluster − mean of all) / standard deviation of all, its figure
    the cluster's mean; of a level of a category, the share of the rows that have it.

    Parameters
    ----------
    X
        Array or frame; gaps do not count.
    labels
        Cluster of each row.
    axis
        A matplotlib axis; default: a new figure.
    names
        Column names; default: those of the frame.
    shown
        How many columns: those whose means differ most between clusters, in the table's order.
    """
    matrix, clusters, codes, titles = _table(X, labels, names)
    shown = whole(shown, "shown", 1)
    sizes = np.bincount(codes)
    rows = [np.ma.masked_invalid(matrix[codes == k]) for k in range(len(sizes))]
    means = np.stack([own.mean(axis=0).filled(np.nan) for own in rows])
    spread = np.nanstd(matrix, axis=0)
    away = (means - np.nanmean(matrix, axis=0)) / np.where(spread > 0.0, spread, 1.0)
    between = (sizes[:, None] * np.nan_to_num(away) ** 2).sum(axis=0)
    kept = np.sort(np.argsort(-between, kind="stable")[:shown])
    away, means = away[:, kept], means[:, kept]
    width = float(np.clip(1.8 + 0.62 * len(kept), 4.5, 16.0))
    axis = one_axis(axis, width, min(1.5 + 0.36 * len(sizes), 14.0))
    picture = axis.imshow(away, cmap="RdBu_r", vmin=-2.0, vmax=2.0, aspect="auto")
    axis.set_xticks(range(len(kept)), [titles[j] for j in kept], rotation=40, ha="right")
    axis.set_yticks(range(len(sizes)), [f"{name} ({n:,})" for name, n in zip(clusters, sizes)])
    axis.set_ylabel("cluster (size)")
    if away.size <= _MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(means):
            ink = "white" if abs(away[i, j]) > 1.3 else "black"
            axis.text(j, i, brief(value), ha="center", va="center", fontsize=8, color=ink)
    colour_bar(picture, axis, "standard deviations\nfrom the mean of all", extend="both")
    return axis


def trace(clustering: Clustering, axis: Any = None) -> Any:
    """Plot the log joint over time, with a mark for each kind of move; return the axis.

    The time axis is logarithmic where the first point comes long before the last.

    Parameters
    ----------
    clustering
        From `search`, `refine` or a fitted model's `clustering_`.
    axis
        A matplotlib axis; default: a new figure.
    """
    if not clustering.trace:
        raise ParameterError(
            "this clustering has no trace: it was read from a file", parameter="clustering"
        )
    axis = one_axis(axis, 7.2, 4.0)
    seconds = np.array([point.seconds for point in clustering.trace])
    values = np.array([point.log_joint for point in clustering.trace])
    kinds = [point.step for point in clustering.trace]
    axis.plot(seconds, values, drawstyle="steps-post", color="0.6", linewidth=1.2, zorder=1)
    for at, kind in enumerate(dict.fromkeys(kinds)):
        own = [i for i, other in enumerate(kinds) if other == kind]
        axis.scatter(
            seconds[own], values[own], s=28, zorder=2, label=kind,
            color=COLOURS[at % len(COLOURS)], marker=MARKERS[at % len(MARKERS)], linewidth=0,
        )  # fmt: skip
    positive = seconds[seconds > 0.0]
    if len(positive) and positive[-1] > 50.0 * positive[0]:
        axis.set_xscale("log")
    if np.isfinite(clustering.upper_bound):
        axis.axhline(clustering.upper_bound, color="0.3", linewidth=1, linestyle="--")
        axis.text(
            1.0, clustering.upper_bound, "upper bound", ha="right", va="bottom", fontsize="small",
            transform=axis.get_yaxis_transform(),
        )  # fmt: skip
    axis.set_xlabel("seconds")
    axis.set_ylabel("log joint")
    open_frame(axis)
    axis.legend(frameon=False, fontsize="small", loc="lower right")
    return axis


def _table(
    X: ArrayLike, labels: ArrayLike, names: Sequence[str] | None
) -> tuple[Matrix, list[str], Ints, Sequence[str]]:
    """Return the data as numbers, the clusters' names, each row's cluster, and column titles."""
    titles = column_titles(X, names) if hasattr(X, "shape") else names
    if is_frame(X):
        matrix, titles = _expanded(X, titles or ())
    else:
        matrix = as_matrix(X, accept_sparse=False, gaps=True)
    return matrix, *groups(labels, len(matrix)), column_titles(matrix, titles)


def _expanded(frame: Any, names: Sequence[str]) -> tuple[Matrix, list[str]]:
    """Return a frame as numbers with titles: each level of a category is a column of 0 and 1.

    Of two levels only the second is a column.  Columns that a fit would not use are left out.
    """
    called = dict(zip(names_of(frame), names, strict=True))
    sources = {name: read_column(frame, j).source for j, name in enumerate(called)}
    kinds = {name: "keep" for name, source in sources.items() if source in ("int", "float")}
    found = triaged(frame, kinds, cycles=False, codes=False)
    columns, titles = list[Vector](), list[str]()
    for values, column in zip(found.matrix.T, found.schema.columns, strict=True):
        title = called.get(column.name, column.name)
        levels = list(enumerate(column.levels or ()))
        for code, level in levels[1:] if len(levels) == 2 else levels:
            columns.append(np.where(np.isnan(values), np.nan, values == code))
            titles.append(f"{title} {level}")
        if not levels:
            columns.append(values)
            titles.append(title)
    return np.column_stack(columns), titles


def mean_images(
    images: Any,
    labels: ArrayLike,
    axis: Any = None,
    *,
    columns: int = 12,
    shown: int | None = None,
    image_shape: tuple[int, int] | None = None,
) -> Any:
    """Draw the mean image of each cluster with its size above it; return the axis.

    Parameters
    ----------
    images
        [N, pixels]: grey values.
    labels
        Cluster of each image.
    axis
        A matplotlib axis; default: a new figure.
    columns
        Images in a line.
    shown
        Number of clusters; default: all.
    image_shape
        Height and width; default: images are square.
    """
    images = np.asarray(images)
    if images.ndim != 2:
        raise DataError(f"images must be a table with a row for each, got shape {images.shape}")
    side = math.isqrt(images.shape[1])
    height, width = as_image_shape(image_shape or (side, side), images.shape[1], "images")
    _, codes = groups(labels, len(images))
    sizes = np.bincount(codes)[:shown]
    columns = min(len(sizes), columns)
    rows = -(-len(sizes) // columns)
    axis = one_axis(axis, 0.85 * columns, 1.05 * rows + 0.4)
    # A tile consists of the image, space for its caption above it, and a margin.
    tall, wide = round(1.43 * height), round(1.15 * width)
    left_margin, caption = (wide - width) // 2, round(0.36 * height)
    mosaic = np.zeros((rows * tall, columns * wide))
    for k, size in enumerate(sizes):
        top, left = k // columns * tall, k % columns * wide
        image = images[codes == k].mean(axis=0).reshape(height, width)
        down, right = top + caption, left + left_margin
        mosaic[down : down + height, right : right + width] = image
        axis.text(left + wide / 2, top + 0.29 * height, f"{size:,}", fontsize=8, ha="center")
    axis.imshow(mosaic, cmap="gray_r")
    axis.set_axis_off()
    return axis
