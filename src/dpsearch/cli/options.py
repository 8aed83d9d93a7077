"""The options that several commands share, and parsers of their values."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch.errors import DataError, DataTypeError, ParameterError

if TYPE_CHECKING:
    from dpsearch.io import Reading as Reading
    from dpsearch.io import Table
else:  # typer looks at annotations; Polars is imported when there is something to read
    Reading = Any

# -- options that several commands share ----------------------------------------------------

Command = Callable[..., None]


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)


def with_options(command: Command, options: Callable[..., Any], name: str) -> Command:
    """Return a command that takes the parameters of `options` in place of its parameter `name`.

    The result of calling `options` with them becomes that argument.
    """
    own, extra = parameters(command), parameters(options)
    del own[name]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        value = options(**{key: given.pop(key) for key in extra})
        command(**given, **{name: value})

    return signed(run, {**own, **extra})


def signed(run: Command, wanted: dict[str, inspect.Parameter]) -> Command:
    """Declare the keywords of a function of `**keywords`, which typer turns into options."""
    keywords = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in wanted.values()
    ]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run


# -- values -----------------------------------------------------------------------------------

_SIZES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_DURATIONS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _quantity(text: str, units: dict[str, float], what: str) -> float:
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", str(text))
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"{text!r} is not a {what}")
    return float(match[1]) * units[match[2]]


def parse_size(text: str) -> int:
    """Return the bytes in "2GB", "500 MB" or a plain number.

    >>> parse_size("2GB"), parse_size("1.5 MB")
    (2000000000, 1500000)
    """
    lower = str(text).lower().replace("ib", "b")
    return int(_quantity(lower, _SIZES, "size such as 500MB or 2GB"))


def parse_duration(text: str) -> float:
    """Return the seconds in "30s", "2m", "1.5h" or a plain number.

    >>> parse_duration("2m"), parse_duration("0.5")
    (120.0, 0.5)
    """
    return _quantity(text, _DURATIONS, "duration such as 30s, 2m or 1h")


def parse_time(text: str) -> float:
    """Return the seconds of a duration above 0."""
    seconds = parse_duration(text)
    if seconds == 0.0:
        raise typer.BadParameter(f"must be above 0, got {text!r}")
    return seconds


def parse_alpha(text: str) -> float | str:
    """Return a number, or the text itself: "auto" or the name of a prior."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_level(text: str) -> int | str:
    """Return a number of clusters, or the text itself: "auto" or "components"."""
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else text


def parse_kinds(text: str) -> dict[str, str]:
    """Return the kinds of columns from NAME=KIND, separated by commas."""
    from dpsearch.tables import GIVEN_KINDS

    kinds = {}
    for part in text.split(","):
        name, equals, kind = part.rpartition("=")
        if not equals or not name or kind.strip() not in GIVEN_KINDS:
            raise ParameterError.of(
                "--kinds", f": {part!r} is not NAME=KIND, where KIND is {', '.join(GIVEN_KINDS)}"
            )
        kinds[name.strip()] = kind.strip()
    return kinds


def parse_names(text: str | None) -> list[str]:
    """Return names that are separated by commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def parse_values(text: str) -> list[str | float]:
    """Return values that are separated by commas, as numbers if possible, otherwise as texts.

    >>> parse_values("-9, n.a.")
    [-9.0, 'n.a.']
    """
    parts = [part.strip() for part in text.split(",")]
    return [float(part) if re.fullmatch(r"[+-]?\d+\.?\d*", part) else part for part in parts]


def option(help: str, *names: str, **about: Any) -> Any:
    return typer.Option(*names, help=help, **about)


duration = functools.partial(option, parser=parse_duration, metavar="DURATION")
time_span = functools.partial(duration, parser=parse_time)

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
    str, option("auto, or the name of a family, such as gaussian or multinomial.")
]
Alpha = Annotated[str, option("Concentration: auto, a number above 0, or the name of a prior.")]
LevelName = Annotated[
    str,
    option(
        "What a cluster is: auto, components (each component of the mixture), or a number of"
        " clusters."
    ),
]
MinSize = Annotated[
    int,
    option("Merge clusters of fewer rows into the one that they share most with.", min=1),
]
Seed = Annotated[int | None, option("Seed for random numbers.", min=0, max=2**32 - 1)]
Jobs = Annotated[int, option("Number of threads; -1 for all cores.")]
Memory = Annotated[
    int | None,
    option(
        "Memory limit, such as 2GB; the data are then read and clustered in pieces.",
        parser=parse_size,
        metavar="SIZE",
    ),
]
Force = Annotated[bool, option("Overwrite existing files.", "--force")]
Verbatim = Annotated[
    bool,
    option(
        "Write texts to CSV as they are. By default, a ' is put in front of those that a"
        " spreadsheet would take for a formula (first character = + - @).",
        "--verbatim",
    ),
]
Json = Annotated[bool, option("Print one JSON object on standard output.", "--json")]
Quiet = Annotated[bool, option("Print nothing but errors.", "--quiet", "-q")]


# -- reading ----------------------------------------------------------------------------------


_option = functools.partial(option, rich_help_panel="Reading the data")


def _reading(
    columns: Annotated[
        str | None,
        _option("Columns to cluster by: names, numbers from 0 or ranges, such as a,b,3-7."),
    ] = None,
    drop: Annotated[str | None, _option("Columns to leave out, named in the same way.")] = None,
    index: Annotated[str | None, _option("Column that names the rows.")] = None,
    text: Annotated[
        str | None, _option("Column of texts; the rows are clustered by their words.")
    ] = None,
    words: Annotated[
        int, _option("Largest number of different words to count in texts.", min=1)
    ] = 2000,
    categories: Annotated[
        str | None,
        _option("Columns to treat as categories although they hold numbers.", "--category"),
    ] = None,
    input_format: Annotated[
        str | None,
        _option(
            "Format: csv, parquet, arrow, numpy, mtx, svmlight or h5ad. Default: from the file's"
            " ending; csv for standard input."
        ),
    ] = None,
    separator: Annotated[
        str | None, _option("Separator of the cells of a CSV file. Default: detected.")
    ] = None,
    decimal_comma: Annotated[bool, _option("Read 3,14 as a number.", "--decimal-comma")] = False,
    header: Annotated[
        bool | None,
        _option(
            "Whether the first line holds column names. Default: yes if it holds anything but"
            " numbers, or 0, 1, 2 … as pandas writes.",
            "--header/--no-header",
        ),
    ] = None,
    encoding: Annotated[str, _option("Encoding of text files.")] = "utf-8",
) -> Reading:
    given = locals()
    from dpsearch.io import Reading

    return Reading(**given | {"separator": "\t" if separator in ("\\t", "tab") else separator})


def reads_data(command: Command) -> Command:
    """Add the options about reading data to a command, as its argument `reading`."""
    return with_options(command, _reading, "reading")


@contextlib.contextmanager
def errors_name(table: Table) -> Iterator[None]:
    """Add the file, its lines and columns to errors about the data."""
    try:
        yield
    except (DataError, DataTypeError) as error:
        table.locate(error)
        raise


# -- writing ----------------------------------------------------------------------------------


def check_writable(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ParameterError("is a folder, not a file", source=path)
    if path.is_file() and not force:
        raise ParameterError(f"{path} exists; use --force to overwrite it")
    if not path.parent.is_dir():
        raise ParameterError("no such folder", source=path.parent)
