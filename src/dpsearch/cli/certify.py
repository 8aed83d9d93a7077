"""`dpsearch certify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpsearch.cli.options import Data, Force, check_writable, errors_name
from dpsearch.errors import DataError


def certify(
    model: Annotated[Path, typer.Argument(help="A model that `dpsearch fit --model` saved.")],
    data: Data,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds, compilation included.")
    ] = 60.0,
    tolerance: Annotated[
        float, typer.Option(min=0, help="A gap up to this, in nats, counts as closed.")
    ] = 1e-6,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove the bound once more from its prices alone.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(help="Where to write the best partition known (CSV).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    force: Force = False,
) -> None:
    """Bound how much better any clustering of the data could be than a model's.

    Exit code 0 whether or not the gap could be closed; the output says which.
    """
    from dpsearch.exact import certify_problem
    from dpsearch.io import read_table, write_labels
    from dpsearch.model_file import load
    from dpsearch.objective import Problem
    from dpsearch.progress import closing_gap

    if labels is not None:
        check_writable(labels, force)
    estimator = load(model)
    table = read_table(data)
    if len(table.X) != len(estimator.labels_):
        raise DataError(
            f"{data}: {len(table.X)} rows, but {model} was fitted to {len(estimator.labels_)}"
        )
    with errors_name(data):
        problem = Problem.of(table.X, estimator.family_, estimator._mixture.prior)
    value = problem.log_joint(estimator.labels_)
    if abs(value - estimator.log_joint_) > 1e-6 * max(1.0, abs(value)):
        raise DataError(f"{data}: not the data that {model} was fitted to")
    console = Console(stderr=True)
    with closing_gap(console) as callback:
        found = certify_problem(
            problem,
            estimator.labels_,
            time_limit=time_limit,
            tolerance=tolerance,
            callback=callback,
        )
    verified = found.verify() if verify else None
    if labels is not None:
        write_labels(labels, found.clustering.labels)
    if as_json:
        print(
            json.dumps(
                {
                    "log_joint": found.lower_bound,
                    "upper_bound": found.upper_bound,
                    "gap": found.gap,
                    "optimal": found.optimal,
                    "improvement": found.lower_bound - value,
                    "clusters": found.clustering.n_clusters,
                    "method": found.method,
                    "seconds": found.seconds,
                    "verified": verified,
                }
            )
        )
        return
    verdict = "optimal" if found.optimal else f"within {found.gap:.3g} nats of the optimum"
    lines = [
        f"{verdict}: log joint {found.lower_bound:.6f}, no partition above {found.upper_bound:.6f}"
        f" ({found.method}, {found.seconds:.2f} s)"
    ]
    if found.lower_bound > value + 1e-9 * abs(value):
        lines.append(
            f"a better partition was found: {found.clustering.n_clusters} clusters,"
            f" {found.lower_bound - value:.6g} nats above the model's"
        )
    if found.method == "ceiling" and not found.optimal:
        lines.append(
            "(nothing but a ceiling on densities: proofs are for the families gaussian, bernoulli,"
            " poisson and multinomial, and take time)"
        )
    if verified is not None:
        lines.append("verified" if verified else "NOT verified: the stored prices prove less")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
