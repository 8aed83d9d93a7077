"""Passes over dense rows on a GPU in kernels of Triton, which never write the scores to memory.

`chosen_by_group`  rows in blocks of one cluster: scores, maximum and totals of a block, in one go
`best`             all rows among many candidates: scores by tiles, and their running maximum
`totals`           sums of features by label: a product with one-hot labels that exist by tiles only

Scores of float32 rows are three products of tf32 parts, whose error is that of float32.  Sums of a
block, or of a few thousand rows, are in the precision of the data, as in `dense_rows`.
"""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from dpsearch.passes.recorded import Recorded as Recorded

ROWS_OF_SUM = 8192  # rows that one program of `totals` adds up
_TILE = 32  # 4-byte numbers of a tile of features for each thread


@triton.jit
def _chosen_by_group(
    features, order, begins, lasts, owners, weights, numbers, choice, out,
    P: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, BP: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0).to(tl.int64)
    begin, last = tl.load(begins + block), tl.load(lasts + block)
    group = tl.load(owners + block).to(tl.int64)
    slots = tl.arange(0, SIZE)
    inside = begin + slots <= last
    rows = tl.load(order + begin + slots, mask=inside, other=0).to(tl.int64)
    columns = tl.arange(0, CP)
    scores = tl.zeros((SIZE, CP), dtype=features.dtype.element_ty)
    for p in range(0, P, BP):
        at = p + tl.arange(0, BP)
        where = inside[:, None] & (at < P)[None, :]
        part = tl.load(features + rows[:, None] * P + at[None, :], mask=where, other=0.0)
        for c in range(C):
            weight = tl.load(weights + (group * C + c) * P + at, mask=at < P, other=0.0)
            score = tl.sum(part * weight[None, :], axis=1)
            scores += tl.where(columns[None, :] == c, score[:, None], 0.0)
    best = tl.argmax(tl.where(columns[None, :] < C, scores, float("-inf")), axis=1)
    chosen = tl.load(numbers + group * C + best)
    tl.store(choice + rows, chosen, mask=inside)
    target = out + block * C * P
    for p in range(0, P, BP):
        at = p + tl.arange(0, BP)
        where = inside[:, None] & (at < P)[None, :]
        part = tl.load(features + rows[:, None] * P + at[None, :], mask=where, other=0.0)
        for c in range(C):
            total = tl.sum(tl.where((best == c)[:, None], part, 0.0), axis=0)
            tl.store(target + c * P + at, total, mask=at < P)


@triton.jit(do_not_specialize=["n_rows", "n_candidates"])
def _best(
    features, weights, numbers, choice, n_rows, n_candidates, P: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    best = tl.full((BM,), float("-inf"), tl.float32)
    place = tl.zeros((BM,), tl.int32)
    first = tl.program_id(0) * 0  # a number of the device, as the loop changes it
    while first < n_candidates:
        columns = first + tl.arange(0, BN)
        scores = tl.zeros((BM, BN), tl.float32)
        for p in range(0, P, BK):
            at = p + tl.arange(0, BK)
            here = (rows < n_rows)[:, None] & (at < P)[None, :]
            part = tl.load(features + rows[:, None] * P + at[None, :], mask=here, other=0.0)
            there = (at < P)[:, None] & (columns < n_candidates)[None, :]
            weight = tl.load(weights + columns[None, :] * P + at[:, None], mask=there, other=0.0)
            scores = tl.dot(part, weight, scores, input_precision="tf32x3")
        scores = tl.where((columns < n_candidates)[None, :], scores, float("-inf"))
        highest = tl.max(scores, axis=1)
        where = first + tl.argmax(scores, axis=1)
        place = tl.where(highest > best, where, place)
        best = tl.maximum(best, highest)
        first += BN
    tl.store(choice + rows, tl.load(numbers + place), mask=rows < n_rows)


@triton.jit(do_not_specialize=["n_rows", "n_labels"])
def _totals(
    features, labels, out, n_rows, n_labels, P: tl.constexpr, ROWS: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    begin = tl.program_id(0).to(tl.int64) * ROWS
    ids = tl.program_id(1) * BC + tl.arange(0, BC)
    at = tl.program_id(2) * BP + tl.arange(0, BP)
    sums = tl.zeros((BC, BP), tl.float32)
    for step in range(0, ROWS, BM):
        rows = begin + step + tl.arange(0, BM)
        label = tl.load(labels + rows, mask=rows < n_rows, other=-1)
        ones = tl.where(label[None, :] == ids[:, None], 1.0, 0.0)
        here = (rows < n_rows)[:, None] & (at < P)[None, :]
        part = tl.load(features + rows[:, None] * P + at[None, :], mask=here, other=0.0)
        sums = tl.dot(ones, part, sums, input_precision="tf32x3")
    target = out + (tl.program_id(0).to(tl.int64) * n_labels + ids) * P
    inside = (ids < n_labels)[:, None] & (at < P)[None, :]
    tl.store(target[:, None] + at[None, :], sums, mask=inside)


def chosen_by_group(
    features: Any, blocks: Any, owners: Any, begins: Any, lasts: Any, table: Any, choice: Any
) -> Any:
    """Set the choice of the rows of blocks; return the totals of these [blocks, C, width]."""
    _, n_candidates, width = table.weights.shape
    shape = (len(begins), n_candidates, width)
    out = torch.empty(shape, dtype=features.dtype, device=features.device)
    warps = 8 if blocks.size > 128 else 4
    tile = 32 * warps * _TILE * 4 // features.element_size() // blocks.size
    with torch.cuda.device_of(features):
        _chosen_by_group[(len(begins),)](
            features, blocks.order, begins, lasts, owners, table.weights, table.numbers,
            choice, out, P=width, C=n_candidates,
            SIZE=blocks.size, BP=min(triton.next_power_of_2(width), tile),
            CP=max(triton.next_power_of_2(n_candidates), 2), num_warps=warps, num_stages=1,
        )  # fmt: skip
    return out


def best(features: Any, table: Any, choice: Any) -> None:
    """Set the choice of rows (float32) among the candidates of one group."""
    _, n_candidates, width = table.weights.shape
    rows = 128
    with torch.cuda.device_of(features):
        _best[(triton.cdiv(len(features), rows),)](
            features, table.weights, table.numbers, choice, len(features), n_candidates, P=width,
            BM=rows, BN=64, BK=32 if width > 16 else 16, num_warps=4,
        )  # fmt: skip


def totals(features: Any, labels: Any, n_labels: int) -> Any:
    """Return totals of rows (float32) by label [n_labels, width], in float64."""
    n_rows, width = features.shape
    n_sums = triton.cdiv(n_rows, ROWS_OF_SUM)
    shape = (n_sums, n_labels, width)
    out = torch.empty(shape, dtype=features.dtype, device=features.device)
    columns, ids = min(max(triton.next_power_of_2(width), 16), 64), 64
    with torch.cuda.device_of(features):
        _totals[(n_sums, triton.cdiv(n_labels, ids), triton.cdiv(width, columns))](
            features, labels, out, n_rows, n_labels, P=width, ROWS=ROWS_OF_SUM, BM=64, BC=ids,
            BP=columns, num_warps=4,
        )  # fmt: skip
    return out.sum(dim=0, dtype=torch.float64)
