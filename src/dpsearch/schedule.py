"""The choice of the next move: mostly one with a large gain for its cost, sometimes any other."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Ints, Rng


class Schedule:
    """Chooses moves by their past gain for their cost; older gains count less.

    Cost is the number of scores computed, not seconds, so that the same seed gives the same result.
    """

    def __init__(self, n_moves: int) -> None:
        self._gain = np.zeros(n_moves)
        self._cost = np.zeros(n_moves)
        self._tried = np.zeros(n_moves)

    def choose(self, rng: Rng, n: int) -> Ints:
        """Return the indices of n random moves; those of higher gain are more probable."""
        rare = np.flatnonzero(self._tried < 3)
        if len(rare):
            return rare[np.arange(n) % len(rare)]
        rate = self._gain / self._cost
        total = rate.sum()
        bounds = np.cumsum(
            0.7 * rate / total + 0.3 / len(rate) if total > 0.0 else np.ones_like(rate)
        )
        return np.asarray(np.searchsorted(bounds, rng.random(n) * bounds[-1]))

    def learn(self, move: int, gain: float, cost: float) -> None:
        self._gain *= 0.998
        self._cost *= 0.998
        self._gain[move] += max(gain, 0.0)
        self._cost[move] += cost
        self._tried[move] += 1
