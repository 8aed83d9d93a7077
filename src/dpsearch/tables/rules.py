"""Triage: the role of each column of a table, what becomes of it, and why.

The rules in their order.  None of them stops a run, and `kinds` overrides all of them.

nested      lists, dictionaries and other objects: dropped
date        types of dates, and texts of which 95 % are dates: split into those of year, month,
            weekday and hour that vary; all but the year are categories, since December is next to
            January; few years would each be a cluster, so four or fewer are left out
constant    no value, one value, or one value in all but one of 1,000 rows: dropped
target      few values in a column whose name says that it is the answer: dropped
identifier  integers that number the rows; many different integers in a column with a name such as
            customer_id, or nearly all different under a name such as patient; texts nearly all of
            which differ: dropped
angle       months, hours and weekdays by name and range, directions from 0 to 360
count       integers from 0, half of them at most 30, with a variance of at least their mean, unless
            they are answers on a scale that several columns share
ordinal     other integers with at most 10 values, and categories whose type gives them an order
skewed      numbers above 0 whose logarithms are far less skewed
number      other numbers; also texts of which 95 % are numbers, with signs, separators and units,
            to which the five rules above apply as well; the other 5 % are missing
category    yes or no, 0 or 1, two integers; at most 10 numbers with decimals, each in ten rows on
            average; texts with at most half as many values as rows, of which the 50 most frequent
            make up half the rows; the rarest of more than 50 levels become "other"
text        other texts, which are names or free texts: dropped
copy        the same values as an earlier column, or other names for them; months, hours and
            weekdays that agree in 95 % of rows; parts of dates that have their own column: dropped
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import DataError, ParameterError
from dpsearch.tables import cells
from dpsearch.tables.column_facts import FEW, SOME, ColumnFacts, Found, TableFacts, skewness
from dpsearch.tables.columns import KINDS, OTHER, TRUTH, Column, Kind, Level, RawColumn
from dpsearch.tables.copies import copies
from dpsearch.tables.entries import DROPPED, PARTS, READ, USED, Triage
from dpsearch.tables.frames import distinct_names
from dpsearch.tables.names import (
    CYCLES,
    DIRECTION,
    IDENTIFIER,
    INDEX,
    LAST_TARGET,
    NUMBERED,
    TARGET,
    YEAR,
)
from dpsearch.tables.scales import shared_scales

# What a user may give for a column: its kind, that it is a date, or whether it is used.
GIVEN_KINDS = (*KINDS, "date", "keep", "drop")
MOST_LEVELS = 50  # of a category; the rest is "other"
MOST_COUNTED = 30  # the largest median of integers that are counts
_NEARLY_ALL = 0.9  # the share of texts or integers that differ in identifiers
_SHARE = 0.5  # the least share of values that the most frequent levels make up
_FEW_YEARS = 4  # each of which would be a cluster
_RARE = 1000  # rows, one of which may differ in a constant column
_MOST_ORDERED = 10  # different values of integers that are grades
_ROWS_A_VALUE = 10  # of numbers with decimals that are classes
_SKEWED = 2.0  # the least skewness (standardised third moment) of skewed numbers
_WORDS, _LONG = 3.0, 30.0  # the mean words and characters above which texts are sentences
_YEARS = (1500.0, 2100.0)


class Decided(NamedTuple):
    """A triage, the columns to cluster by, and their encoded values."""

    triage: Triage
    columns: list[Column]
    vectors: list[Vector]
    row_names: str | None  # the column that names the rows


def check_kinds(kinds: Any, names: Sequence[str]) -> None:
    """Raise `ParameterError` unless `kinds` maps names of columns to `GIVEN_KINDS`."""
    if not isinstance(kinds, Mapping):
        raise ParameterError.must("kinds", "map names of columns to kinds", kinds)
    for name, kind in kinds.items():
        if name not in names:
            text = "{parameter} names the {place}, which the table does not have"
            raise ParameterError(text, parameter="kinds", column=name)
        if kind not in GIVEN_KINDS:
            raise ParameterError(
                f"kinds[{name!r}] must be one of {', '.join(GIVEN_KINDS)}, got {kind!r}",
                parameter="kinds",
            )


def decide(
    names: Sequence[str],
    raws: Sequence[RawColumn],
    kinds: Mapping[str, str] | None = None,
    *,
    n_rows: int | None = None,
    keep: bool = False,
    named: bool = True,
    cycles: bool = True,
    codes: bool = True,
) -> Decided:
    """Decide about all columns of a table.

    Parameters
    ----------
    n_rows
        The number of rows of the table, if the columns are a sample of it.
    keep
        Whether all columns are used.
    named
        Whether the table names its columns.
    cycles
        Whether numbers of months, hours and weekdays become categories.
    codes
        Whether codes of missing values are recognised.
    """
    given = (dict.fromkeys(names, "keep") if keep else {}) | dict(kinds or {})
    table = TableFacts(n_rows or len(raws[0].values), named, cycles, codes)
    table = table._replace(scales=shared_scales(names, raws, given, table))
    found = _apply_rules(names, raws, given, table)
    if not any(one.columns for one in found):  # a poor column is better than none
        found = _apply_rules(names, raws, dict.fromkeys(names, "keep") | given, table)
    if not any(one.columns for one in found):
        reasons = "; ".join(f"{one.entry.name!r}: {one.entry.reason}" for one in found[:5])
        raise DataError(f"no column is left to cluster by ({reasons})")
    vectors = _without_copies(found, raws, given)
    return Decided(
        Triage(tuple(one.entry for one in found)),
        _with_distinct_names([column for one in found for column in one.columns]),
        vectors,
        next((one.entry.name for one in found if one.names_rows), None),
    )


def _apply_rules(
    names: Sequence[str], raws: Sequence[RawColumn], given: Mapping[str, str], table: TableFacts
) -> list[Found]:
    last = len(names) - 1
    columns = (
        ColumnFacts(name, raw, given.get(name), 0 < j == last, table)
        for j, (name, raw) in enumerate(zip(names, raws, strict=True))
    )
    return [next(filter(None, (rule(facts) for rule in RULES))) for facts in columns]


def _without_copies(
    found: list[Found], raws: Sequence[RawColumn], given: Mapping[str, str]
) -> list[Vector]:
    """Drop columns and parts of dates that are copies; return the encoded values of the others."""
    columns = [(j, column) for j, one in enumerate(found) for column in one.columns]
    vectors = {k: column.encode(raws[j])[0] for k, (j, column) in enumerate(columns)}
    parts = {k for k, (_, column) in enumerate(columns) if column.part}
    cycles = {k for k, (_, one) in enumerate(columns) if one.role == "angle" and one.levels}
    for k, first in copies(list(vectors.values()), MOST_LEVELS, parts, cycles).items():
        (j, column), other = columns[k], columns[first][1].name
        entry, left = found[j].entry, tuple(c for c in found[j].columns if c is not column)
        if entry.name in given:
            continue
        if left:
            entry = entry._replace(reason=f"{entry.reason}; its {column.part} repeats {other!r}")
        else:
            why = f"it repeats {other!r}"
            entry = entry._replace(role="copy", treatment=DROPPED, reason=why)
        found[j] = Found(entry, left)
        del vectors[k]
    return list(vectors.values())


def _with_distinct_names(columns: Sequence[Column]) -> list[Column]:
    """Return columns with distinct names; a column may have the name of a part of a date."""
    names = distinct_names([column.name for column in columns])
    return [
        column if name == column.name else replace(column, name=name, origin=column.origin_name)
        for column, name in zip(columns, names, strict=True)
    ]


# -- kinds that the user gives, and empty columns -----------------------------------------------


def _drop(facts: ColumnFacts) -> Found | None:
    if facts.given != "drop":
        return None
    return facts.dropped("number" if facts.raw.uniques is None else "category", "as you say")


def _nested(facts: ColumnFacts) -> Found | None:
    if facts.raw.source != "nested":
        return None
    return facts.dropped("nested", "it holds lists or other objects")


def _empty(facts: ColumnFacts) -> Found | None:
    return None if facts.n else facts.dropped("constant", "it has no values")


def _given_number(facts: ColumnFacts) -> Found | None:
    if facts.given not in ("real", "count"):
        return None
    raw, kind = facts.raw, facts.given
    texts = raw.uniques is not None and raw.source != "bool"
    form = (facts.form(cells.number_form) or cells.POINT) if texts else ""
    role = "number" if kind == "real" else "count"
    column = Column(facts.name, kind, raw.source, form=form, role=role, unit=facts.unit)  # type: ignore[arg-type]
    values, unseen = column.encode(raw)
    if unseen is not None and (kind == "count" or np.isnan(values).all()):
        raise column.refused(unseen)
    return facts.used(role, READ if form else USED, "as you say", column)


def _given_levels(facts: ColumnFacts) -> Found | None:
    if facts.given not in ("binary", "category"):
        return None
    levels = facts.levels
    if facts.given == "binary" and len(levels) > 2:
        raise DataError(
            f"{{place}} of X is not binary: it has {len(levels)} levels", column=facts.name
        )
    return _category(facts, facts.given, levels, "as you say")  # type: ignore[arg-type]


# -- dates ---------------------------------------------------------------------------------------


def _date(facts: ColumnFacts) -> Found | None:
    form = facts.date_form
    if form is None and facts.given == "date":
        raise DataError("{place} of X does not hold dates", column=facts.name)
    if form is None:
        return None
    dates = facts.read(cells.date_reader(form), "dates") if form else facts.raw.values
    columns = _parts(facts.name, form, dates[~np.isnan(dates)])
    if not columns:
        return facts.dropped("constant", "all dates have the same year, month, day and hour")
    return facts.used("date", PARTS, ", ".join(column.part for column in columns), *columns)


def _parts(name: str, form: str, dates: Vector) -> list[Column]:
    """Return the parts of dates that vary; a year with few values only if no other part does."""
    columns, few_years = [], False
    for part, levels in cells.PARTS.items():
        values, times = np.unique(cells.part_of_date(dates, part), return_counts=True)
        if len(values) == 1 or (part == "weekday" and not cells.days_vary(dates)):
            continue
        if len(dates) >= SOME and len(dates) - times.max() <= len(dates) // _RARE:
            continue
        kind: tuple[Kind, str, str] = (
            ("real", "int", "ordinal") if levels is None else ("category", "text", "angle")
        )
        columns.append(
            Column(f"{name} ({part})", kind[0], kind[1], levels, name, form, part, kind[2])
        )
        few_years |= part == "year" and len(values) <= _FEW_YEARS
    return columns[1:] if len(columns) > 1 and few_years else columns


# -- columns that are dropped --------------------------------------------------------------------


def _constant(facts: ColumnFacts) -> Found | None:
    if not facts.free or len(facts.distinct) > MOST_LEVELS:
        return None
    seen, counts = np.unique(facts.sampled, return_counts=True)
    others = int((facts.known != seen[counts.argmax()]).sum())
    if others == 0:
        return facts.dropped("constant", "it has one value")
    if len(facts.known) < SOME or others > max(1, facts.n // _RARE):
        return None
    return facts.dropped("constant", f"all but {others} of {facts.n:,} values are the same")


def _target(facts: ColumnFacts) -> Found | None:
    by_name = facts.named_like(TARGET) or (facts.last and facts.named_like(LAST_TARGET))
    few = len(facts.distinct) <= MOST_LEVELS and (facts.whole or facts.number_form is None)
    if not (by_name and few and facts.free):
        return None
    return facts.dropped("target", "by its name the target, to compare the clusters with")


def _row_number(facts: ColumnFacts) -> Found | None:
    if not facts.may_number_rows:
        return None
    low, high = facts.range
    # Ranks begin at 1, too, but are hardly ever in the order of the rows.
    called = not facts.table.named or facts.named_like(INDEX) or facts.named_like(IDENTIFIER)
    numbers = low in (0.0, 1.0) and high - low == facts.n - 1 and (called or facts.in_order)
    sampled = SOME <= facts.n < facts.table.n_rows and low >= 0.0 and high <= facts.table.n_rows
    if not (numbers or sampled):
        return None
    return facts.dropped("identifier", "it numbers the rows", names_rows=True)


def _counter(facts: ColumnFacts) -> Found | None:
    if facts.n < SOME or not (facts.may_number_rows and facts.in_order):
        return None
    low, high = facts.range
    if _YEARS[0] <= low and high <= _YEARS[1] and facts.named_like(YEAR):
        return None
    return facts.dropped("identifier", "it counts the rows", names_rows=True)


def _index(facts: ColumnFacts) -> Found | None:
    if not (facts.may_number_rows and facts.named_like(INDEX)):
        return None
    return facts.dropped("identifier", "its name says that it numbers the rows", names_rows=True)


def _identifier(facts: ColumnFacts) -> Found | None:
    if not (facts.free and facts.whole):
        return None
    by_name = facts.named_like(IDENTIFIER)
    nearly = facts.n >= SOME and len(facts.distinct) > _NEARLY_ALL * len(facts.sampled)
    if not by_name and not (nearly and facts.named_like(NUMBERED)):
        return None
    if nearly or len(facts.distinct) > MOST_LEVELS or (facts.different and facts.n >= FEW):
        why = "its name says that it identifies rows and measures nothing"
        return facts.dropped("identifier", why, names_rows=facts.different)
    if facts.n < SOME or 2 * len(facts.distinct) > facts.n:
        return None
    levels = tuple(int(value) for value in facts.distinct)
    return _category(facts, "category", levels, f"{len(levels)} codes")


# -- numbers -------------------------------------------------------------------------------------


def _cycle(facts: ColumnFacts) -> Found | None:
    """Return numbers of months, hours or weekdays as categories."""
    if not (facts.table.cycles and facts.free and facts.whole) or facts.number_form:
        return None
    low, high = facts.range
    for pattern, first, last, what in CYCLES:
        if facts.named_like(pattern) and first <= low and high <= last:
            levels = tuple(range(first, last + 1))
            column = Column(facts.name, "category", facts.source, levels, role="angle")
            return facts.used("angle", USED, f"{what}s, as categories", column)
    return None


def _numeric_category(facts: ColumnFacts) -> Found | None:
    """Return as categories two integers, such as 1 and 2 for the sexes, or few decimal numbers.

    0.5, 2.5, 6 and 9 years are classes or settings.  As measurements each would be a cluster: the
    density of a Gaussian at a repeated value is unbounded.
    """
    values = facts.distinct
    if not (facts.table.cycles and facts.free) or facts.number_form is None or facts.n < SOME:
        return None
    if facts.whole:
        few = len(values) == 2 and facts.range != (0.0, 1.0)
    else:
        few = len(values) <= min(_MOST_ORDERED, facts.n // _ROWS_A_VALUE)
    if not (few and np.isin(facts.known, values).all()):
        return None
    # All levels have one type, as in a column of a frame.
    levels = tuple(map(int, values)) if facts.whole else tuple(map(float, values))
    why = f"{levels[0]} or {levels[1]}" if facts.whole else f"{len(levels)} numbers"
    form = facts.number_form
    column = Column(facts.name, "category", facts.source, levels, form=form, role="category",
                    unit=facts.unit)  # fmt: skip
    return facts.used("category", READ if form else USED, why, column)


def _number(facts: ColumnFacts) -> Found | None:
    if facts.number_form is None:
        return None
    role = next((role for role, is_so in _ROLES if is_so(facts)), "number")
    low, high = facts.range
    why = "0 or 1" if role == "category" else f"{low:.6g} to {high:.6g}"
    # Codes of missing values below 0 are still there, and a column of counts would refuse them.
    kind: Kind = "count" if role == "count" and not (facts.numbers < 0.0).any() else "real"
    form = facts.number_form
    column = Column(facts.name, kind, facts.source, form=form, role=role, unit=facts.unit)
    return facts.used(role, READ if facts.number_form else USED, why + facts.among, column)


def _is_truth(facts: ColumnFacts) -> bool:
    return facts.range == (0.0, 1.0) and len(facts.distinct) == 2


def _is_count(facts: ColumnFacts) -> bool:
    """Whether numbers are counts: integers whose variance may be at least their mean.

    The variance of a mixture of Poisson variables is at least its mean; in a sample, their ratio
    may be lower by two standard deviations, √(2/n), each.  Ages, grades and ratings vary less.
    """
    values = facts.sampled
    # Gaps turn integers into floats.
    typed = facts.source == "int" or facts.n < len(facts.raw.values)
    if not (typed and facts.whole) or facts.range[0] < 0.0 or np.median(values) > MOST_COUNTED:
        return False
    if facts.on_a_scale:
        return False
    least = (1.0 - 2.0 * math.sqrt(2.0 / len(values))) * values.mean()
    return bool(values.var() >= least)


def _is_ordinal(facts: ColumnFacts) -> bool:
    few = len(facts.distinct) <= _MOST_ORDERED
    return facts.whole and (few or facts.range in facts.table.scales)


def _is_direction(facts: ColumnFacts) -> bool:
    low, high = facts.range
    return facts.named_like(DIRECTION) and low >= 0.0 and 180.0 < high <= 360.0


def _is_skewed(facts: ColumnFacts) -> bool:
    if facts.range[0] <= 0.0 or len(facts.distinct) <= _MOST_ORDERED:
        return False
    skewed = skewness(facts.sampled)
    logarithms = abs(skewness(np.log(facts.sampled)))
    return skewed > _SKEWED and logarithms < 0.5 * skewed


_ROLES: tuple[tuple[str, Callable[[ColumnFacts], bool]], ...] = (
    ("category", _is_truth),
    ("count", _is_count),
    ("ordinal", _is_ordinal),
    ("angle", _is_direction),
    ("skewed", _is_skewed),
)


# -- levels and texts ----------------------------------------------------------------------------


def _truth(facts: ColumnFacts) -> Found | None:
    if facts.raw.source == "bool":
        return _category(facts, "binary", (False, True), "yes or no")
    if facts.raw.source != "text" or not cells.are_truths(facts.texts):
        return None
    column = Column(facts.name, "binary", "bool", (False, True), form=TRUTH, role="category")
    return facts.used("category", READ, "yes or no", column)


def _levels(facts: ColumnFacts) -> Found | None:
    n, n_levels = facts.n, facts.n_levels
    top = np.sort(facts.counts)[::-1][: MOST_LEVELS - 1].sum()
    repeat = 2 * n_levels <= n or n_levels < n < SOME or n < FEW
    fits = repeat and (n_levels <= MOST_LEVELS or top >= _SHARE * n)
    if fits or facts.raw.source == "categorical" or not facts.free:
        return _category(facts, "category", facts.levels, "")
    return None


def _free_text(facts: ColumnFacts) -> Found | None:
    texts = [str(text) for text in facts.raw.uniques or ()]
    words = np.mean([1.0 + text.count(" ") for text in texts])
    if words <= _WORDS and np.mean([len(text) for text in texts]) <= _LONG:
        return None
    return facts.dropped("text", "free text (--text COLUMN clusters by its words)")


def _text_names(facts: ColumnFacts) -> Found:
    n, n_levels = facts.n, facts.n_levels
    if n_levels > _NEARLY_ALL * n or facts.named_like(IDENTIFIER):
        why = f"{n_levels:,} of {n:,} values differ{facts.among}"
        return facts.dropped("identifier", why, n_levels == len(facts.raw.values) >= FEW)
    return facts.dropped("text", f"names: {n_levels:,} in {n:,} values{facts.among}")


def _category(facts: ColumnFacts, kind: Kind, levels: tuple[Level, ...], why: str) -> Found:
    """Return levels as they are, or the most frequent ones and "other"."""
    raw, form = facts.raw, ""
    if kind == "category" and len(levels) > MOST_LEVELS:
        why = (
            f"{len(levels):,} levels{facts.among}; the {MOST_LEVELS - 1} most frequent are kept,"
            f" the rest become {OTHER!r}"
        )
        levels, form, facts.changed = _most_frequent(facts, levels), OTHER, True
    elif kind == "category" and raw.source == "text" and facts.among and (facts.counts == 1).any():
        # Rows outside the sample have further levels: about as many as occur once in it (Good
        # 1953).
        levels, form = tuple(dict.fromkeys([*levels, OTHER])), OTHER
    role = "ordinal" if raw.ordered else "category"
    column = Column(facts.name, kind, raw.source, levels, form=form, role=role)
    return facts.used(role, USED, why or f"{len(levels)} levels", column)


def _most_frequent(facts: ColumnFacts, levels: tuple[Level, ...]) -> tuple[Level, ...]:
    codes, _ = Column(facts.name, "category", facts.raw.source, levels).encode(facts.raw)
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=len(levels))
    order = [k for k in np.argsort(-counts, kind="stable") if levels[k] != OTHER]
    return (*(levels[k] for k in sorted(order[: MOST_LEVELS - 1])), OTHER)


RULES: tuple[Callable[[ColumnFacts], Found | None], ...] = (
    _drop, _nested, _empty, _given_number, _given_levels,
    _date, _constant, _target, _row_number, _counter, _index, _identifier,
    _cycle, _numeric_category, _number, _truth, _levels, _free_text, _text_names,
)  # fmt: skip
