"""Shards of Dask's collections: the chunks of an array, the partitions of a frame.

On the driver a shard holds its block as something yet to be computed; Dask puts in the rows
themselves on the worker that the shard is sent to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsearch._extras import naming_extras
from dpsearch._validate import as_matrix
from dpsearch.errors import DataError, DataTypeError, located
from dpsearch.tables import Column, Schema, are_counts, is_mixed


@dataclass(frozen=True)
class BlockShard:
    """One chunk or partition."""

    block: Any
    n_rows: int
    begin: int  # the number of its first row in the whole
    gaps: bool
    schema: Schema | None = None

    def load(self) -> Any:
        with located(rows=self.begin):
            if self.schema is not None:
                return self.schema.encode(self.block)
            return as_matrix(self.block, gaps=self.gaps)


# Shards, what the columns hold, and an empty table with the same columns.
Collection = tuple[list[BlockShard], Schema | None, Any]


def is_collection(X: Any) -> bool:
    """Whether X is Dask's, importing nothing."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def open_collection(X: Any, gaps: bool, kinds: Mapping[str, str] | None = None) -> Collection:
    """Return the blocks of a `dask.array` or `dask.dataframe` as shards."""
    with naming_extras("Dask's collections"):
        import dask.array as da
        import distributed  # noqa: F401

    if isinstance(X, da.Array):
        if kinds is not None:
            raise DataError("kinds of columns are taken from frames only, and X is an array")
        return _open_array(X, gaps)
    if hasattr(X, "map_partitions") and hasattr(X, "columns"):
        return _open_frame(X, gaps, kinds)
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


def _open_frame(X: Any, gaps: bool, kinds: Mapping[str, str] | None) -> Collection:
    like = X._meta
    schema = None
    if kinds is not None or is_mixed(X._meta_nonempty):
        schema = _schema(X, kinds or {})
    sizes = X.map_partitions(len, meta=("rows", np.int64)).compute().tolist()
    return _shards(X.to_delayed(), sizes, gaps, schema), schema, like


def _shards(blocks: Any, sizes: list[int], gaps: bool, schema: Schema | None) -> list[BlockShard]:
    begins = np.cumsum([0, *sizes])
    shards = [
        BlockShard(block, size, int(begin), gaps, schema)
        for block, size, begin in zip(blocks, sizes, begins[:-1], strict=True)
        if size > 0
    ]
    if not shards:
        raise DataError("0 sample(s) while a minimum of 1 is required: X is empty")
    return shards


def _schema(X: Any, kinds: Mapping[str, str]) -> Schema:
    """What the columns hold by their types; of integers what tells counts is computed."""
    dtypes = {str(name): dtype for name, dtype in X.dtypes.items()}
    for name in kinds:
        if name not in dtypes:
            raise DataError(f"kinds: X has no column {name!r}")
    counted = _counted(X, [name for name in X.columns if dtypes[str(name)].kind in "iu"])
    columns = []
    for name in X.columns:
        found = _column(X, name, dtypes[str(name)], name in counted)
        columns.append(_as_asked(found, kinds.get(found.name), dtypes[found.name]))
    return Schema("pandas", tuple(columns), frozenset(kinds))


def _counted(X: Any, whole: list[Any]) -> set[Any]:
    """Which columns of integers are taken for counts."""
    if not whole:
        return set()
    from dask import compute

    own = X[whole]
    least, median, mean, variance, n = compute(  # nearly, in one pass
        own.min(), own.quantile(0.5), own.mean(), own.var(), own.count()
    )
    return {
        name
        for name in whole
        if least[name] >= 0 and are_counts(median[name], mean[name], variance[name], n[name])
    }


def _column(X: Any, name: Any, dtype: Any, counted: bool) -> Column:
    """What a column holds by its type."""
    text = str(name)
    if str(dtype) == "category":
        if not X[name].cat.known:
            raise DataError(
                "the categories of {place} of X are not known yet: use"
                f" X.categorize(columns=[{text!r}])",
                column=text,
            )
        return Column(text, "category", "categorical", tuple(X[name].cat.categories))
    if dtype.kind == "b":
        return Column(text, "binary", "bool", (False, True))
    if dtype.kind in "iu":
        return Column(text, "count" if counted else "real", "int")
    if dtype.kind == "f":
        return Column(text, "real", "float")
    raise DataError(
        f"{{place}} of X holds {dtype}: make it categories that are known by"
        f" X.categorize(columns=[{text!r}]), turn it into numbers, or leave it out",
        column=text,
    )


def _as_asked(column: Column, kind: Any, dtype: Any) -> Column:
    """The column as of the kind that the user says."""
    if kind is None or kind == column.kind:
        return column
    if column.levels is not None or kind not in ("real", "count"):
        raise DataError(
            f"kinds: {{place}} of X holds {dtype} and cannot be {kind!r}: change the type of the"
            " column",
            column=column.name,
        )
    return replace(column, kind=kind)
