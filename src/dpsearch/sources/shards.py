"""Where shards come from: blocks of rows that can be loaded again and again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints
from dpsearch._validate import as_matrix, has_gaps, whole
from dpsearch.errors import ParameterError, located
from dpsearch.tables import Schema, Triaged, triaged
from dpsearch.weights import with_what_they_lack

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading

SPLIT_MIX = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
SHARD_ROWS = 250_000  # unless n_shards is given
SHARD_CELLS = 1 << 25  # cells of a shard at most: it is held a few times
SAMPLE_ROWS = 50_000
_DIGESTED = 1 << 18  # cells at once
_WIDE = 200  # columns, beyond which a sample must do
_BASE = 400 << 20  # bytes of a process that has only just begun, with its kernels and a sample
_COPIES = 6  # of a shard: as read, as a matrix, as items, in a family's own form, …
_PER_ROW = 200  # bytes beside: labels, orders, weights
_FEWEST = 1000  # rows of a shard


class Shard(Protocol):
    """A block of rows."""

    @property
    def n_rows(self) -> int:
        """How many rows it has."""

    def load(self) -> Any:
        """The rows as a checked matrix, with NaN for what is missing."""


@dataclass(frozen=True)
class ArrayShard:
    """Rows of an array in memory, of a memory map, or of a sparse matrix."""

    array: Any
    begin: int
    end: int
    gaps: bool = False

    @property
    def n_rows(self) -> int:
        return self.end - self.begin

    def load(self) -> Any:
        with located(rows=self.begin):
            return as_matrix(self.array[self.begin : self.end, :], gaps=self.gaps)


def divided(shards: Sequence[Shard], most_rows: int) -> list[Shard]:
    """The same rows in smaller shards, as far as that makes them no slower to load."""
    out: list[Shard] = []
    for shard in shards:
        if isinstance(shard, ArrayShard):
            begins = range(shard.begin, shard.end, most_rows)
            out += [replace(shard, begin=b, end=min(b + most_rows, shard.end)) for b in begins]
        else:
            out.append(shard)
    return out


def n_shards_for(n_rows: int, n_columns: int, n_shards: int | None) -> int:
    """How many shards a table is divided into."""
    if n_shards is None:
        return -(-n_rows // max(1, min(SHARD_ROWS, SHARD_CELLS // max(1, n_columns))))
    return min(whole(n_shards, "n_shards", 1), n_rows)


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


def shards_of_array(array: Any, n_shards: int, gaps: bool) -> list[ArrayShard]:
    """Shards of nearly equal size."""
    edges = edges_of(array.shape[0], n_shards)
    return [ArrayShard(array, begin, end, gaps) for begin, end in itertools.pairwise(edges)]


def edges_of(n_rows: int, n_shards: int) -> list[int]:
    """Where shards of nearly equal size begin and end."""
    edges: list[int] = np.linspace(0, n_rows, n_shards + 1).round().astype(np.int64).tolist()
    return edges


def begins_of(shards: Sequence[Shard]) -> list[int]:
    """The number that the first row of each shard has in the whole."""
    return list(itertools.accumulate((shard.n_rows for shard in shards[:-1]), initial=0))


class Look(NamedTuple):
    """What a first look at a shard tells."""

    sample: Any  # some rows, drawn at random
    gaps: bool
    rows: Ints  # which they are
    telling: Any  # further rows, that say what values there are
    telling_rows: Ints
    digest: int


def look(shard: Shard, n_sampled: int, seed: Sequence[int]) -> Look:
    """Read a shard once, which also finds what is wrong with it."""
    return of_parts([look_at_part(shard, 0, drawn_rows(shard.n_rows, n_sampled, seed))])


def look_at_part(part: Shard, first: int, drawn: Ints) -> Look:
    """Read a part of a shard, from a first row on, of which these rows were drawn."""
    matrix = part.load()
    rows = drawn[(drawn >= first) & (drawn < first + part.n_rows)]
    telling = telling_rows(matrix)
    return Look(
        matrix[rows - first], has_gaps(matrix), rows, matrix[telling], first + telling,
        digest(matrix),
    )  # fmt: skip


def of_parts(parts: Sequence[Look]) -> Look:
    """What looks at all parts of a shard tell, in their order."""
    rows, numbers = (np.concatenate([one[i] for one in parts]) for i in (2, 4))
    telling = stacked([one.telling for one in parts])
    chosen = telling_rows(telling) if telling.shape[0] else np.empty(0, np.int64)
    further = chosen[~np.isin(numbers[chosen], rows)]
    return Look(
        stacked([one.sample for one in parts]), any(one.gaps for one in parts), rows,
        telling[further], numbers[further], sum(one.digest for one in parts) % 2**64,
    )  # fmt: skip


def digest(matrix: Any) -> int:
    """A number by which rows are known again, in any order and in any blocks.

    The sum, modulo 2⁶⁴, of a number for each row; the numbers of several blocks are added.
    """
    total, height = 0, max(1, _DIGESTED // max(1, matrix.shape[1]))
    for begin in range(0, matrix.shape[0], height):
        rows = matrix[begin : begin + height]
        values = rows.data if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=np.float64)
        columns = rows.indices if sp.issparse(rows) else np.arange(rows.shape[1])
        bits = np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.uint64)
        cells = np.where(values == 0.0, 0, mixed(bits + mixed(columns.astype(np.uint64))))
        if sp.issparse(rows):  # zeros count for nothing, whether they are stored or not
            upto = np.append(np.uint64(0), np.cumsum(cells, dtype=np.uint64))
            sums = upto[rows.indptr[1:]] - upto[rows.indptr[:-1]]
        else:
            sums = cells.sum(axis=1, dtype=np.uint64)
        total += int(mixed(sums).sum(dtype=np.uint64))
    return total % 2**64


def mixed(words: Any) -> Any:
    """Each word scattered over all 64 bits (Steele, Lea and Flood 2014, SplitMix)."""
    with np.errstate(over="ignore"):
        words = words + SPLIT_MIX[0]
        words = (words ^ (words >> np.uint64(30))) * SPLIT_MIX[1]
        words = (words ^ (words >> np.uint64(27))) * SPLIT_MIX[2]
        return words ^ (words >> np.uint64(31))


def drawn_rows(n_rows: int, n_sampled: int, seed: Sequence[int]) -> Ints:
    """The numbers of some rows, drawn at random, in order."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(n_rows, size=min(n_sampled, n_rows), replace=False))


def telling_rows(matrix: Any) -> Ints:
    """For each column rows with its least and largest value, one that is not whole, and a gap.

    They show what a family must allow for; a sample might have none of them.
    """
    if sp.issparse(matrix) or matrix.shape[1] > _WIDE:
        return np.empty(0, np.int64)
    return with_what_they_lack(np.empty(0, np.int64), matrix)


def sampled_rows(shards: Sequence[Shard], n_sampled: int) -> Ints:
    """How many rows to draw from each shard, in proportion to its size."""
    ends = np.cumsum([shard.n_rows for shard in shards])
    share = min(1.0, n_sampled / int(ends[-1]))
    upto = (np.append(0, ends) * share).round()
    return np.asarray(np.diff(upto), dtype=np.int64)


def stacked(samples: Sequence[Any]) -> Any:
    """Matrices one below the other."""
    if len(samples) == 1:
        return samples[0]
    return sp.vstack(samples, format="csr") if sp.issparse(samples[0]) else np.vstack(samples)
