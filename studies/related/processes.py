"""Jobs in separate processes, each on its own core and with a time limit."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

_LONGEST_WAIT = 60.0  # seconds; a wait cannot be without end


class Job(NamedTuple):
    """A call to make in a process forked from this one."""

    key: Any
    call: Callable[[], Any]
    limit: float  # seconds, after which the process is ended


class _Running(NamedTuple):
    job: Job
    process: Any
    core: int
    ends: float


def run_jobs(jobs: Iterable[Job], n_processes: int, until: float) -> Iterator[tuple[Any, Any]]:
    """Run jobs, `n_processes` at a time; yield the key and result of each when it has ended.

    The result is None if the job ran into its limit, or failed.  At the time `until`, of
    `time.monotonic`, running jobs are ended without a result.
    """
    pending = list(jobs)[::-1]
    cores = sorted(os.sched_getaffinity(0))
    free = [cores[at % len(cores)] for at in range(n_processes)][::-1]
    running: dict[Connection, _Running] = {}
    try:
        while (pending or running) and time.monotonic() < until:
            while pending and free:
                started = _started(pending.pop(), free.pop())
                running[started[0]] = started[1]
            soonest = min([one.ends for one in running.values()] + [until])
            left = min(max(0.0, soonest - time.monotonic()), _LONGEST_WAIT)
            ready = wait(list(running), left)
            now = time.monotonic()
            for pipe in [pipe for pipe, one in running.items() if pipe in ready or one.ends <= now]:
                one = running.pop(pipe)
                free.append(one.core)
                yield one.job.key, _result(pipe, one.process)
    finally:
        for pipe, one in running.items():
            _result(pipe, one.process, end=True)


def _started(job: Job, core: int) -> tuple[Connection, _Running]:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job.call, core, there))
    process.start()
    there.close()
    return here, _Running(job, process, core, time.monotonic() + job.limit)


def _work(call: Callable[[], Any], core: int, there: Connection) -> None:
    os.sched_setaffinity(0, {core})
    with threadpool_limits(1):
        there.send(call())


def _result(pipe: Any, process: Any, *, end: bool = False) -> Any:
    """Return what a process has sent, None if nothing, and end the process."""
    try:
        out = None if end or not pipe.poll() else pipe.recv()
    except EOFError:
        out = None
    pipe.close()
    if out is None:
        process.kill()
    process.join()
    return out
