"""The integral over the concentration of von Mises–Fisher distributions: see that family.

A cluster's log H is that of its size n and of the length R = |c₀m₀ + Σx|: with nodes κ_g that are
even in log κ, a sum of

    exp(t_g),   t_g = log π_g − n L(κ_g) + L(κ_g R) − L(κ_g c₀).

There are so many nodes that only every s-th counts: for n points those that are at most 1.2 of the
least standard deviation of log κ apart.  The sum over even nodes of a function as smooth as a
posterior is then its integral but for 2 exp(−2π²/1.2²) < 1e-5 of it.

As a function of g the terms rise to one largest and fall again, because R r(κR)/r(κ) falls with κ,
r = L′.  So the sum begins near the largest term, which the row remembers, and ends on both sides
where terms are negligible.  Where many columns and points make the posterior of log κ nearly
normal, Laplace's method with its next term takes one or two terms in place of ten.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch import _jit
from dpsearch._bessel import log_mean_exp
from dpsearch._special import LOG_2PI, vector_exp
from dpsearch.families import layout
from dpsearch.families.layout import entry, table

_NEGLIGIBLE = 25.0  # nats below the largest term: 1e-11 of it


class _Params(NamedTuple):
    n_features: layout.Number
    order: layout.Number  # ν
    strength: layout.Number  # c₀
    typical: layout.Number  # product of two points of a cluster
    whole: layout.Number  # log κ: from the first node to the last
    many: layout.Number  # points, from which on the posterior of log κ is nearly normal
    expansion: layout.Numbers  # of L, see `_bessel`
    nodes: layout.Numbers  # κ_g
    at_nodes: layout.Numbers  # L(κ_g)
    slopes: layout.Numbers  # r(κ_g)
    prior_slopes: layout.Numbers  # r(κ_g c₀)
    starts: layout.Numbers  # log π_g − L(κ_g c₀)
    strides: layout.Numbers  # s: every which node counts …
    limits: layout.Numbers  # … for up to so many points
    prior: layout.Numbers  # c₀m₀, empty if it is 0


PARAMS = layout.params(_Params)


@_jit.inner
def _term(params, n, length, g):  # type: ignore[no-untyped-def]
    """Return the logarithm of term g, and r."""
    kappa = entry(params, PARAMS.nodes, g)
    own = entry(params, PARAMS.starts, g) - n * entry(params, PARAMS.at_nodes, g)
    expansion = table(params, PARAMS.expansion)
    value, slope = log_mean_exp(params[PARAMS.order], expansion, kappa * length)
    return own + value, slope


@_jit.inner
def _stride(params, n):  # type: ignore[no-untyped-def]
    """Return every which node counts for n points."""
    limits, level = table(params, PARAMS.limits), 0
    while n > limits[level]:
        level += 1
    return int(entry(params, PARAMS.strides, level))


@_jit.inner
def summit(params, n, length, begin):  # type: ignore[no-untyped-def]
    """Return the number of the largest term, by steps that double while terms rise."""
    stride, n_nodes = _stride(params, n), layout.length(params, PARAMS.nodes)
    at, step = int(begin) // stride * stride, stride
    top = _term(params, n, length, at)[0]
    while step >= stride:
        moved = False
        for there in (at + step, at - step):
            if not moved and 0 <= there < n_nodes:
                value = _term(params, n, length, there)[0]
                if value > top:
                    top = value
                    at = there
                    moved = True
        step = 2 * step if moved else step // 2
    return at


@_jit.inner
def _derivatives(nu, x, r):  # type: ignore[no-untyped-def]
    """Return the first to fourth derivative of L(x) by log x.

    The first two follow from r′ = 1 − r² − (2ν + 1) r/x, the others from the two leading terms of
    Debye's expansion.
    """
    first, s = x * r, math.sqrt(1.0 + (x / nu) * (x / nu))
    t = 1.0 / s
    tt = t * t
    third = nu * (s - t * tt) + 2.0 * tt * (1.0 + tt * (2.0 * tt - 3.0))
    fourth = nu * (s - t + 3.0 * t * tt * (1.0 - tt))
    return first, (x - first) * (x + first) - 2.0 * nu * first, third, fourth


class _Found(NamedTuple):
    log: float  # H; NaN if the posterior is not nearly normal
    largest: int  # the number of the node with the largest term, or near the mode
    slope: float  # r(κR) there
    low: int  # the nodes that matter
    high: int
    stride: int  # between terms; 0 where there are none
    of_score: float  # the score is at least this …
    of_growth: float  # … and this by δ


@_jit.inner
def _laplace(params, n, length, begin):  # type: ignore[no-untyped-def]
    """Return log H by Laplace's method with the next term, of a posterior that is nearly normal.

    With derivatives t₂, t₃, t₄ at the mode: log ∫ exp t = t + ½ log 2π/|t₂|
    + log(1 + 5t₃²/24|t₂|³ + t₄/8t₂²)  (Tierney & Kadane 1986).  The bound on scores is Jensen's,
    log E[exp f] ≥ E[f].
    """
    nu, last = params[PARAMS.order], layout.length(params, PARAMS.nodes) - 1
    node, between = int(begin), params[PARAMS.whole] / last
    for _ in range(20):
        kappa = entry(params, PARAMS.nodes, node)
        value, slope = _term(params, n, length, node)
        a1, a2, a3, a4 = _derivatives(nu, kappa * length, slope)
        b1, b2, b3, b4 = _derivatives(nu, kappa, entry(params, PARAMS.slopes, node))
        t1, t2, t3, t4 = a1 - n * b1, a2 - n * b2, a3 - n * b3, a4 - n * b4
        if params[PARAMS.strength] > 0.0:
            at = kappa * params[PARAMS.strength]
            c1, c2, c3, c4 = _derivatives(nu, at, entry(params, PARAMS.prior_slopes, node))
            t1, t2, t3, t4 = t1 - c1, t2 - c2, t3 - c3, t4 - c4
        if not t2 < 0.0:
            break
        deviation, v = 1.0 / math.sqrt(-t2), -t1 / t2
        if abs(v) <= max(0.5 * deviation, 0.51 * between):
            for _ in range(2):
                slope_there = t1 + v * (t2 + v * (t3 / 2.0 + v * t4 / 6.0))
                v -= slope_there / (t2 + v * (t3 + v * t4 / 2.0))
            place = node * between + v
            if min(place, params[PARAMS.whole] - place) < 7.0 * deviation:
                break
            u2, u3 = -(t2 + v * (t3 + v * t4 / 2.0)), t3 + v * t4
            at_mode = value + v * (t1 + v * (t2 / 2.0 + v * (t3 / 6.0 + v * t4 / 24.0)))
            next_term = math.log1p(5.0 * u3 * u3 / (24.0 * u2 * u2 * u2) + t4 / (8.0 * u2 * u2))
            log_h = at_mode + 0.5 * (LOG_2PI - math.log(u2)) + next_term - math.log(between)
            mean = v + 0.5 * u3 / (u2 * u2)
            square, far = mean * mean + 1.0 / u2, 1 + int(7.0 * deviation / between)
            of_score = -entry(params, PARAMS.at_nodes, node) - b1 * mean - 0.5 * b2 * square
            of_growth = (a1 + a2 * mean + 0.5 * a3 * square) / length
            low, high = max(node - far, 0), min(node + far, last)
            return _Found(log_h, node, slope, low, high, 0, of_score, of_growth)
        node = min(max(node + int(v / between + (0.5 if v > 0.0 else -0.5)), 0), last)
    return _Found(np.nan, node, 0.0, node, node, 0, 0.0, 0.0)


@_jit.inner
def log_sum(params, n, squared, begin):  # type: ignore[no-untyped-def]
    """Return log H of n points with this R² and what is known of its terms.

    The sum is that of the terms about the largest one, wherever it began.
    """
    length, last = math.sqrt(max(squared, 0.0)), layout.length(params, PARAMS.nodes) - 1
    if n >= params[PARAMS.many]:
        found = _laplace(params, n, length, begin)
        if not math.isnan(found.log):
            return found
    stride = _stride(params, n)
    largest = int(begin) // stride * stride
    top, slope = _term(params, n, length, largest)
    total, away, reach, more = 1.0, stride, 0, True
    while more:
        low, high = largest - away, largest + away
        below, slope_below = _term(params, n, length, max(low, 0))
        above, slope_above = _term(params, n, length, min(high, last))
        below, above = below if low >= 0 else -np.inf, above if high <= last else -np.inf
        reach, away, more = away, away + stride, max(below, above) > top - _NEGLIGIBLE
        if max(below, above) > top:  # begin again, there
            largest = low if below > above else high
            slope = slope_below if below > above else slope_above
            top = max(below, above)
            total, away = 1.0, stride
        elif more:
            total += vector_exp(below - top) + vector_exp(above - top)
    log_total = math.log(total)
    log_all = top + log_total + math.log(stride)
    low, high = max(largest - reach, 0), min(largest + reach, last)
    of_score = -log_total - entry(params, PARAMS.at_nodes, largest)  # by the largest term alone
    rise = entry(params, PARAMS.nodes, largest) * slope
    return _Found(log_all, largest, slope, low, high, stride, of_score, rise)


@_jit.kernel
def shares(params, n, length):  # type: ignore[no-untyped-def]
    """Return the nodes that count, by their numbers, and their posterior weights."""
    at = np.arange(0, layout.length(params, PARAMS.nodes), _stride(params, n))
    out = np.empty(at.shape[0])
    for i in range(out.shape[0]):
        out[i] = _term(params, n, length, at[i])[0]
    kept = np.flatnonzero(out > out.max() - _NEGLIGIBLE)
    out = np.exp(out[kept] - out.max())
    return at[kept], out / out.sum()


@_jit.kernel
def of_blocks(params, sizes, lengths):  # type: ignore[no-untyped-def]
    """Return log H of blocks by n and R, its derivative by R over R, and that by n: [3, K].

    Sizes need not be integers.
    """
    out = np.zeros((3, sizes.shape[0]))
    middle = layout.length(params, PARAMS.nodes) // 2
    for k in range(sizes.shape[0]):
        n, length = sizes[k], max(lengths[k], 1e-100)
        begin = summit(params, n, length, middle)
        found = log_sum(params, n, length * length, begin)
        out[0, k] = found.log if n > 0.0 else 0.0
        if found.stride == 0:
            out[1, k], out[2, k] = found.of_growth / length, found.of_score
            continue
        for g in range(found.low, found.high + 1, found.stride):
            kappa, at_node = entry(params, PARAMS.nodes, g), entry(params, PARAMS.at_nodes, g)
            term, slope = _term(params, n, length, g)
            share = found.stride * math.exp(term - found.log)
            out[1, k] += share * kappa * slope / length
            out[2, k] -= share * at_node
    return out
