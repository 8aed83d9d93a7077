"""The integral over the concentration κ of von Mises–Fisher distributions: see that family.

A cluster's log H depends on its size n and on the length R = |c₀m₀ + Σx|.  With nodes κ_g that are
equally spaced in log κ, H is the sum of

    exp(t_g),   t_g = log π_g − n L(κ_g) + L(κ_g R) − L(κ_g c₀).

The nodes are so dense that only every s-th is used: for n points they are at most 1.2 times the
least standard deviation of log κ apart.  For a function as smooth as a posterior, the sum over
equally spaced nodes then differs from the integral by less than a share of
2 exp(−2π²/1.2²) < 1e-5.

As a function of g the terms have one maximum, because R r(κR)/r(κ) decreases with κ, r = L′.  So
the sum begins near the largest term, which the row stores, and ends on both sides where terms are
negligible.  If many columns and points make the posterior of log κ nearly normal, Laplace's method
with its next term needs one or two evaluations in place of ten.
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
    typical: layout.Number  # the typical inner product of two points of a cluster
    whole: layout.Number  # the difference of log κ between the last node and the first
    many: layout.Number  # the fewest points with a nearly normal posterior of log κ
    expansion: layout.Numbers  # of L, see `_bessel`
    nodes: layout.Numbers  # κ_g
    at_nodes: layout.Numbers  # L(κ_g)
    slopes: layout.Numbers  # r(κ_g)
    prior_slopes: layout.Numbers  # r(κ_g c₀)
    starts: layout.Numbers  # log π_g − L(κ_g c₀)
    strides: layout.Numbers  # s …
    limits: layout.Numbers  # … for up to this many points
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
    """Return the stride s between the nodes that are used for n points."""
    limits, level = table(params, PARAMS.limits), 0
    while n > limits[level]:
        level += 1
    return int(entry(params, PARAMS.strides, level))


@_jit.inner
def summit(params, n, length, begin):  # type: ignore[no-untyped-def]
    """Return the index of the largest term, found by steps that double while terms rise."""
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
    log: float  # log H; NaN if the posterior is not nearly normal
    largest: int  # the node of the largest term, or near the mode
    slope: float  # r(κR) there
    low: int  # the first and last node that matter
    high: int
    stride: int  # between terms; 0 for Laplace's method
    of_score: float  # the score is at least this …
    of_growth: float  # … plus this times δ


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
    """Return log H of n points with this R², and facts about its terms.

    The sum has the terms around the largest one, for any node to begin with.
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
        if max(below, above) > top:  # begin again at a larger term
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
    """Return the indices of the nodes that matter, and their posterior weights."""
    at = np.arange(0, layout.length(params, PARAMS.nodes), _stride(params, n))
    out = np.empty(at.shape[0])
    for i in range(out.shape[0]):
        out[i] = _term(params, n, length, at[i])[0]
    kept = np.flatnonzero(out > out.max() - _NEGLIGIBLE)
    out = np.exp(out[kept] - out.max())
    return at[kept], out / out.sum()


@_jit.kernel
def of_blocks(params, sizes, lengths):  # type: ignore[no-untyped-def]
    """Return log H of blocks from n and R, its derivative by R divided by R, and by n: [3, K].

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
