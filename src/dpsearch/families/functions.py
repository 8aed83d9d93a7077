"""A family's functions, and their addresses for kernels."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from dpsearch._jit import Pointer, pointer


@pointer("features")
def data_features(params, ids, values, out):  # type: ignore[no-untyped-def]
    """Write the data row itself, dense or sparse, as a vector."""
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[ids[i] if ids.shape[0] > 0 else i] = values[i]


@dataclasses.dataclass(frozen=True)
class Functions:
    """A family's functions.  The first four are required, the others are capabilities.

    merge
        Adds (sign 1) or removes (−1) the points of another row.  With sign 0 it turns a row of
        zeros into that of an empty cluster: it computes all numbers that depend on the statistics.

    score_member
        log H(x | the other members) for a point that the row contains.  Without it, or if it
        returns NaN, solvers copy the row, remove the point and compare marginals.
    score_best
        log H(x | cluster k) + offsets[k] for clusters that may have the largest such sum, leaving
        out the one at `skipped`; −∞ for the others.  It is for families that can stop early when a
        cluster is too far away, and for solvers that need only the best cluster.
    score_dots, dots_offset, best_dots
        Scoring that needs only the inner product of the point with a linear statistic, which starts
        at ``row[dots_offset]``, so that solvers take points in blocks.  `best_dots` is `score_best`
        for such products, but ignores sums that are not above `floor`, and if one sum is above it
        and above all others, it may write a lower bound of that sum.
    bound, features
        The exact methods' upper bound on a predictive probability (see `heuristics.py`), and the
        numbers of a data row whose sums over helpers it uses: by default the row itself.
    """

    update: Pointer
    merge: Pointer
    score_rows: Pointer
    log_marginal: Pointer
    score_member: Pointer | None = None
    score_best: Pointer | None = None
    score_dots: Pointer | None = None
    dots_offset: int = 0
    best_dots: Pointer | None = None
    bound: Pointer | None = None
    features: Pointer = data_features


class Dots(NamedTuple):
    """The block capability, as kernels see it."""

    score_dots: int
    offset: int
    n_features: int
    best_dots: int  # 0 if there is none


class Bounds(NamedTuple):
    """The bound capability, as kernels see it."""

    features: int
    n_features: int
    bound: int


def address(capability: Pointer | None) -> int:
    """Return the address of a function, 0 if the family does not have it."""
    return 0 if capability is None else capability.address
