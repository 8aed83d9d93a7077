"""Texts in cells that stand for numbers with signs and units, dates, yes or no, or gaps.

Each rule uses the different texts of a column and how often they occur.  A column is read as
numbers or dates if at least 95 % of its values are; the others are then missing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np

from dpsearch._types import Ints, Vector
from dpsearch._validate import LARGEST

# Texts that stand for a missing value in every column, in any case of letters ...
MISSING = frozenset(
    ["", "na", "n/a", "nan", "null", "#n/a", "<na>", "?", "-", "--", ".", "not available"]
)
# ... and those that do so among numbers and dates, but are a level among categories.
UNKNOWN = frozenset(["none", "unknown", "missing", "unk", "nil", "tbd", "not known", "inf", "-inf"])
TRUTHS = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"))
_MOST_WRONG = 0.05  # the largest share of other values in a column of numbers
# How numbers are written: with which separator of thousands, and which decimal sign.
POINT, COMMA = "1,234.5", "1.234,5"
_GROUPS = {
    POINT: re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?|\d+\.?\d*|\.\d+"),
    COMMA: re.compile(r"\d{1,3}(\.\d{3})+(,\d*)?|\d+,?\d*|,\d+"),
}
_NUMBER = re.compile(
    r"(?P<open>\()?(?P<sign>[+\-−])?\s?"
    r"(?P<money>[$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY|INR)(?=[\s\d+-]))?\s?"
    r"(?P<minus>[+\-−])?(?P<digits>\d{1,3}(?:[\s'’]\d{3})+(?:[.,]\d*)?|[\d.,]+)"
    r"(?P<power>[eE][+-]?\d{1,3})?"
    r"\s?(?P<unit>%|[$€£¥₹°]\w?|[^\W\d_][^\W\d_/²³.]{0,9}(?:/\w{1,6})?)?\)?"
)
_CODE = re.compile(r"[+-]?0\d+|\d{16,}")  # digits that are not a quantity: 007, card numbers
_PREFIXED = re.compile(r"[mM](?:[WVAJNFHKBg]|Hz|Pa|Wh|eV)")  # units with the prefix m or M
_TIMES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9}
_DAYS = (
    "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y",
    "%d.%m.%y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%y",
    "%d-%b-%Y", "%b-%d-%Y", "%a %b %d %Y", "%b %Y", "%B %Y", "%Y-%m", "%Y/%m",
)  # fmt: skip
_HOURS = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")
ISO = "ISO 8601"
_FORMATS = (ISO, *_DAYS, *(" ".join(both) for both in product(_DAYS, _HOURS)), *_HOURS)
_HEAD = 20  # texts in which a format is recognised
_LONGEST_DATE = 40  # characters
_EPOCH = datetime(1970, 1, 1)

Reader = Callable[[Any], float]


def is_missing(text: str) -> bool:
    return text.casefold() in MISSING


def is_code(text: str) -> bool:
    """Whether digits are a code, not a number: 007, or longer than numbers are."""
    return _CODE.fullmatch(text) is not None


def number_reader(form: str, unit: str = "") -> Reader:
    """Return a function that reads numbers written in a form, and returns NaN for other texts.

    A number without a unit is in `unit`; one with another unit is not read.
    """
    groups, thousands, decimal = _GROUPS[form], form[1], form[5]
    units = ("", _singular(unit)) if unit else None

    def read(text: Any) -> float:
        if not isinstance(text, str):
            return _plain(text)
        match = _NUMBER.fullmatch(text)
        if match is None or is_code(text):
            return math.nan
        digits = _digits(match)
        if not groups.fullmatch(digits) or (units and _singular(_unit(match)) not in units):
            return math.nan
        digits = digits.replace(thousands, "").replace(decimal, ".")
        value = float(digits + (match["power"] or "")) * _TIMES.get(match["unit"] or "", 1.0)
        minus = match["open"] or any(match[sign] in ("-", "−") for sign in ("sign", "minus"))
        return (-value if minus else value) if value <= LARGEST else math.nan

    return read


def _unit(match: re.Match[str]) -> str:
    """Return the currency or the unit of a number; "" if it has none, or a multiplier such as k."""
    unit = match["money"] or match["unit"] or ""
    return "" if unit in _TIMES else unit


def _singular(unit: str) -> str:
    """Return a unit in lower case and the singular: "day" for Days, "lb" for LBS.

    The M of mega is kept, since MW and mW differ.
    """
    lower = unit.casefold()
    if _PREFIXED.fullmatch(unit):
        return unit[0] + lower[1:]
    return lower.removesuffix("s") if len(lower) > 2 else lower


def _digits(match: re.Match[str]) -> str:
    return re.sub(r"[\s'’]", "", match["digits"])


def _plain(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def number_form(texts: Sequence[str], counts: Ints) -> str | None:
    """Return the form in which the texts of a column are numbers; None if they are not."""
    known = [(text, int(n)) for text, n in zip(texts, counts) if text.casefold() not in UNKNOWN]
    units: Counter[str] = Counter()
    decisive: Counter[str] = Counter()
    for text, n in known:
        match = _NUMBER.fullmatch(text)
        if match is None:
            continue
        units[_singular(_unit(match))] += n
        form = _form_of(_digits(match))
        if form is not None:
            decisive[form] += n
    named = {unit: n for unit, n in units.items() if unit}
    if not units or sum(named.values()) > (1.0 + _MOST_WRONG) * max(named.values(), default=0):
        return None  # because there are several units
    form = decisive.most_common(1)[0][0] if decisive else POINT
    return form if _suffice(number_reader(form), known) else None


def unit_of(texts: Sequence[str], counts: Ints) -> str:
    """Return the most frequent unit or currency of a column; "" if there is none."""
    written: Counter[str] = Counter()
    for text, n in zip(texts, counts):
        match = _NUMBER.fullmatch(text)
        if match is not None and _unit(match):
            written[_unit(match)] += int(n)
    units: Counter[str] = Counter()
    for unit, n in written.items():
        units[_singular(unit)] += n
    best = max(units, key=units.__getitem__, default="")
    return next((unit for unit, _ in written.most_common() if _singular(unit) == best), "")


def _form_of(digits: str) -> str | None:
    """Return the form that a number by itself must have; None if both are possible."""
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        return POINT if digits.rfind(".") > digits.rfind(",") else COMMA
    if points + commas == 0:
        return None
    sign, own, other = (".", POINT, COMMA) if points else (",", COMMA, POINT)
    if points + commas > 1:
        return other
    return own if len(digits) - digits.rfind(sign) != 4 or digits.startswith("0") else None


def _suffice(read: Reader, known: Sequence[tuple[str, int]]) -> bool:
    total = sum(n for _, n in known)
    wrong = sum(n for text, n in known if math.isnan(read(text)))
    return total > 0 and wrong <= _MOST_WRONG * total


def date_reader(form: str) -> Reader:
    """Return a function that reads dates as seconds since 1970, and returns NaN for other texts.

    Dates in ISO 8601 are read under every format, since they are unambiguous.
    """
    readers = [datetime.fromisoformat]
    if form != ISO:
        readers.insert(0, lambda text: datetime.strptime(text, form))

    def read(text: Any) -> float:
        for reader in readers:
            try:
                return (reader(text).replace(tzinfo=None) - _EPOCH).total_seconds()
            except (TypeError, ValueError):
                pass
        return math.nan

    return read


def date_form(texts: Sequence[str], counts: Ints) -> str | None:
    """Return the format in which the texts of a column are dates; None if they are not."""
    known = [(text, int(n)) for text, n in zip(texts, counts) if text.casefold() not in UNKNOWN]
    head = [text for text, _ in known[:_HEAD]]
    if not head or not all(_may_be_date(text) for text in head[:3]):
        return None
    for form in _FORMATS:
        read = date_reader(form)
        if not math.isnan(read(head[0])) and _suffice(read, known):
            return form
    return None


def _may_be_date(text: str) -> bool:
    return len(text) <= _LONGEST_DATE and any(c.isdigit() for c in text) and not text.isdigit()


def truth_reader(text: Any) -> float:
    """Return 1 for yes, 0 for no, and NaN for anything else."""
    if not isinstance(text, str):
        return float(text) if text in (0, 1) else math.nan
    lower = text.casefold()
    return next((float(pair.index(lower)) for pair in TRUTHS if lower in pair), math.nan)


def are_truths(texts: Sequence[str]) -> bool:
    """Whether texts are yes and no, or one of them."""
    return {text.casefold() for text in texts} in [{*pair} for pair in TRUTHS]


# -- parts of dates -----------------------------------------------------------------------------

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS = tuple(str(hour) for hour in range(24))
PARTS: dict[str, tuple[str, ...] | None] = {
    "year": None, "month": MONTHS, "weekday": WEEKDAYS, "hour": HOURS,
}  # fmt: skip


def part_of_date(seconds: Vector, part: str) -> Vector:
    """Return the year of dates, or the code of their month, weekday or hour."""
    out = np.full(len(seconds), math.nan)
    known = ~np.isnan(seconds)
    whole = np.floor(seconds[known]).astype(np.int64)
    if part == "hour":
        out[known] = whole // 3600 % 24
    elif part == "weekday":
        out[known] = (whole // 86400 + 3) % 7
    else:
        dates = whole.astype("datetime64[s]")
        months = dates.astype("datetime64[M]").astype(np.int64)
        out[known] = months // 12 + 1970 if part == "year" else months % 12
    return out


def date_texts(seconds: Vector) -> list[str]:
    """Return dates as texts, with the time of day unless all are at midnight; "–" if missing.

    >>> date_texts(np.array([0.0, np.nan])), date_texts(np.array([0.0, 3660.0]))
    (['1970-01-01', '–'], ['1970-01-01 00:00', '1970-01-01 01:01'])
    """
    known = ~np.isnan(seconds)
    form = "datetime64[D]" if (seconds[known] % 86400 == 0).all() else "datetime64[m]"
    whole = np.where(known, seconds, 0.0).astype(np.int64).astype("datetime64[s]")
    texts = whole.astype(form).astype(str).tolist()
    return [text.replace("T", " ") if is_so else "–" for text, is_so in zip(texts, known)]


def days_vary(seconds: Vector) -> bool:
    """Whether dates fall on different days of the month; if not, weekdays mean nothing."""
    days = np.floor(seconds).astype(np.int64).astype("datetime64[s]").astype("datetime64[D]")
    of_month = (days - days.astype("datetime64[M]")).astype(np.int64)
    return bool((of_month != of_month[0]).any())
