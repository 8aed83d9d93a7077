"""Shards: blocks of rows that can be loaded repeatedly, and the first pass over them."""

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
from dpsearch.weights import with_decisive_rows

if TYPE_CHECKING:  # Polars is imported when there is something to read
    from dpsearch.io import Reading

SPLIT_MIX = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
SHARD_ROWS = 250_000  # unless n_shards is given
SHARD_CELLS = 1 << 25  # the most cells of a shard, of which several copies are in memory
SAMPLE_ROWS = 50_000
_DIGESTED = 1 << 18  # cells at a time
_WIDE = 200  # the most columns in which decisive rows are looked for
_BASE = 400 << 20  # bytes of a process with its kernels and a sample, before the first shard
_COPIES = 6  # of a shard: as read, as a matrix, as items, in a family's own form, …
_PER_ROW = 200  # further bytes of a row: labels, orders, weights
_FEWEST = 1000  # rows of a shard


class Shard(Protocol):
    """A block of rows."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""

    def load(self) -> Any:
        """Return the rows as a checked matrix, with NaN for missing values."""


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
    """Return the same rows in smaller shards, unless that makes loading slower."""
    out: list[Shard] = []
    for shard in shards:
        if isinstance(shard, ArrayShard):
            begins = range(shard.begin, shard.end, most_rows)
            out += [replace(shard, begin=b, end=min(b + most_rows, shard.end)) for b in begins]
        else:
            out.append(shard)
    return out


def n_shards_for(n_rows: int, n_columns: int, n_shards: int | None) -> int:
    """Return the number of shards of a table."""
    if n_shards is None:
        return -(-n_rows // max(1, min(SHARD_ROWS, SHARD_CELLS // max(1, n_columns))))
    return min(whole(n_shards, "n_shards", 1), n_rows)


def rows_within(memory: int, n_columns: int, n_threads: int) -> int:
    """Return how many rows a shard may have so that those of all threads fit into `memory`."""
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
    keep: bool = False  # whether all columns are used
    cycles: bool = True  # whether months, hours and weekdays may become categories
    codes: bool = True  # whether codes of missing values are recognised
    unknown: str = "missing"  # the treatment of values that a model's columns cannot hold
    reading: Reading | None = None
    memory: int | None = None
    n_threads: int = 1
    schema: Schema | None = None  # of a model, for new rows
    progress: Callable[[int], None] | None = None  # called with the number of rows read so far
    weighted: bool = False  # whether rows have weights, so that they are fitted in one piece
    stay: bool = False  # whether arrays of other libraries stay on their device

    def triaged(self, frame: Any, **options: Any) -> Triaged:
        """Decide about the columns of a frame."""
        how: dict[str, Any] = {
            "keep": self.keep,
            "cycles": self.cycles,
            "codes": self.codes,
        } | options
        return triaged(frame, self.kinds, self.na, **how)

    def divide(self, n_rows: int, n_columns: int) -> int:
        """Return the number of shards."""
        if self.weighted:
            return 1
        if self.n_shards is None and self.memory is not None:
            return -(-n_rows // rows_within(self.memory, n_columns, self.n_threads))
        return n_shards_for(n_rows, n_columns, self.n_shards)


def shards_of_array(array: Any, n_shards: int, gaps: bool) -> list[ArrayShard]:
    """Return shards of nearly equal size."""
    edges = edges_of(array.shape[0], n_shards)
    return [ArrayShard(array, begin, end, gaps) for begin, end in itertools.pairwise(edges)]


def edges_of(n_rows: int, n_shards: int) -> list[int]:
    """Return the boundaries of shards of nearly equal size."""
    edges: list[int] = np.linspace(0, n_rows, n_shards + 1).round().astype(np.int64).tolist()
    return edges


def begins_of(shards: Sequence[Shard]) -> list[int]:
    """Return the index of the first row of each shard in the table."""
    return list(itertools.accumulate((shard.n_rows for shard in shards[:-1]), initial=0))


class Survey(NamedTuple):
    """What the first pass over a shard found."""

    samples: list[Any]  # of its parts, rows drawn at random
    gaps: bool
    rows: Ints  # the indices of the sample
    decisive: Any  # further rows, which show what a family must allow for
    decisive_rows: Ints  # their indices
    digest: int

    @property
    def sample(self) -> Any:
        """The rows drawn at random."""
        return stacked(self.samples)


def survey(shard: Shard, n_sampled: int, seed: Sequence[int]) -> Survey:
    """Read a shard once, which also raises the errors in it."""
    return joined_surveys([survey_part(shard, 0, drawn_rows(shard.n_rows, n_sampled, seed))])


def survey_part(part: Shard, first: int, drawn: Ints) -> Survey:
    """Survey a part of a shard that begins at row `first`; `drawn` are rows of the whole shard."""
    matrix = part.load()
    rows = drawn[(drawn >= first) & (drawn < first + part.n_rows)]
    decisive = decisive_rows(matrix)
    return Survey(
        [matrix[rows - first]], has_gaps(matrix), rows, matrix[decisive], first + decisive,
        digest(matrix),
    )  # fmt: skip


def joined_surveys(parts: Sequence[Survey]) -> Survey:
    """Return the survey of a shard from those of all its parts in their order."""
    rows, numbers = (np.concatenate([one[i] for one in parts]) for i in (2, 4))
    decisive = stacked([one.decisive for one in parts])
    chosen = decisive_rows(decisive) if decisive.shape[0] else np.empty(0, np.int64)
    further = chosen[~np.isin(numbers[chosen], rows)]
    return Survey(
        [one for part in parts for one in part.samples], any(one.gaps for one in parts), rows,
        decisive[further], numbers[further], sum(one.digest for one in parts) % 2**64,
    )  # fmt: skip


def digest(matrix: Any) -> int:
    """Return a hash of rows that depends neither on their order nor on their division in blocks.

    It is the sum modulo 2⁶⁴ of a hash of each row, so the hashes of several blocks are added.
    """
    total, height = 0, max(1, _DIGESTED // max(1, matrix.shape[1]))
    for begin in range(0, matrix.shape[0], height):
        rows = matrix[begin : begin + height]
        values = rows.data if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=np.float64)
        columns = rows.indices if sp.issparse(rows) else np.arange(rows.shape[1])
        bits = np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.uint64)
        cells = np.where(values == 0.0, 0, mixed(bits + mixed(columns.astype(np.uint64))))
        if sp.issparse(rows):  # zeros add nothing, whether they are stored or not
            upto = np.append(np.uint64(0), np.cumsum(cells, dtype=np.uint64))
            sums = upto[rows.indptr[1:]] - upto[rows.indptr[:-1]]
        else:
            sums = cells.sum(axis=1, dtype=np.uint64)
        total += int(mixed(sums).sum(dtype=np.uint64))
    return total % 2**64


def mixed(words: Any) -> Any:
    """Return words mixed over all 64 bits by SplitMix (Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        words = words + SPLIT_MIX[0]
        words = (words ^ (words >> np.uint64(30))) * SPLIT_MIX[1]
        words = (words ^ (words >> np.uint64(27))) * SPLIT_MIX[2]
        return words ^ (words >> np.uint64(31))


def drawn_rows(n_rows: int, n_sampled: int, seed: Sequence[int]) -> Ints:
    """Return the indices of rows drawn at random, in ascending order."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(n_rows, size=min(n_sampled, n_rows), replace=False))


def decisive_rows(matrix: Any) -> Ints:
    """Return for each column rows with its least and largest value, a non-integer, and a gap.

    They show what a family must allow for, which a sample might miss.
    """
    if sp.issparse(matrix) or matrix.shape[1] > _WIDE:
        return np.empty(0, np.int64)
    return with_decisive_rows(np.empty(0, np.int64), matrix)


def sampled_rows(shards: Sequence[Shard], n_sampled: int) -> Ints:
    """Return how many rows to draw from each shard, in proportion to its size."""
    ends = np.cumsum([shard.n_rows for shard in shards])
    share = min(1.0, n_sampled / int(ends[-1]))
    upto = (np.append(0, ends) * share).round()
    return np.asarray(np.diff(upto), dtype=np.int64)


def stacked(samples: Sequence[Any]) -> Any:
    """Return matrices stacked vertically."""
    if len(samples) == 1:
        return samples[0]
    return sp.vstack(samples, format="csr") if sp.issparse(samples[0]) else np.vstack(samples)
