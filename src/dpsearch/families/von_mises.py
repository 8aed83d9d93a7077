"""Angles, hours of the day, months: von Mises' distribution in every column, by nodes.

    x | μ, κ ~ VonMises(μ, κ),    log p = κ cos(x − μ) − log 2π I₀(κ)

(Mardia & Jupp 2000, "Directional Statistics", 3.5.4) of the angle 2πx/p, where p is the period.
Nodes are a lattice of angles, all around, and of widths κ^(−½).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import i0e

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.learning import FLOOR, WITHIN, sums_of
from dpsearch.families.located import Located

_UNIFORM = math.pi / math.sqrt(3.0)  # the standard deviation of angles all around


@dataclass(frozen=True)
class VonMises(Located):
    """Angles and other numbers that go round: von Mises' distribution on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of location, κ^(−½) in radians and period, and their prior; by default placed all
        around.
    period
        After which values begin again: 2π, 360, 24 for hours, 12 for months.  A scalar, or one
        number per column.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.VonMises(period=24.0).period
    24.0
    """

    period: Any = 2.0 * np.pi

    name: ClassVar[str] = "von_mises"
    kind: ClassVar[str] = "real"
    limits: ClassVar[tuple[float, float]] = (0.02, 4.0)
    parameter_names: ClassVar[tuple[str, ...]] = ("location", "width", "period")

    def resolve(self, X: Any) -> Self:
        per_column(self.period, X.shape[1], "period", above_zero=True)
        return super().resolve(X)

    def _periods(self, n_features: int) -> Vector:
        return per_column(self.period, n_features, "period", above_zero=True)

    def coordinate(self, X: Any) -> Any:
        return np.remainder(X * (2.0 * np.pi / self._periods(X.shape[1])), 2.0 * np.pi)

    def ends(self, d: int, coordinate: Vector) -> tuple[float, float]:
        return 0.0, 2.0 * np.pi

    def further(self, d: int, x: Vector) -> tuple[float, ...]:
        periods = np.ravel(self.period)
        return (float(periods[d % len(periods)]),)

    def _spread(self, Y: Matrix, labels: Ints | None) -> Vector:
        """Width κ^(−½) by the mean resultant length within clusters (Mardia & Jupp, 5.3.9)."""
        if labels is None:
            whole = np.zeros(len(Y), np.int64)
            return np.asarray(math.sqrt(WITHIN) * np.minimum(self._spread(Y, whole), _UNIFORM))
        counts, cosines = sums_of(np.cos(Y), labels)
        sines = sums_of(np.sin(Y), labels).sums
        squares = np.maximum(cosines**2 + sines**2 - counts, 0.0)  # n²R² less what chance adds
        pairs = np.maximum(counts * (counts - 1.0), 1.0)
        share = np.sqrt(
            (squares / pairs * counts).sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
        )
        share = np.clip((1.0 - FLOOR**2) * share, 0.02, 1.0)
        return np.asarray(1.0 / np.sqrt(share * (2.0 - share**2) / (1.0 - share**2)))

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        angles, width, period = theta.T
        kappa, turn = width**-2.0, 2.0 * np.pi / period
        cosines = np.cos(turn * x[:, None] - angles)
        return np.asarray(kappa * (cosines - 1.0) - np.log(period * i0e(kappa)))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        angles = np.remainder(rng.vonmises(theta[:, 0], theta[:, 1] ** -2.0), 2.0 * np.pi)
        return np.asarray(angles * theta[:, 2] / (2.0 * np.pi))

    def expected(self, theta: Matrix) -> Vector:
        return theta[:, 0] * theta[:, 2] / (2.0 * np.pi)

    def _centre(self, theta: Matrix, weights: Vector) -> float:
        kappa = theta[:, 1] ** -2.0
        angle = np.arctan2(
            weights * kappa @ np.sin(theta[:, 0]), weights * kappa @ np.cos(theta[:, 0])
        )
        return float(np.remainder(angle, 2.0 * np.pi) * theta[0, 2] / (2.0 * np.pi))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.vonmises(0.5, 2.0, 12), rng.vonmises(-1.0, 8.0, 12)])
        hours = np.remainder(X * 24.0 / (2.0 * np.pi), 24.0)
        return [Example(cls(), X), Example(cls(period=[24.0, 24.0]), with_holes(hours))]
