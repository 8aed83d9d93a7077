"""Plots of clusters of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsearch._types import ArrayLike
from dpsearch._validate import as_image_shape
from dpsearch.errors import DataError
from dpsearch.plots._axes import groups, one_axis


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
    # A tile is the image, room for its caption above it, and a margin.
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
