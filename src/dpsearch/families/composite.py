"""What families that are made of parts share: `Product` and `WithGaps`.

A subclass says which parts there are for a table of some width.  The functions are those of
`_parts.py`, and a capability is there if all parts have it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from dpsearch._types import Ints, Matrix, Rng, Vector
from dpsearch.families import _parts
from dpsearch.families._parts import Part
from dpsearch.families.base import Family
from dpsearch.families.capabilities import Columns, PredictiveDraws, Restated, all_or_none
from dpsearch.families.functions import Functions
from dpsearch.families.linear import LinearForm


class Composite(Family):
    """A family made of parts, each with columns of its own."""

    reads_own_rows: ClassVar[bool] = False

    @abstractmethod
    def _parts(self, n_features: int) -> list[Part]:
        """The parts for a table of this width."""

    def _complete(self, X: Any) -> Any:
        """The data that the parts see."""
        return X

    def _observed(self, X: Any) -> Any:
        """Whether each row of the data has each part."""
        return np.ones((X.shape[0], len(self._parts(X.shape[1]))), bool)

    def _rows(self, row: Vector, n_features: int) -> list[Vector]:
        """Return the row of each part."""
        return np.split(row, _parts.starts_of(self._parts(n_features))[:-1])[1:]

    def _triples(self, row: Vector, n_features: int) -> list[tuple[Family, Vector, int]]:
        """Return the family, the row and the number of columns of each part."""
        pairs = zip(self._parts(n_features), self._rows(row, n_features), strict=True)
        return [(part.family, own, len(part.columns)) for part, own in pairs]

    def _order(self, n_features: int) -> Ints:
        """What sorts the parts' columns, taken one part after the other, into the table's order."""
        return np.argsort(np.concatenate([part.columns for part in self._parts(n_features)]))

    def variant(self) -> Functions:
        return _parts.functions_of([Part(member, np.zeros(1, np.int64)) for member in self.members])

    def width(self, n_features: int) -> int:
        return int(_parts.starts_of(self._parts(n_features))[-1])

    def bound_width(self, n_features: int) -> int:
        return sum(part.n_features for part in self._parts(n_features))

    def parameters(self, n_features: int, X: Any) -> Vector:
        return _parts.parameters_of(self._parts(n_features), self._complete(X))

    def relocated(self, params: Vector, n_features: int) -> Vector:
        return _parts.relocated(self._parts(n_features), params)

    def counts_in_row(self, n_features: int) -> slice | Ints | None:
        return _parts.counts_of(self._parts(n_features))

    def encode(self, X: Any) -> Any:
        return _parts.encoded(self._parts(X.shape[1]), self._complete(X), self._observed(X))

    def _sum_observed(self, X: Any, method: str) -> Vector | None:
        """Add up what a method gives for each part, where that was observed."""
        complete, observed = self._complete(X), self._observed(X)
        out = np.zeros(X.shape[0])
        for p, part in enumerate(self._parts(X.shape[1])):
            value = getattr(part.family, method)(complete[:, part.columns])
            if value is None:
                return None
            out += np.where(observed[:, p], value, 0.0)
        return out

    def log_base(self, X: Any) -> Vector:
        return np.asarray(self._sum_observed(X, "log_base"))

    def log_ceiling(self, X: Any) -> Vector | None:
        return self._sum_observed(X, "log_ceiling")

    def _linear_of(self, part: Part) -> LinearForm | None:
        """The linear form of a part."""
        return part.family.linear(len(part.columns))

    def linear(self, n_features: int) -> LinearForm | None:
        parts = self._parts(n_features)
        forms = all_or_none(map(self._linear_of, parts))
        return None if forms is None else _parts.linear_of(parts, forms)

    def restated(self, row: Vector, n_features: int, other: Any) -> Restated | None:
        triples = zip(self._triples(row, n_features), other._parts(n_features), strict=True)
        parts = all_or_none(
            Restated(own) if family == part.family else family.restated(own, width, part.family)
            for (family, own, width), part in triples
        )
        if parts is None:
            return None
        rows = np.concatenate([row[:1], *(part.row for part in parts)])
        return Restated(rows, sum(part.log_base for part in parts))

    def columns(self, row: Vector, n_features: int) -> Columns | None:
        triples = self._triples(row, n_features)
        parts = all_or_none(family.columns(own, width) for family, own, width in triples)
        return None if parts is None else Columns.joined(parts, self._order(n_features))

    def lengths(self, X: Any) -> Matrix:
        parts = self._parts(X.shape[1])
        return np.hstack([part.family.lengths(X[:, part.columns]) for part in parts])

    def draws(self, row: Vector, n_features: int) -> PredictiveDraws | None:
        triples = self._triples(row, n_features)
        parts = all_or_none(family.draws(own, width) for family, own, width in triples)
        if parts is None:
            return None
        given = [family.lengths(np.zeros((1, width))).shape[1] for family, _, width in triples]
        order = self._order(n_features)

        def sample(size: int, rng: Rng) -> Matrix:
            return np.hstack([part.sample(size, rng) for part in parts])[:, order]

        def of_lengths(lengths: Matrix, rng: Rng) -> Matrix:
            pairs = zip(parts, np.split(lengths, np.cumsum(given)[:-1], axis=1), strict=True)
            return np.hstack([part.like(own, rng) for part, own in pairs])[:, order]

        return PredictiveDraws(sample, of_lengths)

    def by_column(self, n_features: int) -> list[Family]:
        parts = self._parts(n_features)
        families = [family for part in parts for family in part.family.by_column(len(part.columns))]
        return [families[j] for j in self._order(n_features)]
