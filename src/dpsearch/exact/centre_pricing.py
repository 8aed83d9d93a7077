"""Exact pricing of clusters of normal points with known noise, in any dimension."""

from __future__ import annotations

import math
import time

import numpy as np

from dpsearch._special import LOG_2PI
from dpsearch._types import Labels, Vector
from dpsearch.bounds import EPSILON
from dpsearch.exact._centre_boxes import Found, Nodes, Room, Space, explore
from dpsearch.exact.neighbours import neighbour_prices
from dpsearch.exact.pricing import RAISE, Explored, Pricer, Raised, Run
from dpsearch.exact.slopes import is_convex
from dpsearch.families.statistics import NormalMeans
from dpsearch.problem import Problem

_WORK = 2_000_000  # points looked at between two looks at the clock
_STACK = 2000  # nodes: two for each level of a branch
_ROOM = 64  # open lists that the arena holds at full length, and sets that are found at a time


class CentrePricer(Pricer):
    """Branch and bound over boxes of the cluster's centre; see `_centre_boxes`."""

    def __init__(self, problem: Problem, statistic: NormalMeans, lam: float) -> None:
        self.space = space = _space(statistic, float(lam) + problem.size_weights())
        away = space.x - space.mu
        pull = (space.tau / (1.0 + space.tau) * away * away).sum(axis=1)
        super().__init__(problem, lam, space.g[1] - 0.5 * pull)
        # The prior's pull on the mean, at most ½ min(n, τ) (x̄ − μ)² in each column.
        farthest = np.minimum(space.tau, self.n) * (away * away).max(axis=0)
        self._magnitude = 0.5 * float((space.x**2).sum() + farthest.sum())
        self._magnitude += float(np.abs(space.g[1:]).max())
        self._memory: tuple[Nodes, Room, Found] | None = None

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        # The bound on a range of sizes takes log W to be convex, as it is for every prior here.
        return is_convex(problem.size_weights())

    def fit(self, labels: Labels) -> Vector:
        """Return −½|x − m|², m the posterior mean of the point's cluster."""
        x, tau, mu = self.space.x, self.space.tau, self.space.mu
        sums = np.zeros((int(labels.max()) + 1, x.shape[1]))
        np.add.at(sums, labels, x)
        means = (sums + tau * mu) / (np.bincount(labels)[:, None] + tau)
        off = x - means[labels]
        out: Vector = -0.5 * (off * off).sum(axis=1)
        return out

    def quick(self, *, deadline: float = math.inf) -> Vector | None:
        return neighbour_prices(self.space.x, self.space.g, deadline)

    def rounding(self, y: Vector) -> float:
        return 2.0 * EPSILON * (self._magnitude + float(np.abs(y).sum()))

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Raised:
        threshold = max(threshold, 6.0 * self.rounding(y))
        columns = [np.array([i]) for i in np.flatnonzero(self.alone > y)]
        raised = np.maximum(y, self.alone)
        # One run is fast and overlooks some sets: a point that was worth having in a box stays in
        # its sub-boxes when its price has risen since.  So it only prepares for pricing.
        run = Run(RAISE, threshold, threshold, deadline, limit=max_columns)
        columns += [members for _, members in self.explore(raised, run).sets]
        n_raised = 0
        while True:
            priced = self.price(
                raised, threshold=threshold, max_columns=max_columns, deadline=deadline
            )
            for members in priced.columns:
                over = self.log_weight(members) - float(raised[members].sum())
                if over > 0.0:
                    raised[members] += over / len(members)
                    columns.append(members)
                    n_raised += 1
            if not priced.columns or not priced.complete or n_raised >= max_columns:
                complete = priced.complete and not priced.columns
                return Raised(raised, priced.bound, columns, complete)

    def explore(self, y: Vector, run: Run) -> Explored:
        if self.n < 2:
            return Explored([], np.array([-math.inf]), -math.inf)
        sets = []
        nodes, room, found = self._begin()
        rounding, done = self.rounding(y), False
        while not done:
            done = explore(
                self.space, y, nodes, found, room, run.mode, run.floor, run.margin, rounding, _WORK
            )
            for k in range(found.count[1]):
                members = found.members[found.indptr[k] : found.indptr[k + 1]]
                sets.append((float(found.values[k]), np.sort(members)))
            found.count[1] = 0
            if len(sets) > run.limit or time.perf_counter() > run.deadline:
                break
        # What was given up, and what is still on the stack.
        left = np.append(nodes.bound[: found.count[0]], found.level[1])
        return Explored(sets, left, -math.inf)

    def _begin(self) -> tuple[Nodes, Room, Found]:
        """Return working space with one node on the stack, which holds every set."""
        if self._memory is None:
            self._memory = _memory(*self.space.x.shape)
        nodes, room, found = self._memory
        corners = np.vstack([self.space.x, self.space.mu])
        low, high = corners.min(axis=0), corners.max(axis=0)
        nodes.centre[0] = 0.5 * (low + high)
        nodes.half[0] = 0.5 * (high - low) * (1.0 + 1e-12) + 1e-300
        nodes.sums[0] = 0.0
        nodes.integers[0] = (2, self.n, 0, self.n, 0, -1, 0, 0)
        nodes.bound[0] = math.inf
        nodes.arena[: self.n] = np.arange(self.n)
        found.count[:] = (1, 0, 0, 0)
        found.level[:] = -math.inf
        return nodes, room, found


def _space(statistic: NormalMeans, log_w: Vector) -> Space:
    """Return the points, centred, and g(n) from λ + log W(n)."""
    points, tau = statistic.points, np.ascontiguousarray(statistic.precision)
    n, n_columns = points.shape
    shift = points.mean(axis=0)
    sizes = np.arange(n + 1, dtype=np.float64)
    g = log_w - 0.5 * n_columns * LOG_2PI * sizes
    g = g - 0.5 * np.log1p(sizes[:, None] / tau).sum(axis=1)
    steps = np.diff(g)[1:]  # from n to n + 1, for n = 1 … N − 1
    step_high = np.full(n + 1, -np.inf)
    step_low = np.full(n + 1, np.inf)
    if n > 1:
        step_high[1:n] = np.maximum.accumulate(steps)
        step_low[1:n] = np.minimum.accumulate(steps[::-1])[::-1]
        step_high[n] = step_high[n - 1]
    return Space(np.ascontiguousarray(points - shift), tau, -shift, g, step_high, step_low)


def _memory(n: int, n_columns: int) -> tuple[Nodes, Room, Found]:
    nodes = Nodes(
        centre=np.empty((_STACK, n_columns)),
        half=np.empty((_STACK, n_columns)),
        sums=np.empty((_STACK, n_columns + 1)),
        integers=np.empty((_STACK, 8), np.int64),
        bound=np.empty(_STACK),
        arena=np.empty(_ROOM * n + 4096, np.int64),
        inside=np.empty(n, np.int64),
    )
    room = Room(
        centre=np.empty(n_columns),
        half=np.empty(n_columns),
        total=np.empty(n_columns),
        trial=np.empty(n_columns),
        slope=np.empty(n_columns),
        width=np.empty(n_columns),
        value=np.empty(n),
        spread=np.empty(n),
        far=np.empty(n),
        chosen=np.empty(n, np.int64),
    )
    found = Found(
        members=np.empty(_ROOM * n, np.int64),
        indptr=np.zeros(10 * _ROOM + 1, np.int64),
        values=np.empty(10 * _ROOM),
        count=np.zeros(4, np.int64),
        level=np.empty(2),
    )
    return nodes, room, found
