"""What commands share: options, and checks of what they are given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from dpsearch.errors import DataError, DataTypeError, ParameterError

Data = Annotated[Path, typer.Argument(help="A CSV, NPY or NPZ file: a row per point.")]
FamilyName = Annotated[
    str, typer.Option(help="auto, gaussian, diagonal_gaussian, full_gaussian, multinomial, …")
]
Alpha = Annotated[str, typer.Option(help="Concentration: auto, or a number above 0.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="Seed of whatever is random.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def parse_alpha(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError as error:
        raise ParameterError(f"alpha must be 'auto' or a number above 0, got {text!r}") from error


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Errors about the data name the file."""
    try:
        yield
    except (DataError, DataTypeError) as error:
        raise DataError(f"{path}: {error}") from error


def check_writable(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ParameterError(f"{path}: is a folder, not a file")
    if path.exists() and not force:
        raise ParameterError(f"{path} exists; use --force to overwrite it")
    if not path.parent.is_dir():
        raise ParameterError(f"{path.parent}: no such folder")
