"""Clusters of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsearch._types import Labels
from dpsearch.plots._axes import new_axes


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
