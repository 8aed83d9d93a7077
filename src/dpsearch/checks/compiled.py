"""A family compiled for data, with its functions callable from laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._jit import call_best_dots, call_bound, call_score_dots, kernel
from dpsearch._types import Ints, Rng, Vector
from dpsearch.families.base import Family
from dpsearch.families.capabilities import require
from dpsearch.families.functions import Dots
from dpsearch.items import (
    add_item,
    item_ids,
    item_values,
    log_marginal,
    log_predictive,
    merge_rows,
    score_item,
)
from dpsearch.prefix_search.heuristics import features_of


@kernel
def _score_dots(core, score_dots, pool, starts, dots, square):  # type: ignore[no-untyped-def]
    out = np.empty(starts.shape[0])
    call_score_dots(score_dots, (core.params, pool, starts, dots, square, out))
    return out


@kernel
def _best_dots(core, best_dots, pool, starts, dots, square, offsets, floor):  # type: ignore[no-untyped-def]
    out = np.empty(starts.shape[0])
    call_best_dots(best_dots, (core.params, pool, starts, dots, square, offsets, -1, floor, out))
    return out


@kernel
def _bound(core, bounds, items, i, row, helpers, low, high):  # type: ignore[no-untyped-def]
    return call_bound(
        bounds.bound,
        (core.params, row, helpers, low, high, item_ids(items, i), item_values(items, i)),
    )


class Compiled:
    """A family compiled for data, which makes rows of statistics and scores.

    `fitted` are the data that the model is compiled for, by default X.
    """

    def __init__(self, family: Family, X: Any, fitted: Any = None) -> None:
        self.given = family
        self.X = X
        self.dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        self.model = family.compile(X if fitted is None else fitted)
        self.core = self.model.core
        self.family = self.model.family
        self.n_features = self.model.n_features
        self.items, self.base = self.model.items(X)
        self.n = self.items.n_items
        self.scratch = np.empty(self.core.width)

    def row(self, members: Sequence[int] | Ints = (), weight: int = 1) -> Vector:
        """Return the statistics of a cluster."""
        out = self.model.empty_row()
        for i in members:
            self.add(out, i, weight)
        return out

    def add(self, row: Vector, i: int, weight: int = 1) -> None:
        """Add copies of a point, or remove them if the weight is negative."""
        items = self.items._replace(sizes=np.full(self.n, abs(weight)))
        add_item(self.core, items, i, row, 1.0 if weight > 0 else -1.0)

    def merge(self, row: Vector, other: Vector, sign: float = 1.0) -> None:
        merge_rows(self.core, row, other, sign)

    def settled(self, row: Vector) -> Vector:
        """Return a row after a merge with an empty one, which derives all that a row may defer."""
        out = row.copy()
        self.merge(out, self.row())
        return out

    def log_marginal(self, row: Vector) -> float:
        return float(log_marginal(self.core, row))

    def score(self, row: Vector, i: int) -> float:
        """Return log H(x_i | cluster), without `log_base`."""
        return float(self.score_rows(row, np.zeros(1, np.int64), i)[0])

    def score_rows(self, pool: Vector, starts: Ints, i: int) -> Vector:
        out = np.empty(len(starts))
        score_item(self.core, self.items, i, pool, starts, out, self.scratch)
        return out

    def scores(self, row: Vector, X: Any = None) -> Vector:
        """Return the score of every point, or of every row of X."""
        items = self.items if X is None else self.model.items(X)[0]
        return np.asarray(log_predictive(self.core, items, row)[:, 0])

    def score_dots(self, pool: Vector, starts: Ints, i: int) -> Vector | None:
        """Return the scores from inner products; None without the block capability."""
        dots = self.model.dots()
        if dots is None:
            return None
        given = self._products(dots, pool, starts, i)
        return np.asarray(_score_dots(self.core, dots.score_dots, pool, starts, *given))

    def best_dots(
        self, pool: Vector, starts: Ints, i: int, offsets: Vector, floor: float
    ) -> Vector | None:
        """Return scores plus offsets; −∞ may stand for any below the best or the floor."""
        dots = self.model.dots()
        if dots is None or dots.best_dots == 0:
            return None
        given = *self._products(dots, pool, starts, i), offsets, floor
        return np.asarray(_best_dots(self.core, dots.best_dots, pool, starts, *given))

    def _products(self, dots: Dots, pool: Vector, starts: Ints, i: int) -> tuple[Vector, float]:
        x = item_values(self.items, i)
        products = [x @ pool[start + dots.offset :][: dots.n_features] for start in starts]
        return np.array(products), float(x @ x)

    def features(self, i: int) -> Vector:
        bounds = self.model.bounds("this check")
        return np.asarray(features_of(self.core, bounds, self.items, np.array([i]))[0])

    def bound(self, row: Vector, i: int, helpers: int, low: Vector, high: Vector) -> float:
        """Return the upper bound on the score of a point after this many helpers have joined."""
        bounds = self.model.bounds("this check")
        return float(_bound(self.core, bounds, self.items, i, row, helpers, low, high))

    def ask(self, capability: str, *arguments: Any) -> Any:
        """Return the result of a capability of the family, or skip the law if it has none."""
        return require(self.family, capability, *arguments, needed_by="this check")

    def draw(self, row: Vector, size: int, rng: Rng) -> Any:
        return self.ask("draws", row, self.n_features).sample(size, rng)

    def subset(self, rng: Rng, least: int = 0) -> Ints:
        """Return the members of a random cluster, in random order and with repetitions."""
        return rng.integers(0, self.n, size=rng.integers(least, self.n + 1))
