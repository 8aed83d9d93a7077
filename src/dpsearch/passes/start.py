"""What passes begin with: the clusters that greedy search finds in a sample."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Rng
from dpsearch.passes.chunk import Totals
from dpsearch.passes.memory import threaded_rows
from dpsearch.passes.rows import FEWEST
from dpsearch.passes.search import BatchSearch
from dpsearch.prefix_search.search import search
from dpsearch.problem import Clustering, Problem
from dpsearch.tables import CheckedTable


def clusters_of_sample(problem: Problem, rng: Rng) -> Totals:
    """Return clusters that greedy search finds among some rows: a beginning for passes.

    Passes that begin with one cluster come as far where clusters can be divided in two between a
    few rows, and not with sparse counts, where single rows say too little.
    """
    matrix, family = problem.model.matrix, problem.model.family
    n, form = problem.n_items, family.linear(problem.model.n_features)
    assert form is not None
    some = np.sort(rng.choice(n, min(n, FEWEST), replace=False))
    found = search(Problem(CheckedTable(matrix[some]), family, problem.prior), rng=rng)
    rows = threaded_rows(form, 1, matrix[some])
    rows.place(found.labels)
    return rows.totals(found.n_clusters)


def placed_by_sample(problem: Problem, rng: Rng, n_threads: int) -> Clustering:
    """Return the partition that gives each row to the best of `clusters_of_sample`.

    Raise if the time is up before all are placed.
    """
    form = problem.model.family.linear(problem.model.n_features)
    assert form is not None
    rows = threaded_rows(form, n_threads, problem.model.matrix)
    batch = BatchSearch(rows, form, problem.tables, rng, lambda *_: None, lambda: None)
    batch.begin_from(clusters_of_sample(problem, rng))
    return problem.clustering(rows.labels())
