"""The laws of families: the conjugate algebra, bounds, and what a family may offer beyond it.

Each law takes a compiled family and a source of random numbers, by which it picks clusters.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Rng, Vector
from dpsearch._validate import has_gaps
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import agree, ensure
from dpsearch.errors import CapabilityError, DataError
from dpsearch.families import FAMILIES
from dpsearch.families.capabilities import log_bayes_factors, require
from dpsearch.families.with_gaps import filled

_DRAWS = 20_000
_KINDS = 300  # combinations of discrete values to add up


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
    row, other = kit.row(members), kit.row(rng.permutation(members))
    agree("log_marginal in another order", kit.log_marginal(other), kit.log_marginal(row))
    agree("the scores in another order", kit.scores(other), kit.scores(row))


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
    scale = max(1.0, 1e-4 * float(np.abs(row).max()))
    for i in rng.permutation(added):
        kit.add(row, i, -1)
    agree("the row", row, before, scale=scale)
    agree("log_marginal", kit.log_marginal(row), kit.log_marginal(before))


def emptied_is_empty(kit: Compiled, rng: Rng) -> None:
    """A row from which every point is removed, or the whole cluster, is the empty row."""
    members = kit.subset(rng, least=1)
    row = kit.row(members)
    other, scale = row.copy(), max(1.0, 1e-4 * float(np.abs(row).max()))
    for i in rng.permutation(members):
        kit.add(row, i, -1)
    agree("the row", row, kit.row(), scale=scale)
    kit.merge(other, kit.row(members), -1.0)
    agree("the row after merge with sign -1", other, kit.row(), scale=scale)


def merge_is_adding(kit: Compiled, rng: Rng) -> None:
    """Merging two clusters is adding the points of one to the other; sign -1 undoes it."""
    first, second = kit.subset(rng), kit.subset(rng)
    row, other = kit.row(first), kit.row(second)
    before, together = row.copy(), kit.row([*first, *second])
    kit.merge(row, other)
    agree("the merged row", row, together)
    agree("log_marginal of the merged row", kit.log_marginal(row), kit.log_marginal(together))
    agree("the scores under the merged row", kit.scores(row), kit.scores(together))
    kit.merge(row, other, -1.0)
    agree("the row after merge with sign -1", row, before)
    agree("log_marginal after merge with sign -1", kit.log_marginal(row), kit.log_marginal(before))


def weight_is_copies(kit: Compiled, rng: Rng) -> None:
    """A point of weight w is w copies of it."""
    row = kit.row(kit.subset(rng))
    before, one_by_one = row.copy(), row.copy()
    i, weight = int(rng.integers(kit.n)), int(rng.integers(1, 7))
    for _ in range(weight):
        kit.add(one_by_one, i)
    kit.add(row, i, weight)
    agree(f"the row after a point of weight {weight}", row, one_by_one)
    kit.add(row, i, -weight)
    agree(f"the row after a point of weight {-weight}", row, before)


def scores_agree(kit: Compiled, rng: Rng) -> None:
    """Every function that scores agrees with score_rows of one row."""
    width, n_rows = kit.core.width, 7
    pool = np.concatenate([kit.row(kit.subset(rng)) for _ in range(n_rows)])
    starts = rng.permutation(n_rows) * width
    i = int(rng.integers(kit.n))
    wanted = np.array([kit.score(pool[s : s + width].copy(), i) for s in starts])
    agree("score_rows of many rows", kit.score_rows(pool, starts, i), wanted, 1e-12)
    dots = kit.score_dots(pool, starts, i)
    if dots is not None:
        agree("score_dots", dots, wanted, 1e-10)
    row = pool[:width].copy()
    score = kit.score(row, i)
    kit.add(row, i)
    agree("score_member", kit.score_member(row, i), score, 1e-7)
    if kit.core.score_best != 0:
        offsets = rng.normal(size=n_rows)
        best, total = kit.score_best(pool, starts, offsets, i), wanted + offsets
        kept = np.isfinite(best)
        ensure(kept[total.argmax()], f"score_best leaves out the best cluster {total.argmax()}")
        agree("score_best", best[kept], total[kept], 1e-9)


def larger_than_its_tables(kit: Compiled, rng: Rng) -> None:
    """A model compiled for a few rows is right for clusters larger than its tables."""
    small = Compiled(kit.family, kit.X, fitted=kit.X[:2])
    members = kit.subset(rng, least=min(6, kit.n))
    row, same = kit.row(members), small.row(members)
    agree("log_marginal", small.log_marginal(same), kit.log_marginal(row))
    agree("the scores", small.scores(same), kit.scores(row))
    other = small.row()
    small.merge(other, same)
    agree("the merged row", other, same)
    heavy, i = small.row([members[0]], weight=1000), int(rng.integers(kit.n))
    before, score = small.log_marginal(heavy), small.score(heavy, i)
    small.add(heavy, i)
    agree("the score beside 1,000 points", score, small.log_marginal(heavy) - before, 1e-6)


# -- bounds, for search with a guarantee and for proofs ------------------------------------------


def bounds_are_above(kit: Compiled, rng: Rng) -> None:
    """`bound` is at least what a point can score after helpers have joined the cluster."""
    members, i = kit.subset(rng), int(rng.integers(kit.n))
    row = kit.row(members)
    nothing = np.zeros_like(kit.features(i))
    agree("bound without helpers", kit.bound(row, i, 0, nothing, nothing), kit.score(row, i))
    for _ in range(4):
        # Few kinds of helpers, the point itself often among them: that is where bounds are tight.
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
    ceiling = require(kit.family, "log_ceiling", kit.model.matrix, needed_by="this check")
    _none_above(kit.scores(kit.row(kit.subset(rng))), ceiling)
    copies = int(rng.integers(1, kit.n + 1))
    alike = [kit.score(kit.row([i], weight=copies), i) for i in range(kit.n)]
    _none_above(np.array(alike), ceiling)


def _none_above(scores: Vector, ceiling: Vector) -> None:
    at = int((scores - ceiling).argmax())
    ensure(scores <= ceiling + 1e-9, f"log_ceiling is {ceiling[at]}, but the score {scores[at]}")


def statistic_agrees(kit: Compiled, rng: Rng) -> None:
    """The closed form that `statistic` returns has the log marginals of the functions."""
    statistic = require(kit.family, "statistic", kit.model.matrix, needed_by="this check")
    labels = np.unique(rng.integers(0, 4, size=kit.n), return_inverse=True)[1]
    wanted = [kit.log_marginal(kit.row(np.flatnonzero(labels == k))) for k in np.unique(labels)]
    agree("log_marginals of the closed form", statistic.log_marginals(labels), wanted, 1e-7)


# -- data ----------------------------------------------------------------------------------------


def rows_are_encoded_alone(kit: Compiled, rng: Rng) -> None:
    """`encode` and `log_base` of a row do not depend on the other rows."""
    order = rng.permutation(kit.n)[: max(1, kit.n // 2)]
    items, base = kit.model.items(kit.X[order])
    agree("log_base", base, kit.base[order])
    row = kit.row(kit.subset(rng))
    agree("the scores", kit.scores(row, kit.X[order]), kit.scores(row)[order])
    ensure(items.n_items == len(order), f"encode made {items.n_items} rows of {len(order)}")


def sparse_is_dense(kit: Compiled, rng: Rng) -> None:
    """Sparse data give the same rows and scores as dense data."""
    if not kit.family.accepts_sparse:
        raise CapabilityError("the family does not accept sparse data")
    X = _dense(kit.X)
    with_zeros = sp.csr_matrix(np.ones_like(X))
    with_zeros.data[:] = X.reshape(-1)
    reference, members = Compiled(kit.family, X), kit.subset(rng)
    row = reference.row(members)
    for other in (sp.csr_matrix(X), sp.csc_matrix(X), with_zeros):
        sparse = Compiled(kit.family, other)
        agree("the row", sparse.row(members), row, 1e-12)
        agree("the scores", sparse.scores(row), reference.scores(row), 1e-12)
        agree("log_base", sparse.base, reference.base, 1e-12)


def description_comes_back(kit: Compiled, rng: Rng) -> None:
    """`to_dict` describes the family in plain values, from which it comes back."""
    extra = {kit.given.name: type(kit.given)}
    for family in (kit.given, kit.family):
        again = FAMILIES.from_dict(json.loads(json.dumps(family.to_dict())), extra)
        ensure(type(again) is type(family), f"{type(again)} came back")
        ensure(hash(again) == hash(FAMILIES.from_dict(family.to_dict(), extra)), "hashes differ")
        found, wanted = again.compile(kit.X).core.params, family.compile(kit.X).core.params
        agree("the parameters", found, wanted, 0.0)


def pickle_comes_back(kit: Compiled, rng: Rng) -> None:
    """A pickled family and a pickled model give the same scores, to the last bit."""
    row = kit.row(kit.subset(rng))
    model = pickle.loads(pickle.dumps(kit.model))
    found = model.log_densities(row, kit.X)
    agree("the scores of the model", found, kit.model.log_densities(row, kit.X), 0.0)
    again = pickle.loads(pickle.dumps(kit.given))
    ensure(type(again) is type(kit.given), f"{type(again)} came back")
    agree("the parameters", again.compile(kit.X).core.params, kit.core.params, 0.0)


def posterior_is_readable(kit: Compiled, rng: Rng) -> None:
    """`posterior` returns the same names for every cluster."""
    few, many = kit.row([0]), kit.row(range(kit.n))
    names = [set(kit.family.posterior(row, kit.model.n_features)) for row in (few, many)]
    ensure(names[0] == names[1], f"it names {names[0]}, then {names[1]}")


# -- what a family may offer beyond the required functions ---------------------------------------


def predictive_is_normalised(kit: Compiled, rng: Rng) -> None:
    """The predictive of a set of values is the share of the draws that fall into it.

    The set: combinations of values that discrete columns often have, and a box in the others.
    """
    row = kit.row(range(kit.n))
    first, second = np.split(_dense(kit.draw(row, _DRAWS, rng)), 2)
    discrete = (first == np.round(first)).all(axis=0)
    real = first[:, ~discrete]
    if real.shape[1] and np.linalg.matrix_rank(real - real.mean(axis=0)) < real.shape[1]:
        raise CapabilityError("draws lie in a subspace, where the predictive is no density")
    tail = 0.5 - 0.5 * 0.5 ** (1.0 / max(1, real.shape[1]))
    low, high = np.quantile(real, [tail, 1.0 - tail], axis=0)

    def in_box(rows: Any) -> Any:
        return ((rows[:, ~discrete] >= low) & (rows[:, ~discrete] <= high)).all(axis=1)

    kinds, times = np.unique(first[in_box(first)][:, discrete], axis=0, return_counts=True)
    kinds = kinds[np.argsort(-times)[:_KINDS]]
    known = {kind.tobytes() for kind in kinds}
    same = np.array([kind.tobytes() in known for kind in np.ascontiguousarray(second[:, discrete])])
    share = (in_box(second) & same).mean()
    if share < 0.02:
        raise CapabilityError("draws are too varied to add up their probabilities")
    each = _DRAWS // len(kinds) if real.shape[1] else 1
    points = np.repeat(np.empty((len(kinds), kit.model.n_features)), each, axis=0)
    points[:, discrete] = np.repeat(kinds, each, axis=0)
    points[:, ~discrete] = rng.uniform(low, high, size=(len(points), len(low)))
    densities = np.exp(kit.model.log_densities(row, points)[:, 0]) * np.prod(high - low)
    by_kind = densities.reshape(len(kinds), each)
    likely = (share * len(second) + 1.0) / (len(second) + 2.0)  # never quite 0 or 1
    variance = likely * (1.0 - likely) / len(second) + (by_kind.var(axis=1) / each).sum()
    total = by_kind.mean(axis=1).sum()
    ensure(
        abs(total - share) <= 5.0 * variance**0.5 + 1e-9,
        f"the predictive gives {total:.4g} to values that {share:.4g} of the draws have,"
        f" with a standard error of {variance**0.5:.1g}",
    )


def draws_follow_the_predictive(kit: Compiled, rng: Rng) -> None:
    """The mean of p(x | B) / p(x | A) over draws from a cluster A is 1, for every cluster B."""
    row = kit.row(range(kit.n))
    draws = kit.draw(row, _DRAWS, rng)
    shape = (_DRAWS, kit.model.n_features)
    ensure(draws.shape == shape, f"draws have shape {draws.shape}, not {shape}")
    for i in range(min(3, kit.n)):
        other = row.copy()
        kit.add(other, i, 2)
        ratios = np.exp(kit.scores(other, draws) - kit.scores(row, draws))
        error = ratios.std() / len(ratios) ** 0.5
        ensure(
            abs(ratios.mean() - 1.0) <= 5.0 * error + 1e-9,
            f"the mean is {ratios.mean():.4g} with a standard error of {error:.1g}",
        )
    lengths = kit.family.lengths(kit.model.matrix)
    alike = kit.ask("draws", row).like(lengths, rng)
    agree("lengths of draws of given lengths", kit.family.lengths(alike), lengths)
    from_none = kit.draw(kit.row(), 50, rng)
    ensure(np.isfinite(kit.scores(kit.row([0]), from_none)), "a draw has no finite score")


def learns(kit: Compiled, rng: Rng) -> None:
    """`suggest` and `learned` return families of the same class that fit the data."""
    cls = type(kit.given)
    if cls.name not in FAMILIES.classes and "suggest" not in vars(cls):
        raise CapabilityError("the family has no method suggest")
    start = cls.suggest(kit.X).resolve(filled(kit.X) if has_gaps(kit.X) else kit.X)
    for family in (start, start.learned(kit.X, rng.permutation(np.arange(kit.n) % 2))):
        ensure(type(family) is cls, f"a {type(family).__name__} was returned")
        compiled = Compiled(family, kit.X)
        ensure(np.isfinite(compiled.scores(compiled.row())), "a row has no finite score")


def columns_agree(kit: Compiled, rng: Rng) -> None:
    """The columns' log Bayes factors add up to that of the clusters, if columns are independent."""
    first, second = kit.subset(rng, least=1), kit.subset(rng, least=1)
    rows = [kit.row(first), kit.row(second), kit.row([*first, *second])]
    inside, outside, both = (kit.ask("columns", row) for row in rows)
    factors = log_bayes_factors(inside, outside, both)
    shape = (kit.model.n_features,)
    for what, found in (("log_marginals", factors), ("centres", np.asarray(both.centres))):
        ensure(found.shape == shape, f"{what} has shape {found.shape}, not {shape}")
        ensure(np.isfinite(found), f"{what} has an entry that is not finite")
    if kit.family.independent_columns:
        marginals = [kit.log_marginal(row) for row in rows]
        wanted = marginals[0] + marginals[1] - marginals[2]
        agree("the sum of the columns' log Bayes factors", factors.sum(), wanted, 1e-7)


def gaps_are_skipped(kit: Compiled, rng: Rng) -> None:
    """The form for gaps gives the same marginals if nothing is missing, and skips empty rows."""
    if not kit.family.independent_columns:
        raise CapabilityError("the family does not skip missing values")
    if has_gaps(kit.X):
        empty = np.full((1, kit.model.n_features), np.nan)
        agree("the score of an empty row", kit.scores(kit.row([0, 1]), empty), [0.0])
        return
    gapped = Compiled(kit.family.with_gaps(), _dense(kit.X))
    members = kit.subset(rng)
    found = gapped.log_marginal(gapped.row(members)) + gapped.base[members].sum()
    agree("log_marginal", found, kit.log_marginal(kit.row(members)) + kit.base[members].sum())


def gaps_are_predicted(kit: Compiled, rng: Rng) -> None:
    """Rows without gaps have the same predictive; gaps are filled, and nothing else is changed."""
    X, row = _dense(kit.X), kit.row(kit.subset(rng, least=2))
    gaps = kit.ask("gaps", [row])
    agree("log_densities", gaps.log_densities(X), kit.model.log_densities(row, X), 1e-7)
    holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    known = ~np.isnan(holes)
    try:
        filled_in = gaps.fill(holes, np.ones((kit.n, 1)))
    except DataError as error:  # some columns may have no gaps
        raise CapabilityError(str(error)) from error
    ensure(np.isfinite(filled_in), "fill leaves gaps")
    agree("what was known", filled_in[known], holes[known], 1e-12)


def _dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)


# Run from several random states.
STATES = [
    chain_rule,
    exchangeable,
    counts_points,
    remove_undoes_add,
    emptied_is_empty,
    merge_is_adding,
    weight_is_copies,
    scores_agree,
    larger_than_its_tables,
    bounds_are_above,
    ceiling_is_above,
    statistic_agrees,
    rows_are_encoded_alone,
    columns_agree,
    gaps_are_skipped,
    gaps_are_predicted,
]
# Run once.
WHOLE = [
    sparse_is_dense,
    description_comes_back,
    pickle_comes_back,
    posterior_is_readable,
    draws_follow_the_predictive,
    predictive_is_normalised,
    learns,
]
