"""The loop: shards work, their parts are searched and merged as items, clusters go down again.

After every round the log joint is exact: that of the partition in which each row is in the cluster
of its part.  The best round is the result.  Shards act on what the others had in the round before,
so a round could lower it; that ends the loop as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dpsearch._types import Labels
from dpsearch.errors import plain_interrupts
from dpsearch.events import Event
from dpsearch.families.base import Model
from dpsearch.items import Rows
from dpsearch.partition import by_appearance
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement import refine
from dpsearch.scale.shard import NOWHERE, Handed, Task, together
from dpsearch.scale.workers import Workers

_MOST_ROUNDS = 10
_ENOUGH = 1e-6  # nats a row: rounds end when they bring less
_TRIES = 2  # at splitting a cluster, in a shard and round
_TRYING = 8  # shards that try it, on average; all if there are fewer


class Round(NamedTuple):
    """Clusters, and which of them each part of each shard became."""

    clusters: Rows
    clusters_of_parts: list[Labels]
    log_joint: float


def run_rounds(
    workers: Workers,
    model: Model,
    prior: Prior,
    start: Rows,
    *,
    seed: int = 0,
    seconds: float | None = None,
    most_rounds: int | None = None,
    callback: Callable[[Event], None] | None = None,
    keep: Callable[[Rows, float], None] | None = None,
) -> tuple[Rows, Clustering]:
    """Place all rows among the clusters of a sample, and improve while that helps.

    After `seconds`, or `most_rounds` beside the placing, no further round begins.  `keep` is called
    with the clusters and the log joint whenever they are the best so far.  The clustering has
    converged if the last round brought nothing.
    """
    begun = time.perf_counter()
    share = min(1.0, _TRYING / workers.n_shards)
    task = Task(
        model.family, model.n_features, model.core.params, prior, start, seed, _TRIES, share
    )
    best: Round | None = None
    trace: list[Event] = []
    back = converged = False
    for number in range(1 + (_MOST_ROUNDS if most_rounds is None else most_rounds)):
        back = False
        try:
            with plain_interrupts():
                handed = workers.run(task, None if best is None else best.clusters_of_parts)
                back = True  # what the workers have now is of a round that is still to be merged
                found = merged(handed, model, prior, len(task.clusters.sizes), seed)
        except KeyboardInterrupt:
            if best is None:
                raise
            break
        point = Event(
            time.perf_counter() - begun, found.log_joint, len(found.clusters.sizes),
            "place" if number == 0 else "round",
        )  # fmt: skip
        trace.append(point)
        if callback is not None:
            callback(point)
        gain = np.inf if best is None else found.log_joint - best.log_joint
        back = gain < 0.0
        if not back:
            best = found
            if keep is not None:
                keep(found.clusters, found.log_joint)
        if gain < _ENOUGH * int(found.clusters.sizes.sum()):
            converged = True
            break
        if seconds is not None and point.seconds > seconds:
            break
        task = task._replace(clusters=found.clusters, seed=task.seed + 1)
    assert best is not None
    labels = workers.labels(best.clusters_of_parts, back)
    clustering = Clustering(labels, best.log_joint, trace=trace, converged=converged)
    return best.clusters, clustering


def merged(handed: Sequence[Handed], model: Model, prior: Prior, n_known: int, seed: int) -> Round:
    """Search the parts of all shards as items; return the clusters that they make.

    What shards left whole of a cluster is one item: no shard has split it.
    """
    items = _items(handed, n_known)
    n_items = int(items.of_part.max()) + 1
    pool = np.concatenate([part.rows.pool for part in handed])
    sizes = np.concatenate([part.rows.sizes for part in handed])
    rows = together(model, pool, sizes, items.of_part, n_items)
    base = sum(part.log_base for part in handed)
    problem = Problem.of_items(model, model.blocks(rows.pool, rows.sizes), base, prior)
    # A cluster may have lost all its rows: labels must have no holes.
    start = by_appearance(items.origins)
    found = refine(problem, start, rng=seed, thorough=False, keep_interrupted=False)
    clusters = Rows(*problem.rows(found.labels))
    of_parts = found.labels[items.of_part]
    bounds = np.cumsum([len(part.origins) for part in handed])[:-1]
    return Round(clusters, np.split(of_parts, bounds), found.log_joint)


class _Items(NamedTuple):
    of_part: Labels  # the item that each part goes into
    origins: Labels  # a cluster for each item to begin with


def _items(handed: Sequence[Handed], n_known: int) -> _Items:
    """Join what is whole; what was split or newly opened stays apart."""
    of_part: list[int] = []
    origins: list[int] = []
    whole: dict[int, int] = {}
    fresh = n_known
    for part in handed:
        counts = np.bincount(part.origins[part.origins != NOWHERE], minlength=n_known)
        for origin in part.origins:
            if origin == NOWHERE:
                of_part.append(len(origins))
                origins.append(fresh)
                fresh += 1
            elif counts[origin] > 1:
                of_part.append(len(origins))
                origins.append(int(origin))
            else:
                if origin not in whole:
                    whole[origin] = len(origins)
                    origins.append(int(origin))
                of_part.append(whole[origin])
    return _Items(np.array(of_part), np.array(origins))
