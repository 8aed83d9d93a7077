"""`dpsearch certify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import load_model, read_for, rows_of
from dpsearch.cli.options import (
    Data,
    Force,
    Json,
    Model,
    Quiet,
    Reading,
    Verbatim,
    check_writable,
    errors_name,
    parse_duration,
    reads_data,
)
from dpsearch.errors import DataError

if TYPE_CHECKING:
    from dpsearch.exact.certificate import Certificate
    from dpsearch.io import Table
    from dpsearch.problem import Problem


@reads_data
def certify(
    model: Model,
    data: Data,
    reading: Reading,
    time_limit: Annotated[
        float,
        typer.Option(
            parser=parse_duration, metavar="DURATION", help="Time limit, with compilation."
        ),
    ] = 60.0,
    tolerance: Annotated[
        float, typer.Option(min=0, help="A gap up to this, in nats, counts as closed.")
    ] = 1e-6,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove the bound again from its prices alone.")
    ] = False,
    labels: Annotated[
        Path | None, typer.Option(help="Where to write the best partition known (CSV).")
    ] = None,
    as_json: Json = False,
    verbatim: Verbatim = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Bound how much better any clustering of the data could be than a model's.

    The exit code is 0 whether or not the gap is closed; the output says which.
    """
    from dpsearch.exact import certify
    from dpsearch.io import labels_table, write_table
    from dpsearch.io.output import check_ending
    from dpsearch.progress import stages

    if labels is not None:
        check_ending(labels)
        check_writable(labels, force)
    messages = Messages(quiet)
    with stages(messages.console) as stage:
        stage.begin(f"reading {data}")
        estimator = load_model(model)
        table = read_for(estimator, data, reading, progress=stage.count_rows)
        stage.begin("comparing with the model")
        problem, value = _same_problem(estimator, table, model, data)
        stage.begin("certify")
        found = certify(
            problem,
            estimator.labels_,
            time_limit=time_limit,
            tolerance=tolerance,
            callback=stage.callback,
        )
        stage.begin("verifying")
        verified = found.verify() if verify else None
    if labels is not None:
        best = labels_table(table.index, table.n_rows, cluster=found.clustering.labels)
        write_table(labels, best, force=force, verbatim=verbatim)
    if as_json:
        print_json(_about(found, value, verified))
    else:
        for line in _lines(found, value, verified):
            messages.print(line)


def _same_problem(estimator: Any, table: Table, model: Path, data: Path) -> tuple[Problem, float]:
    """Return the model's problem and its log joint, or raise if the data are not the model's."""
    n_rows = len(estimator.labels_)
    if table.n_rows != n_rows:
        raise DataError(f"{table.n_rows} rows, but {model} was fitted to {n_rows}", source=data)
    with errors_name(table):
        problem = estimator.problem(rows_of(estimator, table))
    value = problem.log_joint(estimator.labels_)
    if abs(value - estimator.log_joint_) > 1e-6 * max(1.0, abs(value)):
        raise DataError(f"not the data that {model} was fitted to", source=data)
    return problem, value


def _about(found: Certificate, value: float, verified: bool | None) -> dict[str, Any]:
    return {
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


def _lines(found: Certificate, value: float, verified: bool | None) -> list[str]:
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
            "(the bound is only a ceiling on densities: a proof takes time, and a family that"
            " declares a statistic: gaussian, bernoulli, poisson or multinomial)"
        )
    if verified is not None:
        lines.append("verified" if verified else "NOT verified: the stored prices prove less")
    return lines
