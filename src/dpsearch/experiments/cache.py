"""Results of units of work, kept in files: a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dpsearch import __version__
from dpsearch._archive import read_archive, write_archive
from dpsearch.errors import ModelFileError

FORMAT = "dpsearch-experiment"
VERSION = 1


class Result(NamedTuple):
    """What a unit of work found: numbers and texts as JSON has them, and arrays."""

    values: dict[str, Any]
    arrays: dict[str, Any] = {}  # noqa: RUF012  (never written to)


class Cache:
    """A folder of results, each under a name and everything that it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, parameters: dict[str, Any]) -> Path:
        depends = json.dumps([__version__, name, parameters], sort_keys=True)
        return self.folder / f"{name}-{hashlib.sha256(depends.encode()).hexdigest()[:16]}.npz"

    def get(self, name: str, parameters: dict[str, Any]) -> Result | None:
        """Return what is kept; None if there is nothing, or nothing readable."""
        path = self.path(name, parameters)
        if not path.exists():
            return None
        try:
            about, arrays = read_archive(path, FORMAT, VERSION, "a result of an experiment")
        except ModelFileError:
            return None
        return Result(about["values"], arrays)

    def put(self, name: str, parameters: dict[str, Any], result: Result) -> Result:
        about = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": parameters,
            "values": result.values,
        }
        write_archive(self.path(name, parameters), about, result.arrays)
        return result

    def unit(self, name: str, parameters: dict[str, Any], compute: Callable[[], Result]) -> Result:
        """Return what is kept, or compute and keep it."""
        found = self.get(name, parameters)
        return self.put(name, parameters, compute()) if found is None else found
