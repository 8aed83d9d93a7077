"""Optimal and stratified resampling of the successors of weighted particles.

Item i can join each cluster of each particle, or open a new one: candidates (h, k) with weights
v = w_h · e_k, where e_k is the factor by which the joint probability grows.  At most N of the
candidates are kept, with weights whose expectations are the v, so that every sum over partitions,
such as the evidence, keeps its expectation.

``optimal``
    With c the solution of Σ min(v/c, 1) = N, candidates above c keep their weights, and each other
    candidate is kept with probability v/c and then has the weight c.  No other way to keep N
    distinct candidates has a smaller expected squared error (Fearnhead & Clifford 2003, section 3).
    Which of the others are kept is decided by a systematic draw.
``stratified``
    One candidate is drawn from each of N equal strata of the total weight (Kitagawa 1996).  A
    candidate that is drawn m times is kept once with m times the weight, as copies would have the
    same successors.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._jit import inner, view
from dpsearch._special import vector_exp
from dpsearch.dots import BLOCK
from dpsearch.prefix_search.shared_rows import full, log_fresh, score_live, step

# Candidates with less than this share of the total weight, which is below rounding, are left out.
_NEGLIGIBLE = 1e-18
_MOST_ITERATIONS = 60  # limit for Newton's method, which needs a few


@inner
def advance(  # type: ignore[no-untyped-def]
    core, dots, items, alone, tables, beam, rows, nodes, counts, room, order, begin, end, most,
    optimal, log_scale, cut, rng,
):  # fmt: skip
    """Place order[begin:end]; stop early when the arrays may be too small for one more item.

    The weights are `beam.scores`, whose sum is about 1, times exp(log_scale).  `cut` is the last c.
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
    """Convert the gains of rows to factors relative to the largest; return the largest gain.

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

    Return the total weight and the number of candidates.
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
    """List the slots in room.sizes, by decreasing weight of one particle's candidates there.

    A cluster and its descendants have the same slot in most particles, so that in this order the
    first few candidates of a particle have nearly all of its weight.
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

    The last place is the new cluster; slots that the particle does not use have the weight 0.
    """
    if place == counts.widest:
        return beam.counts[h], beam.scores[h] * room.out[beam.counts[h]]
    k = room.sizes[place]
    return k, beam.scores[h] * rows.gains[beam.rows[h, k]]


@inner
def _limit(beam, rows, counts, room, most, total, guess, least):  # type: ignore[no-untyped-def]
    """Return c with Σ min(v/c, 1) = most, or 0 if there are no more candidates than that.

    Only candidates that may be above c are listed; of the others only the sum is needed.
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

    Σ min(v, c) − c · most is concave in c and piecewise linear.  Newton's method, whose step goes
    to (sum of the v up to c) / (most − number above c), therefore ends after a few steps from any c
    at which fewer than `most` are above.
    """
    limit = guess
    for _ in range(_MOST_ITERATIONS):
        above = 0.0  # a float, so that the loop is vectorised with the others
        below = rest
        floor = max(limit, least)
        for j in range(values.shape[0]):
            above += 1.0 if values[j] > floor else 0.0
            below += values[j] if values[j] <= limit else 0.0
        after = total / most  # at which fewer than `most` are above
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
    """List the candidates to keep, with weights divided by the total; return their number."""
    kept = 0
    stratum = 0
    share = rng.random()
    point = share * limit  # next draw on a line along which the light candidates lie
    end = 0.0
    heavy = limit if optimal else np.inf  # above this a candidate keeps its weight
    for h in range(counts.hypotheses):
        left = room.second[h]  # weight of the candidates not yet visited
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
