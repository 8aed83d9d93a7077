"""The first partition of a problem in memory: by passes if there are many rows, else by search."""

from __future__ import annotations

import contextlib
from typing import Any

from dpsearch._types import Rng
from dpsearch.errors import plain_interrupts
from dpsearch.events import Callback
from dpsearch.families.linear import LinearForm
from dpsearch.passes.arrays import to_host
from dpsearch.passes.history import History, OutOfTime
from dpsearch.passes.rows import CHUNK_NUMBERS, Rows, ThreadedRows
from dpsearch.passes.search import BatchSearch
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem
from dpsearch.sources.shards import shards_of_array

FEWEST = 20_000  # rows, from which passes over all of them are faster than one row after another


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the best partition that was found until then."""

    def __init__(self, clustering: Clustering) -> None:
        super().__init__()
        self.clustering = clustering


def first_partition(
    problem: Problem,
    *,
    beam_size: int,
    order: Any,
    rng: Rng,
    n_threads: int,
    thorough: bool = False,
    seconds: float | None = None,
    callback: Callback | None = None,
    device: Any = None,
) -> Clustering:
    """Search a problem: by passes if there are many rows and no beam or order is asked for.

    Refinement, which follows, moves rows one by one: unless it is to be thorough, passes leave
    groups of clusters to it.
    """
    plain = beam_size == 1 and isinstance(order, str) and order == "ascending"
    many = problem.n_items >= FEWEST or device is not None
    if plain and many and problem.items.single and problem.prior.product_form:
        form = problem.model.family.linear(problem.model.n_features)
        if form is not None:
            rows = rows_in_memory(form, problem.model.matrix, n_threads, device)
            return _by_passes(problem, form, rows, rng, thorough, History(seconds, callback))
    return search(problem, beam_size=beam_size, order=order, rng=rng, callback=callback)


def rows_in_memory(form: LinearForm, matrix: Any, n_threads: int, device: Any = None) -> Rows:
    """Return the rows of a matrix, for threads of this process or on a device."""
    if device is not None:
        from dpsearch.passes.device import open_rows  # which may import PyTorch

        return open_rows(form, matrix, device)
    n_chunks = max(1, matrix.shape[0] * form.n_totals // CHUNK_NUMBERS)
    return ThreadedRows(form, shards_of_array(matrix, n_chunks, gaps=True), n_threads)


def _by_passes(
    problem: Problem, form: LinearForm, rows: Rows, rng: Rng, thorough: bool, history: History
) -> Clustering:
    history.log_base = lambda: problem.log_base
    batch = BatchSearch(rows, form, problem.tables, rng, history.note, history.check_time)
    batch.begin(1)

    def found() -> Clustering:
        return problem.clustering(
            to_host(rows.labels()), seconds=history.elapsed, trace=history.trace
        )

    try:
        with plain_interrupts(), contextlib.suppress(OutOfTime):
            batch.run() if thorough else batch.first()
    except KeyboardInterrupt as interrupt:
        raise Interrupted(found()) from interrupt
    return found()
