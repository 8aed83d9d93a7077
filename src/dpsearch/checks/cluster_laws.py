"""The laws of a family that hold for random clusters: conjugate updates, bounds, columns.

Each law takes a compiled family and a random number generator.
"""

from __future__ import annotations

import numpy as np

from dpsearch._types import Rng, Vector
from dpsearch._validate import has_gaps
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import agree, applies_if, ensure
from dpsearch.errors import CapabilityError, DataError
from dpsearch.families.capabilities import log_bayes_factors
from dpsearch.items import score_best, score_member

# -- the conjugate algebra ---------------------------------------------------------------------


def chain_rule(kit: Compiled, rng: Rng) -> None:
    """The predictives of points, in any order, add up to the log marginal of all of them."""
    members = kit.subset(rng)
    agree("log_marginal of the empty cluster", kit.log_marginal(kit.row()), 0.0)
    for _ in range(2):
        rng.shuffle(members)
        row, chain = kit.row(), 0.0
        for i in members:
            chain += kit.score(row, i)
            kit.add(row, i)
            agree(f"log_marginal of {row[0]:g} points", kit.log_marginal(row), chain)


def exchangeable(kit: Compiled, rng: Rng) -> None:
    """The order in which points are added changes neither the marginal nor the predictives."""
    members = kit.subset(rng, least=2)
    _same_values(kit, kit.row(rng.permutation(members)), kit.row(members), "in another order")


def counts_points(kit: Compiled, rng: Rng) -> None:
    """The first number of a row is the number of its points."""
    members = kit.subset(rng)
    agree("row[0]", kit.row(members)[0], len(members))


def remove_undoes_add(kit: Compiled, rng: Rng) -> None:
    """Points that are added and then removed leave the row as it was."""
    row = kit.row(kit.subset(rng, least=1))
    before, added = row.copy(), kit.subset(rng)
    for i in added:
        kit.add(row, i)
    scale = _rounding(row)
    for i in rng.permutation(added):
        kit.add(row, i, -1)
    _same_rows(kit, row, before, "after removals", scale)


def emptied_is_empty(kit: Compiled, rng: Rng) -> None:
    """A row from which every point is removed, or the whole cluster, is the empty row."""
    members = kit.subset(rng, least=1)
    row, other = kit.row(members), kit.row(members)
    scale = _rounding(row)
    for i in rng.permutation(members):
        kit.add(row, i, -1)
    agree("the row", row, kit.row(), scale=scale)
    kit.merge(other, kit.row(members), -1.0)
    agree("the row after merge with sign -1", other, kit.row(), scale=scale)


def merge_is_adding(kit: Compiled, rng: Rng) -> None:
    """Merging two clusters is adding the points of one to the other; sign -1 undoes it."""
    first, second = kit.subset(rng), kit.subset(rng)
    row, other, together = kit.row(first), kit.row(second), kit.row([*first, *second])
    kit.merge(row, other)
    _same_rows(kit, row, together, "after merge")
    kit.merge(row, other, -1.0)
    _same_rows(kit, row, kit.row(first), "after merge with sign -1")


def weight_is_copies(kit: Compiled, rng: Rng) -> None:
    """A point of weight w is w copies of it."""
    row = kit.row(kit.subset(rng))
    before, one_by_one = row.copy(), row.copy()
    i, weight = int(rng.integers(kit.n)), int(rng.integers(1, 7))
    for _ in range(weight):
        kit.add(one_by_one, i)
    kit.add(row, i, weight)
    _same_rows(kit, row, one_by_one, f"after a point of weight {weight}")
    kit.add(row, i, -weight)
    _same_rows(kit, row, before, f"after a point of weight {-weight}")


def scores_agree(kit: Compiled, rng: Rng) -> None:
    """Every function that scores agrees with score_rows of one row."""
    width, n_rows = kit.core.width, 7
    pool = np.concatenate([kit.row(kit.subset(rng)) for _ in range(n_rows)])
    starts = rng.permutation(n_rows) * width
    i = int(rng.integers(kit.n))
    expected = np.array([kit.score(pool[s : s + width].copy(), i) for s in starts])
    agree("score_rows of many rows", kit.score_rows(pool, starts, i), expected, 1e-12)
    dots = kit.score_dots(pool, starts, i)
    if dots is not None:
        agree("score_dots", dots, expected, 1e-10)
    row = pool[:width].copy()
    score = kit.score(row, i)
    kit.add(row, i)
    agree("score_member", score_member(kit.core, kit.items, i, row, kit.scratch), score, 1e-7)
    offsets, best = rng.normal(size=n_rows), np.full(n_rows, -np.inf)
    total = expected + offsets
    place = int(total.argmax())
    if score_best(kit.core, kit.items, i, pool, starts, offsets, -1, best):
        kept = np.isfinite(best)
        ensure(kept[place], f"score_best leaves out the best cluster {place}")
        agree("score_best", best[kept], total[kept], 1e-9)
    for floor in (-np.inf, float(np.median(total)), total[place] + 1.0):
        found = kit.best_dots(pool, starts, i, offsets, floor)
        if found is not None:
            ensure(found <= total + 1e-9 * (1.0 + np.abs(total)), f"best_dots gives {found}")
            first = np.argmax(found) == place and found[place] > floor
            ensure(first or total[place] <= floor, f"best_dots leaves out the best cluster {place}")


def larger_than_its_tables(kit: Compiled, rng: Rng) -> None:
    """A model compiled for a few rows is right for clusters larger than its tables."""
    small = Compiled(kit.family, kit.X, fitted=kit.X[:2])
    members = kit.subset(rng, least=min(6, kit.n))
    row, same = kit.row(members), small.row(members)
    agree("log_marginal", small.log_marginal(same), kit.log_marginal(row))
    agree("the scores", small.scores(same), kit.scores(row))
    other = small.row()
    small.merge(other, same)
    _same_rows(small, other, same, "after merge")
    heavy, i = small.row([members[0]], weight=1000), int(rng.integers(kit.n))
    before, score = small.log_marginal(heavy), small.score(heavy, i)
    small.add(heavy, i)
    agree("the score beside 1,000 points", score, small.log_marginal(heavy) - before, 1e-6)


def _same_values(kit: Compiled, row: Vector, other: Vector, how: str) -> None:
    """Raise unless two rows give the same log marginal and scores."""
    agree(f"log_marginal {how}", kit.log_marginal(row), kit.log_marginal(other))
    agree(f"the scores {how}", kit.scores(row), kit.scores(other))


def _same_rows(kit: Compiled, row: Vector, other: Vector, how: str, scale: float = 1.0) -> None:
    """Raise unless two rows give the same values, and are the same with all derived."""
    agree(f"the row {how}", kit.settled(row), kit.settled(other), scale=scale)
    _same_values(kit, row, other, how)


def _rounding(row: Vector) -> float:
    """Return the scale of errors to allow after values of this size were added and removed."""
    return max(1.0, 1e-4 * float(np.abs(row).max()))


# -- bounds, for search with a guarantee and for proofs ------------------------------------------


def bounds_are_above(kit: Compiled, rng: Rng) -> None:
    """`bound` is at least what a point can score after helpers have joined the cluster."""
    members, i = kit.subset(rng), int(rng.integers(kit.n))
    row = kit.row(members)
    nothing = np.zeros_like(kit.features(i))
    agree("bound without helpers", kit.bound(row, i, 0, nothing, nothing), kit.score(row, i))
    for _ in range(4):
        # Bounds are tight if there are few distinct helpers and the point itself is one of them.
        kinds = np.append(rng.integers(0, kit.n, size=2), i)
        helpers = rng.choice(kinds, size=rng.integers(1, 6))
        score = kit.score(kit.row([*members, *helpers]), i)
        features = np.sum([kit.features(h) for h in helpers], axis=0)
        slack = rng.integers(0, 3, size=(2, len(features))) * rng.integers(0, 2)
        bound = kit.bound(row, i, len(helpers), features - slack[0], features + slack[1])
        exact = kit.bound(row, i, len(helpers), features, features)
        ensure(np.isfinite(bound), f"bound is {bound}")
        rounding = 1e-9 * (1.0 + abs(score) + abs(bound))
        ensure(bound >= score - rounding, f"bound is {bound}, but the score {score}")
        ensure(exact <= bound + rounding, f"bound is {exact}, and {bound} for wider features")


def ceiling_is_above(kit: Compiled, rng: Rng) -> None:
    """`log_ceiling` is at least the score of every row under every cluster."""
    ceiling = kit.ask("log_ceiling", kit.model.matrix)
    scores = kit.scores(kit.row(kit.subset(rng)))
    copies = int(rng.integers(1, kit.n + 1))
    alike = [kit.score(kit.row([i], weight=copies), i) for i in range(kit.n)]
    highest = np.maximum(scores, alike)
    at = int((highest - ceiling).argmax())
    ensure(highest <= ceiling + 1e-9, f"log_ceiling is {ceiling[at]}, but the score {highest[at]}")


def statistic_agrees(kit: Compiled, rng: Rng) -> None:
    """The closed form that `statistic` returns has the log marginals of the functions."""
    statistic = kit.ask("statistic", kit.model.matrix)
    labels = np.unique(rng.integers(0, 4, size=kit.n), return_inverse=True)[1]
    expected = [kit.log_marginal(kit.row(np.flatnonzero(labels == k))) for k in np.unique(labels)]
    agree("log_marginals of the closed form", statistic.log_marginals(labels), expected, 1e-7)


# -- rows, columns and gaps ----------------------------------------------------------------------


def rows_are_encoded_alone(kit: Compiled, rng: Rng) -> None:
    """`encode` and `log_base` of a row do not depend on the other rows."""
    order = rng.permutation(kit.n)[: max(1, kit.n // 2)]
    agree("log_base", kit.model.items(kit.X[order])[1], kit.base[order])
    row = kit.row(kit.subset(rng))
    agree("the scores", kit.scores(row, kit.X[order]), kit.scores(row)[order])


def columns_agree(kit: Compiled, rng: Rng) -> None:
    """The columns' log Bayes factors add up to that of the clusters, if columns are independent."""
    first, second = kit.subset(rng, least=1), kit.subset(rng, least=1)
    rows = [kit.row(first), kit.row(second), kit.row([*first, *second])]
    inside, outside, both = (kit.ask("columns", row, kit.n_features) for row in rows)
    factors = log_bayes_factors(inside, outside, both)
    shape = (kit.n_features,)
    for what, found in (("log_marginals", factors), ("centres", np.asarray(both.centres))):
        ensure(found.shape == shape, f"{what} has shape {found.shape}, not {shape}")
        ensure(np.isfinite(found), f"{what} has an entry that is not finite")
    if kit.family.independent_columns:
        marginals = [kit.log_marginal(row) for row in rows]
        expected = marginals[0] + marginals[1] - marginals[2]
        agree("the sum of the columns' log Bayes factors", factors.sum(), expected, 1e-7)


def gaps_are_skipped(kit: Compiled, rng: Rng) -> None:
    """The form for gaps gives the same marginals if nothing is missing, and skips empty rows."""
    applies_if(kit.family.independent_columns, "the family does not skip missing values")
    if has_gaps(kit.X):
        empty = np.full((1, kit.n_features), np.nan)
        agree("the score of an empty row", kit.scores(kit.row([0, 1]), empty), [0.0])
        return
    gapped = Compiled(kit.family.with_gaps(), kit.dense)
    members = kit.subset(rng)
    found = gapped.log_marginal(gapped.row(members)) + gapped.base[members].sum()
    agree("log_marginal", found, kit.log_marginal(kit.row(members)) + kit.base[members].sum())


def gaps_are_predicted(kit: Compiled, rng: Rng) -> None:
    """Rows without gaps have the same predictive; gaps are filled, and nothing else is changed."""
    X, row = kit.dense, kit.row(kit.subset(rng, least=2))
    gaps = kit.ask("gaps", [row], kit.n_features)
    agree("log_densities", gaps.log_densities(X), kit.model.log_densities(row, X), 1e-7)
    if kit.family.independent_columns:  # some of which have no value at all
        first = np.arange(kit.n_features) == 0
        apart = [gaps.log_densities(np.where(one, X, np.nan)) for one in (first, ~first)]
        what = "log_densities of some columns and of the others"
        agree(what, sum(apart), gaps.log_densities(X), 1e-7)
    holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    known = ~np.isnan(holes)
    try:
        filled_in = gaps.fill(holes, np.ones((kit.n, 1)))
    except DataError as error:  # some columns may have no gaps
        raise CapabilityError(str(error)) from error
    ensure(np.isfinite(filled_in), "fill leaves gaps")
    agree("what was known", filled_in[known], holes[known], 1e-12)
