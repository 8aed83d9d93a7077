"""Writing files so that a reader never sees half of one, nor loses what was there."""

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
    """Give what `tempfile` made private the mode that it would have had otherwise."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, mode & ~mask)


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Errors of the system name what was asked for, not what stands for it until it is done."""
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
    """Make an empty file, for another to take its place, or raise if there is one."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


# -- a file -----------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, force: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its place when the block ends well.

    Without `force` a file that is there by then stays, and that is an error.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    encoding = None if "b" in mode else "utf-8"
    if path.exists() and not path.is_file():  # a device or a pipe: nothing can take its place
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
    """Raise if `atomic_folder` could not write there now; nothing is left behind."""
    with _staged(Path(path), _place(Path(path), known, force)):
        pass


@contextlib.contextmanager
def atomic_folder(path: str | Path, known: frozenset[str], *, force: bool) -> Iterator[Path]:
    """Yield a temporary folder whose files are those of `path` when the block ends well.

    A folder that is there already keeps what else is in it.  With `force` the new files take the
    place of all that have `known` names, all of them or none; without it there must be none.
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
    """The folder that is meant, which need not be there yet, or raise if it is taken."""
    place = Path(os.path.realpath(path))  # of a link what it leads to
    if place.is_dir():
        for name in sorted(known):
            there = place / name
            if there.is_dir() and not there.is_symlink():
                raise ParameterError(f"{path / name}: is a folder, not a file")
            if os.path.lexists(there) and not force:
                raise _exists(path / name)
    elif os.path.lexists(place):
        raise ParameterError("is a file, not a folder", source=path)
    elif not place.parent.is_dir():
        missing = place.parent if path.is_symlink() else path.parent
        raise ParameterError(f"{missing}: no such folder")
    return place


@contextlib.contextmanager
def _staged(path: Path, place: Path) -> Iterator[Path]:
    """A temporary folder from which files can be moved to `place`, on the same disk."""
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
    """Move files to where they belong; what is in their way goes aside, and back if one fails."""
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
