"""Families that are tried on a table's columns, against the one that was chosen by its looks.

Of a column of numbers those compete that are densities of the same values, of whole numbers those
that give them probabilities:

| values | families |
| --- | --- |
| numbers | diagonal Gaussian, Student t |
| numbers above 0 | log-normal and gamma, too |
| whole numbers | rounded Gaussian; from few levels ordinal |
| whole numbers from 0 | Poisson and negative binomial, too |
| whole numbers above 0, large and mostly different | log-normal and gamma, too |
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

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Labels, Matrix
from dpsearch.automatic.learning import Learned, compiled, learn, learning_rows, learning_sample
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
from dpsearch.families.von_mises import named_period
from dpsearch.items import log_marginals
from dpsearch.priors.base import Prior
from dpsearch.tables.checked import CheckedTable

_FEWEST_ROWS = 20
_WORTH = 5.0  # nats that a column's family, and all of them, must gain
_HOPE = 0.2  # nats a row that learning may add to what a product has within a partition
_MOST_LEVELS = 12
_LARGE = 100.0  # the first quartile of whole numbers from which densities compete for them, too
_FEW_NAMES = 3  # columns of a family that are named
_MOST_NUMBERS = 40_000_000  # that encoded columns of a table may have
_WHOLE = 2.0**53  # numbers of at least this magnitude are whole whatever they measure


class _Column(NamedTuple):
    """A column of the learning rows that families compete for."""

    x: Matrix  # [rows, 1]
    spread: Matrix  # the same, whole numbers spread over what rounds to them
    whole: bool
    name: str
    said: str | None  # the kind that the user says it is of

    def candidates(self, n_values: int) -> list[tuple[Family, Matrix]]:
        """Return families beside the Gaussian, each with the values that it is compared on.

        Without those that keep too many numbers of as many values as the table has.
        """
        if not varies(self.x).all():
            return []
        out: list[tuple[Family, Matrix]] = [
            (kind.suggest(self.x), self.spread if kind.kind == "real" else self.x)
            for kind in self._kinds()
            if _fits(kind, n_values)
        ]
        least, most = self.x.min(), self.x.max()
        period = named_period(self.name, least, most)
        goes_round = period is not None and most - least > period / 2
        if goes_round and _fits(VonMises, n_values):
            out.append((VonMises(period=period).resolve(self.x), self.spread))
        return out

    def _kinds(self) -> list[Any]:
        """Return the families that the values themselves suggest."""
        least, kinds = self.x.min(), list[Any]()
        if self.whole and self.said is None:
            kinds.append(RoundedGaussian)
            if self.x.max() - least < _MOST_LEVELS:
                kinds.append(Ordinal)
        if self.whole and least >= 0.0:
            kinds += [Poisson, NegativeBinomial]
        if not self.whole:
            kinds.append(StudentT)
        if least > 0.0 and (not self.whole or (self.said is None and self._is_fine())):
            kinds += [LogNormal, Gamma]
        return kinds

    def _is_fine(self) -> bool:
        """Whether the whole numbers are so large, and so seldom the same, that rounding is nothing.

        Their density is then the probability of what rounds to them, as of incomes and populations.
        """
        differ = len(np.unique(self.x)) > len(self.x) / 2
        return differ and bool(np.quantile(self.x, 0.25) >= _LARGE)

    def winner(
        self, partition: Labels, candidates: list[tuple[Family, Matrix]]
    ) -> tuple[Family, float]:
        """Return the best family within a partition, and what it gains over a Gaussian."""
        gaussian = DiagonalGaussian.suggest(self.spread)
        if not candidates:
            return gaussian, 0.0
        found = [(_log_evidence(own, x, partition), own) for own, x in candidates]
        found = [pair for pair in found if np.isfinite(pair[0])] or [(-np.inf, gaussian)]
        less = _WORTH if self.whole else 0.0  # of densities, where others give probabilities
        value, best = max(found, key=lambda pair: pair[0] - less * (pair[1].kind == "real"))
        gain = value - _log_evidence(gaussian, self.spread, partition)
        return (best, gain) if self.whole or gain > _WORTH else (gaussian, 0.0)


def better_columns(
    table: CheckedTable,
    family: Family,
    labels: Labels,
    prior: Prior,
    said: Mapping[int, str | None],
) -> tuple[Learned, str] | None:
    """Return a product of other families for some columns of a complete table, if it is better.

    With it, which families they are and by how much it is better.
    `said` has the columns to try, each with its kind if the user says one.
    """
    if table.shape[0] < _FEWEST_ROWS or not said:
        return None
    rows = learning_rows(table.shape[0])
    sample, own = learning_sample(table), np.unique(labels[rows], return_inverse=True)[1]
    columns, n_values = _columns(sample, said), table.shape[0] * len(said)
    candidates = {j: column.candidates(n_values) for j, column in columns.items()}
    before = compiled(_spread(sample, columns, family), family, prior).log_joint(own)
    best, chosen = None, before
    started: set[Any] = set()
    partitions = [own, np.zeros(len(own), np.int64)]
    for partition in partitions:  # with that of every product that is better
        found = _winners(columns, candidates, partition)
        if found is None:
            return best
        key = tuple(type(winner) for winner, _ in found.values())
        if sum(gain for _, gain in found.values()) < _WORTH or key in started:
            continue
        start = _product(table, family, {j: winner for j, (winner, _) in found.items()})
        start = start.suited(table)
        within = compiled(sample, start.learned(sample.matrix, partition), prior)
        if within.log_joint(partition) < before - _HOPE * len(own):
            continue
        started.add(key)
        learned = learn(table, start, prior)
        at = np.unique(learned.labels[rows], return_inverse=True)[1]
        after = learned.problem.log_joint(at)
        if after > before + _WORTH:
            names = [columns[j].name or f"column {j}" for j in found]
            words = f"{_in_words(key, names)}, better by {after - chosen:.0f} nats"
            before = after
            partitions.append(at)
            best = learned, words
    return best


def _winners(
    columns: dict[int, _Column], candidates: dict[int, Any], partition: Labels
) -> dict[int, tuple[Family, float]] | None:
    """Return the best family of each column within a partition; None if there was no time."""
    found: dict[int, tuple[Family, float]] = {}
    for j, column in columns.items():
        current().tell("families of columns", len(found), len(columns))
        if current().over:
            return None
        found[j] = column.winner(partition, candidates[j])
    return found


def _spread(sample: CheckedTable, columns: dict[int, _Column], family: Family) -> CheckedTable:
    """Return a table with the whole numbers spread for which a family has a density."""
    kinds = family.by_column(sample.shape[1])
    whole = [j for j, column in columns.items() if column.whole and kinds[j].kind == "real"]
    if not whole:
        return sample
    out = np.array(sample.matrix)
    out[:, whole] = np.hstack([columns[j].spread for j in whole])
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


def _in_words(kinds: tuple[Any, ...], columns: list[str]) -> str:
    """Return how many columns each family has, and which ones if they are few of several."""
    of_kind: dict[str, list[str]] = {}
    for kind, column in zip(kinds, columns, strict=True):
        of_kind.setdefault(kind.name, []).append(column)
    most = _FEW_NAMES if len(of_kind) > 1 else 0
    return ", ".join(
        f"{len(own)} of {name}" + (f" ({', '.join(own)})" if len(own) <= most else "")
        for name, own in of_kind.items()
    )
