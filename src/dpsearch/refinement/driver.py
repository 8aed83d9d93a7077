"""Refinement one row at a time: an anytime local search that never lowers the log joint.

1. Sweeps: each item moves to its best cluster.
2. Growth: clusters are split between seeds, with a sweep after each round, while splits succeed.
3. Merges, evaluated from the clusters' statistics alone.
4. Neighbourhoods: the items of a few similar clusters get a new partition (see `moves`).  Threads
   share batches of disjoint neighbourhoods.  Moves that gain more for their cost are tried more
   often, and sweeps are interspersed.

With many rows, passes over all of them come first and then alternate with step 4; `turns` has the
whole run.

The run has converged when a sweep moves nothing, no merge of neighbours improves the log joint, and
every cluster has been the centre of enough random proposals without success since a proposal or a
merge last changed it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dpsearch._threads import pool, together
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.events import Event
from dpsearch.partition import by_appearance
from dpsearch.passes.history import History
from dpsearch.passes.moves import Move
from dpsearch.problem import Clustering, Problem
from dpsearch.refinement.local import Groups, groups_of, repartition
from dpsearch.refinement.moves import (
    GROWTH,
    LARGE,
    N_CLUSTERS,
    NEIGHBOURHOODS,
    fitted,
    neighbourhoods,
)
from dpsearch.schedule import Schedule
from dpsearch.state import State

# Neighbourhoods in a batch.  Results depend on it, so it must not depend on the number of threads.
_BATCH, _LARGE_BATCH = 8, 64
_MERGES = 4  # clusters for which a thread finds the best merge at a time
_MANY_ITEMS = 20_000  # with more, batches are large, and threads share sweeps
_PATIENCE = 12  # proposals about a cluster without success before it counts as settled
_ENDLESS_PATIENCE = 300  # used instead where the caller limits the time
_SWEEP_COST = 300_000_000  # values read between two checks of the time
_TRIES = 3  # attempts to split a cluster in two, where neighbourhoods do not follow
_MANY_CLUSTERS = 512
_MIN_GAIN = 1e-7  # nats; less is rounding
# Smaller gains are accepted but do not prolong the run: if the data lie far from the prior mean,
# rounding makes tiny gains appear again and again.  If they lie so far that few digits of the log
# joint are left after the decimal point, the threshold is relative to the log joint.
_SIGNIFICANT = 1e-3
_ROUNDING = 1e-13


class _Proposal(NamedTuple):
    """A few clusters whose items are to get a new partition."""

    slots: Ints
    move: Move  # what the new partition starts from
    centre: int  # slot of the cluster that the proposal is about
    kind: int = 0  # index of the move in the schedule


class OneByOne:
    """A partition refined by moves of single rows, with the clock and history of the run."""

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
        """Continue from another partition, for which no proposal has been tried yet."""
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
        """Sweep until few items move; return how many moved in the last sweep."""
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

        Splitting a cluster in two is tried `tries` times.
        """
        untouched = set(self.state.live.tolist()) if tries else set()
        while untouched:
            fresh: set[int] = set()
            for move in (*GROWTH, *[GROWTH[-1]] * (tries - 1)):
                least = 2 if move.seeds == 2 else LARGE
                large = [s for s in sorted(untouched) if self.state.clusters.sizes[s] >= least]
                for begin in range(0, len(large), _LARGE_BATCH):
                    some = large[begin : begin + _LARGE_BATCH]
                    proposals = [_Proposal(np.array([slot]), move, slot) for slot in some]
                    found = self.evaluate(proposals, to_the_end=True)
                    _, used = self.take(proposals, found, self.significant)
                    for slot, parts in zip(some, used, strict=True):
                        if len(parts):
                            untouched.remove(slot)
                            fresh.update(parts.tolist())
            if fresh:
                self.note("split")
                self.state.clusters.changed[:] = False
                self.sweeps(1)
                # The next round tries the clusters that splits made, and those that lost or
                # gained an item in the sweep.
                fresh.update(np.flatnonzero(self.state.clusters.changed).tolist())
            untouched = fresh & set(self.state.live.tolist())

    def merge(self) -> None:
        """Merge pairs while that improves; a cluster is tried again only when it has changed."""
        state = self.state
        todo = state.live.tolist()
        merged = False
        known: dict[int, tuple[Ints, Vector]] = {}  # since the last merge
        while todo:
            slot = todo.pop()
            if state.clusters.sizes[slot] == 0 or state.n_live == 1:
                continue
            self.history.check_time()
            if slot not in known:
                known = self.merges_of(slot, todo)
            others, gains = known[slot]
            at = int(np.argmax(gains))
            if gains[at] <= self.least_gain:
                continue
            todo.append(self.join(np.array([slot, int(others[at])])))
            merged, known = True, {}
        if merged:
            self.note("merge")

    def merges_of(self, slot: int, todo: list[int]) -> dict[int, tuple[Ints, Vector]]:
        """Return what merges of a cluster, and of others for idle threads, would gain."""
        picks, slots = self.picks(slot), [slot]
        if picks is None and self.n_threads > 1:
            others = todo[: -_MERGES * self.n_threads : -1]
            slots += [one for one in others if self.state.clusters.sizes[one]]
        found = together(
            lambda i: self.merge_candidates(slots[i], picks), len(slots), self.n_threads
        )
        return dict(zip(slots, found, strict=True))

    def gather(self) -> None:
        """Merge all clusters up to some size into one, if that improves.

        A cluster with a larger spread than the prior expects starts as many small ones.  Merging
        any two of them does not improve the log joint, but merging all of them may.
        """
        state = self.state
        if state.n_live == 1:
            return
        self.history.check_time()
        slots = state.live[np.argsort(state.clusters.sizes[state.live], kind="stable")]
        gains = state.merge_gains(slots[:1], slots[1:], together=True)[0]
        at = int(np.argmax(gains))
        if gains[at] <= self.significant:
            return
        self.join(slots[: at + 2])
        self.note("gather")

    def join(self, slots: Ints) -> int:
        """Merge clusters into one; return its slot."""
        chosen = np.concatenate([self.state.members(int(slot)) for slot in slots])
        used = self.state.replace(slots, chosen, np.zeros(len(chosen), np.int64), 1)
        self.set_failures(used, 0)
        return int(used[0])

    def neighbourhoods(self, budget: float = np.inf) -> tuple[bool, float]:
        """Give neighbouring clusters new partitions until nothing improves or `budget` is spent.

        Return whether nothing improves any more, and how many scores were computed.
        """
        state = self.state
        # On small data more attempts cost little.
        n_items = self.problem.n_items
        patience = max(_PATIENCE, min(30, 30_000 // n_items), min(100, 3_000 // n_items))
        if self.history.seconds is not None:
            patience = _ENDLESS_PATIENCE
        work, spent, sweep_due, since_refresh = 0.0, 0.0, False, 0
        while spent < budget:
            self.history.check_time()
            restless = state.live[self.failures_of(state.live) < patience]
            if len(restless) == 0:
                # The run has converged unless a last sweep or merge changes something.
                if not self.settle():
                    return True, spent
                sweep_due = False
                continue
            proposals = self.batch(restless)
            # All proposals are about the same state, so all are evaluated before any is accepted.
            found = self.evaluate(proposals)
            gains, used = self.take(proposals, found, self.least_gain)
            cost = float(found.costs.sum())
            work, spent = work + cost, spent + cost
            for proposal, gain, cost, slots in zip(
                proposals, gains.tolist(), found.costs.tolist(), used, strict=True
            ):
                self.schedule.learn(proposal.kind, gain, cost)
                failed = self.failures[proposal.centre] + 1
                if len(slots):
                    self.set_failures(slots, 0 if gain > self.significant else failed)
                    sweep_due = True
                    since_refresh += 1
                else:
                    self.failures[proposal.centre] = failed
            if gains.max() > self.least_gain:
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
        """Sweep, and let changed clusters be tried again; return how many items moved."""
        self.state.clusters.changed[:] = False
        moved = self.sweeps(1)
        touched = self.state.live[self.state.clusters.changed[self.state.live]]
        # A sweep changes clusters a little; half the patience is enough for those.
        self.failures[touched] = np.minimum(self.failures_of(touched), _PATIENCE // 2)
        return moved

    # -- proposals --------------------------------------------------------------------------

    def batch(self, restless: Ints) -> list[_Proposal]:
        """Make disjoint proposals about restless clusters."""
        state = self.state
        centres = self.rng.permutation(restless)[: self.batch_size]
        kinds = self.schedule.choose(self.rng, len(centres))
        counts = N_CLUSTERS[kinds]
        draws = self.rng.random((len(centres), int(counts.max())))
        places = state.clusters.place[centres]
        out = []
        for kind, group in zip(
            kinds.tolist(), neighbourhoods(self.near(centres), places, counts, draws), strict=True
        ):
            slots = state.live[group[group >= 0]]
            if len(slots):
                move = NEIGHBOURHOODS[kind]
                centre = int(slots[0])  # the cluster that is dissolved, or divided if none is
                slots = np.append(slots[1:], slots[0]) if move.dissolved else slots
                out.append(_Proposal(slots, move, centre, kind))
        return out

    def near(self, centres: Ints) -> Matrix:
        """Return the gains of merging each centre with each cluster; −∞ for distant clusters."""
        state = self.state
        if state.n_live <= _MANY_CLUSTERS + 1:
            parts = [centres]
            if min(len(centres), self.n_threads) > 1:
                parts = np.array_split(centres, min(len(centres), self.n_threads))
            gains = np.concatenate(
                together(
                    lambda i: state.merge_gains(parts[i], state.live), len(parts), self.n_threads
                )
            )
            gains[np.arange(len(centres)), state.clusters.place[centres]] = -np.inf
            return gains
        picks = [self.picks(slot) for slot in centres.tolist()]
        found = together(
            lambda i: self.merge_candidates(int(centres[i]), picks[i]), len(centres), self.n_threads
        )
        gains = np.full((len(centres), state.n_live), -np.inf)
        for row, (others, gain) in zip(gains, found, strict=True):
            row[state.clusters.place[others]] = gain
        return gains

    def picks(self, slot: int) -> Ints | None:
        """Return a few items of a cluster to find its neighbours by; None if clusters are few."""
        if self.state.n_live <= _MANY_CLUSTERS + 1:
            return None
        members = self.state.members(slot)
        return members[self.rng.integers(len(members), size=4)]

    def merge_candidates(self, slot: int, picks: Ints | None) -> tuple[Ints, Vector]:
        """Return the clusters near this one, and what merging with each would gain.

        These are the clusters that fit the picked items best, or all others if `picks` is None.
        Threads run this concurrently.
        """
        state = self.state
        others = state.live if picks is None else state.best_places(picks, 1 + _MANY_CLUSTERS // 16)
        others = others[others != slot]
        return others, state.merge_gains(np.array([slot]), others)[0]

    def evaluate(self, proposals: list[_Proposal], *, to_the_end: bool = False) -> Groups:
        """Find the new partitions of disjoint proposals, without changing the state.

        With `to_the_end`, which suits proposals that are tried only once, none is given up before
        its sweeps settle.
        """
        state, log_v = self.state, self.problem.tables.log_v
        members = [[state.members(slot) for slot in p.slots.tolist()] for p in proposals]
        moves = [
            fitted(p.move, np.array([len(items) for items in group]))
            for p, group in zip(proposals, members, strict=True)
        ]
        goals = np.array([state.values[p.slots].sum() for p in proposals]) + log_v[state.n_live]
        goals = np.full(len(goals), -np.inf) if to_the_end else goals
        beginnings = np.array(
            [(m.divided, m.seeds, m.kept, state.n_live - m.n_clusters) for m in moves]
        )
        groups = groups_of(members, beginnings, goals, self.rng)
        repartition(self.problem, groups, self.n_threads, self.history.check_time)
        return groups

    def take(
        self, proposals: list[_Proposal], found: Groups, least: float
    ) -> tuple[Vector, list[Ints]]:
        """Accept proposals that gain more than `least`; return all gains, and each one's new slots.

        The slots of a proposal that is not accepted are empty.
        """
        state, log_v = self.state, self.problem.tables.log_v
        n, taken = state.n_live, []
        gains = np.zeros(len(proposals))
        for g, proposal in enumerate(proposals):
            more = int(found.n_clusters[g]) - len(proposal.slots)
            before = float(state.values[proposal.slots].sum())
            gains[g] = float(found.values[g]) - before + float(log_v[n + more] - log_v[n])
            if gains[g] > least:
                n += more
                taken.append(g)
        used = [np.empty(0, np.int64)] * len(proposals)
        if taken:
            at = [slice(found.begins[g], found.begins[g + 1]) for g in taken]
            firsts = np.cumsum([0, *found.n_clusters[taken]])
            slots = state.replace(
                np.concatenate([proposals[g].slots for g in taken]),
                np.concatenate([found.chosen[part] for part in at]),
                np.concatenate(
                    [found.labels[part] + k for part, k in zip(at, firsts[:-1], strict=True)]
                ),
                int(firsts[-1]),
                self.n_threads,
            )
            for g, a, b in zip(taken, firsts[:-1], firsts[1:], strict=True):
                used[g] = slots[a:b]
        return gains, used
