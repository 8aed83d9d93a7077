"""Exact pricing of clusters of counts, zeros and ones, and levels, by sums of their columns."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, gammaln

from dpsearch._clock import clock
from dpsearch._records import copied, zeros
from dpsearch._special import log_gamma_table
from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact._sum_boxes import Nodes, bound_nodes, explore
from dpsearch.exact._sum_limits import BINARY, COUNTS, Room, Space
from dpsearch.exact.assumptions import EPSILON
from dpsearch.exact.neighbours import neighbour_prices
from dpsearch.exact.pricing import Found, Run, StackPricer
from dpsearch.families.statistics import BetaCounts, DirichletCounts, GammaCounts, LevelCounts
from dpsearch.problem import Problem

_WORK = 50_000_000  # values examined between two checks of the time
_LARGEST = 1 << 24  # values in tables, points times columns
_MOST_POINTS = 2000  # as there is a node for every size of a set

Counts = GammaCounts | BetaCounts | DirichletCounts | LevelCounts


class SumPricer(StackPricer):
    """Branch and bound over boxes of the sums of columns; see `_sum_boxes`."""

    def __init__(self, problem: Problem, statistic: Counts, lam: float) -> None:
        super().__init__(problem, lam, float(lam) + problem.size_weights()[1] + problem.alone)
        self.statistic = statistic
        self.space, self._in_tables = _space(statistic, self.lam + self.log_w)
        n, n_columns = self.space.x.shape
        self._nodes = _new_nodes(2 * n + 64, n, n_columns)
        self._room = zeros(Room, n_columns, status=n, chosen=n, free=n, values=n)

    @classmethod
    def takes(cls, statistic: Counts) -> bool:
        points = statistic.points
        return len(points) <= _MOST_POINTS and points.size + float(points.sum()) <= _LARGEST

    def fit(self, labels: Labels) -> Vector:
        """Return E[log p(x_n | θ)] under the posterior of the point's cluster.

        It is the gradient of log H at the cluster: to first order, prices with these differences
        pay for every set close to it.
        """
        out = np.empty(self.n)
        for k in range(int(labels.max()) + 1):
            members = np.flatnonzero(labels == k)
            out[members] = self._expected(members)
        return out

    def _expected(self, members: Ints) -> Vector:
        """Return E[log p(x | θ)] of a cluster's points under its posterior, up to a constant."""
        statistic, n = self.statistic, len(members)
        points = statistic.points[members]
        sums = points.sum(axis=0)
        if isinstance(statistic, BetaCounts):
            down = digamma(statistic.failures + n - sums)
            return np.asarray(points @ (digamma(statistic.successes + sums) - down))
        if isinstance(statistic, GammaCounts):
            return np.asarray(
                points @ (digamma(statistic.shape + sums) - np.log(statistic.rate + n))
            )
        after = statistic.concentrations + sums
        if isinstance(statistic, LevelCounts):
            return np.asarray(points @ digamma(after))
        return np.asarray(points @ (digamma(after) - digamma(after.sum())))

    def quick(self, *, deadline: float = math.inf) -> Vector | None:
        """Return prices by nearest neighbours for zeros and ones; see `neighbours`."""
        if not isinstance(self.statistic, BetaCounts | LevelCounts):
            return None
        space, n = self.space, self.n
        binary = space.kind == BINARY
        failures = self.statistic.failures if isinstance(self.statistic, BetaCounts) else 0.0
        kinds, first, column = np.unique(
            np.column_stack([space.prior, np.broadcast_to(failures, space.prior.shape)]),
            axis=0, return_index=True, return_inverse=True,
        )  # fmt: skip
        tables = [space.table[at : at + n + 1] for at in space.begin[first]]
        g, c = space.constant[1:].copy(), np.full(n, math.inf)
        r = np.zeros((n, len(kinds)))
        counts = np.bincount(column.reshape(-1))
        for m in range(1, n + 1):
            s = np.arange(1, m)
            for k, own in enumerate(tables):
                f = own[: m + 1] + (space.other[first[k], m::-1] if binary else 0.0)
                g[m - 1] += counts[k] * f[0]
                r[m - 1, k] = (f[m] - f[0]) / m
                below = f[0] + r[m - 1, k] * s - f[1:m]
                c[m - 1] = min(c[m - 1], float((below * m / (s * (m - s))).min(initial=math.inf)))
        c = np.where(np.isfinite(c), np.maximum(c, 0.0), 0.0)
        out = neighbour_prices(space.real, g, c, r[:, column.reshape(-1)], deadline=deadline)
        return out + self.rounding(out)

    def rounding(self, y: Vector) -> float:
        magnitude = float(np.abs(self.space.constant).max() + np.abs(y).sum())
        magnitude += float(np.abs(self.alone).sum()) + self._in_tables
        return 16.0 * EPSILON * magnitude

    def _begin(self, y: Vector, run: Run, found: Found) -> None:
        """Open a node for every size, the one of the largest bound on top."""
        nodes, count = self._nodes, self.n - 1
        nodes.size[:count] = np.arange(2, self.n + 1)
        nodes.low[:count] = 0
        nodes.high[:count] = self.space.x.sum(axis=0)
        if self.space.kind == BINARY:
            nodes.high[:count] = np.minimum(nodes.high[:count], nodes.size[:count, None])
        nodes.status[:count] = 0
        nodes.bound[:count] = math.inf
        at_a_time = self._nodes_at_a_time()
        for begin in range(0, count, at_a_time):
            if clock() > run.deadline:
                break
            end = min(begin + at_a_time, count)
            bound_nodes(self.space, y, nodes, self._room, run.level, begin, end)
        best = np.argsort(nodes.bound[:count], kind="stable")
        best = best[nodes.bound[best] > run.level]
        for array in (nodes.size, nodes.high, nodes.bound):
            array[: len(best)] = array[best]
        found.count[0] = len(best)

    def _work(self, y: Vector, run: Run, found: Found) -> None:
        explore(self.space, y, self._nodes, self._room, found, run, self._nodes_at_a_time())
        capacity = len(self._nodes.bound)
        if found.count[0] + 2 > capacity:
            self._nodes = copied(self._nodes, _new_nodes(2 * capacity, *self.space.x.shape))

    def _nodes_at_a_time(self) -> int:
        return max(1, _WORK // (20 * int(self.space.x.size)))

    def _left(self, found: Found) -> Vector:
        """Return a bound for each size of sets."""
        left = np.full(self.n + 1, -math.inf)
        opened = slice(0, found.count[0])
        np.maximum.at(left, self._nodes.size[opened], self._nodes.bound[opened])
        return left


def _space(statistic: Counts, log_w: Vector) -> tuple[Space, float]:
    """Return points and tables, with λ + log W(n) in the constants.

    The second result is the size of the log-gammas whose differences are in the tables.
    """
    x = statistic.points.astype(np.int64)
    n, n_columns = x.shape
    sizes = np.arange(n + 1, dtype=np.float64)[:, None]
    kind, concave, constant = COUNTS, -1, log_w
    other, slope = np.zeros((0, 0)), np.zeros((n + 1, n_columns + 1))
    lengths = x.sum(axis=0) + 2
    others = wholes = np.zeros(0)  # further pseudo-counts: b, and the totals of columns
    if isinstance(statistic, BetaCounts):
        kind, prior, lengths = BINARY, statistic.successes, np.full(n_columns, n + 2)
        others, wholes = statistic.failures, prior + statistic.failures
        other = np.array([_log_rising(b, n + 2) for b in others])
    elif isinstance(statistic, GammaCounts):
        prior, rate = statistic.shape, statistic.rate
        slope = np.log(rate + sizes)
        constant = constant - (prior * np.log1p(sizes / rate)).sum(axis=1)
    elif isinstance(statistic, LevelCounts):
        prior, lengths = statistic.concentrations, np.full(n_columns, n + 2)
        wholes = np.add.reduceat(prior, np.cumsum(statistic.levels) - statistic.levels)
    else:
        concave = n_columns
        prior = np.append(statistic.concentrations, statistic.concentrations.sum())
        x = np.column_stack([x, x.sum(axis=1)])
        lengths = np.append(lengths, x[:, -1].sum() + 2)
    for whole in wholes:
        constant = constant - _log_rising(whole, n + 1)
    tables = [_log_rising(value, int(size)) for value, size in zip(prior, lengths, strict=True)]
    in_tables = sum(float(np.abs(gammaln(part)).sum()) for part in (prior, others, wholes))
    space = Space(
        kind=kind,
        x=np.ascontiguousarray(x),
        real=np.ascontiguousarray(x, dtype=np.float64),
        ascending=np.ascontiguousarray(np.argsort(x, axis=0, kind="stable").T),
        begin=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        table=np.concatenate(tables),
        other=other,
        slope=slope,
        prior=np.ascontiguousarray(prior),
        concave=concave,
        constant=constant,
    )
    return space, in_tables


def _log_rising(a: float, size: int) -> Vector:
    """Return log Γ(a + s)/Γ(a) for s = 0 … size − 1."""
    table = log_gamma_table(a, size)
    out: Vector = table - table[0]
    return out


def _new_nodes(capacity: int, n: int, n_columns: int) -> Nodes:
    box = capacity, n_columns
    return zeros(Nodes, capacity, low=box, high=box, status=(capacity, n))
