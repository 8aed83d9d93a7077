"""Families that are tried on a table's columns, against the one that was chosen by its looks.

Of a column of numbers those compete that are densities of the same values, of whole numbers those
that give them probabilities:

| values | families |
| --- | --- |
| numbers | diagonal Gaussian, Student t, Johnson's curves |
| numbers above 0 | log-normal and gamma, too |
| numbers between 0 and 1 | beta, too |
| whole numbers | rounded Gaussian; from few levels ordinal |
| whole numbers from 0 | Poisson and negative binomial, too |
| whole numbers above 0, large and mostly different | log-normal and gamma, too |
| hours, months, angles by their name and range | von Mises, too |

They compete by Σ_k log H(x_k) of the column within a partition: the one that was found, coarser
ones of it, down to one cluster for all rows, which is where clouds that are not Gaussian show; and
that of a product which was better, where the columns' families may be told better apart.  The best
of every column make a product.  Beside it stands the family that was chosen, of columns that are
bent (`Johnson`), with the covariance that it has.  Unless the log joint of either within that
partition is far below that of the family which was chosen, its own partition is learned, and it is
taken if its log joint is larger by more than search may be off.  Curves are fitted for clouds to
need fewer clusters, so what has bent columns must need at most half as many as the family which was
chosen: one cluster more or less is what search may be off.  A density and a probability compare
once every whole number is spread over what rounds to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from dpsearch._types import Labels, Matrix
from dpsearch.automatic.learning import (
    Learned,
    compiled,
    learn,
    learning_rows,
    learning_sample,
    suited,
)
from dpsearch.deadline import current
from dpsearch.families import (
    Beta,
    DiagonalGaussian,
    Gamma,
    Johnson,
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
from dpsearch.problem import Problem
from dpsearch.state import State
from dpsearch.tables.checked import CheckedTable

_FEWEST_ROWS = 20
_WORTH = 5.0  # nats that a column's family, and all of them, must gain
_HOPE = 0.2  # nats a row that learning may add to what a product has within a partition
_MOST_LEVELS = 12
_LARGE = 100.0  # the first quartile of whole numbers from which densities compete for them, too
_FEW_NAMES = 3  # columns of a family that are named
_MOST_NUMBERS = 40_000_000  # that encoded columns of a table may have
_WHOLE = 2.0**53  # numbers of at least this magnitude are whole whatever they measure


class _Candidate(NamedTuple):
    """A family that competes for a column."""

    family: Family
    x: Matrix  # the values that it is compared on
    less: float  # nats that it must be better by


class _Column(NamedTuple):
    """A column of the learning rows that families compete for."""

    x: Matrix  # [rows, 1]
    spread: Matrix  # the same, whole numbers spread over what rounds to them
    whole: bool
    name: str
    said: str | None  # the kind that the user says it is of

    def candidates(self, n_values: int) -> list[_Candidate]:
        """Return families beside the Gaussian, each with the values that it is compared on.

        Without those that keep too many numbers of as many values as the table has.
        """
        if not varies(self.x).all():
            return []
        kinds = [kind for kind in self._kinds() if _fits(kind, n_values)]
        starts = [kind.suggest(self.x) for kind in kinds]
        least, most = np.nanmin(self.x), np.nanmax(self.x)
        period = named_period(self.name, least, most)
        goes_round = period is not None and most - least > period / 2
        if goes_round and _fits(VonMises, n_values):
            starts.append(VonMises(period=period).resolve(self.x))
        if not self.whole:
            starts.append(Johnson.around(DiagonalGaussian.suggest(self.x), self.x))
            # Its curve is fitted: where another family says the same, that is the reason.
            return [_Candidate(own, self.x, _WORTH * (own is starts[-1])) for own in starts]
        # Densities, where others give probabilities, are of the spread values.
        return [
            _Candidate(own, self.spread, _WORTH) if own.kind == "real"
            else _Candidate(own, self.x, 0.0)
            for own in starts
        ]  # fmt: skip

    def _kinds(self) -> list[Any]:
        """Return the families that the values themselves suggest."""
        least, kinds = np.nanmin(self.x), list[Any]()
        if self.whole and self.said is None:
            kinds.append(RoundedGaussian)
            if np.nanmax(self.x) - least < _MOST_LEVELS:
                kinds.append(Ordinal)
        if self.whole and least >= 0.0:
            kinds += [Poisson, NegativeBinomial]
        if not self.whole:
            kinds.append(StudentT)
        if not self.whole and least > 0.0 and np.nanmax(self.x) < 1.0:
            kinds.append(Beta)
        if least > 0.0 and (not self.whole or (self.said is None and self._is_fine())):
            kinds += [LogNormal, Gamma]
        return kinds

    def _is_fine(self) -> bool:
        """Whether the whole numbers are so large, and so seldom the same, that rounding is nothing.

        Their density is then the probability of what rounds to them, as of incomes and populations.
        """
        x = self.x[~np.isnan(self.x)]
        differ = len(np.unique(x)) > len(x) / 2
        return differ and bool(np.quantile(x, 0.25) >= _LARGE)

    def winner(self, partition: Labels, candidates: list[_Candidate]) -> tuple[Family, float]:
        """Return the best family within a partition, and what it gains over a Gaussian."""
        gaussian = DiagonalGaussian.suggest(self.spread)
        if not candidates:
            return gaussian, 0.0
        found = [(_log_evidence(own, x, partition), own, less) for own, x, less in candidates]
        found = [one for one in found if np.isfinite(one[0])] or [(-np.inf, gaussian, 0.0)]
        value, best, _ = max(found, key=lambda one: one[0] - one[2])
        gain = value - _log_evidence(gaussian, self.spread, partition)
        return (best, gain) if self.whole or gain > _WORTH else (gaussian, 0.0)


def better_columns(
    table: CheckedTable,
    family: Family,
    labels: Labels,
    prior: Prior,
    said: Mapping[int, str | None],
) -> tuple[Learned, str] | None:
    """Return other families for some columns of a table, as a product or bent, if it is better.

    With it, which families they are and by how much it is better.
    `said` has the columns to try, each with its kind if the user says one.
    """
    if table.shape[0] < _FEWEST_ROWS or not said:
        return None
    rows, width = learning_rows(table.shape[0]), table.shape[1]
    sample, own = learning_sample(table), np.unique(labels[rows], return_inverse=True)[1]
    columns, n_values = _columns(sample, said), table.shape[0] * len(said)
    candidates = {j: column.candidates(n_values) for j, column in columns.items()}
    before = _log_joint(sample, columns, family, prior, own)
    best, chosen = None, before
    started: set[Any] = set()
    bent = _bent(table, family)
    spread = _spread(sample, columns, family)
    partitions = [own, *_coarser(compiled(spread, family, prior), own)]
    for partition in partitions:  # with that of every product that is better
        winners = _winners(columns, candidates, partition)
        if winners is None:
            return best
        for start in _starts(table, family, winners, bent):
            key = tuple(type(one) for one in start.by_column(width))
            if key in started:
                continue
            within = start.learned(sample.matrix, partition)
            if _log_joint(sample, columns, within, prior, partition) < before - _HOPE * len(own):
                continue
            started.add(key)
            learned = learn(table, start, prior)
            at = np.unique(learned.labels[rows], return_inverse=True)[1]
            after = _log_joint(sample, columns, learned.family, prior, at)
            curves = key.count(Johnson)  # each fitted by two numbers, and worth less by that
            fewer = 2 * (at.max() + 1) <= own.max() + 1
            if after - _WORTH * curves > before + _WORTH and (fewer or not curves):
                families = _in_words(learned.family, columns, width)
                best = learned, f"{families}, better by {after - chosen:.0f} nats"
                before = after - _WORTH * curves
                partitions.append(at)
    return best


def _coarser(problem: Problem, labels: Labels) -> list[Labels]:
    """Return partitions of half as many clusters each time, down to one cluster.

    Clusters are joined whose union has the best log joint, by average linkage.
    """
    state, n = State(problem, labels), int(labels.max()) + 1
    out = []
    if n > 2:
        gains = state.merge_gains(state.live, state.live)
        costs = squareform(gains.max() - (gains + gains.T) / 2.0, checks=False)
        tree = linkage(costs, "average")
        while (n := n // 2) > 1:
            out.append(cut_tree(tree, n)[:, 0][state.labels])
    return [*out, np.zeros(len(labels), np.int64)]


def _starts(
    table: CheckedTable, family: Family, winners: dict[int, tuple[Family, float]], bent: Family
) -> list[Family]:
    """Return the product of the winners if they gain enough, and the family of bent columns."""
    if sum(gain for _, gain in winners.values()) < _WORTH:
        return [bent]
    product = _product(table, family, {j: winner for j, (winner, _) in winners.items()})
    return [suited(product, table), bent]


def _bent(table: CheckedTable, family: Family) -> Family:
    """Return the family that was chosen, of bent columns where they are numbers."""
    parts = [
        (Johnson.around(own, table.matrix[:, at]) if own.kind == "real" else own, at)
        for own, at in _groups(family, range(table.shape[1]), table.shape[1])
    ]
    return suited(_joined(parts), table)


def _log_joint(
    sample: CheckedTable,
    columns: dict[int, _Column],
    family: Family,
    prior: Prior,
    partition: Labels,
) -> float:
    """Return the log joint of a partition, whole numbers spread where a family has a density."""
    spread = _spread(sample, columns, family)
    return compiled(spread, family, prior).log_joint(partition)


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
    return CheckedTable(out, None, complete=not sample.gaps)


def _fits(kind: type[Family], n_values: int) -> bool:
    return n_values * kind.numbers_a_value <= _MOST_NUMBERS


def _columns(sample: CheckedTable, said: Mapping[int, str | None]) -> dict[int, _Column]:
    rng = np.random.default_rng(0)
    out = {}
    for j, kind in said.items():
        x = np.asarray(sample.matrix[:, [j]])
        # More than two kinds of them: those of yes or no are binary.
        seen = x[~np.isnan(x)]
        whole = kind != "real" and bool((seen == np.floor(seen)).all())
        whole = whole and len(np.unique(seen)) > 2 and bool(np.abs(seen).max() < _WHOLE)
        spread = x + rng.uniform(-0.5, 0.5, x.shape) if whole else x
        name = "" if sample.names is None else str(sample.names[j])
        out[j] = _Column(x, spread, whole, name, kind)
    return out


def _log_evidence(start: Family, x: Matrix, partition: Labels) -> float:
    """Return Σ_k log H of a column within a partition, under hyperparameters learned from it."""
    table = CheckedTable(x, None, complete=not np.isnan(x).any())
    model = start.learned(x, partition).compile(table)
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
    others = [j for j in range(table.shape[1]) if j not in winners]
    return _joined([*parts, *_groups(family, others, table.shape[1])])


def _groups(family: Family, columns: Iterable[int], width: int) -> list[tuple[Family, list[int]]]:
    """Return the parts of a family that some columns have."""
    kinds, out = family.by_column(width), dict[int, tuple[Family, list[int]]]()
    for j in columns:
        out.setdefault(id(kinds[j]), (kinds[j], []))[1].append(j)
    return list(out.values())


def _joined(parts: list[tuple[Family, list[int]]]) -> Family:
    return parts[0][0] if len(parts) == 1 else Product(parts)


def _in_words(family: Family, columns: dict[int, _Column], width: int) -> str:
    """Return how many columns each family has, and which ones if they are few of several."""
    of_kind: dict[str, list[str]] = {}
    for j, own in enumerate(family.by_column(width)):
        if j in columns:
            of_kind.setdefault(own.name, []).append(columns[j].name or f"column {j}")
    most = _FEW_NAMES if len(of_kind) > 1 else 0
    return ", ".join(
        f"{len(own)} of {name}" + (f" ({', '.join(own)})" if len(own) <= most else "")
        for name, own in of_kind.items()
    )
