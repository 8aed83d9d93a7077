"""A proof that no partition with low … high clusters is better than the best one known.

1. First prices share out the weight of each of its clusters among the points.  Pricing raises them
   where sets break them, which gives an upper bound at once, and these sets become cuts.
2. Repair (`repair`) finds prices that pay for all cuts and equal the weights of the partition's
   clusters.  Pricing and repair alternate until no set breaks the prices: the bound is then the
   partition's value.
3. If prices cannot pay for all cuts, the value of the LP over all sets is above the partition.
   Column generation finds this value (`central`).  An integer programme over the known sets
   (`master`) looks for a better partition, and one over all sets that fit into the gap closes it.
4. If too many sets fit into the gap, triples of points get tolls (`triples`), which lower the value
   of the LP, and column generation continues with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpsearch._clock import clock
from dpsearch._types import Ints, Labels, Vector
from dpsearch.errors import CapabilityError
from dpsearch.exact.assumptions import EPSILON, log_ceiling, totals_of
from dpsearch.exact.central import central_prices
from dpsearch.exact.centre_pricing import CentrePricer
from dpsearch.exact.master import best_partition, error_of
from dpsearch.exact.pricing import NO_TRIPLES, Priced, Pricer
from dpsearch.exact.repair import Repair
from dpsearch.exact.slopes import intercept, slope
from dpsearch.exact.statistic_pricing import StatisticPricer
from dpsearch.exact.subset_pricing import SubsetPricer
from dpsearch.exact.sum_pricing import SumPricer
from dpsearch.exact.triples import broken_triples
from dpsearch.families.statistics import NormalMeans, Statistic
from dpsearch.prefix_search.heuristics import admissible
from dpsearch.problem import Problem

_MARGIN = 0.5  # slack, in nats, that repair aims for at each cut
_SWEEPS = 300
_PATIENCE = 8  # rounds that reduce the gap by less than a fifth, before column generation
_NEAR_ROUNDS, _NEAR = 8, 16  # rounds that search near known sets, and the number of those sets
_SETS_A_POINT = 3  # sets per point in column generation, those with the least slack
_LEAST_SETS = 1000
_LEAST_TOLL = 1e-3  # a triple is kept if its toll is at least this share of the gap
_BETTER = 1e-9  # nats, and a thousandth of it relative to the log joint; less is rounding
_FEW_SETS, _MOST_SETS = 2_000, 20_000  # in the first and in the last integer programme
_MOST_POINTS = 100  # for the helpers' envelopes, whose size grows with the cube
FOREVER = 1e9  # seconds
STATED, PROVED = 64.0 * EPSILON, 32.0 * EPSILON  # relative rounding errors of a bound


class Bounded(NamedTuple):
    """A bound on all partitions with low … high clusters, and what proves it.

    kind
        ``"prices"``: every set C has log w(C) − y(C) ≤ slack, where log w includes λ, and y(C) the
        tolls of the triples of which C has two or three points.
        ``"sets"``: the same, and the best partition into sets that fit into the gap was found.
        ``"ceiling"``: the prices are at least those of `all_loose_prices`, and slack is 0.
        ``"quick"``: the prices are at least those of the pricer's `quick`, and slack is 0.
        ``"line"``: y are the potentials of `dynamic_programme`, and slack is 0.
    y
        The prices of the points, and then the tolls of `triples`, none below 0.
    """

    low: int
    high: int
    lam: float
    y: Vector
    slack: float
    kind: str
    upper: float
    triples: Ints = NO_TRIPLES


def pricer_of(problem: Problem, statistic: Statistic | None, entry: Bounded) -> Pricer | None:
    """Return a pricer for an entry's λ and triples, or None if there is none."""
    pricer = pricer_for(problem, statistic, entry.lam)
    if pricer is None or not len(entry.triples):
        return pricer
    return pricer.with_triples(entry.triples)


def pricer_for(
    problem: Problem, statistic: Statistic | None, lam: float, n_threads: int = 1
) -> Pricer | None:
    """Return a pricer for the problem's clusters, or None if there is none."""
    if isinstance(statistic, NormalMeans) and CentrePricer.takes(problem):
        return CentrePricer(problem, statistic, lam)
    if statistic is not None and not isinstance(statistic, NormalMeans):
        return SumPricer(problem, statistic, lam) if SumPricer.takes(statistic) else None
    totals = totals_of(problem)
    if totals is not None:
        return StatisticPricer(problem, totals, lam, n_threads)
    return SubsetPricer(problem, lam) if SubsetPricer.takes(problem) else None


def all_loose_prices(problem: Problem, lam: float) -> list[Vector]:
    """Return one or two prices with y(C) ≥ λ + log W(|C|) + log H(x_C) for every C.

    They need no pricing, and every family with a density ceiling has them.  By the chain rule
    log H(x_C) is at most the sum of its points' density ceilings, and λ + log W(n) is at most n
    times its largest value per point.  For few points there is also the joint bound of the
    heuristic 'admissible': in a fixed order, a point either opens its cluster or joins earlier
    points, of which the bound takes the most favourable.
    """
    ceiling = log_ceiling(problem, "certify")
    sizes = np.arange(1, problem.n_points + 1)
    out: list[Vector] = [ceiling + float(((lam + problem.size_weights()[1:]) / sizes).max())]
    if problem.n_items <= _MOST_POINTS:
        try:
            heuristic = admissible(problem, np.arange(problem.n_items))
        except CapabilityError:
            return out
        opened = problem.alone + problem.tables.log_w[1] + lam
        out.append(np.maximum(heuristic.fresh[: problem.n_items], opened))
    return out


def total(problem: Problem, entry: Bounded, y: Vector, slack: float, rounding: float) -> float:
    """Return the bound of an entry's range by prices that no set exceeds by more than `slack`.

    It is v₀ + Σy + N·slack, rounded up: there are at most N clusters, each of which exceeds its
    price by at most `slack`, and of each triple at most one cluster has two points.  The sum of
    prices is exact except for its last digit; the other terms come from tables with errors of some
    units in the last place.  `rounding` allows for these: `STATED` in a certificate, and `PROVED`,
    half as much, when it is verified, perhaps on another machine.
    """
    lift = intercept(problem.log_v, entry.lam, entry.low, entry.high)
    magnitude = float(np.abs(y).sum()) + abs(lift) + abs(entry.lam) * entry.high
    out = problem.log_base + lift + math.fsum(y) + problem.n_items * max(slack, 0.0)
    return out + rounding * (magnitude + abs(problem.log_base))


def by_prices(problem: Problem, entry: Bounded, y: Vector, slack: float, kind: str) -> Bounded:
    """Return the entry with these prices and the bound that they prove."""
    upper = total(problem, entry, y, slack, STATED)
    return entry._replace(y=y, slack=slack, kind=kind, upper=upper)


def by_loose_prices(problem: Problem) -> Bounded:
    """Return a bound on every partition that needs no pricing."""
    n = len(problem.log_v) - 1
    lam = slope(problem.log_v, 1, n)
    y = min(all_loose_prices(problem, lam), key=np.sum)
    return by_prices(problem, Bounded(1, n, lam, y, 0.0, "ceiling", math.inf), y, 0.0, "ceiling")


def stated_slack(bound: float, rounding: float) -> float:
    """Return a slack that no set exceeds when pricing is repeated, with its own rounding."""
    return bound + max(4.0 * rounding, 0.02 * bound)


def confirming_threshold(slack: float, rounding: float) -> float:
    """Return the threshold above which pricing must find no set to confirm a slack."""
    return slack - max(2.0 * rounding, 0.01 * slack)


class Outcome(NamedTuple):
    """The result of an attempt: proved, better (another partition), stuck or late."""

    what: str
    bounded: Bounded
    labels: Labels | None = None


class Sets:
    """Every set found so far, with its weight without λ; shared by all ranges."""

    def __init__(self) -> None:
        self.columns: list[Ints] = []
        self._weights: list[float] = []
        self._known: dict[bytes, int] = {}

    def add(self, columns: list[Ints], pricer: Pricer) -> list[int]:
        """Add sets; return the numbers of those that are new."""
        new = []
        for members in columns:
            key = members.astype(np.int64).tobytes()
            if key not in self._known:
                self._known[key] = len(self.columns)
                new.append(len(self.columns))
                self.columns.append(members)
                self._weights.append(pricer.log_weight(members) - pricer.lam)
        return new

    def number(self, members: Ints) -> int:
        return self._known[members.astype(np.int64).tobytes()]

    @property
    def weights(self) -> Vector:
        return np.array(self._weights)


class Proof:
    """One attempt to bound the range of `start`, with the pricer's slope λ."""

    def __init__(
        self,
        pricer: Pricer,
        sets: Sets,
        start: Bounded,
        labels: Labels,
        goal: float,
        *,
        tolerance: float,
        deadline: float = math.inf,
        report: Callable[[float], None] = lambda upper: None,
        tolls: bool = True,
    ) -> None:
        problem = pricer.problem
        self.problem = problem
        self.pricer = self.plain = pricer
        self.sets = sets
        self.labels = labels
        self.goal = goal
        self.low, self.high, self.lam = start.low, start.high, pricer.lam
        # Pricing leaves up to 11 times its rounding at each point, so a lower gap is out of reach.
        self.tolerance = max(tolerance, 12.0 * problem.n_items * pricer.rounding(start.y))
        self.deadline = deadline
        self.report = report
        self.tolls = tolls
        self.best = start
        self.n = problem.n_items
        lift = intercept(problem.log_v, self.lam, self.low, self.high)
        self.base = problem.log_base + lift
        self.better = goal + _BETTER + 1e-3 * _BETTER * abs(goal)
        self.threshold = tolerance / (4.0 * self.n)

    def run(self) -> Outcome:
        tight = [np.flatnonzero(self.labels == k) for k in range(int(self.labels.max()) + 1)]
        self.sets.add(tight, self.pricer)
        self._repair(tight)
        self.pricer = self._pricer_of_best()
        while True:
            if not self._done():
                self._generate(tight)
            if self._done():
                proved = self.best.upper <= self.goal + self.tolerance
                return Outcome("proved" if proved else "late", self.best)
            outcome = self._enumerate(_FEW_SETS, 0.1)
            if outcome.what != "stuck":
                return outcome
            if not (self.tolls and self._take_triples()):
                return self._enumerate(_MOST_SETS, 1.0)

    def _repair(self, tight: list[Ints]) -> None:
        """Lower the upper bound to the goal, until cuts rule that out or progress is slow."""
        repair = self._begin_repair(tight)
        y, _ = self._solve(repair, _SWEEPS)
        waiting, mark = 0, math.inf
        while waiting < _PATIENCE:
            raised = self._raise(y)
            if self._done() or not raised.complete or not self._cut(repair, raised.columns):
                return
            gap = self.best.upper - self.goal
            waiting, mark = (0, gap) if gap < 0.8 * mark else (waiting + 1, mark)
            repaired = self._repaired(repair, 0.1 * gap)
            if repaired is None:
                return
            y = self._repaired_nearby(repair, repaired, 0.1 * gap)

    def _repaired_nearby(self, repair: Repair, y: Vector, allowed: float) -> Vector:
        """Repair for sets that are found near known ones, before all sets are priced again."""
        for _ in range(_NEAR_ROUNDS):
            closest = np.argsort(-self._above(self.plain, y), kind="stable")[:_NEAR]
            near = [self.sets.columns[s] for s in closest]
            found = self.pricer.near(near, y, self.threshold)
            repaired = self._repaired(repair, allowed) if self._cut(repair, found) else None
            if repaired is None:
                break
            y = repaired
        return y

    def _generate(self, tight: list[Ints]) -> None:
        """Lower the upper bound to the value of the LP over all sets, by column generation."""
        value = -math.inf
        n_triples = len(self.pricer.triples)
        tolls = [np.array([self.n + t]) for t in range(n_triples)]  # weight 0, as tolls are ≥ 0
        while not self._done():
            start = self._best_prices()
            spare = -self._above(self.pricer, start)
            spare[[self.sets.number(members) for members in tight]] = -math.inf
            near = np.argsort(spare, kind="stable")[: max(_SETS_A_POINT * self.n, _LEAST_SETS)]
            gap = self.best.upper - max(self.base + value, self.goal)
            columns = [self.pricer.items(self.sets.columns[s]) for s in near] + tolls
            weights = np.append(self.sets.weights[near] + self.lam, np.zeros(n_triples))
            central = central_prices(start, columns, weights, 0.1 * max(gap, self.tolerance))
            if central is None:
                return
            value = central.value
            raised = self._raise(central.prices)
            new = self.sets.add(raised.columns, self.pricer)
            left = self.best.upper - max(self.base + value, self.goal)
            if not new or not raised.complete or left < 0.02 * (self.best.upper - self.goal):
                return

    def _best_prices(self) -> Vector:
        """Return the best prices, with tolls of the pricer's triples, that need no slack."""
        best, n_triples = self.best, len(self.pricer.triples)
        out = np.zeros(self.n + n_triples)
        out[: self.n] = best.y[: self.n] + max(best.slack, 0.0)
        tolls = zip(best.triples, best.y[self.n :], strict=True)
        known = {tuple(three): toll for three, toll in tolls}
        for t, three in enumerate(self.pricer.triples):
            out[self.n + t] = known.pop(tuple(three), 0.0)
        for three, toll in known.items():  # two of its points can pay for a toll
            out[list(three)] += 0.5 * toll
        return out

    def _take_triples(self) -> bool:
        """Adopt triples that a solution over the known sets breaks; return whether any exist."""
        best, gap = self.best, self.best.upper - self.goal
        above = self._above(self._pricer_of_best(), best.y)
        columns = [self.sets.columns[s] for s in np.flatnonzero(above >= -gap)]
        weights = [self.plain.worth(members, best.y) for members in columns]
        more = broken_triples(columns, np.array(weights), best.triples, self.n)
        if not len(more):
            return False
        used = best.triples[best.y[self.n :] > _LEAST_TOLL * gap]
        self.pricer = self.plain.with_triples(np.concatenate([used, more])) or self.plain
        return len(self.pricer.triples) > 0

    def _above(self, pricer: Pricer, y: Vector) -> Vector:
        """Return the weight of each known set minus its price."""
        prices = [y[pricer.items(members)].sum() for members in self.sets.columns]
        return np.asarray(self.sets.weights + self.lam - prices)

    def _pricer_of_best(self) -> Pricer:
        """Return a pricer with the triples of the best prices."""
        triples = self.best.triples
        if triples is self.pricer.triples:
            return self.pricer
        return self.plain.with_triples(triples) or self.plain

    def _begin_repair(self, tight: list[Ints]) -> Repair:
        """Require equality on the clusters; all points share what the goal exceeds them by."""
        weights = np.array([self.pricer.log_weight(members) for members in tight])
        room = max(self.goal - self.base - float(weights.sum()), 0.0) / self.n
        weights += room * np.array([len(members) for members in tight])
        repair = Repair(self.pricer.fit(self.labels), tight, weights)
        repair.add(self.sets.columns, self.sets.weights + self.lam)
        return repair

    def _cut(self, repair: Repair, columns: list[Ints]) -> list[int]:
        """Add the sets that broke the prices as cuts; return the numbers of those that are new."""
        new = self.sets.add(columns, self.pricer)
        repair.add([self.sets.columns[s] for s in new], self.sets.weights[new] + self.lam)
        return new

    def _repaired(self, repair: Repair, allowed: float) -> Vector | None:
        """Return prices that no cut exceeds by more than `allowed`, or None."""
        for sweeps in (_SWEEPS, 4 * _SWEEPS):
            y, short = self._solve(repair, sweeps)
            if short <= allowed:
                return y
        return None

    def _solve(self, repair: Repair, sweeps: int) -> tuple[Vector, float]:
        return repair.solve(
            _MARGIN, sweeps=sweeps, tolerance=1e-3 * self.tolerance, deadline=self.deadline
        )

    def _raise(self, y: Vector) -> Priced:
        """Price, and keep the raised prices if their bound is the best so far."""
        raised = self.pricer.raise_prices(
            y, threshold=self.threshold, max_columns=50 * self.n, deadline=self.deadline
        )
        slack = stated_slack(max(raised.bound, 0.0), self.pricer.rounding(raised.y))
        start = self.best._replace(lam=self.lam, triples=self.pricer.triples)
        found = by_prices(self.problem, start, raised.y, slack, "prices")
        if found.upper < self.best.upper:
            self.best = found
            self.report(found.upper)
        return raised

    def _enumerate(self, limit: int, share: float) -> Outcome:
        """List every set that a better partition could contain, and solve over them.

        At most `limit` sets are listed, and the solver may take a share of the time left.
        """
        best, pricer = self.best, self._pricer_of_best()
        gap, rounding = best.upper - self.goal, pricer.rounding(best.y)
        near = np.flatnonzero(self._above(pricer, best.y) >= -gap)
        known = [self.sets.columns[s] for s in near]
        labels, _ = self._best_of(known, 0.5 * min(share, 0.2) * self._left())
        if labels is not None:
            return Outcome("better", best, labels)
        columns = pricer.columns_within(best.y, gap, limit=limit, deadline=self.deadline)
        if columns is None:
            return Outcome("stuck", best)
        labels, bound = self._best_of(columns, share * self._left())
        if labels is not None:
            return Outcome("better", best, labels)
        # The stated bound includes the error twice; verification allows for it once.
        upper = max(bound, self.goal) + 2.0 * error_of(pricer, best.y)
        if upper >= best.upper:
            return Outcome("stuck", best)
        # Prices that need no slack, such as loose ones, get the least that pricing can confirm.
        slack = max(best.slack, stated_slack(4.0 * rounding, rounding))
        self.best = best._replace(kind="sets", slack=slack, upper=upper)
        self.report(self.best.upper)
        proved = self.best.upper <= self.goal + self.tolerance
        return Outcome("proved" if proved else "stuck", self.best)

    def _best_of(self, columns: list[Ints], seconds: float) -> tuple[Labels | None, float]:
        """Return a partition into these sets if one is better, and a bound on all of them."""
        labels, bound = best_partition(
            self._pricer_of_best(), self.best.y, columns, self.low, self.high, seconds
        )
        better = labels is not None and self.problem.log_joint(labels) > self.better
        return labels if better else None, bound

    def _done(self) -> bool:
        """Whether the gap is closed, or time is up."""
        return self.best.upper <= self.goal + self.tolerance or clock() > self.deadline

    def _left(self) -> float:
        return min(self.deadline - clock(), FOREVER)
