"""The rows of a file that a command works on, in memory or in shards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dpsearch import io
from dpsearch._numbers import count
from dpsearch.cli.model import known_columns, read_for
from dpsearch.cli.options import errors_name
from dpsearch.errors import ParameterError, located
from dpsearch.io.read import digest, digest_all
from dpsearch.sources.files import comes_in_pieces, estimated_bytes, set_of_files
from dpsearch.sources.opened import OpenedTable, TableOptions, open_table
from dpsearch.sources.shards import drawn_rows, sampled_rows, shards_of_array, stacked
from dpsearch.tables import CheckedTable

__all__ = ["Source", "TableOptions"]

_COPIES = 4  # copies of a table that fitting it in memory needs
_SHARE = 0.5  # share of the machine's memory that may be used
_SHOWN = 20_000  # rows that are explained and shown
NAMED = 5  # rows without any value that a note names


class Source:
    """A table that is read into memory, or in shards that are open as long as `files` is.

    With a model it has the columns that the model knows, with the model's kinds and levels.
    """

    def __init__(
        self, files: contextlib.ExitStack, path: Path, options: TableOptions, model: Any = None
    ) -> None:
        reading = options.reading or io.Reading()
        if model is not None:
            gaps = model.family_.predicts_gaps
            reading = replace(reading, model=known_columns(model, gaps))
            options = replace(
                options, gaps=gaps, reading=reading, schema=model.schema_,
                unknown=model.handle_unknown,
            )  # fmt: skip
        self.path = path
        self.opened = _opened(files, path, options)
        if self.opened is None:
            progress = options.progress
            if model is None:
                self.table = io.read_table(path, reading, progress=progress)
                if self.table.named is not None:
                    self.table.named |= options.keep
                    with errors_name(self.table):
                        self.table.decide(
                            options.kinds, options.na, cycles=options.cycles, codes=options.codes
                        )
                elif options.kinds is not None:
                    self.table.X = self.table.frame()
            else:
                self.table = read_for(model, path, reading, gaps=options.gaps, progress=progress)

    @property
    def rows(self) -> Any:
        """What a model is fitted to."""
        if self.opened is not None:
            return self.opened
        table = self.table
        if table.triage is None:
            return table.X
        matrix = table.X if table.schema is None or table.schema.all_numbers else None
        if matrix is None:
            assert table.schema is not None
            matrix = table.schema.encode(table.X)
        names = None if table.names is None else tuple(table.names)
        checked = CheckedTable(matrix, names)
        shards = shards_of_array(checked.matrix, 1, True)
        return OpenedTable(
            list(shards), table.n_columns, table.all_names, table.schema,
            triage=table.triage, feature_names=names, table=checked,
        )  # fmt: skip

    @property
    def triage(self) -> Any:
        """What was decided about the columns; None if nothing was."""
        return self.table.triage if self.opened is None else self.opened.triage

    @property
    def n_rows(self) -> int:
        return self.table.n_rows if self.opened is None else self.opened.n_rows

    @cached_property
    def table(self) -> io.Table:
        """The rows in memory: all, or a sample for the explanation of clusters."""
        assert self.opened is not None
        opened, parts, index = self.opened, [], []
        counts = sampled_rows(opened.shards, _SHOWN)
        for number, (names, rows) in enumerate(self.blocks()):
            drawn = drawn_rows(len(names), int(counts[number]), [0, number])
            parts.append(rows.matrix[drawn])
            index.append(names[drawn.tolist()])
        matrix, notes = stacked(parts), list(opened.notes)
        if matrix.shape[0] < opened.n_rows:
            notes.append(
                f"typical rows and the report come from a sample of {matrix.shape[0]:,} of"
                f" {opened.n_rows:,} rows"
            )
        named = opened.index if isinstance(opened.index, str | None) else opened.index_name
        return io.Table(
            matrix if opened.schema is None else opened.schema.decode(matrix), opened.names,
            opened.numbers, pl.concat(index), named, source=opened.source, notes=notes,
            sha256=_digest(self.path),
        )  # fmt: skip

    def blocks(self, model: Any = None) -> Iterator[tuple[Any, CheckedTable]]:
        """Yield (names, rows) shard by shard, or all at once if they are in memory."""
        if self.opened is None:
            yield self.table.row_names, model.checked(self.table.X)
            return
        begin = 0
        for shard in self.opened.shards:
            names = self.opened.index_of(shard)
            if names is None:
                names = pl.Series("row", np.arange(begin, begin + shard.n_rows))
            rows = CheckedTable(shard.load())
            yield names, rows if model is None else model.within_support(rows, begin)
            begin += shard.n_rows

    @contextlib.contextmanager
    def errors_named(self) -> Iterator[None]:
        """Add the file to errors about the data."""
        if self.opened is None:
            with errors_name(self.table):
                yield
        else:  # the errors of its shards name their files
            with located(self.opened.source):
                yield


def empty_in_words(names: Sequence[Any], n_empty: int) -> str:
    """Return a note on the rows without any values, which names the first of them."""
    some = ", ".join(map(str, names)) + (", …" if n_empty > len(names) else "")
    has, their = ("has", "its label comes") if n_empty == 1 else ("have", "their labels come")
    rows = f"{count(n_empty, 'row')} {has} no values ({some})"
    return f"note: {rows}: {their} from the prior alone"


def _opened(files: contextlib.ExitStack, path: Path, options: TableOptions) -> OpenedTable | None:
    """Return the shards of a file; None for one to be read into memory."""
    assert options.reading is not None
    if not comes_in_pieces(path, options.reading):
        if options.memory is not None:
            raise ParameterError.of(
                "--memory",
                "needs CSV, Parquet, Arrow or NPY files, or a set of them",
                source=path,
            )
        return None
    if options.memory is None:
        options = replace(options, memory=_too_large(path, options.reading))
        if options.memory is None and options.n_shards is None and set_of_files(path) is None:
            return None
    return files.enter_context(open_table(path, options))


def _too_large(path: Path, reading: io.Reading) -> int | None:
    """Return the share of memory that may be used, if a file does not fit into it."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return None
    share = int(_SHARE * memory)
    return share if _COPIES * estimated_bytes(path, reading) > share else None


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of what was read; None for standard input, which cannot be read again."""
    files = set_of_files(path)
    if files is not None:
        return digest_all(files, Path(os.path.commonpath(files)))
    return digest(path) if path.is_file() else None
