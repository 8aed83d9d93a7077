"""Rows on a device: labels, proposals and draws in operations of the array API.

Labels stay on the device.  A pass sends candidates' weights there and brings their totals back:
nothing that travels grows with the number of rows, but for a number or two for each block of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpsearch._arrays import to_host
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import CapabilityError
from dpsearch.families.linear import LinearForm, namespace
from dpsearch.passes import arrays, chunk
from dpsearch.passes.chunk import Candidates, Own, Seeds, Soft, Totals
from dpsearch.sources.shards import SPLIT_MIX

T = TypeVar("T")

_LEAST_CHUNK = 1 << 14  # numbers; a device that has no room for them has room for nothing
_BLOCK_SIZES = (64, 256)  # of blocks of one cluster: short ones waste less, long ones are fewer
_SPLIT_MIX = tuple(int(word.astype(np.int64)) for word in SPLIT_MIX)
_SPARE = 64.0  # rows looked at beyond those drawn, so that a second look is hardly ever needed


class Blocks(NamedTuple):
    """Rows in blocks of up to `size`: those of the positions begins … lasts of an order."""

    order: Any  # int [rows]; None for the order in which rows come
    begins: Ints
    lasts: Ints
    clusters: Ints  # of each block
    sizes: Ints  # of each cluster
    size: int


class DeviceRows(ABC):
    """Rows on one device; a subclass has their features.

    `first` is the number of the first row, where rows are divided over devices.
    """

    dtype: Any  # of features
    form: LinearForm
    records = False  # whether sweeps that are repeated are recorded

    def __init__(self, X: Any, n_rows: int, first: int) -> None:
        self.xp, self.device = namespace(X), arrays.device_of(X)
        self.n_rows, self.first = n_rows, first
        self.chunk_numbers = arrays.chunk_numbers(X)
        self.place(None)

    def _array(self, values: Any, dtype: Any = None) -> Any:
        if isinstance(values, np.ndarray):  # PyTorch takes no negative strides, and no locks
            values = np.require(values, requirements=["C", "W"])
        return self.xp.asarray(values, dtype=dtype, device=self.device)

    def lifted(self, totals: Totals) -> Totals:
        """Return totals where rows are, in float64: what is computed of them is computed there."""
        if not self.form.anywhere:
            return totals
        return Totals(*(self._array(x, self.xp.float64) for x in totals))

    def _range(self, n: int, dtype: Any = None) -> Any:
        return self.xp.arange(n, dtype=dtype or self.xp.int32, device=self.device)

    # -- what every kind of features shares ---------------------------------------------------

    def place(self, labels: Labels | None) -> None:
        xp, shape = self.xp, (self.n_rows,)
        if labels is None:
            self._labels = xp.zeros(shape, dtype=xp.int32, device=self.device)
        else:
            self._labels = xp.astype(self._array(labels), xp.int32)
        self._forget()

    def _forget(self) -> None:
        """Forget proposals, and blocks of rows whose labels may have changed."""
        xp = self.xp
        self._choice = xp.full((self.n_rows,), -1, dtype=xp.int32, device=self.device)
        self._blocks: Blocks | None = None
        self._plan: Any = None

    def labels(self) -> Any:
        """Return the cluster of each row: an array of the same kind, where the rows are."""
        return self.xp.astype(self._labels, self.xp.int64)

    def totals(self, n_clusters: int) -> Totals:
        return self._with_room(lambda: self._totals(n_clusters))

    def assign(self, candidates: Candidates) -> Totals:
        return self._with_room(lambda: self._assign(candidates))

    def repeated(self, sweep: Callable[[Totals], Totals], totals: Totals, count: int) -> Totals:
        """Return what sweeps make of totals, one after the other."""
        for _ in range(count):
            totals = sweep(totals)
        return totals

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        """Share each row between candidates in proportion to exp(score); its label is the best."""
        return self._with_room(lambda: self._soften(weights, constants, own))

    def _soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        """As `chunk.soften`, for a chunk of rows at a time."""
        xp, n = self.xp, len(constants)
        columns, offsets = self._array(weights.T, self.dtype), self._array(constants, self.dtype)
        steps = None if own is None else Own(*(self._array(x, self.dtype) for x in own))
        sums = Soft(Totals(0.0, 0.0), 0.0, 0.0, 0.0, 0.0)  # type: ignore[arg-type]
        for at, scores in self._scores_by_chunks(columns, n):
            logs, normalisers = _log_softmax(xp, scores + offsets)
            if steps is not None:
                logs = _log_softmax(xp, logs + _own_steps(xp, xp.exp(logs), steps))[0]
            self._labels[at] = xp.astype(xp.argmax(logs, axis=1), xp.int32)
            shares = xp.where(logs > -chunk.NEGLIGIBLE, xp.exp(logs), xp.zeros_like(logs))
            entropy = -xp.sum(xp.where(shares > 0.0, shares * logs, shares), dtype=xp.float64)
            after = _from_here(xp, shares) - shares

            def total(x: Any) -> Any:
                return to_host(xp.sum(x, axis=0, dtype=xp.float64))

            found = Totals(total(shares), self._shared(at, shares))
            sums = sums._replace(totals=found + sums.totals) + Soft(
                Totals(0.0, 0.0),  # type: ignore[arg-type]
                float(xp.sum(normalisers, dtype=xp.float64)), float(entropy),
                total(shares * shares), total(after * after),
            )  # fmt: skip
        self._forget()
        return sums

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        xp = self.xp
        labels = xp.take(self._array(of_clusters, xp.int32), self._labels, axis=0)
        if len(of_candidates):
            none = xp.asarray(-1, dtype=xp.int32, device=self.device)
            there = self._choice >= 0
            proposed = xp.take(
                self._array(of_candidates, xp.int32), xp.where(there, self._choice, 0 * none)
            )
            proposed = xp.where(there, proposed, none)
            labels = xp.where(proposed >= 0, proposed, labels)
        self._labels = labels
        self._forget()

    def draw(self, counts: Ints, seed: int) -> Seeds:
        """Draw the rows of the least keys, which are those that `chunk.draw` draws.

        Only rows whose keys are below a limit for their cluster are brought here and put in order.
        """
        sizes = self._by_cluster(len(counts)).sizes
        wanted = np.minimum(counts, sizes)
        spare = np.maximum(counts + _SPARE, 0.0)
        share = np.where(counts > 0, spare / np.maximum(sizes, 1), 0.0)
        while True:
            rows, clusters = self._below(share, seed)
            found = np.bincount(clusters, minlength=len(counts))
            short = found < wanted
            if not short.any():
                break
            share = np.where(short, 1.0, share)
        keys = chunk.row_keys(rows.astype(np.uint64) + np.uint64(self.first), seed)
        numbers: Any = rows
        clusters, keys, numbers = chunk.least([Seeds(clusters, keys, numbers)], counts)
        return Seeds(clusters, keys, self._features_of(numbers))

    def _below(self, share: Any, seed: int) -> tuple[Ints, Ints]:
        """Return rows whose keys are among the least share of all keys, and their clusters."""
        xp = self.xp
        top = np.iinfo(np.int64).max
        scaled = np.minimum(share, 0.999) * 2.0**64 - 2.0**63
        limits = self._array(np.where(share >= 0.999, top, scaled.astype(np.int64)))
        begin = int(chunk.seed_key(seed).astype(np.int64))
        rows, clusters = [], []
        for a, b in self._spans(8):
            numbers = xp.arange(a + self.first, b + self.first, dtype=xp.int64, device=self.device)
            keys = _ordered_keys(numbers + self._array([begin], xp.int64))
            labels = self._labels[a:b]
            (inside,) = xp.nonzero(keys <= xp.take(limits, labels, axis=0))
            rows.append(a + to_host(inside).astype(np.int64))
            clusters.append(to_host(xp.take(labels, inside, axis=0)).astype(np.int64))
        return np.concatenate(rows), np.concatenate(clusters)

    def _by_cluster(self, n_clusters: int) -> Blocks:
        """Return rows in blocks of one cluster each, until labels change."""
        if self._blocks is None:
            xp = self.xp
            order = xp.argsort(self._labels)
            steps = self._range(n_clusters + 1)
            edges = to_host(xp.searchsorted(xp.take(self._labels, order, axis=0), steps))
            sizes = np.diff(edges).astype(np.int64)
            usual = self.n_rows / (4.0 * max((sizes > 0).sum(), 1))
            size = _BLOCK_SIZES[int(usual > _BLOCK_SIZES[1])]
            counts = -(-sizes // size)
            clusters = np.repeat(np.arange(n_clusters), counts)
            number = np.arange(len(clusters)) - np.repeat(np.cumsum(counts) - counts, counts)
            begins = edges[clusters] + size * number
            lasts = np.minimum(begins + size, edges[clusters + 1]) - 1
            self._blocks = Blocks(order, begins, lasts, clusters, sizes, size)
        return self._blocks

    def _spans(self, numbers_per_row: float) -> Iterator[tuple[int, int]]:
        """Yield the bounds of chunks of rows."""
        step = max(int(self.chunk_numbers // numbers_per_row), 1)
        for a in range(0, self.n_rows, step):
            yield a, min(a + step, self.n_rows)

    def _with_room(self, work: Callable[[], T]) -> T:
        """Do the work of a pass, in smaller chunks if the device has no room for these."""
        while True:
            try:
                return work()
            except Exception as error:
                if not arrays.lacks_memory(error):
                    raise
                if self.chunk_numbers <= _LEAST_CHUNK:
                    raise CapabilityError(
                        f"{{parameter}}: {self.device} has too little memory for passes over"
                        f" {self.n_rows} rows; free some of it, give the data in float32, or"
                        " leave the device out",
                        parameter="device",
                    ) from error
            self.chunk_numbers //= 2
            self._plan = None
            arrays.release(self.xp)

    @abstractmethod
    def _assign(self, candidates: Candidates) -> Totals:
        """Set `_choice` of rows in groups; return the candidates' totals."""

    @abstractmethod
    def _totals(self, n_clusters: int) -> Totals:
        """Return the totals of clusters."""

    @abstractmethod
    def _scores_by_chunks(self, columns: Any, n_columns: int) -> Iterator[tuple[slice, Any]]:
        """Yield rows, and the products of their features with columns of weights."""

    @abstractmethod
    def _shared(self, at: slice, shares: Any) -> Matrix:
        """Return the totals of rows that are shared between candidates, here."""

    @abstractmethod
    def _features_of(self, rows: Ints) -> Matrix:
        """Return features of single rows, here."""


def _log_softmax(xp: Any, scores: Any) -> tuple[Any, Any]:
    """Return the logarithms of shares, and of what makes them shares."""
    top = xp.max(scores, axis=1, keepdims=True)
    normalisers = top + xp.log(xp.sum(xp.exp(scores - top), axis=1, keepdims=True))
    return scores - normalisers, normalisers


def _from_here(xp: Any, shares: Any) -> Any:
    """Return the shares of each candidate and later ones, added up."""
    return xp.flip(xp.cumulative_sum(xp.flip(shares, axis=1), axis=1), axis=1)


def _own_steps(xp: Any, shares: Any, own: Own) -> Any:
    """Return how a row's own shares change its scores."""
    from_here = _from_here(xp, shares)
    after = (from_here - shares) * own.after
    steps = from_here * own.from_here + after
    return shares * own.at + xp.cumulative_sum(steps, axis=1) - after


def _ordered_keys(words: Any) -> Any:
    """Scatter words as `chunk.row_keys` does, in int64; in the order of unsigned numbers.

    Products wrap alike; a shift to the right brings copies of the sign, which a mask takes away.
    """

    def shifted(words: Any, by: int) -> Any:
        return (words >> by) & ((1 << (64 - by)) - 1)

    words = words + _SPLIT_MIX[0]
    words = (words ^ shifted(words, 30)) * _SPLIT_MIX[1]
    words = (words ^ shifted(words, 27)) * _SPLIT_MIX[2]
    return words ^ shifted(words, 31) ^ -(1 << 63)
