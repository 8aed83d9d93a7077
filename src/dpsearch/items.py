"""Items: the units that solvers place into clusters.

An item is a block of one or more data points that stay together.  It is stored either as a data
row (a point, or several copies of it) or as a row of sufficient statistics (a block, such as a
sub-cluster of a shard).  Solvers call the functions below for both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import (
    as_integer,
    call_log_marginal,
    call_merge,
    call_score_best,
    call_score_member,
    call_score_rows,
    call_update,
    emit_entry,
    emit_view,
    emits,
    inner,
    view,
)
from dpsearch._threads import each, in_use
from dpsearch._types import Ints, Labels, Matrix, Vector

_PART = 1 << 16  # items in each part whose statistics are computed by one thread
_NUMBERS_AT_ONCE = 1 << 24  # numbers of statistics that one task of a thread reads


class Core(NamedTuple):
    """A family as kernels see it: its parameters and the addresses of its functions."""

    params: Vector
    width: int  # of one row of statistics
    update: int
    merge: int
    score_rows: int
    log_marginal: int
    score_member: int  # this and the next are 0 if the family does not have them
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
        """Return some items, by index."""
        lengths = np.diff(self.indptr)[which]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.indptr[which] - indptr[:-1], lengths) + np.arange(indptr[-1])
        ids = self.ids[places] if len(self.ids) else self.ids
        return Items(self.values[places], ids, indptr, self.sizes[which], self.blocks)

    @classmethod
    def joined(cls, parts: Sequence[Items]) -> Items:
        """Return the items of several parts, one after the other."""
        begins = np.cumsum([0, *(part.indptr[-1] for part in parts)])
        after = [part.indptr[1:] + begin for part, begin in zip(parts, begins[:-1], strict=True)]
        values, ids, sizes = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "ids", "sizes")
        )
        return cls(values, ids, np.concatenate([[0], *after]), sizes, parts[0].blocks)


class Rows(NamedTuple):
    """Clusters as rows of statistics, end to end, with the number of points in each."""

    pool: Vector
    sizes: Ints


NO_ROWS = Rows(np.empty(0), np.empty(0, np.int64))


def _field(items: Any, name: str) -> Any:
    """Return the type of a field of the items."""
    return items.types[items.fields.index(name)]


def _emit_part(context: Any, builder: Any, signature: Any, arguments: Any, name: str) -> Any:
    """Emit the view of item i in a vector of the items, which may be empty for all items."""
    items, i = arguments[0], as_integer(context, builder, arguments[1], signature.args[1])

    def field(name: str) -> tuple[Any, Any]:
        at = signature.args[0].fields.index(name)
        return _field(signature.args[0], name), builder.extract_value(items, at)

    first = emit_entry(context, builder, *field("indptr"), i)
    end = emit_entry(context, builder, *field("indptr"), builder.add(i, i.type(1)))
    kind, vector = field(name)
    shape = context.make_array(kind)(context, builder, vector).shape
    filled = builder.icmp_signed(">", builder.extract_value(shape, 0), i.type(0))
    n = builder.select(filled, builder.sub(end, first), i.type(0))
    return emit_view(context, builder, kind, vector, first, n)


@emits(lambda items, i: _field(items, "ids"), functools.partial(_emit_part, name="ids"))
def item_ids(items: Items, i: int) -> Any:
    """Return the column numbers of item i, none if the data are dense."""
    return items.ids[items.indptr[i] : items.indptr[i + 1]]


@emits(lambda items, i: _field(items, "values"), functools.partial(_emit_part, name="values"))
def item_values(items: Items, i: int) -> Any:
    """Return the values of item i."""
    return items.values[items.indptr[i] : items.indptr[i + 1]]


@inner
def copy_row(source: Any, target: Any) -> None:
    # An array assignment would check whether the two overlap, and allocate if so.
    for d in range(source.shape[0]):
        target[d] = source[d]


@inner
def fill(vector: Any, value: float) -> None:
    # An assignment to a slice would compile to a hundred times the code.
    for d in range(vector.shape[0]):
        vector[d] = value


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

    The row at position `skipped` is left out, and `out` is not set there.  Return False, without
    setting anything, if the family lacks the function or the item is not a single point.
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
    fill(row, 0.0)
    call_merge(core.merge, (core.params, row, row, 0.0))


def log_alone(core: Core, items: Items) -> Vector:
    """Return log H(x_i) of every item on its own."""
    if items.blocks:
        return log_marginals(core, items.values[items.indptr[0] :], items.n_items)
    empty, _ = rows_of_labels(core, items, np.empty(0, np.int64), 1)
    return log_predictive(core, items, empty)[:, 0]


def log_predictive(core: Core, items: Items, pool: Vector, members: Labels | None = None) -> Matrix:
    """Return log H(x_i | cluster k) for every item and every row of a pool.

    `members` are the clusters that contain the items; there an item's score is given the cluster
    without it.  They are −1 for items that no cluster contains.
    """
    starts = np.arange(0, len(pool), core.width)
    members = np.full(items.n_items, -1) if members is None else members
    out = np.empty((items.n_items, len(starts)))

    def score(begin: int) -> None:
        at = slice(begin, min(begin + step, items.n_items))
        some, room = items.rows(at.start, at.stop), np.empty(core.width)
        _log_predictive(core, some, pool, starts, members[at], room, out[at].ravel())

    step = max(1, _NUMBERS_AT_ONCE // max(1, len(pool)))
    begins = range(0, items.n_items, step)
    threads = in_use()
    for _ in map(score, begins) if threads == 1 else each(score, begins, threads):
        pass
    return out


@inner
def _log_predictive(core, items, pool, starts, members, scratch, out):  # type: ignore[no-untyped-def]
    for i in range(members.shape[0]):
        scores = view(out, i * starts.shape[0], starts.shape[0])
        score_item(core, items, i, pool, starts, scores, scratch)
        if members[i] >= 0:
            row = view(pool, starts[members[i]], core.width)
            scores[members[i]] = score_member(core, items, i, row, scratch)


def rows_of_labels(
    core: Core, items: Items, labels: Labels, n_clusters: int, chosen: Ints | None = None
) -> tuple[Vector, Ints]:
    """Return (flat pool, sizes): a row of statistics per cluster; labels below 0 are left out.

    `labels` are those of all items, or of the `chosen` ones.
    """
    pool, sizes = np.empty(n_clusters * core.width), np.zeros(n_clusters, np.int64)
    chosen = np.arange(len(labels)) if chosen is None else chosen
    fill_rows(core, items, chosen, labels, pool, sizes)
    return pool, sizes


def rows_of_parts(
    core: Core, items: Items, labels: Labels, n_clusters: int, threads: Executor | None = None
) -> tuple[Vector, Ints]:
    """Return the rows of `rows_of_labels`, computed for parts of the items and merged in order.

    The parts do not depend on the number of threads, so neither does rounding.
    """

    def of_part(begin: int) -> tuple[Vector, Ints]:
        end = min(begin + _PART, len(labels))
        return rows_of_labels(core, items.rows(begin, end), labels[begin:end], n_clusters)

    begins = range(0, max(1, len(labels)), _PART)
    found = iter((map if threads is None else threads.map)(of_part, begins))
    pool, sizes = next(found)
    for others, more in found:
        for k in np.flatnonzero(more):
            row = slice(k * core.width, (k + 1) * core.width)
            merge_rows(core, pool[row], others[row], 1.0)
        sizes += more
    return pool, sizes


@inner
def fill_rows(core, items, chosen, labels, pool, sizes):  # type: ignore[no-untyped-def]
    width = core.width
    for k in range(sizes.shape[0]):
        clear_row(core, view(pool, k * width, width))
    for p in range(chosen.shape[0]):
        k = labels[p]
        if k >= 0:
            sizes[k] += items.sizes[chosen[p]]
            add_item(core, items, chosen[p], view(pool, k * width, width), 1.0)


def log_marginals(core: Core, pool: Vector, n_rows: int) -> Vector:
    """Return log H of each of the first rows of a pool."""
    out = np.empty(n_rows)
    _log_marginals(core, pool, out)
    return out


@inner
def _log_marginals(core, pool, out):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        out[k] = log_marginal(core, view(pool, k * core.width, core.width))


def merged_marginals(core: Core, pool: Vector, rows: Ints, others: Ints, together: bool) -> Matrix:
    """Return log H of some rows merged with each of `others`, or `together` with all up to it."""
    out = np.empty((len(rows), len(others)))
    _merged_marginals(core, pool, rows, others, together, np.empty(core.width), out)
    return out


@inner
def _merged_marginals(core, pool, rows, others, together, scratch, out):  # type: ignore[no-untyped-def]
    width = core.width
    for i in range(rows.shape[0]):
        for j in range(others.shape[0]):
            if j == 0 or not together:
                copy_row(view(pool, rows[i] * width, width), scratch)
            merge_rows(core, scratch, view(pool, others[j] * width, width), 1.0)
            out[i, j] = log_marginal(core, scratch)
