"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def _as_usual(path: str | Path, mode: int) -> None:
    """Give what `tempfile` made private the mode that it would have had otherwise."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, mode & ~mask)


def _check_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))


@contextlib.contextmanager
def atomic_write(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its place when the block ends well."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    _check_parent(path)
    if path.exists() and not path.is_file():  # a device or a pipe: nothing can take its place
        with path.open(mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
        return
    encoding = None if "b" in mode else "utf-8"
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        _as_usual(temporary, 0o666)
        with os.fdopen(handle, mode, encoding=encoding) as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def atomic_folder(path: str | Path, known: frozenset[str]) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its place when the block ends well.

    A folder that is there already keeps what else is in it: the new files are moved in when all of
    them are complete, and those of the `known` names that are not written anew are removed.
    """
    path = Path(path)
    _check_parent(path)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        _as_usual(temporary, 0o777)
        yield temporary
        if path.is_dir():
            written = sorted(file.name for file in temporary.iterdir())
            for name in written:
                os.replace(temporary / name, path / name)
            for name in known.difference(written):
                (path / name).unlink(missing_ok=True)
            temporary.rmdir()
        else:
            os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
