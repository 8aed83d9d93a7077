"""`python -m studies peers`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.say import say


def peers(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sets, few tools, one seed.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for page, tables and figure.")] = Path(
        "results"
    ),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data. Default: DPSEARCH_DATA.")
    ] = None,
    envs: Annotated[
        Path | None,
        typer.Option(help="Folder for the tools' environments. Default: the user's cache."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for finished work. Default: OUT/cache.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Tools, by how their names begin: dpsearch;HDBSCAN")
    ] = None,
    sets: Annotated[
        str | None, typer.Option(help="Data sets, by how their names begin: iris;MNIST 3k;mixed")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds where a fit is short.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds that a fit may take.")] = 600.0,
    retime: Annotated[
        bool, typer.Option("--retime", help="Run again what was timed on a busy machine.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Fits at a time, one thread each.")] = 1,
) -> None:
    """Compare dpsearch with other tools: accuracy, clusters, seconds, on labelled data.

    Each tool gets an environment of its own, made by pip the first time.  A run that was stopped
    goes on where it was.
    """
    import time

    from studies.peers.peers import bench_peers

    begun = time.perf_counter()
    page = bench_peers(
        out, quick=quick, data=data, envs=envs, cache=cache, only=names(only), sets=names(sets),
        seeds=seeds, limit=limit, retime=retime, n_jobs=jobs, tell=say,
    )  # fmt: skip
    say(f"{page} ({time.perf_counter() - begun:.0f} s)")


def names(text: str | None) -> list[str] | None:
    """Names may have commas in them, so semicolons part them; commas do where no name has one."""
    if text is None:
        return None
    return [word.strip() for word in text.split(";" if ";" in text else ",") if word.strip()]
