"""`python -m studies related`: the paper's other systems, given the same times."""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from studies.say import say

TIMES = (1, 10, 100)
_LEAST = 0.02  # seconds that a search counts for at least
_STATE: dict[str, Any] = {}


def _measure(job: tuple[str, float, float]) -> dict[str, Any]:
    """Run one method in a process of its own, which has seen nothing but the data."""
    from studies.related.methods import METHODS

    method, limit, unit = job
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = METHODS[method](_STATE["problem"], limit, _STATE["fresh"], unit)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found._asdict() | {"megabytes": (after - before) / 1024.0}


def related(
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("docs/related"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data.", envvar="DPSEARCH_DATA")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small sets, 1 and 10 times the search.")] = False,
    note: Annotated[str, typer.Option(help="A sentence about this run, for the page.")] = "",
) -> None:
    """Compare search with samplers, particles and variational inference on one objective.

    Every method has 1, 10 and 100 times the time of a beam of 10.  Results are kept beside the
    page: the same command continues where it was stopped.
    """
    from threadpoolctl import threadpool_limits

    from dpsearch import Problem, priors, search
    from studies.related.methods import METHODS
    from studies.related.page import write
    from studies.related.problems import sets

    out.mkdir(parents=True, exist_ok=True)
    kept = out / "related.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    times = TIMES[:2] if quick else TIMES
    for one in sets(data, quick):
        known = results.setdefault(one.name, {})
        if all(f"{method} {t}" in known for method in METHODS for t in times):
            continue
        X, fresh, family = one.halves()
        problem = Problem(X, family, priors.DirichletProcess(1.0))
        _STATE.update(problem=problem, fresh=fresh)
        small = Problem(X[:200], family, priors.DirichletProcess(1.0))
        with threadpool_limits(1):
            for run in METHODS.values():  # compiles
                run(small, 0.01, fresh[:20], 1.0)
            seconds = []
            for _ in range(3):
                begun = time.perf_counter()
                search(problem)
                seconds.append(time.perf_counter() - begun)
            unit = max(min(seconds), _LEAST)
            known["unit"] = known.get("unit", unit)
            for t in times:
                for method in METHODS:
                    if f"{method} {t}" in known:
                        continue
                    with multiprocessing.get_context("fork").Pool(1) as pool:
                        job = (method, t * known["unit"], known["unit"])
                        found = pool.apply(_measure, (job,))
                    known[f"{method} {t}"] = found
                    kept.write_text(json.dumps(results, indent=1))
                    say(f"{one.name}, {method}, {t}×: {found['log_joint']:,.1f},"
                        f" {found['held_out']:.3f} a row in {found['seconds']:.2f} s")  # fmt: skip
    write(results, out, note)
