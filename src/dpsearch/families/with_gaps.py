"""Missing values, skipped exactly, in any family with columns independent given the cluster.

The marginal of the observed values is the product over columns of the family's marginal of the
column's values: each column is a part with its own count (`_parts.py`).

Families take this form automatically if data have gaps.  It is slower than the plain one, which
shares a count and its logarithms between columns.  A family may have a faster form of its own as
`form_with_gaps`, such as `DiagonalGaussian`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import ParameterError, located
from dpsearch.families.base import Example, Family
from dpsearch.families.composite import Composite, Part
from dpsearch.families.linear import LinearForm, counted


@dataclass(frozen=True)
class WithGaps(Composite):
    """A family for data with missing values.

    Parameters
    ----------
    family
        One whose columns are independent given the cluster.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Gaussian().compile([[0.0, float("nan")], [1.0, 2.0]]).family.name
    'with_gaps'
    """

    family: Family

    name: ClassVar[str] = "with_gaps"
    independent_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family) or isinstance(self.family, WithGaps):
            raise ParameterError.must("family", "be a family without gaps", self.family)
        if not self.family.independent_columns:
            raise ParameterError(
                f"the {self.family.name} family cannot skip missing values: its columns are not"
                " independent given the cluster"
            )

    def _parts(self, n_features: int) -> list[Part]:
        return [Part(self.family.column(d, n_features), np.array([d])) for d in range(n_features)]

    def with_gaps(self) -> WithGaps:
        return self

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        return row

    def resolve(self, X: Any) -> Self:
        return type(self)(self.family.resolve(filled(X)))

    def check(self, X: Any) -> None:
        """Check the values there are, column by column: no filling need be possible."""
        for part in self._parts(X.shape[1]):
            own = X[:, part.columns]
            seen = np.flatnonzero(~np.isnan(own[:, 0]))
            if len(seen) > 0:
                with located(rows=seen, columns=part.columns.tolist()):
                    part.family.check(own[seen])

    def parameters(self, n_features: int, X: Any) -> Vector:
        self.family.parameters(n_features, np.zeros((1, n_features)))  # for its checks
        return super().parameters(n_features, X)

    # These do not depend on `parameters`, which would drop them.
    log_ceiling = Composite.log_ceiling
    linear = Composite.linear
    restated = Composite.restated

    def _linear_of(self, part: Part) -> LinearForm | None:
        form = super()._linear_of(part)
        return None if form is None else counted(form)

    def _complete(self, X: Any) -> Any:
        return filled(X)

    def _observed(self, X: Any) -> Any:
        return ~np.isnan(X)

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        columns = [family.posterior(own, 1) for family, own, _ in self._triples(row, n_features)]
        return {key: _joined([column[key] for column in columns]) for key in columns[0]}

    @property
    def members(self) -> tuple[Family, ...]:
        return (self.family,)

    def hyperparameters(self) -> dict[str, Any]:
        return self.family.hyperparameters()

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        return type(self)(self.family.rescaled(factors))

    @property
    def learns_on(self) -> bool:
        return self.family.learns_on

    def learned(self, X: Any, labels: Ints) -> Self:
        return type(self)(self.family.learned(X, labels))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Any:
        plain = cls(read(fields.get("family"))).family  # after the checks
        return plain.with_gaps()  # in the family's own form if it has one

    @classmethod
    def examples(cls) -> list[Example]:
        return []  # the families have examples with gaps


Family.form_with_gaps = WithGaps


class WithOwnRows(WithGaps):
    """`WithGaps` of a family with its own functions for gaps, whose rows have no parts.

    A subclass also defines how a row is split by column (`_rows`).  The family's `check` leaves
    gaps out.
    """

    variant = Family.variant
    relocated = Family.relocated  # since the parameters have no addresses
    width = Family.width
    bound_width = Family.bound_width
    counts_in_row = Family.counts_in_row

    def check(self, X: Any) -> None:
        self.family.check(X)


def filled(X: Any) -> Matrix:
    """Return X with each gap filled by the first value of its column, or 0 if there is none."""
    missing = np.isnan(X)
    if not missing.any():
        return X  # type: ignore[no-any-return]
    first = X[(~missing).argmax(axis=0), np.arange(X.shape[1])]
    return np.where(missing, np.where(np.isnan(first), 0.0, first), X)


def _joined(values: list[Any]) -> Any:
    """Return the columns' values as one vector or one list."""
    if isinstance(values[0], list):
        return [value for column in values for value in column]
    return np.concatenate(values)
