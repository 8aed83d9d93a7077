"""The master problem: the best way to partition the points into sets that are known.

    max Σ_S log w(S) z_S     with  Σ_{S∋n} z_S = 1 for every point n,

over z_S ≥ 0 (its dual variables are prices) or over z_S ∈ {0, 1}.  Both by HiGHS.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints, Labels, Vector


class Relaxed(NamedTuple):
    """The LP over known sets."""

    value: float
    prices: Vector
    use: Vector  # z


def distinct_rows(columns: list[Ints], n: int) -> tuple[Any, Ints]:
    """Return the sparse matrix [groups, columns] of who is in which set, and each point's group.

    Points that are in the same sets make one row.
    """
    member = np.zeros((n, len(columns)), bool)
    for s, members in enumerate(columns):
        member[members, s] = True
    packed = np.packbits(member, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return sp.csc_matrix(member[first].astype(np.float64)), group.reshape(-1)


def relax(columns: list[Ints], weights: Vector, n: int, *, seconds: float) -> Relaxed | None:
    """Solve the LP over these sets, which must hold a partition; None if time is up."""
    from scipy.optimize import linprog  # slow to import, and seldom needed

    matrix, group = distinct_rows(columns, n)
    result = linprog(
        -weights, A_eq=matrix, b_eq=np.ones(matrix.shape[0]), bounds=(0.0, None),
        method="highs", options={"time_limit": max(seconds, 0.01)},
    )  # fmt: skip
    if result.status != 0:
        return None
    prices = -np.asarray(result.eqlin.marginals) / np.bincount(group)
    return Relaxed(-float(result.fun), prices[group], np.asarray(result.x))


def best_partition(
    columns: list[Ints],
    weights: Vector,
    n: int,
    *,
    log_v: Vector,
    low: int,
    high: int,
    seconds: float,
) -> tuple[Labels | None, float]:
    """Return the best partition into low … high of these sets, and an upper bound on all of them.

    `weights` are without λ; log V of the number of sets is added.  No partition: (None, −∞).  The
    bound is infinite if time was up before one was known.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    counts = np.arange(low, high + 1)
    n_counts = len(counts)
    matrix, _ = distinct_rows(columns, n)
    choose = sp.bmat(
        [
            [matrix, None],
            [np.ones((1, len(columns))), -counts[None, :].astype(np.float64)],
            [None, np.ones((1, n_counts))],
        ],
        format="csc",
    )
    right = np.concatenate([np.ones(matrix.shape[0]), [0.0, 1.0]])
    result = milp(
        -np.concatenate([weights, log_v[counts]]),
        integrality=np.ones(len(columns) + n_counts),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(choose, right, right),
        options={"time_limit": max(seconds, 0.01), "mip_rel_gap": 0.0},
    )
    if result.status == 2:
        return None, -math.inf
    bound = math.inf if result.mip_dual_bound is None else -float(result.mip_dual_bound)
    bound = bound if math.isfinite(bound) else math.inf
    if result.x is None:
        return None, bound
    return labels_of([columns[s] for s in np.flatnonzero(result.x[: len(columns)] > 0.5)], n), bound


def labels_of(columns: list[Ints], n: int) -> Labels | None:
    """Return the labels of a partition given as sets; None if it is not one."""
    labels = np.full(n, -1, np.int64)
    for k, members in enumerate(columns):
        labels[members] = k
    complete = sum(len(members) for members in columns) == n and bool((labels >= 0).all())
    return labels if complete else None
