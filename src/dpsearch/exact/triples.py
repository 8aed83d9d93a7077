"""Triples of points, of which at most one cluster of a partition can have two.

If the value of the LP over all sets is above the best partition, its solution mixes sets that
overlap, such as three sets with weight ½ that each have two of the same three points.  For every
triple T, all partitions satisfy

    Σ_{S: |S ∩ T| ≥ 2} z_S ≤ 1,

which excludes such mixtures (subset-row cuts: Jepsen, Petersen, Spoorendonk and Pisinger 2008).
The dual variable of this constraint is a toll ≥ 0, which every set with two or three of the points
pays in addition to the prices of its points; the bound is then the sum of prices and tolls.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints, Vector

_USED = 1e-6  # least weight of a set in a mixture
_BROKEN = 0.02  # a triple is taken if its sum exceeds 1 by this
_AT_A_TIME = 20
_OF_A_POINT = 3  # triples with the same point that are taken at a time


def membership(columns: list[Ints], n: int) -> Any:
    """Return which points are in which columns: booleans [point, column]."""
    out = np.zeros((n, len(columns)), bool)
    for s, members in enumerate(columns):
        out[members, s] = True
    return out


def with_two(triples: Ints, columns: list[Ints], n: int) -> Any:
    """Return which columns have two or three points of each triple, as a sparse matrix."""
    inside = membership(columns, n)[triples].sum(axis=1)
    return sp.csr_matrix((inside >= 2).astype(np.float64))


def broken_triples(columns: list[Ints], worth: Vector, triples: Ints, n: int) -> Ints:
    """Return triples that the LP's solution over these sets breaks, given the known triples."""
    from scipy.optimize import linprog

    if not columns:
        return triples[:0]
    member = membership(columns, n).astype(np.float64)
    known = {"A_ub": with_two(triples, columns, n), "b_ub": np.ones(len(triples))}
    solved = linprog(
        -worth, A_eq=sp.csr_matrix(member), b_eq=np.ones(n), **(known if len(triples) else {})
    )
    if solved.x is None:
        return triples[:0]
    used = np.flatnonzero(solved.x > _USED)
    share = solved.x[used]
    # Points that are in the same sets of the mixture are equivalent.
    kinds, first = np.unique(member[:, used], axis=0, return_index=True)
    found = []
    for a, b in itertools.combinations(range(len(kinds)), 2):
        both = kinds[a] * kinds[b]
        one = kinds[a] + kinds[b] - 2.0 * both
        mass = both @ share + kinds[b + 1 :] @ (one * share)
        for c in np.flatnonzero(mass > 1.0 + _BROKEN).tolist():
            found.append((float(mass[c]), sorted(first[[a, b, b + 1 + c]].tolist())))
    out: list[list[int]] = []
    times = np.zeros(n, np.int64)
    for _, three in sorted(found, reverse=True):
        if (times[three] < _OF_A_POINT).all() and len(out) < _AT_A_TIME:
            out.append(three)
            times[three] += 1
    return np.array(out, np.int64).reshape(-1, 3)
