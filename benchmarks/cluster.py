"""The cost model of shards against one, two and four local Dask workers, and a plan made with it.

    python -m benchmarks.cluster [--out FILE.md] [--quick]

The model (docs/shards.md): a pass costs N times the seconds that one row costs among K clusters,
divided by the cores at work; 8 K w bytes go down to each worker and up from each shard in a round.
The seconds of a row are measured by working on one shard in this process.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask import delayed
from dask.distributed import Client, LocalCluster

from dpsearch import DPMixture, families, priors
from dpsearch.items import Rows
from dpsearch.problem import Problem
from dpsearch.scale import rounds
from dpsearch.scale.shard import Task, work
from studies.peers.workers.run import peak_mb

K = 100
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
    place: float  # seconds of a row when all are placed
    sweep: float  # seconds of a row in a later round
    width: int  # of a row of statistics
    merge: float  # seconds that the driver needs for a part


def cost(width: int, n: int = 40_000) -> Cost:
    """Work on one shard in this process, twice: the first time compiles."""
    X, labels = draw(n, width, 0)
    family = families.FullGaussian.suggest(X).resolve(X)
    problem = Problem(X, family, PRIOR)
    model = problem.model
    start = Rows(*problem.rows(labels))
    task = Task(family, width, model.core.params, PRIOR, start, 0, 2, 0.5)
    for _ in range(2):
        begun = time.perf_counter()
        up, parts = work(task, X, None, 0)
        place = time.perf_counter() - begun
        begun = time.perf_counter()
        found = rounds.merged([up] * 4, model, PRIOR, K, 0)
        merge = time.perf_counter() - begun
        names = found.clusters_of_parts[0][parts]
        clusters = Rows(*model.rows(problem.items, names, len(found.clusters.sizes)))
        begun = time.perf_counter()
        work(task._replace(clusters=clusters), X, names, 0)
        sweep = time.perf_counter() - begun
    return Cost(place / n, sweep / n, model.core.width, merge / (4 * len(up.origins)))


class Measured(NamedTuple):
    seconds: float  # of the rounds
    passes: int
    up: float  # bytes from a shard in a round
    peak: float  # MiB of the largest worker


def fit(n_workers: int, n: int, width: int, n_shards: int) -> Measured:
    handed: list[int] = []
    merged = rounds.merged

    def counting(parts: Any, *others: Any) -> Any:
        handed.extend(part.rows.pool.nbytes + part.rows.sizes.nbytes for part in parts)
        return merged(parts, *others)

    size = n // n_shards
    blocks = [
        da.from_delayed(delayed(rows)(size, width, s), shape=(size, width), dtype=np.float64)
        for s in range(n_shards)
    ]
    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        X = da.concatenate(blocks).persist()
        rounds.merged = counting
        try:
            DPMixture(alpha=PRIOR, random_state=0).fit(X)  # compiles, on every worker
            handed.clear()
            model = DPMixture(alpha=PRIOR, random_state=0).fit(X)
        finally:
            rounds.merged = merged
        peak = max(client.run(peak_mb).values())
    trace = model.clustering_.trace
    # The rounds alone: the sample before them is searched in one place, whatever the workers.
    begun = trace[0].seconds
    first = (trace[-1].seconds - begun) / max(1, len(trace) - 1)
    return Measured(first, len(trace), float(np.mean(handed)), peak)


def page(n: int, width: int, n_shards: int) -> Iterator[str]:
    cores = os.cpu_count() or 1
    here = cost(width)
    yield "# Shards on local Dask workers"
    yield ""
    yield (
        f"Written by `python -m benchmarks.cluster`: {n:,} points of {width} columns in {n_shards}"
        f" shards, {K} planted clusters, {cores} cores, workers of one thread each. A row costs"
        f" {1e6 * here.place:.1f} µs to place and {1e6 * here.sweep:.1f} µs in a later round,"
        " measured in this process on one shard."
    )
    yield ""
    yield (
        "| workers | seconds a round, model | measured | up from a shard, model | measured |"
        " peak MiB of a worker |"
    )
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for n_workers in WORKERS:
        found = fit(n_workers, n, width, n_shards)
        model = n * here.sweep / min(n_workers, cores) + n_shards * K * here.merge
        up = 8 * K * here.width
        yield (
            f"| {n_workers} | {model:.2f} | {found.seconds:.2f} | {up / 1e3:,.0f} kB |"
            f" {found.up / 1e3:,.0f} kB | {found.peak:,.0f} |"
        )
    yield ""
    yield (
        f"More workers than the {cores} cores bring nothing here; the model counts cores. Measured"
        " rounds include the scheduler, and sending."
    )
    yield ""
    yield "## A plan: a thousand million points of 64 columns"
    yield ""
    wide = cost(64, 20_000)
    total, shard_rows = 10**9, 10**6
    shards = total // shard_rows
    up = 8 * K * wide.width
    passes = wide.place + 3 * wide.sweep
    yield (
        f"One row among {K} clusters costs {1e6 * wide.place:.1f} µs to place and"
        f" {1e6 * wide.sweep:.1f} µs in a later round, measured here. With shards of"
        f" {shard_rows:,} rows there are {shards:,}. A placing and three rounds:"
    )
    yield ""
    yield "| cores in all | hours of work | minutes in the driver | GB up to the driver |"
    yield "| ---: | ---: | ---: | ---: |"
    for n_cores in (32, 128, 512):
        work_hours = total * passes / n_cores / 3600
        driver = 4 * shards * K * wide.merge / 60
        yield (f"| {n_cores} | {work_hours:.2f} | {driver:.1f} | {4 * shards * up / 1e9:,.0f} |")
    yield ""
    yield (
        f"A worker holds one shard of {8 * 64 * shard_rows / 1e9:.2f} GB about three times, and"
        f" the clusters, {up / 1e6:.1f} MB; the driver holds the parts of a round,"
        f" {shards * up / 1e9:.1f} GB. With ten times as many rows in a shard that is a tenth."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    sizes = (40_000, 10, 4) if given.quick else (800_000, 20, 16)
    text = "\n".join(page(*sizes)) + "\n"
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
