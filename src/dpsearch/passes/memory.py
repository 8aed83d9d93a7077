"""Passes over the rows of a problem in memory, or on a device: where there are many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.sparse as sp

from dpsearch._types import Labels, Rng
from dpsearch.errors import ParameterError
from dpsearch.families.capabilities import require
from dpsearch.families.linear import LinearForm
from dpsearch.passes.rows import FEWEST, Rows, ThreadedRows
from dpsearch.passes.search import BatchSearch
from dpsearch.problem import Problem
from dpsearch.sources.shards import ArrayShard, shards_of_array

_CHUNKS = 32  # whose totals are added up after every pass
_LEAST_CHUNK = 1 << 17  # features; fewer are not worth a thread


def suits_passes(problem: Problem, device: Any = None) -> bool:
    """Whether a search of the problem makes passes; raise if a device is asked for that cannot.

    A row is one point for passes, and the family must have a linear form.
    """
    single = problem.items.single and not len(problem.background.sizes)
    family, width = problem.model.family, problem.model.n_features
    if device is not None:
        if not single:
            raise ParameterError("{parameter} is for rows without weights", parameter="device")
        require(family, "linear", width, needed_by="a fit on a device")
        return True
    return single and problem.n_items >= FEWEST and family.linear(width) is not None


def rows_in_memory(form: LinearForm, matrix: Any, n_threads: int, device: Any = None) -> Rows:
    """Return the rows of a matrix, for threads of this process or on a device."""
    if device is not None:
        from dpsearch.passes.device import open_rows  # which may import PyTorch

        return open_rows(form, matrix, device)
    return threaded_rows(form, n_threads, matrix)


def threaded_rows(form: LinearForm, n_threads: int, *matrices: Any) -> ThreadedRows:
    """Return the rows of matrices, each in as many chunks as many threads can share."""
    chunks: list[ArrayShard] = []
    for matrix in matrices:
        # Sparse rows have few numbers and their totals many.
        sparse = sp.issparse(matrix)
        numbers = matrix.nnz // 4 if sparse else matrix.shape[0] * form.n_totals
        n_chunks = min(_CHUNKS, max(1, numbers // _LEAST_CHUNK))
        chunks += shards_of_array(matrix, n_chunks, gaps=True)
    return ThreadedRows(form, chunks, n_threads)


def batch_search(
    problem: Problem,
    labels: Labels,
    *,
    rng: Rng,
    note: Callable[[str, float, int], None],
    check_time: Callable[[], None],
    n_threads: int,
    device: Any = None,
) -> BatchSearch:
    """Return a batch search over the rows of a problem, which begins with these labels."""
    form = problem.model.family.linear(problem.model.n_features)
    assert form is not None
    rows = rows_in_memory(form, problem.model.matrix, n_threads, device)
    batch = BatchSearch(rows, form, problem.tables, rng, note, check_time)
    batch.begin_with(labels)
    return batch
