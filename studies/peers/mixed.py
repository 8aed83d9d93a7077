"""Tables of numbers, counts and categories with gaps, drawn from clusters that are known.

Given its cluster k, a row has

    numbers     x_j ~ Normal(m_kj, 1),           m_kj ~ Normal(0, separation²)
    counts      x_j ~ Poisson(r_kj),             log r_kj ~ Normal(log 5, (separation/3)²)
    categories  x_j ~ Categorical(p_kj),         p_kj ~ Dirichlet(1/separation, …)

and each entry is missing with a probability of 10 %.  A judge who is given m, r, p and the weights
takes the most probable cluster of each row: no other rule is right more often, so that its ARI says
how much of the truth can be recovered at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpsearch._types import Labels, Matrix, Vector


@dataclass(frozen=True)
class Settings:
    n_rows: int
    n_clusters: int
    separation: float
    n_numbers: int = 5
    n_counts: int = 3
    n_categories: int = 4
    n_levels: int = 5
    missing: float = 0.1

    def __str__(self) -> str:
        return f"{self.n_rows:,} rows, {self.n_clusters} clusters, separation {self.separation:g}"


SETTINGS = tuple(
    Settings(n_rows, n_clusters, separation)
    for n_rows, n_clusters in ((300, 4), (1000, 8), (5000, 12))
    for separation in (4.0, 2.0, 1.0)
)


class Drawn(NamedTuple):
    X: Matrix  # categories as level numbers, gaps as NaN
    kinds: Any  # of each column: real, count, category
    labels: Labels
    judge: Labels  # most probable cluster of each row for one who knows all parameters


def draw(settings: Settings, seed: int) -> Drawn:
    """Draw a table; the same seed gives the same table."""
    rng = np.random.default_rng([seed, settings.n_rows, settings.n_clusters])
    k, spread = settings.n_clusters, settings.separation
    weights: Vector = rng.dirichlet(np.full(k, 5.0))
    labels = rng.choice(k, size=settings.n_rows, p=weights)
    means = spread * rng.standard_normal((k, settings.n_numbers))
    rates = np.exp(np.log(5.0) + spread / 3.0 * rng.standard_normal((k, settings.n_counts)))
    shape = (k, settings.n_categories)
    levels = rng.dirichlet(np.full(settings.n_levels, 1.0 / spread), size=shape)
    numbers = means[labels] + rng.standard_normal((settings.n_rows, settings.n_numbers))
    counts = rng.poisson(rates[labels])
    ends = levels[labels].cumsum(axis=2)
    below = rng.random((settings.n_rows, settings.n_categories, 1)) > ends
    categories = np.minimum(below.sum(axis=2), settings.n_levels - 1)
    X = np.hstack([numbers, counts, categories]).astype(np.float64)
    X[rng.random(X.shape) < settings.missing] = np.nan
    kinds = np.array(
        ["real"] * settings.n_numbers
        + ["count"] * settings.n_counts
        + ["category"] * settings.n_categories
    )
    return Drawn(X, kinds, labels, _judged(X, weights, means, rates, levels))


def _judged(X: Matrix, weights: Vector, means: Matrix, rates: Matrix, levels: Any) -> Labels:
    """Return the most probable cluster of each row, given its observed values."""
    score = np.tile(np.log(weights), (len(X), 1))
    n_numbers, n_counts = means.shape[1], rates.shape[1]
    for j, column in enumerate(X.T):
        seen = ~np.isnan(column)
        x = column[seen, None]
        if j < n_numbers:
            log_p = stats.norm.logpdf(x, means[:, j])
        elif j < n_numbers + n_counts:
            log_p = stats.poisson.logpmf(x, rates[:, j - n_numbers])
        else:
            with np.errstate(divide="ignore"):  # a level that a cluster does not have
                log_p = np.log(levels[:, j - n_numbers - n_counts][:, x[:, 0].astype(int)]).T
        score[seen] += log_p
    return np.asarray(score.argmax(axis=1), np.int64)
