"""Rows of length 1: are they spread over their columns, as von Mises–Fisher clusters are?

Such a cluster is round.  Embeddings that models make of texts and images vary along few of their
many dimensions, and differently within a topic: in hundreds of columns every difference along these
would be worth a von Mises–Fisher cluster.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._types import Matrix

_NEIGHBOURS, _ROWS_ASKED, _ROWS_AMONG = 5, 500, 20_000
_NOTHING = 1e-6  # squared distances of rows that are alike but for rounding


def n_dimensions(X: Matrix) -> float:
    """Return along how many dimensions rows differ: all of them, or neighbours if that is more.

    With Σ the covariance of some rows it is (tr Σ)²/tr Σ², which is D − 1 or D for those of one von
    Mises–Fisher distribution.  Five neighbours are in one cluster as a rule, so that it does not
    matter how the clusters lie; the median over rows.
    """
    rows = np.random.default_rng(0).permutation(len(X))[:_ROWS_AMONG]
    among = X[rows]
    asked = among[:_ROWS_ASKED]
    products = asked @ among.T
    shares = [1.0 / _dimensions(asked)]
    if len(rows) > _NEIGHBOURS:
        np.fill_diagonal(products, -np.inf)
        nearest = np.argpartition(-products, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
        shares.append(float(np.median([1.0 / _dimensions(among[own]) for own in nearest])))
    return 1.0 / max(min(shares), 1e-300)


def _dimensions(rows: Matrix) -> float:
    """Estimate (tr Σ)²/tr Σ², infinite where rows are too few or do not differ.

    tr Σ² of n degrees of freedom without bias (Bai & Saranadasa 1996, "Effect of high dimension: by
    an example of a two sample problem", section 4).
    """
    n, centred = len(rows) - 1.0, rows - rows.mean(axis=0)
    gram = centred @ centred.T
    total = float(np.trace(gram))
    if n < 2.0 or total <= _NOTHING:
        return math.inf
    squares = n * (n * float(np.sum(gram**2)) / total**2 - 1.0) / ((n + 2.0) * (n - 1.0))
    return 1.0 / squares if squares else math.inf
