"""The overlap of components: how much of their memberships they share.

Row i belongs to component a with probability r_ia, given all other rows.  Tempered memberships
r^ζ, normalised again, are those of components with a larger spread.  With

    P_ab = mean_i r_ia r_ib    and    p_a = mean_i r_ia,

P_ab is the probability that two draws of one row's component give a and b, and the lift
P_ab / (p_a p_b) compares it with chance.  All are kept as logarithms, since the overlap of distant
components underflows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from dpsearch._types import Matrix, Vector

_LOST = 1e-290  # smaller sums have lost digits


class Overlap(NamedTuple):
    """Log P [K, K] and log p [K]."""

    log_pairs: Matrix
    log_single: Vector

    @property
    def log_lift(self) -> Matrix:
        """Log of P_ab / (p_a p_b)."""
        return np.asarray(self.log_pairs - self.log_single[:, None] - self.log_single)


def overlap(log_memberships: Matrix, temper: float = 1.0) -> Overlap:
    """Return the overlap of components: `log_memberships` are log r [N, K], `temper` is ζ."""
    log_r = temper * log_memberships
    if temper != 1.0:
        log_r = log_r - logsumexp(log_r, axis=1, keepdims=True)
    share = 1.0 / len(log_r)
    # Each component is scaled by its largest membership, which may be tiny.
    top = log_r.max(axis=0)
    scaled = np.exp(log_r - top)
    with np.errstate(divide="ignore"):
        log_single = np.log(share * scaled.sum(axis=0)) + top
        pairs = share * (scaled.T @ scaled)
        log_pairs = np.log(pairs) + top[:, None] + top
    for a in np.flatnonzero((pairs < _LOST).any(axis=1)):
        lost = np.flatnonzero(pairs[a] < _LOST)
        log_pairs[a, lost] = logsumexp(log_r[:, lost] + log_r[:, [a]], axis=0) + np.log(share)
    return Overlap(log_pairs, log_single)
