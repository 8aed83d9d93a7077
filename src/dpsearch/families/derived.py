"""Tables with columns that are linear functions of others: any family of these others.

    x_d = c_d + Σ_j a_dj x_j        j the columns that are not derived

Examples are a price with tax, a value in another unit, or a sum.  Derived columns hold no further
information, so the density of a row is that of the other columns, and an observed derived column
may determine a missing one.  Densities are comparable only between families of the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from dpsearch._types import Ints, Matrix, Vector
from dpsearch.errors import ParameterError, located
from dpsearch.families._columns import EXACT, as_tuple, independent, mean_and_variance, varies
from dpsearch.families.base import Example, Family
from dpsearch.families.capabilities import Columns
from dpsearch.families.diagonal_gaussian import DiagonalGaussian
from dpsearch.families.full_gaussian import FullGaussian
from dpsearch.families.linear import columns_of
from dpsearch.families.transformed import Transformed
from dpsearch.registry import plain_value
from dpsearch.tables.checked import CheckedTable

_ABOVE_ROUNDING = 10.0  # times the error that a standardised coefficient must exceed …
_NO_COEFFICIENT = 1e-9  # … and the least coefficient if there is no error


@dataclass(frozen=True)
class Derived(Transformed):
    """Any family, for a table in which some columns are linear functions of the others.

    Parameters
    ----------
    family
        The family of the columns that are not derived.
    derived
        The indices of the derived columns.
    coefficients, constants
        a and c: for each derived column a row with a number for every other column, and a number.

    Examples
    --------
    >>> from dpsearch import families
    >>> families.Derived(families.LogNormal(), [1], [[1.19]], [0.0]).derived
    [1]
    """

    family: Any = field(default_factory=FullGaussian)
    derived: Any = ()
    coefficients: Any = ()
    constants: Any = ()

    name: ClassVar[str] = "derived"
    kind: ClassVar[str] = "projection"

    def __post_init__(self) -> None:
        if not isinstance(self.family, Family) or isinstance(self.family, Derived):
            raise ParameterError.must("family", "be a family other than Derived", self.family)

    def _relations(self, n_features: int) -> tuple[Ints, Ints, Matrix, Vector]:
        """Return the columns that are not derived, the derived ones, a and c."""
        columns = np.ravel(_finite("derived", self.derived))
        derived = columns.astype(np.int64)
        kept = np.setdiff1d(np.arange(n_features), derived)
        if len(kept) + len(derived) != n_features or (derived != columns).any():
            wanted = f"be different column numbers from 0 to {n_features - 1}"
            raise ParameterError.must("derived", wanted, self.derived)
        constants = _finite("constants", self.constants)
        coefficients = _finite("coefficients", self.coefficients)
        sizes = coefficients.size, constants.size
        if sizes != (len(derived) * len(kept), len(derived)) or not len(kept):
            text = f"has {coefficients.size} values, but there are {n_features} columns, of which"
            raise ParameterError.of("coefficients", f"{text} {len(derived)} are derived")
        return kept, derived, coefficients.reshape(len(derived), len(kept)), constants.reshape(-1)

    def n_inner(self, n_features: int) -> int:
        return len(self._relations(n_features)[0])

    def forward(self, X: Any) -> Any:
        """Return the columns that are not derived; derived ones fill gaps that they determine."""
        kept, derived, coefficients, constants = self._relations(X.shape[1])
        Z = columns_of(X, kept)
        if not isinstance(X, np.ndarray) or not np.isnan(Z).any():
            return Z
        Z, linear_parts = np.array(Z), X[:, derived] - constants
        whole = np.array([own.kind == "count" for own in self.family.by_column(len(kept))])
        patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
        for p, missing in enumerate(patterns):
            gone, known = np.flatnonzero(missing[kept]), ~missing[derived]
            relations = coefficients[np.ix_(known, gone)]
            inverse = np.linalg.pinv(relations)
            follow = np.isclose(inverse @ relations, np.eye(len(gone)), 0.0, 1e-9).all(axis=1)
            if follow.any():
                at = np.flatnonzero(which.ravel() == p)
                others = np.where(missing[kept], 0.0, Z[at]) @ coefficients[known].T
                values = (linear_parts[np.ix_(at, known)] - others) @ inverse.T
                values = np.where(whole[gone], np.rint(values), values)  # without rounding errors
                Z[np.ix_(at, gone[follow])] = values[:, follow]
        return Z

    def check(self, X: Any) -> None:
        with located(columns=self._relations(X.shape[1])[0].tolist()):
            super().check(X)

    def without(self, X: Matrix, rows: Ints, columns: Ints) -> Matrix:
        out = super().without(X, rows, columns)
        kept, derived, coefficients, _ = self._relations(X.shape[1])
        row, which = np.nonzero(coefficients.T[np.searchsorted(kept, columns)])
        out[np.asarray(rows)[row], derived[which]] = np.nan
        return out

    def inverse(self, Z: Any) -> Matrix:
        """Return rows with their derived columns."""
        n_features = np.shape(Z)[-1] + np.size(self.derived)
        kept, derived, coefficients, constants = self._relations(n_features)
        out = np.empty((*np.shape(Z)[:-1], n_features))
        out[..., kept] = Z
        out[..., derived] = constants + Z @ coefficients.T
        return out

    @classmethod
    def among(cls, X: Matrix, columns: list[int]) -> Self | None:
        """Return the relations by which some of these columns follow from others; None without."""
        own = X[:, columns]
        mean, variance = mean_and_variance(own)
        standard = np.where(varies(own), (own - mean) / np.sqrt(variance), 0.0)
        kept = independent(standard.T @ standard / len(own), np.flatnonzero(varies(own)), EXACT)
        if len(kept) in (0, len(columns)):
            return None
        found = {d: _relation(standard, d, kept) for d in range(len(columns)) if d not in kept}
        derived = [d for d, own in found.items() if own is not None]
        if not derived:
            return None
        scales = np.sqrt(variance)
        fitted = np.array([found[d] for d in derived])
        fitted *= scales[derived, None] / scales[kept]
        all_kept = np.setdiff1d(np.arange(X.shape[1]), np.array(columns)[derived])
        relations = np.zeros((len(derived), len(all_kept)))
        relations[:, np.searchsorted(all_kept, np.array(columns)[kept])] = fitted
        constants = mean[derived] - fitted @ mean[kept]
        at = tuple(columns[d] for d in derived)
        return cls(FullGaussian(), at, as_tuple(relations), as_tuple(constants))

    def contradicted(self, X: Matrix) -> list[int]:
        """Return the derived columns whose observed values do not all follow, but for rounding."""
        kept, derived, coefficients, constants = self._relations(X.shape[1])
        out = []
        for d, own, constant in zip(derived, coefficients, constants, strict=True):
            used = kept[own != 0.0]
            known = X[~np.isnan(X[:, d]) & ~np.isnan(X[:, used]).any(axis=1)]
            off = known[:, d] - constant - known[:, used] @ own[own != 0.0]
            if not len(known):
                continue
            (variance,) = mean_and_variance(known[:, [d]])[1]
            if np.mean(off**2) >= EXACT * variance if len(used) else varies(known[:, [d]])[0]:
                out.append(int(d))
        return out

    def in_words(self, names: Sequence[str]) -> str:
        """Return which columns follow from the others, and which are constant."""
        follow = np.any(np.reshape(self.coefficients, (len(np.ravel(self.derived)), -1)), axis=1)
        parts = []
        for there, one, several in (
            (follow, "follows from", "follow from"),
            (~follow, "is", "are"),
        ):
            own = [
                names[d] for d, is_so in zip(np.ravel(self.derived), there, strict=True) if is_so
            ]
            what = " the others" if there is follow else " constant"
            parts += [f"{', '.join(own)} {one if len(own) == 1 else several}{what}"] * bool(own)
        return "; ".join(parts)

    @classmethod
    def suggest(cls, X: Any) -> Self:
        found = None if np.isnan(X).any() else cls.among(X, list(range(X.shape[1])))
        start = found or cls()
        inner = DiagonalGaussian if np.isnan(X).any() else FullGaussian
        return start._with(inner.suggest(start.forward(X)))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], read: Callable[[Any], Any]) -> Self:
        names = ("derived", "coefficients", "constants")
        return cls(read(fields.get("family")), *(plain_value(fields[name], name) for name in names))

    def skips(self, table: CheckedTable) -> bool:
        return bool(self.family.skips(table.columns(self._relations(table.shape[1])[0])))

    def narrow(self, n_features: int) -> tuple[Family, int]:
        return self.family, self.n_inner(n_features)

    def by_column(self, n_features: int) -> list[Family]:
        kept, out = self._relations(n_features)[0], list[Family]([self]) * n_features
        for j, own in zip(kept, self.family.by_column(len(kept)), strict=True):
            out[j] = own
        return out

    def posterior(self, row: Vector, n_features: int) -> dict[str, Any]:
        """Return the posterior of the columns that are not derived."""
        return self.family.posterior(row, self.n_inner(n_features))  # type: ignore[no-any-return]

    def columns(self, row: Vector, n_features: int) -> Columns | None:
        """Return columns of which derived ones have no evidence of their own."""
        kept, derived, coefficients, constants = self._relations(n_features)
        found: Columns | None = self.family.columns(row, len(kept))
        if found is None:
            return None
        follow = Columns(np.zeros(len(derived)), constants + coefficients @ found.centres)
        return Columns.joined([found, follow], np.argsort([*kept, *derived]))

    @classmethod
    def examples(cls) -> list[Example]:
        rng = np.random.default_rng(0)
        Z = rng.normal(size=(12, 2))
        X = np.column_stack([Z[:, 0], 1.0 + Z @ [2.0, -0.5], Z[:, 1]])
        return [
            Example(cls(FullGaussian(0.0, 0.5), (1,), ((2.0, -0.5),), (1.0,)), X),
            Example(cls(DiagonalGaussian(0.5, 0.5, 2.0, 1.5), (1,), ((2.0, -0.5),), (1.0,)), X),
        ]


def _finite(name: str, values: Any) -> Matrix:
    """Return the numbers that a parameter holds."""
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError.of(name, "must be finite numbers") from error
    if not np.isfinite(numbers).all():
        raise ParameterError.of(name, "must be finite numbers")
    return numbers


def _relation(standard: Matrix, d: int, kept: Ints) -> Vector | None:
    """Return the coefficients of standardised column d as a linear function of others, or None.

    A column whose coefficient is not far above the rounding error is left out: imputed from d, its
    values would have that error divided by the coefficient.
    """
    out, used = np.zeros(len(kept)), np.arange(len(kept))
    while True:
        own = standard[:, kept[used]]
        fitted = np.linalg.lstsq(own, standard[:, d])[0]
        error = np.sqrt(np.mean((standard[:, d] - own @ fitted) ** 2))
        if error**2 >= EXACT:
            return None
        small = np.abs(fitted) <= max(_ABOVE_ROUNDING * error, _NO_COEFFICIENT)
        if not small.any():
            out[used] = fitted
            return out
        used = np.delete(used, np.abs(fitted).argmin())
