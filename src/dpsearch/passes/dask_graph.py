"""Graphs of tasks for Dask, made by hand: few tasks, whose findings workers put together.

The scheduler takes about half a millisecond for a task and for each result that is asked for, and
`dask.delayed` as long again for each call: with a thousand shards that is what the driver does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from dpsearch.sources.shards import Shard

GROUP = 32  # findings that a worker puts together
RETRIES = 2  # of a task that fails, as when a network drive is away for a moment
_TOLD_SINGLY = 256  # shards, up to which progress is told of each, and not of groups of them


class Sources(NamedTuple):
    """Shards as they are sent to workers: without their blocks, which are put in there.

    A block of a collection is the result of a task of Dask's, or what a worker has.
    """

    shards: list[Shard]
    blocks: list[Any]
    tasks: dict[Any, Any]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> Sources:
        from dask import is_dask_collection
        from dask._task_spec import TaskRef  # what a future is sent to the scheduler as

        out = cls([], [], {})
        seen: Any = None
        for shard in shards:
            block: Any = getattr(shard, "block", None)
            if is_dask_collection(block):
                if block.dask is not seen:  # a graph, which blocks share
                    seen = block.dask
                    out.tasks.update(seen)
                shard, block = _with_block(shard, None), TaskRef(block.key)
            out.shards.append(shard)
            out.blocks.append(block)
        return out


_NONE = Sources([], [], {})


def whole(shard: Shard, block: Any) -> Shard:
    """Return a shard with its block."""
    return shard if block is None else _with_block(shard, block)


def _with_block(shard: Any, block: Any) -> Shard:
    out: Shard = replace(shard, block=block)
    return out


class Graph:
    """Tasks for a cluster, by their keys.

    Arguments may be keys of other tasks, futures, and lists of these.
    """

    def __init__(self, client: Any, sources: Sources = _NONE) -> None:
        self.client, self.tasks, self.token = client, dict(sources.tasks), uuid4().hex

    def add(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Add a task; return its key."""
        key = f"{name}-{self.token}", len(self.tasks)
        self.tasks[key] = (function, *arguments)
        return key

    def by_groups(
        self, parts: list[Any], function: Callable[..., Any], *arguments: Any
    ) -> list[Any]:
        """Have results put together by workers, some at a time, in their order."""
        groups = [parts[at : at + GROUP] for at in range(0, len(parts), GROUP)]
        return [self.add("together", function, group, *arguments) for group in groups]

    def futures(
        self,
        answers: list[Any],
        kept: list[Any],
        singly: list[Any],
        groups: list[Any],
        progress: Callable[[int], None] | None,
    ) -> tuple[list[Any], list[Any]]:
        """Return futures of answers, when these are done, and of what workers keep.

        Where progress is wanted, it is told of shards singly, or in groups if there are many.
        """
        watched: list[Any] = []
        if progress is not None:
            watched = singly if len(singly) <= _TOLD_SINGLY else groups
        wanted = [*answers, *kept, *watched]
        futures = self.client.get(self.tasks, wanted, sync=False, retries=RETRIES)
        step = 1 if watched is singly else GROUP
        for done in finished(futures[len(answers) + len(kept) :]):
            assert progress is not None
            progress(min(len(singly), step * done))
        for _ in finished(futures[: len(answers)]):
            pass
        return futures[: len(answers)], futures[len(answers) : len(answers) + len(kept)]


class TaskError(Exception):
    """A task failed by itself, whatever it raised: the cluster has forgotten nothing."""


def finished(futures: list[Any]) -> Iterator[int]:
    """Yield how many are done, until all are; raise the first error that there is."""
    from distributed import as_completed

    for done, future in enumerate(as_completed(futures), 1):
        if future.status == "error":
            raise TaskError from future.exception()
        if future.status != "finished":
            future.result()
        yield done
