"""Counts that vary more than Poisson's: negative binomial in every column, by nodes.

    x | m, δ:  P(x) = Γ(x + r)/(Γ(r) x!) (r/(r + m))^r (m/(r + m))^x,    r = 1/δ

with mean m and variance m + δm² (Hilbe 2011, "Negative Binomial Regression", 8.2).  Given δ a Beta
prior on m/(r + m) would be conjugate, with a log-gamma of totals at every node in every score;
with m on nodes too, a score is an inner product.  The coordinate 2 δ^(−½) arsinh √(δm) spreads by
about 1 wherever m is: for every δ nodes are a lattice in it, uniform in log m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch._validate import check_counts
from dpsearch.families._columns import means, with_holes
from dpsearch.families.base import Example
from dpsearch.families.by_nodes import ByNodes, axis_of, locations
from dpsearch.families.learning import pooled_variance, sums_of

_STEPS = np.arange(-4.0, 5.0) * 0.4  # of log δ
_DEVIATION = 0.8  # of log δ, in the prior
_LEAST, _MOST_DISPERSED = 1e-3, 20.0  # δ


@dataclass(frozen=True)
class NegativeBinomial(ByNodes):
    """Counts that vary more than Poisson's, mean and dispersion on nodes.

    Parameters
    ----------
    nodes, log_weights
        Rows of mean m and dispersion δ, where m + δm² is the variance, and their prior; by default
        placed where the data are.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.NegativeBinomial([[2.0, 0.5], [4.0, 0.5]]).nodes
    ((2.0, 0.5), (4.0, 0.5))
    """

    name: ClassVar[str] = "negative_binomial"
    kind: ClassVar[str] = "count"
    parameter_names: ClassVar[tuple[str, ...]] = ("mean", "dispersion")
    dimensions: ClassVar[tuple[int, ...]] = (2,)

    def check(self, X: Any) -> None:
        check_counts(X, self.name)

    def _placed(self, X: Any, labels: Ints | None) -> Self:
        known = np.zeros(len(X), np.int64) if labels is None else labels
        counts, _ = sums = sums_of(X, known)
        squares = (counts * sums.means**2).sum(axis=0) / np.maximum(counts.sum(axis=0), 1.0)
        excess = pooled_variance(X, known) - means(X)
        share = 1.0 if labels is not None else 0.4  # of the variance, within clusters
        dispersion = share * excess / np.where(squares > 0.0, squares, 1.0)
        found = []
        for d in range(X.shape[1]):
            x = X[~np.isnan(X[:, d]), d]
            found.append(_nodes(x if len(x) else np.zeros(1), float(max(dispersion[d], 0.05))))
        return self._with_nodes(found)

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        # Of values that are few and repeated.
        values, at = np.unique(x, return_inverse=True)
        (mean, dispersion), v = theta.T, values[:, None]
        r = 1.0 / dispersion
        rising = gammaln(v + r) - gammaln(r) - gammaln(v + 1.0)
        out = rising - r * np.log1p(mean * dispersion) + xlogy(v, mean / (r + mean))
        return np.asarray(out)[at]

    def common(self, theta: Matrix) -> tuple[float, float]:
        return 0.0, float(np.ceil(theta[:, 0].max()))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        mean, dispersion = theta.T
        rates = mean * dispersion * rng.gamma(1.0 / dispersion)
        return np.asarray(rng.poisson(rates), dtype=np.float64)

    def expected(self, theta: Matrix) -> Vector:
        return theta[:, 0]

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = rng.poisson(rng.gamma(1.5, size=(12, 2)) * [1.0, 20.0]).astype(np.float64)
        return [Example(cls(), X), Example(cls(), with_holes(X))]


def _nodes(x: Vector, typical: float) -> tuple[Matrix, Vector]:
    """Return nodes for the counts of a column whose dispersion is typically as given."""
    dispersions = np.unique(np.clip(typical * np.exp(_STEPS), _LEAST, _MOST_DISPERSED))
    roots, values = np.sqrt(dispersions), np.sqrt(np.sort(np.maximum(x, 0.05)))
    coordinates = [2.0 / root * np.arcsinh(root * values) for root in roots]
    placed = locations([axis_of(y, y[0], y[-1], 1.0) for y in coordinates])
    theta, weights = [], []
    for dispersion, root, (points, log_shares) in zip(dispersions, roots, placed, strict=True):
        mean = (np.sinh(0.5 * root * points) / root) ** 2
        # A step of y is one of √(1/m + δ) in log m.
        log_steps = 0.5 * np.log(1.0 / mean + dispersion)
        prior = -0.5 * (np.log(dispersion / typical) / _DEVIATION) ** 2
        theta.append(np.column_stack([mean, np.full(len(mean), dispersion)]))
        log_shares = log_shares + log_steps
        weights.append(prior + log_shares - logsumexp(log_shares))
    found = np.concatenate(theta)
    order = np.argsort(found[:, 0], kind="stable")
    return found[order], np.concatenate(weights)[order]
