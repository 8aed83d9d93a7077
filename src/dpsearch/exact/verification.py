"""Verification of a certificate: all that it states is computed again.

A certificate may come from a file that anyone wrote, so nothing in it is trusted.  The log joint
and the bound of every range are computed again from the data, the partition and the prices alone,
without the cuts and the search that led to the prices, and all other fields must agree with them.

Rounding is allowed for on one side only.  A bound is stated with twice the allowance that its proof
needs (see `dynamic_programme` and `proof.total`), and proved again with the allowance once; the
result must not exceed the stated bound at all.  The log joint of the partition is a sum of N or
more terms in an order that compilers choose; rounding errors of either sign make it differ between
machines by about √N units in the last place (Higham and Mary 2019), so 8√N of them are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dpsearch._types import Ints, Labels, Vector
from dpsearch.exact.assumptions import EPSILON, magnitude_of, require_points, statistic_of
from dpsearch.exact.dynamic_programme import verify_potentials
from dpsearch.exact.interval_arithmetic import ExactSets
from dpsearch.exact.master import best_partition, error_of
from dpsearch.exact.proof import (
    FOREVER,
    PROVED,
    Bounded,
    all_loose_prices,
    confirming_threshold,
    pricer_of,
    total,
)
from dpsearch.families.statistics import Statistic
from dpsearch.problem import Clustering, Problem

_MOST_SETS = 200_000  # ten times as many as a proof lists
_LEAST = 4.0  # times the pricer's rounding: the smallest threshold that can be confirmed


@dataclass(frozen=True)
class Claims:
    """The statements of a certificate; see `Certificate`."""

    upper_bound: float
    lower_bound: float
    gap: float
    optimal: bool
    clustering: Clustering
    tolerance: float
    method: str
    seconds: float
    prices: tuple[Bounded, ...] = field(repr=False)
    order: Ints | None = field(repr=False)
    problem: Problem = field(repr=False)


def is_proved(certificate: Claims) -> bool:
    """Whether all that a certificate states follows from its data, partition and prices."""
    try:
        with np.errstate(all="ignore"):
            return _is_proved(certificate)
    except Exception:  # a certificate that cannot even be evaluated proves nothing
        return False


def _is_proved(certificate: Claims) -> bool:
    given = certificate.problem
    require_points(given, "a certificate")
    problem = Problem(given.model.matrix, given.model.family, given.prior)
    labels = certificate.clustering.labels
    if not (_is_partition(labels, problem.n_items) and _agrees(certificate)):
        return False
    statistic = statistic_of(problem, labels)
    if not _is_value(problem, statistic, labels, certificate.lower_bound):
        return False
    entries = certificate.prices
    n_prices = problem.n_items + (certificate.order is not None)
    if not _are_complete(problem, entries, n_prices):
        return False
    loosest = max(entries, key=lambda entry: entry.upper)
    if loosest.upper > certificate.upper_bound or loosest.kind != certificate.method:
        return False
    if certificate.order is not None:
        return _on_line(problem, statistic, certificate.order, entries)
    return all(_proves(problem, statistic, entry) for entry in entries)


def is_proved_exactly(certificate: Claims) -> bool:
    """Whether the bound holds in interval arithmetic, and the log joint up to its rounding.

    Errors of `ExactSets` are raised if that cannot be done.
    """
    if not is_proved(certificate):
        return False
    given, labels = certificate.problem, certificate.clustering.labels
    problem = Problem(given.model.matrix, given.model.family, given.prior)
    sets, stated = ExactSets(problem), certificate.lower_bound
    within = _rounding_of_value(problem, statistic_of(problem, labels), stated)
    if not all(abs(end - Fraction(stated)) <= within for end in sets.value_within(labels)):
        return False
    return sets.prove(certificate.prices, certificate.order)


def _is_partition(labels: Any, n: int) -> bool:
    """Whether labels are an array that numbers clusters by decreasing size, without gaps."""
    if not _is_array(labels, "i", n) or labels.min() < 0 or labels.max() >= n:
        return False
    sizes = np.bincount(labels)
    return bool((sizes > 0).all() and (np.diff(sizes) <= 0).all())


def _agrees(certificate: Claims) -> bool:
    """Whether the figures agree with each other, and those of the clustering with them."""
    c, found = certificate, certificate.clustering
    upper, lower = c.upper_bound, c.lower_bound
    figures = [upper, lower, c.gap, c.tolerance, c.seconds]
    figures += [found.log_joint, found.upper_bound, found.seconds]
    flags = [c.optimal, found.optimal, found.converged]
    if not all(map(_is_number, figures)) or not all(isinstance(flag, bool) for flag in flags):
        return False
    # The clustering must be exactly what `certify` makes of the labels and these figures.
    same = Clustering(found.labels, lower, upper_bound=upper, optimal=c.optimal, seconds=c.seconds)
    return (
        lower <= upper
        and c.gap == upper - lower
        and c.tolerance >= 0.0
        and c.seconds >= 0.0
        and c.optimal == (c.gap <= c.tolerance)
        and vars(found) == vars(same)
    )


def _is_value(problem: Problem, statistic: Statistic | None, labels: Labels, stated: float) -> bool:
    """Whether the log joint of the labels is the stated one, up to rounding."""
    value = problem.log_joint(np.ascontiguousarray(labels, dtype=np.int64))
    return abs(value - stated) <= _rounding_of_value(problem, statistic, value)


def _rounding_of_value(problem: Problem, statistic: Statistic | None, value: float) -> float:
    rounding = 8.0 * EPSILON * math.sqrt(problem.n_items + 64)
    return rounding * (magnitude_of(problem, statistic, value) + 1.0)


def _are_complete(problem: Problem, entries: Any, n_prices: int) -> bool:
    """Whether entries have the form of a proof, for every number of clusters."""
    if not isinstance(entries, tuple):
        return False
    covered = np.zeros(len(problem.log_v), bool)
    for entry in entries:
        if not isinstance(entry, Bounded) or not _are_triples(entry.triples, problem.n_items):
            return False
        if not _is_array(entry.y, "f", n_prices + len(entry.triples)):
            return False
        if not (entry.y[n_prices:] >= 0.0).all():
            return False
        whole = all(isinstance(k, (int, np.integer)) for k in (entry.low, entry.high))
        if not whole or not all(map(_is_number, (entry.lam, entry.slack, entry.upper))):
            return False
        if not (1 <= entry.low <= entry.high < len(covered) and np.isfinite(entry.y).all()):
            return False
        covered[entry.low : entry.high + 1] = True
    return bool(covered[1:].all())


def _are_triples(triples: Any, n: int) -> bool:
    """Whether these are rows of three points, in increasing order."""
    if not (isinstance(triples, np.ndarray) and triples.dtype == "i8" and triples.ndim == 2):
        return False
    inside = ((triples >= 0) & (triples < n)).all() and (np.diff(triples, axis=1) > 0).all()
    return triples.shape[1] == 3 and bool(inside)


def _is_array(values: Any, kind: str, n: int) -> bool:
    """Whether these are n integers or floats of 64 bits."""
    return isinstance(values, np.ndarray) and values.dtype == f"{kind}8" and values.shape == (n,)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and math.isfinite(value)


def _on_line(
    problem: Problem, statistic: Statistic | None, order: Any, entries: Sequence[Bounded]
) -> bool:
    """Whether potentials prove the bound of every entry."""
    if not _is_array(order, "i", problem.n_items):
        return False
    if any(entry.kind != "line" or entry.slack != 0.0 for entry in entries):
        return False
    proved = verify_potentials(problem, statistic, order, entries)
    return all(bound <= entry.upper for bound, entry in zip(proved, entries, strict=True))


def _proves(problem: Problem, statistic: Statistic | None, entry: Bounded) -> bool:
    """Whether the prices of one range prove the bound that it states."""
    if entry.kind == "ceiling":
        return _pays(problem, entry, all_loose_prices(problem, entry.lam))
    pricer = pricer_of(problem, statistic, entry)
    if pricer is None:
        return False
    if entry.kind == "quick":
        return _pays(problem, entry, [pricer.quick()])
    rounding = pricer.rounding(entry.y)
    threshold = confirming_threshold(entry.slack, rounding)
    if entry.kind not in ("prices", "sets") or threshold < _LEAST * rounding:
        return False
    # The first set above the threshold is enough to refute the slack.
    priced = pricer.price(entry.y, threshold=threshold, max_columns=1, limit=0.0)
    if not (priced.complete and priced.bound <= entry.slack):
        return False
    upper = total(problem, entry, entry.y, entry.slack, PROVED)
    if entry.kind == "prices" or upper <= entry.upper:
        return upper <= entry.upper
    columns = pricer.columns_within(entry.y, upper - entry.upper, limit=_MOST_SETS)
    if columns is None:
        return False
    _, bound = best_partition(pricer, entry.y, columns, entry.low, entry.high, FOREVER)
    return bound + error_of(pricer, entry.y) <= entry.upper


def _pays(problem: Problem, entry: Bounded, enough: Sequence[Vector | None]) -> bool:
    """Whether prices prove the bound because they are nowhere below some that pay for every set.

    Where rounding makes them lower, the difference is added to the bound.
    """
    upper = total(problem, entry, entry.y, 0.0, PROVED)
    for least in enough:
        if least is not None and entry.slack == 0.0:
            lacking = float(np.maximum(least - entry.y, 0.0).sum())
            rounding = PROVED * float(np.abs(entry.y).sum())
            if lacking <= rounding and upper + lacking <= entry.upper:
                return True
    return False
