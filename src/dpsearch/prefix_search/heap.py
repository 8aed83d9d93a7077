"""A binary heap of states, with the highest score on top."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Vector


class Queue(NamedTuple):
    score: Vector
    state: Any  # int32


def new_queue(capacity: int) -> Queue:
    return Queue(np.zeros(capacity), np.zeros(capacity, np.int32))


@inner
def _before(queue, a, b):  # type: ignore[no-untyped-def]
    """Whether entry a is taken before entry b; among equals the newer, deeper state is."""
    if queue.score[a] != queue.score[b]:
        return queue.score[a] > queue.score[b]
    return queue.state[a] > queue.state[b]


@inner
def _swap(queue, a, b):  # type: ignore[no-untyped-def]
    queue.score[a], queue.score[b] = queue.score[b], queue.score[a]
    queue.state[a], queue.state[b] = queue.state[b], queue.state[a]


@inner
def push(queue, size, score, state):  # type: ignore[no-untyped-def]
    queue.score[size] = score
    queue.state[size] = state
    _sift_up(queue, size)
    return size + 1


@inner
def pop(queue, size):  # type: ignore[no-untyped-def]
    size -= 1
    _swap(queue, 0, size)
    _sift_down(queue, 0, size)
    return size


@inner
def _sift_up(queue, at):  # type: ignore[no-untyped-def]
    while at > 0 and _before(queue, at, (at - 1) // 2):
        _swap(queue, at, (at - 1) // 2)
        at = (at - 1) // 2


@inner
def _sift_down(queue, at, size):  # type: ignore[no-untyped-def]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(queue, child + 1, child):
            child += 1
        if not _before(queue, child, at):
            break
        _swap(queue, child, at)
        at = child


@inner
def shrink(queue, size, cap):  # type: ignore[no-untyped-def]
    """Keep the `cap` best entries; the queue is barely larger, so drop the worst one by one."""
    while size > cap:
        worst = size // 2  # the worst entry of a heap has no children
        for at in range(size // 2 + 1, size):
            if _before(queue, worst, at):
                worst = at
        size -= 1
        if worst < size:
            _swap(queue, worst, size)
            _sift_up(queue, worst)
    return size
