"""The number of dimensions along which rows of length 1 vary.

A von Mises–Fisher cluster is round: it varies alike along all of them.  Embeddings of texts and
images vary along few of their many dimensions, and differently within each topic.  In hundreds of
columns every such difference would be worth another von Mises–Fisher cluster.
"""

from __future__ import annotations

import math

import numpy as np

from dpsearch._types import Matrix

_NEIGHBOURS, _ROWS_ASKED, _ROWS_AMONG = 5, 500, 20_000
_NOTHING = 1e-6  # the squared distances of rows that differ by rounding alone


def n_dimensions(X: Matrix) -> float:
    """Return along how many dimensions rows vary: all rows, or neighbours if that is more.

    For rows with covariance Σ this is (tr Σ)²/tr Σ², which is D − 1 or D under one von Mises–Fisher
    distribution.  For neighbours it is the median over rows of each row's five nearest, which are
    usually in one cluster, so that the positions of the clusters do not matter.
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
    """Estimate (tr Σ)²/tr Σ²; infinite if rows are too few or do not differ.

    tr Σ² is estimated without bias from n degrees of freedom (Bai & Saranadasa 1996, "Effect of
    high dimension: by an example of a two sample problem", section 4).
    """
    n, centred = len(rows) - 1.0, rows - rows.mean(axis=0)
    gram = centred @ centred.T
    total = float(np.trace(gram))
    if n < 2.0 or total <= _NOTHING:
        return math.inf
    squares = n * (n * float(np.sum(gram**2)) / total**2 - 1.0) / ((n + 2.0) * (n - 1.0))
    return 1.0 / squares if squares else math.inf
