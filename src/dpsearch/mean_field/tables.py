"""The data of variational inference: rows of a problem in memory, or rows that stay in shards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dpsearch._arrays import to_host
from dpsearch._types import Ints, Labels, Rng
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.families.base import Family, Model
from dpsearch.families.capabilities import require
from dpsearch.families.linear import LinearForm
from dpsearch.passes.chunk import Totals
from dpsearch.passes.fit import drawn, rows_where_they_are, survey_shards
from dpsearch.passes.memory import rows_in_memory
from dpsearch.passes.rows import Encoding, SoftRows
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior, log_prior
from dpsearch.problem import Clustering, Problem, labels_of
from dpsearch.sources.opened import OpenedTable
from dpsearch.sources.shards import begins_of
from dpsearch.tables import CheckedTable


class Table(Protocol):
    """Rows under a model, in memory or elsewhere."""

    model: Model
    prior: Prior
    form: LinearForm
    rows: SoftRows  # single rows or cells of them
    single: SoftRows

    @property
    def log_base(self) -> float:
        """The sum of the family's `log_base` over all rows, known after the first pass."""

    def begin(self, most: int) -> Totals:
        """Return the totals of at most `most` initial components, the largest first."""

    def refine(self) -> bool:
        """Divide cells of rows that share responsibilities; return whether there were any."""

    def clustering(self, n_components: int) -> tuple[Clustering, Ints]:
        """Return the partition by the rows' labels, and the component of each of its clusters.

        Components that are no row's label follow.
        """


class InMemory:
    """The rows of a problem, processed by threads or on a device."""

    def __init__(self, problem: Problem, start: Any, n_threads: int, device: str | None) -> None:
        problem.require_points("variational")
        self.problem, self.model, self.prior = problem, problem.model, problem.prior
        self.log_base = problem.log_base
        self.form = form_of(self.model)
        matrix = self.model.matrix
        if isinstance(start, str) and start != "search":
            raise ParameterError.must("start", "be 'search' or labels", start)
        self._start = start
        self.single: SoftRows = rows_in_memory(self.form, matrix, n_threads, device)  # type: ignore[assignment]
        self.rows = self.single

    def begin(self, most: int) -> Totals:
        problem, start = self.problem, self._start
        found = isinstance(start, str)
        labels = search(problem, beam_size=1).labels if found else labels_of(start, problem)
        return totals_by_size(self.single, labels, most)

    def refine(self) -> bool:
        return False

    def clustering(self, n_components: int) -> tuple[Clustering, Ints]:
        labels = np.asarray(to_host(self.single.labels()))
        found = self.problem.clustering(labels)
        order = labels[np.unique(found.labels, return_index=True)[1]]
        return found, np.append(order, np.setdiff1d(np.arange(n_components), order))


class InShards:
    """Rows of files, batches or Dask collections, which are processed where they are.

    A sample of the rows (all of them if they are few) completes the family, and a search of it
    gives the initial components.
    """

    def __init__(
        self, opened: OpenedTable, family: Family, prior: Prior, n_threads: int, rng: Rng
    ) -> None:
        seed = int(rng.integers(2**31))
        surveys = survey_shards(opened.shards, opened.cluster(), n_threads, seed)
        matrix, numbers = drawn(surveys, begins_of(opened.shards))
        with located(rows=numbers):
            table = CheckedTable(matrix)
            seen = ~table.empty_rows
            if not seen.any():
                raise DataError("no row of X has any value")
            if any(one.gaps for one in surveys) and family.takes_gaps:
                family = family.with_gaps()  # even if the sample has none
            self.sample = Problem(table.matrix[seen], family, prior)
        self.model, self.prior = self.sample.model, prior
        self.form = form_of(self.model)
        encoding = Encoding(self.model.family, self.model.n_features)
        self._large = rows_where_they_are(opened, encoding, n_threads)
        self.rows: SoftRows = self._large
        self.single: SoftRows = self._large

    @property
    def log_base(self) -> float:
        return self._large.log_base

    def begin(self, most: int) -> Totals:
        rows = rows_in_memory(self.form, self.model.matrix, 1)
        totals = totals_by_size(rows, search(self.sample, beam_size=1).labels, most)
        share = self.rows.n_rows / self.sample.n_items
        return Totals(totals.sizes * share, totals.sums * share)

    def refine(self) -> bool:
        return False

    def clustering(self, n_components: int) -> tuple[Clustering, Ints]:
        found = self.rows.totals(n_components)
        order = np.lexsort((-self.form.log_marginals(*found), -found.sizes))
        self.rows.decide(np.empty(0, np.int64), np.argsort(order))
        n_clusters = int((found.sizes > 0).sum())
        totals = self.rows.totals(n_clusters)
        sizes = totals.sizes.round().astype(np.int64)
        value = float(self.form.log_marginals(*totals).sum()) + self.log_base
        value += log_prior(self.prior.tables(int(sizes.sum()), n_clusters), sizes)
        labels, weights = self.rows.labels(), None
        if isinstance(labels, np.ndarray) and (labels < 0).any():  # rows without any value
            weights, labels = (labels >= 0).astype(np.int64), np.maximum(labels, 0)
        return Clustering(labels, value, weights=weights), order


def form_of(model: Model) -> LinearForm:
    """Return the linear form of a model's family; raise if it has none."""
    form: LinearForm = require(model.family, "linear", model.n_features, needed_by="variational")
    return form


def totals_by_size(rows: Any, labels: Labels, most: int) -> Totals:
    """Set the rows' labels, by decreasing cluster size, and return the clusters' totals.

    All clusters from the `most`-th on become one.
    """
    _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
    rows.place(np.minimum(rank, most - 1)[labels])
    totals: Totals = rows.totals(min(len(counts), most))
    return totals
