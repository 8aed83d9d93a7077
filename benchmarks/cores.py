"""How fits and refinement gain from cores: the same work on 1, 2, 4, … threads.

    python -m benchmarks.cores [--data FOLDER] [--rows N] [--threads T …] [--seconds S]
                               [--repeats R] [--out FILE.md]

1. `DPMixture` with its defaults on the planted table of `benchmarks.scale`.
2. The same with the family, its hyperparameters and α given, and components as clusters: the batch
   search, and little beside it.
3. `refine` of MNIST, 60,000 × 50, isotropic, for the given seconds; left out without `--data`.

The same seed gives the same result for any number of threads, which is checked.  Times are wall
times; kernels are compiled beforehand.  For each phase the page has the cores it kept busy: its
processor time divided by its wall time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.scale import D, K, in_memory
from dpsearch import DPMixture, datasets, families, priors, refine, search
from dpsearch.events import Event
from dpsearch.problem import Problem
from studies.reproduction.data import load_mnist

READING = "reading"
GOALS = (3.953e6, 3.950e6)  # negative log joints of MNIST


class Spent(NamedTuple):
    """Wall time, and processor time of all threads together."""

    seconds: float
    processor: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.seconds - other.seconds, self.processor - other.processor)

    def __str__(self) -> str:
        busy = self.processor / max(self.seconds, 1e-9)
        return f"{self.seconds:.2f} ({busy:.1f})"


def now() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


class Phases:
    """The times of the phases of a fit, by the events that it reports."""

    def __init__(self) -> None:
        self.begun = now()
        self.marks = [(READING, self.begun)]

    def __call__(self, event: Event) -> None:
        if event.phase != self.marks[-1][0]:
            self.marks.append((event.phase, now()))

    def taken(self) -> dict[str, Spent]:
        """Return the time of each phase so far, and their sum."""
        found: dict[str, Spent] = {}
        end = now()
        after = [mark for _, mark in self.marks[1:]] + [end]
        for (name, mark), then in zip(self.marks, after, strict=True):
            before = found.get(name, Spent(0.0, 0.0))
            took = then - mark
            found[name] = Spent(before.seconds + took.seconds, before.processor + took.processor)
        return found | {"all": end - self.begun}


class Fit(NamedTuple):
    phases: dict[str, Spent]
    model: Any

    @property
    def seconds(self) -> float:
        return self.phases["all"].seconds


def fitted(make: Callable[[int], Any], X: Any, n_threads: int, repeats: int) -> Fit:
    """Return the fastest of several fits."""
    found = []
    for _ in range(repeats):
        with threadpool_limits(n_threads):
            phases = Phases()
            model = make(n_threads).fit(X, callback=phases)
            found.append(Fit(phases.taken(), model))
    return min(found, key=lambda one: one.seconds)


def fits(
    title: str, make: Callable[[int], Any], X: Any, threads: Sequence[int], repeats: int
) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    results = {}
    for n in threads:
        results[n] = fitted(make, X, n, repeats)
        print(title, n, {k: str(v) for k, v in results[n].phases.items()}, flush=True)
    first = results[threads[0]]
    names = list(first.phases)
    yield f"| threads | speedup | {' | '.join(names)} |"
    yield "| ---: " * (len(names) + 2) + "|"
    for n, one in results.items():
        cells = [str(one.phases.get(name, "")) for name in names]
        yield f"| {n} | {first.seconds / one.seconds:.1f} | {' | '.join(cells)} |"
    same = all(
        one.model.log_joint_ == first.model.log_joint_
        and np.array_equal(one.model.labels_, first.model.labels_)
        for one in results.values()
    )
    yield ""
    yield (
        f"{first.model.n_clusters_} clusters, log joint {first.model.log_joint_:,.1f};"
        f" {'the same' if same else 'NOT the same'} with every number of threads."
    )


def refinement(X: Any, threads: Sequence[int], seconds: float) -> Iterator[str]:
    problem = Problem(X, families.Gaussian(0.0, 0.1, 1.0), priors.DirichletProcess(1.0))
    refine(problem, np.arange(len(X)) % 2, seconds=1.0, rng=0)  # compiles
    start = search(problem, beam_size=1)
    traces = {}
    for n in threads:
        with threadpool_limits(n):
            begun = now()
            found = refine(problem, start.labels, seconds=seconds, rng=0, n_jobs=n)
        traces[n] = found.trace
        print(f"refinement {n}: {found.log_joint:,.0f}, {now() - begun}", flush=True)
    last = max(point.log_joint for point in traces[threads[0]])
    goals = [-goal for goal in GOALS if -goal <= last] + [last]
    yield f"## Refinement of MNIST, {len(X):,} × {X.shape[1]}, isotropic"
    yield ""
    yield (
        f"Refinement starts from greedy search and runs for {seconds:.0f} s with each number of"
        " threads. The columns have the seconds after which the negative log joint was as low as in"
        " the header; the last of these values is the one with which the first row ends."
    )
    yield ""
    columns = [f"{-goal:,.0f} | speedup" for goal in goals]
    yield f"| threads | ends with | {' | '.join(columns)} |"
    yield "| ---: " * (2 * len(goals) + 2) + "|"
    base = [reached(traces[threads[0]], goal) for goal in goals]
    for n, trace in traces.items():
        times = [reached(trace, goal) for goal in goals]
        cells = [f"{t:.1f} | {b / t:.1f}" for t, b in zip(times, base, strict=True)]
        end = max(point.log_joint for point in trace)
        yield f"| {n} | {-end:,.0f} | {' | '.join(cells)} |"


def reached(trace: Sequence[Event], goal: float) -> float:
    """Return the seconds until the log joint reached a value; infinity if it never did."""
    return next((p.seconds for p in trace if p.log_joint >= goal - 1e-9 * abs(goal)), np.inf)


def page(given: argparse.Namespace) -> Iterator[str]:
    cores = os.cpu_count() or 1
    threads = given.threads or [n for n in (1, 2, 4, 8, 16) if n <= cores]
    X = in_memory(given.rows)
    yield "# Cores"
    yield ""
    yield (
        f"Written by `python -m benchmarks.cores` on {cores} cores, with {given.rows:,} × {D}"
        f" values from {K} planted Gaussian clusters, each with its own covariance. Times are"
        " wall-clock seconds; the mean number of busy cores is in brackets (processor time by"
        " wall-clock time). Kernels were compiled beforehand."
    )
    yield ""

    def by_default(n: int) -> Any:
        return DPMixture(n_jobs=n, random_state=0)

    learned = by_default(cores).fit(X)  # compiles as well
    family, alpha = learned.family_, learned.alpha_

    def with_family(n: int) -> Any:
        return DPMixture(family, alpha, level="components", n_jobs=n, random_state=0)

    yield from fits("A fit with default options", by_default, X, threads, given.repeats)
    yield ""
    title = "A fit with given family, hyperparameters and α, and components as clusters"
    yield from fits(title, with_family, X, threads, given.repeats)
    digits = load_mnist(given.data)
    if digits is None:
        print("MNIST is left out: give --data FOLDER with mnist_train.npz")
        return
    yield ""
    yield from refinement(datasets.whitened(digits.images), threads, given.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("DPSEARCH_DATA"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, nargs="+", help="by default 1, 2, 4, … 16")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each refinement")
    parser.add_argument("--repeats", type=int, default=1, help="fits, of which the fastest counts")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = "\n".join(page(given)) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
