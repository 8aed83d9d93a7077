"""What commands share: options, and checks of what they are given."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch.cli.signature import Command, with_options
from dpsearch.errors import DataError, DataTypeError, ParameterError, UnclearColumnError

if TYPE_CHECKING:
    from dpsearch.io import Reading as Reading
    from dpsearch.io import Table
else:  # typer looks at annotations; Polars is imported when there is something to read
    Reading = Any

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(text: str) -> int:
    """Bytes in "2GB", "500 MB" or a plain number.

    >>> parse_size("2GB"), parse_size("1.5 MB")
    (2000000000, 1500000)
    """
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", str(text))
    unit = "" if match is None else match[2].upper().replace("IB", "B")
    if match is None or unit not in _SIZES:
        raise typer.BadParameter(f"{text!r} is not a size such as 500MB or 2GB")
    return int(float(match[1]) * _SIZES[unit])


Data = Annotated[
    Path,
    typer.Argument(
        help="A table (CSV, TSV, Parquet, Arrow, Feather, NPY, NPZ, Matrix Market, SVMlight,"
        " AnnData), a folder of text files, or - for standard input."
    ),
]
Model = Annotated[
    Path, typer.Argument(help="What `dpsearch fit` wrote: the folder, or its model.npz.")
]
FamilyName = Annotated[
    str, typer.Option(help="auto, or the name of a family, as gaussian or multinomial.")
]
Alpha = Annotated[str, typer.Option(help="Concentration: auto, a number above 0, or a prior.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Seed of whatever is random.")]
Jobs = Annotated[int, typer.Option(help="Threads; -1 for all cores.")]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=parse_size,
        metavar="SIZE",
        help="Read and work piece by piece within so much memory, as in 2GB.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing but errors.")]

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds in "30s", "2m", "1.5h" or a plain number.

    >>> parse_duration("2m"), parse_duration("0.5")
    (120.0, 0.5)
    """
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", str(text))
    if match is None or match[2] not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a duration such as 30s, 2m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def parse_alpha(text: str) -> float | str:
    """A number, or the text itself: "auto" or the name of a prior."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_kinds(text: str) -> dict[str, str]:
    """What columns hold, as NAME=KIND with commas between."""
    from dpsearch.tables import KINDS

    kinds = {}
    for part in text.split(","):
        name, equals, kind = part.rpartition("=")
        if not equals or not name or kind.strip() not in KINDS:
            raise ParameterError(
                f"--kinds: {part!r} is not NAME=KIND with a kind of {', '.join(KINDS)}"
            )
        kinds[name.strip()] = kind.strip()
    return kinds


# -- reading ----------------------------------------------------------------------------------

_PANEL = "Reading the data"


def _reading(
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns to cluster by: names, numbers from 0, ranges, as in a,b,3-7.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out.", rich_help_panel=_PANEL)
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="Column that names the rows.", rich_help_panel=_PANEL)
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Column of texts: cluster by their words.", rich_help_panel=_PANEL),
    ] = None,
    words: Annotated[
        int,
        typer.Option(
            min=1, help="Of texts: how many words to count at most.", rich_help_panel=_PANEL
        ),
    ] = 2000,
    category: Annotated[
        str | None,
        typer.Option(
            help="Columns to take as categories though they hold numbers.", rich_help_panel=_PANEL
        ),
    ] = None,
    input_format: Annotated[
        str | None,
        typer.Option(
            help="csv, parquet, arrow, numpy, mtx, svmlight or h5ad. Default: by the file's"
            " ending; csv for standard input.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            help="Between cells of a CSV file. Default: found out.", rich_help_panel=_PANEL
        ),
    ] = None,
    decimal_comma: Annotated[
        bool, typer.Option("--decimal-comma", help="3,14 is a number.", rich_help_panel=_PANEL)
    ] = False,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line has names. Default: if it holds anything but numbers, or"
            " 0, 1, 2 … as pandas writes.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of text.", rich_help_panel=_PANEL)] = "utf-8",
) -> Reading:
    from dpsearch.io import Reading

    return Reading(
        columns=columns,
        drop=drop,
        index=index,
        text=text,
        categories=category,
        input_format=input_format,
        separator="\t" if separator in ("\\t", "tab") else separator,
        decimal_comma=decimal_comma,
        header=header,
        encoding=encoding,
        words=words,
    )


def reads_data(command: Command) -> Command:
    """Give a command the options about its data, as the argument `reading`."""
    return with_options(command, _reading, "reading")


@contextlib.contextmanager
def errors_name(table: Table) -> Iterator[None]:
    """Errors about the data name the file, its lines and its columns, and advise options."""
    try:
        with advising_options():
            yield
    except (DataError, DataTypeError) as error:
        table.locate(error)
        raise


@contextlib.contextmanager
def advising_options() -> Iterator[None]:
    """Errors about a column advise an option of the command line instead of a parameter."""
    try:
        yield
    except UnclearColumnError as error:
        declare = f", or say --category {error.column!r}"
        drop = f" with --drop {error.column!r}"
        error.advice = f"leave it out{declare if error.kind == 'category' else drop}"
        raise


# -- writing ----------------------------------------------------------------------------------


def check_writable(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ParameterError("is a folder, not a file", source=path)
    if path.is_file() and not force:
        raise ParameterError(f"{path} exists; use --force to overwrite it")
    if not path.parent.is_dir():
        raise ParameterError(f"{path.parent}: no such folder")
