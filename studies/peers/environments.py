"""An environment for each peer: a folder with its own pinned Python packages, made when needed.

`environments/NAME.txt` is the whole list of an environment's packages with their versions, so that
pip resolves nothing (`--no-deps`); this also overrides version limits of the peers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from dpsearch.errors import DPSearchError

_INSTALL_SECONDS = 1800.0


class EnvironmentProblem(DPSearchError):
    """Raised if an environment cannot be made; its tools are left out, and the rest continues."""


def requirements(name: str) -> str:
    """The pinned packages of an environment."""
    file = Path(__file__).parent / "environments" / f"{name}.txt"
    return file.read_text(encoding="utf-8")


def version(name: str, package: str) -> str:
    """The pinned version of one package."""
    found = re.search(rf"^{re.escape(package)}==(\S+)$", requirements(name), re.M)
    if found is None:
        raise EnvironmentProblem(f"the environment {name} has no pinned {package}")
    return found[1]


def default_folder() -> Path:
    """Return the default folder of environments, in the user's cache folder."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dpsearch" / "bench"


class Environments:
    """Environments below a folder, by name; an existing one that matches is reused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._problems: dict[str, EnvironmentProblem] = {}

    def place(self, name: str) -> Path:
        about = f"{sys.version_info[:2]} {requirements(name)}"
        return self.folder / f"{name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"

    def python(self, name: str) -> Path:
        """Return the Python of an environment, making it if necessary; a failure is remembered."""
        with self._lock:
            if name in self._problems:
                raise self._problems[name]
            place = self.place(name)
            python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
            if not (place / ".ready").exists():
                try:
                    self._make(name, place, python)
                except EnvironmentProblem as problem:
                    self._problems[name] = problem
                    raise
            return python

    def _make(self, name: str, place: Path, python: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._call(name, [sys.executable, "-m", "venv", str(place)])
        listed = place / "requirements.txt"
        listed.write_text(requirements(name), encoding="utf-8")
        self._call(name, [str(python), "-m", "pip", "install", "--no-deps", "-r", str(listed)])
        (place / ".ready").touch()

    def _call(self, name: str, command: list[str]) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentProblem(f"the environment {name} cannot be made: {error}") from error
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            why = " ".join(said) or done.stderr.strip()[-300:] or f"exit code {done.returncode}"
            raise EnvironmentProblem(f"the environment {name} cannot be made: {why}")
