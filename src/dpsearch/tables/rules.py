"""Triage: what each column of a table is, what is made of it, and why.

The rules, in their order; none of them stops a run, and `kinds` overrides all of them.

nested      lists, dictionaries and other objects: dropped
date        types of dates, and texts of which 95 % are such: year, month, weekday and hour, those
            that vary; month, weekday and hour as categories, since December is next to January;
            the year only if there are more than four, as few would each be a cluster
constant    no value, one value, or one value in all but one of 1,000 rows: dropped
target      few values in a column whose name says that it is the answer: dropped
identifier  integers that number the rows, or many different under such a name as customer_id, or
            nearly all under one as patient; texts of which nearly all differ: dropped
angle       months, hours and weekdays by name and range, directions from 0 to 360
count       integers from 0, half of them at most 30, with a variance of at least their mean, and no
            answers on a scale that several columns share
ordinal     other integers of at most 10 values, and categories in an order that their type gives
skewed      numbers above 0 whose logarithms are far less skewed than they are
number      other numbers; also texts of which 95 % are numbers, with signs, separators and units,
            which the five rules above take as numbers too; the other 5 % are missing
category    yes or no, 0 or 1, two whole numbers; at most 10 numbers with decimals, each in ten rows
            on average; texts of at most half as many values as rows, of which the 50 most frequent
            make up half the rows; of more levels the rarest are "other"
text        other texts, which are names or free texts: dropped
copy        the same values as a column before, or other names for them; months, hours and weekdays
            that are the same in 95 % of the rows; parts of dates that a column has: dropped
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
from dpsearch.tables.columns import KINDS, OTHER, TRUTH, Column, Kind, Level, RawColumn
from dpsearch.tables.copies import copies
from dpsearch.tables.entries import DROPPED, PARTS, READ, USED, Triage
from dpsearch.tables.frames import distinct_names
from dpsearch.tables.look import FEW, SOME, Found, Look, TableFacts, skewness
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

# What a user may say of a column: its kind, that it is a date, or whether it is used.
SAID = (*KINDS, "date", "keep", "drop")
MOST_LEVELS = 50  # of a category; the rest is "other"
MOST_COUNTED = 30  # the median of integers up to which they are taken for counts
_NEARLY_ALL = 0.9  # of texts, or of numbers of cases, that are different
_SHARE = 0.5  # of the values that the most frequent levels make up
_FEW_YEARS = 4  # which would each be a cluster
_RARE = 1000  # rows, of which one may differ in a column that is called constant
_MOST_ORDERED = 10  # different values of integers that are grades
_ROWS_A_VALUE = 10  # of numbers with decimals that are classes
_SKEWED = 2.0  # standardised third moment
_WORDS, _LONG = 3.0, 30.0  # words and characters of texts that are sentences, on average
_YEARS = (1500.0, 2100.0)


class Decided(NamedTuple):
    """A triage, the columns to cluster by, and their numbers."""

    triage: Triage
    columns: list[Column]
    vectors: list[Vector]
    row_names: str | None  # the column that names the rows


def check_kinds(kinds: Any, names: Sequence[str]) -> None:
    """Raise unless `kinds` maps names of columns to what is known of them."""
    if not isinstance(kinds, Mapping):
        raise ParameterError.must("kinds", "map names of columns to kinds", kinds)
    for name, kind in kinds.items():
        if name not in names:
            text = "{parameter} names the {place}, which the table does not have"
            raise ParameterError(text, parameter="kinds", column=name)
        if kind not in SAID:
            raise ParameterError(
                f"kinds[{name!r}] must be one of {', '.join(SAID)}, got {kind!r}",
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
        Rows of the table, of which these are a sample.
    keep
        Whether all columns are wanted.
    named
        Whether the table names its columns.
    cycles
        Whether numbers of months, hours and weekdays become categories.
    codes
        Whether codes of missing values are recognised.
    """
    said = (dict.fromkeys(names, "keep") if keep else {}) | dict(kinds or {})
    table = TableFacts(n_rows or len(raws[0].values), named, cycles, codes)
    table = table._replace(scales=shared_scales(names, raws, said, table))
    found = _looked(names, raws, said, table)
    if not any(one.columns for one in found):  # better a poor column than none
        found = _looked(names, raws, dict.fromkeys(names, "keep") | said, table)
    if not any(one.columns for one in found):
        reasons = "; ".join(f"{one.entry.name!r}: {one.entry.reason}" for one in found[:5])
        raise DataError(f"no column is left to cluster by ({reasons})")
    vectors = _without_copies(found, raws, said)
    return Decided(
        Triage(tuple(one.entry for one in found)),
        _named_apart([column for one in found for column in one.columns]),
        vectors,
        next((one.entry.name for one in found if one.names_rows), None),
    )


def _looked(
    names: Sequence[str], raws: Sequence[RawColumn], said: Mapping[str, str], table: TableFacts
) -> list[Found]:
    last = len(names) - 1
    looks = (
        Look(name, raw, said.get(name), 0 < j == last, table)
        for j, (name, raw) in enumerate(zip(names, raws, strict=True))
    )
    return [next(filter(None, (rule(look) for rule in RULES))) for look in looks]


def _without_copies(
    found: list[Found], raws: Sequence[RawColumn], said: Mapping[str, str]
) -> list[Vector]:
    """Drop columns and parts of dates that say the same as another; return the others' numbers."""
    columns = [(j, column) for j, one in enumerate(found) for column in one.columns]
    vectors = {k: column.encode(raws[j])[0] for k, (j, column) in enumerate(columns)}
    parts = {k for k, (_, column) in enumerate(columns) if column.part}
    cycles = {k for k, (_, one) in enumerate(columns) if one.role == "angle" and one.levels}
    for k, first in copies(list(vectors.values()), MOST_LEVELS, parts, cycles).items():
        (j, column), other = columns[k], columns[first][1].name
        entry, left = found[j].entry, tuple(c for c in found[j].columns if c is not column)
        if entry.name in said:
            continue
        if left:
            entry = entry._replace(reason=f"{entry.reason}; its {column.part} is that of {other!r}")
        else:
            why = f"it says the same as {other!r}"
            entry = entry._replace(role="copy", treatment=DROPPED, reason=why)
        found[j] = Found(entry, left)
        del vectors[k]
    return list(vectors.values())


def _named_apart(columns: Sequence[Column]) -> list[Column]:
    """Return columns whose names differ; a table may have a column that is called like a part."""
    names = distinct_names([column.name for column in columns])
    return [
        column if name == column.name else replace(column, name=name, origin=column.came_from)
        for column, name in zip(columns, names, strict=True)
    ]


# -- what the user says, and what holds nothing --------------------------------------------------


def _drop(look: Look) -> Found | None:
    if look.said != "drop":
        return None
    return look.dropped("number" if look.raw.uniques is None else "category", "as you say")


def _nested(look: Look) -> Found | None:
    if look.raw.source != "nested":
        return None
    return look.dropped("nested", "it holds lists or other objects")


def _empty(look: Look) -> Found | None:
    return None if look.n else look.dropped("constant", "it has no values")


def _said_number(look: Look) -> Found | None:
    if look.said not in ("real", "count"):
        return None
    raw, kind = look.raw, look.said
    texts = raw.uniques is not None and raw.source != "bool"
    form = (look.form(cells.number_form) or cells.POINT) if texts else ""
    role = "number" if kind == "real" else "count"
    column = Column(look.name, kind, raw.source, form=form, role=role, unit=look.unit)  # type: ignore[arg-type]
    values, unseen = column.encode(raw)
    if unseen is not None and (kind == "count" or np.isnan(values).all()):
        raise column.refused(unseen)
    return look.used(role, READ if form else USED, "as you say", column)


def _said_levels(look: Look) -> Found | None:
    if look.said not in ("binary", "category"):
        return None
    levels = look.levels
    if look.said == "binary" and len(levels) > 2:
        raise DataError(
            f"{{place}} of X is not binary: it has {len(levels)} levels", column=look.name
        )
    return _category(look, look.said, levels, "as you say")  # type: ignore[arg-type]


# -- dates ---------------------------------------------------------------------------------------


def _date(look: Look) -> Found | None:
    form = look.date_form
    if form is None and look.said == "date":
        raise DataError("{place} of X does not hold dates", column=look.name)
    if form is None:
        return None
    dates = look.read(cells.date_reader(form), "dates") if form else look.raw.values
    columns = _parts(look.name, form, dates[~np.isnan(dates)])
    if not columns:
        return look.dropped("constant", "all dates have the same year, month, day and hour")
    return look.used("date", PARTS, ", ".join(column.part for column in columns), *columns)


def _parts(name: str, form: str, dates: Vector) -> list[Column]:
    """Return the parts of dates that vary; a year of few only if nothing else does."""
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


# -- what is left out ----------------------------------------------------------------------------


def _constant(look: Look) -> Found | None:
    if not look.free or len(look.seen) > MOST_LEVELS:
        return None
    seen, counts = np.unique(look.looked_at, return_counts=True)
    others = int((look.known != seen[counts.argmax()]).sum())
    if others == 0:
        return look.dropped("constant", "it has one value")
    if len(look.known) < SOME or others > max(1, look.n // _RARE):
        return None
    return look.dropped("constant", f"all but {others} of {look.n:,} values are the same")


def _target(look: Look) -> Found | None:
    told = look.called(TARGET) or (look.last and look.called(LAST_TARGET))
    few = len(look.seen) <= MOST_LEVELS and (look.whole or look.number_form is None)
    if not (told and few and look.free):
        return None
    return look.dropped("target", "by its name it is the answer, to compare clusters with")


def _row_number(look: Look) -> Found | None:
    if not look.may_number_rows:
        return None
    low, high = look.range
    # Ranks are numbers from 1 on as well, but hardly ever in the order of the rows.
    called = not look.table.named or look.called(INDEX) or look.called(IDENTIFIER)
    numbers = low in (0.0, 1.0) and high - low == look.n - 1 and (called or look.in_order)
    sampled = SOME <= look.n < look.table.n_rows and low >= 0.0 and high <= look.table.n_rows
    if not (numbers or sampled):
        return None
    return look.dropped("identifier", "it numbers the rows", names_rows=True)


def _counter(look: Look) -> Found | None:
    if look.n < SOME or not (look.may_number_rows and look.in_order):
        return None
    low, high = look.range
    if _YEARS[0] <= low and high <= _YEARS[1] and look.called(YEAR):
        return None
    return look.dropped("identifier", "it counts the rows", names_rows=True)


def _index(look: Look) -> Found | None:
    if not (look.may_number_rows and look.called(INDEX)):
        return None
    return look.dropped("identifier", "by its name it numbers the rows", names_rows=True)


def _number_that_identifies(look: Look) -> Found | None:
    if not (look.free and look.whole):
        return None
    told = look.called(IDENTIFIER)
    nearly = look.n >= SOME and len(look.seen) > _NEARLY_ALL * len(look.looked_at)
    if not told and not (nearly and look.called(NUMBERED)):
        return None
    if nearly or len(look.seen) > MOST_LEVELS or (look.different and look.n >= FEW):
        why = "by its name it identifies, and measures nothing"
        return look.dropped("identifier", why, names_rows=look.different)
    if look.n < SOME or 2 * len(look.seen) > look.n:
        return None
    levels = tuple(int(value) for value in look.seen)
    return _category(look, "category", levels, f"{len(levels)} codes")


# -- numbers -------------------------------------------------------------------------------------


def _cycle(look: Look) -> Found | None:
    """Return months, hours or weekdays by their number."""
    if not (look.table.cycles and look.free and look.whole) or look.number_form:
        return None
    low, high = look.range
    for pattern, first, last, what in CYCLES:
        if look.called(pattern) and first <= low and high <= last:
            levels = tuple(range(first, last + 1))
            column = Column(look.name, "category", look.source, levels, role="angle")
            return look.used("angle", USED, f"{what}s, as categories", column)
    return None


def _few_values(look: Look) -> Found | None:
    """Return two whole numbers, as 1 and 2 for the sexes, and few with decimals, as categories.

    0.5, 2.5, 6 and 9 years are classes or settings.  As measurements each would be a cluster: the
    density of a Gaussian at a value that is repeated has no limit.
    """
    values = look.seen
    if not (look.table.cycles and look.free) or look.number_form is None or look.n < SOME:
        return None
    if look.whole:
        few = len(values) == 2 and look.range != (0.0, 1.0)
    else:
        few = len(values) <= min(_MOST_ORDERED, look.n // _ROWS_A_VALUE)
    if not (few and np.isin(look.known, values).all()):
        return None
    # Of one type, as columns of a frame are.
    levels = tuple(map(int, values)) if look.whole else tuple(map(float, values))
    why = f"{levels[0]} or {levels[1]}" if look.whole else f"{len(levels)} numbers"
    form = look.number_form
    column = Column(look.name, "category", look.source, levels, form=form, role="category",
                    unit=look.unit)  # fmt: skip
    return look.used("category", READ if form else USED, why, column)


def _number(look: Look) -> Found | None:
    if look.number_form is None:
        return None
    role = next((role for role, is_so in _ROLES if is_so(look)), "number")
    low, high = look.range
    why = "0 or 1" if role == "category" else f"{low:.6g} to {high:.6g}"
    # Codes below 0 are still among the numbers, which counts would refuse.
    kind: Kind = "count" if role == "count" and not (look.numbers < 0.0).any() else "real"
    form = look.number_form
    column = Column(look.name, kind, look.source, form=form, role=role, unit=look.unit)
    return look.used(role, READ if look.number_form else USED, why + look.among, column)


def _is_truth(look: Look) -> bool:
    return look.range == (0.0, 1.0) and len(look.seen) == 2


def _is_count(look: Look) -> bool:
    """Whether numbers are taken for counts.

    A mixture of Poisson variables varies by its mean at least; a sample of one by less than two
    standard deviations of that ratio, √(2/n), below.  Ages, grades and ratings vary less.
    """
    values = look.looked_at
    typed = look.source == "int" or look.n < len(look.raw.values)  # gaps turn integers into floats
    if not (typed and look.whole) or look.range[0] < 0.0 or np.median(values) > MOST_COUNTED:
        return False
    if look.on_a_scale:
        return False
    least = (1.0 - 2.0 * math.sqrt(2.0 / len(values))) * values.mean()
    return bool(values.var() >= least)


def _is_ordinal(look: Look) -> bool:
    return look.whole and (len(look.seen) <= _MOST_ORDERED or look.range in look.table.scales)


def _is_direction(look: Look) -> bool:
    low, high = look.range
    return look.called(DIRECTION) and low >= 0.0 and 180.0 < high <= 360.0


def _is_skewed(look: Look) -> bool:
    if look.range[0] <= 0.0 or len(look.seen) <= _MOST_ORDERED:
        return False
    skewed = skewness(look.looked_at)
    logarithms = abs(skewness(np.log(look.looked_at)))
    return skewed > _SKEWED and logarithms < 0.5 * skewed


_ROLES: tuple[tuple[str, Callable[[Look], bool]], ...] = (
    ("category", _is_truth),
    ("count", _is_count),
    ("ordinal", _is_ordinal),
    ("angle", _is_direction),
    ("skewed", _is_skewed),
)


# -- levels and texts ----------------------------------------------------------------------------


def _truth(look: Look) -> Found | None:
    if look.raw.source == "bool":
        return _category(look, "binary", (False, True), "yes or no")
    if look.raw.source != "text" or not cells.are_truths(look.texts):
        return None
    column = Column(look.name, "binary", "bool", (False, True), form=TRUTH, role="category")
    return look.used("category", READ, "yes or no", column)


def _levels(look: Look) -> Found | None:
    n, n_levels = look.n, look.n_levels
    top = np.sort(look.counts)[::-1][: MOST_LEVELS - 1].sum()
    repeat = 2 * n_levels <= n or n_levels < n < SOME or n < FEW
    fits = repeat and (n_levels <= MOST_LEVELS or top >= _SHARE * n)
    declared = look.raw.source == "categorical"
    return (
        _category(look, "category", look.levels, "") if fits or declared or not look.free else None
    )


def _free_text(look: Look) -> Found | None:
    texts = [str(text) for text in look.raw.uniques or ()]
    words = np.mean([1.0 + text.count(" ") for text in texts])
    if words <= _WORDS and np.mean([len(text) for text in texts]) <= _LONG:
        return None
    return look.dropped("text", "free text (--text clusters by the words of one column)")


def _names(look: Look) -> Found:
    n, n_levels = look.n, look.n_levels
    if n_levels > _NEARLY_ALL * n or look.called(IDENTIFIER):
        why = f"{n_levels:,} of {n:,} values differ{look.among}"
        return look.dropped("identifier", why, n_levels == len(look.raw.values) >= FEW)
    return look.dropped("text", f"names: {n_levels:,} in {n:,} values{look.among}")


def _category(look: Look, kind: Kind, levels: tuple[Level, ...], why: str) -> Found:
    """Return levels as they are, or the most frequent ones and "other"."""
    raw, form = look.raw, ""
    if kind == "category" and len(levels) > MOST_LEVELS:
        why = (
            f"{len(levels):,} levels{look.among}, of which {MOST_LEVELS - 1} are kept and the rest"
            f" is {OTHER!r}"
        )
        levels, form, look.changed = _most_frequent(look, levels), OTHER, True
    elif kind == "category" and raw.source == "text" and look.among and (look.counts == 1).any():
        # Rows that are not in the sample have further levels, about as many as it has once
        # (Good 1953).
        levels, form = tuple(dict.fromkeys([*levels, OTHER])), OTHER
    role = "ordinal" if raw.ordered else "category"
    column = Column(look.name, kind, raw.source, levels, form=form, role=role)
    return look.used(role, USED, why or f"{len(levels)} levels", column)


def _most_frequent(look: Look, levels: tuple[Level, ...]) -> tuple[Level, ...]:
    codes, _ = Column(look.name, "category", look.raw.source, levels).encode(look.raw)
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=len(levels))
    order = [k for k in np.argsort(-counts, kind="stable") if levels[k] != OTHER]
    return (*(levels[k] for k in sorted(order[: MOST_LEVELS - 1])), OTHER)


RULES: tuple[Callable[[Look], Found | None], ...] = (
    _drop, _nested, _empty, _said_number, _said_levels,
    _date, _constant, _target, _row_number, _counter, _index, _number_that_identifies,
    _cycle, _few_values, _number, _truth, _levels, _free_text, _names,
)  # fmt: skip
