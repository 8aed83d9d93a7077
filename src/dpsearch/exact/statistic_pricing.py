"""Exact pricing of clusters of counts and of binary vectors: Bernoulli, Poisson, Multinomial."""

from __future__ import annotations

import math
import time

import numpy as np
from scipy.special import digamma

from dpsearch._special import log_gamma_table
from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact._points import points_of
from dpsearch.exact._statistic_boxes import (
    ALL,
    BINARY,
    COUNTS,
    LARGEST,
    RAISE,
    Found,
    Nodes,
    Room,
    Space,
    bound_nodes,
    explore,
)
from dpsearch.exact.pricing import EPSILON, Priced, Pricer, Raised
from dpsearch.problem import Problem

_WORK = 50_000_000  # numbers looked at between two looks at the clock
_SETS = 1024  # that are found between two looks
_LARGEST = 1 << 24  # numbers in tables, points times columns
_MOST_POINTS = 2000  # a node is open for every size of a set


class StatisticPricer(Pricer):
    """Branch and bound over boxes of the statistic; see `_statistic_boxes`."""

    def __init__(self, problem: Problem, lam: float) -> None:
        super().__init__(problem, lam)
        self.space = _space(problem, self.lam)
        self._alone: Vector = self.lam + self.log_w[1] + problem.alone
        self._nodes: Nodes | None = None
        self.visits = 0

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        if not problem.items.single or problem.model.family.name not in _PARAMETERS:
            return False
        n, n_columns = problem.n_items, problem.model.n_features
        totals = float(problem.items.values.sum())
        return n <= _MOST_POINTS and n * n_columns + totals <= _LARGEST

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
        n_columns = self.problem.model.n_features
        points = self.space.x[members, :n_columns].astype(np.float64)
        sums, n = points.sum(axis=0), len(members)
        a, b = _prior(self.problem)
        up = digamma(a + sums)
        if self.problem.model.family.name == "bernoulli":
            return np.asarray(points @ (up - digamma(b + n - sums)))
        if self.problem.model.family.name == "poisson":
            return np.asarray(points @ (up - np.log(b + n)))
        return np.asarray(points @ (up - digamma(a.sum() + sums.sum())))

    def price(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Priced:
        rounding = self.rounding(y)
        alone = self._alone - y
        start = max(threshold, float(alone.max()))
        found, left, level = self._run(
            y.copy(), LARGEST, threshold, start, 0.0, rounding, None, deadline
        )
        level = max(level, float(left.max()))
        found += [(float(alone[i]), np.array([i])) for i in np.flatnonzero(alone > threshold)]
        # The best set by a line may lie outside its box, so that a later box has it again.
        distinct = {members.tobytes(): (value, members) for value, members in found}
        best = sorted(distinct.values(), key=lambda pair: -pair[0])[:max_columns]
        complete = bool((left == -math.inf).all())
        return Priced(level + rounding, [members for _, members in best], complete)

    def raise_prices(
        self, y: Vector, *, threshold: float, max_columns: int, deadline: float | None
    ) -> Raised:
        rounding = self.rounding(y)
        threshold = max(threshold, 4.0 * rounding)
        short = np.flatnonzero(self._alone - y > 0.0)
        raised = np.maximum(y, self._alone)
        found, left, level = self._run(
            raised, RAISE, threshold, threshold, 0.0, rounding, max_columns, deadline
        )
        columns = [np.array([i]) for i in short] + [members for _, members in found]
        # Out of time: what sets of n points may still lack, n points can pay together.
        share = max(float((left[1:] / np.arange(1, self.n + 1)).max()), 0.0)
        if share == math.inf:
            return Raised(raised, math.inf, columns, False)
        complete = bool((left == -math.inf).all())
        return Raised(raised + share, level + rounding, columns, complete)

    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float | None
    ) -> list[Ints] | None:
        rounding = self.rounding(y)
        worst = self.price(y, threshold=0.0, max_columns=1, deadline=deadline)
        if not worst.complete:
            return None
        floor = -slack - rounding
        # A set within the slack from which a point is taken is worth at most the largest excess.
        margin = slack + max(worst.bound, 0.0) + 2.0 * rounding
        found, left, _ = self._run(
            y.copy(), ALL, floor, floor - rounding, margin, rounding, limit, deadline
        )
        columns = [np.array([i]) for i in np.flatnonzero(self._alone - y >= floor)]
        columns += [members for _, members in found]
        complete = bool((left == -math.inf).all())
        return columns if complete and len(columns) <= limit else None

    def rounding(self, y: Vector) -> float:
        magnitude = float(np.abs(self.space.constant).max() + np.abs(y).sum())
        magnitude += float(np.abs(self._alone).sum())
        return 16.0 * EPSILON * magnitude

    def _run(
        self,
        y: Vector,
        mode: int,
        floor: float,
        level: float,
        margin: float,
        rounding: float,
        limit: int | None,
        deadline: float | None,
    ) -> tuple[list[tuple[float, Ints]], Vector, float]:
        """Explore sets of two and more.

        Return what was found, bounds [n] for sets of n points that were not looked at (−∞ if all
        were), and the level that all others do not exceed.
        """
        sets: list[tuple[float, Ints]] = []
        n, n_columns = self.space.x.shape
        nodes = self._nodes or _new_nodes(2 * n + 64, n, n_columns)
        found = Found(
            members=np.empty((_SETS, n), np.int8),
            values=np.empty(_SETS),
            tally=np.zeros(3, np.int64),
            level=np.array([level]),
        )
        room = _new_room(n, n_columns)
        work = max(1, _WORK // (20 * n * n_columns))
        found.tally[0] = self._open(y, nodes, room, level, margin, work, deadline)
        done = found.tally[0] == 0
        enough = False
        while not (done or enough):
            done = explore(self.space, y, nodes, found, room, mode, floor, margin, rounding, work)
            for k in range(found.tally[1]):
                sets.append((float(found.values[k]), np.flatnonzero(found.members[k])))
            found.tally[1] = 0
            if found.tally[0] + 2 > len(nodes.bound):
                nodes = _grown(nodes)
            late = deadline is not None and time.perf_counter() > deadline
            enough = late or (limit is not None and len(sets) > limit)
        self._nodes = nodes
        self.visits += int(found.tally[2])
        left = np.full(n + 1, -math.inf)
        opened = slice(0, found.tally[0])
        np.maximum.at(left, nodes.size[opened], nodes.bound[opened])
        return sets, left, float(found.level[0])

    def _open(
        self,
        y: Vector,
        nodes: Nodes,
        room: Room,
        level: float,
        margin: float,
        work: int,
        deadline: float | None,
    ) -> int:
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
            if deadline is not None and time.perf_counter() > deadline:
                break
            end = min(begin + work, count)
            bound_nodes(self.space, y, nodes, room, level, margin, begin, end)
        best = np.argsort(nodes.bound[:count], kind="stable")
        best = best[nodes.bound[best] > level]
        for array in (nodes.size, nodes.high, nodes.bound):
            array[: len(best)] = array[best]
        return len(best)


# How many numbers precede the prior's a in a family's parameters.
_PARAMETERS = {"bernoulli": 2, "poisson": 4, "multinomial": 4}


def _prior(problem: Problem) -> tuple[Vector, Vector]:
    """Return a and b of each column; for documents b is of no meaning."""
    first, n_columns = _PARAMETERS[problem.model.family.name], problem.model.n_features
    params = problem.model.core.params
    a = params[first : first + n_columns]
    if problem.model.family.name == "multinomial":
        return a, np.zeros(n_columns)
    return a, params[first + n_columns : first + 2 * n_columns]


def _space(problem: Problem, lam: float) -> Space:
    name, n, log_w = problem.model.family.name, problem.n_items, problem.size_weights()
    a, b = _prior(problem)
    x = points_of(problem).astype(np.int64)
    n_columns = x.shape[1]
    sizes = np.arange(n + 1, dtype=np.float64)[:, None]
    constant = lam + log_w
    kind, concave = COUNTS, -1
    other, slope = np.zeros((0, 0)), np.zeros((n + 1, n_columns + 1))
    prior, lengths = a, x.sum(axis=0) + 2
    if name == "bernoulli":
        kind = BINARY
        lengths = np.full(n_columns, n + 2)
        other = np.array([_log_rising(value, n + 2) for value in b])
        constant = constant - np.array([_log_rising(value, n + 1) for value in a + b]).sum(axis=0)
    elif name == "poisson":
        slope = np.log(b + sizes)
        constant = constant - (a * np.log1p(sizes / b)).sum(axis=1)
    else:
        concave = n_columns
        prior = np.append(a, a.sum())
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
        rate=np.ascontiguousarray(b),
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
