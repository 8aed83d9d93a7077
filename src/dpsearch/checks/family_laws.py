"""The laws of a family that are checked once: descriptions, data, draws, learning.

Each law takes a compiled family and a random number generator.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Rng
from dpsearch._validate import has_gaps
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import agree, applies_if, ensure
from dpsearch.errors import CapabilityError, DataError
from dpsearch.families import FAMILIES
from dpsearch.families.with_gaps import filled

_DRAWS = 20_000
_KINDS = 300  # combinations of discrete values whose probabilities are added up


def sparse_is_dense(kit: Compiled, rng: Rng) -> None:
    """Sparse data give the same rows and scores as dense data."""
    applies_if(kit.family.accepts_sparse, "the family does not accept sparse data")
    with_zeros = sp.csr_matrix(np.ones_like(kit.dense))
    with_zeros.data[:] = kit.dense.reshape(-1)
    reference, members = Compiled(kit.family, kit.dense), kit.subset(rng)
    row = reference.row(members)
    for other in (sp.csr_matrix(kit.dense), sp.csc_matrix(kit.dense), with_zeros):
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
        found, expected = again.compile(kit.X).core.params, family.compile(kit.X).core.params
        agree("the parameters", found, expected, 0.0)


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
    names = [set(kit.family.posterior(row, kit.n_features)) for row in (few, many)]
    ensure(names[0] == names[1], f"it names {names[0]}, then {names[1]}")


def draws_follow_the_predictive(kit: Compiled, rng: Rng) -> None:
    """The mean of p(x | B) / p(x | A) over draws from a cluster A is 1, for every cluster B."""
    row = kit.row(range(kit.n))
    draws = kit.draw(row, _DRAWS, rng)
    shape = (_DRAWS, kit.n_features)
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
    alike = kit.ask("draws", row, kit.n_features).like(lengths, rng)
    agree("lengths of draws of given lengths", kit.family.lengths(alike), lengths)
    from_none = kit.draw(kit.row(), 50, rng)
    ensure(np.isfinite(kit.scores(kit.row([0]), from_none)), "a draw has no finite score")


def predictive_is_normalised(kit: Compiled, rng: Rng) -> None:
    """The predictive of a set of values is the share of the draws that fall into it.

    The set: combinations of values that discrete columns often have, and a box in the others.
    """
    row = kit.row(range(kit.n))
    drawn = kit.draw(row, _DRAWS, rng)
    first, second = np.split(drawn.toarray() if sp.issparse(drawn) else drawn, 2)
    discrete = (first == np.round(first)).all(axis=0)
    real = first[:, ~discrete]
    full_rank = np.linalg.matrix_rank(real - real.mean(axis=0)) if real.shape[1] else 0
    applies_if(
        full_rank == real.shape[1], "draws lie in a subspace, where the predictive is no density"
    )
    tail = 0.5 - 0.5 * 0.5 ** (1.0 / max(1, real.shape[1]))
    low, high = np.quantile(real, [tail, 1.0 - tail], axis=0)

    def in_box(rows: Any) -> Any:
        return ((rows[:, ~discrete] >= low) & (rows[:, ~discrete] <= high)).all(axis=1)

    kinds, times = np.unique(first[in_box(first)][:, discrete], axis=0, return_counts=True)
    kinds = kinds[np.argsort(-times)[:_KINDS]]
    known = {kind.tobytes() for kind in kinds}
    same = np.array([kind.tobytes() in known for kind in np.ascontiguousarray(second[:, discrete])])
    share = (in_box(second) & same).mean()
    applies_if(share >= 0.02, "draws are too varied to add up their probabilities")
    each = _DRAWS // len(kinds) if real.shape[1] else 1
    points = np.empty((len(kinds) * each, kit.n_features))
    points[:, discrete] = np.repeat(kinds, each, axis=0)
    points[:, ~discrete] = rng.uniform(low, high, size=(len(points), len(low)))
    try:
        log_densities = kit.model.log_densities(row, points)[:, 0]
    except DataError as error:  # rows may lie on a surface, as directions do
        raise CapabilityError(str(error)) from error
    densities = np.exp(log_densities) * np.prod(high - low)
    by_kind = densities.reshape(len(kinds), each)
    likely = (share * len(second) + 1.0) / (len(second) + 2.0)  # never quite 0 or 1
    variance = likely * (1.0 - likely) / len(second) + (by_kind.var(axis=1) / each).sum()
    total = by_kind.mean(axis=1).sum()
    ensure(
        abs(total - share) <= 5.0 * variance**0.5 + 1e-9,
        f"the predictive gives {total:.4g} to values that {share:.4g} of the draws have,"
        f" with a standard error of {variance**0.5:.1g}",
    )


def learns(kit: Compiled, rng: Rng) -> None:
    """`suggest` and `learned` return families of the same class that fit the data."""
    cls = type(kit.given)
    suggests = cls.name in FAMILIES.classes or "suggest" in vars(cls)
    applies_if(suggests, "the family has no method suggest")
    start = cls.suggest(kit.X).resolve(filled(kit.X) if has_gaps(kit.X) else kit.X)
    for family in (start, start.learned(kit.X, rng.permutation(np.arange(kit.n) % 2))):
        ensure(type(family) is cls, f"a {type(family).__name__} was returned")
        compiled = Compiled(family, kit.X)
        ensure(np.isfinite(compiled.scores(compiled.row())), "a row has no finite score")


def restated_is_counted_again(kit: Compiled, rng: Rng) -> None:
    """`restated` rows are, once merged, those of the same points under what was learned."""
    labels, members = rng.permutation(np.arange(kit.n) % 2), kit.subset(rng)
    other = Compiled(kit.family.learned(kit.X, labels), kit.X)
    found = kit.ask("restated", kit.row(members), kit.n_features, other.family)
    row, expected = other.row(), other.row(members)
    other.merge(row, np.ascontiguousarray(found.row))
    agree("the restated row", row, expected, scale=1.0 + float(np.abs(expected).max()))
    more = float((other.base - kit.base)[members].sum())
    agree("what log_base grows by", found.log_base, more, scale=1.0 + float(len(members)))
