"""Exact pricing of clusters of any family with a linear form, over boxes of the statistic.

log H(n, T) is convex in the size and the totals of a cluster (`dpsearch.families.linear`), so in a
box of statistics (`regions`) it lies below a plane, and the best set under a plane is found by
sorting (`_plane_bounds`).  As boxes shrink to a point the plane becomes a tangent, which lies below
log H everywhere: a box that holds no set above its price is closed, whatever the tolerance.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.exact._plane_bounds import Bounds, Boxes, Space, bound_boxes
from dpsearch.exact.pricing import LARGEST, RAISE, Explored, Pricer, Run
from dpsearch.exact.promises import EPSILON, Totals
from dpsearch.exact.regions import Limits, shape_of, shrink
from dpsearch.problem import Problem

_BATCH = 512  # boxes at a time
_SHARE = 256  # boxes of a batch that one thread bounds
_MANY = 20_000  # open boxes, from which on they are worked on depth first
_ASCENTS = 4  # sets of a batch that are improved before prices are raised for them
_MOST_CUTS = 16  # sets of a batch that become cuts though others have raised their prices
_SIZES_FIRST = 32.0  # how much rather boxes are cut by size than elsewhere
_FEW = 14  # points, whose sets are listed one by one


class _Open(NamedTuple):
    """Boxes that are still open."""

    n_low: Ints
    n_high: Ints
    low: Matrix  # [box, coordinate]
    high: Matrix
    bound: Vector

    def take(self, which: Any) -> _Open:
        return _Open(*(field[which] for field in self))

    def join(self, other: _Open) -> _Open:
        return _Open(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


def _joined(parts: list[tuple[Bounds, Vector]]) -> tuple[Bounds, Vector]:
    bounds = zip(*(part for part, _ in parts), strict=True)
    return Bounds(*map(np.concatenate, bounds)), np.concatenate([score for _, score in parts])


def _next(stack: _Open) -> tuple[_Open, _Open]:
    """Take boxes off the stack: those that lack most a point, or the last ones if it is large."""
    n = len(stack.bound)
    if _BATCH < n < _MANY:
        lack = np.argpartition(stack.bound / stack.n_low, n - _BATCH)
        return stack.take(lack[n - _BATCH :]), stack.take(lack[: n - _BATCH])
    return stack.take(slice(-_BATCH, None)), stack.take(slice(None, -_BATCH))


class StatisticPricer(Pricer):
    """Branch and bound over boxes of sizes and averages of features."""

    def __init__(self, problem: Problem, totals: Totals, lam: float, n_threads: int = 1) -> None:
        super().__init__(problem, lam, float(lam) + problem.size_weights()[1] + problem.alone)
        self.form, self.features = form, features = totals
        self.shapes = [shape_of(term) for term in form.terms]
        values, masks = [], []
        for term, shape in zip(form.terms, self.shapes, strict=True):
            own = features[:, term.totals]
            masks.append(own[:, 0] if shape.counted else np.ones(self.n))
            values.append(own[:, shape.counted : shape.counted + shape.n_values])
        joined = np.hstack(values)
        self._limits = Limits.of(joined)
        self._values = np.concatenate([[0], np.cumsum([s.n_values for s in self.shapes])])
        self._begin_of = np.concatenate([[0], np.cumsum([s.width for s in self.shapes])])
        self.space = Space(
            values=np.ascontiguousarray(joined.T),
            masks=np.ascontiguousarray(masks),
            n_values=np.array([s.n_values for s in self.shapes]),
            squares=np.array([s.squares for s in self.shapes], dtype=np.int64),
            counted=np.array([s.counted for s in self.shapes], dtype=np.int64),
            begin=self._begin_of,
            corners=np.concatenate([[0], np.cumsum([len(s.along) for s in self.shapes])]),
            base=self.lam + self.log_w,
        )
        self.n_threads = n_threads
        self.n_boxes = 0

    def fit(self, labels: Labels) -> Vector:
        """Return the tangent plane of log H at each cluster's own statistic, at its points."""
        k = int(labels.max()) + 1
        sizes = np.bincount(labels).astype(np.float64)
        totals = np.zeros((k, self.form.n_totals))
        np.add.at(totals, labels, self.features)
        by_totals, _ = self.form.weights(sizes, totals)
        return np.asarray((by_totals[labels] * self.features).sum(axis=1))

    def rounding(self, y: Vector) -> float:
        magnitude = float(np.abs(self.space.base).max() + np.abs(y).sum())
        return 16.0 * EPSILON * (magnitude + float(np.abs(self.alone).sum()))

    def explore(self, y: Vector, run: Run) -> Explored:
        with ThreadPoolExecutor(self.n_threads) as threads:
            return self._explore(y, run, threads)

    def _explore(self, y: Vector, run: Run, threads: ThreadPoolExecutor) -> Explored:
        sets: list[tuple[float, Ints]] = []
        level = run.level
        stack = self._root()
        while len(stack.bound):
            if clock() > run.deadline or len(sets) > run.limit:
                break
            batch, stack = _next(stack)
            batch = batch.take(batch.bound > level)
            if not len(batch.bound):
                continue
            self.n_boxes += len(batch.bound)
            begins = range(0, len(batch.bound), _SHARE)
            shares = [batch.take(slice(at, at + _SHARE)) for at in begins]
            bounds, n_score = _joined(list(threads.map(partial(self._bound, y, level), shares)))
            alive = np.flatnonzero(bounds.bound > level)
            if not len(alive):
                continue
            worth = self._worth(bounds.members[alive], y)
            found = self._record(bounds.members[alive], worth, y, run)
            sets += found
            if run.mode == LARGEST and found:
                level = max(level, max(value for value, _ in found) + run.rounding)
            # The best set under the plane is known: only the others can still be above.
            worth = self._worth(bounds.members[alive], y) + run.rounding
            left = np.maximum(bounds.other[alive], np.minimum(worth, bounds.bound[alive]))
            left = np.where(np.isfinite(bounds.bound[alive]), left, np.inf)
            keep = left > level
            alive, left = alive[keep], left[keep]
            children = self._split(
                batch.take(alive)._replace(bound=left), bounds.score[alive], n_score[alive]
            )
            stack = stack.join(children)
        left = np.full(self.n + 1, -math.inf)
        np.maximum.at(left, stack.n_low, stack.bound)
        return Explored(sets, left, level)

    def columns_within(
        self, y: Vector, slack: float, *, limit: int, deadline: float = math.inf
    ) -> list[Ints] | None:
        if self.n > _FEW:
            return None
        codes = np.arange(1, 1 << self.n)
        members = ((codes[:, None] >> np.arange(self.n)) & 1).astype(np.int8)
        worth = self._worth(members, y)
        found = members[worth >= -slack - 2.0 * self.rounding(y)]
        return [np.flatnonzero(one) for one in found] if len(found) <= limit else None

    def _root(self) -> _Open:
        """Return boxes that hold the statistics of all sets of two and more points.

        No size in a box is twice another, so that what a box lacks can be shared by its points.
        """
        width = self._begin_of[-1]
        n_low = 2 ** np.arange(1, max(int(self.n).bit_length(), 1))
        count = len(n_low)
        low, high = np.full((count, width), -np.inf), np.full((count, width), np.inf)
        for shape, begin in zip(self.shapes, self._begin_of[:-1], strict=True):
            if shape.counted:
                low[:, begin], high[:, begin] = 0.0, 1.0
        root = _Open(n_low, np.minimum(2 * n_low - 1, self.n), low, high, np.full(count, np.inf))
        return self._shrunk(root)

    def _shrunk(self, boxes: _Open) -> _Open:
        alive = np.ones(len(boxes.bound), bool)
        for t, shape in enumerate(self.shapes):
            at = slice(self._begin_of[t], self._begin_of[t + 1])
            low, high = boxes.low[:, at], boxes.high[:, at]
            own = slice(self._values[t], self._values[t + 1])
            alive &= shrink(shape, self._limits, boxes.n_low, low, high, own)
        return boxes if alive.all() else boxes.take(alive)

    def _bound(self, y: Vector, level: float, batch: _Open) -> tuple[Bounds, Vector]:
        """Return bounds of the boxes, and how far the sizes between stick out."""
        k, n_low, n_high = len(batch.bound), batch.n_low, batch.n_high
        middle: Vector = 0.5 * (n_low + n_high).astype(np.float64)
        corner, height, centre, gradient, extent = [], [], [], [], []
        n_score = np.zeros(k)
        for t, (term, shape) in enumerate(zip(self.form.terms, self.shapes, strict=True)):
            at = slice(self._begin_of[t], self._begin_of[t + 1])
            near, far, m = shape.points(batch.low[:, at], batch.high[:, at])
            count = near.shape[1]
            flat = far.reshape(k * count, -1)
            ends = []
            for n in (n_low, n_high):
                sizes = np.repeat(n.astype(np.float64), count)
                ends.append(term.upper(sizes, sizes[:, None] * flat).reshape(k, count))
            inner = middle[:, None] * far[:, 0]
            with np.errstate(invalid="ignore"):
                n_score += 0.5 * (ends[0][:, 0] + ends[1][:, 0]) - term.upper(middle, inner)
            weights, _ = term.weights(middle, inner)
            corner.append(near.reshape(k, -1))
            height.append(np.stack(ends, axis=1))
            centre.append(m)
            gradient.append(shape.about(weights, m))
            extent.append(shape.extents(batch.low[:, at], batch.high[:, at]))
        boxes = Boxes(
            n_low, n_high, np.hstack(centre), np.hstack(gradient), np.hstack(extent),
            np.hstack(corner), np.concatenate(height, axis=2),
        )  # fmt: skip
        out = Bounds(
            np.empty(k), np.empty(k), np.zeros((k, self.n), np.int8),
            np.zeros((k, int(self._begin_of[-1]))),
        )  # fmt: skip
        bound_boxes(self.space, y, boxes, out, level, 0, k)
        return out, np.where(np.isfinite(n_score), n_score, 0.0)

    def _worth(self, members: Any, y: Vector) -> Vector:
        """Return log w(C) − y(C) of sets given as rows of zeros and ones; −∞ of empty ones."""
        sizes = members.sum(axis=1, dtype=np.int64)
        totals = members @ self.features
        values = self.form.log_marginals(sizes.astype(np.float64), totals)
        out = self.space.base[sizes] + values - members @ y
        return np.where(sizes > 0, out, -np.inf)

    def _record(self, members: Any, worth: Vector, y: Vector, run: Run) -> list[tuple[float, Ints]]:
        """Return sets above the run's floor, the best first, and raise prices if it is asked."""
        out: list[tuple[float, Ints]] = []
        order = np.argsort(-worth)
        for rank, at in enumerate(order[worth[order] > run.floor]):
            chosen, value = members[at], float(worth[at])
            if run.mode == RAISE:
                value = float(self._worth(chosen[None], y)[0])
                if value > run.floor:
                    if rank < _ASCENTS:
                        chosen, value = self._ascend(chosen, value, y)
                    y[chosen == 1] += value / chosen.sum()
                elif rank >= _MOST_CUTS:
                    continue
            out.append((value, np.flatnonzero(chosen)))
        return out

    def _ascend(self, chosen: Ints, value: float, y: Vector) -> tuple[Ints, float]:
        """Improve a set: the tangent plane at a set lies below log H, so its best set is better."""
        while True:
            size = float(chosen.sum())
            by_totals, by_size = self.form.weights(np.array([size]), (chosen @ self.features)[None])
            gain = self.features @ by_totals[0] + by_size[0] - y
            order = np.argsort(-gain)
            totals = self.space.base[1:] + np.cumsum(gain[order])
            other = np.zeros_like(chosen)
            other[order[: int(totals.argmax()) + 1]] = 1
            better = float(self._worth(other[None], y)[0])
            if not better > value + 1e-9:
                return chosen, value
            chosen, value = other, better

    def _split(self, boxes: _Open, score: Matrix, n_score: Vector) -> _Open:
        """Cut each box in two where it gives away most."""
        k = len(boxes.bound)
        half = 0.5 * (boxes.high - boxes.low)
        score = np.where(half > 0.0, score, -np.inf)
        for t, shape in enumerate(self.shapes):
            own = slice(self._begin_of[t], self._begin_of[t + 1])
            unknown = ~(score[:, own] < np.inf).all(axis=1)
            # Where f is not defined, the box reaches too far out of the domain.
            outside = shape.outside(half[unknown, own])
            score[unknown, own] = np.where(outside > 0.0, 1e100 * (1.0 + outside), -np.inf)
        best = score.argmax(axis=1)
        rows = np.arange(k)
        by_size = (boxes.n_low < boxes.n_high) & ~(score[rows, best] > _SIZES_FIRST * n_score)
        out = []
        for side in range(2):
            n_low, n_high = boxes.n_low.copy(), boxes.n_high.copy()
            low, high = boxes.low.copy(), boxes.high.copy()
            cut = np.floor(np.sqrt(n_low * n_high.astype(float))).astype(np.int64)
            cut = np.clip(cut, n_low, np.maximum(n_high - 1, n_low))
            middle = 0.5 * (low[rows, best] + high[rows, best])
            if side == 0:
                n_low = np.where(by_size, cut + 1, n_low)
                low[rows, best] = np.where(by_size, low[rows, best], middle)
            else:
                n_high = np.where(by_size, cut, n_high)
                high[rows, best] = np.where(by_size, high[rows, best], middle)
            out.append(self._shrunk(_Open(n_low, n_high, low, high, boxes.bound)))
        return out[0].join(out[1])
