"""The master problem: the best partition of the points into known sets.

    max Σ_S log w(S) z_S     with  Σ_{S∋n} z_S = 1 for every point n,

over z_S ∈ {0, 1}, solved by HiGHS.  The dual variables of its LP, over z_S ≥ 0, are prices
(`central`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact.pricing import Pricer
from dpsearch.exact.slopes import intercept
from dpsearch.exact.triples import membership, with_two

_SOLVER_ERROR = 2e-7  # nats: feasibility tolerances of the integer programme


def distinct_rows(columns: list[Ints], n: int) -> tuple[Any, Ints]:
    """Return the sparse membership matrix [groups, columns], and each point's group.

    Points that are in the same sets form one group.
    """
    member = membership(columns, n)
    packed = np.packbits(member, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return sp.csc_matrix(member[first].astype(np.float64)), group.reshape(-1)


def best_partition(
    pricer: Pricer, y: Vector, columns: list[Ints], low: int, high: int, seconds: float
) -> tuple[Labels | None, float]:
    """Return the best partition into low … high of these sets, and a bound on the log joint of all.

    The objective has each set's weight minus its price, as the price of all partitions is the same:
    these values are not much larger than the solver's tolerances, even if log joints are.

    The constraint that at most one set has two points of a triple is included for the pricer's
    triples.

    The solver's bound may be too low by `error_of`.  It is infinite if time ran out before one was
    known.  If there is no partition, return (None, −∞).
    """
    if not columns:
        return None, -math.inf
    from scipy.optimize import Bounds, LinearConstraint, milp

    problem, n = pricer.problem, pricer.n
    y = y[:n]  # tolls are not part of the objective
    above = np.array([pricer.log_weight(members) - y[members].sum() for members in columns])
    counts = np.arange(low, high + 1)
    lift = intercept(problem.log_v, pricer.lam, low, high)
    by_count = problem.log_v[counts] - pricer.lam * counts - lift
    n_counts = len(counts)
    matrix, _ = distinct_rows(columns, n)
    of_triples = with_two(pricer.triples, columns, n)
    choose = sp.bmat(
        [
            [matrix, None],
            [np.ones((1, len(columns))), -counts[None, :].astype(np.float64)],
            [None, np.ones((1, n_counts))],
            [of_triples, None] if len(pricer.triples) else [None, np.zeros((0, n_counts))],
        ],
        format="csc",
    )
    right = np.concatenate([np.ones(matrix.shape[0]), [0.0, 1.0], np.ones(len(pricer.triples))])
    left = np.concatenate([right[: matrix.shape[0] + 2], np.zeros(len(pricer.triples))])
    result = milp(
        -np.concatenate([above, by_count]),
        integrality=np.ones(len(columns) + n_counts),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(choose, left, right),
        options={"time_limit": max(seconds, 0.01), "mip_rel_gap": 0.0},
    )
    if result.status == 2:
        return None, -math.inf
    bound = math.inf if result.mip_dual_bound is None else -float(result.mip_dual_bound)
    bound = bound + lift + math.fsum(y) + problem.log_base if math.isfinite(bound) else math.inf
    if result.x is None:
        return None, bound
    return labels_of([columns[s] for s in np.flatnonzero(result.x[: len(columns)] > 0.5)], n), bound


def error_of(pricer: Pricer, y: Vector) -> float:
    """Return by how much tolerances and rounding can lower the bound of `best_partition`."""
    return _SOLVER_ERROR + pricer.n * pricer.rounding(y)


def labels_of(columns: list[Ints], n: int) -> Labels | None:
    """Return the labels of a partition given as sets; None if they are not a partition."""
    labels = np.full(n, -1, np.int64)
    for k, members in enumerate(columns):
        labels[members] = k
    complete = sum(len(members) for members in columns) == n and bool((labels >= 0).all())
    return labels if complete else None
