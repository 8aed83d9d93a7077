"""The work that is attacked: all that writes files, and what must hold when it is stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpsearch import DPMixture, cli, families, gibbs, load, priors
from dpsearch.report import write_report
from dpsearch.samplers import chain

GAUSSIAN = families.Gaussian(0.0, 60.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)
BATCH, N_BATCHES = 60, 5
_DRAWS = {"draws": 400, "chains": 2, "rng": 0}
_QUICK = ("--refine", "no", "--family", "gaussian", "--quiet")


def rows(seed: int = 0, n: int = BATCH * N_BATCHES) -> Any:
    """Return rows of four clusters in the plane."""
    rng = np.random.default_rng(seed)
    return 9.0 * rng.normal(size=(4, 2))[rng.integers(4, size=n)] + rng.normal(size=(n, 2))


class Victim(NamedTuple):
    """Some work in a folder.

    Whenever it is stopped, its `state` must be as before or as when the work is done: "all" of it,
    or "each" entry alone; and `check` must not raise.  Done again, the work must end as if nothing
    had happened, in the same state and with nothing else in the folder.
    """

    name: str
    prepare: Callable[[Path], object]
    work: Callable[[Path], object]
    state: Callable[[Path], dict[str, str]]
    at_once: str = "all"  # or "each", or "none"
    check: Callable[[Path], object] = lambda folder: None


def command(folder: Path, *arguments: object) -> None:
    """Run the command line in a folder; raise SystemExit with its code."""
    os.chdir(folder)
    sys.argv = ["dpsearch", *map(str, arguments)]
    cli.main()


def prepared(folder: Path, *arguments: object) -> None:
    """Run the command line in a folder; raise if it does not succeed."""
    with contextlib.suppress(SystemExit):
        command(folder, *arguments)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "none"


def archive(path: Path) -> str:
    """Return a digest of an archive's contents, except for the times in it."""
    if not path.exists():
        return "none"
    with np.load(path) as entries:
        arrays = {name: entries[name] for name in entries.files}
    about = json.loads(bytes(arrays.pop("about")))
    about.pop("seconds", None)
    text = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        text.update(name.encode() + arrays[name].tobytes())
    return text.hexdigest()


def page(path: Path) -> str:
    """Return whether a page or a picture is there and complete."""
    if not path.exists():
        return "none"
    end = path.read_bytes()[-20:].strip()
    return "whole" if end.endswith((b"</html>", b"</svg>")) else "half"


# -- results of the command line --------------------------------------------------------------


def _results(folder: Path) -> dict[str, str]:
    out = folder / "out"
    found = {name: digest(out / name) for name in ("labels.csv", "clusters.csv", "mine.txt")}
    found["model"] = archive(out / "model.npz")
    run = out / "run.json"
    found["seed"] = str(json.loads(run.read_text())["seed"]) if run.exists() else "none"
    found["report"] = page(out / "report.html")
    return found


def _table(folder: Path) -> None:
    np.savetxt(folder / "x.csv", rows(), delimiter=",", header="a,b", comments="")


def _fit(folder: Path) -> None:
    command(folder, "fit", "x.csv", "--out", "out", "--force", *_QUICK)


def _old_results(folder: Path) -> None:
    _table(folder)
    prepared(folder, "fit", "x.csv", "--out", "out", "--report", "--seed", 5, *_QUICK)
    (folder / "out" / "mine.txt").write_text("mine")


def _predict(folder: Path) -> None:
    command(folder, "predict", "out", "x.csv", "--out", "p.csv", "--force", "--quiet")


# -- streams, chains, shards ------------------------------------------------------------------


def _stream(folder: Path) -> None:
    """Stream batches, saving each, from where the file has stopped."""
    path = folder / "model.npz"
    model = load(path) if path.exists() else DPMixture(GAUSSIAN, 1.0, refine=False)
    seen = int(model.mixture_.sizes.sum()) if path.exists() else 0
    for begin in range(seen, BATCH * N_BATCHES, BATCH):
        model.partial_fit(rows()[begin : begin + BATCH])
        model.save(path)


def _seen(folder: Path) -> dict[str, str]:
    path = folder / "model.npz"
    return {"rows": str(load(path).mixture_.sizes.sum()) if path.exists() else "0"}


def _whole_batches(folder: Path) -> None:
    assert int(_seen(folder)["rows"]) % BATCH == 0


def _chains(folder: Path) -> None:
    chain._LEG_NUMBERS = 20_000  # short legs, so that there are many checkpoints
    path = folder / "chains"
    draws = gibbs(rows(), GAUSSIAN, PRIOR, checkpoint=path, checkpoint_seconds=0, resume=True,
                  **_DRAWS)  # type: ignore[arg-type]  # fmt: skip
    draws.save(folder / "draws.npz")


def _shards(folder: Path) -> None:
    tempfile.tempdir = str(folder / "temporary")
    model = DPMixture(GAUSSIAN, 1.0, n_shards=3, n_jobs=1, checkpoint=folder / "rounds")
    model.fit(str(folder / "x.csv")).save(folder / "model.npz")


def _shards_begin(folder: Path) -> None:
    _table(folder)
    (folder / "temporary").mkdir()


def _readable(name: str) -> Callable[[Path], object]:
    return lambda folder: archive(folder / name)


def _shards_state(folder: Path) -> dict[str, str]:
    return {"rows": _seen(folder)["rows"]}


# -- every writer -----------------------------------------------------------------------------


def _writers(folder: Path, seed: int = 1) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import polars as pl

    from dpsearch.io.output import write_pieces, write_table
    from dpsearch.plots import sampler_trace, save_figure

    X = rows(seed)
    model = DPMixture(GAUSSIAN, 1.0, refine=False, random_state=seed).fit(X)
    model.save(folder / "model.npz")
    frame = pl.DataFrame({"row": range(len(X)), "cluster": model.labels_})
    write_table(folder / "t.csv", frame)
    write_table(folder / "t.parquet", frame)
    write_pieces(folder / "p.parquet", [frame[:100], frame[100:]])
    draws = gibbs(X, GAUSSIAN, PRIOR, draws=30, rng=seed)
    draws.save(folder / "draws.npz")
    save_figure(sampler_trace(draws)[0].figure, folder / "trace.svg")
    write_report(folder / "report.html", model, X)


def _written(folder: Path) -> dict[str, str]:
    found = {name: digest(folder / name) for name in ("t.csv", "t.parquet", "p.parquet")}
    found |= {name: archive(folder / name) for name in ("model.npz", "draws.npz")}
    return found | {name: page(folder / name) for name in ("trace.svg", "report.html")}


VICTIMS = (
    Victim("fit", _table, _fit, _results),
    Victim("fit --force", _old_results, _fit, _results),
    Victim(
        "fit --force --report",
        _old_results,
        lambda folder: command(
            folder, "fit", "x.csv", "--out", "out", "--force", "--report", *_QUICK
        ),
        _results,
    ),
    Victim("predict", _old_results, _predict, lambda folder: {"p": digest(folder / "p.csv")}),
    Victim("partial_fit and save", lambda folder: None, _stream, _seen, "none", _whole_batches),
    Victim(
        "gibbs with a checkpoint",
        lambda folder: None,
        _chains,
        lambda folder: {"draws": archive(folder / "draws.npz")},
        check=_readable("chains"),
    ),
    Victim(
        "shards with a checkpoint",
        _shards_begin,
        _shards,
        _shards_state,
        check=_readable("rounds"),
    ),
    Victim("every writer", lambda folder: _writers(folder, 0), _writers, _written, "each"),
)
