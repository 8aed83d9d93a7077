"""Compiled kernels on disk, of which every file proves that it is whole and what is wanted.

Numba's files have neither: a truncated one raises an error of `pickle`, one with a wrong byte may
crash the process, and of two processes that write at the same time one may find the other's kernel
under the name of its own.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

_DIGEST_SIZE = hashlib.sha256().digest_size


class KernelCacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """The index and the data files of one function, in place of Numba's.

    `stamp` says what the function was compiled from: kernels of any other are ignored.
    """

    def __init__(self, file: IndexDataCacheFile, stamp: str) -> None:
        name = file._index_name.removesuffix(".nbi") + ".checked"
        super().__init__(file._cache_path, name, (file._version, file._source_stamp, stamp))

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None or found[:2] != (self._source_stamp, key):
            return None
        return found[2]

    def _dump(self, obj: Any) -> bytes:
        content: bytes = super()._dump(obj)
        return hashlib.sha256(content).digest() + content

    def _save_index(self, overloads: Any) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(self._dump((self._source_stamp, overloads)))

    def _load_index(self) -> Any:
        try:
            stamp, overloads = self._read(self._index_path) or (None, {})
        except FileNotFoundError:
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _read(self, path: str) -> Any:
        """Return the object that a file holds after its checksum; None, and say so, if damaged."""
        content = Path(path).read_bytes()
        digest, packed = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if hashlib.sha256(packed).digest() == digest:
            return pickle.loads(packed)
        warnings.warn(
            f"the file {path} of compiled kernels is damaged: the kernel is compiled again",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
