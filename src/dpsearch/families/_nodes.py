"""Quadrature over the parameter: kernels of families whose prior is on nodes.

    H(x) = Σ_g P_g,   P_g = π_g Π_i p(x_i | θ_g)        column by column

is exact for a prior that gives θ_g the probability π_g.  The products take a point in by a
multiplication and out by a division, and

    predictive   p(x | C) = Σ_g P_g p(x | θ_g) / Σ_g P_g                one inner product

A data row says for each column where e_g = p(x | θ_g)/max_h p(x | θ_h) are: in the parameters,
which hold those of whole numbers that are common, or further on in the row itself.  The logarithms
of the maxima are `log_base`.  A density that is e^300 times smaller than the largest counts as
that.  A missing value has e_g = 1 at all nodes, which skips it exactly.

A product is P_g = m_g 2^(500 k_g) with 2^−499 < m_g ≤ 2, so that nothing underflows and no kernel
needs logarithms of nodes.  The weights w_g are P_g beside the largest k.  Those that are small
beside the others add nothing to an inner product that is not: first the nodes from `first` to
`last` are summed, which have all weights above 1e-34 of their sum.  If that is less than 1e-20, it
is known that the inner product is no more, which shows most clusters not to be the best place; for
the others all products are multiplied.

A column's part of a row: m, k, w, log H, 1/Σ w, `first`, `last` and the
largest k.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import inline, inner, pointer, view
from dpsearch._special import vector_exp
from dpsearch._types import Matrix
from dpsearch.families import layout
from dpsearch.families.functions import Functions
from dpsearch.families.layout import table

LEAST = -300.0  # of log e
_NEGLIGIBLE = 1e-34
_UNLIKELY = 1e-6  # of a predictive beside the largest density of the point
_ENOUGH = 1e-20  # of an inner product of what is not negligible
_LEADING = 2  # columns that say which cluster is scored first
_MARGIN = 1e-9  # nats: scores nearer to each other are compared in full
_FULL = 1e-200  # of a product of such sums
_STEP = 2.0**500  # of k
_LOG_STEP = 500.0 * math.log(2.0)
_LOW, _HIGH = 2.0**-499, 2.0  # of m
NUMBERS = 5  # of a column, after its vectors
AT_LOG_H = -5


class _Params(NamedTuple):
    n_nodes: layout.Number  # of each column
    n_features: layout.Number
    mantissas: layout.Numbers  # m of the prior, column by column
    steps: layout.Numbers  # and k
    densities: layout.Numbers  # e of missing values, and of those that are common in each column


PARAMS = layout.params(_Params)


def columns_width(n_nodes: int) -> int:
    """Return how many numbers a row has of each column."""
    return 3 * n_nodes + NUMBERS


def scaled(logs: Matrix) -> tuple[Matrix, Matrix]:
    """Return m and k of the products with these logarithms."""
    k = np.ceil((np.maximum(logs, -1e12) - math.log(_HIGH)) / _LOG_STEP)
    return np.exp(np.maximum(logs, -1e12) - k * _LOG_STEP), k


def logs_of(parts: Matrix, n_nodes: int) -> Matrix:
    """Return the logarithms of the products in columns' parts of a row."""
    return np.asarray(np.log(parts[:, :n_nodes]) + _LOG_STEP * parts[:, n_nodes : 2 * n_nodes])


@inner
def _begin(params, d):  # type: ignore[no-untyped-def]
    return 1 + d * (3 * int(params[PARAMS.n_nodes]) + 5)


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
def _weight(m, k, top):  # type: ignore[no-untyped-def]
    """Return m 2^(500 (k − top)) for k ≤ top, where it is not 0."""
    return m if k == top else (m / _STEP if k == top - 1.0 else 0.0)


@inline
def _vectors(row, begin, size):  # type: ignore[no-untyped-def]
    """Return m, k and w of the column whose part begins here."""
    return view(row, begin, size), view(row, begin + size, size), view(row, begin + 2 * size, size)


@inner
def _weigh(m, k, weights, top):  # type: ignore[no-untyped-def]
    """Write weights beside a `top`, and return their sum; 0 if top is not the largest k."""
    total, reached, above = 0.0, 0.0, 0.0
    for g in range(m.shape[0]):
        weights[g] = _weight(m[g], k[g], top)
        total += weights[g]
        reached += 1.0 if k[g] == top else 0.0
        above += 1.0 if k[g] > top else 0.0
    return total if reached > 0.0 and above == 0.0 else 0.0


@inner
def _refresh(params, row, d):  # type: ignore[no-untyped-def]
    """Derive weights, log H and the nodes that matter from the products of column d."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    m, k, weights = _vectors(row, begin, size)
    numbers = begin + 3 * size
    total = _weigh(m, k, weights, row[numbers + 4])  # as before, mostly
    if total == 0.0:
        row[numbers + 4] = k[0]
        for g in range(size):
            if k[g] > row[numbers + 4]:
                row[numbers + 4] = k[g]
        total = _weigh(m, k, weights, row[numbers + 4])
    _summarise(row, begin, size, total, 0, size)


@inner
def _summarise(row, begin, size, total, first, last):  # type: ignore[no-untyped-def]
    """Write what follows from a column's weights and their sum; none beyond these nodes matters."""
    weights, numbers = view(row, begin + 2 * size + first, last - first), begin + 3 * size
    least, begins, ends = _NEGLIGIBLE * total, last - first, 0
    for g in range(last - first):
        begins = min(begins, g if weights[g] > least else last - first)
        ends = max(ends, g if weights[g] > least else 0)
    row[numbers] = math.log(total) + row[numbers + 4] * _LOG_STEP
    row[numbers + 1] = 1.0 / total
    row[numbers + 2] = (first + begins) // 8 * 8
    row[numbers + 3] = (first + ends) // 8 * 8 + 8


@inner
def _multiply(params, row, d, densities, out):  # type: ignore[no-untyped-def]
    """Take a point into column d, or `out`: in one loop, unless the sum changes much."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    m, k, weights = _vectors(row, begin, size)
    numbers = begin + 3 * size
    before, top, total, first, last = row[numbers + 1], row[numbers + 4], 0.0, size, 0
    reached, above = 0.0, 0.0  # counts: the largest would not be found in vectors
    least = (1.0 if out else _UNLIKELY) * _NEGLIGIBLE / before
    for g in range(size):
        product = m[g] / densities[g] if out else m[g] * densities[g]
        if out:
            changed = product > _HIGH
            product = product / _STEP if changed else product
            step = k[g] + (1.0 if changed else 0.0)
        else:
            changed = product <= _LOW
            product = product * _STEP if changed else product
            step = k[g] - (1.0 if changed else 0.0)
        m[g], k[g] = product, step
        reached += 1.0 if step == top else 0.0
        above += 1.0 if step > top else 0.0
        weight = _weight(product, step, top)
        weights[g] = weight
        total += weight
        first = min(first, g if weight > least else size)
        last = max(last, g if weight > least else 0)
    if above > 0.0 or reached == 0.0 or not _UNLIKELY < total * before < 1.0 / _UNLIKELY:
        _refresh(params, row, d)
    else:
        _summarise(row, begin, size, total, first, last + 1)


@inner
def _clear(params, row, d):  # type: ignore[no-untyped-def]
    """Set the products of column d to the prior."""
    size, begin = int(params[PARAMS.n_nodes]), _begin(params, d)
    mantissas, steps = table(params, PARAMS.mantissas), table(params, PARAMS.steps)
    for g in range(size):
        row[begin + g] = mantissas[d * size + g]
        row[begin + size + g] = steps[d * size + g]


@pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += weight
    for d in range(int(params[PARAMS.n_features])):
        begin, densities = _begin(params, d), _densities(params, values, d)
        m, k = view(row, begin, size), view(row, begin + size, size)
        if row[0] <= 0.0 or row[0] == weight:
            _clear(params, row, d)
            _refresh(params, row, d)
        if row[0] > 0.0 and weight == 1.0:
            _multiply(params, row, d, densities, False)
        elif row[0] > 0.0 and weight == -1.0:
            _multiply(params, row, d, densities, True)
        elif row[0] > 0.0:
            for g in range(size):
                log = math.log(m[g]) + weight * math.log(densities[g])
                more = math.ceil((log - math.log(_HIGH)) / _LOG_STEP)
                m[g] = math.exp(log - more * _LOG_STEP)
                k[g] += more
            _refresh(params, row, d)


@pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    mantissas, steps = table(params, PARAMS.mantissas), table(params, PARAMS.steps)
    row[0] += sign * other[0]
    for d in range(int(params[PARAMS.n_features])):
        begin = _begin(params, d)
        if row[0] <= 0.0 or row[0] == sign * other[0]:
            _clear(params, row, d)
        if row[0] > 0.0 and sign * other[0] != 0.0:
            for g in range(size):
                ratio = other[begin + g] / mantissas[d * size + g]
                product = row[begin + g] * (ratio if sign > 0.0 else 1.0 / ratio)
                step = row[begin + size + g] + sign * (
                    other[begin + size + g] - steps[d * size + g]
                )
                if product <= _LOW:
                    product *= _STEP
                    step -= 1.0
                if product > _HIGH:
                    product /= _STEP
                    step += 1.0
                row[begin + g] = product
                row[begin + size + g] = step
        _refresh(params, row, d)


@inner
def _near(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return Σ w e / Σ w over the nodes that matter of the column d whose part begins here."""
    size = int(params[PARAMS.n_nodes])
    numbers = begin + 3 * size
    first, last = int(pool[numbers + 2]), int(pool[numbers + 3])
    weights = view(pool, begin + 2 * size + first, last - first)
    densities = view(_densities(params, values, d), first, last - first)
    total = 0.0
    for g in range(last - first):
        total += weights[g] * densities[g]
    return total * pool[numbers + 1]


@inner
def _log_sum(params, pool, begin, values, d, out):  # type: ignore[no-untyped-def]
    """Return log Σ P e over all nodes; log Σ P/e, if the point is to be taken `out`."""
    size = int(params[PARAMS.n_nodes])
    m, k = view(pool, begin, size), view(pool, begin + size, size)
    densities = _densities(params, values, d)
    top, total = -math.inf, 0.0
    for g in range(size):
        product = m[g] / densities[g] if out else m[g] * densities[g]
        step = k[g] + (1.0 if product > _HIGH else 0.0) - (1.0 if product <= _LOW else 0.0)
        top = max(top, step)
    for g in range(size):
        product = m[g] / densities[g] if out else m[g] * densities[g]
        low, high = product <= _LOW, product > _HIGH
        step = k[g] + (1.0 if high else 0.0) - (1.0 if low else 0.0)
        product = product * _STEP if low else (product / _STEP if high else product)
        total += _weight(product, step, top)
    return math.log(total) + top * _LOG_STEP


@inner
def _far(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return the log predictive of column d by all nodes."""
    log_h = pool[begin + 3 * int(params[PARAMS.n_nodes])]
    return _log_sum(params, pool, begin, values, d, False) - log_h


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
    size, out = int(params[PARAMS.n_nodes]), 0.0
    for d in range(int(params[PARAMS.n_features])):
        out += row[_begin(params, d) + 3 * size]
    return out


@pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    size, out = int(params[PARAMS.n_nodes]), 0.0
    for d in range(int(params[PARAMS.n_features])):
        begin = _begin(params, d)
        out += row[begin + 3 * size] - _log_sum(params, row, begin, values, d, True)
    return out


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, score_best=_score_best
)
