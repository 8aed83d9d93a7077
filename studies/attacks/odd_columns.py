"""Tables with columns as they come, through fit, predict, cut and the report."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from dpsearch.cli.app import app
from studies.attacks.record import Outcome
from studies.say import say
from studies.tables.odd import odd_table, spoiled

_OPTIONS = ((), ("--report",), ("--shards", "2"), ("--family", "gaussian"), ("--report",))
_WHOLE = {"clusters.csv", "labels.csv", "model.npz", "run.json"}


def fuzz_tables(count: int, seed: int) -> Outcome:
    """Fit tables of odd columns, predict them, cut the tree: an answer, or one line and no file."""
    begun, failed = time.perf_counter(), 0
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        options = _OPTIONS[int(rng.integers(len(_OPTIONS)))]
        folder = Path(tempfile.mkdtemp(prefix="dpsearch-odd-"))
        try:
            frame = odd_table(rng)
            frame.to_csv(folder / "x.csv", index=False)
            spoiled(frame, rng).to_csv(folder / "new.csv", index=False)
            wrong = _wrong(folder, options)
        finally:
            shutil.rmtree(folder)
        if wrong:
            failed += 1
            say(f"BROKEN, fuzz_tables {seed} {k}: {wrong}\n{frame.head(3)}"[:2000])
    what = "tables of odd columns are fitted, predicted, cut and reported on"
    return Outcome("fuzz_tables", what, count, failed, time.perf_counter() - begun)


def _wrong(folder: Path, options: tuple[str, ...]) -> str:
    """Say which promise a table breaks; "" if none.

    A table without any value cannot be fitted, and a family of counts cannot take new rows with
    negative numbers: this is said in one line, and no file is written.
    """
    out, data, new = folder / "out", str(folder / "x.csv"), str(folder / "new.csv")
    p, q, r = folder / "p.csv", folder / "q.csv", folder / "r.csv"
    runs = [  # what is run, what it writes, and whether it may be refused
        (["fit", data, "--refine", "no", "--out", str(out), *options], out, True),
        (["predict", str(out), data, "--out", str(p)], p, False),
        (["predict", str(out), new, "--out", str(q)], q, True),
        (["predict", str(out), new, "--out", str(r), "--memory", "2GB"], r, True),
        (["cut", str(out), "--level", "components"], out, False),
    ]
    for arguments, written, refusable in runs:
        result = CliRunner().invoke(app, arguments)
        if result.exit_code not in (0, 1) or "Traceback" in result.output:
            return f"{arguments[0]}: exit code {result.exit_code}: {result.exception!r}"
        if result.exit_code == 1:
            said = result.stderr.splitlines()[-1].startswith("dpsearch: ")
            if not (refusable and said) or written.exists():
                return f"{arguments[0]}: {result.stderr[-300:]}"
            if written == out:
                return ""
        elif not {file.name for file in out.iterdir()} >= _WHOLE or not written.exists():
            return f"{arguments[0]}: half-written: {sorted(f.name for f in out.iterdir())}"
    return ""
