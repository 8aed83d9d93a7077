"""Events that solvers report while they run, for progress lines, histories and callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Event(NamedTuple):
    """One report of a solver, and one line of its history.

    `done` of `total` units of work are finished, such as items placed, sweeps drawn or shards
    read.  A total of 0 means that the amount of work is not known.
    """

    seconds: float
    log_joint: float  # of the best partition so far; NaN before there is one
    n_clusters: int
    step: str  # what was done: search, sweep, merge, certify, …
    done: int = 0
    total: int = 0
    upper_bound: float = math.inf  # on the log joint of every partition, as proved so far
    phase: str = ""  # of a fit: reading, choosing the family, searching, refining, …


Callback = Callable[[Event], None]
