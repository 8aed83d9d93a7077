"""Rows that stay where they are: the passes over them, and rows that threads of this process read.

All the work that grows with the number of rows is behind these few calls.  Labels stay with the
rows; candidates' weights go to them, totals come back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.families.linear import LinearForm
from dpsearch.passes import chunk
from dpsearch.passes.chunk import Candidates, Own, Seeds, Soft, Totals

T = TypeVar("T")

CHUNK_NUMBERS = 1 << 20  # features of a chunk in memory, so that it stays near its core
_KEPT = 2 << 30  # bytes of features that are kept; beyond, they are computed in every pass


class Rows(Protocol):
    """Rows with labels, in one of several places.

    A pass proposes; `decide` then says what becomes of the proposals, cluster by cluster.
    """

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    def place(self, labels: Labels | None) -> None:
        """Give all rows labels; None for 0."""

    def totals(self, n_clusters: int) -> Totals:
        """Return the totals of the clusters that rows are in."""

    def assign(self, candidates: Candidates) -> Totals:
        """Propose the best candidate for each row; return the candidates' totals.

        Rows whose clusters are in no group keep the candidate that was proposed before.
        """

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        """Give each row the cluster of its proposed candidate, or where that is −1 (and where
        nothing was proposed) the one that its cluster has become."""

    def draw(self, counts: Ints, seed: int) -> Seeds:
        """Draw as many rows of each cluster as `counts` says."""

    def labels(self) -> Any:
        """Return the cluster of each row."""


class SoftRows(Rows, Protocol):
    """Rows that can also be shared between candidates."""

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        """Share each row between candidates in proportion to exp(score); its label is the best."""


class Chunk(Protocol):
    """A block of rows that can be loaded again and again."""

    @property
    def n_rows(self) -> int:
        """How many rows it has."""

    def load(self) -> Any:
        """The rows as a checked matrix."""


class ThreadedRows:
    """Rows that threads of this process load chunk by chunk: arrays in memory, and files.

    Results do not depend on the number of threads: chunks are added up in their order.
    """

    def __init__(self, form: LinearForm, chunks: Sequence[Chunk], n_threads: int) -> None:
        self.form = form
        self.chunks = chunks
        self.n_threads = n_threads
        self.n_rows = sum(one.n_rows for one in chunks)
        self._first = list(itertools.accumulate((one.n_rows for one in chunks), initial=0))
        self._threads = ThreadPoolExecutor(n_threads)
        self._products = ThreadpoolController()
        self._keep = 8 * self.n_rows * form.n_totals <= _KEPT
        self._features: list[Any] = [None] * len(chunks)
        self._labels = np.zeros(self.n_rows, np.int32)
        self._choice = np.full(self.n_rows, -1, np.int32)

    def place(self, labels: Labels | None) -> None:
        self._labels[:] = 0 if labels is None else labels

    def totals(self, n_clusters: int) -> Totals:
        def work(features: Any, at: slice) -> Totals:
            return chunk.totals_of(features, self._labels[at], n_clusters)

        return self._sum(work)

    def assign(self, candidates: Candidates) -> Totals:
        def work(features: Any, at: slice) -> Totals:
            return chunk.assign(features, self._labels[at], candidates, self._choice[at])

        return self._sum(work)

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        def work(features: Any, at: slice) -> Soft:
            return chunk.soften(features, weights, constants, own, self._labels[at])

        found = self._each(work)
        return sum(found, next(found))

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        stay = of_clusters[self._labels]
        proposed = np.append(of_candidates, -1)[self._choice]  # −1: the last
        self._labels = np.where(proposed >= 0, proposed, stay).astype(np.int32)
        self._choice[:] = -1

    def draw(self, counts: Ints, seed: int) -> Seeds:
        def work(features: Any, at: slice) -> Seeds:
            return chunk.draw(features, self._labels[at], at.start, counts, seed)

        return chunk.least(list(self._each(work)), counts)

    def labels(self) -> Labels:
        return self._labels.astype(np.int64)

    def _sum(self, work: Callable[[Any, slice], Totals]) -> Totals:
        found = self._each(work)
        out = next(found)
        for one in found:
            out.sizes[:] += one.sizes
            out.sums[:] += one.sums
        return out

    def _each(self, work: Callable[[Any, slice], T]) -> Iterator[T]:
        """Yield what is done with the features of every chunk, in order."""

        def one(number: int) -> T:
            features = self._features[number]
            if features is None:
                features = self.form.features(self.chunks[number].load())
                if isinstance(features, np.ndarray):
                    features = np.ascontiguousarray(features)
                if self._keep:
                    self._features[number] = features
            return work(features, slice(self._first[number], self._first[number + 1]))

        # A product in each thread, not threads in each product.
        with self._products.limit(limits=1):
            found = [self._threads.submit(one, number) for number in range(len(self.chunks))]
            try:
                for done in found:
                    yield done.result()
            finally:  # also after an error or Ctrl-C: what has not begun never will
                for task in found:
                    task.cancel()
