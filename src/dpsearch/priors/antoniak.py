"""The paper's p(c): Antoniak's probability of a vector of cluster-size counts, for reproduction.

    P(m) = N!/α^(N) · α^K / Π_i i^{m_i} m_i!        (the paper's Eq. 2; Antoniak 1974, Prop. 3)

m_i is the number of clusters of size i.  P(m) is the probability of the *shape* of a partition, the
sum over all partitions of that shape.  Used as the probability of one partition it does not sum to
1 and hardly penalises splitting.  `DirichletProcess` gives the probability of one partition; this
class exists to reproduce the paper's figures.

log P(m) is log V(K) + Σ log W(n_k) − Σ_i log m_i! with V = N! α^K/α^(N) and W(n) = 1/n.  Because of
the last term only the prefix search accepts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch._validate import positive
from dpsearch.priors.base import Prior, check_sizes
from dpsearch.priors.completion import Rule, completion_room, greedy_completion
from dpsearch.priors.concentration import Concentration, FixedConcentration
from dpsearch.priors.dirichlet_process import DirichletProcess


@dataclass(frozen=True)
class AntoniakCounts(Prior):
    """P(m) of the paper's Eq. 2 with its greedy completion; not a distribution over partitions.

    Parameters
    ----------
    alpha
        Concentration, above 0.
    early_stop
        Whether the greedy completion stops as in the paper: once the largest cluster has grown and
        its next step beats a new cluster, it takes all the remaining points.

    Examples
    --------
    The paper's greedy completion is not always the best one:

    >>> prior = AntoniakCounts(1.0, early_stop=False)
    >>> greedy = prior.best_completion([1, 1, 1, 1, 4], 3)
    >>> bool(greedy < prior.log_probability([1, 1, 2, 3, 4]))
    True
    """

    alpha: float = 1.0
    early_stop: bool = True

    name: ClassVar[str] = "antoniak_counts"
    product_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(self.alpha, "alpha")

    def log_v(self, n_points: int, most_clusters: int | None = None) -> Vector:
        out = DirichletProcess(self.alpha).log_v(n_points, most_clusters)
        out[1:] += math.lgamma(n_points + 1.0)
        return out

    def log_w(self, sizes: Ints) -> Vector:
        return np.asarray(-np.log(np.maximum(sizes, 1)))

    def best_completion(self, sizes: Sequence[int] | Ints, remaining: int) -> float:
        """Return the paper's greedy completion of P(m) (its section 3.1)."""
        sizes = np.sort(check_sizes(sizes, empty=True))
        n_points = int(sizes.sum()) + remaining
        tables, room = self.tables(n_points), completion_room(n_points)
        return float(greedy_completion(tables, sizes, remaining, self.completion_rule(), room))

    def completion_rule(self) -> Rule:
        return Rule(float(self.alpha), self.early_stop)

    def concentration(self) -> Concentration:
        return FixedConcentration(self.alpha)

    def for_prediction(self) -> Prior:
        """Return the Dirichlet process, whose law of shapes P(m) is."""
        return DirichletProcess(self.alpha)
