"""Threads: one pool of each size for the whole process, and one thread in each matrix product.

If rows are few, starting and joining threads takes longer than a pass.  BLAS threads go on spinning
after a matrix product on the cores that the pool needs.
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
    """Let calls in the block use this many threads, if their results do not depend on it."""
    token = _IN_USE.set(n_threads)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def in_use() -> int:
    """Return how many threads the present call may use: one outside `using` and inside a pool."""
    return 1 if in_pool() else _IN_USE.get()


class _Pool(ThreadPoolExecutor):
    """A pool that is replaced after Ctrl-C, which may leave one of its locks taken for ever."""

    def submit(self, *work: Any, **options: Any) -> Future[Any]:
        with _replaced_if_interrupted():
            return super().submit(*work, **options)

    def map(self, *work: Any, **options: Any) -> Iterator[Any]:
        return _results(super().map(*work, **options))


def _results(found: Iterator[T]) -> Iterator[T]:
    with _replaced_if_interrupted():
        yield from found


@contextmanager
def _replaced_if_interrupted() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        pool.cache_clear()
        raise


@functools.cache
def pool(n_threads: int) -> ThreadPoolExecutor:
    """Return the pool of this many threads, which it starts when it first has work.

    Do not keep it: after Ctrl-C there is another.
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
    """Return work(0) … work(n − 1), computed by this thread and others in one share each.

    It is for short work: waking a thread takes a while, and so does each future.
    """
    n_shares = 1 if n_threads == 1 or in_pool() else max(1, min(n_threads, n))
    if n_shares == 1:
        return [work(k) for k in range(n)]
    edges = [n * i // n_shares for i in range(n_shares + 1)]

    def share(i: int) -> list[T]:
        return [work(k) for k in range(edges[i], edges[i + 1])]

    futures: list[Future[list[T]]] = []
    try:
        with _replaced_if_interrupted():
            futures += (pool(n_threads).submit(share, i) for i in range(1, n_shares))
            return share(0) + [one for future in futures for one in future.result()]
    finally:
        wait(futures)


def shared(work: Callable[[S], T], items: Sequence[S]) -> Generator[T, None, None]:
    """Yield work(item) for each item in order, computed by the threads of the present call."""
    if in_use() == 1 or len(items) == 1:  # without the overhead of `each`
        yield from map(work, items)
    else:
        yield from each(work, items, in_use())


def concurrently(*work: Callable[[], T]) -> list[T]:
    """Return the results of independent calls, made by the threads of the present call."""
    contexts = [copy_context() for _ in work]  # so that each call has the deadline
    return together(lambda i: contexts[i].run(work[i]), len(work), in_use())


def in_pool() -> bool:
    """Whether this is a thread of a pool, which must not wait for itself."""
    return threading.current_thread().name.startswith(_NAME)


def each(work: Callable[[S], T], items: Sequence[S], n_threads: int) -> Generator[T, None, None]:
    """Yield work(item) for each item in order, computed by this many threads.

    After an error or Ctrl-C no further work begins, and work that has begun is finished.
    """
    with single_products():
        if in_pool() or min(n_threads, len(items)) <= 1:
            yield from map(work, items)
            return
        futures: list[Future[T]] = []
        try:
            with _replaced_if_interrupted():
                futures += (pool(n_threads).submit(work, one) for one in items)
                for future in futures:
                    yield future.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
