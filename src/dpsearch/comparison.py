"""Comparison of families on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import ArrayLike
from dpsearch.errors import ParameterError
from dpsearch.estimator import DPMixture
from dpsearch.families import by_name
from dpsearch.families.base import Family

# What a family computes for a column of its kind.  Other kinds are left to the user.
_MEASURES = {
    "real": "densities of numbers",
    "binary": "probabilities",
    "category": "probabilities",
    "count": "probabilities",
    "words": "probabilities given row totals",
    "direction": "a density of directions",
    "regression": "a density given other columns",
}


class Comparison(NamedTuple):
    """The fit of one family."""

    family: Family
    log_joint: float
    n_clusters: int
    model: DPMixture


def compare(
    X: ArrayLike, families: Sequence[str | Family], *, alpha: Any = "auto", **settings: Any
) -> list[Comparison]:
    """Fit a `DPMixture` with each family, and return the fits sorted by log joint, largest first.

    The log joints are log p(labels, X | family), on the same data, so their differences are log
    Bayes factors of the models with their best partitions.  Densities of numbers cannot be compared
    with probabilities of counts, nor can a family of projections of X be compared with any other.

    Parameters
    ----------
    X
        As for `DPMixture.fit`.
    families
        Names, or objects of `dpsearch.families`.
    alpha, settings
        As for `DPMixture`.  However, codes of missing values are kept as numbers unless given by
        `missing_codes`, because not every family can skip gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsearch import compare
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2)) @ [[1.0, 0.9], [0.0, 0.3]]
    >>> compare(X, ["diagonal_gaussian", "full_gaussian"], random_state=0)[0].family.name
    'full_gaussian'
    """
    if not isinstance(families, (list, tuple)) or len(families) < 2:
        raise ParameterError.must("families", "be a list of two or more", families)
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    _check_measures(families, shape[1] if len(shape) == 2 else 1)
    out = []
    settings = {"missing_codes": None, **settings}
    for family in families:
        model = DPMixture(family, alpha, **settings).fit(X)
        out.append(Comparison(model.family_, model.log_joint_, model.n_clusters_, model))
    return sorted(out, key=lambda result: -result.log_joint)


def _check_measures(families: Sequence[str | Family], width: int) -> None:
    """Raise unless all families have densities for the same measure on every column."""
    first: dict[int, tuple[str, str]] = {}
    for family in families:
        for column, own in enumerate(_by_column(family, width)):
            name, measure = own.name, _MEASURES.get(own.kind)
            if own.kind == "projection":
                raise ParameterError(
                    f"{name} models only projections of X, so its log joint cannot be compared",
                    parameter="families",
                )
            if measure is None:
                continue
            other, wanted = first.setdefault(column, (name, measure))
            if measure != wanted:
                raise ParameterError(
                    f"{other} and {name} cannot be compared: for column {column} they give {wanted}"
                    f" and {measure}",
                    parameter="families",
                )


def _by_column(family: Any, width: int) -> Sequence[Any]:
    """Return the family of each column, or the class that a name stands for."""
    if isinstance(family, Family):
        return family.by_column(width)
    if not isinstance(family, str):
        raise ParameterError.must("families", "be names or families", family)
    if family == "auto":
        raise ParameterError(
            "'auto' may choose any family: name the families to compare", parameter="families"
        )
    return [by_name(family)] * width
