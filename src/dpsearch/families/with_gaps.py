"""Missing values, skipped exactly, in any family with columns independent given the cluster.

The marginal over what was observed is the product over columns of the family's marginal of the
values that the column has: each column is a part with its own count (`_parts.py`).

Families take this form by themselves when data have gaps.  It is slower than the plain one, which
shares a count and its logarithms among columns; a family may have a faster form of its own and give
it by `with_gaps` (as `DiagonalGaussian` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import ParameterError
from dpsearch.families import _parts
from dpsearch.families._parts import Part
from dpsearch.families.base import Example, Family, Functions
from dpsearch.families.capabilities import Columns, Draws, all_or_none
from dpsearch.tables.checked import CheckedTable


@dataclass(frozen=True)
class WithGaps(Family):
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
            raise ParameterError(f"family must be a family without gaps, got {self.family!r}")
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

    def suited(self, table: CheckedTable) -> Self:
        return self.resolve(table.matrix)

    def resolve(self, X: Any) -> Self:
        return type(self)(self.family.resolve(filled(X)))

    def check(self, X: Any) -> None:
        self.family.check(filled(X))

    def variant(self) -> Functions:
        return _parts.functions_of([Part(self.family, np.zeros(1, np.int64))])

    def width(self, n_features: int) -> int:
        return _parts.width_of(self._parts(n_features))

    def bound_width(self, n_features: int) -> int:
        return _parts.features_of(self._parts(n_features))

    def parameters(self, n_features: int, X: Any) -> Vector:
        self.family.parameters(n_features, np.zeros((1, n_features)))  # for its checks
        return _parts.parameters_of(self._parts(n_features), filled(X))

    def relocated(self, params: Vector, n_features: int) -> Vector:
        return _parts.relocated(self._parts(n_features), params)

    def encode(self, X: Any) -> Any:
        return _parts.encoded(self._parts(X.shape[1]), filled(X), ~np.isnan(X))

    def _sum_observed(self, X: Any, of_column: str) -> Vector | None:
        """Add up a method's values for each column, where they were observed."""
        whole = filled(X)
        out = np.zeros(X.shape[0])
        for part in self._parts(X.shape[1]):
            value = getattr(part.family, of_column)(whole[:, part.columns])
            if value is None:
                return None
            out += np.where(np.isnan(X[:, part.columns[0]]), 0.0, value)
        return out

    def log_base(self, X: Any) -> Vector:
        return np.asarray(self._sum_observed(X, "log_base"))

    def log_ceiling(self, X: Any) -> Vector | None:
        return self._sum_observed(X, "log_ceiling")

    def counts_in_row(self, n_features: int) -> Ints:
        return _parts.counts_of(self._parts(n_features))

    def _pairs(self, row: Vector, n_features: int) -> list[tuple[Family, Vector]]:
        """Each column's family and row."""
        parts = self._parts(n_features)
        rows = _parts.rows_of(parts, row)
        return [(part.family, own) for part, own in zip(parts, rows, strict=True)]

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        columns = [family.posterior(own, 1) for family, own in self._pairs(row, n_features)]
        return {key: _joined([column[key] for column in columns]) for key in columns[0]}

    def by_column(self, n_features: int) -> list[Family]:
        return self.family.by_column(n_features)

    @property
    def members(self) -> tuple[Family, ...]:
        return (self.family,)

    def columns(self, row: Vector, n_features: int) -> Columns | None:
        found = all_or_none(family.columns(own, 1) for family, own in self._pairs(row, n_features))
        return None if found is None else Columns.joined(found)

    def draws(self, row: Vector, n_features: int) -> Draws | None:
        found = all_or_none(family.draws(own, 1) for family, own in self._pairs(row, n_features))
        if found is None:
            return None
        return Draws(lambda size, rng: np.hstack([column.sample(size, rng) for column in found]))

    def hyperparameters(self) -> dict[str, Any]:
        return self.family.hyperparameters()

    def rescaled(self, factors: Mapping[str, float]) -> Self:
        return type(self)(self.family.rescaled(factors))

    def learned(self, X: Any, labels: Ints) -> Self:
        return type(self)(self.family.learned(X, labels))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Any:
        plain = cls(read(fields.get("family"))).family  # checked
        return plain.with_gaps()  # in the form of its own if there is one

    @classmethod
    def examples(cls) -> list[Example]:
        return []  # those of the families, with gaps


Family.form_with_gaps = WithGaps


class WithOwnRows(WithGaps):
    """`WithGaps` of a family that has a form of its own: its functions, and rows without parts.

    A subclass also says how its rows come apart by column (`_pairs`).
    """

    def variant(self) -> Functions:
        return self.functions

    def relocated(self, params: Vector, n_features: int) -> Vector:
        return params  # with no addresses in them


def filled(X: Any) -> Matrix:
    """Return X with gaps closed by values that their columns have, or 0 if they have none."""
    missing = np.isnan(X)
    if not missing.any():
        return X  # type: ignore[no-any-return]
    first = X[(~missing).argmax(axis=0), np.arange(X.shape[1])]
    return np.where(missing, np.where(np.isnan(first), 0.0, first), X)


def _joined(values: list[Any]) -> Any:
    """The columns' values as one vector, or one list."""
    if isinstance(values[0], list):
        return [value for column in values for value in column]
    return np.concatenate(values)
