"""Profiles of clusters compared with all rows: means and spreads, levels, words.

The rows are divided into parts, such as components.  Profiles describe sets of parts: branches of a
tree, or the parts themselves.  Each set is compared with all rows, and with its sibling if it has
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._numbers import PLAIN, Format, share
from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.deadline import current
from dpsearch.report.table import Column, Table

WORDS_SHOWN = 14
LEVELS_SHOWN = 6
CONTRASTS = 3  # columns shown that distinguish a branch from its sibling
CONTRASTS_WORDS = 6


@dataclass(frozen=True)
class Number:
    """A numeric column in one cluster, and in all rows or in the sibling."""

    column: int
    name: str
    evidence: float
    mean: float
    spread: float
    other_mean: float
    other_spread: float
    format: Format = PLAIN
    circular: bool = False  # whether the column is periodic, so that nothing is high or low

    def _spreads(self) -> tuple[str, list[str]]:
        """Return how the spreads differ, if they differ more than the means, and the spreads."""
        near = abs(self.mean - self.other_mean) < 0.25 * max(self.spread, self.other_spread)
        word = "closer together" if self.spread < 0.7 * self.other_spread else ""
        word = "further apart" if self.spread > 1.4 * self.other_spread else word
        # Spreads are not formatted as years, nor to the digits of a column of large numbers.
        texts = map(Format(self.format.unit).text, (self.spread, self.other_spread))
        return (word if near else ""), [f"±\u00a0{text}" for text in texts]

    def in_words(self) -> str:
        word, (own, other) = self._spreads()
        if word:
            return f"{self.name} {word} ({own}; all {other})"
        own, other = self.format.distinct(self.mean, self.other_mean)
        if self.circular:
            return f"{self.name} about {own} (all {other})"
        return (
            f"{'high' if self.mean > self.other_mean else 'low'} {self.name} ({own}; all {other})"
        )

    def contrast(self) -> str:
        word, (own, other) = self._spreads()
        if not word:
            word = "higher" if self.mean > self.other_mean else "lower"
            word = "another" if self.circular else word
            own, other = self.format.distinct(self.mean, self.other_mean)
        return f"{self.name} is {word} ({own}, there {other})"

    def of_all(self) -> list[Any]:
        others = (self.other_mean, self.other_spread)
        return [*(x if np.isfinite(x) else None for x in others), self.format]

    def packed(self) -> list[Any]:
        """Return the four values that the page's script needs."""
        return [self.column, *map(_figure, (self.evidence, self.mean, self.spread))]


@dataclass(frozen=True)
class Level:
    name: str
    share: float
    other_share: float


@dataclass(frozen=True)
class Category:
    """A column of categories in one cluster, and in all rows or in the sibling."""

    column: int
    name: str
    evidence: float
    levels: tuple[Level, ...]  # by the larger of both shares; of two levels only the second
    n_levels: int
    away: float  # total variation distance, ½ Σ |share − share of all|; signed for two levels

    def in_words(self) -> str:
        if not self.levels:
            return self.name
        level = max(self.levels, key=lambda one: one.share - one.other_share)
        return f"{self.name} {level.name} ({share(level.share)}; all {share(level.other_share)})"

    def contrast(self) -> str:
        if not self.levels:
            return f"{self.name} differs"
        level = max(self.levels, key=lambda one: abs(one.share - one.other_share))
        often = "more" if level.share > level.other_share else "less"
        shares = f"{share(level.share)}, there {share(level.other_share)}"
        return f"{self.name} is {often} often {level.name} ({shares})"

    def of_all(self) -> list[Any]:
        return []

    def packed(self) -> list[Any]:
        """Return the five values that the page's script needs."""
        levels = [[one.name, _figure(one.share), _figure(one.other_share)] for one in self.levels]
        return [self.column, _figure(self.evidence), _figure(self.away), levels, self.n_levels]


@dataclass(frozen=True)
class Word:
    name: str
    evidence: float
    share: float
    lift: float  # share in the cluster / share in all, or in the sibling

    def in_words(self) -> str:
        return self.name

    contrast = in_words

    def packed(self) -> list[Any]:
        """Return the four values that the page's script needs."""
        return [self.name, *map(_figure, (self.evidence, self.share, self.lift))]


@dataclass(frozen=True)
class Profile:
    """A set of rows: its size, and its columns or words by decreasing evidence."""

    size: int
    share: float
    parts: tuple[Any, ...]
    against: tuple[Any, ...] = ()  # the same, compared with the sibling

    def in_words(self, shown: int = 3) -> str:
        indicative = [part for part in self.parts if part.evidence > 0.0][:shown]
        return ", ".join(part.in_words() for part in indicative)

    def against_in_words(self, *, together: bool) -> list[str]:
        """Return the contrasts with the sibling, as one text if `together`."""
        texts = [part.contrast() for part in self.against]
        return [", ".join(texts)] if together and texts else texts


@dataclass(frozen=True)
class Subsets:
    """The sets of parts to describe, and the evidence for their columns.

    `sets` [B, K] says which of the K parts belong to each set.  `evidence` [B, D] compares a set
    with all other rows, `contrast` [B, D] with its `sibling` [B], −1 for none.
    """

    sets: Any
    evidence: Matrix
    contrast: Matrix
    sibling: Ints

    @classmethod
    def alone(cls, evidence: Matrix, sets: Any = None) -> Subsets:
        """Return sets, by default the parts themselves, without siblings."""
        n = len(evidence)
        sets = np.eye(n, dtype=bool) if sets is None else sets
        return cls(sets, evidence, np.zeros_like(evidence), np.full(n, -1))


def profiles(
    table: Table,
    labels: Labels,
    subsets: Subsets,
    columns: Iterable[int] = (),
    shown: int = 30,
    sizes: Any = None,
) -> list[Profile]:
    """Return the profile of each set: the columns with most evidence, and `columns`.

    `labels` are the parts of the rows.  `sizes` are the sizes of the parts if the table is a
    sample, in which parts may have no row.
    """
    n_parts = subsets.sets.shape[1]
    if sizes is None:
        sizes = np.bincount(labels, minlength=n_parts)
    n = len(labels)
    member = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(n_parts, n))
    if table.is_counts:
        described = _words(table, member, subsets)
    else:
        described = _described(table, labels, member, subsets, set(columns), shown)
    totals = subsets.sets @ sizes
    return [
        Profile(int(size), float(size / sizes.sum()), *both)
        for size, both in zip(totals, described, strict=True)
    ]


def _described(
    table: Table, labels: Labels, member: Any, subsets: Subsets, always: set[int], shown: int
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return for each set its columns compared with all rows, and with its sibling."""
    part = [*_parts(table, labels, member, subsets.sets)]
    out = []
    for k, (own, contrast) in enumerate(zip(subsets.evidence, subsets.contrast, strict=True)):
        current().check()
        best = always | set(np.argsort(-own, kind="stable")[:shown].tolist())
        first = [part[j](k, -1, own[j]) for j in sorted(best, key=lambda j: (-own[j], j))]
        near = subsets.sibling[k]
        telling = np.argsort(-contrast, kind="stable")[: CONTRASTS if near >= 0 and shown else 0]
        second = [part[j](k, near, contrast[j]) for j in telling if contrast[j] > 0.0]
        out.append((tuple(first), tuple(second)))
    return out


def _parts(
    table: Table, labels: Labels, member: Any, sets: Any
) -> Iterator[Callable[[int, int, float], Number | Category]]:
    """Yield for each column the function that compares set k with another, or with all rows (−1).

    The last argument of the function is the evidence that the two differ.
    """
    every = np.vstack([sets, np.ones((1, sets.shape[1]))]).astype(np.float64)
    means, spreads = _moments(table.matrix(), member, every)
    at = 0
    for j, column in enumerate(table.columns):
        if column.is_category:
            yield _categories(j, column, labels, every)
        else:
            mean, spread = means[:, at], spreads[:, at]
            if column.period is not None:
                mean, spread = _circular_moments(column.values, column.period, member, every)
            yield _numbers(j, column, mean, spread)
            at += 1


def _moments(X: Matrix, member: Any, every: Matrix) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations, ignoring gaps: [B + 1, D], the last row for all."""
    known = ~np.isnan(X)
    origin = np.nanmean(np.where(known.any(axis=0), X, 0.0), axis=0) if X.size else np.zeros(0)
    filled = np.where(known, X - origin, 0.0)  # about the mean, so that no digits are lost
    count = every @ (member @ known.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = every @ (member @ filled) / count
        variance = every @ (member @ filled**2) / count - mean**2
    # For equal values the difference is only rounding.
    return mean + origin, np.sqrt(np.where(variance > 1e-13 * mean**2, variance, 0.0 * variance))


def _circular_moments(
    values: Vector, period: float, member: Any, every: Matrix
) -> tuple[Vector, Vector]:
    """Return mean directions and circular standard deviations (Mardia & Jupp 2000, 2.2 and 2.3)."""
    known, turn = ~np.isnan(values), 2.0 * np.pi / period
    begin = 0.0 if not known.any() or values[known].min() >= 0.0 else -0.5 * period
    points = np.where(known, np.exp(1j * turn * np.where(known, values, 0.0)), 0.0)
    count = every @ (member @ known.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        resultant = every @ (member @ points) / count
        spread = np.sqrt(-2.0 * np.log(np.minimum(np.abs(resultant), 1.0))) / turn
    mean = begin + np.remainder(np.angle(resultant) / turn - begin, period)
    return np.where(count > 0.0, mean, np.nan), spread


def _numbers(
    j: int, column: Column, mean: Vector, spread: Vector
) -> Callable[[int, int, float], Number]:
    def number(k: int, other: int, evidence: float) -> Number:
        own, there = (float(mean[k]), float(spread[k])), (float(mean[other]), float(spread[other]))
        circular = column.period is not None
        return Number(j, column.name, float(evidence), *own, *there, column.format, circular)

    return number


def _categories(
    j: int, column: Column, labels: Labels, every: Matrix
) -> Callable[[int, int, float], Category]:
    names = column.levels or ()
    n_levels, n_parts = len(names), every.shape[1]
    known = column.values >= 0
    pair = labels[known] * n_levels + column.values[known]
    counts = np.bincount(pair, minlength=n_parts * n_levels).reshape(n_parts, n_levels)
    totals = every @ counts
    shares = totals / np.maximum(totals.sum(axis=1, keepdims=True), 1.0)

    def category(k: int, other: int, evidence: float) -> Category:
        own, there = shares[k], shares[other]
        order = np.argsort(-np.maximum(own, there), kind="stable")[:LEVELS_SHOWN]
        away = 0.5 * float(np.abs(own - there).sum())
        if n_levels == 2:
            order, away = np.array([1]), float(own[1] - there[1])
        levels = tuple(Level(names[v], float(own[v]), float(there[v])) for v in order)
        return Category(j, column.name, float(evidence), levels, n_levels, away)

    return category


def _words(
    table: Table, member: Any, subsets: Subsets
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return for each set the words that are more frequent in it, as those it lacks say less."""
    counts = (member @ table.counts).T.tocsr()

    def shares(parts: Any) -> Vector:
        total = counts @ parts.astype(np.float64)
        return np.asarray(total / max(total.sum(), 1.0))

    of_all = shares(np.ones(subsets.sets.shape[1]))

    def more(own: Vector, there: Vector, evidence: Vector) -> tuple[Word, ...]:
        lift = np.divide(own, there, out=np.full_like(own, np.inf), where=there > 0.0)
        lift[own == 0.0] = 0.0
        order = np.lexsort((-own, -np.where(lift > 1.0, evidence, -np.inf)))[:WORDS_SHOWN]
        return tuple(
            Word(table.words[w], float(evidence[w]), float(own[w]), float(lift[w]))
            for w in order
            if lift[w] > 1.0
        )

    out = []
    for k, near in enumerate(subsets.sibling):
        own = shares(subsets.sets[k])
        against: tuple[Word, ...] = ()
        if near >= 0:
            words = more(own, shares(subsets.sets[near]), subsets.contrast[k])
            against = tuple(word for word in words[:CONTRASTS_WORDS] if word.evidence > 0.0)
        out.append((more(own, of_all, subsets.evidence[k]), against))
    return out


def _figure(value: float) -> float | None:
    """Return a number rounded to six digits, or None if it is not finite."""
    return float(f"{value:.6g}") if np.isfinite(value) else None
