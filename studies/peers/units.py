"""Units of work, each a (table, tool, seed), run in a process of its own and kept in a file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpsearch._files import atomic_write
from studies.peers.environments import EnvironmentProblem, Environments
from studies.peers.tables import Table
from studies.peers.tools import Tool
from studies.reproduction.work import Check

_WORKERS = Path(__file__).parent / "workers"
_THREADS = ("OMP", "OPENBLAS", "MKL", "VECLIB", "NUMEXPR", "NUMBA", "RAYON")
# The limit is on processor time.  A process that waits for ever is ended after this much more.
_WALL_FACTOR, _WALL_EXTRA = 10.0, 300.0
# A fit that takes this many times its processor time has shared the machine with others.
BUSY = 1.5


@dataclass(frozen=True)
class Outcome:
    """The outcome of a unit: done, stopped (at the limit), failed or not installed."""

    status: str
    seconds: float = 0.0  # processor time of the fit; of a stopped unit, the limit
    wall_seconds: float = 0.0
    peak_mb: float = 0.0
    labels: list[int] = field(default_factory=list, repr=False)
    message: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # what else the worker told

    @property
    def long_enough(self) -> bool:
        """Whether the unit took long enough to tell whether the machine was busy."""
        return self.status == "done" and self.seconds >= 0.1

    @property
    def busy(self) -> bool:
        """Whether the fit had to share the machine, which makes processor seconds longer too."""
        return self.long_enough and self.wall_seconds > BUSY * self.seconds


@dataclass(frozen=True)
class Unit:
    table: Table
    tool: Tool
    seed: int
    form: str = ""  # another form of the table than the tool's usual one

    @property
    def data_form(self) -> str:
        return self.form or self.tool.form

    def name(self) -> str:
        return f"{self.table.name} ({self.data_form}): {self.tool.name}, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        return self.tool.settings_for(len(np.unique(self.table.truth(self.seed))))

    def key(self) -> dict[str, Any]:
        """All that the result depends on: no path, no limit, and nothing about the machine."""
        return {
            "tool": self.tool.name,
            "worker": self.tool.worker,
            "stamp": self.tool.stamp(),
            "settings": self.settings(),
            "seed": self.seed,
            "data": self.table.stamp(self.data_form, self.seed),
        }


class Store:
    """A folder of outcomes as JSON files.  Failures are not kept, so that they are tried again.

    retime: ignore kept outcomes that were timed on a busy machine.
    """

    def __init__(self, folder: Path, *, retime: bool = False) -> None:
        self.folder = folder
        self.retime = retime
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, unit: Unit) -> Path:
        text = json.dumps(unit.key(), sort_keys=True)
        words = f"{unit.table.name}-{unit.data_form}-{unit.tool.name}-{unit.seed}"
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in words)
        return self.folder / f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def get(self, unit: Unit, limit: float) -> Outcome | None:
        """Return the outcome that a run with this limit would have had; None if it must be run."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = Outcome(**json.loads(self.path(unit).read_text(encoding="utf-8"))["outcome"])
            if kept.busy and self.retime:
                return None
            if kept.status == "stopped":
                return stopped(limit) if limit <= kept.seconds else None
            return kept if kept.seconds <= limit else stopped(limit)
        return None

    def put(self, unit: Unit, outcome: Outcome) -> None:
        if outcome.status in ("done", "stopped"):
            with atomic_write(self.path(unit), "w") as stream:
                json.dump({"key": unit.key(), "outcome": asdict(outcome)}, stream)


def stopped(limit: float) -> Outcome:
    return Outcome("stopped", limit, message=f"stopped at {limit:g} s")


class Runner:
    """Runs units, or takes their outcomes from the store."""

    def __init__(self, store: Store, environments: Environments, limit: float) -> None:
        self.store = store
        self.environments = environments
        self.limit = limit

    def __call__(self, unit: Unit, check: Check = lambda: None) -> Outcome:
        found = self.store.get(unit, self.limit)
        if found is not None:
            return found
        outcome = self._run(unit, check)
        self.store.put(unit, outcome)
        return outcome

    def _run(self, unit: Unit, check: Check) -> Outcome:
        python = Path(sys.executable)
        if unit.tool.environment is not None:
            try:
                python = self.environments.python(unit.tool.environment)
            except EnvironmentProblem as problem:
                return Outcome("not installed", message=str(problem))
        with tempfile.TemporaryDirectory(prefix="dpsearch-bench-") as place:
            folder = Path(place)
            np.savez(folder / "data.npz", **unit.table.form(unit.data_form, unit.seed))
            request = {
                "worker": unit.tool.worker,
                "settings": unit.settings(),
                "seed": unit.seed,
                "limit": self.limit,
                "data": str(folder / "data.npz"),
                "out": str(folder / "out.npz"),
            }
            (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
            code, said = self._call(python, folder, unit.tool.environment is None, check)
            if code == -signal.SIGXCPU:
                return stopped(self.limit)
            if code != 0:
                return Outcome("failed", message=_last_line(said) or f"exit code {code}")
            with np.load(folder / "out.npz", allow_pickle=False) as entries:
                about = json.loads(str(entries["about"]))
                labels = entries["labels"].tolist()
        measured = {name: about.pop(name) for name in ("seconds", "wall_seconds", "peak_mb")}
        if len(labels) != len(unit.table.truth(unit.seed)):
            return Outcome("failed", message=f"{len(labels)} labels for another number of rows")
        return Outcome("done", labels=labels, about=about, **measured)

    def _call(self, python: Path, folder: Path, own: bool, check: Check) -> tuple[int, str]:
        variables = {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in _THREADS}}
        variables |= {"POLARS_MAX_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        places = variables.pop("PYTHONPATH", "")
        if own and places:  # relative ones would mean others in the worker's folder
            places = os.pathsep.join(map(os.path.abspath, places.split(os.pathsep)))
            variables["PYTHONPATH"] = places
        command = [str(python), str(_WORKERS / "run.py"), str(folder / "request.json")]
        end = time.monotonic() + _WALL_FACTOR * self.limit + _WALL_EXTRA
        with (folder / "said.txt").open("w+", encoding="utf-8", errors="replace") as said:
            with subprocess.Popen(
                command, cwd=folder, env=variables, stdout=said, stderr=subprocess.STDOUT
            ) as process:
                try:
                    while True:
                        check()
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            code = process.wait(timeout=0.5)
                            break
                        if time.monotonic() > end:
                            process.kill()
                            return 1, f"gave no answer in {end:g} s"
                except BaseException:
                    process.kill()
                    raise
            said.seek(0)
            return code, said.read()


def _last_line(text: str) -> str:
    """The message of a traceback, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
