"""What to use when the user says nothing: a family, and its hyperparameters from the data.

A family offers a few settings worth trying for a data set (`Family.candidates`).  One greedy
search under each gives a log joint p(labels, data | hyperparameters); these are comparable, being
probabilities of the same data, and the largest wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch.errors import DataError, ParameterError
from dpsearch.families import by_name
from dpsearch.families.base import Family
from dpsearch.objective import Problem
from dpsearch.prefix_search.search import search_problem
from dpsearch.priors import DirichletProcess, Gamma, Prior

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
    if _is_counts(X) and X.max() == 1.0 and width > 1:
        return by_name("bernoulli")
    if width <= 20 and n >= 4 * width:
        return by_name("full_gaussian")
    return by_name("diagonal_gaussian")


def choose_family(matrix: Any, family: Any, prior: Prior, rng: np.random.Generator) -> Family:
    """Return the family to use for a checked matrix: as given, or the best of those suggested."""
    if isinstance(family, Family):
        return family
    if not isinstance(family, str):
        raise ParameterError(f"family must be 'auto', a name or a family, got {family!r}")
    kind = guess_family(matrix) if family == "auto" else by_name(family)
    if sp.issparse(matrix) and not kind.accepts_sparse:
        raise DataError(f"X is sparse, which the {kind.name} family does not take: use X.toarray()")
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
