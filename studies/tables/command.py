"""`python -m studies tables`: tables that come with packages, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any, NamedTuple

import typer

from studies.peers.environments import Environments, default_folder
from studies.say import say
from studies.tables.packages import tables as packaged

_LIMIT = 70.0  # seconds
_NAMED = 8  # columns left out that the page names
_OPTIONS = ("--report", "--time", "60")  # of every fit


class Found(NamedTuple):
    """The result for a table."""

    name: str
    n_rows: int
    n_clusters: int | None  # None: no answer
    seconds: float
    triage: list[dict[str, str]]
    error: str


def tables(
    out: Annotated[Path | None, typer.Option(help="Page to write.")] = None,
    only: Annotated[str, typer.Option(help="Only tables with this in their name.")] = "",
    most_rows: Annotated[int, typer.Option(help="Leave out larger tables.")] = 10**9,
    jobs: Annotated[int, typer.Option(min=1, help="Tables at a time, on two cores each.")] = 1,
    environments: Annotated[
        Path | None, typer.Option(help="Folder for the packages' environment. Default: a cache.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Folder to write the tables to, in place of fitting them.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of such tables, for a machine without packages.")
    ] = None,
) -> None:
    """Fit tables that come with PyPI packages, as they are; exit code 1 if one gives no answer."""
    found_tables = _packaged(environments) if folder is None else _of_folder(folder)
    chosen = [one for one in found_tables if only in one[0] and one[1].count(b"\n") <= most_rows]
    if export is not None:
        export.mkdir(parents=True, exist_ok=True)
        for name, text in chosen:
            (export / f"{name}.csv").write_bytes(text)
        say(f"{len(chosen)} tables written to {export}")
        return
    cores, free = sorted(os.sched_getaffinity(0)), SimpleQueue[set[int]]()
    for at in range(0, 2 * jobs, 2):
        free.put(set(cores[at : at + 2]))

    def on_two_cores(table: tuple[str, bytes]) -> Found:
        own = free.get()
        os.sched_setaffinity(0, own)  # of this thread, and so of the process that it starts
        try:
            return fitted(*table)
        finally:
            free.put(own)

    found = []
    with ThreadPoolExecutor(jobs) as pool:
        for one in pool.map(on_two_cores, chosen):
            found.append(one)
            say(_line(one))
            if out is not None:
                out.write_text(_page(found, jobs))
    if any(one.n_clusters is None for one in found):
        raise typer.Exit(1)


def _packaged(environments: Path | None) -> Iterator[tuple[str, bytes]]:
    python = Environments(environments or default_folder()).python("tables")
    (site,) = python.parents[1].glob("[Ll]ib/**/site-packages")
    return packaged(site)


def _of_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.glob("*.csv")):
        yield path.stem, path.read_bytes()


def fitted(name: str, text: bytes) -> Found:
    """Run `dpsearch fit` on a table in a folder for it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "table.csv")
        data.write_bytes(text)
        call = [sys.executable, "-m", "dpsearch.cli", "fit", data.name, *_OPTIONS, "--out", "out"]
        begun, error = time.perf_counter(), ""
        try:
            done = subprocess.run(
                call, capture_output=True, text=True, timeout=_LIMIT, check=False, cwd=folder
            )
            error = done.stderr.strip().splitlines()[-1] if done.returncode else ""
        except subprocess.TimeoutExpired:
            error = f"no answer in {_LIMIT:.0f} s"
        seconds = time.perf_counter() - begun
        record: dict[str, Any] = {}
        if not error:
            record = json.loads(Path(folder, "out", "run.json").read_text())
        n_rows = record["input"]["rows"] if record else text.count(b"\n")
        triage = record.get("triage") or []
        return Found(name, n_rows, record.get("clusters"), seconds, triage, error)


def _line(one: Found) -> str:
    found = one.error or f"{one.n_clusters} clusters"
    return f"{one.name}: {one.n_rows} rows, {found}, {one.seconds:.1f} s"


def _page(found: list[Found], jobs: int) -> str:
    """Return the page: a line for each table."""
    answers = sum(one.n_clusters is not None for one in found)
    lines = [
        "# Tables of PyPI packages",
        "",
        "Written by `python -m studies tables`: tables that come with packages, complete"
        " and unchanged, fitted by `dpsearch fit FILE --report --time 60` without any other option."
        " The last two columns summarise [the triage](../tables.md): the number of columns used in"
        " each role, and the columns that are left out. Times above 60 seconds include writing the"
        f" results. {jobs} tables were fitted at a time, on two cores each.",
        "",
        f"{answers} of {len(found)} tables have an answer within {_LIMIT:.0f} seconds.",
        "",
        "| table | rows × columns | clusters | seconds | used | left out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        size = f"{one.n_rows:,} × {len(one.triage)}"
        clusters = one.error if one.n_clusters is None else one.n_clusters
        cells = [one.name, size, clusters, f"{one.seconds:.1f}", *_in_short(one.triage)]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _in_short(triage: list[dict[str, str]]) -> tuple[str, str]:
    """Say how many columns are used in each role, and name those that are left out."""
    used = Counter(entry["role"] for entry in triage if entry["treatment"] != "dropped")
    dropped = [entry for entry in triage if entry["treatment"] == "dropped"]
    left = [f"{entry['name']} ({entry['role']})" for entry in dropped]
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    roles = ", ".join(f"{count} {role}" for role, count in used.most_common())
    return roles, ", ".join(left[:_NAMED]) + more


def _cell(text: object) -> str:
    return " ".join(str(text).replace("|", "\\|").split())
