"""Rows of counts, scaled to units of their noise.

Rows of counts of events differ in their totals, and hence in their noise.  Counts u with
expectation λ have the variance λ + αλ².  With T the median of the totals Σu, m the expectation of
y = T u/Σu, and s² = m + αm² its variance at that total, a row becomes

    x = m + (y − m)/ρ,   ρ² the mean of ((y − m)/s)² over the columns of the row.

If a row is noise, ρ is its standard deviation; if it is far from m, ρ is that distance, and only
the direction remains.  The expectation of y does not depend on the row's total; those of its
logarithm and of its square root do.

This assumes that all groups of rows have the same noise.  If groups differ much in most columns,
their noise differs, too, and x = 2√y is better, since its noise does not depend on the expectation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Matrix, Vector
from dpsearch.families.linear import like, namespace

_ALIKE = 1.5  # the largest ratio of the third to the first quartile of similar totals
_LEAST_NOISE = 0.01  # the least share of a row's square that is noise
_NOTHING = 1e-10


class CountRows(NamedTuple):
    """The map from rows of counts, with or without gaps, to x, and back."""

    centre: Vector  # the expectation of x
    dispersion: float | None  # α; None if x = 2√y
    total: float  # T
    logged: bool = False  # whether tables hold log(1 + u) in place of u
    given_total: float = 1.0  # the total of rows that are mapped back

    @classmethod
    def of(cls, counts: Matrix) -> CountRows:
        """Return the map for a table of counts."""
        sums = counts.sum(axis=1)
        total = max(float(np.median(sums)), 1.0)
        shares = counts.sum(axis=0) / max(float(sums.sum()), 1.0)
        return cls(total * shares, dispersion(counts, shares), total)

    @classmethod
    def candidates(cls, counts: Matrix) -> list[CountRows]:
        """Return the map, and that with square roots if all rows have similar totals."""
        units, (first, third) = cls.of(counts), np.quantile(counts.sum(axis=1), (0.25, 0.75))
        return [units, units.roots(counts)] if third <= _ALIKE * first else [units]

    def roots(self, counts: Matrix) -> CountRows:
        """Return the same with square roots."""
        y = self._shares(counts, np.zeros(counts.shape, bool))
        return self._replace(centre=2.0 * np.sqrt(y).mean(axis=0), dispersion=None)

    @property
    def expected(self) -> Vector:
        """The approximate expectation of y."""
        return self.centre if self.dispersion is not None else 0.25 * self.centre**2

    @property
    def scale(self) -> Vector:
        """1/s."""
        if self.dispersion is None:
            return np.ones_like(self.centre)
        noise = self.centre + self.dispersion * self.centre**2
        return np.asarray(1.0 / np.sqrt(np.where(noise > 0.0, noise, 1.0)))

    def forward(self, X: Any) -> Any:
        """Return x of each row."""
        off, lengths = self._deviations(X)
        return like(X, self.centre) + off / lengths

    def _shares(self, counts: Any, gaps: Any) -> Any:
        """Return y; the total of a row with gaps is estimated from the counts that are known."""
        xp, zero = namespace(counts), like(counts, 0.0)
        expected = like(counts, self.expected)
        known = xp.sum(xp.where(gaps, zero, expected), axis=1, keepdims=True)
        sums = xp.sum(xp.where(gaps, zero, counts), axis=1, keepdims=True) * xp.sum(expected)
        return counts * (like(counts, self.total) * known / xp.where(sums > 0.0, sums, 1.0 + zero))

    def _deviations(self, X: Any) -> tuple[Any, Any]:
        """Return the deviation ρ(x − m), and ρ."""
        xp, gaps = namespace(X), namespace(X).isnan(X)
        zero, one = like(X, 0.0), like(X, 1.0)
        y = self._shares(xp.expm1(X) if self.logged else X, gaps)
        if self.dispersion is None:
            return 2.0 * xp.sqrt(y) - like(X, self.centre), one
        off = y - like(X, self.centre)
        squares = xp.where(gaps, zero, (off * like(X, self.scale)) ** 2)
        mean = xp.sum(squares, axis=1, keepdims=True) / xp.sum(
            xp.where(gaps, zero, one), axis=1, keepdims=True
        )
        return off, xp.where(mean > _NOTHING, mean, one) ** 0.5

    def lengths(self, x: Matrix) -> Matrix:
        """Return ρ of rows with the expectation x and the total T.

        With t² the mean of ((x − m)/s)², ρ² = t²ρ² + 1: the square of the expectation and the
        noise.
        """
        if self.dispersion is None:
            return np.ones_like(x[..., :1])
        squares = (((x - self.centre) * self.scale) ** 2).mean(axis=-1, keepdims=True)
        return np.asarray(1.0 / np.sqrt(np.maximum(1.0 - squares, _LEAST_NOISE)))

    def rows(self, x: Matrix, lengths: Any) -> Matrix:
        """Return rows of the table with the total `given_total`."""
        return self._as_stored(self._back(x, lengths) * (self.given_total / self.total))

    def rows_like(self, x: Matrix, X: Matrix) -> Matrix:
        """Return rows of the table with the totals and ρ estimated from rows X with gaps."""
        lengths = np.where(
            np.isnan(X).all(axis=1, keepdims=True), self.lengths(x), self._deviations(X)[1]
        )
        y = self._back(x, lengths)
        known = np.nansum(np.expm1(X) if self.logged else X, axis=1, keepdims=True)
        there = np.where(np.isnan(X), 0.0, y).sum(axis=1, keepdims=True)
        # Rows without any known count get `given_total`.
        known = np.where(there > _NOTHING, known, self.given_total)
        return self._as_stored(y * known / np.where(there > _NOTHING, there, self.total))

    def _back(self, x: Matrix, lengths: Any) -> Matrix:
        """Return y; squares of expected roots, which are too small, are scaled to the total T."""
        x = np.maximum(self.centre + lengths * (x - self.centre), 0.0)
        if self.dispersion is not None:
            return np.asarray(x)
        return np.asarray(self.total * x**2 / np.maximum((x**2).sum(-1, keepdims=True), _NOTHING))

    def _as_stored(self, counts: Matrix) -> Matrix:
        return np.log1p(counts) if self.logged else counts


def dispersion(counts: Matrix, shares: Vector) -> float:
    """Return the moment estimate of α: counts have the variance λ + αλ², λ = Σu · share.

    It is the median over the columns with an expectation above 1, since columns in which groups of
    rows differ vary more.
    """
    sums = counts.sum(axis=1)
    # The sums over rows of (u − λ)² − λ, and of λ².
    expected = shares**2 * (sums @ sums)
    squares = (counts**2).sum(axis=0) - 2.0 * shares * (sums @ counts) + expected
    excess = squares - shares * sums.sum()
    large = shares * np.median(sums) > 1.0
    if not large.any():
        return max(0.0, float(excess.sum() / max(expected.sum(), _NOTHING)))
    return max(0.0, float(np.median(excess[large] / expected[large])))
