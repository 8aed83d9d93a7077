"""Two ways to refine many rows, which take turns: neither alone is best.

Passes move all clusters at once and go far in little time; rows that are moved one by one, each by
its exact gain given all others, find what is left.  Which of them gains more for its cost depends
on the data, so that the next turn goes to the one that has gained more.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpsearch._arrays import to_host
from dpsearch._types import Labels, Rng
from dpsearch.partition import by_appearance
from dpsearch.passes.search import BatchSearch
from dpsearch.schedule import Schedule
from dpsearch.state import State

_SWEEPS = 4  # of rows one by one, after the first passes
_ENOUGH = 0.004  # nats a row: a turn that gains less for the cost of a sweep is the last by default
_MOST = 6.0  # sweeps that cost as much as all turns by default …
_PASSES = 2.0  # … and as one turn of passes
_TURN, _LEAST_TURN = 10, 1e7  # sweeps that cost as much as a turn; scores at least


class OneByOne(Protocol):
    """The other way: a partition, whose rows are moved one by one."""

    state: State
    rng: Rng
    significant: float

    def check_time(self) -> None:
        """Raise if the time is up."""

    def tell(self, move: str, log_joint: float, n_clusters: int) -> None:
        """Report progress."""

    def gather(self) -> None:
        """Merge small clusters."""

    def sweeps(self, most: int) -> int:
        """Move rows to their best clusters."""

    def adopt(self, labels: Labels) -> None:
        """Go on from another partition."""

    def neighbourhoods(self, budget: float) -> tuple[bool, float]:
        """Search; return whether nothing improves any more, and the scores computed."""


def refine_by_passes(one_by_one: OneByOne, batch: BatchSearch) -> None:
    """Let the number of clusters grow by passes, and sweep."""
    try:
        batch.first()
    finally:  # what was found counts, also if time is up
        one_by_one.adopt(_labels(batch))
    one_by_one.gather()
    one_by_one.sweeps(_SWEEPS)


def take_turns(one_by_one: OneByOne, batch: BatchSearch, thorough: bool) -> None:
    """Refine in turns, until nothing improves any more, or as long as they gain much."""
    if thorough:
        _take_all_turns(batch, one_by_one)
    else:
        _take_some_turns(batch, one_by_one)


def _take_some_turns(batch: BatchSearch, one_by_one: OneByOne) -> None:
    """Take turns, sweeps and passes, as long as they gain much for their cost."""
    rates, spent, known = [np.inf, np.inf], 0.0, -np.inf
    while spent < _MOST and max(rates) > _ENOUGH:
        state = one_by_one.state
        before, sweep = state.log_joint, float(len(state.labels) * state.n_live)
        turn = int(np.argmax(rates))
        if turn == 0:
            one_by_one.sweeps(1)
            cost = 1.0
        else:
            _, scores = _passes(batch, one_by_one, known, _PASSES * sweep)
            known, cost = one_by_one.state.log_joint, max(scores / sweep, 1.0)
        spent += cost
        rates[turn] = (one_by_one.state.log_joint - before) / (cost * len(state.labels))


def _take_all_turns(batch: BatchSearch, one_by_one: OneByOne) -> None:
    """Refine until neither way gains anything any more, or one of them raises."""
    schedule, settled, known = Schedule(2), [False, False], -np.inf
    while not all(settled):
        turn = schedule.choose(one_by_one.rng)
        turn = turn if not settled[turn] else 1 - turn
        state = one_by_one.state
        before, budget = state.log_joint, float(_TURN * len(state.labels) * state.n_live)
        budget = max(budget, _LEAST_TURN)
        if turn == 0:
            settled[0], cost = _passes(batch, one_by_one, known, budget)
            known = one_by_one.state.log_joint
        else:
            settled[1], cost = one_by_one.neighbourhoods(budget)
        gain = one_by_one.state.log_joint - before
        schedule.learn(turn, gain, max(cost, 1.0))
        if gain > one_by_one.significant:
            settled[1 - turn] = False


def _passes(
    batch: BatchSearch, one_by_one: OneByOne, known: float, budget: float
) -> tuple[bool, float]:
    """Take a turn of passes, from where the last one ended if nothing was found since."""
    if one_by_one.state.log_joint > known + one_by_one.significant:
        batch.begin_with(by_appearance(one_by_one.state.labels))
    value, spent = batch.log_joint, batch.spent
    try:
        settled = batch.rounds(budget)
    finally:
        if batch.log_joint > value + one_by_one.significant:
            one_by_one.adopt(_labels(batch))
    return settled, batch.spent - spent


def _labels(batch: BatchSearch) -> Labels:
    labels: Labels = to_host(batch.rows.labels())
    return labels
