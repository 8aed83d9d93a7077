"""Pricing: which cluster is worth more than its points cost?

For a prior whose log V(K) = v₀ + λK (the Dirichlet process: λ = log α), a partition's log joint is
v₀ plus the sum of its clusters' weights

    log w(C) = λ + log W(|C|) + log H(x_C),

a maximum-weight set partitioning.  Prices y, one per point, with y(C) = Σ_{n∈C} y_n ≥ log w(C) for
every cluster C are a feasible dual: v₀ + Σ_n y_n bounds every partition.  A pricer finds
max over C of log w(C) − y(C), exactly or from above, and the sets that break the prices.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Vector
from dpsearch.items import log_marginals
from dpsearch.problem import Problem

# What a run is for: the largest violation; prices raised until none is left; or all sets.
LARGEST, RAISE, ALL = range(3)


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


class Run(NamedTuple):
    """What to look for among sets of two and more points.

    floor
        Sets with log w(C) − y(C) above it are wanted.
    level
        What is known to be reached.
    margin
        How much the removal or joining of a point can gain at a set that is wanted.
    limit
        More sets than this end the run.
    """

    mode: int  # in mode RAISE, prices change
    floor: float
    level: float
    deadline: float
    margin: float = 0.0
    limit: float = math.inf


class Explored(NamedTuple):
    """Sets of two and more points that a run found.

    left
        [n]: a bound on sets of n points that were not looked at; −∞ if all were.
    level
        What no other set exceeds.
    """

    sets: list[tuple[float, Ints]]
    left: Vector
    level: float

    @property
    def complete(self) -> bool:
        return bool((self.left == -math.inf).all())


class Pricer(ABC):
    """Prices the clusters of one problem over single points.

    Parameters
    ----------
    problem, lam
        `lam` is the weight λ of a cluster.
    alone
        log w of each point on its own.
    """

    def __init__(self, problem: Problem, lam: float, alone: Vector) -> None:
        self.problem = problem
        self.lam = float(lam)
        self.n = problem.n_items
        self.log_w: Vector = problem.size_weights()
        self.alone = alone

    @abstractmethod
    def fit(self, labels: Labels) -> Vector:
        """Say how well each point fits its cluster; up to a constant per cluster, first prices."""

    @abstractmethod
    def rounding(self, y: Vector) -> float:
        """What sums over a cluster can be off by, in double precision."""

    @abstractmethod
    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Raised:
        """Raise prices until no set exceeds `threshold`, stopping at `max_columns` sets."""

    @abstractmethod
    def explore(self, y: Vector, run: Run) -> Explored:
        """Look for sets by branch and bound."""

    def quick(self, *, deadline: float = math.inf) -> Vector | None:
        """Return prices that pay for every set, found without branch and bound, if it can."""
        return None

    def log_weight(self, members: Ints) -> float:
        """Return λ + log W(|C|) + log H(x_C), without the family's `log_base`."""
        outside = np.ones(self.n, np.int64)
        outside[members] = 0
        pool, sizes = self.problem.model.rows(self.problem.items, outside, 2)
        marginal = float(log_marginals(self.problem.model.core, pool, 1)[0])
        return self.lam + float(self.log_w[sizes[0]]) + marginal

    def price(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Priced:
        """Bound log w(C) − y(C) over all C; collect sets above `threshold`.

        Below `threshold` the bound need not be tight: where no set exceeds it, `bound` may be
        anything up to `threshold`.  `deadline` is on the clock of `time.perf_counter`.
        """
        alone = self.alone - y
        level = max(threshold, float(alone.max()))
        explored = self.explore(y.copy(), Run(LARGEST, threshold, level, deadline))
        found = explored.sets + [
            (float(alone[i]), np.array([i])) for i in np.flatnonzero(alone > threshold)
        ]
        # A set may be found again in another box.
        distinct = {members.tobytes(): (value, members) for value, members in found}
        best = sorted(distinct.values(), key=lambda pair: -pair[0])
        left = float(explored.left.max())
        bound = max(level, explored.level, left, *(value for value, _ in best[:1]))
        columns = [members for _, members in best[:max_columns]]
        return Priced(bound + self.rounding(y), columns, explored.complete)

    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float = math.inf
    ) -> list[Ints] | None:
        """Return ALL sets with log w(C) − y(C) ≥ −slack, or None: more than `limit`, or no time."""
        rounding = self.rounding(y)
        worst = self.price(y, threshold=0.0, max_columns=1, deadline=deadline)
        if not worst.complete:
            return None
        floor = -slack - rounding
        # A set within the slack from which a point is taken is worth at most the largest excess.
        margin = slack + worst.bound + 2.0 * rounding
        run = Run(ALL, floor, floor - rounding, deadline, margin, limit)
        explored = self.explore(y.copy(), run)
        columns = {members.tobytes(): members for _, members in explored.sets}
        for i in np.flatnonzero(self.alone - y >= floor):
            columns[np.array([i]).tobytes()] = np.array([i])
        return list(columns.values()) if explored.complete and len(columns) <= limit else None
