"""The diagonal Gaussian with a count for each column: for gaps, and for shapes that differ.

The formulas are those of `diagonal_gaussian.py` with n_d values in column d.  Over the columns that
a point has,

    predictive   Σ_d c_d − (a_d + ½) log(1 + q_d),    a_d = a₀ + n_d/2

where c_d, the constant of the column's Student t, is kept in the row.  Exponents differ between
columns, so each column needs its own logarithm, by a routine that compilers can vectorise.  Missing
values are NaN, also in encoded data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch._special import LOG_2PI, vector_log
from dpsearch.families import layout
from dpsearch.families.functions import Functions
from dpsearch.families.layout import at, entry, length, view_at


class _Params(NamedTuple):
    """For both forms: one table for all columns together, or in this form one for each prior."""

    size: layout.Number  # of each table
    strength: layout.Numbers  # κ₀ of each column
    shape: layout.Numbers  # a₀
    begins: layout.Numbers  # where the tables of each column begin
    steps: layout.Numbers  # the predictive's constant without β, by n
    totals: layout.Numbers  # the marginal's


class _Row(NamedTuple):
    n: layout.Count
    counts: layout.Counts  # n_d of each column
    means: layout.Numbers  # z̄
    squares: layout.Numbers  # M
    centres: layout.Numbers  # m
    factors: layout.Numbers  # q/(z − m)²
    constants: layout.Numbers  # c
    powers: layout.Numbers  # a + ½
    marginals: layout.Numbers  # log H of the column


PARAMS = layout.params(_Params)
ROW = layout.row(_Row)


@_jit.inner
def column_step(params, d, n):  # type: ignore[no-untyped-def]
    """Return log Γ(a + ½)/Γ(a) − ½ log 2π(κ + 1)/κ for n values of column d."""
    shape = entry(params, PARAMS.shape, d) + 0.5 * n
    out = math.lgamma(shape + 0.5) - math.lgamma(shape)
    return out - 0.5 * (LOG_2PI + math.log1p(1.0 / (entry(params, PARAMS.strength, d) + n)))


@_jit.inner
def column_total(params, d, n):  # type: ignore[no-untyped-def]
    """Return log Γ(a)/Γ(a₀) − ½ log κ/κ₀ − n/2 log 2π for n values of column d."""
    shape = entry(params, PARAMS.shape, d)
    out = math.lgamma(shape + 0.5 * n) - math.lgamma(shape)
    return out - 0.5 * (n * LOG_2PI + math.log1p(n / entry(params, PARAMS.strength, d)))


@_jit.inner
def best_case(params, d, n, centre, factor, x, helpers, low, high):  # type: ignore[no-untyped-def]
    """Return an upper bound on the predictive of column d, without the terms of `column_step`.

    The mean is the nearest, and β the best, that helpers could give.  With
    δ² = κ(z − m)²/(2(κ + 1)), β enters as a log β − (a + ½) log(β + δ²), which is largest at 2aδ².
    Scales only grow: β is at least the row's, and β + δ², the scale once the point is added, at
    least that of the row with the point alone.
    """
    prior = entry(params, PARAMS.strength, d) + n
    kappa = prior + helpers
    shape = entry(params, PARAMS.shape, d) + 0.5 * (n + helpers)
    beta = prior / (2.0 * (prior + 1.0) * factor)
    alone = beta + 0.5 * prior / (prior + 1.0) * (x - centre) ** 2
    nearest = min(max(x, (prior * centre + low) / kappa), (prior * centre + high) / kappa)
    apart = 0.5 * kappa / (kappa + 1.0) * (x - nearest) ** 2
    best = beta if helpers == 0 else max(beta, alone - apart, 2.0 * shape * apart)
    return shape * math.log(best) - (shape + 0.5) * math.log(best + apart)


@_jit.inner
def _step(params, d, n):  # type: ignore[no-untyped-def]
    if n < params[PARAMS.size]:
        return entry(params, PARAMS.steps, entry(params, PARAMS.begins, d) + n)
    return column_step(params, d, n)


@_jit.inner
def _log_marginal_of(params, d, n, log_beta):  # type: ignore[no-untyped-def]
    """Return log H of n values of column d."""
    shape = entry(params, PARAMS.shape, d) + 0.5 * n
    if n < params[PARAMS.size]:
        total = entry(params, PARAMS.totals, entry(params, PARAMS.begins, d) + n)
        return total - shape * log_beta
    return column_total(params, d, n) - shape * log_beta


@_jit.inner
def _beta(params, d, n, mean, squares):  # type: ignore[no-untyped-def]
    """Return β of n values of column d."""
    strength = entry(params, PARAMS.strength, d)
    return 1.0 + 0.5 * (squares + strength * n / (strength + n) * mean * mean)


@_jit.inner
def _set_column(params, row, d):  # type: ignore[no-untyped-def]
    """Compute what scoring needs of column d from n_d, z̄ and M."""
    n_features = length(params, PARAMS.shape)
    n, mean = row[at(ROW.counts, n_features) + d], row[at(ROW.means, n_features) + d]
    kappa = entry(params, PARAMS.strength, d) + n
    beta = _beta(params, d, n, mean, row[at(ROW.squares, n_features) + d])
    log_beta = math.log(beta)
    row[at(ROW.centres, n_features) + d] = n * mean / kappa
    row[at(ROW.factors, n_features) + d] = kappa / (2.0 * beta * (kappa + 1.0))
    row[at(ROW.constants, n_features) + d] = _step(params, d, n) - 0.5 * log_beta
    row[at(ROW.powers, n_features) + d] = entry(params, PARAMS.shape, d) + 0.5 * n + 0.5
    row[at(ROW.marginals, n_features) + d] = _log_marginal_of(params, d, n, log_beta)


@_jit.inner
def _change(params, row, d, weight, value, more):  # type: ignore[no-untyped-def]
    """Add values of column d, or remove them if `weight` is below 0, by their mean and squares."""
    n_features = length(params, PARAMS.shape)
    count, mean = at(ROW.counts, n_features) + d, at(ROW.means, n_features) + d
    squares = at(ROW.squares, n_features) + d
    n, total = row[count], row[count] + weight
    if total <= 0.0:
        row[count] = row[mean] = row[squares] = 0.0
    else:
        difference = value - row[mean]
        row[count] = total
        row[mean] += weight / total * difference
        left = row[squares] + more + weight * n / total * difference * difference
        # It is 0 for a single point, and rounding must not make it negative.
        row[squares] = max(left, 0.0) if total > 1.0 else 0.0
    _set_column(params, row, d)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    row[ROW.n] += weight
    for d in range(values.shape[0]):
        if not math.isnan(values[d]):
            _change(params, row, d, weight, values[d], 0.0)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = length(params, PARAMS.shape)
    row[ROW.n] += sign * other[ROW.n]
    for d in range(n_features):
        added = sign * other[at(ROW.counts, n_features) + d]
        mean = other[at(ROW.means, n_features) + d]
        squares = other[at(ROW.squares, n_features) + d]
        _change(params, row, d, added, mean, sign * squares)


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = values.shape[0]
    for k in range(starts.shape[0]):
        s = starts[k]
        centres = view_at(pool, s, ROW.centres, n_features)
        factors = view_at(pool, s, ROW.factors, n_features)
        constants = view_at(pool, s, ROW.constants, n_features)
        powers = view_at(pool, s, ROW.powers, n_features)
        score = 0.0
        for d in range(n_features):
            difference = values[d] - centres[d]
            log = vector_log(1.0 + factors[d] * difference * difference)
            column = constants[d] - powers[d] * log
            score += 0.0 if math.isnan(values[d]) else column
        out[k] = score


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    n_features = length(params, PARAMS.shape)
    out = 0.0
    for d in range(n_features):
        out += row[at(ROW.marginals, n_features) + d]
    return out


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    """Return the sum of what each column's log marginal would lose without the point."""
    n_features = values.shape[0]
    out = 0.0
    for d in range(n_features):
        if math.isnan(values[d]):
            continue
        n, mean = row[at(ROW.counts, n_features) + d], row[at(ROW.means, n_features) + d]
        out += row[at(ROW.marginals, n_features) + d]
        rest = n - 1.0
        if rest > 0.0:
            difference = values[d] - mean
            squares = row[at(ROW.squares, n_features) + d] - n / rest * difference * difference
            squares = max(squares, 0.0) if rest > 1.0 else 0.0
            beta = _beta(params, d, rest, mean - difference / rest, squares)
            out -= _log_marginal_of(params, d, rest, math.log(beta))
    return out


@_jit.pointer("features")
def _features(params, ids, values, out):  # type: ignore[no-untyped-def]
    """Write the values, with 0 for missing ones, and after them 1 for each value, 0 for a gap."""
    n_features = values.shape[0]
    for d in range(n_features):
        there = not math.isnan(values[d])
        out[d] = values[d] if there else 0.0
        out[n_features + d] = 1.0 if there else 0.0


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """Return the sum over columns of the best case over how many helpers have a value there."""
    n_features = values.shape[0]
    out = 0.0
    for d in range(n_features):
        if math.isnan(values[d]):
            continue
        n, centre = row[at(ROW.counts, n_features) + d], row[at(ROW.centres, n_features) + d]
        factor = row[at(ROW.factors, n_features) + d]
        fewest = max(int(np.ceil(low[n_features + d])), 0)
        most = min(int(np.floor(high[n_features + d])), helpers)
        best = -np.inf
        for count in range(fewest, most + 1):
            value = best_case(params, d, n, centre, factor, values[d], count, low[d], high[d])
            best = max(best, value + _step(params, d, n + count))
        out += best
    return out


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, bound=_bound,
    features=_features,
)  # fmt: skip
