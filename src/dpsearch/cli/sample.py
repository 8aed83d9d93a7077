"""`dpsearch sample`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from rich.table import Table

from dpsearch._numbers import count
from dpsearch.cli import options as opt
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import load_model, read_for, rows_of, write_page
from dpsearch.errors import DataError, ParameterError

# Name → variant of `split_merge`; None for other samplers.
SAMPLERS: dict[str, Any] = {
    "gibbs": None,
    "metropolis": None,
    "split-merge-1": 1,
    "split-merge-2": 2,
    "split-merge-3": 3,
    "sams": "sams",
}


_MIXED, _FEW = 1.1, 100  # R-hat above which, and effective draws below which, there is a message


@dataclass(frozen=True)
class Chains:
    """The options about the chains."""

    draws: Annotated[int, opt.option("Number of sweeps of each chain, including burn-in.")] = 1000
    burn_in: Annotated[
        int | None,
        opt.option("Number of first sweeps that are not kept. Default: a tenth, at most 100."),
    ] = None
    thin: Annotated[int, opt.option("Keep one in this many draws.")] = 1
    chains: Annotated[int, opt.option("Number of independent chains.")] = 2
    sampler: Annotated[str, opt.option(f"Sampler: {', '.join(SAMPLERS)}.")] = "split-merge-3"
    moves: Annotated[
        int | None, opt.option("Split-merge proposals per sweep. Default: 1.", min=1)
    ] = None
    proposals: Annotated[
        int | None, opt.option("Proposals per row and sweep (metropolis only). Default: 1.", min=1)
    ] = None
    algorithm: Annotated[
        int | None,
        opt.option("Neal's algorithm, 5 or 7 (metropolis only). Default: 5.", min=5, max=7),
    ] = None
    start: Annotated[
        str | None,
        opt.option(
            "Where chains start: search, refined, one, all or log. Default: search, or the"
            " clusters of --model."
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        opt.option(
            "File in which the running chains are saved. Default: next to OUT, removed at the end."
        ),
    ] = None
    checkpoint_seconds: Annotated[
        float,
        opt.duration("Time between saves."),
    ] = 10.0
    resume: Annotated[
        bool, opt.option("Continue from the checkpoint, if there is one.", "--resume")
    ] = False
    jobs: opt.Jobs = -1
    seed: opt.Seed = None

    def __post_init__(self) -> None:
        from dpsearch._validate import whole

        if self.sampler not in SAMPLERS:
            raise ParameterError.unknown("--sampler", "sampler", self.sampler, SAMPLERS)
        for name in ("draws", "thin", "chains"):
            whole(getattr(self, name), f"--{name}", 1)
        whole(self._burnt, "--burn-in", 0)
        for name in ("moves", "proposals", "algorithm"):
            if getattr(self, name) is not None and name not in self._own:
                raise ParameterError.of(
                    f"--{name}", f"is not an option of the sampler {self.sampler}"
                )
        if self._burnt + self.thin > self.draws:
            raise ParameterError(f"--burn-in {self._burnt} and --thin {self.thin} leave nothing of"
                                 f" --draws {self.draws}, which includes the burn-in")  # fmt: skip

    @property
    def _own(self) -> tuple[str, ...]:
        """The names of options that this sampler, but not every sampler, has."""
        return {"gibbs": (), "metropolis": ("proposals", "algorithm")}.get(self.sampler, ("moves",))

    @property
    def _burnt(self) -> int:
        return min(100, self.draws // 10) if self.burn_in is None else self.burn_in

    def saved_at(self, outputs: Outputs) -> Path:
        """Return the file of the checkpoint, or raise if it cannot be used."""
        out = outputs.out
        saved = self.checkpoint or out.with_name(out.name + ".checkpoint")
        if saved.resolve() in {path.resolve() for path in outputs.paths}:
            raise ParameterError.of(
                "--checkpoint", "names a file that the command writes: give another", source=saved
            )
        if saved.exists() and not self.resume:
            raise ParameterError(
                f"{saved} exists, from a run that was stopped: add --resume to continue it, or"
                " remove the file",
                parameter="--checkpoint",
            )
        return saved

    def run(self, problem: Any, start: Any, saved: Path, callback: Any) -> Any:
        """Return the draws."""
        from dpsearch import samplers
        from dpsearch.samplers import split_merge

        if SAMPLERS[self.sampler] is None:
            sampler: Any = getattr(samplers, self.sampler)
        else:
            sampler = partial(split_merge, variant=SAMPLERS[self.sampler])
        own = {name: getattr(self, name) for name in self._own}
        same = ("draws", "thin", "chains", "checkpoint_seconds", "resume")
        return sampler(
            problem,
            **{name: getattr(self, name) for name in same},
            **{name: value for name, value in own.items() if value is not None},
            burn_in=self._burnt,
            start=start,
            n_jobs=self.jobs,
            rng=self.seed,
            callback=callback,
            checkpoint=saved,
        )


@dataclass(frozen=True)
class Outputs:
    """The options about output files."""

    out: Annotated[Path, opt.option("File for the draws.")] = Path("draws.npz")
    labels: Annotated[Path | None, opt.option("File for a point estimate (CSV).")] = None
    loss: Annotated[str, opt.option("Loss of the point estimate: vi or binder.")] = "vi"
    plot: Annotated[Path | None, opt.option("File for a trace plot.")] = None
    report: Annotated[
        Path | None,
        opt.option(
            "File for a report (HTML) on the model's clusters, with the posterior of their number"
            " and of the concentration. Needs --model."
        ),
    ] = None
    verbatim: opt.Verbatim = False
    force: opt.Force = False

    @property
    def paths(self) -> list[Path]:
        named = (self.out, self.labels, self.plot, self.report)
        return [path for path in named if path is not None]

    def check(self) -> None:
        """Raise if one of the files cannot be written."""
        from dpsearch.io.output import check_ending
        from dpsearch.plots import check_figure
        from dpsearch.samplers.summaries import loss_function

        loss_function(self.loss, 1)
        self.check_writable()
        if len({path.resolve() for path in self.paths}) < len(self.paths):
            raise ParameterError.of("--out", ", --labels, --plot and --report name the same file")
        if self.plot is not None:
            check_figure(self.plot)
        if self.labels is not None:
            check_ending(self.labels)

    def check_writable(self) -> None:
        for path in self.paths:
            opt.check_writable(path, self.force)

    def write(self, draws: Any, source: Source) -> None:
        from dpsearch.io import labels_table, write_table
        from dpsearch.plots import sampler_trace, save_figure

        draws.save(self.out)
        table = source.table
        if self.labels is not None:
            estimate = draws.point_estimate(self.loss).labels
            best = labels_table(table.row_names, cluster=estimate)
            write_table(self.labels, best, force=self.force, verbatim=self.verbatim)
        if self.plot is not None:
            save_figure(sampler_trace(draws)[0].figure, self.plot)
        if self.report is not None:
            write_page(self.report, source.model, table, draws=draws)


class Source(NamedTuple):
    """A table, its model (given or just fitted), and the start of chains."""

    table: Any
    model: Any
    start: Any


@opt.reads_data
@partial(opt.with_options, options=Chains, name="chains")
@partial(opt.with_options, options=Outputs, name="outputs")
def sample(
    data: opt.Data,
    reading: opt.Reading,
    chains: Chains,
    outputs: Outputs,
    model: Annotated[
        Path | None,
        opt.option("What `dpsearch fit` wrote: sample under its family and concentration."),
    ] = None,
    family: opt.FamilyName = "auto",
    alpha: opt.Alpha = "auto",
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Draw partitions from the posterior.

    --resume continues a run that was stopped, given the same data and options.  The draws are then
    those of a run that was not stopped.
    """
    from dpsearch.progress import stages

    outputs.check()
    if model is not None and (family, alpha) != ("auto", "auto"):
        raise ParameterError.of(
            "--model", "has its own family and concentration: leave out --family and --alpha"
        )
    if model is None and outputs.report is not None:
        raise ParameterError.of("--report", "shows the clusters of a model: add --model")
    saved = chains.saved_at(outputs)
    messages = Messages(quiet)
    with stages(messages.console) as stage:
        stage.begin(f"reading {data}")
        if model is not None:
            source = _of_model(model, data, reading, chains.start, stage)
        else:
            source = _fitted(data, reading, family, alpha, chains.start, stage)
        stage.begin("preparing")
        with opt.errors_name(source.table):
            rows = rows_of(source.model, source.table)
            problem = source.model.problem(rows)
        if outputs.report is not None and source.model.fitted_labels(rows) is None:
            raise DataError(f"--report needs the data that {model} was fitted to", source=data)
    for note in source.table.notes:
        messages.print(f"note: {note}")
    with _saving(messages, saved), stages(messages.console) as stage:
        stage.begin("sampling")
        draws = chains.run(problem, source.start, saved, stage.callback)
    outputs.check_writable()  # once more, as sampling may have taken hours
    with stages(messages.console) as stage:
        stage.begin("writing")
        outputs.write(draws, source)
    if chains.checkpoint is None:
        saved.unlink(missing_ok=True)
    family = source.model.family_.name
    if as_json:
        print_json(_about(draws, family, outputs.out))
    else:
        _show(messages, draws, family)
        messages.print(f"draws: {outputs.out}")


def _of_model(
    path: Path, data: Path, reading: opt.Reading, start: str | None, stage: Any
) -> Source:
    """Read the table for a given model."""
    model = load_model(path)
    table = read_for(model, data, reading, progress=stage.count_rows)
    if start is not None:
        return Source(table, model, start)
    if table.n_rows != len(model.labels_):
        raise DataError(
            f"{table.n_rows} rows, but {path} was fitted to {len(model.labels_)}: chains cannot"
            " start from its clusters; use --start search",
            source=data,
        )
    return Source(table, model, model.component_labels_)


def _fitted(
    data: Path, reading: opt.Reading, family: str, alpha: str, start: str | None, stage: Any
) -> Source:
    """Read the table, choose a family and fit a model."""
    from dpsearch.estimator import DPMixture
    from dpsearch.io import read_table

    table = read_table(data, reading, progress=stage.count_rows)
    stage.begin("fitting")
    # The seed is fixed because a resumed run must choose the same family.
    model = DPMixture(family, opt.parse_alpha(alpha), refine=False, random_state=0)
    with opt.errors_name(table):
        model.fit(table.X, callback=stage.callback)
    return Source(table, model, start or "search")


@contextlib.contextmanager
def _saving(messages: Messages, path: Path) -> Iterator[None]:
    """On Ctrl-C, print where the chains are saved and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        if path.exists():
            messages.print(f"interrupted; the chains are saved in {path}: add --resume to continue")
        raise


def _about(draws: Any, family: str, out: Path) -> dict[str, Any]:
    return {
        "draws": len(draws),
        "chains": draws.n_chains,
        "sampler": draws.sampler,
        "family": family,
        "best_log_joint": draws.log_joint.max(),
        "clusters": draws.k_posterior(),
        "diagnostics": draws.diagnostics(),
        "seconds": draws.seconds,
        "out": str(out),
    }


def _show(messages: Messages, draws: Any, family: str) -> None:
    n = draws.labels.shape[1]
    messages.print(
        f"{count(len(draws), 'partition')} of {count(n, 'row')} from"
        f" {count(draws.n_chains, 'chain')} of"
        f" {draws.sampler}; family {family}; best log joint {draws.log_joint.max():.6g};"
        f" {draws.seconds:.1f} s"
    )
    posterior = draws.k_posterior()
    likely = np.argsort(-posterior, kind="stable")[:6]
    shown = ", ".join(f"{k}: {posterior[k]:.0%}" for k in np.sort(likely) if posterior[k] >= 0.005)
    messages.print(f"clusters: {shown}")
    table = Table()
    for heading in ("", "mean", "R-hat", "effective draws"):
        table.add_column(heading, justify="right" if heading else "left")
    found = draws.diagnostics()
    for name, numbers in found.items():
        row = [f"{np.mean(draws.by_chain(name)):.6g}", f"{numbers['rhat']:.3f}"]
        row.append(f"{numbers['ess']:.0f}")
        table.add_row(name, *("–" if text == "nan" else text for text in row))
    messages.console.print(table)
    if any(numbers["rhat"] > _MIXED for numbers in found.values()):
        messages.print(f"R-hat above {_MIXED}: the chains disagree, so these are not yet draws from"
                       " the posterior; increase --draws")  # fmt: skip
    elif any(numbers["ess"] < _FEW for numbers in found.values()):
        messages.print(f"fewer than {_FEW} effective draws: increase --draws")
