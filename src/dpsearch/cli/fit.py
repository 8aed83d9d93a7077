"""`dpsearch fit`."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch._files import atomic_folder, check_folder
from dpsearch._signals import stopping
from dpsearch.cli import options as opt
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import rows_of
from dpsearch.deadline import Deadline, current, within
from dpsearch.errors import ParameterError

if TYPE_CHECKING:
    from dpsearch.cli.results import Results
    from dpsearch.cli.source import Source
    from dpsearch.progress import Stages
    from dpsearch.refinement.consensus import Consensus

FORMATS = ("csv", "parquet")
# Shares of the time limit for fitting, with and without a report; the rest is for the explanation.
_FITTING, _ONLY_FITTING = 0.65, 0.8
WRITTEN = frozenset(
    {"labels.csv", "labels.parquet", "clusters.csv", "clusters.parquet", "model.npz", "run.json",
     "report.html"}
)  # fmt: skip


@dataclass(frozen=True)
class Fitting:
    """The options about the model and the search for its clusters."""

    family: opt.FamilyName = "auto"
    alpha: opt.Alpha = "auto"
    kinds: Annotated[
        str | None,
        opt.option(
            "What columns hold, if it is not recognised: real, count, binary, category or date; or"
            " whether to keep or drop them.",
            metavar="NAME=KIND,…",
        ),
    ] = None
    keep: Annotated[
        str | None,
        opt.option("Columns to use although they would be dropped.", metavar="NAME,…"),
    ] = None
    na: Annotated[
        str | None,
        opt.option(
            "Values that mean missing, in all columns or in one, such as -9,age=0,refused.",
            metavar="VALUE,NAME=VALUE,…",
        ),
    ] = None
    level: opt.LevelName = "auto"
    min_size: opt.MinSize = 1
    keep_codes: Annotated[
        bool,
        opt.option("Treat codes such as -9999 as numbers, not as missing values.", "--keep-codes"),
    ] = False
    refine: Annotated[
        str,
        opt.option(
            "How long to improve what search finds: auto, converge, no, or a duration such as 30s."
        ),
    ] = "auto"
    certify: Annotated[
        float | None,
        opt.time_span("Try for at most this long to prove that the clustering is the best."),
    ] = None
    time: Annotated[
        float | None,
        opt.time_span(
            "Time limit for the whole run; the last line names the phases that were cut short."
        ),
    ] = None
    beam_size: Annotated[int, opt.option("Number of hypotheses that search keeps.", min=1)] = 1
    restarts: Annotated[
        int,
        opt.option(
            "Number of further fits from other orders of the rows; the best fit is kept, and all"
            " are compared.",
            min=0,
        ),
    ] = 0
    seed: Annotated[int, opt.option("Seed for random numbers.", min=0, max=2**32 - 1)] = 0
    jobs: opt.Jobs = -1
    memory: opt.Memory = None
    shards: Annotated[
        int | None,
        opt.option("Number of blocks of rows, read one after the other.", min=1),
    ] = None
    device: Annotated[
        str | None,
        opt.option(
            "Device for passes over the rows: cuda for a GPU. Default: threads of the processor."
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        opt.option(
            "File that keeps the best clusters, for a table of at least 20,000 rows or in shards;"
            " if the run is interrupted, the same command continues from them.",
            metavar="FILE",
        ),
    ] = None

    def column_kinds(self) -> dict[str, str] | None:
        """Return the kinds of columns that the user specifies, or None."""
        kinds = {} if self.kinds is None else opt.parse_kinds(self.kinds)
        for name in opt.parse_names(self.keep):
            kinds.setdefault(name, "keep")
        return kinds or None

    def codes(self) -> Any:
        """Return the codes of missing values."""
        if self.na is not None:
            return opt.parse_values(self.na)
        return None if self.keep_codes else "auto"

    def estimator(self) -> Any:
        from dpsearch.estimator import DPMixture

        return DPMixture(
            family=self.family,
            alpha=opt.parse_alpha(self.alpha),
            beam_size=self.beam_size,
            refine=_refinement(self.refine),
            level=opt.parse_level(self.level),
            min_cluster_size=self.min_size,
            certify=False if self.certify is None else self.certify,
            kinds=self.column_kinds(),
            missing_codes=self.codes(),
            n_shards=self.shards,
            n_jobs=self.jobs,
            device=self.device,
            checkpoint=self.checkpoint,
            time_limit=self.time,
            random_state=self.seed,
        )


@dataclass(frozen=True)
class Output:
    """The options about what is written."""

    out: Annotated[
        str | None,
        opt.option(
            "Folder for the results, or - to print only the labels. Default: the name of the data"
            " with .clusters; - if the data come from standard input."
        ),
    ] = None
    format: Annotated[str, opt.option("Format of the tables that are written: csv or parquet.")] = (
        "csv"
    )
    report: Annotated[bool, opt.option("Also write report.html.", "--report")] = False
    image_shape: Annotated[
        str | None, opt.option("Height and width, such as 28x28, if each row is an image.")
    ] = None
    verbatim: opt.Verbatim = False
    force: opt.Force = False
    as_json: opt.Json = False

    def folder(self, data: Path) -> Path | None:
        """Return the folder to write, checked before any work is done; None for standard output."""
        if self.format not in FORMATS:
            raise ParameterError.unknown("--format", "format", self.format, FORMATS)
        out = self.out
        if out is None:
            out = "-" if str(data) == "-" else f"{_stem(data)}.clusters"
        if out == "-":
            if self.as_json:
                raise ParameterError.of(
                    "--json",
                    "and the labels would both go to standard output: give a folder with --out",
                )
            if self.report:
                raise ParameterError.of("--report", "needs a folder: give one with --out")
            return None
        folder = Path(out)
        if folder.suffix.lower() in (".csv", ".parquet", ".npz", ".tsv"):
            raise ParameterError.of("--out", f"must name a folder, but {out} looks like a file")
        check_folder(folder, WRITTEN, force=self.force)
        return folder

    def shape(self) -> tuple[int, int] | None:
        """Return the height and width of images; None if rows are not images."""
        if self.image_shape is None:
            return None
        height, _, width = self.image_shape.lower().replace("×", "x").partition("x")
        if not (height.isdecimal() and width.isdecimal()):
            raise typer.BadParameter(
                f"--image-shape must be height x width, such as 28x28, got {self.image_shape!r}"
            )
        if not self.report:
            raise ParameterError.of("--image-shape", "only affects the report: add --report")
        return int(height), int(width)

    def check_pixels(self, n_columns: int) -> None:
        """Raise unless images have as many pixels as there are columns."""
        shape = self.shape()
        if shape is not None and shape[0] * shape[1] != n_columns:
            raise ParameterError.of(
                "--image-shape",
                f"{self.image_shape} has {shape[0] * shape[1]} pixels, but there are"
                f" {n_columns} columns",
            )


def fit(
    data: opt.Data, reading: opt.Reading, fitting: Any, output: Any, quiet: opt.Quiet = False
) -> None:
    """Cluster the rows of a table.

    Writes a folder with labels.csv (the cluster and the component of each row, and how certain the
    cluster is), clusters.csv (sizes, typical rows, the columns that set a cluster apart), model.npz
    (for predict, cut, inspect, certify and sample), run.json (how to repeat the run) and, with
    --report, report.html.  Either the whole folder is written or nothing.  On Ctrl-C or SIGTERM the
    best clustering so far is written, if there is one; the exit code is then 130 or 143.
    """
    from dpsearch.progress import stages

    job = _Job(data, reading, fitting, output)
    messages = Messages(quiet)
    with (
        stages(messages.console) as stage,
        within(Deadline(fitting.time, stage.callback)) as deadline,
        stopping(deadline) as signals,
        contextlib.ExitStack() as files,
    ):
        stage.deadline = deadline
        job.read(stage, files)
        for note in job.source.table.notes:
            messages.print(f"note: {note}")
        if job.source.triage is not None:
            messages.print(job.source.triage.table())
        job.cluster(deadline)
        if _independent(job.estimator.family_, job.source.table.n_columns):
            messages.print(
                "note: because there are columns of other kinds, numeric columns are modelled as"
                " independent within a cluster, and a cluster with correlated columns may be split;"
                " --columns selects the numeric columns alone"
            )
        job.write(deadline, signals)
    job.announce(messages)
    if deadline.cut_short:
        missing = "" if job.reported else "; report.html is not written"
        messages.print(_cut_short(deadline, signals) + missing)
    if signals:
        raise typer.Exit(128 + signals[0])


fit = opt.reads_data(opt.with_options(opt.with_options(fit, Fitting, "fitting"), Output, "output"))


class _Job:
    """One run of the command, step by step."""

    source: Source
    results: Results
    record: dict[str, Any]

    def __init__(self, data: Path, reading: Any, fitting: Fitting, output: Output) -> None:
        self.begun, self.started = time.perf_counter(), time.time()
        self.data, self.reading, self.fitting, self.output = data, reading, fitting, output
        self.folder = output.folder(data)
        self.shape = output.shape()
        self.estimator = fitting.estimator()
        self.estimator.fit_options()  # which are checked before anything is read
        self.restarts: Any = None  # the results of further fits
        self.reported = not output.report  # whether the report is written, or not asked for
        self.seconds: dict[str, float] = {}

    def read(self, stage: Stages, files: contextlib.ExitStack) -> None:
        from dpsearch._validate import n_threads
        from dpsearch.cli.source import Source

        stage.begin(f"reading {self.data}")
        fitting = self.fitting
        options = replace(
            self.estimator.reading(), keep=self.shape is not None, reading=self.reading,
            memory=fitting.memory, n_threads=n_threads(fitting.jobs), progress=stage.count_rows,
        )  # fmt: skip
        try:
            self.source = Source(files, self.data, options)
        except ParameterError as error:
            if error.parameter == "kinds":
                kept = error.column in opt.parse_names(fitting.keep)
                error.parameter = "--keep" if kept else "--kinds"
            elif error.parameter == "missing_codes":
                error.parameter = "--na"
            raise
        self.check_options()
        self.output.check_pixels(self.source.table.n_columns)
        self.seconds["reading"] = time.perf_counter() - self.begun

    def check_options(self) -> None:
        """Raise if an option does not apply to this table."""
        from dpsearch.passes.rows import FEWEST

        opened, fitting = self.source.opened, self.fitting
        in_shards = opened is not None and not opened.in_memory
        kept = fitting.checkpoint is not None
        whole = not in_shards and fitting.shards is None
        if kept and whole and self.source.n_rows < FEWEST:
            why = f"needs a table of at least {FEWEST:,} rows, or one in shards (--shards)"
            raise ParameterError.of("--checkpoint", why, source=self.data)
        in_shards = in_shards or kept
        for name, refused in (
            ("--restarts", (kept or opened is not None) and fitting.restarts),
            ("--certify", in_shards and fitting.certify is not None),
            ("--device", in_shards and fitting.device is not None),
        ):
            if refused:
                why = "does not combine with --checkpoint" if kept else "needs the table in memory"
                raise ParameterError.of(name, why, source=self.data)

    def cluster(self, deadline: Deadline) -> None:
        from dpsearch.cli.results import Results

        model, source, n_restarts = self.estimator, self.source, self.fitting.restarts
        share = _FITTING if self.output.report else _ONLY_FITTING
        with source.errors_named(), deadline.during("fitting", share):
            with deadline.during("fitting", 0.5 if n_restarts else 1.0):
                model.fit(source.rows)
            if n_restarts:
                rows = rows_of(model, source.table)
                self.restarts = restart(model, rows, n_restarts, self.fitting.seed)
        self.seconds["fitting"] = time.perf_counter() - self.begun - self.seconds["reading"]
        self.results = Results.of(model, source)

    def write(self, deadline: Deadline, signals: list[int]) -> None:
        output, results = self.output, self.results
        with deadline.during("writing"):
            if self.folder is None:
                results.write_labels("-", output.verbatim)
                self.record = self.recorded(deadline, signals)
                return
            with atomic_folder(self.folder, WRITTEN, force=output.force) as folder:
                results.write(folder, output.format, output.verbatim)
                if output.report:
                    self.report(deadline, folder)
                self.record = self.recorded(deadline, signals)
                results.write_record(folder, self.record)

    def report(self, deadline: Deadline, folder: Path) -> None:
        """Write the report, unless the time is up or no row could be explained in time."""
        with deadline.during("writing the report"), deadline.optional():
            if not self.results.explains_rows:
                deadline.leave_out()
            deadline.check()
            self.results.write_page(
                folder / "report.html", image_shape=self.shape, consensus=self.restarts
            )
            self.reported = True

    def recorded(self, deadline: Deadline, signals: list[int]) -> dict[str, Any]:
        """Return the contents of run.json."""
        from dpsearch.cli.results import run_record

        self.seconds["total"] = time.perf_counter() - self.begun
        record = run_record(self.estimator, self.source, self.reading) | {
            "started": self.started,
            "seconds": self.seconds,
            "image_shape": self.shape,
            "cut_short": deadline.cut_short,
            "stopped": {"signal": signals[0], "while": deadline.stopped_in} if signals else None,
        }
        if self.restarts is not None:
            record["restarts"] = [one.log_joint for one in self.restarts.clusterings]
        return record

    def announce(self, messages: Messages) -> None:
        """Print what was found and where it was written."""
        from dpsearch.cli.results import advice

        if self.output.as_json:
            print_json({**self.record, "out": None if self.folder is None else str(self.folder)})
        if self.results.empty_rows():
            messages.print(self.results.empty_rows())
        where = "" if self.folder is None else f"; written to {self.folder}"
        messages.print(f"{self.results.summary()}{where}")
        messages.print(f"family: {self.estimator.reason_}")
        messages.print(self.results.levels_in_words())
        if self.folder is not None and (advised := advice(self.estimator, self.folder)):
            messages.print(advised)
        if self.restarts is not None:
            from dpsearch.report.summary import agreement

            messages.print(agreement(self.restarts))


def restart(model: Any, rows: Any, n_restarts: int, seed: int) -> Consensus:
    """Fit the rows again from random orders, under the model's family and prior.

    The model adopts a result that is better than its own.  Restarts end when the time is up.
    """
    from sklearn.base import clone

    from dpsearch.refinement.consensus import Consensus

    found = [model.clustering_]
    for i in range(1, n_restarts + 1):
        if current().over:
            break
        other = clone(model).set_params(
            family=model.family_, alpha=model.mixture_.prior, order="random", certify=False,
            level="components", min_cluster_size=1,  # the model applies its own
            kinds=None,  # the rows are a matrix already
            random_state=(seed + i) % 2**32,
        )  # fmt: skip
        with current().during(f"restart {i} of {n_restarts}"):
            other.fit(rows)
        found.append(other.clustering_)
        if other.log_joint_ > model.log_joint_:
            model.adopt(other)
    return Consensus.of(found)


def _cut_short(deadline: Deadline, signals: list[int]) -> str:
    """Return a message with the phases that were cut short, and whether the run was stopped."""
    phases = deadline.cut_short
    if signals:
        how = "interrupted" if signals[0] == signal.SIGINT else "terminated"
        why = f"{how} while {deadline.stopped_in}: this is the best clustering found by then"
        return f"{why}; cut short: {', '.join(phases)}"
    return f"cut short for lack of time: {', '.join(phases)}"


def _independent(family: Any, n_features: int) -> bool:
    """Whether the family has mixed columns and takes several numeric columns as independent."""
    columns = family.by_column(n_features)
    numbers = [one for one in columns if one.kind == "real" and one.independent_columns]
    return len(columns) > len(numbers) > 1


def _refinement(text: str) -> str | bool | float:
    if text == "auto":
        return text
    if text in ("converge", "no"):
        return text == "converge"
    try:
        return opt.parse_time(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(
            f"--refine must be auto, converge, no, or a duration such as 30s, got {text!r}"
        ) from error


def _stem(data: Path) -> str:
    name = data.resolve().name if data.name in ("", "..") else data.name
    name = name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name if not data.is_dir() else name
