"""The outcome of an attack."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """The number of times an attack was made, and of broken promises."""

    name: str
    what: str
    tried: int
    failed: int
    seconds: float
