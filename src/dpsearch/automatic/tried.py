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
| hours, months, weekdays that are categories | von Mises against the categories |

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

Categories that go round are tried with the numbers as they were chosen, too, and from the start:
of one cluster for all rows they describe several peaks better.  But two peaks may be those of one
cluster.  So von Mises' family takes the place of categories only if any two of its clusters differ
in the other columns, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from dpsearch._types import Labels, Matrix, Vector
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
_NAMED = 20.0  # nats that a column's name is worth which says that its numbers go round
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


class Tried(NamedTuple):
    """A column that families are tried on."""

    said: str | None  # the kind that the user says it is of
    turn: float | None  # after which codes of categories begin again; None if it holds numbers


class _Column(NamedTuple):
    """A column of the learning rows that families compete for."""

    x: Matrix  # [rows, 1]
    spread: Matrix  # the same, whole numbers spread over what rounds to them
    whole: bool
    name: str
    said: str | None  # the kind that the user says it is of
    period: float | None  # after which values begin again
    usual: Family | None  # what a column of categories has

    def candidates(self, n_values: int) -> list[_Candidate]:
        """Return families beside the Gaussian, each with the values that it is compared on.

        Without those that keep too many numbers of as many values as the table has.
        """
        if not varies(self.x).all() or (self.usual is not None and not self.whole):
            return []
        kinds = [kind for kind in self._kinds() if _fits(kind, n_values)]
        starts = [kind.suggest(self.x) for kind in kinds]
        if self.period is not None and _fits(VonMises, n_values):
            starts.append(VonMises(period=self.period).resolve(self.x))
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
        if self.usual is not None:
            return kinds
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
        """Return the best family within a partition, and what it gains over the usual one.

        That is a Gaussian, or of categories what they have.
        """
        usual, x = self.usual, self.x
        if usual is None:
            usual, x = DiagonalGaussian.suggest(self.spread), self.spread
        if not candidates:
            return usual, 0.0
        found = [(_log_evidence(own, at, partition), own, less) for own, at, less in candidates]
        found = [one for one in found if np.isfinite(one[0])] or [(-np.inf, usual, 0.0)]
        value, best, _ = max(found, key=lambda one: one[0] - one[2])
        gain = value - _log_evidence(usual, x, partition)
        rounded = self.whole and self.usual is None  # of which a Gaussian has no probability
        return (best, gain) if rounded or gain > _WORTH else (usual, 0.0)


def better_columns(
    table: CheckedTable,
    family: Family,
    labels: Labels,
    prior: Prior,
    tried: Mapping[int, Tried],
) -> tuple[Learned, str] | None:
    """Return other families for some columns of a table, as a product or bent, if it is better.

    With it, which families they are and by how much it is better.
    """
    if table.shape[0] < _FEWEST_ROWS or not tried:
        return None
    rows, width = learning_rows(table.shape[0]), table.shape[1]
    sample, own = learning_sample(table), np.unique(labels[rows], return_inverse=True)[1]
    columns, n_values = _columns(sample, tried, family), table.shape[0] * len(tried)
    candidates = {j: column.candidates(n_values) for j, column in columns.items()}
    before = _log_joint(sample, columns, family, prior, own)
    best, chosen = None, before
    started: set[Any] = set()
    bent, turned = _bent(table, family), _turned(table, family, columns, candidates)
    spread = _spread(sample, columns, family)
    partitions = [own, *_coarser(compiled(spread, family, prior), own)]
    for partition in partitions:  # with that of every product that is better
        winners = _winners(columns, candidates, partition)
        if winners is None:
            return best
        starts = [*_products(table, family, columns, candidates, winners), bent, turned]
        for start in filter(None, starts):
            key = tuple(type(one) for one in start.by_column(width))
            if key in started:
                continue
            within = start.learned(sample.matrix, partition)
            value = _log_joint(sample, columns, within, prior, partition)
            if value < before - _HOPE * len(own) and start is not turned:
                continue
            started.add(key)
            learned = learn(table, start, prior)
            at = np.unique(learned.labels[rows], return_inverse=True)[1]
            after = _log_joint(sample, columns, learned.family, prior, at)
            curves = key.count(Johnson)  # each fitted by two numbers, and worth less by that
            worth = after - _WORTH * curves + _NAMED * _n_named(learned.family, columns, width)
            fewer = 2 * (at.max() + 1) <= own.max() + 1
            if (
                worth > before + _WORTH
                and (fewer or not curves)
                and _told_apart(sample, columns, learned.family, prior, at)
            ):
                families = _in_words(learned.family, columns, width)
                better = f"better by {after - chosen:.0f} nats"
                if after <= chosen:
                    better = f"because of names, though worse by {chosen - after:.0f} nats"
                best = learned, f"{families}, {better}"
                before = worth
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


def _told_apart(
    sample: CheckedTable,
    columns: dict[int, _Column],
    family: Family,
    prior: Prior,
    partition: Labels,
) -> bool:
    """Whether any two clusters differ in other columns than one that was of categories, too.

    Two peaks of a day may be those of one cluster, as its categories say, or two clusters.  What
    all columns lose by a union, less what that one does, is log H(a) + log H(b) − log H(a ∪ b) of
    the others; the prior cancels.
    """
    kinds, apart = family.by_column(sample.shape[1]), ~np.eye(partition.max() + 1, dtype=bool)
    turned = [j for j, one in columns.items() if one.usual is not None and kinds[j].kind == "real"]
    if not turned or not apart.any():
        return True
    gains = _merge_gains(compiled(sample, family, prior), partition)
    for j in turned:
        ((own, _),) = _groups(family, [j], sample.shape[1])
        of_column = _merge_gains(compiled(sample.columns([j]), own, prior), partition)
        if (gains - of_column)[apart].max() > 0.0:
            return False
    return True


def _merge_gains(problem: Problem, partition: Labels) -> Matrix:
    state = State(problem, partition)
    return state.merge_gains(state.live, state.live)


def _products(
    table: CheckedTable,
    family: Family,
    columns: dict[int, _Column],
    candidates: dict[int, list[_Candidate]],
    winners: dict[int, tuple[Family, float]],
) -> list[Family]:
    """Return the product of the winners, and that of categories alone, if they gain enough.

    Numbers are independent in the former.  In the latter they have the covariance that was chosen.
    Before them comes the product of the winners with numbers going round that may: a partition that
    parts them where a turn begins speaks against it.
    """
    won = {j: winner for j, (winner, _) in winners.items() if winner is not columns[j].usual}
    codes = {j: winner for j, winner in won.items() if columns[j].usual is not None}
    found = [own for own in (won, codes) if own and sum(winners[j][1] for j in own) >= _WORTH]
    turns = {
        j: one.family
        for j, own in candidates.items()
        for one in own
        if getattr(one.family, "period", None) is not None and columns[j].usual is None
    }
    if turns:
        found.insert(0, won | turns)
    return [suited(_product(table, family, own), table) for own in found]


def _bent(table: CheckedTable, family: Family) -> Family | None:
    """Return the family that was chosen, of bent columns where they are numbers, if any are."""
    if all(own.kind != "real" for own in family.by_column(table.shape[1])):
        return None
    parts = [
        (Johnson.around(own, table.matrix[:, at]) if own.kind == "real" else own, at)
        for own, at in _groups(family, range(table.shape[1]), table.shape[1])
    ]
    return suited(_joined(parts), table)


def _turned(
    table: CheckedTable,
    family: Family,
    columns: dict[int, _Column],
    candidates: dict[int, list[_Candidate]],
) -> Family | None:
    """Return the family that was chosen, with categories going round that may, if there are any.

    Within one cluster for all rows categories describe several peaks better, and only its own
    partition shows what it tells apart.
    """
    turns = {
        j: candidates[j][0].family
        for j, column in columns.items()
        if column.usual is not None and candidates[j]
    }
    return suited(_product(table, family, turns), table) if turns else None


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


def _columns(
    sample: CheckedTable, tried: Mapping[int, Tried], family: Family
) -> dict[int, _Column]:
    rng = np.random.default_rng(0)
    out = {}
    for j, (kind, turn) in tried.items():
        x = np.asarray(sample.matrix[:, [j]])
        # More than two kinds of them: those of yes or no are binary.
        seen = x[~np.isnan(x)]
        whole = kind != "real" and bool((seen == np.floor(seen)).all())
        whole = whole and len(np.unique(seen)) > 2 and bool(np.abs(seen).max() < _WHOLE)
        spread = x + rng.uniform(-0.5, 0.5, x.shape) if whole else x
        name = "" if sample.names is None else str(sample.names[j])
        usual = None if turn is None else _groups(family, [j], sample.shape[1])[0][0]
        period = _period(name, seen) if turn is None else turn
        out[j] = _Column(x, spread, whole, name, kind, period, usual)
    return out


def _period(name: str, seen: Vector) -> float | None:
    """Return after which numbers begin again, if they fill more than half of that."""
    least, most = (seen.min(), seen.max()) if len(seen) else (0.0, 0.0)
    period = named_period(name, least, most)
    if period is None or most - least <= period / 2:
        return None
    in_radians = period != np.floor(period)
    return None if in_radians and (seen == np.floor(seen)).all() else period


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
    """Return the parts of a family that some columns have, by column if others have it, too."""
    kinds, out = family.by_column(width), dict[int, list[int]]()
    for j in columns:
        out.setdefault(id(kinds[j]), []).append(j)
    parts: list[tuple[Family, list[int]]] = []
    for some in out.values():
        own = kinds[some[0]]
        every = [j for j in range(width) if kinds[j] is own]
        if len(some) == len(every):
            parts.append((own, some))
        else:
            parts += [(own.column(every.index(j), len(every)), [j]) for j in some]
    return parts


def _joined(parts: list[tuple[Family, list[int]]]) -> Family:
    return parts[0][0] if len(parts) == 1 else Product(parts)


def _n_named(family: Family, columns: dict[int, _Column], width: int) -> int:
    """Return how many columns of numbers go round, as their names say."""
    kinds = family.by_column(width)
    turned = [j for j, own in columns.items() if own.usual is None and own.period is not None]
    return sum(getattr(kinds[j], "period", None) is not None for j in turned)


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
