"""Mean field for mixtures: passes over the rows and updates of the components, in turn.

With q(θ_k) the posterior given the expected size N_k and totals S_k, rows are shared by

    r_ik ∝ exp( E[log π_k] + E[log p(x_i | θ_k)] ),

one matrix product by the family's linear form (`families.linear`), and their shares give new
sizes and totals, another one.  The bound with these r is Σ_i log Σ_k exp(…) − KL, where the
divergence of q(θ_k) from its prior is ⟨w_k, S_k⟩ + c_k N_k − log H(N_k, S_k).

For any shares r, the best q has the value

    Σ_k log H(N_k, S_k) + log p(sticks) − Σ r log r  ≤  log p(x).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._arrays import to_host
from dpsearch._types import ArrayLike, Ints, Labels, Rng, Vector
from dpsearch._validate import as_rng, n_threads, whole
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Callback, Event
from dpsearch.families.base import Family
from dpsearch.families.capabilities import require
from dpsearch.families.linear import LinearForm
from dpsearch.mean_field import sticks as weighing
from dpsearch.mean_field.result import VariationalMixture, mixture_of
from dpsearch.mean_field.sticks import Sticks, Stuck
from dpsearch.passes.chunk import Soft, Totals
from dpsearch.passes.memory import rows_in_memory
from dpsearch.passes.rows import SoftRows
from dpsearch.prefix_search.search import search
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem, as_problem, labels_of

VARIANTS = ("stick-breaking", "collapsed")
_EMPTY = 1e-3  # expected rows below which a component is left out
_LOOKS = 12  # iterations after which a birth or a merge is taken or left
_PULL = 0.7  # how far a new component begins towards its seed from the mean of the old
_LEAST_TRIES = 12  # at births, however few components there are
_FAILURES = 2  # at dividing each component, after which there are no more births


class _Point(NamedTuple):
    """Where an iteration has come to."""

    totals: Totals  # of the shares, without the tail's
    tail: float  # expected rows in the tail
    objective: float  # what rises
    bound: float


def variational(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    variant: str = "stick-breaking",
    truncation: int = 50,
    tail: bool = False,
    order: int = 2,
    start: Any = "search",
    moves: bool = True,
    max_iter: int = 1000,
    tol: float = 1e-6,
    rng: Any = None,
    n_jobs: int | None = None,
    device: str | None = None,
    callback: Callback | None = None,
) -> VariationalMixture:
    """Fit a mixture by a variational lower bound on the evidence.

    Parameters
    ----------
    data, family, prior
        A `Problem`, or X with a family and a prior, as for `search`.  The family must have a
        linear form, the prior stick-breaking weights: DirichletProcess or PitmanYor.  With a Gamma
        prior on α, α has its own posterior.
    variant
        ``"stick-breaking"``: mean field with q(v) for the sticks (Blei & Jordan 2005).
        ``"collapsed"``: the sticks integrated out (Kurihara, Welling & Teh 2007).
    truncation
        The largest number of components that rows are shared between, at least 2.
    tail
        Whether rows may also belong to one of the infinitely many other components, which have
        their prior (Kurihara, Welling & Vlassis 2006); for a Dirichlet process with α fixed.
    order
        Of the expansion of the expected log prior, 1 or 2, for the collapsed variant.
    start
        ``"search"`` (default): greedy search; or labels, or a `Clustering`.
    moves
        Whether to try merges and births of components when the iteration has converged.
    max_iter, tol
        An iteration ends after so many passes, or when the bound rises by less than tol nats a row.
    rng
        Seed or Generator for the births.
    n_jobs
        Threads; −1 for all cores.  The result does not depend on it.
    device
        ``"cuda"``, or one of several GPUs as in ``"cuda:1"``, to make the passes over dense rows
        there.
    callback
        Called with an `Event` after each pass; its log joint is the bound.

    Returns
    -------
    VariationalMixture
        After Ctrl-C, as it is at that moment.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, priors, variational
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4, 1, (40, 1)), rng.normal(4, 1, (60, 1))])
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> found = variational(X, family, prior, truncation=10)
    >>> found.n_components
    2
    >>> found.predict([[-5.0], [5.0]])
    array([1, 0])
    """
    begun = time.perf_counter()
    problem = as_problem(data, family, prior)
    if variant not in VARIANTS:
        raise ParameterError(
            f"{{parameter}} must be one of {', '.join(VARIANTS)}, got {variant!r}",
            parameter="variant",
        )
    if order not in (1, 2):
        raise ParameterError(f"{{parameter}} must be 1 or 2, got {order!r}", parameter="order")
    most, passes = whole(truncation, "truncation", 2), whole(max_iter, "max_iter", 1)
    fit = _Fit(problem, most, as_rng(rng), begun, callback)
    fit.open(n_threads(n_jobs), device)
    fit.collapsed = order if variant == "collapsed" else 0
    if tail and (not fit.sticks.has_tail or fit.collapsed):
        raise ParameterError(
            "{parameter} needs the variant 'stick-breaking' and a Dirichlet process with α fixed",
            parameter="tail",
        )
    fit.with_tail, fit.least = tail, float(tol) * problem.n_items
    fit.begin(_first_labels(problem, start))
    converged = False
    try:
        with plain_interrupts():
            fit.iterate(passes)
            if moves:
                fit.grow(passes)
                fit.merge(passes)
            converged = len(fit.history) < passes
    except KeyboardInterrupt:
        if not fit.history:
            raise
    return fit.result(converged)


def _first_labels(problem: Problem, start: Any) -> Labels:
    if isinstance(start, str):
        if start != "search":
            raise ParameterError(
                f"{{parameter}} must be 'search' or labels, got {start!r}", parameter="start"
            )
        return search(problem, beam_size=1).labels
    return labels_of(start, problem)


class _Fit:
    """Rows, the components' totals, and the bound."""

    collapsed = 0  # the order of the expansion; 0: sticks are not integrated out
    with_tail = False
    least = 0.0

    def __init__(
        self,
        problem: Problem,
        most: int,
        rng: Rng,
        begun: float,
        callback: Callback | None,
    ) -> None:
        problem.require_points("variational")
        model = problem.model
        self.problem, self.most, self.rng = problem, most, rng
        self.form: LinearForm = require(
            model.family, "linear", model.n_features, needed_by="variational"
        )
        self.sticks = Sticks(problem.prior, most, "variational")
        self.begun, self.callback = begun, callback
        self.history: list[float] = []

    def open(self, n_threads: int, device: str | None) -> None:
        """Make the rows ready for passes."""
        matrix = self.problem.model.matrix
        if device is not None and sp.issparse(matrix):
            raise CapabilityError(
                "{parameter}: variational takes dense rows to a device, not sparse ones",
                parameter="device",
            )
        rows = rows_in_memory(self.form, matrix, n_threads, device)
        self.rows: SoftRows = rows  # type: ignore[assignment]

    def begin(self, labels: Labels) -> None:
        """Take each row to be in one component; the smallest beyond the truncation go together."""
        _, labels, counts = np.unique(labels, return_inverse=True, return_counts=True)
        rank = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
        self.rows.place(np.minimum(rank, self.most - 1)[labels])
        totals = self.rows.totals(min(len(counts), self.most))
        none = np.zeros(len(totals.sizes))
        self.q = self.sticks.fit(totals.sizes, 0.0)
        self.variances = (none, none)
        self.point = _Point(totals, 0.0, -np.inf, -np.inf)

    def passed(self, point: _Point, variances: tuple[Vector, Vector]) -> tuple[_Point, Any]:
        """Share the rows by what the totals say of components; return the new totals and bound."""
        totals, n = point.totals, len(point.totals.sizes)
        q = self.sticks.fit(totals.sizes, point.tail)
        weights, constants = self.form.weights(*totals)
        log_marginals = self.form.log_marginals(*totals)
        own = None
        if self.collapsed:
            steps = weighing.collapsed_weights(q, *variances, self.collapsed)
            own = weighing.own_share(q)
        else:
            steps = weighing.log_weights(q)
        scores, offsets = weights, constants + steps
        if self.with_tail:
            alone, constant = self.form.weights(np.zeros(1), np.zeros((1, self.form.n_totals)))
            beyond = constant + q.log_rest.sum() + self.sticks.log_tail()
            scores, offsets = np.vstack([weights, alone]), np.append(offsets, beyond)
        soft = self.rows.soften(scores, offsets, own)
        divergence = (weights * totals.sums).sum() + constants @ totals.sizes - log_marginals.sum()
        bound = soft.log_normaliser - divergence - q.divergence + self.problem.log_base
        after = Totals(soft.totals.sizes[:n], soft.totals.sums[:n])
        found = (
            after.sizes - soft.squares[:n],
            self._after(after.sizes) - soft.squares_after[:n],
        )
        objective = float(bound)
        if self.collapsed:
            bound = self._value(after, soft)
            objective = bound
            if self.collapsed == 2:
                now = self.sticks.fit(after.sizes, 0.0)
                objective += weighing.collapsed_gain(now, *found)
        tail = float(soft.totals.sizes[n:].sum())
        return _Point(after, tail, float(objective), float(bound)), found

    @staticmethod
    def _after(sizes: Vector) -> Vector:
        return np.append(np.cumsum(sizes[::-1])[::-1][1:], 0.0)

    def _value(self, totals: Totals, soft: Soft) -> float:
        """The bound of these shares, with the best q for them."""
        q = self.sticks.fit(totals.sizes, 0.0)
        inside = totals.sizes @ q.log_v + self._after(totals.sizes) @ q.log_rest
        value = self.form.log_marginals(*totals).sum() + inside - q.divergence + soft.entropy
        return float(value + self.problem.log_base)

    def step(self, point: _Point, variances: Any) -> tuple[_Point, Any]:
        """One pass, after which components are in order of size and empty ones are gone."""
        found, variances = self.passed(point, variances)
        order = np.argsort(-found.totals.sizes, kind="stable")
        order = order[found.totals.sizes[order] > _EMPTY]
        if len(order) == len(found.totals.sizes) and (np.diff(order) == 1).all():
            return found, variances
        variances = (variances[0][order], self._after(variances[0][order]))
        return found._replace(totals=found.totals.take(order)), variances

    def iterate(self, passes: int) -> None:
        """Go on until the objective no longer rises."""
        while len(self.history) < passes:
            point, variances = self.step(self.point, self.variances)
            gain = point.objective - self.point.objective
            if gain < 0.0 and self.history:
                return  # the collapsed variants need not rise for ever
            self._take(point, variances)
            if gain <= self.least:
                return

    def _take(self, point: _Point, variances: Any) -> None:
        self.point, self.variances = point, variances
        self.history.append(point.objective)
        if self.callback is not None:
            seconds = time.perf_counter() - self.begun
            n, done = len(point.totals.sizes), len(self.history)
            self.callback(Event(seconds, point.bound, n, "variational", done))

    def tried(self, totals: Totals, passes: int) -> bool:
        """Go on from other totals for some passes; keep that if the objective is higher then."""
        none = np.zeros(len(totals.sizes))
        point, variances = _Point(totals, self.point.tail, -np.inf, -np.inf), (none, none)
        for _ in range(_LOOKS):
            point, variances = self.step(point, variances)
            if point.objective > self.point.objective + self.least:
                self._take(point, variances)
                self.iterate(passes)
                return True
        return False

    def merge(self, passes: int) -> None:
        """Try to merge components, the most promising pair first, until one does not help."""
        while len(self.history) < passes and len(self.point.totals.sizes) > 1:
            totals = self.point.totals
            k, other = self._best_pair(totals)
            kept = np.delete(np.arange(len(totals.sizes)), other)
            sums, sizes = totals.sums.copy(), totals.sizes.copy()
            sums[k] += sums[other]
            sizes[k] += sizes[other]
            if not self.tried(Totals(sizes[kept], sums[kept]), passes):
                return

    def _best_pair(self, totals: Totals) -> Ints:
        """The pair whose merge costs the least of log H for each row that it concerns."""
        values = self.form.log_marginals(*totals)
        best, pair = -np.inf, np.array([0, 1])
        for k in range(len(values) - 1):
            sizes = totals.sizes[k] + totals.sizes[k + 1 :]
            both = self.form.log_marginals(sizes, totals.sums[k] + totals.sums[k + 1 :])
            gains = (both - values[k] - values[k + 1 :]) / sizes
            if gains.max() > best:
                best, pair = gains.max(), np.array([k, k + 1 + int(gains.argmax())])
        return pair

    def grow(self, passes: int) -> None:
        """Divide components between two of their rows: all at once while that helps, then each."""
        while self.divided(np.arange(len(self.point.totals.sizes)), passes):
            pass
        failures = at = 0
        while failures < max(_LEAST_TRIES, _FAILURES * len(self.point.totals.sizes)):
            n = len(self.point.totals.sizes)
            if len(self.history) >= passes or n == self.most:
                return
            taken = self.divided(np.array([at % n]), passes)
            failures, at = (0, at) if taken else (failures + 1, at + 1)

    def divided(self, which: Ints, passes: int) -> bool:
        """Try to divide components, the largest if there is not room for all."""
        totals = self.point.totals
        n = len(totals.sizes)
        which = which[: self.most - n]
        if len(self.history) >= passes or len(which) == 0:
            return False
        self.passed(self.point, self.variances)  # labels are those of these components
        counts = np.zeros(self.most + 1, np.int64)
        counts[which] = 2
        seeds = self.rows.draw(counts, int(self.rng.integers(2**31)))
        owners, found = np.unique(seeds.clusters, return_counts=True)
        owners = owners[found == 2]
        inside = np.isin(seeds.clusters, owners)
        old = seeds.clusters[inside]
        means, halves = (totals.sums / totals.sizes[:, None])[old], 0.5 * totals.sizes[old]
        parts = halves[:, None] * ((1.0 - _PULL) * means + _PULL * seeds.features[inside])
        rest = np.setdiff1d(np.arange(n), owners)
        sizes = np.concatenate([halves, totals.sizes[rest]])
        return self.tried(Totals(sizes, np.concatenate([parts, totals.sums[rest]])), passes)

    def result(self, converged: bool) -> VariationalMixture:
        totals, tail = self.point.totals, self.point.tail
        q: Stuck = self.sticks.fit(totals.sizes, tail)
        weights, rest = weighing.mean_weights(q)
        self.passed(self.point, self.variances)
        labels = np.asarray(to_host(self.rows.labels()))
        return VariationalMixture(
            lower_bound=self.point.bound,
            history=np.array(self.history),
            sizes=totals.sizes,
            weights=weights,
            alpha=q.alpha,
            clustering=self.problem.clustering(labels),
            converged=converged,
            seconds=time.perf_counter() - self.begun,
            _mixture=mixture_of(self.problem, self.form, totals, weights, rest),
        )
