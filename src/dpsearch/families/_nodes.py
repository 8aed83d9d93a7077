"""Quadrature over the parameter: kernels of families whose prior is on nodes.

    H(x) = Σ_g π_g exp T_g,   T_g = Σ_i log p(x_i | θ_g)        column by column

is exact for a prior that gives θ_g the probability π_g.  With the weights w_g ∝ π_g exp T_g

    predictive   p(x | C) = Σ_g w_g p(x | θ_g) / Σ_g w_g                one inner product

A data row says for each column where e_g = p(x | θ_g)/max_h p(x | θ_h) are: in the parameters,
which hold those of whole numbers that are common, or further on in the row itself.  The logarithms
of the maxima are `log_base`.  A density that is e^300 times smaller than the largest counts as
that.  A missing value has e_g = 1 at all nodes, which skips it exactly.

A point that comes is multiplied into the weights of the nodes from `first` to `last` alone, which
had all weights above 1e-40 of their sum when all were last computed from T.  Beside the sum the
others grow at most as it shrinks: by 1e8 until all are computed again, when what is `left` of the
sum is less than 1e-8.  If an inner product over these nodes is less than 1e-18, it is known to be
no more than about that, which shows most clusters not to be the best place; for the others all
nodes are summed.

A column's part of a row: T, w, and the numbers of `_COLUMN`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inline, inner, pointer, view
from dpsearch._special import vector_exp, vector_log
from dpsearch.families import layout
from dpsearch.families.functions import Functions
from dpsearch.families.layout import table

LEAST = -300.0  # of log e
_NEGLIGIBLE = 1e-40
_LEFT = 1e-8
_ENOUGH = 1e-18  # of an inner product of what is not negligible
_LEADING = 2  # columns that say which cluster is scored first
_MARGIN = 1e-9  # nats: scores nearer to each other are compared in full
_FULL = 1e-200  # of a product of such sums


class _Params(NamedTuple):
    n_nodes: layout.Number  # of each column
    n_features: layout.Number
    log_weights: layout.Numbers  # log π, column by column
    densities: layout.Numbers  # e of missing values, and of those that are common in each column
    logs: layout.Numbers  # log e of these


class _Column(NamedTuple):
    """Numbers of a column, after its vectors."""

    top: int  # weights are beside exp of this
    inverse: int  # 1/Σ w
    first: int
    last: int
    left: int


PARAMS = layout.params(_Params)
_COLUMN = _Column(*range(5))


def columns_width(n_nodes: int) -> int:
    """Return how many numbers a row has of each column."""
    return 2 * n_nodes + len(_COLUMN)


@inner
def _begin(params, d):  # type: ignore[no-untyped-def]
    return 1 + d * (2 * int(params[PARAMS.n_nodes]) + 5)


@inline
def _densities(params, values, d):  # type: ignore[no-untyped-def]
    """Return e of a data row's value in column d: from the parameters, or from the row itself."""
    size, place = int(params[PARAMS.n_nodes]), int(values[d])
    return view(
        table(params, PARAMS.densities) if place >= 0 else values,
        place * size if place >= 0 else -place,
        size,
    )


@inner
def _add_logs(params, values, d, weight, out):  # type: ignore[no-untyped-def]
    """Add log e of a data row's value in column d to sums, times a weight."""
    size, place = out.shape[0], int(values[d])
    if place >= 0:
        logs = view(table(params, PARAMS.logs), place * size, size)
        for g in range(size):
            out[g] += weight * logs[g]
    else:
        densities = view(values, -place, size)
        for g in range(size):
            out[g] += weight * vector_log(densities[g])


@inner
def _top(logs, prior):  # type: ignore[no-untyped-def]
    """Return a whole number that the largest log π + T, which is 0 at most, is hardly below."""
    top = np.int32(-2_000_000_000)
    for g in range(logs.shape[0]):  # integers: the largest number would not be found in vectors
        top = max(top, np.int32(max(logs[g] + prior[g], -2e9)))
    return float(top)


@inner
def _refresh(params, row, d):  # type: ignore[no-untyped-def]
    """Derive from the sums of column d everything else."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    logs, weights = view(row, begin, size), view(row, begin + size, size)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    numbers, top, total = begin + 2 * size, _top(logs, prior), 0.0
    for g in range(size):
        weights[g] = vector_exp(logs[g] + prior[g] - top)
        total += weights[g]
    least, first, last = _NEGLIGIBLE * total, size, 0
    for g in range(size):
        first = min(first, g if weights[g] > least else size)
        last = max(last, g if weights[g] > least else 0)
    row[numbers + _COLUMN.top] = top
    row[numbers + _COLUMN.inverse] = 1.0 / total
    row[numbers + _COLUMN.first] = first // 8 * 8
    row[numbers + _COLUMN.last] = last // 8 * 8 + 8
    row[numbers + _COLUMN.left] = 1.0


@inner
def _multiply(params, row, d, values):  # type: ignore[no-untyped-def]
    """Multiply a point into the weights that matter of column d."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    numbers = begin + 2 * size
    first, last = int(row[numbers + _COLUMN.first]), int(row[numbers + _COLUMN.last])
    weights = view(row, begin + size + first, last - first)
    densities = view(_densities(params, values, d), first, last - first)
    total = 0.0
    for g in range(last - first):
        weights[g] *= densities[g]
        total += weights[g]
    left = row[numbers + _COLUMN.left] * total * row[numbers + _COLUMN.inverse]
    if left < _LEFT:
        _refresh(params, row, d)
        return
    row[numbers + _COLUMN.left] = left
    row[numbers + _COLUMN.inverse] = 1.0 / total


@pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += weight
    for d in range(int(params[PARAMS.n_features])):
        _add_logs(params, values, d, weight, view(row, _begin(params, d), size))
        if weight == 1.0 and row[0] > 1.0:
            _multiply(params, row, d, values)
        else:
            _settle(params, row, d)


@inner
def _settle(params, row, d):  # type: ignore[no-untyped-def]
    """Refresh column d, whose sums are 0 in an empty cluster."""
    if row[0] <= 0.0:
        begin = _begin(params, d)
        for g in range(begin, begin + int(params[PARAMS.n_nodes])):
            row[g] = 0.0
    _refresh(params, row, d)


@pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += sign * other[0]
    for d in range(int(params[PARAMS.n_features])):
        begin = _begin(params, d)
        for g in range(begin, begin + size):
            row[g] += sign * other[g]
        _settle(params, row, d)


@inner
def _near(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return Σ w e / Σ w over the nodes that matter of the column d whose part begins here."""
    size = int(params[PARAMS.n_nodes])
    numbers = begin + 2 * size
    first, last = int(pool[numbers + _COLUMN.first]), int(pool[numbers + _COLUMN.last])
    weights = view(pool, begin + size + first, last - first)
    densities = view(_densities(params, values, d), first, last - first)
    total = 0.0
    for g in range(last - first):
        total += weights[g] * densities[g]
    return total * pool[numbers + _COLUMN.inverse]


@inner
def _log_h(params, pool, begin):  # type: ignore[no-untyped-def]
    """Return log H of the column whose part begins here."""
    numbers = begin + 2 * int(params[PARAMS.n_nodes])
    return pool[numbers + _COLUMN.top] - math.log(pool[numbers + _COLUMN.inverse])


@inner
def _log_sum(params, pool, begin, values, d, out):  # type: ignore[no-untyped-def]
    """Return log Σ π e exp T over all nodes; log Σ π/e exp T, if the point is to be taken `out`."""
    size = int(params[PARAMS.n_nodes])
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    logs, densities = view(pool, begin, size), _densities(params, values, d)
    top, total = _top(logs, prior), 0.0
    for g in range(size):
        weight = vector_exp(logs[g] + prior[g] - top)
        total += weight / densities[g] if out else weight * densities[g]
    return top + math.log(total)


@inner
def _far(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return the log predictive of column d by all nodes."""
    return _log_sum(params, pool, begin, values, d, False) - _log_h(params, pool, begin)


@inner
def _score(params, pool, start, values, best):  # type: ignore[no-untyped-def]
    """Return the score of a row, or −∞ once it is seen to be below `best`.

    No column adds more than 0, as e ≤ 1.  There is one logarithm of the product of several columns.
    """
    score, product, limit = 0.0, 1.0, math.exp(best)
    for d in range(int(params[PARAMS.n_features])):
        begin = start + _begin(params, d)
        total = _near(params, pool, begin, values, d)
        if product * max(total, _ENOUGH) < limit:
            return -math.inf
        if total > _ENOUGH:
            product *= total
        else:
            score += _far(params, pool, begin, values, d)
        if total <= _ENOUGH or product < _FULL:
            score += math.log(product)
            product = 1.0
            limit = math.exp(best - score)
    return score + math.log(product)


@pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        out[k] = _score(params, pool, starts[k], values, -math.inf)


@inner
def _product(params, pool, start, values, first, last, product, least):  # type: ignore[no-untyped-def]
    """Multiply by the predictives of some columns; −1 times a bound, if one is not near enough.

    Return 0 once the product is seen to be below `least`.
    """
    sign = 1.0
    for d in range(first, min(last, int(params[PARAMS.n_features]))):
        total = _near(params, pool, start + _begin(params, d), values, d)
        product *= max(total, _ENOUGH)
        sign = sign if total > _ENOUGH else -1.0
        if product < least:
            return 0.0
    return sign * product


@inner
def _read(values):  # type: ignore[no-untyped-def]
    """Return whether a data row has numbers only: always, but memory is fast if read in order.

    Scores need parts of the row, here and there, and a cluster that gets the point all of it.
    """
    total = 0.0
    for g in range(values.shape[0]):
        total += values[g]
    return not math.isnan(total)


@inner
def _floor(below):  # type: ignore[no-untyped-def]
    """Return the product that a score so far below the largest offset needs, 0 if too small."""
    out = math.exp(below - _MARGIN)
    return out if out > _FULL else 0.0


@pointer("score_best")
def _score_best(params, pool, starts, offsets, skipped, ids, values, out):  # type: ignore[no-untyped-def]
    """First the cluster is scored that leads after two columns; there are few logarithms.

    Offsets and predictives are multiplied; what is only a bound has a minus.
    """
    leader, most = -1, -math.inf
    if not _read(values):
        return
    for k in range(starts.shape[0]):
        most = max(most, offsets[k])
    for k in range(starts.shape[0]):
        out[k] = vector_exp(offsets[k] - most)
    for k in range(starts.shape[0]):
        if k != skipped:
            out[k] = _product(params, pool, starts[k], values, 0, _LEADING, out[k], 0.0)
            if leader < 0 or abs(out[k]) > abs(out[leader]):
                leader = k
    if leader < 0:
        return
    best, floor, n_features = -math.inf, 0.0, int(params[PARAMS.n_features])
    for j in range(-1, starts.shape[0]):
        k = leader if j < 0 else j
        if k == skipped or j == leader:
            continue
        product = out[k]
        if product > _FULL and product >= floor:
            product = _product(
                params, pool, starts[k], values, _LEADING, n_features, product, floor
            )
        if abs(product) < floor:
            out[k] = -math.inf
        elif product > _FULL:
            out[k] = most + math.log(product)
        else:
            least = best - _MARGIN - offsets[k]
            out[k] = offsets[k] + _score(params, pool, starts[k], values, least)
        if out[k] > best:
            best = out[k]
            floor = _floor(best - most)


@pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    out = 0.0
    for d in range(int(params[PARAMS.n_features])):
        out += _log_h(params, row, _begin(params, d))
    return out


@pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    out = 0.0
    for d in range(int(params[PARAMS.n_features])):
        begin = _begin(params, d)
        out += _log_h(params, row, begin) - _log_sum(params, row, begin, values, d, True)
    return out


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, score_best=_score_best
)
