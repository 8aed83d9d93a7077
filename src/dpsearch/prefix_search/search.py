"""`dpsearch.search`: choose an order and a score, and run best-first or beam search."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import ArrayLike, Ints
from dpsearch._validate import as_rng
from dpsearch.errors import CapabilityError, ParameterError
from dpsearch.events import Callback, Event
from dpsearch.exact.assumptions import at_least, rounding_error
from dpsearch.families.base import Family
from dpsearch.prefix_search.beam import beam
from dpsearch.prefix_search.best_first import best_first
from dpsearch.prefix_search.greedy import greedy_state
from dpsearch.prefix_search.heuristics import Heuristic, admissible, inadmissible, replica, trivial
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem, as_problem


def dual(problem: Problem, order: Ints) -> Heuristic:
    """Return the heuristic by prices of points; importing what it needs takes a while."""
    from dpsearch.exact.dual import dual

    return dual(problem, order)


METHODS = ("auto", "beam", "best-first")
HEURISTICS = {
    "inadmissible": inadmissible,
    "admissible": admissible,
    "dual": dual,
    "trivial": trivial,
    "replica": replica,
}


def search(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    heuristic: str = "inadmissible",
    beam_size: int | None = 10,
    order: Any = "ascending",
    method: str = "auto",
    max_states: int | None = None,
    rng: Any = None,
    callback: Callback | None = None,
) -> Clustering:
    """Find a partition of high log joint by search over clusterings of prefixes of the data.

    Parameters
    ----------
    data
        A `Problem`; or X, an array, a pandas or polars frame, or a sparse matrix where the family
        takes one.
    family, prior
        Beside X: one of `dpsearch.families`, one of `dpsearch.priors`.
    heuristic
        ``"inadmissible"`` (default), ``"admissible"``, ``"dual"``, ``"trivial"`` or
        ``"replica"``; see `dpsearch.prefix_search.heuristics`.  ``"dual"`` first finds prices
        for the points, which takes about as long as `dpsearch.certify`, and nearly all the time.
    beam_size
        Number of hypotheses kept, or the cap on the queue of a best-first search.  None: no cap,
        which with ``"admissible"``, ``"dual"`` or ``"trivial"`` proves the result optimal, in a
        time that grows exponentially with the number of points.
    order
        ``"ascending"`` marginal likelihood (default), ``"descending"``, ``"random"``,
        ``"given"``, or a permutation of the rows.
    method
        ``"beam"``: all hypotheses place the same item at the same time; fast, for the
        inadmissible score.  ``"best-first"``: the paper's Figure 1.  ``"auto"``: beam where it
        applies.
    max_states
        A best-first search stops after this many states and completes the best one greedily.
    rng
        Seed or Generator for the random order.
    callback
        Called with an `Event` from time to time.

    Returns
    -------
    Clustering

    Examples
    --------
    >>> from dpsearch import families, priors, search
    >>> X = [[0.0], [0.2], [9.0], [9.1]]
    >>> family = families.Gaussian(prior_variance=25.0, noise_variance=1.0)
    >>> result = search(X, family, priors.DirichletProcess(1.0))
    >>> result.labels
    array([0, 0, 1, 1])
    """
    begun = clock()
    _check(heuristic, beam_size, method, max_states)
    problem = as_problem(data, family, prior)
    if problem.tables.multiplicity:
        problem.require_points(type(problem.prior).__name__)
        if problem.prior.completion_rule() is None:
            wanted = "search needs a prior of product form, or one with a completion_rule"
            raise CapabilityError(f"{wanted}: {problem.prior.name} has neither")
    placing = placing_order(problem, order, as_rng(rng))
    simple = heuristic == "inadmissible" and beam_size is not None and max_states is None
    if method == "beam" and not simple:
        raise ParameterError(
            "method 'beam' takes the heuristic 'inadmissible', a finite beam_size and no"
            " max_states; use method 'best-first'"
        )
    if beam_size is not None and simple and method != "best-first":
        result = _beam(problem, placing, beam_size, callback)
    else:
        result = _best_first(problem, placing, heuristic, beam_size, max_states, callback)
    seconds = clock() - begun
    trace = [Event(seconds, result.log_joint, result.n_clusters, "search")]
    return replace(result, seconds=seconds, trace=trace)


def _beam(problem: Problem, placing: Ints, beam_size: int, callback: Callback | None) -> Clustering:
    if beam_size > 1 or problem.tables.multiplicity:
        labels, dequeued, enqueued = beam(problem, placing, beam_size, callback)
        return problem.clustering(labels, n_dequeued=dequeued, n_enqueued=enqueued)
    state = greedy_state(problem, placing, callback)
    # The last digits depend on the order of adding; `log_joint` adds in the order of the data.
    rows = state.rows if (placing[1:] > placing[:-1]).all() else None
    # Each item was tried in every cluster that was open then, and in a new one.
    newest = np.maximum.accumulate(state.labels[placing])
    enqueued = 2 * problem.n_items - 1 + int(newest[:-1].sum())
    return problem.clustering(state.labels, rows, n_dequeued=problem.n_items, n_enqueued=enqueued)


def _best_first(
    problem: Problem,
    placing: Ints,
    heuristic: str,
    queue_size: int | None,
    max_states: int | None,
    callback: Callback | None,
) -> Clustering:
    outcome = best_first(
        problem,
        placing,
        HEURISTICS[heuristic](problem, placing),
        queue_size=queue_size,
        max_states=max_states,
        callback=callback,
    )
    counts: dict[str, Any] = {"n_dequeued": outcome.n_dequeued, "n_enqueued": outcome.n_enqueued}
    proves = heuristic in ("admissible", "dual", "trivial") and queue_size is None
    if not (proves and problem.prior.product_form):
        return problem.clustering(outcome.labels, **counts)
    result = problem.clustering(outcome.labels, optimal=outcome.complete, **counts)
    spent = float(np.abs(problem.alone).sum()) + abs(result.log_joint)
    slack = rounding_error(problem.n_items, spent)
    upper = at_least(result.log_joint, outcome.score + problem.log_base, slack)
    return replace(result, upper_bound=upper)


def _check(heuristic: str, beam_size: int | None, method: str, max_states: int | None) -> None:
    if heuristic not in HEURISTICS:
        raise ParameterError(f"unknown heuristic {heuristic!r}: known are {', '.join(HEURISTICS)}")
    if method not in METHODS:
        raise ParameterError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    for name, value in (("beam_size", beam_size), ("max_states", max_states)):
        integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and (not integer or value < 1):
            raise ParameterError(f"{name} must be an integer ≥ 1 or None, got {value!r}")
