"""Prices that need no pricing: valid for every family with a density ceiling, and loose."""

from __future__ import annotations

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import CapabilityError
from dpsearch.prefix_search.heuristics import admissible
from dpsearch.problem import Problem
from dpsearch.promises import log_ceiling

_MOST_POINTS = 100  # for the helpers' envelopes, whose size grows with the cube


def loose_prices(problem: Problem, lam: float) -> Vector:
    """Return the better of two prices with y(C) ≥ λ + log W(|C|) + log H(x_C) for every C.

    By the chain rule log H(x_C) is at most the sum of its points' density ceilings, and
    λ + log W(n) at most n times its largest value per point.  For few points, the joint bound of
    the heuristic 'admissible': in a fixed order, a point either opens its cluster or joins one to
    which earlier points, as many and as suitable as there are, have come before it.
    """
    ceiling = log_ceiling(problem, "certify")
    sizes = np.arange(1, problem.n_points + 1)
    y: Vector = ceiling + float(((lam + problem.size_weights()[1:]) / sizes).max())
    if problem.n_items <= _MOST_POINTS:
        try:
            heuristic = admissible(problem, np.arange(problem.n_items))
        except CapabilityError:
            return y
        opened = problem.alone + problem.tables.log_w[1] + lam
        joint = np.maximum(heuristic.fresh[: problem.n_items], opened)
        if joint.sum() < y.sum():
            y = joint
    return y
