"""Families whose columns are independent and have a prior on nodes: what they share.

A subclass gives the log density of values at the nodes of a column (`log_densities`), draws
(`drawn`) and means (`expected`) for them.  Everything else follows; `_nodes.py` has the formulas.

The linear form: the features of a value are its log densities at the nodes, their totals T are the
statistic itself, log H = Σ_d log Σ_g π_g exp(T_g) is convex in them, and its gradient are the
posterior probabilities of the nodes.

`lattice` places nodes for a location θ₁ and a width θ₂, where the data are.  Widths are a step
apart in their logarithm, with the prior InverseGamma(5, 4s²) on their squares, which has the mean
s², as in the diagonal Gaussian; locations are uniform, with the more nodes the more values are
near, because a cluster of m points knows its location to width/√m.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import logsumexp, softmax

from dpsearch._arrays import to_host
from dpsearch._lines import room_in_lines
from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import layout
from dpsearch.families._columns import as_tuple
from dpsearch.families._nodes import FUNCTIONS, HEAD, LEAST, PARAMS, columns_width, sums_of_row
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm, like
from dpsearch.items import Items

_STEPS = np.arange(-4.0, 5.0) * 0.2  # of the logarithm of widths
SPACING = 1.0  # of locations, in what clusters can know of them; or more, if nodes are too many
_FINE = 1000  # places at which it is looked how many values are near
MOST = 192  # nodes of a column
_MOST_COMMON = 128  # values of a column whose densities the parameters hold
_SHAPE = 5.0  # of the prior on squared widths, as `DiagonalGaussian.suggest` has it


@dataclass(frozen=True)
class ByNodes(Family):
    """Base of families with a prior on nodes.

    Parameters
    ----------
    nodes
        [nodes, dimensions] for all columns, or for each column such an array.  By default they are
        placed where the data are.
    log_weights
        Logarithms of the nodes' prior probabilities, but for a constant: for all columns, or a
        vector for each.  By default all are the same.
    """

    nodes: Any = field(default=None, repr=False)  # they are many
    log_weights: Any = field(default=None, repr=False)

    independent_columns: ClassVar[bool] = True
    numbers_a_value: ClassVar[int] = MOST
    functions: ClassVar[Functions] = FUNCTIONS
    # What the dimensions of a node are called.
    parameter_names: ClassVar[tuple[str, ...]] = ("location", "width")
    # How many numbers a node has; empty for any.
    dimensions: ClassVar[tuple[int, ...]] = ()
    # The log density at the best node below which the nodes are said to miss a value.
    missed: ClassVar[float] = -np.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", _nested(self.nodes, "nodes"))
        object.__setattr__(self, "log_weights", _nested(self.log_weights, "log_weights"))
        size = 0 if self.nodes is None else len(self._by_column[0][0][0])
        if size and self.dimensions and size not in self.dimensions:
            wanted = f"must be rows of {', '.join(self.parameter_names)}, but have {size} numbers"
            raise ParameterError.of("nodes", wanted)

    # -- what a subclass says ------------------------------------------------------------------

    @abstractmethod
    def log_densities(self, x: Vector, theta: Matrix) -> Matrix:
        """Log p(x | θ) of values at the nodes [nodes, dimensions] of a column: [values, nodes]."""

    @abstractmethod
    def drawn(self, theta: Matrix, rng: Rng) -> Vector:
        """Return a value for each row of parameters."""

    @abstractmethod
    def expected(self, theta: Matrix) -> Vector:
        """Return the mean of the values at each node, or what stands for it."""

    def common(self, theta: Matrix) -> tuple[float, float]:
        """Return between which whole numbers values are mostly; by default they are not whole."""
        return 0.0, -1.0

    # -- nodes ---------------------------------------------------------------------------------

    def of_columns(self, n_features: int) -> list[tuple[Matrix, Vector]]:
        """The nodes of each column, and their log probabilities."""
        if self.nodes is None:
            raise ParameterError.of("nodes", "must be given if there are no data to place them by")
        nodes, weights = self._by_column
        for name, given in (("nodes", nodes), ("log_weights", weights)):
            if len(given) not in (1, n_features):
                wanted = f"are for {len(given)} columns, but the data have {n_features}"
                raise ParameterError.of(name, wanted)
        chosen = [self._columns[d % len(self._columns)] for d in range(n_features)]
        return [(theta.copy(), log_weights.copy()) for theta, log_weights in chosen]

    @cached_property
    def _columns(self) -> list[tuple[Matrix, Vector]]:
        """The nodes and log probabilities of one column for all, or of each."""
        nodes, weights = self._by_column
        out = []
        for d in range(max(len(nodes), len(weights))):
            theta = np.array(nodes[d % len(nodes)])
            log_weights = np.array(weights[d % len(weights)])
            if len(theta) != len(log_weights):
                wanted = f"has {len(log_weights)} values for {len(theta)} nodes"
                raise ParameterError.of("log_weights", wanted, column=d)
            out.append((theta, log_weights - logsumexp(log_weights)))
        return out

    @property
    def _by_column(self) -> tuple[Any, Any]:
        """Nodes and log weights, of one column for all or of each."""
        nodes = self.nodes if np.ndim(self.nodes[0][0]) else (self.nodes,)
        weights = self.log_weights
        if weights is None:
            weights = tuple((0.0,) * len(own) for own in nodes)
        return nodes, weights if np.ndim(weights[0]) else (weights,)

    def resolve(self, X: Any) -> Self:
        return self if self.nodes is not None else self._placed(X, None)

    def _placed(self, X: Any, labels: Ints | None) -> Self:
        """Return the family with nodes for a table, of which a partition may be known."""
        raise ParameterError.of("nodes", f"must be given for the {self.name} family")

    def _with_nodes(self, found: list[tuple[Matrix, Vector]]) -> Self:
        return self.with_parameters(
            nodes=[theta for theta, _ in found], log_weights=[weights for _, weights in found]
        )

    @classmethod
    def suggest(cls, X: Any) -> Self:
        return cls().resolve(X)

    def learned(self, X: Any, labels: Ints) -> Self:
        return self._placed(X, labels)

    def hyperparameters(self) -> dict[str, Any]:
        return {}  # none that could be multiplied by a factor

    def column(self, d: int, n_features: int) -> Self:
        return self._with_nodes([self.of_columns(n_features)[d]])

    # -- rows and data -------------------------------------------------------------------------

    def width(self, n_features: int) -> int:
        return HEAD + n_features * columns_width(_n_nodes(self.of_columns(n_features)))

    def counts_in_row(self, n_features: int) -> Ints:
        return np.zeros(1, np.int64)

    def parameters(self, n_features: int, X: Any) -> Vector:
        log_weights = self._log_weights(n_features)
        tables = [np.zeros((1, log_weights.shape[1]))]
        columns = zip(self.of_columns(n_features), self._common(n_features), strict=True)
        for (theta, _), values in columns:
            tables.append(np.zeros((len(values), log_weights.shape[1])))
            tables[-1][:, : len(theta)] = self._beside_largest(values, theta)[0]
        return layout.make_params(
            PARAMS,
            n_nodes=log_weights.shape[1],
            n_features=n_features,
            log_weights=log_weights.reshape(-1),
            densities=np.exp(np.concatenate(tables).reshape(-1)),
        )

    def _log_weights(self, n_features: int) -> Matrix:
        """Log π of the nodes of each column, −∞ where there are fewer than in others."""
        columns = self.of_columns(n_features)
        size = _n_nodes(columns)
        return np.array(
            [np.pad(w, (0, size - len(w)), constant_values=-np.inf) for _, w in columns]
        )

    def _by_value(self, X: Any) -> Iterator[tuple[int, Any, Ints, Matrix, Vector]]:
        """For each column d: which rows have a value, which of its different values that is, and
        for each of these log e [values, nodes] and the largest log density.

        Ratings and counts have few values: densities are computed once for each.
        """
        for d, (theta, _) in enumerate(self.of_columns(X.shape[1])):
            there = ~np.isnan(X[:, d])
            values, at = np.unique(X[there, d], return_inverse=True)
            logs, largest = self._beside_largest(values, theta)
            missed = ~(largest > self.missed)
            if missed.any():
                row = int(np.flatnonzero(there)[missed[at].argmax()])
                density = largest[at[missed[at].argmax()]]
                raise DataError(
                    f"X at {{place}} is {X[row, d]:g}, where the {self.name} family has the log"
                    f" density {density:g} at its best node: the nodes miss the data",
                    row=row,
                    column=d,
                )
            yield d, there, at, logs, largest

    def _beside_largest(self, values: Vector, theta: Matrix) -> tuple[Matrix, Vector]:
        """Return log e [values, nodes], and the largest log density of each value."""
        with np.errstate(divide="ignore", invalid="ignore"):  # `_by_value` says what is missed
            logs = np.asarray(self.log_densities(values, theta))
            largest = logs.max(axis=1)
            return np.maximum(logs - largest[:, None], LEAST), largest

    def relative(self, X: Any) -> tuple[Any, Matrix]:
        """Return log e [rows, columns, nodes] and the largest log density [rows, columns].

        Both are 0 where a value is missing.
        """
        out = np.zeros((*X.shape, _n_nodes(self.of_columns(X.shape[1]))))
        base = np.zeros(X.shape)
        for d, there, at, logs, largest in self._by_value(X):
            out[there, d, : logs.shape[1]] = logs[at]
            base[there, d] = largest[at]
        return out, base

    def evidence(self, X: Any, labels: Ints) -> Vector:
        """Return Σ_k log H of each column's values in the clusters that labels name."""
        logs, base = self.relative(X)
        totals = np.zeros((labels.max() + 1, *logs.shape[1:]))
        np.add.at(totals, labels, logs)
        blocks = logsumexp(totals + self._log_weights(X.shape[1]), axis=2)
        return np.asarray(blocks.sum(axis=0) + base.sum(axis=0))

    def _common(self, n_features: int) -> list[Vector]:
        """Return the values of each column whose densities the parameters hold."""
        ends = [self.common(theta) for theta, _ in self.of_columns(n_features)]
        return [low + np.arange(min(high + 1.0 - low, _MOST_COMMON)) for low, high in ends]

    def encode(self, X: Any) -> Items:
        n_rows, n_features = X.shape
        places, after = np.full(X.shape, -1.0), 1  # what is missing comes first
        for d, values in enumerate(self._common(n_features)):
            known = np.isin(X[:, d], values)
            places[known, d] = after + np.searchsorted(values, X[known, d])
            places[np.isnan(X[:, d]), d] = 0.0
            after += len(values)
        head = _whole_lines(n_features) // 8  # everything begins at a multiple of eight numbers
        length = _n_nodes(self.of_columns(n_features)) // 8
        own = places < 0.0
        begins = np.asarray(head + length * (np.cumsum(own, axis=1) - own))
        ends = np.concatenate([[0], np.cumsum(head + length * own.sum(axis=1))])
        starts, lines = ends[:-1], room_in_lines(8 * ends[-1]).reshape(-1, 8)
        lines[:] = 1.0
        heads = np.zeros((n_rows, 8 * head))
        heads[:, :n_features] = np.where(own, -8 * begins, places)
        lines[starts[:, None] + np.arange(head)] = heads.reshape(n_rows, head, 8)
        for d, there, at, logs, _ in self._by_value(np.where(own, X, np.nan)):
            densities = np.ones((len(logs), 8 * length))
            densities[:, : logs.shape[1]] = np.exp(logs)
            first = starts[there] + begins[there, d]
            lines[first[:, None] + np.arange(length)] = densities.reshape(-1, length, 8)[at]
        sizes = np.ones(n_rows, np.int64)
        return Items(lines.reshape(-1), np.empty(0, np.int32), 8 * ends, sizes, False)

    def log_base(self, X: Any) -> Vector:
        out = np.zeros(len(X))
        for _, there, at, _, largest in self._by_value(X):
            out[there] += largest[at]
        return out

    def log_ceiling(self, X: Any) -> Vector:
        return np.zeros(X.shape[0])  # e ≤ 1

    def with_gaps(self) -> Self:
        return self  # a missing value has the density 1 at all nodes

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        return row

    # -- what a cluster says -------------------------------------------------------------------

    def _posteriors(self, row: Vector, n_features: int) -> list[tuple[Matrix, Vector]]:
        """The nodes of each column, and their posterior probabilities."""
        columns, logs = self.of_columns(n_features), self._logs(row, n_features)
        return [
            (theta, softmax(own[: len(theta)]))
            for (theta, _), own in zip(columns, logs, strict=True)
        ]

    def _logs(self, row: Vector, n_features: int) -> Matrix:
        """Log π + T of the nodes of each column."""
        log_weights = self._log_weights(n_features)
        return np.asarray(log_weights + sums_of_row(row, log_weights))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        means = np.array([weights @ theta for theta, weights in self._posteriors(row, n_features)])
        return dict(zip(self.parameter_names, means.T, strict=False))

    def columns(self, row: Vector, n_features: int) -> Columns:
        found = self._posteriors(row, n_features)
        log_marginals = np.asarray(logsumexp(self._logs(row, n_features), axis=1))
        return Columns(log_marginals, np.array([self._centre(*own) for own in found]))

    def _centre(self, theta: Matrix, weights: Vector) -> float:
        return float(weights @ self.expected(theta))

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        found = self._posteriors(row, n_features)

        def sample(size: int, rng: Rng) -> Matrix:
            columns = [
                self.drawn(theta[rng.choice(len(theta), size, p=weights)], rng)
                for theta, weights in found
            ]
            return np.stack(columns, axis=1)

        return PredictiveDraws(sample)

    def linear(self, n_features: int) -> LinearForm:
        log_weights = self._log_weights(n_features)
        n_totals, shape = log_weights.size, (-1, *log_weights.shape)
        whole = logsumexp(log_weights, axis=1)  # 0 but for rounding

        def features(X: Any) -> Any:
            return like(X, self.relative(to_host(X))[0].reshape(-1, n_totals))

        def log_marginals(sizes: Vector, totals: Matrix) -> Vector:
            columns = logsumexp(totals.reshape(shape) + log_weights, axis=2)
            return np.asarray((columns - whole).sum(axis=1))

        def weights(sizes: Vector, totals: Matrix) -> tuple[Matrix, Vector]:
            out = softmax(totals.reshape(shape) + log_weights, axis=2)
            return out.reshape(totals.shape), np.zeros(len(sizes))

        def rows(sizes: Vector, totals: Matrix) -> Matrix:
            n_nodes = log_weights.shape[1]
            out = np.zeros((len(sizes), n_features, columns_width(n_nodes)))
            out[:, :, :n_nodes] = totals.reshape(shape)
            head = np.pad(sizes[:, None], ((0, 0), (0, HEAD - 1)))
            return np.hstack([head, out.reshape(len(sizes), -1)])

        return LinearForm(n_totals, features, log_marginals, weights, rows)


def lattice(
    x: Vector,
    scale: float,
    *,
    back: Callable[[Vector], Vector] = np.asarray,
    limits: tuple[float, float] = (0.0, np.inf),
    ends: tuple[float, float] | None = None,
    further: tuple[float, ...] = (),
) -> tuple[Matrix, Vector]:
    """Return nodes of a location and a width for values x of a coordinate, with log weights.

    Parameters
    ----------
    x
        Values, where clusters may be.
    scale
        The width s that is most to be expected.
    back
        Turns the coordinate into what a node's location is.
    limits
        The least and the largest width.
    ends
        The first and the last location, if not the extremes of x.
    further
        Dimensions of the nodes after these two, the same for all.
    """
    values = np.sort(x)
    low, high = (values[0], values[-1]) if ends is None else ends
    widths = np.unique(np.clip(scale * np.exp(_STEPS), *limits))
    log_priors = -2.0 * _SHAPE * np.log(widths / scale) - (_SHAPE - 1.0) * (scale / widths) ** 2
    if len(widths) > 1:  # by the logarithms that are nearest to each: limits may have moved some
        steps = np.pad(np.diff(np.log(widths)), 1, mode="edge")
        log_priors += np.log(steps[1:] + steps[:-1])
    found = locations([axis_of(values, low, high, width) for width in widths])
    theta = np.concatenate(
        [
            np.column_stack([back(points), np.full(len(points), width)])
            for (points, _), width in zip(found, widths, strict=True)
        ]
    )
    shares = [own + log_prior for (_, own), log_prior in zip(found, log_priors, strict=True)]
    order = np.argsort(theta[:, 0], kind="stable")
    theta = np.column_stack([theta, np.tile(further, (len(theta), 1))])
    return theta[order], np.concatenate(shares)[order]


class Axis(NamedTuple):
    """Where clusters of one width may be among values.

    A cluster of m points knows its location to width/√m.  Where m values are within three widths,
    locations are spacing · width/√m apart.
    """

    width: float
    fine: Vector  # points of the axis …
    dense: Vector  # … √m at each …
    passed: Vector  # … and its integral up to there

    def count(self, spacing: float) -> int:
        return max(1, int(np.ceil(self.passed[-1] / (spacing * self.width))))

    def locations(self, spacing: float) -> tuple[Vector, Vector]:
        """Return locations and their log shares."""
        count = self.count(spacing)
        halves = np.arange(2 * count + 1) / (2 * count) * self.passed[-1]
        edges = np.interp(halves, self.passed, self.fine)
        edges, halfway = edges[::2], edges[1::2]
        shares = np.maximum(np.diff(edges), 1e-300)  # the values nearest to each
        # Where distances change, the error of second order in them is 0 a third of the way from
        # half of a node's share of √m to the middle of its values.
        places = (2.0 * halfway + 0.5 * (edges[1:] + edges[:-1])) / 3.0
        return places, np.log(shares / shares.sum())


def locations(axes: list[Axis]) -> list[tuple[Vector, Vector]]:
    """Return the locations of each axis, in all at most `MOST`, and their log shares."""
    spacing = SPACING
    while sum(axis.count(spacing) for axis in axes) > MOST:
        spacing *= 1.1
    return [axis.locations(spacing) for axis in axes]


def axis_of(values: Vector, low: float, high: float, width: float) -> Axis:
    """Look where sorted values are."""
    fine = np.linspace(low, high, _FINE)
    inside = np.searchsorted(values, fine + 3.0 * width) - np.searchsorted(
        values, fine - 3.0 * width
    )
    dense = np.sqrt(inside + 0.1)
    steps = 0.5 * (dense[1:] + dense[:-1]) * (high - low) / (_FINE - 1)
    return Axis(width, fine, dense, np.concatenate([[0.0], np.cumsum(steps)]))


def _whole_lines(count: int) -> int:
    """Return how many numbers whole lines of eight have."""
    return -(-count // 8) * 8


def _n_nodes(columns: list[tuple[Matrix, Vector]]) -> int:
    """The most nodes of a column, rounded up to a multiple of eight."""
    return _whole_lines(max(len(theta) for theta, _ in columns))


def _nested(values: Any, name: str) -> Any:
    """Return nested lists or arrays of finite numbers as tuples; None stays."""
    if values is None:
        return None
    try:
        parts = [_nested_part(part) for part in values]
    except (TypeError, ValueError) as error:
        wanted = "must be a list of numbers, or one list for each column"
        raise ParameterError.of(name, wanted) from error
    if name == "nodes" and parts and parts[0].ndim == 0:
        parts = [part[None] for part in parts]  # nodes of one dimension
    if not parts:
        raise ParameterError.of(name, "must not be empty")
    if name == "nodes" and len({part.shape[-1] for part in parts}) > 1:
        raise ParameterError.of(
            name,
            "must all have as many coordinates; nodes for each column are lists of lists,"
            " even for one coordinate: [[[0.0], [1.0]], [[5.0]]]",
        )
    return tuple(map(as_tuple, parts))


def _nested_part(part: Any) -> Any:
    numbers = np.array(part, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(part)
    return numbers
