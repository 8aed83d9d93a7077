"""Exact pricing of clusters under the Gaussian family with known noise, in any dimension."""

from __future__ import annotations

import math
import time

import numpy as np

from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact._gaussian_boxes import ALL, LARGEST, RAISE, Found, Nodes, Space, explore
from dpsearch.exact.neighbours import neighbour_prices
from dpsearch.exact.pricing import EPSILON, Priced, Pricer, Raised
from dpsearch.problem import Problem

_WORK = 2_000_000  # points looked at between two looks at the clock
_STACK = 2000  # nodes: two for each level of a branch
_ROOM = 64  # open lists that the arena holds at full length, and sets that are found at a time


class GaussianPricer(Pricer):
    """Branch and bound over boxes of the cluster's centre; see `_gaussian_boxes`."""

    def __init__(self, problem: Problem, lam: float) -> None:
        super().__init__(problem, lam)
        n_columns = problem.model.n_features
        points = problem.items.values.reshape(self.n, n_columns)
        shift = points.mean(axis=0)
        tau = np.ascontiguousarray(problem.model.core.params[1 : 1 + n_columns])
        sizes = np.arange(self.n + 1, dtype=np.float64)
        g = self.lam + self.log_w - 0.5 * n_columns * LOG_2PI * sizes
        g = g - 0.5 * np.log1p(sizes[:, None] / tau).sum(axis=1)
        steps = np.diff(g)[1:]  # from n to n + 1, for n = 1 … N − 1
        step_high = np.full(self.n + 1, -np.inf)
        step_low = np.full(self.n + 1, np.inf)
        if self.n > 1:
            step_high[1 : self.n] = np.maximum.accumulate(steps)
            step_low[1 : self.n] = np.minimum.accumulate(steps[::-1])[::-1]
            step_high[self.n] = step_high[self.n - 1]
        self.space = Space(
            np.ascontiguousarray(points - shift), tau, -shift, g, step_high, step_low
        )
        self._squares: Vector = 0.5 * (self.space.x**2).sum(axis=1)
        away = self.space.x - self.space.mu
        self._alone: Vector = g[1] - 0.5 * (tau / (1.0 + tau) * away * away).sum(axis=1)
        # The prior's pull on the mean, at most ½ min(n, τ) (x̄ − μ)² in each column.
        self._pull = float(0.5 * (np.minimum(tau, self.n) * (away * away).max(axis=0)).sum())
        self._memory: tuple[Nodes, Found] | None = None
        self.visits = 0

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        # The bound on a range of sizes takes log W to be convex, as it is for every prior here.
        bends = np.diff(problem.size_weights()[1:], 2)
        convex = bool((bends >= -1e-9).all())
        return problem.model.family.name == "gaussian" and problem.items.single and convex

    def fit(self, labels: Labels) -> Vector:
        """Return −½|x − m|², m the posterior mean of the point's cluster."""
        x, tau, mu = self.space.x, self.space.tau, self.space.mu
        sums = np.zeros((int(labels.max()) + 1, x.shape[1]))
        np.add.at(sums, labels, x)
        means = (sums + tau * mu) / (np.bincount(labels)[:, None] + tau)
        off = x - means[labels]
        out: Vector = -0.5 * (off * off).sum(axis=1)
        return out

    def quick(self, *, deadline: float | None) -> Vector | None:
        return neighbour_prices(self.space.x, self.space.g, deadline)

    def price(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Priced:
        rounding = self.rounding(y)
        found, level, complete = self._run(
            y.copy(), LARGEST, threshold, 0.0, rounding, math.inf, deadline
        )
        alone = self._alone - y
        for i in np.argsort(-alone)[:max_columns]:
            if alone[i] > threshold:
                found.append((float(alone[i]), np.array([i])))
        bound = max(level, float(alone.max()), *(value for value, _ in found), -math.inf)
        bound = max(bound, threshold) + rounding
        found.sort(key=lambda pair: -pair[0])
        return Priced(bound, [members for _, members in found[:max_columns]], complete)

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Raised:
        rounding = self.rounding(y)
        threshold = max(threshold, 6.0 * rounding)
        raised = y.copy()
        short = np.flatnonzero(self._alone - y > 0.0)
        columns = [np.array([i]) for i in short]
        raised[short] = self._alone[short]
        # One run is fast and overlooks some sets: a point that was worth having in a box stays in
        # its sub-boxes when its price has risen since.  So it only prepares for pricing.
        found, _, _ = self._run(raised, RAISE, threshold, 0.0, rounding, max_columns, deadline)
        columns += [members for _, members in found]
        priced = super().raise_prices(
            raised, threshold=threshold, max_columns=max_columns, deadline=deadline
        )
        return priced._replace(columns=columns + priced.columns)

    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float | None
    ) -> list[Ints] | None:
        rounding = self.rounding(y)
        worst = self.price(y, threshold=0.0, max_columns=1, deadline=deadline)
        if not worst.complete:
            return None
        floor = -slack - rounding
        margin = slack + worst.bound + 2.0 * rounding
        found, _, complete = self._run(y.copy(), ALL, floor, margin, rounding, limit, deadline)
        if not complete or len(found) > limit:
            return None
        columns = {members.tobytes(): members for _, members in found}
        for i in np.flatnonzero(self._alone - y >= floor):
            columns[np.array([i]).tobytes()] = np.array([i])
        return list(columns.values()) if len(columns) <= limit else None

    def rounding(self, y: Vector) -> float:
        magnitude = float(self._squares.sum() + np.abs(y).sum() + np.abs(self.space.g[1:]).max())
        return 2.0 * EPSILON * (magnitude + self._pull)

    def _prepare(self) -> tuple[Nodes, Found]:
        n, n_columns = self.space.x.shape
        if self._memory is None:
            nodes = Nodes(
                centre=np.empty((_STACK, n_columns)),
                half=np.empty((_STACK, n_columns)),
                sums=np.empty((_STACK, n_columns + 1)),
                whole=np.empty((_STACK, 8), np.int64),
                bound=np.empty(_STACK),
                arena=np.empty(_ROOM * n + 4096, np.int64),
                inside=np.empty(n, np.int64),
                value=np.empty(n),
                spread=np.empty(n),
                far=np.empty(n),
            )
            found = Found(
                members=np.empty(_ROOM * n, np.int64),
                indptr=np.zeros(10 * _ROOM + 1, np.int64),
                values=np.empty(10 * _ROOM),
                count=np.zeros(4, np.int64),
                level=np.empty(2),
            )
            self._memory = nodes, found
        return self._memory

    def _run(
        self,
        y: Vector,
        mode: int,
        threshold: float,
        margin: float,
        rounding: float,
        enough: float,
        deadline: float | None,
    ) -> tuple[list[tuple[float, Ints]], float, bool]:
        """Explore sets of two and more; return them, the largest bound left, and completeness."""
        sets: list[tuple[float, Ints]] = []
        n = self.n
        if n < 2:
            return sets, -math.inf, True
        nodes, found = self._prepare()
        corners = np.vstack([self.space.x, self.space.mu])
        low, high = corners.min(axis=0), corners.max(axis=0)
        nodes.centre[0] = 0.5 * (low + high)
        nodes.half[0] = 0.5 * (high - low) * (1.0 + 1e-12) + 1e-300
        nodes.sums[0] = 0.0
        nodes.whole[0] = (2, n, 0, n, 0, -1, 0, 0)
        nodes.bound[0] = math.inf
        nodes.arena[:n] = np.arange(n)
        found.count[:] = (1, 0, 0, 0)
        found.level[:] = -math.inf
        done = False
        while not done:
            done = explore(self.space, y, nodes, found, mode, threshold, margin, rounding, _WORK)
            for k in range(found.count[1]):
                members = found.members[found.indptr[k] : found.indptr[k + 1]]
                sets.append((float(found.values[k]), np.sort(members)))
            found.count[1] = 0
            if len(sets) > enough or (deadline is not None and time.perf_counter() > deadline):
                break
        self.visits += int(found.count[2])
        left = nodes.bound[: found.count[0]]
        level = max(float(found.level[1]), float(left.max()) if len(left) else -math.inf)
        complete = done and found.level[1] == -math.inf
        return sets, level, complete
