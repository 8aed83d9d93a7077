"""Pricing: which cluster is worth more than its points cost?

For a prior whose log V(K) = v₀ + λK (the Dirichlet process: λ = log α), a partition's log joint is
v₀ plus the sum of its clusters' weights

    log w(C) = λ + log W(|C|) + log H(x_C),

a maximum-weight set partitioning.  Prices y, one per point, with y(C) = Σ_{n∈C} y_n ≥ log w(C) for
every cluster C are a feasible dual: v₀ + Σ_n y_n bounds every partition.  A pricer finds
max over C of log w(C) − y(C), exactly or from above, and the sets that break the prices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Labels, Vector
from dpsearch.items import log_marginals, score_member
from dpsearch.problem import Problem

EPSILON = 2.0**-52  # of double precision


class Priced(NamedTuple):
    """What pricing has proved and found.

    bound
        Every non-empty C has log w(C) − y(C) ≤ bound.  Rounding is allowed for.
    columns
        Members (increasing) of distinct sets with log w(C) − y(C) > threshold, best first.
    complete
        False if time was up first: the bound is then valid, but loose.
    """

    bound: float
    columns: list[Ints]
    complete: bool


class Raised(NamedTuple):
    """Prices that were raised where sets broke them, as they were found.

    bound
        Every non-empty C has log w(C) − y(C) ≤ bound for the *raised* prices.
    """

    y: Vector
    bound: float
    columns: list[Ints]
    complete: bool


class Pricer(ABC):
    """Prices the clusters of one problem over single points; `lam` is the weight of a cluster."""

    def __init__(self, problem: Problem, lam: float) -> None:
        self.problem = problem
        self.lam = float(lam)
        self.n = problem.n_items
        self.log_w: Vector = problem.size_weights()

    @classmethod
    @abstractmethod
    def takes(cls, problem: Problem) -> bool:
        """Whether this pricer can handle the problem's family and data."""

    def log_weight(self, members: Ints) -> float:
        """Return λ + log W(|C|) + log H(x_C), without the family's `log_base`."""
        outside = np.ones(self.n, np.int64)
        outside[members] = 0
        pool, sizes = self.problem.model.rows(self.problem.items, outside, 2)
        marginal = float(log_marginals(self.problem.model.core, pool, 1)[0])
        return self.lam + float(self.log_w[sizes[0]]) + marginal

    def fit(self, labels: Labels) -> Vector:
        """Say how well each point fits its cluster; up to a constant per cluster, first prices."""
        pool, _ = self.problem.rows(labels)
        out: Vector = _members(self.problem.model.core, self.problem.items, labels, pool)
        return out

    @abstractmethod
    def rounding(self, y: Vector) -> float:
        """What sums over a cluster can be off by, in double precision."""

    def quick(self, *, deadline: float | None) -> Vector | None:
        """Return prices that pay for every set, found without branch and bound, if it can."""
        return None

    @abstractmethod
    def price(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Priced:
        """Bound log w(C) − y(C) over all C; collect sets above `threshold`.

        Below `threshold` the bound need not be tight: where no set exceeds it, `bound` may be
        anything up to `threshold`.  `deadline` is on the clock of `time.perf_counter`.
        """

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Raised:
        """Raise prices until no set exceeds `threshold`, stopping at `max_columns` sets.

        A pricer whose bounds stay valid while prices rise can do so in one run.
        """
        raised = y.copy()
        columns: list[Ints] = []
        while True:
            priced = self.price(
                raised, threshold=threshold, max_columns=max_columns, deadline=deadline
            )
            for members in priced.columns:
                over = self.log_weight(members) - float(raised[members].sum())
                if over > 0.0:
                    raised[members] += over / len(members)
                    columns.append(members)
            if not priced.columns or not priced.complete or len(columns) >= max_columns:
                complete = priced.complete and not priced.columns
                return Raised(raised, priced.bound, columns, complete)

    @abstractmethod
    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float | None
    ) -> list[Ints] | None:
        """Return ALL sets with log w(C) − y(C) ≥ −slack, or None: more than `limit`, or no time."""


@kernel
def _members(core, items, labels, pool):  # type: ignore[no-untyped-def]
    """Return log H(x_i | the rest of its cluster) of every item."""
    out = np.empty(labels.shape[0])
    scratch = np.empty(core.width)
    for i in range(labels.shape[0]):
        row = pool[labels[i] * core.width : (labels[i] + 1) * core.width]
        out[i] = score_member(core, items, i, row, scratch)
    return out


def pricer_for(problem: Problem, lam: float) -> Pricer | None:
    """Return a pricer for the problem's family, or None if there is none."""
    from dpsearch.exact.gaussian_pricing import GaussianPricer
    from dpsearch.exact.statistic_pricing import StatisticPricer

    for kind in (GaussianPricer, StatisticPricer):
        if kind.takes(problem):
            return kind(problem, lam)
    return None
