"""The particle filter: weighted partitions of a prefix, resampled as each item is placed.

Parameters of clusters are integrated out, so a particle is a partition, and every place for the
next item is tried (Fearnhead 2004).  With γ_t(c) = V(K) Π W(n_k) H(x_k) for partitions of the
first t items, a step multiplies a weight by γ_t/γ_{t−1}, and resampling preserves its expectation.
Hence the sum of the last weights is an unbiased estimate of Σ_c p(c, x), the evidence.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsearch._clock import clock
from dpsearch._numbers import count
from dpsearch._types import ArrayLike, Ints, Vector
from dpsearch._validate import as_rng, whole
from dpsearch.errors import CapabilityError, ParameterError, plain_interrupts
from dpsearch.events import Callback, Event
from dpsearch.families.base import Family
from dpsearch.priors.base import Prior
from dpsearch.problem import Clustering, Problem, as_problem
from dpsearch.samplers.draws import Draws, Trace
from dpsearch.samplers.particle_state import Filter

RESAMPLING = ("optimal", "stratified")


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
        The partition of highest log joint among the particles.
    n_placed
        How many of the rows are placed: all of them, unless Ctrl-C ended the run.  Then all of the
        above is that of the rows placed, but `clustering` is of all rows, completed greedily, and
        `update()` goes on with the others.
    seconds
        Wall time, without that of compiling.
    """

    weights: Vector
    log_joint: Vector
    n_clusters: Ints
    log_evidence: float
    clustering: Clustering
    n_placed: int
    seconds: float
    _filter: Filter = field(repr=False)

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        return (
            f"Particles({len(self)} partitions of {count(self.n_placed, 'row')}, effective"
            f" sample size {self.effective_sample_size:.3g}, log evidence {self.log_evidence:.6g},"
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
        """Return partitions drawn by their weights: with all that draws of a chain offer.

        They are drawn independently, which is all that their `diagnostics` can show; how many
        particles count is `effective_sample_size`.  If Ctrl-C ended the run, they are partitions of
        the rows placed: those whose `labels` are not −1.
        """
        rng = as_rng(rng)
        chosen = rng.choice(len(self), whole(n_draws, "n_draws", 1), p=self.weights)
        different, places = np.unique(chosen, return_inverse=True)
        labels = np.stack([self._filter.labels(h) for h in different])[places]
        labels = labels[:, labels[0] >= 0]
        concentration, alpha = self._filter.problem.prior.concentration(), None
        if concentration is not None:
            n_points, clusters = self._filter.n_points_placed, self.n_clusters[chosen]
            alpha = concentration.draw(n_points, clusters, rng)
        trace = Trace(self.log_joint[None, chosen], self.n_clusters[None, chosen],
                      None if alpha is None else alpha[None],
                      np.zeros((1, len(chosen)), np.int32))  # fmt: skip
        return Draws(
            labels=labels.astype(np.min_scalar_type(int(labels.max()))),
            log_joint=self.log_joint[chosen],
            n_clusters=self.n_clusters[chosen],
            alpha=alpha,
            chain=np.zeros(len(chosen), np.int64),
            trace=trace,
            sampler="particle filter",
            burn_in=0,
            thin=1,
            seconds=self.seconds,
            _problem=self._filter.problem_placed(),
        )

    def update(
        self, X: ArrayLike = None, *, order: Any = "given", callback: Callback | None = None
    ) -> Particles:
        """Return the posterior after more rows, which goes on from this one.

        The rows seen before are not needed, only the particles; so they are not `rejuvenated`.  The
        prior's V(K, N) is then that of all the rows: batches and one run of all rows estimate the
        same evidence, if the family takes nothing from the data: what it took is that of the first
        batch.  Without X, the rows are placed that Ctrl-C has left.
        """
        begun, left = clock(), len(self._filter.left)
        if X is None and not left:
            raise ParameterError.of("X", "is missing: all earlier rows have been placed")
        if X is not None and left:
            raise ParameterError.of("X", f"must wait, since Ctrl-C left {count(left, 'row')}"
                                    " unplaced: update() places these")  # fmt: skip
        state = self._filter.copied()
        return _run(state if X is None else state.extended(X, order), callback, begun)


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
        has doubled, and at the end, but not in `update`, when rows before are gone.  They undo
        early choices; a sweep of 1,000 particles takes as long as 1,000 of `gibbs`.  Ctrl-C
        between two particles leaves all of them as they were before these sweeps.
    rng
        Seed or Generator.
    callback
        Called with an `Event` from time to time.

    Returns
    -------
    Particles
        Ctrl-C ends the run early: the particles are then partitions of the rows placed so far,
        `clustering` is the best of them, completed, and `update()` goes on.

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
    begun = clock()
    problem = as_problem(data, family, prior)
    most = whole(particles, "particles", 1)
    if resampling not in RESAMPLING:
        raise ParameterError.must("resampling", f"be one of {', '.join(RESAMPLING)}", resampling)
    if not problem.prior.product_form:
        raise CapabilityError(
            f"particle_filter needs a prior of product form; {problem.prior.name} is not"
        )
    sweeps = whole(rejuvenate, "rejuvenate", 0)
    try:
        state = Filter(problem, most, resampling, order, sweeps, as_rng(rng))
    except MemoryError:
        raise ParameterError.of("particles", f": {most:,} need more memory than there is") from None
    return _run(state, callback, begun)


def _run(state: Filter, callback: Callback | None, begun: float) -> Particles:
    """Place the items.  Ctrl-C takes effect between two chunks, or two rejuvenated particles."""
    # In a thread, so that Ctrl-C reaches this function and not the middle of a chunk.
    with ThreadPoolExecutor(1) as pool:
        try:
            with plain_interrupts():
                while len(state.left):
                    pool.submit(state.place).result()
                    if callback is not None:
                        values = state.log_joints()
                        best = int(np.argmax(values))
                        n_clusters = int(state.shared.hypotheses.counts[best])
                        value, done, total = float(values[best]), state.placed, len(state.placing)
                        callback(Event(clock() - begun, value, n_clusters, "sample", done, total))
        except KeyboardInterrupt:
            state.stopped = True
    if state.stopped and state.n_before + state.placed == 0:
        raise KeyboardInterrupt
    return _result(state, begun)


def _result(state: Filter, begun: float) -> Particles:
    """Return the particles of a run that has ended or was stopped."""
    n = state.shared.counts.hypotheses
    clusters, values = state.shared.hypotheses.counts[:n].copy(), state.log_joints()
    best = int(np.argmax(values))
    scores = state.shared.hypotheses.scores[:n]
    log_scale = state.log_scale + state.problem.log_base
    if len(state.left):  # γ has V(K) of all rows
        log_v = state.problem.prior.tables(state.n_points_placed).log_v[clusters]
        change = log_v - state.problem.tables.log_v[clusters] - state.log_base_left
        values, log_scale = values + change, log_scale + change.max()
        scores = scores * np.exp(change - change.max())
    total = scores.sum()
    return Particles(
        weights=scores / total,
        log_joint=values,
        n_clusters=clusters,
        log_evidence=float(log_scale + np.log(total)),
        clustering=state.completed(best),
        n_placed=state.n_before + state.placed,
        seconds=clock() - begun,
        _filter=state,
    )
