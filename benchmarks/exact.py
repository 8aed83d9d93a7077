"""Certificates: the time of proofs, and the quality of search where the optimum is known.

    python -m benchmarks.exact --data FOLDER --results FOLDER [--out FILE.md] [--quick] [--long]
        [--processes 8] [--limit SECONDS]

Each task writes its figures to a file of results.  The longest begin first, and finished ones are
not run again; the page is made from the files.  Tasks that would begin after the limit are left
for the next call.

Times are those of `certify` alone, on one core, warm, from a searched and refined partition; for
the paper's 260 artificial sets from a searched one.  α = 1 throughout.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_iris

from benchmarks.exact_families import (
    distances,
    draw_gaps,
    drawn_problems,
    learned_cases,
    prove_learned,
    table_of_proofs,
)
from benchmarks.exact_families import prove as prove_problem
from benchmarks.exact_methods import METHODS
from dpsearch import datasets, families, priors
from dpsearch.exact import certify
from dpsearch.prefix_search.search import search
from dpsearch.problem import Problem
from dpsearch.refinement import refine

DP = priors.DirichletProcess(1.0)
SIZES = (4, 6, 8, 10, 11, 12, 13, 14, 15, 20, 25, 30, 50)
EQUAL = 1e-6  # nats
MOST_STATES = 200_000


class Case(NamedTuple):
    name: str
    problems: list[Problem]
    limit: float  # seconds for each (for all, if `together`)
    tolerance: float = 1e-6
    together: bool = False
    group: str = ""  # of problems that other methods are tried on


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
    """Draw bits from a Dirichlet process mixture with α = 1, or from five equal clusters."""
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


def clouds(seeds: int) -> dict[str, Problem]:
    """Draw 500 points without clusters, normal and uniform, for a noise variance of 1."""
    out = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(500, 2))
        for scale in (1.0, 2.0, 3.0):
            out[f"normal cloud, deviation {scale:g}, draw {seed}"] = gaussian(scale * X, 1.0)
        X = rng.uniform(-6.0, 6.0, size=(500, 2))
        out[f"uniform cloud, draw {seed}"] = gaussian(X, 1.0)
    return out


def standardised(X: Any) -> Any:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def cases(folder: Path | None, quick: bool) -> list[Case]:
    seeds, real = (1 if quick else 5), "Old Faithful and iris"
    sets = [problem for width in (1, 2) for n in SIZES for problem in draws(n, width, 10)]
    found = [
        Case(
            "the paper's 260 artificial sets, together",
            sets,
            30.0,
            together=True,
            group="artificial",
        )
    ]
    path = None if folder is None else Path(folder) / "classic_dpm.npz"
    if path is None or not path.exists():
        print("Old Faithful and galaxies left out: give --data FOLDER with classic_dpm.npz")
    else:
        with np.load(path, allow_pickle=False) as entries:
            faithful = standardised(entries["faithful"].astype(float))
            galaxy = entries["galaxy_kms"].astype(float)[:, None] / 1000.0
        for noise in (1.0, 0.25, 0.1, 0.05):
            name = f"Old Faithful, standardised, noise {noise}"
            found.append(Case(name, [gaussian(faithful, noise)], 2.0, group=real))
        name = "galaxy velocities, 1000 km/s, prior mean 20, variance 25, noise 1"
        found.append(Case(name, [gaussian(galaxy, 1.0, 25.0, 20.0)], 0.05))
    iris = standardised(load_iris().data)
    found.append(
        Case("iris, 4 columns standardised, noise .3", [gaussian(iris, 0.3)], 20.0, group=real)
    )
    found.append(
        Case("iris, 4 columns standardised, noise .2", [gaussian(iris, 0.2)], 60.0, group=real)
    )
    found.append(
        Case(
            "DP draws in the plane, N = 1000",
            draws(1000, 2, 2 * seeds),
            5.0,
            group="plane, N = 1000",
        )
    )
    found.append(Case("DP draws in the plane, N = 2000", draws(2000, 2, seeds), 20.0))
    found.append(
        Case("DP draws in the plane, N = 5000, gap ≤ 1e-4", draws(5000, 2, seeds), 60.0, 1e-4)
    )
    found.append(
        Case("DP draws, D = 3, N = 1000", draws(1000, 3, seeds), 20.0, group="D = 3, N = 1000")
    )
    for name, cloud in clouds(1 if quick else 3).items():
        found.append(Case(f"{name}, N = 500, gap ≤ 1e-4", [cloud], 60.0, 1e-4))
    found.append(
        Case(
            "Bernoulli, N = 50, D = 16",
            bernoulli(50, 16, seeds),
            10.0,
            group="Bernoulli, N = 50, D = 16",
        )
    )
    hard = bernoulli(50, 16, seeds, equal=True)
    found.append(Case("the same, five clusters of equal weight", hard, 10.0))
    found.append(Case("one column, N = 100,000", draws(100_000, 1, 1), 1.5))
    return found


def prove(case: Case) -> dict[str, Any]:
    """Certify all problems of a case; return figures, and how far methods are from the optimum."""
    times, gaps, short = [], [], []
    for solve in METHODS.values() if case.group else ():  # compiles
        solve(draws(30, 2, 1)[0])
    for k, problem in enumerate(case.problems):
        start = search(problem, beam_size=1)
        if not case.together:
            start = refine(problem, start.labels, seconds=5.0, rng=0)
        if k == 0:
            certify(problem, start.labels, time_limit=0.5)  # compiles
        begun = time.perf_counter()
        certificate = certify(
            problem, start.labels, time_limit=case.limit, tolerance=case.tolerance,
            polish=case.together,
        )  # fmt: skip
        times.append(time.perf_counter() - begun)
        gaps.append(certificate.gap)
        if certificate.optimal and case.group:
            short += [_short(certificate.upper_bound, problem, name) for name in METHODS]
    return {"seconds": times, "gaps": gaps, "short": short}


def _short(upper: float, problem: Problem, method: str) -> dict[str, Any]:
    begun = time.perf_counter()
    below = upper - METHODS[method](problem)
    seconds, equal = time.perf_counter() - begun, EQUAL + 1e-9 * abs(upper)
    return {
        "method": method, "n": problem.n_items, "seconds": seconds,
        "below": below if below > equal else 0.0,
    }  # fmt: skip


def row_of(case: Case, found: dict[str, Any]) -> str:
    times, gaps = found["seconds"], found["gaps"]
    proved = sum(gap <= case.tolerance for gap in gaps)
    spent = f"{sum(times):.2g}" if case.together else _spread(times)
    within = (sum(times) if case.together else max(times)) <= case.limit
    met = "met" if within and proved == len(times) else "missed"
    return (
        f"| {case.name} | {proved} of {len(times)} | {spent} | {max(gaps):.1e} |"
        f" {case.limit:g}: {met} |"
    )


def _spread(times: list[float]) -> str:
    if len(times) == 1:
        return f"{times[0]:.2g}"
    return f"{min(times):.2g} to {max(times):.2g}"


def beyond(limit: float) -> str:
    """Certify problems that are out of reach, which must end in time with a gap."""
    X, _ = datasets.planted_clusters(10_000, 10, 30, rng=0)
    problem = Problem(X, families.Gaussian(0.0, 9.0, 1.0), DP)
    start = search(problem, beam_size=1)
    certify(problem, start.labels, time_limit=0.5)  # compiles
    begun = time.perf_counter()
    certificate = certify(problem, start.labels, time_limit=limit)
    seconds = time.perf_counter() - begun
    return f"| {limit:g} | {seconds:.1f} | {certificate.gap:,.0f} |"


def states(width: int, n: int) -> str:
    """Count the states that best-first search enqueues under two admissible heuristics."""
    problems = draws(n, width, 5)
    dual = [search(p, heuristic="dual", beam_size=None).n_enqueued for p in problems]
    line = f"| {width} | {n} | {np.median(dual):,.0f} | {max(dual):,} |"
    if n > 25:
        return line + " not run | | |"
    other = [
        search(p, heuristic="admissible", beam_size=None, max_states=MOST_STATES) for p in problems
    ]
    enqueued = [result.n_enqueued for result in other]
    stopped = sum(not result.optimal for result in other)
    return line + f" {np.median(enqueued):,.0f} | {max(enqueued):,} | {stopped} of 5 |"


def how_good(groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| sets | method | at the optimum | nats below otherwise: mean | most | seconds per set |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in groups.items():
        for method in METHODS:
            own = [one for one in found if one["method"] == method]
            missed = np.array([one["below"] for one in own if one["below"] > 0.0])
            mean = f"{missed.mean():.2g}" if len(missed) else "–"
            most = f"{missed.max():.3g}" if len(missed) else "–"
            seconds = float(np.mean([one["seconds"] for one in own]))
            reached = f"{len(own) - len(missed)} of {len(own)}"
            lines.append(f"| {name} | {method} | {reached} | {mean} | {most} | {seconds:.2g} |")
    return lines


class Task(NamedTuple):
    """A section of the page, a line of it, and about the seconds that the line takes."""

    section: str
    name: str
    seconds: float

    def path(self, folder: Path) -> Path:
        return folder / f"{self.section}_{re.sub('[^a-z0-9]+', '_', self.name.lower())}.json"


def tasks(folder: Path | None, quick: bool, long: bool) -> list[Task]:
    out = [Task("case", c.name, c.limit * len(c.problems)) for c in cases(folder, quick)]
    out += [Task("beyond", f"{limit:g}", limit) for limit in ((1.0,) if quick else (1.0, 30.0))]
    for case in learned_cases(folder):
        if (long or not case.long) and not (quick and case.limit > 30.0):
            out.append(Task("learned", case.name, case.limit))
    for name, (_, limit) in drawn_problems(folder).items():
        if long or limit <= 60.0:
            out.append(Task("drawn", name, limit))
    sizes = (8, 15) if quick else (8, 10, 15, 20, 25, 50)
    out += [Task("states", f"{width} {n}", float(n)) for width in (1, 2) for n in sizes]
    return out


def run(task: Task, folder: Path | None, quick: bool, results: Path, until: float) -> str:
    """Do a task if there is time, and write its results."""
    if time.time() > until:
        return f"{task.name}: left for the next call"
    begun, name = time.perf_counter(), task.name
    found: Any
    if task.section == "case":
        found = prove(next(case for case in cases(folder, quick) if case.name == name))
    elif task.section == "beyond":
        found = beyond(float(name))
    elif task.section == "learned":
        found = prove_learned(next(case for case in learned_cases(folder) if case.name == name))
    elif task.section == "drawn":
        problem, limit = drawn_problems(folder)[name]
        found = prove_problem(problem, np.zeros(problem.n_items, np.int64), limit, limit)
    else:
        found = states(*map(int, name.split()))
    path = task.path(results)
    path.with_suffix(".part").write_text(json.dumps(found))
    path.with_suffix(".part").replace(path)
    return f"{name}: {time.perf_counter() - begun:.1f} s"


def page(found: dict[Task, Any], all_cases: list[Case]) -> list[str]:
    of = {
        section: {task.name: one for task, one in found.items() if task.section == section}
        for section in ("case", "beyond", "learned", "drawn", "states")
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in all_cases:
        for one in of["case"].get(case.name, {}).get("short", []):
            group = case.group
            if group == "artificial":
                group += ", N ≤ 15" if one["n"] <= 15 else ", N = 20 to 50"
            groups.setdefault(group, []).append(one)
    by_terms = {**of["learned"], **of["drawn"]}
    return [
        "# Certificates",
        "",
        "Written by `python -m benchmarks.exact`, with one core for each line, after the kernels"
        " were compiled.",
        "",
        "| problem | proved | seconds per problem | largest gap | goal, seconds |",
        "| --- | --- | --- | --- | --- |",
        *(row_of(case, of["case"][case.name]) for case in all_cases if case.name in of["case"]),
        "",
        "10,000 points in 10 dimensions cannot be proved; the gap that is left is in nats:",
        "",
        "| time limit | seconds | gap |",
        "| --- | --- | --- |",
        *of["beyond"].values(),
        "",
        "## Unknown variances, counts, categories",
        "",
        "The hyperparameters are those that `DPMixture` learns, and α = 1 unless stated otherwise;"
        " a gap of up to 1e-4 nats counts as closed.",
        "",
        *table_of_proofs(by_terms),
        "",
        "![gap against time](figures/exact_gaps.png)",
        "",
        "The table shows by how many nats other methods end below the proved optimum, with the same"
        " hyperparameters:",
        "",
        *distances(by_terms),
        "",
        "## A* with prices",
        "",
        "The table shows the number of states that best-first search enqueues, with no limit on the"
        " queue, on the paper's artificial sets, five of each size; `admissible` is stopped after"
        f" {MOST_STATES:,} states.",
        "",
        "| D | N | dual: median | most | admissible: median | most | stopped |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *of["states"].values(),
        "",
        "## How good is search?",
        "",
        "Methods are compared with the optimum, where it is proved.",
        "",
        *how_good(groups),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--results", type=Path, default=Path("exact-results"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="one draw of each kind")
    parser.add_argument("--long", action="store_true", help="also cases of ten minutes")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds to begin tasks in")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    everything = tasks(given.data, given.quick, given.long)
    missing = [task for task in everything if not task.path(given.results).exists()]
    os.environ.update(OPENBLAS_NUM_THREADS="1", NUMBA_NUM_THREADS="1", OMP_NUM_THREADS="1")
    fresh = multiprocessing.get_context("spawn")
    until = time.time() + given.limit
    with ProcessPoolExecutor(given.processes, fresh, max_tasks_per_child=1) as pool:
        futures = [
            pool.submit(run, task, given.data, given.quick, given.results, until)
            for task in sorted(missing, key=lambda task: -task.seconds)
        ]
        for future in futures:
            print(future.result(), flush=True)
    found = {
        task: json.loads(task.path(given.results).read_text())
        for task in everything
        if task.path(given.results).exists()
    }
    lines = page(found, cases(given.data, given.quick))
    if given.out is None:
        print("\n".join(lines))
        return
    given.out.write_text("\n".join(lines), encoding="utf-8")
    by_terms = {t.name: one for t, one in found.items() if t.section in ("learned", "drawn")}
    draw_gaps(by_terms, given.out.parent / "figures" / "exact_gaps.png")


if __name__ == "__main__":
    main()
