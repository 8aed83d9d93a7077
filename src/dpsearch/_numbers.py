"""Numbers as people read them."""

from __future__ import annotations

import math


def brief(value: float, digits: int = 3) -> str:
    """A few significant digits, with thousands set apart and no needless exponent.

    >>> [brief(x) for x in (0.0, 3.14159, -1234.5, 0.000012, 2.5e7, 1e16)]
    ['0', '3.14', '−1,234', '1.2e−5', '25,000,000', '1e16']
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if 10.0**digits - 0.5 <= size < 1e15:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
        if "e" in text:
            mantissa, power = text.split("e")
            text = f"{mantissa}e{int(power)}"
    return text.replace("-", "−")
