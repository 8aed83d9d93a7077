"""Rows of counts in units of their noise.

Rows of counts of events differ by how much was counted, and so in their noise.  Counts u with the
expectation λ vary by λ + αλ².  With T the median of the sums Σu, m what is expected of y = T u/Σu
and s² = m + αm² its variance at that sum, a row becomes

    x = m + (y − m)/ρ,   ρ² the mean of ((y − m)/s)² over the columns of the row.

Where a row is noise, ρ is its deviation; where it is far from m, ρ is that distance, and its
direction remains.  What is expected of y is the same however much was counted, as it is of no
logarithm and no square root.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Matrix, Vector
from dpsearch.families.linear import like, namespace

_LEAST_NOISE = 0.01  # share of a row's square that is noise
_NOTHING = 1e-10


class CountRows(NamedTuple):
    """How rows of counts, with gaps or without, become x and come back."""

    centre: Vector  # m
    dispersion: float  # α
    total: float  # T
    logged: bool = False  # whether tables hold log(1 + u) in place of u
    given_total: float = 1.0  # the sum of rows that come back

    @classmethod
    def of(cls, counts: Matrix) -> CountRows:
        """Return how a table of counts does so."""
        sums = counts.sum(axis=1)
        total = max(float(np.median(sums)), 1.0)
        shares = counts.sum(axis=0) / max(float(sums.sum()), 1.0)
        return cls(total * shares, dispersion(counts, shares), total)

    @property
    def scale(self) -> Vector:
        """1/s."""
        noise = self.centre + self.dispersion * self.centre**2
        return np.asarray(1.0 / np.sqrt(np.where(noise > 0.0, noise, 1.0)))

    def seen(self, X: Any) -> Any:
        """Return x of each row."""
        off, lengths = self._off(X)
        return like(X, self.centre) + off / lengths

    def _off(self, X: Any) -> tuple[Any, Any]:
        """Return y − m and ρ.  The known counts of a row are the share of all that m says."""
        xp, zero, one = namespace(X), like(X, 0.0), like(X, 1.0)
        centre, gaps = like(X, self.centre), xp.isnan(X)

        def total(values: Any) -> Any:
            return xp.sum(xp.where(gaps, zero, values), axis=1, keepdims=True)

        counts = xp.expm1(X) if self.logged else X
        known, sums = total(centre), total(counts) * xp.sum(centre)
        off = counts * (like(X, self.total) * known / xp.where(sums > 0.0, sums, one)) - centre
        squares = total((off * like(X, self.scale)) ** 2)
        there = total(xp.where(gaps, zero, one))
        return off, xp.where(squares > _NOTHING, squares / there, one) ** 0.5

    def lengths(self, x: Matrix) -> Matrix:
        """Return ρ of rows that are expected to be x and have the sum T.

        With t² the mean of ((x − m)/s)², ρ² = t²ρ² + 1: a row's square and that of its noise.
        """
        squares = (((x - self.centre) * self.scale) ** 2).mean(axis=-1, keepdims=True)
        return np.asarray(1.0 / np.sqrt(np.maximum(1.0 - squares, _LEAST_NOISE)))

    def rows(self, x: Matrix, lengths: Any) -> Matrix:
        """Return rows of the table, with the sum that rows come back with."""
        return self._held(self._shares(x, lengths) * (self.given_total / self.total))

    def rows_like(self, x: Matrix, X: Matrix) -> Matrix:
        """Return rows of the table that have the sums and lengths that rows with gaps show."""
        y = self._shares(x, self._off(X)[1])
        known = np.nansum(np.expm1(X) if self.logged else X, axis=1, keepdims=True)
        there = np.where(np.isnan(X), 0.0, y).sum(axis=1, keepdims=True)
        return self._held(y * known / np.maximum(there, _NOTHING))

    def _shares(self, x: Matrix, lengths: Any) -> Matrix:
        return np.asarray(np.maximum(self.centre + lengths * (x - self.centre), 0.0))

    def _held(self, counts: Matrix) -> Matrix:
        return np.log1p(counts) if self.logged else counts


def dispersion(counts: Matrix, shares: Vector) -> float:
    """Return α of counts with the variance λ + αλ², λ = Σu times a column's share, by moments.

    Of the columns with an expectation above 1 it is the median, as groups of rows make those
    columns vary that they differ in.
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
