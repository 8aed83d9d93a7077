"""The command line.  Exit codes: 0 done, 1 the data or a parameter is at fault, 2 wrong usage,
130 interrupted."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dpsearch.cli.bench import bench
from dpsearch.cli.certify import certify
from dpsearch.cli.demo import demo
from dpsearch.cli.fit import fit
from dpsearch.cli.reproduce import reproduce
from dpsearch.cli.sample import sample
from dpsearch.errors import DPSearchError

app = typer.Typer(
    help="Clustering without choosing the number of clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Say that Ctrl-C was heard: typer would leave without a word."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as error:
            print("dpsearch: interrupted", file=sys.stderr)
            raise typer.Exit(130) from error

    return run


for command in (fit, sample, certify, reproduce, bench, demo):
    app.command()(_interruptible(command))


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
