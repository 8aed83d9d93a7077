"""The particle filter: weighted partitions of a prefix, resampled as each item is placed.

Parameters of clusters are integrated out, so a particle is a partition, and every place for the
next item is tried (Fearnhead 2004).  With γ_t(c) = V(K) Π W(n_k) H(x_k) for partitions of the
first t items, a step multiplies a weight by γ_t/γ_{t−1} and resampling keeps its expectation.  So
the sum of the last weights is an unbiased estimate of Σ_c p(c, x), the evidence.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsearch._types import ArrayLike, Ints, Rng, Vector
from dpsearch._validate import as_rng, whole
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Callback, Event
from dpsearch.families.base import Family
from dpsearch.items import log_marginals
from dpsearch.partition import by_appearance
from dpsearch.prefix_search.beam_state import Counts, Hypotheses, Nodes, new_room, new_rows, zeros
from dpsearch.prefix_search.ordering import placing_order
from dpsearch.prefix_search.shared_rows import (
    Shared,
    labels_of_members,
    nothing_placed,
    packed,
    with_more_room,
)
from dpsearch.priors.base import Prior, size_steps, size_weights
from dpsearch.problem import Clustering, Problem, as_problem
from dpsearch.samplers.draws import Draws, Trace
from dpsearch.samplers.resampling import advance
from dpsearch.state import State

RESAMPLING = ("optimal", "stratified")
_CHUNK = 1024  # items between two calls of the callback, or checks for Ctrl-C


@dataclass(frozen=True, eq=False)
class Particles:
    """Weighted partitions: an approximation of the posterior.

    Attributes
    ----------
    weights
        [particles]: posterior weights, which sum to 1.
    log_joint, n_clusters
        [particles]: log p(c, x) with every constant, and K.
    log_evidence
        Its exponential is an unbiased estimate of the marginal likelihood p(x).
    clustering
        The partition of highest log joint among the particles.  If Ctrl-C ended the run early, it
        was completed greedily.
    n_placed
        How many of the rows are placed: all of them, unless Ctrl-C ended the run.
    seconds
        Wall time.
    """

    weights: Vector
    log_joint: Vector
    n_clusters: Ints
    log_evidence: float
    clustering: Clustering
    n_placed: int
    seconds: float
    _filter: _Filter = field(repr=False)

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return (
            f"Particles({len(self)} partitions of {self.n_placed} points, effective sample size"
            f" {self.effective_sample_size:.3g}, log evidence {self.log_evidence:.6g},"
            f" {self.seconds:.3g} s)"
        )

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)²/Σ w² of the last weights; what resampling has cost before does not show in it."""
        return float(1.0 / np.square(self.weights).sum())

    @property
    def labels(self) -> Any:
        """[particles, N]: the cluster of each row, by first appearance; −1 if not placed."""
        return np.stack([self._filter.labels(h) for h in range(len(self))])

    def k_posterior(self) -> Vector:
        """Return the posterior of the number of clusters: entry k is p(K = k | x)."""
        return np.asarray(np.bincount(self.n_clusters, self.weights))

    def draws(self, n_draws: int, rng: Any = None) -> Draws:
        """Return partitions drawn by their weights: with all that draws of a chain offer."""
        if self.n_placed < self._filter.n_rows:
            raise ParameterError(
                f"the run was stopped after {self.n_placed} rows: there are no draws of all"
            )
        chosen = as_rng(rng).choice(len(self), whole(n_draws, "n_draws", 1), p=self.weights)
        different, places = np.unique(chosen, return_inverse=True)
        labels = np.stack([self._filter.labels(h) for h in different])[places]
        trace = Trace(self.log_joint[None, chosen], self.n_clusters[None, chosen], None,
                      np.zeros((1, len(chosen)), np.int32))  # fmt: skip
        return Draws(
            labels=labels.astype(np.min_scalar_type(int(labels.max()))),
            log_joint=self.log_joint[chosen],
            n_clusters=self.n_clusters[chosen],
            alpha=None,
            chain=np.zeros(len(chosen), np.int64),
            trace=trace,
            sampler="particle filter",
            burn_in=0,
            thin=1,
            seconds=self.seconds,
            _problem=self._filter.whole_problem,
        )

    def update(
        self, X: ArrayLike, *, order: Any = "given", callback: Callback | None = None
    ) -> Particles:
        """Return the posterior after more rows, which goes on from this one.

        The rows seen before are not needed, only the particles.  The prior's V(K, N) is then that
        of all the rows; so batches and one run of all rows estimate the same evidence.
        """
        begun = time.perf_counter()
        if self.n_placed < self._filter.n_rows:
            raise ParameterError("the run before was stopped: its particles cannot go on")
        return _run(self._filter.extended(X), order, 0, callback, begun)


def particle_filter(
    data: Problem | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
    *,
    particles: int = 1000,
    resampling: str = "optimal",
    order: Any = "random",
    rejuvenate: int = 0,
    rng: Any = None,
    callback: Callback | None = None,
) -> Particles:
    """Approximate the posterior by weighted partitions, placing one item after another.

    Parameters
    ----------
    data, family, prior
        A `Problem`, or X with a family and a prior, as for `search`.  The prior must be of product
        form (not AntoniakCounts).
    particles
        The largest number of partitions that are kept.
    resampling
        ``"optimal"`` (default) or ``"stratified"``; see `dpsearch.samplers.resampling`.
    order
        In which the items are placed, as for `search`; ``"random"`` by default, since an order
        that sorts the rows lets the first ones mislead.
    rejuvenate
        Gibbs sweeps of every particle over the items placed so far, each time that their number
        has doubled, and at the end.  They undo early choices; a sweep of 1,000 particles takes as
        long as 1,000 of `gibbs`.
    rng
        Seed or Generator.
    callback
        Called with an `Event` from time to time.

    Returns
    -------
    Particles
        Ctrl-C ends the run early: the particles are then partitions of the rows placed so far, and
        `clustering` is the best of them, completed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import families, particle_filter, priors
    >>> X = np.concatenate([np.zeros(20), np.full(20, 9.0)])[:, None]
    >>> family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    >>> found = particle_filter(X, family, prior, particles=100, rng=0)
    >>> found.clustering.n_clusters
    2
    >>> bool(found.log_evidence > found.clustering.log_joint)
    True
    """
    begun = time.perf_counter()
    problem = as_problem(data, family, prior)
    most = whole(particles, "particles", 1)
    if resampling not in RESAMPLING:
        raise ParameterError(
            f"{{parameter}} must be one of {', '.join(RESAMPLING)}, got {resampling!r}",
            parameter="resampling",
        )
    if not problem.prior.product_form:
        raise CapabilityError(
            f"particle_filter needs a prior of product form; {problem.prior.name} is not"
        )
    sweeps = whole(rejuvenate, "rejuvenate", 0)
    return _run(_Filter(problem, most, resampling, as_rng(rng)), order, sweeps, callback, begun)


def _run(
    state: _Filter, order: Any, sweeps: int, callback: Callback | None, begun: float
) -> Particles:
    """Place the items of the state's problem; Ctrl-C ends it between two chunks."""
    placing = placing_order(state.problem, order, state.rng)
    try:
        # In a thread, so that Ctrl-C reaches this function and not the middle of a chunk.
        with plain_interrupts(), ThreadPoolExecutor(1) as pool:
            while state.placed < len(placing):
                pool.submit(state.place, placing, sweeps).result()
                if callback is not None:
                    values = state.log_joints()
                    best = int(np.argmax(values))
                    count = int(state.shared.hypotheses.counts[best])
                    seconds = time.perf_counter() - begun
                    value, done = float(values[best]), state.placed
                    callback(Event(seconds, value, count, "sample", done, len(placing)))
    except KeyboardInterrupt:
        if state.placed == 0:
            raise
    return state.result(placing, begun)


class _Filter:
    """The particles of a run, which may go on with the rows of another batch."""

    def __init__(self, problem: Problem, most: int, resampling: str, rng: Rng) -> None:
        self.problem = problem  # the batch that is being placed, under the tables of all rows
        self.most = most
        self.resampling = resampling
        self.rng = rng
        self.n_before = 0  # rows of earlier batches
        self.placed = 0  # of this batch
        self.log_base = problem.log_base  # of all batches
        self.log_scale = 0.0
        self.cut = 1.0 / most
        shared = nothing_placed(problem.model.core.width, problem.n_points, most)
        shared.hypotheses.scores[0] = 1.0
        shared.rows.gains[0] = 0.0  # the factor of no row
        self.shared: Shared = shared

    @property
    def n_rows(self) -> int:
        return self.n_before + self.problem.n_items

    @property
    def whole_problem(self) -> Problem | None:
        """The problem of all rows; None if those of earlier batches are gone."""
        return None if self.n_before else self.problem

    def extended(self, X: ArrayLike) -> _Filter:
        """Return a filter that goes on with more rows; this one stays as it is."""
        old = self.problem
        items, base = old.model.items(X)
        n_points = old.n_points + items.n_items
        tables = old.prior.tables(n_points)
        out = object.__new__(_Filter)
        out.__dict__.update(self.__dict__)
        out.problem = Problem.of_items(old.model, items, float(base.sum()), old.prior)
        out.problem.tables, out.problem.n_points = tables, n_points
        out.n_before, out.placed = self.n_rows, 0
        out.log_base = self.log_base + out.problem.log_base
        width = old.model.core.width
        out.shared = with_more_room(_copied(self.shared, width, n_points), width, n_points)
        rows, live = out.shared.rows, out.shared.rows_in_use()
        rows.steps[live] = size_steps(tables, rows.sizes[live])  # of a table for larger sizes
        # γ has V(K) of all rows.
        count, hypotheses = out.shared.counts.hypotheses, out.shared.hypotheses
        clusters = hypotheses.counts[:count]
        change = tables.log_v[clusters] - old.tables.log_v[clusters]
        hypotheses.scores[:count] *= np.exp(change - change.max())
        out.log_scale += change.max()
        return out

    def place(self, placing: Ints, sweeps: int) -> None:
        """Place some more items."""
        stop = min(len(placing), self.placed + _CHUNK)
        if sweeps:  # up to the next power of two
            stop = min(stop, 1 << self.placed.bit_length())
        problem = self.problem
        self.shared.nodes.item[:] -= self.n_before  # the rows of this batch count from 0
        while self.placed < stop:
            self.placed, self.log_scale, self.cut, counts = advance(
                problem.model.core, problem.dots(), problem.items, problem.alone, problem.tables,
                *self.shared, placing, self.placed, stop, self.most, self.resampling == "optimal",
                self.log_scale, self.cut, self.rng,
            )  # fmt: skip
            self.shared = packed(self.shared._replace(counts=counts), problem.model.core.width)
            if self.placed < stop:  # something is full
                self.shared = with_more_room(
                    self.shared, problem.model.core.width, problem.n_points
                )
        self.shared.nodes.item[:] += self.n_before
        if sweeps and stop in (len(placing), 1 << (stop.bit_length() - 1)):
            self._rejuvenate(placing[:stop], sweeps)

    def _rejuvenate(self, placed: Ints, sweeps: int) -> None:
        """Make Gibbs sweeps in every particle; afterwards share the clusters that are the same.

        Before that, one particle is drawn from each of as many strata as there may be particles: a
        heavy one has as many copies as it counts for, which part.
        """
        members: dict[bytes, int] = {}
        pools, sizes, chosen = [], [], []
        lists: list[Ints] = []
        width = self.problem.model.core.width
        scores = self.shared.hypotheses.scores
        below = np.cumsum(scores[: self.shared.counts.hypotheses])
        strata = (np.arange(self.most) + self.rng.random(self.most)) / self.most
        drawn = np.searchsorted(below[:-1], strata * below[-1], side="right")
        for h in drawn:
            state = State(self.problem, self.labels(h))
            for _ in range(sweeps):
                state.sweep(placed, rng=self.rng)
            own = []
            for slot in state.live:
                items = np.flatnonzero(state.labels == slot)
                row = members.setdefault(items.tobytes(), len(members) + 1)  # row 0 stays unused
                if row > len(lists):
                    pools.append(state.clusters.pool[slot * width : (slot + 1) * width].copy())
                    sizes.append(int(state.clusters.sizes[slot]))
                    lists.append(items)
                own.append(row)
            chosen.append(own)
        scores[:] = below[-1] / self.most
        self.shared = _of_clusters(
            self.problem, self.shared.hypotheses, chosen, pools, sizes, lists
        )

    def labels(self, h: int) -> Any:
        """Return the partition of particle h, with −1 for rows that are not placed."""
        hypotheses = self.shared.hypotheses
        rows = hypotheses.rows[h, : hypotheses.counts[h]]
        found = labels_of_members(self.shared.nodes, self.shared.rows.members[rows], self.n_rows)
        there = found >= 0
        found[there] = by_appearance(found[there])
        return found

    def log_joints(self) -> Vector:
        """Return the log joint of each particle, computed from its clusters' statistics."""
        hypotheses, rows, _, counts, _ = self.shared
        core, tables = self.problem.model.core, self.problem.tables
        live = self.shared.rows_in_use()
        values = np.zeros(len(rows.sizes))
        pool = rows.pool.reshape(-1, core.width)[live].reshape(-1)
        values[live] = log_marginals(core, pool, len(live)) + size_weights(tables, rows.sizes[live])
        n = counts.hypotheses
        clusters = hypotheses.counts[:n]
        inside = np.arange(hypotheses.rows.shape[1]) < clusters[:, None]
        sums = np.where(inside, values[hypotheses.rows[:n]], 0.0).sum(axis=1)
        return np.asarray(sums + tables.log_v[clusters] + self.log_base)

    def result(self, placing: Ints, begun: float) -> Particles:
        n = self.shared.counts.hypotheses
        scores = self.shared.hypotheses.scores[:n]
        total = scores.sum()
        values = self.log_joints()
        best = int(np.argmax(values))
        labels = self.labels(best)
        if self.n_before:
            clustering = Clustering(labels, float(values[best]))
        else:
            if self.placed < len(placing):
                rest = State(self.problem, labels)
                rest.sweep(placing[self.placed :])
                labels = rest.labels
            clustering = self.problem.clustering(labels)
        return Particles(
            weights=scores / total,
            log_joint=values,
            n_clusters=self.shared.hypotheses.counts[:n].copy(),
            log_evidence=float(self.log_scale + np.log(total) + self.log_base),
            clustering=clustering,
            n_placed=self.n_before + self.placed,
            seconds=time.perf_counter() - begun,
            _filter=self,
        )


def _copied(shared: Shared, width: int, n_points: int) -> Shared:
    """Return the same hypotheses in arrays of their own, with working space for more points."""

    def copies(part: Any) -> Any:
        return type(part)(*map(np.copy, part))

    hypotheses, rows, nodes = (copies(part) for part in shared[:3])
    room = new_room(hypotheses, rows, width, n_points)
    return Shared(hypotheses, rows, nodes, shared.counts, room)


def _of_clusters(
    problem: Problem,
    hypotheses: Hypotheses,
    chosen: list[list[int]],
    pools: list[Vector],
    sizes: list[int],
    lists: list[Ints],
) -> Shared:
    """Return hypotheses of these clusters: `chosen` has the row numbers, from 1, of each."""
    width, most, n = problem.model.core.width, len(hypotheses.counts), len(sizes)
    rows = new_rows(width, n + 1 + 4 * most)
    n_nodes = sum(map(len, lists))
    nodes = zeros(Nodes, n_nodes + 4 * most)
    rows.pool[width : (n + 1) * width] = np.concatenate(pools)
    rows.sizes[1 : n + 1] = sizes
    rows.steps[1 : n + 1] = size_steps(problem.tables, np.array(sizes))
    rows.users[: n + 1] = np.bincount([row for own in chosen for row in own], minlength=n + 1)
    rows.gains[0] = 0.0
    ends = np.cumsum([len(items) for items in lists])
    rows.members[1 : n + 1] = ends - 1
    nodes.item[:n_nodes] = np.concatenate(lists)
    nodes.before[:n_nodes] = np.arange(-1, n_nodes - 1)
    nodes.before[np.append(0, ends[:-1])] = -1
    widest = max(map(len, chosen))
    table = np.zeros((most, max(hypotheses.rows.shape[1], widest + 8)), np.uint32)
    counts = np.zeros(most, np.int64)
    for h, own in enumerate(chosen):
        table[h, : len(own)] = own
        counts[h] = len(own)
    out = hypotheses._replace(rows=table, counts=counts)
    used = Counts(len(chosen), widest, n, len(rows.free) - 1 - n, n_nodes)
    return Shared(out, rows, nodes, used, new_room(out, rows, width, problem.n_points))
