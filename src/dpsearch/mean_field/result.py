"""The fitted mixture of a variational method."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from dpsearch._numbers import count
from dpsearch._types import Labels, Matrix, Vector
from dpsearch._validate import as_matrix
from dpsearch.items import merge_rows
from dpsearch.mean_field import model_file
from dpsearch.mean_field.tables import Table
from dpsearch.mixture import Mixture
from dpsearch.passes.chunk import Totals
from dpsearch.problem import Clustering


@dataclass(frozen=True, eq=False)
class VariationalMixture:
    """Components with expected numbers of rows, and a lower bound on the evidence.

    Attributes
    ----------
    lower_bound
        A lower bound on log p(x), with every constant.
    history
        The bound after each iteration; it never falls.  For the collapsed variant, the
        second-order estimate of the bound with the sticks integrated out.
    sizes
        [K]: expected number of rows of each component: component k has the label k in `clustering`,
        in `predict` and in `predict_proba`.
    weights
        [K]: expected weights; what they lack to 1 is that of all other components.
    alpha
        E[α]; NaN if the prior has none.
    clustering
        Each row in its most probable component, with the log joint of that partition; clusters are
        in descending order of size, and components that are no row's most probable one follow.
    converged
        Whether it ended because nothing improved any more, and not at `max_iter` or by Ctrl-C.
    seconds
        Wall time, without that of compiling.
    """

    lower_bound: float
    history: Vector
    sizes: Vector
    weights: Vector
    alpha: float
    clustering: Clustering
    converged: bool
    seconds: float
    _mixture: Mixture = field(repr=False)

    @property
    def n_components(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        converged = "" if self.converged else ", not converged"
        return (
            f"VariationalMixture({count(self.n_components, 'component')}, lower bound"
            f" {self.lower_bound:.6g}, {len(self.history)} iterations{converged},"
            f" {self.seconds:.3g} s)"
        )

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probabilities of components, given that each row is in one of them."""
        inside, _ = self._mixture.log_joint_probabilities(X)
        return np.asarray(softmax(inside, axis=1))

    def predict(self, X: Any) -> Labels:
        """Return the most probable component of each row."""
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def score_samples(self, X: Any) -> Vector:
        """Return the log predictive density of each row, new components included."""
        inside, outside = self._mixture.log_joint_probabilities(X)
        return np.asarray(logsumexp(np.column_stack([inside, outside]), axis=1))

    def score(self, X: Any) -> float:
        """Return the mean log predictive density."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any) -> Matrix:
        """Return X with missing values filled in by what the components expect there."""
        return self._mixture.impute(as_matrix(X, gaps=True))

    def save(self, path: str | Path) -> None:
        """Write the mixture to a file, which `VariationalMixture.load` reads."""
        model_file.write(path, self, self._mixture)

    @classmethod
    def load(cls, path: str | Path) -> VariationalMixture:
        """Read a mixture that `save` wrote."""
        fields, mixture, clustering = model_file.read(Path(path))
        return cls(**fields, clustering=clustering, _mixture=mixture)

    def sample(self, n_samples: int = 1, rng: Any = None) -> tuple[Matrix, Labels]:
        """Draw rows from the predictive distribution, and the components that they are from."""
        return self._mixture.sample(n_samples, np.random.default_rng(rng))


def mixture_of(table: Table, totals: Totals, weights: Vector, rest: float) -> Mixture:
    """Return the predictive mixture of components with fractional numbers of rows.

    Counts are rounded, as rows of statistics index tables by them.
    """
    model = table.model.without_data()
    sizes = np.maximum(np.rint(totals.sizes), 1.0)
    rows = table.form.rows(sizes, totals.sums * (sizes / totals.sizes)[:, None])
    counts = model.family.counts_in_row(model.n_features)
    if counts is not None:
        rows[:, counts] = np.rint(rows[:, counts])
    pool = []
    for row in rows:
        pool.append(model.empty_row())
        merge_rows(model.core, pool[-1], np.ascontiguousarray(row), 1.0)
    out = Mixture(model, np.concatenate(pool), sizes.astype(np.int64), table.prior)
    out.log_weights, out.log_fresh_weight = np.log(weights), float(np.log(rest))
    return out
