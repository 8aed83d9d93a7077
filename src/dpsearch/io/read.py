"""`read_table`: a file of any known format, standard input, or a folder of texts."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from dpsearch._files import naming, visible_files
from dpsearch._scratch import scratch
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.io.blocks import check_encoding
from dpsearch.io.table import Reading, Table

FORMATS = {
    "csv": (".csv", ".tsv", ".tab", ".txt"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "numpy": (".npy", ".npz"),
    "mtx": (".mtx",),
    "svmlight": (".svmlight", ".svm", ".libsvm"),
    "h5ad": (".h5ad",),
}
# Tables of other programs, which are not read here.
_OTHERS = (".xlsx", ".xls", ".xlsm", ".ods", ".json", ".jsonl", ".ndjson", ".dta", ".sav", ".rds")
STANDARD_INPUT = "standard input"
# The options that apply to each format; to formats not named here only the first three do.
_CHOOSING = {"columns", "drop", "index"}
_WITH_TEXTS = _CHOOSING | {"text", "categories", "words"}
_OPTIONS = {
    "csv": _WITH_TEXTS | {"separator", "decimal_comma", "header", "encoding"},
    "parquet": _WITH_TEXTS,
    "arrow": _WITH_TEXTS,
    "folder": {"encoding", "words"},
}


def read_table(
    path: str | Path,
    reading: Reading | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> Table:
    """Read rows to cluster.

    Parameters
    ----------
    path
        A file, ``-`` for standard input, or a folder of text files.
    reading
        The options and the model for reading it.
    progress
        Called now and then with the number of rows read, if the file is read in blocks.
    """
    reading = reading or Reading()
    source = STANDARD_INPUT if str(path) == "-" else str(path)
    with located(source):
        form = format_of(Path(path), reading)
        check_options(form, reading)
        with local_file(path) as local:
            try:
                before, sha256 = _stamp(local), digest(local)
                table = _read(local, form, reading, progress)
                if _stamp(local) != before:
                    raise DataError("was changed while it was being read")
            except OSError as error:
                where = error.filename if local.is_dir() and error.filename else source
                why = error.strerror or error
                raise DataError(f"cannot be read: {why}", source=where) from error
    table.source = source
    table.sha256 = sha256
    return table


def check_options(form: str, reading: Reading) -> None:
    """Raise `ParameterError` if an option would be ignored."""
    check_encoding(reading.encoding)
    given = [
        field.name
        for field in fields(Reading)
        if field.name not in ("input_format", "model")
        and getattr(reading, field.name) != field.default
    ]
    names = {name: f"--{name.replace('_', '-')}" for name in given} | {"categories": "--category"}
    for name in given:
        if name not in _OPTIONS.get(form, _CHOOSING):
            what = "a folder of texts" if form == "folder" else f"the format {form}"
            raise ParameterError.of(names[name], f"does not apply to {what}")
        if reading.text is not None and name in ("columns", "drop", "categories"):
            raise ParameterError.of(
                names[name], "does not apply to --text, which counts the words of one column"
            )
    if "words" in given and reading.text is None and form != "folder":
        raise ParameterError.of("--words", "only applies to texts: add --text COLUMN")


def _stamp(path: Path) -> tuple[int, ...]:
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder."""
    if not path.is_dir():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    return digest_all(visible_files(path), path)


def digest_all(files: Iterable[Path], folder: Path) -> str:
    """Return the SHA-256 of the names, relative to a folder, and contents of files."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(folder).as_posix()}\n{digest(file)}".encode())
    return whole.hexdigest()


def format_of(path: Path, reading: Reading) -> str:
    """Return the format that was named, or that of the file's ending."""
    if reading.input_format is not None:
        if reading.input_format not in FORMATS:
            raise ParameterError.unknown("--input-format", "format", reading.input_format, FORMATS)
        return reading.input_format
    if str(path) == "-":
        return "csv"
    if path.is_dir():
        return "folder"
    if not path.exists():
        raise DataError("no such file", source=path)
    ending = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    for form, endings in FORMATS.items():
        if ending.lower() in endings:
            return form
    known = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    advice = "save it as CSV or Parquet, " if ending.lower() in _OTHERS else ""
    raise DataError(
        f"cannot tell the format from the ending '{ending}'; known are {known}, and text also with"
        f" .gz, such as .csv.gz ({advice}or give --input-format)",
        source=path,
    )


@contextlib.contextmanager
def local_file(path: str | Path) -> Iterator[Path]:
    """Yield a path that can be read twice: a copy of standard input, or of a pipe."""
    path = Path(path)
    if str(path) != "-" and (path.is_file() or path.is_dir()):
        yield path
        return
    with scratch(tempfile.gettempdir(), "dpsearch-", folder=True) as folder:
        copy = folder / "input"
        with naming(copy), copy.open("wb") as out:
            if str(path) == "-":
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                with path.open("rb") as stream:
                    shutil.copyfileobj(stream, out)
        yield copy


def _read(path: Path, form: str, reading: Reading, progress: Callable[[int], None] | None) -> Table:
    from dpsearch.io import arrays, delimited, frames, text

    if path.is_dir():
        if form != "folder":
            raise DataError("is a folder, not a file")
        return text.read_folder(path, reading)
    readers: dict[str, Callable[..., Any]] = {
        "numpy": arrays.read_numpy,
        "mtx": arrays.read_matrix_market,
        "svmlight": arrays.read_svmlight,
        "h5ad": arrays.read_anndata,
    }
    if form == "csv":
        table, choice = delimited.read_delimited(path, reading, progress=progress)
    elif form in ("parquet", "arrow"):
        table, choice = frames.read_frame(path, form, reading)
    else:
        table, choice = readers[form](path, reading)
    if choice.text is not None:
        return text.count_text_column(table, reading)
    if form in ("csv", "parquet", "arrow"):
        if table.n_rows == 0:
            raise DataError("there are no rows")
        table.named = choice.named
        places = choice.kept if table.numbers is None else table.numbers
        table.kinds = {table.name(places.index(j)): "category" for j in choice.categories}
    return table
