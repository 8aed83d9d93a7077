"""Shares between 0 and 1: a beta distribution in every column, mean and precision by nodes.

    x | m, φ ~ Beta(mφ, (1 − m)φ),    variance m(1 − m)/(φ + 1)

(Ferrari & Cribari-Neto 2004, "Beta regression for modelling rates and proportions").  The standard
deviation of the angle 2 arcsin √x is about (φ + 1)^(−½) for every m, so nodes are a lattice in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.located import Located

_NEAREST = 0.05  # the distance of the outermost means from 0 and π, as angles


@dataclass(frozen=True)
class Beta(Located):
    """Shares between 0 and 1: a beta distribution with its mean and precision on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of mean and (φ + 1)^(−½), where φ is the precision, and their prior; by default placed
        where the data are.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Beta([[0.2, 0.5], [0.7, 0.5]]).nodes
    ((0.2, 0.5), (0.7, 0.5))
    """

    name: ClassVar[str] = "beta"
    kind: ClassVar[str] = "real"
    limits: ClassVar[tuple[float, float]] = (1e-4, 0.95)
    parameter_names: ClassVar[tuple[str, ...]] = ("mean", "width")
    dimensions: ClassVar[tuple[int, ...]] = (2,)

    def check(self, X: Any) -> None:
        self.check_support(X, ~((X > 0.0) & (X < 1.0)), "numbers above 0 and below 1")

    def coordinate(self, X: Any) -> Any:
        angle = 2.0 * np.arcsin(np.sqrt(np.where((X > 0.0) & (X < 1.0), X, np.nan)))
        return np.clip(angle, _NEAREST, np.pi - _NEAREST)

    def location(self, coordinate: Vector) -> Vector:
        return np.sin(0.5 * coordinate) ** 2

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        a, b = _shapes(theta)
        logs = (a - 1.0) * np.log(x)[:, None] + (b - 1.0) * np.log1p(-x)[:, None]
        return np.asarray(logs - betaln(a, b))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        return np.clip(rng.beta(*_shapes(theta)), np.finfo(float).tiny, np.nextafter(1.0, 0.0))

    def expected(self, theta: Matrix) -> Vector:
        return theta[:, 0]

    @classmethod
    def examples(cls) -> list[Example]:
        X = np.random.default_rng(0).beta([2.0, 4.0], [3.0, 1.5], size=(12, 2))
        return [Example(cls(), X), Example(cls(), with_holes(X))]


def _shapes(theta: Matrix) -> tuple[Vector, Vector]:
    precision = theta[:, 1] ** -2.0 - 1.0
    return theta[:, 0] * precision, (1.0 - theta[:, 0]) * precision
