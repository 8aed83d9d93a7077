"""Closed forms of log H, by which partitions under a family can be proved optimal.

`certify` can prove that a partition is best if log H of a cluster is a known function of its size n
and of the sum S of its points.  A family whose log H is one of the functions below may return it,
with its data, from `Family.statistic`; `certify` compares the two on sets of points before it
relies on the closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Vector
from dpsearch.families._totals import BetaTotals, DirichletTotals, GammaTotals


class NormalMeans(NamedTuple):
    """Normal points of variance 1 about a mean that is N(0, 1/τ), column by column.

    log H = ½ Σ_d [log τ_d/(n + τ_d) + S_d²/(n + τ_d)] − ½ Σ |x|² − ½ n D log 2π

    Attributes
    ----------
    points
        One row for each point, centred at the prior mean and scaled to unit noise.
    precision
        τ of each column, above 0.
    """

    points: Any
    precision: Vector

    def log_marginals(self, labels: Ints) -> Vector:
        """Return log H of each cluster that the labels name."""
        n, sums = _totals(self.points, labels)
        means, tau = sums / n, self.precision
        off = self.points - means[labels]
        scatter = np.bincount(labels, (off * off).sum(axis=1))
        pull = np.log1p(n / tau) + n * tau / (n + tau) * means * means + n * LOG_2PI
        return np.asarray(-0.5 * (pull.sum(axis=1) + scatter))


class GammaCounts(NamedTuple):
    """Poisson counts whose rate is Gamma(a, b), column by column.

    log H = Σ_d [log Γ(a_d + S_d)/Γ(a_d) − a_d log (b_d + n)/b_d − S_d log(b_d + n)]

    Attributes
    ----------
    points
        Counts, one row for each point, dense or CSR.
    shape, rate
        a and b of each column, above 0.
    """

    points: Any
    shape: Vector
    rate: Vector

    def log_marginals(self, labels: Ints) -> Vector:
        """Return log H of each cluster that the labels name."""
        n, sums = _totals(self.points, labels)
        return GammaTotals(self.shape, self.rate).log_marginals(n, sums)


class BetaCounts(NamedTuple):
    """Zeros and ones whose probability of a one is Beta(a, b), column by column.

    log H = Σ_d log B(a_d + S_d, b_d + n − S_d)/B(a_d, b_d)

    Attributes
    ----------
    points
        Zeros and ones, one row for each point, dense or CSR.
    successes, failures
        a and b of each column, above 0.
    """

    points: Any
    successes: Vector
    failures: Vector

    def log_marginals(self, labels: Ints) -> Vector:
        """Return log H of each cluster that the labels name."""
        n, sums = _totals(self.points, labels)
        return BetaTotals(self.successes, self.failures).log_marginals(n, sums)


class DirichletCounts(NamedTuple):
    """Counts of words whose probabilities are Dirichlet(a), without multinomial coefficients.

    log H = Σ_d log Γ(a_d + S_d)/Γ(a_d) − log Γ(A + Σ_d S_d)/Γ(A),   A = Σ_d a_d

    Attributes
    ----------
    points
        Counts, one row for each point, dense or CSR.
    concentrations
        a of each word, above 0.
    """

    points: Any
    concentrations: Vector

    def log_marginals(self, labels: Ints) -> Vector:
        """Return log H of each cluster that the labels name."""
        n, sums = _totals(self.points, labels)
        words = DirichletTotals(np.array([sums.shape[1]]), self.concentrations)
        return np.asarray(words.log_marginals(n[:, 0], sums))


class LevelCounts(NamedTuple):
    """Levels of columns whose probabilities are Dirichlet(a), column by column.

    log H = Σ_l log Γ(a_l + S_l)/Γ(a_l) − Σ_d log Γ(A_d + n)/Γ(A_d),   A_d = Σ_{l of d} a_l

    Attributes
    ----------
    points
        Indicators, dense or CSR: the levels of all columns side by side, a one at each of a
        point's own.
    concentrations
        a of each level, above 0.
    levels
        How many levels each column has.
    """

    points: Any
    concentrations: Vector
    levels: Ints

    def log_marginals(self, labels: Ints) -> Vector:
        """Return log H of each cluster that the labels name."""
        n, sums = _totals(self.points, labels)
        columns = DirichletTotals(self.levels, self.concentrations)
        return np.asarray(columns.log_marginals(n[:, 0], sums))


Statistic = NormalMeans | GammaCounts | BetaCounts | DirichletCounts | LevelCounts


def _totals(points: Any, labels: Ints) -> tuple[Any, Any]:
    """Return the size of each cluster [K, 1] and the sums of its points [K, D]."""
    n = len(labels)
    member = sp.csr_matrix((np.ones(n), (labels, np.arange(n))))
    sums = member @ points
    sizes = np.bincount(labels)[:, None]
    return sizes.astype(np.float64), sums.toarray() if sp.issparse(sums) else np.asarray(sums)
