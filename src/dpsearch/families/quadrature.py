"""A user's own likelihood, with its parameter on nodes.

    log_density(x, theta)      log p(x | θ) as plain Python, which Numba compiles

θ is a number, or a vector of two if nodes are pairs.  Everything that solvers need is computed from
the densities at the nodes: see `_nodes.py`.  Draws and means are computed on cells of the support,
which by default is the range of the data extended by half of it on either side.  Each node has its
own cells, which are smaller where values are more probable.

A function that `register_density` knows can be stored in a file by its name, together with its
results at some values and nodes, so that another function of that name is detected.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar, Self

import numba
import numpy as np

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.errors import ParameterError
from dpsearch.families._columns import with_holes
from dpsearch.families.base import Example
from dpsearch.families.by_nodes import ByNodes

LogDensity = Callable[[float, Any], float]
_CELLS = 1024  # of the support of a node
_ROUNDS = 5  # in which cells move to where the probability is
_LISTED = 1 << 16  # the most integers of a support that have one cell each
_DENSITIES: dict[str, LogDensity] = {}


def register_density(log_density: LogDensity) -> LogDensity:
    """Make a log density known by its name, so that models with it can be saved and loaded.

    Works as a decorator.
    """
    _check_function(log_density)
    _DENSITIES[log_density.__name__] = log_density
    return log_density


@dataclass(frozen=True, kw_only=True)
class Quadrature(ByNodes):
    """A likelihood of your own, with its parameter on nodes; columns are independent.

    Parameters
    ----------
    log_density
        `log_density(x, theta)` returns log p(x | θ) of a value; or the name of a function that
        `register_density` knows.
    nodes, log_weights
        The values of θ that have prior mass, numbers or pairs of numbers, and the logarithms of
        their prior probabilities up to a constant; by default these are equal.  They are the same
        for all columns, or a list for each column.  The integral over θ in the marginal likelihood
        is a sum over the nodes, so they must cover the parameters that clusters may have, and be
        closer to each other than the resolution of a cluster of many rows.
    support
        The smallest and the largest value for draws and means; by default from the data.
    whole
        Whether values are integers.
    bounded
        Whether new values outside the support are an error; by default if it is given.

    Examples
    --------
    >>> import math
    >>> from dpsearch import families
    >>> def laplace(x, theta):
    ...     return -abs(x - theta) - math.log(2.0)
    >>> len(families.Quadrature(laplace, nodes=[0.0, 1.0, 2.0]).nodes)
    3
    """

    log_density: Any
    support: Any = None
    whole: bool = False
    bounded: bool | None = None

    name: ClassVar[str] = "quadrature"
    parameter_names: ClassVar[tuple[str, ...]] = ("theta", "second")
    missed: ClassVar[float] = -1e4

    def __init__(
        self,
        log_density: LogDensity | str,
        nodes: Any = None,
        log_weights: Any = None,
        *,
        support: Any = None,
        whole: bool = False,
        bounded: bool | None = None,
    ) -> None:
        fields = {
            "log_density": log_density,
            "nodes": nodes,
            "log_weights": log_weights,
            "support": None if support is None else _range(support),
            "whole": whole,
            "bounded": bounded,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        stored: Any = None
        if isinstance(log_density, tuple | list):  # as `to_dict` says it
            log_density, *stored = log_density
            object.__setattr__(self, "log_density", log_density)
        if callable(log_density):
            _check_function(log_density)
        elif log_density not in _DENSITIES:
            known = ", ".join(_DENSITIES) or "none"
            raise ParameterError.of(
                "log_density", f"{log_density!r} is not registered; known are {known}"
            )
        super().__post_init__()
        if None not in (self.nodes, self.log_weights):
            self.of_columns(max(map(len, self._by_column)))  # raises if they do not go together
        if stored:
            self._check_same(stored)

    @property
    def _function(self) -> LogDensity:
        given = self.log_density
        return given if callable(given) else _DENSITIES[given]

    def to_dict(self) -> dict[str, Any]:
        function, name = self._function, self._function.__name__
        if _DENSITIES.get(name) is not function:
            raise ParameterError.of(
                "log_density",
                f"{name!r} is not registered: call families.register_density, both where the model"
                " is saved and where it is loaded",
            )
        described = self.with_parameters(log_density=name)._plain()
        return (
            described
            if self.nodes is None
            else {**described, "log_density": [name, *self._sample_values()]}
        )

    def _plain(self) -> dict[str, Any]:
        return super().to_dict()

    def _sample_values(self) -> list[float | None]:
        """Return the log density at some values and nodes, None where it is not finite."""
        low, high = (0.0, 4.0) if self.support is None else self.support
        values = np.floor(low + (high - low) * np.array([0.25, 0.5, 0.75]))
        theta = self.of_columns(max(map(len, self._by_column)))[0][0]
        logs = self.log_densities(values, theta[[0, len(theta) // 2, -1]])
        return [float(one) if math.isfinite(one) else None for one in logs.ravel()]

    def _check_same(self, stored: list[Any]) -> None:
        """Raise if the function that has the name is not the one that was stored."""
        there, here = (np.array(one, dtype=np.float64) for one in (stored, self._sample_values()))
        if there.shape != here.shape or not np.allclose(there, here, 1e-6, 1e-9, equal_nan=True):
            raise ParameterError.of(
                "log_density",
                f"{self.log_density!r} is registered as a function whose values differ from those"
                " of the function that was saved: register that function",
            )

    def resolve(self, X: Any) -> Self:
        family = super().resolve(X)
        if self.support is not None:
            self._check_inside(X)
            return family
        low, high = np.nanmin(X), np.nanmax(X)
        more = 0.0 if self.whole and low >= 0.0 else 0.5 * (high - low) + 1.0
        return family.with_parameters(
            support=(float(low - more), float(1.5 * high - 0.5 * low + 1)),
            bounded=bool(self.bounded),
        )

    def check(self, X: Any) -> None:
        if self.whole:
            self.check_support(X, np.floor(X) != X, "integers (its `whole`)")
        if self.support is not None and self.bounded is not False:
            self._check_inside(X)

    def _check_inside(self, X: Any) -> None:
        low, high = self.support
        wanted = f"values from {low:g} to {high:g} (its `support`)"
        self.check_support(X, (low > X) | (high < X), wanted)

    def learned(self, X: Any, labels: Any) -> Self:
        return self

    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        return self._at(np.repeat(x[:, None], len(theta), axis=1), theta)

    def _at(self, x: Matrix, theta: Matrix) -> Matrix:
        """Return the log density of x [values, nodes], each value at the node of its column."""
        out = np.empty(x.shape)
        given = theta[:, 0] if theta.shape[1] == 1 else theta
        try:
            _evaluator(self._function)(np.ascontiguousarray(x), np.ascontiguousarray(given), out)
        except (SystemError, MemoryError):  # also Ctrl-C: see `plain_interrupts`
            raise
        except Exception as error:  # Numba raises those of Python, too
            text = f": {self._function.__name__!r} failed: {_reason(error)}"
            raise ParameterError.of("log_density", text) from error
        return np.where(np.isnan(out), -np.inf, out)

    def _cells(self, theta: Matrix) -> tuple[Matrix, Matrix]:
        """Return the ends of each node's cells [cells + 1, nodes], and the cells' probabilities.

        Half of the ends are evenly spaced over the support and dense around the node itself, which
        may be a location.  The others move to where the probability is.
        """
        low, high = self.support
        if self.whole and high - low < _LISTED:
            ends = np.arange(np.ceil(low) - 0.5, np.floor(high) + 1.0)[:, None]
            ends = np.repeat(ends, len(theta), axis=1)
            return ends, self._shares(ends, theta)
        about = (high - low) * np.geomspace(1e-15, 1.0, _CELLS // 4)
        near = np.concatenate([-about[::-1], [0.0], about])[:, None] + theta[:, 0]
        even = np.repeat(np.linspace(low, high, _CELLS // 2)[:, None], len(theta), axis=1)
        fixed = np.clip(np.concatenate([near, even]), low, high)
        ends = np.sort(fixed, axis=0)
        for _ in range(_ROUNDS):
            passed = np.zeros(ends.shape)
            passed[1:] = np.cumsum(self._shares(ends, theta), axis=0)
            wanted, columns = np.linspace(0.0, 1.0, _CELLS), zip(passed.T, ends.T, strict=True)
            moved = np.stack([np.interp(wanted, *own) for own in columns], axis=1)
            ends = np.sort(np.concatenate([fixed, moved]), axis=0)
        return ends, self._shares(ends, theta)

    def _shares(self, ends: Matrix, theta: Matrix) -> Matrix:
        """Return the probabilities of cells by the density at their centres."""
        logs = self._at(0.5 * (ends[1:] + ends[:-1]), theta)
        with np.errstate(divide="ignore"):
            logs = logs + np.log(np.diff(ends, axis=0))
        shares = np.exp(logs - logs.max(axis=0))
        return np.asarray(shares / shares.sum(axis=0))

    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        kinds, at = np.unique(theta, axis=0, return_inverse=True)
        ends, shares = self._cells(kinds)
        passed, wanted = np.cumsum(shares, axis=0), rng.random(len(at))
        cells = [np.searchsorted(passed[:, g], u) for g, u in zip(at, wanted, strict=True)]
        first = np.minimum(cells, len(shares) - 1)
        inside = rng.random(len(at))
        out = ends[first, at] + inside * (ends[first + 1, at] - ends[first, at])
        return np.asarray(np.clip(np.rint(out) if self.whole else out, *self.support))

    def expected(self, theta: Matrix) -> Vector:
        ends, shares = self._cells(theta)
        return np.asarray((0.5 * (ends[1:] + ends[:-1]) * shares).sum(axis=0))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X, counts = rng.laplace(size=(12, 2)), rng.poisson(2.0, size=(12, 1)) * 1.0
        nodes = [[m, s] for m in np.linspace(-3.0, 3.0, 9) for s in (0.5, 1.0, 2.0)]
        rates = np.linspace(0.5, 6.0, 8)
        wide = (-40.0, 40.0)
        return [
            Example(cls(laplace, nodes, support=wide), X),
            Example(cls(laplace, nodes, np.linspace(-2.0, 0.0, 27), support=wide), with_holes(X)),
            Example(cls("poisson_rate", rates, support=(0.0, 60.0), whole=True), counts),
        ]


def _check_function(log_density: Any) -> None:
    if not isinstance(log_density, FunctionType | numba.core.registry.CPUDispatcher):
        raise ParameterError.must("log_density", "be a function of a value and θ", log_density)


def _range(support: Any) -> tuple[float, ...]:
    try:
        low, high = map(float, support)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ParameterError.must("support", "be two numbers, the smaller one first", support)
    return low, high


def _reason(error: Exception) -> str:
    """Return the line of an error that names the cause; Numba's first line names the step."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Failed in nopython")]
    call = next((f" {line[4:]}" for line in said if line.startswith(">>> ")), "")
    return (said[0] if said else type(error).__name__) + call


@functools.cache
def _evaluator(log_density: LogDensity) -> Callable[[Vector, Any, Matrix], None]:
    """Return a compiled loop over values and nodes."""
    compiled: Any = numba.njit(log_density)

    @numba.njit
    def evaluate(x, theta, out):  # type: ignore[no-untyped-def]
        for i in range(x.shape[0]):
            for g in range(theta.shape[0]):
                out[i, g] = compiled(x[i, g], theta[g])

    return evaluate  # type: ignore[no-any-return]


@register_density
def laplace(x: float, theta: Any) -> float:
    """Laplace's distribution with a location and a scale."""
    return -abs(x - theta[0]) / theta[1] - math.log(2.0 * theta[1])  # type: ignore[no-any-return]


@register_density
def poisson_rate(x: float, theta: float) -> float:
    """Poisson's distribution with a rate."""
    return x * math.log(theta) - theta - math.lgamma(x + 1.0)
