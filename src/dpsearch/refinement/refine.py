"""`dpsearch.refine`, and parts of it that fits use on their own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from dpsearch._threads import single_products
from dpsearch._types import ArrayLike, Labels
from dpsearch._validate import as_rng, n_threads
from dpsearch.deadline import OutOfTime, current
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Callback
from dpsearch.families.base import Family
from dpsearch.partition import by_appearance
from dpsearch.passes.history import History
from dpsearch.passes.search import BatchSearch
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem, as_problem, labels_of
from dpsearch.refinement.driver import OneByOne
from dpsearch.refinement.local import groups_of, repartition
from dpsearch.refinement.turns import Refinement


def refine(
    data: Problem | ArrayLike,
    start: Clustering | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    seconds: float | None = None,
    thorough: bool = True,
    tries: int | None = None,
    rng: Any = None,
    callback: Callback | None = None,
    n_jobs: int | None = None,
    device: str | None = None,
    keep_interrupted: bool = True,
) -> Clustering:
    """Improve a partition until no move improves it, or until the time is up.

    Parameters
    ----------
    data, family, prior
        As for `search`.  The prior must be of product form (not AntoniakCounts).
    start
        A clustering or labels.
    seconds
        Wall time to spend, besides that of compiling kernels.  None: until it has converged.
    thorough
        False leaves out the last phase, which takes most of the time and finds little; sweeps,
        splits and merges remain.
    tries
        How often to try to split a cluster in two.  None: once, or three times if not `thorough`.
    rng
        Seed or Generator.  The same seed gives the same result unless `seconds` ends the run.
    callback
        Called with an `Event` as the search goes on.
    n_jobs
        Threads; −1 for all cores.  The result does not depend on it.
    device
        Where passes over the rows are made: "cuda" for a GPU, None for threads of this process.
    keep_interrupted
        Whether Ctrl-C returns the best partition so far; False raises KeyboardInterrupt.

    Returns
    -------
    Clustering
        Its log joint is at least that of `start`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, priors, refine
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> refine(X, np.zeros(40), family, prior).n_clusters
    2
    """
    problem = as_problem(data, family, prior)
    labels = labels_of(start, problem)
    if not problem.prior.product_form:
        raise CapabilityError(f"refine needs a prior of product form; {problem.prior.name} is not")
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
        raise ParameterError(
            f"{{parameter}} must be a number ≥ 0 or None, got {seconds!r}", parameter="seconds"
        )
    refinement = Refinement(
        problem, labels, History(seconds, callback), as_rng(rng), n_threads(n_jobs)
    )
    try:
        with plain_interrupts(), single_products():
            refinement.run(thorough, tries, device=device)
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        current().interrupt()
        refinement.interrupted = True
    return refinement.result()


def refine_rows(
    problem: Problem,
    batch: BatchSearch,
    history: History,
    rng: np.random.Generator,
    *,
    n_threads: int,
    thorough: bool,
) -> tuple[Labels, bool]:
    """Improve the partition of a running batch search, by its passes and by moves of single rows.

    Return the labels, and whether no move improves them any more.
    """
    refinement = Refinement(problem, batch.rows.labels(), history, rng, n_threads)
    try:
        with plain_interrupts(), single_products():
            refinement.run(thorough, None, batch)
    except KeyboardInterrupt:
        current().interrupt()
        refinement.converged = False
    return by_appearance(refinement.state.labels), refinement.converged


def refine_first(problem: Problem, labels: Labels, *, rng: Any, n_jobs: int | None) -> Labels:
    """Improve a partition by the moves that gain most: sweeps, splits and merges."""
    history = History(None, None)
    refinement = Refinement(problem, labels, history, as_rng(rng), n_threads(n_jobs))
    with single_products():
        refinement.run(False, None, turns=False)
    return by_appearance(refinement.state.labels)


def split_problem(problem: Problem, labels: Labels, *, rng: Any, tries: int = 1) -> Labels:
    """Split clusters between seeds, with a sweep after each round, while that improves.

    If the time runs out, the splits made so far are kept.
    """
    refinement = OneByOne(problem, labels, History(None, None), as_rng(rng), 1)
    with suppress(OutOfTime):
        refinement.grow(tries)
    return by_appearance(refinement.state.labels)


def halved(problem: Problem, *, rng: Any) -> Labels:
    """Divide all items between two random seeds, and sweep, whether that improves or not."""
    beginning = np.array([(1, 2, 0, 0)])
    groups = groups_of([[np.arange(problem.n_items)]], beginning, np.array([-np.inf]), as_rng(rng))
    repartition(problem, groups, 1)
    return groups.labels
