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
cluster for all rows, which is where a cloud that is not Gaussian shows.  The best of every column
make a product, whose own partition is learned, and which is taken if its log joint is larger.  A
density and a probability compare once every whole number is spread over what rounds to it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Labels, Matrix, Vector
from dpsearch.automatic.learning import learn, learning_rows
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
from dpsearch.families.base import Family
from dpsearch.items import log_marginals
from dpsearch.priors.base import Prior
from dpsearch.problem import Problem
from dpsearch.tables.checked import CheckedTable

_FEWEST_ROWS = 20
_WORTH = 5.0  # nats that must be gained within a partition for a product to be learned
_MOST_LEVELS = 12
_FULL_TURN = {"hour": 24.0, "month": 12.0, "angle": None, "direction": None, "bearing": 360.0,
              "heading": 360.0, "azimuth": 360.0, "phase": None}  # fmt: skip


class Tried(NamedTuple):
    """A family of columns that describes a table better, and by how much."""

    family: Family
    labels: Labels
    problem: Problem | None
    words: str
    settled: bool


def better_columns(
    table: CheckedTable, family: Family, labels: Labels, prior: Prior, columns: list[int]
) -> Tried | None:
    """Return a product of other families for some columns of a complete table, if it is better."""
    if table.shape[0] < _FEWEST_ROWS or not columns:
        return None
    rows = learning_rows(table.shape[0])
    sample, own = table.rows(rows), np.unique(labels[rows], return_inverse=True)[1]
    spread = _spread(sample.matrix, columns)
    before = Problem(CheckedTable(spread), family, prior).log_joint(own)
    best: Tried | None = None
    started: set[Any] = set()
    for partition in (own, np.zeros(len(own), np.int64)):
        winners, gain = _winners(sample, spread, partition, columns)
        key = tuple(type(winner) for winner in winners)
        if gain < _WORTH or key in started:
            continue
        started.add(key)
        start = _product(table, family, dict(zip(columns, winners, strict=True)))
        learned = learn(table, start.suited(table), prior)
        at = np.unique(learned.labels[rows], return_inverse=True)[1]
        after = Problem(sample, learned.family, prior).log_joint(at)
        if after > before:
            words = f"{_in_words(key)}, better by {after - before:.0f} nats"
            before = after
            best = Tried(learned.family, learned.labels, learned.problem, words, learned.settled)
    return best


def _winners(
    sample: CheckedTable, spread: Matrix, partition: Labels, columns: list[int]
) -> tuple[list[Family], float]:
    """Return the best family of each column within a partition, and what they gain in all."""
    out, gain = [], 0.0
    for j in columns:
        x = sample.matrix[:, [j]]
        gaussian = _log_evidence(
            DiagonalGaussian.suggest(spread[:, [j]]), spread[:, [j]], partition
        )
        name = "" if sample.names is None else str(sample.names[j])
        found = [(_log_evidence(start, values, partition), start)
                 for start, values in _candidates(x, spread[:, [j]], name)]  # fmt: skip
        if not is_whole(x):
            found.append((gaussian, DiagonalGaussian.suggest(x)))
        value, start = max(found, key=lambda pair: pair[0])
        out.append(start)
        gain += value - gaussian
    return out, gain


def _candidates(x: Matrix, spread: Matrix, name: str) -> list[tuple[Family, Matrix]]:
    """Return families for a column, each with the values that it is compared on."""
    whole, least = is_whole(x), x.min()
    kinds: list[Any] = [RoundedGaussian] if whole else [StudentT]
    if whole and least >= 0.0:
        kinds += [Poisson, NegativeBinomial]
    if whole and x.max() - least < _MOST_LEVELS:
        kinds.append(Ordinal)
    if not whole and least > 0.0:
        kinds += [LogNormal, Gamma]
    out: list[tuple[Family, Matrix]] = [(kind.suggest(x), x) for kind in kinds]
    period = _period(x, name)
    if period is not None:
        out.append((VonMises(period=period).resolve(x), spread))
    return out


def _log_evidence(start: Family, x: Matrix, partition: Labels) -> float:
    """Return Σ_k log H of a column within a partition, under hyperparameters learned from it."""
    model = start.learned(x, partition).compile(x)
    items, base = model.items()
    n_clusters = int(partition.max()) + 1
    pool, _ = model.rows(items, partition, n_clusters)
    return float(log_marginals(model.core, pool, n_clusters).sum() + base.sum())


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
    for own, columns in getattr(family, "parts", ()):
        if not set(columns) & set(winners):
            parts.append((own, list(columns)))
    return parts[0][0] if len(parts) == 1 else Product(parts)


def is_whole(x: Matrix) -> bool:
    """Whether a column holds whole numbers, of more than two kinds."""
    return bool((x == np.floor(x)).all() and len(np.unique(x)) > 2)


def _spread(matrix: Matrix, columns: list[int]) -> Matrix:
    """Return the table with its whole numbers spread over what rounds to them."""
    out = np.array(matrix)
    rng = np.random.default_rng(0)
    for j in columns:
        if is_whole(matrix[:, j]):
            out[:, j] += rng.uniform(-0.5, 0.5, len(out))
    return out


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
