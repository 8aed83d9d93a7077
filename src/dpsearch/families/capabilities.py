"""Capabilities: what a family may offer beyond the required functions, each under a name.

A capability is a method that returns None if the family lacks it.  Callers that need one use
`require`, whose error names the capability and the method to write.

| capability | method | needed by |
| --- | --- | --- |
| columns | `columns(row, n_features)` returns `Columns` | `explain`, `impute`, the report |
| draws | `draws(row, n_features)` returns `PredictiveDraws` | `sample`, `outliers`, `explain(X)` |
| gaps | `gaps(rows, n_features)` returns `Gaps` | `predict` and `impute` of rows with gaps |
| linear | `linear(n_features)` returns `LinearForm` | passes over many rows at once |
| restated | `restated(row, n_features, other)` returns `Restated` | learning on in streams |
| log_ceiling | `log_ceiling(X)` returns a bound for each row | the `trivial` heuristic, `certify` |
| statistic | `statistic(X)` returns a closed form of `statistics` | proofs of `certify` |
| bounds | the function `bound`, perhaps with `features` | the `admissible` heuristic |

How to write each: ``docs/add_a_family.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dpsearch._types import Matrix, Rng, Vector
from dpsearch.errors import CapabilityError

PAGE = "docs/add_a_family.md"
T = TypeVar("T")


class Columns(NamedTuple):
    """Evidence and centres of the columns of one cluster.

    log_marginals
        Log H of each column's values by themselves.  Factors of single values may be left out, as
        with `log_base`: they cancel when clusterings are compared.
    centres
        The expected value of each column: the posterior mean, or the most probable code.
    probabilities
        For each column None, or if it holds codes 0, 1, 2 … their probabilities, by which `impute`
        chooses one.
    moments
        [2, D] counts and means, for families whose `log_marginals` leave out −½ Σ (z − z̄)², the
        scatter about the mean z̄ of n values.  Bayes factors then add the scatter that separate
        clusters save.  None, or 0 in a column, if nothing is left out.
    rows
        The cluster's statistics as one row for each column, where columns are independent: a model
        of complete data then predicts for rows with gaps.
    """

    log_marginals: Vector
    centres: Vector
    probabilities: Sequence[Any] | None = None
    moments: Matrix | None = None
    rows: Sequence[Vector] | None = None

    def codes_of(self, d: int) -> Any:
        """Return the probabilities of the codes of a column; None if it holds numbers."""
        return None if self.probabilities is None else self.probabilities[d]

    @classmethod
    def joined(cls, parts: Sequence[Columns], order: Any = None) -> Columns:
        """Return the columns of several parts as those of one table; `order` sorts them."""
        codes: list[Any] = []
        moments = []
        for part in parts:
            width = len(part.centres)
            codes += [None] * width if part.probabilities is None else part.probabilities
            moments.append(np.zeros((2, width)) if part.moments is None else part.moments)
        order = np.arange(len(codes)) if order is None else np.asarray(order)
        return cls(
            np.concatenate([part.log_marginals for part in parts])[order],
            np.concatenate([part.centres for part in parts])[order],
            [codes[j] for j in order],
            np.concatenate(moments, axis=1)[:, order],
        )


def log_bayes_factors(inside: Columns, outside: Columns, both: Columns) -> Vector:
    """Return the log Bayes factor of each column for two clusters against one.

    It is log H(x₁) + log H(x₂) − log H(x₁, x₂).  The sums of squares that were left out contribute
    n₁n₂/(n₁ + n₂) (z̄₁ − z̄₂)², which loses no digits however far the data are from 0.
    """
    out = inside.log_marginals + outside.log_marginals - both.log_marginals
    if inside.moments is not None and outside.moments is not None:
        (n, mean), (rest, other) = inside.moments, outside.moments
        out = out + 0.5 * n * rest / np.maximum(n + rest, 1.0) * (mean - other) ** 2
    return np.asarray(out)


@dataclass(frozen=True)
class PredictiveDraws:
    """Draws from the posterior predictive of one cluster.

    Each draw has its own parameter: rows are not one sample under a single parameter.

    sample
        `sample(size, rng)` returns `size` data rows.
    of_lengths
        `of_lengths(lengths, rng)` returns a data row for each row of `Family.lengths`, if the
        family does not model all of a row, for example not the length of a document.
    """

    sample: Callable[[int, Rng], Any]
    of_lengths: Callable[[Matrix, Rng], Any] | None = None

    def like(self, lengths: Matrix, rng: Rng) -> Any:
        """Draw a data row for each row of `lengths`."""
        if self.of_lengths is None:
            return self.sample(len(lengths), rng)
        return self.of_lengths(lengths, rng)


@dataclass(frozen=True)
class Gaps:
    """Densities and fillings of rows with missing values, which are NaN.

    log_densities
        `log_densities(X)` returns log p(observed values of x | cluster), [rows, clusters].
    fill
        `fill(X, weights)` returns X with its gaps filled by the clusters' expectations given the
        rest of the row; `weights` [rows, clusters] has the share of each cluster.
    """

    log_densities: Callable[[Any], Matrix]
    fill: Callable[[Any, Matrix], Matrix]


class Restated(NamedTuple):
    """A cluster's row under other hyperparameters, for `merge` to complete."""

    row: Vector
    log_base: float = 0.0  # the increase of the sum of the points' `log_base`


class Simpler(NamedTuple):
    """A family with fewer parameters per cluster, and its table.

    It finds clusters to start from.  If it is for the same table, so that log joints are
    comparable, it may replace the other family where it describes the data better.
    """

    X: Any
    family: Any
    replaces: bool = False


def fill_by_columns(clusters: Sequence[Columns], X: Matrix, weights: Matrix) -> Matrix:
    """Return X with gaps filled by the clusters' centres or most probable codes, by column."""
    missing = np.isnan(X)
    out = np.array(X)
    for d in np.flatnonzero(missing.any(axis=0)).tolist():
        at = missing[:, d]
        codes = [one.codes_of(d) for one in clusters]
        if codes[0] is None:
            out[at, d] = weights[at] @ np.array([one.centres[d] for one in clusters])
        else:
            out[at, d] = (weights[at] @ np.stack(codes)).argmax(axis=1)
    return out


def all_or_none(found: Iterable[T | None]) -> list[T] | None:
    """Return the results for all parts of a family; None if one of them is None."""
    known = list(found)
    present = [one for one in known if one is not None]
    return present if len(present) == len(known) else None


def require(family: Any, name: str, *arguments: Any, needed_by: str) -> Any:
    """Return the result of a capability, or raise an error that says which method to write."""
    found = getattr(family, name)(*arguments)
    if found is None:
        raise lacking(family, name, f"its method {name}", needed_by)
    return found


def lacking(family: Any, name: str, to_write: str, needed_by: str) -> CapabilityError:
    """Return the error about a capability that a family does not have."""
    leaves = ", ".join(dict.fromkeys(_leaves(family))) if family.members else ""
    which = f"{family.name} family" + (f" (of {leaves})" if leaves else "")
    return CapabilityError(
        f"{needed_by} needs the capability {name!r}, which the {which} does not have:"
        f" implement {to_write} as {PAGE} describes"
    )


def _leaves(family: Any) -> list[str]:
    """Return the names of the innermost families that a family is made of."""
    if not family.members:
        return [family.name]
    return [name for member in family.members for name in _leaves(member)]
