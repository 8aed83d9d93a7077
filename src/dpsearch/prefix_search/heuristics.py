"""Scores of a prefix clustering: bounds or estimates of what the unplaced items add.

A state is a clustering of the first t items in placing order.  Its score is the log joint of the
placed items plus a bound or an estimate for the rest:

``trivial``
    The largest p(c) of any completion, and the largest possible density for each unplaced point
    (the paper's section 3.2; densities above 1, which it forgets, are allowed for).  Admissible.
``replica``
    The paper's "tighter function" as printed (section 3.3): the largest p(c), and for each
    unplaced point the best predictive density over clusters when the points before it are replaced
    by replicas of itself, scaled to the largest norm for real data.  *Not* admissible for
    Gaussians: points in other directions may help the point more than its replicas.
``admissible``
    For each unplaced point, prior and likelihood together: the largest value of
    log W(n_k + j + 1) − log W(n_k + j) + log H(x | cluster k and j helpers) over clusters k, the
    number j of helpers (unplaced earlier points that join first), and the possible sums of their
    features, column by column.  Never below the best completion.
``dual``
    Prices of the points bound the rest (see `dual.py`, and `dpsearch.exact.dual` for the prices).
    Never below the best completion, and by far the tightest; nearly all the time goes into finding
    the prices.
``inadmissible``
    Each unplaced point as a cluster of its own (section 3.4), in the likelihood and in the prior
    alike.  For points under the Dirichlet process with α fixed this is the value of an actual
    completion; otherwise each point's share of the prior is that of a second cluster.  The most
    useful score in practice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import call_bound, call_features, call_update, inner, kernel
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import CapabilityError
from dpsearch.exact.assumptions import log_ceiling
from dpsearch.families.functions import Bounds
from dpsearch.items import Core, Items, clear_row, copy_row, item_ids, item_values, score_item
from dpsearch.prefix_search.dual import Tree
from dpsearch.priors.base import has_convex_sizes, size_step
from dpsearch.problem import Problem

TRIVIAL, REPLICA, ADMISSIBLE, INADMISSIBLE, DUAL = range(5)
# The helpers' envelopes take about N³/6 · features values.
_LARGEST_ENVELOPE = 100_000_000


class Heuristic(NamedTuple):
    """A score as the best-first kernel uses it: its code and its tables."""

    code: int
    tail: Vector  # [t]: constant estimate for the items from position t on
    fresh: Vector  # [t, m] flat: bound on item t + m in a cluster that is not open yet
    low: Matrix  # envelopes of the helpers' feature sums, see `_envelopes`
    high: Matrix
    slopes: Matrix  # [K, R]: largest log V gain per new cluster when K are open and R items left
    bounds: Bounds
    scaled: Items  # each item's replica, as the paper's function adds it
    tree: Tree  # the listed sets, of which `dual` knows v


def blank(problem: Problem, code: int) -> Heuristic:
    """Return a heuristic with empty tables."""
    none, nothing = np.zeros(0), np.zeros((0, 0))
    tree = Tree(np.zeros((0, 2), np.int32), none, 0.0, 0.0)
    return Heuristic(
        code, np.zeros(problem.n_items + 1), none, nothing, nothing, nothing, Bounds(0, 0, 0),
        problem.items, tree,
    )  # fmt: skip


def inadmissible(problem: Problem, order: Ints) -> Heuristic:
    values = problem.alone[order] + problem.tables.open_cost
    return blank(problem, INADMISSIBLE)._replace(tail=_suffix_sums(values))


def trivial(problem: Problem, order: Ints) -> Heuristic:
    _require(problem, "trivial")
    return blank(problem, TRIVIAL)._replace(
        tail=_suffix_sums(log_ceiling(problem, "heuristic 'trivial'")[order])
    )


def replica(problem: Problem, order: Ints) -> Heuristic:
    _require(problem, "replica")
    scaled = problem.items
    if problem.model.family.scale_replicas:
        scaled = _scaled(problem.items, problem.model.n_features)
    return _with_fresh(problem, order, blank(problem, REPLICA)._replace(scaled=scaled))


def _with_fresh(problem: Problem, order: Ints, heuristic: Heuristic) -> Heuristic:
    core, tables = problem.model.core, problem.tables
    fresh = _fresh_values(heuristic, core, problem.items, tables, order)
    return heuristic._replace(fresh=fresh)


def _require(problem: Problem, name: str) -> None:
    """Raise unless the largest p(c) of a completion is known, for points."""
    problem.require_points(f"heuristic {name!r}")
    if not problem.tables.multiplicity and not has_convex_sizes(problem.tables):
        raise CapabilityError(
            f"heuristic {name!r} needs a prior whose log W is convex in the size of a cluster;"
            f" that of {problem.prior.name} is not: use 'inadmissible' or 'admissible'"
        )


def _suffix_sums(values: Vector) -> Vector:
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _scaled(items: Items, n_features: int) -> Items:
    """Scale every point to the largest norm, as the paper's footnote 1 says."""
    points = items.values.reshape(-1, n_features)
    norms = np.linalg.norm(points, axis=1)
    factors = np.where(norms > 0.0, norms.max() / np.where(norms > 0.0, norms, 1.0), 1.0)
    return items._replace(values=np.ascontiguousarray(points * factors[:, None]).reshape(-1))


def admissible(problem: Problem, order: Ints) -> Heuristic:
    problem.require_points("heuristic 'admissible'")
    if problem.tables.multiplicity:
        raise CapabilityError(
            "heuristic 'admissible' needs a prior of product form; AntoniakCounts is not one"
        )
    n = problem.n_items
    bounds = problem.model.bounds("heuristic 'admissible'")
    if n**3 / 6 * bounds.n_features > _LARGEST_ENVELOPE:
        raise CapabilityError(
            f"heuristic 'admissible' is for small data: {n} points with {bounds.n_features}"
            " features would need tables of gigabytes; use 'inadmissible'"
        )
    features = features_of(problem.model.core, bounds, problem.items, order)
    low, high = _envelopes(features)
    slopes = _slopes(problem.tables.log_v)
    heuristic = blank(problem, ADMISSIBLE)._replace(
        low=low, high=high, slopes=slopes, bounds=bounds
    )
    return _with_fresh(problem, order, heuristic)


def _slopes(log_v: Vector) -> Matrix:
    """Return [K, R]: max over u = 1 … R of (log V(K + u) − log V(K)) / u."""
    n = len(log_v) - 1
    out = np.full((n + 1, n + 1), -np.inf)
    for n_clusters in range(n):
        steps = np.arange(1, n - n_clusters + 1)
        gains = (log_v[n_clusters + steps] - log_v[n_clusters]) / steps
        out[n_clusters, steps] = np.maximum.accumulate(gains)
    return out


@inner
def _pair(n, t, m):  # type: ignore[no-untyped-def]
    """Flat index of (t, m): item t + m, with t items placed, among n."""
    return t * n - t * (t - 1) // 2 + m


@inner
def _triple(n, t, m, j):  # type: ignore[no-untyped-def]
    """Flat index of (t, m, j): j ≤ m helpers from positions t … t + m − 1."""
    left = n - t
    before = n * (n + 1) * (n + 2) // 6 - left * (left + 1) * (left + 2) // 6
    return before + m * (m + 1) // 2 + j


@kernel
def features_of(core: Core, bounds: Bounds, items: Items, order: Ints) -> Matrix:
    """Return the items' features, whose sums over helpers are bounded."""
    out = np.zeros((order.shape[0], bounds.n_features))
    for t in range(order.shape[0]):
        i = order[t]
        call_features(
            bounds.features, (core.params, item_ids(items, i), item_values(items, i), out[t])
        )
    return out


@kernel
def _envelopes(features: Matrix) -> Any:
    """Return (low, high): sums of the j smallest and of the j largest values of each feature.

    Row (t, m, j) is about the items at positions t … t + m − 1.
    """
    n, width = features.shape
    total = n * (n + 1) * (n + 2) // 6
    low = np.zeros((total, width))
    high = np.zeros((total, width))
    ordered = np.empty(n)
    for d in range(width):
        for t in range(n):
            for m in range(n - t):
                if m > 0:  # insert the item at t + m − 1
                    value = features[t + m - 1, d]
                    at = m - 1
                    while at > 0 and ordered[at - 1] > value:
                        ordered[at] = ordered[at - 1]
                        at -= 1
                    ordered[at] = value
                first = _triple(n, t, m, 0)
                for j in range(m):
                    low[first + j + 1, d] = low[first + j, d] + ordered[j]
                    high[first + j + 1, d] = high[first + j, d] + ordered[m - 1 - j]
    return low, high


@kernel
def _fresh_values(heuristic, core, items, tables, order):  # type: ignore[no-untyped-def]
    """Return the bound of each item in a cluster that helpers have opened, at every level."""
    n = order.shape[0]
    out = np.empty(n * (n + 1) // 2)
    empty = np.empty(core.width)
    scratch = np.empty(core.width)
    start = np.zeros(1, np.int64)
    score = np.empty(1)
    clear_row(core, empty)
    for t in range(n):
        level = out[_pair(n, t, 0) :]
        rest_of_row(
            heuristic, core, items, tables, order, empty, 0, t, level, scratch, start, score
        )
    return out


@inner
def _best_bound(  # type: ignore[no-untyped-def]
    core, bounds, items, tables, order, low, high, row, size, t, m
):
    """Return the bound of the item at t + m in a cluster of `size` points and any helpers.

    An empty cluster must be opened by a helper; `fresh_value` covers the item that opens one.
    """
    n = order.shape[0]
    i = order[t + m]
    best = -np.inf
    for j in range(1 if size == 0 else 0, m + 1):
        at = _triple(n, t, m, j)
        value = size_step(tables, size + j)
        value += call_bound(
            bounds.bound,
            (core.params, row, j, low[at], high[at], item_ids(items, i), item_values(items, i)),
        )
        if value > best:
            best = value
    return best


@inner
def _best_replica(core, items, scaled, order, cluster, t, m, row, start, score):  # type: ignore[no-untyped-def]
    """Return the best predictive density of the item at t + m after up to m replicas have joined.

    Scaled replicas are added while they increase it, then plain ones.
    """
    i = order[t + m]
    copy_row(cluster, row)
    score_item(core, items, i, row, start, score, row)
    best = score[0]
    left = m
    for which in range(2):
        while left > 0:
            source = scaled if which == 0 else items
            values = item_values(source, i)
            call_update(core.update, (core.params, row, item_ids(items, i), values, 1.0))
            score_item(core, items, i, row, start, score, row)
            if score[0] <= best:
                call_update(core.update, (core.params, row, item_ids(items, i), values, -1.0))
                break
            best = score[0]
            left -= 1
    return best


@inner
def rest_of_row(  # type: ignore[no-untyped-def]
    heuristic, core, items, tables, order, row, size, t, out, scratch, start, score
):
    """Set out[m] to the bound of the item at t + m in this cluster, with t items placed."""
    for m in range(order.shape[0] - t):
        if heuristic.code == ADMISSIBLE:
            out[m] = _best_bound(
                core, heuristic.bounds, items, tables, order, heuristic.low, heuristic.high,
                row, size, t, m,
            )  # fmt: skip
        else:
            out[m] = _best_replica(
                core, items, heuristic.scaled, order, row, t, m, scratch, start, score
            )


@inner
def fresh_value(heuristic, tables, alone, order, n_clusters, t, m):  # type: ignore[no-untyped-def]
    """Return the bound of the item at t + m in a new cluster, with n_clusters open."""
    n = order.shape[0]
    value = heuristic.fresh[_pair(n, t, m)]
    if heuristic.code == ADMISSIBLE:
        opened = alone[order[t + m]] + tables.log_w[1] + heuristic.slopes[n_clusters, n - t]
        value = max(value, opened)
    return value
