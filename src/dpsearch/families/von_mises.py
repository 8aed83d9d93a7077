"""Circular values, such as angles, hours of the day and months: von Mises' distribution on nodes.

    x | μ, κ ~ VonMises(μ, κ),    log p = κ cos(x − μ) − log 2π I₀(κ)

(Mardia & Jupp 2000, "Directional Statistics", 3.5.4) in every column, for the angle 2πx/p, where p
is the period.  Nodes are a lattice of angles around the circle and of widths κ^(−½).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import i0e, i1e

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import ParameterError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.capabilities import Gaps
from dpsearch.families.learning import FLOOR, WITHIN, sums_of
from dpsearch.families.located import Located
from dpsearch.families.restored import skipped
from dpsearch.tables.names import words_of

# The periods that words of a column's name suggest; None for 2π or 360, by the range.
_PERIODS = (
    (re.compile(r"hour|(^| )hr$"), 24.0),
    (re.compile(r"month"), 12.0),
    (re.compile(r"week ?day|day ?of ?week|(^| )dow$"), 7.0),
    (re.compile(r"(^|(?<!per) )minute$"), 60.0),  # not beats per minute
    (re.compile(r"angle|direction|phase"), None),
    (re.compile(r"bearing|heading|azimuth|(^| )dir$"), 360.0),
)
_UNIFORM = math.pi / math.sqrt(3.0)  # the standard deviation of uniform angles


@dataclass(frozen=True)
class VonMises(Located):
    """Angles and other circular values: von Mises' distribution on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of location and κ^(−½) in radians, period and the value at which a period begins (by
        default 0), and their prior; by default placed around the circle, with a period that begins
        as in the data: at 0, or half a period below 0.
    period
        The period of the values: 2π, 360, 24 for hours, 12 for months.  A scalar, or one number per
        column.  By default the one that a column's name suggests (hour, month, direction …), or 2π
        or 360, by the range.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.VonMises(period=24.0).period
    24.0
    """

    period: Any = None

    name: ClassVar[str] = "von_mises"
    kind: ClassVar[str] = "real"
    limits: ClassVar[tuple[float, float]] = (0.02, 4.0)
    parameter_names: ClassVar[tuple[str, ...]] = ("location", "width", "period", "begin")
    dimensions: ClassVar[tuple[int, ...]] = (3, 4)

    @classmethod
    def suggest_for(cls, table: Any) -> Self:
        X, names = table.matrix, table.names or ("",) * table.shape[1]
        found = tuple(_known_period(X, d, name) for d, name in enumerate(names))
        return cls(period=found).resolve(X)

    def resolve(self, X: Any) -> Self:
        if self.period is None:
            periods = tuple(_known_period(X, d, "") for d in range(X.shape[1]))
            return self.with_parameters(period=periods).resolve(X)
        per_column(self.period, X.shape[1], "period", above_zero=True)
        return super().resolve(X)

    def _periods(self, n_features: int) -> Vector:
        return per_column(self.period, n_features, "period", above_zero=True)

    def coordinate(self, X: Any) -> Any:
        return np.remainder(X * (2.0 * np.pi / self._periods(X.shape[1])), 2.0 * np.pi)

    def ends(self, d: int, coordinate: Vector) -> tuple[float, float]:
        return 0.0, 2.0 * np.pi

    def around(self, coordinate: Vector) -> Vector:
        turns = np.array([-2.0 * np.pi, 0.0, 2.0 * np.pi])
        return np.asarray(np.add.outer(turns, coordinate).reshape(-1))

    def further(self, d: int, x: Vector) -> tuple[float, ...]:
        periods = np.ravel(self.period)
        period = float(periods[d % len(periods)])
        low, high = (x.min(), x.max()) if len(x) else (0.0, 0.0)
        if (low >= 0.0 and high < period) or high - low > period:
            return period, 0.0
        if low >= -0.5 * period and high <= 0.5 * period:
            return period, -0.5 * period
        return period, float(low + high - period) / 2.0  # for example months from 1 to 12

    def _spread(self, Y: Matrix, labels: Ints | None) -> Vector:
        """Return κ^(−½) from the mean resultant length within clusters (Mardia & Jupp, 5.3.9)."""
        if labels is None:
            whole = np.zeros(len(Y), np.int64)
            return np.asarray(math.sqrt(WITHIN) * np.minimum(self._spread(Y, whole), _UNIFORM))
        counts, cosines = sums_of(np.cos(Y), labels)
        sines = sums_of(np.sin(Y), labels).sums
        squares = np.maximum(cosines**2 + sines**2 - counts, 0.0)  # n²R² without its bias
        pairs = np.maximum(counts * (counts - 1.0), 1.0)
        share = np.sqrt(
            (squares / pairs * counts).sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
        )
        share = np.clip((1.0 - FLOOR**2) * share, 0.02, 1.0)
        return np.asarray(1.0 / np.sqrt(share * (2.0 - share**2) / (1.0 - share**2)))

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        angles, width, period = theta.T[:3]
        kappa, turn = width**-2.0, 2.0 * np.pi / period
        cosines = np.cos(turn * x[:, None] - angles)
        return np.asarray(kappa * (cosines - 1.0) - np.log(period * i0e(kappa)))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        return _values(rng.vonmises(theta[:, 0], theta[:, 1] ** -2.0), theta)

    def expected(self, theta: Matrix) -> Vector:
        return _values(theta[:, 0], theta)

    def _centre(self, theta: Matrix, weights: Vector) -> float:
        return float(_values(np.angle(_resultant(theta, weights)), theta[:1])[0])

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        out = super().posterior(row, n_features)
        centres = [self._centre(*own) for own in self._posteriors(row, n_features)]
        return out | {"location": np.array(centres) * 2.0 * np.pi / out["period"]}

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps:
        """A gap gets the mean direction over the clusters."""

        def fill(X: Any, weights: Matrix) -> Matrix:
            found = [self._posteriors(row, n_features) for row in rows]
            angles = np.angle(weights @ [[_resultant(*own) for own in row] for row in found])
            columns = zip(angles.T, found[0], strict=True)
            filled = np.stack([_values(own, theta[:1]) for own, (theta, _) in columns], axis=1)
            return np.where(np.isnan(X), filled, X)

        return Gaps(skipped(self, rows, n_features).log_densities, fill)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.vonmises(0.5, 2.0, 12), rng.vonmises(-1.0, 8.0, 12)])
        degrees = np.remainder(np.degrees(X), 360.0)
        return [Example(cls(), X), Example(cls(period=[360.0, 360.0]), with_holes(degrees))]


def _values(angles: Any, theta: Matrix) -> Vector:
    """Return angles as values of the nodes' period, from the value where it begins."""
    period, begin = theta[:, 2], theta[:, 3] if theta.shape[1] > 3 else 0.0
    return np.asarray(begin + np.remainder(angles * period / (2.0 * np.pi) - begin, period))


def _resultant(theta: Matrix, weights: Vector) -> complex:
    """Return E[exp(ix)] of the predictive, whose argument is the mean direction (3.5.31)."""
    kappa = theta[:, 1] ** -2.0
    return complex(weights * i1e(kappa) / i0e(kappa) @ np.exp(1j * theta[:, 0]))


def named_period(name: str, low: float, high: float) -> float | None:
    """Return the period that a column's name and range suggest; None if they suggest none."""
    words = words_of(name).lower()
    periods = [period for pattern, period in _PERIODS if pattern.search(words)]
    periods = [2.0 * math.pi, 360.0] if periods[:1] == [None] else periods[:1]
    return next((p for p in periods if p is not None and -0.5 * p <= low and high <= p), None)


def _known_period(X: Any, d: int, name: str) -> float:
    """Return the period by the name or the range of column d; raise if neither suggests one."""
    x = X[~np.isnan(X[:, d]), d]
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 0.0)
    found = named_period(name, low, high)
    if found is None:
        found = named_period("angle", low, high)
        hours_or_months = found == 360.0 and max(-low, high) <= 24.0
        found = None if hours_or_months else found
    if found is None:
        raise ParameterError.of(
            "period",
            f"must be given for the von_mises family, because the column ranges from {low:g} to"
            f" {high:g} and has no name such as hour, month or direction: VonMises(period=24.0) is"
            " for hours",
            column=d,
        )
    return found
