"""`dpsearch fit`."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from dpsearch._files import atomic_folder, atomic_write, check_folder
from dpsearch.cli.console import Voice, plain, print_json
from dpsearch.cli.model import rows_of
from dpsearch.cli.options import (
    Alpha,
    Data,
    FamilyName,
    Force,
    Jobs,
    Json,
    Memory,
    Quiet,
    Reading,
    errors_name,
    parse_alpha,
    parse_duration,
    parse_kinds,
    reads_data,
)
from dpsearch.cli.page import write_page
from dpsearch.errors import ParameterError

FORMATS = ("csv", "parquet")
WRITTEN = frozenset(
    {"labels.csv", "labels.parquet", "clusters.csv", "clusters.parquet", "model.npz", "run.json",
     "report.html"}
)  # fmt: skip


@reads_data
def fit(
    data: Data,
    reading: Reading,
    family: FamilyName = "auto",
    alpha: Alpha = "auto",
    kinds: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=KIND,…",
            help="What columns hold, where it is not what it looks like: real, count, binary or"
            " category.",
        ),
    ] = None,
    refine: Annotated[
        str,
        typer.Option(help="Improve what search finds: auto, converge, no, or for how long (30s)."),
    ] = "auto",
    certify: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration, metavar="DURATION", help="Try to prove it best, for so long."
        ),
    ] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses that search keeps.")] = 1,
    restarts: Annotated[
        int,
        typer.Option(
            min=0, help="Fit so many times more, from other orders; keep the best and compare."
        ),
    ] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder for the results; - for the labels on standard output. Default: the data's"
            " name with .clusters; - for standard input."
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="Of the tables: csv or parquet.")] = "csv",
    report: Annotated[bool, typer.Option("--report", help="Write report.html too.")] = False,
    image_shape: Annotated[
        str | None, typer.Option(help="Rows are images of so many pixels, as in 28x28.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of whatever is random.")
    ] = 0,
    jobs: Jobs = -1,
    memory: Memory = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Blocks of rows that are searched on their own.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Cluster the rows of a table.

    Writes a folder with labels.csv (the cluster of each row and how certain it is), clusters.csv
    (sizes, typical rows, the columns that set a cluster apart), model.npz (for predict, inspect,
    certify and sample), run.json (how to repeat it) and report.html if asked for.  It is written
    as a whole or not at all.  Ctrl-C during refinement keeps the best so far, writes it, and
    ends with exit code 130.
    """
    from dpsearch._validate import n_threads
    from dpsearch.automatic import takes_gaps
    from dpsearch.cli import large, results
    from dpsearch.cli.restarts import restart
    from dpsearch.estimator import DPMixture
    from dpsearch.io import read_table
    from dpsearch.progress import stages
    from dpsearch.scale.opened import TableOptions

    begun, started = time.perf_counter(), time.time()
    seconds = _refinement(refine)
    place = _output(data, out, format, force, as_json)
    shape = _image_shape(image_shape, report)
    if report and place is None:
        raise ParameterError("--report needs a folder: say --out")
    voice = Voice(quiet)
    estimator = DPMixture(
        family=family,
        alpha=parse_alpha(alpha),
        beam_size=beam_size,
        refine=seconds,
        certify=False if certify is None else certify,
        kinds=None if kinds is None else parse_kinds(kinds),
        n_shards=shards,
        n_jobs=jobs,
        random_state=seed,
    )
    with (
        stages(voice.console) as stage,
        _noticing_interrupts() as interrupts,
        contextlib.ExitStack() as files,
    ):
        stage.begin(f"reading {data}")

        def tell(n_rows: int) -> None:
            stage.tell(f"{n_rows:,} rows")

        options = TableOptions(shards, takes_gaps(family), estimator.kinds, reading, memory,
                               n_threads(jobs), progress=tell)  # fmt: skip
        opened = large.opened(files, data, options)
        if opened is not None and restarts:
            raise ParameterError("--restarts is for tables that are read into memory", source=data)
        if opened is None:
            table = read_table(data, reading, tell=tell)
        else:
            table = large.sampled(opened)
            table.sha256 = large.digest_of(data)
        if kinds is not None:
            table.X = table.frame()
        if shape is not None and shape[0] * shape[1] != table.n_columns:
            raise ParameterError(
                f"--image-shape {image_shape} is {shape[0] * shape[1]} pixels, but there are"
                f" {table.n_columns} columns"
            )
        read = time.perf_counter() - begun
        for note in table.notes:
            voice.say(f"note: {note}")
        stage.begin("fitting")
        view = None
        if opened is not None:
            with large.errors_name(opened):
                estimator.fit(opened, callback=stage.callback)
        else:
            with errors_name(table):
                estimator.fit(table.X, callback=stage.callback)
                if restarts:
                    rows = rows_of(estimator, table)
                    view = restart(estimator, rows, restarts, seed, stage, interrupts)
        if _independent(estimator.family_):
            voice.say(
                "note: with columns of other kinds, numbers are taken as independent of each other"
                " within a cluster; tilted clusters become several (--columns takes numbers alone)"
            )
        fitted = time.perf_counter() - begun
        stage.begin("explaining")
        found = (results.Results.of(estimator, table) if opened is None
                 else large.LargeResults.of_sample(estimator, table, opened))  # fmt: skip
        stage.begin("writing")
        record = results.run_record(estimator, table, reading)
        record["input"]["rows"] = found.n_rows
        record["started"] = started
        record["seconds"] = {
            "reading": read,
            "fitting": fitted - read,
            "total": time.perf_counter() - begun,
        }
        if view is not None:
            record["restarts"] = [one.log_joint for one in view.clusterings]
        if place is None:
            found.write_labels("-")
        else:
            with atomic_folder(place, WRITTEN, force=force) as folder:
                _write(folder, found, record, format)
                if report:
                    stage.begin("report")
                    write_page(
                        folder / "report.html",
                        estimator,
                        table,
                        image_shape=shape,
                        consensus=view,
                        sample=opened is not None,
                    )
    if as_json:
        print_json({**record, "out": None if place is None else str(place)})
    where = "" if place is None else f"; written to {place}"
    voice.say(f"{found.summary()}{where}")
    if view is not None:
        from dpsearch.report.summary import agreement

        voice.say(agreement(view))
    if interrupts:
        voice.say("interrupted: this is the best that was found until then")
        raise typer.Exit(130)


def _independent(family: Any) -> bool:
    """Whether the family is for mixed columns, several of them of numbers."""
    parts = getattr(family, "parts", ())
    return any(part.name == "diagonal_gaussian" and len(columns) > 1 for part, columns in parts)


def _refinement(text: str) -> str | bool | float:
    if text == "auto":
        return text
    if text in ("converge", "no"):
        return text == "converge"
    try:
        return parse_duration(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            f"--refine takes auto, converge, no, or a duration such as 30s, got {text!r}"
        ) from error


def _output(data: Path, out: str | None, format: str, force: bool, as_json: bool) -> Path | None:
    """The folder to write, checked before any work is done; None for standard output."""
    if format not in FORMATS:
        raise ParameterError(f"unknown format {format!r}: known are {', '.join(FORMATS)}")
    if out is None:
        out = "-" if str(data) == "-" else f"{_stem(data)}.clusters"
    if out == "-":
        if as_json:
            raise ParameterError(
                "--json and the labels would both go to standard output: name a folder with --out"
            )
        return None
    place = Path(out)
    if place.suffix.lower() in (".csv", ".parquet", ".npz", ".tsv"):
        raise ParameterError(f"--out names a folder, and {out} looks like a file")
    check_folder(place, WRITTEN, force=force)
    return place


def _stem(data: Path) -> str:
    name = data.resolve().name if data.name in ("", "..") else data.name
    name = name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name if not data.is_dir() else name


def _image_shape(text: str | None, report: bool) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.lower().replace("×", "x").partition("x")
    if not (height.isdecimal() and width.isdecimal()):
        raise typer.BadParameter(f"--image-shape is height x width, as in 28x28, got {text!r}")
    if not report:
        raise ParameterError("--image-shape is for the report: say --report too")
    return int(height), int(width)


def _write(folder: Path, found: Any, record: dict[str, Any], format: str) -> None:
    from dpsearch.io import write_table

    found.write_labels(folder / f"labels.{format}")
    write_table(folder / f"clusters.{format}", found.cluster_table())
    found.model.save(folder / "model.npz")
    text = json.dumps(plain(record), indent=2, ensure_ascii=False, default=str) + "\n"
    with atomic_write(folder / "run.json") as stream:
        stream.write(text.encode("utf-8", "replace"))  # half a character may be in a file's name


@contextlib.contextmanager
def _noticing_interrupts() -> Iterator[list[int]]:
    """Remember Ctrl-C: refinement ends with the best so far, and does not say why."""
    noticed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noticed
        return

    def handler(number: int, frame: FrameType | None) -> None:
        noticed.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
