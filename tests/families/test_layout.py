"""Layouts: names for the entries of rows and parameters, at no cost to kernels."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from dpsearch.families import layout
from dpsearch.families.layout import entry, length, table, view, view_at


class _Row(NamedTuple):
    n: layout.Count
    constant: layout.Number
    sums: layout.Counts
    factor: layout.Triangle
    logs: layout.Numbers


class _Params(NamedTuple):
    scale: layout.Number
    shape: layout.Numbers
    steps: layout.Numbers


ROW = layout.row(_Row)
PARAMS = layout.params(_Params)


def test_a_row_is_read_as_it_was_made():
    fields = {"n": 2.0, "constant": -1.0, "sums": [1, 2, 3], "factor": range(6), "logs": [7, 8, 9]}
    row = layout.make(ROW, 3, **fields)
    np.testing.assert_array_equal(row, [2, -1, 1, 2, 3, 0, 1, 2, 3, 4, 5, 7, 8, 9])
    assert layout.width(ROW, 3) == len(row)
    read = layout.read(ROW, row, 3)
    for name, value in fields.items():
        np.testing.assert_array_equal(getattr(read, name), value)
    np.testing.assert_array_equal(layout.counts(ROW, 3), [0, 2, 3, 4])
    read.sums[1] = 5.0  # a view
    assert row[3] == 5.0
    np.testing.assert_array_equal(layout.make(ROW, 2, sums=[4, 5])[:4], [0, 0, 4, 5])


def test_a_row_may_end_after_its_first_vectors():
    assert layout.width(ROW, 3, 1) == 5
    row = layout.make(ROW, 3, 1, n=1.0, sums=2.0)
    np.testing.assert_array_equal(row, [1, 0, 2, 2, 2])
    assert len(layout.read(ROW, row, 3).logs) == 0
    np.testing.assert_array_equal(layout.counts(ROW, 3, 1), [0, 2, 3, 4])


@numba.njit
def _by_name(params, row, pool, start):
    shape, steps = table(params, PARAMS.shape), table(params, PARAMS.steps)
    n = shape.shape[0]
    out = params[PARAMS.scale] * row[ROW.constant] + length(params, PARAMS.steps) * steps[0]
    logs, other = view(row, ROW.logs, n), view_at(pool, start, ROW.factor, n)
    for d in range(n):
        out += shape[d] * logs[d] * other[d]
    return out + entry(params, PARAMS.steps, row[ROW.n])


def test_kernels_read_by_name():
    params = layout.make_params(PARAMS, scale=3.0, shape=[1.0, 2.0], steps=[5.0, 6.0, 7.0])
    row = layout.make(ROW, 2, n=1.0, constant=4.0, logs=[2.0, 3.0])
    pool = np.concatenate([row, layout.make(ROW, 2, factor=[1.0, 10.0, 100.0])])
    want = 3.0 * 4.0 + 3 * 5.0 + 1.0 * 2.0 * 1.0 + 2.0 * 3.0 * 10.0 + 6.0
    assert _by_name(params, row, pool, len(row)) == want
    assert _by_name.py_func(params, row, pool, len(row)) == want


def test_names_cost_no_instruction():
    def named(row, size):
        logs = view(row, ROW.logs, size)
        return row[ROW.constant] + logs[1]

    def numbered(row, size):
        begin = 2 + size + size * (size + 1) // 2
        logs = row[begin : begin + size]
        return row[1] + logs[1]

    signature = numba.float64(numba.float64[::1], numba.int64)
    counts = []
    for function in (named, numbered):
        compiled = numba.njit(signature, _nrt=False)(function)
        (text,) = compiled.inspect_llvm().values()
        counts.append(sum(" = " in line for line in text.splitlines()))
    assert counts[0] <= counts[1]
