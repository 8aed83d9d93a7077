"""What a pass does with one chunk of rows.

Rows come as features [n, P], dense or CSR, with the cluster that each row is in; a row with a label
below 0 takes no part.  Nothing here knows where they come from: threads, readers of files and
workers of a cluster call the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpsearch._jit import kernel
from dpsearch._types import Ints, Matrix, Vector
from dpsearch.sources.shards import mixed

ShortLabels: TypeAlias = NDArray[np.int32]

NEGLIGIBLE = 40.0  # nats: a share so far below the largest is 0
_SCORES = 1 << 18  # that are held at once
_MANY = 12  # candidates of a row, from which a matrix product is faster than single products


class Totals(NamedTuple):
    """Clusters as their numbers of rows [K] and the sums of their rows' features [K, P]."""

    sizes: Vector
    sums: Matrix

    def __add__(self, other: Any) -> Totals:
        return Totals(self.sizes + other.sizes, self.sums + other.sums)

    def take(self, which: Any) -> Totals:
        """Return some of the clusters."""
        return Totals(self.sizes[which], self.sums[which])


class Candidates(NamedTuple):
    """Where rows may go: a row to the best candidate of the group that its cluster is in."""

    groups: Ints  # of each cluster; −1 for clusters that this pass is not about
    starts: Ints  # the candidates of group g are starts[g] … starts[g + 1] − 1
    weights: Matrix  # [C, P]
    constants: Vector  # [C]; −∞ for a candidate that no row may go to

    @property
    def n_candidates(self) -> int:
        return len(self.constants)


class Seeds(NamedTuple):
    """Rows drawn from clusters: the cluster, the key and the features of each."""

    clusters: Ints
    keys: Any  # those of the least were drawn
    features: Matrix


def decided(
    labels: ShortLabels, choice: ShortLabels, of_candidates: Ints, of_clusters: Ints
) -> ShortLabels:
    """Return new labels: the cluster of the proposed candidate, or where that is −1 (and where
    nothing was proposed) the one that the row's cluster has become."""
    new_of_cluster = np.append(of_clusters, -1).astype(np.int32)  # −1: the last
    new_of_candidate = np.append(of_candidates, -1).astype(np.int32)
    out = np.empty_like(labels)
    for begin in range(0, len(labels), 1 << 20):  # so that little memory is taken beside
        at = slice(begin, begin + (1 << 20))
        proposed = new_of_candidate[choice[at]]
        out[at] = np.where(proposed >= 0, proposed, new_of_cluster[labels[at]])
    return out


def assign(
    features: Any,
    labels: ShortLabels,
    candidates: Candidates,
    choice: ShortLabels,
    totals: Totals | None = None,
) -> Totals:
    """Choose the best candidate of each row, in place; add the rows to the candidates' totals.

    Rows of clusters that are in no group keep what was chosen before.
    """
    groups, starts, weights, constants = candidates
    if totals is None:
        totals = nothing(len(constants), features.shape[1])
    if len(starts) == 2 and starts[1] >= _MANY and (groups == 0).all():
        step = max(1, _SCORES // len(constants))
        for begin in range(0, features.shape[0], step):
            at = slice(begin, begin + step)
            _best(np.asarray(features[at] @ weights.T), constants, labels[at], choice[at])
        add(features, choice, totals)
    elif sp.issparse(features):
        _assign_sparse(
            features.indptr, features.indices, features.data, labels, groups, starts,
            np.ascontiguousarray(weights.T), constants, choice, np.empty(starts[-1]),
        )  # fmt: skip
        add(features, np.where((groups[labels] >= 0) & (labels >= 0), choice, -1), totals)
    else:
        _assign_dense(features, labels, groups, starts, weights, constants, choice, *totals)
    return totals


class Soft(NamedTuple):
    """What responsibilities r say of all rows."""

    totals: Totals  # Σ r and Σ r T(x)
    log_normaliser: float  # Σ log Σ_k exp(score), before any correction
    entropy: float  # −Σ r log r
    squares: Vector  # [K]: Σ r²
    squares_after: Vector  # [K]: Σ (r of later candidates)²

    def __add__(self, other: Any) -> Soft:
        return Soft(*(mine + its for mine, its in zip(self, other, strict=True)))


class Own(NamedTuple):
    """How a row's own share changes the scores of candidates, in which it is counted."""

    at: Vector  # [K]: times r of the candidate
    from_here: Vector  # times r of it and later ones; for this candidate and all before
    after: Vector  # times r of later ones; for all candidates before


def soften(
    features: Any,
    weights: Matrix,
    constants: Vector,
    own: Own | None,
    choice: ShortLabels,
    counts: Vector | None = None,
) -> Soft:
    """Share each row between candidates in proportion to exp(score); note its best one.

    A row whose choice is below 0 takes no part.  With `counts`, each row counts so many times.
    """
    counts = np.ones(len(choice)) if counts is None else counts
    seen = choice >= 0
    if not seen.all():
        chosen = choice[seen]
        found = soften(features[seen], weights, constants, own, chosen, counts[seen])
        choice[seen] = chosen
        return found
    scores = np.asarray(features @ weights.T)
    scores += constants
    log_normaliser = _softmax(scores, choice, counts)
    if own is not None:  # r are the shares without it, for a start
        shares = np.exp(scores)
        from_here = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
        here, after = from_here * own.from_here, (from_here - shares) * own.after
        before = np.cumsum(here + after, axis=1) - after
        scores += shares * own.at + before
        _softmax(scores, choice, counts)
    entropy, squares, squares_after = _shared(scores, counts)
    sums = (features.T @ scores).T if sp.issparse(features) else scores.T @ features
    return Soft(
        Totals(scores.sum(axis=0), np.asarray(sums)), log_normaliser, entropy, squares,
        squares_after,
    )  # fmt: skip


def totals_of(features: Any, labels: ShortLabels, n_clusters: int) -> Totals:
    """Return the totals of clusters; rows with a label below 0 do not count."""
    out = nothing(n_clusters, features.shape[1])
    add(features, labels, out)
    return out


def nothing(n_clusters: int, n_totals: int) -> Totals:
    """Return the totals of clusters without rows."""
    return Totals(np.zeros(n_clusters), np.zeros((n_clusters, n_totals)))


def summed(found: Iterable[Totals], *, own: bool = False) -> Totals:
    """Return the sum of totals, in their order; if they are its `own`, the first become the sum."""
    parts = iter(found)
    out = next(parts)
    out = out if own else Totals(*(part.copy() for part in out))
    for one in parts:
        out.sizes[:] += one.sizes
        out.sums[:] += one.sums
    return out


def add(features: Any, labels: ShortLabels, totals: Totals) -> None:
    """Add rows to the totals of clusters; rows with a label below 0 do not count."""
    if sp.issparse(features):
        _add_sparse(features.indptr, features.indices, features.data, labels, *totals)
    else:
        _add_dense(features, labels, *totals)


def draw(features: Any, labels: ShortLabels, first: int, counts: Ints, seed: int) -> Seeds:
    """Draw as many rows of each cluster as `counts` says: those of the least keys.

    A row's key depends on its number in the whole (that of the first row here is `first`) and on
    the seed, so that the same rows are drawn however the rows are divided into chunks.
    """
    inside = np.flatnonzero((labels >= 0) & (counts[labels] > 0))
    keys = row_keys(inside.astype(np.uint64) + np.uint64(first), seed)
    return _of_least_keys(features, labels, inside, keys, counts)


def outliers(
    parts: Iterable[tuple[Any, slice]],
    labels: ShortLabels,
    weights: Matrix,
    constants: Vector,
    counts: Ints,
    limits: Vector | None = None,
) -> Seeds:
    """Return as many rows of each cluster as `counts` says: those of the least scores there.

    Rows come in parts, features with their places in `labels`; of few parts more rows are held
    than are returned.  Rows that are not below the `limits` of their clusters are left out.
    """
    found: Seeds | None = None
    limits = np.full(len(counts), np.inf) if limits is None else limits.copy()
    for features, at in parts:
        own = labels[at]
        scores = _own_scores(features, own, weights) + constants[own]
        inside = np.flatnonzero((own >= 0) & (scores < limits[own]))
        new = _of_least_keys(features, own, inside, scores[inside], counts)
        found = new if found is None else least([found, new], counts)
        lower_limits(limits, found, counts)
    assert found is not None
    return found


def lower_limits(limits: Vector, found: Seeds, counts: Ints) -> None:
    """Set the limits of clusters of which enough rows were found: the largest of their keys."""
    sizes = np.bincount(found.clusters, minlength=len(counts))
    full = np.flatnonzero((sizes == counts) & (counts > 0))
    limits[full] = found.keys[np.cumsum(sizes)[full] - 1]


def _own_scores(features: Any, labels: ShortLabels, weights: Matrix) -> Vector:
    if sp.issparse(features):
        return np.asarray(features.multiply(weights[labels]).sum(axis=1)).reshape(-1)
    return np.asarray(_dense_own_scores(features, labels, weights))


def _of_least_keys(
    features: Any, labels: ShortLabels, inside: Ints, keys: Any, counts: Ints
) -> Seeds:
    owners = labels[inside].astype(np.int64)
    kept = _least(owners, keys, counts)
    rows = features[inside[kept]]
    return Seeds(owners[kept], keys[kept], rows.toarray() if sp.issparse(rows) else rows)


def least(seeds: list[Seeds], counts: Ints) -> Seeds:
    """Return those of the least keys among what several chunks drew."""
    clusters, keys = (np.concatenate(part) for part in list(zip(*seeds, strict=True))[:2])
    kept = _least(clusters, keys, counts)
    like = seeds[0].features
    features = np.empty((len(kept), *like.shape[1:]), like.dtype)
    begin = 0
    for one in seeds:  # features are many: only those of rows that are kept are copied
        own = np.flatnonzero((kept >= begin) & (kept < begin + len(one.keys)))
        features[own] = one.features[kept[own] - begin]
        begin += len(one.keys)
    return Seeds(clusters[kept], keys[kept], features)


def _least(clusters: Ints, keys: Any, counts: Ints) -> Ints:
    """Return which keys are the least of each cluster, ordered by cluster and key."""
    ends = np.cumsum(counts)
    rows, found = np.full(ends[-1], -1), np.zeros(len(counts), np.int64)
    _insert_least(clusters, keys, ends - counts, counts, rows, found)
    return rows[rows >= 0]


def row_keys(numbers: Any, seed: int) -> Any:
    """Return the keys by which rows of these numbers (uint64) are drawn."""
    return mixed(numbers + seed_key(seed))


def seed_key(seed: int) -> Any:
    """Return what a seed adds to the numbers of rows."""
    return mixed(np.uint64(seed))


@kernel
def _best(scores, constants, labels, choice):  # type: ignore[no-untyped-def]
    for i in range(scores.shape[0]):
        row = scores[i]
        best, at = -np.inf, -1
        if labels[i] < 0:
            choice[i] = -1
            continue
        for k in range(row.shape[0]):
            score = row[k] + constants[k]
            if score > best:
                best, at = score, k
        choice[i] = at


@kernel
def _softmax(scores, choice, counts):  # type: ignore[no-untyped-def]
    """Make scores log shares, in place; return the sum of log normalisers, times counts."""
    out = 0.0
    for i in range(scores.shape[0]):
        row = scores[i]
        top, at = -np.inf, -1
        for k in range(row.shape[0]):
            if row[k] > top:
                top, at = row[k], k
        total = 0.0
        for k in range(row.shape[0]):
            row[k] -= top
            if row[k] > -NEGLIGIBLE:
                total += np.exp(row[k])
        shift = np.log(total)
        for k in range(row.shape[0]):
            row[k] -= shift
        choice[i] = at
        out += counts[i] * (top + shift)
    return out


@kernel
def _dense_own_scores(features, labels, weights):  # type: ignore[no-untyped-def]
    out = np.zeros(features.shape[0])
    for i in range(features.shape[0]):
        if labels[i] >= 0:
            row, weight = features[i], weights[labels[i]]
            for p in range(row.shape[0]):
                out[i] += row[p] * weight[p]
    return out


@kernel
def _shared(scores, counts):  # type: ignore[no-untyped-def]
    """Make log shares shares times counts, in place; return their entropy and sums of squares."""
    squares, squares_after = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    entropy = 0.0
    for i in range(scores.shape[0]):
        row, count = scores[i], counts[i]
        after = 0.0
        for k in range(row.shape[0] - 1, -1, -1):
            squares_after[k] += count * after * after
            if row[k] <= -NEGLIGIBLE:
                row[k] = 0.0
                continue
            share = np.exp(row[k])
            entropy -= count * share * row[k]
            squares[k] += count * share * share
            after += share
            row[k] = count * share
    return entropy, squares, squares_after


@kernel
def _assign_dense(features, labels, groups, starts, weights, constants, choice, sizes, sums):  # type: ignore[no-untyped-def]
    for i in range(features.shape[0]):
        group = groups[labels[i]]
        if group < 0 or labels[i] < 0:
            continue
        best, at = -np.inf, -1
        for c in range(starts[group], starts[group + 1]):
            score = constants[c]
            for p in range(features.shape[1]):
                score += features[i, p] * weights[c, p]
            if score > best:
                best, at = score, c
        choice[i] = at
        if at >= 0:
            sizes[at] += 1.0
            for p in range(features.shape[1]):
                sums[at, p] += features[i, p]


@kernel
def _assign_sparse(indptr, ids, values, labels, groups, starts, weights, constants, choice, room):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        group = groups[labels[i]]
        if group < 0 or labels[i] < 0:
            continue
        begin, end = starts[group], starts[group + 1]
        for c in range(begin, end):
            room[c] = constants[c]
        for j in range(indptr[i], indptr[i + 1]):
            weight, value = weights[ids[j]], values[j]
            for c in range(begin, end):
                room[c] += value * weight[c]
        best, choice[i] = -np.inf, -1
        for c in range(begin, end):
            if room[c] > best:
                best, choice[i] = room[c], c


@kernel
def _add_dense(features, labels, sizes, sums):  # type: ignore[no-untyped-def]
    for i in range(features.shape[0]):
        k = labels[i]
        if k >= 0:
            sizes[k] += 1.0
            for p in range(features.shape[1]):
                sums[k, p] += features[i, p]


@kernel
def _add_sparse(indptr, ids, values, labels, sizes, sums):  # type: ignore[no-untyped-def]
    for i in range(labels.shape[0]):
        k = labels[i]
        if k >= 0:
            sizes[k] += 1.0
            for j in range(indptr[i], indptr[i + 1]):
                sums[k, ids[j]] += values[j]


@kernel
def _insert_least(clusters, keys, begins, counts, rows, found):  # type: ignore[no-untyped-def]
    """Keep the rows of each cluster's least keys, sorted; of equal keys the first ones."""
    for i in range(clusters.shape[0]):
        k = clusters[i]
        begin, n = begins[k], found[k]
        if n < counts[k]:
            found[k] = n + 1
        elif n == 0 or not keys[i] < keys[rows[begin + n - 1]]:
            continue
        else:
            n -= 1
        while n > 0 and keys[i] < keys[rows[begin + n - 1]]:
            rows[begin + n] = rows[begin + n - 1]
            n -= 1
        rows[begin + n] = i
