"""What to use when the user says nothing: a family, and its hyperparameters from the data.

A family offers a few settings worth trying for a data set (`Family.candidates`).  One greedy
search under each gives a log joint p(labels, data | hyperparameters); these are comparable, being
probabilities of the same data, and the largest wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._validate import has_gaps
from dpsearch.errors import DataError, ParameterError
from dpsearch.families import BY_NAME, Product, by_name
from dpsearch.families.base import Family
from dpsearch.objective import Problem
from dpsearch.prefix_search.search import search_problem
from dpsearch.priors import DirichletProcess, Gamma, Prior
from dpsearch.tables import Schema

_SAMPLE = 5000  # rows on which settings are compared


def resolve_prior(alpha: Any) -> Prior:
    """Return the prior that the estimator's `alpha` means."""
    if isinstance(alpha, Prior):
        return alpha
    if isinstance(alpha, str):
        if alpha == "auto":
            return DirichletProcess(Gamma(1.0, 1.0))
        raise ParameterError(f"alpha must be 'auto', a number above 0 or a prior, got {alpha!r}")
    return DirichletProcess(alpha)


def _is_counts(values: Any) -> bool:
    return bool(
        np.issubdtype(values.dtype, np.number)
        and not np.iscomplexobj(values)
        and (values >= 0).all()
        and (values == np.floor(values)).all()
    )


def guess_family(X: Any) -> type[Family]:
    """Choose a family by looking at a checked matrix."""
    if sp.issparse(X):
        if not _is_counts(X.data):
            raise DataError(
                "X is sparse with values that are not counts, which no family takes: use"
                " X.toarray(), or reduce its columns first, for example by TruncatedSVD"
            )
        return by_name("bernoulli" if X.nnz and X.data.max() <= 1.0 else "multinomial")
    n, width = X.shape
    gaps = has_gaps(X)
    seen = X[~np.isnan(X)] if gaps else X
    if _is_counts(seen) and seen.max() == 1.0 and width > 1:
        return by_name("bernoulli")
    if width <= 20 and n >= 4 * width and not gaps:
        return by_name("full_gaussian")
    return by_name("diagonal_gaussian")


# The kinds of columns that a table may have, and the families for them, until the automatic choice
# of hyperparameters sees to tables too.
_OF_KIND = {
    "real": "diagonal_gaussian",
    "count": "poisson",
    "binary": "bernoulli",
    "category": "categorical",
}
_MIDDLE = {"count": 1, "binary": 2, "category": 2}  # which of its candidates a kind gets


def mixed_candidates(schema: Schema, X: Any) -> list[Family]:
    """A family for each kind of column; settings differ in how much reals vary within clusters."""
    groups = schema.groups()
    offers = {kind: by_name(_OF_KIND[kind]).candidates(X[:, at]) for kind, at in groups.items()}
    if "category" in offers:
        n_levels = schema.n_levels(groups["category"])
        offers["category"] = [
            family.with_parameters(n_levels=n_levels) for family in offers["category"]
        ]
    if len(groups) == 1:
        return next(iter(offers.values()))
    fixed = [(offers[kind][_MIDDLE[kind]], at) for kind, at in groups.items() if kind != "real"]
    if "real" not in groups:
        return [Product(fixed)]
    return [Product([(family, groups["real"]), *fixed]) for family in offers["real"]]


def takes_gaps(family: Any) -> bool:
    """Whether the estimator's `family` may mean one that skips missing values."""
    if isinstance(family, Family):
        return family.takes_gaps
    known = BY_NAME.get(family) if isinstance(family, str) else None
    return known is None or known.independent_columns


def check_columns(X: Any) -> None:
    """Raise if a column of a checked matrix has no value at all."""
    if has_gaps(X) and np.isnan(X).all(axis=0).any():
        column = int(np.isnan(X).all(axis=0).argmax())
        raise DataError(f"column {column} of X has no value at all: leave it out")


def check_family(schema: Schema, family: Any) -> None:
    """Raise if a family for numbers is to be used for a column of categories."""
    parts = family.parts if isinstance(family, Product) else ((family, range(len(schema.columns))),)
    for part, columns in parts:
        name = part.name if isinstance(part, Family) else part
        for j in columns:
            if j >= len(schema.columns) or schema.columns[j].kind != "category":
                continue
            if name in BY_NAME and name != "categorical":
                raise DataError(
                    f"column {schema.columns[j].name!r} of X holds categories, which the {name}"
                    " family does not take: use family='auto', or families.Product with a"
                    " Categorical part"
                )


def choose_family(
    matrix: Any,
    family: Any,
    prior: Prior,
    rng: np.random.Generator,
    schema: Schema | None = None,
) -> Family:
    """Return the family to use for a checked matrix: as given, or the best of those suggested."""
    if isinstance(family, Family):
        return family
    if not isinstance(family, str):
        raise ParameterError(f"family must be 'auto', a name or a family, got {family!r}")
    if family == "auto" and schema is not None:
        candidates = mixed_candidates(schema, matrix)
    else:
        kind = guess_family(matrix) if family == "auto" else by_name(family)
        if sp.issparse(matrix) and not kind.accepts_sparse:
            raise DataError(
                f"X is sparse, which the {kind.name} family does not take: use X.toarray()"
            )
        candidates = kind.candidates(matrix)
    if len(candidates) == 1:
        return candidates[0]
    if matrix.shape[0] > _SAMPLE:
        rows = np.sort(rng.choice(matrix.shape[0], size=_SAMPLE, replace=False))
        matrix = matrix[rows]
    scores = []
    for candidate in candidates:
        problem = Problem.of(matrix, candidate, prior)
        scores.append(search_problem(problem, beam_size=1).log_joint)
    return candidates[int(np.argmax(scores))]
