"""`dpsearch fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from dpsearch.cli.options import (
    Alpha,
    Data,
    FamilyName,
    Force,
    Seed,
    check_writable,
    errors_name,
    parse_alpha,
)
from dpsearch.errors import ParameterError


def fit(
    data: Data,
    family: FamilyName = "auto",
    alpha: Alpha = "auto",
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses that search keeps.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Time for refinement; default: till it converges.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the labels.")] = Path("labels.csv"),
    model: Annotated[Path | None, typer.Option(help="Where to save the model (.npz).")] = None,
    seed: Seed = None,
    force: Force = False,
) -> None:
    """Cluster a table and write the cluster of each row."""
    from dpsearch.estimator import DPMixture
    from dpsearch.io import read_table, write_labels

    for path in (out, model):
        if path is not None:
            check_writable(path, force)
    if model is not None and model.resolve() == out.resolve():
        raise ParameterError(f"{out}: --out and --model name the same file")
    console = Console(stderr=True)
    estimator = DPMixture(
        family=family,
        alpha=parse_alpha(alpha),
        beam_size=beam_size,
        refine=True if seconds is None else seconds,
        random_state=seed,
    )
    table = read_table(data)
    with errors_name(data), console.status("search"):
        estimator.fit(table.X)
    if table.names is not None:
        estimator.feature_names_in_ = np.array(table.names, dtype=object)
    write_labels(out, estimator.labels_)
    if model is not None:
        estimator.save(model)
    console.print(
        f"{len(estimator.labels_):,} rows in {estimator.n_clusters_} clusters;"
        f" log joint {estimator.log_joint_:.6g}; family {estimator.family_.name}; labels: {out}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
