"""Quadrature over the parameter: kernels of families whose prior is on nodes.

    H(x) = Σ_g π_g exp(T_g),   T_g = Σ_i log p(x_i | θ_g)        column by column

is exact for a prior that gives θ_g the probability π_g.  T_g is a sum over points as any statistic
is.  With the posterior probabilities of the nodes, w_g ∝ π_g exp(T_g), which a row keeps,

    predictive   p(x | C) = Σ_g w_g p(x | θ_g)                          one inner product

A data row holds for each column e_g = p(x | θ_g)/max_h p(x | θ_h) and log e_g; the logarithms of
the maxima are `log_base`.  So e_g ≤ 1, and a density that is e^600 times smaller than the largest
counts as that: nothing underflows.  A missing value has e_g = 1 at all nodes, which skips it
exactly.

Weights that are small beside 1 add nothing to an inner product that is not: first the nodes from
`first` to `last` are summed, which have all weights above 1e-30, and the others only if that is
less than 1e-14.  Where even that underflows, logarithms are added.

A column's part of a row: totals T, weights w, log H, `first` and `last`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dpsearch import _jit
from dpsearch._special import vector_exp
from dpsearch.families import layout
from dpsearch.families.base import Functions
from dpsearch.families.layout import table

LEAST = -600.0  # of log e
_NEGLIGIBLE = 1e-30
_ENOUGH = 1e-14  # of an inner product of what is not negligible
_FULL = 1e-200  # of all
_REFRESHED = 16.0  # points after which weights are derived from totals again


class _Params(NamedTuple):
    n_nodes: layout.Number  # of each column
    n_features: layout.Number
    log_weights: layout.Numbers  # log π, column by column


PARAMS = layout.params(_Params)


def columns_width(n_nodes: int) -> int:
    """Return how many numbers a row has of each column."""
    return 2 * n_nodes + 3


@_jit.inner
def _refresh(params, row, d):  # type: ignore[no-untyped-def]
    """Derive weights, log H and the nodes that matter from the totals of column d."""
    size = int(params[PARAMS.n_nodes])
    begin = 1 + d * (2 * size + 3)
    totals, weights = _jit.view(row, begin, size), _jit.view(row, begin + size, size)
    log_weights = _jit.view(table(params, PARAMS.log_weights), d * size, size)
    largest = -math.inf
    for g in range(size):
        largest = max(largest, totals[g] + log_weights[g])
    total = 0.0
    for g in range(size):
        weights[g] = vector_exp(totals[g] + log_weights[g] - largest)
        total += weights[g]
    share = 1.0 / total
    for g in range(size):
        weights[g] *= share
    row[begin + 2 * size] = largest + math.log(total)
    _set_ends(row, begin, size)


@_jit.inner
def _set_ends(row, begin, size):  # type: ignore[no-untyped-def]
    """Set where the first and the last weight that matter are, to a multiple of eight."""
    weights = _jit.view(row, begin + size, size)
    first, last = size, 0
    for block in range(0, size, 8):
        largest = 0.0
        for g in range(block, block + 8):
            largest = max(largest, weights[g])
        if largest > _NEGLIGIBLE:
            first, last = min(first, block), block + 8
    row[begin + 2 * size + 1] = first
    row[begin + 2 * size + 2] = last


@_jit.inner
def _multiply(row, begin, size, values, d):  # type: ignore[no-untyped-def]
    """Add a point by Bayes' rule, w ∝ we, and return whether that is exact enough.

    What has underflowed comes back only with `_refresh`, which is due after a few points.
    """
    weights, densities = _jit.view(row, begin + size, size), _jit.view(values, 2 * d * size, size)
    total = 0.0
    for g in range(size):
        total += weights[g] * densities[g]
    if total <= _ENOUGH:
        return False
    share = 1.0 / total
    for g in range(size):
        weights[g] *= share * densities[g]
    row[begin + 2 * size] += math.log(total)
    _set_ends(row, begin, size)
    return True


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += weight
    one = weight == 1.0 and row[0] % _REFRESHED != 0.0
    for d in range(int(params[PARAMS.n_features])):
        begin = 1 + d * (2 * size + 3)
        totals, logs = _jit.view(row, begin, size), _jit.view(values, (2 * d + 1) * size, size)
        if row[0] > 0.0:
            for g in range(size):
                totals[g] += weight * logs[g]
        else:
            for g in range(size):
                totals[g] = 0.0
        if not (one and _multiply(row, begin, size, values, d)):
            _refresh(params, row, d)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    size = int(params[PARAMS.n_nodes])
    row[0] += sign * other[0]
    for d in range(int(params[PARAMS.n_features])):
        begin = 1 + d * (2 * size + 3)
        totals, more = _jit.view(row, begin, size), _jit.view(other, begin, size)
        for g in range(size):
            totals[g] = totals[g] + sign * more[g] if row[0] > 0.0 else 0.0
        _refresh(params, row, d)


@_jit.inner
def _near(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return Σ w e over the nodes that matter of the column d whose statistics begin here."""
    size = int(params[PARAMS.n_nodes])
    first, last = int(pool[begin + 2 * size + 1]), int(pool[begin + 2 * size + 2])
    weights = _jit.view(pool, begin + size + first, last - first)
    densities = _jit.view(values, 2 * d * size + first, last - first)
    total = 0.0
    for g in range(last - first):
        total += weights[g] * densities[g]
    return total


@_jit.inner
def _log_all(params, pool, begin, values, d):  # type: ignore[no-untyped-def]
    """Return log Σ w e over all nodes."""
    size = int(params[PARAMS.n_nodes])
    weights = _jit.view(pool, begin + size, size)
    densities = _jit.view(values, 2 * d * size, size)
    total = 0.0
    for g in range(size):
        total += weights[g] * densities[g]
    if total > _FULL:
        return math.log(total)
    totals, logs = _jit.view(pool, begin, size), _jit.view(values, (2 * d + 1) * size, size)
    log_weights = _jit.view(table(params, PARAMS.log_weights), d * size, size)
    largest, total = -math.inf, 0.0
    for g in range(size):
        largest = max(largest, totals[g] + log_weights[g] + logs[g])
    for g in range(size):
        total += vector_exp(totals[g] + log_weights[g] + logs[g] - largest)
    return largest + math.log(total) - pool[begin + 2 * size]


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    """One logarithm of the product of several columns."""
    width = 2 * int(params[PARAMS.n_nodes]) + 3
    for k in range(starts.shape[0]):
        score, product = 0.0, 1.0
        for d in range(int(params[PARAMS.n_features])):
            begin = starts[k] + 1 + d * width
            total = _near(params, pool, begin, values, d)
            if total <= _ENOUGH:
                score += _log_all(params, pool, begin, values, d)
                continue
            product *= total
            if product < _FULL:
                score += math.log(product)
                product = 1.0
        out[k] = score + math.log(product)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    size, out = int(params[PARAMS.n_nodes]), 0.0
    for d in range(int(params[PARAMS.n_features])):
        out += row[1 + d * (2 * size + 3) + 2 * size]
    return out


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    """Without the point the weights are w/e, but for a constant: the predictive is 1/Σ w/e."""
    size, out = int(params[PARAMS.n_nodes]), 0.0
    for d in range(int(params[PARAMS.n_features])):
        weights = _jit.view(row, 1 + d * (2 * size + 3) + size, size)
        densities = _jit.view(values, 2 * d * size, size)
        total = 0.0
        for g in range(size):
            total += weights[g] / densities[g]
        out -= math.log(total)
    return out


FUNCTIONS = Functions(_update, _merge, _score_rows, _log_marginal, score_member=_score_member)
