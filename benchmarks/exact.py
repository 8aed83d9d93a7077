"""Certificates: how long a proof takes, and how good search is where the optimum is known.

    python -m benchmarks.exact --data FOLDER [--out FILE.md] [--quick] [--long]

Times are those of `certify` alone, on one core, warm, from a searched and refined partition; for
the paper's 260 artificial sets from a searched one.  α = 1 throughout.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_iris

from benchmarks.exact_families import all_proved, distances, draw_gaps, table_of_proofs
from dpsearch import datasets, families, priors
from dpsearch.exact import Certificate, certify
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine
from dpsearch.samplers import gibbs, split_merge

DP = priors.DirichletProcess(1.0)
SIZES = (4, 6, 8, 10, 11, 12, 13, 14, 15, 20, 25, 30, 50)
SAMPLER_SWEEPS = 1000
EQUAL = 1e-6  # nats
MOST_STATES = 200_000


class Case(NamedTuple):
    name: str
    problems: list[Problem]
    limit: float  # seconds for each (for all, if `together`)
    tolerance: float = 1e-6
    together: bool = False


def gaussian(X: Any, noise: float, variance: float = 10.0, mean: float = 0.0) -> Problem:
    return Problem(X, families.Gaussian(mean, variance, noise), DP)


def draws(n: int, width: int, seeds: int) -> list[Problem]:
    out = []
    for seed in range(seeds):
        X, _ = datasets.dirichlet_process_draw(
            n, width, alpha=1.0, prior_variance=10.0, noise_variance=1.0, rng=[seed, n, width]
        )
        out.append(gaussian(X, 1.0))
    return out


def bernoulli(n: int, width: int, seeds: int, equal: bool = False) -> list[Problem]:
    """Bits from a Dirichlet process mixture with α = 1, or from five clusters of equal weight."""
    out = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        labels = rng.integers(5, size=n)
        if not equal:
            labels = datasets.dirichlet_process_draw(n, 1, alpha=1.0, rng=seed).labels
        chances = rng.beta(0.5, 0.5, size=(labels.max() + 1, width))[labels]
        X = (rng.random((n, width)) < chances).astype(float)
        out.append(Problem(X, families.Bernoulli(0.5, 0.5), DP))
    return out


def standardised(X: Any) -> Any:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def cases(folder: Path | None, quick: bool) -> list[Case]:
    seeds = 1 if quick else 5
    sets = [problem for width in (1, 2) for n in SIZES for problem in draws(n, width, 10)]
    found = [Case("the paper's 260 artificial sets, together", sets, 30.0, together=True)]
    path = None if folder is None else Path(folder) / "classic_dpm.npz"
    if path is None or not path.exists():
        print("Old Faithful and galaxies left out: give --data FOLDER with classic_dpm.npz")
    else:
        with np.load(path, allow_pickle=False) as entries:
            faithful = standardised(entries["faithful"].astype(float))
            galaxy = entries["galaxy_kms"].astype(float)[:, None] / 1000.0
        for noise in (1.0, 0.25, 0.1, 0.05):
            name = f"Old Faithful, standardised, noise {noise}"
            found.append(Case(name, [gaussian(faithful, noise)], 2.0))
        name = "galaxy velocities, 1000 km/s, prior mean 20, variance 25, noise 1"
        found.append(Case(name, [gaussian(galaxy, 1.0, 25.0, 20.0)], 0.05))
    iris = standardised(load_iris().data)
    found.append(Case("iris, 4 columns standardised, noise .3", [gaussian(iris, 0.3)], 20.0))
    found.append(Case("iris, 4 columns standardised, noise .2", [gaussian(iris, 0.2)], 60.0))
    found.append(Case("DP draws in the plane, N = 1000", draws(1000, 2, 2 * seeds), 5.0))
    found.append(Case("DP draws in the plane, N = 2000", draws(2000, 2, seeds), 20.0))
    found.append(
        Case("DP draws in the plane, N = 5000, gap ≤ 1e-4", draws(5000, 2, seeds), 60.0, 1e-4)
    )
    found.append(Case("DP draws, D = 3, N = 1000", draws(1000, 3, seeds), 20.0))
    found.append(Case("Bernoulli, N = 50, D = 16", bernoulli(50, 16, seeds), 10.0))
    hard = bernoulli(50, 16, seeds, equal=True)
    found.append(Case("the same, five clusters of equal weight", hard, 10.0))
    found.append(Case("one column, N = 100,000", draws(100_000, 1, 1), 1.5))
    return found


def prove(case: Case) -> tuple[str, list[Certificate]]:
    """Certify all problems of a case; return a row of the table, and the certificates."""
    certificates, times = [], []
    for problem in case.problems:
        start = search(problem, beam_size=1)
        if not case.together:
            start = refine(problem, start.labels, seconds=5.0, rng=0)
        begun = time.perf_counter()
        certificate = certify(
            problem,
            start.labels,
            time_limit=case.limit,
            tolerance=case.tolerance,
            polish=case.together,
        )
        times.append(time.perf_counter() - begun)
        certificates.append(certificate)
    proved = sum(certificate.optimal for certificate in certificates)
    spent = f"{sum(times):.2g}" if case.together else _spread(times)
    within = (sum(times) if case.together else max(times)) <= case.limit
    met = "met" if within and proved == len(times) else "missed"
    gap = max(certificate.gap for certificate in certificates)
    row = (
        f"| {case.name} | {proved} of {len(times)} | {spent} | {gap:.1e} | {case.limit:g}: {met} |"
    )
    print(row, flush=True)
    return row, certificates


def _spread(times: list[float]) -> str:
    if len(times) == 1:
        return f"{times[0]:.2g}"
    return f"{min(times):.2g} to {max(times):.2g}"


def beyond(quick: bool) -> list[str]:
    """What is out of reach ends with a gap, in time."""
    rows = []
    X, _ = datasets.planted_clusters(10_000, 10, 30, rng=0)
    problem = Problem(X, families.Gaussian(0.0, 9.0, 1.0), DP)
    start = search(problem, beam_size=1)
    for limit in (1.0,) if quick else (1.0, 30.0):
        begun = time.perf_counter()
        certificate = certify(problem, start.labels, time_limit=limit)
        seconds = time.perf_counter() - begun
        rows.append(f"| {limit:g} | {seconds:.1f} | {certificate.gap:,.0f} |")
    return rows


def states(quick: bool) -> list[str]:
    """States that best-first search enqueues under two admissible heuristics."""
    lines = [
        "| D | N | dual: median | most | admissible: median | most | stopped |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for width in (1, 2):
        for n in (8, 15) if quick else (8, 10, 15, 20, 25, 50):
            problems = draws(n, width, 5)
            dual = [search(p, heuristic="dual", beam_size=None).n_enqueued for p in problems]
            line = f"| {width} | {n} | {np.median(dual):,.0f} | {max(dual):,} |"
            if n > 25:
                lines.append(line + " not run | | |")
                continue
            other = [
                search(p, heuristic="admissible", beam_size=None, max_states=MOST_STATES)
                for p in problems
            ]
            enqueued = [result.n_enqueued for result in other]
            stopped = sum(not result.optimal for result in other)
            lines.append(
                line + f" {np.median(enqueued):,.0f} | {max(enqueued):,} | {stopped} of 5 |"
            )
            print(lines[-1], flush=True)
    return lines


METHODS: dict[str, Callable[[Problem], float]] = {
    "greedy search": lambda p: search(p, beam_size=1).log_joint,
    "beam 10": lambda p: search(p, beam_size=10).log_joint,
    "beam 100": lambda p: search(p, beam_size=100).log_joint,
    "search and refinement": lambda p: refine(
        p, search(p, beam_size=1).labels, rng=0
    ).log_joint,
    f"Gibbs, best of {SAMPLER_SWEEPS} sweeps from one cluster": lambda p: float(
        gibbs(p, draws=SAMPLER_SWEEPS, start="one", rng=0).trace.log_joint.max()
    ),
    f"split-merge 3, best of {SAMPLER_SWEEPS} sweeps from one cluster": lambda p: float(
        split_merge(p, draws=SAMPLER_SWEEPS, start="one", rng=0).trace.log_joint.max()
    ),
}  # fmt: skip


def how_good(groups: dict[str, list[Certificate]]) -> list[str]:
    lines = [
        "| sets | method | at the optimum | nats below when not: mean | most | seconds a set |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, certificates in groups.items():
        for method, solve in METHODS.items():
            begun = time.perf_counter()
            short = np.array([c.upper_bound - solve(c.problem) for c in certificates])
            seconds = (time.perf_counter() - begun) / len(certificates)
            missed = short[short > EQUAL + 1e-9 * abs(certificates[0].upper_bound)]
            mean = f"{missed.mean():.2g}" if len(missed) else "–"
            most = f"{missed.max():.3g}" if len(missed) else "–"
            reached = f"{len(short) - len(missed)} of {len(short)}"
            row = f"| {name} | {method} | {reached} | {mean} | {most} | {seconds:.2g} |"
            print(row, flush=True)
            lines.append(row)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="one draw of each kind")
    parser.add_argument("--long", action="store_true", help="also cases of ten minutes")
    arguments = parser.parse_args()
    for small in (*draws(30, 2, 1), *draws(30, 1, 1), *draws(30, 3, 1), *bernoulli(20, 4, 1)):
        for solve in METHODS.values():  # compiles
            solve(small)
        certify(small, np.arange(small.n_items) % 2)
        certify(small, np.arange(small.n_items) % 2, line=False)
    rows, proved = [], {}
    for case in cases(arguments.data, arguments.quick):
        row, certificates = prove(case)
        rows.append(row)
        proved[case.name] = [c for c in certificates if c.optimal]
    artificial = proved.pop("the paper's 260 artificial sets, together")
    groups = {
        "artificial, N ≤ 15": [c for c in artificial if c.problem.n_items <= 15],
        "artificial, N = 20 to 50": [c for c in artificial if c.problem.n_items > 15],
    }
    real = [c for name, found in proved.items() if "Old" in name or "iris" in name for c in found]
    groups["Old Faithful and iris"] = real
    groups["plane, N = 1000"] = proved["DP draws in the plane, N = 1000"]
    groups["D = 3, N = 1000"] = proved["DP draws, D = 3, N = 1000"]
    groups["Bernoulli, N = 50, D = 16"] = proved["Bernoulli, N = 50, D = 16"]
    by_terms = all_proved(arguments.data, quick=arguments.quick, long=arguments.long)
    if arguments.out:
        draw_gaps(by_terms, arguments.out.parent / "figures" / "exact_gaps.png")
    lines = [
        "# Certificates",
        "",
        "Written by `python -m benchmarks.exact`: one core, warm.",
        "",
        "| problem | proved | seconds each | largest gap | goal, seconds |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        "10,000 points in 10 dimensions are out of reach; what is proved is a gap, in nats:",
        "",
        "| time limit | seconds | gap |",
        "| --- | --- | --- |",
        *beyond(arguments.quick),
        "",
        "## Unknown variances, counts, categories",
        "",
        "Hyperparameters as `DPMixture` learns them, α = 1 unless said otherwise; a gap up to 1e-4"
        " nats counts as closed.",
        "",
        *table_of_proofs(by_terms),
        "",
        "![gap against time](figures/exact_gaps.png)",
        "",
        "Nats by which other methods end below the proved optimum, hyperparameters given:",
        "",
        *distances(by_terms, METHODS),
        "",
        "## A* with prices",
        "",
        "States enqueued by best-first search without a cap on the paper's artificial sets, five of"
        f" each size; `admissible` is stopped after {MOST_STATES:,} states.",
        "",
        *states(arguments.quick),
        "",
        "## How good is search?",
        "",
        "Against the optimum, where it is proved.",
        "",
        *how_good({name: found for name, found in groups.items() if found}),
        "",
    ]
    if arguments.out:
        arguments.out.write_text("\n".join(lines), encoding="utf-8")
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
