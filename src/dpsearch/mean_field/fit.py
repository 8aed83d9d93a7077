"""Mean-field inference for mixtures: alternating updates of responsibilities and components.

With q(θ_k) the posterior given the expected size N_k and totals S_k, the responsibilities are

    r_ik ∝ exp( E[log π_k] + E[log p(x_i | θ_k)] ),

one matrix product by the family's linear form (`families.linear`); another one gives new sizes and
totals from them.  The bound with these r is Σ_i log Σ_k exp(…) − KL, where the divergence of q(θ_k)
from its prior is ⟨w_k, S_k⟩ + c_k N_k − log H(N_k, S_k).

For any responsibilities r, the best q has the value

    Σ_k log H(N_k, S_k) + log p(sticks) − Σ r log r  ≤  log p(x).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import ArrayLike, Ints, Rng, Vector
from dpsearch._validate import as_rng, n_threads, positive, whole
from dpsearch.errors import ParameterError, located, plain_interrupts
from dpsearch.events import Callback, Event
from dpsearch.families.base import Family
from dpsearch.mean_field import sticks as weighing
from dpsearch.mean_field.births import rows_to_draw, split_rows
from dpsearch.mean_field.cells import InCells
from dpsearch.mean_field.result import VariationalMixture, mixture_of
from dpsearch.mean_field.sticks import StickPosterior, Sticks
from dpsearch.mean_field.tables import InMemory, InShards, Table
from dpsearch.passes.chunk import Soft, Totals
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem, as_problem
from dpsearch.sources.opened import TableOptions, is_external, open_table

VARIANTS = ("stick-breaking", "collapsed")
_EMPTY = 1e-3  # expected rows below which a component is dropped
_LOOKS = 12  # iterations after which a birth or a merge is accepted or rejected
_OLD = 0.5  # pseudo-rows with the old component's mean in each component that a birth begins
_LEAST_TRIES = 12  # least number of failed births before the next step
_FAILURES = 2  # failed births per component before the next step


class _Point(NamedTuple):
    """The result of an iteration."""

    totals: Totals  # by responsibilities, without the tail's
    tail: float  # expected rows in the tail
    objective: float  # what the iterations increase: the bound or an estimate of it
    bound: float


def variational(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    variant: str = "stick-breaking",
    truncation: int = 50,
    tail: bool = False,
    order: int | None = None,
    start: Any = "search",
    moves: bool = True,
    cells: int | None = None,
    max_iter: int = 1000,
    tol: float = 1e-6,
    rng: Any = None,
    n_jobs: int | None = None,
    n_shards: int | None = None,
    device: str | None = None,
    callback: Callback | None = None,
) -> VariationalMixture:
    """Fit a mixture by a variational lower bound on the evidence.

    Parameters
    ----------
    data, family, prior
        A `Problem`, or X with a family of linear form and a prior with stick-breaking weights:
        DirichletProcess or PitmanYor.  α with a Gamma prior has its own posterior.  X may also be
        the path of a file, batches, or one of Dask's collections, as for `DPMixture.fit`.
    variant
        ``"stick-breaking"``: mean field with q(v) for the sticks (Blei & Jordan 2005).
        ``"collapsed"``: the sticks integrated out (Kurihara, Welling & Teh 2007).
    truncation
        The largest number of components that rows are shared between, at least 2.
    tail
        Whether rows may also belong to one of the infinitely many other components, which have
        their prior (Kurihara, Welling & Vlassis 2006); for a Dirichlet process with α fixed.
    order
        Of the expansion of the expected log prior, 1 or 2 (default), for the collapsed variant.
    start
        ``"search"`` (default): greedy search; or labels, or a `Clustering`.
    moves
        Whether to try merges and births of components when the iteration has converged.
    cells
        If given, rows in memory share responsibilities in at most so many cells of a tree.
    max_iter, tol
        An iteration ends after so many passes (of the same cells), or when the bound rises by less
        than tol nats a row.
    rng, n_jobs, n_shards, device, callback
        As for `DPMixture`: births are random; an event's log joint is the bound.

    Ctrl-C returns the mixture as it is at that moment.

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
    how = _How(
        clock(), _expansion(variant, order), whole(truncation, "truncation", 2), tail, start, moves,
        None if cells is None else whole(cells, "cells", 1), whole(max_iter, "max_iter", 1),
        positive(tol, "tol"), as_rng(rng), n_threads(n_jobs), device, callback,
    )  # fmt: skip
    if cells is not None and device is not None:
        raise ParameterError.of("cells", "needs the rows in memory, not on a device")
    if isinstance(data, Problem):
        if n_shards is not None:
            raise ParameterError.of("n_shards", "needs data, not a Problem")
    elif n_shards is not None or is_external(data):
        return _fitted_where_it_lies(data, family, prior, n_shards, how)
    return _fitted(_in_memory(as_problem(data, family, prior), how), how)


def _expansion(variant: str, order: int | None) -> int:
    """Return the order of the expansion of the expected log prior; 0 without collapsing."""
    if variant not in VARIANTS:
        raise ParameterError.must("variant", f"be one of {', '.join(VARIANTS)}", variant)
    if order not in (None, 1, 2):
        raise ParameterError.must("order", "be 1 or 2", order)
    if variant == "collapsed":
        return order or 2
    if order is not None:
        raise ParameterError.of("order", "needs the variant 'collapsed'")
    return 0


def _fitted_where_it_lies(
    data: Any, family: Family | None, prior: Prior | None, n_shards: int | None, how: _How
) -> VariationalMixture:
    """Fit a file, batches or one of Dask's collections."""
    if not isinstance(family, Family) or not isinstance(prior, Prior):
        raise ParameterError("data that are not a Problem need a family and a prior")
    # A given family is for the columns as they are.
    options = TableOptions(n_shards, family.takes_gaps, keep=True, cycles=False, codes=False,
                           n_threads=how.threads)  # fmt: skip
    with open_table(data, options) as opened, located(columns=opened.names):
        if opened.in_memory:
            return _fitted(_in_memory(Problem(opened.load(), family, prior), how), how)
        given = {
            "start": not isinstance(how.start, str), "device": how.device, "cells": how.cells
        }  # fmt: skip
        for name in filter(given.get, given):
            raise ParameterError.of(name, "needs the rows in memory")
        return _fitted(InShards(opened, family, prior, how.threads, how.rng), how)


class _How(NamedTuple):
    """The parameters of `variational`, checked."""

    begun: float
    collapsed: int  # the order of the expansion; 0 if sticks are not integrated out
    most: int
    tail: bool
    start: Any
    moves: bool
    cells: int | None
    passes: int
    tol: float
    rng: Rng
    threads: int
    device: str | None
    callback: Callback | None


def _in_memory(problem: Problem, how: _How) -> Table:
    if how.cells is None:
        return InMemory(problem, how.start, how.threads, how.device)
    return InCells(problem, how.start, how.threads, how.cells)


def _fitted(table: Table, how: _How) -> VariationalMixture:
    """Iterate until nothing improves the bound any more, or Ctrl-C."""
    fit = _Fit(table, how)
    if how.tail and (not fit.sticks.has_tail or how.collapsed):
        raise ParameterError.of(
            "tail", "needs the variant 'stick-breaking' and a Dirichlet process with α fixed"
        )
    fit.begin()
    try:
        with plain_interrupts():
            most = how.passes
            fit.improve(most, how.moves)
            while fit.table.refine():
                most = len(fit.history) + how.passes  # the limit is for the same cells
                fit.improve(most, how.moves)
            return fit.result(converged=len(fit.history) < most)
    except KeyboardInterrupt:
        if not fit.history:
            raise
    return fit.result(converged=False)


class _Fit:
    """The state of a fit: rows, the components' totals, and the bound."""

    def __init__(self, table: Table, how: _How) -> None:
        self.table, self.form, self.rows = table, table.form, table.rows
        self.most, self.rng, self.begun, self.callback = how.most, how.rng, how.begun, how.callback
        self.collapsed, self.with_tail = how.collapsed, how.tail
        self.least = how.tol * table.rows.n_rows
        self.sticks = Sticks(table.prior, how.most, "variational")
        self.history: list[float] = []
        self.nearest: tuple[_Point, Any] | None = None  # best rejected birth that was still rising

    def begin(self) -> None:
        """Start from the components that the table suggests, at most `most`."""
        totals = self.table.begin(self.most)
        none = np.zeros(len(totals.sizes))
        self.q = self.sticks.fit(totals.sizes, 0.0)
        self.variances = (none, none)
        self.point = _Point(totals, 0.0, -np.inf, -np.inf)

    def update(self, point: _Point, variances: tuple[Vector, Vector]) -> tuple[_Point, Any]:
        """Update responsibilities given the totals; return the new totals, bound and variances."""
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
        bound = soft.log_normaliser - divergence - q.divergence + self.table.log_base
        after = Totals(soft.totals.sizes[:n], soft.totals.sums[:n])
        found = (
            after.sizes - soft.squares[:n],
            weighing.after(after.sizes) - soft.squares_after[:n],
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

    def _value(self, totals: Totals, soft: Soft) -> float:
        """Return the bound for these responsibilities and the best q given them."""
        q = self.sticks.fit(totals.sizes, 0.0)
        inside = totals.sizes @ q.log_v + weighing.after(totals.sizes) @ q.log_rest
        value = self.form.log_marginals(*totals).sum() + inside - q.divergence + soft.entropy
        return float(value + self.table.log_base)

    def step(self, point: _Point, variances: Any) -> tuple[_Point, Any]:
        """Make one pass; return components by decreasing size, without empty ones."""
        found, variances = self.update(point, variances)
        order = np.argsort(-found.totals.sizes, kind="stable")
        order = order[found.totals.sizes[order] > _EMPTY]
        if len(order) == len(found.totals.sizes) and (np.diff(order) == 1).all():
            return found, variances
        variances = (variances[0][order], weighing.after(variances[0][order]))
        return found._replace(totals=found.totals.take(order)), variances

    def improve(self, passes: int, moves: bool) -> None:
        """Iterate, and try births and merges of components."""
        self.iterate(passes)
        if moves:
            self.grow(passes)
            self.merge(passes)

    def iterate(self, passes: int) -> None:
        """Iterate until the objective no longer rises."""
        while len(self.history) < passes:
            point, variances = self.step(self.point, self.variances)
            gain = point.objective - self.point.objective
            if gain < 0.0 and self.history:
                return  # iterations of the collapsed variants need not always increase it
            self._take(point, variances)
            if gain <= self.least:
                return

    def _take(self, point: _Point, variances: Any) -> None:
        self.point, self.variances = point, variances
        self.history.append(point.objective)
        if self.callback is not None:
            seconds = clock() - self.begun
            n, done = len(point.totals.sizes), len(self.history)
            self.callback(Event(seconds, point.bound, n, "variational", done))

    def try_totals(self, totals: Totals, passes: int) -> bool:
        """Iterate from other totals for some passes; accept them if the objective gets higher."""
        none = np.zeros(len(totals.sizes))
        point = _Point(totals, self.point.tail, -np.inf, -np.inf)
        return self.follow(point, (none, none), _LOOKS, passes)

    def follow(self, point: _Point, variances: Any, looks: int, passes: int) -> bool:
        """Iterate from another point while it rises; accept it once it is above the present one."""
        for look in range(looks):
            before = point.objective
            point, variances = self.step(point, variances)
            if point.objective > self.point.objective + self.least:
                self._take(point, variances)
                self.nearest = None
                self.iterate(passes)
                return True
            if look >= _LOOKS and point.objective <= before + self.least:
                return False
        if self.nearest is None or point.objective > self.nearest[0].objective:
            self.nearest = point, variances
        return False

    def merge(self, passes: int) -> None:
        """Try to merge components, the most promising pair first, until a merge fails."""
        while len(self.history) < passes and len(self.point.totals.sizes) > 1:
            totals = self.point.totals
            k, other = self._best_pair(totals)
            kept = np.delete(np.arange(len(totals.sizes)), other)
            sums, sizes = totals.sums.copy(), totals.sizes.copy()
            sums[k] += sums[other]
            sizes[k] += sizes[other]
            if not self.try_totals(Totals(sizes[kept], sums[kept]), passes):
                return

    def _best_pair(self, totals: Totals) -> Ints:
        """Return the pair whose merge loses the least log H per row of the two."""
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
        """Divide components by some of their rows: all together while that helps, then one by one.

        When no birth succeeds within a few iterations, the best rejected one is continued for as
        long as it rises.
        """
        self.nearest = None
        while self.try_births(np.arange(len(self.point.totals.sizes)), passes):
            pass
        failures = at = 0
        while len(self.history) < passes and len(self.point.totals.sizes) < self.most:
            n = len(self.point.totals.sizes)
            if failures < max(_LEAST_TRIES, _FAILURES * n):
                taken = self.try_births(np.array([at % n]), passes)
            elif self.nearest is None:
                return
            else:  # two components that are nearly equal move apart slowly
                (point, variances), self.nearest = self.nearest, None
                self.follow(point, variances, passes - len(self.history), passes)
                taken = len(self.point.totals.sizes) > n
                if not taken:
                    return
            failures, at = (0, at) if taken else (failures + 1, at + 1)

    def try_births(self, which: Ints, passes: int) -> bool:
        """Try to divide components, only the largest if the truncation does not allow all."""
        totals = self.point.totals
        n = len(totals.sizes)
        which = which[: self.most - n]
        if len(self.history) >= passes or len(which) == 0:
            return False
        self.update(self.point, self.variances)  # sets the rows' labels to these components
        counts = np.zeros(self.most + 1, np.int64)
        counts[which] = rows_to_draw(self.form, len(which))
        seeds = self.rows.draw(counts, int(self.rng.integers(2**31)))
        owners, found = np.unique(seeds.clusters, return_counts=True)
        kept, sizes, sums = np.ones(n, bool), [], []
        for k in owners[found > 1]:
            groups, gain = split_rows(self.form, seeds.features[seeds.clusters == k], self.rng)
            if gain <= 0.0 and len(which) > 1:
                continue  # it is tried alone later
            mean, half = totals.sums[k] / totals.sizes[k], 0.5 * totals.sizes[k]
            shares = half / (_OLD + groups.sizes)
            sums.append(shares[:, None] * (_OLD * mean + groups.sums))
            sizes.append([half, half])
            kept[k] = False
        if not sizes:
            return False
        parts = Totals(
            np.concatenate([*sizes, totals.sizes[kept]]), np.concatenate([*sums, totals.sums[kept]])
        )
        return self.try_totals(parts, passes)

    def result(self, converged: bool) -> VariationalMixture:
        totals, tail = self.point.totals, self.point.tail
        q: StickPosterior = self.sticks.fit(totals.sizes, tail)
        weights, rest = weighing.mean_weights(q)
        # Labels of single rows among the components, without a tail, as `predict` gives them.
        self.rows, self.with_tail = self.table.single, False
        self.update(self.point, self.variances)
        clustering, order = self.table.clustering(len(totals.sizes))
        totals, weights = totals.take(order), weights[order]
        return VariationalMixture(
            lower_bound=self.point.bound,
            history=np.array(self.history),
            sizes=totals.sizes,
            weights=weights,
            alpha=q.alpha,
            clustering=clustering,
            converged=converged,
            seconds=clock() - self.begun,
            _mixture=mixture_of(self.table, totals, weights, rest),
        )
