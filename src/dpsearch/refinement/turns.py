"""One run of `dpsearch.refine`: moves of single rows and, for many rows, passes in turn with them.

A pass updates all clusters at once and improves much in little time.  Moves of single rows, each
with its exact gain given all others, find what passes miss.  Which of the two gains more for its
cost depends on the data, so each turn goes to the one that has gained more per score computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch._arrays import to_host
from dpsearch.deadline import OutOfTime
from dpsearch.partition import by_appearance
from dpsearch.passes.memory import batch_search, suits_passes
from dpsearch.passes.search import BatchSearch
from dpsearch.refinement.driver import OneByOne

_SWEEPS = 4  # sweeps of single rows after the first passes
# If the run is not thorough:
_ENOUGH = 0.004  # stop once neither way gains this many nats per row for the cost of a sweep
_MOST = 6.0  # cost of all turns, in sweeps …
_PASSES = 2.0  # … and of one turn of passes
# If it is:
_TURN, _LEAST_TURN = 3, 1e7  # cost of a turn, in sweeps; at least this many scores


class Refinement(OneByOne):
    """One run of refinement, from a partition to the result."""

    def run(
        self,
        thorough: bool,
        tries: int | None,
        batch: BatchSearch | None = None,
        *,
        turns: bool = True,
        device: Any = None,
    ) -> None:
        """Refine with passes by `batch` or by a new batch search, or by moves of single rows."""
        try:
            self.history.check_time()
            if batch is None and suits_passes(self.problem, device):
                batch = self._batch_search(device)
            if batch is None:
                self.run_one_by_one(thorough, tries)
            else:
                self._first_passes(batch)
                if turns:
                    (self._take_all_turns if thorough else self._take_some_turns)(batch)
        except OutOfTime:
            return
        self.converged = thorough

    def _batch_search(self, device: Any) -> BatchSearch:
        """Return a batch search that begins with the current partition."""
        base = self.problem.log_base
        return batch_search(
            self.problem, by_appearance(self.state.labels), rng=self.rng,
            note=lambda step, value, n: self.history.note(step, value + base, n),
            check_time=self.history.check_time, n_threads=self.n_threads, device=device,
        )  # fmt: skip

    def _first_passes(self, batch: BatchSearch) -> None:
        """Let the number of clusters grow by passes, then sweep."""
        try:
            batch.first()
        finally:  # keep what was found even if the time is up
            self.adopt(to_host(batch.rows.labels()))
        self.gather()
        self.sweeps(_SWEEPS)

    def _take_some_turns(self, batch: BatchSearch) -> None:
        """Alternate sweeps and passes as long as they gain much for their cost."""
        rates, spent, known = [np.inf, np.inf], 0.0, -np.inf
        while spent < _MOST and max(rates) > _ENOUGH:
            n_items, before = self.problem.n_items, self.state.log_joint
            sweep = float(n_items * self.state.n_live)
            turn = int(np.argmax(rates))
            if turn == 0:
                self.sweeps(1)
                cost = 1.0
            else:
                _, scores = self._passes(batch, known, _PASSES * sweep)
                known, cost = self.state.log_joint, max(scores / sweep, 1.0)
            spent += cost
            rates[turn] = (self.state.log_joint - before) / (cost * n_items)

    def _take_all_turns(self, batch: BatchSearch) -> None:
        """Alternate neighbourhoods and passes until neither gains any more, or the time is up."""
        rates, settled, known = [np.inf, np.inf], [False, False], -np.inf
        while not all(settled):
            turn = int(np.argmax(np.where(settled, -1.0, rates)))
            before = self.state.log_joint
            budget = float(_TURN * self.problem.n_items * self.state.n_live)
            budget = max(budget, _LEAST_TURN)
            if turn == 0:
                settled[0], cost = self._passes(batch, known, budget)
                known = self.state.log_joint
            else:
                settled[1], cost = self.neighbourhoods(budget)
            gain = self.state.log_joint - before
            rates[turn] = gain / max(cost, 1.0)
            if gain > self.significant:
                settled[1 - turn] = False

    def _passes(self, batch: BatchSearch, known: float, budget: float) -> tuple[bool, float]:
        """Take a turn of passes; return whether they have settled, and the scores computed.

        It continues from where the last turn ended unless the partition has improved since.
        """
        if self.state.log_joint > known + self.significant:
            batch.begin_with(by_appearance(self.state.labels))
        value, spent = batch.log_joint, batch.spent
        try:
            settled = batch.rounds(budget)
        finally:
            if batch.log_joint > value + self.significant:
                self.adopt(to_host(batch.rows.labels()))
        return settled, batch.spent - spent
