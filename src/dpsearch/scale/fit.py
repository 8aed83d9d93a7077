"""The fit of a table in shards: look at all rows, search a sample, then run rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpsearch._types import Ints
from dpsearch._validate import n_threads
from dpsearch.automatic import choose
from dpsearch.errors import CapabilityError, ParameterError, WorkersError, located
from dpsearch.families.base import Model
from dpsearch.fitted import FittedState
from dpsearch.fitting import FitOptions
from dpsearch.items import Rows
from dpsearch.levels import find_levels
from dpsearch.mixture import Mixture
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.scale.checkpoint import Checkpoint
from dpsearch.scale.opened import OpenedTable
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
from dpsearch.scale.workers import ShardEvents, Workers
from dpsearch.tables import CheckedTable, Schema, content_order


def fit_in_shards(opened: OpenedTable, options: FitOptions) -> FittedState:
    """Fit an opened table by its workers."""
    if options.certify_seconds is not None:
        raise ParameterError("certify is for tables in memory: set n_shards=1")
    workers = opened.workers(n_threads(options.n_jobs))
    if options.callback is not None:
        events = ShardEvents(options.callback, len(opened.shards))
        workers.progress = events.shard
        options = replace(options, callback=events.round)
    return fit_shards(opened.shards, workers, options, opened.schema)


def fit_shards(
    shards: Sequence[Shard],
    workers: Workers,
    options: FitOptions,
    schema: Schema | None = None,
) -> FittedState:
    """Fit all rows of the shards.

    A sample decides on the family and its hyperparameters, as in a fit in memory, and its clusters
    are the start of the rounds.  With a checkpoint the clusters are written to this file after
    every round; if the file exists, its clusters are the start instead.
    """
    prior, rng = options.prior, options.rng
    if not prior.product_form:
        raise CapabilityError(f"shards need a prior of product form; {prior.name} is not")
    begun = time.perf_counter()
    seed = int(rng.integers(2**31))
    looks = workers.look(sampled_rows(shards, SAMPLE_ROWS), seed)
    store = None
    if options.checkpoint is not None:
        store = Checkpoint(options.checkpoint, shards, options.family, prior, schema, looks)
    resumed = None if store is None else store.read()
    sample, numbers = _sample(looks, begins_of(shards))
    if resumed is not None:
        reason, model, start = resumed.reason, resumed.model, resumed.clusters
    else:
        with located(rows=numbers):
            reason, model, start = _begin(sample, any(one.gaps for one in looks), options, schema)
    passed = time.perf_counter() - begun

    def keep(clusters: Rows, log_joint: float) -> None:
        better = resumed is None or log_joint > resumed.log_joint
        if store is not None and better:
            store.write(model, clusters, log_joint, reason)

    seconds = options.refinement.seconds
    try:
        clusters, found = run_rounds(
            workers,
            model,
            prior,
            start,
            seed=seed,
            seconds=None if seconds is None else max(0.0, seconds - passed),
            most_rounds=options.refinement.most_rounds,
            callback=options.callback,
            keep=keep,
        )
    except WorkersError as error:
        if store is None or not store.n_rounds:
            raise
        raise WorkersError(
            f"{error}; {store.path} has the clusters after {store.n_rounds} rounds, and the same"
            " call goes on from there"
        ) from error
    trace = [point._replace(seconds=point.seconds + passed) for point in found.trace]
    found = replace(found, seconds=time.perf_counter() - begun, trace=trace)
    mixture = Mixture(model.without_data(), *clusters, prior)
    items, _ = mixture.model.items(sample)
    levels = find_levels(mixture, items, np.asarray(found.labels[numbers]), sample)
    return FittedState(mixture, found, reason, schema, levels=levels).at_level(options.level)


def _sample(looks: Sequence[Look], begins: Sequence[int]) -> tuple[Any, Ints]:
    """The rows that were drawn, and those that show which values there are; with their numbers.

    They come in an order that their content decides.
    """
    rows = [begin + one.rows for begin, one in zip(begins, looks, strict=True)]
    telling = stacked([one.telling for one in looks])
    which = [begin + one.telling_rows for begin, one in zip(begins, looks, strict=True)]
    chosen = telling_rows(telling) if telling.shape[0] else np.empty(0, np.int64)
    sample = stacked([*(one.sample for one in looks), telling[chosen]])
    order = content_order(CheckedTable(sample))
    return sample[order], np.concatenate([*rows, np.concatenate(which)[chosen]])[order]


def _begin(
    sample: Any, gaps: bool, options: FitOptions, schema: Schema | None
) -> tuple[str, Model, Rows]:
    """Choose the family by a sample and search it; return the reason, the model and clusters."""
    prior, rng = options.prior, options.rng
    choice = choose(sample, options.family, prior, schema, may_complete=False)
    chosen = choice.family
    if gaps and chosen.takes_gaps:
        chosen = chosen.with_gaps()  # also if the sample has none
    problem = Problem(sample, chosen, prior)
    found = search(problem, beam_size=options.beam_size, order=options.order, rng=rng)
    found = choice.or_carried(problem, found)
    found = refine(problem, found.labels, rng=rng, thorough=False, keep_interrupted=False)
    return choice.reason, problem.model, Rows(*problem.rows(found.labels))
