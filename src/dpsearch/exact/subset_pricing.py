"""Exact pricing of few points for any family: log H of every set, by the family's own functions.

Nothing is assumed about log H.  This is for families without terms (`dpsearch.families.terms`),
such as those with a prior on nodes: a sum over a hundred nodes is convex in as many totals, and a
box in that many dimensions has too many corners.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.exact.assumptions import rounding_of
from dpsearch.exact.pricing import RAISE, Explored, Pricer, Run
from dpsearch.items import log_marginals
from dpsearch.problem import Problem

_MOST_POINTS = 12  # 4,095 sets: a second for the slowest family


class SubsetPricer(Pricer):
    """Price by evaluating every set."""

    def __init__(self, problem: Problem, lam: float) -> None:
        super().__init__(problem, lam, float(lam) + problem.size_weights()[1] + problem.alone)
        self.members, log_h = _every_set(problem)
        self.sizes = self.members.sum(axis=1).astype(np.int64)
        self.weights = self.lam + self.log_w[self.sizes] + log_h

    @classmethod
    def takes(cls, problem: Problem) -> bool:
        return problem.n_items <= _MOST_POINTS

    def fit(self, labels: Labels) -> Vector:
        """Return the log density of each point given the others of its cluster."""
        bits = 1 << np.arange(self.n)
        log_h = np.append(0.0, self.weights - self.lam - self.log_w[self.sizes])  # by number
        whole = np.array([bits[labels == label].sum() for label in labels])
        return np.asarray(log_h[whole] - log_h[whole - bits])

    def rounding(self, y: Vector) -> float:
        return rounding_of(self.problem, None, float(np.abs(y).sum()))

    def explore(self, y: Vector, run: Run) -> Explored:
        values = np.where(self.sizes > 1, self.weights - self.members @ y, -np.inf)
        found = np.flatnonzero(values >= run.floor)
        if run.mode == RAISE:
            found = np.array(self._raise(y, values, run), dtype=np.int64)
        level = max(run.level, float(values.max())) if run.mode != RAISE else run.level
        sets = [(float(values[s]), np.flatnonzero(self.members[s])) for s in found]
        return Explored(sets, np.full(self.n + 1, -math.inf), level)

    def _raise(self, y: Vector, values: Vector, run: Run) -> list[int]:
        """Raise prices, in place, until no set exceeds the floor; return the sets that did."""
        out = []
        while values.max() > run.floor:
            worst = int(values.argmax())
            out.append(worst)
            y += self.members[worst] * (values[worst] / self.sizes[worst])
            values[:] = np.where(self.sizes > 1, self.weights - self.members @ y, -np.inf)
        return out


@lru_cache(maxsize=1)
def _every_set(problem: Problem) -> tuple[Matrix, Vector]:
    """Return all non-empty sets of points as rows of zeros and ones, and log H of each."""
    n = problem.n_items
    members = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    log_h = np.zeros(1 << n)
    for inside in range(1 << (n - 1), 1 << n):  # the last point is in it, or in its complement
        outside = (1 << n) - 1 - inside
        labels: Ints = 1 - members[inside]
        pool, _ = problem.model.rows(problem.items, labels, 2)
        log_h[[inside, outside]] = log_marginals(problem.model.core, pool, 2)
    return members[1:].astype(np.float64), log_h[1:]
