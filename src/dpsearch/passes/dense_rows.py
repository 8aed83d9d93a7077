"""Dense rows on a device.

Rows are taken in blocks, each with candidates of its own, so that a pass over many small groups
scores only what it must.  A block's scores and its totals are two products,

    scores = F Wᵀ,   totals = Zᵀ F,   Z one-hot in the best score of each row,

in the precision of the data; totals of blocks are added up in float64.  F is the features and a 1,
whose weight is the candidate's constant and whose total is the number of rows; zeros fill it up to
a width that a GPU reads at full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dpsearch._arrays import is_torch, to_host
from dpsearch._types import Ints, Matrix
from dpsearch.families.linear import LinearForm, namespace
from dpsearch.passes import arrays
from dpsearch.passes.chunk import Candidates, Totals
from dpsearch.passes.device_rows import Blocks, DeviceRows

_NEVER = -1e30  # the constant of a candidate that no row may go to: −∞ has no product
_FULL = 8  # numbers of which the width is a multiple
_KEPT = 2 << 30  # bytes of features that are kept where it is not known what is free
_MOST_FUSED = 16  # candidates of a group that a kernel takes one after the other
_NARROW = 512  # features up to which the kernels for all rows are known to be faster
_MOST_RECORDED = 1 << 26  # features of rows beyond which it is not launching that takes the time
_WHOLE_BLOCK = 1024  # rows whose totals are added in the precision of the data


class Table(NamedTuple):
    """The candidates of G groups, side by side, on the device."""

    weights: Any  # [G, C, width], constants included; _NEVER where a group has fewer candidates
    numbers: Any  # [G, C]: the candidate; −1 where a row has nowhere to go


class PlannedBlocks(NamedTuple):
    """Blocks that are worked on at a time; all but their numbers on the device."""

    at: Ints
    owners: Any  # their groups
    begins: Any
    lasts: Any


class Plan(NamedTuple):
    """How a pass over G groups goes that have up to C candidates."""

    groups: Ints  # of each cluster, as the pass was asked for …
    starts: Ints  # … and where groups' candidates begin
    blocks: Blocks
    chunks: list[PlannedBlocks]
    slots: Any  # [G, C]: the candidate; the number of all where a group has fewer
    numbers: Any  # the same as int32
    places: Any  # of each candidate in [G · C]; G · C if its group has no rows


class DenseRows(DeviceRows):
    """Rows of an array; their features are kept if they fit, or else computed in every pass."""

    def __init__(self, form: LinearForm, X: Any, first: int = 0) -> None:
        self.form, self.X, self.dtype = form, X, X.dtype
        self.width = -(-(form.n_totals + 1) // _FULL) * _FULL
        super().__init__(X, X.shape[0], first)
        self._features = self._with_room(self._kept)
        self.fused: Any = _kernels() if is_torch(X) and X.is_cuda else None
        few = self.n_rows * self.width <= _MOST_RECORDED
        self.records = self.fused is not None and form.anywhere and few
        self._recorded: Any = None  # the plan of a sweep, and its recording

    def _kept(self) -> Any:
        xp, shape = self.xp, (self.n_rows, self.width)
        free = arrays.free_bytes(self.X)
        most = _KEPT if free is None else free // 2
        if shape[0] * shape[1] * xp.finfo(self.dtype).bits // 8 > most:
            return None
        out = xp.zeros(shape, dtype=self.dtype, device=self.device)
        for a, b in self._spans(2 * self.width):
            out[a:b, : self.form.n_totals] = self.form.features(self.X[a:b, :])
        out[:, self.form.n_totals] = 1.0
        return out

    def _load(self, which: Any) -> Any:
        """Return features of rows: a slice of them, or by their numbers."""
        kept = self._features is not None
        source = self._features if kept else self.X
        if isinstance(which, slice):
            rows = source[which, :]
        else:
            rows = self.xp.take(source, which, axis=0)
        return rows if kept else self._filled(self.form.features(rows))

    def _filled(self, features: Any) -> Any:
        xp, rest = self.xp, np.zeros(self.width - self.form.n_totals)
        rest[0] = 1.0
        shape = (features.shape[0], len(rest))
        more = xp.broadcast_to(self._array(rest, self.dtype)[None, :], shape)
        return xp.concat([features, more], axis=1)

    def _features_of(self, rows: Ints) -> Matrix:
        found = to_host(self._load(self._array(rows)))
        return np.asarray(found[:, : self.form.n_totals], dtype=np.float64)

    def _scores_by_chunks(self, columns: Any, n_columns: int) -> Iterator[tuple[slice, Any]]:
        for a, b in self._spans(4 * n_columns + 2 * self.width):
            at = slice(a, b)
            yield at, self._load(at)[:, : self.form.n_totals] @ columns

    def _shared(self, at: slice, shares: Any) -> Matrix:
        features = self._load(at)[:, : self.form.n_totals]
        found = self.xp.matrix_transpose(shares) @ features
        return np.asarray(to_host(found), dtype=np.float64)

    def repeated(self, sweep: Callable[[Totals], Totals], totals: Totals, count: int) -> Totals:
        """Return what sweeps make of totals; sweeps of the same groups are recorded on a GPU."""
        if not self._is_recorded():
            totals, count = sweep(totals), count - 1  # it finds out how its passes go
            self._record(sweep, totals)
        if self._is_recorded():
            played: Totals = self._recorded[1].play(totals, count)
            return played
        return super().repeated(sweep, totals, count)

    def _is_recorded(self) -> bool:
        return self._recorded is not None and self._recorded[0] is self._plan

    def _record(self, sweep: Callable[[Totals], Totals], totals: Totals) -> None:
        if not self.records or self._plan is None:
            return
        before = None if self._recorded is None else self._recorded[1]
        try:
            self._recorded = self._plan, self.fused.Recorded(sweep, totals, before)
        except RuntimeError:  # a formula of the family waits for the GPU
            self.records, self._recorded = False, None

    # -- passes -------------------------------------------------------------------------------

    def _totals(self, n_clusters: int) -> Totals:
        if self._fuses_whole():
            found = self.fused.totals(self._features, self._labels, n_clusters)
            return self._read(found)
        xp, ids = self.xp, self._range(n_clusters)
        out = xp.zeros((n_clusters, self.width), dtype=xp.float64, device=self.device)
        whole = self._whole()
        for at in self._chunks(whole, np.arange(len(whole.begins)), n_clusters):
            rows, size = self._rows_of(whole, PlannedBlocks(at, None, None, None))
            features = xp.reshape(self._load(rows), (len(at), size, -1))
            labels = xp.reshape(self._labels[rows], (len(at), size, 1))
            out += xp.sum(_sums(xp, features, labels == ids), axis=0, dtype=xp.float64)
        return self._read(out)

    def _assign(self, candidates: Candidates) -> Totals:
        xp, (groups, starts, weights, constants) = self.xp, candidates
        plan = self._planned(groups, starts)
        if plan is None:
            return Totals(*map(namespace(weights).zeros_like, (constants, weights)))
        weights, constants = self._array(weights, xp.float64), self._array(constants, xp.float64)
        found = self._pass(plan, self._table(plan, weights, constants))
        flat = xp.reshape(found, (-1, self.width))
        nothing = xp.zeros((1, self.width), dtype=xp.float64, device=self.device)
        flat = xp.take(xp.concat([flat, nothing]), plan.places, axis=0)
        flat = xp.where(xp.isfinite(constants)[:, None], flat, nothing)
        return self._read(flat, candidates)

    def _planned(self, groups: Ints, starts: Ints) -> Plan | None:
        """Return how a pass over groups goes, which is the same until labels change."""
        known: Plan | None = self._plan
        if known is not None and known.groups is groups and known.starts is starts:
            return known
        everything = len(starts) == 2 and bool((groups == 0).all())
        blocks = self._whole() if everything else self._by_cluster(len(groups))
        picked = np.flatnonzero(groups[blocks.clusters] >= 0)
        of_picked = groups[blocks.clusters[picked]]
        there = np.zeros(len(starts) - 1, bool)
        there[of_picked] = True
        used, of_picked = np.flatnonzero(there), (np.cumsum(there) - 1)[of_picked]
        if not len(used):
            return None
        counts = np.diff(starts)[used]
        most = int(counts.max())
        if self.fused is not None and not everything:
            most = 1 << (most - 1).bit_length()  # few sizes, for which kernels are compiled
        slots = starts[used][:, None] + np.arange(most)
        inside = np.arange(most) < counts[:, None]
        places = np.full(starts[-1], len(used) * most)  # where there is nothing
        places[slots[inside]] = np.flatnonzero(inside)
        chunks, done = [], 0
        for at in self._chunks(blocks, picked, most, len(used)):
            owners = self._array(of_picked[done : done + len(at)], self.xp.int32)
            bounds = (self._array(x[at], self.xp.int64) for x in (blocks.begins, blocks.lasts))
            chunks.append(PlannedBlocks(at, owners, *bounds))
            done += len(at)
        slots = self._array(np.where(inside, slots, starts[-1]))
        numbers = self.xp.astype(slots, self.xp.int32)
        plan = Plan(groups, starts, blocks, chunks, slots, numbers, self._array(places))
        self._plan = plan
        return plan

    def _table(self, plan: Plan, weights: Any, constants: Any) -> Table:
        """Return the candidates of groups side by side."""
        xp, shape, n = self.xp, plan.slots.shape, self.form.n_totals
        rows = xp.zeros((weights.shape[0] + 1, self.width), dtype=self.dtype, device=self.device)
        rows[:-1, :n] = xp.astype(weights, self.dtype)
        never = xp.full((1,), _NEVER, dtype=constants.dtype, device=self.device)
        rows[:, n] = xp.astype(xp.clip(xp.concat([constants, never]), _NEVER, None), self.dtype)
        flat = xp.reshape(plan.slots, (-1,))
        table = xp.reshape(xp.take(rows, flat, axis=0), (*shape, self.width))
        somewhere = xp.any(table[:, :, n] > 0.5 * _NEVER, axis=1, keepdims=True)
        return Table(table, xp.where(somewhere, plan.numbers, xp.full_like(plan.numbers, -1)))

    def _pass(self, plan: Plan, table: Table) -> Any:
        """Choose for the rows of blocks; return the totals of groups' candidates [G, C, width]."""
        blocks = plan.blocks
        if blocks.order is None and self._fuses_whole():
            self.fused.best(self._features, table, self._choice)
            n_candidates = table.weights.shape[1]
            return self.fused.totals(self._features, self._choice, n_candidates)[None, ...]
        xp, shape = self.xp, table.weights.shape
        n_groups, n_candidates, _ = shape
        out = xp.zeros(shape, dtype=xp.float64, device=self.device)
        ids = self._range(n_groups)
        for some in plan.chunks:
            if self._fuses_groups(blocks, n_candidates):
                sums = self.fused.chosen_by_group(
                    self._features, blocks, *some[1:], table, self._choice
                )
            else:
                sums = self._work(blocks, some, table)
            if n_groups == 1:
                out += xp.sum(sums, axis=0, dtype=xp.float64)
                continue
            shares = xp.astype(ids[:, None] == some.owners[None, :], xp.float64)
            sums = xp.reshape(xp.astype(sums, xp.float64), (len(some.at), -1))
            out += xp.reshape(shares @ sums, shape)
        return out

    def _work(self, blocks: Blocks, some: PlannedBlocks, table: Table) -> Any:
        """Choose for the rows of some blocks; return the blocks' totals [blocks, C, width]."""
        xp, (n_groups, n_candidates, _) = self.xp, table.weights.shape
        at, owners, begins, lasts = some
        rows, size = self._rows_of(blocks, some)
        features = xp.reshape(self._load(rows), (len(at), size, -1))
        if n_groups == 1:
            flat = xp.reshape(features, (len(at) * size, -1))
            scores = flat @ xp.matrix_transpose(table.weights[0, :, :])
            scores = xp.reshape(scores, (len(at), size, n_candidates))
        else:
            scores = features @ xp.matrix_transpose(xp.take(table.weights, owners, axis=0))
        best = xp.astype(xp.argmax(scores, axis=2), xp.int32)
        numbers = xp.reshape(owners[:, None] * n_candidates + best, (-1,))
        chosen = xp.take(xp.reshape(table.numbers, (-1,)), numbers, axis=0)
        if isinstance(rows, slice):
            self._choice[rows] = chosen
        else:
            self._choice = arrays.put(self._choice, rows, chosen)
        where = best[:, :, None] == self._range(n_candidates)
        if blocks.order is not None:
            lengths = lasts - begins + 1
            where &= (self._range(size, xp.int64)[None, :] < lengths[:, None])[:, :, None]
        return _sums(xp, features, where)

    def _read(self, found: Any, candidates: Candidates | None = None) -> Totals:
        """Return totals from sums of F: where the candidates' weights are, or here."""
        n = self.form.n_totals
        if candidates is None or isinstance(candidates.weights, np.ndarray):
            found = to_host(found)
            return Totals(found[:, n].round(), np.ascontiguousarray(found[:, :n]))
        return Totals(self.xp.round(found[:, n]), found[:, :n])

    # -- blocks -------------------------------------------------------------------------------

    def _whole(self) -> Blocks:
        """All rows as they come, in blocks that count as those of one cluster."""
        begins = np.arange(0, self.n_rows, _WHOLE_BLOCK)
        lasts = np.minimum(begins + _WHOLE_BLOCK, self.n_rows) - 1
        return Blocks(None, begins, lasts, np.zeros_like(begins), np.empty(0, int), _WHOLE_BLOCK)

    def _fuses_whole(self) -> bool:
        kept = self.fused is not None and self._features is not None
        return kept and self.dtype == self.xp.float32 and self.form.n_totals <= _NARROW

    def _fuses_groups(self, blocks: Blocks, n_candidates: int) -> bool:
        kept = self.fused is not None and self._features is not None
        return kept and blocks.order is not None and n_candidates <= _MOST_FUSED

    def _chunks(
        self, blocks: Blocks, picked: Ints, n_candidates: int, n_groups: int = 1
    ) -> Iterator[Ints]:
        """Yield blocks for which there is room at a time; a short last one of all comes alone."""
        width, size = self.width, blocks.size
        numbers = 3 * n_candidates * width + 2 * n_groups
        if not self._fuses_groups(blocks, n_candidates):
            numbers += size * (width + 2 * n_candidates)
        step = max(self.chunk_numbers // numbers, 1)
        n = len(picked)
        if blocks.order is None and self.n_rows % size:
            n -= 1
        for a in range(0, n, step):
            yield picked[a : min(a + step, n)]
        if n < len(picked):
            yield picked[n:]

    def _rows_of(self, blocks: Blocks, some: PlannedBlocks) -> tuple[Any, int]:
        """Return the rows of blocks, and how many there are in a block.

        A block that has fewer repeats its last row.
        """
        if blocks.order is None:
            begin, end = int(blocks.begins[some.at[0]]), int(blocks.lasts[some.at[-1]]) + 1
            return slice(begin, end), (end - begin) // len(some.at)
        xp = self.xp
        places = some.begins[:, None] + self._range(blocks.size, xp.int64)[None, :]
        places = xp.minimum(places, some.lasts[:, None])
        return xp.take(blocks.order, xp.reshape(places, (-1,)), axis=0), blocks.size


def _sums(xp: Any, features: Any, where: Any) -> Any:
    """Return totals of blocks [blocks, C, width] by where their rows are [blocks, rows, C]."""
    return xp.matrix_transpose(xp.astype(where, features.dtype)) @ features


def _kernels() -> Any:
    """Return the kernels, or None where there is no Triton to compile them."""
    try:
        from dpsearch.passes import fused
    except ImportError:
        return None
    return fused
