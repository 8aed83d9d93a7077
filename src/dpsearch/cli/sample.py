"""`dpsearch sample`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dpsearch.cli.console import Voice, print_json
from dpsearch.cli.model import load_model, matrix_of, read_for
from dpsearch.cli.options import (
    Alpha,
    Data,
    FamilyName,
    Force,
    Jobs,
    Json,
    Quiet,
    Reading,
    Seed,
    check_writable,
    errors_name,
    parse_alpha,
    parse_duration,
    reads_data,
)
from dpsearch.cli.page import write_page
from dpsearch.errors import DataError, ParameterError

SAMPLERS = {
    "gibbs": None,
    "split-merge-1": 1,
    "split-merge-2": 2,
    "split-merge-3": 3,
    "sams": "sams",
}


@reads_data
def sample(
    data: Data,
    reading: Reading,
    draws: Annotated[int, typer.Option(help="Sweeps of each chain, burn-in included.")] = 1000,
    burn_in: Annotated[
        int | None,
        typer.Option(help="Sweeps not kept; default: 100, at most a tenth."),
    ] = None,
    thin: Annotated[int, typer.Option(help="Keep every so-manieth draw.")] = 1,
    chains: Annotated[int, typer.Option(help="Independent chains.")] = 2,
    sampler: Annotated[str, typer.Option(help=", ".join(SAMPLERS))] = "split-merge-3",
    moves: Annotated[int, typer.Option(min=1, help="Split-merge proposals in a sweep.")] = 1,
    start: Annotated[
        str | None,
        typer.Option(
            help="search, refined, one, all or log. Default: search, or the model's clusters."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="What `dpsearch fit` wrote: sample under its family and concentration."),
    ] = None,
    family: FamilyName = "auto",
    alpha: Alpha = "auto",
    out: Annotated[Path, typer.Option(help="Where to write the draws.")] = Path("draws.npz"),
    labels: Annotated[
        Path | None, typer.Option(help="Where to write a point estimate (CSV).")
    ] = None,
    loss: Annotated[str, typer.Option(help="Of the point estimate: vi or binder.")] = "vi",
    plot: Annotated[Path | None, typer.Option(help="Where to write a trace plot.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Where to write a report (HTML) of the model's clusters, with the posterior of"
            " their number and of the concentration. Needs --model."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Where chains are saved as they run. Default: beside OUT, removed at the end."
        ),
    ] = None,
    checkpoint_seconds: Annotated[
        float,
        typer.Option(parser=parse_duration, metavar="DURATION", help="How often they are saved."),
    ] = 10.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint if there is one.")
    ] = False,
    jobs: Jobs = -1,
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw partitions from the posterior.

    A run that was stopped goes on with --resume, given the same data and options, and ends with
    the draws that it would have had.
    """
    from dpsearch.estimator import DPMixture
    from dpsearch.io import labels_table, read_table, write_table
    from dpsearch.io.output import check_ending
    from dpsearch.plots import check_figure
    from dpsearch.problem import Problem
    from dpsearch.progress import progress, stages
    from dpsearch.samplers.point_estimates import loss_function
    from dpsearch.samplers.run import sample_problem
    from dpsearch.samplers.split_merge import variant_options

    if sampler not in SAMPLERS:
        raise ParameterError(f"unknown sampler {sampler!r}: known are {', '.join(SAMPLERS)}")
    loss_function(loss, 1)
    outputs = [path for path in (out, labels, plot, report) if path is not None]
    for path in outputs:
        check_writable(path, force)
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise ParameterError("--out, --labels, --plot and --report name the same file")
    if plot is not None:
        check_figure(plot)
    if labels is not None:
        check_ending(labels)
    if model is not None and (family, alpha) != ("auto", "auto"):
        raise ParameterError("--model brings its own family and concentration")
    if model is None and report is not None:
        raise ParameterError("--report shows the clusters of a model: say --model")
    kept = checkpoint is not None
    saved = checkpoint if checkpoint is not None else out.with_name(out.name + ".checkpoint")
    if saved.resolve() in {path.resolve() for path in outputs}:
        raise ParameterError(f"{saved}: --checkpoint names a file to be written")
    if saved.exists() and not resume:
        raise ParameterError(
            f"{saved} exists, from a run that was stopped: go on with --resume, or remove it"
        )
    voice = Voice(quiet)
    first: Any = start or "search"
    with stages(voice.console) as stage:
        stage.begin(f"reading {data}")
        told = {"tell": lambda n: stage.tell(f"{n:,} rows")}
        if model is not None:
            fitted = load_model(model)
            table = read_for(fitted, data, reading, **told)
            if start is None:
                first = fitted.labels_
                if table.n_rows != len(first):
                    raise DataError(
                        f"{data}: {table.n_rows} rows, but {model} was fitted to {len(first)}: its"
                        " clusters are no start; say --start search"
                    )
        else:
            table = read_table(data, reading, **told)
            stage.begin("fitting")
            # Not by the seed: a run that is resumed must come to the same family.
            fitted = DPMixture(family, parse_alpha(alpha), refine=False, random_state=0)
            fitted._listener = stage.callback
            with errors_name(table):
                fitted.fit(table.X)
        stage.begin("preparing")
        with errors_name(table):
            rows = matrix_of(fitted, table)
            problem = Problem(rows, fitted.family_, fitted._mixture.prior)
        if report is not None and fitted._containing(rows) is None:
            raise DataError(f"{data}: --report needs the data that {model} was fitted to")
    for note in table.notes:
        voice.say(f"note: {note}")
    options: dict[str, Any] = {"sampler": "gibbs"}
    if sampler != "gibbs":
        options = variant_options(SAMPLERS[sampler], moves)
    with saving(voice, saved), progress(voice.console, "sample") as callback:
        result = sample_problem(
            problem,
            draws=draws,
            burn_in=min(100, draws // 10) if burn_in is None else burn_in,
            thin=thin,
            chains=chains,
            start=first,
            n_jobs=jobs,
            rng=seed,
            callback=callback,
            checkpoint=saved,
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            **options,
        )
    for path in outputs:
        check_writable(path, force)  # once more: it may have taken hours
    with stages(voice.console) as stage:
        stage.begin("writing")
        result.save(out)
        if labels is not None:
            estimate = result.point_estimate(loss).labels
            best = labels_table(table.index, table.n_rows, cluster=estimate)
            write_table(labels, best, force=force)
        if plot is not None:
            _save_plot(result, plot)
        if report is not None:
            write_page(report, fitted, table, draws=result)
    if not kept:
        saved.unlink(missing_ok=True)
    if as_json:
        print_json(_about(result, fitted.family_.name, out))
        return
    _tell(voice, result, fitted.family_.name)
    voice.say(f"draws: {out}")


@contextlib.contextmanager
def saving(voice: Voice, path: Path) -> Iterator[None]:
    """Say on Ctrl-C where the chains are and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if path.exists():
            voice.say(f"interrupted; the chains are saved in {path}: go on with --resume")
        raise


def _save_plot(result: object, path: Path) -> None:
    from dpsearch.plots import sampler_trace, save_figure

    save_figure(sampler_trace(result)[0].figure, path)  # type: ignore[arg-type]


def _about(result: Any, family: str, out: Path) -> dict[str, Any]:
    return {
        "draws": len(result),
        "chains": result.n_chains,
        "sampler": result.sampler,
        "family": family,
        "best_log_joint": result.log_joint.max(),
        "clusters": result.k_posterior(),
        "diagnostics": result.diagnostics(),
        "seconds": result.seconds,
        "out": str(out),
    }


def _tell(voice: Voice, result: Any, family: str) -> None:
    n = result.labels.shape[1]
    voice.say(
        f"{len(result):,} partitions of {n:,} rows from {result.n_chains} chains of"
        f" {result.sampler}; family {family}; best log joint {result.log_joint.max():.6g};"
        f" {result.seconds:.1f} s"
    )
    posterior = result.k_posterior()
    likely = np.argsort(-posterior, kind="stable")[:6]
    shown = ", ".join(f"{k}: {posterior[k]:.0%}" for k in np.sort(likely) if posterior[k] >= 0.005)
    voice.say(f"clusters: {shown}")
    about = Table()
    for heading in ("", "mean", "R-hat", "effective draws"):
        about.add_column(heading, justify="right" if heading else "left")
    for name, numbers in result.diagnostics().items():
        mean = f"{np.mean(result.by_chain(name)):.6g}"
        rhat = f"{numbers['rhat']:.3f}" if np.isfinite(numbers["rhat"]) else "–"
        ess = f"{numbers['ess']:.0f}" if np.isfinite(numbers["ess"]) else "–"
        about.add_row(name, mean, rhat, ess)
    voice.console.print(about)
