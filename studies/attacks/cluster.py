"""Workers of a real Dask cluster that are killed while it fits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dpsearch.fitting import FitOptions
from dpsearch.passes.fit import fit_in_shards
from dpsearch.sources.opened import OpenedTable
from dpsearch.sources.shards import shards_of_array
from studies.attacks.arena import failures
from studies.attacks.record import Outcome
from studies.attacks.victims import GAUSSIAN, PRIOR, rows


def cluster(count: int, seed: int) -> Outcome:
    """Kill a worker at a random moment of each fit: the result is that of threads."""
    begun, rng, tried, failed = time.perf_counter(), np.random.default_rng(seed), 0, 0
    shards = shards_of_array(rows(n=2000), 4, False)
    want = _fitted(shards, None)
    while tried < count:
        with _processes() as client:
            _fitted(shards, client)
            length = time.perf_counter()
            _fitted(shards, client)
            length = time.perf_counter() - length
            while tried < count and _both_are_there(client):
                delay = float(rng.uniform(0.0, length))
                victim = int(rng.choice(list(client.run(os.getpid).values())))
                tried += 1
                failed += failures(
                    partial(_killed, shards, client, victim, delay, want),
                    f"a worker killed after {delay:.3f} of {length:.3f} s",
                )
    what = (
        "SIGKILL of a worker of a Dask cluster of processes, at a random moment of a fit in shards"
    )
    return Outcome("cluster", what, tried, failed, time.perf_counter() - begun)


@contextlib.contextmanager
def _processes() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(processes=True, n_workers=2, threads_per_worker=1, dashboard_address=":0",
                     silence_logs=50) as local,
        Client(local, set_as_default=False) as client, client.as_current(),
    ):  # fmt: skip
        yield client


def _both_are_there(client: Any) -> bool:
    """Whether Dask has replaced the worker that was killed, which it does not always do."""
    try:
        client.wait_for_workers(2, timeout=20)
    except TimeoutError:
        return False
    return True


def _killed(shards: Any, client: Any, victim: int, delay: float, want: Any) -> None:
    timer = threading.Timer(delay, _kill, (victim,))
    timer.start()
    found = _fitted(shards, client)
    timer.join()
    assert found.clustering.log_joint == want.clustering.log_joint
    assert np.array_equal(found.clustering.labels.compute(), want.clustering.labels)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _fitted(shards: Any, client: Any) -> Any:
    opened = OpenedTable(list(shards), shards[0].array.shape[1], client=client)
    return fit_in_shards(opened, FitOptions(GAUSSIAN, PRIOR, np.random.default_rng(0)))
