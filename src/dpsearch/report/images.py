"""Rows that are images: the mean of each cluster, and as many rows as a page should hold."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._types import Labels
from dpsearch._validate import as_image_shape
from dpsearch.errors import ParameterError
from dpsearch.report.table import Table

_BYTES = 2_500_000  # of pixels in a page


@dataclass(frozen=True)
class Images:
    """Grey values from 0 (least) to 255."""

    shape: tuple[int, int]
    means: Any  # [K, pixels]
    rows: Any  # row numbers
    pixels: Any  # [rows, pixels]

    @classmethod
    def of(cls, table: Table, labels: Labels, shape: Any, wanted: list[int]) -> Images | None:
        """Return images of the means and of the first rows wanted; None without a shape."""
        if shape is None:
            return None
        height, width = as_image_shape(shape, len(table.names), "X")
        X = table.matrix()
        if X.shape[1] != height * width:
            raise ParameterError("image_shape needs columns of numbers, but some are categories")
        rows = np.array(list(dict.fromkeys(int(i) for i in wanted)), dtype=np.int64)
        rows = rows[: max(1, _BYTES // X.shape[1])]
        means = np.stack([X[labels == k].mean(axis=0) for k in range(int(labels.max()) + 1)])
        low, high = np.nanquantile(X[rows], [0.001, 0.999])
        return cls((height, width), _grey(means, low, high), rows, _grey(X[rows], low, high))

    def payload(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "means": base64.b64encode(self.means.tobytes()).decode(),
            "rows": self.rows.tolist(),
            "pixels": base64.b64encode(self.pixels.tobytes()).decode(),
        }


def _grey(X: Any, low: float, high: float) -> Any:
    scaled = (np.nan_to_num(X, nan=low) - low) / (high - low if high > low else 1.0)
    return np.clip(np.round(255.0 * scaled), 0, 255).astype(np.uint8)
