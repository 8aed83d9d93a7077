"""Families side by side on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dpsearch._types import ArrayLike
from dpsearch.errors import ParameterError
from dpsearch.families.base import Family

_MEASURES = {
    "gaussian": "densities of numbers",
    "diagonal_gaussian": "densities of numbers",
    "full_gaussian": "densities of numbers",
    "bernoulli": "probabilities",
    "categorical": "probabilities",
    "poisson": "probabilities",
    "multinomial": "probabilities given row totals",
}
_NOT_COMPARABLE = {
    "auto": "may be any family",
    "projected_gaussian": "looks at projections of X alone",
}


class Comparison(NamedTuple):
    """What one family makes of the data."""

    family: Family
    log_joint: float
    n_clusters: int
    model: Any  # the fitted DPMixture


def compare(
    X: ArrayLike, families: Sequence[str | Family], *, alpha: Any = "auto", **settings: Any
) -> list[Comparison]:
    """Fit a `DPMixture` with each family; return them from the largest log joint to the smallest.

    The log joints are log p(labels, X | family), probabilities of the same data: their differences
    are log Bayes factors of the models with their best partitions.  Densities of numbers do not
    compare with probabilities of counts, nor does a family that looks at projections of X alone.

    Parameters
    ----------
    X
        As for `DPMixture.fit`.
    families
        Names, or objects of `dpsearch.families`.
    alpha, settings
        As for `DPMixture`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import compare
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2)) @ [[1.0, 0.9], [0.0, 0.3]]
    >>> compare(X, ["diagonal_gaussian", "full_gaussian"], random_state=0)[0].family.name
    'full_gaussian'
    """
    from dpsearch.estimator import DPMixture

    if isinstance(families, (str, Family)) or len(families) < 2:
        raise ParameterError(f"families must be a list of two or more, got {families!r}")
    names = [family if isinstance(family, str) else family.name for family in families]
    for name in names:
        if name in _NOT_COMPARABLE:
            raise ParameterError(f"{name} {_NOT_COMPARABLE[name]}: it does not compare with others")
    measures = {_MEASURES[name]: name for name in names if name in _MEASURES}
    if len(measures) > 1:
        raise ParameterError(
            f"{' and '.join(measures.values())} do not compare: they give {' and '.join(measures)}"
        )
    out = []
    for family in families:
        model = DPMixture(family, alpha, **settings).fit(X)
        out.append(Comparison(model.family_, model.log_joint_, model.n_clusters_, model))
    return sorted(out, key=lambda result: -result.log_joint)
