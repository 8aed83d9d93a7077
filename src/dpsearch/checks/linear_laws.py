"""The laws of a family's linear form, each run from random clusters.

Each takes a compiled family and a random number generator.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Rng, Vector
from dpsearch.checks.compiled import Compiled
from dpsearch.checks.law import agree, applies_if, ensure
from dpsearch.families.linear import LinearForm

_STEP = 1e-5  # in points: sizes are 1 and more


def totals_give_rows(kit: Compiled, rng: Rng) -> None:
    """`rows` of totals of features are, once merged, the rows that updates make."""
    form, members = _form(kit), kit.subset(rng)
    sizes, totals = _block(kit, form, members)
    ensure(totals.shape == (1, form.n_totals), f"{totals.shape[1]} features, not {form.n_totals}")
    row = kit.row()
    kit.merge(row, np.ascontiguousarray(form.rows(sizes, totals)[0]))
    agree("the row of totals", row, kit.row(members), scale=_rounding(totals))


def totals_give_log_marginals(kit: Compiled, rng: Rng) -> None:
    """`log_marginals` of sizes and totals are those of the rows."""
    form, blocks = _form(kit), [kit.subset(rng) for _ in range(3)]
    sizes, totals = map(np.concatenate, zip(*(_block(kit, form, b) for b in blocks), strict=True))
    wanted = [kit.log_marginal(kit.row(members)) for members in blocks]
    found = form.log_marginals(sizes, totals)
    agree("log_marginals of totals", found, wanted, scale=_rounding(totals))


def weights_are_the_gradient(kit: Compiled, rng: Rng) -> None:
    """`weights` are the derivatives of `log_marginals` by the totals and the size."""
    form = _form(kit)
    sizes, totals = _block(kit, form, kit.subset(rng, least=1))
    by_totals, by_size = form.weights(sizes, totals)
    ensure(by_totals.shape == totals.shape, f"weights by totals have shape {by_totals.shape}")
    ensure(by_size.shape == sizes.shape, f"weights by size have shape {by_size.shape}")
    _, point = _block(kit, form, rng.integers(0, kit.n, size=1))
    some = rng.random(point.shape) < 0.5
    for more, of_point in ((1.0, point), (1.0, 0.0 * point), (0.0, np.where(some, point, 0.0))):
        terms = np.append(by_totals * of_point, by_size * more)
        scale = 1.0 + np.abs(terms).sum()
        step = _STEP / scale**0.5  # short where log H is steep
        ends = np.array([[step], [-step]])
        values = form.log_marginals((sizes + ends * more)[:, 0], totals + ends * of_point)
        slope = (values[0] - values[1]) / (2.0 * step)
        agree("the derivative", terms.sum(), slope, 1e-5, scale)


def log_marginals_are_convex(kit: Compiled, rng: Rng) -> None:
    """Half-way between two blocks, in size and totals, log H is at most the mean of theirs."""
    form = _form(kit)
    first, second = (_block(kit, form, kit.subset(rng)) for _ in range(2))
    sizes, totals = (np.concatenate([a, b, 0.5 * (a + b)]) for a, b in zip(first, second))
    values = form.log_marginals(sizes, totals)
    highest = 0.5 * (values[0] + values[1])
    rounding = 1e-9 * (abs(highest) + _rounding(totals))
    ensure(values[2] <= highest + rounding, f"{values[2]} half-way between {values[:2]}")


def features_by_the_array_api(kit: Compiled, rng: Rng) -> None:
    """`features` of arrays that are strict about the array API are those of NumPy's."""
    form, X = _form(kit), kit.dense
    strict = find_spec("array_api_strict") and find_spec("array_api_compat")
    applies_if(bool(strict), "array-api-strict and array-api-compat are not installed")
    from array_api_strict import asarray

    agree("features", np.asarray(form.features(asarray(X))), form.features(X), 1e-12)


def _form(kit: Compiled) -> LinearForm:
    form: LinearForm = kit.ask("linear", kit.n_features)
    return form


def _block(kit: Compiled, form: LinearForm, members: Any) -> tuple[Vector, Any]:
    """Return the size [1] and the totals of features [1, P] of a cluster."""
    features = form.features(kit.model.matrix)
    features = features.toarray() if sp.issparse(features) else np.asarray(features)
    return np.array([float(len(members))]), features[members].sum(axis=0, keepdims=True)


def _rounding(totals: Any) -> float:
    """Return the scale of the errors to allow where squares of this size were subtracted."""
    return max(1.0, 1e-6 * float(np.abs(totals).max(initial=0.0)))
