"""Which successors of weighted particles stay: optimal and stratified resampling.

Item i can join each cluster of each particle, or open one: candidates (h, k) with weights
v = w_h · e_k, where e_k is the factor by which the joint probability grows.  Of M candidates at
most N stay, with weights whose expectations are the v, so that every sum over partitions, the
evidence first of all, keeps its expectation.

``optimal``
    With c the solution of Σ min(v/c, 1) = N, candidates above c stay as they are, and each other
    one stays with probability v/c and then has the weight c: no way to keep N distinct ones has a
    smaller expected squared error (Fearnhead & Clifford 2003, section 3).  Which of the others
    stay is decided by a systematic draw.
``stratified``
    One candidate from each of N equal strata of the total weight (Kitagawa 1996); candidates that
    are drawn m times are kept once with m times the weight, for copies would have the same
    successors.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._jit import inner, view
from dpsearch._special import vector_exp
from dpsearch.dots import BLOCK
from dpsearch.prefix_search.shared_rows import full, log_fresh, score_live, step

# Candidates with less than this part of all the weight are left out: that is below rounding.
_NEGLIGIBLE = 1e-18
_MOST_ITERATIONS = 60  # of Newton's method, which needs a few


@inner
def advance(  # type: ignore[no-untyped-def]
    core, dots, items, alone, tables, beam, rows, nodes, counts, room, order, begin, end, most,
    optimal, log_scale, cut, rng,
):  # fmt: skip
    """Place order[begin:end]; stop early when a structure may not suffice for one more item.

    `beam.scores` are weights whose sum is about 1, times exp(log_scale).  `cut` is the last c.
    Return (where it stopped, log_scale, cut, counts).
    """
    for t in range(begin, end):
        if full(beam, nodes, counts, most):
            return t, log_scale, cut, counts
        i, b = order[t], (t - begin) % BLOCK
        score_live(core, dots, items, order, t, b, tables, rows, counts, room)
        top = _factors(tables, beam, rows, counts, items.sizes[i], alone[i], room)
        total, found = _totals(beam, rows, counts, room)
        _sort_slots(beam.rows[0], rows, counts, room)
        keep_all = found <= most
        least = _NEGLIGIBLE * total
        limit = 0.0
        if not keep_all:
            limit = total / most
            if optimal:
                limit = _limit(beam, rows, counts, room, most, total, cut * total, least)
                cut = limit / total
        kept = _keep(beam, rows, counts, room, most, limit, optimal or keep_all, total, least, rng)
        counts = step(
            core, dots, items, i, b, alone[i], tables, beam, rows, nodes, counts, room, kept
        )
        log_scale += top + math.log(total)
    return end, log_scale, cut, counts


@inner
def _factors(tables, beam, rows, counts, size, alone, room):  # type: ignore[no-untyped-def]
    """Turn the gains of rows into factors, relative to the largest; return its logarithm.

    The factor of a new cluster next to K others goes to room.out[K].
    """
    top = -np.inf
    for row in range(1, counts.highest + 1):
        top = max(top, rows.gains[row])
    room.out[: counts.widest + 1] = -np.inf
    for h in range(counts.hypotheses):
        n_clusters = beam.counts[h]
        if room.out[n_clusters] == -np.inf:
            room.out[n_clusters] = log_fresh(tables, n_clusters, size, alone)
            top = max(top, room.out[n_clusters])
    for n_clusters in range(counts.widest + 1):
        room.out[n_clusters] = math.exp(room.out[n_clusters] - top)
    for row in range(1, counts.highest + 1):
        rows.gains[row] = vector_exp(rows.gains[row] - top)
    return top


@inner
def _totals(beam, rows, counts, room):  # type: ignore[no-untyped-def]
    """Set room.second to the sum of the weights of each particle's candidates.

    Return the sum of all, and how many there are.
    """
    total = 0.0
    found = 0
    for h in range(counts.hypotheses):
        shared, n_clusters = beam.rows[h], beam.counts[h]
        own = room.out[n_clusters]
        for k in range(counts.widest):
            own += rows.gains[shared[k]]
        room.second[h] = beam.scores[h] * own
        total += room.second[h]
        found += n_clusters + 1
    return total, found


@inner
def _sort_slots(shared, rows, counts, room):  # type: ignore[no-untyped-def]
    """List the slots in room.sizes, those where one particle has its heaviest candidates first.

    A cluster and its descendants have the same slot in most particles, so that who looks through
    candidates in this order has seen nearly all of a particle's weight after a few of them.
    """
    for k in range(counts.widest):
        factor = rows.gains[shared[k]]
        at = k
        while at > 0 and rows.gains[shared[room.sizes[at - 1]]] < factor:
            room.sizes[at] = room.sizes[at - 1]
            at -= 1
        room.sizes[at] = k


@inner
def _candidate(beam, rows, counts, room, h, place):  # type: ignore[no-untyped-def]
    """Return (cluster, weight) of a particle's candidate at a place of the order of slots.

    The last one is the new cluster; slots that the particle does not have have the weight 0.
    """
    if place == counts.widest:
        return beam.counts[h], beam.scores[h] * room.out[beam.counts[h]]
    k = room.sizes[place]
    return k, beam.scores[h] * rows.gains[beam.rows[h, k]]


@inner
def _limit(beam, rows, counts, room, most, total, guess, least):  # type: ignore[no-untyped-def]
    """Return c with Σ min(v/c, 1) = most, or 0 if there are no more candidates than that.

    Only candidates that may be above c are listed, of the others the sum is enough.
    """
    floor = guess / 8.0
    while True:
        found = 0
        below = 0.0
        for h in range(counts.hypotheses):
            left = room.second[h]
            for place in range(counts.widest + 1):
                if left <= floor and floor > 0.0:
                    below += max(left, 0.0)
                    break
                _, value = _candidate(beam, rows, counts, room, h, place)
                room.values[found] = value
                found += value > floor
                left -= value
                below += value if value <= floor else 0.0
        limit = _solved(view(room.values, 0, found), below, most, total, guess, least)
        if limit >= floor:
            return limit
        floor = 0.0


@inner
def _solved(values, rest, most, total, guess, least):  # type: ignore[no-untyped-def]
    """Return c for these values and others below c whose sum is `rest`.

    Σ min(v, c) − c · most is concave in c and piecewise linear: Newton's method, whose step goes to
    (sum of the v up to c) / (most − number above c), ends after a few steps from any c at which
    fewer than `most` are above.
    """
    limit = guess
    for _ in range(_MOST_ITERATIONS):
        above = 0.0  # a number of the same width as the others, so that lanes fit
        below = rest
        floor = max(limit, least)
        for j in range(values.shape[0]):
            above += 1.0 if values[j] > floor else 0.0
            below += values[j] if values[j] <= limit else 0.0
        after = total / most  # where fewer are above
        if above < most:
            after = below / (most - above)
        elif above == most and below <= least:
            after = 0.0
        if after <= least:
            return 0.0
        if abs(after - limit) <= 1e-12 * limit:
            return after
        limit = after
    return limit


@inner
def _keep(beam, rows, counts, room, most, limit, optimal, total, least, rng):  # type: ignore[no-untyped-def]
    """List the candidates that stay, with weights divided by the total; return their number."""
    kept = 0
    stratum = 0
    share = rng.random()
    point = share * limit  # the next one on a line along which the light candidates lie
    end = 0.0
    heavy = limit if optimal else np.inf  # above which a candidate stays as it is
    for h in range(counts.hypotheses):
        left = room.second[h]  # the weight of the candidates that are still to come
        for place in range(counts.widest + 1):
            if left <= heavy and end + left <= point and heavy > 0.0:
                end += max(left, 0.0)
                break
            k, weight = _candidate(beam, rows, counts, room, h, place)
            left -= weight
            if weight <= heavy:
                end += weight
                if end <= point:
                    continue
                drawn = 0
                while point < end:
                    drawn += 1
                    stratum += 1
                    share = share if optimal else rng.random()
                    point = (stratum + share) * limit
                weight = drawn * limit
            if weight > least and kept < most:
                room.parents[kept] = h
                room.choices[kept] = k
                room.scores[kept] = weight / total
                kept += 1
    return kept
