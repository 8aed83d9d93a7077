"""Refinement one row at a time: an anytime local search that never lowers the log joint.

1. Sweeps: each item to its best cluster.
2. Growth: clusters are split between seeds, with a sweep after each round, while splits succeed.
3. Merges, decided from the clusters' statistics alone.
4. Neighbourhoods: a few similar clusters are given a new partition (see `moves`), in batches of
   disjoint ones that threads share; moves that gain more for their cost are tried more often, and
   sweeps are interspersed.

With many rows passes over all of them come first, and take turns with the last step: `turns` has
the whole run.

It has converged when nothing moves in a sweep, no merge among neighbours improves, and every
cluster has been at the centre of a number of random proposals without success since a proposal or
a merge last changed it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsearch._threads import pool, together
from dpsearch._types import Ints, Labels, Vector
from dpsearch.events import Event
from dpsearch.partition import by_appearance
from dpsearch.passes.history import History
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement.local import Beginning, repartition
from dpsearch.refinement.moves import GROWTH, LARGE, NEIGHBOURHOODS, Move, begin
from dpsearch.schedule import Schedule
from dpsearch.state import State

# Neighbourhoods in a batch; results depend on it, so that it is not the number of threads.
_BATCH, _LARGE_BATCH = 8, 64
_MANY_ITEMS = 20_000  # with more, batches are large, and threads share sweeps
_PATIENCE = 12  # proposals about a cluster without success before it counts as settled
_ENDLESS_PATIENCE = 300  # used instead where the caller limits the time
_SWEEP_COST = 300_000_000  # numbers read between two checks of the time
LOCAL_SWEEPS = 10
_TRIES = 3  # at splitting a cluster in two, where no other moves follow
_LOCAL_VISITS = 200_000  # of items in one proposal, so that none takes long
_MANY_CLUSTERS = 512
_MIN_GAIN = 1e-7  # nats; less is rounding
# Smaller gains are accepted, but do not prolong the run: where data lie far from the prior mean,
# rounding makes tiny gains appear again and again.  Where they lie very far, so that the log joint
# itself has few digits after the point, what is tiny is measured by it.
_SIGNIFICANT = 1e-3
_ROUNDING = 1e-13


class _Job(NamedTuple):
    """One proposal with all its random numbers, so that threads need none."""

    slots: Ints
    chosen: Ints
    start: Beginning
    n_others: int  # clusters outside, when the proposal was made
    order: Ints

    @property
    def cost(self) -> float:
        """Scores that a sweep computes."""
        return float(len(self.chosen) * (1 + self.start.n_clusters))


class _Outcome(NamedTuple):
    """The new partition of the items of a proposal."""

    labels: Labels  # 0 … n_clusters − 1
    n_clusters: int
    log_value: float  # Σ [log W + log H] over these clusters


class OneByOne:
    """A partition whose rows are moved one by one, with the clock and the history of a run."""

    def __init__(
        self,
        problem: Problem,
        labels: Labels,
        history: History,
        rng: np.random.Generator,
        n_threads: int,
    ) -> None:
        self.problem = problem
        self.n_threads = n_threads
        self.start = labels
        self.history = history
        self.rng = rng
        self.batch_size = _LARGE_BATCH if problem.n_items > _MANY_ITEMS else _BATCH
        self.adopt(labels)
        self.converged = False
        self.interrupted = False
        self.schedule = Schedule(len(NEIGHBOURHOODS))
        self.everything = np.arange(problem.n_items)
        self.least = self.state.log_joint
        size = abs(self.least)
        self.least_gain = max(_MIN_GAIN, 0.01 * _ROUNDING * size)
        self.significant = max(_SIGNIFICANT, _ROUNDING * size)
        self.note("start")

    @property
    def threads(self) -> Executor:
        return pool(self.n_threads)

    # -- the clock and the history ----------------------------------------------------------

    def adopt(self, labels: Labels) -> None:
        """Go on from another partition, about which nothing has been tried."""
        self.state = State(self.problem, labels, self.threads)
        self.failures = np.zeros(len(self.state.values), np.int64)

    def note(self, move: str) -> None:
        self.history.note(move, self.state.log_joint, self.state.n_live)

    def result(self) -> Clustering:
        labels = by_appearance(self.state.labels)
        state = State(self.problem, labels, self.threads)
        # Rounding can make a partition look better than `start` when it is not.
        if state.log_joint < self.least:
            labels = by_appearance(self.start)
            state = State(self.problem, labels)
        result = self.problem.clustering(
            labels,
            state.rows,
            seconds=self.history.elapsed,
            converged=self.converged and not self.interrupted,
        )
        last = Event(result.seconds, result.log_joint, result.n_clusters, "end")
        return replace(result, trace=[*self.history.trace, last])

    # -- phases -----------------------------------------------------------------------------

    def run_one_by_one(self, thorough: bool, tries: int | None) -> None:
        self.sweeps(2)
        self.gather()
        self.grow((1 if thorough else _TRIES) if tries is None else tries)
        self.merge()
        self.gather()
        self.sweeps(20)
        if thorough:
            self.neighbourhoods()

    def sweeps(self, most: int) -> int:
        """Sweep until little moves; return how many items moved in the last sweep."""
        moved = 0
        for _ in range(most):
            moved = 0
            done = 0
            while done < len(self.everything):
                self.history.check_time()
                size = self.state.n_live * self.problem.model.core.width
                stop = done + max(256, _SWEEP_COST // size)
                threads = self.threads if self.problem.n_items > _MANY_ITEMS else None
                moved += self.state.sweep(self.everything[done:stop], threads)
                done = stop
            if moved:
                self.state.refresh()  # see `gain`
                self.note("sweep")
            if moved <= 0.0005 * len(self.everything):
                break
        return moved

    def grow(self, tries: int) -> None:
        """Split clusters between seeds, in rounds, while that improves.

        Each cluster is tried `tries` times at being split in two.
        """
        untouched = set(self.state.live.tolist()) if tries else set()
        while untouched:
            fresh: set[int] = set()
            for slot in sorted(untouched):
                self.history.check_time()
                for move in (*GROWTH, *[GROWTH[-1]] * (tries - 1)):
                    if move.extra > 2 and self.state.clusters.sizes[slot] < LARGE:
                        continue
                    used = self.split(slot, move)
                    if used is not None:
                        fresh.update(used.tolist())
                        break
            if fresh:
                self.note("split")
                self.state.clusters.changed[:] = False
                self.sweeps(1)
                # The next round splits the clusters that splits made, and those that lost or
                # gained an item in the sweep.
                fresh.update(np.flatnonzero(self.state.clusters.changed).tolist())
            untouched = fresh & set(self.state.live.tolist())

    def split(self, slot: int, move: Move) -> Ints | None:
        """Try to split one cluster; return the slots of its parts if that improved."""
        slots = np.array([slot])
        job = self.job(move, slots)
        if job is None:
            return None
        new = self.evaluate(job)
        if self.gain(job, new) <= self.significant:
            return None
        return self.state.replace(slots, job.chosen, new.labels, new.n_clusters)

    def merge(self) -> None:
        """Merge pairs while that improves; a cluster is tried again only when it has changed."""
        state = self.state
        todo = state.live.tolist()
        merged = False
        while todo:
            slot = todo.pop()
            if state.clusters.sizes[slot] == 0 or state.n_live == 1:
                continue
            self.history.check_time()
            others, gains = self.merge_candidates(slot, self.picks(slot))
            at = int(np.argmax(gains))
            if gains[at] <= self.least_gain:
                continue
            todo.append(self.join(np.array([slot, int(others[at])])))
            merged = True
        if merged:
            self.note("merge")

    def gather(self) -> None:
        """Merge all clusters up to some size into one, if that improves.

        A cluster that is wider than the prior expects begins as many small ones.  No two of them
        improve by merging, though all of them together would.
        """
        state = self.state
        if state.n_live == 1:
            return
        self.history.check_time()
        slots = state.live[np.argsort(state.clusters.sizes[state.live], kind="stable")]
        gains = state.merge_gains(int(slots[0]), slots[1:], together=True)
        at = int(np.argmax(gains))
        if gains[at] <= self.significant:
            return
        self.join(slots[: at + 2])
        self.note("gather")

    def join(self, slots: Ints) -> int:
        """Make one cluster of several; return its slot."""
        chosen = np.concatenate([self.state.members(int(slot)) for slot in slots])
        used = self.state.replace(slots, chosen, np.zeros(len(chosen), np.int64), 1)
        self.set_failures(used, 0)
        return int(used[0])

    def neighbourhoods(self, budget: float = np.inf) -> tuple[bool, float]:
        """Give neighbouring clusters new partitions until nothing improves any more.

        Return whether that is so, or the budget of scores was spent, and how many were computed.
        """
        state = self.state
        # Small data are cheap to try again, and the smallest cost next to nothing.
        n_items = self.problem.n_items
        patience = max(_PATIENCE, min(30, 30_000 // n_items), min(100, 3_000 // n_items))
        if self.history.seconds is not None:
            patience = _ENDLESS_PATIENCE
        work, spent, sweep_due, since_refresh = 0.0, 0.0, False, 0
        while spent < budget:
            self.history.check_time()
            restless = state.live[self.failures_of(state.live) < patience]
            if len(restless) == 0:
                # Settled, unless a last sweep or merge changes something.
                if not self.settle():
                    return True, spent
                sweep_due = False
                continue
            jobs = self.batch(restless)
            improved = False
            # All are evaluated before any is applied: they are proposals about one state.
            outcomes = self.outcomes([job for _, job in jobs])
            for (kind, job), new in zip(jobs, outcomes, strict=True):
                work += job.cost * LOCAL_SWEEPS / 2
                spent += job.cost * LOCAL_SWEEPS / 2
                gain = self.gain(job, new)
                self.schedule.learn(kind, gain, job.cost)
                failed = self.failures[job.slots[0]] + 1
                self.failures[job.slots[0]] = failed
                if gain > self.least_gain:
                    used = state.replace(job.slots, job.chosen, new.labels, new.n_clusters)
                    self.set_failures(used, 0 if gain > self.significant else failed)
                    improved = sweep_due = True
                    since_refresh += 1
            if improved:
                self.note("neighbourhood")
            if sweep_due and work > 4.0 * self.problem.n_items * state.n_live:
                self.sweep_and_mark()
                spent += float(self.problem.n_items * state.n_live)
                work, sweep_due = 0.0, False
            if since_refresh > 1000:
                state.refresh()
                since_refresh = 0
        return False, spent

    def failures_of(self, slots: Ints) -> Ints:
        """Return how many proposals about each cluster have failed since it last changed."""
        missing = len(self.state.values) - len(self.failures)
        if missing > 0:  # the state has grown
            self.failures = np.concatenate([self.failures, np.zeros(missing, np.int64)])
        return self.failures[slots]

    def set_failures(self, slots: Ints, count: int) -> None:
        self.failures_of(slots)  # makes room
        self.failures[slots] = count

    def settle(self) -> bool:
        """Sweep to the end and merge; return whether anything changed."""
        before = self.state.log_joint
        for _ in range(50):
            if self.sweep_and_mark() == 0:
                break
        self.merge()
        self.gather()
        return self.state.log_joint > before + self.significant

    def sweep_and_mark(self) -> int:
        """Sweep, and have changed clusters tried again; return how many items moved."""
        self.state.clusters.changed[:] = False
        moved = self.sweeps(1)
        touched = self.state.live[self.state.clusters.changed[self.state.live]]
        # A sweep changes clusters a little; half the patience is enough for those.
        self.failures[touched] = np.minimum(self.failures_of(touched), _PATIENCE // 2)
        return moved

    # -- proposals --------------------------------------------------------------------------

    def batch(self, restless: Ints) -> list[tuple[int, _Job]]:
        """Make disjoint proposals, numbers of moves and jobs, about restless clusters."""
        taken: set[int] = set()
        jobs: list[tuple[int, _Job]] = []
        centres = self.rng.permutation(restless)[: self.batch_size].tolist()
        picks = [self.picks(slot) for slot in centres]
        near = together(
            lambda i: self.merge_candidates(centres[i], picks[i]), len(centres), self.n_threads
        )
        for slot, candidates in zip(centres, near, strict=True):
            if slot in taken:
                continue
            kind = self.schedule.choose(self.rng)
            move = NEIGHBOURHOODS[kind]
            slots = self.neighbours(slot, move.n_clusters, candidates, taken)
            job = self.job(move, slots)
            if job is not None:
                taken.update(slots.tolist())
                jobs.append((kind, job))
        if not jobs:  # all clusters are too small for these moves, but not for the last one
            slot = int(restless[0])
            candidates = self.merge_candidates(slot, self.picks(slot))
            job = self.job(NEIGHBOURHOODS[-1], self.neighbours(slot, 3, candidates, taken))
            assert job is not None
            jobs.append((len(NEIGHBOURHOODS) - 1, job))
        return jobs

    def neighbours(
        self, slot: int, count: int, candidates: tuple[Ints, Vector], taken: set[int]
    ) -> Ints:
        """Return the cluster and up to count − 1 others that would merge with it at least loss."""
        if count == 1 or self.state.n_live == 1:
            return np.array([slot])
        others, gains = candidates
        # A few more than needed to choose from, and as many as other jobs may have taken.
        wide = count + 2 + len(taken)
        near = others[np.argsort(-gains, kind="stable")[:wide]]
        free = [slot for slot in near.tolist() if slot not in taken]
        picked = self.rng.permutation(free[: count + 2])[: count - 1]
        return np.concatenate([[slot], picked]).astype(np.int64)

    def picks(self, slot: int) -> Ints | None:
        """Return a few items of a cluster, where its neighbours are found by them."""
        if self.state.n_live <= _MANY_CLUSTERS + 1:
            return None
        members = self.state.members(slot)
        return members[self.rng.integers(len(members), size=4)]

    def merge_candidates(self, slot: int, picks: Ints | None) -> tuple[Ints, Vector]:
        """Return clusters near this one, and what merging with each would gain.

        These are all the others if there are few; else those that some of its items would go to.
        Threads run this.
        """
        state = self.state
        others = state.live if picks is None else state.best_places(picks, 1 + _MANY_CLUSTERS // 16)
        others = others[others != slot]
        return others, state.merge_gains(slot, others)

    def job(self, move: Move, slots: Ints) -> _Job | None:
        """Return a proposal about the clusters in these slots, if the move applies to them."""
        members = [self.state.members(int(slot)) for slot in slots]
        chosen = np.concatenate(members)
        current = np.repeat(np.arange(len(slots)), [len(m) for m in members])
        start = begin(move, current, len(slots), self.rng)
        if start is None:
            return None
        order = self.rng.permutation(len(chosen))
        return _Job(slots, chosen, start, self.state.n_live - len(slots), order)

    def outcomes(self, jobs: list[_Job]) -> list[_Outcome]:
        """Return the outcomes of proposals; threads begin with those that take longest."""
        order = np.argsort([-job.cost for job in jobs], kind="stable").tolist()
        run = self.threads.map if self.n_threads > 1 else map  # to hand over takes a while
        found = dict(zip(order, run(self.evaluate, [jobs[i] for i in order]), strict=True))
        return [found[i] for i in range(len(jobs))]

    def evaluate(self, job: _Job) -> _Outcome:
        """Compute the outcome of a proposal.  Threads run this; it changes nothing.

        Its value is computed from the data: a row far from all others that came and went
        leaves rounding errors in a cluster's statistics, which can look like many nats.
        """
        n_sweeps = max(2, min(LOCAL_SWEEPS, _LOCAL_VISITS // len(job.chosen)))
        new = repartition(self.problem, job.chosen, job.start, job.n_others, job.order, n_sweeps)
        return _Outcome(*new, self.state.value_of(job.chosen, *new))

    def gain(self, job: _Job, new: _Outcome) -> float:
        """Return the change of the log joint, given the present number of clusters."""
        log_v, n = self.problem.tables.log_v, self.state.n_live
        change = float(log_v[n - len(job.slots) + new.n_clusters] - log_v[n])
        return new.log_value + change - float(self.state.values[job.slots].sum())
