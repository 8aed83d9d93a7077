"""A family for each group of columns of a mixed table.

    log H(x) = Σ_p log H_p(x_p)        over the parts p

Given the cluster the parts are independent.  The functions are in `_parts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsearch._types import ArrayLike, Ints, Matrix, Vector
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.families.base import Example, Family
from dpsearch.families.bernoulli import Bernoulli
from dpsearch.families.capabilities import Gaps, Simpler
from dpsearch.families.categorical import Categorical
from dpsearch.families.composite import Composite, Part
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.gaussian import Gaussian
from dpsearch.families.multinomial import Multinomial
from dpsearch.families.poisson import Poisson
from dpsearch.registry import plain_value
from dpsearch.tables.checked import CheckedTable


@dataclass(frozen=True)
class Product(Composite):
    """A family for each group of columns.

    Parameters
    ----------
    parts
        Pairs of a family and the indices of its columns.  Every column is in exactly one pair.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Product([(families.Gaussian(), [0, 2]), (families.Bernoulli(), [1])]).parts[1]
    (Bernoulli(successes=1.0, failures=1.0), (1,))
    """

    parts: Any

    name: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _checked(self.parts))

    def _parts(self, n_features: int) -> list[Part]:
        wanted = sum(len(columns) for _, columns in self.parts)
        if n_features != wanted:
            raise DataError(
                f"X has {n_features} columns, but the parts of the product have {wanted}"
            )
        return [Part(family, np.array(columns)) for family, columns in self.parts]

    def _with(self, members: Sequence[Family]) -> Product:
        """Return the product with other families for the same groups of columns."""
        columns = [columns for _, columns in self.parts]
        return Product(tuple(zip(members, columns, strict=True)))

    @property
    def takes_gaps(self) -> bool:
        return True  # or `resolve` names the part that does not

    def skips(self, table: CheckedTable) -> bool:
        return all(
            part.family.takes_gaps or not table.columns(part.columns).gaps
            for part in self._parts(table.shape[1])
        )

    def gaps(self, rows: list[Vector], n_features: int) -> Gaps:
        by_part = zip(*(self._rows(row, n_features) for row in rows), strict=True)
        parts = list(zip(self._parts(n_features), map(list, by_part), strict=True))

        def log_densities(X: Any) -> Matrix:
            out = np.zeros((X.shape[0], len(rows)))
            for part, own in parts:
                data = CheckedTable(X).columns(part.columns)
                if data.gaps:
                    out += _gaps_of(part, own, data).log_densities(data.matrix)
                else:
                    model = part.family.compile_empty(len(part.columns))
                    out += model.log_densities(np.concatenate(own), data)
            return out

        def fill(X: Any, weights: Matrix) -> Matrix:
            out = np.array(X)
            for part, own in parts:
                data = CheckedTable(X).columns(part.columns)
                if data.gaps:
                    gaps = _gaps_of(part, own, data)
                    out[:, part.columns] = gaps.fill(data.matrix, weights)
            return out

        return Gaps(log_densities, fill)

    def with_gaps(self) -> Product:
        members = [family.with_gaps() if family.takes_gaps else family for family, _ in self.parts]
        same = all(new is old for new, (old, _) in zip(members, self.parts, strict=True))
        return self if same else self._with(members)

    def row_with_gaps(self, row: Vector, n_features: int) -> Vector:
        rows = [
            family.row_with_gaps(own, width) if family.takes_gaps else own
            for family, own, width in self._triples(row, n_features)
        ]
        return np.concatenate([row[:1], *rows])

    def table(self, X: ArrayLike | CheckedTable) -> CheckedTable:
        table = super().table(X)
        for family, columns in self._parts(table.shape[1]):
            if not family.takes_gaps:
                _refuse_gaps(family, columns, table.columns(columns))
        return table

    def suited(self, table: CheckedTable) -> Product:
        members = []
        for family, columns in self._parts(table.shape[1]):
            with located(columns=columns.tolist()):
                members.append(family.suited(table.columns(columns)))
        return self._with(members)

    def resolve(self, X: Any) -> Product:
        return self.suited(self.table(CheckedTable(X)))

    def check(self, X: Any) -> None:
        for family, columns in self._parts(X.shape[1]):
            with located(columns=columns.tolist()):
                family.check(X[:, columns])

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        triples = self._triples(row, n_features)
        return {"parts": [family.posterior(own, width) for family, own, width in triples]}

    @property
    def members(self) -> tuple[Family, ...]:
        return tuple(family for family, _ in self.parts)

    def hyperparameters(self) -> dict[str, Any]:
        """Return hyperparameters named by part: ``0.scale`` is the scale of the first."""
        return {
            f"{p}.{name}": value
            for p, (family, _) in enumerate(self.parts)
            for name, value in family.hyperparameters().items()
        }

    def simpler(self, X: Any) -> Simpler | None:
        """Return the product of the parts' simpler families; their tables are concatenated."""
        members = self._parts(X.shape[1])
        found = [family.simpler(X[:, columns]) for family, columns in members]
        if not any(found):
            return None
        tables, parts, begin = [], [], 0
        for (family, columns), simpler in zip(members, found, strict=True):
            table, own, _ = simpler or Simpler(X[:, columns], family)
            tables.append(table)
            parts.append((own, range(begin, begin + table.shape[1])))
            begin += table.shape[1]
        return Simpler(np.hstack(tables), Product(parts))

    def learned(self, X: Any, labels: Ints) -> Product:
        return self._with([family.learned(X[:, at], labels) for family, at in self.parts])

    @property
    def learns_on(self) -> bool:
        return any(family.learns_on for family in self.members)

    def restatable(self, other: Any) -> Product:
        pairs = zip(self.members, other.members, strict=True)
        return self._with([own.restatable(new) for own, new in pairs])

    def rescaled(self, factors: Mapping[str, float]) -> Product:
        own: list[dict[str, float]] = [{} for _ in self.parts]
        for name, factor in factors.items():
            part, _, of_part = name.partition(".")
            own[int(part)][of_part] = factor
        pairs = zip(self.members, own, strict=True)
        return self._with([family.rescaled(changes) for family, changes in pairs])

    def to_dict(self) -> dict[str, Any]:
        parts = [[family.to_dict(), list(columns)] for family, columns in self.parts]
        return {"name": self.name, "parts": parts}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Product:
        parts: Any = fields.get("parts")
        pairs = isinstance(parts, (list, tuple)) and all(
            isinstance(part, (list, tuple)) and len(part) == 2 for part in parts
        )
        if not pairs:
            raise ParameterError.must("parts", "be pairs of a family and its columns", parts)
        return cls([(read(family), plain_value(columns, "columns")) for family, columns in parts])

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        real = 2.0 * rng.normal(size=(12, 2))
        counts = rng.poisson(3.0, size=(12, 2)).astype(np.float64)
        ones = (rng.random((12, 2)) < [0.3, 0.7]).astype(np.float64)
        codes = np.floor(rng.random((12, 2)) ** 2 * [2, 4])
        X = np.hstack([real, counts, ones, codes])
        gaps = np.where(rng.random(X.shape) < 0.25, np.nan, X)
        gaps[5] = np.nan
        mixed = cls(
            [
                (DiagonalGaussian(0.3, 0.5, 2.0, 1.5), (0, 1)),
                (Poisson([1.5, 0.7], 0.5), (3, 2)),
                (Bernoulli(0.5, 2.0), (4, 5)),
                (Categorical([0.5, 0.3], (2, 4)), (6, 7)),
            ]
        )
        two = cls([(Gaussian(0.0, 3.0, 1.0), (2, 0)), (Gaussian(1.0, 2.0, [0.5, 1.0]), (1, 3))])
        return [
            Example(mixed, X),
            Example(mixed, gaps),
            Example(two, X[:, :4]),
            Example(
                cls([(FullGaussian(0.0, 0.5), (1, 3)), (Multinomial(0.7), (0, 2))]),
                X[:, [2, 0, 3, 1]],
            ),
        ]


def _gaps_of(part: Part, rows: list[Vector], table: CheckedTable) -> Gaps:
    found = part.family.gaps(rows, len(part.columns))
    if found is None:
        _refuse_gaps(*part, table)
    assert found is not None
    return found


def _refuse_gaps(family: Family, columns: Ints, table: CheckedTable) -> None:
    if table.gaps:
        row, at = np.argwhere(np.isnan(table.matrix))[0]
        raise DataError(
            f"X at {{place}} is missing, but the {family.name} family of this column cannot skip"
            " missing values: its columns are not independent given the cluster",
            row=row,
            column=columns[at],
        )


def _checked(parts: Any) -> tuple[tuple[Family, tuple[int, ...]], ...]:
    """Return the parts as tuples; raise unless every column is in exactly one."""
    try:
        pairs = [(family, tuple(np.atleast_1d(columns).tolist())) for family, columns in parts]
    except (TypeError, ValueError) as error:
        pairs_wanted = "be pairs of a family and its columns"
        raise ParameterError.must("parts", pairs_wanted, parts) from error
    for family, columns in pairs:
        _check_part(family, columns)
    seen = sorted(column for _, columns in pairs for column in columns)
    if not seen:
        raise ParameterError("a product needs at least one part")
    for wanted, column in enumerate(seen):
        if column != wanted:
            fault = f"{column} is in two" if column < wanted else f"{wanted} is in none"
            text = f"every column must be in exactly one part of a product: column {fault}"
            raise ParameterError(text)
    return tuple(pairs)


def _check_part(family: Any, columns: tuple[Any, ...]) -> None:
    if not isinstance(family, Family) or isinstance(family, Product):
        raise ParameterError(
            f"a part of a product must be a family other than Product, got {family!r}"
        )
    if not columns:
        raise ParameterError(f"the part {family!r} of a product has no columns")
    for column in columns:
        if not isinstance(column, int) or isinstance(column, bool) or column < 0:
            raise ParameterError(f"the columns of a part must be integers ≥ 0, got {column!r}")
