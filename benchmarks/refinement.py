"""Refinement compared with its goals and with other ways to a good partition, in one run.

    python -m benchmarks.refinement --data FOLDER [--out FILE.md] [--quick]

The objective is the negative log joint under the true p(c), α = 1, multinomial coefficients
included.  Refinement's times count from the data: they include the search that it starts from.
Kernels are compiled beforehand.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from dpsearch import datasets, families, priors
from dpsearch._types import Labels
from dpsearch.prefix_search.greedy import greedy
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.samplers.chain import Chain
from dpsearch.samplers.moves import GibbsSweep
from dpsearch.state import State
from studies.reproduction.data import mnist_or_embedded, paper_documents

DP = priors.DirichletProcess(1.0)


class Case(NamedTuple):
    name: str
    X: Any
    family: families.Family
    goals: list[tuple[float, float]]  # (seconds, negative log joint)


def cases(folder: Path | None) -> list[Case]:
    found = []
    digits = mnist_or_embedded(folder)
    X = datasets.whitened(digits.images)
    gaussian = families.Gaussian(0.0, 0.1, 1.0)
    if len(X) == 60_000:
        rows = np.random.default_rng(0).permutation(60_000)[:3000]
        found.append(Case("3,000 of MNIST", X[rows], gaussian, [(3.0, 2.066e5)]))
        found.append(Case("MNIST 60,000", X, gaussian, [(30.0, 3.953e6), (120.0, 3.950e6)]))
    else:
        found.append(Case("3,000 digits", X, gaussian, [(3.0, np.inf)]))
    documents = paper_documents(folder)
    if documents is None:
        print("NIPS left out: give --data FOLDER with nips12.npz")
    else:
        goals = [(5.0, 2.356e6), (30.0, 2.3525e6)]
        found.insert(1, Case("NIPS", documents.counts, families.Multinomial(10.0), goals))
    return found


def swept(problem: Problem, labels: Labels, most: int = 30) -> float:
    """Return the log joint after reassignment sweeps until nothing moves."""
    state = State(problem, labels)
    everything = np.arange(problem.n_items)
    for _ in range(most):
        if state.sweep(everything) == 0:
            break
    return state.log_joint


def best_of_gibbs(problem: Problem, labels: Labels, seconds: float) -> tuple[float, int]:
    """Return the best log joint that a chain visits in the given time, and its sweeps."""
    chain = Chain(problem, labels, [GibbsSweep()], np.random.default_rng(0))
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        chain.advance(chain.n_sweeps + 1, np.zeros(chain.n_sweeps + 1, np.bool_))
    return float(chain.recorded("log_joint").max()), chain.n_sweeps


def run_case(case: Case, n_jobs: int, quick: bool) -> list[str]:
    problem = Problem(case.X, case.family, DP)
    small = Problem(case.X[:200], case.family, DP)
    refine(small, np.zeros(200, np.int64), seconds=1.0)  # compiles
    swept(small, np.zeros(200, np.int64))
    best_of_gibbs(small, np.zeros(200, np.int64), 0.0)
    rows = []

    def add(method: str, seconds: str, value: float, n_clusters: str = "", goal: str = "") -> None:
        rows.append(f"| {method} | {seconds} | {n_clusters} | {-value:,.0f} | {goal} |")

    begun = time.perf_counter()
    start = search(problem, beam_size=1)
    searched = time.perf_counter() - begun
    add("greedy search", f"{searched:.2f}", start.log_joint, str(start.n_clusters))
    goals = case.goals[:1] if quick else case.goals
    longest = goals[-1][0] - searched
    result = refine(problem, start.labels, seconds=longest, rng=0, n_jobs=n_jobs)
    for seconds, goal in goals:
        points = [p for p in result.trace if p.seconds + searched <= seconds and p.step != "end"]
        best = max(points, key=lambda p: p.log_joint)
        met = f"≤ {goal:,.0f}: {'met' if -best.log_joint <= goal else 'missed'}"
        add("search and refinement", f"{seconds:.0f}", best.log_joint, str(best.n_clusters), met)

    def against(method: str, seconds: float, value: float) -> None:
        """Return a row for another method, with the time that refinement took to do better."""
        times = [p.seconds + searched for p in result.trace if p.log_joint > value]
        passed = f"refinement is there after {times[0]:.2f} s" if times else "not reached"
        add(method, f"{seconds:.2f}", value, goal=passed)

    for k in (30, 100, 300, 1000):
        if k < problem.n_items / 2:
            begun = time.perf_counter()
            labels = KMeans(k, n_init=1, random_state=0).fit_predict(case.X)
            _, labels = np.unique(labels, return_inverse=True)
            value = swept(problem, labels)
            against(f"k-means, K = {k}, and sweeps", time.perf_counter() - begun, value)
    begun = time.perf_counter()
    rng = np.random.default_rng(0)
    n_orders = 3 if quick else 20
    orders = [placing_order(problem, "random", rng) for _ in range(n_orders)]
    value = max(swept(problem, greedy(problem, order)) for order in orders)
    seconds = time.perf_counter() - begun
    against(f"best of {n_orders} random orders, each with sweeps", seconds, value)
    budget = case.goals[0][0]
    value, n_sweeps = best_of_gibbs(problem, start.labels, budget)
    against(f"collapsed Gibbs from search, {n_sweeps} sweeps", budget, value)

    order = placing_order(problem, "ascending", rng)
    state = State(problem, greedy(problem, order))
    one_pass = min(_timed(lambda: greedy(problem, order)) for _ in range(5))
    one_sweep = min(_timed(lambda: state.sweep(np.arange(problem.n_items))) for _ in range(5))
    ratio = f"{one_sweep / one_pass:.2f}×"
    rows.append(f"| one sweep, in greedy passes, K ≈ {state.n_live} | {ratio} | | | ≤ 2.5 |")
    return rows


def _timed(function: Any) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="first goals only")
    arguments = parser.parse_args()
    lines = ["# Refinement", "", "Written by `python -m benchmarks.refinement`.", ""]
    for case in cases(arguments.data):
        table = [
            f"## {case.name}",
            "",
            "| method | seconds | clusters | −log joint | goal, or comparison |",
            "| --- | --- | --- | --- | --- |",
            *run_case(case, arguments.jobs, arguments.quick),
            "",
        ]
        print("\n".join(table), flush=True)
        lines += table
    if arguments.out:
        arguments.out.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
