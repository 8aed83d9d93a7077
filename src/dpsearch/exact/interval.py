"""One-dimensional statistics: a best partition by dynamic programming over sorted points.

For a cluster of n points with sum S of their statistic, log H = log ∫ exp(⟨S, η⟩ − n A(η)) π(dη)
is a cumulant function, so it is convex in S for a fixed n (and jointly in n and S).  Take two
clusters of a best partition and keep their sizes: as a function of the sum of the first, their
weight is convex, so it is largest at an extreme sum, where the first has the smallest or the
largest points of both.  So some best partition is contiguous in the order of the statistic
(Fisher 1958 has the argument for least squares).  The best value F of the first j points is then

    F[0] = 0,   F[j] = max over i < j of F[i] + w(i, j)
    w(i, j) = λ + log W(j − i) + log H(x_i … x_{j−1})

and F is its own proof: F[j] − F[i] ≥ w(i, j) for all i < j bounds every contiguous partition by
F[N], however F was found (`verify_potentials`).

Which statistics are one-dimensional: those of Gaussian, Poisson and Bernoulli on one column, and
of Multinomial over two words if the documents, as points of the plane, lie on a line, as they do
when all have the same length.  Otherwise the argument only gives clusters that lines separate;
there are documents whose best partition is contiguous neither by share, nor count, nor length.

log V need not be linear in the number K of clusters.  Over a range of K it is at most the line
through its ends, raised if need be; one programme with that line bounds all partitions with K in
the range, and is exact if it ends in a K where the line touches.  Otherwise the range is split
there.  For a convex log V (α integrated out, Pitman–Yor) this ends after a few programmes.

Starts i that cannot win are passed over in blocks.  Over a block the point (j − i, S) stays in a
parallelogram, since prefix sums of sorted numbers are convex; F stays below a line; and w is
jointly convex in n and S, so that line + w is largest in one of the four corners.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._special import LOG_2PI, log_gamma_table
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.exact._points import points_of
from dpsearch.exact.slopes import intercept
from dpsearch.problem import Problem

_SQUARE, _GAMMA, _BETA = range(3)
_LARGEST_TABLE = 1 << 22
_BITS = 3  # 2^3 starts in a block, 2^3 blocks in a larger one
_LEVELS = 4
_CELLS = 100_000_000  # pairs of start and end in one call of a kernel, were none passed over
_ROUNDING = 1e-12  # relative: two bounds this close are the same
_REACH = 64.0  # noise deviations from an anchor beyond which there is a new one
_ANCHORS = 128


class Line(NamedTuple):
    """Sorted points with a one-dimensional statistic, as kernels see them.

    With n points and sum S, w = base[n] + λ + a convex function of (n, S):
    ``square``: (S − shift)² scale[n], to which `_about` adds what depends on the anchor;
    ``gamma``: log Γ(shift + S) − S scale[n];
    ``beta``: log Γ(a + s) + log Γ(b + t) − log Γ(a + b + s + t) of the two counts
    s = corner[0] n + step[0] S and t = corner[1] n + step[1] S.
    """

    kind: int
    points: Vector  # the statistic of each
    sums: Vector  # [j]: of the first j points
    base: Vector
    scale: Vector
    shift: float
    corner: Vector
    step: Vector
    prior: Vector  # a, b and a + b
    first: Vector  # tables of log-gamma
    second: Vector
    both: Vector


class IntervalOptimum(NamedTuple):
    """A best partition, and what proves it.

    Row r of `potentials` bounds every partition with ranges[r, 0] to ranges[r, 1] clusters.
    """

    labels: Labels
    log_joint: float
    upper_bound: float
    order: Ints
    potentials: Matrix
    ranges: Ints


class _Proof(NamedTuple):
    """Potentials for numbers of clusters from low to high, and the bound that they give."""

    low: int
    high: int
    bound: float
    potentials: Vector


def why_not_interval(problem: Problem) -> str | None:
    """Say why the dynamic programme does not apply; None if it does."""
    statistic = _statistic(problem)
    return statistic if isinstance(statistic, str) else None


def interval_optimum(problem: Problem, deadline: float | None = None) -> IntervalOptimum | None:
    """Return a best partition of points with a one-dimensional statistic.

    None if the statistic is not one-dimensional (`why_not_interval` says why), or if the deadline
    (a time of `time.perf_counter`) comes before the first programme ends.  At a deadline after
    that, the partition may not be a best one, and `upper_bound` says how far it is from it.
    """
    statistic = _statistic(problem)
    if isinstance(statistic, str):
        return None
    order = np.argsort(statistic, kind="stable")
    line = _line(problem, statistic[order])
    log_v = problem.tables.log_v
    constant = _constant(problem)
    n = problem.n_items
    best = -math.inf
    labels = np.zeros(n, np.int64)
    todo: list[tuple[int, int, _Proof | None]] = [(1, n, None)]
    proofs: list[_Proof] = []
    while todo:
        low, high, wider = todo.pop()
        slope, height = majorant(log_v, low, high)
        solved = _solve(line, slope, _convex(problem), deadline)
        if solved is None:
            if wider is None:
                return None
            # Out of time: what bounds the wider range stands.
            if all(wider is not proof for proof in proofs):
                proofs.append(wider)
            continue
        potentials, starts = solved
        candidate = _labels(order, starts)
        n_clusters = int(candidate.max()) + 1
        bound = height + float(potentials[n])
        value = bound + float(log_v[n_clusters] - height - slope * n_clusters)
        if value > best:
            best, labels = value, candidate
        proof = _Proof(low, high, bound, potentials)
        if bound - best <= _ROUNDING * (1.0 + abs(best)) or not low < n_clusters < high:
            proofs.append(proof)
        else:
            todo += [(low, n_clusters, proof), (n_clusters, high, proof)]
    log_joint = problem.log_joint(labels)
    upper = max(proof.bound for proof in proofs) + constant
    return IntervalOptimum(
        labels=labels,
        log_joint=log_joint,
        upper_bound=max(upper, log_joint),  # equal up to rounding when optimal
        order=order,
        potentials=np.array([proof.potentials for proof in proofs]),
        ranges=np.array([(proof.low, proof.high) for proof in proofs]),
    )


def verify_potentials(problem: Problem, order: Ints, potentials: Matrix, ranges: Ints) -> float:
    """Return the upper bound on the log joint of every partition that potentials prove.

    Looks at every pair of start and end, and at nothing else than its arguments.  Potentials that
    are too small for some pairs still prove a bound: by the most that any cluster lacks, times the
    number of clusters, or by the sum over all ends of the most that a cluster with this end lacks.
    Infinity if the ranges leave a number of clusters out or the order is not one of the statistic.
    """
    statistic = _statistic(problem)
    n = problem.n_items
    if isinstance(statistic, str) or not np.array_equal(np.sort(order), np.arange(n)):
        return math.inf
    ordered = statistic[order]
    if (np.diff(ordered) < 0.0).any():
        return math.inf
    covered = np.zeros(n + 1, bool)
    line = _line(problem, ordered)
    out = -math.inf
    for (low, high), values in zip(np.asarray(ranges), np.asarray(potentials), strict=True):
        if not (1 <= low <= high <= n and values.shape == (n + 1,) and np.isfinite(values).all()):
            return math.inf
        slope, height = majorant(problem.tables.log_v, int(low), int(high))
        lacks = np.zeros(n + 1)
        for begin, end in _chunks(line):
            moved, gain = _about(line, begin)
            _find_lacks(moved, slope, values + gain, lacks, begin, end)
        lacking = min(int(high) * float(lacks.max()), float(lacks.sum()))
        out = max(out, height + float(values[n] - values[0]) + lacking)
        covered[low : high + 1] = True
    return out + _constant(problem) if covered[1:].all() else math.inf


def majorant(log_v: Vector, low: int, high: int) -> tuple[float, float]:
    """Return (λ, h) with log V(K) ≤ h + λK for K from low to high, through both ends if convex."""
    if low < high:
        slope = float(log_v[high] - log_v[low]) / (high - low)
    else:
        other = low + 1 if low + 1 < len(log_v) else max(low - 1, 1)
        slope = float(log_v[other] - log_v[low]) / (other - low) if other != low else 0.0
    return slope, intercept(log_v, slope, low, high)


# -- what the points look like ---------------------------------------------------------------


def _statistic(problem: Problem) -> Vector | str:
    """Return the one number per point that matters, or why there is none."""
    family, n_features = problem.model.family.name, problem.model.n_features
    if not problem.items.single:
        return "items are not single points"
    if problem.tables.multiplicity:
        return "the prior is not of product form"
    if family in ("gaussian", "poisson", "bernoulli") and n_features != 1:
        return f"the {family} family's statistic is one-dimensional for one column only"
    if family == "gaussian":
        values: Vector = problem.items.values
        return values
    if family in ("poisson", "bernoulli"):
        counts: Vector = points_of(problem)[:, 0]
        return counts
    if family == "multinomial" and n_features == 2:
        points = points_of(problem)
        documents = _line_of_documents(points)
        if documents is None:
            return "documents over two words must lie on a line, for example all have one length"
        corner, step = documents
        axis = 0 if step[0] != 0.0 else 1
        away: Vector = points[:, axis] - corner[axis]
        return away / step[axis] if step[axis] != 0.0 else away
    return f"the {family} family has no one-dimensional statistic for these data"


def _line_of_documents(counts: Matrix) -> tuple[Vector, Vector] | None:
    """Return a corner and a step such that every document is corner + whole number ≥ 0 · step."""
    order = np.lexsort((counts[:, 1], counts[:, 0]))
    corner, far = counts[order[0]], counts[order[-1]]
    away = far - corner
    offsets = counts - corner
    if (offsets[:, 0] * away[1] != offsets[:, 1] * away[0]).any():
        return None
    divisor = math.gcd(int(away[0]), int(away[1]))
    return corner, away / max(divisor, 1)


def _line(problem: Problem, ordered: Vector) -> Line:
    """Lay out points in the order of their statistic; without λ and `_constant`."""
    n = problem.n_items
    family, params = problem.model.family, problem.model.core.params
    sizes = np.arange(n + 1, dtype=np.float64)
    nothing = np.zeros(0)
    line = Line(
        _SQUARE, ordered, np.concatenate([[0.0], np.cumsum(ordered)]), problem.size_weights(),
        nothing, 0.0, nothing, nothing, nothing, nothing, nothing, nothing,
    )  # fmt: skip
    if family.name == "gaussian":
        tau = float(params[1])
        return line._replace(
            base=line.base - 0.5 * np.log1p(sizes / tau), scale=0.5 / (sizes + tau), shift=tau
        )
    if family.name == "poisson":
        shape, rate = float(params[4]), float(params[5])
        size = int(min(line.sums[n] + 2, _LARGEST_TABLE))
        return line._replace(
            kind=_GAMMA,
            base=line.base - shape * np.log1p(sizes / rate) - math.lgamma(shape),
            scale=np.log(rate + sizes),
            shift=shape,
            first=log_gamma_table(shape, size),
        )
    if family.name == "bernoulli":  # documents of one word, a one or a zero
        a, b = float(params[2]), float(params[3])
        corner, step = np.array([0.0, 1.0]), np.array([1.0, -1.0])
    else:
        a, b = float(params[4]), float(params[5])
        documents = _line_of_documents(points_of(problem))
        assert documents is not None  # or there would be no statistic
        corner, step = documents
    totals = corner * n + step * line.sums[n]
    tables = [
        log_gamma_table(offset, int(min(total + 2, _LARGEST_TABLE)))
        for offset, total in ((a, totals[0]), (b, totals[1]), (a + b, totals.sum()))
    ]
    prior = np.array([a, b, a + b])
    return line._replace(
        kind=_BETA,
        base=line.base - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b),
        corner=corner,
        step=step,
        prior=prior,
        first=tables[0],
        second=tables[1],
        both=tables[2],
    )


def _about(line: Line, begin: int) -> tuple[Line, Vector]:
    """Return the line as seen from where the end `begin` lies, and what potentials gain by it.

    For Gaussians, with z and the sum S measured from an anchor a and prior precision τ,

        log H = … − ½ Σ z² + ½ (S − aτ)²/(n + τ) − ½ a²τ

    where the first term is a matter of prefix sums, which potentials absorb.  It and the second
    all but cancel when the data are wide: with an anchor close by nothing is lost.
    """
    if line.kind != _SQUARE:
        return line, np.zeros(len(line.sums))
    anchor, tau = line.points[begin - 1], line.shift
    away = line.points - anchor
    moved = line._replace(
        sums=_sums_from(away, begin), base=line.base - 0.5 * anchor * anchor * tau,
        shift=anchor * tau,
    )  # fmt: skip
    return moved, 0.5 * _sums_from(away * away, begin)


def _sums_from(values: Vector, begin: int) -> Vector:
    """Return prefix sums, counted from `begin` in both directions."""
    left = -np.cumsum(values[:begin][::-1])[::-1]
    return np.concatenate([left, [0.0], np.cumsum(values[begin:])])


def _constant(problem: Problem) -> float:
    """What every partition has: factors of the points that no cluster changes."""
    if problem.model.family.name != "gaussian":
        return problem.log_base
    return problem.log_base - 0.5 * problem.n_items * LOG_2PI


def _convex(problem: Problem) -> bool:
    """Whether log W is convex, on which passing over starts in blocks depends."""
    return bool((np.diff(problem.size_weights()[1:], 2) > -1e-9).all())


# -- the programme ---------------------------------------------------------------------------


class _Blocks(NamedTuple):
    """Per level and block: F's upper line at both ends, how far sums fall below their chord."""

    left: Matrix
    right: Matrix
    gap: Matrix


def _solve(
    line: Line, slope: float, prune: bool, deadline: float | None
) -> tuple[Vector, Ints] | None:
    """Return (F, best start of each end); None if out of time."""
    n = len(line.points)
    values, starts = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    shape = (_LEVELS, (n >> _BITS) + 1)
    blocks = _Blocks(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    for begin, end in _chunks(line):
        if deadline is not None and time.perf_counter() > deadline:
            return None
        moved, gain = _about(line, begin)
        seen = values + gain
        _extend(moved, slope, prune, seen, starts, blocks, begin, end)
        values[begin:end] = seen[begin:end] - gain[begin:end]
    return values, starts


def _chunks(line: Line) -> list[tuple[int, int]]:
    """Cut the ends 1 … n: no call of a kernel takes long, nor reaches far from its anchor."""
    n = len(line.points)
    reach = max(_REACH, float(line.points[-1] - line.points[0]) / _ANCHORS)
    edges = [1]
    while edges[-1] <= n:
        begin = edges[-1]
        end = begin + max(1, _CELLS // max(begin, 10_000))
        if line.kind == _SQUARE:
            near = np.searchsorted(line.points, line.points[begin - 1] + reach, side="right")
            end = min(end, max(begin, int(near)) + 1)
        edges.append(min(end, n + 1))
    return list(itertools.pairwise(edges))


def _labels(order: Ints, starts: Ints) -> Labels:
    """Read the clusters from the last one backwards."""
    labels = np.empty(len(order), np.int64)
    end, k = len(order), 0
    while end > 0:
        begin = int(starts[end])
        labels[order[begin:end]] = k
        end, k = begin, k + 1
    return labels


@inner
def _log_gamma(table, offset, count):  # type: ignore[no-untyped-def]
    """Return log Γ(offset + count); infinity for counts that no points have."""
    if count < 0.0:
        return np.inf
    if count < table.shape[0]:
        return table[int(count)]
    x = offset + count  # some millions, so that Stirling's series is exact
    return (x - 0.5) * math.log(x) - x + 0.5 * LOG_2PI + 1.0 / (12.0 * x)


@inner
def _weight(line, n, total):  # type: ignore[no-untyped-def]
    """Return log W + log H of n points with this sum, without the points' own constants."""
    if line.kind == _SQUARE:
        away = total - line.shift
        return line.base[n] + away * away * line.scale[n]
    if line.kind == _GAMMA:
        return line.base[n] + _log_gamma(line.first, line.shift, total) - total * line.scale[n]
    s = line.corner[0] * n + line.step[0] * total
    t = line.corner[1] * n + line.step[1] * total
    if s < 0.0 or t < 0.0:
        return np.inf
    return (
        line.base[n]
        + _log_gamma(line.first, line.prior[0], s)
        + _log_gamma(line.second, line.prior[1], t)
        - _log_gamma(line.both, line.prior[2], s + t)
    )


@inner
def _close_block(line, values, blocks, level, last):  # type: ignore[no-untyped-def]
    """Describe the block of starts that ends with `last`."""
    size = 1 << _BITS * (level + 1)
    first = last - size + 1
    sums = line.sums
    rise = (values[last] - values[first]) / (size - 1)
    chord = (sums[last] - sums[first]) / (size - 1)
    above = 0.0
    gap = 0.0
    for i in range(first, last + 1):
        above = max(above, values[i] - values[first] - rise * (i - first))
        gap = max(gap, sums[first] + chord * (i - first) - sums[i])
    if line.kind != _SQUARE:
        gap = math.ceil(gap - 1e-6)  # sums are whole numbers
    at = first >> _BITS * (level + 1)
    blocks.left[level, at] = values[first] + above
    blocks.right[level, at] = values[last] + above
    blocks.gap[level, at] = gap


@inner
def _block_bound(line, blocks, level, last, end):  # type: ignore[no-untyped-def]
    """Return the largest F[i] + w(i, end) that any start of a block could have, without λ."""
    at = last >> _BITS * (level + 1)
    first = at << _BITS * (level + 1)
    gap = blocks.gap[level, at]
    left = line.sums[end] - line.sums[first]
    right = line.sums[end] - line.sums[last]
    a = _weight(line, end - first, left)
    b = _weight(line, end - last, right)
    if gap > 0.0:
        a = max(a, _weight(line, end - first, left + gap))
        b = max(b, _weight(line, end - last, right + gap))
    return max(blocks.left[level, at] + a, blocks.right[level, at] + b)


@inner
def _extend(line, slope, prune, values, starts, blocks, begin, end):  # type: ignore[no-untyped-def]
    """Set F and the best start for the ends from `begin` to `end` − 1."""
    sums = line.sums
    for level in range(_LEVELS if prune else 0):
        size = 1 << _BITS * (level + 1)
        for last in range(size - 1, begin, size):
            _close_block(line, values, blocks, level, last)
    for j in range(begin, end):
        # The start that was best for the end before is a good one to beat.
        arg = starts[j - 1]
        best = values[arg] + _weight(line, j - arg, sums[j] - sums[arg])
        stop = j
        while stop > 0:
            # The largest block that ends here, and if it may hold a better start, a smaller one.
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
                value = values[i] + _weight(line, j - i, sums[j] - sums[i])
                if value > best:
                    best = value
                    arg = i
            stop = low
        values[j] = best + slope
        starts[j] = arg
        for level in range(_LEVELS):
            if (j + 1) & ((1 << _BITS * (level + 1)) - 1) == 0:
                _close_block(line, values, blocks, level, j)


@inner
def _find_lacks(line, slope, values, out, begin, end):  # type: ignore[no-untyped-def]
    """Set out[j] to the largest w(i, j) − (F[j] − F[i]) above 0, for j in begin … end − 1."""
    sums = line.sums
    for j in range(begin, end):
        worst = 0.0
        for i in range(j):
            weight = _weight(line, j - i, sums[j] - sums[i]) + slope
            worst = max(worst, weight - (values[j] - values[i]))
        out[j] = worst
