"""`dpsearch certify`."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dpsearch._archive import require
from dpsearch._numbers import count
from dpsearch.cli import options as opt
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.model import load_model, read_for, rows_of
from dpsearch.errors import CapabilityError, DataError, ModelFileError, ParameterError

if TYPE_CHECKING:
    from dpsearch.exact.certificate import Certificate
    from dpsearch.fitted import FittedState
    from dpsearch.io import Table
    from dpsearch.problem import Problem
    from dpsearch.progress import Stages
    from dpsearch.tables import CheckedTable

_MOST_TOLD = 300  # characters per line about a certificate's subject

Proved = Annotated[
    Path,
    typer.Argument(
        help="What `dpsearch fit` wrote: the folder, or its model.npz. With --check: a certificate."
    ),
]
Numbers = Annotated[
    str, opt.option("Also bound the partitions into these numbers of components, such as 2,3.")
]
Pairs = Annotated[
    str,
    opt.option(
        "Say whether these pairs of rows, such as 3-17,4-20 (counted from 0), are proved to be"
        " together or apart in every partition within 5 nats of the best one known."
    ),
]
_WITHIN = 5.0  # nats
_OF_NUMBER = 20.0  # seconds for each number of components
_VERIFIED = {False: "verified", True: "verified, in interval arithmetic"}
_LOOKS = {1: "2,3", 2: "3-17,4-20"}


@opt.reads_data
def certify(
    model: Proved,
    data: opt.Data,
    reading: opt.Reading,
    time_limit: Annotated[
        float,
        opt.duration("Time limit, not counting compilation."),
    ] = 60.0,
    tolerance: Annotated[
        float, opt.option("Largest gap, in nats, that counts as closed.", min=0)
    ] = 1e-6,
    verify: Annotated[
        bool, opt.option("Prove the bound again from the stored dual prices alone.", "--verify")
    ] = False,
    out: Annotated[Path | None, opt.option("File for the certificate (NPZ), for --check.")] = None,
    check: Annotated[
        bool, opt.option("Verify, on these data, a certificate that --out wrote.", "--check")
    ] = False,
    exact: Annotated[
        bool,
        opt.option(
            "Also verify in interval arithmetic, over every subset of the rows; at most 16 rows.",
            "--exact",
        ),
    ] = False,
    labels: Annotated[Path | None, opt.option("File for the best partition known (CSV).")] = None,
    numbers: Numbers = "",
    pairs: Pairs = "",
    as_json: opt.Json = False,
    verbatim: opt.Verbatim = False,
    force: opt.Force = False,
    quiet: opt.Quiet = False,
) -> None:
    """Bound how much better than the model's any clustering of the data could be.

    The exit code is 0 whether or not the gap is closed; the output says which.  With --check, the
    bound of a certificate is proved again from the data, and the exit code is 1 if that fails.
    """
    from dpsearch.io import labels_table, write_table
    from dpsearch.progress import stages

    _check_outputs(labels, out, check, force)
    asked = _Asked(_integers("--numbers", numbers, 1), _integers("--pairs", pairs, 2), exact)
    messages = Messages(quiet)
    with stages(messages.console) as stage:
        if check:
            table, found = _stored(model, data, reading, stage)
            asked.check(found.problem)
            value, verify = found.lower_bound, True
        else:
            table, found, value = _certified(
                model, data, reading, stage, out, asked, time_limit=time_limit, tolerance=tolerance
            )
        stage.begin("verifying")
        verified = found.verify(exact=exact) if verify or exact else None
        answers = asked.answers(found) if verified is not False else {}
    if check and not verified:
        if as_json:  # nothing else in the file can be trusted
            print_json({"verified": False})
        raise ModelFileError(
            f"proves nothing about {data}: it was made for other rows, or it is wrong",
            source=model,
        )
    if check:  # the tolerance is that of the check, not of the file
        found = replace(found, tolerance=tolerance, optimal=found.gap <= tolerance)
    if labels is not None:
        best = labels_table(table.row_names, component=found.clustering.labels)
        write_table(labels, best, force=force, verbatim=verbatim)
    if as_json:
        subject = _subject(found, table) if check else {}
        print_json(_about(found, value, verified) | subject | answers)
        return
    about = _subject_lines(found, table) if check else []
    lines = [*_lines(found, value), *_sentences(answers, found), *about, *_verdict(verified, exact)]
    messages.print("\n".join(lines))


def _check_outputs(labels: Path | None, out: Path | None, check: bool, force: bool) -> None:
    """Raise, before any work is done, if an output file cannot be written."""
    from dpsearch.io.output import check_ending

    if labels is not None:
        check_ending(labels)
    if check and out is not None:
        raise ParameterError.of(
            "--check", "verifies a certificate and writes none: leave out --out"
        )
    for path in (labels, out):
        if path is not None:
            opt.check_writable(path, force)


def _certified(
    model: Path,
    data: Path,
    reading: opt.Reading,
    stage: Stages,
    out: Path | None,
    asked: _Asked,
    **options: Any,
) -> tuple[Table, Certificate, float]:
    """Certify a model; return the data, the certificate and the model's log joint."""
    from dpsearch.exact import certify
    from dpsearch.exact.certificate_file import write_certificate

    stage.begin(f"reading {data}")
    estimator = load_model(model)
    table = read_for(estimator, data, reading, progress=stage.count_rows)
    stage.begin("comparing with the model")
    problem, value = _same_problem(estimator, table, model, data)
    asked.check(problem)
    stage.begin("certifying")
    found = certify(
        problem, estimator.component_labels_, line=not asked.pairs, callback=stage.callback,
        **options,
    )  # fmt: skip
    if out is not None:
        columns = _columns(estimator.state_)
        gaps = _gaps(_encoded(_reader(columns, out), table).matrix)
        filled = None if gaps is None else problem.model.matrix[gaps]
        write_certificate(out, found, columns=columns, filled=filled)
    return table, found, value


def _stored(
    path: Path, data: Path, reading: opt.Reading, stage: Stages
) -> tuple[Table, Certificate]:
    """Read a certificate, and the data in the way that it describes."""
    from dpsearch.exact import Certificate
    from dpsearch.exact.certificate_file import read_certificate
    from dpsearch.io import read_table

    stage.begin(f"reading {data}")
    if path.is_dir():
        raise ModelFileError("a folder, not a certificate that --out wrote", source=path)
    stored = read_certificate(path)
    reader = _reader(stored.columns, path)
    if reader is None:  # written by the library, for a table of numbers
        table = read_table(data, reading, progress=stage.count_rows)
    else:
        table = read_for(reader, data, reading, progress=stage.count_rows)
    stage.begin("comparing with the certificate")
    with opt.errors_name(table):
        rows = _encoded(reader, table)
        gaps = _gaps(rows.matrix)
        if stored.filled is not None and gaps is not None and gaps.sum() == len(stored.filled):
            matrix = rows.matrix.copy()
            matrix[gaps] = stored.filled
            rows = replace(rows, matrix=matrix)
        return table, Certificate(**stored.fields, problem=stored.problem(rows))


def _columns(state: FittedState) -> dict[str, Any]:
    """Return what is needed to read the rows of a file again, as plain values."""
    return {
        "n_features": state.mixture.model.n_features,
        "names": state.names,
        "index": state.index_name,
        "schema": None if state.schema is None else state.schema.to_dict(),
        "codes": [list(code) for code in state.codes],
    }


def _reader(columns: dict[str, Any] | None, path: Path) -> Any:
    """Return a stand-in for the model, with the attributes that `read_for` needs."""
    from dpsearch.tables import Schema

    if columns is None:
        return None
    try:
        schema, names = columns["schema"], columns["names"]
        index, n_features = columns["index"], columns["n_features"]
        described = type(n_features) is int and isinstance(index, str | None)
        require(described, "its columns are not described")
        named = all(isinstance(name, str) for name in names or ())
        require(named, "the names of its columns are not texts")
        codes = tuple((column, float(value)) for column, value in columns.get("codes", []))
        known = all(type(column) is int and 0 <= column < n_features for column, _ in codes)
        require(known, "its codes of missing values name columns that do not exist")
        return SimpleNamespace(
            codes=codes,
            n_features_in_=n_features,
            feature_names_in_=names,
            index_name_=index,
            schema_=None if schema is None else Schema.from_dict(schema),
        )
    except Exception as error:  # the file may contain anything
        raise ModelFileError(f"not a valid certificate: {error}", source=path) from error


def _encoded(reader: Any, table: Table) -> CheckedTable:
    from dpsearch.tables import CheckedTable, without_codes

    if reader is None:
        return CheckedTable.of(table.X)
    if reader.schema_ is None:
        return without_codes(CheckedTable.of(table.X), reader.codes)
    schema = reader.schema_
    return without_codes(CheckedTable(schema.encode(table.X), tuple(schema.names)), reader.codes)


def _gaps(matrix: Any) -> Any:
    """Return where values are missing; None if none is."""
    import numpy as np

    gaps = None if not isinstance(matrix, np.ndarray) else np.isnan(matrix)
    return gaps if gaps is not None and gaps.any() else None


def _same_problem(estimator: Any, table: Table, model: Path, data: Path) -> tuple[Problem, float]:
    """Return the model's problem and its log joint, or raise if the data are not the model's."""
    n_rows = len(estimator.component_labels_)
    if table.n_rows != n_rows:
        raise DataError(f"{table.n_rows} rows, but {model} was fitted to {n_rows}", source=data)
    weights = estimator.sample_weight_
    if weights is not None and (weights == 0).any():
        raise DataError(
            f"{count((weights == 0).sum(), 'row')} without any values took no part in the fit:"
            " leave such rows out and fit again",
            source=data,
        )
    with opt.errors_name(table):
        problem = estimator.problem(rows_of(estimator, table))
    value = problem.log_joint(estimator.component_labels_)
    if abs(value - estimator.log_joint_) > 1e-6 * max(1.0, abs(value)):
        raise DataError(f"these are not the data that {model} was fitted to", source=data)
    return problem, value


class _Asked(NamedTuple):
    """What the user asks for besides the bound."""

    numbers: list[tuple[int, ...]]  # of components
    pairs: list[tuple[int, ...]]  # of rows
    exact: bool

    def check(self, problem: Problem) -> None:
        """Raise, before any work is done, if a row, number or the arithmetic does not exist."""
        from dpsearch.exact.interval_arithmetic import require_exact

        n = problem.n_items
        for (k,) in self.numbers:
            if not 1 <= k <= n:
                raise ParameterError.must(
                    "--numbers", f"lie between 1 and {n}, the number of rows", k
                )
        for i, j in self.pairs:
            if i == j or max(i, j) >= n:
                wanted = f"name two different rows from 0 to {n - 1}"
                raise ParameterError.of("--pairs", f"must {wanted}, got {i}-{j}")
        if self.exact:
            try:
                require_exact(problem)
            except ParameterError as error:
                error.parameter = "--exact"
                raise

    def answers(self, found: Certificate) -> dict[str, Any]:
        """Return what is proved about these numbers of components and these pairs of rows."""
        if not (self.numbers or self.pairs):
            return {}
        numbers = [found.with_clusters(k, time_limit=_OF_NUMBER)._asdict() for (k,) in self.numbers]
        pairs = [{"rows": [i, j], "proved": _verdict_of(found, i, j)} for i, j in self.pairs]
        return {"numbers": numbers, "pairs": pairs}


def _verdict_of(found: Certificate, i: int, j: int) -> str | None:
    """Return "apart" or "together" if that is proved of two rows, otherwise None."""
    try:
        if found.apart(i, j, within=_WITHIN):
            return "apart"
        return "together" if found.together(i, j, within=_WITHIN) else None
    except CapabilityError:
        return None


def _integers(name: str, text: str, count: int) -> list[tuple[int, ...]]:
    """Parse tuples of `count` integers, such as 2,3 or 3-17,4-20."""
    try:
        out = [tuple(map(int, part.split("-"))) for part in text.split(",") if part.strip()]
    except ValueError:
        out = [()]
    if any(len(one) != count for one in out):
        raise ParameterError.of(name, f"must look like {_LOOKS[count]}, got {text!r}")
    return out


def _sentences(answers: dict[str, Any], found: Certificate) -> list[str]:
    lines = []
    for one in answers.get("numbers", []):
        worse, into = one["worse_by"], f"into {count(one['n_clusters'], 'component')}"
        if worse > 0:
            lines.append(f"every partition {into} is at least {worse:.4g} nats worse than the best")
        elif found.optimal and one["n_clusters"] == found.clustering.n_clusters:
            lines.append(f"the best partition is {into}")
        else:
            lines.append(f"partitions {into} are not proved worse")
    for one in answers.get("pairs", []):
        i, j = one["rows"]
        what = one["proved"] or "not proved together or apart"
        lines.append(f"rows {i} and {j} are {what} in every partition within {_WITHIN:g} nats")
    return lines


def _about(found: Certificate, value: float, verified: bool | None) -> dict[str, Any]:
    return {
        "log_joint": found.lower_bound,
        "upper_bound": found.upper_bound,
        "gap": found.gap,
        "optimal": found.optimal,
        "improvement": found.lower_bound - value,
        "components": found.clustering.n_clusters,
        "method": found.method,
        "seconds": found.seconds,
        "verified": verified,
    }


def _subject(found: Certificate, table: Table) -> dict[str, Any]:
    """Return what a certificate is about, all of which its file states, except for the values."""
    problem = found.problem
    names = [table.name(j) for j in range(table.n_columns)]
    return {
        "rows": problem.n_items,
        "columns": names,
        "family": problem.model.family.to_dict(),
        "prior": problem.prior.to_dict(),
    }


def _subject_lines(found: Certificate, table: Table) -> list[str]:
    """Return the subject of a certificate as shortened lines of text."""
    subject = _subject(found, table)
    names = ", ".join(subject["columns"])
    model = "; ".join(repr(one) for one in (found.problem.model.family, found.problem.prior))
    return [
        textwrap.shorten(f"about {subject['rows']} rows of {names}", _MOST_TOLD, placeholder=" …"),
        textwrap.shorten(f"under {model}", _MOST_TOLD, placeholder=" …"),
    ]


def _verdict(verified: bool | None, exact: bool) -> list[str]:
    if verified is None:
        return []
    return [_VERIFIED[exact] if verified else "NOT verified: the stored prices prove less"]


def _lines(found: Certificate, value: float) -> list[str]:
    verdict = "optimal" if found.optimal else f"within {found.gap:.3g} nats of the optimum"
    if not found.optimal and found.gap < 20.0:
        verdict += f" (no partition is more than {math.exp(found.gap):.3g} times as probable)"
    lines = [
        f"{verdict}: log joint {found.lower_bound:.6f}, no partition above {found.upper_bound:.6f}"
        f" ({found.method}, {found.seconds:.2f} s)"
    ]
    if found.lower_bound > value + 1e-9 * abs(value):
        lines.append(
            f"a better partition was found: {found.clustering.n_clusters} components,"
            f" {found.lower_bound - value:.6g} nats above the model's"
        )
    if found.method == "ceiling" and not found.optimal:
        lines.append(
            "(the bound is only a ceiling on densities: a tighter one needs time, and a family"
            " whose linear form has terms, in few columns)"
        )
    return lines
