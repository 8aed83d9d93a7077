"""The laws of a family's linear form, checked on random clusters.

Each law takes a compiled family and a random number generator.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import agree, applies_if, ensure
from dpsearch.families.linear import LinearForm

_STEP = 1e-5  # of numerical derivatives, in points (sizes are 1 or more)


def totals_give_rows(kit: Compiled, rng: Rng) -> None:
    """`rows` of totals of features are, once merged, the rows that updates make."""
    form, clusters = _form(kit), [kit.subset(rng) for _ in range(3)]
    sizes, totals = _blocks(kit, form, *clusters)
    ensure(totals.shape[1] == form.n_totals, f"{totals.shape[1]} features, not {form.n_totals}")
    for members, found in zip(clusters, form.rows(sizes, totals), strict=True):
        row = kit.row()
        kit.merge(row, np.ascontiguousarray(found))
        agree("the row of totals", row, kit.settled(kit.row(members)), scale=_rounding(totals))


def totals_give_log_marginals(kit: Compiled, rng: Rng) -> None:
    """`log_marginals` of sizes and totals are those of the rows."""
    form, clusters = _form(kit), [kit.subset(rng) for _ in range(3)]
    sizes, totals = _blocks(kit, form, *clusters)
    expected = [kit.log_marginal(kit.row(members)) for members in clusters]
    found = form.log_marginals(sizes, totals)
    agree("log_marginals of totals", found, expected, scale=_rounding(totals))


def weights_are_the_gradient(kit: Compiled, rng: Rng) -> None:
    """`weights` are the derivatives of `log_marginals` by the totals and the size."""
    form, other = _form(kit), kit.subset(rng)
    sizes, totals = _blocks(kit, form, kit.subset(rng, least=1), other)
    by_totals, by_size = form.weights(sizes, totals)
    ensure(by_totals.shape == totals.shape, f"weights by totals have shape {by_totals.shape}")
    ensure(by_size.shape == sizes.shape, f"weights by size have shape {by_size.shape}")
    (point,) = _blocks(kit, form, rng.integers(0, kit.n, size=1))[1]
    some = np.where(rng.random(len(point)) < 0.5, point, 0.0)
    for more, of_point in ((1.0, point), (1.0, 0.0 * point), (0.0, some)):
        terms = np.append(by_totals[0] * of_point, by_size[0] * more)
        scale = 1.0 + np.abs(terms).sum()
        step = _STEP / scale**0.5  # short where log H is steep
        ends = np.array([step, -step])
        above, below = form.log_marginals(
            sizes[0] + ends * more, totals[0] + np.outer(ends, of_point)
        )
        agree("the derivative", terms.sum(), (above - below) / (2.0 * step), 1e-5, scale)


def log_marginals_are_convex(kit: Compiled, rng: Rng) -> None:
    """Half-way between two blocks, in size and totals, log H is at most the mean of theirs."""
    form = _form(kit)
    sizes, totals = _blocks(kit, form, kit.subset(rng), kit.subset(rng))
    ends = form.log_marginals(sizes, totals)
    middle = form.log_marginals(sizes.mean(keepdims=True), totals.mean(axis=0, keepdims=True))
    rounding = 1e-9 * (np.abs(ends).sum() + _rounding(totals))
    ensure(middle <= ends.mean() + rounding, f"it is {middle[0]} half-way between {ends}")


def features_by_the_array_api(kit: Compiled, rng: Rng) -> None:
    """`features` of arrays that are strict about the array API are those of NumPy's."""
    form = _form(kit)
    strict = find_spec("array_api_strict") and find_spec("array_api_compat")
    applies_if(bool(strict), "array-api-strict and array-api-compat are not installed")
    from array_api_strict import asarray

    agree("features", np.asarray(form.features(asarray(kit.dense))), form.features(kit.dense))


def _form(kit: Compiled) -> LinearForm:
    form: LinearForm = kit.ask("linear", kit.n_features)
    return form


def _blocks(kit: Compiled, form: LinearForm, *clusters: Any) -> tuple[Vector, Matrix]:
    """Return the sizes of clusters and their totals of features."""
    features = form.features(kit.model.matrix)
    features = features.toarray() if sp.issparse(features) else features
    sizes = np.array([float(len(members)) for members in clusters])
    return sizes, np.array([features[members].sum(axis=0) for members in clusters])


def _rounding(totals: Matrix) -> float:
    """Return the scale of errors to allow after squares of this size were subtracted."""
    return max(1.0, 1e-6 * float(np.abs(totals).max()))
