"""Maps of the rows in two dimensions."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch._types import Ints, Vector
from dpsearch.deadline import current
from dpsearch.report.table import Table

_FEW = 15  # with no more rows, UMAP has too few neighbours
_UMAP_SECONDS = 60.0  # that UMAP may take
_LEVELS = 50  # levels of a category that the map uses
_MANY = 50  # columns above which UMAP gets principal components


class Projection(NamedTuple):
    name: str
    x: Vector
    y: Vector
    titles: list[str]


def projections(table: Table, rows: Ints, seed: int, *, umap: bool = True) -> list[Projection]:
    """Return maps of these rows: the columns if there are two, PCA, and UMAP if installed."""
    out = []
    numbers = [column for column in table.columns if not column.is_category]
    if len(numbers) == len(table.columns) == 2:
        x, y = (column.values[rows] for column in numbers)
        out.append(Projection("the two columns", x, y, [numbers[0].name, numbers[1].name]))
    features = _features(table, rows)
    if min(features.shape) < 2:
        values = _dense(features)[:, 0] if not numbers else numbers[0].values[rows]
        height = np.random.default_rng(seed).random(len(rows))
        title = numbers[0].name if numbers else table.names[0]
        return [Projection("one column", values, height, [title, "(spread at random)"])]
    scores, shares = _principal(features, 2, seed)
    titles = [
        f"principal component {j + 1} ({100.0 * share:.0f} % of the variance)"
        for j, share in enumerate(shares)
    ]
    out.append(Projection("principal components", scores[:, 0], scores[:, 1], titles))
    current().check()
    if umap and len(rows) > _FEW and current().left > _UMAP_SECONDS:
        with contextlib.suppress(ImportError):
            x, y = _umap(features, seed).T
            out.insert(0, Projection("UMAP", x, y, ["UMAP 1", "UMAP 2"]))
    return out


def _features(table: Table, rows: Ints) -> Any:
    """Return the rows as vectors whose distances are meaningful.

    Numbers are standardised, with gaps at the mean.  A category becomes indicators of its most
    common levels, scaled so that the column's variance is one.  Words are weighted by rarity, and
    rows of words scaled to length one.
    """
    if table.is_counts:
        from sklearn.feature_extraction.text import TfidfTransformer

        return TfidfTransformer(sublinear_tf=True).fit_transform(table.counts[rows])
    parts = []
    for column in table.columns:
        values = column.values[rows]
        if column.levels is not None:
            counts = np.bincount(values[values >= 0], minlength=len(column.levels))
            most_common = np.argsort(-counts, kind="stable")[:_LEVELS]
            block = (values[:, None] == most_common).astype(np.float64)
            block -= block.mean(axis=0)
        else:
            middle = np.nanmean(values) if not np.isnan(values).all() else 0.0
            block = np.nan_to_num(values - middle)[:, None]
        spread = np.sqrt((block**2).mean(axis=0).sum())
        if spread > 0.0:
            parts.append(block / spread)
    return np.hstack(parts) if parts else np.zeros((len(rows), 1))


def _principal(features: Any, n: int, seed: int) -> tuple[Any, Vector]:
    from sklearn.decomposition import PCA

    # A sparse matrix is centred implicitly by this solver.
    solver = "arpack" if sp.issparse(features) else "auto"
    n = min(n, min(features.shape) - 1 if sp.issparse(features) else min(features.shape))
    pca = PCA(n, svd_solver=solver, random_state=seed)
    scores = pca.fit_transform(features)
    if n < 2:
        scores = np.hstack([scores, np.zeros((len(scores), 1))])
    return scores, np.nan_to_num(np.append(pca.explained_variance_ratio_, 0.0)[:2])


def _umap(features: Any, seed: int) -> Any:
    from umap import UMAP

    if features.shape[1] > _MANY and min(features.shape) > _MANY + 1:
        features = _principal(features, _MANY, seed)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # UMAP warns that a seed makes it use one thread
        return UMAP(random_state=seed).fit_transform(_dense(features))


def _dense(features: Any) -> Any:
    return features.toarray() if sp.issparse(features) else features
