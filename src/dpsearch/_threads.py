"""Threads: one pool of each size for the whole process, and one thread in each matrix product.

To begin and join a pool's threads in every pass takes longer than the pass, where rows are few.
Threads of BLAS go on spinning after a product of theirs, on the cores that the pool needs.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")

_NAME = "dpsearch-"
_IN_USE: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def using(n_threads: int) -> Iterator[None]:
    """Let what is called take so many threads, where it is the same for any number of them."""
    token = _IN_USE.set(n_threads)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def in_use() -> int:
    """Return how many threads the present call may take: one, unless it says so, or is of one."""
    return 1 if inside() else _IN_USE.get()


class _Pool(ThreadPoolExecutor):
    """A pool that is given up after Ctrl-C, which may leave a lock of it taken for ever."""

    def submit(self, *work: Any, **options: Any) -> Future[Any]:
        with _given_up_if_interrupted():
            return super().submit(*work, **options)

    def map(self, *work: Any, **options: Any) -> Iterator[Any]:
        return _results(super().map(*work, **options))


def _results(found: Iterator[T]) -> Iterator[T]:
    with _given_up_if_interrupted():
        yield from found


@contextmanager
def _given_up_if_interrupted() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        pool.cache_clear()
        raise


@functools.cache
def pool(n_threads: int) -> ThreadPoolExecutor:
    """Return the pool of this many threads, which begins them when it first has work.

    To be asked for each time: after Ctrl-C there is another.
    """
    return _Pool(n_threads, thread_name_prefix=_NAME)


os.register_at_fork(after_in_child=pool.cache_clear)  # a child has none of its parent's threads


@functools.cache
def _products() -> ThreadpoolController:
    return ThreadpoolController()


def single_products() -> AbstractContextManager[Any]:
    """Let matrix products take one thread each."""
    return _products().limit(limits=1)  # type: ignore[no-any-return]


def together(work: Callable[[int], T], n: int, n_threads: int) -> list[T]:
    """Return work(0) … work(n − 1), of which this thread and others do some each.

    For work that is soon done: to wake a thread takes a while, and so does each of its futures.
    """
    n_shares = 1 if n_threads == 1 or inside() else max(1, min(n_threads, n))
    if n_shares == 1:
        return [work(k) for k in range(n)]
    edges = [n * i // n_shares for i in range(n_shares + 1)]

    def share(i: int) -> list[T]:
        return [work(k) for k in range(edges[i], edges[i + 1])]

    futures: list[Future[list[T]]] = []
    try:
        with _given_up_if_interrupted():
            futures += (pool(n_threads).submit(share, i) for i in range(1, n_shares))
            return share(0) + [one for future in futures for one in future.result()]
    finally:
        wait(futures)


def shared(work: Callable[[S], T], items: Sequence[S]) -> Generator[T, None, None]:
    """Yield what is done with each item, in order, by threads of the present call."""
    if in_use() == 1 or len(items) == 1:  # which has next to nothing to do beside
        yield from map(work, items)
    else:
        yield from each(work, items, in_use())


def apart(*work: Callable[[], T]) -> list[T]:
    """Return what calls return that need nothing of each other, by threads of the present call."""
    contexts = [copy_context() for _ in work]  # each has the deadline
    return together(lambda i: contexts[i].run(work[i]), len(work), in_use())


def inside() -> bool:
    """Whether this is a thread of a pool, which must not wait for itself."""
    return threading.current_thread().name.startswith(_NAME)


def each(work: Callable[[S], T], items: Sequence[S], n_threads: int) -> Generator[T, None, None]:
    """Yield what is done with each item, in order, by threads if there is more than one.

    After an error or Ctrl-C what has not begun never will, and what has is waited for.
    """
    with single_products():
        if inside() or min(n_threads, len(items)) <= 1:
            yield from map(work, items)
            return
        futures: list[Future[T]] = []
        try:
            with _given_up_if_interrupted():
                futures += (pool(n_threads).submit(work, one) for one in items)
                for future in futures:
                    yield future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
