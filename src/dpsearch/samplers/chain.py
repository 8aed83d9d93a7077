"""One Markov chain over partitions: its sweeps, and the state from which it continues.

A chain runs in *legs*, whose number of sweeps depends only on the state of the chain.  After a leg
the chain keeps the labels, the concentration, the states of the steps made in Python and that of
the random number generator, and computes the statistics anew from these.  Rounding errors therefore
do not accumulate, and a chain that is stopped between legs and continued in another process is the
same chain bit for bit.  The first legs are short, because a row far from all others leaves large
rounding errors in its first cluster when it leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsearch._jit import inner, kernel
from dpsearch._types import Labels, Rng
from dpsearch.dots import gather_size
from dpsearch.partition import by_appearance
from dpsearch.problem import Problem
from dpsearch.samplers.moves import RANDOM_ITEMS, SHUFFLED, Move, plan_of
from dpsearch.samplers.pair_moves import pair_room, split_merge_move
from dpsearch.samplers.prior_proposals import propose_items
from dpsearch.state import State
from dpsearch.state.clusters import cluster_value, grown
from dpsearch.state.sweep import sweep_items, sweep_room

_LEG_NUMBERS = 1_000_000_000  # values read in one leg, which takes about a second


class Chain:
    """A chain between two legs.

    `records` holds one array for each leg: the labels of kept draws, and the other values of every
    sweep.  There is no "alpha" if the prior has no concentration, and no "hyperparameters" without
    steps in Python.
    """

    def __init__(self, problem: Problem, labels: Labels, moves: Sequence[Move], rng: Rng) -> None:
        self.problem = problem
        self.labels = by_appearance(labels)
        self.plan = plan_of(moves, problem)
        self.steps = [step for move in moves if (step := move.begin(problem)) is not None]
        self.rng = rng
        self.n_sweeps = 0
        self.concentration = problem.prior.concentration()
        self.alpha = math.nan  # for a prior without a concentration
        if self.concentration is not None:
            n_clusters = int(self.labels.max()) + 1
            self.alpha = self.concentration.mean(problem.n_points, n_clusters)
        names = ["labels", "log_joint", "n_clusters", "accepted"]
        names += [] if self.concentration is None else ["alpha"]
        names += ["hyperparameters"] if self.steps else []
        self.records: dict[str, list[Any]] = {name: [] for name in names}

    @property
    def leg(self) -> int:
        """Number of sweeps in the next leg, given the problem, the labels and the sweeps so far."""
        if self.steps:
            return 1
        n_clusters = int(self.labels.max()) + 2
        numbers = self.problem.n_items * self.problem.model.core.width * n_clusters
        return max(1, min(1000, self.n_sweeps, _LEG_NUMBERS // numbers))

    def advance(self, n_sweeps: int, kept: Any) -> None:
        """Run one leg, up to `n_sweeps` sweeps in all; keep the draw of sweep t if kept[t]."""
        count = min(self.leg, n_sweeps - self.n_sweeps)
        keep = np.asarray(kept[self.n_sweeps : self.n_sweeps + count])
        for step in self.steps:
            self.problem, self.labels = step.step(self.problem, self.labels, self.rng)
        problem = self.problem
        state = State(problem, self.labels)
        labels = np.empty((int(keep.sum()), problem.n_items), np.int32)
        log_joint, n_clusters = np.empty(count), np.empty(count, np.int32)
        alpha, accepted = np.full(count, self.alpha), np.zeros(count, np.int32)
        # Updates of α write to a copy of log V.
        tables = problem.tables._replace(log_v=problem.tables.log_v.copy())
        _run(
            problem.model.core, problem.dots(), problem.items, problem.alone, tables,
            problem.tables, state.clusters, state.n_live, problem.model.n_features,
            gather_size(problem.model.n_features), self.plan, problem.n_points, self.rng, keep,
            labels, log_joint, n_clusters, alpha, accepted,
        )  # fmt: skip
        self.labels = by_appearance(state.labels)
        self.n_sweeps += count
        self.alpha = float(alpha[-1])
        log_joint[-1] = problem.log_joint(self.labels) - problem.log_base  # exact for far rows
        recorded = {
            "labels": labels.astype(np.min_scalar_type(labels.max(initial=0))),
            "log_joint": log_joint + problem.log_base,
            "n_clusters": n_clusters,
            "accepted": accepted,
            "alpha": alpha,
        }
        if self.concentration is not None and not self.plan.sample_alpha:
            recorded["alpha"] = self.concentration.draw(problem.n_points, n_clusters, self.rng)
        if self.steps:
            values = np.concatenate([step.values for step in self.steps])
            recorded["hyperparameters"] = values[None, :]
        for name, parts in self.records.items():
            parts.append(recorded[name])

    def recorded(self, name: str) -> Any:
        """Return the records of this name from all legs."""
        return np.concatenate(self.records[name])


@kernel
def _run(  # type: ignore[no-untyped-def]
    core, dots, items, alone, tables, value_tables, clusters, n_live, n_features, n_gathered, plan,
    n_points, rng, keep, labels, log_joint, n_clusters, alpha, accepted,
):  # fmt: skip
    """Run sweeps, which change the labels in place; log joints are computed by `value_tables`."""
    n_items = clusters.labels.shape[0]
    room = sweep_room(core, n_features, n_gathered, clusters.sizes.shape[0])
    pair = pair_room(core, n_items)
    order = np.arange(n_items)
    draw = 0
    now = alpha[0]
    if plan.sample_alpha:
        _set_alpha(tables, now)
    for t in range(keep.shape[0]):
        for _ in range(plan.moves):
            if n_live + 1 > clusters.sizes.shape[0]:
                clusters = grown(core, clusters)
                room = sweep_room(core, n_features, n_gathered, clusters.sizes.shape[0])
            n_live, taken = split_merge_move(
                core, items, tables, clusters, n_live, plan.rule, plan.scans, pair, rng
            )
            accepted[t] += taken
        for gibbs in (False, True):
            if not (plan.gibbs if gibbs else plan.proposals > 0):
                continue
            _arrange(order, plan.scan if gibbs else plan.proposal_scan, rng)
            done = 0
            while done < n_items:
                rest = order[done:]
                if gibbs:
                    visited, n_live, _ = sweep_items(
                        core, dots, items, alone, tables, clusters, n_live, rest, room, rng, None
                    )
                else:
                    visited, n_live, taken = propose_items(
                        core, items, alone, tables, clusters, n_live, rest, plan.proposals,
                        plan.partial, room, rng,
                    )  # fmt: skip
                    accepted[t] += taken
                done += visited
                if done < n_items:
                    clusters = grown(core, clusters)
                    room = sweep_room(core, n_features, n_gathered, clusters.sizes.shape[0])
        if plan.sample_alpha:
            now = draw_alpha(now, plan.shape, plan.rate, n_live, n_points, rng)
            _set_alpha(tables, now)
            alpha[t] = now
        value = value_tables.log_v[n_live]
        for at in range(n_live):
            value += cluster_value(core, value_tables, clusters, clusters.live[at])
        log_joint[t] = value
        n_clusters[t] = n_live
        if keep[t]:
            _canonical(clusters.labels, np.full(clusters.sizes.shape[0], -1), labels[draw])
            draw += 1


@kernel
def draw_alpha(alpha, shape, rate, n_clusters, n_points, rng):  # type: ignore[no-untyped-def]
    """Return the next α of Escobar & West's chain.

    With η ~ Beta(α + 1, N), α is a mixture of Gamma(shape + K, rate − log η) and
    Gamma(shape + K − 1, rate − log η) with odds (shape + K − 1) : N (rate − log η).
    """
    eta = rng.beta(alpha + 1.0, float(n_points))
    faster = rate - math.log(max(eta, 1e-300))
    odds = (shape + n_clusters - 1.0) / (n_points * faster)
    more = rng.random() * (1.0 + odds) < odds
    return max(rng.standard_gamma(shape + n_clusters - (0.0 if more else 1.0)) / faster, 1e-300)


@inner
def _arrange(order, scan, rng):  # type: ignore[no-untyped-def]
    """Set the order in which a sweep visits items."""
    n = order.shape[0]
    if scan == SHUFFLED:
        for i in range(n - 1, 0, -1):
            j = int(rng.random() * (i + 1))
            order[i], order[j] = order[j], order[i]
    elif scan == RANDOM_ITEMS:
        for i in range(n):
            order[i] = int(rng.random() * n)


@inner
def _set_alpha(tables, alpha):  # type: ignore[no-untyped-def]
    """Set log V to that of a Dirichlet process with this α, up to a constant."""
    step = math.log(alpha)
    for k in range(tables.log_v.shape[0]):
        tables.log_v[k] = k * step


@inner
def _canonical(labels, numbers, out):  # type: ignore[no-untyped-def]
    """Number clusters by first appearance in `out`; `numbers` is −1 for every slot at first."""
    n = 0
    for i in range(labels.shape[0]):
        if numbers[labels[i]] < 0:
            numbers[labels[i]] = n
            n += 1
        out[i] = numbers[labels[i]]
