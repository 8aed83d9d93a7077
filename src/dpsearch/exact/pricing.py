"""Pricing: find the cluster whose weight exceeds the price of its points the most.

For a prior with log V(K) = v₀ + λK (for the Dirichlet process λ = log α), a partition's log joint
is v₀ plus the sum of its clusters' weights

    log w(C) = λ + log W(|C|) + log H(x_C),

so that finding the best partition is a maximum-weight set partitioning problem.  Prices y, one per
point, with y(C) = Σ_{n∈C} y_n ≥ log w(C) for every cluster C are a feasible dual solution:
v₀ + Σ_n y_n bounds every partition.  A pricer finds max over C of log w(C) − y(C), or an upper
bound of it, and sets that break the prices: sets with log w(C) > y(C).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Ints, Labels, Vector
from dpsearch.items import log_marginals
from dpsearch.problem import Problem

# The purpose of a run: to find the largest violation, to raise prices until there is none, or to
# list all sets.
LARGEST, RAISE, ALL = range(3)
NO_TRIPLES: Ints = np.zeros((0, 3), np.int64)
_SETS = 640  # capacity for sets that a kernel returns at a time


class Priced(NamedTuple):
    """Prices, and what pricing has proved and found.

    y
        The prices, raised if the call was to raise them.
    bound
        Every non-empty C has log w(C) − y(C) ≤ bound, with an allowance for rounding.
    columns
        Members (increasing) of sets that broke the prices.
    complete
        False if the run was stopped early; the bound is then valid but loose.
    """

    y: Vector
    bound: float
    columns: list[Ints]
    complete: bool


class Run(NamedTuple):
    """What to look for among sets of at least two points.

    floor
        Sets with log w(C) − y(C) above it are recorded.
    level
        A value that some set is known to reach.
    rounding
        The rounding error of log w(C) − y(C).
    margin
        How much a recorded set can gain by adding or removing a point.
    limit
        The run ends when more sets than this are found.
    """

    mode: int  # in mode RAISE, prices change
    floor: float
    level: float
    rounding: float
    deadline: float
    margin: float = 0.0
    limit: float = math.inf


class Found(NamedTuple):
    """Sets that a kernel has found, and the state of its search."""

    members: Any  # int8 [set, point]
    values: Vector
    count: Any  # int64 [3]: nodes on the stack, sets found, times prices were raised
    level: Vector  # [2]: what a node must exceed; the largest bound of a node that was given up


class Explored(NamedTuple):
    """Distinct sets that a run found, with their values; sets of one point may be missing.

    left
        Bounds on the sets that were not examined; −∞ if all were.
    level
        No other set exceeds this value.
    """

    sets: list[tuple[float, Ints]]
    left: Vector
    level: float

    @property
    def complete(self) -> bool:
        return bool((self.left == -math.inf).all())


class Pricer(ABC):
    """Price the clusters of one problem over single points, by branch and bound.

    Parameters
    ----------
    problem, lam
        `lam` is the weight λ of a cluster.
    alone
        log w of each point on its own.
    triples
        Three points each, in increasing order.  A set with two or three of them pays the toll of
        the triple; tolls follow the prices of the points in y.
    """

    def __init__(
        self, problem: Problem, lam: float, alone: Vector, triples: Ints = NO_TRIPLES
    ) -> None:
        self.problem = problem
        self.lam = float(lam)
        self.n = problem.n_items
        self.log_w: Vector = problem.size_weights()
        self.alone = alone
        self.triples = triples

    def with_triples(self, triples: Ints) -> Pricer | None:
        """Return a pricer with these triples, or None if it cannot price sets with tolls."""
        return None

    def items(self, members: Ints) -> Ints:
        """Return what a set pays for: its points, and the triples of which it has two or three."""
        inside = np.zeros(self.n, bool)
        inside[members] = True
        paid = np.flatnonzero(inside[self.triples].sum(axis=1) >= 2)
        return np.append(members, self.n + paid) if len(paid) else members

    def worth(self, members: Ints, y: Vector) -> float:
        """Return the weight of a set minus its price."""
        return self.log_weight(members) - float(y[self.items(members)].sum())

    @abstractmethod
    def fit(self, labels: Labels) -> Vector:
        """Return how well each point fits its cluster: a first price, up to a constant for each."""

    @abstractmethod
    def rounding(self, y: Vector) -> float:
        """Return the rounding error of sums over a cluster in double precision."""

    @abstractmethod
    def explore(self, y: Vector, run: Run) -> Explored:
        """Look for sets until all are examined, or the run's limit or deadline is reached.

        The result's `left` has a bound for each size of sets, which `raise_prices` below relies on.
        """

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Priced:
        """Raise prices until no set exceeds `threshold`, stopping at `max_columns` sets."""
        rounding = self.rounding(y)
        threshold = max(threshold, 4.0 * rounding)
        raised, columns, explored = self._raise_in_one_run(y, threshold, max_columns, deadline)
        # If time ran out, the n points of a set share what sets of this size may still lack.
        share = max(float((explored.left[1:] / np.arange(1, self.n + 1)).max()), 0.0)
        if share == math.inf:
            return Priced(raised, math.inf, columns, False)
        return Priced(raised + share, explored.level + rounding, columns, explored.complete)

    def near(self, columns: list[Ints], y: Vector, threshold: float) -> list[Ints]:
        """Return some sets above the threshold that are found quickly near the given ones."""
        return []

    def quick(self, *, deadline: float = math.inf) -> Vector | None:
        """Return prices that pay for every set, found without branch and bound, or None."""
        return None

    def log_weight(self, members: Ints) -> float:
        """Return λ + log W(|C|) + log H(x_C), without the family's `log_base`."""
        outside = np.ones(self.n, np.int64)
        outside[members] = 0
        pool, sizes = self.problem.model.rows(self.problem.items, outside, 2)
        marginal = float(log_marginals(self.problem.model.core, pool, 1)[0])
        return self.lam + float(self.log_w[sizes[0]]) + marginal

    def price(
        self,
        y: Vector,
        *,
        threshold: float,
        max_columns: int,
        deadline: float = math.inf,
        limit: float = math.inf,
    ) -> Priced:
        """Bound log w(C) − y(C) over all C; collect distinct sets above `threshold`, best first.

        If no set exceeds `threshold`, `bound` may be any value up to `threshold`.  `deadline` is a
        time of `clock`.  The run ends once more than `limit` such sets are found.
        """
        alone, rounding = self.alone - y[: self.n], self.rounding(y)
        level = max(threshold, float(alone.max()))
        run = Run(LARGEST, threshold, level, rounding, deadline, limit=limit)
        explored = self.explore(y.copy(), run)
        found = [one for one in explored.sets if len(one[1]) > 1]
        found += [(float(alone[i]), np.array([i])) for i in np.flatnonzero(alone > threshold)]
        best = sorted(found, key=lambda pair: -pair[0])
        left = float(explored.left.max())
        bound = max(level, explored.level, left, *(value for value, _ in best[:1]))
        columns = [members for _, members in best[:max_columns]]
        return Priced(y, bound + rounding, columns, explored.complete)

    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float = math.inf
    ) -> list[Ints] | None:
        """Return all sets with log w(C) − y(C) ≥ −slack; None for more than `limit` or no time."""
        rounding = self.rounding(y)
        worst = self.price(y, threshold=0.0, max_columns=1, deadline=deadline)
        if not worst.complete:
            return None
        floor = -slack - rounding
        # From at least −slack, a set that gains or loses a point can rise to the bound at most.
        margin = slack + worst.bound + 2.0 * rounding
        run = Run(ALL, floor, floor - rounding, rounding, deadline, margin, float(limit))
        explored = self.explore(y.copy(), run)
        # Sets of one point are examined separately, but may also be the best of a box.
        columns = [members for _, members in explored.sets if len(members) > 1]
        columns += [np.array([i]) for i in np.flatnonzero(self.alone - y[: self.n] >= floor)]
        return columns if explored.complete and len(columns) <= limit else None

    def _raise_in_one_run(
        self, y: Vector, threshold: float, max_columns: int, deadline: float
    ) -> tuple[Vector, list[Ints], Explored]:
        """Return raised prices, the sets that broke them, and the result of the run."""
        raised = y.copy()
        raised[: self.n] = np.maximum(y[: self.n], self.alone)
        rounding = self.rounding(raised)
        run = Run(RAISE, threshold, threshold, rounding, deadline, limit=float(max_columns))
        explored = self.explore(raised, run)
        columns = [np.array([i]) for i in np.flatnonzero(self.alone > y[: self.n])]
        return raised, columns + [members for _, members in explored.sets], explored


class StackPricer(Pricer):
    """A pricer whose kernel works on a stack of nodes."""

    @abstractmethod
    def _begin(self, y: Vector, run: Run, found: Found) -> None:
        """Put nodes that cover all sets on the stack."""

    @abstractmethod
    def _work(self, y: Vector, run: Run, found: Found) -> None:
        """Work on the stack for a limited time."""

    @abstractmethod
    def _left(self, found: Found) -> Vector:
        """Return the bounds of the nodes on the stack and of those that were given up."""

    def explore(self, y: Vector, run: Run) -> Explored:
        """Look for sets until the stack is empty, or the run's limit or deadline is reached."""
        sets: dict[bytes, tuple[float, Ints]] = {}  # a set may be found in several boxes
        found = Found(
            members=np.empty((_SETS, self.n), np.int8),
            values=np.empty(_SETS),
            count=np.zeros(3, np.int64),
            level=np.array([run.level, -math.inf]),
        )
        self._begin(y, run, found)
        enough = False
        while found.count[0] > 0 and not enough:
            self._work(y, run, found)
            for k in range(found.count[1]):
                members = np.flatnonzero(found.members[k])
                sets[members.tobytes()] = (float(found.values[k]), members)
            found.count[1] = 0
            enough = len(sets) > run.limit or clock() > run.deadline
        return Explored(list(sets.values()), self._left(found), float(found.level[0]))
