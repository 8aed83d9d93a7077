"""What an attack tried, and how often a promise was broken."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """The record of one attack."""

    name: str
    what: str  # was tried, and what would have been a failure
    tried: int
    failed: int
    seconds: float
