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
from scipy.special import gammaln

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
        return np.asarray(gammaln(np.maximum(sizes, 1)), dtype=np.float64)

    def size_discount(self) -> float:
        return 0.0

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        most_clusters = n_points if most_clusters is None else most_clusters
        if isinstance(self.alpha, Gamma):
            return _integrated_log_v(self.alpha, n_points, most_clusters).copy()
        clusters = np.arange(most_clusters + 1, dtype=np.float64)
        # α^(N) = α Γ(α + N)/Γ(α + 1)
        rising = float(log_gamma_ratio(self.alpha, n_points))
        out = (clusters - 1.0) * math.log(self.alpha) - rising
        out[0] = 0.0
        return out

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


@lru_cache(maxsize=8)  # every mixture of a sampler's draws needs the same
def _integrated_log_v(gamma: Gamma, n_points: int, most_clusters: int) -> Vector:
    """Return log V(K, N) under a Gamma prior on α for K = 0 … most_clusters.

    Quadrature for every K up to 512 and on a geometric grid beyond, a cubic spline between: the
    function is smooth in K.
    """
    if most_clusters <= 512:
        values = log_integral(gamma, n_points, np.arange(1, most_clusters + 1, dtype=np.float64))
    else:
        from scipy.interpolate import CubicSpline  # slow to import, and rarely needed

        grid = np.geomspace(512, most_clusters, 600).round()
        knots = np.unique(np.concatenate([np.arange(1.0, 513.0), grid]))
        values = log_integral(gamma, n_points, knots)
        values = CubicSpline(knots, values)(np.arange(1.0, most_clusters + 1))
    return np.concatenate([[0.0], values])
