"""Further consequences of proved bounds, for numbers of clusters and for pairs of rows.

Prices y with log w(C) − y(C) ≤ slack for every set C bound all partitions by U = v₀ + Σy + N·slack.
A partition that contains a cluster C with r = log w(C) − y(C) has a log joint of at most U + r.
Therefore

- if every set with rows i and j has r ≤ −ρ, partitions with i and j together have at most U − ρ;
  to find ρ, the prices of both rows are lowered by M, and pricing looks for sets above the price;
- partitions with i and j apart have at most U + r_i + r_j, where r_i and r_j are the largest r of
  sets with i and without j, and with j and without i;
- partitions into k clusters are bounded by prices for another λ: v₀ changes to log V(k) − λk, and
  λ is chosen so that, with λ for every cluster, the best partition has about k clusters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Labels
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.exact.assumptions import statistic_of
from dpsearch.exact.pricing import Pricer
from dpsearch.exact.proof import STATED, Bounded, Proof, Sets, pricer_for, pricer_of, total
from dpsearch.exact.verification import Claims
from dpsearch.partition import by_appearance
from dpsearch.problem import Problem

_STEPS = 6  # values of λ that are tried
_ROOM = 1e-6  # nats beyond the target, for rounding


class NumberBound(NamedTuple):
    """A bound on the partitions into one number of clusters.

    n_clusters
        The number.
    upper_bound
        None of these partitions has a larger log joint.
    worse_by
        How many nats each of them is worse than the certificate's partition, at least; not above 0
        if nothing is proved.
    log_joint
        Of the best partition found with this number of clusters.
    """

    n_clusters: int
    upper_bound: float
    worse_by: float
    log_joint: float


def bound_of_pair(certificate: Claims, i: int, j: int, *, together: bool, worse_by: float) -> float:
    """Return a bound on the partitions with rows i and j together, or with them apart.

    Pricing stops once the bound is `worse_by` nats below the certificate's partition.
    """
    problem = certificate.problem
    if not worse_by >= 0.0:
        raise ParameterError.must("within", "be a number ≥ 0", worse_by)
    for name, row in (("i", i), ("j", j)):
        if not 0 <= row < problem.n_items:
            raise ParameterError.of(name, f"must be a row from 0 to {problem.n_items - 1}")
    if i == j:
        raise ParameterError.of("j", "must be another row than i")
    statistic = statistic_of(problem, certificate.clustering.labels)
    highest = -math.inf
    for entry in certificate.prices:
        if together and entry.high == problem.n_items == entry.low:
            continue
        pricer = None if entry.kind == "line" else pricer_of(problem, statistic, entry)
        if pricer is None:
            way = "line=False" if entry.kind == "line" else "a family whose clusters can be priced"
            raise CapabilityError(
                f"a certificate by {entry.kind!r} says nothing about pairs: certify with {way}"
            )
        upper = total(problem, entry, entry.y, entry.slack, STATED)
        goal = min(certificate.lower_bound - worse_by - upper, 0.0) - _ROOM
        if together:
            best = _best(pricer, entry, [i, j], [], goal)
        else:
            best = _best(pricer, entry, [i], [j], goal) + _best(pricer, entry, [j], [i], goal)
        highest = max(highest, min(entry.upper, upper + best))
    return highest


def _best(
    pricer: Pricer, entry: Bounded, inside: list[int], outside: list[int], goal: float
) -> float:
    """Bound log w(C) − y(C) over sets with some rows and without others; the result is at most 0.

    The prices of rows inside are lowered so far that no set without one of them exceeds `goal`.
    """
    cheaper = 1.0 + max(entry.slack, 0.0) - goal
    changed = entry.y.copy()
    changed[inside] -= cheaper
    changed[outside] += cheaper * len(inside) + 1.0
    reach = cheaper * len(inside) + goal
    priced = pricer.price(changed, threshold=reach, max_columns=1)
    return min(priced.bound - cheaper * len(inside), 0.0)


def bound_of_n_clusters(certificate: Claims, n_clusters: int, time_limit: float) -> NumberBound:
    """Return a bound on the partitions into `n_clusters` clusters."""
    problem, k = certificate.problem, n_clusters
    if not 1 <= k <= problem.n_items:
        raise ParameterError.of("n_clusters", f"must be from 1 to {problem.n_items}")
    if k >= len(problem.log_v):  # no partition that the prior allows
        return NumberBound(k, -math.inf, math.inf, -math.inf)
    deadline = clock() + time_limit
    upper = max(entry.upper for entry in certificate.prices if entry.low <= k <= entry.high)
    near = _partitions_around(problem, certificate.clustering.labels, k)
    value = {size: problem.log_joint(labels) for size, labels in near.items()}
    weight = {size: value[size] - float(problem.log_v[size]) for size in value}
    # With λ between these, the partition beats those with more clusters and those with fewer.
    more = [(weight[k] - weight[size]) / (size - k) for size in near if size > k]
    fewer = [(weight[size] - weight[k]) / (k - size) for size in near if size < k]
    lam = _between(max(fewer, default=-math.inf), min(more, default=math.inf))
    statistic = statistic_of(problem, near[k])
    best_value, sets, prices = value[k], Sets(), certificate.prices[0].y[: problem.n_items]
    for step in range(_STEPS):
        pricer = pricer_for(problem, statistic, lam)
        if pricer is None or clock() > deadline:
            break
        start = Bounded(k, k, lam, prices, 0.0, "prices", math.inf)
        proof = Proof(pricer, sets, start, near[k], best_value, tolerance=1e-3, deadline=deadline)
        outcome = proof.run()
        upper = min(upper, outcome.bounded.upper)
        if outcome.what != "better" or outcome.labels is None:
            break
        size = int(outcome.labels.max()) + 1
        if size == k:
            near[k] = outcome.labels
            best_value = max(best_value, problem.log_joint(outcome.labels))
        else:  # the best partition for this λ has more clusters, or fewer
            lam += (1.0 if size < k else -1.0) * (2.0**step)
    lower = certificate.lower_bound
    return NumberBound(k, upper, lower - upper, best_value)


def _between(low: float, high: float) -> float:
    if math.isinf(low) and math.isinf(high):
        return 0.0
    return max(high - 1.0, 0.5 * (low + high)) if math.isfinite(high) else low + 1.0


def _partitions_around(problem: Problem, labels: Labels, k: int) -> dict[int, Labels]:
    """Return good partitions into k − 1, k and k + 1 clusters, and into the numbers on the way."""
    out = {int(labels.max()) + 1: labels}
    step = 1 if k > int(labels.max()) + 1 else -1
    for size in range(int(labels.max()) + 1, k, step):
        out[size + step] = _partition_into(problem, out[size], size + step)
    for size in (k - 1, k + 1):
        if 1 <= size < len(problem.log_v) and size not in out:
            out[size] = _partition_into(problem, out[k], size)
    return out


def _partition_into(problem: Problem, labels: Labels, k: int) -> Labels:
    """Return a good partition into k clusters, by merging the best pairs or separating rows."""
    labels = labels.copy()
    while labels.max() + 1 > k:
        n = int(labels.max()) + 1
        merged = [np.where(labels == b, a, labels) for b in range(n) for a in range(b)]
        labels = max(map(by_appearance, merged), key=problem.log_joint)
    while labels.max() + 1 < k:
        sizes = np.bincount(labels)
        split = []
        for row in np.flatnonzero(sizes[labels] > 1):
            one = labels.copy()
            one[row] = labels.max() + 1
            split.append(one)
        labels = max(split, key=problem.log_joint)
    return labels
