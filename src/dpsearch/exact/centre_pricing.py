"""Exact pricing of clusters of normal points with known noise, in any dimension."""

from __future__ import annotations

import math

import numpy as np

from dpsearch._records import zeros
from dpsearch._special import LOG_2PI
from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact._centre_boxes import Nodes, Room, Space, explore
from dpsearch.exact.assumptions import EPSILON
from dpsearch.exact.neighbours import neighbour_prices
from dpsearch.exact.pricing import NO_TRIPLES, Found, Priced, Run, StackPricer
from dpsearch.exact.slopes import is_convex
from dpsearch.families.statistics import NormalMeans
from dpsearch.problem import Problem

_WORK = 2_000_000  # points examined between two checks of the time
_STACK = 2000  # nodes: two for each level of a branch
_LISTS = 64  # lists of open points that the arena holds at full length


class CentrePricer(StackPricer):
    """Branch and bound over boxes of the cluster's centre; see `_centre_boxes`."""

    def __init__(
        self, problem: Problem, statistic: NormalMeans, lam: float, triples: Ints = NO_TRIPLES
    ) -> None:
        self.statistic = statistic
        self.space = space = _space(statistic, float(lam) + problem.size_weights(), triples)
        away = space.x - space.mu
        pull = (space.tau / (1.0 + space.tau) * away * away).sum(axis=1)
        super().__init__(problem, lam, space.g[1] - 0.5 * pull, triples)
        # The prior's effect on the mean is at most ½ min(n, τ) (x̄ − μ)² in each column.
        farthest = np.minimum(space.tau, self.n) * (away * away).max(axis=0)
        self._magnitude = 0.5 * float((space.x**2).sum() + farthest.sum())
        self._magnitude += float(np.abs(space.g[1:]).max())
        self._memory: tuple[Nodes, Room] | None = None

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        # The bound on a range of sizes assumes that log W is convex, as in every prior here.
        return is_convex(problem.size_weights())

    def with_triples(self, triples: Ints) -> CentrePricer:
        return CentrePricer(self.problem, self.statistic, self.lam, triples)

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
        g = self.space.g[1:]
        return neighbour_prices(self.space.x, g, np.full(self.n, 0.5), deadline=deadline)

    def rounding(self, y: Vector) -> float:
        return 2.0 * EPSILON * (self._magnitude + float(np.abs(y).sum()))

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Priced:
        threshold = max(threshold, 6.0 * self.rounding(y))
        # One run is fast but misses some sets: a point that is in for a box stays in for its
        # sub-boxes even if its price has risen since.  So the run only prepares for pricing.
        raised, columns, _ = self._raise_in_one_run(y, threshold, max_columns, deadline)
        n_raised = 0
        while True:
            priced = self.price(
                raised, threshold=threshold, max_columns=max_columns, deadline=deadline
            )
            for members in priced.columns:
                over = self.worth(members, raised)
                if over > 0.0:
                    raised[members] += over / len(members)
                    columns.append(members)
                    n_raised += 1
            if not priced.columns or not priced.complete or n_raised >= max_columns:
                complete = priced.complete and not priced.columns
                return Priced(raised, priced.bound, columns, complete)

    def _begin(self, y: Vector, run: Run, found: Found) -> None:
        found.level[0] = run.floor
        if self.n < 2:
            return
        nodes, _ = self._memory = self._memory or _memory(self.space)
        corners = np.vstack([self.space.x, self.space.mu])
        low, high = corners.min(axis=0), corners.max(axis=0)
        nodes.centre[0] = 0.5 * (low + high)
        nodes.half[0] = 0.5 * (high - low) * (1.0 + 1e-12) + 1e-300
        nodes.sums[0] = 0.0
        nodes.integers[0] = (2, self.n, 0, self.n, 0, -1, 0, 0)
        nodes.bound[0] = math.inf
        nodes.arena[: self.n] = np.arange(self.n)
        found.count[0] = 1

    def _work(self, y: Vector, run: Run, found: Found) -> None:
        assert self._memory is not None  # since `_begin`
        explore(self.space, y, *self._memory, found, run, _WORK)

    def _left(self, found: Found) -> Vector:
        given_up = found.level[1:]
        if self._memory is None:
            return given_up
        return np.append(self._memory[0].bound[: found.count[0]], given_up)


def _space(statistic: NormalMeans, log_w: Vector, triples: Ints) -> Space:
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
    x = np.ascontiguousarray(points - shift)
    first = np.searchsorted(np.sort(triples, axis=None), np.arange(n + 1))
    which = np.argsort(triples, axis=None, kind="stable") // 3
    return Space(x, tau, -shift, g, step_high, step_low, triples, first, which)


def _memory(space: Space) -> tuple[Nodes, Room]:
    (n, n_columns), n_triples = space.x.shape, len(space.triples)
    nodes = zeros(
        Nodes, _STACK, centre=(_STACK, n_columns), half=(_STACK, n_columns),
        sums=(_STACK, n_columns + 1), integers=(_STACK, 8), arena=_LISTS * n + 4096, inside=n,
    )  # fmt: skip
    return nodes, zeros(
        Room, n_columns, value=n, spread=n, far=n, share=n, chosen=n, inside=n_triples,
        open=n_triples, tried=n_triples,
    )  # fmt: skip
