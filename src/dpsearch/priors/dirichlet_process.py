"""The Dirichlet process, with its concentration α fixed or integrated out.

    p(c | α) = α^K Π Γ(n_k) / α^(N)        (Antoniak 1974; the Chinese restaurant process)

so V(K, N) = α^K / α^(N), with α^(N) = Γ(α + N)/Γ(α), and W(n) = Γ(n).  With a Gamma prior on α
(Escobar & West 1995) W is the same and V(K, N) = ∫ α^K / α^(N) p(α) dα, one-dimensional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import gammaln

from dpsearch._special import log_gamma_table
from dpsearch._types import Ints, Vector
from dpsearch._validate import positive
from dpsearch.priors.base import Prior
from dpsearch.priors.concentration import (
    Concentration,
    FixedConcentration,
    Gamma,
    IntegratedConcentration,
    log_gamma_ratio,
    log_integral,
)

# In `_integrated_log_v`: the distance from an end that is near, and the nodes on each piece.
_NEAR = 64
_NODES = 24
_LARGEST_TABLE = 2**20


@dataclass(frozen=True)
class DirichletProcess(Prior):
    """Dirichlet process with concentration `alpha`.

    Parameters
    ----------
    alpha
        A number above 0, or a `Gamma` prior under which α is integrated out.

    Examples
    --------
    >>> from dpsearch.priors import DirichletProcess, Gamma
    >>> round(DirichletProcess(1.0).log_probability([50, 50]), 1)
    -74.6
    >>> abs(DirichletProcess(Gamma(1.0, 1.0)).log_probability([1])) < 1e-12
    True
    """

    alpha: float | Gamma = 1.0

    name: ClassVar[str] = "dirichlet_process"
    consistent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, Gamma):
            positive(self.alpha, "alpha")

    def log_w(self, sizes: Ints) -> Vector:
        sizes = np.maximum(sizes, 1)
        largest = int(sizes.max(initial=1))
        if largest > _LARGEST_TABLE:
            return np.asarray(gammaln(sizes), dtype=np.float64)
        return _log_gammas(largest.bit_length())[sizes]

    def size_discount(self) -> float:
        return 0.0

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        most_clusters = n_points if most_clusters is None else most_clusters
        if isinstance(self.alpha, Gamma):
            return _integrated_log_v(self.alpha, n_points, most_clusters).copy()
        out = np.arange(-1.0, most_clusters)
        # α^(N) = α Γ(α + N)/Γ(α + 1)
        out *= math.log(self.alpha)
        out -= float(log_gamma_ratio(self.alpha, n_points))
        out[0] = 0.0
        return out

    def sticks(self, n: int) -> tuple[Vector, Vector]:
        """Return Beta(1, α) (Sethuraman 1994), at the mean of α if α has a prior."""
        gamma = self.alpha if isinstance(self.alpha, Gamma) else None
        alpha = self.alpha if gamma is None else gamma.shape / gamma.rate
        return np.ones(n), np.full(n, float(alpha))  # type: ignore[arg-type]

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Any) -> Self:
        alpha = fields.get("alpha")
        if isinstance(alpha, Mapping):
            return cls(Gamma(**alpha))
        return super().from_fields(fields, read)

    def concentration(self) -> Concentration:
        if isinstance(self.alpha, Gamma):
            return IntegratedConcentration(self.alpha)
        return FixedConcentration(self.alpha)


@lru_cache(maxsize=1)  # consecutive problems are mostly of about the same size
def _log_gammas(bits: int) -> Vector:
    """Return log Γ(n) for n below 2^bits."""
    return log_gamma_table(0.0, 2**bits)


@lru_cache(maxsize=8)  # all mixtures of a sampler's draws need the same
def _integrated_log_v(gamma: Gamma, n_points: int, most_clusters: int) -> Vector:
    """Return log V(K, N) under a Gamma prior on α for K = 0 … most_clusters.

    As a function of K it is analytic and smooth except for K near 0 and, if the rate is small, near
    N.  So quadrature is used for every K near both ends.  Between them it is used at Chebyshev's
    nodes on pieces whose lengths double with the distance from the nearer end, where interpolation
    converges geometrically.
    """
    n_pieces = max(0, math.ceil(math.log2(most_clusters / (2 * _NEAR))))
    distances = np.minimum(_NEAR * 2.0 ** np.arange(n_pieces + 1), most_clusters / 2)
    edges = np.unique(np.concatenate([distances, most_clusters - distances]))
    if n_pieces == 0:
        edges = edges[:0]
    centres, halves = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    knots = centres[:, None] + halves[:, None] * chebyshev.chebpts1(_NODES)
    every = np.arange(1.0, most_clusters + 1.0)
    piece = np.searchsorted(edges, every, side="right") - 1
    near = (piece < 0) | (piece >= len(centres))
    values = log_integral(gamma, n_points, np.concatenate([every[near], knots.ravel()]))
    out = np.empty(most_clusters)
    out[near] = values[: near.sum()]
    heights = values[near.sum() :].reshape(-1, _NODES)
    for p, (centre, half) in enumerate(zip(centres, halves, strict=True)):
        inside = piece == p
        out[inside] = _interpolated(heights[p], (every[inside] - centre) / half)
    return np.concatenate([[0.0], out])


def _interpolated(heights: Vector, x: Vector) -> Vector:
    """Return the values at x of the polynomial that has these heights at Chebyshev's nodes.

    A line is subtracted first, since the sum of polynomials loses digits.
    """
    nodes = chebyshev.chebpts1(_NODES)
    slope = (heights[-1] - heights[0]) / (nodes[-1] - nodes[0])
    residuals = heights - heights[0] - slope * (nodes - nodes[0])
    transform = chebyshev.chebvander(nodes, _NODES - 1).T * (2.0 / _NODES)
    transform[0] *= 0.5
    line = heights[0] + slope * (x - nodes[0])
    return np.asarray(line + chebyshev.chebval(x, transform @ residuals))
