"""The choice of a family by what a table holds.

| what the table holds | family |
| --- | --- |
| sparse, only 0 and 1 | Bernoulli |
| sparse counts | multinomial |
| only 0 and 1 | Bernoulli |
| integers ≥ 0, at least half of them 0, and 1 the most common of the others | multinomial |
| numbers, some missing | as below, completed first unless columns are to be independent |
| rows of length 1, most values 0, or a sparse table | von Mises–Fisher |
| rows of length 1 that vary along most dimensions | von Mises–Fisher |
| rows of length 1 that vary along few dimensions | full covariance on principal components |
| numbers, up to 32 columns, enough rows | Gaussian with full covariance |
| the same, some columns nearly functions of others | the same on coordinates for them |
| numbers, up to 10 columns, fewer rows | diagonal covariance, which skips missing values |
| numbers, more columns | full covariance on principal components above the noise |
| the same, counts or their logarithms | the same on counts divided by their noise, or on roots |
| columns of several kinds, by a frame's types or as 0 and 1 alone | a family for each kind |

Columns of numbers and counts that are constant, or exact functions of others, are set aside before
(`Derived`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import ArrayLike, Ints, Labels, Matrix, Vector
from dpsearch.automatic.alternatives import Eligible, better_families
from dpsearch.automatic.checks import holds_for, takes_gaps
from dpsearch.automatic.completion import complete
from dpsearch.automatic.counts import counted
from dpsearch.automatic.first_guess import (
    NARROW,
    WIDE,
    guess,
    guess_gaussian,
    of_length_1,
    rows_suffice,
)
from dpsearch.automatic.learning import Learned, learn, suited
from dpsearch.automatic.suspicious import far_rows, find_codes, given_codes
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
from dpsearch.weights import copies_of, with_decisive_rows

_FEW_GAPS = 0.05  # the largest share of missing numbers that are completed in mixed tables
# The families of the columns of each kind in a mixed table.
_OF_KIND: dict[Kind, type[Family]] = {
    "real": DiagonalGaussian,
    "count": Poisson,
    "binary": Bernoulli,
    "category": Categorical,
}
_MOST_NAMES = 5
_IN_WORDS = {"real": "numbers", "count": "counts", "binary": "yes/no", "category": "categories"}
_ADJECTIVES = {"real": "numeric", "count": "count", "binary": "yes/no", "category": "categorical"}


class Choice(NamedTuple):
    """A family, why it was chosen, and the partition that its hyperparameters were learned from."""

    family: Family
    reason: str
    labels: Labels | None
    problem: Problem | None = None  # of all rows, if it has been compiled
    completed: Matrix | None = None  # the table with its gaps filled, if the family needs that
    settled: bool = False  # whether no move of refinement improves the partition

    @classmethod
    def of(cls, learned: Learned, reason: str) -> Choice:
        problem = learned.problem if learned.of_all_rows else None
        return cls(learned.family, reason, learned.labels, problem, settled=learned.settled)

    def or_learned(self, problem: Problem, found: Clustering) -> Clustering:
        """Return what search found, or the partition of the learning if that is as good."""
        if self.labels is None:
            return found
        learned = problem.clustering(self.labels)
        if learned.log_joint < found.log_joint:
            return found
        event = Event(found.seconds, learned.log_joint, learned.n_clusters, "learned")
        return replace(
            found,
            labels=learned.labels,
            log_joint=learned.log_joint,
            converged=self.settled,
            trace=[*found.trace, event],
        )


def resolve_prior(alpha: Any) -> Prior:
    """Return the prior that the estimator's `alpha` stands for."""
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
    """Return the family to use for a table, with its hyperparameters.

    `may_complete` says whether gaps may be filled, `may_try` whether alternatives may be tried.
    """
    if isinstance(family, Family):
        return Choice(family, "as given", None)
    if not isinstance(family, str):
        raise ParameterError.must("family", "be 'auto', a name or a family", family)
    table = CheckedTable.of(X)
    far, others = _far_rows(table, schema)
    of_numbers = family == "auto" or by_name(family, also=("auto",)).kind in ("real", "projection")
    gaps_remain = may_complete or others.gaps == table.gaps
    if not (of_numbers and gaps_remain and far.any()):
        return _chosen(table, family, prior, schema, may_complete, may_try)
    with located(rows=np.flatnonzero(~far)):
        choice = _chosen(others, family, prior, schema, may_complete, may_try)
        if may_try and not holds_for(choice.family, table, far):
            choice = _chosen(others, family, prior, schema, may_complete, may_try=False)
    return _with_far_rows(choice, table, far)


def _with_far_rows(choice: Choice, table: CheckedTable, far: Any) -> Choice:
    """Return a choice made without the far rows for all rows, each far row its own cluster."""
    n_far = int(far.sum())
    words = "1 row far from all others" if n_far == 1 else f"{n_far} rows far from all others"
    assert choice.labels is not None
    labels = np.empty(len(far), np.int64)
    labels[~far] = choice.labels
    labels[far] = choice.labels.max() + 1 + np.arange(n_far)
    completed = choice.completed
    if completed is not None or (table.gaps and not choice.family.skips(table)):
        inside = table.rows(~far).matrix if completed is None else completed
        completed = _with_completed_far_rows(inside, table.matrix, far)
    reason = f"{choice.reason}; {words} took no part in the choice"
    return Choice(choice.family, reason, labels, completed=completed)


def _with_completed_far_rows(inside: Matrix, matrix: Matrix, far: Any) -> Matrix:
    """Return completed rows together with the far ones, whose gaps are filled by medians."""
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
                f"X is sparse, which the {kind.name} family does not accept: use X.toarray()"
            )
        return _learned(table, kind.suggest_for(table), "as named", prior)
    relations = _relations(table, schema) if may_try else None
    if relations is not None:
        choice = _chosen_without_derived(relations, table, prior, schema, may_complete)
        if choice.family.predicts_gaps or not table.gaps:
            return choice
    completed = completed_table(table, schema, prior) if may_complete else None
    rows = table if completed is None else CheckedTable(completed, table.names)
    start, reason = _suggested(rows, schema)
    if completed is not None and not start.predicts_gaps:  # of complete rows alone: skip gaps
        rows, completed = table, None
        start, reason = _suggested(rows, schema)
    choice = _learned(rows, start, reason, prior, or_simpler=True)
    choice = _or_better(rows, choice, prior, schema) if may_try else choice
    if completed is None:
        return choice
    if choice.family.skips(table):  # so that the completion was not needed
        return _learned(table, choice.family, f"{choice.reason}, with gaps skipped", prior)
    reason = f"{choice.reason}, with missing values filled in"
    return choice._replace(reason=reason, completed=completed)


def _relations(table: CheckedTable, schema: Schema | None) -> Derived | None:
    """Return which columns of numbers and counts are exact functions of others, if any are.

    Relations are found in rows without gaps, and must hold in all rows where they can be checked.
    Columns with the most gaps are left out until there are enough such rows.
    """
    matrix = table.matrix
    columns = [] if table.shape[1] > WIDE else _number_columns(table, schema, ("real", "count"))
    while columns:
        missing = np.isnan(matrix[:, columns])
        rows = matrix[~missing.any(axis=1)]
        if rows_suffice(len(rows), len(columns)):
            found = Derived.among(rows, columns)
            wrong = [] if found is None else found.contradicted(matrix)
            if not wrong:
                return found
        elif missing.any():
            wrong = [columns[int(missing.sum(axis=0).argmax())]]
        else:
            return None
        columns = [j for j in columns if j not in wrong]
    return None


def _chosen_without_derived(
    relations: Derived,
    table: CheckedTable,
    prior: Prior,
    schema: Schema | None,
    may_complete: bool,
) -> Choice:
    """Return the choice for the columns that determine all the others, as one for all columns."""
    width = table.shape[1]
    kept = [j for j in range(width) if j not in relations.derived]
    names = [f"column {j}" if table.names is None else str(table.names[j]) for j in range(width)]
    observed = table.matrix[:, kept]
    integers = ((observed == np.floor(observed)) | np.isnan(observed)).all(axis=0)
    matrix = relations.forward(table.matrix)
    own = CheckedTable(np.where(integers, np.rint(matrix), matrix), tuple(names[j] for j in kept))
    if schema is not None:
        schema = replace(schema, columns=tuple(schema.columns[j] for j in kept))
    choice = _chosen(own, "auto", prior, schema, may_complete, may_try=True)
    full = own.matrix if choice.completed is None else choice.completed
    completed = None
    if table.gaps and not np.isnan(full).any():
        completed = np.where(np.isnan(table.matrix), relations.inverse(full), table.matrix)
    return choice._replace(
        family=relations.with_parameters(family=choice.family),
        reason=f"{choice.reason}; {relations.in_words(names)}",
        problem=None,
        completed=completed,
    )


def _or_better(table: CheckedTable, choice: Choice, prior: Prior, schema: Schema | None) -> Choice:
    """Return the choice for a table, or better families for its columns of numbers and counts.

    A projection has no density of the whole table that could be compared.
    """
    current().has_result = choice.labels is not None
    width = table.shape[1]
    if table.sparse or width > WIDE or choice.labels is None:
        return choice
    families = choice.family.by_column(width)
    kinds = {own.kind for own in families}
    if kinds & {"words", "projection"} or (table.gaps and not choice.family.skips(table)):
        return choice
    found, eligible = None, _eligible(families, schema)
    with current().optional():
        found = better_families(table, choice.family, choice.labels, prior, eligible)
    if found is None:
        return choice
    learned, words = found
    return Choice.of(learned, f"{choice.reason}; families by column: {words}")


def _eligible(families: list[Family], schema: Schema | None) -> dict[int, Eligible]:
    """Return the columns of numbers and counts, and those of circular categories."""
    numbers = [own.kind in ("real", "count") for own in families]
    if schema is None:
        return {j: Eligible(None, None) for j, is_number in enumerate(numbers) if is_number}
    return {
        j: Eligible(one.kind if one.name in schema.given else None, one.period)
        for j, (one, is_number) in enumerate(zip(schema.columns, numbers, strict=True))
        if is_number or one.period is not None
    }


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

    A column of 0 and 1 is binary unless the user says otherwise: a density would make two clusters
    of it.
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


def _number_columns(
    table: CheckedTable, schema: Schema | None, kinds: tuple[Kind, ...] = ("real",)
) -> list[int]:
    """Return the columns of numbers, and of counts if these are among the kinds, but not of 0/1."""
    if table.sparse:
        return []
    groups = _groups(table, schema)
    if groups is not None:
        return sorted(j for kind in kinds for j in groups.get(kind, []))
    no_numbers = guess(table)[0].kind in ("binary", "words", "direction")
    return [] if no_numbers else list(range(table.shape[1]))


def _far_rows(table: CheckedTable, schema: Schema | None) -> tuple[Any, CheckedTable]:
    """Return which rows are far from all others, and the table of these others.

    No row counts as far if the others would have other columns of numbers without it.
    """
    columns = _number_columns(table, schema)
    far = far_rows(table, columns)
    others = table.rows(~far) if far.any() else table
    if far.any() and _number_columns(others, schema) != columns:
        return np.zeros_like(far), table
    return far, others


def recognises_codes(family: Any, missing_codes: Any) -> bool:
    """Whether codes of missing values are recognised, under these options of the estimator."""
    automatic = isinstance(missing_codes, str) and missing_codes == "auto"
    return automatic and not isinstance(family, Family) and takes_gaps(family)


def recognise_codes(
    table: CheckedTable, family: Any, schema: Schema | None, missing_codes: Any
) -> tuple[CheckedTable, Codes]:
    """Return the table with codes of missing values replaced by gaps, and the codes.

    By default none are looked for if the user gives a family, which is for the values as they are,
    or names one that cannot skip gaps.
    """
    automatic = isinstance(missing_codes, str) and missing_codes == "auto"
    if table.sparse or missing_codes is None:
        return table, ()
    if automatic and not recognises_codes(family, missing_codes):
        return table, ()
    columns = list(range(table.shape[1]))
    if schema is not None:
        columns = [j for j in columns if schema.columns[j].kind in ("real", "count")]
    elif guess(table)[0].kind in ("words", "direction"):
        return table, ()
    codes = find_codes(table, columns) if automatic else given_codes(missing_codes, columns)
    return without_codes(table, codes), codes


def _is_binary(column: Vector) -> bool:
    zeros, ones = column == 0.0, column == 1.0
    return bool(zeros.any() and ones.any() and (zeros | ones | np.isnan(column)).all())


def completed_table(table: CheckedTable, schema: Schema | None, prior: Prior) -> Matrix | None:
    """Return the table with the gaps among its numbers filled; None if skipping them is better.

    A full covariance needs complete rows; a family of independent columns skips gaps, and is exact.
    In a mixed table, where columns of other kinds help, too, numbers are completed only if few are
    missing.
    """
    if not table.gaps:
        return None
    columns, (far, others) = _number_columns(table, schema), _far_rows(table, schema)
    if far.any():
        inside = completed_table(others, schema, prior)
        return None if inside is None else _with_completed_far_rows(inside, table.matrix, far)
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
    """Return the choice for rows with counts: row i is repeated ``sizes[i]`` times."""
    copies = with_decisive_rows(copies_of(sizes), table.matrix)
    choice = choose(table.rows(copies), family, prior, schema, may_complete=False)
    if choice.labels is None:
        return choice
    # Copies of a row may be in different clusters; the first decides.
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
    return Product(parts), f"columns of several kinds: {counted}"


def _for_kind(kind: Kind, own: CheckedTable) -> Family:
    """Return a family for the columns of a kind.

    Several complete columns of numbers get the family that they would have as a table of their own.
    """
    if kind != "real" or own.shape[1] == 1 or own.gaps:
        return _OF_KIND[kind].suggest(own.matrix)
    return _start(own, *guess_gaussian(own))[0]


def _start(table: CheckedTable, kind: type[Family], reason: str) -> tuple[Family, str]:
    """Return a family of a class to start from, condensed if some columns determine others."""
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
    """Return the number of columns of a kind, with names of counts, which may be a mistake."""
    named = ""
    if kind == "count" and schema is not None:
        names = [schema.columns[j].name for j in columns]
        more = " …" if len(names) > _MOST_NAMES else ""
        named = f" ({', '.join(names[:_MOST_NAMES])}{more})"
    return f"{len(columns)} {_ADJECTIVES[kind]}{named}"
