"""The cost model of shards against one, two and four local Dask workers, and a plan made with it.

    python -m benchmarks.cluster [--out FILE.md] [--quick]

The model (docs/shards.md): a pass costs N times the seconds that one row costs among K clusters,
divided by the cores at work; 8 K P bytes go down to each worker and up from each shard.  Seconds
of a row are measured by a pass over one shard in this process, those of the driver by a run over
1,000 shards of a few rows.
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
from dpsearch.passes import dask_rows
from dpsearch.passes.chunk import Candidates
from dpsearch.passes.piloted import PilotedSearch
from dpsearch.passes.rows import Encoding, ThreadedRows
from dpsearch.sources.shards import shards_of_array
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
    sweep: float  # seconds of a row in a pass among all clusters
    n_totals: int  # features of a row


def cost(width: int, n: int = 40_000) -> Cost:
    """Make a pass over one shard in this process, twice: the first time compiles."""
    X, labels = draw(n, width, 0)
    encoding = Encoding(families.FullGaussian.suggest(X).resolve(X), width)
    form = encoding.form()
    shard_rows = ThreadedRows(form, shards_of_array(X, 1, False), 1, encoding, kept=0)
    shard_rows.place(labels)
    weights = form.weights(*shard_rows.totals(K))
    for _ in range(2):
        begun = time.perf_counter()
        shard_rows.assign(Candidates(np.zeros(K, np.int64), np.array([0, K]), *weights))
        sweep = time.perf_counter() - begun
    return Cost(sweep / n, form.n_totals)


class Shard(NamedTuple):
    """A few rows that are drawn where they are needed."""

    number: int
    width: int
    n_rows: int = 200

    def load(self) -> Any:
        return rows(self.n_rows, self.width, self.number)


def driver(width: int, n_shards: int) -> tuple[float, float]:
    """Seconds of the driver in a pass over many shards, and bytes that come up to it.

    A round of the search over shards of few rows.  The workers are processes of their own; the
    scheduler is in this one, and its time counts, as does that of proposals on the sample.
    """
    shards = [Shard(s, width) for s in range(n_shards)]
    sample, labels = draw(20_000, width, 0)
    encoding = Encoding(families.FullGaussian.suggest(sample).resolve(sample), width)
    form = encoding.form()
    few = ThreadedRows(form, shards_of_array(sample, 1, False), 1)
    few.place(labels)
    tables = PRIOR.tables(200 * n_shards, 1000)
    up: list[int] = []
    patiently = dask_rows.patiently

    def counting(*arguments: Any) -> Any:
        answers = patiently(*arguments)
        up.append(sum(part.nbytes for one in answers for part in one if hasattr(part, "nbytes")))
        return answers

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        dask_rows.patiently = counting
        try:
            all_rows = dask_rows.DaskRows(encoding, shards, client)
            batch = PilotedSearch(
                all_rows, form.features(sample), form, tables, np.random.default_rng(0),
                lambda *_: None, lambda: None,
            )  # fmt: skip
            begun = time.process_time()
            batch.begin_from(few.totals(K))
            batch.round(0)
            seconds = time.process_time() - begun
        finally:
            dask_rows.patiently = patiently
    return seconds / len(up), float(np.mean(up))


class Measured(NamedTuple):
    seconds: float  # of a pass
    up: float  # bytes that come up to the driver in a pass
    peak: float  # MiB of the largest worker


def fit(n_workers: int, n: int, width: int, n_shards: int) -> Measured:
    up: list[int] = []
    begun: list[float] = []
    patiently = dask_rows.patiently

    def counting(*arguments: Any) -> Any:
        begun.append(time.perf_counter())
        answers = patiently(*arguments)
        up.append(sum(part.nbytes for one in answers for part in one if hasattr(part, "nbytes")))
        return answers

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
        DPMixture(alpha=PRIOR, random_state=0).fit(X)  # compiles, on every worker
        dask_rows.patiently = counting
        try:
            DPMixture(alpha=PRIOR, random_state=0).fit(X)
        finally:
            dask_rows.patiently = patiently
        peak = max(client.run(peak_mb).values())
    # The pass that places all rows: the first after the look.
    return Measured(begun[2] - begun[1], up[1], peak)


def page(n: int, width: int, n_shards: int, planned: int) -> Iterator[str]:
    cores = os.cpu_count() or 1
    here = cost(width)
    yield "# Shards on local Dask workers"
    yield ""
    yield (
        f"Written by `python -m benchmarks.cluster`: {n:,} points of {width} columns in {n_shards}"
        f" shards, {K} planted clusters, {cores} cores, workers of one thread each. A row costs"
        f" {1e6 * here.sweep:.1f} µs in a pass, measured in this process on one shard."
    )
    yield ""
    yield "| workers | seconds a pass, model | measured | kB up, measured | peak MiB of a worker |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for n_workers in WORKERS:
        found = fit(n_workers, n, width, n_shards)
        model = n * here.sweep / min(n_workers, cores)
        yield (
            f"| {n_workers} | {model:.2f} | {found.seconds:.2f} | {found.up / 1e3:,.0f} |"
            f" {found.peak:,.0f} |"
        )
    yield ""
    yield (
        f"More workers than the {cores} cores bring nothing here; the model counts cores. Measured"
        " passes include the scheduler, and sending."
    )
    yield ""
    yield "## A plan: a thousand million points of 64 columns"
    yield ""
    wide = cost(64, 20_000)
    total, passes = 10**9, 8
    seconds, up = driver(64, planned)
    yield (
        f"One row among {K} clusters costs {1e6 * wide.sweep:.1f} µs in a pass, measured here. A"
        f" pass over {planned:,} shards of a few rows took {seconds:.1f} s of processor time in the"
        f" process of the driver and the scheduler, and {up / 1e6:,.0f} MB came up to the driver."
        f" With shards of a million rows there are"
        f" {total // 10**6:,}. {passes} passes:"
    )
    yield ""
    yield "| cores in all | hours of work | minutes in the driver | GB up to the driver |"
    yield "| ---: | ---: | ---: | ---: |"
    for n_cores in (32, 128, 512):
        hours = passes * total * wide.sweep / n_cores / 3600
        of_driver = passes * seconds * (total / 10**6 / planned) / 60
        yield f"| {n_cores} | {hours:.2f} | {of_driver:.1f} | {passes * up / 1e9:,.1f} |"
    yield ""
    yield (
        f"A worker holds one shard of {8 * 64 * 10**6 / 1e9:.2f} GB, and sums of"
        f" {8 * K * wide.n_totals / 1e6:.1f} MB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    sizes = (40_000, 10, 4, 100) if given.quick else (800_000, 20, 16, 1000)
    text = "\n".join(page(*sizes)) + "\n"
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
