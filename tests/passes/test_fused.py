"""Triton kernels against the generic passes, on a GPU or interpreted."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from dpsearch.families.linear import LinearForm
from dpsearch.passes.chunk import Candidates
from dpsearch.passes.device import open_rows

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton is not installed")

N, K = 2500, 5


def form(width: int) -> LinearForm:
    none: Any = None
    return LinearForm(width, lambda X: X, none, none, none)


@pytest.mark.parametrize("width", [3, 21, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fused_passes(width: int, dtype: Any, monkeypatch: Any) -> None:
    from dpsearch.passes import fused

    monkeypatch.setattr(fused, "ROWS_OF_SUM", 1024)

    rng = np.random.default_rng(width)
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    X = torch.asarray(rng.normal(size=(N, width)).astype(dtype), device=device)
    labels = rng.choice(K, size=N, p=[0.6, 0.3, 0.07, 0.02, 0.01])
    plain, quick = open_rows(form(width), X), open_rows(form(width), X)
    plain.fused, quick.fused = None, fused
    weights, constants = rng.normal(size=(80, width)), rng.normal(size=80)
    constants[[3, 79]] = -np.inf
    groups = np.array([2, -1, 0, 1, 2])
    passes = [
        Candidates(np.zeros(K, np.int64), np.array([0, 80]), weights, constants),
        Candidates(groups, np.array([0, 2, 3, 8]), weights[:8], constants[:8]),
        Candidates(
            np.where(groups == 2, 2, -1), np.array([0, 2, 3, 8]), weights[72:], constants[72:]
        ),
    ]
    within = {"rtol": 1e-11, "atol": 1e-9} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-2}
    for rows in (plain, quick):
        rows.place(labels)
    for one, other in zip(plain.totals(K), quick.totals(K), strict=True):
        np.testing.assert_allclose(one, other, **within)
    for candidates in passes:
        for one, other in zip(plain.assign(candidates), quick.assign(candidates), strict=True):
            np.testing.assert_allclose(one, other, **within)
    assert (plain._choice != quick._choice).sum() <= (0 if dtype == np.float64 else 2)
