"""The one objective, and what a solver returns.

    log_joint(c) = log V(K, N) + Σ_k [ log W(n_k) + log H(x_k) ]

with every constant included, so that figures compare across solvers, models and papers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import ArrayLike, Ints, Labels, Vector
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.families.base import Dots, Family, Model, unlocked
from dpsearch.items import NO_ROWS, Items, Rows, log_alone, log_marginals, merge_rows
from dpsearch.partition import by_appearance, check_labels
from dpsearch.priors.base import Prior, Tables, log_prior


class TracePoint(NamedTuple):
    """One line of a solver's history."""

    seconds: float
    log_joint: float
    n_clusters: int
    move: str


class Progress(NamedTuple):
    """What a solver tells a callback while it runs."""

    done: int
    total: int
    n_clusters: int
    log_joint: float  # of what has been placed so far


Callback = Callable[[Progress], None]


@dataclass(frozen=True)
class Clustering:
    """A partition with its value and how it was found.

    Attributes
    ----------
    labels
        Cluster of each row, numbered from the largest cluster (0) to the smallest; of two of one
        size, the more probable one first.
    log_joint
        log p(labels, data), with every constant.
    upper_bound
        A proved upper bound on the log joint of every partition; infinity if none is known.
    optimal
        Whether `labels` is proved to be a best partition.
    converged
        Whether refinement ended because no move improved any more.
    n_dequeued, n_enqueued
        Search states expanded and created.
    seconds
        Wall time of the solver.
    trace
        The history: seconds, log joint, number of clusters, move.
    weights
        How many points each row stands for; None if one each.
    """

    labels: Labels
    log_joint: float
    upper_bound: float = math.inf
    optimal: bool = False
    converged: bool = False
    n_dequeued: int = 0
    n_enqueued: int = 0
    seconds: float = 0.0
    trace: list[TracePoint] = field(default_factory=list, repr=False)
    weights: Ints | None = field(default=None, repr=False)

    @property
    def n_clusters(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def sizes(self) -> Ints:
        """Number of points in each cluster."""
        return np.asarray(np.bincount(self.labels, self.weights), dtype=np.int64)

    def __repr__(self) -> str:
        proof = ", optimal" if self.optimal else ""
        if self.labels is None:  # unpickled, from a fit on a cluster, where they stay
            return f"Clustering(labels left on a cluster, log joint {self.log_joint:.6g})"
        return (
            f"Clustering({self.sizes.sum()} points in {self.n_clusters} clusters,"
            f" log joint {self.log_joint:.6g}{proof}, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        from dpsearch.notebook import clustering_html

        return repr(self) if self.labels is None else clustering_html(self)


class Problem:
    """One data set under one family and one prior: what every solver works on.

    With a `background`, the items are added to clusters that other points are in already, which
    nobody moves: labels 0, 1, … mean these.  The prior's `tables` are made if none are given, with
    places for as many points and clusters as there can be.
    """

    def __init__(
        self,
        model: Model,
        items: Items,
        log_base: float,
        prior: Prior,
        background: Rows = NO_ROWS,
        tables: Tables | None = None,
    ) -> None:
        if not isinstance(prior, Prior):
            raise ParameterError(f"prior must be one of dpsearch.priors, got {prior!r}")
        self.prior = prior
        self.background = background
        self._set_tables(items, tables)
        self._set_model(model, items, log_base)

    def _set_tables(self, items: Items, tables: Tables | None) -> None:
        self.n_points = int(items.sizes.sum()) + int(self.background.sizes.sum())
        most_clusters = items.n_items + len(self.background.sizes)
        self.tables = self.prior.tables(self.n_points, most_clusters) if tables is None else tables

    def _set_model(self, model: Model, items: Items, log_base: float) -> None:
        self.model = model
        self.items = items
        self.log_base = log_base
        self.alone: Vector = log_alone(model.core, items)
        if not np.isfinite(self.alone).all():
            row = int(np.flatnonzero(~np.isfinite(self.alone))[0])
            raise DataError(
                f"the {model.family.name} family gives row {row} of X the log probability"
                f" {self.alone[row]}: its values are out of range for these hyperparameters"
            )

    @classmethod
    def of(cls, X: ArrayLike, family: Family, prior: Prior, weights: Ints | None = None) -> Problem:
        """Compile the family for X and take each row as an item.

        With weights ≥ 1, an item is that many copies of the row, which stay together.
        """
        if not isinstance(family, Family):
            raise ParameterError(f"family must be one of dpsearch.families, got {family!r}")
        model = family.compile(X)
        return cls(model, *_weighted(model, weights), prior)

    def with_prior(self, prior: Prior) -> Problem:
        """The same data and family under another prior."""
        out = copy.copy(self)
        out.prior = prior
        out._set_tables(self.items, None)
        return out

    def with_family(self, family: Family) -> Problem:
        """The same data, taken as rows with their weights, and prior under another family."""
        model = family.compile(self.model.matrix)
        weights = None if self.items.blocks else self.items.sizes
        out = copy.copy(self)
        out._set_model(model, *_weighted(model, weights))
        return out

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(unlocked(state))

    @property
    def n_items(self) -> int:
        return self.items.n_items

    def dots(self) -> Dots | None:
        """The block capability, where the family has it and items are points."""
        return self.model.dots() if self.items.single else None

    def require_points(self, what: str) -> None:
        """Raise unless each item is one point; `what` needs it."""
        if not self.items.single:
            raise CapabilityError(
                f"{what} takes single points, not rows with weights or blocks of points"
            )

    def size_weights(self) -> Vector:
        """Log W of every size that a cluster can have, 0 … N; `tables` may have fewer."""
        return self.prior.log_w(np.arange(self.n_points + 1))

    def rows(self, labels: Labels) -> tuple[Vector, Ints]:
        """Return the flat pool of cluster statistics, and the sizes."""
        n_background = len(self.background.sizes)
        n_clusters = max(int(labels.max()) + 1, n_background)
        pool, sizes = self.model.rows(self.items, labels, n_clusters)
        width = self.model.core.width
        for k in range(n_background):
            row = slice(k * width, (k + 1) * width)
            merge_rows(self.model.core, pool[row], self.background.pool[row], 1.0)
        sizes[:n_background] += self.background.sizes
        return pool, sizes

    def log_joint(self, labels: Labels) -> float:
        """Compute the objective from nothing."""
        pool, sizes = self.rows(labels)
        return self._value(sizes, log_marginals(self.model.core, pool, len(sizes)))

    def clustering(self, labels: Labels, **about: Any) -> Clustering:
        """Wrap labels (in item order) with their value.

        Of clusters of one size the more probable comes first, so that numbers do not depend on
        the order of the rows.
        """
        weights = None if self.items.single else self.items.sizes
        labels = by_appearance(labels)
        pool, sizes = self.rows(labels)
        marginals = log_marginals(self.model.core, pool, len(sizes))
        order = np.lexsort((-marginals, -sizes))
        value = self._value(sizes[order], marginals[order])
        return Clustering(np.argsort(order)[labels], value, weights=weights, **about)

    def _value(self, sizes: Ints, marginals: Vector) -> float:
        return log_prior(self.tables, sizes) + float(marginals.sum()) + self.log_base


def _weighted(model: Model, weights: Ints | None) -> tuple[Items, float]:
    """Return the model's data as items of these sizes, and their `log_base` in all."""
    items, base = model.items()
    if weights is None:
        return items, float(base.sum())
    return items._replace(sizes=weights), float((base * weights).sum())


def log_joint(X: ArrayLike, labels: ArrayLike, family: Family, prior: Prior) -> float:
    """Return log p(labels, X) with every constant included.

    Examples
    --------
    >>> from dpsearch import families, log_joint, priors
    >>> X = [[0.0], [0.1], [5.0]]
    >>> family = families.Gaussian(prior_variance=10.0, noise_variance=1.0)
    >>> together = log_joint(X, [0, 0, 0], family, priors.DirichletProcess(1.0))
    >>> apart = log_joint(X, [0, 0, 1], family, priors.DirichletProcess(1.0))
    >>> apart > together
    True
    """
    problem = Problem.of(X, family, prior)
    return problem.log_joint(check_labels(labels, problem.n_items))
