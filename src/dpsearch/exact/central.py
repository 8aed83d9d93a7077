"""Central prices for column generation: an interior solution of the LP over the known sets.

If the LP is fractional, its extreme solutions jump from corner to corner, and column generation
takes hundreds of rounds.  With central prices it takes about twenty.  They solve

    min Σ y + ½δ |y − y⁰|²     with y(S) ≥ log w(S) for every known set S,

where y⁰ are the best prices so far, by a primal–dual interior point method (Mehrotra 1992) that
stops early, while every slack is still positive (Gondzio, González-Brevis and Munari 2013).

The prices of points that are in the same sets move together.  With shifts u of groups of c points,
the matrix of the normal equations is A diag(z/s) Aᵀ + δ diag(c), where A is the groups' sizes times
their membership, s are the slacks and z their multipliers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from dpsearch._types import Ints, Vector
from dpsearch.exact.master import distinct_rows

_DELTA = 0.01  # δ, in 1/nats
_STEPS = 60
_STATIONARITY = 1e-3  # residual at which the method may stop
_BEGIN = 1e-3  # initial slack per point, in nats
_DAMPING = 0.9  # share of the way to the boundary that a step takes
_LEAST_TARGET = 0.02  # smallest target of a step, as a share of the present complementarity


class Central(NamedTuple):
    """Prices that pay for the known sets, and about the least sum that such prices can have."""

    prices: Vector
    value: float


def central_prices(
    first: Vector, columns: list[Ints], weights: Vector, gap: float
) -> Central | None:
    """Return prices whose sum is within about `gap` of the least; None if rounding prevents it."""
    member, group = distinct_rows(columns, len(first))
    counts = np.bincount(group).astype(np.float64)
    matrix = member.toarray() * counts[:, None]
    missing = weights - np.array([first[members].sum() for members in columns])
    sizes = np.array([len(members) for members in columns])
    u = np.full(len(counts), max(0.0, float((missing / sizes).max())) + _BEGIN)
    s, z = matrix.T @ u - missing, np.full(len(columns), 1.0 / member.sum(axis=1).max())
    for _ in range(_STEPS):
        residual = counts * (1.0 + _DELTA * u) - matrix @ z
        if np.abs(residual / counts).max() < _STATIONARITY and z @ s < gap:
            return Central(first + u[group], float(first.sum() + counts @ u - z @ s))
        root = matrix * np.sqrt(z / s)
        normal = root @ root.T
        normal[np.diag_indices_from(normal)] += _DELTA * counts
        try:
            factor = scipy.linalg.cho_factor(normal, lower=True)
        except (ValueError, np.linalg.LinAlgError):
            return None
        mean = z @ s / len(s)
        _, ds, dz = _step(factor, matrix, residual, z, s, 0.0)
        reached = (z + _step_share(z, dz) * dz) @ (s + _step_share(s, ds) * ds) / len(s)
        target = max((reached / mean) ** 3, _LEAST_TARGET) * mean
        du, ds, dz = _step(factor, matrix, residual, z, s, target)
        forward = _DAMPING * _step_share(s, ds)
        u, s, z = u + forward * du, s + forward * ds, z + _DAMPING * _step_share(z, dz) * dz
    return None


def _step(
    factor: Any, matrix: Any, residual: Vector, z: Vector, s: Vector, target: float
) -> tuple[Vector, Vector, Vector]:
    """Return Newton's step of shifts, slacks and multipliers towards s·z = target."""
    missing = target - z * s
    du = scipy.linalg.cho_solve(factor, matrix @ (missing / s) - residual)
    ds = matrix.T @ du
    return du, ds, (missing - z * ds) / s


def _step_share(values: Vector, steps: Vector) -> float:
    """Return the largest share of a step, at most 1, that keeps all values at or above 0."""
    down = steps < 0.0
    return min(1.0, float((-values[down] / steps[down]).min())) if down.any() else 1.0
