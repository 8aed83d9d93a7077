"""Shards of Dask's collections: the chunks of an array, the partitions of a frame.

On the client a shard holds its block as a delayed object; Dask replaces that by the rows on the
worker to which it sends the shard.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._extras import naming_extras
from dpsearch._validate import as_matrix
from dpsearch.errors import DataError, DataTypeError, located
from dpsearch.sources.shards import SAMPLE_ROWS, TableOptions
from dpsearch.tables import Schema, Triaged


@dataclass(frozen=True)
class BlockShard:
    """One chunk or partition."""

    block: Any
    n_rows: int
    begin: int  # the index of its first row in the table
    gaps: bool
    schema: Schema | None = None

    def load(self) -> Any:
        with located(rows=self.begin):
            if self.schema is not None:
                return self.schema.encode(self.block, quiet=True)
            return as_matrix(self.block, gaps=self.gaps)


# Shards, the decisions about the columns of a frame, and an empty table with the same columns.
Collection = tuple[list[BlockShard], Triaged | None, Any]


def is_collection(X: Any) -> bool:
    """Whether X is a collection of Dask, importing nothing."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def open_collection(X: Any, options: TableOptions) -> Collection:
    """Return the blocks of a `dask.array` or `dask.dataframe` as shards."""
    with naming_extras("Dask's collections"):
        import dask.array as da
        import distributed  # noqa: F401

    if isinstance(X, da.Array):
        if options.kinds is not None:
            raise DataError("kinds of columns are taken from frames only, and X is an array")
        return _open_array(X, options.gaps)
    if hasattr(X, "map_partitions") and hasattr(X, "columns"):
        return _open_frame(X, options)
    raise DataTypeError(f"X is a {type(X).__name__} of Dask: dask.array and dask.dataframe fit")


def _open_array(X: Any, gaps: bool) -> Collection:
    if X.ndim != 2:
        raise DataError(f"Expected 2D array, got {X.ndim}D array instead: X must have columns")
    if any(np.isnan(size) for size in X.shape):
        X = X.copy().compute_chunk_sizes()  # a copy: it works in place
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    blocks = X.to_delayed()[:, 0]
    shards = _shards(blocks, [int(size) for size in X.chunks[0]], gaps, None)
    return shards, None, np.empty((0, X.shape[1]))


def _open_frame(X: Any, options: TableOptions) -> Collection:
    sizes = X.map_partitions(len, meta=("rows", np.int64)).compute().tolist()
    if not sum(sizes):
        raise _empty()
    share = min(1.0, SAMPLE_ROWS / sum(sizes))
    sample = X if share == 1.0 else X.sample(frac=share, random_state=0)
    found = options.triaged(sample.compute(), n_rows=sum(sizes))
    return _shards(X.to_delayed(), sizes, options.gaps, found.conversion), found, X._meta


def _empty() -> DataError:
    return DataError("0 sample(s) while a minimum of 1 is required: X is empty")


def _shards(blocks: Any, sizes: list[int], gaps: bool, schema: Schema | None) -> list[BlockShard]:
    begins = np.cumsum([0, *sizes])
    shards = [
        BlockShard(block, size, int(begin), gaps, schema)
        for block, size, begin in zip(blocks, sizes, begins[:-1], strict=True)
        if size > 0
    ]
    if not shards:
        raise _empty()
    return shards


# -- the cluster that holds or reads the rows --------------------------------------------------


def present_client() -> Any:
    """Return the client that Dask's collections would use; None if there is none."""
    distributed = sys.modules.get("distributed")  # without it there can be no client
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


@contextmanager
def some_client() -> Iterator[tuple[Any, bool]]:
    """Yield the present client, or that of a local cluster which ends with the block.

    Also yield whether the client stays afterwards.
    """
    with naming_extras("Dask's collections"):
        from distributed import Client, LocalCluster

    client = present_client()
    if client is not None:
        yield client, True
        return
    # Threads suffice, since kernels hold no lock; processes would import the caller's script.
    with LocalCluster(processes=False, dashboard_address=":0") as cluster, Client(cluster) as local:
        yield local, False
