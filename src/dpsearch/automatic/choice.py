"""Choosing a family by looking at the table.

| what the table holds | family |
| --- | --- |
| sparse, only 0 and 1 | Bernoulli |
| sparse counts | multinomial |
| only 0 and 1 | Bernoulli |
| whole numbers ≥ 0, at least half of them 0 and 1 the commonest other | multinomial |
| numbers, up to 32 columns, with rows enough | Gaussian with full covariance |
| numbers, more columns | the same on the principal components, at most 20 |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpsearch.automatic.learning import learn
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import by_name
from dpsearch.families.base import Family
from dpsearch._types import Labels
from dpsearch.priors import DirichletProcess, Gamma, Prior

_WIDE = 32  # columns: more are projected
_ROWS_A_COLUMN = 5  # that a full covariance needs


class Choice(NamedTuple):
    """A family, why it was chosen, and the partition that its hyperparameters were learned with."""

    family: Family
    reason: str
    labels: Labels | None


def resolve_prior(alpha: Any) -> Prior:
    """Return the prior that the estimator's `alpha` means."""
    if isinstance(alpha, Prior):
        return alpha
    if isinstance(alpha, str):
        if alpha == "auto":
            return DirichletProcess(Gamma(1.0, 1.0))
        raise ParameterError(f"alpha must be 'auto', a number above 0 or a prior, got {alpha!r}")
    return DirichletProcess(alpha)


def choose(matrix: Any, family: Any, prior: Prior) -> Choice:
    """Return the family to use for a checked matrix, with its hyperparameters."""
    if isinstance(family, Family):
        return Choice(family, "as given", None)
    if not isinstance(family, str):
        raise ParameterError(f"family must be 'auto', a name or a family, got {family!r}")
    name, reason = guess(matrix) if family == "auto" else (family, "as named")
    kind = by_name(name)
    if sp.issparse(matrix) and not kind.accepts_sparse:
        raise DataError(f"X is sparse, which the {kind.name} family does not take: use X.toarray()")
    learned = learn(matrix, kind.suggest(matrix).resolve(matrix), prior)
    return Choice(learned.family, reason, learned.labels)


def guess(X: Any) -> tuple[str, str]:
    """Return the name of a family for a checked matrix, and the reason in words."""
    if sp.issparse(X):
        if not _is_counts(X.data):
            raise DataError(
                "X is sparse with values that are not counts, which no family takes: use"
                " X.toarray(), or reduce its columns first, for example by TruncatedSVD"
            )
        if X.nnz and X.data.max() <= 1.0:
            return "bernoulli", "a sparse table of 0 and 1"
        return "multinomial", "a sparse table of counts"
    n_rows, width = X.shape
    if _is_counts(X) and width > 1:
        if X.max() == 1.0:
            return "bernoulli", "all values are 0 or 1"
        if _is_mostly_zero(X):
            return "multinomial", "counts, most of them 0 and most others 1"
    if width <= _WIDE and n_rows >= _ROWS_A_COLUMN * width:
        return "full_gaussian", f"numbers in {width} columns"
    reason = f"{width} columns are many" if width > _WIDE else f"{n_rows} rows are few"
    if width == 1:
        return "full_gaussian", "numbers in one column"
    return "projected_gaussian", f"numbers, and {reason} for a full covariance"


def _is_counts(values: Any) -> bool:
    return bool(
        np.issubdtype(values.dtype, np.number)
        and not np.iscomplexobj(values)
        and (values >= 0).all()
        and (values == np.floor(values)).all()
    )


def _is_mostly_zero(X: Any) -> bool:
    """Whether counts look like counts of events: rare, and seldom more than one."""
    values, times = np.unique(X, return_counts=True)
    above = values > 0.0
    if times[~above].sum() < 0.5 * X.size or not above.any():
        return False
    return bool(values[above][times[above].argmax()] == 1.0)
