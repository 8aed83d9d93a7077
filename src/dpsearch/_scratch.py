"""Temporary files and folders that do not outlive their process for long.

Each is locked while its process uses it.  The lock ends with the process, even if it is killed, and
the next process that makes one in the same place removes those that are not locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows nothing is locked, and nothing of other processes is removed
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".part"
_present: set[Path] = set()  # of this process
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)


def _locked(path: Path, *, wait: bool) -> int | None:
    """Lock a file or folder; None if another process has locked it, or locks are unavailable."""
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):
        handle = os.open(path, _READ)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(handle)
            raise
        return handle
    return None


def usual_permissions(path: Path, mode: int) -> None:
    """Give a private temporary file or folder the usual permissions."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, mode & ~mask)


@contextlib.contextmanager
def scratch(where: str | Path, prefix: str, *, folder: bool) -> Iterator[Path]:
    """Yield a new, empty and locked file or folder, and remove it afterwards if it still exists."""
    sweep(where, prefix)
    lock = None
    while True:
        if folder:
            path = Path(tempfile.mkdtemp(dir=where, prefix=prefix, suffix=_SUFFIX))
        else:
            opened, name = tempfile.mkstemp(dir=where, prefix=prefix, suffix=_SUFFIX)
            os.close(opened)
            path = Path(name)
        lock = _locked(path, wait=True)
        if path.exists():  # unless another process removed it before it was locked
            break
        if lock is not None:
            os.close(lock)
    _present.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _present.discard(path)
        if lock is not None:
            os.close(lock)


def is_scratch(name: str, prefix: str) -> bool:
    """Whether a name is one that `scratch` makes."""
    return name.startswith(prefix) and name.endswith(_SUFFIX)


def sweep(where: str | Path, prefix: str, salvage: Callable[[Path], None] | None = None) -> None:
    """Remove the temporary files and folders of ended processes, after `salvage`."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(where)):
            if not is_scratch(name, prefix):
                continue
            path = Path(where) / name
            handle = _locked(path, wait=False)
            if handle is None:
                continue
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    if salvage is not None:
                        salvage(path)
                    _remove(path)
            finally:
                os.close(handle)


def remove_all() -> None:
    """Remove all of this process, before it ends without leaving its blocks."""
    for path in tuple(_present):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
