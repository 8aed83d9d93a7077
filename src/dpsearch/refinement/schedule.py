"""Which move to try next: those that have brought most for their cost.

Cost is counted in scores computed, not in seconds, so that the same seed gives the same result.
"""

from __future__ import annotations

import numpy as np

from dpsearch._types import Rng
from dpsearch.refinement.moves import Move


class Schedule:
    """A bandit over kinds of moves, forgetting slowly."""

    def __init__(self, moves: tuple[Move, ...]) -> None:
        self.moves = moves
        self._gain = np.zeros(len(moves))
        self._cost = np.zeros(len(moves))
        self._tried = np.zeros(len(moves))

    def choose(self, rng: Rng) -> int:
        """Return the number of a move: each now and then, the fruitful ones more often."""
        if self._tried.min() < 3:
            return int(np.argmin(self._tried))
        rate = self._gain / self._cost
        total = rate.sum()
        bounds = np.cumsum(
            0.7 * rate / total + 0.3 / len(rate) if total > 0.0 else np.ones_like(rate)
        )
        return int(np.searchsorted(bounds, rng.random() * bounds[-1]))

    def learn(self, move: int, gain: float, cost: float) -> None:
        self._gain *= 0.998
        self._cost *= 0.998
        self._gain[move] += max(gain, 0.0)
        self._cost[move] += cost
        self._tried[move] += 1
