"""Quadrature over the parameter: kernels of families whose prior is on nodes.

    H(x) = Σ_g π_g exp T_g,   T_g = Σ_i log p(x_i | θ_g)        column by column

is exact for a prior that gives θ_g the probability π_g.  With the weights w_g ∝ π_g exp T_g

    predictive   p(x | C) = Σ_g w_g p(x | θ_g) / Σ_g w_g                one inner product

A data row says for each column where e_g = p(x | θ_g)/max_h p(x | θ_h) are: in the parameters,
which hold those of whole numbers that are common, or further on in the row itself.  The logarithms
of the maxima are `log_base`.  A density that is e^300 times smaller than the largest counts as
that.  A missing value has e_g = 1 at all nodes, which skips it exactly.

A point that comes or goes changes the weights alone: w is multiplied or divided by e.  T is the sum
over the points that it has taken up; with z = log π + T − `top` the sum over all is

    T + log w − max(z, −150)

and T itself when all is settled, w = exp max(z, −150).  Weights that were clipped at exp −150 are
nothing beside the others.  Before they would be seen, as the sum of weights shrinks or a point goes
that alone made them so small, all is settled again: one logarithm for many points.  Meanwhile T
takes up powers of two from the least weights, so that none underflows.

Scores are sums over the nodes from `first` to `last`, which had all weights above 1e-40 of their
sum when that was last looked at.  Beside the sum the others grow at most as it shrinks: by 1e8
until it is looked at again, when what is `left` of it is less than 1e-8.  If an inner product over
these nodes is less than 1e-18, it is known to be no more than about that, which shows most clusters
not to be the best place; for the others all nodes are summed.

A column's part of a row: T, w, and the numbers of `_COLUMN`.  It begins at a line of memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inline, inner, pointer, view
from dpsearch._lines import LINE, product_of_lines
from dpsearch._special import LOG_2, bits_of, exponent, vector_exp, vector_log, with_exponent
from dpsearch._types import Matrix, Vector
from dpsearch.families import layout
from dpsearch.families.functions import Functions
from dpsearch.families.layout import table

LEAST = -300.0  # of log e
HEAD = LINE  # numbers of a row before its columns, of which the first is used
_NEGLIGIBLE = 1e-40
_LEFT = 1e-8
_CLIP = -150.0  # of log weights
_FAINT = math.exp(-50.0)  # sum of weights, beside which what is clipped is still nothing
_ONE, _LOW = (int(np.float64(x).view(np.int64)) for x in (1.0, math.exp(-405.0)))  # bits
_RARE, _LIFTED = -360, -220  # powers of two: weights below the first are lifted to the second
_ENOUGH = 1e-18  # of an inner product of what is not negligible
_LEADING = 2  # columns that say which cluster is scored first
_MARGIN = 1e-9  # nats: scores nearer to each other are compared in full
_FULL = 1e-200  # of a product of such sums


class _Params(NamedTuple):
    n_nodes: layout.Number  # of each column
    n_features: layout.Number
    log_weights: layout.Numbers  # log π, column by column
    densities: layout.Numbers  # e of missing values, and of those that are common in each column


class _Column(NamedTuple):
    """Numbers of a column, after its vectors."""

    top: int  # weights are beside exp of this
    inverse: int  # 1/Σ w
    first: int
    last: int
    left: int
    pending: int  # 1 if weights have points that T does not have, else 0


PARAMS = layout.params(_Params)
_COLUMN = _Column(*range(6))


def columns_width(n_nodes: int) -> int:
    """Return how many numbers a row has of each column."""
    return 2 * n_nodes + LINE


def sums_of_row(row: Vector, log_weights: Matrix) -> Matrix:
    """Return T [columns, nodes] of a row, where log π is as given."""
    n_features, size = log_weights.shape
    parts = row[HEAD:].reshape(n_features, -1)
    sums, weights = parts[:, :size], parts[:, size : 2 * size]
    top, pending = parts[:, 2 * size :].T[[_COLUMN.top, _COLUMN.pending], :, None]
    with np.errstate(divide="ignore"):  # a row that `merge` has not completed has no weights
        lacking = np.log(weights) - np.maximum(sums + log_weights - top, _CLIP)
    return np.where(pending == 1.0, sums + lacking, sums)


@inner
def _begin(params, d):  # type: ignore[no-untyped-def]
    return HEAD + d * (2 * int(params[PARAMS.n_nodes]) + LINE)


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
def _top(logs, prior):  # type: ignore[no-untyped-def]
    """Return a whole number that the largest log π + T, which is 0 at most, is hardly below."""
    top = np.int32(-2_000_000_000)
    for g in range(logs.shape[0]):  # integers: the largest number would not be found in vectors
        top = max(top, np.int32(max(logs[g] + prior[g], -2e9)))
    return float(top)


@inner
def _lacking(weight, total, log_prior, top):  # type: ignore[no-untyped-def]
    """Return what T, the total, lacks of a node."""
    return vector_log(weight) - max(total + log_prior - top, _CLIP)


@inner
def _look(params, row, d):  # type: ignore[no-untyped-def]
    """See which weights of column d matter."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    numbers, weights = begin + 2 * size, view(row, begin + size, size)
    least, first, last = _NEGLIGIBLE / row[numbers + _COLUMN.inverse], size, 0
    for g in range(size):
        first = min(first, g if weights[g] > least else size)
        last = max(last, g if weights[g] > least else 0)
    row[numbers + _COLUMN.first] = first // LINE * LINE
    row[numbers + _COLUMN.last] = last // LINE * LINE + LINE
    row[numbers + _COLUMN.left] = 1.0


@inner
def _settle(params, row, d):  # type: ignore[no-untyped-def]
    """Derive from the sums of column d, which are 0 in an empty cluster, everything else."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    logs, weights = view(row, begin, size), view(row, begin + size, size)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    if row[0] <= 0.0:
        for g in range(size):
            logs[g] = 0.0
    numbers, top, total = begin + 2 * size, _top(logs, prior), 0.0
    for g in range(size):
        weights[g] = vector_exp(max(logs[g] + prior[g] - top, _CLIP))
        total += weights[g]
    row[numbers + _COLUMN.top] = top
    row[numbers + _COLUMN.inverse] = 1.0 / total
    row[numbers + _COLUMN.left] = 0.0
    row[numbers + _COLUMN.pending] = 0.0


@inner
def _take_up(params, row, d):  # type: ignore[no-untyped-def]
    """Let T of column d take up what only weights have, which are then to be computed anew."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    logs, weights = view(row, begin, size), view(row, begin + size, size)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    numbers = begin + 2 * size
    if row[numbers + _COLUMN.pending] == 1.0:
        top = row[numbers + _COLUMN.top]
        for g in range(size):
            logs[g] += _lacking(weights[g], logs[g], prior[g], top)
        row[numbers + _COLUMN.pending] = 0.0


@inner
def _lift(params, row, d):  # type: ignore[no-untyped-def]
    """Multiply the least weights of column d by powers of two that T takes up."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    logs, weights = view(row, begin, size), view(row, begin + size, size)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    top = row[begin + 2 * size + _COLUMN.top]
    for g in range(size):
        power = exponent(weights[g])
        taken = max(logs[g] + prior[g] - top, _CLIP) - _CLIP + (_LIFTED - float(power)) * LOG_2
        logs[g] -= taken if power < _RARE else 0.0
        weights[g] = with_exponent(weights[g], _LIFTED if power < _RARE else power)


@inner
def _multiply(params, row, d, values):  # type: ignore[no-untyped-def]
    """Multiply the weights of column d by a point; return whether all is then to be settled."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    numbers, weights = begin + 2 * size, view(row, begin + size, size)
    densities, total, low = _densities(params, values, d), 0.0, _ONE
    for g in range(size):
        weights[g] *= densities[g]
        total += weights[g]
        low = min(low, bits_of(weights[g]))  # integers: see `_top`
    row[numbers + _COLUMN.left] *= total * row[numbers + _COLUMN.inverse]
    row[numbers + _COLUMN.inverse] = 1.0 / total
    row[numbers + _COLUMN.pending] = 1.0
    if total < _FAINT:
        return True
    if low < _LOW:
        _lift(params, row, d)
    return False


@inner
def _divide(params, row, d, values):  # type: ignore[no-untyped-def]
    """Divide the weights of column d by a point; return whether all is then to be settled.

    So it is where clipped weights are no longer nothing beside the others.
    """
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    logs, weights = view(row, begin, size), view(row, begin + size, size)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    densities, numbers = _densities(params, values, d), begin + 2 * size
    top, total, clipped = row[numbers + _COLUMN.top], 0.0, 0.0
    for g in range(size):
        weight, z = weights[g] / densities[g], logs[g] + prior[g] - top
        power = exponent(weight)
        more = (float(power) - _LIFTED) * LOG_2
        kept = z + max(more, 0.0) <= _CLIP
        logs[g] += more if kept else 0.0
        weights[g] = with_exponent(weight, _LIFTED if kept else power)
        total += weights[g]
        clipped += weights[g] if z <= _CLIP else 0.0
    row[numbers + _COLUMN.left] = 0.0
    row[numbers + _COLUMN.inverse] = 1.0 / total
    row[numbers + _COLUMN.pending] = 1.0
    return clipped > _NEGLIGIBLE * total or total > 1.0 / _FAINT


@inner
def _add_logs(params, values, d, weight, logs):  # type: ignore[no-untyped-def]
    densities = _densities(params, values, d)
    for g in range(logs.shape[0]):
        logs[g] += weight * vector_log(densities[g])


@pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += weight
    adds, takes = weight == 1.0 and row[0] > 1.0, weight == -1.0 and row[0] > 0.0
    for d in range(int(params[PARAMS.n_features])):
        begin, stale = _begin(params, d), True
        if adds:
            stale = _multiply(params, row, d, values)
        elif takes:
            stale = _divide(params, row, d, values)
        if stale:
            _take_up(params, row, d)
            if not (adds or takes):
                _add_logs(params, values, d, weight, view(row, begin, size))
            _settle(params, row, d)
        if row[begin + 2 * size + _COLUMN.left] < _LEFT:
            _look(params, row, d)


@inner
def _add_sums(params, row, other, sign, d):  # type: ignore[no-untyped-def]
    """Add to T of column d that of another row times a sign."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    sums, logs, weights = (
        view(row, begin, size),
        view(other, begin, size),
        view(other, begin + size, size),
    )
    top = other[begin + 2 * size + _COLUMN.top]
    if other[begin + 2 * size + _COLUMN.pending] == 0.0:
        for g in range(size):
            sums[g] += sign * logs[g]
    else:
        for g in range(size):
            sums[g] += sign * (logs[g] + _lacking(weights[g], logs[g], prior[g], top))


@pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    row[0] += sign * other[0]
    for d in range(int(params[PARAMS.n_features])):
        _take_up(params, row, d)
        _add_sums(params, row, other, sign, d)
        _settle(params, row, d)
        _look(params, row, d)


@inner
def _near(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return Σ w e / Σ w over the nodes that matter of the column d whose part begins here."""
    size = int(params[PARAMS.n_nodes])
    numbers = begin + 2 * size
    first, last = int(pool[numbers + _COLUMN.first]), int(pool[numbers + _COLUMN.last])
    weights = view(pool, begin + size + first, last - first)
    densities = view(_densities(params, values, d), first, last - first)
    return product_of_lines(weights, densities) * pool[numbers + _COLUMN.inverse]


@inner
def _log_h(params, pool, begin):  # type: ignore[no-untyped-def]
    """Return log H of the column whose part begins here."""
    numbers = begin + 2 * int(params[PARAMS.n_nodes])
    return pool[numbers + _COLUMN.top] - math.log(pool[numbers + _COLUMN.inverse])


@inner
def _far(params, pool, begin, values, d, out):  # type: ignore[no-untyped-def]
    """Return log Σ w e / Σ w by all nodes; log Σ w/e / Σ w, if the point is to be taken `out`."""
    size = int(params[PARAMS.n_nodes])
    prior = view(table(params, PARAMS.log_weights), d * size, size)
    logs, weights = view(pool, begin, size), view(pool, begin + size, size)
    numbers, densities, total = begin + 2 * size, _densities(params, values, d), 0.0
    clipped = pool[numbers + _COLUMN.top] + _CLIP
    for g in range(size):
        weight = weights[g] * vector_exp(max(min(logs[g] + prior[g] - clipped, 0.0), LEAST))
        total += weight / densities[g] if out else weight * densities[g]
    return math.log(total * pool[numbers + _COLUMN.inverse])


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
            score += _far(params, pool, begin, values, d, False)
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
        out -= _far(params, row, _begin(params, d), values, d, True)
    return out


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, score_best=_score_best
)
