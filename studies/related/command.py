"""`python -m studies related`: the paper's other systems, given the same times."""

from __future__ import annotations

import itertools
import json
import math
import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from studies.related.processes import Job, run_jobs
from studies.say import say

TIMES = (1, 10, 100)
_LEAST = 0.02  # seconds that a search counts for at least
_WARM, _TRIES = 0.3, 4  # seconds of a run that compiles, and how many such runs at most
_PATIENCE, _MORE = 2.0, 30.0  # a process is ended after so many times its limit, and seconds more
# What is known of a method that gave no result in that time.
NO_RESULT = {"log_joint": -math.inf, "held_out": -math.inf, "n_clusters": 0, "n_draws": 0,
             "seconds": math.nan, "effective": math.nan, "megabytes": math.nan}  # fmt: skip


class _Loaded(NamedTuple):
    """A set in memory."""

    name: str
    problem: Any
    small: Any
    fresh: Any


def _unit(one: _Loaded) -> float:
    """Return the seconds of a search with a beam of 10: the least of three runs."""
    from dpsearch import search

    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        search(one.problem)
        seconds.append(time.perf_counter() - begun)
    return max(min(seconds), _LEAST)


def _compiled(method: str, problems: list[Any], fresh: Any) -> bool:
    """Run a method until all its kernels are compiled, which takes longer than its limit."""
    from studies.related.methods import METHODS

    for problem in problems:
        for _ in range(_TRIES):
            begun = time.perf_counter()
            METHODS[method](problem, _WARM, fresh[:20], 1.0)
            if time.perf_counter() - begun < 3.0 * _WARM:
                break
    return True


def _measured(one: _Loaded, method: str, limit: float, unit: float) -> dict[str, Any]:
    """Run one method in this process, which has only the data."""
    from studies.related.methods import METHODS

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = METHODS[method](one.problem, limit, one.fresh, unit)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found._asdict() | {"megabytes": (after - before) / 1024.0}


class _Run:
    """Results by set and by method and time, kept in a file after each of them."""

    def __init__(self, kept: Path, times: tuple[int, ...], cap: float) -> None:
        self.kept, self.times, self.cap = kept, times, cap
        self.results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}

    def missing(self, name: str) -> list[tuple[str, int]]:
        from studies.related.methods import METHODS

        known = self.results.get(name, {})
        both = [(method, t) for t in self.times for method in METHODS]
        return [(method, t) for method, t in both if f"{method} {t}" not in known]

    def limit(self, name: str, t: int) -> float:
        return float(min(t * self.results[name]["unit"], self.cap))

    def jobs(self, sets: list[_Loaded]) -> list[Job]:
        """The missing runs, by increasing time limit, and the longest first for each limit."""
        wanted = [(one, method, t, self.limit(one.name, t)) for one in sets
                  for method, t in self.missing(one.name)]  # fmt: skip
        wanted.sort(key=lambda job: (job[2], -job[3]))
        return [
            Job(
                (one.name, method, t),
                partial(_measured, one, method, limit, self.results[one.name]["unit"]),
                _PATIENCE * limit + _MORE,
            )
            for one, method, t, limit in wanted
        ]

    def note(self, name: str, key: str, value: Any) -> None:
        self.results.setdefault(name, {})[key] = value
        new = self.kept.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1))
        new.replace(self.kept)


def _loaded(run: _Run, data: Path | None, quick: bool) -> Iterator[_Loaded]:
    """Yield the sets with missing results, with their place in the file."""
    from dpsearch import Problem, priors
    from studies.related.problems import sets

    prior = priors.DirichletProcess(1.0)
    for one in sets(data, quick):
        run.results.setdefault(one.name, {})
        if run.missing(one.name):
            X, fresh, family = one.halves()
            small = Problem(X[:200], family, prior)
            yield _Loaded(one.name, Problem(X, family, prior), small, fresh)


def related(
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("docs/related"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data.", envvar="DPSEARCH_DATA")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small sets, 1 and 10 times the search.")] = False,
    note: Annotated[str, typer.Option(help="A sentence about this run, for the page.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time, a core each.")] = 1,
    cap: Annotated[float, typer.Option(min=0.0, help="Most seconds for a method.")] = 60.0,
    minutes: Annotated[float, typer.Option(help="Stop after so many minutes.")] = math.inf,
    page: Annotated[
        Path | None, typer.Option(help="Run nothing: write the page of these results.")
    ] = None,
) -> None:
    """Compare search with samplers, particles and variational inference on one objective.

    Every method has 1, 10 and 100 times the time of a beam of 10, in a process of its own on one
    core.  Results are kept beside the page: the same command continues where it was stopped.
    """
    from threadpoolctl import threadpool_limits

    from studies.related.methods import METHODS
    from studies.related.page import write

    until = time.monotonic() + 60.0 * minutes
    out.mkdir(parents=True, exist_ok=True)
    run = _Run(page or out / "related.json", TIMES[:2] if quick else TIMES, cap)
    if page is None:
        with threadpool_limits(1):
            sets = list(_loaded(run, data, quick))
            largest = {type(one.problem.model.family): one
                       for one in sorted(sets, key=lambda one: one.problem.n_items)}  # fmt: skip
            calls = []
            for method, one in itertools.product(METHODS, largest.values()):
                # Refinement of many rows has kernels that few rows do not need.
                large = [one.problem] if method == "search and refinement" else []
                calls.append(partial(_compiled, method, [one.small, *large], one.fresh))
            # By many processes first, then from the cache, so that those forked later have it all.
            list(run_jobs([Job(None, call, math.inf) for call in calls], processes, until))
            for call in calls:
                if time.monotonic() < until:
                    call()
        say(f"{len(sets)} sets loaded, kernels compiled")
        units = [Job(one.name, partial(_unit, one), math.inf) for one in sets
                 if "unit" not in run.results[one.name]]  # fmt: skip
        for name, unit in run_jobs(units, processes, until):
            if unit is not None:
                run.note(name, "unit", unit)
        known = [one for one in sets if "unit" in run.results[one.name]]
        for (name, method, t), found in run_jobs(run.jobs(known), processes, until):
            found = (found or NO_RESULT) | {"limit": run.limit(name, t)}
            run.note(name, f"{method} {t}", found)
            say(f"{name}, {method}, {t}×: {found['log_joint']:,.1f},"
                f" {found['held_out']:.3f} a row in {found['seconds']:.2f} s")  # fmt: skip
    write(run.results, out, note)
