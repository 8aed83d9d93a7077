"""The whole fit of a table in shards: look, search a sample, then rounds over all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Rng
from dpsearch.automatic import Choice, choose
from dpsearch.errors import CapabilityError, WorkersError, located
from dpsearch.events import Event
from dpsearch.families.base import Model
from dpsearch.items import Rows
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.scale.checkpoint import Checkpoint
from dpsearch.scale.rounds import run_rounds
from dpsearch.scale.source import (
    SAMPLE_ROWS,
    Look,
    Shard,
    begins_of,
    sampled_rows,
    stacked,
    telling_rows,
)
from dpsearch.scale.workers import Workers
from dpsearch.tables import Schema


class Fitted(NamedTuple):
    """What a fit in shards gives."""

    mixture: Mixture
    labels: Labels
    log_joint: float
    choice: Choice
    trace: list[Event]
    seconds: float
    converged: bool


def fit_shards(
    shards: Sequence[Shard],
    workers: Workers,
    family: Any,
    prior: Prior,
    *,
    schema: Schema | None = None,
    beam_size: int = 1,
    order: Any = "ascending",
    seconds: float | None = None,
    most_rounds: int | None = None,
    rng: Rng,
    callback: Callable[[Event], None] | None = None,
    checkpoint: str | Path | None = None,
) -> Fitted:
    """Fit all rows of some shards.

    A sample decides on the family and its hyperparameters, as in a fit of one piece, and its
    clusters are where the shards begin.  With a `checkpoint` the clusters are written to this file
    after every round, and if it is there they are where the shards begin.
    """
    if not prior.product_form:
        raise CapabilityError(f"shards need a prior of product form; {prior.name} is not")
    begun = time.perf_counter()
    seed = int(rng.integers(2**31))
    store = None
    if checkpoint is not None:
        store = Checkpoint(checkpoint, shards, family, prior, schema)
    resumed = None if store is None else store.read()
    if resumed is not None:
        choice = Choice(resumed.model.family, resumed.reason, None)
        model, start = resumed.model, resumed.clusters
    else:
        looks = workers.look(sampled_rows(shards, SAMPLE_ROWS), seed)
        sample, numbers = _sample(looks, begins_of(shards))
        with located(rows=numbers):
            gaps = any(one.gaps for one in looks)
            choice, model, start = _begin(
                sample, gaps, family, prior, schema, beam_size, order, rng
            )
    passed = time.perf_counter() - begun

    def keep(clusters: Rows, log_joint: float) -> None:
        better = resumed is None or log_joint > resumed.log_joint
        if store is not None and better:
            store.write(model, clusters, log_joint, choice.reason)

    try:
        result = run_rounds(
            workers,
            model,
            prior,
            start,
            seed=seed,
            seconds=None if seconds is None else max(0.0, seconds - passed),
            most_rounds=most_rounds,
            callback=callback,
            keep=keep,
        )
    except WorkersError as error:
        if store is None or not store.n_rounds:
            raise
        raise WorkersError(
            f"{error}; {store.path} has the clusters after {store.n_rounds} rounds, and the same"
            " call goes on from there"
        ) from error
    mixture = Mixture(model.without_data(), *result.clusters, prior)
    trace = [point._replace(seconds=point.seconds + passed) for point in result.trace]
    total = time.perf_counter() - begun
    return Fitted(mixture, result.labels, result.log_joint, choice, trace, total, result.converged)


def _sample(looks: Sequence[Look], begins: Sequence[int]) -> tuple[Any, Ints]:
    """The rows that were drawn, and those that show which values there are; with their numbers."""
    rows = [begin + one.rows for begin, one in zip(begins, looks, strict=True)]
    telling = stacked([one.telling for one in looks])
    which = [begin + one.telling_rows for begin, one in zip(begins, looks, strict=True)]
    chosen = telling_rows(telling) if telling.shape[0] else np.empty(0, np.int64)
    sample = stacked([*(one.sample for one in looks), telling[chosen]])
    return sample, np.concatenate([*rows, np.concatenate(which)[chosen]])


def _begin(
    sample: Any,
    gaps: bool,
    family: Any,
    prior: Prior,
    schema: Schema | None,
    beam_size: int,
    order: Any,
    rng: Rng,
) -> tuple[Choice, Model, Rows]:
    """Choose the family by a sample, and search it."""
    choice = choose(sample, family, prior, schema, may_complete=False)
    chosen = choice.family
    if gaps and chosen.takes_gaps:
        chosen = chosen.with_gaps()  # also if the sample has none
    problem = Problem(sample, chosen, prior)
    found = search(problem, beam_size=beam_size, order=order, rng=rng)
    found = choice.or_carried(problem, found)
    found = refine(problem, found.labels, rng=rng, thorough=False, keep_interrupted=False)
    return choice, problem.model, Rows(*problem.rows(found.labels))
