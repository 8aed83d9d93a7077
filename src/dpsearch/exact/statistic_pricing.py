"""Exact pricing of clusters of any family with a linear form, over boxes of the statistic.

log H(n, T) is convex in the size and the totals of a cluster (`dpsearch.families.linear`), so in a
box of statistics (`regions`) it lies below a plane, and the best set under a plane is found by
sorting (`_plane_bounds`).  As a box shrinks to a point, the plane becomes a tangent, which lies
below log H everywhere: a box without a set above its price can be closed at any tolerance.

A *node* is a box with points that are in all of its sets, and points that are in none.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._records import zeros
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.exact._box_limits import IN, OPEN, OUT, Space, shrink_boxes
from dpsearch.exact._plane_bounds import Bounds, Boxes, bound_boxes
from dpsearch.exact.assumptions import EPSILON, Totals
from dpsearch.exact.pricing import ALL, LARGEST, RAISE, Explored, Pricer, Run
from dpsearch.exact.regions import Shape, shape_of
from dpsearch.problem import Problem

_BATCH = 512  # nodes at a time
_SHARE = 256  # nodes of a batch that one thread bounds
_MANY = 20_000  # open nodes above which the search is depth-first
_ASCENTS = 4  # sets of a batch that are improved before prices are raised for them
_MOST_CUTS = 16  # sets of a batch that become cuts even if other sets have raised their prices
_SIZES_FIRST = 32.0  # factor by which splits by size are preferred to others
_LOCAL = 1.0  # largest square of a small box's half widths relative to its variances
_FEW = 6  # with no more open points, their sets are enumerated


class _Nodes(NamedTuple):
    """Open nodes."""

    n_low: Ints
    n_high: Ints
    low: Matrix  # [node, coordinate]
    high: Matrix
    bound: Vector
    status: Any  # int8 [node, point]

    def take(self, which: Any) -> _Nodes:
        return _Nodes(*(field[which] for field in self))

    @classmethod
    def joined(cls, parts: list[_Nodes]) -> _Nodes:
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class _Stack:
    """Open nodes in slots of arrays: by decreasing bound per point, or depth-first if many."""

    def __init__(self, nodes: _Nodes) -> None:
        self._nodes = nodes
        self._free: list[int] = []
        self._heap: list[tuple[float, int]] = []
        self._deep: list[int] = []
        self._insert(np.arange(len(nodes.bound)))

    def __len__(self) -> int:
        return len(self._heap) + len(self._deep)

    def put(self, nodes: _Nodes) -> None:
        count, capacity = len(nodes.bound), len(self._nodes.bound)
        if count > len(self._free):
            more = max(capacity, count)
            self._nodes = _Nodes(
                *(np.concatenate([old, np.empty((more, *old.shape[1:]), old.dtype)])
                  for old in self._nodes)
            )  # fmt: skip
            self._free += range(capacity, capacity + more)
        slots = np.array([self._free.pop() for _ in range(count)], dtype=np.int64)
        for field, new in zip(self._nodes, nodes, strict=True):
            field[slots] = new
        self._insert(slots)

    def pop(self) -> _Nodes:
        slots = [
            self._deep.pop() if self._deep else heapq.heappop(self._heap)[1]
            for _ in range(min(_BATCH, len(self)))
        ]
        self._free += slots
        return self._nodes.take(np.array(slots, dtype=np.int64))

    def left(self) -> _Nodes:
        """Return all open nodes."""
        slots = self._deep + [slot for _, slot in self._heap]
        return self._nodes.take(np.array(slots, dtype=np.int64))

    def _insert(self, slots: Ints) -> None:
        if len(self._heap) >= _MANY:
            self._deep += slots[np.argsort(self._nodes.bound[slots])].tolist()
            return
        lack = self._nodes.bound[slots] / self._nodes.n_low[slots]
        for key, slot in zip((-lack).tolist(), slots.tolist(), strict=True):
            heapq.heappush(self._heap, (key, slot))


class StatisticPricer(Pricer):
    """Branch and bound over boxes of sizes and averages of features, and over points."""

    def __init__(self, problem: Problem, totals: Totals, lam: float, n_threads: int = 1) -> None:
        super().__init__(problem, lam, float(lam) + problem.size_weights()[1] + problem.alone)
        self.form, self.features = totals
        self.shapes = [shape_of(term, self.n) for term in self.form.terms]
        self.space = _space(totals, self.shapes, self.lam + self.log_w)
        self._scales = np.concatenate([shape.scales for shape in self.shapes])
        self.n_threads = n_threads
        self.n_boxes = 0

    def fit(self, labels: Labels) -> Vector:
        """Return the values at the points of log H's tangent plane at their cluster's statistic."""
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
        if self.n_threads == 1:
            return self._explore(y, run, map)
        with ThreadPoolExecutor(self.n_threads) as threads:
            return self._explore(y, run, threads.map)

    def _explore(self, y: Vector, run: Run, apply: Callable[..., Iterator[Any]]) -> Explored:
        sets: dict[bytes, tuple[float, Ints]] = {}  # a set may be the best of several boxes
        level = run.level
        stack = _Stack(self._root())
        while len(stack) and clock() <= run.deadline and len(sets) <= run.limit:
            batch = stack.pop()
            batch = batch.take(batch.bound > level)
            begins = range(0, len(batch.bound), _SHARE)
            shares = [batch.take(slice(at, at + _SHARE)) for at in begins]
            # All are bounded before any price is raised, so the result does not depend on threads.
            bounded = list(apply(partial(self._bound, y, level), shares))
            for nodes, bounds, n_score in bounded:
                self.n_boxes += len(nodes.bound)
                worth = self._worth(bounds.members, y)
                found = self._record(bounds.members, worth, y, run)
                sets.update((one[1].tobytes(), one) for one in found)
                if run.mode == LARGEST and found:
                    level = max(level, max(value for value, _ in found) + run.rounding)
                # The best set under the plane is now known; only others can still be above.
                if run.mode == RAISE and found:
                    worth = self._worth(bounds.members, y)
                above = (worth > level) & (run.mode != ALL)
                left = np.maximum(bounds.other, np.where(above, worth + run.rounding, -np.inf))
                left = np.where(bounds.bound < np.inf, left, np.inf)
                left = np.minimum(left, np.minimum(bounds.bound, nodes.bound))
                keep = np.flatnonzero(left > level)
                if len(keep):
                    listed = run.mode == ALL and worth[keep] >= run.floor
                    nodes = nodes.take(keep)._replace(bound=left[keep])
                    stack.put(self._split(nodes, bounds, n_score, keep, listed))
        opened = stack.left()
        left = np.full(self.n + 1, -math.inf)
        np.maximum.at(left, opened.n_low, opened.bound)
        return Explored(list(sets.values()), left, level)

    def _root(self) -> _Nodes:
        """Return boxes that contain the statistics of all sets of at least two points.

        No size in a box is twice another, so that the points of a set can share what it lacks.
        """
        n_low = 2 ** np.arange(1, max(int(self.n).bit_length(), 1))
        shape = len(n_low), int(self.space.begin[-1])
        low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
        for begin in self.space.begin[:-1][self.space.counted == 1]:
            low[:, begin], high[:, begin] = 0.0, 1.0
        status = np.full((len(n_low), self.n), OPEN, np.int8)
        n_high = np.minimum(2 * n_low - 1, self.n)
        return _Nodes(n_low, n_high, low, high, np.full(len(n_low), np.inf), status)

    def _bound(self, y: Vector, level: float, nodes: _Nodes) -> tuple[_Nodes, Bounds, Vector]:
        """Return the non-empty nodes after shrinking, their bounds, and their looseness by size."""
        alive = np.ones(len(nodes.bound), bool)
        shrink_boxes(self.space, *nodes[:4], nodes.status, alive)
        nodes = nodes if alive.all() else nodes.take(alive)
        k, n_low, n_high = len(nodes.bound), nodes.n_low, nodes.n_high
        middle: Vector = 0.5 * (n_low + n_high).astype(np.float64)
        corner, height, frame, gradient, extent, parts = [], [], [], [], [], []
        cap = np.full((k, 2, len(self.shapes)), np.inf)
        n_score = np.zeros(k)
        for t, (term, shape, at) in enumerate(self._terms()):
            points = shape.points(nodes.low[:, at], nodes.high[:, at])
            count = points.near.shape[1]
            flat = points.far.reshape(k * count, shape.width)
            ends = []
            for side, n in enumerate((n_low.astype(np.float64), n_high.astype(np.float64))):
                sizes = np.repeat(n, count)
                ends.append(term.upper(sizes, sizes[:, None] * flat).reshape(k, count))
                if shape.squares and not shape.counted:
                    peak = shape.peak(nodes.low[:, at], nodes.high[:, at])
                    cap[:, side, t] = term.upper(n, n[:, None] * peak)
            centre = middle[:, None] * points.far[:, 0]
            with np.errstate(invalid="ignore"):
                n_score += 0.5 * (ends[0][:, 0] + ends[1][:, 0]) - term.upper(middle, centre)
            weights, _ = term.weights(middle, centre)
            corner.append(points.near.reshape(k, count * shape.width))
            height.append(np.stack(ends, axis=1))
            frame.append(points.frame)
            parts.append(points.parts)
            gradient.append(shape.about(weights, points.frame))
            extent.append(np.abs(points.near - points.near[:, :1]).max(axis=1))
        boxes = Boxes(
            n_low, n_high, np.hstack(frame), np.hstack(gradient), np.hstack(extent),
            np.hstack(parts), np.hstack(corner), np.concatenate(height, axis=2), cap,
        )  # fmt: skip
        out = zeros(Bounds, k, members=(k, self.n), score=nodes.low.shape)
        bound_boxes(self.space, y, boxes, nodes.status, out, level)
        return nodes, out, np.where(np.isfinite(n_score), n_score, 0.0)

    def _terms(self) -> Iterator[tuple[Any, Shape, slice]]:
        """Yield each term with its shape and the slice of its coordinates."""
        ends = zip(self.space.begin[:-1], self.space.begin[1:], strict=True)
        for term, shape, (begin, end) in zip(self.form.terms, self.shapes, ends, strict=True):
            yield term, shape, slice(begin, end)

    def _worth(self, members: Any, y: Vector) -> Vector:
        """Return log w(C) − y(C) of sets given as rows of zeros and ones; −∞ of empty ones."""
        sizes = members.sum(axis=1, dtype=np.int64)
        totals = members @ self.features
        values = self.form.log_marginals(sizes.astype(np.float64), totals)
        out = self.space.base[sizes] + values - members @ y
        return np.where(sizes > 0, out, -np.inf)

    def _record(self, members: Any, worth: Vector, y: Vector, run: Run) -> list[tuple[float, Ints]]:
        """Return sets above the run's floor, best first; in mode RAISE, raise prices for them."""
        out: list[tuple[float, Ints]] = []
        order = np.argsort(-worth)
        for rank, at in enumerate(order[worth[order] >= run.floor]):
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

    def near(self, columns: list[Ints], y: Vector, threshold: float) -> list[Ints]:
        out = {}
        for members in columns:
            chosen: Any = np.zeros(self.n, np.int8)
            chosen[members] = 1
            chosen, value = self._ascend(chosen, float(self._worth(chosen[None], y)[0]), y)
            if value > threshold:
                out[chosen.tobytes()] = np.flatnonzero(chosen)
        return list(out.values())

    def _ascend(self, chosen: Ints, value: float, y: Vector) -> tuple[Ints, float]:
        """Improve a set: the tangent plane there lies below log H, so its best set is no worse."""
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

    def _split(
        self, nodes: _Nodes, bounds: Bounds, n_score: Vector, keep: Ints, listed: Any
    ) -> _Nodes:
        """Split each node where its bound is loosest, or by a point if it has a set to list."""
        half = 0.5 * (nodes.high - nodes.low)
        score = np.where(half > 0.0, bounds.score[keep], -np.inf)
        for _, shape, own in self._terms():
            # Planes say little if f is not defined or a box is large relative to its variances.
            outside = shape.outside(
                nodes.low[:, own], nodes.high[:, own], nodes.n_high.astype(float)
            )
            unknown: Any = ~(score[:, own] < np.inf).all(axis=1)
            if shape.squares:
                unknown |= (outside > _LOCAL).any(axis=1)
            large = np.where(outside > 0.0, 1e100 * (1.0 + outside), -np.inf)
            score[:, own] = np.where(unknown[:, None], large, score[:, own])
        best, rows = np.asarray(score.argmax(axis=1)), np.arange(len(keep))
        largest = score[rows, best]
        n_open = (nodes.status == OPEN).sum(axis=1)
        point = bounds.point[keep]
        # The chosen point may have been fixed since.
        known = (point < 0) | (nodes.status[rows, point] != OPEN)
        point = np.where(known, (nodes.status == OPEN).argmax(axis=1), point)
        by_point: Any = (n_open > 0) & (listed | (n_open <= _FEW) | (largest == -np.inf))
        by_size = (
            ~by_point & (nodes.n_low < nodes.n_high) & ~(largest > _SIZES_FIRST * n_score[keep])
        )
        by_box = ~by_point & ~by_size
        cut = np.floor(np.sqrt(nodes.n_low * nodes.n_high.astype(float))).astype(np.int64)
        cut = np.clip(cut, nodes.n_low, np.maximum(nodes.n_high - 1, nodes.n_low))
        low, high = nodes.low[rows, best], nodes.high[rows, best]
        scale = np.where(self._scales[best], 1.0 / nodes.n_high, np.inf)
        with np.errstate(invalid="ignore"):  # variances are split at their geometric mean
            middle = np.sqrt((low + scale) * (high + scale)) - scale
        middle = np.where(self._scales[best], np.clip(middle, low, high), 0.5 * (low + high))
        below = nodes._replace(
            n_high=np.where(by_size, cut, nodes.n_high), high=nodes.high.copy(),
            status=nodes.status.copy(),
        )  # fmt: skip
        above = nodes._replace(n_low=np.where(by_size, cut + 1, nodes.n_low), low=nodes.low.copy())
        below.high[rows[by_box], best[by_box]] = middle[by_box]
        above.low[rows[by_box], best[by_box]] = middle[by_box]
        below.status[rows[by_point], point[by_point]] = OUT
        above.status[rows[by_point], point[by_point]] = IN
        return _Nodes.joined([below, above])


def _space(totals: Totals, shapes: list[Shape], base: Vector) -> Space:
    """Arrange the values of all terms."""
    values, masks = [], []
    for term, shape in zip(totals.form.terms, shapes, strict=True):
        own = term.of(totals.features)
        masks.append(own[:, 0] if shape.counted else np.ones(len(own)))
        values.append(own[:, shape.counted : shape.counted + shape.n_values])
    joined = np.ascontiguousarray(np.hstack(values).T)
    largest = 1.0 + np.abs(joined).max(axis=1)
    whole = (joined == np.floor(joined)).all(axis=1) & (largest * len(base) < 1e9)
    return Space(
        values=joined,
        order=np.ascontiguousarray(np.argsort(joined, axis=1, kind="stable")),
        largest=largest,
        whole=whole.astype(np.int64),
        masks=np.ascontiguousarray(masks),
        n_values=np.array([s.n_values for s in shapes]),
        squares=np.array([s.squares for s in shapes], dtype=np.int64),
        counted=np.array([s.counted for s in shapes], dtype=np.int64),
        least=np.array([s.least for s in shapes]),
        begin=np.concatenate([[0], np.cumsum([s.width for s in shapes])]),
        corners=np.concatenate([[0], np.cumsum([len(s.mean) for s in shapes])]),
        base=base,
    )
