"""Results of units of work in files, so that a stopped run continues where it was."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dpsearch
from dpsearch import __version__
from dpsearch._archive import read_archive, write_archive
from dpsearch.errors import ModelFileError
from studies.reproduction.work import whole_or_nothing

FORMAT = "dpsearch-experiment"
VERSION = 2
_SOURCES = (Path(dpsearch.__file__).parent, Path(__file__).parent)
# What only writes about results: a change there leaves them as they are.
_WRITERS = (
    "cli/*", "plots/*", "report/*", "progress.py", "demo.py", "*_page.py", "*_claims.py",
    "report.py", "paper.py", "reproduce.py", "command.py",
)  # fmt: skip


class Result(NamedTuple):
    """The result of a unit of work: JSON values, and arrays."""

    values: dict[str, Any]
    arrays: dict[str, Any] = {}  # noqa: RUF012  (never written to)


@functools.cache
def source_stamp() -> str:
    """Return a fingerprint of all code that results depend on."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if not any(name.match(pattern) for pattern in _WRITERS):
                digest.update(str(name).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def machine() -> str:
    """Describe the machine that this runs on, in a line."""
    name = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = (line for line in info.read_text().splitlines() if line.startswith("model name"))
        name = next(found, name).split(":")[-1].strip()
    return (
        f"dpsearch {__version__}, Python {platform.python_version()}, {name},"
        f" {os.cpu_count()} cores"
    )


class Cache:
    """A folder of results, each stored under a name and all that it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ran: dict[Path, tuple[str, str, str]] = {}  # name, machine, day

    def path(self, name: str, parameters: dict[str, Any]) -> Path:
        depends = json.dumps([__version__, source_stamp(), name, parameters], sort_keys=True)
        return self.folder / f"{name}-{hashlib.sha256(depends.encode()).hexdigest()[:16]}.npz"

    def get(self, name: str, parameters: dict[str, Any]) -> Result | None:
        """Return a stored result; None if there is none, or it is not readable."""
        path = self.path(name, parameters)
        if not path.exists():
            return None
        try:
            about, arrays = read_archive(path, FORMAT, VERSION, "a result of an experiment")
        except ModelFileError:
            return None
        self._ran[path] = (name, about["machine"], about["day"])
        return Result(about["values"], arrays)

    def put(
        self, name: str, parameters: dict[str, Any], result: Result, at_a_time: int = 1
    ) -> Result:
        """Store a result, with the machine, how many units it ran at a time, and the day."""
        about: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": parameters,
            "values": result.values,
            "machine": f"{machine()}, {at_a_time} at a time",
            "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        path = self.path(name, parameters)
        write_archive(path, about, result.arrays)
        self._ran[path] = (name, about["machine"], about["day"])
        return result

    def unit(
        self,
        name: str,
        parameters: dict[str, Any],
        compute: Callable[[], Result],
        at_a_time: int = 1,
    ) -> Result:
        """Return the stored result, or compute and store it."""
        found = self.get(name, parameters)
        if found is not None:
            return found
        with whole_or_nothing():
            result = compute()
        return self.put(name, parameters, result, at_a_time)

    def ran(self, prefix: str) -> list[str]:
        """Return lines on where and when the requested units were run."""
        counts = Counter(
            (machine, day) for name, machine, day in self._ran.values() if name.startswith(prefix)
        )
        return [
            f"{count} piece{'s' * (count > 1)} of work on {day}: {machine}"
            for (machine, day), count in sorted(counts.items(), key=lambda pair: pair[0][1])
        ]
