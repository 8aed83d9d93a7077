"""The order in which search places the items."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._types import Ints, Rng
from dpsearch.errors import ParameterError
from dpsearch.problem import Problem

ORDERS = ("ascending", "descending", "random", "given")


def placing_order(problem: Problem, order: Any, rng: Rng) -> Ints:
    """Return a permutation of the items.

    ``ascending`` sorts by increasing marginal probability H(x_n), the paper's default, so that the
    items that fit the prior least are placed first.  The others are ``descending``, ``random``,
    ``given`` (as in the data), or a permutation of the row numbers.
    """
    n = problem.n_items
    if isinstance(order, str):
        if order == "ascending":
            return np.argsort(problem.alone, kind="stable")
        if order == "descending":
            return np.argsort(-problem.alone, kind="stable")
        if order == "random":
            return rng.permutation(n)
        if order == "given":
            return np.arange(n)
        raise ParameterError(f"unknown order {order!r}: known are {', '.join(ORDERS)}")
    return as_permutation(order, n)


def as_permutation(order: Any, n: int) -> Ints:
    """Return the user's `order` as a checked permutation of n rows."""
    try:
        given = np.asarray(order, dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise ParameterError.must("order", "be a name or a permutation", order) from error
    if given.shape != (n,) or not np.array_equal(np.sort(given), np.arange(n)):
        raise ParameterError.of("order", f"must be a permutation of 0 … {n - 1}")
    return given
