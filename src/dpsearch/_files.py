"""Atomic writing: readers never see an incomplete file, and old files survive a failure."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpsearch._scratch import is_scratch, scratch, sweep, usual_permissions
from dpsearch.errors import ParameterError

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux
_HERE = -100  # AT_FDCWD: paths are relative to the current folder


@contextlib.contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Replace the temporary path by the requested one in errors of the system."""
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


# -- a file -----------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb", *, force: bool = True) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that replaces it when the block ends without an error.

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
    with scratch_beside(path, folder=False) as temporary, naming(path, temporary):
        usual_permissions(temporary, 0o666)
        with temporary.open(mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # so that it is complete or absent even after a power failure
        if not force:
            try:  # to create an empty file, which is then replaced
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except FileExistsError as error:
                raise _exists(path) from error
        os.replace(temporary, path)


@contextlib.contextmanager
def scratch_beside(path: Path, *, folder: bool) -> Iterator[Path]:
    """Yield a temporary file or folder on the same disk as a file to be written."""
    with contextlib.ExitStack() as stack:
        with naming(path):
            temporary = stack.enter_context(scratch(path.parent, f".{path.name}.", folder=folder))
        yield temporary


def remove_leftovers(path: Path) -> None:
    """Remove temporary files beside this one that killed processes have left."""
    sweep(path.parent, f".{path.name}.")


def _exists(path: Path) -> ParameterError:
    return ParameterError(f"{path} exists; use --force to overwrite it")


# -- a folder ---------------------------------------------------------------------------------


def check_folder(path: str | Path, known: frozenset[str], *, force: bool) -> None:
    """Raise if `atomic_folder` cannot write there now; nothing is left behind."""
    with _staged(Path(path), _place(Path(path), known, force), known):
        pass


@contextlib.contextmanager
def atomic_folder(path: str | Path, known: frozenset[str], *, force: bool) -> Iterator[Path]:
    """Yield a temporary folder whose files become those of `path` when the block ends well.

    An existing folder keeps its other files.  With `force` the new files replace all files with
    `known` names; without it there must be no such file.

    On Linux the new folder is complete, other files included, before it replaces the old one in a
    single step, so one of the two exists whenever the process is killed.  If that is impossible (on
    another system, if the folder is a mount point or the current one, or if its parent is not
    writable) files are replaced one by one: each is complete at any time, but a process that is
    killed meanwhile leaves some new and some old files.
    """
    path = Path(path)
    place = _place(path, known, force)
    with _staged(path, place, known) as temporary:
        yield temporary
        _place(path, known, force)  # again, since others may have written there meanwhile
        if not place.is_dir():
            try:
                os.rename(temporary, place)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise _exists(path) from error
        elif not _take_place(temporary, place, path, known, force):
            _move_in(temporary, place, known)


def _place(path: Path, known: frozenset[str], force: bool) -> Path:
    """Return the folder, which need not exist, or raise if it cannot be written."""
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
def _staged(path: Path, place: Path, known: frozenset[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `place` if the two can be exchanged, otherwise inside."""
    where = place.parent
    if place.is_dir():
        # If a run was killed just after the exchange, move the files that it had not moved.
        sweep(place.parent, _prefix(place), lambda old: _keep_others(old, place, known))
        sweep(place, _prefix(place))
        where = place.parent if _replaceable(place) else place
    with contextlib.ExitStack() as stack:
        with naming(path):
            temporary = stack.enter_context(scratch(where, _prefix(place), folder=True))
        with naming(path, temporary):
            usual_permissions(temporary, 0o777)
            yield temporary


def _prefix(place: Path) -> str:
    return f".{place.name}.dpsearch."


def _replaceable(place: Path) -> bool:
    """Whether another folder can replace it: not a mount point, nor the current folder."""
    parent = place.parent
    effective = os.access in os.supports_effective_ids
    return (
        all(
            os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)
            for folder in (place, parent)
        )
        and parent.stat().st_dev == place.stat().st_dev
        and not place.samefile(os.curdir)
    )


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in a single step; False if the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _take_place(
    temporary: Path, place: Path, path: Path, known: frozenset[str], force: bool
) -> bool:
    """Exchange the folders, and keep the other files; False if that is impossible here."""
    if temporary.parent != place.parent:
        return False
    for file in place.iterdir():
        if file.name not in known and file.is_file() and not file.is_symlink():
            try:
                os.link(file, temporary / file.name)
            except OSError:  # without hard links on this disk they are moved afterwards
                break
    shutil.copystat(place, temporary)
    if not _exchange(temporary, place):
        for file in place.iterdir():
            if file.name not in known:
                (temporary / file.name).unlink(missing_ok=True)
        return False
    written = [name for name in sorted(known) if os.path.lexists(temporary / name)]
    if written and not force and _exchange(temporary, place):  # others wrote there meanwhile
        raise _exists(path / written[0])
    _keep_others(temporary, place, known)
    return True


def _keep_others(old: Path, place: Path, known: frozenset[str]) -> None:
    """Move files with other names than the known ones from an old folder to its replacement."""
    for file in old.iterdir():
        ours = file.name in known or any(is_scratch(file.name, f".{name}.") for name in known)
        if not ours and not os.path.lexists(place / file.name):
            os.rename(file, place / file.name)


def _move_in(temporary: Path, place: Path, known: frozenset[str]) -> None:
    """Move files into a folder one by one; if a move fails, restore all files."""
    written = sorted(file.name for file in temporary.iterdir())
    with scratch(temporary.parent, _prefix(place), folder=True) as old:
        for name in known:
            if os.path.lexists(place / name):
                shutil.copy2(place / name, old / name, follow_symlinks=False)
        try:
            for name in written:
                os.replace(temporary / name, place / name)
            for name in known.difference(written):
                (place / name).unlink(missing_ok=True)
        except BaseException:
            kept = {file.name for file in old.iterdir()}
            for name in set(written) - kept:
                (place / name).unlink(missing_ok=True)
            for name in kept:
                os.replace(old / name, place / name)
            raise


# -- reading ----------------------------------------------------------------------------------


def visible_files(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders in order, without hidden ones."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file() and not any(p.startswith(".") for p in file.relative_to(folder).parts)
    )
