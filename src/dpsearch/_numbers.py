"""Numbers as texts for people: alone, as counts of something, and as values of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

_YEARS = (1500.0, 2100.0)  # a column in this range is written without separators of thousands
_RESIDUE = 1e-10  # of the largest value: smaller values are 0 up to rounding
_PLAIN = (1e-4, 1e15)  # magnitudes that are written without an exponent
_BEFORE = frozenset("$€£¥₹")  # currencies that precede the number


def brief(value: float, digits: int = 3) -> str:
    """Return a few significant digits, with separators of thousands and no needless exponent.

    >>> [brief(x) for x in (0.0, 3.14159, -1234.5, 0.000012, 2.5e7, 1e16)]
    ['0', '3.14', '−1,234', '1.2e−5', '25,000,000', '1e16']
    """
    return PLAIN.text(value, digits)


def count(n: int, what: str) -> str:
    """Return a number with what it counts.

    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def share(value: float) -> str:
    """Return a percentage, rounded to 0 or 100 only if it is exactly that.

    >>> share(0.421), share(0.9999)
    ('42\\xa0%', '99.9\\xa0%')
    """
    percent = 100.0 * value
    if 99.0 < percent < 100.0 or 0.0 < percent < 1.0:
        return f"{min(max(percent, 0.1), 99.9):.1f}\u00a0%"
    return f"{percent:.0f}\u00a0%"


class Format(NamedTuple):
    """How the numbers of a column are written, here and by the report's script."""

    unit: str = ""  # as in the table: a currency, %, kg
    years: bool = False  # whether they may be years
    tiny: float = 0.0  # smaller magnitudes are 0 up to rounding

    @classmethod
    def of(cls, values: Iterable[float], unit: str = "") -> Format:
        """Return the format of a column with these or similar values."""
        known = [float(value) for value in values if math.isfinite(value)]
        low, high = min(known, default=0.0), max(known, default=0.0)
        tiny = 0.0 if low > 0.0 or high < 0.0 else _RESIDUE * max(-low, high)
        return cls(unit, _YEARS[0] <= low and high <= _YEARS[1], tiny)

    def text(self, value: float, digits: int = 3, size: float | None = None) -> str:
        """Return a value with `digits` digits, or rounded like a number of magnitude `size`.

        >>> Format("$").text(-1234.5), Format("%").text(12.0), Format(years=True).text(2008.31)
        ('−$1,234', '12\\xa0%', '2008')
        """
        if not math.isfinite(value):
            return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
        text = "0" if abs(value) < self.tiny else self._digits(abs(value), digits, size)
        before, after = (self.unit, "") if self.unit in _BEFORE else ("", self.unit)
        minus = "−" if value < 0.0 and text != "0" else ""
        return f"{minus}{before}{text}" + (f"\u00a0{after}" if after else "")

    def distinct(self, *values: float) -> list[str]:
        """Return values with as many digits as distinguish them.

        That is one digit more than the first in which they differ, and at least three.

        >>> Format().distinct(112345.0, 98001.0), Format().distinct(5.006, 5.0)
        (['112,000', '98,000'], ['5.006', '5'])
        """
        known = [float(value) for value in values if math.isfinite(value)]
        size = max(map(abs, known), default=0.0)
        difference = max(known, default=0.0) - min(known, default=0.0)
        digits = max(3, _order(size) - _order(difference) + 2) if difference > self.tiny else 3
        if self.years and len({*map(round, known)}) == len(known):
            digits = 4  # years that differ need no decimals
        return [self.text(value, min(digits, 15), size) for value in values]

    def _digits(self, value: float, digits: int, size: float | None) -> str:
        if value == 0.0:
            return "0"
        if not _PLAIN[0] <= (size or value) < _PLAIN[1]:
            mantissa, _, power = f"{value:.{digits}g}".partition("e")
            return f"{mantissa}e{int(power)}".replace("-", "−") if power else mantissa
        decimals = digits - 1 - _order(size or value)
        if size:
            value = round(value, decimals)
        decimals = max(decimals, 0)
        text = f"{value:.{decimals}f}" if self.years else f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text


PLAIN = Format()


def _order(size: float) -> int:
    """Return the order of magnitude: 0 for ones, 1 for tens."""
    return math.floor(math.log10(size)) if size > 0.0 else 0
