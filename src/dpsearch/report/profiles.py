"""Profiles of clusters compared with all rows: means and spreads, levels, words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpsearch._numbers import brief
from dpsearch._types import Labels, Matrix, Vector
from dpsearch.report.table import Column, Table

WORDS_SHOWN = 14
LEVELS_SHOWN = 6


@dataclass(frozen=True)
class Number:
    """A column of numbers in one cluster, and in all."""

    column: int
    name: str
    evidence: float
    mean: float
    spread: float
    mean_of_all: float
    spread_of_all: float
    low: float  # of the scale it is drawn on
    high: float

    @property
    def away(self) -> float:
        """(mean of the cluster − mean of all) / standard deviation of all."""
        return (self.mean - self.mean_of_all) / self.spread_of_all if self.spread_of_all else 0.0

    def at(self, value: float) -> float:
        """Return where a value lies on the scale, in per cent."""
        width = self.high - self.low
        if not width > 0.0 or not np.isfinite(value):
            return 50.0
        return float(np.clip(100.0 * (value - self.low) / width, 0.0, 100.0))

    @property
    def _spreads(self) -> str:
        return f"± {brief(self.spread)}; all ± {brief(self.spread_of_all)}"

    @property
    def in_words(self) -> str:
        if abs(self.away) < 0.25 and self.spread < 0.7 * self.spread_of_all:
            return f"{self.name} closer together ({self._spreads})"
        if abs(self.away) < 0.25 and self.spread > 1.4 * self.spread_of_all:
            return f"{self.name} further apart ({self._spreads})"
        word = "high" if self.away > 0.0 else "low"
        return f"{word} {self.name} ({brief(self.mean)}; all {brief(self.mean_of_all)})"


@dataclass(frozen=True)
class Level:
    name: str
    share: float
    share_of_all: float


@dataclass(frozen=True)
class Category:
    """A column of categories in one cluster, and in all."""

    column: int
    name: str
    evidence: float
    levels: tuple[Level, ...]  # commonest in the cluster, or in all, first; of two the second only
    n_levels: int
    away: float  # total variation distance, ½ Σ |share − share of all|; of two levels with a sign

    @property
    def commonest(self) -> Level:
        """The commonest level in the cluster."""
        return max(self.levels, key=lambda one: one.share, default=Level("–", 0.0, 0.0))

    @property
    def in_words(self) -> str:
        if not self.levels:
            return self.name
        level = max(self.levels, key=lambda one: one.share - one.share_of_all)
        shares = f"{100.0 * level.share:.0f} %; all {100.0 * level.share_of_all:.0f} %"
        return f"{self.name} {level.name} ({shares})"


@dataclass(frozen=True)
class Word:
    name: str
    evidence: float
    share: float
    lift: float  # share in the cluster / share in all

    @property
    def in_words(self) -> str:
        return self.name


@dataclass(frozen=True)
class Profile:
    """A cluster: its size, and its columns or words, those that set it apart first."""

    k: int
    size: int
    share: float
    parts: tuple[Any, ...]

    def in_words(self, shown: int = 3) -> str:
        indicative = [part for part in self.parts if part.evidence > 0.0][:shown]
        return ", ".join(part.in_words for part in indicative)


def profiles(
    table: Table,
    labels: Labels,
    evidence: Matrix,
    columns: Iterable[int] = (),
    shown: int = 30,
    sizes: Any = None,
) -> list[Profile]:
    """Return the profile of each cluster: the columns with most `evidence` [K, D], and `columns`.

    `sizes` are those of the clusters if the table is a sample, in which some may have no row.
    """
    if sizes is None:
        sizes = np.bincount(labels, minlength=len(evidence))
    n = len(labels)
    member = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(len(sizes), n))
    if table.is_counts:
        parts = _words(table, member, evidence)
    else:
        always = set(columns)
        part = [*_parts(table, labels, member, evidence)]
        parts = []
        for k, own in enumerate(evidence):
            wanted = always | set(np.argsort(-own, kind="stable")[:shown].tolist())
            parts.append([part[j](k) for j in sorted(wanted, key=lambda j: (-own[j], j))])
    return [
        Profile(k, int(size), float(size / sizes.sum()), tuple(parts[k]))
        for k, size in enumerate(sizes)
    ]


def _parts(
    table: Table, labels: Labels, member: Any, evidence: Matrix
) -> Iterator[Callable[[int], Number | Category]]:
    """Yield for each column the function that describes it in cluster k."""
    means, spreads = _moments(table.matrix(), member)
    at = 0
    for j, column in enumerate(table.columns):
        if column.is_category:
            yield _categories(j, column, labels, evidence[:, j])
        else:
            yield _numbers(j, column.name, means[:, at], spreads[:, at], evidence[:, j])
            at += 1


def _moments(X: Matrix, member: Any) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations without gaps: [K + 1, D], the last line for all rows."""
    known = ~np.isnan(X)
    origin = np.nanmean(np.where(known.any(axis=0), X, 0.0), axis=0) if X.size else np.zeros(0)
    filled = np.where(known, X - origin, 0.0)  # about the mean, so that no digits are lost
    with_all = sp.vstack([member, np.ones((1, X.shape[0]))], format="csr")
    count = with_all @ known.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (with_all @ filled) / count
        variance = (with_all @ filled**2) / count - mean**2
    return mean + origin, np.sqrt(np.maximum(variance, 0.0))


def _numbers(
    j: int, name: str, mean: Vector, spread: Vector, evidence: Vector
) -> Callable[[int], Number]:
    known = np.isfinite(mean)
    low = (mean - spread)[known].min(initial=np.inf)
    high = (mean + spread)[known].max(initial=-np.inf)

    def number(k: int) -> Number:
        own = (evidence[k], mean[k], spread[k], mean[-1], spread[-1], low, high)
        return Number(j, name, *map(float, own))

    return number


def _categories(
    j: int, column: Column, labels: Labels, evidence: Vector
) -> Callable[[int], Category]:
    names = column.levels or ()
    n_levels, n_clusters = len(names), len(evidence)
    known = column.values >= 0
    pair = labels[known] * n_levels + column.values[known]
    counts = np.bincount(pair, minlength=n_clusters * n_levels).reshape(n_clusters, n_levels)
    of_all = counts.sum(axis=0) / max(counts.sum(), 1)

    def category(k: int) -> Category:
        shares = counts[k] / max(counts[k].sum(), 1)
        order = np.argsort(-np.maximum(shares, of_all), kind="stable")[:LEVELS_SHOWN]
        away = 0.5 * float(np.abs(shares - of_all).sum())
        if n_levels == 2:
            order, away = np.array([1]), float(shares[1] - of_all[1])
        levels = tuple(Level(names[v], float(shares[v]), float(of_all[v])) for v in order)
        return Category(j, column.name, float(evidence[k]), levels, n_levels, away)

    return category


def _words(table: Table, member: Any, evidence: Matrix) -> list[list[Any]]:
    counts = (member @ table.counts).tocsr()
    of_all = np.asarray(counts.sum(axis=0)).reshape(-1)
    share_of_all = of_all / max(of_all.sum(), 1.0)
    out = []
    for k in range(counts.shape[0]):
        own = counts[k].toarray().reshape(-1)
        share = own / max(own.sum(), 1.0)
        lift = np.divide(share, share_of_all, out=np.zeros_like(share), where=share_of_all > 0.0)
        # Only words that the cluster has more of: those that it lacks are less informative.
        order = np.lexsort((-share, -np.where(lift > 1.0, evidence[k], -np.inf)))[:WORDS_SHOWN]
        out.append(
            [
                Word(table.words[w], float(evidence[k, w]), float(share[w]), float(lift[w]))
                for w in order
                if lift[w] > 1.0
            ]
        )
    return out
