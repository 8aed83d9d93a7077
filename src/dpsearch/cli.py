"""The command line.  Exit codes: 0 done, 1 the data or a parameter is at fault, 2 wrong usage,
130 interrupted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from dpsearch.errors import DataError, DataTypeError, DPSearchError, ParameterError

app = typer.Typer(
    help="Clustering without choosing the number of clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from dpsearch import __version__

        print(f"dpsearch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _alpha(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError as error:
        raise ParameterError(f"alpha must be 'auto' or a number above 0, got {text!r}") from error


def _check_writable(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ParameterError(f"{path}: is a folder, not a file")
    if path.exists() and not force:
        raise ParameterError(f"{path} exists; use --force to overwrite it")
    if not path.parent.is_dir():
        raise ParameterError(f"{path.parent}: no such folder")


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="A CSV, NPY or NPZ file: a row per point.")],
    family: Annotated[
        str, typer.Option(help="auto, gaussian, diagonal_gaussian, full_gaussian, multinomial, …")
    ] = "auto",
    alpha: Annotated[str, typer.Option(help="Concentration: auto, or a number above 0.")] = "auto",
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses that search keeps.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Time for refinement; default: till it converges.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the labels.")] = Path("labels.csv"),
    model: Annotated[Path | None, typer.Option(help="Where to save the model (.npz).")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Seed of whatever is random.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Cluster a table and write the cluster of each row."""
    from dpsearch.estimator import DPMixture
    from dpsearch.io import read_table, write_labels

    for path in (out, model):
        if path is not None:
            _check_writable(path, force)
    if model is not None and model.resolve() == out.resolve():
        raise ParameterError(f"{out}: --out and --model name the same file")
    console = Console(stderr=True)
    estimator = DPMixture(
        family=family,
        alpha=_alpha(alpha),
        beam_size=beam_size,
        refine=True if seconds is None else seconds,
        random_state=seed,
    )
    table = read_table(data)
    try:
        with console.status("search"):
            estimator.fit(table.X)
        if table.names is not None:
            estimator.feature_names_in_ = np.array(table.names, dtype=object)
    except (DataError, DataTypeError) as error:
        raise DataError(f"{data}: {error}") from error
    write_labels(out, estimator.labels_)
    if model is not None:
        estimator.save(model)
    console.print(
        f"{len(estimator.labels_):,} rows in {estimator.n_clusters_} clusters;"
        f" log joint {estimator.log_joint_:.6g}; family {estimator.family_.name}; labels: {out}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-output"),
) -> None:
    """Cluster 3,000 embedded handwritten digits, and show what was found."""
    from dpsearch.demo import run_demo

    run_demo(out, Console())


def main() -> None:
    """Entry point: errors on one line, no traceback."""
    try:
        app()
    except DPSearchError as error:
        print(f"dpsearch: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("dpsearch: out of memory", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"dpsearch: {error.filename or 'file'}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("dpsearch: interrupted", file=sys.stderr)
        sys.exit(130)
