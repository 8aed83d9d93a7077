"""Triage: what each column of a table is, what is made of it, and why.

The rules, in their order; none of them stops a run, and `kinds` overrides all of them.

nested      lists, dictionaries and other objects: dropped
constant    no value, one value, or one value in all but one of 1,000 rows: dropped
number      texts of which 95 % are numbers, with signs, separators and units: read; others missing
date        types of dates, and texts of which 95 % are such: year, month, weekday and hour, those
            that vary; month, weekday and hour as categories, since December is next to January
target      few values in a column whose name says that it is the answer: dropped
identifier  integers that number the rows, or many different under such a name as customer_id;
            texts of which nearly all differ: dropped
category    texts of at most half as many values as rows, of which the 50 most frequent make up half
            the rows; of more levels the rarest are "other"
text        other texts, which are names or free texts: dropped
copy        the same values as a column before, or other names for them: dropped
count       integers from 0, half of them at most 30, with a variance of at least their mean
ordinal     other integers of at most 10 values, and categories in an order that their type gives
angle       months, hours and weekdays by name and range, directions from 0 to 360
skewed      numbers above 0 whose logarithms are far less skewed than they are
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Vector
from dpsearch.errors import DataError, ParameterError
from dpsearch.tables import cells
from dpsearch.tables.columns import KINDS, OTHER, TRUTH, Column, Kind, Level, RawColumn
from dpsearch.tables.copies import copies
from dpsearch.tables.entries import DROPPED, PARTS, READ, USED, Entry, Triage
from dpsearch.tables.frames import distinct_names

# What a user may say of a column: its kind, that it is a date, or whether it is used.
SAID = (*KINDS, "date", "keep", "drop")
MOST_LEVELS = 50  # of a category; the rest is "other"
MOST_COUNTED = 30  # the median of integers up to which they are taken for counts
_LOOKED_AT = 10_000  # rows by which numbers are judged
_SOME = 20  # rows from which on values are not different, or alike, by chance
_FEW = 5  # the same of integers from 0 or 1 without a gap, and of texts
_NEARLY_ALL = 0.9  # of texts that are different
_SHARE = 0.5  # of the values that the most frequent levels make up
_RARE = 1000  # rows, of which one may differ in a column that is called constant
_MOST_ORDERED = 10  # different values of integers that are grades
_SKEWED = 2.0  # standardised third moment
_WORDS, _LONG = 3.0, 30.0  # words and characters of texts that are sentences, on average
_YEARS = (1500.0, 2100.0)
_ID = re.compile(
    r"(?i:(^|[\s_.-])(id|ids|uuid|guid|zip|zipcode|postcode|postal.?code|phone|ssn|isbn|e-?mail)$"
    r"|^id[\s_.-])|[a-z]I[Dd]$"
)
_INDEX = re.compile(r"(?i)(unnamed: 0|column 0|__index_level_0__|index|row.?names?|row|key)")
_TARGET = re.compile(r"(?i)target|labels?|ground.?truth|y_true|clusters?")
_LAST_TARGET = re.compile(r"(?i)class")
_CYCLES = (
    (re.compile(r"(?i)(^|.*[\s_.])(month|mo|mon)"), 1, 12, "month"),
    (re.compile(r"(?i)(^|.*[\s_.])(hour|hr)"), 0, 23, "hour"),
    (re.compile(r"(?i)(^|.*[\s_.])(weekday|dow|day.?of.?week)"), 0, 6, "weekday"),
    (re.compile(r"(?i)(^|.*[\s_.])(weekday|dow|day.?of.?week)"), 1, 7, "weekday"),
)
_DIRECTION = re.compile(r"(?i).*(angle|bearing|azimuth|direction|heading|(^|[\s_.])dir)")


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
            raise ParameterError(
                f"kinds names the column {name!r}, which X does not have", parameter="kinds"
            )
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
    """
    kinds = {} if kinds is None else kinds
    table = _Table(n_rows or len(raws[0].values), named, cycles)
    found: list[_Found] = []
    for j, (name, raw) in enumerate(zip(names, raws, strict=True)):
        said = kinds.get(name, "keep" if keep else None)
        found.append(_Look(name, raw, said, 0 < j == len(names) - 1, table).found())
    if not any(one.columns for one in found):  # better a poor column than none
        for j, (name, raw) in enumerate(zip(names, raws, strict=True)):
            if kinds.get(name) != "drop":
                found[j] = _Look(name, raw, "keep", False, table).found()
    if not any(one.columns for one in found):
        reasons = "; ".join(f"{one.entry.name!r}: {one.entry.reason}" for one in found[:5])
        raise DataError(f"no column is left to cluster by ({reasons})")
    kept = {*names} if keep else {*kinds}
    vectors = [[column.encode(raw)[0] for column in one.columns]
               for one, raw in zip(found, raws, strict=True)]  # fmt: skip
    for j, first in copies(vectors, MOST_LEVELS).items():
        entry = found[j].entry
        if entry.name not in kept:
            why = f"it says the same as {found[first].entry.name!r}"
            found[j] = _Found(entry._replace(role="copy", treatment=DROPPED, reason=why))
            vectors[j] = []
    return Decided(
        Triage(tuple(one.entry for one in found)),
        _named_apart([column for one in found for column in one.columns]),
        [vector for own in vectors for vector in own],
        _index(found),
    )


@dataclass
class _Found:
    entry: Entry
    columns: tuple[Column, ...] = ()
    names_rows: bool = False  # whether no two values are the same


def _index(found: list[_Found]) -> str | None:
    """Return the first column if it names the rows, otherwise the first of texts that does."""
    naming = [one.entry.name for one in found if one.names_rows]
    return naming[0] if naming else None


class _Table(NamedTuple):
    """What is known of the whole table."""

    n_rows: int
    named: bool
    cycles: bool


class _Look:
    """A look at one column."""

    def __init__(
        self, name: str, raw: RawColumn, said: str | None, last: bool, table: _Table
    ) -> None:
        self.name, self.raw, self.said, self.last = name, raw, said, last
        self.n_rows, self.named, self.cycles = table
        self.free = said is None
        self.n = int((~np.isnan(raw.values)).sum())
        self.notes: list[str] = []
        gaps = len(raw.values) - self.n - raw.n_infinite
        if gaps:
            self.notes.append(f"{gaps:,} missing")
        if raw.n_infinite:
            self.notes.append(f"{raw.n_infinite:,} not finite, taken as missing")

    def found(self) -> _Found:
        raw = self.raw
        if self.said == "drop":
            return self._dropped("number" if raw.uniques is None else "category", "as you say")
        if raw.source == "nested":
            return self._dropped("nested", "it holds lists or other objects")
        if not self.n:
            return self._dropped("constant", "it has no values")
        if self.said in KINDS or self.said == "date":
            return self._as_said(str(self.said))
        if raw.source == "date":
            return self._date("")
        if raw.uniques is None:
            return self._number(raw, cells.POINT if raw.n_infinite else "")
        if raw.source == "text":
            return self._text()
        if raw.source == "bool":
            return self._category("binary", (False, True), "yes or no")
        return self._levels()

    # -- what comes of it -----------------------------------------------------------------------

    def _dropped(self, role: str, why: str, names_rows: bool = False) -> _Found:
        reason = "; ".join([why, *self.notes])
        return _Found(Entry(self.name, role, DROPPED, reason), (), names_rows)

    def _used(self, role: str, treatment: str, why: str, *columns: Column) -> _Found:
        reason = "; ".join(part for part in (why, *self.notes) if part)
        return _Found(Entry(self.name, role, treatment, reason), columns)

    def _alike(self, largest: int, n_different: int) -> _Found | None:
        """Return that the column is constant, or nearly so, if it is."""
        others = self.n - largest
        if not self.free or others > (max(1, self.n // _RARE) if self.n >= _SOME else 0):
            return None
        if n_different == 1:
            return self._dropped("constant", "it has one value")
        return self._dropped("constant", f"all but {others} of {self.n:,} values are the same")

    def _answer(self, n_different: int) -> _Found | None:
        name = self.name.strip()
        told = _TARGET.fullmatch(name) or (self.last and _LAST_TARGET.fullmatch(name))
        if not told or not self.free or not self.named or n_different > MOST_LEVELS:
            return None
        return self._dropped("target", "by its name it is the answer, to compare clusters with")

    # -- what the user says ---------------------------------------------------------------------

    def _as_said(self, kind: str) -> _Found:
        raw, name = self.raw, self.name
        if kind == "date":
            form = self._form(cells.date_form)
            if raw.source != "date" and form is None:
                raise DataError("{place} of X does not hold dates", column=name)
            return self._date(form or "")
        if kind in ("real", "count"):
            form = "" if raw.uniques is None else self._form(cells.number_form) or cells.POINT
            if raw.source == "bool":
                form = ""
            unit, role = cells.unit_of(raw.uniques or ()), _ROLE_OF[kind]
            column = Column(name, kind, raw.source, form=form, role=role, unit=unit)  # type: ignore[arg-type]
            values, unseen = column.encode(raw)
            if unseen is not None and (kind == "count" or np.isnan(values).all()):
                raise column.refused(unseen)
            return self._used(column.role, READ if form else USED, "as you say", column)
        levels = self._all_levels()
        if kind == "binary" and len(levels) > 2:
            raise DataError(
                f"{{place}} of X is not binary: it has {len(levels)} levels", column=name
            )
        return self._category("binary" if kind == "binary" else "category", levels, "as you say")

    def _form(self, form_of: Callable[..., str | None]) -> str | None:
        texts = self.raw.uniques
        if texts is None or not all(isinstance(text, str) for text in texts):
            return None
        return form_of(texts, self._counts())

    def _counts(self) -> Any:
        codes = self.raw.values[~np.isnan(self.raw.values)].astype(np.int64)
        return np.bincount(codes, minlength=len(self.raw.uniques or ()))

    def _all_levels(self) -> tuple[Level, ...]:
        raw = self.raw
        if raw.uniques is None:
            seen = np.unique(raw.values[~np.isnan(raw.values)]).tolist()
            return tuple(int(value) if raw.source == "int" else value for value in seen)
        texts = raw.source == "text" or len(raw.uniques) != len({*map(str, raw.uniques)})
        return tuple(sorted(map(str, raw.uniques))) if texts else raw.uniques

    # -- texts ----------------------------------------------------------------------------------

    def _text(self) -> _Found:
        texts = self.raw.uniques or ()
        if cells.are_truths(texts):
            column = Column(self.name, "binary", "bool", (False, True), form=TRUTH, role="category")
            return self._used("category", READ, "yes or no", column)
        form = self._form(cells.number_form)
        if form is not None:
            return self._number(self._read(cells.number_reader(form), "numbers"), form)
        form = self._form(cells.date_form)
        if form is not None:
            self._read(cells.date_reader(form), "dates")
            return self._date(form)
        return self._levels()

    def _read(self, read: Any, what: str) -> RawColumn:
        """Return the texts as numbers, and note what they looked like."""
        texts, values = self.raw.uniques or (), self.raw.map(read)
        known = ~np.isnan(values)
        other = np.flatnonzero(~known & ~np.isnan(self.raw.values))
        example = texts[int(self.raw.values[known][0])]
        self.notes.insert(0, f"read as {what}, as in {example!r}")
        if len(other):
            first = texts[int(self.raw.values[other[0]])]
            self.notes.append(f"{len(other):,} others, as {first!r}, taken as missing")
        whole = bool((np.floor(values[known]) == values[known]).all())
        return RawColumn("int" if whole else "float", values)

    def _levels(self) -> _Found:
        """Return a category, or that the texts are names or sentences."""
        counts, texts = self._counts(), self.raw.uniques or ()
        n_different = int((counts > 0).sum())
        found = self._alike(int(counts.max()), n_different) or self._answer(n_different)
        if found is not None:
            return found
        declared = self.raw.source == "categorical"
        top = np.sort(counts)[::-1][: MOST_LEVELS - 1].sum()
        repeat = 2 * n_different <= self.n or (n_different < self.n < _SOME) or self.n < _FEW
        fits = repeat and (n_different <= MOST_LEVELS or top >= _SHARE * self.n)
        if fits or declared or not self.free:
            return self._category("category", self._all_levels(), "")
        lengths = [len(str(text)) for text in texts]
        words = np.mean([1.0 + str(text).count(" ") for text in texts])
        if words > _WORDS or np.mean(lengths) > _LONG:
            return self._dropped("text", "free text (--text clusters by the words of one column)")
        if n_different > _NEARLY_ALL * self.n or (self.named and _ID.search(self.name)):
            return self._dropped(
                "identifier", f"{n_different:,} of {self.n:,} values differ",
                n_different == len(self.raw.values) >= _FEW,
            )  # fmt: skip
        return self._dropped("text", f"names: {n_different:,} in {self.n:,} values")

    def _category(self, kind: Kind, levels: tuple[Level, ...], why: str) -> _Found:
        raw, form = self.raw, ""
        if kind == "category" and len(levels) > MOST_LEVELS:
            levels, why, form = self._most_frequent(levels), f"{len(levels):,} levels", OTHER
            why += f", of which {len(levels) - 1} are kept and the rest is {OTHER!r}"
        elif kind == "category" and raw.source == "text" and self._unseen_remain():
            levels, form = tuple(dict.fromkeys([*levels, OTHER])), OTHER
        role = "ordinal" if raw.ordered else "category"
        column = Column(self.name, kind, raw.source, levels, form=form, role=role)
        return self._used(role, USED, why or f"{len(levels)} levels", column)

    def _most_frequent(self, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        counts = np.bincount(
            Column(self.name, "category", self.raw.source, levels)
            .encode(self.raw)[0][~np.isnan(self.raw.values)]
            .astype(np.int64),
            minlength=len(levels),
        )
        order = [k for k in np.argsort(-counts, kind="stable") if levels[k] != OTHER]
        return (*(levels[k] for k in sorted(order[: MOST_LEVELS - 1])), OTHER)

    def _unseen_remain(self) -> bool:
        """Whether the rows that are not in the sample may have further levels.

        The share of these is about that of the levels seen once (Good 1953).
        """
        return len(self.raw.values) < self.n_rows and bool((self._counts() == 1).any())

    # -- numbers --------------------------------------------------------------------------------

    def _number(self, raw: RawColumn, form: str) -> _Found:
        values = raw.values[~np.isnan(raw.values)]
        if len(values) > _LOOKED_AT:
            values = values[:: -(-len(values) // _LOOKED_AT)]
        seen, counts = np.unique(values, return_counts=True)
        whole = bool((np.floor(seen) == seen).all())
        largest = int(counts.max()) + self.n - len(values)
        found = None
        if len(seen) <= MOST_LEVELS:
            found = self._alike(largest, len(seen)) if _same(raw, values, counts) else None
            found = found or (self._answer(len(seen)) if whole else None)
        if found is None and whole and self.free:
            found = self._identifier(raw, seen, len(values))
        if found is None and whole:
            found = self._cycle(seen, raw.source, form)
        if found is not None:
            return found
        role = self._role(raw, values, seen, whole)
        kind: Kind = "count" if role == "count" else "real"
        unit = cells.unit_of(self.raw.uniques or ())
        column = Column(self.name, kind, raw.source, form=form, role=role, unit=unit)
        return self._used(role, READ if form else USED, f"{seen[0]:.6g} to {seen[-1]:.6g}", column)

    def _role(self, raw: RawColumn, values: Vector, seen: Vector, whole: bool) -> str:
        counted = whole and (raw.source == "int" or self.n < len(raw.values))
        if counted and seen[0] >= 0.0 and are_counts(values):
            return "count"
        if whole and len(seen) <= _MOST_ORDERED:
            return "ordinal"
        within = seen[0] >= 0.0 and 180.0 < seen[-1] <= 360.0
        if self.named and within and _DIRECTION.fullmatch(self.name.strip()):
            return "angle"
        if seen[0] > 0.0 and len(seen) > _MOST_ORDERED:
            skewness = _skewness(values)
            if skewness > _SKEWED and abs(_skewness(np.log(values))) < 0.5 * skewness:
                return "skewed"
        return "number"

    def _identifier(self, raw: RawColumn, seen: Vector, n_looked: int) -> _Found | None:
        n, name = self.n, self.name.strip()
        different = len(seen) == n_looked and n == len(raw.values)
        values = raw.values
        # Ranks are numbers from 1 on as well, but hardly ever in the order of the rows.
        called_so = not self.named or _INDEX.fullmatch(name) or _ID.search(name)
        placed = called_so or (different and bool((np.diff(values) == 1.0).all()))
        numbering = placed and different and n >= _FEW and seen[0] in (0.0, 1.0)
        if numbering and values.min() in (0.0, 1.0) and values.max() - values.min() == n - 1:
            return self._dropped("identifier", "it numbers the rows", names_rows=True)
        in_sample = different and n < self.n_rows and n >= _SOME
        if in_sample and values.min() >= 0.0 and values.max() <= self.n_rows:
            return self._dropped("identifier", "it numbers the rows", names_rows=True)
        in_order = different and n >= _SOME and bool((np.diff(values) == 1.0).all())
        years = _YEARS[0] <= seen[0] and seen[-1] <= _YEARS[1]
        if in_order and not (years and "year" in name.casefold()):
            return self._dropped("identifier", "it counts the rows", names_rows=True)
        if self.named and different and n >= _FEW and _INDEX.fullmatch(name):
            return self._dropped("identifier", "by its name it numbers the rows", names_rows=True)
        if not self.named or not _ID.search(name):
            return None
        if len(seen) > MOST_LEVELS or (different and n >= _FEW):
            why = "by its name it identifies, and measures nothing"
            return self._dropped("identifier", why, names_rows=different)
        if n >= _SOME and 2 * len(seen) <= n:
            levels = tuple(int(value) for value in seen)
            return self._category("category", levels, f"{len(levels)} codes")
        return None

    def _cycle(self, seen: Vector, source: str, form: str) -> _Found | None:
        """Return months, hours or weekdays by their number."""
        if not (self.named and self.cycles and self.free) or form:
            return None
        for pattern, first, last, what in _CYCLES:
            if pattern.fullmatch(self.name.strip()) and first <= seen[0] and seen[-1] <= last:
                levels = tuple(range(first, last + 1))
                column = Column(self.name, "category", source, levels, role="angle")
                return self._used("angle", USED, f"{what}s, as categories", column)
        return None

    # -- dates ----------------------------------------------------------------------------------

    def _date(self, form: str) -> _Found:
        raw = self.raw
        dates = raw.values if raw.source == "date" else raw.map(cells.date_reader(form))
        known = dates[~np.isnan(dates)]
        columns = []
        for part, levels in cells.PARTS.items():
            values = cells.part_of_date(known, part)
            if not len(values) or (values == values[0]).all():
                continue
            if part == "weekday" and not cells.days_vary(known):
                continue
            kind: Kind = "real" if levels is None else "category"
            role = "ordinal" if levels is None else "angle"
            columns.append(
                Column(f"{self.name} ({part})", kind, "int" if levels is None else "text", levels,
                       self.name, form, part, role)
            )  # fmt: skip
        if not columns:
            return self._dropped("constant", "all dates have the same year, month, day and hour")
        why = ", ".join(column.part for column in columns)
        return self._used("date", PARTS, why, *columns)


_ROLE_OF = {"real": "number", "count": "count"}


def _same(raw: RawColumn, values: Vector, counts: Any) -> bool:
    """Whether what few values that were looked at show holds for all of a column."""
    if len(values) == int((~np.isnan(raw.values)).sum()):
        return True
    common = values[0] if len(counts) == 1 else float(np.median(values))
    others = (raw.values != common) & ~np.isnan(raw.values)
    return int(others.sum()) <= max(1, len(raw.values) // _RARE)


def _skewness(values: Vector) -> float:
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    return 0.0 if spread == 0.0 else float((centred**3).mean()) / spread**3


def are_counts(values: Vector) -> bool:
    """Whether integers, none below zero, are taken for counts.

    A mixture of Poisson variables varies by its mean at least; a sample of one by less than two
    standard deviations of that ratio, √(2/n), below.  Ages, grades and ratings vary less.
    """
    least = (1.0 - 2.0 * math.sqrt(2.0 / len(values))) * values.mean()
    return bool(np.median(values) <= MOST_COUNTED and values.var() >= least)


def _named_apart(columns: Sequence[Column]) -> list[Column]:
    """Return columns whose names differ; a table may have a column that is called like a part."""
    names = distinct_names([column.name for column in columns])
    return [
        column if name == column.name else replace(column, name=name, origin=column.came_from)
        for column, name in zip(columns, names, strict=True)
    ]
