"""Ctrl-C and SIGTERM at any moment of `dpsearch fit`, on tables of several kinds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from dpsearch import load
from studies.attacks.record import Outcome
from studies.say import say

_PROMISED = 2.0  # seconds, on a machine with nothing else to do
_LONGEST = 60.0  # seconds into a run
_WHOLE = {"clusters.csv", "labels.csv", "model.npz", "run.json"}
_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class _Stop(NamedTuple):
    """One run that was stopped."""

    kind: str
    signal: str
    at: float  # seconds after its start
    seconds: float  # until it ended
    contention: float  # processes that want to run, for each processor
    wrote: bool
    said: str


def _numbers(rng: Any, n_rows: int, width: int, n_clusters: int = 12) -> dict[str, Any]:
    centres = rng.normal(0.0, 4.0, (n_clusters, width))
    X = centres[rng.integers(n_clusters, size=n_rows)] + rng.standard_t(5, (n_rows, width))
    return {f"x{j}": X[:, j].round(4) for j in range(width)}


def _mixed(rng: Any, n_rows: int = 3000) -> dict[str, Any]:
    days = np.datetime64("2020-01-01") + rng.integers(700, size=n_rows).astype("timedelta64[D]")
    return {
        **_numbers(rng, n_rows, 3),
        "kind": np.array(list("abcdefgh"))[rng.integers(8, size=n_rows)],
        "count": rng.poisson(3.0, n_rows),
        "amount": np.exp(rng.normal(3.0, 1.0, n_rows)).round(2),
        "day": days.astype(str),
    }


def _gaps(rng: Any) -> dict[str, Any]:
    table = _numbers(rng, 20_000, 6)
    return {name: np.where(rng.random(20_000) < 0.05, np.nan, x) for name, x in table.items()}


def _texts(rng: Any) -> dict[str, Any]:
    topics = rng.dirichlet(np.full(500, 0.05), 6)
    words = [rng.choice(500, size=40, p=topics[rng.integers(6)]) for _ in range(1500)]
    return {"text": [" ".join(f"w{word}" for word in text) for text in words]}


_TABLES: dict[str, tuple[Callable[[Any], dict[str, Any]], tuple[str, ...]]] = {
    "numeric": (lambda rng: _numbers(rng, 3000, 4), ("--report",)),
    "thorough": (lambda rng: _numbers(rng, 4000, 3, 40), ("--refine", "converge")),
    "mixed": (_mixed, ("--report",)),
    "wide": (lambda rng: _numbers(rng, 300, 1500), ("--report",)),
    "large": (lambda rng: _numbers(rng, 336_000, 19, 30), ("--report",)),
    "gaps": (_gaps, ("--report",)),
    "texts": (_texts, ("--text", "text", "--report")),
    "shards": (lambda rng: _numbers(rng, 60_000, 5), ("--shards", "4")),
}


def stops(count: int, seed: int) -> Outcome:
    """Stop fits of several kinds of tables at random moments, and look at what they leave."""
    begun, rng, failed = time.perf_counter(), np.random.default_rng(seed), 0
    stopped: list[_Stop] = []
    folder = Path(tempfile.mkdtemp(prefix="dpsearch-stops-"))
    try:
        seconds = {kind: _prepared(folder, kind, rng) for kind in _TABLES}
        for number in range(count):
            kind = list(_TABLES)[number % len(_TABLES)]
            found, wrong = _stopped(folder, kind, float(rng.uniform(0.0, seconds[kind])), rng)
            if found is not None:
                stopped.append(found)
            if wrong:
                failed += 1
                say(f"BROKEN, stops {seed} {number}: {wrong}; {found}")
    finally:
        shutil.rmtree(folder)
    _tell(stopped)
    what = (
        "SIGINT or SIGTERM at a random moment of dpsearch fit, on tables of numbers, mixed, wide,"
        " large, with gaps, of texts and in shards: an end after more than two seconds (times the"
        " processes for each processor), a file that cannot be read, one left behind"
    )
    return Outcome("stops", what, count, failed, time.perf_counter() - begun)


def _tell(stopped: list[_Stop]) -> None:
    if stopped:
        each = np.array([one.seconds for one in stopped])
        wrote, slowest = sum(one.wrote for one in stopped), stopped[int(each.argmax())]
        quantiles = ", ".join(f"{q:.2f}" for q in np.quantile(each, [0.5, 0.9, 1.0]))
        say(f"{len(stopped)} stopped while they ran, {wrote} of them wrote what they had")
        say(f"seconds until the end, median, 90 % and most: {quantiles}; the slowest: {slowest}")


def _command(folder: Path, kind: str) -> list[str]:
    table, out = str(folder / f"{kind}.csv"), str(folder / "place" / "out")
    return [sys.executable, "-m", "dpsearch.cli", "fit", table, "--out", out, *_TABLES[kind][1]]


def _prepared(folder: Path, kind: str, rng: Any) -> float:
    """Write a table and compile its kernels; return the seconds of a run that is not stopped."""
    pl.DataFrame(_TABLES[kind][0](rng)).write_csv(folder / f"{kind}.csv")
    seconds = _LONGEST
    for _ in range(2):
        (folder / "place").mkdir()
        begun = time.perf_counter()
        command = [*_command(folder, kind), "--time", str(_LONGEST)]
        subprocess.run(command, capture_output=True, check=True)
        seconds = min(_LONGEST, time.perf_counter() - begun)
        shutil.rmtree(folder / "place")
    return seconds


def _stopped(folder: Path, kind: str, at: float, rng: Any) -> tuple[_Stop | None, str]:
    """Stop one run; return what happened, and what was wrong with it, if anything was."""
    place = folder / "place"
    place.mkdir()
    number = (signal.SIGINT, signal.SIGTERM)[int(rng.integers(2))]
    run = subprocess.Popen(
        _command(folder, kind), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        run.communicate(timeout=at)
        shutil.rmtree(place)
        return None, ""  # it had ended
    except subprocess.TimeoutExpired:
        pass
    begun = time.perf_counter()
    run.send_signal(number)
    said = run.communicate()[1].splitlines()
    seconds = time.perf_counter() - begun
    contention = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    last = said[-1] if said else ""
    wrote = (place / "out").exists()
    found = _Stop(kind, number.name, at, seconds, contention, wrote, last)
    try:
        _check(place, run.returncode, number, said)
        assert seconds <= _PROMISED * contention, f"{seconds:.2f} s until the end"
    except Exception as error:
        return found, f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(place)
    return found, ""


def _check(place: Path, code: int, number: signal.Signals, said: list[str]) -> None:
    """Raise unless all files are there and valid, or none is and one line says so."""
    left, out = [path.name for path in place.iterdir()], place / "out"
    ours = any("dpsearch" in line and line.lstrip().startswith("File") for line in said)
    # Python itself shows where it was, if it had not come to the program yet.
    assert not (ours and any("Traceback" in line for line in said)), said[-3:]
    if not left:
        # Before Python runs the program, the system's own handler ends it.
        assert code in (_CODES[number], -number), f"exit code {code}"
        return
    assert left == ["out"], f"left behind: {left}"
    names = {path.name for path in out.iterdir()}
    assert names >= _WHOLE, f"half-written: {names}"
    record, model = json.loads((out / "run.json").read_text()), load(out / "model.npz")
    labels, clusters = (pl.read_csv(out / f"{name}.csv") for name in ("labels", "clusters"))
    assert len(labels) == record["input"]["rows"]
    sizes = np.bincount(labels["component"].to_numpy())
    assert np.array_equal(sizes, model.mixture_.sizes)
    assert np.array_equal(clusters["size"].to_numpy(), model.mixture_.cluster_sizes)
    if "report.html" in names:
        assert (out / "report.html").read_text().rstrip().endswith("</html>")
    if code in (0, -number):  # it had written all when the signal came
        return
    assert code == _CODES[number], f"exit code {code}"
    if record["stopped"] is not None:
        assert record["stopped"]["signal"] == number
        assert "the best clustering found by then" in said[-1], said[-1]
