"""Tables of increasing size, in shards: time per point, memory, and quality of the partition.

    python -m benchmarks.scale [--data FOLDER] [--work FOLDER] [--out FILE.md] [--quick]

Planted data: 100 Gaussian clusters in 20 columns, each with a covariance of its own, written as
Parquet in files of a million rows.  Every case runs in a process of its own, whose peak resident
memory is read at its end.  Kernels are compiled beforehand.  Other tools are given what they need.
Each case imports what it needs: pdc-dp-means requires its own scikit-learn, so that its
environment (`--peers`) has no dpsearch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

K, D = 100, 20
FILE_ROWS = 1_000_000
BATCH = 10_000
JOBS = 2
FLIGHT_GOALS = (-415_000.0, -404_600.0)
SAMPLED = 4_000  # points for BayesianGaussianMixture: with 50,000 it is not done in 20 minutes


class Planted(NamedTuple):
    weights: Any
    means: Any
    factors: Any


def planted() -> Planted:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(K, 2.0))
    factors = np.eye(D) + 0.3 * rng.normal(size=(K, D, D))
    return Planted(weights, rng.normal(0.0, 4.0, (K, D)), factors)


def rows(n: int, number: int) -> tuple[Any, Any]:
    """Draw n rows of the planted mixture, and the component of each."""
    mixture, rng = planted(), np.random.default_rng([1, number])
    labels = np.sort(rng.choice(K, size=n, p=mixture.weights))
    noise = rng.normal(size=(n, D))
    X = np.empty((n, D))
    for k in range(K):
        X[labels == k] = mixture.means[k] + noise[labels == k] @ mixture.factors[k]
    order = rng.permutation(n)
    return X[order], labels[order]


def pieces(n: int) -> Iterator[tuple[Any, Any]]:
    """Draw n rows, one file after another."""
    for number, begin in enumerate(range(0, n, FILE_ROWS)):
        yield rows(min(FILE_ROWS, n - begin), number)


def write(folder: Path, n: int) -> Path:
    """Write n rows as Parquet, with the truth; both are kept for the next run."""
    import polars as pl

    target = folder / f"planted-{n}"
    if not (folder / f"truth-{n}.npy").exists():
        target.mkdir(parents=True, exist_ok=True)
        truth = []
        for number, (X, labels) in enumerate(pieces(n)):
            pl.DataFrame(X, schema=[f"x{d}" for d in range(D)]).write_parquet(
                target / f"part-{number:03}.parquet", row_group_size=250_000
            )
            truth.append(labels.astype(np.int16))
        np.save(folder / f"truth-{n}.npy", np.concatenate(truth))
    return target


def in_memory(n: int) -> Any:
    """Return the same rows as one array."""
    return np.concatenate([X for X, _ in pieces(n)])


# -- cases, each in a process of its own -------------------------------------------------------


def adjusted_rand_score(truth: Any, labels: Any) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, labels))


def fit_path(folder: Path, n: int) -> dict[str, Any]:
    from dpsearch import DPMixture

    path = write(folder, n)
    begun = time.perf_counter()
    model = DPMixture(n_jobs=JOBS, random_state=0).fit(path)
    seconds = time.perf_counter() - begun
    truth = np.load(folder / f"truth-{n}.npy")
    return _about(model, seconds) | {"ari": adjusted_rand_score(truth, model.labels_)}


def fit_whole(folder: Path, n: int) -> dict[str, Any]:
    """Fit one shard with refinement under the same family, for comparison with shards."""
    from dpsearch import DPMixture

    X = in_memory(n)
    truth = np.load(folder / f"truth-{n}.npy")
    shards = DPMixture(n_jobs=JOBS, random_state=0).fit(X)
    begun = time.perf_counter()
    model = DPMixture(shards.family_, n_shards=1, n_jobs=JOBS, random_state=0).fit(X)
    seconds = time.perf_counter() - begun
    about = {"sharded": shards.log_joint_, "ari": adjusted_rand_score(truth, model.labels_)}
    return _about(model, seconds) | about


def stream(folder: Path, n: int) -> dict[str, Any]:
    from dpsearch import DPMixture

    model = DPMixture(random_state=0)
    memory, placed = [], 0.0
    for X, _ in pieces(n):
        begun = time.perf_counter()
        for at in range(0, len(X), BATCH):
            model.partial_fit(X[at : at + BATCH])
        placed += time.perf_counter() - begun
        memory.append(_status("VmRSS"))
    X, truth = rows(100_000, 0)
    about = {"memory": memory, "ari": adjusted_rand_score(truth, model.predict(X))}
    return _about(model, placed) | about


def three_million(folder: Path, n: int) -> dict[str, Any]:
    from benchmarks.flights import flights
    from dpsearch import DPMixture

    X = flights(folder)
    begun = time.perf_counter()
    model = DPMixture(n_jobs=JOBS, random_state=0).fit(X)
    return _about(model, time.perf_counter() - begun) | {"n": len(X)}


def some_flights(folder: Path, n: int) -> dict[str, Any]:
    """Fit flights under a given family, and record when the log joint reaches the target."""
    from benchmarks.flights import some_flights
    from dpsearch import DPMixture

    X, family, _ = some_flights(folder)
    options = {"family": family, "alpha": 1.0, "level": "components", "n_jobs": JOBS}
    DPMixture(**options, refine=2.0).fit(X[:20_000])  # compiles
    reached: dict[float, float] = {}
    begun = time.perf_counter()

    def note(event: Any) -> None:
        for goal in FLIGHT_GOALS:
            if event.log_joint >= goal:
                reached.setdefault(goal, time.perf_counter() - begun)

    model = DPMixture(**options, refine=240.0, random_state=0).fit(X, callback=note)
    about = _about(model, time.perf_counter() - begun)
    return about | {"n": len(X), "reached": [reached.get(goal) for goal in FLIGHT_GOALS]}


def minibatch(folder: Path, n: int) -> dict[str, Any]:
    from sklearn.cluster import MiniBatchKMeans

    X = in_memory(n)
    begun = time.perf_counter()
    model = MiniBatchKMeans(n_clusters=K, batch_size=BATCH, random_state=0).fit(X)
    return _peer(model.labels_, time.perf_counter() - begun, folder, n)


def bayesian_on_a_sample(folder: Path, n: int) -> dict[str, Any]:
    from sklearn.mixture import BayesianGaussianMixture

    X = in_memory(n)
    sample = np.random.default_rng(0).choice(n, size=min(n, SAMPLED), replace=False)
    begun = time.perf_counter()
    kind = "dirichlet_process"
    model = BayesianGaussianMixture(
        n_components=2 * K, weight_concentration_prior_type=kind, random_state=0
    ).fit(X[sample])
    labels = model.predict(X)
    return _peer(labels, time.perf_counter() - begun, folder, n)


def dp_means(folder: Path, n: int) -> dict[str, Any]:
    from pdc_dp_means import MiniBatchDPMeans

    X = in_memory(n)
    within = float(np.mean([(f * f).sum() for f in planted().factors]))  # E|x − μ|²
    begun = time.perf_counter()
    model = MiniBatchDPMeans(
        n_clusters=1, delta=2.0 * within, batch_size=BATCH, max_iter=10, random_state=0
    ).fit(X)
    return _peer(model.labels_, time.perf_counter() - begun, folder, n)


def _about(model: Any, seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "clusters": model.n_clusters_,
        "log_joint": model.log_joint_,
        "rounds": len(model.clustering_.trace),
        "family": model.family_.name,
        "peak": peak(),
    }


def _peer(labels: Any, seconds: float, folder: Path, n: int) -> dict[str, Any]:
    truth = np.load(folder / f"truth-{n}.npy")
    score = adjusted_rand_score(truth, labels)
    return {"seconds": seconds, "clusters": len(np.unique(labels)), "ari": score, "peak": peak()}


def peak() -> float:
    """Return the peak resident memory of this process in MiB; getrusage counts its parent's."""
    return _status("VmHWM")


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


CASES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "compile": fit_path,
    "path": fit_path,
    "whole": fit_whole,
    "stream": stream,
    "flights": three_million,
    "some flights": some_flights,
    "minibatch": minibatch,
    "bayesian": bayesian_on_a_sample,
    "dp-means": dp_means,
}


class Runs(NamedTuple):
    """Runs cases, whose results are kept in the work folder and not computed again."""

    work: Path

    def __call__(
        self, case: str, n: int, *, folder: Path | None = None, python: str = sys.executable
    ) -> dict[str, Any]:
        kept = self.work / f"{case}-{n}.json"
        if not kept.exists():
            print(case, n, flush=True)
            command = [
                python,
                "-m",
                "benchmarks.scale",
                "--case",
                case,
                "--work",
                str(folder or self.work),
            ]
            command += ["--points", str(n)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{case} {n} failed:\n{done.stderr[-3000:]}")
            kept.write_text(done.stdout.splitlines()[-1], encoding="utf-8")
        result: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        print("  ", {k: v for k, v in result.items() if k != "memory"}, flush=True)
        return result


# -- the page ----------------------------------------------------------------------------------


def page(sizes: Sequence[int], folder: Path, data: Path | None, peers: str | None) -> Iterator[str]:
    run = Runs(folder)
    for n in sizes:
        write(folder, n)  # here, so that no case's memory has it
    run("compile", min(sizes))
    yield "# Tables in shards"
    yield ""
    yield (
        f"Written by `python -m benchmarks.scale`, {os.cpu_count()} cores, {JOBS} threads."
        f" Planted data: {K} Gaussian clusters in {D} columns, each with its own covariance;"
        " `DPMixture` with default options. Times are wall-clock seconds and include"
        " reading; memory is the peak resident memory of the whole process, in MiB."
    )
    yield ""
    yield "## Growth, out of core from Parquet"
    yield ""
    yield "| points | seconds | µs per point | passes | clusters | ARI | peak MiB |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    grown = {n: run("path", n) for n in sizes}
    for n, r in grown.items():
        yield (
            f"| {n:,} | {r['seconds']:.1f} | {1e6 * r['seconds'] / n:.1f} | {r['rounds']} |"
            f" {r['clusters']} | {r['ari']:.4f} | {r['peak']:,.0f} |"
        )
    rates = [r["seconds"] / n for n, r in grown.items()]
    yield ""
    yield (
        f"Time per point, last line relative to the first: {rates[-1] / rates[0]:.2f}"
        " (goal: at most 1.3)."
    )
    middle = sizes[len(sizes) // 2]
    whole = run("whole", middle)
    gap = abs(whole["sharded"] - whole["log_joint"]) / abs(whole["log_joint"])
    side = "above" if whole["sharded"] > whole["log_joint"] else "below"
    yield ""
    yield "## Against one shard"
    yield ""
    yield (
        f"{middle:,} points as one shard, refined, under the same family: log joint"
        f" {whole['log_joint']:,.1f} in {whole['seconds']:.1f} s, {whole['clusters']} clusters, ARI"
        f" {whole['ari']:.4f}, {whole['peak']:,.0f} MiB. In shards the log joint is"
        f" {whole['sharded']:,.1f}, which is {gap:.5%} {side} (goal: within 0.2 %)."
    )
    yield ""
    yield "## A stream"
    yield ""
    flat = run("stream", sizes[-1])
    yield (
        f"`partial_fit` over {sizes[-1]:,} points in batches of {BATCH:,}, one thread:"
        f" {flat['seconds']:.1f} s, {1e6 * flat['seconds'] / sizes[-1]:.1f} µs per point,"
        f" {flat['clusters']} clusters, ARI {flat['ari']:.4f} of the predictions for 100,000"
        " points. Resident memory after each million points, including these points, in MiB:"
        f" {', '.join(f'{m:,.0f}' for m in flat['memory'])}."
    )
    if data is not None and (data / "flights3m.npz").exists():
        r = run("flights", 3_000_000, folder=data)
        yield ""
        yield "## Three million flights"
        yield ""
        yield (
            "Time of day, delay, distance and the coordinates of both airports:"
            f" {r['n']:,} rows of 7 columns, {r['seconds']:.1f} s, {r['clusters']} clusters, log"
            f" joint {r['log_joint']:,.0f}, family {r['family']}, {r['peak']:,.0f} MiB."
        )
        r = run("some flights", 300_000, folder=data)
        times = " and ".join(
            f"{goal:,.0f} after {'no time' if seconds is None else f'{seconds:.0f} s'}"
            for goal, seconds in zip(FLIGHT_GOALS, r["reached"], strict=True)
        )
        yield ""
        yield (
            f"{r['n']:,} of them, standardised, with full covariances under given hyperparameters,"
            f" refined for {r['seconds']:.0f} s: log joint {r['log_joint']:,.0f} with"
            f" {r['clusters']} components; {times} (goals: 120 and 300 s)."
        )
    yield ""
    yield "## Other tools for tables of this size"
    yield ""
    yield (
        f"The same {middle:,} points, in memory. MiniBatchKMeans is given the true number of"
        f" clusters; BayesianGaussianMixture has {2 * K} components and sees {SAMPLED:,} points;"
        " MiniBatchDPMeans of pdc-dp-means is given twice the true within-cluster scatter as its"
        " threshold."
    )
    yield ""
    yield "| tool | seconds | clusters | ARI | peak MiB |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    ours = grown[middle]
    table = {
        "dpsearch, from Parquet": ours,
        f"MiniBatchKMeans, given K = {K}": run("minibatch", middle),
        "BayesianGaussianMixture on a sample": run("bayesian", middle),
    }
    if peers is not None:
        table["MiniBatchDPMeans"] = run("dp-means", middle, python=peers)
    for name, r in table.items():
        yield (
            f"| {name} | {r['seconds']:.1f} | {r['clusters']} | {r['ari']:.3f} | {r['peak']:,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--work", type=Path, help="where data and results are kept")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peers", help="a Python that has pdc-dp-means")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--points", type=int, default=0)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(CASES[given.case](given.work, given.points)))
        return
    with tempfile.TemporaryDirectory(prefix="dpsearch-") as temporary:
        work = given.work or Path(temporary)
        sizes = [10**4, 10**5] if given.quick else [10**5, 10**6, 10**7]
        text = "\n".join(page(sizes, work, given.data, given.peers)) + "\n"
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
