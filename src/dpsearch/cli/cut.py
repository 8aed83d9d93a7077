"""`dpsearch cut`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsearch._files import atomic_folder
from dpsearch.cli import options as opt
from dpsearch.cli.console import Messages, print_json
from dpsearch.cli.fit import FORMATS, WRITTEN
from dpsearch.cli.model import load_model
from dpsearch.errors import DataError, ParameterError

if TYPE_CHECKING:
    from dpsearch.cli.results import Results


def cut(
    folder: Annotated[Path, typer.Argument(help="The folder that `dpsearch fit` wrote.")],
    data: Annotated[
        Path | None,
        typer.Argument(help="The table that was fitted, if it has been moved."),
    ] = None,
    clusters: Annotated[
        int | None, opt.option("Number of clusters; the same as --level NUMBER.", min=1)
    ] = None,
    level: opt.LevelName = "auto",
    min_size: opt.MinSize = 1,
    report: Annotated[
        bool | None,
        opt.option("Whether to write report.html. Default: if the folder has one."),
    ] = None,
    memory: opt.Memory = None,
    verbatim: opt.Verbatim = False,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Cut the tree over components at another level, without fitting again.

    Rewrites labels.csv, clusters.csv, model.npz, run.json and the report of a folder: all of them
    or none.  The data are read again, for typical rows and for the report.
    """
    from dpsearch.cli.results import advice, level_record
    from dpsearch.progress import stages

    if clusters is not None and level != "auto":
        raise ParameterError("give --clusters or --level, not both", parameter="--clusters")
    messages = Messages(quiet)
    record = _record(folder)
    form = next((f for f in FORMATS if (folder / f"labels.{f}").is_file()), FORMATS[0])
    wanted = (folder / "report.html").is_file() if report is None else report
    with stages(messages.console) as stage, contextlib.ExitStack() as files:
        model = load_model(folder).at_level(
            opt.parse_level(level) if clusters is None else clusters, min_cluster_size=min_size
        )
        source = data or _where(Path(record["input"]["source"]), folder)
        found = _results(files, stage, model, source, record, memory)
        record |= level_record(model)
        record["parameters"] |= {"level": model.level, "min_cluster_size": min_size}
        stage.begin("writing")
        with atomic_folder(folder, WRITTEN, force=True) as new:
            found.write(new, form, verbatim)
            found.write_record(new, record)
            if wanted:
                stage.begin("writing the report")
                shape = record.get("image_shape")
                found.write_page(
                    new / "report.html", image_shape=None if shape is None else tuple(shape)
                )
    if as_json:
        print_json({**record, "out": str(folder)})
    messages.print(f"{found.summary()}; written to {folder}")
    messages.print(found.levels_in_words())
    if advised := advice(model, folder):
        messages.print(advised)


def _record(folder: Path) -> dict[str, Any]:
    """Return run.json of a folder; raise unless a fit wrote it."""
    path = folder / "run.json"
    if not path.is_file():
        raise DataError("not a folder that `dpsearch fit` wrote: it has no run.json",
                        source=folder)  # fmt: skip
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not isinstance(record["input"]["source"], str):
            raise TypeError("input.source is not a text")
        if not isinstance(record["input"].get("reading", {}), dict):
            raise TypeError("input.reading is not an object")
        if not isinstance(record["parameters"], dict):
            raise TypeError("parameters is not an object")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not what `dpsearch fit` wrote: {error}", source=path) from error
    return record


def _where(source: Path, folder: Path) -> Path:
    """Return where the data are: the fit's path, or the same name beside the results' folder."""
    beside = folder.parent / source.name
    return beside if not source.exists() and beside.exists() else source


def _results(
    files: contextlib.ExitStack,
    stage: Any,
    model: Any,
    data: Path,
    record: dict[str, Any],
    memory: int | None,
) -> Results:
    """Read the data as the fit did, and return the results at the model's level."""
    from dpsearch.cli.results import Results
    from dpsearch.cli.source import Source, TableOptions
    from dpsearch.io import Reading

    if str(data) == "-" or not data.exists():
        raise DataError(
            "the data are no longer there: give their path after the folder", source=data
        )
    stage.begin(f"reading {data}")
    fields = set(Reading.__dataclass_fields__) - {"model"}
    given: dict[str, Any] = record["input"].get("reading", {})
    reading = Reading(**{name: value for name, value in given.items() if name in fields})
    options = TableOptions(reading=reading, memory=memory, progress=stage.count_rows)
    source = Source(files, data, options, model)
    before, now = record["input"].get("sha256"), source.table.sha256
    if source.n_rows != len(model.component_labels_) or (before and now and now != before):
        raise DataError("not the data that were fitted: they have changed since", source=data)
    stage.begin("explaining")
    return Results.of(model, source)
