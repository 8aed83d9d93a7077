"""A fit in memory: choose the family, search, refine and certify; and the options of any fit."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpsearch._types import ArrayLike, Ints, Rng
from dpsearch._validate import n_threads
from dpsearch.automatic import (
    Choice,
    check_columns,
    choose,
    choose_weighted,
    codes_in_words,
    recognise_codes,
)
from dpsearch.deadline import OutOfTime, current
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.events import Callback, Event
from dpsearch.families.base import Family
from dpsearch.fitted import FittedState
from dpsearch.levels import LevelOptions, find_levels
from dpsearch.mixture import Mixture
from dpsearch.passes.memory import suits_passes
from dpsearch.passes.start import placed_by_sample
from dpsearch.prefix_search.ordering import as_permutation
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement import refine
from dpsearch.tables import CheckedTable, Schema, content_order
from dpsearch.weights import check_weights

if TYPE_CHECKING:
    from dpsearch.exact import Certificate

_CERTIFY_SECONDS = 60.0


class Refinement(NamedTuple):
    """How to refine the partition that search finds."""

    wanted: bool
    automatic: bool = False  # whether it is thorough for few rows only
    seconds: float | None = None  # None: until no move improves the partition

    @classmethod
    def of(cls, value: Any) -> Refinement:
        """Return the refinement for the estimator's `refine`."""
        if isinstance(value, str) and value == "auto":
            return _AUTOMATIC
        wanted, seconds = _flag_or_seconds(value, "refine", "'auto', True")
        return cls(wanted, seconds=seconds)


_MANY_ROWS, _MANY_NUMBERS = 1000, 50_000  # with more, refinement is not thorough by default
_AUTOMATIC = Refinement(True, automatic=True)
_AUTOMATIC_LEVEL = LevelOptions()


@dataclass(frozen=True)
class FitOptions:
    """How to fit: the estimator's parameters, checked."""

    family: Any
    prior: Prior
    rng: Rng
    beam_size: int = 1
    order: Any = "ascending"
    refinement: Refinement = _AUTOMATIC
    level: LevelOptions = _AUTOMATIC_LEVEL
    certify_seconds: float | None = None  # None: no certificate
    missing_codes: Any = "auto"
    n_jobs: int | None = None
    checkpoint: str | Path | None = None
    device: Any = None
    callback: Callback | None = None


def certify_seconds(value: Any) -> float | None:
    """Return the seconds for the estimator's `certify`; None without a certificate."""
    wanted, seconds = _flag_or_seconds(value, "certify", "True")
    return (_CERTIFY_SECONDS if seconds is None else seconds) if wanted else None


def _flag_or_seconds(value: Any, name: str, words: str) -> tuple[bool, float | None]:
    """Return whether a parameter requests a step, and its time limit if it is one."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value), None
    if not (isinstance(value, numbers.Real) and float(value) >= 0):
        raise ParameterError(f"{name} must be {words}, False or a number ≥ 0, got {value!r}")
    return True, float(value)


def fit_in_memory(
    table: CheckedTable,
    schema: Schema | None,
    options: FitOptions,
    sample_weight: ArrayLike | None = None,
) -> FittedState:
    """Fit a table in memory."""
    if options.checkpoint is not None:
        raise ParameterError.of(
            "checkpoint",
            "needs a table of at least 20,000 rows or in shards (n_shards), without weights, under"
            " a family that has a linear form",
        )
    table, codes = recognise_codes(table, options.family, schema, options.missing_codes)
    check_columns(table)
    words = codes_in_words(codes, schema, options.missing_codes)
    state = _fit_weighted(table, schema, options, sample_weight)
    return state._replace(codes=codes, reason=state.reason + words)


def _fit_weighted(
    table: CheckedTable, schema: Schema | None, options: FitOptions, sample_weight: ArrayLike | None
) -> FittedState:
    """Fit the rows that have a weight and a value; the others get the most probable label.

    A row without any value has no information, but as a point it would make its cluster larger.
    """
    n_rows = table.shape[0]
    weights = None if sample_weight is None else check_weights(sample_weight, n_rows)
    empty = table.empty_rows
    if weights is None and not empty.any():
        return _fit_rows(table, schema, options)
    times = np.where(empty, 0, np.ones(n_rows, np.int64) if weights is None else weights)
    seen, unseen = np.flatnonzero(times > 0), np.flatnonzero(times == 0)
    if not len(seen):
        raise DataError("no row of X with a weight above 0 has any value")
    others = table.rows(unseen) if len(unseen) else None
    with located(rows=seen):
        sizes = None if weights is None else times[seen]
        state = _fit_rows(table.rows(seen), schema, options, sizes, others)
    labels = np.empty(n_rows, np.int64)
    labels[seen] = state.clustering.labels
    if others is not None:
        labels[unseen] = state.mixture.memberships(others).components
    found = replace(state.clustering, labels=labels, weights=times)
    state = state._replace(clustering=found, weights=times)
    return state._replace(completed=state.with_unseen(state.completed, table))


def _fit_rows(
    table: CheckedTable,
    schema: Schema | None,
    options: FitOptions,
    sizes: Ints | None = None,
    others: CheckedTable | None = None,
) -> FittedState:
    """Fit rows that have a weight; `others` are those that do not.

    The rows are first put into an order that depends on their content alone, so that the result
    does not depend on the order in which they are given.
    """
    order = content_order(table, sizes)
    with located(rows=order):
        rows = table.rows(order)
        choice, problem = _problem(rows, schema, options, None if sizes is None else sizes[order])
    if others is not None:
        _check(others, choice.family, problem)
    if options.certify_seconds is not None:
        problem.require_points("certify")
    now = current()
    now.has_result = choice.labels is not None
    with now.during("searching", 0.5):
        found = first_partition(problem, options, _order_of_sorted(options.order, order), choice)
    now.has_result = True
    if options.refinement.wanted and problem.prior.product_form:
        with now.during("refining", 0.8):
            found = _refined(problem, found, options)
            if problem.n_items < problem.n_points <= _MANY_ROWS:
                found = _or_from_copies(problem, rows, found, options)
    found = replace(found, labels=_unsorted(found.labels, order))
    completed = None if choice.completed is None else _unsorted(choice.completed, order)
    certificate = None
    if options.certify_seconds is not None:
        rows = table if completed is None else CheckedTable(completed)
        as_given = Problem(rows, choice.family, options.prior)
        with now.during("certifying", 0.8), now.optional():
            certificate, found = _certified(as_given, found, options)
    labels = found.labels[order]
    mixture = Mixture.of(problem.model, problem.items, labels, problem.prior)
    with now.during("finding levels"):
        levels = find_levels(mixture, problem.items, labels, problem.model.matrix)
    state = FittedState(
        mixture, found, choice.reason, levels, schema, completed=completed,
        certificate=certificate,
    )  # fmt: skip
    return state.at_level(options.level)


def first_partition(
    problem: Problem, options: FitOptions, order: Any, choice: Choice
) -> Clustering:
    """Return the start of refinement: the result of search, or of the choice if that is better."""
    try:
        if choice.labels is not None:
            current().check()
        return choice.or_learned(problem, _first_found(problem, options, order))
    except OutOfTime:
        together = np.zeros(problem.n_items, np.int64)
        return problem.clustering(together if choice.labels is None else choice.labels)


def _first_found(problem: Problem, options: FitOptions, order: Any) -> Clustering:
    """Return the clusters of a sample if refinement makes passes, else the result of search."""
    plain = options.beam_size == 1 and isinstance(order, str) and order == "ascending"
    refined = options.refinement.wanted and problem.prior.product_form
    if plain and refined and suits_passes(problem, options.device):
        return placed_by_sample(problem, options.rng, n_threads(options.n_jobs))
    return search(
        problem, beam_size=options.beam_size, order=order, rng=options.rng,
        callback=options.callback,
    )  # fmt: skip


def _problem(
    table: CheckedTable, schema: Schema | None, options: FitOptions, sizes: Ints | None
) -> tuple[Choice, Problem]:
    """Choose the family; return the choice, and the rows under it."""
    if sizes is None:
        with current().during("choosing the family", 0.5):
            choice = choose(table, options.family, options.prior, schema)
        rows = table if choice.completed is None else CheckedTable(choice.completed)
        return choice, choice.problem or Problem(rows, choice.family, options.prior)
    with current().during("choosing the family", 0.5):
        choice = choose_weighted(table, sizes, options.family, options.prior, schema)
    return choice, Problem(table, choice.family, options.prior, weights=sizes)


def _check(table: CheckedTable, family: Family, problem: Problem) -> None:
    """Raise the errors about rows that take no part in the search before it begins."""
    table = table.rows(~table.empty_rows)
    if not table.shape[0]:
        return
    if table.gaps and not family.skips(table):
        table = table.rows(~np.isnan(table.matrix).any(axis=1))
    if table.shape[0]:
        problem.model.items(table)


def _order_of_sorted(order: Any, rows: Ints) -> Any:
    """Return an order of placing for rows that were sorted, from one given for unsorted rows."""
    if isinstance(order, str) and order != "given":
        return order
    places = np.argsort(rows)
    return places if isinstance(order, str) else places[as_permutation(order, len(rows))]


def _unsorted(values: Any, order: Ints) -> Any:
    """Return the values of rows that were sorted in the order of the rows as given."""
    out = np.empty_like(values)
    out[order] = values
    return out


def _refined(problem: Problem, found: Clustering, options: FitOptions) -> Clustering:
    how = options.refinement
    if (how.automatic and found.converged) or current().over:
        return found
    # For so few rows thorough refinement takes about as long as everything before it.
    small = problem.n_items <= _MANY_ROWS and len(problem.items.values) <= _MANY_NUMBERS
    result = refine(
        problem, found.labels, seconds=how.seconds, rng=options.rng, n_jobs=options.n_jobs,
        device=options.device, thorough=not how.automatic or small, callback=options.callback,
    )  # fmt: skip
    searched = found.seconds
    trace = [point._replace(seconds=point.seconds + searched) for point in result.trace]
    return replace(
        result,
        n_dequeued=found.n_dequeued,
        n_enqueued=found.n_enqueued,
        seconds=searched + result.seconds,
        trace=[*found.trace, *trace],
    )


def _or_from_copies(
    problem: Problem, rows: CheckedTable, found: Clustering, options: FitOptions
) -> Clustering:
    """Return a better partition of rows with weights, if clustering their copies leads to one.

    A heavy row is placed and moved as a whole, and so may stay where its copies would not.
    """
    sizes = problem.items.sizes
    copies = rows.rows(np.repeat(np.arange(problem.n_items), sizes))
    points = Problem(copies, problem.model.family, problem.prior)
    start = _refined(points, search(points, rng=options.rng), options)
    labels = np.unique(start.labels[np.cumsum(sizes) - sizes], return_inverse=True)[1]
    other = _refined(problem, replace(start, labels=labels, converged=False), options)
    return other if other.log_joint > found.log_joint else found


def _certified(
    problem: Problem, found: Clustering, options: FitOptions
) -> tuple[Certificate, Clustering]:
    from dpsearch.exact import certify  # here, since the import is slow

    assert options.certify_seconds is not None
    certificate = certify(
        problem,
        found,
        time_limit=min(options.certify_seconds, current().left),
        polish=not found.converged,
        n_jobs=options.n_jobs,
        callback=options.callback,
    )
    best = certificate.clustering
    seconds = found.seconds + certificate.seconds
    return certificate, replace(
        found,
        labels=best.labels,
        log_joint=best.log_joint,
        upper_bound=best.upper_bound,
        optimal=best.optimal,
        seconds=seconds,
        trace=[*found.trace, Event(seconds, best.log_joint, best.n_clusters, "certify")],
    )
