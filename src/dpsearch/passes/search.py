"""Batch search: all clusters move at once, in passes over rows that stay where they are.

Decisions are made from totals, exactly: a proposal about a group of clusters is taken if the log
joint rises by it, so that it never falls.

1. Sweeps: each row to the cluster of its best score.  Scores are tangent planes of the log joint,
   which is convex in the totals (`families.linear`), so that a sweep raises it too.
2. Growth: every cluster proposes divisions of itself.
3. Merges, by totals alone.
4. Regrouping: disjoint groups of similar clusters get new partitions, all groups in the same
   passes.  A cluster that nothing has helped since it last changed is left alone.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Matrix, Rng, Vector
from dpsearch.families.linear import LinearForm, indices
from dpsearch.passes.arrays import here, spread, taken
from dpsearch.passes.chunk import Candidates, Totals
from dpsearch.passes.clusters import BLOCK, Clusters
from dpsearch.passes.moves import GROWTH, MOVES, Group, Move
from dpsearch.passes.rows import Rows
from dpsearch.priors.base import Tables
from dpsearch.schedule import Schedule

MOST_SWEEPS = 48
_GROWTH_SWEEPS = 8  # at first, when any sensible division will do
_HOPE = 5.0  # gains like the last one that would still be worth waiting for
_SETTLED = 0.4  # nats; a proposal that gains less between two looks is settled
_PAIR_NUMBERS = 1 << 22  # totals of pairs of clusters, whose merge gains are computed at once
_PULLS = (0.4, 0.9)  # how far candidates begin towards their seeds from the mean of a cluster
_PARTNERS = 5  # the most similar clusters, of which those of a group are drawn
_LEAST_GAIN = 1e-6  # nats; less is rounding …
_ROUNDING = 1e-13  # … and this share of the log joint
_LITTLE = 1e-7  # of the log joint: less is no progress …
_LULL = 3.0  # … and if all that was done before is done so many times without any, nothing helps
_LEAST_WORK = 10.0  # sweeps of all rows, which count as done
_TRIES = 3  # at dividing a cluster, when the number of clusters grows
_ENOUGH = 1e-6  # nats a row: sweeps end when they gain less


class Effort(NamedTuple):
    """How long the search tries, and what it does more of."""

    patience: int  # failures, after which a cluster counts as settled
    sweeps: int  # of the rows of a group, at most
    look: int  # sweeps of the rows of a group, after which its proposal is looked at again
    tries: int  # proposals for a group, of which the best is looked at
    between: float  # sweeps of all rows that cost as much as regrouping between two of them


_EFFORT = Effort(12, MOST_SWEEPS, 4, 1, 2.0)
_DEVICE_EFFORT = Effort(80, 12, 4, 1, 0.5)  # a pass over a few clusters takes as long as over all
_RECORDED_EFFORT = Effort(16, 12, 12, 8, 2.0)  # … and one that is repeated takes hardly any time


class BatchSearch(Clusters):
    """The search: its clusters, and what has been tried."""

    def __init__(
        self,
        rows: Rows,
        form: LinearForm,
        tables: Tables,
        rng: Rng,
        note: Callable[[str, float, int], None],
        check_time: Callable[[], None],
    ) -> None:
        super().__init__(rows, form, tables)
        self.rng, self.note, self.check_time = rng, note, check_time
        self.schedule = Schedule(len(MOVES))
        self.spent = 0.0  # scores computed
        self._swept = 0.0  # when all rows were swept last
        self.effort = _EFFORT
        if hasattr(rows, "lifted"):
            self.effort = _RECORDED_EFFORT if getattr(rows, "records", False) else _DEVICE_EFFORT
        self._progress = -np.inf, 0.0  # the log joint when there was any, and what was spent then

    def begin_with(self, labels: Labels) -> None:
        """Give the rows labels, 0, 1, … without gaps, and take the clusters that these make."""
        self.rows.place(labels)
        self.begin(int(labels.max()) + 1)

    def begin(self, n_clusters: int) -> None:
        """Take the clusters that the rows are in."""
        totals = self.rows.totals(n_clusters)
        there = totals.sizes > 0
        self.rows.decide(np.empty(0, np.int64), np.cumsum(there) - 1)
        self.adopt(totals.take(there))

    def begin_from(self, totals: Totals) -> None:
        """Give all rows to the best of these clusters, in one pass; they may be of other rows."""
        n = len(totals.sizes)
        self.rows.place(None)
        scores = self.scores(totals)
        found = here(self.rows.assign(Candidates(np.zeros(1, np.int64), np.array([0, n]), *scores)))
        there = found.sizes > 0
        self.rows.decide(np.where(there, np.cumsum(there) - 1, -1), np.zeros(1, np.int64))
        self.adopt(found.take(there))

    def adopt(self, totals: Totals) -> None:
        """Take clusters that the rows have come to be in."""
        self._progress = -np.inf, self.spent
        self._set(totals, np.zeros(len(totals.sizes), np.int64))

    def _set(self, totals: Totals, failures: Ints) -> None:
        self.totals, self.values, self.failures = totals, self.value_of(totals), failures
        self._merges = _unknown(len(failures))

    # -- moves ------------------------------------------------------------------------------

    def sweep(self) -> float:
        """Give each row to its best cluster; return what that gains."""
        n = self.n_clusters
        everything = Candidates(np.zeros(n, np.int64), np.array([0, n]), *self.scores(self.totals))
        totals = here(self.rows.assign(everything))
        there = totals.sizes > 0
        before = self.log_joint
        old = self.totals, self.failures
        moved = np.abs(totals.sizes - self.totals.sizes) > 0.02 * self.totals.sizes
        half = self.effort.patience // 2
        failures = np.where(moved, np.minimum(self.failures, half), self.failures)
        self._set(totals.take(there), failures[there])
        gain = self.log_joint - before
        self.spent += float(n * self.rows.n_rows)
        self._swept = self.spent
        if gain <= max(_LEAST_GAIN, _ROUNDING * abs(before)):
            self._set(*old)
            self.rows.decide(np.full(n, -1), np.arange(n))
            return 0.0
        self.rows.decide(np.cumsum(there) - 1, np.arange(n))
        self.note("sweep", self.log_joint, self.n_clusters)
        return gain

    def sweeps(self, most: int, enough: float) -> None:
        """Sweep while that gains more than `enough`."""
        for _ in range(most):
            self.check_time()
            if self.sweep() <= enough:
                return

    def merge(self) -> float:
        """Merge pairs of clusters by their totals; return what that gains."""
        before = self.log_joint
        while self.n_clusters > 1:
            self.check_time()
            first, second, gains = self.merge_gains()
            into = np.arange(self.n_clusters)
            taken = np.zeros(self.n_clusters, bool)
            n = self.n_clusters
            for p in np.argsort(-gains, kind="stable"):
                a, b = int(first[p]), int(second[p])
                step = float(self.tables.log_v[n - 1] - self.tables.log_v[n])
                if gains[p] + step <= _LEAST_GAIN:
                    break
                if not taken[a] and not taken[b]:
                    taken[[a, b]] = True
                    into[b] = a
                    n -= 1
            if n == self.n_clusters:
                break
            kept = np.flatnonzero(into == np.arange(self.n_clusters))
            number = np.zeros(self.n_clusters, np.int64)
            number[kept] = np.arange(n)
            new = number[into]
            totals = Totals(np.zeros(n), np.zeros((n, self.form.n_totals)))
            np.add.at(totals.sizes, new, self.totals.sizes)
            np.add.at(totals.sums, new, self.totals.sums)
            failures = self.failures[kept]
            failures[np.bincount(new, minlength=n) > 1] = 0
            self.rows.decide(np.empty(0, np.int64), new)
            self._set(totals, failures)
        gain = self.log_joint - before
        if gain > 0.0:
            self.note("merge", self.log_joint, self.n_clusters)
        return gain

    def merge_gains(self) -> tuple[Ints, Ints, Vector]:
        """Return pairs of similar clusters and what merging each would gain, but for log V.

        What is known of clusters that have not changed is not computed again.
        """
        first, second = self.pairs()
        known = self._merges
        gains = np.full(len(first), np.nan) if known is None else known[first, second]
        todo = np.flatnonzero(np.isnan(gains))
        totals, step = self.lifted(self.totals), max(1, _PAIR_NUMBERS // self.form.n_totals)
        for at in range(0, len(todo), step):
            some = todo[at : at + step]
            a, b = first[some], second[some]
            both = (taken(totals, indices(totals.sums, one)) for one in (a, b))
            together = self.value_of(operator.add(*both))
            gains[some] = together - self.values[a] - self.values[b]
        if known is not None:
            known[first[todo], second[todo]] = gains[todo]
        return first, second, gains

    def grow(self, tries: int) -> None:
        """Divide clusters, all at once, while that gains; each `tries` times."""
        while True:
            self.check_time()
            restless = np.flatnonzero(self.failures < tries)
            restless = restless[self.totals.sizes[restless] >= 2]
            if not len(restless):
                return
            groups = [Group(np.array([k]), GROWTH) for k in restless]
            gains, _ = self.propose(groups, _GROWTH_SWEEPS)
            if gains.max() > _LEAST_GAIN:
                self.note("split", self.log_joint, self.n_clusters)
                self.sweep()

    def regroup(self, patience: int) -> bool:
        """Propose new partitions of disjoint groups; return whether any cluster is restless."""
        self.check_time()
        if self.log_joint > self._progress[0] + _LITTLE * abs(self.log_joint):
            self._progress = self.log_joint, self.spent
        sweeps = _LEAST_WORK * self.rows.n_rows * self.n_clusters
        if self.spent > _LULL * max(self._progress[1], sweeps):
            return False
        restless = np.flatnonzero(self.failures < patience)
        if not len(restless):
            return False
        groups, kinds = self.groups(restless)
        if not groups:
            return True
        gains, costs = self.propose(groups, self.effort.sweeps, self.effort.tries)
        for kind, gain, cost in zip(kinds, gains, costs, strict=True):
            self.schedule.learn(kind, float(gain), float(cost))
        if gains.max() > _LEAST_GAIN:
            self.note("regroup", self.log_joint, self.n_clusters)
        return True

    def groups(self, restless: Ints) -> tuple[list[Group], list[int]]:
        """Return disjoint groups about restless clusters, and the numbers of their moves."""
        partners = self.partners()
        taken: set[int] = set()
        groups, kinds = [], []
        wanted = self.schedule.choose(self.rng, len(restless)).tolist()
        for k, kind in zip(self.rng.permutation(restless).tolist(), wanted, strict=True):
            if k in taken:
                continue
            move = MOVES[kind]
            free = (p for p in partners[k] if p not in taken)
            near = list(itertools.islice(free, move.n_clusters + _PARTNERS - 2))
            others = self.rng.permutation(near)[: move.n_clusters - 1].astype(np.int64)
            members = np.concatenate([[k], others])
            if len(members) < move.n_clusters or self.too_small(members, move):
                self.failures[k] += 1
                continue
            taken.update(members.tolist())
            groups.append(Group(members, move))
            kinds.append(kind)
        return groups, kinds

    def partners(self) -> list[list[int]]:
        """Return for each cluster the others, beginning with the best one to merge with."""
        first, second, gains = self.merge_gains()
        a, b = np.concatenate([first, second]), np.concatenate([second, first])
        order = np.lexsort((-np.concatenate([gains, gains]), a))
        edges = np.searchsorted(a[order], np.arange(self.n_clusters + 1))
        b = b[order]
        return [b[edges[k] : edges[k + 1]].tolist() for k in range(self.n_clusters)]

    # -- proposals --------------------------------------------------------------------------

    def too_small(self, members: Ints, move: Move) -> bool:
        """Whether a group has not enough rows for the seeds of a move."""
        return bool(self.totals.sizes[members[: move.divided]].sum() < 2 * move.seeds)

    def propose(
        self, groups: list[Group], most: int = MOST_SWEEPS, tries: int = 1
    ) -> tuple[Vector, Vector]:
        """Give groups of clusters new partitions where that gains; return gains and costs."""
        starts, of_cluster = self.numbered(groups)
        totals, values, costs = self.tried(groups, starts, of_cluster, most, tries)
        if tries > 1:  # the rows follow the last try: one more sweep takes them to the best
            found = self.rows.assign(Candidates(of_cluster, starts, *self.scores(totals)))
            totals, values = here(found), self.value_of(found)
        self.spent += float(costs.sum())
        return self.take(groups, starts, of_cluster, totals, values), costs

    def tried(
        self, groups: list[Group], starts: Ints, of_cluster: Ints, most: int, tries: int
    ) -> tuple[Totals, Vector, Vector]:
        """Return the best candidates of a few tries for each group, as `settled` does."""
        owner = np.repeat(np.arange(len(groups)), np.diff(starts))
        best, costs = np.full(len(groups), -np.inf), np.zeros(len(groups))
        totals = Totals(np.zeros(len(owner)), np.zeros((len(owner), self.form.n_totals)))
        values = np.zeros(len(owner))
        for start in self.beginnings(groups, starts, of_cluster, tries):
            found = self.settled(groups, starts, of_cluster, start, most)
            value = np.bincount(owner, found[1], minlength=len(groups))
            better = (value > best)[owner]
            best = np.maximum(best, value)
            for mine, new in zip((*totals, values), (*found[0], found[1]), strict=True):
                mine[better] = new[better]
            costs += found[2]
        return totals, values, costs

    def numbered(self, groups: list[Group]) -> tuple[Ints, Ints]:
        """Return where the candidates of each group begin, and the group of each cluster."""
        of_cluster = np.full(self.n_clusters, -1)
        for g, group in enumerate(groups):
            of_cluster[group.clusters] = g
        return np.cumsum([0, *(group.move.n_candidates for group in groups)]), of_cluster

    def settled(
        self, groups: list[Group], starts: Ints, of_cluster: Ints, totals: Totals, most: int
    ) -> tuple[Totals, Vector, Vector]:
        """Sweep the rows of groups among their candidates.

        Return these, their values, and the number of scores computed for each group.

        A group is swept until it gains no more, or as long as it may still come to gain something.
        """
        owner = np.repeat(np.arange(len(groups)), np.diff(starts))
        goal = np.array([self.values[group.clusters].sum() for group in groups])
        rows_of = np.array([self.totals.sizes[group.clusters].sum() for group in groups])
        values, costs = np.full(len(owner), -np.inf), np.zeros(len(groups))
        reached = np.full(len(groups), -np.inf)
        out, now = Totals(*map(np.empty_like, totals)), of_cluster
        # Candidates of groups that are still swept, and where they are among all.
        part, inside, active = self.lifted(totals), np.arange(len(owner)), reached < 0.0
        at = back = None  # all of them

        def sweep(part: Totals) -> Totals:
            weights, constants = self.scores(part)
            scores = spread(weights, back, 0.0), spread(constants, back, -np.inf)
            return taken(self.rows.assign(Candidates(now, starts, *scores)), at)

        left = most
        while left:
            count = min(self.effort.look, left)
            part, left = self.repeated(sweep, part, count), left - count
            costs[active] += count * (rows_of * np.diff(starts))[active]
            values[inside] = self.value_of(part)
            value = np.bincount(owner, values, minlength=len(groups))
            step, reached = value - reached, value
            going = active & (step > _SETTLED) & (goal - value < _HOPE * step)
            if not left or (going != active).any():
                out.sizes[inside], out.sums[inside] = here(part)
                stay = np.flatnonzero(going[owner[inside]])
                if not len(stay):
                    break
                part, inside = taken(part, indices(part.sums, stay)), inside[stay]
                places = np.full(len(owner), len(inside))
                places[inside] = np.arange(len(inside))
                at, back = indices(part.sums, inside), indices(part.sums, places)
                now = np.where((of_cluster >= 0) & going[of_cluster], of_cluster, -1)
            active = going
        return out, values, costs

    def repeated(self, sweep: Callable[[Totals], Totals], totals: Totals, count: int) -> Totals:
        """Return what sweeps make of totals, one after the other; where rows are, if they can."""
        self.check_time()
        repeat = getattr(self.rows, "repeated", None)
        if repeat is not None:
            found: Totals = repeat(sweep, totals, count)
            return found
        for _ in range(count):
            self.check_time()
            totals = sweep(totals)
        return totals

    def beginnings(
        self, groups: list[Group], starts: Ints, of_cluster: Ints, tries: int
    ) -> Iterator[Totals]:
        """Yield the totals that candidates begin with, for each try.

        A candidate of a seed begins as a share of its cluster, drawn towards the seed.
        """
        divided = np.concatenate([group.clusters[: group.move.divided] for group in groups])
        kept = np.concatenate([group.kept for group in groups])
        n_seeds = np.array([group.move.seeds for group in groups])
        n_kept = np.array([len(group.kept) for group in groups])
        counts = np.zeros(self.n_clusters, np.int64)
        counts[divided] = tries * n_seeds[of_cluster[divided]]
        seeds = self.rows.draw(counts, int(self.rng.integers(2**62)))
        owner = of_cluster[seeds.clusters]
        first = np.searchsorted(np.sort(owner), np.arange(len(groups)))
        own = np.bincount(of_cluster[divided], self.totals.sizes[divided], len(groups))
        share = own / np.maximum(n_seeds, 1)
        means = self.totals.sums[seeds.clusters] / self.totals.sizes[seeds.clusters, None]
        # Seeds come first among the candidates of a group, and then the clusters that stay.
        of_seeds, of_kept = _runs(starts[:-1], n_seeds), _runs(starts[:-1] + n_seeds, n_kept)
        drawn = np.bincount(seeds.clusters, minlength=self.n_clusters)
        weights = self.totals.sizes[seeds.clusters] / drawn[seeds.clusters]
        for _ in range(tries):
            # In proportion to the sizes of clusters: those of the least exponential times
            # (Efraimidis & Spirakis 2006).
            order = np.lexsort((self.rng.exponential(size=len(owner)) / weights, owner))
            rank = np.arange(len(order)) - first[owner[order]]
            picked = order[rank < n_seeds[owner[order]]]
            of = owner[picked]
            pull = self.rng.uniform(*_PULLS, size=len(groups))[of, None]
            sizes = np.empty(starts[-1])
            sums = np.empty((starts[-1], self.form.n_totals))
            sizes[of_kept], sums[of_kept] = self.totals.sizes[kept], self.totals.sums[kept]
            sizes[of_seeds] = share[of]
            pulled = (1.0 - pull) * means[picked] + pull * seeds.features[picked]
            sums[of_seeds] = share[of, None] * pulled
            yield Totals(sizes, sums)

    def take(
        self, groups: list[Group], starts: Ints, of_cluster: Ints, totals: Totals, values: Vector
    ) -> Vector:
        """Take the proposals that raise the log joint; return what each would gain."""
        there = totals.sizes > 0
        log_v, n = self.tables.log_v, self.n_clusters
        gains = np.zeros(len(groups))
        taken = np.zeros(len(groups), bool)
        for g, group in enumerate(groups):
            inside = slice(starts[g], starts[g + 1])
            more = int(there[inside].sum()) - len(group.clusters)
            gains[g] = values[inside].sum() - self.values[group.clusters].sum()
            gains[g] += log_v[n + more] - log_v[n]
            taken[g] = gains[g] > _LEAST_GAIN
            n += more if taken[g] else 0
            self.failures[group.clusters[0]] += 1
        kept = np.flatnonzero(~(taken[of_cluster] & (of_cluster >= 0)))
        group_of_candidate = np.repeat(np.arange(len(groups)), np.diff(starts))
        new = np.flatnonzero(there & taken[group_of_candidate])
        of_clusters = np.full(self.n_clusters, -1)
        of_clusters[kept] = np.arange(len(kept))
        of_candidates = np.full(len(values), -1)
        of_candidates[new] = len(kept) + np.arange(len(new))
        self.rows.decide(of_candidates, of_clusters)
        old, fresh = self.totals.take(kept), totals.take(new)
        self.totals = Totals(*(np.concatenate(pair) for pair in zip(old, fresh, strict=True)))
        self.values = np.concatenate([self.values[kept], values[new]])
        self.failures = np.concatenate([self.failures[kept], np.zeros(len(new), np.int64)])
        merges = _unknown(len(self.failures))
        if merges is not None and self._merges is not None:
            merges[: len(kept), : len(kept)] = self._merges[np.ix_(kept, kept)]
        self._merges = merges
        return gains

    # -- the whole --------------------------------------------------------------------------

    def sweeps_until_settled(self) -> None:
        """Sweep while that gains something worth a sweep."""
        self.sweeps(10, _ENOUGH * self.rows.n_rows)

    def first(self, tries: int = _TRIES) -> None:
        """Let the number of clusters grow, merge, and sweep: most of the gain, in little time."""
        self.grow(tries)
        self.merge()
        self.sweeps_until_settled()

    def rounds(self, budget: float = np.inf) -> bool:
        """Regroup, sweep and merge; return whether nothing gains any more.

        It ends as well when as many scores as the budget were computed, or `check_time` raises.
        """
        end, enough = self.spent + budget, _ENOUGH * self.rows.n_rows
        between = self.effort.between * self.rows.n_rows
        while self.spent < end:
            if not self.regroup(self.effort.patience):
                if self.merge() + self.sweep() <= enough:
                    return True
            elif self.spent - self._swept > between * self.n_clusters:
                self.sweep()
                self.merge()
        return False

    def run(self) -> None:
        """Search until no move gains any more, or `check_time` raises."""
        self.first()
        self.failures[:] = 0
        self.rounds()


def _runs(begins: Ints, lengths: Ints) -> Ints:
    """Return runs of whole numbers that begin there and are that long, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(begins - before, lengths) + np.arange(lengths.sum())


def _unknown(n: int) -> Matrix | None:
    """Return room for what merges of pairs would gain; None if there are too many pairs."""
    return np.full((n, n), np.nan) if n <= BLOCK else None
