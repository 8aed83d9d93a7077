"""Items: the units that solvers place into clusters.

An item is a block of one or more data points that stay together.  It is stored either as a data
row (a point, or several copies of it) or as a row of sufficient statistics (a block, such as a
sub-cluster that a shard hands up).  Solvers call the functions below and need not know which.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import (
    call_log_marginal,
    call_merge,
    call_score_best,
    call_score_member,
    call_score_rows,
    call_update,
    inline,
    inner,
    kernel,
    view,
)
from dpsearch._types import Ints, Vector


class Core(NamedTuple):
    """A family as kernels see it: its parameters and the addresses of its functions."""

    params: Vector
    width: int  # of one row of statistics
    update: int
    merge: int
    score_rows: int
    log_marginal: int
    score_member: int  # these two are 0 if the family does not have them
    score_best: int


class Items(NamedTuple):
    """Rows end to end; row i is ``values[indptr[i]:indptr[i + 1]]``.

    ``ids`` holds the column numbers of sparse data and is empty otherwise.
    """

    values: Vector
    ids: Any  # int32 vector
    indptr: Ints
    sizes: Ints  # number of data points in each item
    blocks: bool  # rows are sufficient statistics, not data

    @property
    def n_items(self) -> int:
        return len(self.indptr) - 1

    @property
    def single(self) -> bool:
        """Whether every item is one data point."""
        return not self.blocks and bool((self.sizes == 1).all())

    def rows(self, begin: int, end: int) -> Items:
        """Return the items from `begin` up to `end`, without a copy."""
        return self._replace(indptr=self.indptr[begin : end + 1], sizes=self.sizes[begin:end])

    def take(self, which: Ints) -> Items:
        """Return some items, by number."""
        lengths = np.diff(self.indptr)[which]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.indptr[which] - indptr[:-1], lengths) + np.arange(indptr[-1])
        ids = self.ids[places] if len(self.ids) else self.ids
        return Items(self.values[places], ids, indptr, self.sizes[which], self.blocks)


class Rows(NamedTuple):
    """Clusters as rows of statistics, end to end, with the number of points in each."""

    pool: Vector
    sizes: Ints


NO_ROWS = Rows(np.empty(0), np.empty(0, np.int64))


@inline
def item_ids(items: Items, i: int) -> Any:
    start = items.indptr[i]
    return view(items.ids, start, items.indptr[i + 1] - start if items.ids.shape[0] > 0 else 0)


@inline
def item_values(items: Items, i: int) -> Any:
    return view(items.values, items.indptr[i], items.indptr[i + 1] - items.indptr[i])


@inner
def copy_row(source: Any, target: Any) -> None:
    # An array assignment would first look whether the two overlap, and allocate if so.
    for d in range(source.shape[0]):
        target[d] = source[d]


@inner
def add_item(core: Core, items: Items, i: int, row: Any, sign: float) -> None:
    """Add item i to a row of statistics (sign 1.0) or remove it (sign -1.0)."""
    if items.blocks:
        call_merge(core.merge, (core.params, row, item_values(items, i), sign))
    else:
        weight = sign * items.sizes[i]
        call_update(
            core.update, (core.params, row, item_ids(items, i), item_values(items, i), weight)
        )


@inner
def merge_rows(core: Core, row: Any, other: Any, sign: float) -> None:
    """Add another cluster's statistics to a row (sign 1.0) or remove them (sign -1.0)."""
    call_merge(core.merge, (core.params, row, other, sign))


@inner
def score_item(
    core: Core, items: Items, i: int, pool: Any, starts: Any, out: Any, scratch: Any
) -> None:
    """Set out[k] to log H(item i | row at starts[k]), the log predictive probability."""
    if not items.blocks and items.sizes[i] == 1:
        call_score_rows(
            core.score_rows,
            (core.params, pool, starts, item_ids(items, i), item_values(items, i), out),
        )
        return
    for k in range(starts.shape[0]):
        row = view(pool, starts[k], core.width)
        copy_row(row, scratch)
        add_item(core, items, i, scratch, 1.0)
        out[k] = log_marginal(core, scratch) - log_marginal(core, row)


@inner
def score_best(core: Core, items: Items, i: int, pool: Any, starts: Any, offsets: Any, skipped: int,
               out: Any) -> bool:  # fmt: skip
    """Set out[k] to offsets[k] + log H(item i | row k) where that may be the largest, else −∞.

    The row at position `skipped` does not count, and out is not set there.  Return False, having
    done nothing, if the family cannot do this or the item is not a single point.
    """
    if core.score_best == 0 or items.blocks or items.sizes[i] != 1:
        return False
    call_score_best(
        core.score_best,
        (core.params, pool, starts, offsets, skipped, item_ids(items, i), item_values(items, i),
         out),
    )  # fmt: skip
    return True


@inner
def score_member(core: Core, items: Items, i: int, row: Any, scratch: Any) -> float:
    """Return log H(item i | the rest of its cluster), for a row that contains the item."""
    if not items.blocks and items.sizes[i] == 1 and core.score_member != 0:
        score = call_score_member(
            core.score_member, (core.params, row, item_ids(items, i), item_values(items, i))
        )
        if not math.isnan(score):
            return score  # type: ignore[no-any-return]
    copy_row(row, scratch)
    add_item(core, items, i, scratch, -1.0)
    return log_marginal(core, row) - log_marginal(core, scratch)


@inner
def log_marginal(core: Core, row: Any) -> float:
    """Return log H of the data that a row summarises."""
    return call_log_marginal(core.log_marginal, (core.params, row))  # type: ignore[no-any-return]


@inner
def clear_row(core: Core, row: Any) -> None:
    """Make a row the statistics of no data."""
    row[:] = 0.0
    call_merge(core.merge, (core.params, row, row, 0.0))


@kernel
def log_alone(core: Core, items: Items) -> Any:
    """Return log H(x_i) of every item on its own."""
    n = items.indptr.shape[0] - 1
    out = np.empty(n)
    scratch = np.empty(core.width)
    if items.blocks:
        for i in range(n):
            out[i] = log_marginal(core, item_values(items, i))
        return out
    empty = np.empty(core.width)
    clear_row(core, empty)
    start = np.zeros(1, np.int64)
    for i in range(n):
        score_item(core, items, i, empty, start, view(out, i, 1), scratch)
    return out


@kernel
def log_predictive(core: Core, items: Items, pool: Any) -> Any:
    """Return log H(x_i | cluster k) for every item and every row of a pool."""
    n, n_clusters = items.indptr.shape[0] - 1, pool.shape[0] // core.width
    out = np.empty((n, n_clusters))
    starts = np.arange(n_clusters) * core.width
    scratch = np.empty(core.width)
    for i in range(n):
        score_item(core, items, i, pool, starts, out[i], scratch)
    return out


@kernel
def rows_of_labels(core: Core, items: Items, labels: Any, n_clusters: int) -> Any:
    """Return (flat pool, sizes): a row of statistics per cluster; labels below 0 do not count."""
    width = core.width
    pool = np.empty(n_clusters * width)
    sizes = np.zeros(n_clusters, np.int64)
    for k in range(n_clusters):
        clear_row(core, view(pool, k * width, width))
    for i in range(labels.shape[0]):
        k = labels[i]
        if k >= 0:
            sizes[k] += items.sizes[i]
            add_item(core, items, i, view(pool, k * width, width), 1.0)
    return pool, sizes


@kernel
def log_marginals(core: Core, pool: Any, n_rows: int) -> Any:
    """Return log H of each of the first rows of a pool."""
    out = np.empty(n_rows)
    for k in range(n_rows):
        out[k] = log_marginal(core, view(pool, k * core.width, core.width))
    return out
