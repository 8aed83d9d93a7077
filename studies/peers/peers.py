"""`python -m studies peers`: run every tool on every table, and write the page."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dpsearch._validate import n_threads
from dpsearch.errors import ParameterError
from studies.peers import page
from studies.peers.environments import Environments, default_folder
from studies.peers.scores import scored
from studies.peers.tables import Table, labelled_tables, mixed_tables
from studies.peers.tools import DPSEARCH, DPSEARCH_COMMON, LACE, PEERS, Tool, chosen, chosen_tables
from studies.peers.units import Outcome, Runner, Store, Unit
from studies.reproduction.data import data_folder
from studies.reproduction.report import Report, short
from studies.reproduction.work import Check, in_threads

Tell = Callable[[str], None]
# A unit that takes longer than this is run with one seed.
LONG_SECONDS = 120.0
GAPS_IN = ("iris", "penbased")
QUICK_TABLES = ("iris", "wine", "breast cancer", "digits", "mixed, 300 rows")
QUICK_TOOLS = ("dpsearch", "BayesianGaussianMixture", "KMeans", "HDBSCAN", "pylace")


def bench_peers(
    out: Path,
    *,
    quick: bool = False,
    data: Path | None = None,
    envs: Path | None = None,
    cache: Path | None = None,
    only: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    seeds: int = 3,
    limit: float = 600.0,
    retime: bool = False,
    n_jobs: int = 1,
    tell: Tell = lambda message: None,
) -> Path:
    """Run what is not kept in `cache` (default: `out`/cache), write the page, return its path."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ParameterError("bench draws a figure: install matplotlib, or dpsearch[plots]")
    if out.exists() and not out.is_dir():
        raise ParameterError(f"{out}: is a file, not a folder")
    if limit <= 0.0 or seeds < 1:
        raise ParameterError("limit must be above 0 and seeds at least 1")
    jobs = n_threads(n_jobs)
    said = command(quick=quick, only=only, sets=sets, seeds=seeds, limit=limit, n_jobs=jobs)
    if quick:
        only, sets, seeds = only or QUICK_TOOLS, sets or QUICK_TABLES, 1
    # Tools are started in folders of their own, where a relative path would mean another place.
    out, cache = out.absolute(), (cache or out / "cache").absolute()
    envs, data = (envs or default_folder()).absolute(), data_folder(data)
    labelled, absent = labelled_tables(None if data is None else data.absolute())
    tables = chosen_tables(sets, [*labelled, *mixed_tables()])
    tools = chosen(only, [*PEERS, LACE])
    for line in absent:
        tell(line)
    store = Store(cache, retime=retime)
    runner = Runner(store, Environments(envs), limit)
    first = units(tables, tools)
    results = run(runner, first, seeds, jobs, tell)
    scores = scored(results)
    return page.write(scores, absent, Report(out), limit=limit, n_jobs=jobs, command=said)


def command(
    *,
    quick: bool,
    only: Sequence[str] | None,
    sets: Sequence[str] | None,
    seeds: int,
    limit: float,
    n_jobs: int,
) -> str:
    """The command that does the same, without the paths and `--retime`, which change no result."""
    words = ["python", "-m", "studies", "peers"]
    words += ["--quick"] if quick else ["--seeds", str(seeds)]  # quick means one seed
    words += ["--limit", f"{limit:g}", "--jobs", str(n_jobs)]
    for option, names in (("--only", only), ("--sets", sets)):
        if names is not None:
            text = ";".join(names)  # names may have commas in them, and commas part them too
            words += [option, text + ";" if ";" not in text and "," in text else text]
    return shlex.join(words)


def units(tables: Sequence[Table], tools: Sequence[Tool]) -> list[Unit]:
    """What is run with the first seed: the main table, the tables with gaps, the mixed tables."""
    out = [
        Unit(table, tool, 0)
        for table in tables
        for tool in tools
        if tool is not LACE and tool.takes(table)
    ]
    for table in tables:
        if table.name in GAPS_IN:
            out += [Unit(table, DPSEARCH_COMMON, 0, "gaps")] if DPSEARCH_COMMON in tools else []
            forms = ("common", "gaps") if LACE in tools else ()
            out += [Unit(table, LACE, 0, form) for form in forms]
        elif table.kind == "mixed" and LACE in tools:
            out.append(Unit(table, LACE, 0, DPSEARCH.form))
    return out


def run(
    runner: Runner, first: Sequence[Unit], seeds: int, n_jobs: int, tell: Tell
) -> list[tuple[Unit, Outcome]]:
    """Run the first seed of each unit, then the others of those that are random and not long."""

    def one(unit: Unit, check: Check) -> tuple[Unit, Outcome]:
        outcome = runner(unit, check)
        tell(f"{unit.name()}: {outcome.message or short(outcome.seconds) + ' s'}")
        return unit, outcome

    results = in_threads(one, first, n_jobs)
    again = [
        replace(unit, seed=seed)
        for seed in range(1, seeds)
        for unit, outcome in results
        if outcome.status == "done" and outcome.seconds <= LONG_SECONDS and is_random(unit)
    ]
    return results + in_threads(one, again, n_jobs)


def is_random(unit: Unit) -> bool:
    """Whether another seed is to be tried: for another answer, or for another draw of the data."""
    if unit.table.single_seed:
        return False
    return unit.table.drawn or unit.data_form == "gaps" or not unit.tool.deterministic
