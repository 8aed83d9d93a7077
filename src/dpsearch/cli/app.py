"""The application with all commands, and the exit codes and messages of their errors."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dpsearch._signals import Stopped, watch_signals
from dpsearch.cli.certify import certify
from dpsearch.cli.cut import cut
from dpsearch.cli.fit import fit
from dpsearch.cli.inspect import inspect as inspect_model
from dpsearch.cli.options import Command, option, parameters, signed
from dpsearch.cli.predict import predict
from dpsearch.cli.sample import sample
from dpsearch.errors import DPSearchError, plain_interrupts

Debug = Annotated[bool, option("Show the traceback of an error.", "--debug")]

app = typer.Typer(
    help="Cluster data without choosing the number of clusters.",
    epilog="Exit codes: 0 success; 1 an error in the data or a parameter, or a file that cannot be"
    " read or written; 2 wrong usage; 70 a bug in dpsearch; 130 interrupted; 141 the reader of the"
    " output has closed it; 143 terminated. Results go to standard output, everything else to"
    " standard error.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _guarded(command: Command) -> Command:
    """Return a command that prints errors on one line, or with --debug the traceback, and exits."""

    def run(*, debug: Debug = False, **options: Any) -> None:
        with _reporting(debug), plain_interrupts():
            command(**options)

    wanted = {**parameters(command), "debug": parameters(run)["debug"]}
    return signed(functools.wraps(command)(run), wanted)


@contextlib.contextmanager
def _reporting(debug: bool) -> Iterator[None]:
    code, message = 1, ""
    cause: BaseException
    try:
        yield
        return
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Stopped as error:
        code, message, cause = error.code, str(error), error
    except KeyboardInterrupt as error:
        code, message, cause = 130, "interrupted", error
    except BrokenPipeError as error:
        # The reader of the output has ended, which is not an error.  There is nothing to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(141) from error
    except DPSearchError as error:
        message, cause = str(error), error
    except MemoryError as error:
        message, cause = "out of memory", error
    except OSError as error:
        reason = str(error.strerror or error)
        message, cause = f"{error.filename}: {reason}" if error.filename else reason, error
    except Exception as error:
        code, cause = 70, error
        message = f"a bug: {type(error).__name__}: {error} (--debug shows the traceback)"
    if debug:
        raise cause
    print(f"dpsearch: {' '.join(message.split())}", file=sys.stderr)
    raise typer.Exit(code) from cause


def demo(
    out: Annotated[Path, option("Folder for the picture of the clusters.")] = Path("demo-output"),
) -> None:
    """Cluster 3,000 handwritten digits that come with dpsearch, and show the clusters."""
    from dpsearch.demo import run_demo

    run_demo(out, Console())


for command in (fit, predict, cut, inspect_model, certify, sample, demo):
    app.command()(_guarded(command))


def _version(wanted: bool) -> None:
    if wanted:
        from dpsearch._version import __version__

        print(f"dpsearch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command that the arguments name, as a program."""
    for stream in (sys.stdout, sys.stderr):  # the locale may lack characters of the data
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    if threading.current_thread() is threading.main_thread():
        watch_signals()
    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, *about: Any, **more: Any) -> None:
    print(f"dpsearch: {' '.join(str(message).split())}", file=sys.stderr)
