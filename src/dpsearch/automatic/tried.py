"""Families that are tried on a table's columns, against the one that was chosen by its looks.

Of a column of numbers those compete that are densities of the same values, of whole numbers those
that give them probabilities:

| values | families |
| --- | --- |
| numbers | diagonal Gaussian, Student t |
| numbers above 0 | log-normal and gamma, too |
| whole numbers | rounded Gaussian; from few levels ordinal |
| whole numbers from 0 | Poisson and negative binomial, too |
| hours, months, angles by their name and range | von Mises, too |

They compete by Σ_k log H(x_k) of the column within a partition: the one that was found, and one
cluster for all rows, which is where a cloud that is not Gaussian shows; and that of a product which
was better, where the columns' families may be told better apart.  The best of every column
make a product.  Unless its log joint within that partition is far below that of the family which
was chosen, its own partition is learned, and it is taken if its log joint is larger by more than
search may be off.  A density and a probability compare once every whole number is spread over what
rounds to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Labels, Matrix, Vector
from dpsearch.automatic.learning import learn, learning_rows
from dpsearch.deadline import current
from dpsearch.families import (
    DiagonalGaussian,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Product,
    RoundedGaussian,
    StudentT,
    VonMises,
)
from dpsearch.families._columns import varies
from dpsearch.families.base import Family
from dpsearch.items import log_marginals
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.tables.checked import CheckedTable

_FEWEST_ROWS = 20
_WORTH = 5.0  # nats that a column's family, and all of them, must gain
_HOPE = 0.2  # nats a row that learning may add to what a product has within a partition
_MOST_LEVELS = 12
_MOST_NUMBERS = 40_000_000  # that encoded columns of a table may have
_FULL_TURN = {"hour": 24.0, "month": 12.0, "angle": None, "direction": None, "bearing": 360.0,
              "heading": 360.0, "azimuth": 360.0, "phase": None}  # fmt: skip


_WHOLE = 2.0**53  # numbers of at least this magnitude are whole whatever they measure


class Tried(NamedTuple):
    """A family of columns that describes a table better, and by how much."""

    family: Family
    labels: Labels
    problem: Problem | None
    words: str
    settled: bool


class _Column(NamedTuple):
    """A column of the learning rows that families compete for."""

    x: Matrix  # [rows, 1]
    spread: Matrix  # the same, whole numbers spread over what rounds to them
    whole: bool
    name: str
    said: str | None  # the kind that the user says it is of

    def candidates(self, n_values: int) -> list[tuple[Family, Matrix]]:
        """Return families to start from, each with the values that it is compared on.

        Without those that keep too many numbers of as many values as the table has.
        """
        least, kinds = self.x.min(), list[Any]()
        if self.whole and self.said is None:
            kinds.append(RoundedGaussian)
            if self.x.max() - least < _MOST_LEVELS:
                kinds.append(Ordinal)
        if self.whole and least >= 0.0:
            kinds += [Poisson, NegativeBinomial]
        if not self.whole:
            kinds += [DiagonalGaussian, StudentT]
            if least > 0.0:
                kinds += [LogNormal, Gamma]
        if not varies(self.x).all():
            return []
        out: list[tuple[Family, Matrix]] = [
            (kind.suggest(self.x), self.x) for kind in kinds if _fits(kind, n_values)
        ]
        period = _period(self.x, self.name)
        if period is not None and _fits(VonMises, n_values):
            out.append((VonMises(period=period).resolve(self.x), self.spread))
        return out

    def winner(
        self, partition: Labels, candidates: list[tuple[Family, Matrix]]
    ) -> tuple[Family, float]:
        """Return the best family within a partition, and what it gains over a Gaussian."""
        gaussian = DiagonalGaussian.suggest(self.spread)
        if not candidates:
            return gaussian, 0.0
        found = [(_log_evidence(own, x, partition), own) for own, x in candidates]
        found = [pair for pair in found if np.isfinite(pair[0])] or [(-np.inf, gaussian)]
        value, best = max(found, key=lambda pair: pair[0])
        gain = value - _log_evidence(gaussian, self.spread, partition)
        return (best, gain) if self.whole or gain > _WORTH else (gaussian, 0.0)


def better_columns(
    table: CheckedTable,
    family: Family,
    labels: Labels,
    prior: Prior,
    said: Mapping[int, str | None],
) -> Tried | None:
    """Return a product of other families for some columns of a complete table, if it is better.

    `said` has the columns to try, each with its kind if the user says one.
    """
    if table.shape[0] < _FEWEST_ROWS or not said:
        return None
    rows = learning_rows(table.shape[0])
    sample, own = table.rows(rows), np.unique(labels[rows], return_inverse=True)[1]
    columns, n_values = _columns(sample, said), table.shape[0] * len(said)
    candidates = {j: column.candidates(n_values) for j, column in columns.items()}
    before = Problem(_spread(sample, columns, family), family, prior).log_joint(own)
    best, chosen = None, before
    started: set[Any] = set()
    partitions = [own, np.zeros(len(own), np.int64)]
    for partition in partitions:  # with that of every product that is better
        found: dict[int, tuple[Family, float]] = {}
        for j, column in columns.items():
            current().tell("families of columns", len(found), len(columns))
            if current().over:
                return best
            found[j] = column.winner(partition, candidates[j])
        key = tuple(type(winner) for winner, _ in found.values())
        if sum(gain for _, gain in found.values()) < _WORTH or key in started:
            continue
        start = _product(table, family, {j: winner for j, (winner, _) in found.items()})
        start = start.suited(table)
        within = Problem(sample, start.learned(sample.matrix, partition), prior)
        if within.log_joint(partition) < before - _HOPE * len(own):
            continue
        started.add(key)
        learned = learn(table, start, prior)
        at = np.unique(learned.labels[rows], return_inverse=True)[1]
        after = Problem(sample, learned.family, prior).log_joint(at)
        if after > before + _WORTH:
            words = f"{_in_words(key)}, better by {after - chosen:.0f} nats"
            before = after
            partitions.append(at)
            best = Tried(learned.family, learned.labels, learned.problem, words, learned.settled)
    return best


def _spread(sample: CheckedTable, columns: dict[int, _Column], family: Family) -> CheckedTable:
    """Return a table with the whole numbers spread for which a family has a density."""
    out, kinds = np.array(sample.matrix), family.by_column(sample.shape[1])
    for j, column in columns.items():
        if kinds[j].kind == "real":
            out[:, [j]] = column.spread
    return CheckedTable(out, None, complete=True)


def _fits(kind: type[Family], n_values: int) -> bool:
    return n_values * kind.numbers_a_value <= _MOST_NUMBERS


def _columns(sample: CheckedTable, said: Mapping[int, str | None]) -> dict[int, _Column]:
    rng = np.random.default_rng(0)
    out = {}
    for j, kind in said.items():
        x = np.asarray(sample.matrix[:, [j]])
        # More than two kinds of them: those of yes or no are binary.
        whole = kind != "real" and bool((x == np.floor(x)).all()) and len(np.unique(x)) > 2
        whole = whole and bool(np.abs(x).max() < _WHOLE)
        spread = x + rng.uniform(-0.5, 0.5, x.shape) if whole else x
        name = "" if sample.names is None else str(sample.names[j])
        out[j] = _Column(x, spread, whole, name, kind)
    return out


def _log_evidence(start: Family, x: Matrix, partition: Labels) -> float:
    """Return Σ_k log H of a column within a partition, under hyperparameters learned from it."""
    model = start.learned(x, partition).compile(CheckedTable(x, None, complete=True))
    items, base = model.items()
    n_clusters = int(partition.max()) + 1
    pool, _ = model.rows(items, partition, n_clusters)
    return float(log_marginals(model.summaries, pool, n_clusters).sum() + base.sum())


def _product(table: CheckedTable, family: Family, winners: dict[int, Family]) -> Family:
    """Return the winners of some columns beside what the others have, by groups of columns."""
    groups: dict[Any, list[int]] = {}
    for j, winner in winners.items():
        groups.setdefault((type(winner), getattr(winner, "period", None)), []).append(j)
    parts: list[tuple[Family, list[int]]] = []
    for (kind, period), columns in groups.items():
        given = {} if period is None else {"period": period}
        start = kind(**given) if given else kind.suggest(table.matrix[:, columns])
        parts.append((start, columns))
    others: dict[int, tuple[Family, list[int]]] = {}
    for j, own in enumerate(family.by_column(table.shape[1])):
        if j not in winners:
            others.setdefault(id(own), (own, []))[1].append(j)
    parts += others.values()
    return parts[0][0] if len(parts) == 1 else Product(parts)


def _period(x: Vector, name: str) -> float | None:
    """Return after which a column begins again, if its name and range say that it does."""
    turns = [turn for word, turn in _FULL_TURN.items() if word in name.lower()]
    if not turns:
        return None
    low, high = float(x.min()), float(x.max())
    periods = [turns[0]] if turns[0] is not None else [2.0 * math.pi, 360.0]
    for period in periods:
        if (
            period is not None
            and -0.5 * period <= low
            and high <= period
            and high - low > period / 2
        ):
            return period
    return None


def _in_words(kinds: tuple[Any, ...]) -> str:
    names = [kind.name for kind in kinds]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count} of {name}" for name, count in counts.items())
