"""Choosing a family by looking at the table.

| what the table holds | family |
| --- | --- |
| sparse, only 0 and 1 | Bernoulli |
| sparse counts | multinomial |
| only 0 and 1 | Bernoulli |
| integers ≥ 0, at least half of them 0 and 1 the commonest other | multinomial |
| numbers, some missing | completed first, unless they are to be independent |
| rows of length 1, most values 0 or spread over their columns | von Mises–Fisher |
| the same, stored as a sparse table | von Mises–Fisher |
| the same, dense, more columns than dimensions | full covariance on principal components |
| numbers, up to 32 columns, rows enough | Gaussian with full covariance |
| the same, some columns following from others | the same on coordinates for those columns |
| numbers, up to 10 columns, fewer rows | diagonal covariance, which skips missing values |
| numbers, more columns | full covariance on principal components above the noise |
| the same, counts or their logarithms | the same of counts in units of their noise, or roots |
| columns of several kinds, by a frame's types or by being 0 and 1 | a family for each kind |
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Vector
from dpsearch.automatic.checks import refused, takes_gaps
from dpsearch.automatic.completion import complete
from dpsearch.automatic.counts import counted
from dpsearch.automatic.learning import Learned, learn, suited
from dpsearch.automatic.looks import NARROW, WIDE, guess, guess_gaussian, of_length_1, rows_suffice
from dpsearch.automatic.suspicious import far_rows, find_codes, given_codes
from dpsearch.automatic.tried import Tried, better_columns
from dpsearch.deadline import current
from dpsearch.errors import DataError, ParameterError, located
from dpsearch.events import Event
from dpsearch.families import (
    Bernoulli,
    Categorical,
    Derived,
    DiagonalGaussian,
    FullGaussian,
    Multinomial,
    Poisson,
    Product,
    ProjectedGaussian,
    by_name,
)
from dpsearch.families._columns import varies
from dpsearch.families.base import Family
from dpsearch.priors import PRIORS, DirichletProcess, Gamma, Prior
from dpsearch.problem import Clustering, Problem
from dpsearch.tables import CheckedTable, Codes, Kind, Schema, content_order, without_codes
from dpsearch.weights import copies_of, with_what_they_lack

_FEW_GAPS = 0.05  # the share up to which the numbers of mixed tables are completed
# Families for the kinds of columns that a mixed table has.
_OF_KIND: dict[Kind, type[Family]] = {
    "real": DiagonalGaussian,
    "count": Poisson,
    "binary": Bernoulli,
    "category": Categorical,
}
_MOST_NAMES = 5
_IN_WORDS = {"real": "numbers", "count": "counts", "binary": "yes or no", "category": "categories"}


class Choice(NamedTuple):
    """A family, why it was chosen, and the partition that its hyperparameters were learned with."""

    family: Family
    reason: str
    labels: Labels | None
    problem: Problem | None = None  # of all rows, if it is compiled already
    completed: Matrix | None = None  # the table with its gaps filled, if the family needs that
    settled: bool = False  # whether no move of refinement improves the partition

    @classmethod
    def of(cls, learned: Learned, reason: str) -> Choice:
        problem = learned.problem if learned.of_all_rows else None
        return cls(learned.family, reason, learned.labels, problem, settled=learned.settled)

    def or_carried(self, problem: Problem, found: Clustering) -> Clustering:
        """Return what search found, or the partition carried along if that is better."""
        if self.labels is None:
            return found
        carried = problem.clustering(self.labels)
        if carried.log_joint < found.log_joint:
            return found
        event = Event(found.seconds, carried.log_joint, carried.n_clusters, "learned")
        return replace(
            found,
            labels=carried.labels,
            log_joint=carried.log_joint,
            converged=self.settled,
            trace=[*found.trace, event],
        )


def resolve_prior(alpha: Any) -> Prior:
    """Return the prior that the estimator's `alpha` means."""
    if isinstance(alpha, Prior):
        return alpha
    if isinstance(alpha, str):
        if alpha == "auto":
            return DirichletProcess(Gamma(1.0, 1.0))
        if alpha not in PRIORS.names():
            known = ", ".join(PRIORS.names())
            wanted = f"be 'auto', a number above 0, a prior or the name of one ({known})"
            raise ParameterError.must("alpha", wanted, alpha)
        return PRIORS.by_name(alpha)()
    return DirichletProcess(alpha)


def choose(
    X: ArrayLike | CheckedTable,
    family: Any,
    prior: Prior,
    schema: Schema | None = None,
    *,
    may_complete: bool = True,
    may_try: bool = True,
) -> Choice:
    """Return the family to use for a table, with its hyperparameters."""
    if isinstance(family, Family):
        return Choice(family, "as given", None)
    if not isinstance(family, str):
        raise ParameterError.must("family", "be 'auto', a name or a family", family)
    table = CheckedTable.of(X)
    far, others = _far_rows(table, schema)
    apart = family == "auto" or by_name(family, also=("auto",)).kind in ("real", "projection")
    gaps_remain = may_complete or others.gaps == table.gaps
    if not (apart and gaps_remain and far.any()):
        return _chosen(table, family, prior, schema, may_complete, may_try)
    with located(rows=np.flatnonzero(~far)):
        choice = _chosen(others, family, prior, schema, may_complete, may_try)
        if may_try and refused(choice.family, table.rows(far)):
            choice = _chosen(others, family, prior, schema, may_complete, may_try=False)
    return _with_far_rows(choice, table, far)


def _with_far_rows(choice: Choice, table: CheckedTable, far: Any) -> Choice:
    """Return a choice that far rows took no part in, for all rows: each of these by itself."""
    n_far = int(far.sum())
    words = "1 row far from all others" if n_far == 1 else f"{n_far} rows far from all others"
    assert choice.labels is not None
    labels = np.empty(len(far), np.int64)
    labels[~far] = choice.labels
    labels[far] = choice.labels.max() + 1 + np.arange(n_far)
    completed = choice.completed
    if completed is not None or (table.gaps and not choice.family.skips(table)):
        inside = table.rows(~far).matrix if completed is None else completed
        completed = _completed_beside(inside, table.matrix, far)
    reason = f"{choice.reason}; {words} took no part in the choice"
    return Choice(choice.family, reason, labels, completed=completed)


def _completed_beside(inside: Matrix, matrix: Matrix, far: Any) -> Matrix:
    """Return completed rows with the far ones beside them, whose gaps are filled by medians."""
    out = np.empty_like(matrix)
    out[~far] = inside
    out[far] = np.where(np.isnan(matrix[far]), np.nanmedian(inside, axis=0), matrix[far])
    return out


def _chosen(
    table: CheckedTable,
    family: str,
    prior: Prior,
    schema: Schema | None,
    may_complete: bool,
    may_try: bool,
) -> Choice:
    if family != "auto":
        kind = by_name(family, also=("auto",))
        if table.sparse and not kind.accepts_sparse:
            raise DataError(
                f"X is sparse, which the {kind.name} family does not take: use X.toarray()"
            )
        return _learned(table, kind.suggest_for(table), "as named", prior)
    completed = completed_table(table, schema, prior) if may_complete else None
    rows = table if completed is None else CheckedTable(completed, table.names)
    start, reason = _suggested(rows, schema)
    if completed is not None and not start.predicts_gaps:  # as counts that lacked a constant
        rows, completed = table, None
        start, reason = _suggested(rows, schema)
    choice = _learned(rows, start, reason, prior, or_simpler=True)
    choice = _or_tried(rows, choice, prior, schema) if may_try else choice
    if completed is None:
        return choice
    if choice.family.skips(table):  # which needs no completion
        return _learned(table, choice.family, f"{choice.reason}, gaps skipped", prior)
    return choice._replace(reason=f"{choice.reason}, completed where missing", completed=completed)


def _or_tried(table: CheckedTable, choice: Choice, prior: Prior, schema: Schema | None) -> Choice:
    """Return the choice for a table, or other families of its columns of numbers and counts.

    Projections have no density of the table, which could be compared.  But where columns follow
    from others exactly, those others are a table, of which families do.
    """
    current().has_result = choice.labels is not None
    width = table.shape[1]
    if table.sparse or width > WIDE or choice.labels is None:
        return choice
    families = choice.family.by_column(width)
    kinds = {own.kind for own in families}
    if "words" in kinds or (table.gaps and not choice.family.skips(table)):
        return choice
    if "projection" in kinds:
        return _or_tried_without_derived(table, choice, prior, schema)
    tried = _tried(families, schema)
    found = None
    with current().optional():
        found = better_columns(table, choice.family, choice.labels, prior, tried)
    if found is None:
        return choice
    learned, words = found
    return Choice.of(learned, f"{choice.reason}; by column {words}")


def _tried(families: list[Family], schema: Schema | None) -> dict[int, Tried]:
    """Return the columns of numbers and counts, and those of categories that go round."""
    numbers = [own.kind in ("real", "count") for own in families]
    if schema is None:
        return {j: Tried(None, None) for j, is_number in enumerate(numbers) if is_number}
    return {
        j: Tried(one.kind if one.name in schema.said else None, one.turn)
        for j, (one, is_number) in enumerate(zip(schema.columns, numbers, strict=True))
        if is_number or one.turn is not None
    }


def _or_tried_without_derived(
    table: CheckedTable, choice: Choice, prior: Prior, schema: Schema | None
) -> Choice:
    """Return the choice, or other families of the columns that the rest follows from exactly."""
    way = Derived.among(table.matrix, _number_columns(table, schema)) if not table.gaps else None
    if way is None or current().over:
        return choice
    width = table.shape[1]
    kept = [j for j in range(width) if j not in way.derived]
    names = [f"column {j}" if table.names is None else str(table.names[j]) for j in range(width)]
    own = CheckedTable(table.matrix[:, kept], tuple(names[j] for j in kept))
    if schema is not None:
        schema = replace(schema, columns=tuple(schema.columns[j] for j in kept))
    start = _learned(own, *_suggested(own, schema), prior, or_simpler=True)
    tried = _or_tried(own, start, prior, schema)
    if tried is start:
        return choice
    family = way.with_parameters(family=tried.family)
    follow = ", ".join(names[j] for j in way.derived) + " follow" + "s" * (len(way.derived) == 1)
    return Choice(family, f"{tried.reason}; {follow} from the others", tried.labels)


def _learned(
    table: CheckedTable, start: Family, reason: str, prior: Prior, *, or_simpler: bool = False
) -> Choice:
    learned = learn(table, suited(start, table), prior, or_simpler=or_simpler)
    if learned.is_simpler:
        reason += ", independent within clusters"
    return Choice.of(learned, reason)


def _suggested(table: CheckedTable, schema: Schema | None) -> tuple[Family, str]:
    """Return a family to start from, and the reason in words."""
    groups = _groups(table, schema)
    if groups is not None:
        return _suggest_mixed(table, groups, schema)
    return _start(table, *guess(table))


def _groups(table: CheckedTable, schema: Schema | None) -> dict[Kind, list[int]] | None:
    """Return the columns of each kind; None for a table of numbers alone, or of one kind.

    A column of numbers that are all 0 or 1 is binary, unless the user says otherwise: as numbers
    they would be worth two clusters.
    """
    matrix = table.matrix
    if schema is not None:
        return schema.groups(lambda j: _is_binary(matrix[:, j]))
    if table.sparse or matrix.shape[1] > WIDE:
        return None
    columns = range(matrix.shape[1])
    binary = [j for j in columns if _is_binary(matrix[:, j])]
    if len(binary) in (0, matrix.shape[1]) or guess(table)[0] is Multinomial:
        return None
    return {"real": [j for j in columns if j not in binary], "binary": binary}


def _number_columns(table: CheckedTable, schema: Schema | None) -> list[int]:
    """Return the columns of numbers, which are neither counts nor categories nor 0 and 1."""
    if table.sparse:
        return []
    groups = _groups(table, schema)
    if groups is not None:
        return groups.get("real", [])
    no_numbers = guess(table)[0].kind in ("binary", "words", "direction")
    return [] if no_numbers else list(range(table.shape[1]))


def _far_rows(table: CheckedTable, schema: Schema | None) -> tuple[Any, CheckedTable]:
    """Return which rows are far from all others, and these others.

    There are none if the others hold no numbers without them.
    """
    columns = _number_columns(table, schema)
    far = far_rows(table, columns)
    others = table.rows(~far) if far.any() else table
    if far.any() and _number_columns(others, schema) != columns:
        return np.zeros_like(far), table
    return far, others


def recognises_codes(family: Any, wanted: Any) -> bool:
    """Whether codes of missing values are to be found; `wanted` is `missing_codes`."""
    automatic = isinstance(wanted, str) and wanted == "auto"
    return automatic and not isinstance(family, Family) and takes_gaps(family)


def recognise_codes(
    table: CheckedTable, family: Any, schema: Schema | None, wanted: Any
) -> tuple[CheckedTable, Codes]:
    """Return the table with codes of missing values turned into gaps, and the codes.

    `wanted` is the estimator's `missing_codes`.  A family that the user gives is for the values as
    they are, and so is one that cannot skip gaps.
    """
    found = recognises_codes(family, wanted)
    given = wanted is not None and not (isinstance(wanted, str) and wanted == "auto")
    if table.sparse or not (found or given):
        return table, ()
    columns = list(range(table.shape[1]))
    if schema is not None:
        columns = [j for j in columns if schema.columns[j].kind in ("real", "count")]
    elif guess(table)[0].kind in ("words", "direction"):
        return table, ()
    codes = find_codes(table, columns) if found else given_codes(wanted, columns)
    return without_codes(table, codes), codes


def _is_binary(column: Vector) -> bool:
    zeros, ones = column == 0.0, column == 1.0
    return bool(zeros.any() and ones.any() and (zeros | ones | np.isnan(column)).all())


def completed_table(table: CheckedTable, schema: Schema | None, prior: Prior) -> Matrix | None:
    """Return the table with gaps among its numbers filled, where that is better than skipping.

    A covariance needs complete rows; a family of independent columns does not, and is exact.  Where
    columns of other kinds help too, numbers are completed only if little is missing.
    """
    if not table.gaps:
        return None
    columns, (far, others) = _number_columns(table, schema), _far_rows(table, schema)
    if far.any():
        inside = completed_table(others, schema, prior)
        return None if inside is None else _completed_beside(inside, table.matrix, far)
    matrix = table.matrix
    own = matrix[:, columns]
    n_rows, width = len(own), int(varies(own).sum())
    if len(columns) < 2 or not table.columns(columns).gaps:
        return None
    if width <= NARROW and not rows_suffice(n_rows, width):
        return None
    if len(columns) < matrix.shape[1] and np.isnan(own).mean() > _FEW_GAPS:
        return None
    order = content_order(table)
    out = np.array(matrix)
    with current().during("filling gaps", 0.6):
        out[np.ix_(order, np.array(columns))] = complete(
            own[order], prior, wide=not rows_suffice(n_rows, width)
        )
    return out


def choose_weighted(
    table: CheckedTable, sizes: Ints, family: Any, prior: Prior, schema: Schema | None
) -> Choice:
    """Choose for rows as if each were there as often as its size says."""
    copies = with_what_they_lack(copies_of(sizes), table.matrix)
    choice = choose(table.rows(copies), family, prior, schema, may_complete=False)
    if choice.labels is None:
        return choice
    # Copies of a row may be apart; the first stands for all.
    known, first = np.unique(copies, return_index=True)
    labels = choice.labels[first] if len(known) == len(sizes) else None
    return choice._replace(labels=labels, problem=None, settled=False)


def _suggest_mixed(
    table: CheckedTable, groups: dict[Kind, list[int]], schema: Schema | None
) -> tuple[Family, str]:
    """Return a family for each kind of column, and the reason in words."""
    parts: list[tuple[Family, list[int]]] = []
    for kind, columns in groups.items():
        family = _for_kind(kind, table.columns(columns))
        if kind == "category":
            assert schema is not None
            family = family.with_parameters(n_levels=schema.n_levels(columns))
        parts.append((family, columns))
    counted = ", ".join(_in_words(kind, columns, schema) for kind, columns in groups.items())
    if len(parts) == 1:
        return parts[0][0], f"a table of {_IN_WORDS[next(iter(groups))]}"
    return Product(parts), f"a table with columns of several kinds: {counted}"


def _for_kind(kind: Kind, own: CheckedTable) -> Family:
    """Return a family for the columns of a kind; numbers, where complete, as a table of their own.

    One column has nothing to be correlated with.
    """
    if kind != "real" or own.shape[1] == 1 or own.gaps:
        return _OF_KIND[kind].suggest(own.matrix)
    return _start(own, *guess_gaussian(own))[0]


def _start(table: CheckedTable, kind: type[Family], reason: str) -> tuple[Family, str]:
    """Return a family of a class to start from, condensed if columns follow from others."""
    matrix = table.matrix
    if kind is ProjectedGaussian:
        counts = counted(table)
        if counts is not None:
            family = counts.family()
            how = "as square roots" if family.dispersion is None else "in units of their noise"
            return family, f"{counts.words}, {how}"
        if of_length_1(table):
            return ProjectedGaussian.of_one_unit(matrix), reason
    found = ProjectedGaussian.condensed(matrix) if kind is FullGaussian else None
    if found is None:
        return kind.suggest(matrix), reason
    fewer = matrix.shape[1] - len(found.components)
    follow = "1 follows" if fewer == 1 else f"{fewer} follow"
    return found, f"{reason}, of which {follow} from the others"


def _in_words(kind: Kind, columns: list[int], schema: Schema | None) -> str:
    """Return the number of columns of a kind; counts by name, as numbers may be taken for them."""
    named = ""
    if kind == "count" and schema is not None:
        names = [schema.columns[j].name for j in columns]
        more = " …" if len(names) > _MOST_NAMES else ""
        named = f" ({', '.join(names[:_MOST_NAMES])}{more})"
    return f"{len(columns)} of {_IN_WORDS[kind]}{named}"
