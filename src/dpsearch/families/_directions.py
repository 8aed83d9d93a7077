"""The functions of directions under von Mises–Fisher distributions: see `von_mises_fisher.py`.

The score of a point x depends on ⟨S, x⟩ alone, as an increasing convex function of
δ = |S + x| − R.  The term of κ changes by −L(κ) + L(κ(R + δ)) − L(κR), and with r at κR

    κδr ≤ L(κ(R + δ)) − L(κR) ≤ κr(δ + δ²/2R)   for δ ≥ 0,   r(cx) ≤ c r(x) for c ≥ 1,

because r is increasing and concave (Schou 1978, "Estimation of the concentration parameter in von
Mises–Fisher distributions").  So a row has a line below the score, from the largest term, and a
line above it for products p up to `near`: a chord of δ from p = 0, where δ grows by less than
p/√(R² + 1).  If only the best cluster is needed, clusters whose upper bound is below another's
score are not scored further.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch.families import layout
from dpsearch.families._concentration import PARAMS, log_sum, summit
from dpsearch.families.functions import Functions
from dpsearch.families.layout import entry, table, view, view_at

_NEAR = 0.6  # of the typical product of a member: below it a cluster is seldom the best
_FEW = 8.0  # points; bounds of smaller clusters use scores, since many terms matter
_SLACK = 1e-3  # nats: the error of expectations under a normal posterior
_MARGIN = 1e-6  # nats: scores closer to each other are compared in full


class _Row(NamedTuple):
    n: layout.Count
    log_h: layout.Number
    squared: layout.Number  # R²
    largest: layout.Number  # the index of the largest term
    near: layout.Number  # a product with the sum
    above: layout.Number  # up to `near` the score is at most above + climb · max(product, 0) …
    climb: layout.Number
    below: layout.Number  # … and always at least below + rise · δ
    rise: layout.Number
    padding_1: layout.Number  # to begin vectors at a multiple of 64 bytes
    padding_2: layout.Number
    padding_3: layout.Number
    padding_4: layout.Number
    padding_5: layout.Number
    padding_6: layout.Number
    padding_7: layout.Number
    sums: layout.Numbers  # c₀m₀ + Σx


ROW = layout.row(_Row)


@_jit.inner
def _score(params, pool, s, dot):  # type: ignore[no-untyped-def]
    """Return the score of a point under the row at s, by their inner product."""
    squared = pool[s + ROW.squared] + 2.0 * dot + 1.0
    after = log_sum(params, pool[s + ROW.n] + 1.0, squared, pool[s + ROW.largest]).log
    return after - pool[s + ROW.log_h]


@_jit.inner
def _refresh(params, row):  # type: ignore[no-untyped-def]
    """Compute the other fields from n, R² and the sums; an empty cluster has the prior's sums."""
    n, squared = row[ROW.n], row[ROW.squared]
    middle = layout.length(params, PARAMS.nodes) // 2
    if n <= 0.0:
        row[:] = 0.0
        sums = view(row, ROW.sums, int(params[PARAMS.n_features]))
        prior = table(params, PARAMS.prior)
        for d in range(prior.shape[0]):
            sums[d] = prior[d]
        row[ROW.squared] = params[PARAMS.strength] * params[PARAMS.strength]
        row[ROW.largest] = middle
        return
    found = log_sum(params, n, squared, row[ROW.largest])
    row[ROW.log_h] = found.log
    # For one point the terms may differ by rounding alone.
    row[ROW.largest] = found.largest if n > 1.0 else middle
    typical = (squared - n) / (n - 1.0) if n > 1.0 else params[PARAMS.typical]
    row[ROW.near] = _NEAR * max(typical, 0.0)
    _set_lines(params, row, found)


@_jit.inner
def _set_lines(params, row, found):  # type: ignore[no-untyped-def]
    """Set the lines below and above the score."""
    length = max(math.sqrt(max(row[ROW.squared], 0.0)), 1e-6)
    row[ROW.below] = found.of_score - _SLACK
    row[ROW.rise] = found.of_growth
    across = math.sqrt(row[ROW.squared] + 1.0)  # after a point whose product is 0
    after = math.sqrt(row[ROW.squared] + 2.0 * row[ROW.near] + 1.0)
    if row[ROW.n] < _FEW:
        at_0, at_near = _score(params, row, 0, 0.0), _score(params, row, 0, row[ROW.near])
    else:
        at_0 = _most(params, found, length, across - length)
        at_near = _most(params, found, length, after - length)
    row[ROW.above] = at_0
    row[ROW.climb] = max(at_near - at_0, 0.0) / max((after - across) * across, 1e-300)


@_jit.inner
def _most(params, found, length, growth):  # type: ignore[no-untyped-def]
    """Return an upper bound on the change of the term of any relevant κ if R grows by δ ≥ 0.

    L is above its tangent at the largest term, so the bound is a line on each side of that term.
    """
    kappa, reach = entry(params, PARAMS.nodes, found.largest), growth
    reach += 0.5 * growth * growth / length
    low, high = entry(params, PARAMS.nodes, found.low), entry(params, PARAMS.nodes, found.high)
    slope, tangent = found.slope, entry(params, PARAMS.slopes, found.largest)
    steepest = min(slope * high / kappa, 1.0)
    most = max(low * (slope * reach - tangent), kappa * (steepest * reach - tangent))
    most = max(most, high * (steepest * reach - tangent))
    return most + kappa * tangent - entry(params, PARAMS.at_nodes, found.largest)


@_jit.inner
def _measure(params, row):  # type: ignore[no-untyped-def]
    """Compute R² from the sums, and the other fields."""
    sums = view(row, ROW.sums, int(params[PARAMS.n_features]))
    squared = 0.0
    for d in range(sums.shape[0]):
        squared += sums[d] * sums[d]
    row[ROW.squared] = squared
    if row[ROW.n] > 1.0:
        row[ROW.largest] = summit(params, row[ROW.n], math.sqrt(squared), row[ROW.largest])
    _refresh(params, row)


@_jit.pointer("update")
def _update(params, row, ids, values, weight):  # type: ignore[no-untyped-def]
    sums = view(row, ROW.sums, int(params[PARAMS.n_features]))
    row[ROW.n] += weight
    if ids.shape[0] == 0:
        squared = 0.0
        for d in range(values.shape[0]):
            after = sums[d] + weight * values[d]
            sums[d] = after
            squared += after * after
        row[ROW.squared] = squared
        _refresh(params, row)
        return
    dot = 0.0
    for i in range(values.shape[0]):
        dot += sums[ids[i]] * values[i]
        sums[ids[i]] += weight * values[i]
    row[ROW.squared] += weight * (2.0 * dot + weight)
    _refresh(params, row)


@_jit.pointer("merge")
def _merge(params, row, other, sign):  # type: ignore[no-untyped-def]
    n_features = int(params[PARAMS.n_features])
    sums, more = view(row, ROW.sums, n_features), view(other, ROW.sums, n_features)
    prior = table(params, PARAMS.prior)
    row[ROW.n] += sign * other[ROW.n]
    if other[ROW.n] > 0.0:
        for d in range(n_features):
            sums[d] += sign * more[d]
        for d in range(prior.shape[0]):
            sums[d] -= sign * prior[d]
    _measure(params, row)


@_jit.inner
def _dot(sums, ids, values):  # type: ignore[no-untyped-def]
    out = 0.0
    if ids.shape[0] > 0:
        for i in range(values.shape[0]):
            out += sums[ids[i]] * values[i]
    else:
        for d in range(values.shape[0]):
            out += sums[d] * values[d]
    return out


@_jit.pointer("score_rows")
def _score_rows(params, pool, starts, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[PARAMS.n_features])
    for k in range(starts.shape[0]):
        dot = _dot(view_at(pool, starts[k], ROW.sums, n_features), ids, values)
        out[k] = _score(params, pool, starts[k], dot)


@_jit.pointer("score_dots")
def _score_dots(params, pool, starts, dots, square, out):  # type: ignore[no-untyped-def]
    for k in range(starts.shape[0]):
        out[k] = _score(params, pool, starts[k], dots[k])


@_jit.pointer("score_member")
def _score_member(params, row, ids, values):  # type: ignore[no-untyped-def]
    dot = _dot(view(row, ROW.sums, int(params[PARAMS.n_features])), ids, values)
    squared = row[ROW.squared] - 2.0 * dot + 1.0
    before = log_sum(params, row[ROW.n] - 1.0, squared, row[ROW.largest]).log
    return row[ROW.log_h] - before


@_jit.inner
def _at_most(pool, s, product):  # type: ignore[no-untyped-def]
    """Return a bound on the score, infinite beyond `near`."""
    bound = pool[s + ROW.above] + pool[s + ROW.climb] * max(product, 0.0)
    return bound if product <= pool[s + ROW.near] else math.inf


@_jit.inner
def _cannot_exceed(pool, s, product, step, best):  # type: ignore[no-untyped-def]
    return _at_most(pool, s, product) + step < best - _MARGIN


@_jit.inner
def _likely(pool, starts, products, skipped):  # type: ignore[no-untyped-def]
    """Return the position with the largest product relative to a typical one; −1 if none."""
    out = -1
    ratio = -np.inf
    for k in range(starts.shape[0]):
        relative = products[k] / max(pool[starts[k] + ROW.near], 1e-9)
        if k != skipped and relative > ratio:
            ratio = relative
            out = k
    return out


@_jit.inner
def _keep_best(params, pool, starts, products, offsets, skipped, floor, likely, out):  # type: ignore[no-untyped-def]
    """Write scores with offsets where they may be the best, else −∞; the likely one comes first."""
    best = floor
    of_likely = -np.inf
    if likely >= 0:
        s = starts[likely]
        if not _cannot_exceed(pool, s, products[likely], offsets[likely], best):
            of_likely = _score(params, pool, s, products[likely]) + offsets[likely]
            best = max(best, of_likely)
    for k in range(starts.shape[0]):
        if k == skipped:
            continue
        s = starts[k]
        if k == likely:
            out[k] = of_likely
        elif _cannot_exceed(pool, s, products[k], offsets[k], best):
            out[k] = -np.inf
        else:
            out[k] = _score(params, pool, s, products[k]) + offsets[k]
            best = max(best, out[k])


@_jit.pointer("score_best")
def _score_best(params, pool, starts, offsets, skipped, ids, values, out):  # type: ignore[no-untyped-def]
    n_features = int(params[PARAMS.n_features])
    for k in range(starts.shape[0]):
        out[k] = _dot(view_at(pool, starts[k], ROW.sums, n_features), ids, values)
    likely = _likely(pool, starts, out, skipped)
    _keep_best(params, pool, starts, out, offsets, skipped, -np.inf, likely, out)


@_jit.pointer("best_dots")
def _best_dots(params, pool, starts, dots, square, offsets, skipped, floor, out):  # type: ignore[no-untyped-def]
    """Usually one product alone is above `near`, and its cluster is far better than all others."""
    far, likely, others = 0, -1, -np.inf
    for k in range(starts.shape[0]):
        out[k] = -np.inf
        most = _at_most(pool, starts[k], dots[k]) + offsets[k]
        if k == skipped:
            continue
        if most == np.inf:
            likely = k
        else:
            far += 1
            others = max(others, most)
    if likely >= 0 and far + (2 if skipped >= 0 else 1) == starts.shape[0]:
        s = starts[likely]
        length = math.sqrt(max(pool[s + ROW.squared], 0.0))
        after = math.sqrt(pool[s + ROW.squared] + 2.0 * dots[likely] + 1.0)
        least = pool[s + ROW.below] + pool[s + ROW.rise] * (after - length) + offsets[likely]
        if least > floor and others < least - _MARGIN:
            out[likely] = least
            return
    likely = _likely(pool, starts, dots, skipped)
    _keep_best(params, pool, starts, dots, offsets, skipped, floor, likely, out)


@_jit.pointer("bound")
def _bound(params, row, helpers, low, high, ids, values):  # type: ignore[no-untyped-def]
    """With helpers the bound is the largest possible density, at the largest κ."""
    if helpers > 0:
        last = layout.length(params, PARAMS.nodes) - 1
        return entry(params, PARAMS.nodes, last) - entry(params, PARAMS.at_nodes, last)
    dot = _dot(view(row, ROW.sums, int(params[PARAMS.n_features])), ids, values)
    return _score(params, row, 0, dot)


@_jit.pointer("log_marginal")
def _log_marginal(params, row):  # type: ignore[no-untyped-def]
    return row[ROW.log_h]


FUNCTIONS = Functions(
    _update, _merge, _score_rows, _log_marginal, score_member=_score_member, score_best=_score_best,
    score_dots=_score_dots, best_dots=_best_dots, dots_offset=layout.width(ROW, 0), bound=_bound,
)  # fmt: skip
