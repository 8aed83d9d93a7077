"""Run one unit of work and time it: `python run.py REQUEST.json`.

Only the standard library and NumPy are imported here: this file is run by the Python of each
peer's environment.  The request names a worker (a file beside this one), its settings, the seed,
the file of data and the file for the result.  A worker has one function,

    prepare(data, settings, seed) -> fit

where `data` is what the NPZ file holds and `fit` takes nothing and returns the label of each row,
or None to be called once more: what it had to get ready it has now.  Only the last call of `fit` is
timed, and the limit is on each.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main(path: str) -> None:
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    with np.load(request["data"], allow_pickle=False) as entries:
        data = {name: entries[name] for name in entries.files}
    worker = importlib.import_module(request["worker"])
    fit = worker.prepare(data, request["settings"], request["seed"])
    found = None
    while found is None:
        limit_processor_time(request["limit"])
        wall, processor = time.perf_counter(), time.process_time()
        found = fit()
    about: dict[str, Any] = {
        "seconds": time.process_time() - processor,
        "wall_seconds": time.perf_counter() - wall,
        "peak_mb": peak_mb(),
    }
    labels, more = found if isinstance(found, tuple) else (found, {})
    about.update(more)
    np.savez(request["out"], labels=np.asarray(labels, np.int64), about=json.dumps(about))


def peak_mb() -> float:
    """The most memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where ru_maxrss counts the process that started this one too
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return float(lines["VmHWM"].split()[0]) / 2**10
    # In KiB, but on macOS in bytes.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def limit_processor_time(seconds: float) -> None:
    """Let the system end this process (SIGXCPU) once it has used that much more."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    allowed = int(np.ceil(time.process_time() + seconds))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, hard))


if __name__ == "__main__":
    main(sys.argv[1])
