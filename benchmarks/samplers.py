"""Samplers: the cost of a Gibbs sweep, and what a start from search is worth.

    python -m benchmarks.samplers --data FOLDER [--out FOLDER] [--sweeps]

1. One Gibbs sweep over all of MNIST at K = 30, in greedy search passes and in seconds, and one
   Metropolis sweep in Gibbs sweeps; `--sweeps` prints that alone.
2. The paper's claim that search saves the sampler its burn-in: are chains that start from search
   after 10 sweeps at values that chains from one cluster, from N clusters and from log N random
   clusters do not reach after 100?  With greedy search, and with refinement (MNIST 5 %, NIPS).

Writes samplers.md and samplers.png.  Kernels are compiled beforehand.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from dpsearch import datasets, families, priors
from dpsearch.plots import COLOURS, new_axes, save_figure
from dpsearch.prefix_search.greedy import greedy
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.samplers import GibbsSweep, Move, SplitMerge, gibbs, metropolis, sample
from dpsearch.samplers.options import starting_labels
from studies.reproduction.data import mnist_or_embedded, paper_documents

DP = priors.DirichletProcess(1.0)
STARTS = {
    "refined": "search and refinement",
    "search": "search",
    "one": "one cluster",
    "all": "N clusters",
    "log": "log N random clusters",
}
SAMPLERS: dict[str, list[Move]] = {
    "Gibbs": [GibbsSweep()],
    "split-merge 3": [SplitMerge(moves=10), GibbsSweep()],
}
SWEEPS = 100
EARLY = 10
CHAINS = 3


def speed(X: Any) -> list[str]:
    problem = Problem(X, families.Gaussian(0.0, 0.1, 1.0), DP)
    order = placing_order(problem, "ascending", np.random.default_rng(0))
    labels = MiniBatchKMeans(30, n_init=1, random_state=0).fit_predict(X)
    _, labels = np.unique(labels, return_inverse=True)
    passes, sweeps, proposals = [], [], []
    for _ in range(7):
        begun = time.perf_counter()
        greedy(problem, order)
        passes.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        # New clusters appear quickly: few sweeps, so that K stays near 30.
        draws = gibbs(problem, draws=2, start=labels, rng=0)
        sweeps.append((time.perf_counter() - begun) / 2)
        begun = time.perf_counter()
        metropolis(problem, draws=2, start=labels, rng=0)
        proposals.append((time.perf_counter() - begun) / 2)
    ratio = min(sweeps) / min(passes)
    n, width = X.shape
    return [
        f"One Gibbs sweep over {n:,}×{width} values from K = 30 clusters (K ="
        f" {draws.n_clusters[-1]} after two): **{min(sweeps):.3f} s, {ratio:.2f} greedy search"
        f" passes** ({min(passes):.3f} s). The goal is 4 passes; the paper reports seven hours for"
        " one iteration.",
        "",
        f"One Metropolis sweep from the same clusters: **{min(proposals):.3f} s,"
        f" {min(proposals) / min(sweeps):.2f} Gibbs sweeps**. The goal is 2.",
        "",
    ]


def chains(name: str, problem: Problem, seconds_to_refine: float, axis: Any) -> list[str]:
    found = search(problem, beam_size=1)
    refined = refine(problem, found.labels, seconds=seconds_to_refine, rng=0)
    lines = [
        f"## {name}",
        "",
        f"The values are negative log joints: the best that any of {CHAINS} chains of a kind"
        f" visited. Refinement took {seconds_to_refine:.0f} s.",
        "",
        "| sampler | start | at the start | within 10 sweeps | within 100 | seconds for 100 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    verdicts = []
    for row, (sampler, moves) in enumerate(SAMPLERS.items()):
        early, late = {}, {}
        for colour, (start, words) in zip(COLOURS, STARTS.items(), strict=False):
            begun = time.perf_counter()
            first_labels = refined if start == "refined" else start
            result = sample(problem, moves, draws=SWEEPS, chains=CHAINS, rng=0, start=first_labels)
            seconds = (time.perf_counter() - begun) / CHAINS
            values = -result.trace.log_joint
            first = -refined.log_joint
            if start != "refined":
                first = -max(_first(problem, start, chain) for chain in range(CHAINS))
            at_early, at_late = values[:, :EARLY].min(axis=1), values.min(axis=1)
            if start in ("search", "refined"):
                early[words] = at_early.max()
            else:
                late[words] = at_late.min()
            lines.append(
                f"| {sampler} | {words} | {first:,.0f} | {at_early.min():,.0f} |"
                f" {at_late.min():,.0f} | {seconds:.1f} |"
            )
            style = "-" if row == 0 else "--"
            axis.plot(
                np.arange(1, SWEEPS + 1), values.min(axis=0), style, color=colour,
                label=f"{sampler}, from {words}", linewidth=1.5,
            )  # fmt: skip
        for begin, reached in early.items():
            passed = [words for words, value in late.items() if value <= reached]
            verdicts.append(
                f"- {sampler}: the worst chain from {begin} has reached {reached:,.0f} within"
                f" {EARLY} sweeps; within {SWEEPS} sweeps this value is reached by"
                f" {'chains from ' + ', '.join(passed) if passed else 'no chain from elsewhere'}."
            )
    axis.set_title(name)
    axis.set_xscale("log")
    axis.set_xlabel("sweeps")
    axis.set_ylabel("negative log joint")
    axis.spines[["top", "right"]].set_visible(False)
    return [*lines, "", *verdicts, ""]


def _first(problem: Problem, start: str, chain: int) -> float:
    labels = starting_labels(problem, start, chain, np.random.default_rng(chain))
    return problem.log_joint(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    parser.add_argument("--sweeps", action="store_true", help="print the cost of sweeps alone")
    arguments = parser.parse_args()
    digits = mnist_or_embedded(arguments.data)
    X = datasets.whitened(digits.images)
    gaussian = families.Gaussian(0.0, 0.1, 1.0)
    small = Problem(X[:200], gaussian, DP)  # to compile
    gibbs(small, draws=2, rng=0)
    metropolis(small, draws=2, rng=0)
    if arguments.sweeps:
        print("\n".join(speed(X)))
        return
    refine(small, greedy(small, np.arange(200)), seconds=1.0)
    lines = ["# Samplers", "", "Written by `python -m benchmarks.samplers`.", "", *speed(X)]
    some = X[np.random.default_rng(0).permutation(len(X))[:3000]]
    problems = {"MNIST 5 %, 3,000 digits": Problem(some, gaussian, DP)}
    documents = paper_documents(arguments.data)
    if documents is None:
        print("NIPS left out: give --data FOLDER with nips12.npz")
    else:
        family = families.Multinomial(10.0)
        problems["NIPS, 1,740 documents"] = Problem(documents.counts, family, DP)
    axes = new_axes(1, len(problems), (6.0 * len(problems), 4.5))[0]
    for axis, (name, problem) in zip(axes, problems.items(), strict=True):
        lines += chains(name, problem, 3.0 if name.startswith("MNIST") else 5.0, axis)
        print("\n".join(lines), flush=True)
    axes[0].legend(frameon=False, fontsize="small")
    save_figure(axes[0].figure, arguments.out / "samplers.png", dpi=110)
    lines += ["![Negative log joint by sweep, for each start](samplers.png)", ""]
    (arguments.out / "samplers.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
