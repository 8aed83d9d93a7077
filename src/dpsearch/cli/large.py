"""Files that are not read into memory: when, and what is written about them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dpsearch.cli.model import known_columns
from dpsearch.cli.options import advising_options
from dpsearch.cli.results import Results, label_columns
from dpsearch.errors import ParameterError, located
from dpsearch.io import Reading, Table, labels_table
from dpsearch.io.output import write_pieces
from dpsearch.io.read import digest, digest_all
from dpsearch.sources.files import comes_in_pieces, estimated_bytes, set_of_files
from dpsearch.sources.opened import OpenedTable, TableOptions, open_table
from dpsearch.sources.shards import drawn_rows, sampled_rows, stacked
from dpsearch.tables import CheckedTable

_COPIES = 4  # of a table that is fitted in memory
_SHARE = 0.5  # of the machine's memory
_SHOWN = 20_000  # rows that are explained and shown


def opened(files: contextlib.ExitStack, data: Path, options: TableOptions) -> OpenedTable | None:
    """Shards of a file for as long as `files` is open; None for one to be read into memory."""
    assert options.reading is not None
    if not comes_in_pieces(data, options.reading):
        if options.memory is not None:
            raise ParameterError(
                "--memory is for CSV, Parquet, Arrow and NPY files, and sets of them",
                source=data,
            )
        return None
    if options.memory is None:
        options = replace(options, memory=_too_large(data, options.reading))
        if options.memory is None and options.n_shards is None and set_of_files(data) is None:
            return None
    with advising_options():
        return files.enter_context(open_table(data, options))


def opened_for(
    files: contextlib.ExitStack,
    model: Any,
    data: Path,
    reading: Reading,
    memory: int | None,
    progress: Any,
) -> OpenedTable | None:
    """The same for a model: its columns, in the kinds and levels that it knows."""
    known = replace(reading, model=known_columns(model))
    options = TableOptions(
        gaps=model.family_.predicts_gaps, reading=known, memory=memory, schema=model.schema_,
        progress=progress,
    )  # fmt: skip
    return opened(files, data, options)


def _too_large(data: Path, reading: Reading) -> int | None:
    """The share of memory that may be used, if a file does not fit into it."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return None
    share = int(_SHARE * memory)
    return share if _COPIES * estimated_bytes(data, reading) > share else None


@contextlib.contextmanager
def errors_name(opened: OpenedTable) -> Iterator[None]:
    """Errors about the data name the file; those of its pieces do already."""
    with located(opened.source), advising_options():
        yield


def digest_of(data: Path) -> str | None:
    """SHA-256 of what was read; None for standard input, which has gone by."""
    files = set_of_files(data)
    if files is not None:
        return digest_all(files, Path(os.path.commonpath(files)))
    return digest(data) if data.is_file() else None


def sampled(opened: OpenedTable) -> Table:
    """Some rows, by which clusters are explained and shown."""
    counts = sampled_rows(opened.shards, _SHOWN)
    parts, index, begin = [], [], 0
    for number, shard in enumerate(opened.shards):
        rows = drawn_rows(shard.n_rows, int(counts[number]), [0, number])
        parts.append(shard.load()[rows])
        index.append(row_names(opened, shard, begin)[rows.tolist()])
        begin += shard.n_rows
    matrix = stacked(parts)
    X = matrix if opened.schema is None else opened.schema.decode(matrix)
    notes = list(opened.notes)
    if matrix.shape[0] < opened.n_rows:
        notes.append(
            f"typical rows, and the report, are from a sample of {matrix.shape[0]:,} of"
            f" {opened.n_rows:,} rows"
        )
    return Table(
        X,
        opened.names,
        opened.numbers,
        index=pl.concat(index),
        index_column=opened.index if isinstance(opened.index, str | None) else opened.index_name,
        source=opened.source,
        notes=notes,
        left_out=list(opened.left_out),
    )


@dataclass
class LargeResults(Results):
    """Results of which the labels are written shard by shard, and the rest is from a sample."""

    opened: OpenedTable | None = None

    @classmethod
    def of_sample(cls, model: Any, table: Table, opened: OpenedTable) -> LargeResults:
        found = cls.of(model, table)
        found.opened = opened
        return found

    @property
    def n_rows(self) -> int:
        return len(self.model.labels_)

    def write_labels(self, path: str | Path, verbatim: bool = False) -> None:
        write_pieces(path, self._pieces(), verbatim=verbatim)

    def _pieces(self) -> Iterator[pl.DataFrame]:
        assert self.opened is not None
        begin = 0
        for shard in self.opened.shards:
            labels = self.model.component_labels_[begin : begin + shard.n_rows]
            rows = self.model.encode(CheckedTable(shard.load()))
            about = self.model.mixture_.memberships(rows, labels)
            yield labels_table(
                row_names(self.opened, shard, begin), shard.n_rows,
                **label_columns(self.model, labels, about.certainty),
            )  # fmt: skip
            begin += shard.n_rows


def row_names(opened: OpenedTable, shard: Any, begin: int) -> pl.Series:
    """What the rows of a shard are called, which are the rows of the file from `begin` on."""
    names = opened.index_of(shard)
    if names is None:
        return pl.Series("row", np.arange(begin, begin + shard.n_rows))
    return names  # type: ignore[no-any-return]
