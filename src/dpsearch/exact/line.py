"""Points with a one-dimensional statistic, sorted, and log H of their intervals.

Such statistics are `NormalMeans`, `GammaCounts` and `BetaCounts` of one column, and
`DirichletCounts` of two words if the documents lie on a line in the plane of the two counts, for
example because all have the same length.  For other documents the argument of `dynamic_programme`
implies only that lines separate the clusters: for some, the best partition is contiguous neither by
share, nor by count, nor by length.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._special import LOG_2PI, log_gamma_table
from dpsearch._types import Matrix, Vector
from dpsearch.families.statistics import (
    BetaCounts,
    DirichletCounts,
    GammaCounts,
    LevelCounts,
    NormalMeans,
    Statistic,
)

SQUARE, GAMMA, BETA = range(3)
_LARGEST_TABLE = 1 << 22
_CELLS = 100_000_000  # pairs of start and end in one call of a kernel, if none are skipped
_REACH = 8.0  # distance from an anchor, in noise standard deviations, that needs a new anchor
_ANCHORS = 200_000_000  # limit on anchors times points
_FEWEST_ANCHORS = 128


class Line(NamedTuple):
    """Sorted points as kernels use them.

    With n points and sum S, log W + log H = base[n] + a convex function of (n, S):
    ``SQUARE``: S (S − shift) scale[n], to which `anchored` adds what depends on the anchor;
    ``GAMMA``: log Γ(shift + S) − S scale[n];
    ``BETA``: log Γ(a + s) + log Γ(b + t) − log Γ(a + b + s + t) of the two counts
    s = corner[0] n + step[0] S and t = corner[1] n + step[1] S.
    """

    kind: int
    rounding: float  # error of a result, relative to the sum of the absolute values of its terms
    points: Vector  # the statistic of each
    sums: Vector  # [j]: of the first j points
    base: Vector
    terms: Vector  # [n]: the sum of the absolute values of the terms of base[n], and 1
    scale: Vector
    shift: float
    corner: Vector
    step: Vector
    prior: Vector  # a, b and a + b
    first: Vector  # tables of log-gamma
    second: Vector
    both: Vector


def values_on_line(statistic: Statistic | None) -> Vector | None:
    """Return the one-dimensional statistic of each point; None if the statistic has more."""
    if statistic is None or isinstance(statistic, LevelCounts):
        return None
    if isinstance(statistic, DirichletCounts):
        documents = _line_of_documents(statistic.points)
        if documents is None:
            return None
        corner, step = documents
        axis = 0 if step[0] != 0.0 else 1
        away: Vector = statistic.points[:, axis] - corner[axis]
        return away / step[axis] if step[axis] != 0.0 else away
    values: Vector = statistic.points[:, 0]
    return values if statistic.points.shape[1] == 1 else None


def _line_of_documents(counts: Matrix) -> tuple[Vector, Vector] | None:
    """Return a corner and a step such that every document is corner + k · step, k = 0, 1, 2, …"""
    if counts.shape[1] != 2:
        return None
    order = np.lexsort((counts[:, 1], counts[:, 0]))
    corner, far = counts[order[0]], counts[order[-1]]
    away = far - corner
    offsets = counts - corner
    if (offsets[:, 0] * away[1] != offsets[:, 1] * away[0]).any():
        return None
    divisor = math.gcd(int(away[0]), int(away[1]))
    return corner, away / max(divisor, 1)


def line_of(statistic: Statistic, ordered: Vector, log_w: Vector, rounding: float) -> Line:
    """Return the line of points whose sorted values are `ordered`, with log W of every size."""
    n = len(ordered)
    sizes = np.arange(n + 1, dtype=np.float64)
    nothing = np.zeros(0)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])  # of integers, or not used: `anchored`
    line = Line(
        SQUARE, rounding, ordered, sums, log_w, nothing, nothing, 0.0, *(nothing,) * 6,
    )  # fmt: skip
    if isinstance(statistic, NormalMeans):
        tau = float(statistic.precision[0])
        terms = (log_w, -0.5 * np.log1p(sizes / tau), -0.5 * LOG_2PI * sizes)
        return _based(line, terms)._replace(scale=0.5 / (sizes + tau), shift=tau)
    if isinstance(statistic, GammaCounts):
        shape, rate = float(statistic.shape[0]), float(statistic.rate[0])
        terms = (log_w, -shape * np.log1p(sizes / rate), np.full(n + 1, -math.lgamma(shape)))
        return _based(line, terms)._replace(
            kind=GAMMA, scale=np.log(rate + sizes), shift=shape, first=_table(shape, sums[n])
        )
    if isinstance(statistic, BetaCounts):  # as documents of one word, either a one or a zero
        a, b = float(statistic.successes[0]), float(statistic.failures[0])
        corner, step = np.array([0.0, 1.0]), np.array([1.0, -1.0])
    else:
        a, b = map(float, statistic.concentrations)
        documents = _line_of_documents(statistic.points)
        assert documents is not None  # or there would be no values on a line
        corner, step = documents
    totals = corner * n + step * sums[n]
    constants = -math.lgamma(a), -math.lgamma(b), math.lgamma(a + b)
    return _based(line, (log_w, *(np.full(n + 1, value) for value in constants)))._replace(
        kind=BETA,
        corner=corner,
        step=step,
        prior=np.array([a, b, a + b]),
        first=_table(a, totals[0]),
        second=_table(b, totals[1]),
        both=_table(a + b, totals.sum()),
    )


def _based(line: Line, terms: tuple[Vector, ...]) -> Line:
    return line._replace(base=np.sum(terms, axis=0), terms=1.0 + np.sum(np.abs(terms), axis=0))


def _table(offset: float, largest: float) -> Vector:
    return log_gamma_table(offset, int(min(largest + 2, _LARGEST_TABLE)))


def anchored(line: Line, begin: int, end: int) -> tuple[Line, Vector]:
    """Return the line up to `end` with its anchor near `begin`, and the potentials' gains by it.

    For `NormalMeans`, with z and the sum S measured from an anchor a and prior precision τ,

        log H = … − ½ Σ z² + ½ [S (S − 2aτ) − n a²τ]/(n + τ).

    The first term is a difference of prefix sums, which potentials absorb.  If the data spread
    widely, the two terms nearly cancel; with an anchor close by no digits are lost.
    """
    if line.kind != SQUARE:
        return line, np.zeros(end)
    anchor, tau = line.points[begin - 1], line.shift
    away = line.points[: end - 1] - anchor
    pull = np.arange(len(line.base)) * (anchor * anchor * tau) * line.scale
    moved = line._replace(
        sums=_sums_from(away, begin), base=line.base - pull, terms=line.terms + pull,
        shift=2.0 * anchor * tau,
    )  # fmt: skip
    return moved, 0.5 * _sums_from(away * away, begin)


def _sums_from(values: Vector, begin: int) -> Vector:
    """Return prefix sums, counted from `begin` in both directions."""
    left = -_running_sums(values[:begin][::-1])[::-1]
    return np.concatenate([left, [0.0], _running_sums(values[begin:])])


def _running_sums(values: Vector) -> Vector:
    """Return the sums of the first 1, 2, … values of one sign, each accurate to its last digits.

    The values are rounded to multiples of a unit so large that sums of multiples are exact; the
    remainders likewise, with a smaller unit.
    """
    rest, parts = values, []
    for _ in range(2):
        total = float(np.abs(rest).sum())
        if not 0.0 < total < math.inf:
            break
        # Numbers between this and twice as much are multiples of one unit.
        large = 2.0 ** (math.frexp(total)[1] + 1)
        part = (rest + large) - large
        parts.append(np.cumsum(part))
        rest = rest - part
    out: Vector = np.cumsum(rest)
    for part in reversed(parts):
        out += part
    return out


def chunks(line: Line) -> list[tuple[int, int]]:
    """Divide the ends 1 … n so that no kernel call takes long or reaches far from its anchor."""
    points, n = line.points, len(line.points)
    reach = _REACH if line.kind == SQUARE else math.inf
    most = max(_FEWEST_ANCHORS, _ANCHORS // n)
    while np.count_nonzero(np.diff(np.floor((points - points[0]) / reach))) >= most:
        reach *= 2.0
    edges = [1]
    while edges[-1] <= n:
        begin = edges[-1]
        end = begin + max(1, _CELLS // max(begin, 10_000))
        near = int(np.searchsorted(points, points[begin - 1] + reach, side="right"))
        edges.append(min(end, max(begin, near) + 1, n + 1))
    return list(itertools.pairwise(edges))


@inner
def _log_gamma(table, offset, count):  # type: ignore[no-untyped-def]
    """Return log Γ(offset + count); infinity for impossible counts."""
    if count < 0.0:
        return np.inf
    if count < table.shape[0]:
        return table[int(count)]
    x = offset + count  # millions, where Stirling's series is exact
    return (x - 0.5) * math.log(x) - x + 0.5 * LOG_2PI + 1.0 / (12.0 * x)


@inner
def weight(line, n, total, spread):  # type: ignore[no-untyped-def]
    """Return log W + log H of n points with this sum, rounded up, without the gains of `anchored`.

    The error of the sum may be up to the line's rounding times `spread`.
    """
    if line.kind == SQUARE:
        scale = line.scale[n]
        magnitude = (abs(total) + abs(line.shift)) * spread * scale
        return (
            line.base[n]
            + total * (total - line.shift) * scale
            + line.rounding * (line.terms[n] + magnitude)
        )
    if line.kind == GAMMA:
        first = _log_gamma(line.first, line.shift, total)
        second = total * line.scale[n]
        magnitude = abs(first) + abs(second)
        return line.base[n] + first - second + line.rounding * (line.terms[n] + magnitude)
    s = line.corner[0] * n + line.step[0] * total
    t = line.corner[1] * n + line.step[1] * total
    if s < 0.0 or t < 0.0:
        return np.inf
    first = _log_gamma(line.first, line.prior[0], s)
    second = _log_gamma(line.second, line.prior[1], t)
    both = _log_gamma(line.both, line.prior[2], s + t)
    magnitude = abs(first) + abs(second) + abs(both)
    return line.base[n] + first + second - both + line.rounding * (line.terms[n] + magnitude)


@inner
def interval_weight(line, i, j):  # type: ignore[no-untyped-def]
    """Return log W + log H of the points i … j − 1, rounded up."""
    left, right = line.sums[i], line.sums[j]
    return weight(line, j - i, right - left, abs(left) + abs(right))


@inner
def find_shortfalls(line, slope, raised, lowered, out, begin, end):  # type: ignore[no-untyped-def]
    """Set out[j] to the largest w(i, j) − (F[j] − F[i]) above 0, for j in begin … end − 1.

    The result is rounded up: `raised` is F for a start, `lowered` is F for an end.
    """
    for j in range(begin, end):
        best = -np.inf
        for i in range(j):
            best = max(best, raised[i] + interval_weight(line, i, j))
        out[j] = max(best + slope - lowered[j], 0.0)
