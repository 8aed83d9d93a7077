"""`dpsearch cut`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsearch._files import atomic_folder
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.fit import FORMATS, WRITTEN, write_results
from dpsearch.cli.model import load_model, read_for, write_page
from dpsearch.cli.options import (
    Json,
    LevelName,
    Memory,
    MinSize,
    Quiet,
    Verbatim,
    errors_name,
    parse_level,
)
from dpsearch.errors import DataError, ParameterError


def cut(
    folder: Annotated[Path, typer.Argument(help="The folder that `dpsearch fit` wrote.")],
    data: Annotated[
        Path | None,
        typer.Argument(help="The table that was fitted, if it is no longer where it was."),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Number of clusters; the same as --level NUMBER.")
    ] = None,
    level: LevelName = "auto",
    min_size: MinSize = 1,
    report: Annotated[
        bool | None,
        typer.Option(help="Write report.html; by default if the folder has one."),
    ] = None,
    memory: Memory = None,
    verbatim: Verbatim = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Cut the tree over components at another level; nothing is fitted again.

    Rewrites labels.csv, clusters.csv, model.npz, run.json and the report of a folder, whole or not
    at all.  The data are read again, for typical rows and for the report.
    """
    from dpsearch.cli.results import level_record
    from dpsearch.progress import stages

    if clusters is not None and level != "auto":
        raise ParameterError("say --clusters or --level, not both", parameter="--clusters")
    messages = Messages(quiet)
    record = _record(folder)
    form = next((f for f in FORMATS if (folder / f"labels.{f}").is_file()), FORMATS[0])
    wanted = (folder / "report.html").is_file() if report is None else report
    with stages(messages.console) as stage, contextlib.ExitStack() as files:
        model = load_model(folder).at_level(
            parse_level(level) if clusters is None else clusters, min_cluster_size=min_size
        )
        source = data or _where(Path(record["input"]["source"]), folder)
        found = _results(files, stage, model, source, record, memory)
        record |= level_record(model)
        record["parameters"] |= {"level": model.level, "min_cluster_size": min_size}
        stage.begin("writing")
        with atomic_folder(folder, WRITTEN, force=True) as new:
            write_results(new, found, record, form, verbatim)
            if wanted:
                stage.begin("report")
                shape = record.get("image_shape")
                write_page(
                    new / "report.html", model, found.table, explanation=found.explanation,
                    image_shape=None if shape is None else tuple(shape),
                    sample=found.n_rows != found.table.n_rows,
                )  # fmt: skip
    if as_json:
        print_json({**record, "out": str(folder)})
    messages.print(f"{found.summary()}; written to {folder}")
    messages.print(found.levels_in_words())


def _record(folder: Path) -> dict[str, Any]:
    """Return run.json of a folder, as a fit wrote it."""
    path = folder / "run.json"
    if not path.is_file():
        raise DataError("not a folder that `dpsearch fit` wrote: run.json is not there",
                        source=folder)  # fmt: skip
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not isinstance(record["input"]["source"], str):
            raise TypeError("input.source is no text")
        if not isinstance(record["input"].get("reading", {}), dict):
            raise TypeError("input.reading is no object")
        if not isinstance(record["parameters"], dict):
            raise TypeError("parameters are no object")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not what `dpsearch fit` wrote: {error}", source=path) from error
    return record


def _where(source: Path, folder: Path) -> Path:
    """Return where the data are: as the fit named them, or beside the folder of results."""
    beside = folder.parent / source.name
    return beside if not source.exists() and beside.exists() else source


def _results(
    files: contextlib.ExitStack,
    stage: Any,
    model: Any,
    data: Path,
    record: dict[str, Any],
    memory: int | None,
) -> Any:
    """Read the data as the fit did, and return the results at the model's level."""
    from dpsearch.cli import large
    from dpsearch.cli.results import Results
    from dpsearch.io import Reading

    if str(data) == "-" or not data.exists():
        raise DataError("the data are not there: name them after the folder", source=data)
    stage.begin(f"reading {data}")
    fields = set(Reading.__dataclass_fields__) - {"model"}
    given: dict[str, Any] = record["input"].get("reading", {})
    reading = Reading(**{name: value for name, value in given.items() if name in fields})
    opened = large.opened_for(files, model, data, reading, memory, stage.count_rows)
    if opened is None:
        table = read_for(model, data, reading, progress=stage.count_rows)
        n_rows, digest = table.n_rows, table.sha256
    else:
        table = large.sampled(opened)
        n_rows, digest = opened.n_rows, large.digest_of(data)
    before = record["input"].get("sha256")
    if n_rows != len(model.component_labels_) or (before and digest and digest != before):
        raise DataError("not the data that were fitted: they have changed since", source=data)
    stage.begin("explaining")
    with errors_name(table):
        if opened is None:
            return Results.of(model, table)
        return large.LargeResults.of_sample(model, table, opened)
