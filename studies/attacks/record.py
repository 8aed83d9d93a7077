"""What an attack came to."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """How often an attack was made, and how often a promise was broken."""

    name: str
    what: str
    tried: int
    failed: int
    seconds: float
