"""The cost model of shards against one, two and four local Dask workers, and a plan made with it.

    python -m benchmarks.cluster [--out FILE.md] [--quick]

The model (docs/shards.md): a pass costs N times the seconds that one row costs among K clusters,
divided by the cores at work; 8 K P bytes go down to each worker, and up from all of them together.
Seconds per row are measured by a pass over one shard in this process, those of the driver by fits
to up to 1,000 shards of a few rows.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask import delayed
from dask.distributed import Client, LocalCluster

from dpsearch import DPMixture, families, priors
from dpsearch.passes import dask_rows
from dpsearch.passes.chunk import Candidates
from dpsearch.passes.fit import _FEW_ROUNDS
from dpsearch.passes.rows import Encoding, ThreadedRows
from dpsearch.sources.shards import shards_of_array
from studies.peers.workers.run import peak_mb

K = 100
WIDTH = 64  # columns of the table that is planned
FEW = 200  # rows of a shard, where the driver is what is measured
PRIOR = priors.DirichletProcess(priors.Gamma(1.0, 1.0))
WORKERS = (1, 2, 4)


def draw(n: int, width: int, number: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    means, scales = rng.normal(0.0, 4.0, (K, width)), rng.uniform(0.5, 1.5, (K, width))
    rng = np.random.default_rng([1, number])
    labels = rng.integers(K, size=n)
    return means[labels] + scales[labels] * rng.normal(size=(n, width)), labels


def rows(n: int, width: int, number: int) -> Any:
    return draw(n, width, number)[0]


class Cost(NamedTuple):
    sweep: float  # seconds of processor time of a row in a pass among all clusters
    n_totals: int  # features of a row


def cost(width: int, n: int = 40_000) -> Cost:
    """Time passes over one shard in this process; the first compiles, and the fastest counts."""
    X, labels = draw(n, width, 0)
    encoding = Encoding(families.FullGaussian.suggest(X).resolve(X), width)
    form = encoding.form()
    shard_rows = ThreadedRows(form, shards_of_array(X, 1, False), 1, encoding, kept=0)
    shard_rows.place(labels)
    weights = form.weights(*shard_rows.totals(K))
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        shard_rows.assign(Candidates(np.zeros(K, np.int64), np.array([0, K]), *weights))
        seconds.append(time.process_time() - begun)
    return Cost(min(seconds) / n, form.n_totals)


class Pass(NamedTuple):
    begun: float  # by the clock
    seconds: float  # of this process's processor time
    up: float  # bytes that come up to the driver


@contextmanager
def counted() -> Iterator[list[Pass]]:
    """Record the cost of every pass over all shards."""
    passes: list[Pass] = []
    made = dask_rows.DaskRows._pass
    patiently = dask_rows.patiently
    up = 0

    def weighed(*arguments: Any) -> Any:
        nonlocal up
        answers = patiently(*arguments)
        up = sum(len(pickle.dumps(one)) for one in answers)
        return answers

    def timed(rows: Any, asked: Any) -> Any:
        begun, before = time.perf_counter(), time.process_time()
        found = made(rows, asked)
        passes.append(Pass(begun, time.process_time() - before, up))
        return found

    dask_rows.DaskRows._pass = timed  # type: ignore[method-assign]
    dask_rows.patiently = weighed
    try:
        yield passes
    finally:
        dask_rows.DaskRows._pass = made  # type: ignore[method-assign]
        dask_rows.patiently = patiently


@contextmanager
def workers(n_workers: int) -> Iterator[Any]:
    """Start workers in separate processes; the scheduler runs in this one, and its time counts."""
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def persisted(n: int, width: int, n_shards: int) -> Any:
    size = n // n_shards
    blocks = [
        da.from_delayed(delayed(rows)(size, width, s), shape=(size, width), dtype=np.float64)
        for s in range(n_shards)
    ]
    return da.concatenate(blocks).persist()


def model(family: Any = "auto") -> DPMixture:
    return DPMixture(family, alpha=PRIOR, random_state=0, n_jobs=1)


class Simulated(NamedTuple):
    """Processor time of the driver and the scheduler in a fit to many shards of a few rows."""

    seconds: float  # of the whole fit
    passes: list[Pass]
    family: Any


def simulated(family: Any, n_shards: int) -> Simulated:
    with workers(2):
        X = persisted(FEW * n_shards, WIDTH, n_shards)
        with counted() as passes:
            before = time.process_time()
            fitted = model(family).fit(X)
            seconds = time.process_time() - before
    return Simulated(seconds, passes, fitted.family_)


class Measured(NamedTuple):
    seconds: float  # of a pass
    up: float  # bytes that come up to the driver in a pass
    peak: float  # MiB of the largest worker


def fit(n_workers: int, n: int, width: int, n_shards: int) -> Measured:
    with workers(n_workers) as client:
        X = persisted(n, width, n_shards)
        model().fit(X[: 2 * n_workers * (n // n_shards)])  # compiles, on every worker
        with counted() as passes:
            model().fit(X)
        peak = max(client.run(peak_mb).values())
    place, after = passes[:2]
    return Measured(after.begun - place.begun, place.up, peak)


def page(n: int, width: int, n_shards: int, planned: int) -> Iterator[str]:
    cores = os.cpu_count() or 1
    here = cost(width)
    yield "# Shards on local Dask workers"
    yield ""
    yield (
        f"Written by `python -m benchmarks.cluster`: {n:,} points of {width} columns in {n_shards}"
        f" shards, {K} planted clusters, {cores} cores, workers of one thread"
        f" each. A row costs {1e6 * here.sweep:.1f} µs of processor time in a pass, measured in"
        " this process on one shard."
    )
    yield ""
    yield (
        "| workers | seconds per pass, model | measured | kB returned, measured |"
        " peak MiB of a worker |"
    )
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for n_workers in WORKERS:
        found = fit(n_workers, n, width, n_shards)
        expected = n * here.sweep / min(n_workers, cores)
        yield (
            f"| {n_workers} | {expected:.2f} | {found.seconds:.2f} | {found.up / 1e3:,.0f} |"
            f" {found.peak:,.0f} |"
        )
    yield ""
    yield (
        f"More workers than the {cores} cores do not help here; the model counts cores. The"
        " measured seconds are wall-clock times of the pass that places all rows, including the"
        " scheduler, communication and other work on the machine."
    )
    yield ""
    yield from plan(planned)


def plan(planned: int) -> Iterator[str]:
    wide, few = cost(WIDTH, 20_000), draw(20_000, WIDTH, 0)[0]
    full = families.FullGaussian.suggest(few).resolve(few)
    yield f"## A plan: a thousand million points of {WIDTH} columns"
    yield ""
    yield (
        "The work of the driver depends on the number S of shards and on K and P, not on the number"
        f" of rows in a shard. It is therefore measured in complete fits to shards of {FEW} rows"
        " each, in processor seconds of the process that runs the driver and the scheduler; the"
        " workers are separate processes. The family is chosen automatically, or is a full"
        " covariance with given hyperparameters. The time of a pass is modelled as *a + b S*,"
        " fitted to the first two lines."
    )
    yield ""
    yield "| family | P | shards S | passes | seconds per pass | model | MB returned | fit, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    simulated("auto", planned // 10)  # compiles
    settings = [
        ("auto", planned // 10),
        ("auto", 3 * planned // 10),
        ("auto", planned),
        (full, planned),
    ]
    runs, means = [], []
    for family, n_shards in settings:
        found = simulated(family, n_shards)
        runs.append(found)
        means.append(float(np.mean([one.seconds for one in found.passes])))
        modelled = ""
        if len(runs) > 2:
            b = (means[1] - means[0]) / (settings[1][1] - settings[0][1])
            modelled = f"{means[0] + b * (n_shards - settings[0][1]):.2f}"
        n_totals = found.family.linear(WIDTH).n_totals
        up = np.mean([one.up for one in found.passes])
        yield (
            f"| {found.family.name} | {n_totals:,} | {n_shards:,} | {len(found.passes)} |"
            f" {means[-1]:.2f} | {modelled} | {up / 1e6:,.1f} | {found.seconds:.1f} |"
        )
    yield ""
    most = 1 + 3 * _FEW_ROUNDS
    yield (
        f"*a* = {means[0] - b * settings[0][1]:.2f} s, *b* = {1e3 * b:.2f} ms. Where the model is"
        " too low, the scheduler's work grows faster than the number of its tasks, and the totals"
        f" of full covariances take additional time; the figures below are measured. {planned:,}"
        f" shards of {10**9 // planned:,} rows are a thousand million rows. The table has the"
        " minutes of processor time that the driver took in these simulated fits. Outside the"
        " passes it checks all shards, searches the sample, makes proposals and finds the levels:"
    )
    yield ""
    yield "| family | passes | minutes in the driver | of which in passes | GB sent to the driver |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for one in runs[-2:]:
        inside = sum(each.seconds for each in one.passes)
        yield (
            f"| {one.family.name} | {len(one.passes)} | {one.seconds / 60:.2f} |"
            f" {inside / 60:.2f} | {sum(each.up for each in one.passes) / 1e9:,.2f} |"
        )
    yield ""
    yield (
        f"Scoring one row under {K} clusters with full covariances takes {1e6 * wide.sweep:.1f} µs"
        " of processor time in a pass, measured here, without reading. By default there are at most"
        f" {most} passes after the first look:"
    )
    yield ""
    yield "| total cores | hours |"
    yield "| ---: | ---: |"
    for n_cores in (32, 128, 512):
        yield f"| {n_cores} | {most * 10**9 * wide.sweep / n_cores / 3600:.2f} |"
    yield ""
    yield (
        f"A worker holds one shard of {8 * WIDTH * 10**9 / planned / 1e9:.2f} GB at a time, and of"
        f" each of its shards the labels and sums of {8 * K * wide.n_totals / 1e6:.1f} MB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    sizes = (40_000, 10, 8, 100) if given.quick else (400_000, 20, 16, 1000)
    text = "\n".join(page(*sizes)) + "\n"
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
