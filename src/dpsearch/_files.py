"""Write files atomically: readers never see half of one, and old ones survive a failure."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpsearch.errors import ParameterError


def _as_usual(path: str | Path, mode: int) -> None:
    """Give a private temporary file or folder the usual permissions."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, mode & ~mask)


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let errors of the system name the requested path instead of the temporary one."""
    try:
        yield
    except OSError as error:
        name = error.filename
        if error.errno is None:  # not from the system
            raise
        if name is None or temporary is None:  # nothing is named when the disk is full
            error.filename = str(path)
        elif isinstance(name, str) and Path(name).is_relative_to(temporary):
            error.filename = str(path / Path(name).relative_to(temporary))
        raise


def _claim(path: Path) -> None:
    """Create an empty file, to be replaced by another, or raise if it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


# -- a file -----------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, force: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its place when the block ends well.

    Without `force` it is an error if the file exists by then.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    encoding = None if "b" in mode else "utf-8"
    if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
        with naming(path), path.open(mode, encoding=encoding) as stream:
            yield stream
        return
    with naming(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with naming(path, temporary):
            _as_usual(temporary, 0o666)
            with os.fdopen(handle, mode, encoding=encoding) as stream:
                yield stream
            if not force:
                try:
                    _claim(path)
                except FileExistsError as error:
                    raise _exists(path) from error
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _exists(path: Path) -> ParameterError:
    return ParameterError(f"{path} exists; use --force to overwrite it")


# -- a folder ---------------------------------------------------------------------------------


def check_folder(path: str | Path, known: frozenset[str], *, force: bool) -> None:
    """Raise if `atomic_folder` could not write there now, and leave nothing behind."""
    with _staged(Path(path), _place(Path(path), known, force)):
        pass


@contextlib.contextmanager
def atomic_folder(path: str | Path, known: frozenset[str], *, force: bool) -> Iterator[Path]:
    """Yield a temporary folder whose files are those of `path` when the block ends well.

    An existing folder keeps its other files.  With `force` the new files replace all that have
    `known` names, all of them or none; without it there must be no such file.
    """
    path = Path(path)
    place = _place(path, known, force)
    with _staged(path, place) as temporary:
        yield temporary
        _place(path, known, force)  # once more: others may have written there meanwhile
        if place.is_dir():
            _move_in(temporary, place, known)
        else:
            os.rename(temporary, place)


def _place(path: Path, known: frozenset[str], force: bool) -> Path:
    """Return the folder, which need not exist yet, or raise if it cannot be written."""
    place = Path(os.path.realpath(path))  # follows links
    if place.is_dir():
        for name in sorted(known):
            there = place / name
            if there.is_dir() and not there.is_symlink():
                raise ParameterError("is a folder, not a file", source=path / name)
            if os.path.lexists(there) and not force:
                raise _exists(path / name)
    elif os.path.lexists(place):
        raise ParameterError("is a file, not a folder", source=path)
    elif not place.parent.is_dir():
        missing = place.parent if path.is_symlink() else path.parent
        raise ParameterError("no such folder", source=missing)
    return place


@contextlib.contextmanager
def _staged(path: Path, place: Path) -> Iterator[Path]:
    """Yield a temporary folder on the same disk, from which files can be moved to `place`."""
    where = place if place.is_dir() else place.parent
    with naming(path):
        temporary = Path(tempfile.mkdtemp(dir=where, prefix=".dpsearch.", suffix=".part"))
    try:
        with naming(path, temporary):
            _as_usual(temporary, 0o777)
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_in(temporary: Path, place: Path, known: frozenset[str]) -> None:
    """Move files into a folder; existing ones are set aside, and restored if a move fails."""
    written = sorted(file.name for file in temporary.iterdir())
    aside = Path(tempfile.mkdtemp(dir=place, prefix=".dpsearch.", suffix=".old"))
    placed = []
    try:
        for name in known.union(written):
            if os.path.lexists(place / name):
                os.rename(place / name, aside / name)
        for name in written:
            _claim(place / name)
            placed.append(name)
            os.replace(temporary / name, place / name)
    except BaseException:
        for name in placed:
            os.unlink(place / name)
        for old in aside.iterdir():
            os.replace(old, place / old.name)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


# -- reading ----------------------------------------------------------------------------------


def visible_files(folder: Path) -> list[Path]:
    """Return the files below a folder in order, without hidden ones."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(folder).parts)
    )
