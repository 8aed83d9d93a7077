"""Alternatives to the family that was chosen for a table, column by column.

Families compete for a column if they are densities of the same values, or, for integers, if they
give them probabilities:

| values | families |
| --- | --- |
| real numbers | diagonal Gaussian, Student t, Johnson's curves |
| real numbers above 0 | log-normal and gamma, too |
| real numbers between 0 and 1 | beta, too |
| integers | rounded Gaussian; ordinal if there are few levels |
| integers from 0 | Poisson and negative binomial, too |
| integers above 0, large and mostly different | log-normal and gamma, too |
| hours, months and angles by their name and range | von Mises, too |
| hours, months and weekdays that are categories | von Mises against the categories |

A family's score for a column is Σ_k log H(x_k) within a partition.  The partitions are the one that
was found; coarser ones derived from it, down to one cluster for all rows, since only there does a
single cluster that is not Gaussian show; and the partition of every product that was better, where
the families of a column may be easier to distinguish.

The winners of all columns make a product.  A second candidate is the chosen family on transformed
columns (`Johnson`), which keeps its covariance.  If the log joint of a candidate within the
partition is not far below that of the chosen family, its own partition is learned, and it is
accepted if its log joint is then larger by more than the error of search.  Johnson's curves are
fitted so that clouds need fewer clusters, so a family with transformed columns must need at most
half as many clusters as the chosen one: one cluster more or less may be an error of search.  A
density and a probability are comparable once each integer is spread over the interval that rounds
to it.

Von Mises' family for circular categories is also tried beside the chosen families of the other
columns, and always learned: within one cluster for all rows, categories describe several peaks
better.  Two peaks may still belong to one cluster, so it replaces categories only if any two of its
clusters differ in the other columns, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from dpsearch._types import Labels, Matrix, Vector
from dpsearch._validate import MOST_COUNTED
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
_LEAST_GAIN = 5.0  # nats that a column's family, and all of them together, must gain
_NAME_BONUS = 20.0  # nats for a column of numbers that is circular by its name
_SLACK = 0.2  # nats a row that learning may add to the log joint within a given partition
_MOST_LEVELS = 12
_LARGE = 100.0  # the least first quartile of integers for which densities compete, too
_FEW_NAMES = 3  # columns of a family that are named
_MOST_NUMBERS = 40_000_000  # in the encoded columns of a table
_AT_THE_ENDS = 0.02  # of a turn: how near to both of its ends the values of an angle come
_INTEGERS_ONLY = 2.0**53  # floats of at least this magnitude are integers whatever they measure


class Eligible(NamedTuple):
    """What is known of a column that families compete for."""

    kind: str | None  # the kind that the user gave
    period: float | None  # of the codes of circular categories; None for a column of numbers


class _Candidate(NamedTuple):
    """A family that competes for a column."""

    family: Family
    x: Matrix  # the values that it is compared on
    handicap: float  # nats that it must be better by


class _Column(NamedTuple):
    """A column of the learning rows that families compete for."""

    x: Matrix  # [rows, 1]
    jittered: Matrix  # the same, integers spread over the intervals that round to them
    is_integer: bool
    name: str
    kind: str | None  # that the user gave
    period: float | None  # if the column may be circular …
    is_named: bool  # … and whether its name suggests it
    categorical: Family | None  # the chosen family of a column of categories
    is_countable: bool  # whether families of counts take so large a total

    def candidates(self, n_values: int) -> list[_Candidate]:
        """Return the families that compete with the Gaussian, each with the values to compare on.

        Families that need too much memory for `n_values` values are left out.
        """
        if not varies(self.x).all() or (self.categorical is not None and not self.is_integer):
            return []
        starts = [kind.suggest(self.x) for kind in self._kinds() if _fits(kind, n_values)]
        if self.period is not None and _fits(VonMises, n_values):
            starts.append(VonMises(period=self.period).resolve(self.x))
        if not self.is_integer:
            starts.append(Johnson.with_curves(DiagonalGaussian.suggest(self.x), self.x))
            # Its curve is fitted to the column, so another family that fits as well is preferred.
            return [_Candidate(own, self.x, _LEAST_GAIN * (own is starts[-1])) for own in starts]
        # Densities are compared with probabilities on the jittered values.
        return [
            _Candidate(own, self.jittered, _LEAST_GAIN) if own.kind == "real"
            else _Candidate(own, self.x, 0.0)
            for own in starts
        ]  # fmt: skip

    def _kinds(self) -> list[Any]:
        """Return the classes of families that the values themselves suggest."""
        if self.categorical is not None:
            return []
        least, most = np.nanmin(self.x), np.nanmax(self.x)
        positive: list[Any] = [LogNormal, Gamma] if least > 0.0 else []
        if not self.is_integer:
            return [StudentT, *([Beta] if least > 0.0 and most < 1.0 else []), *positive]
        kinds: list[Any] = []
        if self.kind is None:
            kinds += [RoundedGaussian, *([Ordinal] if most - least < _MOST_LEVELS else [])]
        if least >= 0.0 and self.is_countable:
            kinds += [Poisson, NegativeBinomial]
        return kinds + (positive if self.kind is None and self._is_fine() else [])

    def _is_fine(self) -> bool:
        """Whether the integers are so large and varied that their rounding is negligible.

        A density is then as good as the probability of an integer, as for incomes or populations.
        """
        x = self.x[~np.isnan(self.x)]
        differ = len(np.unique(x)) > len(x) / 2
        return differ and bool(np.quantile(x, 0.25) >= _LARGE)

    def winner(self, partition: Labels, candidates: list[_Candidate]) -> tuple[Family, float]:
        """Return the best family within a partition, and its gain over the default in nats.

        The default is a Gaussian, or the chosen family of a column of categories.
        """
        default, x = self.categorical, self.x
        if default is None:
            default, x = DiagonalGaussian.suggest(self.jittered), self.jittered
        if not candidates:
            return default, 0.0
        found = [(_log_evidence(own, at, partition), own, less) for own, at, less in candidates]
        found = [one for one in found if np.isfinite(one[0])] or [(-np.inf, default, 0.0)]
        value, best, _ = max(found, key=lambda one: one[0] - one[2])
        gain = value - _log_evidence(default, x, partition)
        # A Gaussian gives integers no probability, so that one of the candidates must be taken.
        must = self.is_integer and self.categorical is None
        return (best, gain) if must or gain > _LEAST_GAIN else (default, 0.0)


def better_families(
    table: CheckedTable,
    family: Family,
    labels: Labels,
    prior: Prior,
    eligible: Mapping[int, Eligible],
) -> tuple[Learned, str] | None:
    """Return a family of the table that is better than the chosen one, learned; None if none is.

    With it comes a text that says which families the columns have and how much better they are.
    """
    if table.shape[0] < _FEWEST_ROWS or not eligible:
        return None
    return _Competition(table, family, prior, eligible).best(labels)


class _Competition:
    """The families that compete for a table, compared on its learning rows."""

    def __init__(
        self, table: CheckedTable, family: Family, prior: Prior, eligible: Mapping[int, Eligible]
    ) -> None:
        self.table, self.family, self.prior, self.width = table, family, prior, table.shape[1]
        self.rows, self.sample = learning_rows(table.shape[0]), learning_sample(table)
        self.columns = _columns(self.sample, eligible, family, table)
        n_values = table.shape[0] * len(eligible)
        self.candidates = {j: column.candidates(n_values) for j, column in self.columns.items()}

    def best(self, labels: Labels) -> tuple[Learned, str] | None:
        """Return the best family other than the chosen one if it is better, and why in words."""
        first = self.partition(labels)
        problem = self.problem(self.family)
        chosen = best_score = problem.log_joint(first)
        best, learned_already = None, set[Any]()
        transformed, circular = self.with_transformed_columns(), self.with_circular_categories()
        partitions = [first, *_coarser(problem, first)]
        for partition in partitions:  # to which the partitions of better products are appended
            winners = self.winners(partition)
            if winners is None:
                return best
            for start in filter(None, [*self.products(winners), transformed, circular]):
                kinds = tuple(type(one) for one in start.by_column(self.width))
                if kinds in learned_already:
                    continue
                if start is not circular and not self.is_promising(start, partition, best_score):
                    continue
                learned_already.add(kinds)
                learned = learn(self.table, start, self.prior)
                own = self.partition(learned.labels)
                value = self.problem(learned.family).log_joint(own)
                n_curves = kinds.count(Johnson)  # each has two fitted parameters
                score = value - _LEAST_GAIN * n_curves + _NAME_BONUS * self.n_named(learned.family)
                few_clusters = not n_curves or 2 * (own.max() + 1) <= first.max() + 1
                if (
                    few_clusters
                    and score > best_score + _LEAST_GAIN
                    and self.distinguishes(learned.family, own)
                ):
                    best = learned, self.in_words(learned.family, value - chosen)
                    best_score = score
                    partitions.append(own)
        return best

    def partition(self, labels: Labels) -> Labels:
        """Return the partition of the learning rows under labels of all rows."""
        return np.unique(labels[self.rows], return_inverse=True)[1]

    def problem(self, family: Family) -> Problem:
        """Return the problem of the learning rows, integers jittered if they have a density."""
        kinds, table = family.by_column(self.width), self.sample
        at = [j for j, own in self.columns.items() if own.is_integer and kinds[j].kind == "real"]
        if at:
            values = np.array(table.matrix)
            values[:, at] = np.hstack([self.columns[j].jittered for j in at])
            table = CheckedTable(values, None, complete=not table.gaps)
        return compiled(table, family, self.prior)

    def is_promising(self, start: Family, partition: Labels, score: float) -> bool:
        """Whether a family, within a partition, may reach a score once its own is learned."""
        within = start.learned(self.sample.matrix, partition)
        return self.problem(within).log_joint(partition) >= score - _SLACK * len(partition)

    def winners(self, partition: Labels) -> dict[int, tuple[Family, float]] | None:
        """Return the best family of each column within a partition; None if time is over."""
        found: dict[int, tuple[Family, float]] = {}
        for j, column in self.columns.items():
            current().tell("families of columns", len(found), len(self.columns))
            if current().over:
                return None
            found[j] = column.winner(partition, self.candidates[j])
        return found

    def products(self, winners: dict[int, tuple[Family, float]]) -> list[Family]:
        """Return the product of the winners, and that of the winners of categories alone.

        Columns of numbers are independent in the first; in the second they keep the covariance that
        was chosen.  Each must gain enough.  Before them comes the product of the winners in which
        all columns of numbers that may be circular are: a partition that cuts them where a period
        begins counts against the circular family.
        """
        won = {j: own for j, (own, _) in winners.items() if own is not self.columns[j].categorical}
        codes = {j: own for j, own in won.items() if self.columns[j].categorical is not None}
        found = [o for o in (won, codes) if o and sum(winners[j][1] for j in o) >= _LEAST_GAIN]
        circular = {
            j: one.family
            for j, own in self.candidates.items()
            for one in own
            if _is_circular(one.family) and self.columns[j].categorical is None
        }
        if circular:
            found.insert(0, won | circular)
        return [self.with_families(own) for own in found]

    def with_families(self, own: Mapping[int, Family]) -> Family:
        """Return the chosen family with other families for some columns, grouped by family."""
        groups: dict[Any, list[int]] = {}
        for j, family in own.items():
            groups.setdefault((type(family), getattr(family, "period", None)), []).append(j)
        parts: list[tuple[Family, list[int]]] = []
        for (kind, period), columns in groups.items():
            given = {} if period is None else {"period": period}
            start = kind(**given) if given else kind.suggest(self.table.matrix[:, columns])
            parts.append((start, columns))
        others = [j for j in range(self.width) if j not in own]
        return suited(_joined([*parts, *_parts(self.family, others, self.width)]), self.table)

    def with_transformed_columns(self) -> Family | None:
        """Return the chosen family on transformed columns of numbers; None if there are none."""
        if all(own.kind != "real" for own in self.family.by_column(self.width)):
            return None
        parts = [
            (Johnson.with_curves(own, self.table.matrix[:, at]) if own.kind == "real" else own, at)
            for own, at in _parts(self.family, range(self.width), self.width)
        ]
        return suited(_joined(parts), self.table)

    def with_circular_categories(self) -> Family | None:
        """Return the chosen family with von Mises' for circular categories; None without any."""
        circular = {
            j: self.candidates[j][0].family
            for j, column in self.columns.items()
            if column.categorical is not None and self.candidates[j]
        }
        return self.with_families(circular) if circular else None

    def distinguishes(self, family: Family, partition: Labels) -> bool:
        """Whether any two clusters differ in columns other than a circular one of categories.

        The two peaks of a day may belong to one cluster, as its categories say, or to two.  What
        all columns lose by a union, less what the circular one loses, is
        log H(a) + log H(b) − log H(a ∪ b) of the others; the prior cancels.
        """
        kinds, pairs = family.by_column(self.width), ~np.eye(partition.max() + 1, dtype=bool)
        circular = [
            j
            for j, column in self.columns.items()
            if column.categorical is not None and kinds[j].kind == "real"
        ]
        if not circular or not pairs.any():
            return True
        gains = _merge_gains(compiled(self.sample, family, self.prior), partition)
        for j in circular:
            ((own, _),) = _parts(family, [j], self.width)
            of_column = compiled(self.sample.columns([j]), own, self.prior)
            if (gains - _merge_gains(of_column, partition))[pairs].max() > 0.0:
                return False
        return True

    def n_named(self, family: Family) -> int:
        """Return how many columns of numbers have a circular family that their names suggest."""
        kinds = family.by_column(self.width)
        return sum(_is_circular(kinds[j]) for j, column in self.columns.items() if column.is_named)

    def in_words(self, family: Family, gain: float) -> str:
        """Return how many columns each family has, their names if they are few, and the gain."""
        of_kind: dict[str, list[str]] = {}
        for j, own in enumerate(family.by_column(self.width)):
            if j in self.columns:
                of_kind.setdefault(own.name, []).append(self.columns[j].name or f"column {j}")
        most = _FEW_NAMES if len(of_kind) > 1 else 0
        families = ", ".join(
            f"{len(own)} of {name}" + (f" ({', '.join(own)})" if len(own) <= most else "")
            for name, own in of_kind.items()
        )
        if gain > 0.0:
            return f"{families}, better by {gain:.0f} nats"
        return f"{families}, because of the names, although {abs(gain):.0f} nats worse"


def _coarser(problem: Problem, labels: Labels) -> list[Labels]:
    """Return partitions of half as many clusters each time, down to one cluster.

    Clusters are joined by average linkage, with the log joint of their union as the similarity.
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


def _merge_gains(problem: Problem, partition: Labels) -> Matrix:
    state = State(problem, partition)
    return state.merge_gains(state.live, state.live)


def _is_circular(family: Family) -> bool:
    return getattr(family, "period", None) is not None


def _fits(kind: type[Family], n_values: int) -> bool:
    return n_values * kind.numbers_a_value <= _MOST_NUMBERS


def _columns(
    sample: CheckedTable, eligible: Mapping[int, Eligible], family: Family, table: CheckedTable
) -> dict[int, _Column]:
    rng = np.random.default_rng(0)
    out = {}
    for j, (kind, given_period) in eligible.items():
        x = np.asarray(sample.matrix[:, [j]])
        known = x[~np.isnan(x)]
        is_integer = kind != "real" and bool((known == np.floor(known)).all())
        # Two different values make the column binary.
        is_integer = is_integer and len(np.unique(known)) > 2
        is_integer = is_integer and bool(np.abs(known).max() < _INTEGERS_ONLY)
        jittered = x + rng.uniform(-0.5, 0.5, x.shape) if is_integer else x
        name = "" if sample.names is None else str(sample.names[j])
        categorical, period, is_named = None, given_period, False
        if given_period is None:
            period, is_named = _period(name, known)
        else:
            categorical = _parts(family, [j], sample.shape[1])[0][0]
        # Of all columns together, as they may all have a family of counts.
        total = len(eligible) * float(np.nansum(table.matrix[:, j]))
        out[j] = _Column(
            x, jittered, is_integer, name, kind, period, is_named, categorical,
            total <= MOST_COUNTED,
        )  # fmt: skip
    return out


def _period(name: str, known: Vector) -> tuple[float | None, bool]:
    """Return the period that a column's values may have, and whether its name suggests that.

    Values whose name does must span more than half of it, others the whole turn of an angle.
    """
    least, most = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    period = named_period(name, least, most)
    is_named = period is not None
    if period is None:
        period = next((turn for turn in (2.0 * np.pi, 360.0) if _spans(least, most, turn)), None)
    if period is None or most - least <= period / 2:
        return None, False
    in_radians = period != np.floor(period)
    if in_radians and (known == np.floor(known)).all():
        return None, False
    return period, is_named


def _spans(least: float, most: float, turn: float) -> bool:
    """Whether values go from one end of a turn to the other, which begins at 0 or half before."""
    apart = _AT_THE_ENDS * turn
    return any(
        begin <= least <= begin + apart and begin + turn - apart <= most <= begin + turn
        for begin in (0.0, -0.5 * turn)
    )


def _log_evidence(start: Family, x: Matrix, partition: Labels) -> float:
    """Return Σ_k log H of a column within a partition, under hyperparameters learned from it."""
    table = CheckedTable(x, None, complete=not np.isnan(x).any())
    model = start.learned(x, partition).compile(table)
    items, base = model.items()
    n_clusters = int(partition.max()) + 1
    pool, _ = model.rows(items, partition, n_clusters)
    return float(log_marginals(model.summaries, pool, n_clusters).sum() + base.sum())


def _parts(family: Family, columns: Iterable[int], width: int) -> list[tuple[Family, list[int]]]:
    """Return the families of some columns; one that has other columns, too, is split by column."""
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
