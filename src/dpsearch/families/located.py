"""Families on nodes of a location and a width (a scale): how the nodes are placed.

Each family has a coordinate in which the standard deviation of a cluster is about the node's width
for every location: x itself, log x, an angle.  Nodes are a `lattice` in it.  The expected width is
the spread of the coordinate within clusters, measured by medians if tails are heavy; without a
partition it is derived from a share of the table's variance.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.families._columns import mean_and_variance, medians
from dpsearch.families.by_nodes import ByNodes, lattice
from dpsearch.families.learning import FLOOR, WITHIN, pooled_variance


class Located(ByNodes):
    """Base of families whose nodes are a location and a width."""

    # The least and the largest width of nodes.
    limits: ClassVar[tuple[float, float]] = (0.0, np.inf)
    # Whether the spread is measured by median absolute deviations.
    robust: ClassVar[bool] = False

    def coordinate(self, X: Any) -> Any:
        """Return the coordinates of values."""
        return X

    def location(self, coordinate: Vector) -> Vector:
        """Return the locations at some coordinates, the inverse of `coordinate`."""
        return coordinate

    def ends(self, d: int, coordinate: Vector) -> tuple[float, float] | None:
        """Return the first and last coordinate of locations of column d; None without bounds."""
        return None

    def around(self, coordinate: Vector) -> Vector:
        """Return the coordinates by whose density locations are placed."""
        return coordinate

    def further(self, d: int, x: Vector) -> tuple[float, ...]:
        """Return the parameters of nodes of column d after location and width."""
        return ()

    def _placed(self, X: Any, labels: Ints | None) -> Self:
        return self._with_nodes(self._lattices(X, labels))

    def _lattices(self, X: Any, labels: Ints | None) -> list[tuple[Matrix, Vector]]:
        """Return the nodes of each column for a table, and their log weights."""
        Y = np.asarray(self.coordinate(X))
        scales = np.clip(self._spread(Y, labels), *self.limits)
        found = []
        for d in range(X.shape[1]):
            there = ~np.isnan(Y[:, d])
            y = Y[there, d] if there.any() else np.zeros(1)
            found.append(
                lattice(
                    self.around(y),
                    float(scales[d]),
                    back=self.location,
                    limits=self.limits,
                    ends=self.ends(d, y),
                    further=self.further(d, X[there, d]),
                )
            )
        return found

    def _spread(self, Y: Matrix, labels: Ints | None) -> Vector:
        """Return the expected width in each column."""
        total = mean_and_variance(Y)[1]
        if labels is None:
            within = WITHIN * (_middle(Y) if self.robust else total)
        elif self.robust:
            off = Y.copy()
            for k in np.unique(labels):
                off[labels == k] -= medians(Y[labels == k])
            freedom = len(Y) / max(len(Y) - labels.max() - 1.0, 1.0)
            within = freedom * _middle(off)
        else:
            within = pooled_variance(Y, labels)
        least = FLOOR * np.minimum(total, _middle(Y)) if self.robust else FLOOR * total
        return np.sqrt((1.0 - FLOOR) * within + np.where(least > 0.0, least, FLOOR * total))


def _middle(Y: Matrix) -> Vector:
    """Return the variance of a normal distribution with the same median absolute deviation."""
    with np.errstate(all="ignore"):
        off = np.abs(Y - medians(Y))
        return np.asarray((1.4826 * np.nan_to_num(medians(off))) ** 2)
