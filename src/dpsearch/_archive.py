"""Archives of arrays with one JSON text: models, checkpoints and draws are stored in this form.

They are NumPy's .npz files, read without pickles, so that they cannot contain code.  The entry
``about`` is the text, with the format and its version.  Entries are not compressed, so that a small
file with a false header cannot request much memory.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._files import atomic_write, remove_leftovers
from dpsearch._version import __version__
from dpsearch.errors import CheckpointWarning, ModelFileError

# The memory that an archive may need: this much, or this many times its own size.  Files of other
# programs and of early versions of dpsearch are compressed.
_HARMLESS = 64 << 20
_MOST_COMPRESSED = 8


def write_archive(path: str | Path, about: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write an archive; an existing file is replaced only when the new one is complete."""
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    with atomic_write(path) as stream:
        np.savez(stream, about=text, **arrays)


_READERS = {
    "dpsearch-model": "dpsearch.load",
    "dpsearch-draws": "Draws.load",
    "dpsearch-variational": "VariationalMixture.load",
}


def read_archive(
    path: Path, form: str, version: int, what: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the text and the arrays; pickles and excessive demands of memory are refused."""
    if not path.is_file():
        raise ModelFileError("no such file", source=path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, path)
        with np.load(path, allow_pickle=False) as entries:
            arrays = {name: entries[name] for name in entries.files}
        about = json.loads(bytes(arrays.pop("about")).decode())
    except ModelFileError:
        raise
    except Exception as error:  # BadZipFile, zlib.error and the like, which share no base
        raise ModelFileError(f"damaged, or not {what}: {error}", source=path) from error
    found = about.get("format") if isinstance(about, dict) else None
    if found != form:
        reader = _READERS.get(str(found))
        other = f", but a file for {reader}" if reader else ""
        raise ModelFileError(f"not {what}{other}", source=path)
    if about.get("version") != version:
        raise ModelFileError(
            f"{what} of format {about.get('version')!r}, but this dpsearch reads format {version}",
            source=path,
        )
    return about, arrays


@contextmanager
def opened_archive(
    path: Path, form: str, version: int, what: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the text and the arrays; errors in the block are raised as errors of the file."""
    about, arrays = read_archive(path, form, version, what)
    try:
        yield about, arrays
    except ModelFileError as error:
        error.locate(str(path))
        raise
    except Exception as error:  # a value out of range may cause any error
        raise ModelFileError(f"damaged, or not {what}: {error}", source=path) from error


def require(holds: object, otherwise: str) -> None:
    """Raise `ModelFileError` with this message unless a condition on a file holds."""
    if not holds:
        raise ModelFileError(otherwise)


def _check_sizes(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse entries that need more memory than they have bytes, or than the file justifies.

    Nothing is unpacked before the sizes are known, not even the header of an entry, which may claim
    any length; and only by methods that unpack no more than requested.
    """
    most = max(_HARMLESS, _MOST_COMPRESSED * path.stat().st_size)
    entries = archive.infolist()
    if sum(info.file_size for info in entries) > most:
        raise ModelFileError(
            f"its entries would take more than {most / 1e6:,.0f} MB of memory, which is"
            " implausible for a file of this size",
            source=path,
        )
    for info in entries:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ModelFileError(
                f"entry {info.filename} has a compression that dpsearch does not use", source=path
            )
        with archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
            major = "1_0" if version == (1, 0) else "2_0"
            shape, _, dtype = getattr(np.lib.format, f"read_array_header_{major}")(stream)
            if dtype.hasobject:
                raise ModelFileError(f"entry {info.filename} holds Python objects", source=path)
            wanted = int(np.prod([int(size) for size in shape], dtype=object)) * dtype.itemsize
            if not 0 <= wanted <= info.file_size:
                raise ModelFileError(f"entry {info.filename} is truncated", source=path)


def check_checkpoint(path: str | Path) -> Path:
    """Return the path of a checkpoint; raise if none can be written there."""
    path = Path(path)
    if path.is_dir():
        raise ModelFileError("is a folder, not a file for the checkpoint", source=path)
    if not path.parent.is_dir():
        raise ModelFileError("no such folder for the checkpoint", source=path.parent)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ModelFileError("no checkpoint can be written there", source=path.parent)
    return path


class CheckpointFile:
    """An archive from which only a run with the same settings may continue.

    `same` holds these settings by their names in messages.
    """

    def __init__(
        self, path: str | Path, form: str, version: int, what: str, same: dict[str, Any]
    ) -> None:
        self.path = check_checkpoint(path)
        remove_leftovers(self.path)  # of a killed run, since this one may write no checkpoint
        self.form, self.version, self.what = form, version, what
        same = {"version of dpsearch": __version__, **same}
        self.same = json.loads(json.dumps(same))  # tuples become lists, as in the file

    def write(self, about: dict[str, Any], arrays: dict[str, Any]) -> bool:
        """Write a checkpoint; if the system refuses, warn, keep the last one and return False."""
        head = {"format": self.form, "version": self.version, "same": self.same}
        try:
            write_archive(self.path, head | about, arrays)
        except OSError as error:
            left = "the last one is kept" if self.path.exists() else "there is none yet"
            reason = error.strerror or error
            text = (
                f"{self.path}: no checkpoint was written ({reason}); {left}, and the run continues"
            )
            warnings.warn(text, CheckpointWarning, stacklevel=3)
            return False
        return True

    @contextmanager
    def read(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield what `opened_archive` does, if the settings are the same."""
        with opened_archive(self.path, self.form, self.version, self.what) as (about, arrays):
            found = dict(about["same"])
            for name, value in self.same.items():
                if found.get(name) != value:
                    raise ModelFileError(_difference(name, found.get(name), value))
            yield about, arrays


def _difference(name: str, found: Any, expected: Any) -> str:
    if name == "data":
        return "the checkpoint belongs to other data"
    if name == "columns":
        return "the checkpoint belongs to other columns, or to columns that were read differently"
    return (
        f"the checkpoint has another {name} ({found!r}) than this run ({expected!r}); a run can be"
        " continued only with the settings that it began with"
    )
