"""`TableOptions`: how a table is divided, and what is known about its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsearch.errors import ParameterError
from dpsearch.sources.shards import SHARD_ROWS, n_shards_for
from dpsearch.tables import Schema, Triaged, triaged

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading

_BASE = 400 << 20  # bytes of a process that has only just begun, with its kernels and a sample
_COPIES = 6  # of a shard: as read, as a matrix, as items, in a family's own form, …
_PER_ROW = 200  # bytes beside: labels, orders, weights
_FEWEST = 1000  # rows of a shard


def rows_within(memory: int, n_columns: int, n_threads: int) -> int:
    """How many rows a shard may have so that the shards of all threads stay within `memory`."""
    if memory < 1.25 * _BASE:
        raise ParameterError(
            f"memory must be at least {1.25 * _BASE / 1e6:.0f} MB, got {memory / 1e6:.0f} MB"
        )
    per_row = 8 * n_columns * _COPIES + _PER_ROW
    return max(_FEWEST, min(SHARD_ROWS, (memory - _BASE) // (n_threads * per_row)))


@dataclass(frozen=True)
class TableOptions:
    """How a table is divided, and what is known about its columns."""

    n_shards: int | None = None
    gaps: bool = True
    kinds: Any = None
    na: tuple[str, ...] = ()  # texts that stand for missing values
    keep: bool = False  # whether all columns are wanted
    cycles: bool = True  # whether months, hours and weekdays may become categories
    codes: bool = True  # whether codes of missing values are recognised
    unknown: str = "missing"  # what becomes of values that a model's columns cannot hold
    reading: Reading | None = None
    memory: int | None = None
    n_threads: int = 1
    schema: Schema | None = None  # of a model, for new rows
    progress: Callable[[int], None] | None = None  # called with the number of rows read so far
    weighted: bool = False  # whether rows have weights: they are then fitted in one piece
    stay: bool = False  # whether arrays of other libraries stay where they are

    def triaged(self, frame: Any, **options: Any) -> Triaged:
        """Decide about the columns of a frame."""
        how: dict[str, Any] = {
            "keep": self.keep,
            "cycles": self.cycles,
            "codes": self.codes,
        } | options
        return triaged(frame, self.kinds, self.na, **how)

    def divide(self, n_rows: int, n_columns: int) -> int:
        """How many shards there are."""
        if self.weighted:
            return 1
        if self.n_shards is None and self.memory is not None:
            return -(-n_rows // rows_within(self.memory, n_columns, self.n_threads))
        return n_shards_for(n_rows, n_columns, self.n_shards)
