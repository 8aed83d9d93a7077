"""Points with a one-dimensional statistic, sorted, and log H of their intervals.

One-dimensional are `NormalMeans`, `GammaCounts` and `BetaCounts` of one column, and
`DirichletCounts` of two words if the documents, as points of the plane, lie on a line, as they do
when all have the same length.  For other documents the argument of `interval` only gives clusters
that lines separate; there are some whose best partition is contiguous neither by share, nor count,
nor length.
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
    NormalMeans,
    Statistic,
)

SQUARE, GAMMA, BETA = range(3)
_LARGEST_TABLE = 1 << 22
_CELLS = 100_000_000  # pairs of start and end in one call of a kernel, were none passed over
_REACH = 64.0  # noise deviations from an anchor beyond which there is a new one
_ANCHORS = 128


class Line(NamedTuple):
    """Sorted points as kernels see them.

    With n points and sum S, log W + log H = base[n] + a convex function of (n, S):
    ``SQUARE``: (S − shift)² scale[n], to which `seen_from` adds what depends on the anchor;
    ``GAMMA``: log Γ(shift + S) − S scale[n];
    ``BETA``: log Γ(a + s) + log Γ(b + t) − log Γ(a + b + s + t) of the two counts
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


def values_on_line(statistic: Statistic | None) -> Vector | None:
    """Return the one number that matters of each point; None if there is no such number."""
    if statistic is None:
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
    """Return a corner and a step such that every document is corner + an integer ≥ 0 · step."""
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


def line_of(statistic: Statistic, ordered: Vector, log_w: Vector) -> Line:
    """Lay out points whose values on the line are `ordered`, with log W of every size."""
    n = len(ordered)
    sizes = np.arange(n + 1, dtype=np.float64)
    nothing = np.zeros(0)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    line = Line(
        SQUARE, ordered, sums, log_w, nothing, 0.0, nothing, nothing, nothing, nothing, nothing,
        nothing,
    )  # fmt: skip
    if isinstance(statistic, NormalMeans):
        tau = float(statistic.precision[0])
        base = log_w - 0.5 * np.log1p(sizes / tau) - 0.5 * LOG_2PI * sizes
        return line._replace(base=base, scale=0.5 / (sizes + tau), shift=tau)
    if isinstance(statistic, GammaCounts):
        shape, rate = float(statistic.shape[0]), float(statistic.rate[0])
        return line._replace(
            kind=GAMMA,
            base=log_w - shape * np.log1p(sizes / rate) - math.lgamma(shape),
            scale=np.log(rate + sizes),
            shift=shape,
            first=_table(shape, sums[n]),
        )
    if isinstance(statistic, BetaCounts):  # documents of one word, a one or a zero
        a, b = float(statistic.successes[0]), float(statistic.failures[0])
        corner, step = np.array([0.0, 1.0]), np.array([1.0, -1.0])
    else:
        a, b = map(float, statistic.concentrations)
        documents = _line_of_documents(statistic.points)
        assert documents is not None  # or there would be no values on a line
        corner, step = documents
    totals = corner * n + step * sums[n]
    return line._replace(
        kind=BETA,
        base=log_w - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b),
        corner=corner,
        step=step,
        prior=np.array([a, b, a + b]),
        first=_table(a, totals[0]),
        second=_table(b, totals[1]),
        both=_table(a + b, totals.sum()),
    )


def _table(offset: float, largest: float) -> Vector:
    return log_gamma_table(offset, int(min(largest + 2, _LARGEST_TABLE)))


def seen_from(line: Line, begin: int) -> tuple[Line, Vector]:
    """Return the line as seen from where the end `begin` lies, and what potentials gain by it.

    For `NormalMeans`, with z and the sum S measured from an anchor a and prior precision τ,

        log H = … − ½ Σ z² + ½ (S − aτ)²/(n + τ) − ½ a²τ

    where the first term is a matter of prefix sums, which potentials absorb.  It and the second
    all but cancel when the data are wide: with an anchor close by nothing is lost.
    """
    if line.kind != SQUARE:
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


def chunks(line: Line) -> list[tuple[int, int]]:
    """Cut the ends 1 … n: no call of a kernel takes long, nor reaches far from its anchor."""
    n = len(line.points)
    reach = max(_REACH, float(line.points[-1] - line.points[0]) / _ANCHORS)
    edges = [1]
    while edges[-1] <= n:
        begin = edges[-1]
        end = begin + max(1, _CELLS // max(begin, 10_000))
        if line.kind == SQUARE:
            near = np.searchsorted(line.points, line.points[begin - 1] + reach, side="right")
            end = min(end, max(begin, int(near)) + 1)
        edges.append(min(end, n + 1))
    return list(itertools.pairwise(edges))


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
def weight(line, n, total):  # type: ignore[no-untyped-def]
    """Return log W + log H of n points with this sum, without what `seen_from` says."""
    if line.kind == SQUARE:
        away = total - line.shift
        return line.base[n] + away * away * line.scale[n]
    if line.kind == GAMMA:
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
def find_lacks(line, slope, values, out, begin, end):  # type: ignore[no-untyped-def]
    """Set out[j] to the largest w(i, j) − (F[j] − F[i]) above 0, for j in begin … end − 1."""
    sums = line.sums
    for j in range(begin, end):
        worst = 0.0
        for i in range(j):
            value = weight(line, j - i, sums[j] - sums[i]) + slope
            worst = max(worst, value - (values[j] - values[i]))
        out[j] = worst
