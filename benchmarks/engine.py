"""Speed of the engine, as ratios to what cannot be avoided, measured in one run on one thread.

    python -m benchmarks.engine [--data FOLDER] [--out FILE.md]

The yardstick of a greedy pass is one N×D by D×K matrix product with the final K.  Each time is
the smallest of several runs, since machines are shared and noisy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dpsearch import datasets, families, particle_filter, priors, search
from dpsearch.prefix_search.beam import beam
from dpsearch.prefix_search.greedy import greedy
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.problem import Problem
from dpsearch.samplers.particle_state import Filter
from dpsearch.samplers.particles import _run
from studies.reproduction.data import mnist_or_embedded, paper_documents

DP = priors.DirichletProcess(1.0)
Row = tuple[str, str, str]


def fastest(function: Callable[[], Any], repeats: int = 7) -> float:
    """Return the smallest wall time of several runs, after one that compiles and warms up."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return min(times)


def greedy_against_product(n: int, width: int, n_clusters: int, wanted: str) -> Row:
    X, _ = datasets.planted_clusters(n, width, n_clusters, rng=0)
    problem = Problem(X, families.Gaussian(0.0, 9.0, 1.0), DP)
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    found = int(greedy(problem, order).max()) + 1
    centres = np.random.default_rng(1).normal(size=(found, width))
    seconds = fastest(lambda: greedy(problem, order), 15)
    product = fastest(lambda: X @ centres.T, 15)
    what = f"greedy pass, {n:,}×{width}, {found} clusters, in matrix products"
    return what, f"{seconds / product:.2f}× ({1e3 * seconds:.1f} ms)", wanted


def search_against_product(n: int, width: int, n_clusters: int, wanted: str) -> Row:
    """Time the public call, which checks the data and computes the final value."""
    X, _ = datasets.planted_clusters(n, width, n_clusters, rng=0)
    family = families.Gaussian(0.0, 9.0, 1.0)
    found = search(X, family, DP, beam_size=1, order="given").n_clusters
    centres = np.random.default_rng(1).normal(size=(found, width))
    seconds = fastest(lambda: search(X, family, DP, beam_size=1, order="given"), 15)
    product = fastest(lambda: X @ centres.T, 15)
    what = f"search(X, family, prior) of a beam of 1, {n:,}×{width}, {found} clusters, the same"
    return what, f"{seconds / product:.2f}× ({1e3 * seconds:.1f} ms)", wanted


def beam_against_greedy(X: Any) -> Row:
    problem = Problem(X, families.Gaussian(0.0, 0.1, 1.0), DP)
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    one = fastest(lambda: greedy(problem, order), 9)
    hundred = fastest(lambda: beam(problem, order, 100), 5)
    what = f"beam of 100 on MNIST {len(X):,}×50, in greedy passes"
    return what, f"{hundred / one:.1f}× ({hundred:.2f} s against {1e3 * one:.1f} ms)", "≤ 30"


def particles_against_greedy(X: Any, resampling: str) -> Row:
    """The yardstick is one matrix product of the points with the average number of clusters."""
    family = families.Gaussian(0.0, 0.1, 1.0)
    particle_filter(X[:200], family, DP, resampling=resampling, rng=0)  # to compile
    problem = Problem(X, family, DP)
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    one = fastest(lambda: greedy(problem, order), 9)
    state = Filter(problem, 1000, resampling, order, 0, np.random.default_rng(0))
    numbers: list[int] = []
    begun = time.perf_counter()
    _run(state, lambda _: numbers.append(len(state.shared.rows_in_use())), begun)
    seconds = time.perf_counter() - begun
    clusters = np.random.default_rng(0).normal(size=(int(np.mean(numbers)), X.shape[1]))
    product = fastest(lambda: X[:1000] @ clusters.T) * len(X) / 1000
    what = f"1,000 particles on MNIST {len(X):,}×50, {resampling}, in greedy passes"
    ratio = f"{seconds / one:.0f}× ({seconds:.1f} s; one product with"
    return what, f"{ratio} {len(clusters):,} distinct clusters {product / one:.0f}×)", "≤ 40"


def count_vectors(X: Any, counts: Any) -> list[Row]:
    """Time search under the paper's own p(c), completed greedily for every successor."""
    prior = priors.AntoniakCounts(1.0)
    problem = Problem(X, families.Gaussian(0.0, 0.1, 1.0), prior)
    cases = [(problem, 10, "MNIST", "≤ 2 s"), (problem, 100, "MNIST", "≤ 15 s")]
    if counts is not None:
        documents = Problem(counts, families.Multinomial(10.0), prior)
        cases.append((documents, 100, "NIPS", "≤ 0.3 s"))
    rows = []
    for problem, beam_size, name, wanted in cases:
        order = placing_order(problem, "ascending", np.random.default_rng(0))
        seconds = fastest(lambda p=problem, o=order, b=beam_size: beam(p, o, b), 1)
        rows.append((f"beam of {beam_size} on {name} under P(m)", f"{seconds:.2f} s", wanted))
    return rows


def growth() -> Row:
    times = []
    for n in (60_000, 600_000):
        X, _ = datasets.planted_clusters(n, 50, 27, rng=0)
        problem = Problem(X, families.Gaussian(0.0, 9.0, 1.0), DP)
        order = placing_order(problem, "ascending", np.random.default_rng(0))
        times.append(fastest(lambda p=problem, o=order: greedy(p, o), 5))
    what = "600,000 points against 60,000, 27 clusters"
    return what, f"{times[1] / times[0]:.1f}×", "≤ 12"


def nips(counts: Any) -> list[Row]:
    problem = Problem(counts, families.Multinomial(10.0), DP)
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    seconds = fastest(lambda: greedy(problem, order))
    labels = greedy(problem, order)
    return [
        ("NIPS greedy pass (the paper: 21 s)", f"{seconds:.3f} s", "< 0.1 s"),
        (
            "NIPS greedy ascending, negative log joint (the paper: 2.4407e6)",
            f"{-problem.log_joint(labels):,.0f} in {labels.max() + 1} clusters",
            "≤ 2,443,000",
        ),
    ]


def process_seconds(code: str, cache: str) -> tuple[float, float]:
    """Return wall and processor time of a new Python process with its own cache of kernels."""
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    begun, used = time.perf_counter(), os.times()
    subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    after = os.times()
    processor = after.children_user + after.children_system
    return time.perf_counter() - begun, processor - used.children_user - used.children_system


def cold_and_warm() -> list[Row]:
    fit = (
        "import numpy as np; from dpsearch import DPMixture;"
        "DPMixture().fit(np.random.default_rng(0).normal(size=(200, 3)))"
    )
    demo = (
        "from pathlib import Path; from rich.console import Console; import tempfile;"
        "from dpsearch.demo import run_demo;"
        "run_demo(Path(tempfile.mkdtemp()), Console(quiet=True))"
    )
    with tempfile.TemporaryDirectory() as cache:
        _, first = process_seconds(fit, cache)
        _, second = process_seconds(fit, cache)
        process_seconds(demo, cache)
        warm = min(process_seconds(demo, cache)[0] for _ in range(3))
    what = "first fit of all, empty kernel cache, processor time beyond that of the second"
    return [
        (what, f"{first - second:.1f} s", "≤ 8 s"),
        ("demo in a warm process, import to picture", f"{warm:.1f} s", "≤ 4 s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = []
    with threadpool_limits(1):
        rows.append(greedy_against_product(60_000, 50, 27, "≤ 3"))
        rows.append(search_against_product(60_000, 50, 27, "≤ 3"))
        rows.append(greedy_against_product(20_000, 400, 60, "≤ 1.5"))
        rows.append(greedy_against_product(60_000, 8, 26, ""))
        rows.append(growth())
        mnist = mnist_or_embedded(arguments.data)
        digits = datasets.whitened(mnist.images)
        rows.append(beam_against_greedy(digits))
        rows += [particles_against_greedy(digits, kind) for kind in ("stratified", "optimal")]
        counts = paper_documents(arguments.data)
        rows.extend(count_vectors(digits, None if counts is None else counts.counts))
        if counts is None:
            print("NIPS left out: give --data FOLDER with nips12.npz")
        else:
            rows.extend(nips(counts.counts))
    rows.extend(cold_and_warm())
    lines = ["# The engine", "", "Written by `python -m benchmarks.engine`.", ""]
    lines += ["| what | measured | target |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    text = "\n".join(lines)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
