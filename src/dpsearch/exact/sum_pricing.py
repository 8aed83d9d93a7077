"""Exact pricing of clusters of counts and of zeros and ones, by sums of their columns."""

from __future__ import annotations

import math
import time

import numpy as np
from scipy.special import digamma

from dpsearch._special import log_gamma_table
from dpsearch._types import Ints, Labels, Vector
from dpsearch.bounds import EPSILON
from dpsearch.exact._sum_boxes import Found, Nodes, bound_nodes, explore
from dpsearch.exact._sum_limits import BINARY, COUNTS, Room, Space
from dpsearch.exact.pricing import RAISE, Explored, Pricer, Raised, Run
from dpsearch.families.statistics import BetaCounts, DirichletCounts, GammaCounts
from dpsearch.problem import Problem

_WORK = 50_000_000  # numbers looked at between two looks at the clock
_SETS = 1024  # that are found between two looks
_LARGEST = 1 << 24  # numbers in tables, points times columns
_MOST_POINTS = 2000  # a node is open for every size of a set

Counts = GammaCounts | BetaCounts | DirichletCounts


class SumPricer(Pricer):
    """Branch and bound over boxes of the sums of columns; see `_sum_boxes`."""

    def __init__(self, problem: Problem, statistic: Counts, lam: float) -> None:
        super().__init__(problem, lam, float(lam) + problem.size_weights()[1] + problem.alone)
        self.statistic = statistic
        self.space = _space(statistic, self.lam + self.log_w)
        self._nodes: Nodes | None = None

    @classmethod
    def takes(cls, statistic: Counts) -> bool:
        points = statistic.points
        return len(points) <= _MOST_POINTS and points.size + float(points.sum()) <= _LARGEST

    def fit(self, labels: Labels) -> Vector:
        """E[log p(x_n | θ)] under the posterior of the point's cluster.

        It is the gradient of log H at the cluster, so that prices with these differences pay, to
        first order, for every set close to it.
        """
        out = np.empty(self.n)
        for k in range(int(labels.max()) + 1):
            members = np.flatnonzero(labels == k)
            out[members] = self._expected(members)
        return out

    def _expected(self, members: Ints) -> Vector:
        """E[log p(x | θ)] of a cluster's points under its posterior, up to a constant."""
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
        return np.asarray(points @ (digamma(after) - digamma(after.sum())))

    def rounding(self, y: Vector) -> float:
        magnitude = float(np.abs(self.space.constant).max() + np.abs(y).sum())
        magnitude += float(np.abs(self.alone).sum())
        return 16.0 * EPSILON * magnitude

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float = math.inf
    ) -> Raised:
        rounding = self.rounding(y)
        threshold = max(threshold, 4.0 * rounding)
        columns = [np.array([i]) for i in np.flatnonzero(self.alone > y)]
        raised = np.maximum(y, self.alone)
        run = Run(RAISE, threshold, threshold, deadline, limit=max_columns)
        explored = self.explore(raised, run)
        columns += [members for _, members in explored.sets]
        # Out of time: what sets of n points may still lack, n points can pay together.
        share = max(float((explored.left[1:] / np.arange(1, self.n + 1)).max()), 0.0)
        if share == math.inf:
            return Raised(raised, math.inf, columns, False)
        return Raised(raised + share, explored.level + rounding, columns, explored.complete)

    def explore(self, y: Vector, run: Run) -> Explored:
        sets: list[tuple[float, Ints]] = []
        n, n_columns = self.space.x.shape
        nodes = self._nodes or _new_nodes(2 * n + 64, n, n_columns)
        found = Found(
            members=np.empty((_SETS, n), np.int8),
            values=np.empty(_SETS),
            tally=np.zeros(3, np.int64),
            level=np.array([run.level]),
        )
        room = _new_room(n, n_columns)
        rounding, work = self.rounding(y), max(1, _WORK // (20 * n * n_columns))
        found.tally[0] = self._open(y, nodes, room, run, work)
        done = found.tally[0] == 0
        enough = False
        while not (done or enough):
            done = explore(
                self.space, y, nodes, found, room, run.mode, run.floor, run.margin, rounding, work
            )
            for k in range(found.tally[1]):
                sets.append((float(found.values[k]), np.flatnonzero(found.members[k])))
            found.tally[1] = 0
            if found.tally[0] + 2 > len(nodes.bound):
                nodes = _grown(nodes)
            enough = len(sets) > run.limit or time.perf_counter() > run.deadline
        self._nodes = nodes
        left = np.full(n + 1, -math.inf)
        opened = slice(0, found.tally[0])
        np.maximum.at(left, nodes.size[opened], nodes.bound[opened])
        return Explored(sets, left, float(found.level[0]))

    def _open(self, y: Vector, nodes: Nodes, room: Room, run: Run, work: int) -> int:
        """Open a node for every size, the one of the largest bound on top; return their number."""
        count = self.n - 1
        nodes.size[:count] = np.arange(2, self.n + 1)
        nodes.low[:count] = 0
        nodes.high[:count] = self.space.x.sum(axis=0)
        if self.space.kind == BINARY:
            nodes.high[:count] = np.minimum(nodes.high[:count], nodes.size[:count, None])
        nodes.status[:count] = 0
        nodes.bound[:count] = math.inf
        for begin in range(0, count, work):
            if time.perf_counter() > run.deadline:
                break
            end = min(begin + work, count)
            bound_nodes(self.space, y, nodes, room, run.level, run.margin, begin, end)
        best = np.argsort(nodes.bound[:count], kind="stable")
        best = best[nodes.bound[best] > run.level]
        for array in (nodes.size, nodes.high, nodes.bound):
            array[: len(best)] = array[best]
        return len(best)


def _space(statistic: Counts, log_w: Vector) -> Space:
    """Lay out points and tables, with λ + log W(n) in the constants."""
    x = statistic.points.astype(np.int64)
    n, n_columns = x.shape
    sizes = np.arange(n + 1, dtype=np.float64)[:, None]
    kind, concave, constant = COUNTS, -1, log_w
    other, slope = np.zeros((0, 0)), np.zeros((n + 1, n_columns + 1))
    rate, lengths = np.zeros(n_columns), x.sum(axis=0) + 2
    if isinstance(statistic, BetaCounts):
        kind, prior, lengths = BINARY, statistic.successes, np.full(n_columns, n + 2)
        other = np.array([_log_rising(b, n + 2) for b in statistic.failures])
        both = prior + statistic.failures
        constant = constant - np.array([_log_rising(value, n + 1) for value in both]).sum(axis=0)
    elif isinstance(statistic, GammaCounts):
        prior, rate = statistic.shape, statistic.rate
        slope = np.log(rate + sizes)
        constant = constant - (prior * np.log1p(sizes / rate)).sum(axis=1)
    else:
        concave = n_columns
        prior = np.append(statistic.concentrations, statistic.concentrations.sum())
        x = np.column_stack([x, x.sum(axis=1)])
        lengths = np.append(lengths, x[:, -1].sum() + 2)
    tables = [_log_rising(value, int(size)) for value, size in zip(prior, lengths, strict=True)]
    return Space(
        kind=kind,
        x=np.ascontiguousarray(x),
        real=np.ascontiguousarray(x, dtype=np.float64),
        ascending=np.ascontiguousarray(np.argsort(x, axis=0, kind="stable").T),
        begin=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        table=np.concatenate(tables),
        other=other,
        slope=slope,
        prior=np.ascontiguousarray(prior),
        rate=np.ascontiguousarray(rate),
        concave=concave,
        constant=constant,
    )


def _log_rising(a: float, size: int) -> Vector:
    """The values log Γ(a + s)/Γ(a) for s = 0 … size − 1."""
    table = log_gamma_table(a, size)
    out: Vector = table - table[0]
    return out


def _new_nodes(capacity: int, n: int, n_columns: int) -> Nodes:
    return Nodes(
        size=np.zeros(capacity, np.int64),
        low=np.zeros((capacity, n_columns), np.int64),
        high=np.zeros((capacity, n_columns), np.int64),
        status=np.zeros((capacity, n), np.int8),
        bound=np.zeros(capacity),
    )


def _grown(nodes: Nodes) -> Nodes:
    larger = _new_nodes(2 * len(nodes.bound), nodes.status.shape[1], nodes.low.shape[1])
    for new, old in zip(larger, nodes, strict=True):
        new[: len(old)] = old
    return larger


def _new_room(n: int, n_columns: int) -> Room:
    return Room(
        low=np.zeros(n_columns, np.int64),
        high=np.zeros(n_columns, np.int64),
        status=np.zeros(n, np.int8),
        free=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int8),
        values=np.zeros(n),
        lines=np.zeros(n_columns),
        sums=np.zeros(n_columns, np.int64),
        inside=np.zeros(n_columns),
        spare=np.zeros(n_columns),
        barred=np.zeros(n_columns, np.int8),
        gains=np.zeros(n_columns),
    )
