"""Rows that stay where they are: the passes over them, and rows that threads of this process read.

All the work that grows with the number of rows is behind these few calls.  Labels stay with the
rows; candidates' weights go to them, totals come back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import reduce
from operator import add
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from dpsearch._threads import each, shared, together
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.deadline import current
from dpsearch.errors import located
from dpsearch.families.base import Family
from dpsearch.families.capabilities import require
from dpsearch.families.linear import LinearForm
from dpsearch.passes import chunk
from dpsearch.passes.chunk import Candidates, Own, Seeds, Soft, Totals
from dpsearch.sources.shards import Shard
from dpsearch.tables import CheckedTable, Codes, without_codes

T = TypeVar("T")

CHUNK_NUMBERS = 1 << 19  # features of a chunk
_BLOCK_NUMBERS = 1 << 18  # features at once, so that they stay near their core
FEWEST = 20_000  # rows, from which passes over all of them are faster than one row after another
KEPT = 2 << 30  # bytes of features that are kept; more, and quick ones, are computed in every pass
_FEW_NUMBERS = 1 << 24  # features, up to which they are one array, and a pass is soon done
_DECIDED = 1 << 17  # rows at a time that get new labels
_PARTS = 16  # of few rows, each with totals of its own …
_ROWS_A_TOTAL = 16  # … unless it would have fewer rows than that for each of them


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
        """Return the cluster of each row; −1 for a row that takes no part."""


class SoftRows(Rows, Protocol):
    """Rows that can also be shared between candidates."""

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        """Share each row between candidates in proportion to exp(score); its label is the best."""


class LargeRows(Rows, Protocol):
    """Rows of which every pass is dear."""

    progress: Callable[[int], None] | None  # called with the number of shards that are done

    @property
    def n_shards(self) -> int:
        """How many shards a pass goes through."""

    @property
    def log_base(self) -> float:
        """The sum of the family's `log_base` of all rows, known after the first pass."""

    def outliers(self, weights: Matrix, constants: Vector, counts: Ints) -> Seeds:
        """Return as many rows of each cluster as `counts` says: those that it describes worst."""


class Encoding(NamedTuple):
    """How rows become features; it can be sent to another process."""

    family: Family
    n_features: int
    codes: Codes = ()  # that stand for missing values

    def form(self) -> LinearForm:
        return require(  # type: ignore[no-any-return]
            self.family, "linear", self.n_features, needed_by="a fit of rows that stay in shards"
        )

    def load(self, shard: Shard) -> Any:
        """Return the rows of a shard, with gaps in place of codes."""
        return self.without_codes(CheckedTable(shard.load())).matrix

    def without_codes(self, table: CheckedTable) -> CheckedTable:
        return without_codes(table, self.codes)

    def check(self, matrix: Any, first: int) -> tuple[Any, float]:
        """Check rows against the family; return which of them have no value, and their log base.

        A row without any value says nothing, and takes no part.
        """
        with located(rows=first):
            table = self.family.table(CheckedTable(matrix))
            empty = table.empty_rows
            seen = table.matrix[~empty] if empty.any() else table.matrix
            self.family.check(seen)
            return empty, float(self.family.log_base(seen).sum())


def blocks(form: LinearForm, matrix: Any) -> Iterator[tuple[Any, slice]]:
    """Yield the features of a few rows at a time, with the places of these."""
    width = max(1, matrix.nnz // matrix.shape[0]) if sp.issparse(matrix) else form.n_totals
    height = max(1, _BLOCK_NUMBERS // width)
    for begin in range(0, matrix.shape[0], height):
        at = slice(begin, min(begin + height, matrix.shape[0]))
        features = form.features(matrix[at])
        if isinstance(features, np.ndarray):
            features = np.ascontiguousarray(features)
        yield features, at


def features_of(form: LinearForm, matrix: Any) -> Any:
    """Return the features of all rows, with little memory beside them."""
    if sp.issparse(matrix):
        return form.features(matrix)
    out = np.empty((matrix.shape[0], form.n_totals))
    step = max(1, _BLOCK_NUMBERS // form.n_totals)

    def write(begin: int) -> None:
        features = form.features(matrix[begin : begin + step])
        features = features.toarray() if sp.issparse(features) else features
        out[begin : begin + step] = features

    for _ in shared(write, range(0, matrix.shape[0], step)):
        pass
    return out


class ThreadedRows:
    """Rows that threads of this process load shard by shard: arrays in memory, and files.

    Results do not depend on the number of threads: shards are added up in their order.  With an
    `encoding`, rows are checked when they are first loaded, and `log_base` is then known.
    """

    def __init__(
        self,
        form: LinearForm,
        chunks: Sequence[Shard],
        n_threads: int,
        encoding: Encoding | None = None,
        *,
        kept: int = KEPT,
    ) -> None:
        self.form, self.chunks, self.n_threads, self.encoding = form, chunks, n_threads, encoding
        self.progress: Callable[[int], None] | None = None  # with the number of shards done
        self.n_rows, self.n_shards = sum(one.n_rows for one in chunks), len(chunks)
        self._first = list(itertools.accumulate((one.n_rows for one in chunks), initial=0))
        self._features: list[Any] = [None] * len(chunks)
        # Fewer rows of a table are added up in shards, to the same bits as those of files.
        numbers = self.n_rows * form.n_totals
        few = numbers <= _FEW_NUMBERS
        self._keep = 8 * numbers <= kept and (few or not form.quick)
        self._few = self._keep and few and (encoding is None or self.n_rows >= FEWEST)
        self._table: Matrix | None = None  # the features of all rows, where they are few and dense
        self._bases = [0.0 if encoding is None else np.nan] * len(chunks)
        self._labels = np.zeros(self.n_rows, np.int32)
        self._choice = np.full(self.n_rows, -1, np.int32)

    def place(self, labels: Labels | None) -> None:
        new = self._labels if labels is None else np.asarray(labels)
        self._labels = np.where(self._labels < 0, -1, 0 if labels is None else new).astype(np.int32)

    @property
    def log_base(self) -> float:
        return float(sum(self._bases))

    def totals(self, n_clusters: int) -> Totals:
        def work(features: Any, at: slice, totals: Totals) -> None:
            chunk.add(features, self._labels[at], totals)

        with current().needed():
            return self._sum(work, n_clusters)

    def assign(self, candidates: Candidates) -> Totals:
        def work(features: Any, at: slice, totals: Totals) -> None:
            labels, choice = self._labels[at], self._choice[at]
            chunk.assign(features, labels, candidates, choice, totals)

        try:
            return self._sum(work, candidates.n_candidates)
        except BaseException:  # of a pass that was not finished nothing is proposed
            self._choice[:] = -1
            raise

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        def work(features: Any, at: slice) -> Soft:
            return chunk.soften(features, weights, constants, own, self._labels[at])

        found = self._each(lambda parts: reduce(add, (work(*part) for part in parts)))
        return reduce(add, found)

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        labels, choice = self._labels, self._choice
        out = np.empty_like(labels)

        def part(i: int) -> None:
            at = slice(i * _DECIDED, (i + 1) * _DECIDED)
            out[at] = chunk.decided(labels[at], choice[at], of_candidates, of_clusters)
            choice[at] = -1

        together(part, -(-self.n_rows // _DECIDED), self.n_threads)
        self._labels = out

    def draw(self, counts: Ints, seed: int) -> Seeds:
        if (table := self._whole()) is not None:
            return chunk.draw(table, self._labels, 0, counts, seed)

        def work(features: Any, at: slice) -> Seeds:
            return chunk.draw(features, self._labels[at], at.start, counts, seed)

        found = self._each(lambda parts: chunk.least([work(*part) for part in parts], counts))
        return chunk.least(list(found), counts)

    def outliers(self, weights: Matrix, constants: Vector, counts: Ints) -> Seeds:
        # What earlier shards have found spares later ones rows that would not be among the least.
        limits = np.full(len(counts), np.inf)

        def work(parts: Iterable[tuple[Any, slice]]) -> Seeds:
            return chunk.outliers(parts, self._labels, weights, constants, counts, limits)

        most = 4 * int(counts.sum())  # rows that are held before the least of them are chosen
        found: list[Seeds] = []
        for one in self._each(work):
            found.append(one)
            if sum(len(some.keys) for some in found) > most:
                found = [chunk.least(found, counts)]
                chunk.lower_limits(limits, found[0], counts)
        return chunk.least(found, counts)

    def labels(self) -> Labels:
        return self._labels.astype(np.int64)

    def _whole(self) -> Matrix | None:
        """Return the features of all rows as one array; None where they are many, or sparse."""
        if self._few and self._table is None:
            table = np.empty((self.n_rows, self.form.n_totals))

            def copied(parts: Iterable[tuple[Any, slice]]) -> bool:
                dense = True
                for features, at in parts:
                    dense = dense and isinstance(features, np.ndarray)
                    if dense:
                        table[at] = features
                return dense

            self._few = all(list(self._each(copied)))
            if self._few:
                self._table = table
                bounds = itertools.pairwise(self._first)
                self._features = [[(table[a:b], slice(a, b))] for a, b in bounds]
        return self._table

    def _sum(self, work: Callable[[Any, slice, Totals], None], n_clusters: int) -> Totals:
        """Return the totals of all rows: of parts of them, or of shards, added in their order."""
        table = self._whole()
        if table is not None:
            return self._sum_of_parts(work, table, n_clusters)

        def of_shard(parts: Iterable[tuple[Any, slice]]) -> Totals:
            totals = chunk.nothing(n_clusters, self.form.n_totals)
            for part in parts:
                work(*part, totals)
            return totals

        return chunk.summed(self._each(of_shard), own=True)

    def _sum_of_parts(
        self, work: Callable[[Any, slice, Totals], None], table: Matrix, n_clusters: int
    ) -> Totals:
        """Return the totals of few rows, with as little to do beside them as can be."""
        current().check()
        n = max(1, min(_PARTS, self.n_rows // (_ROWS_A_TOTAL * n_clusters)))
        sizes, sums = np.zeros((n, n_clusters)), np.zeros((n, n_clusters, table.shape[1]))
        edges = np.linspace(0, self.n_rows, n + 1).astype(int).tolist()

        def part(i: int) -> None:
            at = slice(edges[i], edges[i + 1])
            work(table[at], at, Totals(sizes[i], sums[i]))

        together(part, n, self.n_threads)
        if self.progress is not None:
            self.progress(self.n_shards)
        return Totals(sizes.sum(axis=0), sums.sum(axis=0))

    def _each(self, work: Callable[[Iterable[tuple[Any, slice]]], T]) -> Iterator[T]:
        """Yield what is done with the features of every shard, in order."""

        def one(number: int) -> T:
            parts = self._features[number]
            if parts is None:
                parts = self._loaded(number)
                if self._keep:
                    parts = self._features[number] = list(parts)
            return work(parts)

        deadline = current()
        with closing(each(one, range(len(self.chunks)), self.n_threads)) as found:
            for done, result in enumerate(found, 1):
                deadline.check()
                if self.progress is not None:
                    self.progress(done)
                yield result

    def _loaded(self, number: int) -> Iterator[tuple[Any, slice]]:
        first, encoding = self._first[number], self.encoding
        if encoding is None:
            matrix = self.chunks[number].load()
        else:
            matrix = encoding.load(self.chunks[number])
            if np.isnan(self._bases[number]):
                empty, self._bases[number] = encoding.check(matrix, first)
                self._labels[first : first + len(empty)][empty] = -1
        for features, at in blocks(self.form, matrix):
            yield features, slice(first + at.start, first + at.stop)
