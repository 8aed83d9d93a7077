"""Sampling a family's hyperparameters along with the partition.

Each chosen hyperparameter θ (a number, a vector or a matrix, scaled by one factor) is its given
value times e^s, with s ~ Normal(0, spread²).  Given the partition, s has the density

    p(s | c, x) ∝ Normal(s; 0, spread²) · Π_k H_θ(x_k),

from which a slice step draws (Neal 2003, stepping out and shrinking).  A step costs about ten
passes over the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsearch._types import Labels, Rng, Vector
from dpsearch._validate import positive
from dpsearch.errors import DPSearchError, ParameterError
from dpsearch.problem import Problem
from dpsearch.samplers.moves import Move

_MOST_STEPS = 20  # limit on stepping out


@dataclass(frozen=True)
class HyperparameterUpdate(Move):
    """A slice step for each of the named hyperparameters of the family.

    Parameters
    ----------
    spreads
        Name → standard deviation of the log of the hyperparameter around the given value.
    """

    spreads: Mapping[str, float]

    def __post_init__(self) -> None:
        if not isinstance(self.spreads, Mapping):
            raise ParameterError(
                "hyperparameters must map names to the standard deviations of their logs, got"
                f" {self.spreads!r}"
            )
        spreads = {str(name): positive(s, f"spread of {name}") for name, s in self.spreads.items()}
        object.__setattr__(self, "spreads", spreads)

    def check(self, problem: Problem) -> None:
        """Raise if one of the hyperparameters cannot be sampled."""
        problem.require_points("sampling of hyperparameters")
        family = problem.model.family
        known = family.hyperparameters()
        one = np.zeros(problem.n_items, np.int64)
        for name, spread in self.spreads.items():
            if name not in known:
                raise ParameterError(
                    f"the {family.name} family has no hyperparameter {name!r}: it has"
                    f" {', '.join(known)}"
                )
            refused = f"{name} of the {family.name} family cannot be sampled:"
            if not _is_positive(known[name]):
                raise ParameterError(f"{refused} it is not a number above 0, nor numbers above 0")
            # The number of levels, for example, can take no other value.
            sampled = Hyperparameters(problem, {name: spread})
            if sampled.log_density(np.array([0.01]), one) == -math.inf:
                raise ParameterError(f"{refused} it cannot take other values")

    def begin(self, problem: Problem) -> Hyperparameters:
        return Hyperparameters(problem, self.spreads)


class Hyperparameters:
    """The sampled hyperparameters of one chain; `state` has the logs of their factors."""

    def __init__(self, problem: Problem, spreads: Mapping[str, float]) -> None:
        self.problem = problem
        self.family = problem.model.family
        self.names = tuple(spreads)
        self.spreads = np.array(list(spreads.values()))
        self.state: Vector = np.zeros(len(self.names))
        given = (self.family.hyperparameters()[name] for name in self.names)
        self.units = np.array([1.0 if np.ndim(value) else float(value) for value in given])

    @property
    def values(self) -> Vector:
        """The current values; for a vector or matrix, the factor on the given one."""
        return np.asarray(np.exp(self.state) * self.units)

    def problem_with(self, log_factors: Vector) -> Problem:
        """Return the problem with the given hyperparameters times e^log_factors."""
        factors = zip(self.names, np.exp(log_factors).tolist(), strict=True)
        return self.problem.with_family(self.family.rescaled(dict(factors)))

    def step(self, problem: Problem, labels: Labels, rng: Rng) -> tuple[Problem, Labels]:
        """Draw each hyperparameter given the partition; return the problem with the new values."""
        for at in range(len(self.names)):
            self._slice(at, labels, rng)
        return self.problem_with(self.state), labels

    def log_density(self, log_factors: Vector, labels: Labels) -> float:
        """Return log p(s) + log p(x | c, θ) up to a constant."""
        try:
            value = self.problem_with(log_factors).log_joint(labels)
        except DPSearchError:  # a value at which the density cannot be computed
            return -math.inf
        return value - 0.5 * float(((log_factors / self.spreads) ** 2).sum())

    def _slice(self, at: int, labels: Labels, rng: Rng) -> None:
        width = min(float(self.spreads[at]), 1.0)
        point = self.state.copy()
        start = float(point[at])

        def value(s: float) -> float:
            point[at] = s
            return self.log_density(point, labels)

        level = value(start) + math.log(1.0 - rng.random())
        low = start - width * rng.random()
        high = low + width
        left = int(rng.random() * _MOST_STEPS)
        right = _MOST_STEPS - 1 - left
        while left > 0 and value(low) > level:
            low -= width
            left -= 1
        while right > 0 and value(high) > level:
            high += width
            right -= 1
        while True:
            s = low + (high - low) * rng.random()
            if value(s) > level:
                break
            if s < start:
                low = s
            else:
                high = s
            if high - low < 1e-12 * (1.0 + abs(start)):  # the slice is one point, up to rounding
                s = start
                break
        self.state[at] = s


def _is_positive(value: Any) -> bool:
    if value is None or isinstance(value, (str, bool)):
        return False
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 2:  # a matrix is scaled by one factor and stays positive definite
        return bool((np.diag(array) > 0.0).all())
    return array.size > 0 and bool((array > 0.0).all())
