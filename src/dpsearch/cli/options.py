"""The options that several commands have, and how their values are checked."""

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
    """Return the bytes in "2GB", "500 MB" or a plain number.

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
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")]
Jobs = Annotated[int, typer.Option(help="Threads; -1 for all cores.")]
Memory = Annotated[
    int | None,
    typer.Option(
        parser=parse_size,
        metavar="SIZE",
        help="Memory limit, as in 2GB; the data are then read and clustered in pieces.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Return the seconds in "30s", "2m", "1.5h" or a plain number.

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
    """Return the kinds of columns from NAME=KIND, separated by commas."""
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


def _option(help: str, *names: str, **about: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Reading the data", **about)


def _reading(
    columns: Annotated[
        str | None, _option("Columns to cluster by: names, numbers from 0, ranges, as in a,b,3-7.")
    ] = None,
    drop: Annotated[str | None, _option("Columns to leave out.")] = None,
    index: Annotated[str | None, _option("Column that names the rows.")] = None,
    text: Annotated[str | None, _option("Column of texts: cluster by their words.")] = None,
    words: Annotated[int, _option("For texts: largest number of words to count.", min=1)] = 2000,
    category: Annotated[
        str | None, _option("Columns to take as categories though they hold numbers.")
    ] = None,
    input_format: Annotated[
        str | None,
        _option(
            "csv, parquet, arrow, numpy, mtx, svmlight or h5ad. Default: by the file's ending; csv"
            " for standard input."
        ),
    ] = None,
    separator: Annotated[
        str | None, _option("Separator of the cells of a CSV file. Default: detected.")
    ] = None,
    decimal_comma: Annotated[bool, _option("3,14 is a number.", "--decimal-comma")] = False,
    header: Annotated[
        bool | None,
        _option(
            "Whether the first line holds names. Default: yes if it holds anything but numbers, or"
            " 0, 1, 2 … as pandas writes.",
            "--header/--no-header",
        ),
    ] = None,
    encoding: Annotated[str, _option("Encoding of text.")] = "utf-8",
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
