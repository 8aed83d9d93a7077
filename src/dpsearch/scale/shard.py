"""What is done with one shard in one round; a pure function, so that any worker can repeat it.

Down come the clusters of all shards as rows of statistics; up go the shard's own.

1. A shard that has no labels yet places its rows greedily among the clusters that came down, which
   are those of a sample.  Otherwise its share is taken out of the clusters, and a sweep moves each
   row to its best place, given all that the other shards have: the change of the log joint is
   exact as long as the others stand still.
2. What the shard has of each cluster is split where its own rows ask for it.
3. The parts go up, each with the cluster that it came from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Labels, Rng, Vector
from dpsearch.families.base import Family, Model
from dpsearch.items import Rows, clear_row, merge_rows
from dpsearch.prefix_search.greedy import greedy
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.refinement.driver import split_problem
from dpsearch.state import State

_TRIED = 1000  # rows of a cluster in a shard that are tried apart
NOWHERE = -1  # the origin of a cluster that the shard opened itself


class Task(NamedTuple):
    """What a worker must know beside the shard; it can be sent to another process."""

    family: Family
    n_features: int
    params: Vector  # of the family, with the tables of the sample
    prior: Prior
    clusters: Rows
    seed: int
    tries: int  # at splitting a cluster
    share: float  # of the clusters that a shard tries to split

    def model(self) -> Model:
        model = self.family.compile_empty(self.n_features)
        return model.with_params(self.params)


class Handed(NamedTuple):
    """What a shard hands up: its parts of clusters."""

    rows: Rows
    origins: Ints  # the cluster that each was part of, or `NOWHERE`
    log_base: float


def work(task: Task, matrix: Any, labels: Labels | None, number: int) -> tuple[Handed, Labels]:
    """Do one round of shard `number`; return what goes up and the part that each row is in."""
    model = task.model()
    items, base = model.items(matrix)
    if labels is None:
        problem = Problem.of_items(model, items, 0.0, task.prior, task.clusters)
        rng = np.random.default_rng([task.seed, number])
        placed = greedy(problem, rng.permutation(items.n_items))
    else:
        own = model.rows(items, labels, len(task.clusters.sizes))
        rest = without(model, task.clusters, Rows(*own))
        state = State(Problem.of_items(model, items, 0.0, task.prior, rest), labels)
        state.sweep(np.arange(items.n_items))
        placed = state.labels
    n_known = len(task.clusters.sizes)
    parts = placed
    if task.tries:
        rng = np.random.default_rng([task.seed, number, 1])
        parts = split_rows(model, task.prior, matrix, placed, task.tries, task.share, rng)
    used, parts = np.unique(parts, return_inverse=True)
    origins = origins_of(parts, placed, n_known)
    rows = Rows(*model.rows(items, parts, len(used)))
    return Handed(rows, origins, float(base.sum())), parts.astype(np.int32)


def split_rows(
    model: Model, prior: Prior, matrix: Any, placed: Labels, tries: int, share: float, rng: Rng
) -> Labels:
    """Split clusters where these rows ask for it; only a share of them is tried.

    Some rows of each cluster are tried: if they are better apart, the others follow them.
    """
    names, clusters = np.unique(placed, return_inverse=True)
    tried = np.flatnonzero(rng.random(len(names)) < share)
    chosen = _some(clusters, rng)
    chosen = chosen[np.isin(clusters[chosen], tried)]
    if len(chosen) == 0:
        return placed
    items, _ = model.items(matrix[chosen])
    problem = Problem.of_items(model, items, 0.0, prior)
    before = np.searchsorted(tried, clusters[chosen])
    after = split_problem(problem, before, rng=rng, tries=tries)
    n_after = int(after.max()) + 1
    if n_after == len(tried):
        return placed
    table = _table(before, after)
    # The other rows of a cluster go where most of those tried went, or of one that is now in
    # parts, where each is best off.  Clusters that were not tried keep their rows.
    goes: Labels = n_after + np.arange(len(names))
    goes[tried] = table.argmax(axis=1)
    apart = np.zeros(len(names), np.bool_)
    apart[tried] = (table > 0).sum(axis=1) > 1
    out = goes[clusters]
    out[chosen] = after
    others = apart[clusters]
    others[chosen] = False
    follow = np.flatnonzero(others)
    if len(follow):
        items, _ = model.items(matrix[follow])
        parts = Rows(*problem.rows(after))
        out[follow] = greedy(
            Problem.of_items(model, items, 0.0, prior, parts), np.arange(len(follow))
        )
    return out


def _some(clusters: Labels, rng: Rng) -> Ints:
    """Some rows of each cluster, drawn at random."""
    mixed = rng.permutation(len(clusters))
    order = mixed[np.argsort(clusters[mixed], kind="stable")]
    sizes = np.bincount(clusters)
    rank = np.arange(len(clusters)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[rank < _TRIED])


def origins_of(parts: Labels, placed: Labels, n_known: int) -> Ints:
    """The cluster that most rows of each part were in before a split, if it was a known one."""
    origins = _table(parts, placed).argmax(axis=1)
    return np.where(origins < n_known, origins, NOWHERE)


def _table(first: Labels, second: Labels) -> Ints:
    """How many rows have each pair of labels."""
    shape = int(first.max()) + 1, int(second.max()) + 1
    counts = np.bincount(first * shape[1] + second, minlength=shape[0] * shape[1])
    return counts.reshape(shape)


def without(model: Model, clusters: Rows, own: Rows) -> Rows:
    """The clusters as they are without some of their points."""
    rest = Rows(clusters.pool.copy(), clusters.sizes - own.sizes)
    _take_out(model.core, rest, own)
    return rest


def together(model: Model, pool: Vector, sizes: Ints, labels: Labels, n_clusters: int) -> Rows:
    """Rows of statistics merged into clusters, in the order in which they come."""
    return Rows(*model.rows(model.blocks(pool, sizes), labels, n_clusters))


@inner
def _take_out(core, rest, own):  # type: ignore[no-untyped-def]
    for k in range(rest.sizes.shape[0]):
        row = rest.pool[k * core.width : (k + 1) * core.width]
        if rest.sizes[k] == 0:
            clear_row(core, row)  # not what rounding leaves of it
        elif own.sizes[k] > 0:
            merge_rows(core, row, own.pool[k * core.width : (k + 1) * core.width], -1.0)
