"""An upper bound beside the value that it bounds."""

from __future__ import annotations

from dpsearch.errors import ProofError

EPSILON = 2.0**-52  # of double precision


def at_least(lower: float, upper: float, rounding: float) -> float:
    """Return the upper bound, raised to `lower` where it lies below it by no more than rounding.

    >>> at_least(1.0, 1.0 - 1e-12, 1e-10)
    1.0
    """
    if not upper >= lower - rounding:
        raise ProofError(
            f"a bound of {upper!r} on every partition contradicts a partition with the log joint"
            f" {lower!r}: this is an error in dpsearch or in the family; please report it"
        )
    return max(upper, lower)


def rounding_error(n_terms: int, magnitude: float) -> float:
    """Return how far a sum of terms can be off, given the sum of their absolute values."""
    return (n_terms + 64) * EPSILON * (magnitude + 1.0)
