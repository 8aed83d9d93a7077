"""The score `dual`: prices of the points bound all completions of a prefix clustering.

Let log V(K) = v₀ + λK, and let the prices y pay for every set: y(C) ≥ log w(C) (see
`dpsearch.exact.pricing`).  A partition into sets T_k has the log joint v₀ + Σ_n y_n + Σ_k v(T_k),
where v(T) = log w(T) − y(T) ≤ 0.  A cluster C of a prefix of t items will become some T with
T ∩ {first t items} = C, so

    v₀ + Σ_n y_n + Σ_k max { v(T) : T ∩ {first t items} = C_k }

is never below the best completion: it is the sum of all prices, plus the largest v of any extension
of each open cluster.  All sets with v(T) ≥ −slack are listed beforehand; any other set has
v(T) ≤ −slack.  Written as words of N bits in placing order, the listed sets form a binary tree: a
cluster of the prefix is a node at depth t, and each node knows the largest v of its sets.

This module has the tree; `dpsearch.exact.dual` finds the prices and the sets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._jit import inner
from dpsearch._types import Ints, Vector


class Tree(NamedTuple):
    """The listed sets, by the items that they share with a prefix; the others have v ≤ `rest`."""

    child: Any  # int32 [node, 0 or 1]: without and with the next item; −1 if no set is left
    best: Vector  # [node]: largest v(T)
    rest: float  # bound on v(T) of all sets that are not listed
    ceiling: float  # v₀ + Σ y


def tree_of(columns: list[Ints], worth: Vector, order: Ints, rest: float, ceiling: float) -> Tree:
    """Return the tree of the listed sets; `worth` has the v of each."""
    n = len(order)
    if not columns:
        return Tree(np.full((1, 2), -1, np.int32), np.full(1, rest), rest, ceiling)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    bits = np.zeros((len(columns), n), np.int8)
    for row, members in zip(bits, columns, strict=True):
        row[place[members]] = 1
    sort = np.lexsort(bits.T[::-1])
    bits, worth = bits[sort], worth[sort]
    # Neighbours first differ at `parting`, and so share their nodes down to that depth.
    differ = bits[1:] != bits[:-1]
    parting = np.where(differ.any(axis=1), differ.argmax(axis=1), n)
    child: list[Any] = []
    best: list[Vector] = []
    begin = 0
    node = np.zeros(len(columns), np.int64)
    for depth in range(n + 1):
        first = np.flatnonzero(np.concatenate([[True], parting < depth]))
        best.append(np.maximum.reduceat(worth, first))
        below = np.full((len(first), 2), -1, np.int32)
        if depth < n:
            following = begin + len(first)
            deeper = np.concatenate([[0], np.cumsum(parting < depth + 1)]) + following
            below[node - begin, bits[:, depth]] = deeper
            node, begin = deeper, following
        child.append(below)
    return Tree(np.concatenate(child), np.concatenate(best), rest, ceiling)


@inner
def worth_of(tree, node, bit):  # type: ignore[no-untyped-def]
    """Return the largest v(T) of a node's sets without (bit 0) or with (bit 1) the next item."""
    below = tree.child[node, bit] if node >= 0 else -1
    return tree.best[below] if below >= 0 else tree.rest


@inner
def node_of(tree, inside, level):  # type: ignore[no-untyped-def]
    """Return the node of a cluster at depth `level`; −1 if no listed set extends it.

    inside[p] is 1 where the item at position p belongs to the cluster.
    """
    node = 0
    for position in range(level):
        if node < 0:
            break
        node = tree.child[node, inside[position]]
    return node
