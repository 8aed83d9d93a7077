"""Workers of a real Dask cluster that are killed while it fits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import numpy as np

from dpsearch.fitting import FitOptions
from dpsearch.scale.cluster import DaskWorkers
from dpsearch.scale.fit import fit_shards
from dpsearch.scale.source import shards_of_array
from dpsearch.scale.workers import Threads
from studies.attacks.arena import failures
from studies.attacks.record import Outcome
from studies.attacks.victims import GAUSSIAN, PRIOR, rows


def cluster(count: int, seed: int) -> Outcome:
    """Kill a worker at a random moment of each fit: the result is that of threads."""
    from distributed import Client, LocalCluster

    begun, rng, failed = time.perf_counter(), np.random.default_rng(seed), 0
    shards = shards_of_array(rows(n=2000), 4, False)
    want = _fitted(shards, Threads(shards, 1))
    with (
        LocalCluster(processes=True, n_workers=2, threads_per_worker=1, dashboard_address=":0",
                     silence_logs=50) as local,
        Client(local, set_as_default=False) as client, client.as_current(),
    ):  # fmt: skip
        _fitted(shards, DaskWorkers(shards, client))
        length = time.perf_counter()
        _fitted(shards, DaskWorkers(shards, client))
        length = time.perf_counter() - length
        for _ in range(count):
            delay = float(rng.uniform(0.0, length))

            def attempt(delay: float = delay) -> None:
                victim = int(rng.choice(list(client.run(os.getpid).values())))
                timer = threading.Timer(delay, _kill, (victim,))
                timer.start()
                found = _fitted(shards, DaskWorkers(shards, client))
                timer.join()
                assert found.clustering.log_joint == want.clustering.log_joint
                labels = found.clustering.labels.compute()
                assert np.array_equal(labels, want.clustering.labels)
                client.wait_for_workers(2, timeout=120)

            failed += failures(attempt, f"a worker killed after {delay:.3f} of {length:.3f} s")
    what = (
        "SIGKILL of a worker of a Dask cluster of processes at a random moment of a fit in shards"
    )
    return Outcome("cluster", what, count, failed, time.perf_counter() - begun)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _fitted(shards: Any, workers: Any) -> Any:
    return fit_shards(shards, workers, FitOptions(GAUSSIAN, PRIOR, np.random.default_rng(0)))
