"""One-dimensional statistics: a best partition by dynamic programming over sorted points.

For a cluster of n points with sum S of their statistic, log H = log ∫ exp(⟨S, η⟩ − n A(η)) π(dη)
is a cumulant function, and hence convex in S for fixed n (and jointly in n and S).  Take two
clusters of a best partition and keep their sizes: as a function of the sum of the first, their
weight is convex, and so largest at an extreme sum, where the first has the smallest or the largest
points of both.  Hence some best partition is contiguous in the order of the statistic (Fisher 1958
has the argument for least squares).  The best value F of the first j points is then

    F[0] = 0,   F[j] = max over i < j of F[i] + w(i, j)
    w(i, j) = λ + log W(j − i) + log H(x_i … x_{j−1})

and F is its own proof: if F[j] − F[i] ≥ w(i, j) for all i < j, then F[N] − F[0] bounds every
contiguous partition, no matter how F was found (`verify_potentials`).

Rounding.  Let u = 2⁻⁵³.  A pair (i, j) is examined as w(i, j) + F[i] − F[j], in which each term is
a sum or product of a few numbers: potentials and their gains by the choice of an anchor, log W,
log-gammas, squares.  Prefix sums are accurate to their last digits, for any length (those of
integers are exact; see `line._running_sums`).  The error of a term is therefore at most 16u times
the sum of the absolute values of its parts: at most 8 operations are made on each, and the
functions of the C library and SciPy are accurate to 4u.  `verify_potentials` adds this much to
every pair, so that pairs which pass the test also pass it in exact arithmetic.  The programme adds
twice as much, so that its potentials leave room for the rounding of both.  This raises F[j] once
for every cluster on the way to j, not for every point: F[N] is too large by at most
32u (2|F| + 2|gain| + |w|) for each cluster of the best partition, which is part of the stated
bound.  A stated bound is compared with the bound proved in verification without any tolerance.

log V need not be linear in the number K of clusters.  Over a range of K it is at most the line
through its ends, raised if necessary.  One programme with that line bounds all partitions with K in
the range, and is exact if its partition has a K at which the line touches log V.  Otherwise the
range is split at this K.  For a convex log V (α integrated out, Pitman–Yor) this ends after a few
programmes.

Starts i that cannot be best are skipped in blocks.  Over a block the point (j − i, S) stays in a
parallelogram, since prefix sums of sorted numbers are convex; F stays below a line; and w is
jointly convex in n and S, so that line + w is largest at one of the four corners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._jit import inner
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.exact.assumptions import EPSILON, at_least, rounding_of
from dpsearch.exact.line import (
    SQUARE,
    Line,
    anchored,
    chunks,
    find_shortfalls,
    interval_weight,
    line_of,
    values_on_line,
    weight,
)
from dpsearch.exact.proof import Bounded
from dpsearch.exact.slopes import intercept, is_convex, slope
from dpsearch.families.statistics import Statistic
from dpsearch.problem import Problem

_BITS = 3  # 2^3 starts in a block, 2^3 blocks in a larger one
_LEVELS = 4
_EQUAL = 1e-12  # relative difference below which two bounds count as equal
_PROVED = 8.0 * EPSILON  # relative error of a pair, 16u: see Rounding above
_STATED = 2.0 * _PROVED


class IntervalOptimum(NamedTuple):
    """A best partition, and the potentials that prove it, for ranges of the number of clusters."""

    labels: Labels
    order: Ints  # of the points on the line
    entries: tuple[Bounded, ...]


def interval_optimum(
    problem: Problem, statistic: Statistic | None, deadline: float = math.inf
) -> IntervalOptimum | None:
    """Return a best partition of points with a one-dimensional statistic.

    Return None if the statistic is not one-dimensional (see `line`), or if the deadline (a time of
    `clock`) passes before the first programme ends.  If it passes later, the partition may not be
    a best one, and the bound of the entries is above its log joint.
    """
    values = values_on_line(statistic)
    if statistic is None or values is None or not problem.prior.product_form:
        return None
    order = np.argsort(values, kind="stable")
    log_v, log_w, n = problem.log_v, problem.size_weights(), problem.n_items
    line = line_of(statistic, values[order], log_w, _STATED)
    best = -math.inf
    labels = np.zeros(n, np.int64)
    todo: list[tuple[int, int, Bounded | None]] = [(1, len(log_v) - 1, None)]
    entries: list[Bounded] = []
    while todo:
        low, high, wider = todo.pop()
        lam = slope(log_v, low, high)
        height = intercept(log_v, lam, low, high)
        solved = _solve(line, lam, is_convex(log_w), deadline)
        if solved is None:
            if wider is None:
                return None
            # Out of time: keep the bound of the wider range.
            if all(wider is not entry for entry in entries):
                entries.append(wider)
            continue
        potentials, starts = solved
        candidate = _labels(order, starts)
        n_clusters = int(candidate.max()) + 1
        bound = height + float(potentials[n])
        # The number of clusters may exceed what the prior allows, where log V is very low.
        value = bound + float(problem.tables.log_v[n_clusters] - height - lam * n_clusters)
        if value > best:
            best, labels = value, candidate
        entry = Bounded(low, high, lam, potentials, 0.0, "line", bound)
        if bound - best <= _EQUAL * (1.0 + abs(best)) or not low < n_clusters < high:
            entries.append(entry)
        else:
            todo += [(low, n_clusters, entry), (n_clusters, high, entry)]
    upper = max(_upper(problem, entry, 0.0, _STATED) for entry in entries)
    upper = at_least(problem.log_joint(labels), upper, rounding_of(problem, statistic, upper))
    return IntervalOptimum(labels, order, tuple(entry._replace(upper=upper) for entry in entries))


def verify_potentials(
    problem: Problem, statistic: Statistic | None, order: Ints, entries: Sequence[Bounded]
) -> list[float]:
    """Return the upper bound that each entry proves for partitions into its numbers of clusters.

    Every pair of start and end is examined.  Potentials that are too small for some pairs still
    prove a bound, raised by the largest shortfall of a pair times the number of clusters, or by the
    sum over all ends of the largest shortfall with this end.  Unless `order` sorts the statistic,
    nothing is proved and every bound is infinite.
    """
    points, n = values_on_line(statistic), problem.n_items
    if statistic is None or points is None or not problem.prior.product_form:
        return [math.inf] * len(entries)
    if not np.array_equal(np.sort(order), np.arange(n)) or (np.diff(points[order]) < 0.0).any():
        return [math.inf] * len(entries)
    line = line_of(statistic, points[order], problem.size_weights(), _PROVED)
    out = []
    for entry in entries:
        shortfalls = np.zeros(n + 1)
        slope_up = entry.lam + _PROVED * abs(entry.lam)
        for begin, end in chunks(line):
            moved, gain = anchored(line, begin, end)
            y = entry.y[:end]
            values, error = y + gain, _PROVED * (np.abs(y) + np.abs(gain))
            find_shortfalls(moved, slope_up, values + error, values - error, shortfalls, begin, end)
        shortfall = min(entry.high * float(shortfalls.max()), float(shortfalls.sum()))
        out.append(_upper(problem, entry, shortfall, _PROVED))
    return out


def _upper(problem: Problem, entry: Bounded, shortfall: float, rounding: float) -> float:
    """Return the bound by an entry's potentials on the log joint of partitions, rounded up."""
    height = intercept(problem.log_v, entry.lam, entry.low, entry.high)
    terms = [height, float(entry.y[-1]), -float(entry.y[0]), shortfall, problem.log_base]
    magnitude = sum(map(abs, terms)) + 2.0 * abs(entry.lam) * entry.high
    return sum(terms) + rounding * (magnitude + 1.0)


class _Blocks(NamedTuple):
    """Of each level and block: F's upper line at both ends, how far sums fall below their chord."""

    left: Matrix
    right: Matrix
    gap: Matrix


def _solve(line: Line, lam: float, prune: bool, deadline: float) -> tuple[Vector, Ints] | None:
    """Return (F, best start for each end); None if time runs out."""
    n = len(line.points)
    values, starts = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    slope_up = lam + line.rounding * abs(lam)
    shape = (_LEVELS, (n >> _BITS) + 1)
    blocks = _Blocks(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    for begin, end in chunks(line):
        if clock() > deadline:
            return None
        moved, gain = anchored(line, begin, end)
        raised = values[:end] + gain
        raised += line.rounding * (np.abs(values[:end]) + np.abs(gain))
        _extend(moved, slope_up, prune, values, gain, raised, starts, blocks, begin, end)
    return values, starts


def _labels(order: Ints, starts: Ints) -> Labels:
    """Return labels by following the best starts from the last cluster backwards."""
    labels = np.empty(len(order), np.int64)
    end, k = len(order), 0
    while end > 0:
        begin = int(starts[end])
        labels[order[begin:end]] = k
        end, k = begin, k + 1
    return labels


@inner
def _close_block(line, raised, blocks, level, last):  # type: ignore[no-untyped-def]
    """Set the upper line and the gap of the block of starts that ends with `last`."""
    size = 1 << _BITS * (level + 1)
    first = last - size + 1
    sums = line.sums
    rise = (raised[last] - raised[first]) / (size - 1)
    chord = (sums[last] - sums[first]) / (size - 1)
    above = 0.0
    gap = 0.0
    for i in range(first, last + 1):
        above = max(above, raised[i] - raised[first] - rise * (i - first))
        gap = max(gap, sums[first] + chord * (i - first) - sums[i])
    if line.kind != SQUARE:
        gap = math.ceil(gap - 1e-6)  # sums are integers
    at = first >> _BITS * (level + 1)
    blocks.left[level, at] = raised[first] + above
    blocks.right[level, at] = raised[last] + above
    blocks.gap[level, at] = gap


@inner
def _block_bound(line, blocks, level, last, end):  # type: ignore[no-untyped-def]
    """Return an upper bound of F[i] + w(i, end) over the starts of a block, without λ."""
    at = last >> _BITS * (level + 1)
    first = at << _BITS * (level + 1)
    gap, sums = blocks.gap[level, at], line.sums
    left = sums[end] - sums[first]
    right = sums[end] - sums[last]
    spread = 2.0 * (abs(sums[end]) + max(abs(sums[first]), abs(sums[last])) + gap)
    a = weight(line, end - first, left, spread)
    b = weight(line, end - last, right, spread)
    if gap > 0.0:
        a = max(a, weight(line, end - first, left + gap, spread))
        b = max(b, weight(line, end - last, right + gap, spread))
    start, stop = blocks.left[level, at], blocks.right[level, at]
    error = line.rounding * (abs(start) + abs(stop) + line.terms[end - first])
    return max(start + a, stop + b) + 2.0 * error


@inner
def _extend(line, slope, prune, values, gain, raised, starts, blocks, begin, end):  # type: ignore[no-untyped-def]
    """Set F and the best start for the ends from `begin` to `end` − 1.

    `raised` is F plus its gain by the anchor, rounded up as for a start.
    """
    for level in range(_LEVELS if prune else 0):
        size = 1 << _BITS * (level + 1)
        for last in range(size - 1, begin, size):
            _close_block(line, raised, blocks, level, last)
    for j in range(begin, end):
        # The best start of the previous end is a good first candidate.
        arg = starts[j - 1]
        best = raised[arg] + interval_weight(line, arg, j)
        stop = j
        while stop > 0:
            # Take the largest block that ends here, or a smaller one if it may hold a better start.
            level = -1
            while prune and level + 1 < _LEVELS and stop & ((1 << _BITS * (level + 2)) - 1) == 0:
                level += 1
            while level >= 0 and _block_bound(line, blocks, level, stop - 1, j) > best:
                level -= 1
            if level >= 0:
                stop -= 1 << _BITS * (level + 1)
                continue
            low = ((stop - 1) >> _BITS) << _BITS
            for i in range(stop - 1, low - 1, -1):
                value = raised[i] + interval_weight(line, i, j)
                if value > best:
                    best = value
                    arg = i
            stop = low
        best += slope
        error = line.rounding * (abs(best - gain[j]) + abs(gain[j]))
        values[j] = best + error - gain[j]
        raised[j] = best + 2.0 * error
        starts[j] = arg
        for level in range(_LEVELS):
            if (j + 1) & ((1 << _BITS * (level + 1)) - 1) == 0:
                _close_block(line, raised, blocks, level, j)
