"""The objective, the problem that solvers work on, and the clustering that they return.

    log_joint(c) = log V(K, N) + Σ_k [ log W(n_k) + log H(x_k) ]

with every constant included, so that figures compare across solvers, models and papers.
"""

from __future__ import annotations

import copy
import math
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsearch._numbers import count
from dpsearch._types import ArrayLike, Ints, Labels, Vector
from dpsearch.errors import CapabilityError, DataError, ParameterError
from dpsearch.events import Event
from dpsearch.families.base import Family, Model
from dpsearch.families.functions import Dots
from dpsearch.families.packing import unlocked
from dpsearch.items import NO_ROWS, Items, Rows, log_alone, log_marginals, merge_rows
from dpsearch.partition import by_appearance, check_labels
from dpsearch.priors.base import Prior, Tables, log_prior
from dpsearch.tables.checked import CheckedTable
from dpsearch.weights import check_weights


@dataclass(frozen=True)
class Clustering:
    """A partition with its log joint, and a record of how it was found.

    Attributes
    ----------
    labels
        The cluster of each row, numbered from the largest cluster (0) to the smallest; of clusters
        of the same size, the more probable one comes first.
    log_joint
        log p(labels, data), with every constant.
    upper_bound
        A proved upper bound on the log joint of every partition; infinity if none is known.
    optimal
        Whether `labels` has been proved to be a best partition.
    converged
        Whether refinement ended because no move improved the partition.
    n_dequeued, n_enqueued
        The numbers of search states that were expanded and created.
    seconds
        The wall time of the solver, without compilation.
    trace
        The history of the solver, as events.
    weights
        The number of points that each row stands for; None if each stands for one.
    """

    labels: Labels
    log_joint: float
    upper_bound: float = math.inf
    optimal: bool = False
    converged: bool = False
    n_dequeued: int = 0
    n_enqueued: int = 0
    seconds: float = 0.0
    trace: list[Event] = field(default_factory=list, repr=False)
    weights: Ints | None = field(default=None, repr=False)

    @property
    def n_clusters(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def sizes(self) -> Ints:
        """The number of points in each cluster."""
        return np.asarray(np.bincount(self.labels, self.weights), dtype=np.int64)

    def __repr__(self) -> str:
        proof = ", optimal" if self.optimal else ""
        if self.labels is None:  # unpickled, from a fit on a cluster, where they stay
            return f"Clustering(labels left on a Dask cluster, log joint {self.log_joint:.6g})"
        return (
            f"Clustering({self.sizes.sum()} points in {count(self.n_clusters, 'cluster')},"
            f" log joint {self.log_joint:.6g}{proof}, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        from dpsearch.notebook import clustering_html

        return repr(self) if self.labels is None else clustering_html(self)


class Problem:
    """Data under a family and a prior, checked and compiled once: what every solver works on.

    Parameters
    ----------
    X
        An array, a pandas or polars frame of numbers, a sparse matrix if the family accepts one,
        or a `CheckedTable`, which is not checked again.  X may not be copied, so it must not
        change while the problem is in use.
    family, prior
        One of `dpsearch.families` and one of `dpsearch.priors`, or your own.
    weights
        The number of copies of each row, integers ≥ 1.  Copies stay together.

    Examples
    --------
    >>> from dpsearch import Problem, families, priors, refine, search
    >>> X = [[0.0], [0.2], [9.0], [9.1]]
    >>> family = families.Gaussian(prior_variance=25.0, noise_variance=1.0)
    >>> problem = Problem(X, family, priors.DirichletProcess(1.0))
    >>> refine(problem, search(problem)).labels
    array([0, 0, 1, 1])
    """

    def __init__(
        self,
        X: ArrayLike | CheckedTable,
        family: Family,
        prior: Prior,
        *,
        weights: ArrayLike | None = None,
    ) -> None:
        if not isinstance(family, Family):
            raise ParameterError(
                f"{{parameter}} must be one of dpsearch.families, got {family!r}",
                parameter="family",
            )
        model = family.compile(X)
        n_rows = model.data.shape[0]
        copies = None if weights is None else check_weights(weights, n_rows, "weights", 1)
        self._set(model, *_weighted(model, copies), prior, NO_ROWS, None)

    @classmethod
    def of_items(
        cls,
        model: Model,
        items: Items,
        log_base: float,
        prior: Prior,
        background: Rows = NO_ROWS,
        tables: Tables | None = None,
    ) -> Problem:
        """Return a problem over items of a compiled family: points, or blocks of points.

        With a `background`, items can join clusters that already hold other points; these points
        stay where they are, and their clusters have the labels 0, 1, ….  By default the prior's
        `tables` cover the largest possible numbers of points and clusters.
        """
        out = cls.__new__(cls)
        out._set(model, items, log_base, prior, background, tables)
        return out

    def _set(
        self,
        model: Model,
        items: Items,
        log_base: float,
        prior: Prior,
        background: Rows,
        tables: Tables | None,
    ) -> None:
        if not isinstance(prior, Prior):
            raise ParameterError(
                f"{{parameter}} must be one of dpsearch.priors, got {prior!r}", parameter="prior"
            )
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
                f"the {model.family.name} family gives {{place}} of X the log probability"
                f" {self.alone[row]}: its values are out of range for these hyperparameters",
                row=row,
            )

    def with_prior(self, prior: Prior) -> Problem:
        """Return the problem of the same data and family under another prior."""
        out = copy.copy(self)
        out.prior = prior
        out._set_tables(self.items, None)
        return out

    def with_family(self, family: Family) -> Problem:
        """Return the problem of the same rows, weights and prior under another family."""
        model = family.compile(self.model.data)
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
        """Return the family's block capability, if it has one and items are points."""
        return self.model.dots() if self.items.single else None

    def require_points(self, what: str) -> None:
        """Raise an error that names `what` unless each item is one point."""
        if not self.items.single:
            raise CapabilityError(
                f"{what} needs single points, not rows with weights or blocks of points"
            )

    @property
    def log_v(self) -> Vector:
        """Log V of every number of clusters that the prior does not exclude."""
        return self.tables.log_v[: self.tables.most_clusters + 1]

    def size_weights(self) -> Vector:
        """Log W of every size that a cluster can have, 0 … N; `tables` may hold fewer."""
        return self.prior.log_w(np.arange(self.n_points + 1))

    def rows(self, labels: Labels, threads: Executor | None = None) -> tuple[Vector, Ints]:
        """Return the clusters' statistics as one flat pool, and the clusters' sizes."""
        n_background = len(self.background.sizes)
        n_clusters = max(int(labels.max()) + 1, n_background)
        pool, sizes = self.model.rows(self.items, labels, n_clusters, threads)
        width = self.model.core.width
        for k in range(n_background):
            row = slice(k * width, (k + 1) * width)
            merge_rows(self.model.core, pool[row], self.background.pool[row], 1.0)
        sizes[:n_background] += self.background.sizes
        return pool, sizes

    def log_joint(self, labels: Labels) -> float:
        """Return the log joint of these labels, computed from the data."""
        pool, sizes = self.rows(np.asarray(labels))
        return self._value(sizes, log_marginals(self.model.core, pool, len(sizes)))

    def clustering(self, labels: Labels, rows: Rows | None = None, **about: Any) -> Clustering:
        """Return labels (in item order) with their log joint, as a `Clustering`.

        Of clusters of the same size the more probable one comes first, so that their numbers do
        not depend on the order of the rows.  `rows` are the clusters' statistics, for labels
        without unused numbers; by default they are computed.
        """
        weights = None if self.items.single else self.items.sizes
        dense = by_appearance(labels)
        if rows is None:
            labels = dense
            rows = Rows(*self.rows(labels))
        sizes = rows.sizes
        marginals = log_marginals(self.model.core, rows.pool, len(sizes))
        first = np.full(len(sizes), len(sizes))  # the order in which clusters appear
        first[labels] = dense
        order = np.lexsort((first, -marginals, -sizes))
        value = self._value(sizes[order], marginals[order])
        return Clustering(np.argsort(order)[labels], value, weights=weights, **about)

    def _value(self, sizes: Ints, marginals: Vector) -> float:
        return log_prior(self.tables, sizes) + float(marginals.sum()) + self.log_base


def _weighted(model: Model, weights: Ints | None) -> tuple[Items, float]:
    """Return the model's data as items of these sizes, and their total `log_base`."""
    items, base = model.items()
    if weights is None:
        return items, float(base.sum())
    return items._replace(sizes=weights), float((base * weights).sum())


def as_problem(
    data: Problem | ArrayLike | CheckedTable,
    family: Family | None = None,
    prior: Prior | None = None,
) -> Problem:
    """Return the problem of a solver that was given a `Problem`, or data, family and prior."""
    if isinstance(data, Problem):
        if family is not None or prior is not None:
            raise ParameterError("a Problem already has a family and a prior: leave them out")
        return data
    if family is None or prior is None:
        missing = "family" if family is None else "prior"
        raise ParameterError(f"{missing} is missing: give a Problem, or data, family and prior")
    return Problem(data, family, prior)


def labels_of(start: Clustering | ArrayLike, problem: Problem) -> Labels:
    """Return the checked labels of a problem's items, from a clustering or from plain labels."""
    return check_labels(start.labels if isinstance(start, Clustering) else start, problem.n_items)


def log_joint(
    data: Problem | ArrayLike,
    labels: Clustering | ArrayLike,
    family: Family | None = None,
    prior: Prior | None = None,
) -> float:
    """Return log p(labels, X) with every constant included.

    `data` is a `Problem`, or X together with a family and a prior.

    Examples
    --------
    >>> from dpsearch import Problem, families, log_joint, priors
    >>> family = families.Gaussian(prior_variance=10.0, noise_variance=1.0)
    >>> problem = Problem([[0.0], [0.1], [5.0]], family, priors.DirichletProcess(1.0))
    >>> log_joint(problem, [0, 0, 1]) > log_joint(problem, [0, 0, 0])
    True
    """
    problem = as_problem(data, family, prior)
    return problem.log_joint(labels_of(labels, problem))
