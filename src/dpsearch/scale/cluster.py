"""Who works on the shards: the workers of a Dask cluster.

Down go the shards, as far as they say where rows are, and once a round the task; up come the items
of each shard.  The part that each row is in stays where it was computed.  All tasks are pure, and
the scheduler knows of what each was made: what a dead worker had is computed again.  If the
scheduler has forgotten everything, as after `Client.restart`, all rounds are asked for anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels
from dpsearch.errors import ParameterError, WorkersError, located
from dpsearch.scale.shard import Handed, Task, work
from dpsearch.scale.source import Look, Shard, begins_of, look

_RETRIES = 2  # of a task that fails, as when a network drive is away for a moment
_ANEW = 3  # times that all is asked for again after the scheduler has forgotten it
_PATIENCE = 60.0  # seconds to wait for a scheduler that is away


class _Round(NamedTuple):
    """What was asked for in a round; kilobytes, kept so that it can be asked for again."""

    task: Task
    clusters_of_parts: Sequence[Labels] | None
    sizes: list[Ints]  # of the parts of the round before, by shard


class DaskWorkers:
    """The workers of a Dask cluster.  Shards are sent to them, and should be small for that."""

    def __init__(
        self,
        shards: Sequence[Shard],
        client: Any,
        progress: Callable[[int], None] | None = None,
        *,
        stay: bool = True,
    ) -> None:
        dask_or_error()
        self.shards = shards
        self.client = client
        self.progress = progress  # with the number of shards that are done
        self._begins = begins_of(shards)
        self.stay = stay  # whether the cluster goes on after the fit, and keeps the labels
        self._rounds: list[_Round] = []
        self._sizes: list[Ints] = []  # of the parts of the last round, by shard
        # Futures of the parts by number of rounds, then by shard: of the last two rounds.
        self._parts: dict[int, list[Any]] = {}

    @property
    def n_shards(self) -> int:
        return len(self.shards)

    def look(self, n_sampled: Ints, seed: int) -> list[Look]:
        from dask import delayed

        one = delayed(look, pure=False)

        def ask() -> list[Any]:
            return self._futures(
                [one(shard, int(n_sampled[s]), [seed, s]) for s, shard in enumerate(self.shards)]
            )

        return self._results(ask)

    def run(self, task: Task, clusters_of_parts: Sequence[Labels] | None) -> list[Handed]:
        rounds = [*self._rounds, _Round(task, clusters_of_parts, self._sizes)]
        parts: list[Any] = []

        def ask() -> list[Any]:
            nonlocal parts
            handed, parts = self._asked(rounds)
            return handed

        done: list[Handed] = self._results(ask)
        before = self._parts.get(len(rounds) - 1, [])
        self._rounds = rounds
        self._parts = {len(rounds) - 1: before, len(rounds): parts}
        self._sizes = [handed.rows.sizes for handed in done]
        return done

    def labels(self, clusters_of_parts: Sequence[Labels], back: bool) -> Any:
        """A Dask array made of futures: labels stay with the workers until they are computed."""
        import dask.array as da
        from dask import delayed

        kept = self._rounds[:-1] if back else self._rounds
        sizes = self._rounds[-1].sizes if back else self._sizes
        one = delayed(_named, pure=False)

        def ask() -> list[Any]:
            _, parts = self._asked(kept)
            each = zip(clusters_of_parts, parts, sizes, strict=True)
            return self._futures([one(*arguments) for arguments in each])

        futures = self._patiently(lambda: self._finished(ask()))
        blocks = [
            da.from_delayed(delayed(future), shape=(shard.n_rows,), dtype=np.int64)
            for shard, future in zip(self.shards, futures, strict=True)
        ]
        labels = da.concatenate(blocks)
        return labels if self.stay else da.from_array(labels.compute(), chunks=labels.chunks)

    def _asked(self, rounds: Sequence[_Round]) -> tuple[list[Any], list[Any]]:
        """Futures of what the last of these rounds hands up, and of the parts after it.

        Only what the scheduler does not have already is asked for.
        """
        from dask import delayed

        one = delayed(_round, pure=False, nout=2)
        known = [n for n in self._parts if n <= len(rounds) and _alive(self._parts[n])]
        begin = max(known, default=0)
        handed: list[Any] = []
        parts = self._parts[begin] if begin else [None] * len(self.shards)
        for ask in rounds[begin:]:
            # As the result of a task, not scattered: then it is not lost with its workers.
            task = self.client.submit(_same, ask.task, pure=False, retries=_RETRIES)
            pairs = []
            for s, shard in enumerate(self.shards):
                known_as = () if ask.clusters_of_parts is None else (
                    ask.clusters_of_parts[s], parts[s], ask.sizes[s],
                )  # fmt: skip
                pairs.append(one(task, shard, s, self._begins[s], *known_as))
            futures = self._futures([pair[0] for pair in pairs] + [pair[1] for pair in pairs])
            handed, parts = futures[: len(pairs)], futures[len(pairs) :]
        return handed, parts

    def _futures(self, wanted: list[Any]) -> list[Any]:
        return list(self.client.compute(wanted, retries=_RETRIES))

    def _results(self, ask: Callable[[], list[Any]]) -> list[Any]:
        """What futures come to, in order."""
        return self._patiently(lambda: list(self.client.gather(self._finished(ask()))))

    def _finished(self, futures: list[Any]) -> list[Any]:
        """The futures, when all are done; raises the first error that there is."""
        from distributed import as_completed

        for done, future in enumerate(as_completed(futures), 1):
            if future.status == "error":
                raise _TaskError from future.exception()
            if future.status != "finished":
                future.result()
            if self.progress is not None:
                self.progress(done)
        return futures

    def _patiently(self, function: Callable[[], list[Any]]) -> list[Any]:
        """Call a function again if the scheduler has forgotten what it was asked."""
        with _clear_errors():
            for _ in range(_ANEW):
                try:
                    return function()
                except _gone():
                    self._wait()
            return function()

    def _wait(self) -> None:
        """Wait a while for a scheduler that is away; Dask goes on looking for it meanwhile."""
        until = time.monotonic() + _PATIENCE
        while self.client.status == "connecting" and time.monotonic() < until:
            time.sleep(0.1)
        if self.client.status != "running":
            raise WorkersError(
                "the scheduler of the Dask cluster is gone, and with it what its workers had"
            )


def _alive(futures: list[Any]) -> bool:
    return len(futures) > 0 and all(future.status != "cancelled" for future in futures)


def _same(task: Task) -> Task:
    return task


def _round(
    task: Task, shard: Shard, number: int, begin: int, *known_as: Any
) -> tuple[Handed, Labels]:
    """Do a round of a shard on a worker; after the first, its rows are `known_as` something."""
    labels = _named(*known_as) if known_as else None
    matrix = shard.load()
    with located(rows=begin):
        return work(task, matrix, labels, number)


def _named(names: Labels, parts: Labels, sizes: Ints) -> Labels:
    """The cluster of each row, from the part that it is in.

    If parts had to be computed again they must be what they were: clusters are made of them.
    """
    if not np.array_equal(np.bincount(parts, minlength=len(sizes)), sizes):
        raise WorkersError(
            "a shard that was computed again came out otherwise: its rows have changed, or the"
            " workers' processors or versions of dpsearch differ"
        )
    return np.asarray(names, dtype=np.int64)[parts]


class _TaskError(Exception):
    """A task failed by itself, whatever it raised: the cluster has forgotten nothing."""


def _gone() -> tuple[type[BaseException], ...]:
    """The errors of a scheduler that is gone or has forgotten."""
    from distributed.client import CancelledError, ClosedClientError
    from distributed.comm import CommClosedError

    return CancelledError, ClosedClientError, CommClosedError, ConnectionError, TimeoutError


@contextmanager
def _clear_errors() -> Iterator[None]:
    from distributed import KilledWorker

    try:
        yield
    except _TaskError as failed:
        error = failed.__cause__
        assert error is not None
        if not isinstance(error, KilledWorker):
            raise error from None
        raise WorkersError(
            f"workers died again and again over the same shard ({error.task}), most likely of too"
            " little memory: make shards smaller (rechunk, repartition), give workers more memory"
            " or fewer threads; their logs say more"
        ) from error
    except _gone() as error:
        raise WorkersError(
            "the Dask cluster has forgotten what it was asked, again and again; data that were"
            f" held by workers alone (X.persist()) cannot be read anew: {error}"
        ) from error


def dask_or_error() -> None:
    """Say how to get Dask if it is not there."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ParameterError('Dask is not installed: pip install "dpsearch[dask]"') from error


def present_client() -> Any:
    """The client that Dask's collections would use; None if there is none."""
    distributed = sys.modules.get("distributed")  # without it there can be no client
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


@contextmanager
def some_client() -> Iterator[tuple[Any, bool]]:
    """The present client, or one of a local cluster that lives as long as the block.

    Also says whether it stays afterwards, with what its workers have.
    """
    dask_or_error()
    from distributed import Client, LocalCluster

    client = present_client()
    if client is not None:
        yield client, True
        return
    # Threads suffice, since kernels hold no lock; processes would import the caller's script.
    with (
        LocalCluster(processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as local,
    ):
        yield local, False
