"""The assumptions of proofs: what a family declares about log H, and allowances for rounding.

A wrong ceiling or closed form would make a proof wrong.  Both are compared with the family's own
functions on single points, on all points together and on random sets of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Labels, Matrix, Vector
from dpsearch.errors import CapabilityError, ProofError
from dpsearch.families.capabilities import require
from dpsearch.families.linear import LinearForm
from dpsearch.families.statistics import BetaCounts, LevelCounts, NormalMeans, Statistic
from dpsearch.items import log_marginals, rows_of_labels
from dpsearch.problem import Problem

EPSILON = 2.0**-52  # of double precision
AGREEMENT = 1e-8  # largest relative difference of two computations of log H
_MOST_CLUSTERS = 100  # in a random partition
_MOST_COPIED = 200  # points whose ceiling is compared with a cluster of copies
_LARGEST = 1 << 24  # values in a dense table of counts


def at_least(lower: float, upper: float, rounding: float) -> float:
    """Return the upper bound, raised to `lower` if it is below it by no more than rounding.

    >>> at_least(1.0, 1.0 - 1e-12, 1e-10)
    1.0
    """
    if not upper >= lower - rounding:
        raise ProofError(
            f"a bound of {upper!r} on every partition contradicts a partition with the log joint"
            f" {lower!r}: this is an error in dpsearch or in the family; please report it"
        )
    return max(upper, lower)


def rounding_error(n_terms: int, magnitude: float) -> float:
    """Return the rounding error of a sum of terms, given the sum of their absolute values."""
    return (n_terms + 64) * EPSILON * (magnitude + 1.0)


def require_points(problem: Problem, what: str) -> None:
    """Raise unless all items of the problem are single points, as `what` requires."""
    problem.require_points(what)
    if len(problem.background.sizes):
        raise CapabilityError(f"{what} does not take a problem with background clusters")


def log_ceiling(problem: Problem, needed_by: str) -> Vector:
    """Return an upper bound on log H(x | any cluster) of each point, without `log_base`."""
    family, X = problem.model.family, problem.model.matrix
    ceiling = np.asarray(require(family, "log_ceiling", X, needed_by=needed_by), dtype=np.float64)
    if ceiling.shape != (problem.n_items,) or np.isnan(ceiling).any():
        raise CapabilityError(
            f"log_ceiling of the {family.name} family must return one number for each row of X"
        )
    _compare_ceiling(problem, problem.alone, ceiling, "a point on its own")
    for labels in _partitions(problem.n_items):
        reached = _log_marginals(problem, labels)
        highest = np.asarray(np.bincount(labels, ceiling), dtype=np.float64)
        _compare_ceiling(problem, reached, highest, "a set of points")
    some = np.linspace(0, problem.n_items - 1, min(problem.n_items, _MOST_COPIED)).astype(np.int64)
    reached = _among_copies(problem, some)
    _compare_ceiling(problem, reached, ceiling[some], "a point among copies of it")
    return ceiling


def statistic_of(problem: Problem, labels: Labels) -> Statistic | None:
    """Return the closed form of log H, with dense points, if the family has one for these data."""
    statistic = problem.model.family.statistic(problem.model.matrix)
    if statistic is None:
        return None
    forms: tuple[type, ...] = get_args(Statistic)
    if type(statistic) not in forms:
        raise _disagreement(problem, f"it returns a {type(statistic).__name__}")
    _check_form(problem, statistic)
    n, n_columns = statistic.points.shape
    if not isinstance(statistic, NormalMeans) and n_columns > 2 and n * n_columns > _LARGEST:
        return None  # too large for any method here
    statistic = statistic._replace(points=_dense(statistic.points))
    _compare_statistic(problem, problem.alone, statistic.log_marginals(np.arange(n)))
    for partition in (labels, *_partitions(n)):
        _compare_statistic(
            problem, _log_marginals(problem, partition), statistic.log_marginals(partition)
        )
    return statistic


_CANCELLED = 0.01  # share of AGREEMENT above which rounding of totals may explain a disagreement


class Totals(NamedTuple):
    """A linear form with terms, and the features of all points."""

    form: LinearForm
    features: Matrix


_KNOWN: WeakKeyDictionary[Problem, Totals | None] = WeakKeyDictionary()  # each form checked once


def totals_of(problem: Problem) -> Totals | None:
    """Return the linear form of the problem's family, if it has terms for proofs."""
    if problem not in _KNOWN:
        _KNOWN[problem] = _checked_totals(problem)
    return _KNOWN[problem]


def _checked_totals(problem: Problem) -> Totals | None:
    """Return the linear form after checks.

    Its terms must add up to log H on single points, all points and random sets of them, be convex
    at the midpoints between these, and have squares that are those of their values.
    """
    form = problem.model.family.linear(problem.model.n_features)
    if form is None or not form.terms or sp.issparse(problem.model.matrix):
        return None
    features = np.asarray(form.features(problem.model.matrix), dtype=np.float64)
    if features.shape != (problem.n_items, form.n_totals) or not np.isfinite(features).all():
        raise _disagreement(
            problem, "its features are not one row of numbers for each row of X", "linear"
        )
    try:
        _check_terms(problem, form, features)
    except CapabilityError:
        if EPSILON * np.abs(features).sum(axis=0).max() > _CANCELLED * AGREEMENT:
            return None  # the data are so far from the prior that differences of sums are noise
        raise
    return Totals(form, features)


def _check_terms(problem: Problem, form: LinearForm, features: Matrix) -> None:
    for term in form.terms:
        own = term.of(features)[:, term.counted :]
        i, j = np.tril_indices(term.n_values)
        products = own[:, i] * own[:, j]
        if term.squares and not np.allclose(own[:, term.n_values :], products, rtol=1e-12, atol=0):
            raise _disagreement(problem, "squares of a term are not those of its values", "linear")
    for labels in (np.arange(problem.n_items), *_partitions(problem.n_items)):
        sizes = np.bincount(labels).astype(np.float64)
        totals = np.zeros((len(sizes), form.n_totals))
        np.add.at(totals, labels, features)
        declared = np.zeros(len(sizes))
        for term in form.terms:
            here = term.upper(sizes, term.of(totals))
            declared += here
            between = term.of(0.5 * (totals + totals[::-1]))
            middle = term.upper(0.5 * (sizes + sizes[::-1]), between)
            over = middle - 0.5 * (here + here[::-1])
            if not (over <= AGREEMENT * (1.0 + np.abs(middle))).all():
                raise _disagreement(problem, "a term is not convex", "linear")
            if term.squares and not term.counted:
                own, d = term.of(totals).copy(), term.n_values
                i, j = np.tril_indices(d)
                own[:, d:] = 0.5 * (own[:, d:] - own[:, i] * own[:, j] / sizes[:, None])
                own[:, :d] = 0.0
                if not (here <= term.upper(sizes, own) + AGREEMENT * (1.0 + np.abs(here))).all():
                    raise _disagreement(problem, "a term rises with the scatter", "linear")
        for one in (declared, form.log_marginals(sizes, totals)):
            _compare_statistic(problem, _log_marginals(problem, labels), one, "linear")


def magnitude_of(problem: Problem, statistic: Statistic | None, *values: float) -> float:
    """Return about the sum of absolute values of the terms of a log joint or bound of these values.

    If the terms of a family's log H are not known, their size is estimated by how much two
    computations differ: of a point on its own, as a predictive density and from statistics.
    """
    out = float(np.abs(problem.alone).sum()) + abs(problem.log_base) + sum(map(abs, values))
    apart = np.abs(_log_marginals(problem, np.arange(problem.n_items)) - problem.alone)
    out += float(apart.sum()) / EPSILON
    if isinstance(statistic, NormalMeans):
        out += 0.5 * float((statistic.points**2).sum())
    elif statistic is not None:
        total = float(statistic.points.sum()) + statistic.points.size
        out += total * (1.0 + float(np.log(total)))
    return out


def rounding_of(problem: Problem, statistic: Statistic | None, *values: float) -> float:
    """Return the rounding error of a bound and a log joint of about these values."""
    return rounding_error(problem.n_items, magnitude_of(problem, statistic, *values))


def _partitions(n: int) -> Iterator[Labels]:
    """Yield one cluster of all points, and some random partitions."""
    yield np.zeros(n, np.int64)
    rng = np.random.default_rng(0)
    for n_clusters in (2, 3, min(int(np.sqrt(n)) + 1, _MOST_CLUSTERS)):
        yield np.unique(rng.integers(n_clusters, size=n), return_inverse=True)[1].reshape(-1)


def _log_marginals(problem: Problem, labels: Labels) -> Vector:
    """Return log H of each cluster, by the family's own functions."""
    pool, sizes = problem.model.rows(problem.items, labels, int(labels.max()) + 1)
    out: Vector = log_marginals(problem.model.core, pool, len(sizes))
    return out


def _among_copies(problem: Problem, points: Any) -> Vector:
    """Return log H(x | N − 1 copies of x)."""
    core, n = problem.model.core, problem.n_items
    labels = np.full(n, len(points), np.int64)
    labels[points] = np.arange(len(points))
    values = []
    for copies in (n, n - 1):
        items = problem.items._replace(sizes=np.full(n, copies, np.int64))
        pool, _ = rows_of_labels(core, items, labels, len(points) + 1)
        values.append(log_marginals(core, pool, len(points)))
    return np.asarray(values[0] - values[1])


def _compare_ceiling(problem: Problem, reached: Vector, ceiling: Vector, what: str) -> None:
    over = reached - ceiling - AGREEMENT * (1.0 + np.abs(reached))
    if (over > 0.0).any():
        at = int(over.argmax())
        raise CapabilityError(
            f"log_ceiling of the {problem.model.family.name} family is no upper bound: {what} has"
            f" the log density {reached[at]:.6g}, above its ceiling {ceiling[at]:.6g}"
        )


def _check_form(problem: Problem, statistic: Statistic) -> None:
    """Raise unless points and parameters have the shape and the range that proofs assume."""
    points = statistic.points
    values = points.data if sp.issparse(points) else np.asarray(points)
    if points.shape[0] != problem.n_items or not np.isfinite(values).all():
        raise _disagreement(problem, "its points are not one row of numbers for each row of X")
    if not isinstance(statistic, NormalMeans):
        most = 1.0 if isinstance(statistic, BetaCounts | LevelCounts) else 2.0**53
        if not ((values >= 0.0) & (values <= most) & (values == np.floor(values))).all():
            raise _disagreement(problem, "its points are not counts")
    parameters = statistic[1:]
    if isinstance(statistic, LevelCounts):
        parameters = (statistic.concentrations,)
        if statistic.levels.min() < 1 or statistic.levels.sum() != points.shape[1]:
            raise _disagreement(problem, "its levels are not those of its points")
        begins = np.cumsum(statistic.levels) - statistic.levels
        if not (np.add.reduceat(_dense(points), begins, axis=1) == 1.0).all():
            raise _disagreement(problem, "a point has not one level of each column")
    for parameter in parameters:
        if np.shape(parameter) != (points.shape[1],) or not (np.asarray(parameter) > 0.0).all():
            raise _disagreement(problem, "its parameters are not one number above 0 per column")


def _compare_statistic(
    problem: Problem, own: Vector, declared: Vector, name: str = "statistic"
) -> None:
    off = np.abs(declared - own)
    wrong = ~(off <= AGREEMENT * (1.0 + np.abs(own)))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        how = f"it makes log H of some points {declared[at]:.6g} instead of {own[at]:.6g}"
        raise _disagreement(problem, how, name)


def _disagreement(problem: Problem, how: str, name: str = "statistic") -> CapabilityError:
    return CapabilityError(
        f"{name} of the {problem.model.family.name} family disagrees with its log_marginal:"
        f" {how}. A subclass with other functions needs its own `{name}`, or returns None"
    )


def _dense(points: Any) -> Any:
    return np.ascontiguousarray(points.toarray() if sp.issparse(points) else points)
