"""The true optimum of small artificial sets, under the true prior and under the paper's.

Up to `MOST_ENUMERATED` points, all partitions are covered by dynamic programming over subsets.

With more points, under the true prior, a certificate proves the optimum (`dpsearch.exact`).

Under the paper's prior, in one dimension, log H for given sizes of clusters is convex in their
sums, so that some best partition is contiguous in sorted order; all contiguous partitions are
enumerated by the multiset of their sizes, without branches that cannot reach the best known.
In more dimensions no proof is known, and the best that any method found takes its place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dpsearch._jit import kernel
from dpsearch._types import Ints, Labels, Vector
from dpsearch.errors import CapabilityError
from dpsearch.items import add_item, clear_row, log_marginal
from dpsearch.problem import Problem

MOST_ENUMERATED = 15
_MOST_MULTISETS = 200_000  # kept at once in the contiguous search
_SLACK = 1e-9


class Optimum(NamedTuple):
    log_joint: float
    proof: str  # "enumeration", "certificate", "intervals"; "" if it is only the best found


def optimum(problem: Problem, best_known: Labels, seconds: float = 20.0) -> Optimum:
    """Return the largest log joint of any partition, or the best known if none is proved."""
    if problem.n_items <= MOST_ENUMERATED:
        return Optimum(_by_enumeration(problem), "enumeration")
    known = problem.log_joint(best_known)
    if problem.prior.product_form:
        return _by_certificate(problem, best_known, seconds)
    if problem.model.n_features == 1:
        found = _by_intervals(problem, known)
        if found is not None:
            return Optimum(found, "intervals")
    return Optimum(known, "")


def _by_certificate(problem: Problem, labels: Labels, seconds: float) -> Optimum:
    from dpsearch.exact import certify

    certificate = certify(problem, labels, time_limit=seconds)
    return Optimum(certificate.lower_bound, "certificate" if certificate.optimal else "")


# -- all partitions ----------------------------------------------------------------------------


def _by_enumeration(problem: Problem) -> float:
    n = problem.n_items
    masks = np.arange(1 << n)
    members = [np.flatnonzero(mask >> np.arange(n) & 1) for mask in masks]
    values = _log_marginals_of(problem, members)
    sizes = np.array([len(block) for block in members])
    slope, intercept = _linear(problem)
    values += problem.tables.log_w[sizes] + slope
    values[0] = -math.inf
    constant = intercept + problem.log_base
    if not problem.tables.multiplicity:
        return float(_best_cover(values, n)) + constant
    # −Σ log m_i! is added cluster by cluster of one size, sizes descending: −log of how many
    # clusters of the size there are by then.
    before = np.full(1 << n, -math.inf)  # best over disjoint clusters that cover a subset
    before[0] = 0.0
    for size in range(n, 0, -1):
        blocks = masks[sizes == size]
        level = before
        for count in range(1, n // size + 1):
            level = _one_more(level, blocks, values[blocks] - math.log(count))
            before = np.maximum(before, level)
    return float(before[-1]) + constant


@kernel
def _best_cover(values, n):  # type: ignore[no-untyped-def]
    """Return the best partition: each subset's first point is grouped with some of the others."""
    best = np.zeros(1 << n)
    for mask in range(1, 1 << n):
        first = mask & -mask
        others = mask ^ first
        top = -np.inf
        part = others
        while True:
            value = values[part | first] + best[others ^ part]
            if value > top:
                top = value
            if part == 0:
                break
            part = (part - 1) & others
        best[mask] = top
    return best[(1 << n) - 1]


@kernel
def _one_more(level, blocks, values):  # type: ignore[no-untyped-def]
    """Add one of the blocks to each cover that it does not intersect."""
    out = np.full(level.shape[0], -np.inf)
    for mask in range(level.shape[0]):
        if level[mask] > -np.inf:
            for b in range(blocks.shape[0]):
                if mask & blocks[b] == 0:
                    value = level[mask] + values[b]
                    if value > out[mask | blocks[b]]:
                        out[mask | blocks[b]] = value
    return out


def _linear(problem: Problem) -> tuple[float, float]:
    """Return (b, a) of log V(K) = a + b K; for priors with α fixed it has this form."""
    log_v = problem.tables.log_v
    if len(log_v) == 2:
        return 0.0, float(log_v[1])
    steps = np.diff(log_v[1:])
    if np.ptp(steps) > 1e-9 * max(1.0, abs(steps[0])):
        raise CapabilityError("the optimum is worked out for priors with α fixed only")
    return float(steps[0]), float(log_v[1] - steps[0])


# -- contiguous partitions ---------------------------------------------------------------------


def _by_intervals(problem: Problem, known: float) -> float | None:
    """Return the best contiguous partition under AntoniakCounts; None if there are too many.

    −∞ if all are worse than the best known, which cannot be.  A branch is a multiset of sizes that
    covers the first points.  What the others can add is at most what they add when no two
    clusters are of one size.
    """
    n = problem.n_items
    order = np.argsort(problem.items.values, kind="stable")
    slope, intercept = _linear(problem)
    gain = np.full((n + 1, n + 1), -math.inf)  # of points i … j − 1 as one cluster
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
    found = _log_marginals_of(problem, [order[i:j] for i, j in pairs])
    for (i, j), value in zip(pairs, found, strict=True):
        gain[i, j] = value + problem.tables.log_w[j - i] + slope
    rest = np.zeros(n + 1)
    for i in range(n - 1, -1, -1):
        rest[i] = (gain[i, i + 1 :] + rest[i + 1 :]).max()
    least = known - problem.log_base - intercept - _SLACK
    levels: list[dict[tuple[int, ...], float]] = [{} for _ in range(n + 1)]
    levels[0][()] = 0.0
    for i in range(n):
        kept = {sizes: value for sizes, value in levels[i].items() if value + rest[i] >= least}
        levels[i] = {}
        if len(kept) > _MOST_MULTISETS:
            return None
        for sizes, value in kept.items():
            for j in range(i + 1, n + 1):
                more = value + gain[i, j]
                if more + rest[j] < least:
                    continue
                more -= math.log(sizes.count(j - i) + 1)
                key = tuple(sorted((*sizes, j - i)))
                if more > levels[j].get(key, -math.inf):
                    levels[j][key] = more
    return max(levels[n].values(), default=-math.inf) + problem.log_base + intercept


# -- marginal likelihoods of many blocks -------------------------------------------------------


def _log_marginals_of(problem: Problem, blocks: list[Ints]) -> Vector:
    starts = np.cumsum([0, *(len(block) for block in blocks)])
    members = np.concatenate(blocks).astype(np.int64)
    out: Vector = _marginals(problem.model.core, problem.items, members, starts)
    return out


@kernel
def _marginals(core, items, members, starts):  # type: ignore[no-untyped-def]
    out = np.zeros(starts.shape[0] - 1)
    row = np.empty(core.width)
    for b in range(out.shape[0]):
        clear_row(core, row)
        for at in range(starts[b], starts[b + 1]):
            add_item(core, items, members[at], row, 1.0)
        out[b] = log_marginal(core, row)
    return out
