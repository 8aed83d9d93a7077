"""Who works on the shards: threads of this process.  Kernels hold no lock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np

from dpsearch._types import Ints, Labels
from dpsearch.errors import located
from dpsearch.events import Callback, Event
from dpsearch.scale.shard import Handed, Task, work
from dpsearch.scale.source import Look, Shard, begins_of, look

T = TypeVar("T")


class Workers(Protocol):
    """Who works on the shards.  They keep the parts that rows are in; only items travel."""

    progress: Callable[[int], None] | None  # called with the number of shards that are done

    @property
    def n_shards(self) -> int:
        """How many shards there are."""

    def look(self, n_sampled: Ints, seed: int) -> list[Look]:
        """Have every shard looked at, drawing `n_sampled` rows from each."""

    def run(self, task: Task, clusters_of_parts: Sequence[Labels] | None) -> list[Handed]:
        """Have every shard do a round, and return what they hand up, in order.

        `clusters_of_parts` says which cluster each part of the last round became; None in the
        first round, when there are none.
        """

    def labels(self, clusters_of_parts: Sequence[Labels], back: bool) -> Any:
        """The cluster of each row after the last round, or with `back` the one before it."""


class ShardEvents:
    """Calls a callback after every round, and within rounds after every shard."""

    def __init__(self, callback: Callback, n_shards: int) -> None:
        self.callback, self.n_shards = callback, n_shards
        self._begun = time.perf_counter()
        self._before = (math.nan, 0)  # log joint and clusters after the last round

    def round(self, point: Event) -> None:
        self._before = (point.log_joint, point.n_clusters)
        self.callback(point)

    def shard(self, done: int) -> None:
        elapsed = time.perf_counter() - self._begun
        self.callback(Event(elapsed, *self._before, "shards", done, self.n_shards))


class Threads:
    """Threads of this process.  At most as many shards are in memory as there are threads."""

    def __init__(
        self, shards: Sequence[Shard], n_threads: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.shards = shards
        self.n_threads = n_threads
        self.progress = progress  # with the number of shards that are done
        self._begins = begins_of(shards)
        self._parts: list[Any] = [None] * len(shards)  # of each row, by shard
        self._before = self._parts

    @property
    def n_shards(self) -> int:
        return len(self.shards)

    def look(self, n_sampled: Ints, seed: int) -> list[Look]:
        return list(self._each(lambda s: look(self.shards[s], int(n_sampled[s]), [seed, s])))

    def run(self, task: Task, clusters_of_parts: Sequence[Labels] | None) -> list[Handed]:
        def one(number: int) -> tuple[Handed, Labels]:
            labels = None
            if clusters_of_parts is not None:
                labels = clusters_of_parts[number][self._parts[number]]
            matrix = self.shards[number].load()
            with located(rows=self._begins[number]):
                return work(task, matrix, labels, number)

        done = list(self._each(one))
        self._before, self._parts = self._parts, [parts for _, parts in done]
        return [handed for handed, _ in done]

    def labels(self, clusters_of_parts: Sequence[Labels], back: bool) -> Any:
        kept = self._before if back else self._parts
        named = [names[parts] for names, parts in zip(clusters_of_parts, kept, strict=True)]
        return np.concatenate(named)

    def _each(self, function: Callable[[int], T]) -> Iterator[T]:
        """The function of every shard's number, in order."""
        threads = ThreadPoolExecutor(self.n_threads)
        try:
            for done, result in enumerate(threads.map(function, range(len(self.shards))), 1):
                if self.progress is not None:
                    self.progress(done)
                yield result
        finally:  # also after an error or Ctrl-C: what has not begun never will
            threads.shutdown(wait=True, cancel_futures=True)
