"""Categories in every column, coded 0, 1, 2 …, each column with a symmetric Dirichlet prior.

    x | θ ~ Categorical(θ),   θ ~ Dirichlet(a, …, a) over L levels      column by column

With n points of a cluster, c_l of them at level l, and A = aL (Gelman et al. 2013, "Bayesian Data
Analysis", 3.4):

    posterior    θ | C ~ Dirichlet(a + c_0, …, a + c_{L−1})
    predictive   log p(x | C) = Σ_d log(a + c_x) − log(A + n)
    marginal     log H = Σ_d [ Σ_l log Γ(a + c_l)/Γ(a) − log Γ(A + n)/Γ(A) ]

The functions are in `_levels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln

from dpsearch._types import Ints, Rng, Vector
from dpsearch._validate import per_column
from dpsearch.errors import ParameterError
from dpsearch.families import layout
from dpsearch.families._columns import with_holes
from dpsearch.families._levels import (
    FUNCTIONS,
    ROW,
    Levels,
    LevelsWithGaps,
    encode_levels,
    level_parameters,
    linear_levels,
)
from dpsearch.families.base import Example
from dpsearch.families.capabilities import Columns, PredictiveDraws
from dpsearch.families.functions import Functions
from dpsearch.families.learning import pseudo_count, sums_of
from dpsearch.families.linear import LinearForm
from dpsearch.families.statistics import LevelCounts

_MOST_LEVELS = 1 << 24


@dataclass(frozen=True)
class Categorical(Levels):
    """Categories coded 0, 1, 2 … in every column, with a Dirichlet prior on their probabilities.

    Parameters
    ----------
    concentration
        The Dirichlet parameter of each level: one number for all columns, or one per column.
    n_levels
        The number of levels: one number for all columns, one per column, or None for the largest
        code of each column in the data plus 1.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Categorical(concentration=0.5, n_levels=3)
    Categorical(concentration=0.5, n_levels=3)
    """

    concentration: Any = 1.0
    n_levels: Any = None

    name: ClassVar[str] = "categorical"
    kind: ClassVar[str] = "category"
    functions: ClassVar[Functions] = FUNCTIONS

    def _concentration(self, n_features: int) -> Vector:
        return per_column(self.concentration, n_features, "concentration", above_zero=True)

    def _levels(self, n_features: int) -> Ints:
        if self.n_levels is None:
            raise ParameterError(
                "n_levels is None: give it, or determine it from data with resolve(X)"
            )
        levels = per_column(self.n_levels, n_features, "n_levels", above_zero=True)
        if (levels != np.floor(levels)).any():
            raise ParameterError.must("n_levels", "be integers", self.n_levels)
        if levels.sum() > _MOST_LEVELS:
            raise ParameterError(f"n_levels adds up to {levels.sum():g}, more than {_MOST_LEVELS}")
        return levels.astype(np.int64)

    def resolve(self, X: Any) -> Categorical:
        if self.n_levels is not None:
            return self
        self.check(X)
        return self.with_parameters(n_levels=tuple(int(code) + 1 for code in X.max(axis=0)))

    def row_size(self, n_features: int) -> int:
        return int(np.sum(self._levels(n_features)))

    def check(self, X: Any) -> None:
        self.check_support(X, (X < 0.0) | (np.floor(X) != X), "codes 0, 1, 2 …")
        most = _MOST_LEVELS if self.n_levels is None else self._levels(X.shape[1])
        bad = most <= X
        if bad.any():
            own = np.broadcast_to(most, X.shape[1])[np.argwhere(bad)[0, 1]]
            self.check_support(X, bad, f"codes below {own}, its n_levels")

    def parameters(self, n_features: int, X: Any) -> Vector:
        return level_parameters(*self.level_counts(n_features), X.shape[0], gaps=False)

    def encode(self, X: Any) -> Any:
        return encode_levels(X, self._levels(X.shape[1]))

    # These hold for the functions and parameters of this class, too.
    log_ceiling, restated = Levels.log_ceiling, Levels.restated
    form_with_gaps, row_with_gaps = LevelsWithGaps, Levels.row_with_gaps

    def statistic(self, X: Any) -> LevelCounts:
        levels, concentrations = self.level_counts(X.shape[1])
        return LevelCounts(self.encode(X)[:, : len(concentrations)], concentrations, levels)

    def linear(self, n_features: int) -> LinearForm:
        return linear_levels(*self.level_counts(n_features), self.row_size(n_features))

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        levels, prior = self.level_counts(n_features)
        counts = self.counts_of(row, n_features)
        concentration = np.split(prior + counts, np.cumsum(levels)[:-1])
        return {
            "probabilities": [column / column.sum() for column in concentration],
            "concentration": concentration,
        }

    def columns(self, row: Vector, n_features: int) -> Columns:
        posterior = self.posterior(row, n_features)
        pairs = zip(self._concentration(n_features), posterior["concentration"], strict=True)
        log_marginals = [
            gammaln(after).sum() - gammaln(after.sum())
            - len(after) * gammaln(prior) + gammaln(len(after) * prior)
            for prior, after in pairs
        ]  # fmt: skip
        codes = posterior["probabilities"]
        centres = np.array([float(column.argmax()) for column in codes])
        return Columns(np.array(log_marginals), centres, codes)

    def level_counts(self, n_features: int) -> tuple[Ints, Vector]:
        levels = self._levels(n_features)
        return levels, np.repeat(self._concentration(n_features), levels)

    def counts_of(self, row: Vector, n_features: int) -> Vector:
        return np.asarray(layout.read(ROW, row, self.row_size(n_features)).counts)

    def row_of_levels(self, counts: Vector) -> Vector:
        return layout.make(ROW, len(counts), n=counts.sum(), counts=counts)

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws:
        probabilities = self.posterior(row, n_features)["probabilities"]

        def sample(size: int, rng: Rng) -> Any:
            codes = [rng.choice(len(column), size=size, p=column) for column in probabilities]
            return np.stack(codes, axis=1).astype(np.float64)

        return PredictiveDraws(sample)

    def learned(self, X: Any, labels: Ints) -> Categorical:
        # By column, since one that separates clusters has no information about one of noise.
        learned = []
        for d, size in enumerate(self._levels(X.shape[1])):
            indicators = (X[:, [d]] == np.arange(size)).astype(np.float64)
            learned.append(pseudo_count(sums_of(indicators, labels).sums))
        return type(self)(tuple(learned), self.n_levels)

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        X = np.floor(rng.random((12, 3)) ** 2 * [2, 3, 5])
        return [
            Example(cls(0.5), X),
            Example(cls([0.2, 1.0, 3.0], [4, 3, 6]), X),
            Example(cls(2.0, 5), X),
            Example(cls([0.2, 1.0, 3.0]), with_holes(X)),
        ]
