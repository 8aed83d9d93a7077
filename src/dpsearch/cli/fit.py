"""`dpsearch fit`."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch._files import atomic_folder, atomic_write, check_folder
from dpsearch.cli.console import Messages, plain, print_json
from dpsearch.cli.model import rows_of, write_page
from dpsearch.cli.options import (
    Alpha,
    Data,
    FamilyName,
    Force,
    Jobs,
    Json,
    LevelName,
    Memory,
    MinSize,
    Quiet,
    Reading,
    Verbatim,
    errors_name,
    parse_alpha,
    parse_duration,
    parse_kinds,
    parse_level,
    reads_data,
    with_options,
)
from dpsearch.errors import ParameterError

if TYPE_CHECKING:
    from dpsearch.cli.results import Results
    from dpsearch.io import Table
    from dpsearch.progress import Stages
    from dpsearch.refinement.consensus import Consensus

FORMATS = ("csv", "parquet")
WRITTEN = frozenset(
    {"labels.csv", "labels.parquet", "clusters.csv", "clusters.parquet", "model.npz", "run.json",
     "report.html"}
)  # fmt: skip


@dataclass(frozen=True)
class Fitting:
    """The options about the model and the search for its clusters."""

    family: FamilyName = "auto"
    alpha: Alpha = "auto"
    kinds: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=KIND,…",
            help="What columns hold, where their values do not show it: real, count, binary or"
            " category.",
        ),
    ] = None
    level: LevelName = "auto"
    min_size: MinSize = 1
    keep_codes: Annotated[
        bool,
        typer.Option(
            "--keep-codes", help="Take codes such as -9999 as numbers, not as missing values."
        ),
    ] = False
    refine: Annotated[
        str,
        typer.Option(help="Improve what search finds: auto, converge, no, or a duration (30s)."),
    ] = "auto"
    certify: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Try to prove that the clustering is the best, for at most this long.",
        ),
    ] = None
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses that search keeps.")] = 1
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of further fits from other orders of the rows; the best is kept, and all"
            " are compared.",
        ),
    ] = 0
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")] = 0
    jobs: Jobs = -1
    memory: Memory = None
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="Number of blocks of rows that are read one after the other."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="Where passes over the rows are made: cuda for a GPU; else by threads."),
    ] = None

    def estimator(self) -> Any:
        from dpsearch.estimator import DPMixture

        return DPMixture(
            family=self.family,
            alpha=parse_alpha(self.alpha),
            beam_size=self.beam_size,
            refine=_refinement(self.refine),
            level=parse_level(self.level),
            min_cluster_size=self.min_size,
            certify=False if self.certify is None else self.certify,
            kinds=None if self.kinds is None else parse_kinds(self.kinds),
            missing_codes=None if self.keep_codes else "auto",
            n_shards=self.shards,
            n_jobs=self.jobs,
            device=self.device,
            random_state=self.seed,
        )


@dataclass(frozen=True)
class Output:
    """The options about what is written."""

    out: Annotated[
        str | None,
        typer.Option(
            help="Folder for the results; - for the labels on standard output. Default: the data's"
            " name with .clusters; - for standard input."
        ),
    ] = None
    format: Annotated[str, typer.Option(help="Format of the tables: csv or parquet.")] = "csv"
    report: Annotated[bool, typer.Option("--report", help="Also write report.html.")] = False
    image_shape: Annotated[
        str | None, typer.Option(help="Height and width if each row is an image, as in 28x28.")
    ] = None
    verbatim: Verbatim = False
    force: Force = False
    as_json: Json = False

    def folder(self, data: Path) -> Path | None:
        """Return the folder to write, checked before any work is done; None: standard output."""
        if self.format not in FORMATS:
            raise ParameterError(f"unknown format {self.format!r}: known are {', '.join(FORMATS)}")
        out = self.out
        if out is None:
            out = "-" if str(data) == "-" else f"{_stem(data)}.clusters"
        if out == "-":
            if self.as_json:
                raise ParameterError(
                    "--json and the labels would both go to standard output: name a folder with"
                    " --out"
                )
            if self.report:
                raise ParameterError("--report needs a folder: say --out")
            return None
        folder = Path(out)
        if folder.suffix.lower() in (".csv", ".parquet", ".npz", ".tsv"):
            raise ParameterError(f"--out names a folder, and {out} looks like a file")
        check_folder(folder, WRITTEN, force=self.force)
        return folder

    def shape(self) -> tuple[int, int] | None:
        """Return the height and width of images; None if rows are none."""
        if self.image_shape is None:
            return None
        height, _, width = self.image_shape.lower().replace("×", "x").partition("x")
        if not (height.isdecimal() and width.isdecimal()):
            raise typer.BadParameter(
                f"--image-shape is height x width, as in 28x28, got {self.image_shape!r}"
            )
        if not self.report:
            raise ParameterError("--image-shape is for the report: say --report too")
        return int(height), int(width)

    def check_pixels(self, n_columns: int) -> None:
        """Raise unless images have as many pixels as there are columns."""
        shape = self.shape()
        if shape is not None and shape[0] * shape[1] != n_columns:
            raise ParameterError(
                f"--image-shape {self.image_shape} is {shape[0] * shape[1]} pixels, but there are"
                f" {n_columns} columns"
            )


def fit(data: Data, reading: Reading, fitting: Any, output: Any, quiet: Quiet = False) -> None:
    """Cluster the rows of a table.

    Writes a folder with labels.csv (the cluster and the component of each row, and how certain the
    cluster is), clusters.csv (sizes, typical rows, the columns that set a cluster apart), model.npz
    (for predict, cut, inspect, certify and sample), run.json (how to repeat the run) and, if asked
    for, report.html.  Either the whole folder is written or nothing.  Ctrl-C during refinement
    keeps the best clustering so far, writes it, and ends with exit code 130.
    """
    from dpsearch.progress import stages

    job = _Job(data, reading, fitting, output)
    messages = Messages(quiet)
    with (
        stages(messages.console) as stage,
        _noticing_interrupts() as interrupts,
        contextlib.ExitStack() as files,
    ):
        job.read(stage, files)
        for note in job.table.notes:
            messages.print(f"note: {note}")
        job.cluster(stage, interrupts)
        if _independent(job.estimator.family_, job.table.n_columns):
            messages.print(
                "note: with columns of other kinds, numbers are taken as independent of each other"
                " within a cluster; tilted clusters become several (--columns takes numbers alone)"
            )
        job.write(stage)
    job.announce(messages)
    if interrupts:
        messages.print("interrupted: this is the best clustering that was found until then")
        raise typer.Exit(130)


fit = reads_data(with_options(with_options(fit, Fitting, "fitting"), Output, "output"))


class _Job:
    """One run of the command, step by step."""

    table: Table
    results: Results
    record: dict[str, Any]

    def __init__(self, data: Path, reading: Any, fitting: Fitting, output: Output) -> None:
        self.begun, self.started = time.perf_counter(), time.time()
        self.data, self.reading, self.fitting, self.output = data, reading, fitting, output
        self.folder = output.folder(data)
        self.shape = output.shape()
        self.estimator = fitting.estimator()
        self.opened: Any = None  # the table, if it is not read into memory
        self.restarts: Any = None  # what further fits found
        self.seconds: dict[str, float] = {}

    def read(self, stage: Stages, files: contextlib.ExitStack) -> None:
        from dpsearch._validate import n_threads
        from dpsearch.automatic import takes_gaps
        from dpsearch.cli import large
        from dpsearch.io import read_table
        from dpsearch.sources.opened import TableOptions

        stage.begin(f"reading {self.data}")
        fitting = self.fitting
        options = TableOptions(
            fitting.shards, takes_gaps(fitting.family), self.estimator.kinds, self.reading,
            fitting.memory, n_threads(fitting.jobs), progress=stage.count_rows,
        )  # fmt: skip
        self.opened = large.opened(files, self.data, options)
        if self.opened is None:
            self.table = read_table(self.data, self.reading, progress=stage.count_rows)
        elif fitting.restarts:
            raise ParameterError("--restarts is for tables that are read into memory",
                                 source=self.data)  # fmt: skip
        else:
            self.table = large.sampled(self.opened)
            self.table.sha256 = large.digest_of(self.data)
        if fitting.kinds is not None:
            self.table.X = self.table.frame()
        self.output.check_pixels(self.table.n_columns)
        self.seconds["reading"] = time.perf_counter() - self.begun

    def cluster(self, stage: Stages, interrupts: list[int]) -> None:
        from dpsearch.cli import large, results

        stage.begin("fitting")
        model, table, n_restarts = self.estimator, self.table, self.fitting.restarts
        if self.opened is not None:
            with large.errors_name(self.opened):
                model.fit(self.opened, callback=stage.callback)
        else:
            with errors_name(table):
                model.fit(table.X, callback=stage.callback)
                if n_restarts:
                    rows = rows_of(model, table)
                    self.restarts = restart(
                        model, rows, n_restarts, self.fitting.seed, stage, interrupts
                    )
        self.seconds["fitting"] = time.perf_counter() - self.begun - self.seconds["reading"]
        stage.begin("explaining")
        if self.opened is None:
            self.results = results.Results.of(model, table)
        else:
            self.results = large.LargeResults.of_sample(model, table, self.opened)

    def write(self, stage: Stages) -> None:
        from dpsearch.cli.results import run_record

        stage.begin("writing")
        self.record = run_record(self.estimator, self.table, self.reading)
        self.record["input"]["rows"] = self.results.n_rows
        self.record["started"] = self.started
        self.seconds["total"] = time.perf_counter() - self.begun
        self.record["seconds"] = self.seconds
        self.record["image_shape"] = self.shape
        if self.restarts is not None:
            self.record["restarts"] = [one.log_joint for one in self.restarts.clusterings]
        if self.folder is None:
            self.results.write_labels("-", self.output.verbatim)
            return
        with atomic_folder(self.folder, WRITTEN, force=self.output.force) as folder:
            write_results(
                folder, self.results, self.record, self.output.format, self.output.verbatim
            )
            if self.output.report:
                stage.begin("report")
                write_page(
                    folder / "report.html", self.estimator, self.table,
                    explanation=self.results.explanation, image_shape=self.shape,
                    consensus=self.restarts, sample=self.opened is not None,
                )  # fmt: skip

    def announce(self, messages: Messages) -> None:
        """Print what was found and where it was written."""
        if self.output.as_json:
            print_json({**self.record, "out": None if self.folder is None else str(self.folder)})
        where = "" if self.folder is None else f"; written to {self.folder}"
        messages.print(f"{self.results.summary()}{where}")
        messages.print(self.results.levels_in_words())
        if self.restarts is not None:
            from dpsearch.report.summary import agreement

            messages.print(agreement(self.restarts))


def restart(
    model: Any, rows: Any, n_restarts: int, seed: int, stage: Stages, interrupts: list[int]
) -> Consensus:
    """Fit the rows again from random orders, under the model's family and prior.

    The model adopts a result that is better than its own.  Ctrl-C ends the restarts and keeps the
    results so far.
    """
    from sklearn.base import clone

    from dpsearch.refinement.consensus import Consensus

    found = [model.clustering_]
    for i in range(1, n_restarts + 1):
        if interrupts:
            break
        stage.begin(f"restart {i} of {n_restarts}")
        other = clone(model).set_params(
            family=model.family_, alpha=model.mixture_.prior, order="random", certify=False,
            level="components", min_cluster_size=1,  # the model applies its own
            kinds=None,  # the rows are a matrix already
            random_state=(seed + i) % 2**32,
        )  # fmt: skip
        try:
            other.fit(rows, callback=stage.callback)
        except KeyboardInterrupt:
            break
        found.append(other.clustering_)
        if other.log_joint_ > model.log_joint_:
            model.adopt(other)
    return Consensus.of(found)


def _independent(family: Any, n_features: int) -> bool:
    """Whether the family is for mixed columns and models several columns of numbers separately."""
    columns = family.by_column(n_features)
    numbers = [one for one in columns if one.kind == "real" and one.independent_columns]
    return len(family.members) > 1 and len(numbers) > 1


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


def _stem(data: Path) -> str:
    name = data.resolve().name if data.name in ("", "..") else data.name
    name = name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name if not data.is_dir() else name


def write_results(
    folder: Path, found: Any, record: dict[str, Any], form: str, verbatim: bool
) -> None:
    """Write labels, clusters, model and record."""
    from dpsearch.io import write_table

    found.write_labels(folder / f"labels.{form}", verbatim)
    write_table(folder / f"clusters.{form}", found.cluster_table(), verbatim=verbatim)
    found.model.save(folder / "model.npz")
    text = json.dumps(plain(record), indent=2, ensure_ascii=False, default=str) + "\n"
    with atomic_write(folder / "run.json") as stream:
        stream.write(text.encode("utf-8", "replace"))  # file names may contain lone surrogates


@contextlib.contextmanager
def _noticing_interrupts() -> Iterator[list[int]]:
    """Record Ctrl-C: refinement returns the best clustering so far without reporting it."""
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
