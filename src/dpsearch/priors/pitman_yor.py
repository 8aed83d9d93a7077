"""The Pitman–Yor process: cluster sizes with a power-law tail.

    p(c) = Π_{i=1}^{K−1} (α + iσ) / (α + 1)^(N−1) · Π_k (1 − σ)^(n_k − 1)     (Pitman & Yor 1997)

with x^(n) the rising factorial, discount 0 ≤ σ < 1 and α > −σ.  σ = 0 is the Dirichlet process.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Ints, Vector
from dpsearch.errors import ParameterError
from dpsearch.priors.base import Prior
from dpsearch.priors.concentration import Concentration, FixedConcentration, log_gamma_ratio


@dataclass(frozen=True)
class PitmanYor(Prior):
    """Pitman–Yor process with concentration `alpha` and `discount`.

    Examples
    --------
    >>> from dpsearch.priors import DirichletProcess, PitmanYor
    >>> sizes = [3, 2, 1]
    >>> a, b = PitmanYor(2.0, 0.0), DirichletProcess(2.0)
    >>> round(a.log_probability(sizes) - b.log_probability(sizes), 9)
    0.0
    """

    alpha: float = 1.0
    discount: float = 0.25

    name: ClassVar[str] = "pitman_yor"
    consistent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("alpha", "discount"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise ParameterError.must(name, "be a number", value)
        if not 0.0 <= self.discount < 1.0:
            raise ParameterError.must("discount", "be at least 0 and below 1", self.discount)
        if not (math.isfinite(self.alpha) and self.alpha > -self.discount):
            wanted = f"be finite and above -discount = {-self.discount}"
            raise ParameterError.must("alpha", wanted, self.alpha)

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        most_clusters = n_points if most_clusters is None else most_clusters
        steps = np.log(self.alpha + self.discount * np.arange(1, most_clusters))
        out = np.concatenate([[0.0, 0.0], np.cumsum(steps)])[: most_clusters + 1]
        out[1:] -= float(log_gamma_ratio(self.alpha, n_points))
        return out

    def log_w(self, sizes: Ints) -> Vector:
        sizes = np.maximum(sizes, 1)
        return np.asarray(gammaln(sizes - self.discount) - math.lgamma(1.0 - self.discount))

    def size_discount(self) -> float:
        return float(self.discount)

    def sticks(self, n: int) -> tuple[Vector, Vector]:
        """Return Beta(1 − σ, α + kσ) (Pitman & Yor 1997)."""
        ranks = np.arange(1, n + 1)
        return np.full(n, 1.0 - self.discount), np.asarray(self.alpha + self.discount * ranks)

    def concentration(self) -> Concentration:
        return FixedConcentration(self.alpha)
